//! What the client's paths are now: attributes, listings, link targets and contents, never torn, and the bytes of
//! whatever it has told others of.
//!
//! Plain blocking code without a clock of its own beyond the stamps: it knows nothing of views, launches or the
//! network.

mod content;
mod directory;
pub(crate) mod disk;
mod linked;
pub(crate) mod lru;
mod not_shown;
mod places;
mod read;
mod secret;
mod sources;
mod stamp;

pub use disk::Disk;
pub use not_shown::{NotShown, Unshown};
pub use read::ReadError;
pub(crate) use secret::{is_in_tests, is_of_project, secret_in_project};
pub(crate) use stamp::is_open_to_write;
pub use stamp::{Grain, NamingSecret, Stamp, attr_of, now};
pub(crate) use stamp::{STATX_MNT_ID_UNIQUE, look_at_mounts, mount_of, stat_at, wanted};

use crate::link::Reach;
use crate::policy::{Access, Denial, FileFacts, Gate};
use crate::recipes::{Cut, Cutter, Recipes};
use base::{Attr, Binding, Content, Digest, EAGER_FILE_BYTES_MAX, Listing, TreePath};
use linked::Linked;
use places::{Mirrored, Places};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Statx};
use rustix::io::Errno;
use secret::StateFolders;
use sources::Sources;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often a path is looked at that changes while it is being looked at.
const ATTEMPTS_MAX: u32 = 6;
/// First pause before looking again, in milliseconds; each next one is twice as long.
const PAUSE_MS_FIRST: i64 = 5;
/// Longest part of a path that is given to the kernel at once (`PATH_MAX` is 4096).
const PATH_BYTES_AT_ONCE: usize = 4000;

/// What a path was found to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// What it is.
    pub binding: Binding,
    /// The state it was seen in; `None` of what is absent or not mirrored.
    pub stamp: Option<Stamp>,
    /// What the policy said of it.
    pub access: Access,
    /// What the policy was told of it.
    pub facts: FileFacts,
    /// A later change would show in the stamp. If not (it was changed within the clock's grain), it is to be looked at
    /// again before it is relied on again.
    pub settled: bool,
    /// The same of a change by a call: not of one through a memory map, which any file that is open for writing may have.
    pub tells_calls: bool,
}

impl Observed {
    /// Nothing is there.
    pub(crate) fn absent() -> Self {
        let facts = FileFacts::default();
        Self { binding: Binding::Absent, stamp: None, access: Access::Allow, facts, settled: true, tells_calls: true }
    }
}

/// Whether `path` shows here and on workers the same: `/proc`, `/sys`, `/dev` and what is in them are each machine's own.
pub fn is_mirrored(path: &TreePath) -> bool {
    places::mirrored(path) == Mirrored::Yes
}

/// Why a path could not be bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// It changed every time it was being read.
    #[error("{path} keeps changing while it is being read: run the command when whatever writes to it is done")]
    KeepsChanging {
        /// Which.
        path: TreePath,
    },
    /// It cannot be told any more what it was at the start of the job.
    #[error("{path} changed after the job had started, and before a task of it used it: run it again in a new job")]
    Late {
        /// Which.
        path: TreePath,
    },
    /// A job uses too many paths.
    #[error("{path} is one path too many for this job (more than {paths_max}): divide it into several")]
    TooMany {
        /// Which.
        path: TreePath,
        /// How many there may be.
        paths_max: usize,
    },
    /// The kernel refused, and not because the path is absent or closed to the user.
    #[error("{path} cannot be looked at: {source}")]
    Io {
        /// Which.
        path: TreePath,
        /// What the kernel said.
        source: std::io::Error,
    },
}

/// The client's file system as its daemon sees it.
pub struct Snapshot {
    secret: NamingSecret,
    cutter: Arc<dyn Cutter>,
    recipes: Arc<Recipes>,
    places: Places,
    sources: Sources,
    hashes: Hashes,
    not_shown: NotShown,
    linked: Linked,
    state_folders: StateFolders,
}

