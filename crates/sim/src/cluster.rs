//! A cluster of owners' machines, and sequential jobs that run on them as guests, by a policy.
//!
//! Time goes by samples of two seconds; within one a machine's use is even (what bursts come to is told by [`crate::bursts`]), and a job
//! that ends does so to the moment. A machine has one guest at a time, or is kept for one that is on its way to it.

use crate::bursts::Bursts;
use crate::dice::Dice;
use crate::owners::{Owner, Owners, STEP_S, Sample};
use crate::traces::{Played, Trace};
use sched::linger::foresight::{self, Prices, Waiting, Way};
use sched::linger::needs::Needs;
use sched::linger::outlook::Outlook;
use sched::linger::{Action, Here, Policy, decide};
use std::collections::VecDeque;
use std::sync::Arc;

/// How it is decided what guests do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Manner {
    /// By a published rule, for each guest alone.
    Rule(Policy),
    /// By foresight: [`sched::linger::foresight`].
    Foresight,
}

impl Manner {
    /// Whether guests may be on hosts whose owners are there.
    pub fn lingers(self) -> bool {
        match self {
            Self::Rule(policy) => policy.lingers(),
            Self::Foresight => true,
        }
    }
}

/// Who owns the machines.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// Owners who are drawn.
    Drawn(Owners),
    /// Machines that were measured: each goes through one of these, in turn, from a place of its own.
    Measured(Vec<Arc<Trace>>),
}

/// A cluster, and what runs there.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Machines.
    pub machines: usize,
    /// Who owns them.
    pub source: Source,
    /// How owners' processes run.
    pub bursts: Bursts,
    /// What is done with guests.
    pub manner: Manner,
    /// Jobs.
    pub jobs: usize,
    /// Processor time of each, in seconds: the mean.
    pub job_s: f64,
    /// Deviation of its logarithm; 0: all are the same.
    pub job_sigma: f64,
    /// What it takes a job to go from one machine to another.
    pub prices: Prices,
    /// What the published rules take an idle machine to use.
    pub idle_use: f64,
    /// How long machines have been watched before jobs are submitted, in seconds.
    pub watched_s: f64,
    /// Whether it is known what a job needs. The published rules do not ask.
    pub is_need_known: bool,
    /// Work goes on for so long, in seconds, with as many jobs always: one that ends is followed by another. `None`: until all have ended.
    pub steady_s: Option<f64>,
    /// Jobs that have not ended by then are given up, in seconds.
    pub give_up_s: f64,
}

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
    /// Processor time that guests got and could use, in seconds.
    pub given_s: f64,
    /// And what was in vain, since they began again.
    pub lost_s: f64,
    /// How long the world lasted, in seconds.
    pub lasted_s: f64,
    /// Jobs that were given up.
    pub given_up: usize,
    /// Guests moved so often.
    pub moves: u64,
    /// Owners' processor time with a guest beside them, in seconds.
    pub shared_s: f64,
    /// What they waited for because of that, in seconds.
    pub delayed_s: f64,
    /// All processor time of owners while they were there, in seconds.
    pub owners_s: f64,
}

/// By foresight guests are weighed, and hosts measured, so often, in steps.
const WEIGHED_STEPS: u64 = 5;
/// Parts of a seed: machines have those below.
const PART_OF_JOBS: u64 = 1 << 40;

#[derive(Clone, Copy, Debug)]
struct Job {
    needs_s: f64,
    left_s: f64,
    begun_s: f64,
    /// When it was last given a machine.
    since_s: f64,
    moves: u32,
}

#[derive(Clone, Copy, Debug)]
enum Guest {
    /// It is here, since when its owner and it are here together.
    Here { job: Job, together_s: Option<f64> },
    /// It is on its way, until then.
    Coming { job: Job, at_s: f64 },
}

/// The owner of one machine.
pub(crate) enum Who {
    /// Who is drawn.
    Drawn(Owner),
    /// Who was measured.
    Measured(Played),
}

impl Who {
    /// That of the machine with this number.
    pub(crate) fn new(source: &Source, seed: u64, number: usize) -> Self {
        let dice = Dice::new(seed, number as u64);
        match source {
            Source::Drawn(owners) => Self::Drawn(Owner::new(*owners, dice)),
            Source::Measured(traces) => Self::Measured(Played::new(&traces[number % traces.len()], dice)),
        }
    }

    /// The next two seconds.
    pub(crate) fn step(&mut self) -> Sample {
        match self {
            Self::Drawn(owner) => owner.step(),
            Self::Measured(played) => played.step(),
        }
    }
}

