//! The life of a task after its instances were sent: it goes on, is decided, assimilated, and taken apart.
//!
//! It is BOINC's (Anderson: BOINC: A Platform for Volunteer Computing, 2020, section 4), except that nothing polls: each report,
//! loss and decision leads to the next step at once.

use super::Table;
use super::records::{Fate, JobStage, NO_INSTANCE, RESULT_BYTES, Ready, Siblings, Stage};
use crate::event::{Effect, Effects, Failure, INSTANCES_MAX, Refusal, Validation};
use crate::names::{InstanceName, TaskName};
use crate::shapes::NIL;
use crate::shapes::list::{push_back, unlink};

/// Instances more that a task gets near its deadline at most: of hosts of which one in twenty dies all do so once in 160,000 times.
const COPIES: u8 = 4;
/// Instances of a task up to which it is taken apart at once when it has been assimilated, and not by and by.
const AT_ONCE_MAX: u8 = 2;

impl Table {
    /// Something has changed for a task: looks whether it has a result, can have none, or wants more instances.
    pub(super) fn go_on(&mut self, at: u32, effects: &mut Effects) {
        let task = &self.tasks[at];
        if task.stage != Stage::Open {
            return;
        }
        let (successes, errors, quorum) = (task.successes, task.errors, task.quorum);
        let policy = self.jobs[task.job].policy;
        if successes >= quorum {
            match policy.validation {
                // A host that is trusted alone is not looked at, unless all are.
                Validation::Command if quorum > 1 || !policy.needs_agreement() => {
                    if self.ask_to_compare(at, effects) {
                        return;
                    }
                }
                _ => {
                    if let Some(canonical) = self.canonical(at, quorum) {
                        return self.decide(at, Ok(canonical), effects);
                    }
                }
            }
        }
        if errors > policy.errors_max {
            return self.decide(at, Err(Failure::Errors), effects);
        }
        if successes > policy.successes_max {
            return self.decide(at, Err(Failure::NoConsensus), effects);
        }
        // With a quorum's number of results and no quorum, one more is wanted.
        let task = &mut self.tasks[at];
        if successes >= quorum {
            task.target = task.target.max(successes + 1);
        }
        let there = task.out + task.unsent + successes;
        let missing = task.target.saturating_sub(there);
        let room = policy.instances_max.min(INSTANCES_MAX).saturating_sub(task.made + task.unsent);
        let mut more = missing.min(room);
        if missing > 0 && task.made > 0 && policy.is_speculative && self.is_last_chance(at) {
            let with_copies = missing.max(self.copies(at)).min(room);
            self.speculates(at, with_copies - more);
            more = with_copies;
        }
        let task = &mut self.tasks[at];
        task.unsent += more;
        if task.unsent > 0 {
            // With none out, and the table full of others' results, it would wait for ever.
            if task.out == 0 && !self.sets_aside(at) {
                return self.decide(at, Err(Failure::Instances), effects);
            }
            self.list(at);
            self.offer(at, effects);
        } else if task.out == 0 {
            self.decide(at, Err(Failure::Instances), effects);
        }
    }

    /// A task is ready: a host that waits may have it.
    fn offer(&mut self, at: u32, effects: &mut Effects) {
        let job = self.tasks[at].job;
        self.hand_out(job, 1, effects);
    }

    /// Whether a task can still be in time, but not if it has to be sent once more after what is sent now.
    fn is_last_chance(&self, at: u32) -> bool {
        let task = &self.tasks[at];
        let deadline_ms = self.groups[task.group].deadline_ms;
        let now_ms = self.now_ms();
        // Without a deadline it is 0.
        !task.is_speculated && now_ms < deadline_ms && now_ms + 2 * self.run_ms(task.job) > deadline_ms
    }

    /// How long an instance of a job takes at speed 1000, if its processor time is as was estimated.
    pub(super) fn run_ms(&self, job: u32) -> u64 {
        let job = &self.jobs[job];
        u64::from(job.cost_ms).div_ceil(self.kinds.need(job.need).cpus.into())
    }

    /// How many instances at once a task gets near its deadline: what is idle is for all of its group that have not ended, as when
    /// reports come late because there are many.
    fn copies(&self, at: u32) -> u8 {
        let task = &self.tasks[at];
        let cpus_each = u64::from(self.kinds.need(self.jobs[task.job].need).cpus);
        let cpus_idle = self.gauges.cpus.saturating_sub(self.gauges.cpus_busy);
        let all = u64::from(self.groups[task.group].unfinished) * cpus_each;
        (cpus_idle / all.max(1)).clamp(1, COPIES.into()) as u8
    }

