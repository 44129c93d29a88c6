//! Making what a commit moves into place: files from their contents (before the lock is taken), directories, links and
//! pipes (while planning).

use super::apply::io_error;
use super::before::Before;
use super::check::{Planner, meta};
use super::error::CommitError;
use super::stage::{Slot, Stages};
use super::tree::{self, Meta, Node, Tree, node_of, os, set_meta};
use super::validate::committed_xattrs;
use super::{Contents, crash};
use base::delta::FileChange;
use base::{Action, Attr, Base, Change, Content, Time, TreePath};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use store::room::Room;

/// Which change's new content is in which slot.
#[derive(Default)]
pub(crate) struct Slots(Vec<Option<Slot>>);

impl Slots {
    /// The slot of the change with this index.
    pub(crate) fn get(&self, index: usize) -> Option<Slot> {
        self.0.get(index).copied().flatten()
    }
}

/// Checks what a delta says of its files' sizes against their contents, and that there is room for them, before anything is written.
/// Many small files may name one large block: what counts is what is written.
pub(crate) fn measure(
    changes: &[Cow<'_, Change>],
    contents: &dyn Contents,
    room_at: impl Fn(&TreePath) -> io::Result<(u64, u64)>,
) -> Result<(), CommitError> {
    let mut by_disk: HashMap<u64, (u64, u64)> = HashMap::new();
    let mut last: Option<(TreePath, u64)> = None;
    for change in changes {
        let Some((attr, content, how)) = change.action.file() else { continue };
        if how == FileChange::Attributes {
            continue;
        }
        let path = &change.path;
        let measured = contents.measure(content).map_err(|error| content_error(path, error))?;
        if measured.len != attr.size {
            let why = format!("it has {} bytes where {} were announced", measured.len, attr.size);
            return Err(CommitError::Content { path: path.clone(), why });
        }
        let kept = if let FileChange::Appended { from } = how { from } else { 0 };
        let parent = path.parent().unwrap_or_else(TreePath::root);
        let disk = match &last {
            Some((at, disk)) if *at == parent => *disk,
            _ => {
                let (disk, room) = room_at(&parent).map_err(|source| io_error("look at the disk of", path, source))?;
                by_disk.entry(disk).or_insert((0, room));
                last = Some((parent, disk));
                disk
            }
        };
        if let Some((sum, room)) = by_disk.get_mut(&disk) {
            *sum = sum.saturating_add(measured.data.min(measured.len.saturating_sub(kept)));
            if *sum > *room {
                return Err(CommitError::NoSpace(path.clone()));
            }
        }
    }
    Ok(())
}

/// The disk of the nearest directory at or above `path` that is there, and how many bytes a commit may write to it.
pub(crate) fn room_at(tree: &Tree, path: &TreePath) -> io::Result<(u64, u64)> {
    let mut at = Some(path.clone());
    while let Some(here) = at {
        if let Ok(held) = tree.directory(&here) {
            return Ok((node_of(&*held)?.dev, Room::of_open(&*held)?.bytes));
        }
        at = here.parent();
    }
    Ok((0, u64::MAX))
}

/// Writes the contents of all files of `changes` to the staging folders.
pub(crate) fn stage_files(
    tree: &Tree,
    stages: &mut Stages<'_>,
    changes: &[Cow<'_, Change>],
    contents: &dyn Contents,
) -> Result<Slots, CommitError> {
    let mut slots = Vec::with_capacity(changes.len());
    let mut last: Option<(TreePath, bool, u32)> = None;
    let before = Before::of(changes.iter().map(|change| &**change));
    for change in changes {
        let (Action::File { attr, xattrs, content, change: how }
        | Action::LastWrite { attr, xattrs, content, change: how }) = &change.action
        else {
            slots.push(None);
            continue;
        };
        if *how == FileChange::Attributes {
            slots.push(None);
            continue;
        }
        let path = &change.path;
        let io = |source| io_error("stage", path, source);
        crash::point().map_err(io)?;
        let parent = path.parent().unwrap_or_else(TreePath::root);
        let is_new = match before.origin(path) {
            Some(here) => change.base == Base::Absent || is_another(tree, &here, attr).map_err(io)?,
            None => true,
        };
        let folder = match &last {
            Some((at, new, folder)) if (at, *new) == (&parent, is_new) => *folder,
            _ => folder_near(tree, stages, &parent, &before, is_new).map_err(io)?,
        };
        last = Some((parent, is_new, folder));
        let slot = stages.slot(folder);
        let linked = *how == FileChange::Written && link(contents, content, stages, slot).map_err(io)?;
        let file = if linked { stages.open(slot) } else { stages.create(slot) }.map_err(io)?;
        let filled = if linked { Ok(attr.size) } else { fill(contents, content, how, attr.size, &file) };
        let want = filled.map_err(|error| content_error(path, error))?;
        let got = file.metadata().map_err(io)?.len();
        if got != want {
            let why = format!("{got} bytes came where {want} were announced");
            return Err(CommitError::Content { path: path.clone(), why });
        }
        let new = Meta { xattrs: Some(committed_xattrs(xattrs)), ..meta(attr, attr.mode & 0o1777) };
        set_meta(&OwnedFd::from(file), &new).map_err(io)?;
        slots.push(Some(slot));
    }
    Ok(Slots(slots))
}

/// Whether what is at `path` before the commit belongs to somebody else than the file that is to be there, which thus is another one.
fn is_another(tree: &Tree, path: &TreePath, attr: &Attr) -> io::Result<bool> {
    Ok(tree.node(path)?.is_some_and(|node| node.uid != attr.uid))
}

/// Makes the file of `slot` by a link, if there is one with its content. Not where it would have to get the folder's group.
fn link(contents: &dyn Contents, content: &Content, stages: &Stages<'_>, slot: Slot) -> io::Result<bool> {
    let may_be = matches!(content, Content::Recipe(_)) && stages.group(slot.folder).is_none();
    Ok(may_be && contents.link_to(content, stages.held(slot.folder), &stages.name(slot))?)
}

/// Writes what a slot is to hold, and returns how much that should have been.
fn fill(
    contents: &dyn Contents,
    content: &Content,
    how: &FileChange,
    size: u64,
    file: &std::fs::File,
) -> io::Result<u64> {
    match (how, content) {
        (FileChange::Appended { from }, _) if *from > 0 => {
            contents.append_to(content, *from, file).map(|()| size - from)
        }
        (_, Content::Empty) => Ok(0),
        _ => contents.write_to(content, file).map(|()| size),
    }
}

fn content_error(path: &TreePath, error: io::Error) -> CommitError {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT) => CommitError::NoSpace(path.clone()),
        _ => CommitError::Content { path: path.clone(), why: error.to_string() },
    }
}

