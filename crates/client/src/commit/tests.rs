//! Tests of whole commits, on real trees.

mod conflicts;
mod crashes;
mod displaced;
mod kept;
mod locked;
mod many;
mod names;
mod others;
mod places;
mod races;
mod times;

use super::*;
use base::delta::FileChange;
use base::{Attr, Base, Digest, Seq};
use std::collections::{BTreeMap, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;

/// Contents by digest, in memory; a digest of zeros is a hole of any length.
#[derive(Default)]
struct Bytes(HashMap<Digest, Vec<u8>>, u64);

const HOLE: Content = Content::Recipe(Digest([0; 32]));

impl Contents for Bytes {
    fn measure(&self, content: &Content) -> io::Result<Measure> {
        Ok(match content {
            &HOLE => Measure { len: self.1, data: 0 },
            Content::Block(digest) => Measure { len: self.0[digest].len() as u64, data: self.0[digest].len() as u64 },
            _ => Measure::default(),
        })
    }

    fn write_to(&self, content: &Content, file: &File) -> io::Result<()> {
        match content {
            &HOLE => file.set_len(self.1),
            Content::Block(digest) => file.write_all_at(&self.0[digest], 0),
            _ => Ok(()),
        }
    }

    fn append_to(&self, content: &Content, from: u64, file: &File) -> io::Result<()> {
        if content == &HOLE {
            return file.set_len(self.1 - from);
        }
        let Content::Block(digest) = content else { return Err(io::ErrorKind::InvalidInput.into()) };
        file.write_all_at(&self.0[digest][from as usize..], file.metadata()?.len())
    }

    fn begins_as(&self, content: &Content, from: u64, file: &File) -> io::Result<bool> {
        let Content::Block(digest) = content else { return Ok(from == 0) };
        let mut there = vec![0; from as usize];
        file.read_exact_at(&mut there, 0)?;
        Ok(self.0[digest].starts_with(&there))
    }
}

/// What the task saw: the tree when this was made; what it has locked, and since when; since when it saw the tree; how many names a file may
/// have for all of them to show what is written.
struct Saw(HashMap<TreePath, (Seq, Stamp)>, Vec<TreePath>, Option<Time>, Option<Time>, u32);

impl Evidence for Saw {
    fn stamp_of(&self, path: &TreePath, seq: Seq) -> Option<Stamp> {
        self.0.get(path).filter(|(known, _)| *known == seq).map(|(_, stamp)| *stamp)
    }

    fn is_locked(&self, path: &TreePath) -> bool {
        self.1.contains(path)
    }

    fn may_show_at_all(&self, _file: (u64, u64), names: u32) -> bool {
        names <= self.4
    }

    fn kept_free(&self) -> &[TreePath] {
        if self.2.is_some() { &self.1 } else { &[] }
    }

    fn locked_since(&self) -> Option<Time> {
        self.2
    }

    fn seen_since(&self) -> Option<Time> {
        self.3
    }
}

impl Saw {
    fn base(&self, path: &TreePath) -> Base {
        self.0.get(path).map_or(Base::Absent, |(seq, _)| Base::Bound(*seq))
    }
}

/// A tree to commit to, with a committer's state beside it.
struct Scene {
    folder: tempfile::TempDir,
}

const THEN: Time = Time(1_000_000_000_000_000_000);

fn path(text: &str) -> TreePath {
    TreePath::parse(text.as_bytes()).expect("a normal path")
}

impl Scene {
    fn new(script: &str) -> Self {
        let scene = Self { folder: tempfile::tempdir().expect("a folder") };
        std::fs::create_dir(scene.root()).expect("makes the tree");
        scene.shell(script);
        scene.shell("find . -depth -exec touch -h -d @1000000000 {} +");
        scene
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("tree")
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root().join(&path[1..])
    }

    fn shell(&self, script: &str) {
        shell(&self.root(), script);
    }

    fn committer(&self) -> Committer {
        let start = std::time::Instant::now();
        loop {
            match Committer::open_at(&self.root(), &self.state()) {
                // A process that another test is starting holds all our descriptors for a moment.
                Err(CommitError::State(_)) if start.elapsed().as_secs() < 5 => std::thread::yield_now(),
                other => return other.expect("opens"),
            }
        }
    }

    fn saw(&self) -> Saw {
        let tree = Tree::open(&self.root()).expect("opens");
        let mut saw = HashMap::new();
        let mut open = vec![TreePath::root()];
        while let Some(at) = open.pop() {
            let node = tree.node(&at).expect("looks").expect("is there");
            if node.is_directory() {
                let real = self.root().join(std::ffi::OsStr::from_bytes(&at.as_bytes()[1..]));
                for entry in std::fs::read_dir(real).expect("lists") {
                    open.push(at.join(entry.expect("lists").file_name().as_encoded_bytes()));
                }
            }
            saw.insert(at, (Seq(saw.len() as u64 + 1), Stamp::of_node(&node)));
        }
        Saw(saw, Vec::new(), None, None, u32::MAX)
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.at(path)).expect("reads")
    }

    /// The same, once what a large commit displaced is removed, for which nobody waits.
    fn assert_soon_clean(&self) {
        let began = std::time::Instant::now();
        while !names_of(&self.state().join("stage")).is_empty() {
            assert!(began.elapsed().as_secs() < 60, "what was displaced stays");
            std::thread::park_timeout(std::time::Duration::from_millis(10));
        }
        self.assert_clean();
    }

    /// Whether nothing is left of any commit.
    fn assert_clean(&self) {
        for folder in ["stage", "redo"] {
            let mut left = names_of(&self.state().join(folder));
            left.retain(|name| name != "spare");
            assert!(left.is_empty(), "{folder}: {left:?}");
        }
        assert!(!self.state().join("folders").exists(), "no folder in the tree is noted");
    }

    /// All that can be seen of the tree, but times of directories that have no old one.
    fn describe(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        let mut names = HashMap::new();
        let mut open = vec![TreePath::root()];
        while let Some(at) = open.pop() {
            let real = self.root().join(std::ffi::OsStr::from_bytes(&at.as_bytes()[1..]));
            let mut entries: Vec<_> =
                std::fs::read_dir(real).expect("lists").map(|entry| entry.expect("lists")).collect();
            entries.sort_by_key(|entry| entry.file_name());
            for entry in entries {
                let path = at.join(entry.file_name().as_encoded_bytes());
                let meta = entry.metadata().expect("is there");
                let body = match meta.file_type() {
                    kind if kind.is_dir() => {
                        open.push(path.clone());
                        String::new()
                    }
                    kind if kind.is_symlink() => format!("{:?}", std::fs::read_link(entry.path()).expect("reads")),
                    kind if kind.is_file() && meta.len() < 1 << 20 => {
                        let first = names.entry(meta.ino()).or_insert_with(|| path.to_string());
                        format!("{first} {:?}", std::fs::read(entry.path()).expect("reads"))
                    }
                    _ => String::new(),
                };
                let (mode, uid, gid, mtime) = (meta.mode(), meta.uid(), meta.gid(), meta.mtime());
                let old = mtime <= 1_500_000_000;
                let time = if old { mtime.to_string() } else { "new".to_owned() };
                found.insert(path.to_string(), format!("{mode:o} {uid}:{gid} {time} {body}"));
            }
        }
        found
    }
}

