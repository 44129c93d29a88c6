//! Memory and processes of tasks where no control group counts them: from `/proc`.

use super::Task;
use super::disk::nameless;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use store::room::Room;

/// What the kernel says of a file system in memory (`TMPFS_MAGIC`).
const IN_MEMORY: i64 = 0x0102_1994;

/// Addresses of a process from which on its page tables are looked at, in bytes.
const MAPPED_MIN: u64 = 1 << 30;

/// One process of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub number: u32,
    parent: u32,
    threads: u64,
    /// Memory that it shares with others counted in full, in bytes.
    resident: u64,
    /// What it has of addresses, in bytes.
    mapped: u64,
}

/// All processes of this machine.
pub fn all() -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let page = rustix::param::page_size() as u64;
    numbers.filter_map(|number: u32| parse(number, &read(number, "stat")?, page)).collect()
}

fn read(process: u32, name: &str) -> Option<String> {
    // Its name can be anything.
    let bytes = std::fs::read(format!("/proc/{process}/{name}")).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads a line of `/proc/N/stat`.
fn parse(number: u32, stat: &str, page: u64) -> Option<Process> {
    // Behind the name: fields 3 (state), 4 (parent), 20 (threads), 23 (bytes of addresses), 24 (pages in memory).
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |at: usize| fields.get(at - 3)?.parse::<u64>().ok();
    let (parent, threads, mapped, resident) = (field(4)? as u32, field(20)?, field(23)?, field(24)? * page);
    Some(Process { number, parent, threads, resident, mapped })
}

/// The process `init` and all beneath it, among these.
pub fn of(init: u32, all: &[Process]) -> impl Iterator<Item = &Process> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    all.iter().for_each(|process| children.entry(process.parent).or_default().push(process.number));
    let (mut found, mut open) = (HashSet::from([init]), vec![init]);
    while let Some(parent) = open.pop() {
        let own = children.get(&parent).into_iter().flatten();
        open.extend(own.filter(|child| found.insert(**child)));
    }
    all.iter().filter(move |process| found.contains(&process.number))
}

/// Memory, in bytes, and processes with threads of a task. What processes share is looked at more closely only where memory seems
/// to be above its bound.
pub fn taken(task: &Task, all: &[Process], bound: u64) -> (u64, u64) {
    let Some(init) = task.control.as_ref().and_then(crate::sandbox::Control::process_id) else { return (0, 0) };
    let own: Vec<Process> = of(init, all).copied().collect();
    let numbers: Vec<u32> = own.iter().map(|process| process.number).collect();
    let threads = own.iter().map(|process| process.threads).sum();
    // Files in memory need not be in any process's, nor are page tables.
    let (without_names, _) = nameless(&numbers, |kind| kind == IN_MEMORY);
    let beside = without_names + shared(init) + own.iter().map(page_tables).sum::<u64>();
    let resident: u64 = own.iter().map(|process| process.resident).sum();
    if resident + beside <= bound {
        return (resident + beside, threads);
    }
    let part = |process: &Process| proportional(process.number).unwrap_or(process.resident);
    let memory: u64 = own.iter().map(part).sum();
    // What is mapped of those files is in both sums: the larger one is certain.
    (memory.max(beside), threads)
}

/// How many processes the machine has killed for want of memory.
pub fn killed() -> Option<u64> {
    let counters = std::fs::read_to_string("/proc/vmstat").ok()?;
    counters.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// What is in a task's `/dev/shm`, in bytes.
fn shared(init: u32) -> u64 {
    let folder = format!("/proc/{init}/root/dev/shm");
    Room::at(Path::new(&folder)).map_or(0, |room| room.used_bytes)
}

/// What the kernel takes to know where a process's memory is, in bytes: also of memory that was read and never written. It is a 512th of the
/// addresses at most, so that most processes need no look.
fn page_tables(process: &Process) -> u64 {
    if process.mapped < MAPPED_MIN {
        return 0;
    }
    let status = read(process.number, "status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPTE:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).map_or(0, |kib| kib << 10)
}

/// Memory of a process, what it shares divided among those that share it, in bytes.
fn proportional(process: u32) -> Option<u64> {
    let rollup = read(process, "smaps_rollup")?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_from_its_line_whatever_its_name() {
        let stat = "7 (a) b 9) S 3 7 5 0 -1 4194560 10 0 0 0 30 12 0 0 20 0 4 0 9 1000000 250 18446744073709551615";
        let want = Process { number: 7, parent: 3, threads: 4, resident: 250 * 4096, mapped: 1_000_000 };
        assert_eq!(parse(7, stat, 4096), Some(want));
        assert_eq!(parse(7, "7 (x) S", 4096), None);
    }

    #[test]
    fn all_beneath_a_process_are_its_own() {
        let process = |number, parent| Process { number, parent, threads: 1, resident: 0, mapped: 0 };
        let all = [process(1, 0), process(5, 1), process(6, 5), process(7, 6), process(8, 1), process(9, 8)];
        let own: Vec<u32> = of(5, &all).map(|process| process.number).collect();
        assert_eq!(own, [5, 6, 7]);
    }

    #[test]
    fn this_process_is_seen() {
        let all = all();
        let own = of(std::process::id(), &all).next().expect("this one");
        assert!(own.threads >= 1 && own.resident > 0 && page_tables(&Process { mapped: MAPPED_MIN, ..*own }) > 0);
        assert!(proportional(own.number).is_none_or(|bytes| bytes > 0 && bytes <= own.resident * 2));
    }
}
