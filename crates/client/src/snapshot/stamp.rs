//! What tells one state of a file from the next, and when that can be relied on.

use base::{Accessed, Attr, Digest, Time};
use rustix::fs::{AtFlags, Statx, StatxFlags};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Asks `statx` for the number of a mount that is never used again (Linux 6.8 and later).
pub(crate) const STATX_MNT_ID_UNIQUE: u32 = 0x4000;
/// Major device number of loop devices.
const LOOP_MAJOR: u32 = 7;

/// By what the states of files are named that are not named by their contents: the same whenever the daemon starts, and nobody else's.
pub type NamingSecret = [u8; 32];

/// What identifies the state of a file: two equal stamps mean that nothing was changed between them, unless the change
/// came within the clock's grain of the first (see [`Grain`]) or while somebody had the file open for writing: through a
/// memory map it changes without a new time ([`is_open_to_write`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// Device number.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Length in bytes.
    pub size: u64,
    /// Time of the last change of content.
    pub mtime: Time,
    /// Time of the last change of content or attributes.
    pub ctime: Time,
    /// The mount that it was seen on. Images made alike have equal numbers and times, one mounted in the other's place.
    pub mount: u64,
}

impl Stamp {
    /// The stamp in what `statx` said.
    pub fn of(stat: &Statx) -> Self {
        Self {
            dev: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
            ino: stat.stx_ino,
            size: stat.stx_size,
            mtime: Time::from_parts(stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec.into()),
            ctime: Time::from_parts(stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec.into()),
            mount: mount_of(stat),
        }
    }

    /// What names this state in [`base::Content::Lazy`]: by a secret, for who is told of a file's attributes may not have its contents.
    /// `lasting`: it is the same state whichever mount shows it.
    pub fn name(&self, secret: &NamingSecret, lasting: bool) -> Digest {
        let mut bytes = b"gleaner stamp 2\0".to_vec();
        for number in [self.dev, self.ino, self.size, self.mtime.0 as u64, self.ctime.0 as u64] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        if !lasting {
            bytes.extend_from_slice(&self.mount.to_le_bytes());
            bytes.extend_from_slice(boot().as_bytes());
        }
        Digest::keyed(secret, &bytes)
    }

    /// Whether its times are those of real changes: tools that make images set whole seconds.
    pub fn has_real_times(&self) -> bool {
        self.ctime.nanos() != 0
    }
}

/// Tells apart what one path showed on the mounts that it was on, one after the other. Before Linux 6.8 a mount's number
/// is used again: there the mounts of images count as new whenever any mount changed ([`look_at_mounts`]).
pub(crate) fn mount_of(stat: &Statx) -> u64 {
    if stat.stx_mask & STATX_MNT_ID_UNIQUE != 0 || stat.stx_dev_major != LOOP_MAJOR {
        return stat.stx_mnt_id;
    }
    stat.stx_mnt_id ^ (GENERATION.load(Ordering::Relaxed) << 32)
}

/// How often the mounts of this namespace were seen to have changed.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Notes whether mounts have changed since the last call. To be called before paths are looked at again.
pub(crate) fn look_at_mounts() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    static TABLE: OnceLock<Option<std::fs::File>> = OnceLock::new();
    let table = TABLE.get_or_init(|| match has_unique_mounts() {
        true => None,
        false => std::fs::File::open("/proc/self/mountinfo").ok(),
    });
    let Some(table) = table else { return };
    let mut polled = [PollFd::new(table, PollFlags::PRI)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    if poll(&mut polled, Some(&now)) == Ok(1) && polled[0].revents().contains(PollFlags::PRI) {
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
}

fn has_unique_mounts() -> bool {
    let wanted = StatxFlags::from_bits_retain(STATX_MNT_ID_UNIQUE);
    let root = rustix::fs::statx(rustix::fs::CWD, "/", AtFlags::STATX_DONT_SYNC, wanted);
    root.is_ok_and(|root| root.stx_mask & STATX_MNT_ID_UNIQUE != 0)
}

/// Which boot of this machine it is: mounts are numbered from the start in each. By chance if the kernel does not say.
fn boot() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| {
        let told = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        told.unwrap_or_else(|_| rand::random::<u64>().to_string())
    })
}

/// Whether somebody has this regular file open for writing, maybe by a memory map alone: what they write there gets a
/// new time when the page is first written, and none as long as the kernel has not written it to disk (on tmpfs: never).
/// Of a file that is another's, and not root asks, it is not known, and taken to be so not.
///
/// Asked by a lease, which the kernel refuses for a file that is open for writing.
pub(crate) fn is_open_to_write(file: impl AsFd) -> bool {
    static HANDLED: OnceLock<()> = OnceLock::new();
    HANDLED.get_or_init(ignore_lease_breaks);
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file.as_fd());
    // SAFETY: takes numbers only, on an open descriptor.
    if unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK) } == 0 {
        // SAFETY: as above. Who opens it for writing at this very moment waits until now.
        unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK) };
        return false;
    }
    std::io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN)
}

/// Who holds a lease is sent SIGIO when it is to be broken, which ends a process that does not handle it. A handler that
/// does nothing, unlike an ignored signal, is not handed down to what this process executes.
fn ignore_lease_breaks() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the handler touches nothing; a zeroed action has an empty mask and no flags.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGIO, &raw const action, std::ptr::null_mut());
    }
}

