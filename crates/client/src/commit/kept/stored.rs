//! What is stored of a kept delta: notes for its owner, and the delta itself.
//!
//! The contents of its files are not named by their hashes but by where the kept delta has them ([`name_of`]): nobody
//! but this committer reads them.

use super::super::WriteDecision;
use super::super::error::Refusal;
use super::super::plan::{get_path, get_xattrs, put_xattrs};
use base::codec::{Encode, Malformed, Reader, Writer};
use base::delta::FileChange;
use base::{Accessed, Action, Attr, Base, Change, Content, Delta, Digest, ExitStatus, Seq, TaskId, Time, TreePath};
use std::path::Path;

/// A delta that is kept, for its owner to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptInfo {
    /// Whose.
    pub task: TaskId,
    /// The command, each word printable; cut when it is long.
    pub argv: Vec<String>,
    /// When it was kept, by the client's clock.
    pub at: Time,
    /// Why it was not committed.
    pub why: String,
    /// How many changes it has.
    pub changes: u64,
    /// How many bytes its files have.
    pub bytes: u64,
    /// The first of its changes, as many as are shown.
    pub shown: Vec<KeptChange>,
}

impl KeptInfo {
    /// Of what is kept in a folder whose notes cannot be read; `None`: it is not named as such a folder is.
    pub(super) fn damaged(folder: &Path) -> Option<Self> {
        let task = TaskId::from_hex(folder.file_name()?.to_str()?)?;
        let since =
            folder.metadata().and_then(|found| found.modified()).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
        let why =
            format!("its notes are damaged: look at {}", base::path::printable(folder.as_os_str().as_encoded_bytes()));
        let at = Time(i64::try_from(since.as_nanos()).ok()?);
        Some(Self { task, argv: Vec::new(), at, why, changes: 0, bytes: 0, shown: Vec::new() })
    }
}

/// One change of a kept delta, for its owner to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptChange {
    /// Where.
    pub path: TreePath,
    /// What, with the path, printable.
    pub line: String,
}

/// Most changes of a kept delta that are shown.
pub const SHOWN_MAX: usize = 1000;
/// Most bytes that they take: an answer at the door has room for those of all kept deltas.
const SHOWN_BYTES_MAX: usize = 1 << 17;
/// Most bytes of a command that are shown.
const ARGV_BYTES_MAX: usize = 1 << 12;
/// The version of the notes.
const VERSION: u8 = 2;
/// The version of the delta: the one before knew no access times.
const DELTA_VERSION: u8 = 3;

/// The first changes of `delta`, as many as are shown.
pub(super) fn shown(delta: &Delta) -> Vec<KeptChange> {
    let mut left = SHOWN_BYTES_MAX;
    let mut shown = Vec::new();
    for change in delta.changes.iter().take(SHOWN_MAX) {
        let line = line(&change.path, &change.action);
        let room = left.checked_sub(line.len() + change.path.as_bytes().len());
        let Some(rest) = room else { break };
        left = rest;
        shown.push(KeptChange { path: change.path.clone(), line });
    }
    shown
}

/// The first words of a command, as many as are shown.
pub(super) fn shown_words(argv: &[String]) -> Vec<String> {
    let mut left = ARGV_BYTES_MAX;
    let fits = |word: &&String| {
        let room = left.checked_sub(word.len() + 1);
        left = room.unwrap_or(0);
        room.is_some()
    };
    argv.iter().take_while(fits).cloned().collect()
}

/// A change as a line of text.
pub(super) fn line(path: &TreePath, action: &Action) -> String {
    match action {
        Action::Remove => format!("removed    {path}"),
        Action::Rename { from } => format!("renamed    {from} -> {path}"),
        Action::Directory { attr, .. } => format!("directory  {path} (mode {:o})", attr.mode),
        Action::File { attr, change: FileChange::Attributes, .. } => {
            format!("attributes {path} (mode {:o})", attr.mode)
        }
        Action::File { attr, .. } => format!("file       {path} (mode {:o}, {} bytes)", attr.mode, attr.size),
        Action::LastWrite { .. } => format!("last write {path} (of a file that has other names; not kept)"),
        Action::Symlink { target, .. } => format!("link       {path} -> {}", base::path::printable(target)),
        Action::HardLink { to } => format!("hard link  {path} = {to}"),
        Action::Fifo { .. } => format!("pipe       {path}"),
    }
}

