//! Deltas that could not be committed are kept for a while, so that no work is lost.
//!
//! Each is a folder `kept/<task>/`: `info` (task, command, time, why), `changes` (one line of text for each change), `delta`
//! (the changes themselves), `files/` (the task's files, beneath as many folders as their paths have) and `seal` (a digest of these).
//!
//! What is kept can be written to another folder ([`Committer::recover_kept`]), or committed over what is there now
//! ([`Committer::commit_kept`]): then what it replaces is kept in its stead.

mod fit;
mod over;
mod seal;
mod stored;

pub use over::Recommitted;
pub use stored::{KeptChange, KeptInfo, SHOWN_MAX};

use super::tree::{Tree, os};
use super::{CommitError, Committer, Contents, WritePolicy, emptied, files, place, validate};
use base::codec::Encode;
use base::{Action, Change, Content, Delta, ExitStatus, TaskId, Time, TreePath};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use store::room::Room;
use stored::Stored;

/// Most deltas kept; the oldest go first.
pub const KEPT_MAX: usize = 32;
/// Most bytes of kept files together (of one delta that is larger, nothing is kept); the oldest go first.
pub const KEPT_BYTES_MAX: u64 = 8 << 30;

/// What is to be kept.
pub struct Keep<'a> {
    /// Whose.
    pub task: TaskId,
    /// The command, each word printable.
    pub argv: &'a [String],
    /// How it ended.
    pub status: ExitStatus,
    /// The changes.
    pub delta: &'a Delta,
    /// The bytes.
    pub contents: &'a dyn Contents,
    /// What may be written.
    pub write: WritePolicy<'a>,
    /// Why it was not committed.
    pub why: &'a str,
    /// Now, by the client's clock.
    pub at: Time,
}

impl Committer {
    fn kept_folder(&self) -> PathBuf {
        self.state.join("kept")
    }

    /// Keeps a delta that was not committed. Returns whether it did: not if it breaks the rules or has more than
    /// [`KEPT_BYTES_MAX`].
    ///
    /// # Errors
    /// [`CommitError::State`] if the files cannot be written.
    pub fn keep(&self, keep: &Keep<'_>) -> Result<bool, CommitError> {
        self.keep_beside(keep, None)
    }

    /// The same; to make room, what is kept of `other` is never dropped.
    fn keep_beside(&self, keep: &Keep<'_>, other: Option<TaskId>) -> Result<bool, CommitError> {
        let bytes = bytes_of(keep.delta);
        if validate(keep.delta).is_err() || bytes > KEPT_BYTES_MAX {
            return Ok(false);
        }
        let io = CommitError::State;
        files::make_private_folder(&self.kept_folder()).map_err(io)?;
        let room = Room::at(&self.kept_folder()).map_err(io)?.bytes;
        let changes: Vec<Cow<'_, Change>> = keep.delta.changes.iter().map(Cow::Borrowed).collect();
        // What the worker says of sizes is not what would be written: that is measured.
        if place::measure(&changes, keep.contents, |_| Ok((0, room))).is_err() {
            return Ok(false);
        }
        self.make_room(bytes, other).map_err(io)?;
        let folder = self.kept_folder().join(format!("{}.new", keep.task.to_hex()));
        let result = fill(&folder, keep, bytes).and_then(|()| {
            let done = self.kept_folder().join(keep.task.to_hex());
            remove(&done)?;
            std::fs::rename(&folder, done)
        });
        if result.is_err() {
            // A folder that stays is removed with the next that is kept.
            let _ = remove(&folder);
        }
        result.map(|()| true).map_err(io)
    }

    /// Drops the oldest, but not `spared`, until another one with `bytes` fits, and what was never completed.
    fn make_room(&self, bytes: u64, spared: Option<TaskId>) -> io::Result<()> {
        for entry in std::fs::read_dir(self.kept_folder())? {
            let path = entry?.path();
            if path.extension().is_some() {
                remove(&path)?;
            }
        }
        let mut kept = self.kept();
        kept.retain(|info| !self.is_stuck(info.task));
        let mut count = kept.len();
        let mut sum = kept.iter().fold(bytes, |sum, info| sum.saturating_add(info.bytes));
        kept.retain(|info| Some(info.task) != spared);
        while let Some(oldest) = kept.pop_if(|_| sum > KEPT_BYTES_MAX || count >= KEPT_MAX) {
            sum -= oldest.bytes;
            count -= 1;
            remove(&self.kept_folder().join(oldest.task.to_hex()))?;
        }
        Ok(())
    }

    /// All deltas that are kept, the newest first.
    pub fn kept(&self) -> Vec<KeptInfo> {
        let entries = std::fs::read_dir(self.kept_folder()).into_iter().flatten();
        let read = |path: PathBuf| {
            let bytes = files::read_bounded(&path.join("info"), 1 << 20).ok();
            bytes.and_then(|bytes| KeptInfo::from_bytes(&bytes).ok()).or_else(|| KeptInfo::damaged(&path))
        };
        let mut kept: Vec<KeptInfo> = entries
            .filter_map(|entry| Some(entry.ok()?.path()).filter(|path| path.extension().is_none()).and_then(read))
            .collect();
        kept.extend(self.stuck_infos());
        kept.sort_by_key(|info| std::cmp::Reverse((info.at, info.task)));
        kept
    }

