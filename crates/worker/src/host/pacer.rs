//! What takes time: guests' files are written to disk piece by piece, and their cache is dropped.
//!
//! Left to itself a kernel writes what a guest wrote in bursts of hundreds of megabytes, and an owner's fsync waits behind them, whatever the class of
//! either: measured, twenty times as long as alone. So guests may leave only a little unwritten; this thread writes it, one piece at a
//! time, and a guest that writes faster waits. While others want the disk it is used for a tenth of the time only.

use super::guests::Known;
use super::{Shared, wait};
use std::collections::HashSet;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

/// Guests' files that need not be written yet, in bytes: most are gone before that.
const LOOSE_BYTES: u64 = 8 << 20;
/// A guest that has left so much unwritten waits, in bytes.
const DIRTY_BYTES_MAX: u64 = 48 << 20;
/// What is written at once, in bytes: about a millisecond's worth.
const PIECE_BYTES: i64 = 512 << 10;
/// The part of the time in which pieces are written while others want the disk.
const SHARE: f64 = 0.1;
/// Longest wait between two pieces, however slow the disk is.
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(100);
/// Longest turn of one guest.
const TURN_MAX: Duration = Duration::from_millis(500);
/// Files that are looked at in one turn.
const FILES_MAX: usize = 20_000;
/// A kernel writes by itself what was written so long ago.
const LATELY: Duration = Duration::from_secs(60);
/// Others want the disk if it had to write caches through so often in a second: what an fsync does.
const FLUSHES_MIN: u64 = 2;

/// Goes on until the worker ends.
pub fn run(shared: &Shared) {
    let mut pacer = Pacer::default();
    while !shared.has_ended() {
        let drop_bytes = shared.to_drop.swap(0, Ordering::Relaxed);
        if drop_bytes > 0 {
            shared.levers.drop_cache(drop_bytes);
        }
        let is_used = shared.guests.count() > 0;
        if is_used || !pacer.waiting.is_empty() {
            pacer.look(shared);
        }
        wait(if is_used { LOOK } else { LOOK * 5 });
    }
    pacer.thaw(shared, |_| true);
}

#[derive(Default)]
struct Pacer {
    /// Groups of guests that wait.
    waiting: HashSet<String>,
    flushes: Flushes,
}

impl Pacer {
    fn look(&mut self, shared: &Shared) {
        let is_paced = self.flushes.are_frequent() || wire::lock(&shared.seen).owner_s.is_some();
        shared.is_paced.store(is_paced, Ordering::Relaxed);
        let guests = shared.guests.list();
        // Groups are used again: whoever is in one now must not wait for what another wrote.
        self.thaw(shared, |group| !guests.iter().any(|guest| guest.group == *group));
        if shared.levers.held().is_none_or(|held| held.dirty < LOOSE_BYTES) {
            return self.thaw(shared, |_| true);
        }
        for guest in guests.iter().filter(|guest| !guest.group.is_empty()) {
            let dirty = || shared.levers.held_by(&guest.group).map_or(0, |held| held.dirty);
            if dirty() < LOOSE_BYTES {
                continue;
            }
            if dirty() > DIRTY_BYTES_MAX && !self.waiting.contains(&guest.group) {
                let frozen = shared.levers.freeze_task(&guest.group, true);
                if frozen.is_ok_and(|frozen| frozen) {
                    self.waiting.insert(guest.group.clone());
                }
            }
            write_out(guest, is_paced, || dirty() < LOOSE_BYTES / 2 || shared.has_ended());
            if dirty() < DIRTY_BYTES_MAX / 2 {
                self.thaw(shared, |group| *group == guest.group);
            }
        }
    }

    fn thaw(&mut self, shared: &Shared, which: impl Fn(&String) -> bool) {
        self.waiting.retain(|group| {
            let thaws = which(group);
            if thaws {
                let _ = shared.levers.freeze_task(group, false);
            }
            !thaws
        });
    }
}

/// Writes what a guest has written lately, piece by piece, for a turn or until that is `enough`.
fn write_out(guest: &Known, is_paced: bool, enough: impl Fn() -> bool) {
    let end = Instant::now() + TURN_MAX;
    for path in lately_written(&guest.scratch.join("upper")) {
        // Not what a link leads to: the folder is the guest's.
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let Ok(file) = rustix::fs::open(&path, flags | rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty()) else {
            continue;
        };
        let file = File::from(file);
        let length = file.metadata().map_or(0, |file| file.len()) as i64;
        let mut at = 0;
        while at < length {
            if Instant::now() > end || enough() {
                return;
            }
            // Pieces that were written before cost nothing.
            let took = write_piece(&file, at);
            if is_paced && took > Duration::from_micros(50) {
                wait(took.mul_f64(1.0 / SHARE - 1.0).min(PAUSE_MAX));
            }
            at += PIECE_BYTES;
        }
    }
}

/// Writes a piece of a file to disk and waits for it: how long that took.
fn write_piece(file: &File, at: i64) -> Duration {
    let since = Instant::now();
    let flags = libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the descriptor is open; the rest are plain integers.
    unsafe { libc::sync_file_range(file.as_raw_fd(), at, PIECE_BYTES, flags) };
    since.elapsed()
}

/// Files in a folder and beneath it, the one written last first, as far as that was lately.
fn lately_written(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders, mut left) = (Vec::new(), vec![folder.to_owned()], FILES_MAX);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            left = left.saturating_sub(1);
            let (Ok(kind), true) = (entry.file_type(), left > 0) else { continue };
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file()
                && let Ok(file) = entry.metadata()
            {
                // The time of modification is the guest's to set.
                let written = Duration::new(file.ctime().max(0) as u64, file.ctime_nsec() as u32);
                if now.saturating_sub(written) < LATELY {
                    found.push((written, entry.path()));
                }
            }
        }
    }
    found.sort_by(|a, b| b.cmp(a));
    found.into_iter().map(|(_, path)| path).collect()
}

/// How often disks had to write their caches through.
#[derive(Default)]
struct Flushes {
    last: Option<(Instant, u64)>,
    are_frequent: bool,
}

impl Flushes {
    fn are_frequent(&mut self) -> bool {
        let now = Instant::now();
        if let Some((then, _)) = self.last
            && now - then < Duration::from_secs(1)
        {
            return self.are_frequent;
        }
        let count = flushes(&fs::read_to_string("/proc/diskstats").unwrap_or_default());
        self.are_frequent = self.last.is_some_and(|(_, before)| count.saturating_sub(before) >= FLUSHES_MIN);
        self.last = Some((now, count));
        self.are_frequent
    }
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
    fn what_was_written_last_is_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("a/b")).expect("folders");
        fs::write(path("a/b/first"), "1").expect("a file");
        let long_ago = SystemTime::now() - Duration::from_secs(3_600);
        File::open(path("a/b/first")).and_then(|file| file.set_modified(long_ago)).expect("a time");
        std::os::unix::fs::symlink("/dev/zero", path("a/link")).expect("a link");
        wait(Duration::from_millis(30));
        fs::write(path("second"), "2").expect("a file");
        assert_eq!(lately_written(folder.path()), [path("second"), path("a/b/first")]);
        assert!(write_piece(&File::open(path("second")).expect("it is there"), 0) < Duration::from_secs(5));
    }
}
