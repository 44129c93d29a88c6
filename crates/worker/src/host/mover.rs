//! Moves guests that wait for their processor to one that is idle ([`sched::places`]).

use super::Shared;
use super::guests::Known;
use crate::sandbox::{Levers, wants_processor};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use sched::places::{Guest, moves};
use sched::sense::parse;
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

/// From look to look.
const PERIOD: Duration = Duration::from_secs(1);
/// A guest that might move waits for a processor if one of its threads wants one at each of so many moments …
const MOMENTS: u32 = 4;
/// … so far from one another.
const MOMENT: Duration = Duration::from_millis(3);
/// Threads of a guest that are looked at, and moved.
const THREADS_LOOKED_MAX: usize = 16;
const THREADS_MAX: usize = 4096;

/// What it has seen last.
#[derive(Debug, Default)]
pub struct Mover {
    last: Option<Seen>,
}

#[derive(Debug)]
struct Seen {
    at: Instant,
    /// Of each processor: idle time and all, in ticks.
    cpus: BTreeMap<u32, (u64, u64)>,
    /// Processor time of each guest.
    had: BTreeMap<u64, Duration>,
}

impl Mover {
    /// Moves those that are better off elsewhere, if it is time to look.
    pub fn look(&mut self, shared: &Shared, guests: &[Known]) {
        let at = Instant::now();
        if self.last.as_ref().is_some_and(|last| at - last.at < PERIOD) {
            return;
        }
        let Ok(stat) = fs::read_to_string("/proc/stat") else { return };
        let had = guests.iter().map(|guest| (guest.number, shared.spent(guest))).collect();
        let now = Seen { at, cpus: processors(&stat), had };
        let Some(last) = self.last.replace(now) else { return };
        let Some(now) = &self.last else { return };
        // Who stood aside meanwhile has had nothing, and is not there for it.
        if at - last.at > PERIOD * 2 {
            return;
        }
        let idle = now.idle_since(&last, shared.cpus.numbers());
        let waiting = guests.iter().enumerate().filter_map(|(at, known)| {
            let guest = Guest { cpus: known.cpus.numbers(), used: now.used_since(&last, known.number)? };
            let waits = !known.is_leaving && guest.might_move(&idle) && waits(&shared.levers, &known.group);
            waits.then_some((at, guest))
        });
        let waiting: Vec<(usize, Guest)> = waiting.collect();
        for to in moves(idle, &waiting) {
            let known = &guests[to.guest];
            let before = known.cpus.numbers();
            if known.cpus.swap(to.from, to.to) {
                let count = place(&shared.levers, &known.group, &before, &known.cpus.numbers());
                tracing::debug!(task = %known.task, from = to.from, to = to.to, threads = count, "a guest moves");
            }
        }
    }
}

impl Seen {
    /// The part of each lent processor that nobody has used.
    fn idle_since(&self, last: &Self, lent: impl IntoIterator<Item = u32>) -> BTreeMap<u32, f64> {
        let part = |cpu: u32| {
            let ((idle, all), (idle_before, all_before)) = (self.cpus.get(&cpu)?, last.cpus.get(&cpu)?);
            let all = all.checked_sub(*all_before).filter(|all| *all > 0)?;
            Some((cpu, idle.saturating_sub(*idle_before) as f64 / all as f64))
        };
        lent.into_iter().filter_map(part).collect()
    }

    /// The processors that a guest has used; nothing of one that has just come.
    fn used_since(&self, last: &Self, guest: u64) -> Option<f64> {
        let used = self.had.get(&guest)?.saturating_sub(*last.had.get(&guest)?);
        Some(used.as_secs_f64() / (self.at - last.at).as_secs_f64())
    }
}

/// Of each processor in `/proc/stat`, how long it was idle, and all of its time; in ticks.
fn processors(stat: &str) -> BTreeMap<u32, (u64, u64)> {
    let (cpus, _) = parse::stat(stat).unwrap_or_default();
    cpus.iter().map(|cpu| (cpu.number, (cpu.idle, cpu.user + cpu.system + cpu.idle + cpu.taken))).collect()
}

/// Whether a thread of the task wants a processor, at each of some moments.
fn waits(levers: &Levers, task: &str) -> bool {
    let wants = |thread: &Pid| wants_processor(thread.as_raw_nonzero().get().cast_unsigned());
    (0..MOMENTS).all(|moment| {
        if moment > 0 {
            super::wait(MOMENT);
        }
        levers.threads_of(task, THREADS_LOOKED_MAX).iter().any(wants)
    })
}

/// Has the task's threads use the processors `after` that had those `before`: not who has chosen others. Says how many there were.
fn place(levers: &Levers, task: &str, before: &[u32], after: &[u32]) -> usize {
    let (before, after) = (set(before), set(after));
    let mut count = 0;
    // The second time those that others have begun meanwhile.
    for _ in 0..2 {
        for thread in levers.threads_of(task, THREADS_MAX) {
            let was = sched_getaffinity(Some(thread)).is_ok_and(|cpus| cpus == before);
            count += usize::from(was && sched_setaffinity(Some(thread), &after).is_ok());
        }
    }
    count
}

fn set(numbers: &[u32]) -> CpuSet {
    let mut set = CpuSet::new();
    numbers.iter().filter(|number| (**number as usize) < CpuSet::MAX_CPU).for_each(|number| set.set(*number as usize));
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_read() {
        let stat = "cpu  30 0 12 190 10 0 1 5 0 0\ncpu0 10 0 6 100 8 0 1 3 4 0\ncpu3 20 0 6 90 2 0 0 2 0 0\nintr 5\nprocs_running 2\n";
        assert_eq!(processors(stat), [(0, (108, 128)), (3, (92, 120))].into());
        assert_eq!(processors(""), BTreeMap::new());
    }

    #[test]
    fn what_was_idle_and_used_meanwhile() {
        let at = Instant::now();
        let seen = |after_s: u64, idle: u64, all: u64, had_s: u64| Seen {
            at: at + Duration::from_secs(after_s),
            cpus: [(1, (idle, all))].into(),
            had: [(9, Duration::from_secs(had_s))].into(),
        };
        let (last, now) = (seen(0, 100, 1000, 5), seen(4, 150, 1200, 6));
        assert_eq!(now.idle_since(&last, [1, 2]), [(1, 0.25)].into());
        assert_eq!((now.used_since(&last, 9), now.used_since(&last, 8)), (Some(0.25), None));
    }
}