/// Largest file of the user that is hashed where the hub is far: 0.05 s, and then only its changes go.
const FAR_BYTES_MAX: u64 = 64 << 20;
/// Longest that a file with a lease on it is waited for: the kernel's own 45 s, and some.
const LEASE_LIMIT: Duration = Duration::from_secs(50);
/// Between the first two tries: our own leases last for microseconds. It doubles.
const LEASE_PAUSE: Duration = Duration::from_micros(50);
const LEASE_PAUSE_MAX: Duration = Duration::from_millis(50);
/// Largest file of the distribution that is hashed so that the hub can find it: 0.2 s.
const NAMED_BYTES_MAX: u64 = 256 << 20;

/// The largest files that are hashed before anybody reads them, bytes: the user's, and the distribution's.
#[derive(Debug)]
struct Hashes {
    users: AtomicU64,
    system: AtomicU64,
}

impl Default for Hashes {
    fn default() -> Self {
        Self { users: EAGER_FILE_BYTES_MAX.into(), system: EAGER_FILE_BYTES_MAX.into() }
    }
}

impl Snapshot {
    /// Files are cut by `cutter`, unless `recipes` knows them, and named by `secret` where they are not hashed.
    pub fn new(cutter: Arc<dyn Cutter>, recipes: Arc<Recipes>, secret: NamingSecret) -> Self {
        let not_shown = NotShown::default();
        Self {
            secret,
            cutter,
            recipes,
            places: Places::new(),
            sources: Sources::new(),
            hashes: Hashes::default(),
            not_shown,
            linked: Linked::new(),
            state_folders: StateFolders::default(),
        }
    }

    /// Hashes larger files where that saves sending them: the user's, of which a far hub may have most, and the distribution's, where
    /// the hub has the same.
    pub fn set_reach(&self, reach: Reach) {
        let bytes = |more: bool, bytes| if more { bytes } else { EAGER_FILE_BYTES_MAX };
        self.hashes.users.store(bytes(reach.far, FAR_BYTES_MAX), Ordering::Relaxed);
        self.hashes.system.store(bytes(reach.names_system, NAMED_BYTES_MAX), Ordering::Relaxed);
    }

    /// The files and directories of which a mirror cannot show all, as far as they were bound.
    pub fn not_shown(&self) -> &NotShown {
        &self.not_shown
    }

    /// The recipe cache, to be saved from time to time.
    pub fn recipes(&self) -> &Arc<Recipes> {
        &self.recipes
    }

    /// What `path` is now. A path beneath what is not a directory (but a link, say) is absent.
    ///
    /// # Errors
    /// See [`BindError`]. That the user may not read something is not an error, but part of the answer.
    pub fn bind(&self, path: &TreePath, gate: &dyn Gate) -> Result<Observed, BindError> {
        match places::mirrored(path) {
            Mirrored::Not => return Ok(Observed::absent()),
            Mirrored::Empty => return self.bind_empty(path),
            Mirrored::Yes => {}
        }
        for attempt in 0..ATTEMPTS_MAX {
            pause(attempt);
            match self.bind_once(path, gate) {
                Ok(Some(observed)) => {
                    if observed.binding == Binding::Absent {
                        self.not_shown.note(path, None);
                    }
                    return Ok(observed);
                }
                Ok(None) | Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return Err(BindError::Io { path: path.clone(), source: errno.into() }),
            }
        }
        Err(BindError::KeepsChanging { path: path.clone() })
    }

    /// A launch begins to look at the files that it uses.
    pub fn begin_look(&self) {
        self.linked.begin_look();
    }

    /// Remembers what a file holds that the caller has just written, and whose stamp it took after it wrote: the file
    /// need not be hashed again. Nothing is remembered where a change since then might not show in the stamp.
    pub fn prime(&self, path: &TreePath, stamp: Stamp, cut: Cut) {
        let Ok(file) = open(path, OFlags::RDONLY) else { return };
        let place = self.places.of(&stamp, &file);
        let shows = place.grain.multigrain || !place.grain.is_racy(&stamp, now());
        if shows && !stamp::is_open_to_write(&file) {
            let Ok(stat) = stamp::stat_open(&file) else { return };
            let file = std::fs::File::from(file);
            // A command may have made a key: whoever reads it next is told of it as of any.
            if self.secret_of(path, &file, &stat).is_some() {
                return;
            }
            let names = stat.stx_nlink;
            let cut = self.linked.agree(&stamp, names, cut);
            self.sources_of_cut(path, stamp, &cut);
            self.recipes.put(path.clone(), stamp, cut, place.is_lasting(&stamp));
        }
    }

