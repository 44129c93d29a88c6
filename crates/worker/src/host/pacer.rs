//! What takes time: guests' files are written to disk piece by piece, and their cache is dropped.
//!
//! Left to itself a kernel writes what a guest wrote in bursts of hundreds of megabytes, and an owner's fsync waits behind them, whatever the class of
//! either: measured, twenty times as long as alone. So guests may leave only a little unwritten; this thread writes it, one piece at a
//! time, and a guest that writes faster waits. While others want the disk it is used for a tenth of the time only, and each piece is kept by the
//! disk before the next one is written: else they would wait for all that is in its cache.

use super::brake::{LOOK, LOOK_CLOSELY, LOOSE_BYTES, dirty, dirty_bytes_max};
use super::flushes::Flushes;
use super::guests::Known;
use super::{Shared, wait};
use std::fs::{self, File};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

/// What is written at once, in bytes: about a millisecond's worth.
const PIECE_BYTES: u64 = 512 << 10;
/// A piece that takes less was on disk before.
const WRITTEN_MIN: Duration = Duration::from_micros(50);
/// The part of the time in which pieces are written while others want the disk.
const SHARE: f64 = 0.1;
/// Longest wait between two pieces, however slow the disk is.
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// Longest turn of one guest.
const TURN_MAX: Duration = Duration::from_millis(500);
/// Files that are looked at in one turn, and bytes of their paths: a guest's folders can be deep.
const FILES_MAX: usize = 20_000;
const PATHS_BYTES_MAX: usize = 8 << 20;
/// A kernel writes by itself what was written so long ago.
const LATELY: Duration = Duration::from_secs(60);
/// Most that may be in the disk's own cache while nobody else wants it, in bytes: who comes then waits for that.
const UNKEPT_BYTES_MAX: u64 = 8 << 20;

/// Goes on until the worker ends.
pub fn run(shared: &Shared) {
    let mut pacer = Pacer::default();
    while !shared.has_ended() {
        let drop_bytes = shared.to_drop.swap(0, Ordering::Relaxed);
        if drop_bytes > 0 {
            shared.levers.drop_cache(drop_bytes);
        }
        let is_used = shared.guests.count() > 0;
        if is_used || shared.brake.holds_any() || shared.backlog.bytes() >= LOOSE_BYTES {
            pacer.look(shared);
        }
        wait(if is_used { LOOK } else { LOOK * 5 });
    }
    shared.backlog.set_limit(u64::MAX);
}

#[derive(Default)]
struct Pacer {
    flushes: Flushes,
    /// What was written and may be in the disk's own cache, in bytes.
    unkept: u64,
}

impl Pacer {
    fn look(&mut self, shared: &Shared) {
        let others_sync = self.flushes.are_frequent();
        let is_paced = others_sync || wire::lock(&shared.seen).owner_s.is_some();
        shared.is_paced.store(is_paced, Ordering::Relaxed);
        // That somebody is there, whose own command this may be, does not suffice: each read would wait for the disk.
        shared.backlog.set_limit(dirty_bytes_max(others_sync));
        self.write_backlog(shared, others_sync);
        let guests = shared.guests.list();
        // Groups are used again: whoever is in one now must not wait for what another wrote.
        shared.brake.release(shared, |group| !guests.iter().any(|guest| guest.group == *group));
        if shared.brake.dirty() < LOOSE_BYTES {
            return shared.brake.release(shared, |_| true);
        }
        for guest in guests.iter().filter(|guest| dirty(shared, guest) >= LOOSE_BYTES) {
            self.write_out(shared, guest, is_paced);
            if dirty(shared, guest) < LOOSE_BYTES {
                shared.brake.release(shared, |group| *group == guest.group);
            }
        }
    }