impl Encode for KeptInfo {
    fn encode(&self, out: &mut Writer) {
        out.u8(VERSION);
        out.u128(self.task.0);
        out.list(&self.argv, |out, word| out.bytes(word.as_bytes()));
        out.i64(self.at.0);
        out.bytes(self.why.as_bytes());
        out.u64(self.changes);
        out.u64(self.bytes);
        out.list(&self.shown, |out, change| {
            out.bytes(change.path.as_bytes());
            out.bytes(change.line.as_bytes());
        });
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        if from.u8()? != VERSION {
            return Err(Malformed("notes on a kept delta, of an unknown version"));
        }
        Ok(Self {
            task: TaskId(from.u128()?),
            argv: from.list(get_text)?,
            at: Time(from.i64()?),
            why: get_text(from)?,
            changes: from.u64()?,
            bytes: from.u64()?,
            shown: from.list(|from| Ok(KeptChange { path: get_path(from)?, line: get_text(from)? }))?,
        })
    }
}

fn get_text(from: &mut Reader<'_>) -> Result<String, Malformed> {
    Ok(String::from_utf8_lossy(from.bytes()?).into_owned())
}

/// A kept delta, with what its commit needs beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    /// How the task ended.
    pub status: ExitStatus,
    /// The changes. Contents are named by [`name_of`].
    pub delta: Delta,
    /// Paths that the write policy drops.
    pub scratch: Vec<TreePath>,
    /// Paths that the write policy refuses.
    pub refused: Vec<Refusal>,
}

/// The name of the content that a kept delta has at `path`.
pub(super) fn name_of(path: &TreePath, size: u64) -> Content {
    if size == 0 { Content::Empty } else { Content::Recipe(Digest::of(path.as_bytes())) }
}

impl Stored {
    /// What is stored of `delta`, about which `write` is asked now: it knows the command.
    pub(super) fn new(status: ExitStatus, delta: &Delta, write: super::super::WritePolicy<'_>) -> Self {
        let mut stored = Self { status, delta: Delta::default(), scratch: Vec::new(), refused: Vec::new() };
        for change in &delta.changes {
            let mut change = change.clone();
            let other = match &mut change.action {
                Action::File { attr, content, change: how, .. } => {
                    let size = if *how == FileChange::Attributes { 0 } else { attr.size };
                    *content = name_of(&change.path, size);
                    None
                }
                Action::LastWrite { content, .. } => {
                    *content = Content::Empty;
                    None
                }
                Action::Rename { from } => Some(from.clone()),
                Action::HardLink { to } => Some(to.clone()),
                _ => None,
            };
            for path in [Some(change.path.clone()), other].into_iter().flatten() {
                match write(&path) {
                    WriteDecision::Commit => {}
                    WriteDecision::Scratch(_) => stored.scratch.push(path),
                    WriteDecision::Refuse(reason) => stored.refused.push(Refusal { path, reason }),
                }
            }
            stored.delta.changes.push(change);
        }
        stored
    }
}

impl Encode for Stored {
    fn encode(&self, out: &mut Writer) {
        out.u8(DELTA_VERSION);
        self.status.encode(out);
        out.list(&self.delta.changes, put_change);
        out.list(&self.scratch, |out, path| out.bytes(path.as_bytes()));
        out.list(&self.refused, |out, refusal| {
            out.bytes(refusal.path.as_bytes());
            out.bytes(refusal.reason.as_bytes());
        });
        out.list(&self.delta.changes, |out, change| {
            let accessed = change.action.attr().and_then(|attr| attr.accessed.0);
            out.option(accessed.as_ref(), |out, time| out.i64(time.0));
        });
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let version = from.u8()?;
        if !(2..=DELTA_VERSION).contains(&version) {
            return Err(Malformed("a kept delta of an unknown version"));
        }
        let mut stored = Self {
            status: ExitStatus::decode(from)?,
            delta: Delta { changes: from.list(get_change)? },
            scratch: from.list(get_path)?,
            refused: from.list(|from| Ok(Refusal { path: get_path(from)?, reason: get_text(from)? }))?,
        };
        if version < DELTA_VERSION {
            return Ok(stored);
        }
        let accessed = from.list(|from| from.option(|from| Ok(Time(from.i64()?))))?;
        if accessed.len() != stored.delta.changes.len() {
            return Err(Malformed("a kept delta with other times than changes"));
        }
        for (change, accessed) in stored.delta.changes.iter_mut().zip(accessed) {
            if let Some(attr) = change.action.attr_mut() {
                attr.accessed = Accessed(accessed);
            }
        }
        Ok(stored)
    }
}

