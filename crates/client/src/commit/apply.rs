//! Doing and undoing the steps of a plan. Each is one change of the tree, or can be repeated.

use super::check::meta_of;
use super::crash;
use super::error::CommitError;
use super::files;
use super::plan::{Plan, Step};
use super::rights;
use super::stage::{Slot, Stages, StateFailure, names_in};
use super::stamp::Seen;
use super::tree::{self, Meta, Tree, os, set_meta};
use base::{Digest, TreePath};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

/// Why a step was not done.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Somebody changed the path since it was looked at; the step left it as it was.
    Late(TreePath),
    /// What should be in the staging folder is not.
    Incomplete(TreePath),
    /// The system refused.
    Io { what: &'static str, path: TreePath, source: io::Error },
}

impl Failure {
    /// The error of a commit that failed like this.
    pub(crate) fn into_error(self) -> CommitError {
        match self {
            Self::Late(path) => {
                CommitError::Conflict(vec![super::Conflict { path, why: super::ConflictKind::Changed }])
            }
            Self::Incomplete(path) => {
                let source = io::Error::other("its new content is missing in the staging folder");
                CommitError::Io { what: "put into place", path, source }
            }
            Self::Io { what, path, source } => io_error(what, &path, source),
        }
    }
}

/// The error for a failed system call: no room, or what the system said; of the state folder, if that failed.
pub(crate) fn io_error(what: &'static str, path: &TreePath, source: io::Error) -> CommitError {
    let source = match StateFailure::within(source) {
        Ok(failed) => return CommitError::State(failed),
        Err(source) => source,
    };
    match source.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT) => CommitError::NoSpace(path.clone()),
        _ => CommitError::Io { what, path: path.clone(), source },
    }
}

/// Carries out steps on a tree.
pub(crate) struct Applier<'a> {
    pub tree: &'a Tree,
    pub stages: &'a Stages<'a>,
    /// Steps may have been done already, in a life of the daemon that ended.
    pub recovering: bool,
    /// In which folders the steps were done.
    pub folders: Folders,
}

/// The folders in which entries were moved into place or away: to undo that, they are found also where they were moved, or another
/// one has their path.
#[derive(Default)]
pub(crate) struct Folders(RefCell<HashMap<(Slot, End), InFolder>>, RefCell<Vec<Rc<OwnedFd>>>);

/// What is renamed leaves one folder and comes to another by the same slot, and both may have the same path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum End {
    /// The folder that an entry was moved away from.
    From,
    /// The folder that it was moved to.
    To,
}

/// Device and inode of a folder, and the folder itself, as long as few are held.
type InFolder = ((u64, u64), Option<Rc<OwnedFd>>);

/// Most folders that are held at once, and how often they are noted in all.
const HELD_MAX: usize = 256;
const NOTED_MAX: usize = 1 << 20;

impl Folders {
    /// The folder that the entry of `slot` comes from or goes to, which is at `path`: the one that it was before.
    fn parent(&self, tree: &Tree, (slot, end): (Slot, End), path: &TreePath) -> io::Result<Rc<OwnedFd>> {
        let key = (slot, end);
        let noted = self.0.borrow().get(&key).cloned();
        let is_there = |held: &Rc<OwnedFd>| tree::node_of(&**held).is_ok_and(|node| node.nlink > 0);
        match noted {
            // One that was removed is made again at its path.
            Some((_, Some(held))) if is_there(&held) => return Ok(held),
            Some((place, None)) => {
                let parent = tree.parent(path)?;
                let node = tree::node_of(&*parent)?;
                return match (node.dev, node.ino) == place {
                    true => Ok(parent),
                    false => Err(io::Error::other("its folder was moved meanwhile")),
                };
            }
            Some(_) => return tree.parent(path),
            None => {}
        }
        let parent = tree.parent(path)?;
        let node = tree::node_of(&*parent)?;
        let mut all = self.1.borrow_mut();
        let is_held = all.last().is_some_and(|last| Rc::ptr_eq(last, &parent));
        if !is_held && all.len() < HELD_MAX {
            all.push(parent.clone());
        }
        let is_held = all.last().is_some_and(|last| Rc::ptr_eq(last, &parent));
        let mut noted = self.0.borrow_mut();
        if noted.len() < NOTED_MAX {
            noted.insert(key, ((node.dev, node.ino), is_held.then(|| parent.clone())));
        }
        Ok(parent)
    }
}

