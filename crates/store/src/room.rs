//! The room on file systems: how much there is, what is in use, and how much of it each purpose leaves free. The one place for these reserves.

use rustix::fs::StatVfs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// A worker takes no tasks that write to a disk with less than a part of it free, within these bounds, in bytes: from one look to the next less than that
/// is written.
const WORKERS_PART: u64 = 8;
const WORKERS_BYTES: (u64, u64) = (8 << 20, 256 << 20);
/// And files that must find room.
const WORKERS_FILES: u64 = 1000;
/// What results leave free on a client's disk, in bytes: the machine is its user's, not a worker's.
const RESULTS_BYTES: u64 = 256 << 20;
/// With one part of so many free, nobody misses at once what is given back.
const PLENTY_ONE_OF: u64 = 10;

/// The room on one file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes that can be had.
    pub bytes: u64,
    /// All bytes.
    pub all_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Files that can be made; of a file system that counts none as many as one likes.
    pub files: u64,
    /// All files that there can be.
    pub all_files: u64,
    /// Files that there are.
    pub used_files: u64,
    /// It cannot be written to, or has no bound.
    pub is_unbounded: bool,
}

impl Room {
    /// Where `path` is.
    ///
    /// # Errors
    /// What the system says.
    pub fn at(path: &Path) -> io::Result<Self> {
        Ok(Self::of(&rustix::fs::statvfs(path)?))
    }

    /// Where what is open is.
    ///
    /// # Errors
    /// What the system says.
    pub fn of_open(open: impl AsFd) -> io::Result<Self> {
        Ok(Self::of(&rustix::fs::fstatvfs(open)?))
    }

    fn of(state: &StatVfs) -> Self {
        let bytes = |blocks: u64| blocks.saturating_mul(state.f_frsize);
        let counts_files = state.f_files > 0;
        Self {
            bytes: bytes(state.f_bavail),
            all_bytes: bytes(state.f_blocks),
            used_bytes: bytes(state.f_blocks.saturating_sub(state.f_bfree)),
            files: if counts_files { state.f_favail } else { u64::MAX },
            all_files: if counts_files { state.f_files } else { u64::MAX },
            used_files: if counts_files { state.f_files.saturating_sub(state.f_ffree) } else { 0 },
            is_unbounded: state.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) || state.f_blocks == 0,
        }
    }

    /// Whether a worker's tasks may not write there.
    pub fn is_short_for_tasks(&self) -> bool {
        let reserve = (self.all_bytes / WORKERS_PART).clamp(WORKERS_BYTES.0, WORKERS_BYTES.1);
        self.bytes < reserve || self.files < WORKERS_FILES.min(self.all_files / WORKERS_PART)
    }

    /// How many bytes results may take of a client's disk.
    pub fn for_results(&self) -> u64 {
        self.bytes.saturating_sub(RESULTS_BYTES)
    }

    /// Whether there is so much that nobody misses at once what is given back.
    pub fn is_plenty(&self) -> bool {
        self.bytes >= self.all_bytes / PLENTY_ONE_OF && self.files >= self.all_files / PLENTY_ONE_OF
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(all_bytes: u64, bytes: u64, all_files: u64, files: u64) -> Room {
        Room { bytes, all_bytes, used_bytes: all_bytes - bytes, files, all_files, used_files: 0, is_unbounded: false }
    }

    const MANY: u64 = u64::MAX;
    const GIB: u64 = 1 << 30;
    const MIB: u64 = 1 << 20;

    #[test]
    fn a_workers_disk_is_short_before_it_is_full() {
        assert!(!room(100 * GIB, GIB, MANY, MANY).is_short_for_tasks());
        assert!(room(100 * GIB, 255 * MIB, MANY, MANY).is_short_for_tasks(), "of a large one a quarter of a GiB");
        assert!(!room(60 * MIB, 20 * MIB, MANY, MANY).is_short_for_tasks());
        assert!(room(60 * MIB, 7 * MIB, MANY, MANY).is_short_for_tasks(), "of a small one 8 MiB");
        assert!(room(100 * GIB, 50 * GIB, 1 << 20, 999).is_short_for_tasks(), "files");
        assert!(!room(100 * GIB, 50 * GIB, 100, 50).is_short_for_tasks());
    }

    #[test]
    fn other_purposes_leave_room_too() {
        assert_eq!(room(100 * GIB, GIB, MANY, MANY).for_results(), 768 * MIB);
        assert_eq!(room(100 * GIB, MIB, MANY, MANY).for_results(), 0);
        assert!(room(100 * GIB, 10 * GIB, MANY, MANY).is_plenty() && !room(100 * GIB, 9 * GIB, MANY, MANY).is_plenty());
        assert!(!room(100 * GIB, 50 * GIB, 1000, 99).is_plenty());
    }

    #[test]
    fn a_file_system_is_asked() {
        let room = Room::at(Path::new("/tmp")).expect("it is there");
        assert!(room.all_bytes >= room.used_bytes && room.bytes > 0 && !room.is_unbounded);
        assert!(Room::at(Path::new("/proc")).is_ok_and(|room| room.is_unbounded && room.is_short_for_tasks()));
        assert!(Room::at(Path::new("/nowhere")).is_err());
    }
}
