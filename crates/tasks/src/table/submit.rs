//! Jobs are opened and tasks submitted.

use super::Table;
use super::records::{Group, Job, JobStage, NO_SERVER, OfJob, Siblings, Stage, Tags, Task};
use crate::event::{
    BATCH_MAX, DEADLINES_MAX, DELAY_MAX_MS, Effect, Effects, INSTANCES_MAX, JobSpec, Kind, Refusal, Urgency,
};
use crate::names::JobName;
use crate::shapes::NIL;
use crate::shapes::list::push_back;

/// When to try again where there was no room, in milliseconds.
pub(super) const RETRY_MS: u32 = 1_000;

/// Most tasks that are announced to come.
const LATER_MAX: u32 = 1 << 24;

impl Table {
    pub(super) fn on_open(&mut self, spec: &JobSpec, effects: &mut Effects) -> Result<(), Refusal> {
        let account = self.account_at(spec.account)?;
        let jobs = &self.jobs;
        // Other accounts may choose the same name.
        let is_it = |at: u32| jobs[at].key == spec.key && jobs[at].account == account;
        if let Some(at) = self.job_keys.find(spec.key, is_it) {
            effects.push(Effect::Job(self.jobs[at].name(at), self.jobs[at].submitted));
            return Ok(());
        }
        check(spec)?;
        let need = self.kinds.of_need(&spec.need).ok_or(Refusal::Full(Kind::Kinds, RETRY_MS))?;
        let at = self.jobs.take_as(&mut self.job_keys, spec.key).ok_or(Refusal::Full(Kind::Jobs, RETRY_MS))?;
        self.kinds.job_came(need);
        let generation = self.jobs[at].generation + 1;
        self.jobs[at] = Job {
            key: spec.key,
            generation,
            account,
            failures_max: spec.failures_max,
            cost_ms: spec.cost_ms,
            affinity: spec.affinity,
            need,
            stage: JobStage::Open,
            urgency: spec.urgency,
            is_volatile: spec.is_volatile,
            policy: spec.policy,
            ..Job::default()
        };
        effects.push(Effect::Job(self.jobs[at].name(at), 0));
        Ok(())
    }

    /// As many tasks of a job from one of them on. With how many more to come it is looked whether all can be done in time; `None`: that was
    /// found before.
    pub(super) fn on_submit(
        &mut self,
        name: JobName,
        first: u32,
        count: u8,
        later: Option<u32>,
        deadline_ms: u64,
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        let job_at = self.job_at(name)?;
        if count == 0 || count as usize > BATCH_MAX {
            return Err(Refusal::Invalid("1 to 16 tasks are submitted at a time"));
        }
        if later.is_some_and(|later| later > LATER_MAX) {
            return Err(Refusal::Invalid("of a job at most 16777216 tasks are to come"));
        }
        let job = &self.jobs[job_at];
        if first > job.submitted {
            return Err(Refusal::Gap(job.submitted));
        }
        // What was submitted before is there, or has ended.
        let known = job.submitted - first;
        let Some(new) = u32::from(count).checked_sub(known).filter(|new| *new > 0) else { return Ok(()) };
        if job.stage != JobStage::Open {
            return Err(Refusal::Ended);
        }
        let account = job.account;
        let (first_task, first_group) = (job.tasks, job.groups);
        self.fetch_task(first_task);
        self.groups.column.prefetch(first_group);
        self.tags.prefetch(self.tasks.next_free());
        self.has_room(job_at, new)?;
        if deadline_ms > self.now_ms() + u64::from(DELAY_MAX_MS) {
            return Err(Refusal::Invalid("a deadline is ten days ahead at most"));
        }
        if let Some(later) = later {
            self.admit(job_at, new.saturating_add(later), deadline_ms)?;
        }
        let group = self.group_for(job_at, deadline_ms)?;
        self.fetch_task(self.groups[group].ready);
        if let Some(first) = self.tasks.column.get(first_task) {
            self.tasks.column.prefetch(first.siblings.prev);
        }
        let cost_ms = self.jobs[job_at].demand_ms() * u64::from(new);
        if deadline_ms != 0 {
            let demand = self.groups[group].demand;
            self.demands.add(demand, deadline_ms, cost_ms);
        }
        for _ in 0..new {
            let task = self.add_task(job_at, group);
            effects.push(Effect::Submitted(task));
        }
        self.accounts[account].tasks += new;
        self.totals.submitted += u64::from(new);
        self.hand_out(job_at, new as usize, effects);
        Ok(())
    }

    /// Whether so many more tasks of a job have room, also for their instances.
    fn has_room(&self, job_at: u32, new: u32) -> Result<(), Refusal> {
        let job = &self.jobs[job_at];
        let account = &self.accounts[job.account];
        if account.tasks + new > account.tasks_max {
            return Err(Refusal::AccountFull(account.tasks_max));
        }
        let aside = self.set_aside + new * u32::from(job.policy.target);
        if self.tasks.room() < new as usize || self.instances.room() < aside as usize {
            return Err(Refusal::Full(Kind::Tasks, RETRY_MS));
        }
        // Hosts that lend nothing for now are there as well: it waits for them.
        let can = self.kinds.served_by(job.need);
        let is_there = self.present.common(0, can, 0).next().is_some();
        if self.totals.hosts > 0 && !is_there { Err(Refusal::FitsNowhere) } else { Ok(()) }
    }

