//! The client's tree, reached only through descriptors: every path is resolved beneath a held root, never through a
//! symbolic link. Whoever swaps a directory for a link in mid-commit leads us nowhere.

use super::rights;
use crate::snapshot::{mount_of, patiently, unseen, wanted};
use base::{Time, TreePath, Xattr};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Statx, StatxAttributes, Timespec, Timestamps, Uid,
};
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

/// Longest piece of a path that is handed to the kernel at once.
const PIECE_BYTES_MAX: usize = 3800;
/// Attributes that overlay file systems keep for themselves: neither read nor touched.
const OVERLAY_XATTR_PREFIX: &[u8] = b"user.overlay.";

/// What `statx` says of one name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub dev: u64,
    pub ino: u64,
    pub size: u64,
    pub mtime: Time,
    pub ctime: Time,
    pub atime: Time,
    /// Permission bits, with set-id and sticky.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub kind: FileType,
    /// Number of the mount it is on.
    pub mount: u64,
    /// Whether something is mounted right here.
    pub mount_root: bool,
    /// Of a file: it may only grow. Of a directory: entries may only be added.
    pub append_only: bool,
    /// It may not change at all.
    pub immutable: bool,
}

impl Node {
    fn of(stat: &Statx) -> Self {
        Self {
            dev: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
            ino: stat.stx_ino,
            size: stat.stx_size,
            mtime: Time::from_parts(stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec.into()),
            ctime: Time::from_parts(stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec.into()),
            atime: Time::from_parts(stat.stx_atime.tv_sec, stat.stx_atime.tv_nsec.into()),
            mode: u32::from(stat.stx_mode) & 0o7777,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            nlink: stat.stx_nlink,
            kind: FileType::from_raw_mode(stat.stx_mode.into()),
            mount: mount_of(stat),
            mount_root: stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
            append_only: stat.stx_attributes.contains(StatxAttributes::APPEND),
            immutable: stat.stx_attributes.contains(StatxAttributes::IMMUTABLE),
        }
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind == FileType::Directory
    }

    pub(crate) fn is_file(&self) -> bool {
        self.kind == FileType::RegularFile
    }
}

/// `name` as rustix wants it.
pub(crate) fn os(name: &[u8]) -> &OsStr {
    OsStr::from_bytes(name)
}

