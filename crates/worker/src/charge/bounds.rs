//! What guests may have of this machine, from what its owner has said.

use sched::charge::{Amounts, Bounds};
use std::path::Path;
use store::room::Room;

/// If nothing else is said: of the file system that guests write to, but no more than of what is free there …
const DISK_PART: u64 = 2;
const FREE_PERCENT: u64 = 75;
/// … of its files, but no more than so many …
const FILES_PART: u64 = 4;
const FILES_MAX: u64 = 2_000_000;
/// … of the processes that the machine can have, but no more than so many.
const PROCESSES_PART: u64 = 2;
const PROCESSES_MAX: u64 = 16_384;

/// What is lent beside processors. What was not said is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lent {
    /// Bytes on disk, of all guests.
    pub disk_bytes: Option<u64>,
    /// Files, of all guests.
    pub files: Option<u64>,
    /// Processes and threads, of all guests.
    pub processes: Option<u64>,
    /// What one task may have of each of these, and of the memory that is lent, in percent.
    pub task_percent: u32,
    /// What all tasks of one client may have.
    pub client_percent: u32,
}

impl Lent {
    /// The bounds, for a worker whose guests write to `folder` and have so much memory together.
    pub fn bounds(&self, folder: &Path, memory: u64) -> Bounds {
        let disk = Room::at(folder);
        let free = |disk: &Room| disk.bytes / 100 * FREE_PERCENT;
        let bytes = disk.as_ref().map_or(u64::MAX, |disk| free(disk).min(disk.all_bytes / DISK_PART));
        let all_files = disk.map_or(u64::MAX, |disk| disk.all_files);
        let all = Amounts {
            disk: self.disk_bytes.unwrap_or(bytes),
            files: self.files.unwrap_or((all_files / FILES_PART).min(FILES_MAX)),
            memory,
            processes: self.processes.unwrap_or((processes() / PROCESSES_PART).min(PROCESSES_MAX)),
        };
        Bounds::of(all, self.task_percent, self.client_percent)
    }
}

/// How many processes and threads this machine can have.
fn processes() -> u64 {
    let read =
        |name: &str| std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?.trim().parse::<u64>().ok();
    ["pid_max", "threads-max"].iter().filter_map(|name| read(name)).min().unwrap_or(PROCESSES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_follows_the_machine() {
        let lent = Lent { task_percent: 50, client_percent: 100, ..Lent::default() };
        let bounds = lent.bounds(Path::new("/tmp"), 1000);
        let disk = Room::at(Path::new("/tmp")).expect("a file system");
        assert!(bounds.all.disk > 0 && bounds.all.disk <= disk.all_bytes / 2, "{bounds:?}");
        assert!(bounds.all.files > 0 && bounds.all.processes > 100);
        assert_eq!((bounds.task.memory, bounds.client.memory), (500, 1000));
        let said = Lent { disk_bytes: Some(7000), files: Some(10), processes: Some(4), ..lent };
        let bounds = said.bounds(Path::new("/tmp"), 1000);
        assert_eq!((bounds.task.disk, bounds.task.files, bounds.task.processes), (3500, 5, 2));
    }
}