type Done = Result<(), Failure>;

impl Applier<'_> {
    /// Does all steps.
    ///
    /// # Errors
    /// The first step that failed, with its number; those before it are done.
    pub(crate) fn forward(&self, plan: &Plan) -> Result<(), (usize, Failure)> {
        for (at, step) in plan.steps.iter().enumerate() {
            let crashed = |source| (at, Failure::Io { what: "change", path: step.path().clone(), source });
            crash::point().map_err(crashed)?;
            self.do_step(step).map_err(|failure| (at, failure))?;
        }
        Ok(())
    }

    /// Undoes the first `count` steps, last first. All are tried, whatever fails.
    ///
    /// # Errors
    /// The first step that could not be undone.
    pub(crate) fn backward(&self, plan: &Plan, count: usize) -> Done {
        let mut result = Ok(());
        for step in plan.steps[..count].iter().rev() {
            let crashed = |source| Failure::Io { what: "restore", path: step.path().clone(), source };
            crash::point().map_err(crashed)?;
            let undone = self.undo_step(step);
            result = result.and(undone);
        }
        result
    }

    fn do_step(&self, step: &Step) -> Done {
        let path = step.path();
        let io = |what| move |source| Failure::Io { what, path: path.clone(), source };
        match step {
            Step::Open { old, new, .. } if old == new => Ok(()),
            Step::Open { path, ino, new, .. } => self.give(path, *ino, new).map_err(io("change the mode of")).map(drop),
            Step::Attributes { path, ino, new, .. } => {
                match self.give(path, *ino, new).map_err(io("change the attributes of"))? {
                    true => Ok(()),
                    false if self.recovering => Ok(()),
                    false => Err(Failure::Late(path.clone())),
                }
            }
            Step::Detach { path, slot, seen, beneath, moves } => self.detach(path, *slot, seen, beneath, *moves),
            Step::RemoveDirectory { path, ino, .. } => self.remove_directory(path, *ino),
            Step::Place { path, slot, ino, over, .. } => self.place(path, *slot, *ino, over.as_ref()),
            Step::Overwrite { path, slot, seen, meta, .. } => {
                let there = self.look(path).map_err(io("look at"))?;
                match self.recovering {
                    false if there != Some(*seen) => return Err(Failure::Late(path.clone())),
                    // It was written, and then lost this name; or somebody has replaced it.
                    true if there.is_none_or(|there| there.ino != seen.ino) => return Ok(()),
                    _ => {}
                }
                self.overwrite(path, *slot, seen.ino, meta).map_err(io("write"))
            }
            Step::Append { path, slot, ino, at, len, meta, .. } => {
                self.append(path, *slot, (*ino, *at, *len), meta).map_err(io("append to"))
            }
        }
    }

    fn undo_step(&self, step: &Step) -> Done {
        let path = step.path();
        let io = |source| Failure::Io { what: "restore", path: path.clone(), source };
        match step {
            Step::Open { path, ino, old, .. } | Step::Attributes { path, ino, old, .. } => {
                self.give(path, *ino, old).map(drop).map_err(io)
            }
            Step::Detach { path, slot, seen, .. } => match self.stages.node(*slot).map_err(io)? {
                Some(node) if node.ino == seen.ino => self.take_out_of_slot((*slot, End::From), path).map_err(io),
                _ => Ok(()),
            },
            Step::RemoveDirectory { path, old, .. } => self.remake_directory(path, old).map_err(io),
            Step::Place { path, slot, ino, over, moved } => {
                let parent = match self.folders.parent(self.tree, (*slot, End::To), path) {
                    Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                        return Ok(());
                    }
                    other => other.map_err(io)?,
                };
                let there = tree::node_at(&*parent, path.name()).map_err(io)?;
                let Some(node) = there.filter(|node| node.ino == *ino) else { return Ok(()) };
                if node.is_directory() && !moved && !self.is_empty(&parent, path).map_err(io)? {
                    // Somebody has put something into the new directory: it is theirs now.
                    return Ok(());
                }
                match over {
                    Some(_) => self.exchange(*slot, path).map_err(io),
                    None => self.put_into_slot(path, (*slot, End::To)).map_err(io),
                }
            }
            Step::Overwrite { path, undo, seen, old, .. } => {
                match self.look(path).map_err(io)? {
                    Some(now) if now == *seen => Ok(()),
                    Some(now) if now.ino == seen.ino => self.overwrite(path, *undo, seen.ino, old).map_err(io),
                    // It was restored before and is back where it came from; or somebody has replaced it.
                    _ => Ok(()),
                }
            }
            Step::Append { path, ino, at, len, old, .. } => self.cut_back(path, (*ino, *at, *len), old).map_err(io),
        }
    }

    fn is_empty(&self, parent: &OwnedFd, path: &TreePath) -> io::Result<bool> {
        let held = tree::open_beneath(parent.as_fd(), path.name(), OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(names_in(&held)?.is_empty())
    }

    /// What is at `path` now.
    fn look(&self, path: &TreePath) -> io::Result<Option<Seen>> {
        Ok(self.tree.node(path)?.as_ref().map(Seen::of))
    }

    /// Gives `meta` to what is at `path`, if it has this inode number.
    fn give(&self, path: &TreePath, ino: u64, meta: &Meta) -> io::Result<bool> {
        let held = match self.tree.hold(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            other => other?,
        };
        if tree::node_of(&held)?.ino != ino {
            return Ok(false);
        }
        set_meta(&held, meta)?;
        Ok(true)
    }

    fn detach(&self, path: &TreePath, slot: Slot, seen: &Seen, beneath: &Option<Digest>, moves: bool) -> Done {
        let io = |source| Failure::Io { what: "move away", path: path.clone(), source };
        let waiting = self.recovering && self.stages.node(slot).map_err(io)?.is_some();
        if self.recovering && !waiting {
            let there = self.look(path).map_err(io)?;
            if there.is_none_or(|there| moves && there.ino != seen.ino) {
                return Ok(());
            }
        }
        if !waiting {
            match self.put_into_slot(path, (slot, End::From)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return if moves { Err(Failure::Late(path.clone())) } else { Ok(()) };
                }
                other => other.map_err(io)?,
            }
        }
        crash::point().map_err(io)?;
        let taken = self.stages.node(slot).map_err(io)?;
        let mut same = taken.is_some_and(|node| seen.is_of(&node));
        if let (true, Some(digest)) = (same, beneath) {
            let held = self.stages.held(slot.folder);
            same = subtree_digest(held, &self.stages.name(slot)).map_err(io)? == *digest;
        }
        if same {
            return Ok(());
        }
        self.take_out_of_slot((slot, End::From), path).map_err(io)?;
        Err(Failure::Late(path.clone()))
    }

    fn remove_directory(&self, path: &TreePath, ino: u64) -> Done {
        let io = |source| Failure::Io { what: "remove", path: path.clone(), source };
        if self.look(path).map_err(io)?.is_none_or(|there| there.ino != ino) {
            return if self.recovering { Ok(()) } else { Err(Failure::Late(path.clone())) };
        }
        let parent = self.tree.parent(path).map_err(io)?;
        self.tree.forget();
        match rustix::fs::unlinkat(&*parent, os(path.name()), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Err(Failure::Late(path.clone())),
            Err(error) => Err(io(error.into())),
        }
    }

    /// Makes a directory that was removed again, so that what was in it can come back.
    fn remake_directory(&self, path: &TreePath, old: &Meta) -> io::Result<()> {
        if self.tree.node(path)?.is_some() {
            return Ok(());
        }
        let parent = self.tree.parent(path)?;
        rustix::fs::mkdirat(&*parent, os(path.name()), Mode::from_raw_mode(0o700))?;
        crash::point()?;
        set_meta(&self.tree.hold(path)?, &Meta { mode: old.mode | 0o300, ..old.clone() })
    }

    fn place(&self, path: &TreePath, slot: Slot, ino: u64, over: Option<&Seen>) -> Done {
        let io = |source| Failure::Io { what: "put into place", path: path.clone(), source };
        if self.recovering {
            let waiting = self.stages.node(slot).map_err(io)?.is_some_and(|node| node.ino == ino);
            if !waiting {
                let there = self.look(path).map_err(io)?.is_some_and(|seen| seen.ino == ino);
                return if there { Ok(()) } else { Err(Failure::Incomplete(path.clone())) };
            }
        }
        let late = || Failure::Late(path.clone());
        let Some(over) = over else {
            return match self.take_out_of_slot((slot, End::To), path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(late()),
                other => other.map_err(io),
            };
        };
        match self.exchange(slot, path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(late()),
            other => other.map_err(io)?,
        }
        crash::point().map_err(io)?;
        if self.stages.node(slot).map_err(io)?.is_some_and(|node| over.is_of(&node)) {
            return Ok(());
        }
        self.exchange(slot, path).map_err(io)?;
        Err(late())
    }

    fn exchange(&self, slot: Slot, path: &TreePath) -> io::Result<()> {
        let (held, name) = (self.stages.held(slot.folder), self.stages.name(slot));
        let parent = self.folders.parent(self.tree, (slot, End::To), path)?;
        Ok(rustix::fs::renameat_with(held, os(&name), &*parent, os(path.name()), RenameFlags::EXCHANGE)?)
    }

    fn put_into_slot(&self, path: &TreePath, (slot, end): (Slot, End)) -> io::Result<()> {
        let parent = self.folders.parent(self.tree, (slot, end), path)?;
        self.tree.forget();
        rename_to_new(parent.as_fd(), path.name(), self.stages.held(slot.folder), &self.stages.name(slot))
    }

    fn take_out_of_slot(&self, (slot, end): (Slot, End), path: &TreePath) -> io::Result<()> {
        let parent = self.folders.parent(self.tree, (slot, end), path)?;
        rename_to_new(self.stages.held(slot.folder), &self.stages.name(slot), parent.as_fd(), path.name())
    }

    /// Opens the file at `path`, if it has this inode number, for reading, if that is allowed, and writing, even where its
    /// mode forbids that to its owner.
    fn open_to_write(&self, path: &TreePath, ino: u64, how: OFlags) -> io::Result<File> {
        let open = |rights: OFlags| self.tree.open_file(path, rights | how);
        let denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        let opened = open(OFlags::RDWR);
        let opened = match opened {
            Err(error) if denied(&error) => open(OFlags::WRONLY),
            other => other,
        };
        let opened: OwnedFd = match opened {
            Err(error) if denied(&error) => {
                let held = self.tree.hold(path)?;
                let node = tree::node_of(&held)?;
                if !rights::owns(&node) {
                    return Err(error);
                }
                let mode = node.mode | 0o600;
                set_meta(&held, &Meta { mode, ..meta_of(&node, None) })?;
                open(OFlags::RDWR)?
            }
            other => other?,
        };
        if tree::node_of(&opened)?.ino != ino {
            return Err(io::Error::other("it is another file than a moment ago"));
        }
        Ok(File::from(opened))
    }

    fn overwrite(&self, path: &TreePath, slot: Slot, ino: u64, meta: &Meta) -> io::Result<()> {
        let from = self.stages.open(slot)?;
        let to = self.open_to_write(path, ino, OFlags::empty())?;
        files::copy_content(&from, &to)?;
        crash::point()?;
        set_meta(&to.into(), meta)
    }

    /// Adds what is in `slot` to the end of the file; in recovery, only what was not added before.
    fn append(&self, path: &TreePath, slot: Slot, state: (u64, u64, u64), meta: &Meta) -> io::Result<()> {
        let (ino, at, len) = state;
        let from = self.stages.open(slot)?;
        let grows_only = self.tree.node(path)?.is_some_and(|node| node.append_only);
        let how = if grows_only { OFlags::APPEND } else { OFlags::empty() };
        let to = self.open_to_write(path, ino, how)?;
        let end = to.metadata()?.len();
        let done = match self.recovering {
            true => match added_before(&from, &to, at, len, end) {
                // A file that may be written and not read: what was added is as much as it has grown.
                Err(error) if error.raw_os_error() == Some(Errno::BADF.raw_os_error()) => {
                    end.saturating_sub(at).min(len)
                }
                other => other?,
            },
            false => 0,
        };
        match grows_only {
            true => files::append_bytes(&from, &to, done, len)?,
            false => files::append_content(&from, &to, done, end, len)?,
        }
        crash::point()?;
        set_meta(&to.into(), meta)
    }

    /// Takes away what [`Self::append`] added, unless somebody else has added more since.
    fn cut_back(&self, path: &TreePath, state: (u64, u64, u64), old: &Meta) -> io::Result<()> {
        let (ino, at, len) = state;
        let Some(node) = self.tree.node(path)?.filter(|node| node.ino == ino) else { return Ok(()) };
        if node.size <= at || node.size > at + len {
            return Ok(());
        }
        let to = self.open_to_write(path, ino, OFlags::empty())?;
        rustix::fs::ftruncate(&to, at)?;
        set_meta(&to.into(), old)
    }
}

