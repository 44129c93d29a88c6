//! What part of the processors its owner's own tasks get.
//!
//! As processes of the owner's, in one session, they would all run at once, each with its part. As tasks they take turns at the places that
//! the machine lends, and the kernel shares processors by session, of which each task is one. So those that run stand for those that
//! wait and for those that have ended earlier than they would have with all at once, and a task for its processes: it gets as much as that
//! many processes would get beside what else is ready to run, and at least an ordinary session's part.

use crate::sandbox::wants_processor;
use rustix::process::Pid;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wire::lock;

/// When a task that has begun is looked at, and from then on each time after as long.
const FIRST_LOOK: Duration = Duration::from_millis(25);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A task stands for so many at most.
const STANDS_FOR_MAX: f64 = 8.0;
/// Each step of a nice value changes the part of the processors by this (`sched_prio_to_weight` in the kernel).
const PART_OF_STEP: f64 = 1.25;

/// Of so many tasks that wait, and that have ended, it is known: with more, those that run stand for no more.
const KNOWN_MAX: usize = 64;
/// When none has run for so long, those that waited went elsewhere.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The owner's own tasks that run now.
#[derive(Clone, Debug, Default)]
pub struct Running(Arc<Mutex<Together>>);

/// What all of them know, and what would be if all that were asked for had begun at once and shared what these have had.
#[derive(Debug, Default)]
struct Together {
    running: usize,
    /// Threads of theirs that were ready to run when they were last looked at.
    ready: usize,
    /// The processor time that each would have had since the first of them was asked for.
    each_had: Duration,
    /// What that was when each of those was asked for that wait; the longest waits first.
    waiting: VecDeque<Duration>,
    /// What that will be when each of those would end that have ended.
    ended: Vec<Duration>,
    /// When the last of them ended, while none runs.
    idle_since: Option<Instant>,
}

/// The part of one of these.
#[derive(Debug)]
pub struct Share {
    together: Running,
    /// What each had had when this was asked for.
    asked: Duration,
    /// What the nice value of its session among the machine's sessions is.
    nice: i8,
    /// Its own threads that were ready, and the processor time that it had had, when it was last looked at.
    ready: usize,
    had: Duration,
    next: Instant,
}

impl Running {
    /// One more runs, until its share is dropped, where `waiting` others wait for a place.
    pub fn begin(&self, waiting: u32) -> Share {
        let mut together = lock(&self.0);
        let asked = together.begin(waiting as usize);
        let nice = nice(together.stands_for());
        drop(together);
        let next = Instant::now() + FIRST_LOOK;
        Share { together: self.clone(), asked, nice, ready: 0, had: Duration::ZERO, next }
    }
}

impl Together {
    /// One more runs. Returns what each had had when it was asked for.
    fn begin(&mut self, waiting: usize) -> Duration {
        if self.idle_since.take().is_some_and(|since| since.elapsed() > PAUSE_MAX) {
            self.waiting.clear();
            self.ended.clear();
        }
        self.running += 1;
        let asked = self.waiting.pop_front().unwrap_or(self.each_had);
        let each_had = self.each_had;
        self.waiting.resize(waiting.min(KNOWN_MAX), each_had);
        asked
    }

    /// How many processes each of those that run stands for.
    fn stands_for(&self) -> f64 {
        self.all() as f64 / self.running.max(1) as f64
    }

    fn all(&self) -> usize {
        self.running + self.waiting.len() + self.ended.len()
    }

    /// One of them has had more processor time.
    fn had(&mut self, more: Duration) {
        self.each_had += more / self.all().max(1) as u32;
        self.ended.retain(|end| *end > self.each_had);
    }