    /// A task gets so many instances more than it would without a deadline. Once: it is not asked again.
    fn speculates(&mut self, at: u32, copies: u8) {
        self.tasks[at].is_speculated = true;
        self.totals.speculated += u64::from(copies);
    }

    /// Some instances more than are needed, because the deadline is near.
    pub(super) fn some_more(&mut self, at: u32, effects: &mut Effects) {
        let task = &self.tasks[at];
        let instances_max = self.jobs[task.job].policy.instances_max.min(INSTANCES_MAX);
        if task.stage != Stage::Open || task.is_speculated || task.unsent > 0 || task.made >= instances_max {
            return;
        }
        let copies = self.copies(at).min(instances_max - task.made);
        self.tasks[at].unsent = copies;
        self.speculates(at, copies);
        self.list(at);
        self.offer(at, effects);
    }

    /// The first of as many equal results as the quorum says.
    fn canonical(&mut self, at: u32, quorum: u8) -> Option<u8> {
        let made = usize::from(self.tasks[at].made);
        let newest = self.tasks[at].newest;
        if quorum <= 1 {
            return self.results(newest).last().map(|instance| self.instances[instance].number);
        }
        // By tags first: they lie in one line.
        let tags = self.tags[at].results;
        let mut numbers: [u8; INSTANCES_MAX as usize] = std::array::from_fn(|number| number as u8);
        numbers[..made].sort_unstable_by_key(|number| tags[*number as usize]);
        let mut start = 0;
        while start < made {
            let tag = tags[numbers[start] as usize];
            let run = numbers[start..made].iter().take_while(|number| tags[**number as usize] == tag).count();
            if tag != 0
                && run >= usize::from(quorum)
                && let Some(found) = self.agreed(newest, tag, quorum, at)
            {
                return Some(found);
            }
            start += run;
        }
        None
    }