/// How many of the `len` bytes of `from` are at `at` in `to`, which ends at `end`, and end it or are followed by others'.
fn added_before(from: &File, to: &File, at: u64, len: u64, end: u64) -> io::Result<u64> {
    use std::os::unix::fs::FileExt;
    let there = end.saturating_sub(at).min(len);
    let (mut left, mut right) = (vec![0u8; 1 << 16], vec![0u8; 1 << 16]);
    let mut done = 0;
    while done < there {
        let want = (there - done).min(1 << 16) as usize;
        from.read_exact_at(&mut left[..want], done)?;
        to.read_exact_at(&mut right[..want], at + done)?;
        if left[..want] != right[..want] {
            return Ok(0);
        }
        done += want as u64;
    }
    Ok(done)
}

/// Renames to a name that nothing has, on file systems old and new.
fn rename_to_new(
    from: std::os::fd::BorrowedFd<'_>,
    name: &[u8],
    to: std::os::fd::BorrowedFd<'_>,
    new: &[u8],
) -> io::Result<()> {
    match rustix::fs::renameat_with(from, os(name), to, os(new), RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => {}
        other => return Ok(other?),
    }
    // No such flag here (NFS): a link does not replace either; a directory, which has none, replaces at most an empty one.
    match rustix::fs::linkat(from, os(name), to, os(new), AtFlags::empty()) {
        Ok(()) => Ok(rustix::fs::unlinkat(from, os(name), AtFlags::empty())?),
        Err(Errno::PERM | Errno::OPNOTSUPP) => match tree::node_at(to, new)? {
            Some(_) => Err(io::ErrorKind::AlreadyExists.into()),
            None => Ok(rustix::fs::renameat(from, os(name), to, os(new))?),
        },
        Err(error) => Err(error.into()),
    }
}