    /// One has ended that had had so much, and was asked for then.
    fn end(&mut self, had: Duration, asked: Duration) {
        self.running = self.running.saturating_sub(1);
        let end = asked + had;
        if end > self.each_had && self.ended.len() < KNOWN_MAX {
            self.ended.push(end);
        }
        if self.running > 0 {
            return;
        }
        self.idle_since = Some(Instant::now());
        if self.waiting.is_empty() {
            // As much was done by then as if all had run at once.
            self.ended.clear();
        }
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

    /// Gives it the part that it should have by these threads of it, which are ready to run, the processor time that it has had, where
    /// that is known, and the machine's load.
    pub fn follow(&mut self, ready: &[Pid], had: Option<Duration>) {
        self.next = Instant::now() + LOOK_EVERY;
        let before = self.nice;
        self.weigh(ready.len(), had, ready_here().saturating_sub(ready_of_worker()));
        if self.nice != before {
            // Without rights over it, or without autogroups, its session counts as any. What has made one of its own has a part of its own.
            for thread in ready {
                let _ = std::fs::write(format!("/proc/{}/autogroup", thread.as_raw_nonzero()), self.nice.to_string());
            }
        }
    }

    /// `ready_here`: without the worker, which does this for the task.
    fn weigh(&mut self, ready: usize, had: Option<Duration>, ready_here: usize) {
        let mut together = lock(&self.together.0);
        if let Some(more) = had.and_then(|had| had.checked_sub(self.had)) {
            self.had += more;
            together.had(more);
        }
        let own_before = std::mem::replace(&mut self.ready, ready);
        together.ready = (together.ready + ready).saturating_sub(own_before);
        let others = ready_here.saturating_sub(together.ready);
        self.nice = nice(together.stands_for() * ready as f64 / others.max(1) as f64);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut together = lock(&self.together.0);
        together.ready = together.ready.saturating_sub(self.ready);
        together.end(self.had, self.asked);
    }
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
        let nice = |running, waiting| {
            let together = Running::default();
            let shares: Vec<Share> = (0..running).map(|_| together.begin(waiting)).collect();
            shares.last().expect("one runs").nice()
        };
        assert_eq!([nice(1, 0), nice(2, 0), nice(2, 2), nice(2, 14), nice(1, 5000)], [0, 0, -3, -9, -9]);
        let running = Running::default();
        let first = running.begin(0);
        let second = running.begin(2);
        assert_eq!((first.nice(), second.nice()), (0, -3));
        drop(first);
        assert_eq!(running.begin(2).nice(), -3);
    }

    #[test]
    fn who_runs_stands_for_who_has_ended_early() {
        // Eight equal tasks, two at a time, beside two others' threads: with all at once, each of them had a quarter by the middle.
        let running = Running::default();
        let task = Duration::from_secs(2);
        let mut waiting = 8;
        let mut niceness = Vec::new();
        while waiting > 0 {
            let mut pair = [0, 0].map(|_| {
                waiting -= 1;
                running.begin(waiting)
            });
            pair.iter_mut().for_each(|share| share.weigh(1, None, 2 + 2));
            for share in &mut pair {
                share.weigh(1, Some(task / 2), 2 + 2);
                niceness.push(share.nice());
                share.weigh(1, Some(task), 2 + 2);
            }
        }
        assert_eq!(niceness, [-3, -3, -3, -3, -3, -3, -3, -3], "always four processes for two");
        assert_eq!(lock(&running.0).all(), 0);
        // One that has had little does not count for long.
        let (mut long, mut short) = (running.begin(0), running.begin(0));
        short.weigh(1, Some(Duration::from_secs(1)), 2);
        drop(short);
        assert_eq!(lock(&running.0).all(), 2, "with both at once it had half of that by now");
        long.weigh(1, Some(Duration::from_millis(1100)), 1);
        assert_eq!(lock(&running.0).all(), 1);
    }

    #[test]
    fn a_task_stands_for_its_processes_while_they_are_ready() {
        let running = Running::default();
        let (mut one, mut other) = (running.begin(0), running.begin(0));
        let ready = || lock(&running.0).ready;
        // Both tasks' threads, and two others.
        one.weigh(8, None, 8 + 2);
        assert_eq!(one.nice(), -6, "four parts for one");
        other.weigh(2, None, 8 + 2 + 2);
        assert_eq!((other.nice(), ready()), (0, 10), "as many as the others");
        one.weigh(0, None, 2 + 2);
        assert_eq!((one.nice(), ready()), (0, 2), "nothing of it is ready");
        drop((one, other));
        assert_eq!(ready(), 0);
        let mut waited_for = running.begin(14);
        waited_for.weigh(1, None, 1 + 4);
        assert_eq!(waited_for.nice(), -6, "fifteen beside four");
        assert!(ready_here() >= 1 && ready_of_worker() >= 1);
    }
}
