//! Whether the disk that tasks write to has room. What a program makes of a full disk of this machine is not its result: at its client's there
//! is room. So tasks go elsewhere before the disk is full, and what ran while it was nearly full does not count.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use store::room::Room as Free;

/// How what [`Room::shortage`] says begins.
pub const SHORT: &str = "its disk is full";
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
        let free = Free::at(&self.folder).ok().filter(Free::is_short_for_tasks)?;
        self.note_shortage();
        Some(format!("{SHORT}: {} MiB are free for {}", free.bytes >> 20, self.folder.display()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortages_are_counted() {
        let room = Room::new(Path::new("/proc"));
        assert!(room.shortage().is_some_and(|why| why.contains("/proc")), "there is none in /proc");
        assert_eq!(room.shortages(), 1);
        assert!(Room::new(Path::new("/nowhere")).shortage().is_none());
    }
}
