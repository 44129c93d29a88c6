//! What part of the processors its owner's own tasks get.
//!
//! As processes of the owner's, in one session, they would all run at once, each with its part. As tasks they take turns at the places that
//! the machine lends, and the kernel shares processors by session, of which each task is one. So those that run stand for those that
//! wait, and a task for its processes: it gets as much as that many processes would get beside what else is ready to run, and at
//! least an ordinary session's part.

use crate::sandbox::wants_processor;
use rustix::process::Pid;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use wire::{Count, Counted};

/// When a task that has begun is looked at, and from then on each time after as long.
const FIRST_LOOK: Duration = Duration::from_millis(25);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A task stands for so many at most.
const STANDS_FOR_MAX: f64 = 8.0;
/// Each step of a nice value changes the part of the processors by this (`sched_prio_to_weight` in the kernel).
const PART_OF_STEP: f64 = 1.25;

/// The owner's own tasks that run now.
#[derive(Clone, Debug, Default)]
pub struct Running {
    tasks: Count,
    /// Threads of theirs that were ready to run when they were last looked at.
    ready: Arc<AtomicUsize>,
}

/// The part of one of these.
#[derive(Debug)]
pub struct Share {
    _task: Counted,
    stands_for: f64,
    /// What the nice value of its session among the machine's sessions is.
    nice: i8,
    ready: usize,
    all_ready: Arc<AtomicUsize>,
    next: Instant,
}

impl Running {
    /// One more runs, until its share is dropped, where `waiting` others wait for a place.
    pub fn begin(&self, waiting: u32) -> Share {
        let task = self.tasks.one();
        let stands_for = stands_for(self.tasks.now() as u32, waiting);
        let (all_ready, next) = (self.ready.clone(), Instant::now() + FIRST_LOOK);
        Share { _task: task, stands_for, nice: nice(stands_for), ready: 0, all_ready, next }
    }
}

impl Share {
    /// The nice value of its session to begin with.
    pub fn nice(&self) -> i8 {
        self.nice
    }

    /// Waits until its threads should be looked at.
    pub async fn due(&self) {
        tokio::time::sleep_until(self.next.into()).await;
    }

    /// Gives it the part that it should have by these threads of it, which are ready to run, and the machine's load.
    pub fn follow(&mut self, ready: &[Pid]) {
        self.next = Instant::now() + LOOK_EVERY;
        let before = self.nice;
        self.weigh(ready.len(), ready_here().saturating_sub(ready_of_worker()));
        if self.nice != before {
            // Without rights over it, or without autogroups, its session counts as any. What has made one of its own has a part of its own.
            for thread in ready {
                let _ = std::fs::write(format!("/proc/{}/autogroup", thread.as_raw_nonzero()), self.nice.to_string());
            }
        }
    }

    /// `ready_here`: without the worker, which does this for the task.
    fn weigh(&mut self, ready: usize, ready_here: usize) {
        let own_before = std::mem::replace(&mut self.ready, ready);
        self.all_ready.fetch_add(ready, Ordering::Relaxed);
        let all_own = self.all_ready.fetch_sub(own_before, Ordering::Relaxed).saturating_sub(own_before);
        let others = ready_here.saturating_sub(all_own);
        self.nice = nice(self.stands_for * ready as f64 / others.max(1) as f64);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.all_ready.fetch_sub(self.ready, Ordering::Relaxed);
    }
}

fn stands_for(running: u32, waiting: u32) -> f64 {
    (f64::from(running) + f64::from(waiting)) / f64::from(running.max(1))
}

fn nice(part: f64) -> i8 {
    -(part.clamp(1.0, STANDS_FOR_MAX).log(PART_OF_STEP).round() as i8)
}

/// Threads of this process that are ready to run, with the one that asks.
fn ready_of_worker() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let numbers = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
    numbers.filter(|number| wants_processor(*number)).count()
}

/// Threads of this machine that are ready to run, with the one that asks.
fn ready_here() -> usize {
    // Three averages, then those that are ready and all there are.
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let counts = load.split_whitespace().nth(3).and_then(|counts| counts.split('/').next());
    counts.and_then(|ready| ready.parse().ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_stands_for_who_waits() {
        let nice = |running, waiting| nice(stands_for(running, waiting));
        assert_eq!([nice(1, 0), nice(2, 0), nice(2, 2), nice(2, 14), nice(1, 5000)], [0, 0, -3, -9, -9]);
        let running = Running::default();
        let first = running.begin(0);
        let second = running.begin(2);
        assert_eq!((first.nice(), second.nice()), (0, -3));
        drop(first);
        assert_eq!(running.begin(2).nice(), -3);
    }

    #[test]
    fn a_task_stands_for_its_processes_while_they_are_ready() {
        let running = Running::default();
        let (mut one, mut other) = (running.begin(0), running.begin(0));
        // Both tasks' threads, and two others.
        one.weigh(8, 8 + 2);
        assert_eq!(one.nice(), -6, "four parts for one");
        other.weigh(2, 8 + 2 + 2);
        assert_eq!((other.nice(), running.ready.load(Ordering::Relaxed)), (0, 10), "as many as the others");
        one.weigh(0, 2 + 2);
        assert_eq!((one.nice(), running.ready.load(Ordering::Relaxed)), (0, 2), "nothing of it is ready");
        drop((one, other));
        assert_eq!(running.ready.load(Ordering::Relaxed), 0);
        let mut waited_for = running.begin(14);
        waited_for.weigh(1, 1 + 4);
        assert_eq!(waited_for.nice(), -6, "fifteen beside four");
        assert!(ready_here() >= 1 && ready_of_worker() >= 1);
    }
}
