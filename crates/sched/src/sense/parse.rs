//! What the kernel says of processors, threads and cgroups, from its texts (proc(5), Documentation/admin-guide/cgroup-v2.rst). What cannot
//! be read is `None`: kernels differ, and processes end while one looks.

/// Ticks a second in `/proc/stat` and `/proc/PID/stat` (USER_HZ, the same on all of Linux).
pub const TICKS: f64 = 100.0;

/// What one processor did since the start, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Its number.
    pub number: u32,
    /// Programs, nice ones included.
    pub user: u64,
    /// Of these, the part at a positive nice value.
    pub nice: u64,
    /// The kernel, for programs.
    pub system: u64,
    /// Nothing, also while something waited for a disk.
    pub idle: u64,
    /// Interrupts, also soft ones, and what the hypervisor gave to others.
    pub taken: u64,
}

/// A line of `/proc/stat`, behind its name.
fn cpu<'a>(number: u32, words: impl Iterator<Item = &'a str>) -> Cpu {
    let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
    let at = |column: usize| ticks.get(column).copied().unwrap_or_default();
    // What runs virtual machines is in `user` already.
    Cpu { number, user: at(0) + at(1), nice: at(1), system: at(2), idle: at(3) + at(4), taken: at(5) + at(6) + at(7) }
}

/// `/proc/stat`: all processors together, as number 0.
pub fn all(text: &str) -> Option<Cpu> {
    let words = text.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
    Some(cpu(0, words))
}

/// `/proc/stat`: each processor that is online, and how many threads run or wait for one.
pub fn stat(text: &str) -> Option<(Vec<Cpu>, u64)> {
    let mut cpus = Vec::new();
    let mut running = None;
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("procs_running") => running = words.next().and_then(|word| word.parse().ok()),
            Some(name) if name.len() > 3 && name.starts_with("cpu") => {
                let number = name[3..].parse().ok()?;
                cpus.push(cpu(number, words));
            }
            _ => {}
        }
    }
    (!cpus.is_empty()).then_some((cpus, running?))
}

/// `/proc/loadavg`: the mean over a minute.
pub fn load_average(text: &str) -> Option<f64> {
    text.split_ascii_whitespace().next()?.parse().ok().filter(|load: &f64| load.is_finite())
}

/// What `/proc/PID/stat` tells of a process or thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Time of all its threads, in ticks.
    pub ticks: u64,
    /// Threads.
    pub threads: u32,
    /// From -20 to 19.
    pub nice: i8,
    /// When it began, in ticks since the start of the machine.
    pub started: u64,
    /// The processor that it was last on.
    pub cpu: u32,
    /// Policy: 0 other, 1 FIFO, 2 round robin, 3 batch, 5 idle, 6 deadline.
    pub policy: u32,
}

/// `/proc/PID/stat`, or `/proc/PID/task/TID/stat`.
pub fn process(text: &str) -> Option<Process> {
    // The name is in parentheses, and may contain any of them.
    let rest = &text[text.rfind(')')? + 1..];
    let words: Vec<&str> = rest.split_ascii_whitespace().collect();
    // Fields count from 1; the third comes first here.
    let field = |number: usize| words.get(number - 3).copied();
    let count = |number: usize| field(number)?.parse::<u64>().ok();
    Some(Process {
        ticks: count(14)? + count(15)?,
        nice: field(19)?.parse().ok()?,
        threads: count(20)?.try_into().ok()?,
        started: count(22)?,
        cpu: count(39)?.try_into().ok()?,
        policy: count(41)?.try_into().ok()?,
    })
}

/// What `/proc/PID/schedstat` tells of a thread since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// Nanoseconds on a processor.
    pub run_ns: u64,
    /// Nanoseconds of waiting for one.
    pub waited_ns: u64,
    /// How often it got one.
    pub turns: u64,
}

/// `/proc/PID/schedstat`.
pub fn schedstat(text: &str) -> Option<Ran> {
    let mut words = text.split_ascii_whitespace().map_while(|word| word.parse().ok());
    Some(Ran { run_ns: words.next()?, waited_ns: words.next()?, turns: words.next()? })
}

/// Which hierarchy of cgroups shares the processors out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The `cpu` controller is mounted by itself.
    One,
    /// The unified hierarchy.
    Two,
}

