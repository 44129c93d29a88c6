//! What a host did between two readings of its counters.

use super::parse::{Cpu, Process, Ran, TICKS};

/// SCHED_IDLE.
const POLICY_IDLE: u32 = 5;
/// FIFO, round robin, deadline: before all others.
const POLICIES_FIRST: [u32; 3] = [1, 2, 6];
/// The weight of nice 0, of a cgroup by default, and of all that is of idle class.
pub const WEIGHT: f64 = 1024.0;
/// See `WEIGHT`.
pub const WEIGHT_IDLE: f64 = 3.0;

/// A cgroup on the way from the root to a thread.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Its name: the whole path, so that none is like another.
    pub name: String,
    /// What it counts among its siblings; 1024 by default.
    pub weight: f64,
}

/// A thread that is worth a look.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// Its number.
    pub id: u32,
    /// Its state.
    pub process: Process,
    /// Its counters.
    pub ran: Ran,
    /// Its cgroups, from the first below the root; an autogroup counts as one.
    pub path: Vec<Group>,
    /// The only processor that it may use, if there is only one.
    pub pinned: Option<u32>,
    /// It is a guest of ours.
    pub is_guest: bool,
}

/// All that was read at one time.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// When, in nanoseconds of a clock that goes on evenly from the start of the machine.
    pub at_ns: u64,
    /// Each processor that is online.
    pub cpus: Vec<Cpu>,
    /// Threads that run or wait for a processor.
    pub running: u64,
    /// Their mean over a minute.
    pub load_average: f64,
    /// Those that were worth a look.
    pub threads: Vec<Thread>,
}

/// What one processor did, as parts of the time between two readings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Used {
    /// Its number.
    pub number: u32,
    /// Nothing.
    pub idle: f64,
    /// Interrupts, and what the hypervisor gave to others: nobody gets that.
    pub taken: f64,
    /// Programs.
    pub user: f64,
    /// The kernel, for programs.
    pub system: f64,
}

impl Used {
    /// Programs and the kernel for them.
    pub fn busy(&self) -> f64 {
        (1.0 - self.idle - self.taken).max(0.0)
    }
}

/// What a thread asked of the processors.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// The part of the time that it was on one.
    pub run: f64,
    /// The part that it was on one or waited for one.
    pub wanted: f64,
    /// How long it wanted one at a time, in nanoseconds.
    pub burst_ns: f64,
    /// What it counts among its siblings.
    pub weight: f64,
    /// Goes before all that is not of its kind.
    pub is_first: bool,
    /// Of idle class by itself.
    pub is_idle: bool,
    /// See [`Thread::is_guest`].
    pub is_guest: bool,
    /// See [`Thread::path`].
    pub path: Vec<Group>,
    /// The processor that it was last on.
    pub cpu: u32,
    /// It may use no other.
    pub is_pinned: bool,
}

impl Demand {
    /// Whether full priority goes before it wherever it is: it, or a cgroup that holds it, is of idle class.
    pub fn yields(&self) -> bool {
        self.path.first().map_or(self.is_idle, |group| group.weight <= WEIGHT_IDLE)
    }
}

/// Between two readings.
#[derive(Clone, Debug, Default)]
pub struct Load {
    /// Seconds.
    pub seconds: f64,
    /// Each processor.
    pub cpus: Vec<Used>,
    /// Each thread that is known to have wanted one.
    pub demands: Vec<Demand>,
    /// What was used by nobody who is known, in processors: by threads that ended, mostly.
    pub unknown: f64,
    /// Threads that run or wait, at the second reading and without its reader.
    pub running: f64,
    /// Their mean over a minute.
    pub load_average: f64,
}

impl Load {
    /// From two readings, the earlier one first. `None`: no time lies between them, or no processor is in both.
    pub fn between(before: &Reading, after: &Reading) -> Option<Self> {
        let ns = after.at_ns.checked_sub(before.at_ns).filter(|ns| *ns > 0)? as f64;
        let cpus: Vec<Used> = after.cpus.iter().filter_map(|cpu| used(&before.cpus, cpu)).collect();
        if cpus.is_empty() {
            return None;
        }
        let demands: Vec<Demand> = after.threads.iter().filter_map(|thread| demand(before, thread, ns)).collect();
        let known: f64 = demands.iter().map(|demand| demand.run).sum();
        let unknown = (cpus.iter().map(Used::busy).sum::<f64>() - known).max(0.0);
        Some(Self {
            seconds: ns / 1e9,
            cpus,
            demands,
            unknown,
            running: after.running.saturating_sub(1) as f64,
            load_average: after.load_average,
        })
    }
}

fn used(before: &[Cpu], cpu: &Cpu) -> Option<Used> {
    let earlier = before.iter().find(|earlier| earlier.number == cpu.number)?;
    // Counters of idle time have been seen to go back by a tick.
    let ticks = |part: fn(&Cpu) -> u64| part(cpu).saturating_sub(part(earlier)) as f64;
    let [idle, taken, user, system] =
        [ticks(|cpu| cpu.idle), ticks(|cpu| cpu.taken), ticks(|cpu| cpu.user), ticks(|cpu| cpu.system)];
    let all = idle + taken + user + system;
    let part = |ticks: f64| ticks / all;
    (all > 0.0).then(|| Used {
        number: cpu.number,
        idle: part(idle),
        taken: part(taken),
        user: part(user),
        system: part(system),
    })
}