struct Machine {
    owner: Who,
    now: Sample,
    guest: Option<Guest>,
    /// What was used since it was last told to the outlook, in processor seconds.
    untold_s: f64,
}

impl Machine {
    fn new(setting: &Setting, seed: u64, number: usize) -> Self {
        let owner = Who::new(&setting.source, seed, number);
        Self { owner, now: Sample { owner_s: None, used: 0.0 }, guest: None, untold_s: 0.0 }
    }

    fn step(&mut self) {
        self.now = self.owner.step();
    }

    fn is_idle(&self) -> bool {
        self.now.owner_s.is_none()
    }

    fn is_free(&self) -> bool {
        self.guest.is_none()
    }
}

/// Runs a world to its end.
pub fn run(setting: &Setting, seed: u64) -> Outcome {
    let mut world = World::new(setting, seed);
    while world.goes_on() {
        world.step();
    }
    world.outcome.lasted_s = match setting.steady_s {
        Some(steady_s) => steady_s,
        None => world.outcome.ended.iter().map(|ended| ended.ended_s).fold(0.0, f64::max),
    };
    world.outcome.given_up = setting.jobs.saturating_sub(world.outcome.ended.len());
    world.outcome
}

struct World<'a> {
    setting: &'a Setting,
    machines: Vec<Machine>,
    /// What is learnt of each machine, if that is asked for.
    outlooks: Vec<Outlook>,
    queue: VecDeque<Job>,
    needs: Dice,
    /// What jobs needed that have ended.
    known: Needs,
    steps: u64,
    now_s: f64,
    outcome: Outcome,
}

impl<'a> World<'a> {
    fn new(setting: &'a Setting, seed: u64) -> Self {
        let mut world = Self {
            setting,
            machines: (0..setting.machines).map(|number| Machine::new(setting, seed, number)).collect(),
            outlooks: Vec::new(),
            queue: VecDeque::new(),
            needs: Dice::new(seed, PART_OF_JOBS),
            known: Needs::default(),
            steps: 0,
            now_s: 0.0,
            outcome: Outcome::default(),
        };
        for _ in 0..setting.jobs {
            world.submit();
        }
        for _ in 0..(setting.watched_s / STEP_S) as u64 {
            world.watch();
        }
        world
    }

    fn submit(&mut self) {
        let (mean_s, sigma) = (self.setting.job_s, self.setting.job_sigma);
        let needs_s = match sigma > 0.0 {
            true => self.needs.lognormal(mean_s * (-sigma * sigma / 2.0).exp(), sigma),
            false => mean_s,
        };
        self.queue.push_back(Job { needs_s, left_s: needs_s, begun_s: f64::NAN, since_s: 0.0, moves: 0 });
    }

    fn goes_on(&self) -> bool {
        match self.setting.steady_s {
            Some(steady_s) => self.now_s < steady_s,
            None => self.outcome.ended.len() < self.setting.jobs && self.now_s < self.setting.give_up_s,
        }
    }

    /// Owners go on, and are looked at.
    fn watch(&mut self) {
        self.steps += 1;
        for machine in &mut self.machines {
            machine.step();
        }
        if self.setting.manner != Manner::Foresight {
            return;
        }
        if self.outlooks.is_empty() {
            let outlook = |machine: &Machine| {
                Outlook::new(machine.now.owner_s.is_some(), machine.now.owner_s.unwrap_or_default())
            };
            self.outlooks = self.machines.iter().map(outlook).collect();
        }
        let is_told = self.steps.is_multiple_of(WEIGHED_STEPS);
        for (machine, outlook) in self.machines.iter_mut().zip(&mut self.outlooks) {
            machine.untold_s += machine.now.used * STEP_S;
            if is_told {
                let lasted_s = WEIGHED_STEPS as f64 * STEP_S;
                outlook.observe(machine.now.owner_s.is_some(), machine.untold_s / lasted_s, lasted_s);
                machine.untold_s = 0.0;
            }
        }
    }

    fn step(&mut self) {
        self.watch();
        for machine in &mut self.machines {
            match machine.guest {
                Some(Guest::Coming { job, at_s }) if at_s <= self.now_s => {
                    machine.guest = Some(Guest::Here { job: Job { since_s: self.now_s, ..job }, together_s: None });
                }
                _ => {}
            }
            if let Some(Guest::Here { together_s, .. }) = &mut machine.guest {
                *together_s = machine.now.owner_s.map(|_| together_s.map_or(0.0, |since_s| since_s + STEP_S));
            }
        }
        match self.setting.manner {
            Manner::Foresight => {
                // A host that falls free goes to who saves most by it, and else to the queue.
                if !self.queue.is_empty() || self.steps.is_multiple_of(WEIGHED_STEPS) {
                    self.move_by_foresight();
                }
                self.begin_on_best();
            }
            // Who lingers goes before who waits in the queue; who was evicted after.
            Manner::Rule(policy) if policy.lingers() => {
                self.move_guests(policy);
                self.begin_queued();
            }
            Manner::Rule(policy) => {
                self.begin_queued();
                self.move_guests(policy);
            }
        }
        self.work();
        self.now_s += STEP_S;
    }

