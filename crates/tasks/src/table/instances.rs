//! What becomes of an instance that is out.

use super::Table;
use super::records::{Fate, Presence};
use crate::event::{Effect, Effects};
use crate::names::InstanceName;
use crate::shapes::NIL;

impl Table {
    /// The instance of a task with this number.
    pub(super) fn instance_of(&self, task: u32, number: u8) -> Option<u32> {
        let mut at = self.tasks[task].newest;
        while at != NIL {
            let instance = &self.instances[at];
            if instance.number == number {
                return Some(at);
            }
            at = instance.before;
        }
        None
    }

    /// The host that an instance went to, if it is still that one.
    pub(super) fn host_of(&self, instance: u32) -> Option<u32> {
        let instance = &self.instances[instance];
        let host = &self.hosts[instance.host];
        let is_that = host.generation as u16 == instance.host_generation && host.presence != Presence::Free;
        is_that.then_some(instance.host)
    }

    /// An instance that was out is no longer: its timer, its place at its host and its processors are free.
    pub(super) fn take_in(&mut self, at: u32, fate: Fate) {
        self.instances_due.remove(&mut self.instances, at);
        let instance = &mut self.instances[at];
        debug_assert_eq!(instance.fate, Fate::Out);
        instance.fate = fate;
        let (task_at, host_at, place) = (instance.task, instance.host, instance.place);
        let task = &mut self.tasks[task_at];
        task.out -= 1;
        self.gauges.out -= 1;
        self.gauges.running -= u32::from(task.out == 0);
        let job = &self.jobs[task.job];
        let (account, need) = (job.account, job.need);
        self.accounts[account].running -= 1;
        let cpus = self.kinds.need(need).cpus;
        self.gauges.cpus_busy -= u64::from(cpus);
        // A host's record is free only when none of its places is taken.
        let host = &mut self.hosts[host_at];
        host.places &= !(1 << place);
        host.cpus_free += i32::from(cpus);
    }

    /// An instance is lost, with its host or in time. Its task goes on without.
    pub(super) fn lose(&mut self, at: u32, fate: Fate, effects: &mut Effects) {
        self.take_in(at, fate);
        let task = self.instances[at].task;
        self.tasks[task].errors += 1;
        self.totals.lost += 1;
        self.go_on(task, effects);
    }

    /// Nothing came of an instance in time; or its task wants some more before its deadline.
    pub(super) fn on_due(&mut self, at: u32, effects: &mut Effects) {
        if std::mem::take(&mut self.instances[at].is_watched) {
            let task = self.instances[at].task;
            let delay_ms = self.jobs[self.tasks[task].job].policy.delay_bound_ms;
            self.instances[at].due_ms = self.instances[at].due_ms.wrapping_add(delay_ms);
            self.instances_due.insert(&mut self.instances, at);
            return self.some_more(task, effects);
        }
        let (host, number) = (self.host_of(at), self.instances[at].number);
        let task = self.instances[at].task;
        let is_blamed = !self.jobs[self.tasks[task].job].policy.excuses_late;
        if let Some(host) = host {
            self.host_more[host].late += u32::from(is_blamed);
            let task = self.tasks[task].name(task);
            effects.push(Effect::Stop(self.hosts[host].name(host), InstanceName { task, number }));
        }
        self.totals.late += 1;
        self.lose(at, Fate::Late, effects);
        if let Some(host) = host {
            if is_blamed {
                self.judge(host, false, effects);
                self.on_silence(host);
            }
            self.feed(host, 1, effects);
        }
    }
}
