//! Reads what a finished task left in its overlay's upper directory, and says it as a [`Delta`].
//!
//! The upper directory holds more than changes: parents that were only passed through, files that were opened for writing
//! and not written, rewrites of the same bytes. So everything is compared with what the task saw there, which the
//! mirror tells through a [`Lens`]. The task must have ended and its overlay be unmounted.
//!
//! Files keep their identity: a name that the task moved or added is said as such, so that at the client it is the same
//! file still, and of a file of which only names or attributes changed no byte is read (`metacopy`).
//!
//! Where the client has mounts, the task has an upper directory for each ([`Options::at`]).
//!
//! A change through a name that was then removed is said as such, and reaches the file's other names wherever they are.
//!
//! Limits: attributes of the root directory are not reported; nor are those of a symbolic link or pipe of several names that were
//! changed through a name which was then removed. Without privilege (`userxattr`) a file that is renamed arrives as a file of its
//! own, and one of several names is not touched: whoever does that has to run at the client.

mod compare;
mod emit;
mod folder;
mod handle;
mod left;
mod names;
mod upper;

#[cfg(test)]
mod differential;
#[cfg(test)]
mod tests;

pub(crate) use compare::SAME_CLOCK_NS;
pub use handle::Handle;

use crate::ids::Ids;
use base::{Base, Binding, Content, Delta, Time, TreePath};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What the mirror tells of the tree that the task saw. Paths are those before the task.
pub trait Lens {
    /// The number of the binding that the task saw at `path`; `None` if the mirror knows nothing of it.
    fn base_of(&self, path: &TreePath) -> Option<Base>;

    /// The binding that the task saw at `path`; `None` if the mirror knows nothing of it.
    fn binding_of(&self, path: &TreePath) -> Option<Binding>;

    /// The lower directory of the task's overlay: its lane in the mirror.
    fn lower(&self) -> &Path;

    /// Opens what is at `path` in the lower directory for reading, following no link.
    fn open_base(&self, path: &TreePath) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let relative = path.relative_to(&TreePath::root()).filter(|relative| !relative.is_empty()).unwrap_or(b".");
        Ok(open_within(self.lower(), relative, flags)?.into())
    }

    /// The handle by which the kernel knows what is at `path` in the lower directory: overlays note it of each file that
    /// they copy up. `None` if there is nothing, or the file system has no handles.
    fn handle_of(&self, path: &TreePath) -> Option<Handle> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let relative = path.relative_to(&TreePath::root()).filter(|relative| !relative.is_empty())?;
        Handle::of(&open_within(self.lower(), relative, flags).ok()?)
    }
}

/// Opens what is at a path in `folder`, following no link.
fn open_within(folder: &Path, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let held = rustix::fs::open(folder, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    open_beneath(held.as_fd(), path, flags)
}

/// The same in a held folder; in steps where the path is longer than the kernel takes at once.
fn open_beneath(folder: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    const AT_ONCE_BYTES_MAX: usize = 4000;
    const STEP: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let open = |at: BorrowedFd<'_>, path: &[u8], flags| {
        rustix::fs::openat2(at, std::ffi::OsStr::from_bytes(path), flags, Mode::empty(), within)
    };
    let (mut held, mut rest): (Option<OwnedFd>, _) = (None, path);
    while rest.len() > AT_ONCE_BYTES_MAX {
        // A name has at most 255 bytes, so there is a slash.
        let cut = rest[..AT_ONCE_BYTES_MAX].iter().rposition(|byte| *byte == b'/').ok_or(Errno::NAMETOOLONG)?;
        let next = open(held.as_ref().map_or(folder, |held| held.as_fd()), &rest[..cut], STEP)?;
        (held, rest) = (Some(next), &rest[cut + 1..]);
    }
    open(held.as_ref().map_or(folder, |held| held.as_fd()), rest, flags)
}

/// How a task's upper directory is to be read.
#[derive(Clone, Debug)]
pub struct Options {
    /// What was added to the client's user and group ids: id 0 of the task is this id here.
    pub id_base: u32,
    /// Which of the client's ids have which places from there on. Where the base is 0, all ids are the client's.
    pub ids: Ids,
    /// The client's clock minus this machine's, in nanoseconds.
    pub clock_offset_ns: i64,
    /// When the task started, by this machine's clock.
    pub task_start: Time,
    /// When the task ended, by this machine's clock.
    pub task_end: Time,
    /// When the task was launched, by the client's clock: no time that falls within the run comes out earlier.
    pub launch: Time,
    /// The overlay was mounted by root with `redirect_dir=on,index=on` and keeps its notes in `trusted.overlay.`; else
    /// with `userxattr`, and they are in `user.overlay.`.
    pub privileged: bool,
    /// The lower directory shows `user.` attributes, so that files copied up from it have them. If not, those that a
    /// file had are taken to be there still.
    pub xattrs_mirrored: bool,
    /// The `index` folder in the overlay's work folder, if it was mounted with `index=on`: changes of files whose changed
    /// names are all gone are there only.
    pub index: Option<PathBuf>,
    /// Where the upper directory is in the task's tree: the root, or what the client has mounted there.
    pub at: TreePath,
    /// Paths that are not part of the client's tree, with all beneath.
    pub ignore: Vec<TreePath>,
    /// Files that the task has made to add to them (`O_APPEND`).
    pub added_to: HashSet<TreePath>,
    /// Most entries of the upper directory and most removals, each.
    pub entries_max: usize,
}