fn demand(before: &Reading, thread: &Thread, ns: f64) -> Option<Demand> {
    let earlier = before
        .threads
        .iter()
        .find(|earlier| earlier.id == thread.id && earlier.process.started == thread.process.started);
    // One that is new has all its time in between; one that was not looked at before tells nothing yet.
    let is_new = thread.process.started as f64 / TICKS >= before.at_ns as f64 / 1e9 - 1.0 / TICKS;
    let earlier = match earlier {
        Some(earlier) => earlier.ran,
        None if is_new => Ran::default(),
        None => return None,
    };
    let run = thread.ran.run_ns.saturating_sub(earlier.run_ns) as f64;
    let waited = thread.ran.waited_ns.saturating_sub(earlier.waited_ns) as f64;
    let turns = thread.ran.turns.saturating_sub(earlier.turns).max(1) as f64;
    let is_idle = thread.process.policy == POLICY_IDLE;
    Some(Demand {
        run: (run / ns).min(1.0),
        wanted: ((run + waited) / ns).min(1.0),
        burst_ns: (run + waited) / turns,
        weight: if is_idle { WEIGHT_IDLE } else { weight_of_nice(thread.process.nice) },
        is_first: POLICIES_FIRST.contains(&thread.process.policy),
        is_idle,
        is_guest: thread.is_guest,
        path: thread.path.clone(),
        cpu: thread.pinned.unwrap_or(thread.process.cpu),
        is_pinned: thread.pinned.is_some(),
    })
}

/// What a nice value counts: each is worth a fourth more than the next (the kernel's `sched_prio_to_weight`).
pub fn weight_of_nice(nice: i8) -> f64 {
    WEIGHT / 1.25f64.powi(nice.into())
}

/// What a cgroup counts: by `cpu.idle`, and `cpu.shares` of version 1 or `cpu.weight` of version 2, as far as they are known.
pub fn weight_of_group(idle: Option<u64>, shares: Option<u64>, weight: Option<u64>) -> f64 {
    match (idle, shares, weight) {
        (Some(1..), _, _) => WEIGHT_IDLE,
        (_, Some(shares), _) => shares.max(2) as f64,
        (_, None, Some(weight)) => weight.max(1) as f64 / 100.0 * WEIGHT,
        _ => WEIGHT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(number: u32, user: u64, idle: u64) -> Cpu {
        Cpu { number, user, idle, ..Cpu::default() }
    }

    fn thread(id: u32, started: u64, run_ns: u64, waited_ns: u64) -> Thread {
        let process = Process { ticks: 0, threads: 1, nice: 0, started, cpu: 0, policy: 0 };
        let ran = Ran { run_ns, waited_ns, turns: 10 };
        Thread { id, process, ran, path: Vec::new(), pinned: None, is_guest: false }
    }

    #[test]
    fn threads_are_known_by_what_changed() {
        let second = 1_000_000_000;
        let before = Reading {
            at_ns: 50 * second,
            cpus: vec![cpu(0, 100, 100), cpu(1, 0, 0)],
            threads: vec![thread(1, 0, second, 0), thread(2, 0, 0, 0)],
            ..Reading::default()
        };
        let threads =
            vec![thread(1, 0, 6 * second, 2 * second), thread(2, 5_100, second, 0), thread(3, 17, 99 * second, 0)];
        let after = Reading {
            at_ns: 60 * second,
            cpus: vec![cpu(0, 900, 300), cpu(1, 0, 1_000), cpu(2, 7, 7)],
            threads,
            running: 3,
            ..Reading::default()
        };
        let load = Load::between(&before, &after).expect("ten seconds");
        let parts: Vec<(f64, f64)> = load.demands.iter().map(|demand| (demand.run, demand.wanted)).collect();
        assert_eq!(parts, [(0.5, 0.7), (0.1, 0.1)], "the number 2 is another one now; 3 was not looked at");
        assert_eq!((load.cpus.len(), load.cpus[0].idle, load.running), (2, 0.2, 2.0));
        assert!((load.unknown - 0.2).abs() < 1e-9, "{}", load.unknown);
        assert!(Load::between(&after, &before).is_none());
    }

    #[test]
    fn weights_are_those_of_the_kernel() {
        assert_eq!(weight_of_nice(0), 1024.0);
        assert!((weight_of_nice(19) - 15.0).abs() < 1.0 && (weight_of_nice(-20) - 88_761.0).abs() < 100.0);
        assert_eq!(weight_of_group(Some(1), Some(1024), None), 3.0);
        assert_eq!(weight_of_group(Some(0), Some(512), None), 512.0);
        assert_eq!(weight_of_group(None, None, Some(100)), 1024.0);
        assert_eq!(weight_of_group(None, None, None), 1024.0);
    }
}