/// The staging folder for entries of `directory`, which this delta may yet have to make or to rename.
fn folder_near(
    tree: &Tree,
    stages: &mut Stages<'_>,
    directory: &TreePath,
    before: &Before<'_>,
    is_new: bool,
) -> io::Result<u32> {
    let mut at = Some(directory.clone());
    while let Some(path) = at {
        if let Some(here) = before.origin(&path)
            && tree.node(&here)?.is_some_and(|node| node.is_directory())
        {
            return stages.folder_for(tree, &here, is_new);
        }
        at = path.parent();
    }
    Ok(0)
}

/// Makes a directory in `slot`, open to this user until the commit's end.
pub(crate) fn make_directory(stages: &Stages<'_>, slot: Slot, new: &Meta) -> io::Result<Node> {
    let mode = Mode::from_raw_mode((new.mode & 0o1777) | 0o700);
    let make = || rustix::fs::mkdirat(stages.held(slot.folder), os(&stages.name(slot)), mode);
    match stages.group(slot.folder) {
        // Who is not in its group cannot give it a mode later without losing set-group-id.
        Some(_) => without_umask(make)?,
        None => make()?,
    }
    crash::point()?;
    let held = stages.hold(slot)?;
    set_meta(&held, &Meta { mode: new.mode | 0o700, mtime: Time(0), atime: None, ..new.clone() })?;
    node_of(&held)
}

/// Does `work` in a thread of its own that has no file mode creation mask.
fn without_umask<T: Send>(work: impl FnOnce() -> rustix::io::Result<T> + Send) -> io::Result<T> {
    let alone = || {
        // SAFETY: the thread ends with `work`, and only its mask differs from that of the others until then.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FS)? };
        rustix::process::umask(Mode::empty());
        Ok(work()?)
    };
    let ended = std::thread::scope(|scope| scope.spawn(alone).join());
    ended.unwrap_or_else(|_| Err(io::Error::other("the thread that makes a directory failed")))
}

