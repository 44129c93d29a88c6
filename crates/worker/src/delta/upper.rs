//! Walking the upper directory: what is in it, and which part of the lower directory each entry belongs to.

use super::folder::{FLAGS, Folder};
use super::{DEPTH_MAX, DeltaError, Handle, Lens, Options};
use base::{Binding, TreePath, Xattr};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::cell::Cell;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

/// An entry of the upper directory that is no whiteout.
pub(crate) struct Entry {
    /// Where it is after the task.
    pub path: TreePath,
    /// Its parent in the upper directory, for opening it.
    pub parent: Rc<Folder>,
    /// Its name there.
    pub name: Vec<u8>,
    pub stat: Stat,
    /// What was at its place in the lower directory (its path there, which differs beneath renamed directories).
    pub lower: Option<(TreePath, Binding)>,
    /// `user.` attributes, sorted.
    pub xattrs: Vec<Xattr>,
    /// What it was copied from, if the overlay notes that.
    pub origin: Option<Handle>,
    pub kind: Kind,
}

/// What an entry is, with the overlay's notes on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Merged with the directory in the lower directory, new, or (opaque) in place of it.
    Directory { opaque: bool },
    /// Was at this path of the lower directory, and is merged with it.
    Renamed { from: TreePath },
    /// A file.
    File(Copied),
    /// A symbolic link to this.
    Symlink { target: Vec<u8> },
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A device.
    Device,
}

/// What the overlay notes of where a file came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Copied {
    /// Whether it was copied up from the lower directory, as far as that can be told.
    pub copied: Option<bool>,
    /// Only its attributes were: its bytes are those in the lower directory, and what is here has none.
    pub bare: bool,
    /// The path of the lower directory that it was copied from. None if that is its own, or is not noted.
    pub from: Option<TreePath>,
}

/// All of an upper directory, parents before children.
#[derive(Default)]
pub(crate) struct Walked {
    pub entries: Vec<Entry>,
    /// Paths of the lower directory that the overlay hides with a whiteout.
    pub whiteouts: Vec<TreePath>,
}

struct Pending {
    parent: Rc<Folder>,
    name: Vec<u8>,
    path: TreePath,
    /// The directory in the lower directory that it is merged with.
    lower: Option<TreePath>,
    depth: usize,
}

/// Walks `upper`.
pub(crate) fn walk(upper: &Path, lens: &dyn Lens, options: &Options) -> Result<Walked, DeltaError> {
    let io = |source: Errno| DeltaError::Io { what: "open", path: TreePath::root(), source: source.into() };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(upper, flags, Mode::empty()).map_err(io)?;
    let prefix: &[u8] = if options.privileged { b"trusted.overlay." } else { b"user.overlay." };
    let mut walker = Walker::new(lens, options, prefix, false);
    let at = &options.at;
    let notes = walker.notes_of(at, &root)?;
    // A scratch folder that hands a list down gives one to all that is in it.
    walker.lists_tell = !notes.lists;
    // Without an index, files of several names are copied up without such a note.
    walker.origins = options.privileged && notes.origin.is_some();
    let mut pending = Vec::new();
    let stat = rustix::fs::fstat(&root).map_err(io)?;
    let root = Folder::top(root, at.clone());
    if let Some(binding @ Binding::Directory { .. }) = lens.binding_of(at).filter(|_| !at.is_root()) {
        let (path, parent, lower) = (at.clone(), root.clone(), Some((at.clone(), binding)));
        let (name, kind) = (b".".to_vec(), Kind::Directory { opaque: false });
        let (xattrs, origin) = (notes.xattrs, None);
        walker.walked.entries.push(Entry { path, parent, name, stat, lower, xattrs, origin, kind });
    }
    walker.list(&root, at, Some(at), 1, &mut pending)?;
    while let Some(next) = pending.pop() {
        let io = |source: Errno| DeltaError::Io { what: "open", path: next.path.clone(), source: source.into() };
        let above = next.parent.open().map_err(io)?;
        let opened = rustix::fs::openat(&above, os(&next.name), FLAGS, Mode::empty()).map_err(io)?;
        let folder = next.parent.beneath(next.path.clone(), opened);
        walker.list(&folder, &next.path, next.lower.as_ref(), next.depth + 1, &mut pending)?;
    }
    Ok(walker.walked)
}