fn put_change(out: &mut Writer, change: &Change) {
    out.bytes(change.path.as_bytes());
    let seq = match change.base {
        Base::Absent => None,
        Base::Bound(Seq(number)) => Some(number),
    };
    out.option(seq.as_ref(), |out, number| out.u64(*number));
    match &change.action {
        Action::Remove => out.u8(0),
        Action::Rename { from } => {
            out.u8(1);
            out.bytes(from.as_bytes());
        }
        Action::Directory { attr, xattrs, replaces } => {
            out.u8(2);
            put_attr(out, attr);
            put_xattrs(out, xattrs);
            out.bool(*replaces);
        }
        Action::File { attr, xattrs, content: _, change } => {
            out.u8(3);
            put_attr(out, attr);
            put_xattrs(out, xattrs);
            match change {
                FileChange::Written => out.u8(0),
                FileChange::Appended { from } => {
                    out.u8(1);
                    out.u64(*from);
                }
                FileChange::Attributes => out.u8(2),
            }
        }
        Action::Symlink { attr, target } => {
            out.u8(4);
            put_attr(out, attr);
            out.bytes(target);
        }
        Action::HardLink { to } => {
            out.u8(5);
            out.bytes(to.as_bytes());
        }
        Action::Fifo { attr } => {
            out.u8(6);
            put_attr(out, attr);
        }
        // Its bytes are not kept: by the time of its recovery nothing leads to the file.
        Action::LastWrite { attr, .. } => {
            out.u8(7);
            put_attr(out, attr);
        }
    }
}

fn get_change(from: &mut Reader<'_>) -> Result<Change, Malformed> {
    let path = get_path(from)?;
    let base = from.option(|from| from.u64())?.map_or(Base::Absent, |number| Base::Bound(Seq(number)));
    let action = match from.u8()? {
        0 => Action::Remove,
        1 => Action::Rename { from: get_path(from)? },
        2 => Action::Directory { attr: get_attr(from)?, xattrs: get_xattrs(from)?, replaces: from.bool()? },
        3 => {
            let (attr, xattrs) = (get_attr(from)?, get_xattrs(from)?);
            let change = match from.u8()? {
                0 => FileChange::Written,
                1 => FileChange::Appended { from: from.u64()? },
                2 => FileChange::Attributes,
                _ => return Err(Malformed("an unknown kind of file change")),
            };
            let size = if change == FileChange::Attributes { 0 } else { attr.size };
            Action::File { attr, xattrs, content: name_of(&path, size), change }
        }
        4 => Action::Symlink { attr: get_attr(from)?, target: from.bytes()?.to_vec() },
        5 => Action::HardLink { to: get_path(from)? },
        6 => Action::Fifo { attr: get_attr(from)? },
        7 => {
            let (attr, xattrs) = (get_attr(from)?, Vec::new());
            Action::LastWrite { attr, xattrs, content: Content::Empty, change: FileChange::Attributes }
        }
        _ => return Err(Malformed("an unknown kind of change")),
    };
    Ok(Change { path, base, action })
}

/// Of attributes, those that a commit gives.
fn put_attr(out: &mut Writer, attr: &Attr) {
    out.u32(attr.mode);
    out.u32(attr.uid);
    out.u32(attr.gid);
    out.u64(attr.size);
    out.i64(attr.mtime.0);
}

