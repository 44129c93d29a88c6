//! What tells one state of a file from the next, and when that can be relied on.

use base::{Attr, Digest, Time};
use rustix::fs::{AtFlags, Statx, StatxFlags};
use std::os::fd::AsFd;

/// What identifies the state of a file: two equal stamps mean that nothing was changed between them, unless the change
/// came within the clock's grain of the first (see [`Grain`]) or through another's writable memory map.
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
        }
    }

    /// The stamp in attributes that were bound.
    pub fn of_attr(attr: &Attr) -> Self {
        Self { dev: attr.dev, ino: attr.ino, size: attr.size, mtime: attr.mtime, ctime: attr.ctime }
    }

    /// What names this state in [`base::Content::Lazy`].
    pub fn digest(&self) -> Digest {
        let mut bytes = b"gleaner stamp 1\0".to_vec();
        for number in [self.dev, self.ino, self.size, self.mtime.0 as u64, self.ctime.0 as u64] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        Digest::of(&bytes)
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
    }
}

/// `statx` of an open file, of the link itself if it is one; never answered from a network file system's cache.
pub(crate) fn stat_open(file: impl AsFd) -> rustix::io::Result<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    rustix::fs::statx(file, c"", flags, StatxFlags::BASIC_STATS)
}

/// `statx` of what is at an absolute path, following links on the way but not at the end.
pub(crate) fn stat_at(path: &[u8]) -> rustix::io::Result<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_FORCE_SYNC;
    rustix::fs::statx(rustix::fs::CWD, path, flags, StatxFlags::BASIC_STATS)
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
        let stamp = Stamp { dev: 1, ino: 2, size: 3, mtime: Time(5), ctime: Time(1_000_000_001) };
        assert!(Grain::FINE.is_racy(&stamp, Time(1_001_000_001)));
        assert!(!Grain::FINE.is_racy(&stamp, Time(1_003_000_001)));
        assert!(Grain::TICK.is_racy(&stamp, Time(1_003_000_001)));
        let whole = Stamp { ctime: Time(1_000_000_000), ..stamp };
        assert!(Grain::FINE.is_racy(&whole, Time(1_900_000_000)), "a file system with whole seconds");
        assert!(!Grain::FINE.is_racy(&stamp, Time(500)), "a clock that was set back");
    }

    #[test]
    fn every_part_of_a_stamp_is_in_its_digest() {
        let stamp = Stamp { dev: 1, ino: 2, size: 3, mtime: Time(4), ctime: Time(5) };
        let others = [
            Stamp { dev: 9, ..stamp },
            Stamp { ino: 9, ..stamp },
            Stamp { size: 9, ..stamp },
            Stamp { mtime: Time(9), ..stamp },
            Stamp { ctime: Time(9), ..stamp },
        ];
        assert!(others.iter().all(|other| other.digest() != stamp.digest()));
    }
}
