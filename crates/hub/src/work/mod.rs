//! Workunits at the hub: hosts that ask for them, and those who submit them and take what came of them.
//!
//! * [`hosts`]: a host's stream.
//! * [`jobs`]: a client's stream of what it wants done.
//! * [`launches`]: tasks that are launches: their client is told when they have a place, and `results` keeps what they printed and changed.
//! * [`faults`]: whether a launch that failed counts against its worker.
//! * [`waits`]: why a task of a job waits, for people.
//! * [`kept`]: the jobs of each account, and how many these may be.
//! * [`collect`]: a client's stream of what has ended.
//! * [`deliver`]: what has become durable leaves.
//!
//! What becomes of them is the ledger's; here is only who is to be told.

pub mod collect;
pub mod deliver;
pub mod faults;
pub mod hosts;
pub mod jobs;
pub mod kept;
pub mod launches;
mod results;
#[cfg(test)]
mod tests;
pub mod waits;

pub(crate) use results::cost_ms;

use crate::server::Shared;
use crate::state::State;
use collect::Feeds;
use hosts::Hosts;
use jobs::Promises;
use kept::Kept;
use launches::Launches;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::journal::JournalError;
use tasks::{Effect, Entry};
use wire::lock;

/// How often it is looked for hosts that have been away for long.
const LOOK_FOR_GONE: Duration = Duration::from_secs(5);
/// The same for launches that have waited for long, while some wait for a better place.
const LOOK_FOR_WAITING: Duration = Duration::from_secs(1);

/// The same for jobs that nobody has any more, while there are some.
const LOOK_FOR_ENDED: Duration = Duration::from_millis(50);

/// Ticks at a time, before others have their turn.
const TICKS_MAX: u32 = 64;

/// Who is told of what.
#[derive(Default)]
pub(crate) struct Work {
    pub hosts: Hosts,
    pub promises: Promises,
    pub feeds: Feeds,
    pub launches: Launches,
    pub kept: Kept,
}

/// Tag of workers: they take launches.
pub(crate) const TAKES_LAUNCHES: u64 = 1 << 63;
/// Tag of hosts that ask for workunits, or wait for them.
pub(crate) const ASKS: u64 = 1 << 62;
/// Tag of workers of which a task gets something worth the name.
pub(crate) const GIVES: u64 = 1 << 61;
/// Tags that mean what their owners say.
pub(crate) const OWNERS_TAGS: u64 = (1 << 48) - 1;

impl State {
    /// Has an entry done that concerns workunits, and gives what it said. Launches that got a place by it are told.
    pub fn act<'a>(&mut self, entry: impl Into<Entry<'a>>) -> Vec<Effect> {
        let said = self.placement.desk.act(entry).to_vec();
        let made = self.placement.placed();
        self.hand_out(made);
        said
    }

    /// What may leave now goes to whom it concerns.
    pub fn route(&mut self, free: Vec<Effect>) {
        for effect in free {
            match effect {
                Effect::Send { host, .. } => match self.placement.worker_of(host) {
                    Some(worker) => self.give_place(&effect, worker),
                    None => self.work.hosts.tell(host, effect),
                },
                Effect::Stop(host, instance) if self.placement.worker_of(host).is_some() => {
                    self.work.launches.stop(instance);
                }
                Effect::Stop(host, _) => self.work.hosts.tell(host, effect),
                Effect::Assimilate { task, .. } => {
                    let job = self.placement.desk.table().task(task).map(|task| task.job);
                    job.into_iter().for_each(|job| self.work.feeds.add(job, task));
                }
                Effect::Compare(task, mask) => {
                    let job = self.placement.desk.table().task(task).map(|task| task.job);
                    job.into_iter().for_each(|job| self.work.feeds.add_comparison(job, task, mask));
                }
                Effect::JobEnded(job) => self.work.feeds.wake(job),
                _ => {}
            }
        }
    }

    /// Time has passed: what the table does then, or some of it. Says how long it is until there is more.
    fn tick(&mut self) -> Result<Duration, Arc<JournalError>> {
        for _ in 0..TICKS_MAX {
            let desk = &mut self.placement.desk;
            if let Some(dead) = desk.dead() {
                return Err(dead.clone());
            }
            let (next, now) = (desk.schedule(), desk.now());
            if next > now {
                let made = self.placement.give_up_choosing();
                self.hand_out(made);
                let wait = Duration::from_nanos(next - now);
                let wait = if self.end_jobs_of_nobody() { wait.min(LOOK_FOR_ENDED) } else { wait };
                return Ok(if self.placement.chooses() { wait.min(LOOK_FOR_WAITING) } else { wait });
            }
            let made = self.placement.tick();
            self.hand_out(made);
        }
        Ok(Duration::ZERO)
    }
}

impl Shared {
    /// Has time pass for the table, until the journal ends.
    pub(crate) async fn tick(&self) -> Arc<JournalError> {
        let sooner = lock(&self.state).placement.desk.sooner();
        let mut looked = Instant::now();
        loop {
            let wait = lock(&self.state).tick();
            match wait {
                Ok(Duration::ZERO) => tokio::task::yield_now().await,
                Ok(wait) => tokio::select! {
                    () = tokio::time::sleep(wait.min(LOOK_FOR_GONE)) => {}
                    () = sooner.notified() => {}
                },
                Err(dead) => return dead,
            }
            if looked.elapsed() >= LOOK_FOR_GONE {
                looked = Instant::now();
                self.drop_gone_hosts(looked);
                self.drop_idle_places(looked);
                lock(&self.state).end_aside(looked);
            }
        }
    }
}