impl Options {
    /// For an overlay that root mounted, on a machine with the client's clock and ids: what differs is to be set.
    pub fn new(task_start: Time, task_end: Time, launch: Time) -> Self {
        let path = |bytes: &[u8]| TreePath::parse(bytes).expect("a literal in normal form");
        Self {
            id_base: 0,
            ids: Ids::default(),
            clock_offset_ns: 0,
            task_start,
            task_end,
            launch,
            privileged: true,
            xattrs_mirrored: true,
            index: None,
            at: TreePath::root(),
            added_to: HashSet::new(),
            ignore: vec![path(b"/proc"), path(b"/sys"), path(b"/dev")],
            entries_max: ENTRIES_MAX,
        }
    }
}

/// Default of [`Options::entries_max`].
pub const ENTRIES_MAX: usize = 1_000_000;
/// Deepest directory that is read, in names.
pub const DEPTH_MAX: usize = 1024;

/// Takes the content of a file of this length (its holes can be seen by `SEEK_HOLE`), keeps it where the client will
/// ask for it, and says where that is.
pub type Cut<'a> = &'a mut dyn FnMut(&File, u64) -> io::Result<Content>;

/// What a task left behind.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Collected {
    /// What is to be committed.
    pub delta: Delta,
    /// What is not part of it.
    pub skipped: Vec<Skipped>,
}

/// Something a task made that does not travel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Where.
    pub path: TreePath,
    /// Why.
    pub why: SkipReason,
}

/// Why something does not travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SkipReason {
    /// Sockets belong to a running process.
    #[error("is a socket")]
    Socket,
    /// Devices are not mirrored.
    #[error("is a device")]
    Device,
}

/// Why an upper directory could not be read.
#[derive(Debug, thiserror::Error)]
pub enum DeltaError {
    /// The task made or removed too much.
    #[error("the task changed more than {max} files: run it locally, or raise the worker's limit")]
    TooMany {
        /// The limit.
        max: usize,
    },
    /// The task made more names and attributes than a worker keeps in memory.
    #[error(
        "the task changed too much: its names and attributes up to {path} take more than 256 MiB; run the command locally"
    )]
    TooMuch {
        /// Where.
        path: TreePath,
    },
    /// The task made directories within directories beyond reason.
    #[error("{path} is more than {DEPTH_MAX} directories deep: run the command locally")]
    TooDeep {
        /// Where.
        path: TreePath,
    },
    /// The mirror shows something, and cannot say what it is.
    #[error("the mirror does not know what was at {path}, though the task saw it")]
    NoBase {
        /// Where.
        path: TreePath,
    },
    /// The overlay's notes make no sense.
    #[error("the overlay's note on {path} cannot be read: was it mounted with other options?")]
    BadNote {
        /// Where.
        path: TreePath,
    },
    /// The task gave it an access list, which results do not carry.
    #[error("{path} was given an access list (ACL), which results do not carry")]
    AccessList {
        /// Where.
        path: TreePath,
    },
    /// It has several names, and the overlay does not keep them together, or does not say which file it is.
    #[error("{path} is one of several names of a file, which are not kept together elsewhere")]
    SecondName {
        /// Where.
        path: TreePath,
    },
    /// The file system failed.
    #[error("cannot {what} {path} of the task's results: {source}")]
    Io {
        /// What was tried, as a verb.
        what: &'static str,
        /// Where.
        path: TreePath,
        /// What the system said.
        source: io::Error,
    },
}

/// Reads the upper directory `upper` into a delta. Contents of new and changed files go to `cut`.
///
/// # Errors
/// The first thing that could not be read, or the limit that was exceeded; there is no partial delta.
pub fn collect(upper: &Path, lens: &dyn Lens, options: &Options, cut: Cut<'_>) -> Result<Collected, DeltaError> {
    let walked = upper::walk(upper, lens, options)?;
    emit::Emitter::new(lens, options, cut).emit(&walked)
}

/// What a task left in several upper directories, those of folders before those of what is mounted in them. Nothing is
/// renamed or linked from one to another.
pub fn join(parts: Vec<Collected>) -> Collected {
    let place = |change: &base::Change| match change.action {
        base::Action::LastWrite { .. } => 0,
        base::Action::Rename { .. } => 1,
        base::Action::Remove => 2,
        base::Action::HardLink { .. } => 4,
        _ => 3,
    };
    let mut all = Collected::default();
    for part in parts {
        all.delta.changes.extend(part.delta.changes);
        all.skipped.extend(part.skipped);
    }
    // Stable: within each kind the order stays.
    all.delta.changes.sort_by_key(place);
    all
}

#[cfg(test)]
mod opening {
    use super::*;

    #[test]
    fn a_path_is_opened_however_long_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let name = "d".repeat(200);
        let mut at = rustix::fs::open(folder.path(), OFlags::PATH, Mode::empty()).expect("it is there");
        for _ in 0..50 {
            rustix::fs::mkdirat(&at, &*name, Mode::RWXU).expect("makes");
            at = rustix::fs::openat(&at, &*name, OFlags::PATH, Mode::empty()).expect("it is there");
        }
        let flags = OFlags::RDWR | OFlags::CREATE;
        let made = rustix::fs::openat(&at, "f", flags, Mode::RUSR | Mode::WUSR).expect("makes");
        rustix::io::write(&made, b"deep").expect("writes");
        let path = [vec![name.as_str(); 50].join("/"), "f".into()].join("/");
        let opened = open_within(folder.path(), path.as_bytes(), OFlags::RDONLY).expect("opens");
        assert_eq!(io::read_to_string(File::from(opened)).expect("reads"), "deep");
        assert_eq!(open_within(folder.path(), b"../x", OFlags::PATH).err(), Some(Errno::XDEV));
    }
}
