//! A cluster of owners' machines, and sequential jobs that run on them as guests, by a policy.
//!
//! Time goes by samples of two seconds; within one a machine's use is even, and a job that ends does so to the moment. A machine has one
//! guest at a time, or is kept for one that is on its way to it.

use crate::dice::Dice;
use crate::owners::{Owner, Owners, STEP_S, Sample};
use sched::linger::{Action, Here, Policy, decide};
use std::collections::VecDeque;

/// A cluster, and what runs there.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Machines.
    pub machines: usize,
    /// What their owners are like.
    pub owners: Owners,
    /// What is done with guests.
    pub policy: Policy,
    /// Jobs.
    pub jobs: usize,
    /// Processor time of each, in seconds.
    pub job_s: f64,
    /// How long a job is on its way from one machine to another, in seconds.
    pub move_s: f64,
    /// What policies take an idle machine to use.
    pub idle_use: f64,
    /// Work goes on for so long, in seconds, with as many jobs always: one that ends is followed by another. `None`: until all have ended.
    pub steady_s: Option<f64>,
}

/// Longest world, in seconds: a job that never gets on is given up.
const WORLD_S_MAX: f64 = 30.0 * 86_400.0;

/// What came of one job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ended {
    /// When it was first given a machine, in seconds from the submission of all.
    pub begun_s: f64,
    /// When it had ended.
    pub ended_s: f64,
}

/// What came of a world.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The jobs that ended, in that order.
    pub ended: Vec<Ended>,
    /// Processor time that guests got, in seconds.
    pub given_s: f64,
    /// How long the world lasted, in seconds.
    pub lasted_s: f64,
    /// Guests moved so often.
    pub moves: u64,
    /// Time of owners who worked with a guest on their machine, in seconds of processor time.
    pub shared_s: f64,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    left_s: f64,
    begun_s: f64,
}

#[derive(Clone, Copy, Debug)]
enum Guest {
    /// It is here, since when its owner and it are here together.
    Here { job: Job, together_s: Option<f64> },
    /// It is on its way, until then.
    Coming { job: Job, at_s: f64 },
}

struct Machine {
    owner: Owner,
    now: Sample,
    guest: Option<Guest>,
}

impl Machine {
    fn is_idle(&self) -> bool {
        self.now.owner_s.is_none()
    }

    fn is_free(&self) -> bool {
        self.guest.is_none()
    }
}

/// Runs a world to its end.
pub fn run(setting: &Setting, seed: u64) -> Outcome {
    let machine = |number: usize| {
        let owner = Owner::new(setting.owners, Dice::new(seed, number as u64));
        Machine { owner, now: Sample { owner_s: None, used: 0.0 }, guest: None }
    };
    let job = Job { left_s: setting.job_s, begun_s: f64::NAN };
    let mut world = World {
        setting,
        machines: (0..setting.machines).map(machine).collect(),
        queue: std::iter::repeat_n(job, setting.jobs).collect(),
        now_s: 0.0,
        outcome: Outcome::default(),
    };
    while world.goes_on() {
        world.step();
    }
    world.outcome.lasted_s = match setting.steady_s {
        Some(steady_s) => steady_s,
        None => world.outcome.ended.last().map_or(0.0, |last| last.ended_s),
    };
    world.outcome
}

struct World<'a> {
    setting: &'a Setting,
    machines: Vec<Machine>,
    queue: VecDeque<Job>,
    now_s: f64,
    outcome: Outcome,
}