    /// The name of the file system at `path` if names that its listings do not show may exist (FAT ignores case, FUSE
    /// may do anything): commands in such folders had better run here.
    pub fn odd_file_system(&self, path: &TreePath) -> Option<&'static str> {
        let file = open(path, OFlags::PATH).ok()?;
        let stamp = Stamp::of(&stamp::stat_open(&file).ok()?);
        let place = self.places.of(&stamp, &file);
        (!place.lists_all).then_some(place.name)
    }

    fn bind_empty(&self, path: &TreePath) -> Result<Observed, BindError> {
        let Ok(stat) = stat_at(path.as_bytes()) else { return Ok(Observed::absent()) };
        let listing = Listing::default();
        let digest = self.keep_listing(path, &listing);
        // Only what does not change by itself: these folders change their times and link counts all day.
        let found = attr_of(&stat);
        let attr = Attr { mode: found.mode, dev: found.dev, ino: found.ino, nlink: 2, ..Attr::default() };
        let binding = Binding::Directory { attr, listing: Some(digest), xattrs: Vec::new() };
        Ok(Observed { binding, ..Observed::absent() })
    }

    /// `None`: it changed meanwhile.
    fn bind_once(&self, path: &TreePath, gate: &dyn Gate) -> Result<Option<Observed>, Errno> {
        let node = match open(path, OFlags::PATH) {
            Ok(node) => node,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG) => {
                return Ok(Some(Observed::absent()));
            }
            // A folder on the way that the user may not search.
            Err(Errno::ACCESS | Errno::PERM) => return Ok(Some(closed())),
            Err(errno) => return Err(errno),
        };
        let stat = stamp::stat_open(&node)?;
        let stamp = Stamp::of(&stat);
        let grain = self.places.of(&stamp, &node).grain;
        let settled = !grain.is_racy(&stamp, now());
        let tells_calls = settled || (grain.multigrain && stamp.has_real_times());
        let kind = FileType::from_raw_mode(stat.stx_mode.into());
        let facts = facts_of(&stat, kind);
        let access = gate.access(path, &facts);
        let observed = |binding| Observed { binding, stamp: Some(stamp), access, facts, settled, tells_calls };
        Ok(match kind {
            FileType::Directory => self.directory(path, &stat, access)?.map(observed),
            FileType::RegularFile if access != Access::Allow => Some(observed(self.keep_back(path, &stat, stamp))),
            FileType::RegularFile => self.file(path, &stat)?.map(|(binding, shows)| {
                let observed = observed(binding);
                Observed { settled: observed.settled && shows, ..observed }
            }),
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(&node, c"", Vec::new())?.into_bytes();
                self.not_shown.note(path, Unshown::of_target(&target));
                Some(observed(Binding::Symlink { attr: attr_of(&stat), target }))
            }
            _ => {
                self.not_shown.note(path, directory::other_end(kind));
                Some(observed(Binding::Special { attr: attr_of(&stat) }))
            }
        })
    }

    /// A file whose contents the policy or the user's own rights keep here: whoever reads it asks for its pieces, and that is
    /// noticed. It has a name of its own, so that nobody has them under the name that other policies give it; all hard links of
    /// the file have the same one, or a worker would take them for different files, and a rename onto another link would lose it.
    pub(super) fn keep_back(&self, path: &TreePath, stat: &Statx, stamp: Stamp) -> Binding {
        let attr = attr_of(stat);
        let content = match attr.size {
            0 => Content::Empty,
            _ => {
                let name = secret::kept_back_name(&stamp, &self.secret);
                self.sources.add_kept_back(name, path);
                Content::Lazy(name)
            }
        };
        Binding::File { attr, content, xattrs: self.xattrs_kept_back(path) }
    }

    fn keep_listing(&self, path: &TreePath, listing: &Listing) -> Digest {
        let bytes = base::codec::Encode::to_bytes(listing);
        let digest = Digest::of(&bytes);
        self.sources.add_blob(digest, path, || bytes);
        digest
    }

    fn sources_of_cut(&self, path: &TreePath, stamp: Stamp, cut: &Cut) {
        self.sources.add_blocks(path, &cut.blocks(stamp.size));
        if let (Content::Recipe(digest), Some(recipe)) = (cut.content, &cut.recipe) {
            self.sources.add_blob(digest, path, || base::codec::Encode::to_bytes(&**recipe));
        }
    }
}