    /// Writes what a guest has written lately, piece by piece, for a turn or until little is left.
    fn write_out(&mut self, shared: &Shared, guest: &Known, is_paced: bool) {
        let mut turn = Turn::begin();
        let mut is_over = || dirty(shared, guest) < LOOSE_BYTES / 2 || shared.has_ended();
        for path in lately_written(&guest.scratch.join("upper")) {
            // Not what a link leads to: the folder is the guest's.
            let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
            let Ok(file) = rustix::fs::open(&path, flags | rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty())
            else {
                continue;
            };
            let file = File::from(file);
            let length = file.metadata().map_or(0, |file| file.len());
            let at = self.write_bytes(&file, 0..length, &guest.scratch, is_paced, || turn.is_over(&mut is_over));
            if at < length {
                return;
            }
        }
    }

    /// Writes what the worker keeps for guests, piece by piece, for a turn or until little is left.
    fn write_backlog(&mut self, shared: &Shared, is_paced: bool) {
        if shared.backlog.bytes() < LOOSE_BYTES {
            return;
        }
        let mut turn = Turn::begin();
        for stretch in shared.backlog.stretches() {
            let (end, folder) = (stretch.bytes.end, stretch.path.parent().unwrap_or(&stretch.path));
            // What is not there any more need not be written.
            let at = File::open(&stretch.path).map_or(end, |file| {
                let is_over = || turn.is_over(&mut || shared.has_ended());
                self.write_bytes(&file, stretch.bytes.clone(), folder, is_paced, is_over)
            });
            shared.backlog.wrote(stretch.mark(at.min(end)));
            if at < end {
                return;
            }
        }
    }

    /// Writes these bytes of a file, piece by piece, until `is_over`; says where it ended. In `folder`, on the same disk, a file can be made.
    fn write_bytes(
        &mut self,
        file: &File,
        bytes: Range<u64>,
        folder: &Path,
        is_paced: bool,
        mut is_over: impl FnMut() -> bool,
    ) -> u64 {
        let mut at = bytes.start;
        while at < bytes.end && !is_over() {
            let since = Instant::now();
            write_piece(file, at);
            at += PIECE_BYTES;
            // Pieces that were written before cost nothing.
            if since.elapsed() < WRITTEN_MIN {
                continue;
            }
            self.unkept += PIECE_BYTES;
            if is_paced || self.unkept > UNKEPT_BYTES_MAX {
                // Where that cannot be done it is as it was before: the disk keeps it when somebody syncs a file.
                let _ = self.flushes.write_through(folder);
                self.unkept = 0;
            }
            if is_paced {
                wait(since.elapsed().mul_f64(1.0 / SHARE - 1.0).min(PAUSE_MAX));
            }
        }
        at
    }
}

/// A turn of the disk's.
struct Turn {
    end: Instant,
    looked: Instant,
}

impl Turn {
    fn begin() -> Self {
        let now = Instant::now();
        Self { end: now + TURN_MAX, looked: now }
    }

    /// Whether it is over: in time, or because there is no need any more, which is looked at now and then.
    fn is_over(&mut self, is_enough: &mut impl FnMut() -> bool) -> bool {
        if self.looked.elapsed() < LOOK_CLOSELY {
            return false;
        }
        self.looked = Instant::now();
        self.looked > self.end || is_enough()
    }
}

/// Writes a piece of a file to disk and waits for it.
fn write_piece(file: &File, at: u64) {
    let flags = libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the descriptor is open; the rest are plain integers.
    unsafe { libc::sync_file_range(file.as_raw_fd(), at as i64, PIECE_BYTES as i64, flags) };
}

/// Files in a folder and beneath it, the one written last first, as far as that was lately.
fn lately_written(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders, mut left) = (Vec::new(), vec![folder.to_owned()], FILES_MAX);
    let mut bytes_left = PATHS_BYTES_MAX;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            left = left.saturating_sub(1);
            bytes_left = bytes_left.saturating_sub(entry.path().as_os_str().len());
            let (Ok(kind), true) = (entry.file_type(), left > 0 && bytes_left > 0) else { continue };
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

#[cfg(test)]
mod tests {
    use super::*;

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
        write_piece(&File::open(path("second")).expect("it is there"), 0);
    }
}