impl World<'_> {
    fn goes_on(&self) -> bool {
        match self.setting.steady_s {
            Some(steady_s) => self.now_s < steady_s,
            None => self.outcome.ended.len() < self.setting.jobs && self.now_s < WORLD_S_MAX,
        }
    }

    fn step(&mut self) {
        for machine in &mut self.machines {
            machine.now = machine.owner.step();
            match machine.guest {
                Some(Guest::Coming { job, at_s }) if at_s <= self.now_s => {
                    machine.guest = Some(Guest::Here { job, together_s: None });
                }
                _ => {}
            }
            if let Some(Guest::Here { together_s, .. }) = &mut machine.guest {
                *together_s = machine.now.owner_s.map(|_| together_s.map_or(0.0, |since_s| since_s + STEP_S));
            }
        }
        // Who lingers goes before who waits in the queue; who was evicted after.
        if self.setting.policy.lingers() {
            self.move_guests();
            self.begin_queued();
        } else {
            self.begin_queued();
            self.move_guests();
        }
        self.work();
        self.now_s += STEP_S;
    }

    fn begin_queued(&mut self) {
        for idle in [true, false] {
            if !idle && !self.setting.policy.lingers() {
                return;
            }
            for machine in &mut self.machines {
                if !machine.is_free() || machine.is_idle() != idle {
                    continue;
                }
                let Some(job) = self.queue.pop_front() else { return };
                let together_s = machine.now.owner_s.map(|_| 0.0);
                machine.guest = Some(Guest::Here { job: Job { begun_s: self.now_s, ..job }, together_s });
            }
        }
    }

    fn move_guests(&mut self) {
        let mut targets: Vec<usize> = (0..self.machines.len())
            .filter(|at| self.machines[*at].is_free() && self.machines[*at].is_idle())
            .collect();
        for at in 0..self.machines.len() {
            if targets.is_empty() {
                return;
            }
            let Some(Guest::Here { job, together_s }) = self.machines[at].guest else { continue };
            let here = Here { owner_s: together_s, used: self.machines[at].now.used };
            let action = decide(self.setting.policy, here, Some(self.setting.idle_use), self.setting.move_s);
            if action == Action::Move
                && let Some(target) = targets.pop()
            {
                self.machines[at].guest = None;
                let at_s = self.now_s + self.setting.move_s;
                self.machines[target].guest = Some(Guest::Coming { job, at_s });
                self.outcome.moves += 1;
            }
        }
    }

    fn work(&mut self) {
        let setting = self.setting;
        for machine in &mut self.machines {
            let Some(Guest::Here { job, together_s }) = &mut machine.guest else { continue };
            if together_s.is_some() && !setting.policy.lingers() {
                continue;
            }
            if together_s.is_some() {
                self.outcome.shared_s += machine.now.used * STEP_S;
            }
            let rate = 1.0 - machine.now.used;
            let needs_s = if rate > 0.0 { job.left_s / rate } else { f64::INFINITY };
            if needs_s > STEP_S {
                job.left_s -= rate * STEP_S;
                self.outcome.given_s += rate * STEP_S;
                continue;
            }
            self.outcome.given_s += job.left_s;
            let ended = Ended { begun_s: job.begun_s, ended_s: self.now_s + needs_s };
            self.outcome.ended.push(ended);
            machine.guest = None;
            if setting.steady_s.is_some() {
                self.queue.push_back(Job { left_s: setting.job_s, begun_s: f64::NAN });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(policy: Policy) -> Setting {
        Setting {
            machines: 64,
            owners: Owners::default(),
            policy,
            jobs: 128,
            job_s: 600.0,
            move_s: 22.4,
            idle_use: 0.036,
            steady_s: None,
        }
    }

    #[test]
    fn without_owners_jobs_take_what_they_take() {
        let owners = Owners { away: (1e9, 0.01), episode_s_max: 1e9, away_use: 0.0, ..Owners::default() };
        let never = Owners { present: (1e-9, 0.01), ..owners };
        let outcome = run(&Setting { owners: never, jobs: 3, machines: 2, ..setting(Policy::LingerForever) }, 1);
        let ends: Vec<f64> = outcome.ended.iter().map(|ended| ended.ended_s).collect();
        assert_eq!(ends, [600.0, 600.0, 1_200.0]);
        assert_eq!((outcome.given_s, outcome.moves, outcome.shared_s), (1_800.0, 0, 0.0));
    }

    #[test]
    fn every_job_ends_with_all_that_it_needs() {
        for policy in
            [Policy::LingerLonger, Policy::LingerForever, Policy::ImmediateEviction, Policy::PauseAndMigrate(60.0)]
        {
            let outcome = run(&setting(policy), 5);
            assert_eq!(outcome.ended.len(), 128);
            assert!((outcome.given_s - 76_800.0).abs() < 1e-6, "{policy:?}: {}", outcome.given_s);
            assert_eq!(run(&setting(policy), 5), outcome, "the same seed, the same world");
            let is_sound = |ended: &Ended| ended.ended_s - ended.begun_s >= 600.0;
            assert!(outcome.ended.iter().all(is_sound));
        }
    }

    #[test]
    fn the_number_of_jobs_stays_where_work_is_steady() {
        let steady = Setting { steady_s: Some(7_200.0), ..setting(Policy::LingerForever) };
        let outcome = run(&steady, 2);
        assert!((45.0..64.0).contains(&(outcome.given_s / outcome.lasted_s)), "{}", outcome.given_s / outcome.lasted_s);
    }
}
