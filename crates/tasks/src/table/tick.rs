//! Time has passed: what is due, and what was left to be done by and by, each under its budget.

use super::Table;
use crate::event::Effects;
use crate::shapes::{NIL, wheel::Wheel};

/// Deadlines of each kind that one tick acts on. With k of them in one millisecond the last is acted on at the ceil(k / 4)th tick.
pub const DUE_MAX: u32 = 4;
/// Things of each kind that one tick takes apart.
const CLEAN_MAX: u32 = 8;

/// How often hosts that wait while tasks are ready are tried again, if none of those that were tried got one, and how many of them.
const TRY_AGAIN_MS: u64 = 50;
const TRIES_MAX: u32 = 4;

impl Table {
    pub(super) fn on_tick(&mut self, effects: &mut Effects) {
        let now_ms = self.now_ms();
        self.instances_due.cascade(&mut self.instances, DUE_MAX);
        self.groups_due.cascade(&mut self.groups, DUE_MAX);
        self.hosts_due.cascade(&mut self.host_more, DUE_MAX);
        for _ in 0..DUE_MAX {
            let Some(group) = self.groups_due.next(&mut self.groups, now_ms) else { break };
            self.on_late(group);
        }
        for _ in 0..DUE_MAX {
            let Some(instance) = self.instances_due.next(&mut self.instances, now_ms) else { break };
            self.on_due(instance, effects);
        }
        for _ in 0..DUE_MAX {
            let Some(host) = self.hosts_due.next(&mut self.host_more, now_ms) else { break };
            self.on_back(host, effects);
        }
        self.take_back(CLEAN_MAX, effects);
        self.reap(CLEAN_MAX, effects);
        self.clean(CLEAN_MAX, effects);
        self.feed_hungry(CLEAN_MAX as usize, effects);
        if now_ms >= self.try_again_ms {
            // While some of them get something others may, too: as when many tasks want copies at one time.
            let pause_ms = if self.try_again(TRIES_MAX, effects) { 0 } else { TRY_AGAIN_MS };
            self.try_again_ms = now_ms + pause_ms;
        }
    }

    /// Whether another tick has something to do at `now` already, in nanoseconds.
    pub fn is_behind(&self, now: u64) -> bool {
        self.next_tick().is_some_and(|next| next <= now)
    }

    /// When the next tick has something to do, in nanoseconds of the hub's time: 0 if it has now. `None`: only events do.
    pub fn next_tick(&self) -> Option<u64> {
        if [self.gone, self.reaped, self.cleaning, self.hungry].iter().any(|list| *list != NIL) {
            return Some(0);
        }
        let again = self.is_restless().then_some(self.try_again_ms);
        self.wheels().into_iter().filter_map(Wheel::next_ms).chain(again).min().map(|ms| ms * super::MS)
    }

    /// A group's deadline has passed.
    fn on_late(&mut self, at: u32) {
        self.stand_down(at);
        let group = &mut self.groups[at];
        group.is_late = true;
        let (job_at, unfinished, deadline_ms, demand) = (group.job, group.unfinished, group.deadline_ms, group.demand);
        let cost_ms = self.jobs[job_at].demand_ms() * u64::from(unfinished);
        self.demands.passed(demand, deadline_ms, cost_ms);
        if self.jobs[job_at].policy.drops_late {
            self.drop_late(job_at);
        } else {
            self.stand(at);
        }
    }
}
