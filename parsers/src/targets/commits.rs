//! Deltas of hostile workers, committed to a real tree: nothing outside the project changes, and a commit that fails has changed nothing.

use super::made;
use crate::{Draw, Target};
use base::delta::FileChange;
use base::{Action, Content, Delta, ExitStatus, Seq, TaskId, Time, TreePath};
use client::commit::{CommitError, Committer, Contents, Evidence, Measure, Request, Stamp, WriteDecision};
use prost::Message;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use wire::convert;
use wire::message::Exited;

/// Whole commits.
pub const COMMIT: Target = Target { name: "commit", check, draw, heap: |bytes| (8 << 20) + 2000 * bytes.len() };

/// The folder that the policy lets out of the tree into the hands of a task.
const PROJECT: &str = "/a";
/// Where a task's changes are dropped.
const SCRATCH: &str = "/c";
/// Length of each block here; a recipe is a hole of twice that.
const BLOCK_BYTES: u64 = 8;
const THEN: Time = Time(1_000_000_000_000_000_000);

/// Linux 6.8.
const STATX_MNT_ID_UNIQUE: u32 = 0x4000;

/// Contents by name: any name is known.
struct Blocks;

impl Blocks {
    fn bytes(content: &Content) -> Vec<u8> {
        match content {
            Content::Block(digest) => digest.0[..BLOCK_BYTES as usize].to_vec(),
            Content::Recipe(_) => vec![0; 2 * BLOCK_BYTES as usize],
            _ => Vec::new(),
        }
    }
}

impl Contents for Blocks {
    fn measure(&self, content: &Content) -> io::Result<Measure> {
        let len = Self::bytes(content).len() as u64;
        Ok(Measure { len, data: len })
    }

    fn write_to(&self, content: &Content, file: &File) -> io::Result<()> {
        file.write_all_at(&Self::bytes(content), 0)
    }

    fn append_to(&self, content: &Content, from: u64, file: &File) -> io::Result<()> {
        let bytes = Self::bytes(content);
        let rest = bytes.get(from as usize..).ok_or(io::ErrorKind::InvalidInput)?;
        file.write_all_at(rest, file.metadata()?.len())
    }

    fn begins_as(&self, content: &Content, from: u64, file: &File) -> io::Result<bool> {
        let mut there = vec![0; (from as usize).min(1 << 20)];
        let count = file.read_at(&mut there, 0)?;
        Ok(count as u64 == from && Self::bytes(content).starts_with(&there))
    }
}

/// The task saw all that is there, whichever number it gives.
struct Saw(HashMap<TreePath, Stamp>);

impl Evidence for Saw {
    fn stamp_of(&self, path: &TreePath, _: Seq) -> Option<Stamp> {
        self.0.get(path).copied()
    }
}

/// A tree with a project, links that lead out of it, and things beside it.
struct Scene(tempfile::TempDir);

impl Scene {
    fn new() -> io::Result<Self> {
        let scene = Self(tempfile::tempdir()?);
        let tree = scene.tree();
        for folder in ["a/a", "a/d/b", "a/.git", "b/d", "c", "../outside"] {
            std::fs::create_dir_all(tree.join(folder))?;
        }
        for (file, text) in [
            ("a/b", "one"),
            ("a/a/b", "two"),
            ("a/d/b/c", "three"),
            ("a/.git/a", "four"),
            ("b/a", "beside"),
            ("b/d/a", "below"),
            ("../outside/a", "outside"),
        ] {
            std::fs::write(tree.join(file), text)?;
        }
        symlink("../b", tree.join("a/link"))?;
        symlink("/b", tree.join("a/c"))?;
        symlink("../../../outside", tree.join("a/a/link"))?;
        symlink("a", tree.join("link"))?;
        Ok(scene)
    }

    fn tree(&self) -> PathBuf {
        self.0.path().join("tree")
    }

    fn state(&self) -> PathBuf {
        self.0.path().join("state")
    }

    fn saw(&self) -> io::Result<Saw> {
        let mut saw = HashMap::new();
        for path in below(&self.tree())? {
            let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
            // A mount has the number that it never has again, as the committer asks for it.
            let unique = rustix::fs::StatxFlags::from_bits_retain(STATX_MNT_ID_UNIQUE);
            let wanted = rustix::fs::StatxFlags::BASIC_STATS | rustix::fs::StatxFlags::MNT_ID | unique;
            let stat = rustix::fs::statx(rustix::fs::CWD, &path, flags, wanted)?;
            saw.insert(in_tree(&self.tree(), &path), Stamp::of(&stat));
        }
        Ok(Saw(saw))
    }