/// The names in a folder.
fn names_of(folder: &Path) -> Vec<std::ffi::OsString> {
    let entries = std::fs::read_dir(folder).expect("lists");
    entries.map(|entry| entry.expect("lists").file_name()).collect()
}

fn shell(at: &Path, script: &str) {
    let output = Command::new("sh").args(["-e", "-c", script]).current_dir(at).output().expect("runs sh");
    assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Builds a delta against what a task saw.
struct Task<'a> {
    saw: &'a Saw,
    delta: Delta,
    bytes: Bytes,
}

fn attr(mode: u32, size: u64) -> Attr {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Attr { mode, uid, gid, size, mtime: THEN.plus(1_000_000_000), ..Attr::default() }
}

impl<'a> Task<'a> {
    fn new(saw: &'a Saw) -> Self {
        Self { saw, delta: Delta::default(), bytes: Bytes::default() }
    }

    fn add(mut self, at: &str, action: Action) -> Self {
        let path = path(at);
        let mut before = path.clone();
        for change in &self.delta.changes {
            if let Action::Rename { from } = &change.action
                && let Some(beneath) = path.relative_to(&change.path)
            {
                before = from.resolve(beneath).expect("no NUL");
            }
        }
        let base = match &action {
            Action::Rename { from } => self.saw.base(from),
            Action::Remove => self.saw.base(&path),
            _ => self.saw.base(&before),
        };
        self.delta.changes.push(Change { path, base, action });
        self
    }