/// What the user's own rights keep back.
fn closed() -> Observed {
    let access = Access::Deny(Denial::Rights);
    Observed { binding: Binding::Denied, access, ..Observed::absent() }
}

fn facts_of(stat: &Statx, kind: FileType) -> FileFacts {
    FileFacts { uid: stat.stx_uid, mode: u32::from(stat.stx_mode) & 0o7777, directory: kind == FileType::Directory }
}

/// Opens a path of which no component is a link; the last may be one, with `O_PATH`. Reading does not move the time of the
/// last access of files of this user, and of any file for root.
pub(crate) fn open(path: &TreePath, flags: OFlags) -> Result<OwnedFd, Errno> {
    if flags.contains(OFlags::PATH) {
        return open_plainly(path, flags);
    }
    unseen(|more| open_plainly(path, flags | more))
}

/// Opens so that reading does not move the time of the last access, where this user may ask for that; see [`patiently`].
pub(crate) fn unseen<T>(open: impl Fn(OFlags) -> Result<T, Errno>) -> Result<T, Errno> {
    patiently(|| match open(OFlags::NOATIME) {
        Err(Errno::PERM) => open(OFlags::empty()),
        other => other,
    })
}

/// Opens without waiting for pipes, and yet waits for a lease on the file to be given back, as any program's `open` does: those of
/// file servers, and our own (see [`stamp::is_open_to_write`]). The kernel takes it from its holder after
/// `/proc/sys/fs/lease-break-time`.
pub(crate) fn patiently<T>(open: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    let (begun, mut pause) = (Instant::now(), LEASE_PAUSE);
    loop {
        match open() {
            Err(Errno::AGAIN) if begun.elapsed() < LEASE_LIMIT => pause_nanos(pause.as_nanos() as i64),
            other => return other,
        }
        pause = (pause * 2).min(LEASE_PAUSE_MAX);
    }
}

fn open_plainly(path: &TreePath, flags: OFlags) -> Result<OwnedFd, Errno> {
    // `openat2` refuses flags that mean nothing together with O_PATH.
    let patience = if flags.contains(OFlags::PATH) { OFlags::empty() } else { OFlags::NONBLOCK };
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | patience;
    let resolve = ResolveFlags::NO_SYMLINKS;
    let bytes = path.as_bytes();
    if bytes.len() <= PATH_BYTES_AT_ONCE {
        return rustix::fs::openat2(CWD, bytes, flags, Mode::empty(), resolve);
    }
    let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = rustix::fs::openat2(CWD, "/", step, Mode::empty(), resolve)?;
    let mut rest = &bytes[1..];
    while rest.len() > PATH_BYTES_AT_ONCE {
        // Names have at most 255 bytes, so there is a slash.
        let cut = rest[..PATH_BYTES_AT_ONCE].iter().rposition(|byte| *byte == b'/').ok_or(Errno::NAMETOOLONG)?;
        at = rustix::fs::openat2(&at, &rest[..cut], step, Mode::empty(), resolve)?;
        rest = &rest[cut + 1..];
    }
    rustix::fs::openat2(&at, rest, flags, Mode::empty(), resolve)
}

/// Waits before the given attempt: not at all before the first, then longer each time.
fn pause(attempt: u32) {
    if attempt > 0 {
        pause_nanos((PAUSE_MS_FIRST << (attempt - 1)) * 1_000_000);
    }
}

/// Waits for a moment in which a writer may finish: there is no event to wait for.
pub(crate) fn pause_nanos(nanos: i64) {
    let timeout = rustix::time::Timespec { tv_sec: nanos / 1_000_000_000, tv_nsec: nanos % 1_000_000_000 };
    // An early end by a signal only means looking sooner.
    let _ = rustix::event::poll(&mut [], Some(&timeout));
}

#[cfg(test)]
mod tests;