    /// The group of a job for a deadline; a new one if need be.
    fn group_for(&mut self, job_at: u32, deadline_ms: u64) -> Result<u32, Refusal> {
        if let Some(at) = self.group_with(job_at, deadline_ms) {
            return Ok(at);
        }
        let job = &self.jobs[job_at];
        let (account, need, urgency) = (job.account, job.need, job.urgency);
        if job.group_count == DEADLINES_MAX {
            return Err(Refusal::Deadlines);
        }
        if self.groups.room() == 0 || !self.tries.has_room() {
            return Err(Refusal::Full(Kind::Deadlines, RETRY_MS));
        }
        let server = self.accounts[account].server;
        let urgency = self.urgency_with(urgency, deadline_ms, server);
        let lane = self.lane_for(account, urgency, need)?;
        self.lanes[lane].users += 1;
        let at = self.groups.take().expect("there is room");
        let demand =
            if deadline_ms == 0 { super::admission::NONE } else { self.demands.of(server, deadline_ms, self.now_ms()) };
        let cpus = self.kinds.need(need).cpus;
        self.groups[at] = Group { job: job_at, lane, deadline_ms, cpus, demand, ..Group::default() };
        if deadline_ms != 0 {
            self.groups_due.insert(&mut self.groups, at);
        }
        let job = &mut self.jobs[job_at];
        push_back::<OfJob, _>(&mut self.groups, &mut job.groups, at);
        // It is the first to be looked at for the next tasks.
        job.groups = at;
        job.group_count += 1;
        Ok(at)
    }

    /// Deadlines of an account with a reserved share come before other accounts' tasks.
    pub(super) fn urgency_with(&self, urgency: Urgency, deadline_ms: u64, server: u8) -> Urgency {
        let is_reserved = urgency == Urgency::Normal && deadline_ms != 0 && server != NO_SERVER;
        if is_reserved { Urgency::Reserved } else { urgency }
    }

    fn add_task(&mut self, job_at: u32, group_at: u32) -> crate::names::TaskName {
        let at = self.tasks.take().expect("there is room");
        let job = &mut self.jobs[job_at];
        let (index, policy) = (job.submitted, job.policy);
        job.submitted += 1;
        job.unfinished += 1;
        self.gauges.held += u32::from(job.is_held());
        let generation = self.tasks[at].generation + 1;
        self.tasks[at] = Task {
            generation,
            job: job_at,
            group: group_at,
            index,
            stage: Stage::Open,
            unsent: policy.target,
            quorum: policy.quorum,
            target: policy.target,
            set_aside: policy.target,
            ..Task::default()
        };
        self.tags.put(at, Tags::default());
        self.set_aside += u32::from(policy.target);
        push_back::<Siblings, _>(&mut self.tasks, &mut self.jobs[job_at].tasks, at);
        self.groups[group_at].unfinished += 1;
        self.list(at);
        self.tasks[at].name(at)
    }

    pub(super) fn on_close(&mut self, name: JobName, effects: &mut Effects) -> Result<(), Refusal> {
        let at = self.job_at(name)?;
        let job = &mut self.jobs[at];
        if job.stage == JobStage::Open {
            job.stage = JobStage::Closed;
            self.end_job(at, effects);
        }
        Ok(())
    }

    pub(super) fn on_forget(&mut self, name: JobName) -> Result<(), Refusal> {
        let at = self.job_at(name)?;
        let job = &mut self.jobs[at];
        if job.stage != JobStage::Ended {
            return Err(Refusal::Invalid("the job has not ended: cancel it first"));
        }
        job.stage = JobStage::Free;
        job.generation += 1;
        let (key, need) = (job.key, job.need);
        debug_assert_eq!((job.tasks, job.groups), (NIL, NIL));
        self.kinds.job_went(need);
        self.job_keys.remove(key, at);
        self.jobs.give(at);
        Ok(())
    }
}

/// Whether a job's values are within their ranges.
fn check(spec: &JobSpec) -> Result<(), Refusal> {
    let policy = &spec.policy;
    let invalid = |what| Err(Refusal::Invalid(what));
    if policy.quorum == 0 || policy.target < policy.quorum {
        return invalid("a quorum is 1 at least, and the number of instances no less than it");
    }
    if policy.instances_max < policy.target || policy.instances_max > INSTANCES_MAX {
        return invalid("a task has 16 instances at most, and no fewer than at first");
    }
    if policy.successes_max < policy.quorum {
        return invalid("fewer results are allowed than the quorum needs");
    }
    if policy.delay_bound_ms == 0 || policy.delay_bound_ms > DELAY_MAX_MS {
        return invalid("an instance may take from a millisecond to ten days");
    }
    if spec.cost_ms == 0 || spec.need.cpus == 0 {
        return invalid("a task costs a millisecond at least, and needs a processor");
    }
    if spec.urgency == Urgency::Reserved {
        return invalid("tasks with deadlines of an account with a reserved share become reserved by themselves");
    }
    Ok(())
}