    /// The next of the queue begins on a machine; false: there is none.
    fn begin(&mut self, at: usize) -> bool {
        let Some(job) = self.queue.pop_front() else { return false };
        let begun_s = if job.begun_s.is_nan() { self.now_s } else { job.begun_s };
        let machine = &mut self.machines[at];
        let together_s = machine.now.owner_s.map(|_| 0.0);
        machine.guest = Some(Guest::Here { job: Job { begun_s, since_s: self.now_s, ..job }, together_s });
        true
    }

    fn begin_queued(&mut self) {
        for idle in [true, false] {
            if !idle && !self.setting.manner.lingers() {
                return;
            }
            for at in 0..self.machines.len() {
                let machine = &self.machines[at];
                if machine.is_free() && machine.is_idle() == idle && !self.begin(at) {
                    return;
                }
            }
        }
    }

    fn free(&self) -> Vec<usize> {
        (0..self.machines.len()).filter(|at| self.machines[*at].is_free()).collect()
    }

    /// What a job needs that has not begun, as far as that is known.
    fn next_needs_s(&self) -> f64 {
        if self.setting.is_need_known { self.setting.job_s } else { self.known.left_s(0.0) }
    }

    fn begin_on_best(&mut self) {
        if self.queue.is_empty() {
            return;
        }
        let free = self.free();
        let outlooks: Vec<&Outlook> = free.iter().map(|at| &self.outlooks[*at]).collect();
        for at in foresight::best_first(&outlooks, self.next_needs_s()) {
            if !self.begin(free[at]) {
                return;
            }
        }
    }

    fn move_by_foresight(&mut self) {
        let free = self.free();
        if free.is_empty() {
            return;
        }
        let mut places = Vec::new();
        let mut guests = Vec::new();
        for (at, machine) in self.machines.iter().enumerate() {
            let Some(Guest::Here { job, .. }) = &machine.guest else { continue };
            let spent_s = job.needs_s - job.left_s;
            places.push(at);
            guests.push(foresight::Guest {
                host: &self.outlooks[at],
                stayed_s: self.now_s - job.since_s,
                lived_s: self.now_s - job.begun_s,
                moves: job.moves,
                spent_s,
                left_s: if self.setting.is_need_known { job.left_s } else { self.known.left_s(spent_s) },
            });
        }
        let hosts: Vec<&Outlook> = free.iter().map(|at| &self.outlooks[*at]).collect();
        let waiting = Waiting { tasks: self.queue.len(), needs_s: self.next_needs_s() };
        for going in foresight::plan(&guests, &hosts, self.setting.prices, waiting) {
            self.go(places[going.guest], free[going.to], going.way);
        }
    }

    fn go(&mut self, from: usize, to: usize, way: Way) {
        let Some(Guest::Here { mut job, .. }) = self.machines[from].guest.take() else { return };
        job.moves += 1;
        self.outcome.moves += 1;
        let launch_s = self.setting.prices.launch_s;
        self.machines[to].guest = Some(match (way, self.setting.prices.move_s) {
            (Way::Move, Some(move_s)) => Guest::Coming { job, at_s: self.now_s + move_s },
            _ => {
                let in_vain_s = job.needs_s - job.left_s;
                self.outcome.lost_s += in_vain_s;
                self.outcome.given_s -= in_vain_s;
                let job = Job { left_s: job.needs_s, since_s: self.now_s, ..job };
                let together_s = self.machines[to].now.owner_s.map(|_| 0.0);
                match launch_s > 0.0 {
                    true => Guest::Coming { job, at_s: self.now_s + launch_s },
                    false => Guest::Here { job, together_s },
                }
            }
        });
    }

