//! Workunits at the hub: hosts that ask for them, and those who submit them and take what came of them.
//!
//! * [`hosts`]: a host's stream.
//! * [`jobs`]: a client's stream of what it wants done.
//! * [`collect`]: a client's stream of what has ended.
//!
//! What becomes of them is the ledger's; here is only who is to be told.

pub mod collect;
pub mod hosts;
pub mod jobs;
#[cfg(test)]
mod tests;

use crate::state::State;
use collect::Feeds;
use hosts::Hosts;
use tasks::{Effect, Entry};

/// Who is told of what.
#[derive(Default)]
pub(crate) struct Work {
    pub hosts: Hosts,
    pub feeds: Feeds,
}

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
                Effect::Send { host, .. } | Effect::Stop(host, _) => self.work.hosts.tell(host, effect),
                Effect::Assimilate { task, .. } => {
                    let job = self.placement.desk.table().task(task).map(|task| task.job);
                    job.into_iter().for_each(|job| self.work.feeds.add(job, task));
                }
                Effect::JobEnded(job) => self.work.feeds.wake(job),
                _ => {}
            }
        }
    }

    /// Time has passed: what the table does then.
    pub fn tick(&mut self) {
        while self.placement.desk.next_tick() <= self.placement.desk.now() {
            let made = self.placement.tick();
            self.hand_out(made);
        }
    }
}