    /// What is there: kind, rights, and contents, of all but the committer's own folder.
    fn describe(&self) -> io::Result<BTreeMap<PathBuf, String>> {
        let mut found = BTreeMap::new();
        for path in below(self.0.path())?.into_iter().filter(|path| !path.starts_with(self.state())) {
            let meta = std::fs::symlink_metadata(&path)?;
            let body = match meta.file_type() {
                kind if kind.is_symlink() => format!("{:?}", std::fs::read_link(&path)?),
                kind if kind.is_file() => format!("{:?}", std::fs::read(&path)?),
                _ => String::new(),
            };
            found.insert(path, format!("{:o} {}:{} {body}", meta.mode(), meta.uid(), meta.gid()));
        }
        Ok(found)
    }
}

/// A folder and all beneath it.
fn below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = vec![folder.to_path_buf()];
    let mut at = 0;
    while at < found.len() {
        if std::fs::symlink_metadata(&found[at])?.is_dir() {
            for entry in std::fs::read_dir(&found[at])? {
                found.push(entry?.path());
            }
        }
        at += 1;
    }
    Ok(found)
}

fn in_tree(tree: &Path, path: &Path) -> TreePath {
    let inner = path.strip_prefix(tree).expect("it is in the tree");
    TreePath::root().resolve(inner.as_os_str().as_bytes()).expect("no NUL")
}

fn project() -> TreePath {
    TreePath::parse(PROJECT.as_bytes()).expect("it is normal")
}

fn policy(path: &TreePath) -> WriteDecision {
    let is_in = |folder: &str| path.is_within(&TreePath::parse(folder.as_bytes()).expect("it is normal"));
    match (is_in(PROJECT) && !is_in("/a/.git"), is_in(SCRATCH)) {
        (true, _) => WriteDecision::Commit,
        (_, true) => WriteDecision::Scratch("is a cache"),
        _ => WriteDecision::Refuse("is outside the write policy".into()),
    }
}

fn check(bytes: &[u8]) -> bool {
    let Some(delta) = Exited::decode(bytes).ok().and_then(|exited| convert::delta(exited.changes).ok()) else {
        return false;
    };
    let scene = Scene::new().expect("a tree");
    let (saw, before) = (scene.saw().expect("it is seen"), scene.describe().expect("it is seen"));
    let committer = Committer::open_at(&scene.tree(), &scene.state()).expect("its folder is free");
    let result = committer.commit(&Request {
        task: TaskId(1),
        status: ExitStatus::Code(0),
        delta: &delta,
        evidence: &saw,
        contents: &Blocks,
        write: &policy,
        durable: false,
        launch: THEN,
        now: THEN.plus(2_000_000_000),
    });
    let after = scene.describe().expect("it is seen");
    match &result {
        Ok(_) => {
            let project = scene.tree().join(OsStr::from_bytes(&project().as_bytes()[1..]));
            let git = project.join(".git");
            let is_open = |path: &Path| path.starts_with(&project) && !path.starts_with(&git);
            compare(&before, &after, |path| !is_open(path), "a commit changed what the policy closes");
        }
        Err(error) => {
            assert!(!matches!(error, CommitError::HalfUndone { .. }), "{error}");
            compare(&before, &after, |_| true, &format!("a commit failed ({error}) and changed something"));
        }
    }
    for folder in ["stage", "redo"] {
        let entries = std::fs::read_dir(scene.state().join(folder)).into_iter().flatten().flatten();
        let left: Vec<_> = entries.map(|entry| entry.file_name()).filter(|name| name != "spare").collect();
        assert!(left.is_empty(), "{folder} holds {left:?} after {result:?}");
    }
    true
}

fn compare(
    before: &BTreeMap<PathBuf, String>,
    after: &BTreeMap<PathBuf, String>,
    counts: impl Fn(&Path) -> bool,
    what: &str,
) {
    let of = |all: &BTreeMap<PathBuf, String>| -> BTreeMap<PathBuf, String> {
        all.iter().filter(|(path, _)| counts(path)).map(|(path, is)| (path.clone(), is.clone())).collect()
    };
    let (before, after) = (of(before), of(after));
    assert!(before == after, "{what}: {before:#?} became {after:#?}");
}

fn draw(draw: &mut Draw<'_>) -> Vec<u8> {
    let mut changes = draw.list(5, made::change);
    for change in &mut changes {
        // Most are in the project, where something is done.
        if !draw.byte().is_multiple_of(8) {
            change.path =
                project().resolve(change.path.relative_to(&TreePath::root()).expect("all is")).expect("no NUL");
        }
        if let Action::File { attr, content, change, .. } | Action::LastWrite { attr, content, change, .. } =
            &mut change.action
        {
            attr.size = Blocks::bytes(content).len() as u64;
            if let FileChange::Appended { from } = change {
                *from = (*from).min(attr.size);
            }
        }
    }
    // In the order that a delta has.
    changes.sort_by_key(|change| match change.action {
        Action::LastWrite { .. } => 0,
        Action::Rename { .. } => 1,
        Action::Remove => 2,
        _ => 3,
    });
    let delta = Delta { changes };
    Exited { changes: delta.changes.iter().map(Into::into).collect(), ..Exited::default() }.encode_to_vec()
}