/// `/proc/PID/cgroup`: the path in the hierarchy that shares the processors out; `/` is its root.
pub fn cgroup(text: &str) -> Option<(Version, &str)> {
    let mut unified = None;
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        if controllers.split(',').any(|name| name == "cpu") {
            return Some((Version::One, path));
        }
        if number == "0" {
            unified = Some((Version::Two, path));
        }
    }
    unified
}

/// `/proc/PID/autogroup`: its number, and its nice value.
pub fn autogroup(text: &str) -> Option<(u64, i8)> {
    let mut words = text.split_ascii_whitespace();
    let number = words.next()?.strip_prefix("/autogroup-")?.parse().ok()?;
    (words.next()? == "nice").then_some(())?;
    Some((number, words.next()?.parse().ok()?))
}

/// `cpu.stat` of a cgroup of version 2: nanoseconds that its processes ran.
pub fn usage_ns(text: &str) -> Option<u64> {
    let usage = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
    usage.trim().parse::<u64>().ok()?.checked_mul(1_000)
}

/// `cpuacct.usage` of a cgroup of version 1, `cpu.shares`, `cpu.weight`, `cpu.idle` and the like: a number.
pub fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// `/proc/pressure/cpu`: nanoseconds since the start in which some thread waited for a processor.
pub fn pressure_ns(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    let total = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?;
    total.parse::<u64>().ok()?.checked_mul(1_000)
}

/// A list of processors as `Cpus_allowed_list` has it: `0-3,8`.
pub fn cpu_list(text: &str) -> Option<Vec<u32>> {
    /// Numbers beyond are no processors.
    const CPUS_MAX: u32 = 8_192;
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last >= CPUS_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kernel_said_once() {
        let (cpus, running) = stat(include_str!("transcripts/stat.txt")).expect("sound");
        assert_eq!((cpus.len(), cpus[1].number), (2, 1));
        assert!(running >= 1 && cpus.iter().all(|cpu| cpu.idle > 0 && cpu.user >= cpu.nice));
        assert!(load_average(include_str!("transcripts/loadavg.txt")).expect("sound") > 0.0);
        let process = process(include_str!("transcripts/pid-stat.txt")).expect("sound");
        assert_eq!((process.threads, process.nice, process.policy), (1, 0, 0));
        let ran = schedstat(include_str!("transcripts/schedstat.txt")).expect("sound");
        assert_eq!((ran.run_ns, ran.turns), (0, 1), "it had just begun");
        assert_eq!(cgroup(include_str!("transcripts/cgroup-v1.txt")), Some((Version::One, "/")));
        let session = "/user.slice/user-1000.slice/session-2.scope";
        assert_eq!(cgroup(include_str!("transcripts/cgroup-v2.txt")), Some((Version::Two, session)));
        assert_eq!(autogroup(include_str!("transcripts/autogroup.txt")).expect("sound").1, 0);
        assert!(usage_ns(include_str!("transcripts/cpu-stat.txt")).expect("sound") > 1_000_000);
        assert!(pressure_ns(include_str!("transcripts/pressure-cpu.txt")).expect("sound") > 1_000_000);
    }

    #[test]
    fn a_name_may_hold_anything() {
        let fields = "S 1 1 1 0 -1 4194560 0 0 0 0 7 5 0 0 20 -3 2 0 99 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 6 0 5 0";
        let process = process(&format!("12 (a) R (b 1) {fields}")).expect("sound");
        let known = Process { ticks: 12, threads: 2, nice: -3, started: 99, cpu: 6, policy: 5 };
        assert_eq!(process, known);
    }

    #[test]
    fn what_is_no_such_text_is_nothing() {
        assert_eq!(stat(""), None);
        assert_eq!(stat("cpu 1 2 3 4\ncpu0 1 2 3 4\n"), None, "no word of what runs");
        assert_eq!(
            (process("12 (a"), process("12 (a) S 1"), schedstat("1 2"), load_average("NaN")),
            (None, None, None, None)
        );
        assert_eq!((cgroup("x"), autogroup("7"), usage_ns("user_usec 4"), pressure_ns("")), (None, None, None, None));
        assert_eq!(cpu_list("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!((cpu_list("0-99999999"), cpu_list("a")), (None, None));
    }
}