    fn move_guests(&mut self, policy: Policy) {
        let mut targets = self.free();
        targets.retain(|at| self.machines[*at].is_idle());
        for at in 0..self.machines.len() {
            if targets.is_empty() {
                return;
            }
            let Some(Guest::Here { job, together_s }) = self.machines[at].guest else { continue };
            let here = Here { owner_s: together_s, used: self.machines[at].now.used };
            let move_s = self.setting.prices.of(job.needs_s - job.left_s);
            let action = decide(policy, here, Some(self.setting.idle_use), move_s);
            if action == Action::Move
                && let Some(target) = targets.pop()
            {
                self.go(at, target, Way::Move);
            }
        }
    }

    fn work(&mut self) {
        let setting = self.setting;
        let mut again = 0;
        for machine in &mut self.machines {
            if machine.now.owner_s.is_some() {
                self.outcome.owners_s += machine.now.used * STEP_S;
            }
            let Some(Guest::Here { job, together_s }) = &mut machine.guest else { continue };
            if together_s.is_some() && !setting.manner.lingers() {
                continue;
            }
            let shares = setting.bursts.shares(machine.now.used);
            if together_s.is_some() {
                self.outcome.shared_s += machine.now.used * STEP_S;
                self.outcome.delayed_s += machine.now.used * STEP_S * shares.slowdown;
            }
            let needs_s = if shares.guest > 0.0 { job.left_s / shares.guest } else { f64::INFINITY };
            if needs_s > STEP_S {
                job.left_s -= shares.guest * STEP_S;
                self.outcome.given_s += shares.guest * STEP_S;
                continue;
            }
            self.outcome.given_s += job.left_s;
            let ended = Ended { begun_s: job.begun_s, ended_s: self.now_s + needs_s };
            self.outcome.ended.push(ended);
            self.known.ended(job.needs_s);
            machine.guest = None;
            again += usize::from(setting.steady_s.is_some());
        }
        for _ in 0..again {
            self.submit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_SWITCHES: Bursts = Bursts { run_s: 0.02, variation: 4.0, switch_s: 0.0 };

    fn setting(manner: Manner) -> Setting {
        Setting {
            machines: 64,
            source: Source::Drawn(Owners::default()),
            bursts: Bursts::default(),
            manner,
            jobs: 128,
            job_s: 600.0,
            job_sigma: 0.0,
            prices: Prices { move_s: Some(22.4), launch_s: 0.0 },
            idle_use: 0.036,
            watched_s: 3_600.0,
            is_need_known: false,
            steady_s: None,
            give_up_s: 1e6,
        }
    }

    #[test]
    fn without_owners_jobs_take_what_they_take() {
        let owners = Owners { away: (1e9, 0.01), episode_s_max: 1e9, away_use: 0.0, ..Owners::default() };
        let never = Owners { present: (1e-9, 0.01), ..owners };
        let setting = setting(Manner::Rule(Policy::LingerForever));
        let never = Source::Drawn(never);
        let outcome = run(&Setting { source: never, bursts: NO_SWITCHES, jobs: 3, machines: 2, ..setting }, 1);
        let ends: Vec<f64> = outcome.ended.iter().map(|ended| ended.ended_s).collect();
        assert_eq!(ends, [600.0, 600.0, 1_200.0]);
        assert_eq!((outcome.given_s, outcome.moves, outcome.shared_s), (1_800.0, 0, 0.0));
    }

    #[test]
    fn every_job_ends_with_all_that_it_needs() {
        let rules =
            [Policy::LingerLonger, Policy::LingerForever, Policy::ImmediateEviction, Policy::PauseAndMigrate(60.0)];
        for manner in rules.map(Manner::Rule).into_iter().chain([Manner::Foresight]) {
            let outcome = run(&setting(manner), 5);
            assert_eq!(outcome.ended.len(), 128);
            assert!((outcome.given_s - 76_800.0).abs() < 1e-6, "{manner:?}: {}", outcome.given_s);
            assert_eq!(run(&setting(manner), 5), outcome, "the same seed, the same world");
            let is_sound = |ended: &Ended| ended.ended_s - ended.begun_s >= 600.0;
            assert!(outcome.ended.iter().all(is_sound));
            let again = Setting { prices: Prices { move_s: None, launch_s: 5.0 }, ..setting(manner) };
            let outcome = run(&again, 5);
            assert!((outcome.given_s - 76_800.0).abs() < 1e-6, "{manner:?}: {}", outcome.given_s);
        }
    }

    #[test]
    fn the_number_of_jobs_stays_where_work_is_steady() {
        let steady = Setting { steady_s: Some(7_200.0), ..setting(Manner::Rule(Policy::LingerForever)) };
        let outcome = run(&steady, 2);
        assert!((45.0..64.0).contains(&(outcome.given_s / outcome.lasted_s)), "{}", outcome.given_s / outcome.lasted_s);
    }
}
