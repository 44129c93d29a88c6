//! How much tasks have written.
//!
//! To weigh an upper layer on disk takes a look at each of its files. So it is weighed only where its task may have passed a bound:
//! when the file system as a whole has grown by what was left to it. Files that have lost their names and are still open belong to
//! it as well, and are found at the processes that hold them. What moves its folders about again and again, so that not all of it is ever
//! seen, is taken to have what the file system has grown by since it was.

use super::Task;
use super::processes;
use crate::trees;
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags};
use sched::charge::Bounds;
use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::room::Room;

/// Weighing takes no more than this part of the time.
const ONE_OF: u32 = 10;
/// Time from one weighing to the next at least.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// And at most: others may have given back what a task took.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// So many weighings in a row may not have seen all of a task.
const PARTIAL_MAX: u32 = 3;
/// Open files that are looked at in one weighing.
const OPEN_MAX: usize = 100_000;
/// What the kernel says of a file system that is an overlay (`OVERLAYFS_SUPER_MAGIC`).
const OVERLAY: i64 = 0x794c_7630;

/// Bytes and files: of a task, or in use of a file system.
#[derive(Clone, Copy, Debug, Default)]
struct Weight {
    bytes: u64,
    files: u64,
}

impl Weight {
    /// What is in use where `folder` is.
    fn in_use(folder: &Path) -> Option<Self> {
        let room = Room::at(folder).ok()?;
        Some(Self { bytes: room.used_bytes, files: room.used_files })
    }

    fn since(self, before: Self) -> Self {
        Self { bytes: self.bytes.saturating_sub(before.bytes), files: self.files.saturating_sub(before.files) }
    }

    /// The larger of both, each for itself.
    fn or(self, other: Self) -> Self {
        Self { bytes: self.bytes.max(other.bytes), files: self.files.max(other.files) }
    }

    fn and(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(other.bytes), files: self.files.saturating_add(other.files) }
    }

    fn passes(self, bytes: u64, files: u64) -> bool {
        self.bytes > bytes || self.files > files
    }
}

#[derive(Clone, Copy, Debug)]
struct Weighed {
    weight: Weight,
    /// How the file system was.
    filled: Weight,
    /// What it was, and the task had, when all of that was seen last.
    whole: (Weight, Weight),
    /// Weighings since then.
    partial: u32,
    at: Instant,
    took: Duration,
}

impl Weighed {
    /// Of a task whose file system is its own, and like this.
    fn alone(filled: Weight) -> Self {
        let whole = (filled, filled);
        Self { weight: filled, filled, whole, partial: 0, at: Instant::now(), took: Duration::ZERO }
    }

    /// Weighs a task whose file system was like this just before, and that was weighed before.
    fn now(task: &Task, filled: Weight, before: Option<&Self>) -> Self {
        let began = Instant::now();
        let (seen, is_whole) = weigh(task);
        let weighed = Self::of(seen, is_whole, filled, before);
        Self { at: Instant::now(), took: began.elapsed(), ..weighed }
    }

    /// What was seen of a task, and whether that was all.
    fn of(seen: Weight, is_whole: bool, filled: Weight, before: Option<&Self>) -> Self {
        let first = Self { weight: seen, whole: (filled, seen), ..Self::alone(filled) };
        let Some(before) = before.filter(|_| !is_whole) else { return first };
        let (whole, partial) = (before.whole, before.partial + 1);
        // Others may have made it grow, so that a task which moves a folder now and then is not taken for one that hides.
        let hidden = if partial > PARTIAL_MAX { whole.1.and(filled.since(whole.0)) } else { Weight::default() };
        Self { weight: seen.or(hidden), whole, partial, ..first }
    }

    fn may_be_weighed_again(&self) -> bool {
        self.at.elapsed() >= (self.took * ONE_OF).max(PAUSE_MIN)
    }
}

/// What is known of all tasks.
#[derive(Default)]
pub struct Disk {
    weighed: HashMap<u64, Weighed>,
}

impl Disk {
    /// Looks how full file systems are, and weighs where a bound may have been passed.
    pub fn look(&mut self, tasks: &[(u64, Arc<Task>)], bounds: &Bounds) {
        self.weighed.retain(|number, _| tasks.iter().any(|(there, _)| there == number));
        let (mut on_disk, mut grown) = (Vec::new(), Weight::default());
        for (number, task) in tasks {
            let Some(filled) = Weight::in_use(&task.folder) else { continue };
            if !task.is_on_disk {
                // The file system is the task's alone.
                self.weighed.insert(*number, Weighed::alone(filled));
                continue;
            }
            let weighed = self.weighed.entry(*number).or_insert_with(|| Weighed::now(task, filled, None));
            let since = filled.since(weighed.filled);
            grown = grown.or(since);
            on_disk.push((*number, task, filled, since));
        }
        let all = self.may_pass_a_sum(tasks, grown, bounds);
        for (number, task, filled, since) in on_disk {
            let Some(weighed) = self.weighed.get(&number).copied() else { continue };
            let may_pass = weighed.weight.and(since).passes(bounds.task.disk, bounds.task.files);
            if (may_pass || all || weighed.at.elapsed() > PAUSE_MAX) && weighed.may_be_weighed_again() {
                self.weighed.insert(number, Weighed::now(task, filled, Some(&weighed)));
            }
        }
    }