/// A digest of all that is beneath directory `name`: relative path, inode, and for all but directories size and mtime.
pub(crate) fn subtree_digest(parent: impl AsFd, name: &[u8]) -> io::Result<Digest> {
    let mut sum = SubtreeSum::default();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let mut open = vec![(Vec::new(), tree::open_beneath(parent.as_fd(), name, flags)?)];
    while let Some((at, directory)) = open.pop() {
        for name in names_in(&directory)? {
            let Some(node) = tree::node_at(&directory, &name)? else { continue };
            let path = [&at[..], b"/", &name].concat();
            sum.add(&path, &Seen::of_leaving(&node));
            if node.is_directory() {
                open.push((path, tree::open_beneath(directory.as_fd(), &name, flags)?));
            }
        }
    }
    Ok(sum.finish())
}

/// Sums up entries in any order.
#[derive(Default)]
pub(crate) struct SubtreeSum {
    lines: Vec<[u8; 32]>,
}

impl SubtreeSum {
    /// Counts an entry in.
    pub(crate) fn add(&mut self, path: &[u8], seen: &Seen) {
        let numbers = [seen.ino.to_le_bytes(), seen.size.to_le_bytes(), seen.mtime.0.to_le_bytes()].concat();
        self.lines.push(Digest::of(&[&numbers, path].concat()).0);
    }

    /// The digest of all.
    pub(crate) fn finish(mut self) -> Digest {
        self.lines.sort_unstable();
        Digest::of(&self.lines.concat())
    }
}