    fn file(mut self, at: &str, text: &str, mode: u32, change: FileChange) -> Self {
        let bytes = text.as_bytes().to_vec();
        let content = if bytes.is_empty() { Content::Empty } else { Content::Block(Digest::of(&bytes)) };
        let attr = attr(mode, bytes.len() as u64);
        self.bytes.0.insert(Digest::of(&bytes), bytes);
        self.add(at, Action::File { attr, xattrs: vec![], content, change })
    }

    fn write(self, at: &str, text: &str) -> Self {
        self.file(at, text, 0o644, FileChange::Written)
    }

    fn last_write(self, at: &str, text: &str, change: FileChange) -> Self {
        let mut task = self.file(at, text, 0o640, change);
        if let Some(Change { path, base, action: Action::File { attr, xattrs, content, change } }) =
            task.delta.changes.pop()
        {
            task.delta.changes.push(Change { path, base, action: Action::LastWrite { attr, xattrs, content, change } });
        }
        task
    }

    /// With this time of the last access for what was added last.
    fn accessed(mut self, time: Time) -> Self {
        let last = self.delta.changes.last_mut().and_then(|change| change.action.attr_mut());
        last.expect("it has attributes").accessed = base::Accessed(Some(time));
        self
    }

    fn append(self, at: &str, text: &str, from: u64) -> Self {
        self.file(at, text, 0o644, FileChange::Appended { from })
    }

    fn directory(self, at: &str, mode: u32) -> Self {
        self.add(at, Action::Directory { attr: attr(mode, 0), xattrs: vec![], replaces: false })
    }

    fn remove(self, at: &str) -> Self {
        self.add(at, Action::Remove)
    }

    fn rename(self, from: &str, to: &str) -> Self {
        self.add(to, Action::Rename { from: path(from) })
    }

    fn symlink(self, at: &str, target: &str) -> Self {
        self.add(at, Action::Symlink { attr: attr(0o777, 0), target: target.into() })
    }

    fn link(self, at: &str, to: &str) -> Self {
        self.add(at, Action::HardLink { to: path(to) })
    }

    fn fifo(self, at: &str) -> Self {
        self.add(at, Action::Fifo { attr: attr(0o600, 0) })
    }

    fn commit(&self, committer: &Committer, id: u128) -> Result<Report, CommitError> {
        self.commit_if(committer, id, &|_| WriteDecision::Commit)
    }

    fn commit_if(&self, committer: &Committer, id: u128, write: WritePolicy<'_>) -> Result<Report, CommitError> {
        committer.commit(&Request {
            task: TaskId(id),
            status: ExitStatus::Code(id as u8),
            delta: &self.delta,
            evidence: self.saw,
            contents: &self.bytes,
            write,
            durable: false,
            launch: THEN,
            now: THEN.plus(2_000_000_000),
        })
    }
}