    /// Whether a client, or all, may have passed their bound, if what the file system has grown by is theirs.
    fn may_pass_a_sum(&self, tasks: &[(u64, Arc<Task>)], grown: Weight, bounds: &Bounds) -> bool {
        let mut clients: HashMap<u32, Weight> = HashMap::new();
        let mut all = grown;
        for (number, task) in tasks {
            let Some(weighed) = self.weighed.get(number) else { continue };
            for sum in [&mut all, clients.entry(task.client).or_insert(grown)] {
                *sum = sum.and(weighed.weight);
            }
        }
        all.passes(bounds.all.disk, bounds.all.files)
            || clients.values().any(|sum| sum.passes(bounds.client.disk, bounds.client.files))
    }

    /// Bytes and files that a task had when it was weighed last.
    pub fn used(&self, number: u64) -> (u64, u64) {
        self.weighed.get(&number).map_or((0, 0), |weighed| (weighed.weight.bytes, weighed.weight.files))
    }
}

/// What a task has, and whether that is all.
fn weigh(task: &Task) -> (Weight, bool) {
    let (bytes, files, is_whole) = trees::weigh(&task.folder);
    let init = task.control.as_ref().and_then(crate::sandbox::Control::process_id);
    let held = init.map(|init| processes::of(init, &processes::all()).map(|process| process.number).collect());
    let held: Vec<u32> = held.unwrap_or_default();
    let (more_bytes, more_files) = nameless(&held, |kind| kind == OVERLAY);
    (Weight { bytes, files }.and(Weight { bytes: more_bytes, files: more_files }), is_whole)
}

/// Bytes and number of the files without a name that these processes hold open or mapped, on file systems of some kind.
pub fn nameless(processes: &[u32], is_counted: impl Fn(i64) -> bool) -> (u64, u64) {
    let (mut seen, mut left, mut bytes) = (HashSet::new(), OPEN_MAX, 0);
    for process in processes {
        for folder in ["fd", "map_files"] {
            let entries = std::fs::read_dir(format!("/proc/{process}/{folder}")).into_iter().flatten().flatten();
            for entry in entries.take(left) {
                left -= 1;
                if let Some((identity, size)) = nameless_file(&entry.path(), &is_counted)
                    && seen.insert(identity)
                {
                    bytes += size;
                }
            }
        }
    }
    (bytes, seen.len() as u64)
}

/// Identity and bytes of what this link of `/proc` leads to, if it is a file without a name. Nothing is asked of whoever has it.
fn nameless_file(link: &Path, is_counted: &impl Fn(i64) -> bool) -> Option<((u32, u32, u64), u64)> {
    let target = std::fs::read_link(link).ok()?;
    if !target.as_os_str().as_bytes().ends_with(b" (deleted)") {
        return None;
    }
    let found = rustix::fs::statx(CWD, link, AtFlags::STATX_DONT_SYNC, StatxFlags::BASIC_STATS).ok()?;
    let is_file = FileType::from_raw_mode(found.stx_mode.into()) == FileType::RegularFile;
    if !is_file || found.stx_nlink > 0 || !is_counted(rustix::fs::statfs(link).ok()?.f_type) {
        return None;
    }
    Some(((found.stx_dev_major, found.stx_dev_minor, found.stx_ino), found.stx_blocks * 512))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(bytes: u64) -> Weight {
        Weight { bytes, files: 1 }
    }

    #[test]
    fn who_is_never_seen_whole_has_what_the_disk_has_grown_by() {
        let mut weighed = Weighed::of(bytes(10), true, bytes(1000), None);
        for _ in 0..PARTIAL_MAX {
            weighed = Weighed::of(bytes(12), false, bytes(1500), Some(&weighed));
            assert_eq!(weighed.weight.bytes, 12, "it may have moved a folder by chance");
        }
        weighed = Weighed::of(bytes(12), false, bytes(1500), Some(&weighed));
        assert_eq!(weighed.weight.bytes, 10 + 500);
        weighed = Weighed::of(bytes(600), false, bytes(1500), Some(&weighed));
        assert_eq!(weighed.weight.bytes, 600, "what is seen counts in any case");
        weighed = Weighed::of(bytes(12), true, bytes(1500), Some(&weighed));
        assert_eq!((weighed.weight.bytes, weighed.partial), (12, 0));
    }
}