    /// The instances from one on, newest first, that have a result.
    fn results(&self, newest: u32) -> impl Iterator<Item = u32> + '_ {
        let next = move |at: u32| (at != NIL).then_some(at);
        std::iter::successors(next(newest), move |at| next(self.instances[*at].before))
            .filter(|at| self.instances[*at].fate == Fate::Done)
    }

    /// The first of as many results as the quorum says that are equal in full, among those with a tag: whoever lies may have chosen
    /// the tag.
    fn agreed(&self, newest: u32, tag: u16, quorum: u8, task: u32) -> Option<u8> {
        let tags = self.tags[task].results;
        let mut found = [(u8::MAX, [0; RESULT_BYTES]); INSTANCES_MAX as usize];
        let mut count = 0;
        for at in self.results(newest) {
            let instance = &self.instances[at];
            if tags[instance.number as usize] == tag {
                found[count] = (instance.number, instance.result);
                count += 1;
            }
        }
        found[..count].sort_unstable();
        let equal = |result: &[u8; RESULT_BYTES]| found[..count].iter().filter(|(_, other)| other == result).count();
        found[..count].iter().find(|(_, result)| equal(result) >= usize::from(quorum)).map(|(number, _)| *number)
    }

    /// Has the user's command look at all results, unless it has looked at these. False: it has.
    fn ask_to_compare(&mut self, at: u32, effects: &mut Effects) -> bool {
        let newest = self.tasks[at].newest;
        let mask = self.results(newest).fold(0u16, |mask, instance| mask | 1 << self.instances[instance].number);
        let task = &mut self.tasks[at];
        if std::mem::replace(&mut task.compared, mask) == mask {
            return false;
        }
        task.stage = Stage::Comparing;
        let name = task.name(at);
        self.unlist(at);
        effects.push(Effect::Compare(name, mask));
        true
    }

    pub(super) fn on_compared(&mut self, name: TaskName, agree: u16, effects: &mut Effects) -> Result<(), Refusal> {
        let at = self.task_at(name)?;
        let task = &mut self.tasks[at];
        if task.stage != Stage::Comparing {
            return Err(Refusal::Invalid("nothing is being compared for this task"));
        }
        task.stage = Stage::Open;
        let (quorum, has_unsent) = (u32::from(task.quorum), task.unsent > 0);
        let agree = agree & task.compared;
        if agree.count_ones() >= quorum.max(1) {
            task.agreed = agree;
            self.decide(at, Ok(agree.trailing_zeros() as u8), effects);
            return Ok(());
        }
        if has_unsent {
            self.list(at);
        }
        self.go_on(at, effects);
        Ok(())
    }

    /// A task has its result, or will have none: the rest is to bring that to where it goes.
    pub(super) fn decide(&mut self, at: u32, result: Result<u8, Failure>, effects: &mut Effects) {
        self.unlist(at);
        let (job_at, group_at) = (self.tasks[at].job, self.tasks[at].group);
        self.leave_group(at, group_at, result.is_ok());
        let task = &mut self.tasks[at];
        task.stage = Stage::Assimilating;
        task.unsent = 0;
        task.canonical = result.unwrap_or(NO_INSTANCE);
        task.failure = result.err();
        let set_aside = std::mem::take(&mut task.set_aside);
        let (name, index) = (task.name(at), task.index);
        self.set_aside -= u32::from(set_aside);
        let key = self.jobs[job_at].key;
        effects.push(Effect::Assimilate { task: name, job: key, index, result });
    }

    /// A task has ended as far as its group is concerned, which is dropped with its last one.
    fn leave_group(&mut self, at: u32, group_at: u32, is_done: bool) {
        let now_ms = self.now_ms();
        let job_at = self.tasks[at].job;
        let (account_at, cost_ms) = (self.jobs[job_at].account, self.jobs[job_at].demand_ms());
        let group = &mut self.groups[group_at];
        group.unfinished -= 1;
        let (unfinished, deadline_ms, is_late, demand) =
            (group.unfinished, group.deadline_ms, group.is_late, group.demand);
        if deadline_ms != 0 {
            let is_met = is_done && now_ms <= deadline_ms;
            let account = &mut self.accounts[account_at];
            account.met += u64::from(is_met);
            account.missed += u64::from(!is_met);
            let totals = &mut self.totals;
            *(if is_met { &mut totals.met } else { &mut totals.missed }) += 1;
            self.demands.take(demand, deadline_ms, cost_ms, is_late);
        }
        self.tasks[at].group = NIL;
        if unfinished == 0 {
            self.drop_group(group_at);
        }
    }

    pub(super) fn on_assimilated(&mut self, names: &[TaskName], effects: &mut Effects) -> Result<(), Refusal> {
        if names.len() > crate::event::BATCH_MAX {
            return Err(Refusal::Invalid("an event has 16 items at most"));
        }
        self.fetch(names.iter().copied());
        for name in names {
            // One that is known no more was assimilated before: the word came twice.
            if let Ok(at) = self.task_at(*name)
                && self.tasks[at].stage == Stage::Assimilating
            {
                self.finish(at, effects);
            }
        }
        Ok(())
    }

    /// All that is left of a task is to be taken apart.
    pub(super) fn finish(&mut self, at: u32, effects: &mut Effects) {
        let task = &mut self.tasks[at];
        task.stage = Stage::Cleaning;
        if task.out == 0 && task.made <= AT_ONCE_MAX {
            while !self.clean_one(at, effects) {}
            return;
        }
        push_back::<Ready, _>(&mut self.tasks, &mut self.cleaning, at);
        self.tasks[at].is_listed = true;
    }

    /// Takes apart what is to be: so many instances at most.
    pub(super) fn clean(&mut self, budget: u32, effects: &mut Effects) {
        for _ in 0..budget {
            let at = self.cleaning;
            if at == NIL {
                return;
            }
            if self.tasks[at].newest == NIL {
                unlink::<Ready, _>(&mut self.tasks, &mut self.cleaning, at);
                self.tasks[at].is_listed = false;
            }
            self.clean_one(at, effects);
        }
    }

    /// Takes the newest instance of a task apart, or, if there is none, the task itself: true then.
    fn clean_one(&mut self, at: u32, effects: &mut Effects) -> bool {
        let instance_at = self.tasks[at].newest;
        if instance_at == NIL {
            self.delete(at, effects);
            return true;
        }
        let host = self.host_of(instance_at);
        let is_right = self.is_right(at, instance_at);
        let fate = self.instances[instance_at].fate;
        if fate == Fate::Out {
            self.recall(instance_at, effects);
        } else if fate == Fate::Done
            && let Some(is_right) = is_right
        {
            self.credit(at, instance_at, host, is_right, effects);
        }
        self.tasks[at].newest = self.instances[instance_at].before;
        self.instances.give(instance_at);
        false
    }

    /// Nobody waits for an instance any more: its host is told, and has room for another.
    fn recall(&mut self, at: u32, effects: &mut Effects) {
        let (host, task, number) = (self.host_of(at), self.instances[at].task, self.instances[at].number);
        let is_overtaken = self.is_overtaken(at);
        self.take_in(at, Fate::Failed);
        if let Some(host) = host {
            let instance = InstanceName { task: self.tasks[task].name(task), number };
            effects.push(Effect::Stop(self.hosts[host].name(host), instance));
            if is_overtaken {
                self.on_silence(host);
            }
            self.feed(host, 1, effects);
        }
    }

    /// Whether an instance that is out was overtaken by a copy that was made later, because its deadline was near: its host may be
    /// dead. A living one answers soon.
    fn is_overtaken(&self, at: u32) -> bool {
        let instance = &self.instances[at];
        let task = &self.tasks[instance.task];
        let policy = &self.jobs[task.job].policy;
        policy.is_speculative
            && !policy.excuses_late
            && !instance.is_watched
            && task.canonical != NO_INSTANCE
            && instance.number < task.canonical
    }

    /// Nobody waits for any instance of a task.
    pub(super) fn recall_all(&mut self, task: u32, effects: &mut Effects) {
        let mut at = self.tasks[task].newest;
        while at != NIL && self.tasks[task].out > 0 {
            if self.instances[at].fate == Fate::Out {
                self.recall(at, effects);
            }
            at = self.instances[at].before;
        }
    }

    /// Whether a result is as the canonical one; `None` if there is none.
    fn is_right(&self, at: u32, instance: u32) -> Option<bool> {
        let task = &self.tasks[at];
        if task.canonical == NO_INSTANCE {
            return None;
        }
        let number = self.instances[instance].number;
        let tags = &self.tags[at];
        // A host alone is right only as far as is known: nobody else has looked.
        Some(match task.agreed {
            0 => tags.results[number as usize] == tags.results[task.canonical as usize],
            agreed => agreed & 1 << number != 0,
        })
    }

    /// A result was judged: the host is trusted more or less, and its account has given processor time.
    fn credit(&mut self, at: u32, instance: u32, host: Option<u32>, is_right: bool, effects: &mut Effects) {
        let account = self.instances[instance].account;
        if is_right {
            let cost_ms = self.jobs[self.tasks[at].job].cost_ms;
            self.accounts[account].given_ms += u64::from(cost_ms);
        }
        let Some(host) = host else { return };
        if self.tasks[at].made == 1 && is_right {
            // Without others beside it a result says nothing but that the host can do something.
            self.hosts[host].wrong = 0;
        } else {
            self.host_more[host].invalid += u32::from(!is_right);
            self.judge(host, is_right, effects);
        }
    }

    fn delete(&mut self, at: u32, effects: &mut Effects) {
        let task = &mut self.tasks[at];
        let (job_at, name, is_done) = (task.job, task.name(at), task.canonical != NO_INSTANCE);
        task.stage = Stage::Free;
        task.generation += 1;
        unlink::<Siblings, _>(&mut self.tasks, &mut self.jobs[job_at].tasks, at);
        self.tasks.give(at);
        let job = &mut self.jobs[job_at];
        self.gauges.held -= u32::from(job.is_held());
        job.unfinished -= 1;
        let account = &mut self.accounts[job.account];
        account.tasks -= 1;
        if is_done {
            job.done += 1;
            account.done += 1;
            self.totals.done += 1;
        } else {
            job.failed += 1;
            account.failed += 1;
            self.totals.failed += 1;
        }
        let has_failed = job.failed > job.failures_max && matches!(job.stage, JobStage::Open | JobStage::Closed);
        effects.push(Effect::Deleted(name));
        if has_failed {
            self.cancel(job_at, effects);
        } else {
            self.end_job(job_at, effects);
        }
    }

    /// A job whose tasks have all ended has ended, if no more can come.
    pub(super) fn end_job(&mut self, at: u32, effects: &mut Effects) {
        let job = &mut self.jobs[at];
        if job.unfinished == 0 && matches!(job.stage, JobStage::Closed | JobStage::Cancelled) {
            job.stage = JobStage::Ended;
            let is_looked_at = job.reap_left > 0;
            effects.push(Effect::JobEnded(job.name(at)));
            if is_looked_at {
                self.look_no_more(at);
            }
        }
    }
}
