//! What must be said again when the hub has started anew: what was decided, and may not have been heard.

use super::Table;
use super::records::{NO_INSTANCE, Presence, Stage};
use crate::event::{Effect, Failure, HostSpec};
use crate::names::{HostName, JobName};

impl Table {
    /// Effects that may not have left before the hub ended: results that have not reached where they go, and comparisons.
    ///
    /// What was sent to hosts is known by them, or said again when they come back ([`Table::host`]).
    pub fn pending(&self) -> impl Iterator<Item = Effect> + '_ {
        self.tasks.all().filter_map(|(at, task)| match task.stage {
            Stage::Comparing => Some(Effect::Compare(task.name(at), task.compared)),
            Stage::Assimilating => {
                let failure = task.failure.unwrap_or(Failure::Cancelled);
                let result = if task.canonical == NO_INSTANCE { Err(failure) } else { Ok(task.canonical) };
                let (job, index) = (self.jobs[task.job].key, task.index);
                Some(Effect::Assimilate { task: task.name(at), job, index, result })
            }
            Stage::Free | Stage::Open | Stage::Cleaning => None,
        })
    }

    /// All hosts, as they joined: their connections ended with the hub.
    pub fn hosts(&self) -> impl Iterator<Item = (HostName, HostSpec)> + '_ {
        let live = self.hosts.all().filter(|(_, host)| host.generation % 2 == 1 && host.presence != Presence::Gone);
        live.map(|(at, host)| {
            let more = &self.host_more[at];
            let spec = HostSpec {
                key: more.key,
                account: self.accounts[host.account].name(host.account),
                shape: *self.kinds.shape(host.kind),
                speed_permille: more.speed_permille,
                is_fresh: false,
                is_attached: host.is_attached,
            };
            (host.name(at), spec)
        })
    }

    /// Jobs whose tasks their clients send again: to be cancelled at the start.
    pub fn volatile(&self) -> impl Iterator<Item = JobName> + '_ {
        let live = self.jobs.all().filter(|(_, job)| job.generation % 2 == 1 && job.is_volatile);
        live.map(|(at, job)| job.name(at))
    }
}
