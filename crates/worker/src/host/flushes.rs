//! What a disk holds in a cache of its own: it was written, and is not yet kept. Whoever syncs a file waits until all of that is, whoever wrote it.
//!
//! So what guests write is written through before there is much of it, by a flush of the worker's own: a byte of a file that has no name is
//! written again and synced, which touches neither the journal nor what guests have yet to write.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

/// Others want the disk if it had to write its cache through so often in a second: what an fsync does.
const FREQUENT_MIN: u64 = 2;
/// One of ours is counted so often, to learn how many flushes that is: of a volume on two disks it may be three.
const COUNTED_MAX: u32 = 16;

/// Writes a disk's cache through, and knows how often others have that done.
#[derive(Default)]
pub struct Flushes {
    /// The file, and the disk that it is on.
    file: Option<(u64, File)>,
    /// How many flushes one of ours comes to at least, how often it was counted, and how many of ours there were since it was looked last.
    each: u64,
    counted: u32,
    ours: u64,
    last: Option<(Instant, u64)>,
    are_frequent: bool,
}

impl Flushes {
    /// Has the disk on which this folder is keep all that was written to it.
    pub fn write_through(&mut self, folder: &Path) -> io::Result<()> {
        let disk = fs::metadata(folder)?.dev();
        if self.file.as_ref().is_none_or(|(known, _)| *known != disk) {
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            let file = File::from(rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR)?);
            file.write_all_at(b"0", 0)?;
            file.sync_all()?;
            (self.file, self.each, self.counted) = (Some((disk, file)), 0, 0);
        }
        let Some((_, file)) = &self.file else { return Ok(()) };
        let counts = self.counted < COUNTED_MAX;
        let before = if counts { count() } else { 0 };
        file.write_all_at(b"0", 0)?;
        file.sync_data()?;
        if counts {
            // Others' are in it, too; they are not in all of them.
            let came_to = count().saturating_sub(before);
            self.each = if self.counted == 0 { came_to } else { self.each.min(came_to) };
            self.counted += 1;
        }
        self.ours += 1;
        Ok(())
    }

    /// Whether others sync files now. It is looked once a second.
    pub fn are_frequent(&mut self) -> bool {
        if self.last.is_none_or(|(then, _)| then.elapsed() >= Duration::from_secs(1)) {
            self.look(count());
        }
        self.are_frequent
    }

    fn look(&mut self, count: u64) {
        let others = |before: u64| count.saturating_sub(before).saturating_sub(self.ours * self.each);
        self.are_frequent = self.last.is_some_and(|(_, before)| others(before) >= FREQUENT_MIN);
        (self.last, self.ours) = (Some((Instant::now(), count)), 0);
    }
}

/// Flushes of all disks so far.
fn count() -> u64 {
    flushes(&fs::read_to_string("/proc/diskstats").unwrap_or_default())
}

/// Reads `/proc/diskstats`: flush requests that were completed, of all disks.
fn flushes(diskstats: &str) -> u64 {
    // The sixteenth figure after the name, from kernel 5.5 on.
    diskstats.lines().filter_map(|line| line.split_whitespace().nth(3 + 15)?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_are_counted() {
        // From kernels 6.18 and 4.19.
        let new = " 253 0 vda 22083 0 1263040 5069 91411 80633 9170392 69035 0 24104 81573 3377 0 33538512 4021 7141 3446\n\
            7 0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n";
        let old = "   8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n";
        assert_eq!((flushes(new), flushes(old), flushes("")), (7141, 0, 0));
    }

    #[test]
    fn what_is_written_through_leaves_nothing_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut flushes = Flushes::default();
        (0..3).for_each(|_| flushes.write_through(folder.path()).expect("a file without a name"));
        assert_eq!((flushes.ours, fs::read_dir(folder.path()).expect("a folder").count()), (3, 0));
        assert!(flushes.write_through(&folder.path().join("absent")).is_err());
    }

    #[test]
    fn ours_are_not_others() {
        let mut flushes = Flushes { each: 2, ..Flushes::default() };
        let mut look = |ours: u64, count: u64| {
            flushes.ours = ours;
            flushes.look(count);
            flushes.are_frequent
        };
        assert!(!look(0, 1_000), "nobody knows since when");
        assert_eq!([look(10, 1_021), look(10, 1_043), look(0, 1_044)], [false, true, false]);
    }
}