impl Planner<'_, '_> {
    /// Makes a link or pipe in a slot; `None` if there is a conflict.
    pub(crate) fn make_other(&mut self, path: &TreePath, action: &Action) -> Result<Option<Slot>, CommitError> {
        let io = |source| io_error("make", path, source);
        if let Action::HardLink { to } = action {
            return self.make_hard_link(path, to);
        }
        let slot = self.slot_for(path, true)?;
        let (held, name) = (self.stages.held(slot.folder), self.stages.name(slot));
        let attr = match action {
            Action::Symlink { attr, target } => {
                rustix::fs::symlinkat(os(target), held, os(&name)).map_err(|error| io(error.into()))?;
                attr
            }
            Action::Fifo { attr } => {
                let mode = Mode::from_raw_mode(0o600);
                rustix::fs::mkfifoat(held, os(&name), mode).map_err(|error| io(error.into()))?;
                attr
            }
            _ => return Ok(None),
        };
        crash::point().map_err(io)?;
        let held = self.stages.hold(slot).map_err(io)?;
        set_meta(&held, &meta(attr, attr.mode & 0o1777)).map_err(io)?;
        Ok(Some(slot))
    }

    fn make_hard_link(&mut self, path: &TreePath, to: &TreePath) -> Result<Option<Slot>, CommitError> {
        let io = |source| io_error("link", path, source);
        let slot = self.slot_for(path, false)?;
        let name = self.stages.name(slot);
        let into = self.stages.held(slot.folder);
        if let Some(from) = self.placed.get(to) {
            let (held, from_name) = (self.stages.held(from.folder), self.stages.name(*from));
            rustix::fs::linkat(held, os(&from_name), into, os(&name), AtFlags::empty())
                .map_err(|error| io(error.into()))?;
            return Ok(Some(slot));
        }
        let Some(origin) = self.origin(to) else {
            self.conflict(to, super::ConflictKind::Gone);
            return Ok(None);
        };
        match self.look(&origin)? {
            Some(node) if node.is_file() && self.copied.contains(path) => {
                self.copy_to(&origin, slot, &node)?;
                return Ok(Some(slot));
            }
            Some(node) if !node.is_directory() => {}
            _ => {
                self.conflict(to, super::ConflictKind::Gone);
                return Ok(None);
            }
        }
        let parent = self.tree.parent(&origin).map_err(io)?;
        let into = self.stages.held(slot.folder);
        rustix::fs::linkat(&*parent, os(origin.name()), into, os(&name), AtFlags::empty())
            .map_err(|error| io(error.into()))?;
        crash::point().map_err(io)?;
        Ok(Some(slot))
    }

    /// Whether what `action` is to make is at `path` already, made by somebody else.
    pub(crate) fn is_there_already(
        &mut self,
        path: &TreePath,
        action: &Action,
        node: &Node,
    ) -> Result<bool, CommitError> {
        let Some(origin) = self.origin(path) else { return Ok(false) };
        Ok(match action {
            Action::Symlink { target, .. } if node.kind == rustix::fs::FileType::Symlink => {
                let io = |source| io_error("read", path, source);
                let parent = self.tree.parent(&origin).map_err(io)?;
                let there = rustix::fs::readlinkat(&*parent, os(origin.name()), Vec::new());
                there.is_ok_and(|there| there.as_bytes() == target)
            }
            Action::Fifo { attr } => node.kind == rustix::fs::FileType::Fifo && node.mode == attr.mode & 0o1777,
            Action::HardLink { to } if !self.placed.contains_key(to) => {
                let Some(to) = self.origin(to) else { return Ok(false) };
                self.look(&to)?.is_some_and(|other| (other.dev, other.ino) == (node.dev, node.ino))
            }
            _ => false,
        })
    }
}

/// Opens the directory at `path` to flush it.
pub(crate) fn flush_directory(tree: &Tree, path: &TreePath) -> io::Result<()> {
    let held = tree.directory(path)?;
    let open = tree::open_beneath(held.as_fd(), b"", OFlags::RDONLY | OFlags::DIRECTORY)?;
    Ok(rustix::fs::fsync(&open)?)
}