/// The files of an overlay's index, with their handles. Their paths, and what they were, are still to be found.
pub(crate) fn walk_index(index: &Path, lens: &dyn Lens, options: &Options) -> Result<Vec<(Handle, Entry)>, DeltaError> {
    let path = TreePath::root();
    let io = |source: Errno| DeltaError::Io { what: "read the index of", path: path.clone(), source: source.into() };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = match rustix::fs::open(index, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(Vec::new()),
        other => Folder::top(other.map_err(io)?, TreePath::root()),
    };
    let held = folder.open().map_err(io)?;
    let prefix: &[u8] = b"trusted.overlay.";
    let walker = Walker::new(lens, options, prefix, true);
    let mut found = Vec::new();
    for entry in Dir::read_from(&held).map_err(io)? {
        let entry = entry.map_err(io)?;
        let name = entry.file_name().to_bytes();
        let Some(handle) = Handle::from_index(name) else { continue };
        let stat = rustix::fs::statat(&held, os(name), AtFlags::SYMLINK_NOFOLLOW).map_err(io)?;
        let other = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => None,
            FileType::Symlink => Some(Kind::Symlink { target: Vec::new() }),
            // A pipe that was there is a socket in a mirror.
            FileType::Socket => Some(Kind::Socket),
            _ => continue,
        };
        if found.len() == options.entries_max {
            return Err(DeltaError::TooMany { max: options.entries_max });
        }
        let (kind, xattrs) = match other {
            Some(other) => (other, Vec::new()),
            None => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = rustix::fs::openat(&held, os(name), flags, Mode::empty()).map_err(io)?;
                let notes = walker.notes_of(&path, &file)?;
                (Kind::File(Copied { copied: Some(true), bare: notes.bare, from: None }), notes.xattrs)
            }
        };
        let (parent, name, origin) = (folder.clone(), name.to_vec(), Some(handle.clone()));
        found.push((handle, Entry { path: path.clone(), parent, name, stat, lower: None, xattrs, origin, kind }));
    }
    Ok(found)
}

fn os(name: &[u8]) -> &OsStr {
    OsStr::from_bytes(name)
}

/// Most bytes of paths and attributes that one task's result may have.
const KEPT_BYTES_MAX: u64 = 256 << 20;

struct Walker<'a> {
    lens: &'a dyn Lens,
    options: &'a Options,
    prefix: &'static [u8],
    /// The overlay notes of each copied file where it came from.
    origins: bool,
    /// Access lists are the task's own.
    lists_tell: bool,
    walked: Walked,
    count: usize,
    /// Bytes of paths and attributes that are kept so far.
    kept_bytes: Cell<u64>,
}

/// The overlay's notes on an entry, and the task's own attributes.
#[derive(Default)]
struct Notes {
    opaque: bool,
    redirect: Option<Vec<u8>>,
    whiteout: bool,
    /// The note of what it was copied from, as it is.
    origin: Option<Vec<u8>>,
    /// It has attributes only.
    bare: bool,
    /// It has an access list, which only the task can have given it: the mirror shows none.
    lists: bool,
    xattrs: Vec<Xattr>,
}

impl<'a> Walker<'a> {
    fn new(lens: &'a dyn Lens, options: &'a Options, prefix: &'static [u8], origins: bool) -> Self {
        let (walked, kept_bytes) = Default::default();
        Self { lens, options, prefix, origins, lists_tell: false, walked, count: 0, kept_bytes }
    }

    /// So many bytes more are kept, of what is at `path`.
    fn keep(&self, bytes: usize, path: &TreePath) -> Result<(), DeltaError> {
        self.kept_bytes.set(self.kept_bytes.get() + bytes as u64);
        match self.kept_bytes.get() > KEPT_BYTES_MAX {
            true => Err(DeltaError::TooMuch { path: path.clone() }),
            false => Ok(()),
        }
    }