    /// Copies the kept files of `task` beneath `into`, which is made if need be and must be empty. A file
    /// `GLEANER-CHANGES` lists all changes, removals and renames too.
    ///
    /// # Errors
    /// [`CommitError::State`] if nothing is kept for `task`, `into` is not empty, or copying fails.
    pub fn recover_kept(&self, task: TaskId, into: &Path) -> Result<(), CommitError> {
        let copy = || -> io::Result<()> {
            let kept = self.kept_folder().join(task.to_hex());
            let stuck = self.is_stuck(task);
            if !stuck && !kept.join("info").exists() {
                return Err(nothing_kept());
            }
            std::fs::create_dir_all(into)?;
            if std::fs::read_dir(into)?.next().is_some() {
                return Err(io::Error::other(format!("{} is not empty: name another folder", into.display())));
            }
            if stuck {
                return self.copy_stuck(task, into);
            }
            seal::check(&kept)?;
            std::fs::copy(kept.join("changes"), into.join("GLEANER-CHANGES"))?;
            copy_tree(&kept.join("files"), into)
        };
        copy().map_err(CommitError::State)
    }

    /// Forgets the kept delta of `task`; that nothing is kept is fine.
    ///
    /// # Errors
    /// [`CommitError::State`] if it cannot be removed.
    pub(super) fn drop_kept(&self, task: TaskId) -> Result<(), CommitError> {
        remove(&self.kept_folder().join(task.to_hex())).map_err(CommitError::State)
    }
}

fn remove(path: &Path) -> io::Result<()> {
    let Some(parent) = path.parent() else { return Ok(()) };
    let name = path.file_name().map(|name| name.as_encoded_bytes()).unwrap_or_default();
    emptied::remove_all(&File::open(parent)?, name)
}

pub(super) fn nothing_kept() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "nothing is kept for this task")
}

/// How many bytes the files of a delta have.
fn bytes_of(delta: &Delta) -> u64 {
    let sizes = delta.changes.iter().map(|change| match &change.action {
        Action::File { attr, change, .. } if *change != base::delta::FileChange::Attributes => attr.size,
        _ => 0,
    });
    sizes.fold(0u64, u64::saturating_add)
}

fn fill(folder: &Path, keep: &Keep<'_>, bytes: u64) -> io::Result<()> {
    files::make_private_folder(&folder.join("files"))?;
    let tree = Tree::open(&folder.join("files"))?;
    let mut lines = io::BufWriter::new(File::create(folder.join("changes"))?);
    for change in &keep.delta.changes {
        writeln!(lines, "{}", stored::line(&change.path, &change.action))?;
        make(&tree, &change.path, &change.action, keep.contents)?;
    }
    lines.flush()?;
    std::fs::write(folder.join("delta"), Stored::new(keep.status, keep.delta, keep.write).to_bytes())?;
    let info = KeptInfo {
        task: keep.task,
        argv: stored::shown_words(keep.argv),
        at: keep.at,
        why: keep.why.to_owned(),
        changes: keep.delta.changes.len() as u64,
        bytes,
        shown: stored::shown(keep.delta),
    };
    std::fs::write(folder.join("info"), info.to_bytes())?;
    seal::put(folder)
}

/// Makes the file or link of a change beneath the kept folder, with the folders above it.
fn make(tree: &Tree, path: &TreePath, action: &Action, contents: &dyn Contents) -> io::Result<()> {
    let parents = |tree: &Tree| match path.parent() {
        Some(parent) => make_folders(tree, &parent),
        None => Ok(()),
    };
    match action {
        Action::File { attr, content, change, .. } if *change != base::delta::FileChange::Attributes => {
            parents(tree)?;
            let parent = tree.parent(path)?;
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mode = Mode::from_raw_mode(0o600 | attr.mode & 0o100);
            let file = File::from(rustix::fs::openat(&*parent, os(path.name()), flags, mode)?);
            match content {
                Content::Empty => Ok(()),
                _ => contents.write_to(content, &file),
            }
        }
        Action::Symlink { target, .. } => {
            parents(tree)?;
            Ok(rustix::fs::symlinkat(os(target), &*tree.parent(path)?, os(path.name()))?)
        }
        Action::HardLink { to } => {
            parents(tree)?;
            let (from, into) = (tree.parent(to), tree.parent(path)?);
            let Ok(from) = from else { return Ok(()) };
            match rustix::fs::linkat(&*from, os(to.name()), &*into, os(path.name()), AtFlags::empty()) {
                // The other name is not part of the delta.
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(error) => Err(error.into()),
            }
        }
        Action::Directory { .. } => make_folders(tree, path),
        Action::File { .. }
        | Action::LastWrite { .. }
        | Action::Remove
        | Action::Rename { .. }
        | Action::Fifo { .. } => Ok(()),
    }
}

pub(super) fn make_folders(tree: &Tree, path: &TreePath) -> io::Result<()> {
    if tree.directory(path).is_ok() {
        return Ok(());
    }
    let mut at = TreePath::root();
    for name in path.components() {
        let parent = tree.directory(&at)?;
        match rustix::fs::mkdirat(parent.as_fd(), os(name), Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => at = at.join(name),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Copies files, folders and links, holes as holes.
fn copy_tree(from: &Path, into: &Path) -> io::Result<()> {
    let mut open = vec![(from.to_owned(), into.to_owned())];
    while let Some((from, into)) = open.pop() {
        for entry in std::fs::read_dir(&from)? {
            let entry = entry?;
            let (kind, target) = (entry.file_type()?, into.join(entry.file_name()));
            if kind.is_dir() {
                std::fs::create_dir(&target)?;
                open.push((entry.path(), target));
            } else if kind.is_symlink() {
                std::os::unix::fs::symlink(std::fs::read_link(entry.path())?, target)?;
            } else {
                let (old, new) = (File::open(entry.path())?, File::create_new(target)?);
                files::copy_content(&old, &new)?;
                new.set_permissions(old.metadata()?.permissions())?;
            }
        }
    }
    Ok(())
}
