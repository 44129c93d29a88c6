//! Accounts and jobs.

use crate::event::{Policy, Urgency};
use crate::names::{AccountName, JobName};
use crate::shapes::NIL;
use crate::shapes::list::{Linked, Links};
use crate::shapes::slab::Item;
use crate::snapshot::{saved, saved_choice};

/// An account.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Account {
    pub key: u128,
    pub generation: u32,
    pub next_free: u32,
    pub weight: u16,
    pub share_permille: u16,
    /// Its place among those with a reserved share; 255: none.
    pub server: u8,
    /// Instances of its tasks that are out.
    pub running: u32,
    pub running_max: u32,
    /// Its lanes, and how many of them stand in a ring.
    pub lanes: u32,
    pub lanes_standing: u16,
    pub lanes_count: u16,
    /// Its tasks in the table.
    pub tasks: u32,
    pub tasks_max: u32,
    /// What its tasks have cost more than was estimated and is still to be charged, in milliseconds.
    pub correction_ms: i64,
    /// Processor time that its tasks have taken, in milliseconds.
    pub used_ms: u64,
    /// Processor time that its hosts have given in right results, in milliseconds: its credit.
    pub given_ms: u64,
    pub done: u64,
    pub failed: u64,
    /// Deadlines met and missed.
    pub met: u64,
    pub missed: u64,
}

saved!(Account {
    key: u128,
    generation: u32,
    next_free: u32,
    weight: u16,
    share_permille: u16,
    server: u8,
    running: u32,
    running_max: u32,
    lanes: u32,
    lanes_standing: u16,
    lanes_count: u16,
    tasks: u32,
    tasks_max: u32,
    correction_ms: i64,
    used_ms: u64,
    given_ms: u64,
    done: u64,
    failed: u64,
    met: u64,
    missed: u64,
});

impl Default for Account {
    fn default() -> Self {
        Self {
            key: 0,
            generation: 0,
            next_free: NIL,
            weight: 1,
            share_permille: 0,
            server: NO_SERVER,
            running: 0,
            running_max: 0,
            lanes: NIL,
            lanes_standing: 0,
            lanes_count: 0,
            tasks: 0,
            tasks_max: 0,
            correction_ms: 0,
            used_ms: 0,
            given_ms: 0,
            done: 0,
            failed: 0,
            met: 0,
            missed: 0,
        }
    }
}

/// No reserved share.
pub(crate) const NO_SERVER: u8 = 255;

impl Account {
    pub fn name(&self, at: u32) -> AccountName {
        AccountName { at, generation: self.generation }
    }
}

impl Item for Account {
    fn next_free(&mut self) -> &mut u32 {
        &mut self.next_free
    }
}

/// Where a job is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum JobStage {
    /// No job: the record is free.
    #[default]
    Free,
    /// Tasks may come.
    Open,
    /// No more will come.
    Closed,
    /// Its tasks are being taken apart.
    Cancelled,
    /// All have ended.
    Ended,
}

saved_choice!(JobStage { Free = 0, Open = 1, Closed = 2, Cancelled = 3, Ended = 4 });

/// Its owner holds it.
pub(crate) const HELD: u8 = 1;
/// Who is needed to run its tasks is away.
pub(crate) const AWAY: u8 = 2;

/// A job.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Job {
    pub key: u128,
    pub generation: u32,
    pub account: u32,
    /// Its tasks.
    pub tasks: u32,
    /// Its groups, the one used last first.
    pub groups: u32,
    /// Tasks submitted.
    pub submitted: u32,
    /// Tasks that have not ended.
    pub unfinished: u32,
    pub done: u32,
    pub failed: u32,
    pub failures_max: u32,
    /// Tasks still to be looked at, once it is cancelled.
    pub reap_left: u32,
    pub cost_ms: u32,
    pub affinity: u32,
    /// In the list of cancelled jobs that have tasks.
    pub reaped: Links,
    pub need: u16,
    pub group_count: u8,
    pub stage: JobStage,
    pub urgency: Urgency,
    /// Why its tasks wait: bits.
    pub held: u8,
    pub is_volatile: bool,
    pub policy: Policy,
}

saved!(Job {
    key: u128,
    generation: u32,
    account: u32,
    tasks: u32,
    groups: u32,
    submitted: u32,
    unfinished: u32,
    done: u32,
    failed: u32,
    failures_max: u32,
    reap_left: u32,
    cost_ms: u32,
    affinity: u32,
    reaped: Links,
    need: u16,
    group_count: u8,
    stage: JobStage,
    urgency: Urgency,
    held: u8,
    is_volatile: bool,
    policy: Policy,
});

impl Default for Job {
    fn default() -> Self {
        Self {
            key: 0,
            generation: 0,
            account: NIL,
            tasks: NIL,
            groups: NIL,
            submitted: 0,
            unfinished: 0,
            done: 0,
            failed: 0,
            failures_max: 0,
            reap_left: 0,
            cost_ms: 0,
            affinity: 0,
            reaped: Links::default(),
            need: 0,
            group_count: 0,
            stage: JobStage::Free,
            urgency: Urgency::Normal,
            held: 0,
            is_volatile: false,
            policy: Policy::default(),
        }
    }
}

impl Job {
    /// Its tasks wait, and not because it is cancelled.
    pub fn is_held(&self) -> bool {
        self.held != 0 && matches!(self.stage, JobStage::Open | JobStage::Closed)
    }

    /// What a task costs if all goes well, in milliseconds of processor time at speed 1000.
    pub fn demand_ms(&self) -> u64 {
        u64::from(self.cost_ms) * u64::from(self.policy.target)
    }

    pub fn name(&self, at: u32) -> JobName {
        JobName { at, generation: self.generation }
    }
}

impl Item for Job {
    fn next_free(&mut self) -> &mut u32 {
        &mut self.reaped.next
    }
}

/// Cancelled jobs that have tasks.
pub(crate) struct Reaped;

impl Linked<Reaped> for Job {
    fn links(&mut self) -> &mut Links {
        &mut self.reaped
    }
}