    fn list(
        &mut self,
        folder: &Rc<Folder>,
        path: &TreePath,
        lower: Option<&TreePath>,
        depth: usize,
        pending: &mut Vec<Pending>,
    ) -> Result<(), DeltaError> {
        if depth > DEPTH_MAX {
            return Err(DeltaError::TooDeep { path: path.clone() });
        }
        let io = |source: Errno| DeltaError::Io { what: "list", path: path.clone(), source: source.into() };
        let mut names = Vec::new();
        let held = folder.open().map_err(io)?;
        for entry in Dir::read_from(&held).map_err(io)? {
            let entry = entry.map_err(io)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                self.count += 1;
                if self.count > self.options.entries_max {
                    return Err(DeltaError::TooMany { max: self.options.entries_max });
                }
                names.push(name.to_vec());
            }
        }
        names.sort_unstable();
        // The last pushed is the first popped: directories come out in order.
        let first = pending.len();
        for name in names {
            let here = path.join(&name);
            self.keep(here.as_bytes().len(), &here)?;
            if !self.options.ignore.contains(&here) {
                self.enter((folder, held.as_fd()), &here, lower.map(|lower| lower.join(&name)), depth, pending)?;
            }
        }
        pending[first..].reverse();
        Ok(())
    }

    fn enter(
        &mut self,
        (parent, above): (&Rc<Folder>, BorrowedFd<'_>),
        path: &TreePath,
        lower: Option<TreePath>,
        depth: usize,
        pending: &mut Vec<Pending>,
    ) -> Result<(), DeltaError> {
        let io = |source: Errno| DeltaError::Io { what: "read", path: path.clone(), source: source.into() };
        let stat = rustix::fs::statat(above, os(path.name()), AtFlags::SYMLINK_NOFOLLOW).map_err(io)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::CharacterDevice && stat.st_rdev == 0 {
            self.walked.whiteouts.extend(lower);
            return Ok(());
        }
        // Held, not opened: the file may be one that nobody can read.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let held = rustix::fs::openat(above, os(path.name()), flags, Mode::empty()).map_err(io)?;
        let notes = self.notes_of(path, &held)?;
        if notes.whiteout && kind == FileType::RegularFile && stat.st_size == 0 {
            self.walked.whiteouts.extend(lower);
            return Ok(());
        }
        let there = match &lower {
            Some(lower) => self.what_was(lower)?.map(|binding| (lower.clone(), binding)),
            None => None,
        };
        let kind = match kind {
            FileType::Directory => self.directory_kind(path, lower.as_ref(), &notes)?,
            FileType::RegularFile => Kind::File(self.copied(path, lower.as_ref(), &notes)?),
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(above, os(path.name()), Vec::new()).map_err(io)?;
                Kind::Symlink { target: target.into_bytes() }
            }
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            _ => Kind::Device,
        };
        let merged = match &kind {
            Kind::Renamed { from } => Some(Some(from.clone())),
            Kind::Directory { opaque: false } => Some(match &there {
                Some((lower, Binding::Directory { .. })) => Some(lower.clone()),
                _ => None,
            }),
            Kind::Directory { opaque: true } => Some(None),
            _ => None,
        };
        if let Some(lower) = merged {
            let (parent, name) = (parent.clone(), path.name().to_vec());
            pending.push(Pending { parent, name, path: path.clone(), lower, depth });
        }
        let (path, name, parent) = (path.clone(), path.name().to_vec(), parent.clone());
        let origin = notes.origin.as_deref().filter(|_| self.options.privileged).and_then(Handle::from_note);
        self.walked.entries.push(Entry { path, parent, name, stat, lower: there, xattrs: notes.xattrs, origin, kind });
        Ok(())
    }

    fn copied(&self, path: &TreePath, lower: Option<&TreePath>, notes: &Notes) -> Result<Copied, DeltaError> {
        if !self.options.privileged {
            return Ok(Copied::default());
        }
        let bad = || DeltaError::BadNote { path: path.clone() };
        let from = match notes.redirect.as_deref() {
            None => None,
            Some(redirect) if redirect.starts_with(b"/") => Some(self.within(redirect).ok_or_else(bad)?),
            // Another name in the directory that its parent is merged with. Of a file that has its bytes the overlay does
            // not keep such a note up to date.
            Some(_) if !notes.bare => None,
            Some(redirect) if base::path::is_plain_name(redirect) => {
                Some(lower.and_then(TreePath::parent).ok_or_else(bad)?.join(redirect))
            }
            Some(_) => return Err(bad()),
        };
        let copied = match notes.bare {
            true => Some(true),
            false => self.origins.then_some(notes.origin.is_some()),
        };
        Ok(Copied { copied, bare: notes.bare, from })
    }

    fn directory_kind(&self, path: &TreePath, lower: Option<&TreePath>, notes: &Notes) -> Result<Kind, DeltaError> {
        let bad = || DeltaError::BadNote { path: path.clone() };
        let Some(redirect) = notes.redirect.as_ref().filter(|_| !notes.opaque) else {
            return Ok(Kind::Directory { opaque: notes.opaque });
        };
        let from = match redirect.first() {
            // From the root of the lower directory.
            Some(b'/') => self.within(redirect).ok_or_else(bad)?,
            // Another name in the directory that this one's parent is merged with.
            _ if base::path::is_plain_name(redirect) => {
                let parent = lower.and_then(TreePath::parent).ok_or_else(bad)?;
                parent.join(redirect)
            }
            _ => return Err(bad()),
        };
        match self.what_was(&from)? {
            Some(Binding::Directory { .. }) if Some(&from) == lower => Ok(Kind::Directory { opaque: false }),
            Some(Binding::Directory { .. }) => Ok(Kind::Renamed { from }),
            _ => Err(bad()),
        }
    }

    /// A path that the overlay notes, from its own root.
    fn within(&self, noted: &[u8]) -> Option<TreePath> {
        let noted = TreePath::parse(noted)?;
        Some(noted.components().fold(self.options.at.clone(), |path, name| path.join(name)))
    }

    /// What the task saw at a path of the lower directory, if anything.
    fn what_was(&self, lower: &TreePath) -> Result<Option<Binding>, DeltaError> {
        match self.lens.binding_of(lower) {
            Some(Binding::Absent) => Ok(None),
            Some(binding) => Ok(Some(binding)),
            None => match self.lens.open_base(lower) {
                Err(error) if is_absence(&error) => Ok(None),
                _ => Err(DeltaError::NoBase { path: lower.clone() }),
            },
        }
    }

    fn notes_of(&self, path: &TreePath, held: &OwnedFd) -> Result<Notes, DeltaError> {
        let io =
            |source: Errno| DeltaError::Io { what: "read attributes of", path: path.clone(), source: source.into() };
        let magic = format!("/proc/self/fd/{}", held.as_fd().as_raw_fd());
        let mut names = vec![0u8; 1 << 10];
        let count = loop {
            match rustix::fs::listxattr(magic.as_str(), &mut names[..]) {
                Ok(count) => break count,
                Err(Errno::RANGE) if names.len() < 1 << 17 => names.resize(names.len() * 4, 0),
                Err(Errno::OPNOTSUPP) => return Ok(Notes::default()),
                Err(error) => return Err(io(error)),
            }
        };
        let value_of = |name: &[u8]| {
            let mut value = vec![0u8; 1 << 16];
            let len = rustix::fs::getxattr(magic.as_str(), os(name), &mut value[..]).map_err(io)?;
            value.truncate(len);
            // What is kept takes no more room than it has: a task may set as many as it likes.
            value.shrink_to_fit();
            self.keep(name.len() + len, path)?;
            Ok::<_, DeltaError>(value)
        };
        let mut notes = Notes::default();
        for name in names[..count].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            match name.strip_prefix(self.prefix) {
                Some(b"opaque") => notes.opaque = value_of(name)? == b"y",
                Some(b"redirect") => notes.redirect = Some(value_of(name)?),
                Some(b"whiteout") => notes.whiteout = true,
                Some(b"origin") => notes.origin = Some(value_of(name)?),
                Some(b"metacopy") => notes.bare = true,
                // What the task itself named like the overlay's notes is escaped by one more `overlay.`.
                Some(own) if !self.options.privileged && own.starts_with(b"overlay.") => {
                    let name = [self.prefix, &own[b"overlay.".len()..]].concat();
                    let value = value_of(&[self.prefix, own].concat())?;
                    notes.xattrs.push(Xattr { name, value });
                }
                Some(_) => {}
                None if name.starts_with(b"user.") => {
                    notes.xattrs.push(Xattr { name: name.to_vec(), value: value_of(name)? });
                }
                None => notes.lists |= name.starts_with(b"system.posix_acl_"),
            }
        }
        if notes.lists && self.lists_tell {
            return Err(DeltaError::AccessList { path: path.clone() });
        }
        notes.xattrs.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(notes)
    }
}

/// Whether an error says that nothing is there.
pub(crate) fn is_absence(error: &io::Error) -> bool {
    matches!(error.raw_os_error().map(Errno::from_raw_os_error), Some(Errno::NOENT | Errno::NOTDIR))
}

impl Entry {
    /// Opens the entry's file for reading.
    pub(crate) fn open(&self) -> io::Result<std::fs::File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        Ok(rustix::fs::openat(self.parent.open()?, os(&self.name), flags, Mode::empty())?.into())
    }
}
