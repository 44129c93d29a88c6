//! Whether the disk that tasks write to has room. What a program makes of a full disk of this machine is not its result: at its client's there
//! is room. So tasks go elsewhere before the disk is full, and what ran while it was nearly full does not count.

use rustix::fs::StatVfs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// How what [`Room::shortage`] says begins.
pub const SHORT: &str = "its disk is full";
/// Room that must be left, in parts of the file system, but within these bounds: from one look to the next less than that is written.
const RESERVE_PART: u64 = 8;
const RESERVE_BYTES: (u64, u64) = (8 << 20, 256 << 20);
/// Files that must find room.
const RESERVE_FILES: u64 = 1000;

/// The room on one file system.
#[derive(Debug)]
pub struct Room {
    folder: PathBuf,
    /// How often it was found to be short.
    shortages: AtomicU64,
}

impl Room {
    /// Where `folder` is.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), shortages: AtomicU64::new(0) }
    }

    /// Looks whether there is too little; then, what is told to a person.
    pub fn shortage(&self) -> Option<String> {
        // Who cannot be asked is not full.
        let state = rustix::fs::statvfs(&self.folder).ok().filter(is_short)?;
        self.note_shortage();
        let free_mib = state.f_bavail.saturating_mul(state.f_frsize) >> 20;
        Some(format!("{SHORT}: {free_mib} MiB are free for {}", self.folder.display()))
    }

    /// It is short.
    pub fn note_shortage(&self) {
        self.shortages.fetch_add(1, Ordering::Relaxed);
    }

    /// How often it was short so far.
    pub fn shortages(&self) -> u64 {
        self.shortages.load(Ordering::Relaxed)
    }
}

fn is_short(state: &StatVfs) -> bool {
    let (all, free) = (state.f_blocks.saturating_mul(state.f_frsize), state.f_bavail.saturating_mul(state.f_frsize));
    // Some file systems count no files.
    free < reserve(all) || (state.f_files > 0 && state.f_favail < RESERVE_FILES.min(state.f_files / RESERVE_PART))
}

fn reserve(all: u64) -> u64 {
    (all / RESERVE_PART).clamp(RESERVE_BYTES.0, RESERVE_BYTES.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(all: u64, free: u64, files: u64, files_free: u64) -> StatVfs {
        let mut state = rustix::fs::statvfs("/").expect("the root");
        (state.f_frsize, state.f_blocks, state.f_bavail, state.f_bfree) = (1, all, free, free);
        (state.f_files, state.f_favail, state.f_ffree) = (files, files_free, files_free);
        state
    }

    #[test]
    fn a_disk_is_short_before_it_is_full() {
        let (gib, mib) = (1 << 30, 1 << 20);
        assert!(!is_short(&state(100 * gib, gib, 0, 0)));
        assert!(is_short(&state(100 * gib, 255 * mib, 0, 0)), "of a large one a quarter of a GiB");
        assert!(!is_short(&state(60 * mib, 20 * mib, 0, 0)));
        assert!(is_short(&state(60 * mib, 7 * mib, 0, 0)), "of a small one 8 MiB");
        assert!(is_short(&state(100 * gib, 50 * gib, 1 << 20, 999)), "files");
        assert!(!is_short(&state(100 * gib, 50 * gib, 100, 50)));
    }

    #[test]
    fn shortages_are_counted() {
        let room = Room::new(Path::new("/proc"));
        assert!(room.shortage().is_some_and(|why| why.contains("/proc")), "there is none in /proc");
        assert_eq!(room.shortages(), 1);
        assert!(Room::new(Path::new("/nowhere")).shortage().is_none());
    }
}