fn get_attr(from: &mut Reader<'_>) -> Result<Attr, Malformed> {
    let (mode, uid, gid) = (from.u32()?, from.u32()?, from.u32()?);
    Ok(Attr { mode, uid, gid, size: from.u64()?, mtime: Time(from.i64()?), ..Attr::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> TreePath {
        TreePath::parse(text.as_bytes()).expect("a normal path")
    }

    fn every_change() -> Delta {
        let accessed = Accessed(Some(Time(-5)));
        let attr = Attr { mode: 0o644, uid: 1, gid: 2, size: 3, mtime: Time(-4), accessed, ..Attr::default() };
        let xattrs = vec![base::Xattr { name: b"user.a".to_vec(), value: b"v".to_vec() }];
        let file = |change| Action::File { attr, xattrs: xattrs.clone(), content: Content::Empty, change };
        let actions = [
            Action::Rename { from: path("/from") },
            Action::Remove,
            Action::Directory { attr, xattrs: xattrs.clone(), replaces: true },
            file(FileChange::Written),
            file(FileChange::Appended { from: 2 }),
            file(FileChange::Attributes),
            Action::Symlink { attr, target: b"t\xff".to_vec() },
            Action::HardLink { to: path("/to") },
            Action::Fifo { attr },
        ];
        let bases = [Base::Bound(Seq(7)), Base::Absent];
        let change = |(at, action)| Change { path: path(&format!("/{at}")), base: bases[at % 2], action };
        Delta { changes: actions.into_iter().enumerate().map(change).collect() }
    }

    #[test]
    fn stored_deltas_round_trip_and_keep_their_bytes() {
        let policy = |at: &TreePath| match at.as_bytes() {
            b"/3" => WriteDecision::Scratch("is a cache"),
            b"/from" => WriteDecision::Refuse("is refused".into()),
            _ => WriteDecision::Commit,
        };
        let stored = Stored::new(ExitStatus::Code(5), &every_change(), &policy);
        assert_eq!(stored.scratch, [path("/3")]);
        assert_eq!(stored.refused, [Refusal { path: path("/from"), reason: "is refused".into() }]);
        let bytes = stored.to_bytes();
        assert_eq!(Stored::from_bytes(&bytes).as_ref(), Ok(&stored));
        let accessed = |bytes: &[u8]| {
            let stored = Stored::from_bytes(bytes).expect("reads");
            stored.delta.changes[3].action.attr().expect("a file has attributes").accessed.0
        };
        assert_eq!(accessed(&bytes), Some(Time(-5)));
        let digest = Digest::of(&bytes).to_hex();
        assert_eq!(
            digest, "f1232fe32ab7222dced35c325070b91a0ef701333c869cbc0e7463b95ced2f2e",
            "the stored format changed: raise DELTA_VERSION and keep a reader"
        );
        // As the version before wrote it: without the list at the end, of a number and nine times of nine bytes but for three.
        let times =
            4 + stored.delta.changes.iter().map(|change| 1 + 8 * change.action.attr().iter().len()).sum::<usize>();
        let mut before = bytes[..bytes.len() - times].to_vec();
        before[0] = 2;
        let digest = Digest::of(&before).to_hex();
        assert_eq!(digest, "9d47870cb8713d223b29488043f7792a0701afc9424586e05544b7c552cb66b6");
        assert_eq!((Stored::from_bytes(&before), accessed(&before)), (Ok(stored), None));
        for cut in 0..bytes.len() {
            assert!(Stored::from_bytes(&bytes[..cut]).is_err(), "a delta of {cut} bytes");
        }
    }

    #[test]
    fn what_is_shown_is_bounded() {
        let long = path(&format!("/{}", ["x"; 2000].join("/")));
        let change = Change { path: long, base: Base::Bound(Seq(1)), action: Action::Remove };
        let delta = Delta { changes: vec![change; 5000] };
        let shown = shown(&delta);
        assert!((1..SHOWN_MAX).contains(&shown.len()), "{}", shown.len());
        let words: Vec<String> = vec!["word".into(), "x".repeat(ARGV_BYTES_MAX), "y".into()];
        assert_eq!(shown_words(&words), ["word"]);
    }
}