/// The attributes in what `statx` said.
pub fn attr_of(stat: &Statx) -> Attr {
    let stamp = Stamp::of(stat);
    Attr {
        mode: u32::from(stat.stx_mode) & 0o7777,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        nlink: stat.stx_nlink,
        size: stamp.size,
        blocks: stat.stx_blocks,
        dev: stamp.dev,
        ino: stamp.ino,
        mtime: stamp.mtime,
        ctime: stamp.ctime,
        accessed: Accessed(Some(Time::from_parts(stat.stx_atime.tv_sec, stat.stx_atime.tv_nsec.into()))),
    }
}

/// `statx` of an open file, of the link itself if it is one; never answered from a network file system's cache.
pub(crate) fn stat_open(file: impl AsFd) -> rustix::io::Result<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    rustix::fs::statx(file, c"", flags, wanted())
}

/// `statx` of what is at an absolute path, following links on the way but not at the end.
pub(crate) fn stat_at(path: &[u8]) -> rustix::io::Result<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_FORCE_SYNC;
    rustix::fs::statx(rustix::fs::CWD, path, flags, wanted())
}

/// What is asked of each path: what a [`Stamp`] and [`Attr`] are made of.
pub(crate) fn wanted() -> StatxFlags {
    StatxFlags::BASIC_STATS | StatxFlags::MNT_ID | StatxFlags::from_bits_retain(STATX_MNT_ID_UNIQUE)
}

/// The client's wall clock, now.
pub fn now() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    Time::from_parts(now.tv_sec, now.tv_nsec)
}

/// How finely a file system tells times apart: a file changed within this of being looked at may change once more
/// without a new `ctime`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grain {
    /// Nanoseconds.
    pub nanos: i64,
    /// Stamps are multigrain (Linux 6.13 and later): a change after a look at the stamp always gives a new one.
    pub multigrain: bool,
}

impl Grain {
    /// Multigrain stamps, with a margin.
    pub const FINE: Self = Self { nanos: 2_000_000, multigrain: true };
    /// Stamps as coarse as the kernel's tick, with a margin.
    pub const TICK: Self = Self { nanos: 20_000_000, multigrain: false };
    /// Whole seconds, two on FAT.
    pub const SECONDS: Self = Self { nanos: 2_100_000_000, multigrain: false };

    /// Whether a file with this stamp, looked at at `looked`, may have changed since without showing it.
    pub fn is_racy(self, stamp: &Stamp, looked: Time) -> bool {
        // A file system that stores whole seconds shows itself so; else it is one time in 10^9.
        let nanos = if stamp.ctime.nanos() == 0 { Self::SECONDS.nanos } else { self.nanos };
        looked.since(stamp.ctime).unsigned_abs() < nanos.unsigned_abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn racy_is_within_the_grain() {
        let stamp = Stamp { dev: 1, ino: 2, size: 3, mtime: Time(5), ctime: Time(1_000_000_001), mount: 6 };
        assert!(Grain::FINE.is_racy(&stamp, Time(1_001_000_001)));
        assert!(!Grain::FINE.is_racy(&stamp, Time(1_003_000_001)));
        assert!(Grain::TICK.is_racy(&stamp, Time(1_003_000_001)));
        let whole = Stamp { ctime: Time(1_000_000_000), ..stamp };
        assert!(Grain::FINE.is_racy(&whole, Time(1_900_000_000)), "a file system with whole seconds");
        assert!(!Grain::FINE.is_racy(&stamp, Time(500)), "a clock that was set back");
    }

    #[test]
    fn every_part_of_a_stamp_is_in_its_name() {
        let stamp = Stamp { dev: 1, ino: 2, size: 3, mtime: Time(4), ctime: Time(5), mount: 6 };
        let others = [
            Stamp { dev: 9, ..stamp },
            Stamp { ino: 9, ..stamp },
            Stamp { size: 9, ..stamp },
            Stamp { mtime: Time(9), ..stamp },
            Stamp { ctime: Time(9), ..stamp },
        ];
        let differs = |other: &Stamp, lasting| other.name(&[1; 32], lasting) != stamp.name(&[1; 32], lasting);
        assert!(others.iter().all(|other| differs(other, true) && differs(other, false)));
        let remounted = Stamp { mount: 9, ..stamp };
        assert!(differs(&remounted, false) && !differs(&remounted, true));
        assert_ne!(stamp.name(&[1; 32], true), stamp.name(&[2; 32], true), "nobody can name it by its attributes");
    }

    #[test]
    fn writers_are_seen_by_descriptor_and_by_map() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, [1; 4096]).unwrap();
        let reader = std::fs::File::open(&path).unwrap();
        assert!(!is_open_to_write(&reader));
        let writer = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        assert!(is_open_to_write(&reader));
        // SAFETY: a new mapping of a file that is long enough, which nothing else in this process refers to.
        unsafe {
            let (all, fd) = (libc::PROT_READ | libc::PROT_WRITE, std::os::fd::AsRawFd::as_raw_fd(&writer));
            let map = libc::mmap(std::ptr::null_mut(), 4096, all, libc::MAP_SHARED, fd, 0);
            assert_ne!(map, libc::MAP_FAILED);
            drop(writer);
            assert!(is_open_to_write(&reader), "only its memory map is left");
            libc::munmap(map, 4096);
        }
        assert!(!is_open_to_write(&reader));
    }
}