/// `statx` of `name` in `directory`, not following links; `None` if there is none.
pub(crate) fn node_at(directory: impl AsFd, name: &[u8]) -> io::Result<Option<Node>> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::EMPTY_PATH;
    match rustix::fs::statx(directory, os(name), flags, wanted()) {
        Ok(stat) => Ok(Some(Node::of(&stat))),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// `statx` of what is open.
pub(crate) fn node_of(open: impl AsFd) -> io::Result<Node> {
    node_at(open, b"")?.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

/// The held root of a tree, and the directory used last.
pub(crate) struct Tree {
    root: Rc<OwnedFd>,
    last: RefCell<Option<(TreePath, Rc<OwnedFd>)>>,
    /// What was opened for a moment, which leaves another time of change: that before, and that since.
    opened: RefCell<HashMap<(u64, u64), (Time, Time)>>,
}

impl Tree {
    /// The tree beneath `root`, held from now on.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = Rc::new(rustix::fs::open(root, flags, Mode::empty())?);
        Ok(Self { root, last: RefCell::default(), opened: RefCell::default() })
    }

    /// Forgets which directories are where: needed after each rename or removal of one.
    pub(crate) fn forget(&self) {
        self.last.take();
    }

    /// The directory at `path`, held.
    pub(crate) fn directory(&self, path: &TreePath) -> io::Result<Rc<OwnedFd>> {
        if path.is_root() {
            return Ok(self.root.clone());
        }
        if let Some((at, held)) = &*self.last.borrow()
            && at == path
        {
            return Ok(held.clone());
        }
        let held = Rc::new(self.resolve(path)?);
        *self.last.borrow_mut() = Some((path.clone(), held.clone()));
        Ok(held)
    }

    fn resolve(&self, path: &TreePath) -> io::Result<OwnedFd> {
        let mut rest = &path.as_bytes()[1..];
        let mut held: Option<OwnedFd> = None;
        while !rest.is_empty() {
            let (piece, after) = match rest.len() > PIECE_BYTES_MAX {
                true => {
                    let at = rest[..PIECE_BYTES_MAX].iter().rposition(|byte| *byte == b'/');
                    let at = at.expect("a name has at most 255 bytes, so a long path has a slash");
                    (&rest[..at], &rest[at + 1..])
                }
                false => (rest, &rest[rest.len()..]),
            };
            let from = held.as_ref().map_or(self.root.as_fd(), |held| held.as_fd());
            let next = open_beneath(from, piece, OFlags::PATH | OFlags::DIRECTORY)?;
            held = Some(next);
            rest = after;
        }
        held.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
    }

    /// The directory that `path` is in. The root is in itself.
    pub(crate) fn parent(&self, path: &TreePath) -> io::Result<Rc<OwnedFd>> {
        path.parent().map_or_else(|| Ok(self.root.clone()), |parent| self.directory(&parent))
    }

    /// What is at `path`, not following links; `None` if nothing, or if a parent is missing or no directory.
    pub(crate) fn node(&self, path: &TreePath) -> io::Result<Option<Node>> {
        match self.parent(path) {
            Ok(parent) => Ok(node_at(&*parent, path.name())?.map(|node| self.as_it_was(node))),
            Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Does `work`, which leaves what is held as it was but for its time of change: by no name of it does that show from now on.
    pub(super) fn unseen<T>(&self, held: &OwnedFd, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let before = self.as_it_was(node_of(held)?);
        let done = work();
        let since = node_of(held)?.ctime;
        self.opened.borrow_mut().insert((before.dev, before.ino), (before.ctime, since));
        done
    }

    fn as_it_was(&self, node: Node) -> Node {
        let opened = self.opened.borrow();
        let before = opened.get(&(node.dev, node.ino)).filter(|(_, since)| *since == node.ctime);
        Node { ctime: before.map_or(node.ctime, |(before, _)| *before), ..node }
    }

    /// Holds what is at `path` without opening it, not following links.
    pub(crate) fn hold(&self, path: &TreePath) -> io::Result<OwnedFd> {
        let parent = self.parent(path)?;
        open_beneath(parent.as_fd(), path.name(), OFlags::PATH | OFlags::NOFOLLOW)
    }

    /// Opens the file at `path`. Reading it does not move its time of the last access, where that may be.
    pub(crate) fn open_file(&self, path: &TreePath, flags: OFlags) -> io::Result<OwnedFd> {
        let parent = self.parent(path)?;
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        Ok(unseen(|more| try_open_beneath(parent.as_fd(), path.name(), flags | more))?)
    }
}

/// Opens `name` in or beneath `directory`, following no link. An empty name means the directory itself.
pub(crate) fn open_beneath(directory: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    Ok(patiently(|| try_open_beneath(directory, name, flags))?)
}

/// A rename elsewhere in the tree can disturb a walk: the kernel asks to try again then, as where there is a lease.
fn try_open_beneath(directory: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let name: &[u8] = if name.is_empty() { b"." } else { name };
    rustix::fs::openat2(directory, os(name), flags | OFlags::CLOEXEC, Mode::empty(), within)
}

/// Whether this process may change entries of the open directory.
pub(crate) fn is_writable(directory: impl AsFd) -> bool {
    let flags = AtFlags::EACCESS;
    rustix::fs::accessat(directory, ".", rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK, flags).is_ok()
}

/// Whether the file that is held may be written to.
pub(crate) fn is_writable_file(held: impl AsFd) -> bool {
    let flags = AtFlags::EACCESS;
    rustix::fs::accessat(rustix::fs::CWD, magic(held).as_str(), rustix::fs::Access::WRITE_OK, flags).is_ok()
}

/// Attributes that a commit gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub mtime: Time,
    /// Time of the last access; `None` leaves it as it is.
    pub atime: Option<Time>,
    /// All `user.` attributes; `None` leaves them as they are.
    pub xattrs: Option<Vec<Xattr>>,
}

/// The path by which the kernel finds what is held in `held`.
pub(crate) fn magic(held: impl AsFd) -> String {
    format!("/proc/self/fd/{}", held.as_fd().as_raw_fd())
}

/// Gives `meta` to what is held (an `O_PATH` descriptor will do). An owner that this process may not give is left, and
/// so are, of what others own, set-id bits and times that only the owner may set.
pub(crate) fn set_meta(held: &OwnedFd, meta: &Meta) -> io::Result<()> {
    let now = node_of(held)?;
    let owned = set_owner(held, &now, meta)?;
    let link = now.kind == FileType::Symlink;
    let chmod = |mode| rustix::fs::chmodat(CWD, magic(held), Mode::from_raw_mode(mode), AtFlags::empty());
    let mut differs = owned || (now.mode ^ meta.mode) & if rights::owns(&now) { 0o7777 } else { 0o1777 } != 0;
    // Before the mode, which may take away the right to change them.
    if let Some(xattrs) = &meta.xattrs
        && (now.is_file() || now.is_directory())
    {
        match set_xattrs(held, xattrs) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && rights::owns(&now) => {
                chmod(now.mode | 0o600)?;
                differs = true;
                set_xattrs(held, xattrs)?;
            }
            other => other?,
        }
    }
    if !link && differs {
        chmod(meta.mode)?;
    }
    set_times(held, meta.mtime, meta.atime)
}

/// Gives the owner and group of `meta` if they differ from those of `now` and this process may. Tells whether it did:
/// the kernel may then have cleared mode bits.
fn set_owner(held: impl AsFd, now: &Node, meta: &Meta) -> io::Result<bool> {
    let uid = (now.uid != meta.uid).then(|| Uid::from_raw(meta.uid));
    let gid = (now.gid != meta.gid).then(|| Gid::from_raw(meta.gid));
    if uid.is_none() && gid.is_none() {
        return Ok(false);
    }
    let mut result = rustix::fs::chownat(&held, "", uid, gid, AtFlags::EMPTY_PATH);
    if matches!(result, Err(Errno::PERM)) && uid.is_some() && gid.is_some() {
        result = rustix::fs::chownat(&held, "", None, gid, AtFlags::EMPTY_PATH);
    }
    match result {
        Ok(()) => Ok(true),
        Err(Errno::PERM | Errno::INVAL | Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Sets the time of the last access of a file of this process.
pub(crate) fn set_atime(held: impl AsFd, atime: Time) -> io::Result<()> {
    let last_access = Timespec { tv_sec: atime.secs(), tv_nsec: atime.nanos().into() };
    let last_modification = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    Ok(rustix::fs::utimensat(held, "", &Timestamps { last_access, last_modification }, AtFlags::EMPTY_PATH)?)
}

/// Sets the time of the last change of content as [`set_times`] does.
pub(crate) fn set_mtime(held: impl AsFd, mtime: Time) -> io::Result<()> {
    set_times(held, mtime, None)
}

/// Sets the time of the last access, if one is given, and that of the last change of content to `mtime`. Where only the
/// owner may do that, the former stays, and the latter becomes now if it is still earlier than `mtime`. What was just
/// written to has such a time already.
fn set_times(held: impl AsFd, mtime: Time, atime: Option<Time>) -> io::Result<()> {
    let given = |time: Time| Timespec { tv_sec: time.secs(), tv_nsec: time.nanos().into() };
    let omitted = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let times = Timestamps { last_access: atime.map_or(omitted, given), last_modification: given(mtime) };
    match rustix::fs::utimensat(&held, "", &times, AtFlags::EMPTY_PATH) {
        Err(Errno::PERM | Errno::ACCESS) => {}
        other => return Ok(other?),
    }
    if node_of(&held)?.mtime >= mtime {
        return Ok(());
    }
    let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    // Whoever may write to it may set both times to now; who may not has changed nothing in it.
    let _ =
        rustix::fs::utimensat(&held, "", &Timestamps { last_access: now, last_modification: now }, AtFlags::EMPTY_PATH);
    Ok(())
}

/// The names of the attributes of what is held that are mirrored: who may not read the values may list these.
pub(crate) fn names_of_xattrs(held: &OwnedFd) -> io::Result<Vec<Vec<u8>>> {
    let path = magic(held);
    let mut names = vec![0u8; 1 << 10];
    let count = loop {
        match rustix::fs::listxattr(path.as_str(), &mut names[..]) {
            Ok(count) => break count,
            Err(Errno::RANGE) if names.len() < 1 << 17 => names.resize(names.len() * 4, 0),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
    };
    let names = names[..count].split(|byte| *byte == 0).filter(|name| is_mirrored_xattr(name));
    Ok(names.map(<[u8]>::to_vec).collect())
}

/// The `user.` attributes of what is held that this user may read, sorted; none where the file system has no such thing.
pub(crate) fn xattrs_of(held: &OwnedFd) -> io::Result<Vec<Xattr>> {
    let path = magic(held);
    let mut found = Vec::new();
    for name in names_of_xattrs(held)? {
        let mut value = vec![0u8; 1 << 16];
        match rustix::fs::getxattr(path.as_str(), os(&name), &mut value[..]) {
            Ok(len) => {
                value.truncate(len);
                found.push(Xattr { name, value });
            }
            Err(Errno::NODATA | Errno::ACCESS) => {}
            Err(error) => return Err(error.into()),
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Whether what is held has an access list.
pub(crate) fn has_access_list(held: impl AsFd) -> bool {
    rustix::fs::getxattr(magic(held).as_str(), "system.posix_acl_access", &mut [0u8; 0][..]).is_ok()
}

/// Whether the directory that is held hands an access list down to what is made in it.
pub(crate) fn hands_list_down(held: impl AsFd) -> bool {
    rustix::fs::getxattr(magic(held).as_str(), "system.posix_acl_default", &mut [0u8; 0][..]).is_ok()
}

/// Whether an attribute of this name is mirrored and committed.
pub(crate) fn is_mirrored_xattr(name: &[u8]) -> bool {
    name.starts_with(b"user.") && !name.starts_with(OVERLAY_XATTR_PREFIX)
}

/// Makes the `user.` attributes of what is held equal to `wanted`; where the file system has none, nothing happens.
fn set_xattrs(held: &OwnedFd, wanted: &[Xattr]) -> io::Result<()> {
    let path = magic(held);
    let present = xattrs_of(held)?;
    for old in names_of_xattrs(held)?.iter().filter(|old| wanted.iter().all(|new| new.name != **old)) {
        rustix::fs::removexattr(path.as_str(), os(old))?;
    }
    for new in wanted.iter().filter(|new| is_mirrored_xattr(&new.name) && !present.contains(new)) {
        match rustix::fs::setxattr(path.as_str(), os(&new.name), &new.value, rustix::fs::XattrFlags::empty()) {
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
