//! A client's stream of what it wants done: jobs opened, filled, changed and ended. Each answer is durable.

use crate::desk::Durable;
use crate::greet::REVOKED;
use crate::needs::in_whole_steps;
use crate::placement::Refused;
use crate::registry::trust;
use crate::server::Shared;
use crate::session::ClientSession;
use crate::state::State;
use crate::work::{ASKS, OWNERS_TAGS, TAKES_LAUNCHES};
use base::Digest;
use prost::Message;
use std::collections::HashMap;
use std::sync::Arc;
use tasks::{
    BATCH_MAX, Effect, Entry, Event, JobName, JobSpec, Kind, Need, Platform, Policy, Refusal, Urgency, Validation,
};
use tokio::sync::mpsc;
use wire::message::work::{JobAsk, JobAskKind, JobOpen, JobSubmit, JobTold};
use wire::{Receiver, Sender, lock};

/// Most tasks in one message.
pub const SUBMIT_MAX: u32 = 1024;
/// Without a limit of its own an account has this part of the table at most for its jobs' tasks: one in so many.
const SHARE_OF_ACCOUNT: u32 = 2;
/// This part of the table is kept for commands that somebody waits for: one in so many.
const KEPT_FOR_LAUNCHES: u32 = 8;
/// Answers of one stream that may wait for the disk.
const ANSWERS_MAX: usize = 256;

/// By how much deadlines of one job's messages may differ because of the way they came, in milliseconds.
const DEADLINES_APART_MAX_MS: u64 = 2_000;

/// Until which task of a job it was found that all can be done by one deadline.
pub(crate) struct Promise {
    until: u32,
    deadline_ms: u64,
}

/// What is promised to jobs whose tasks come in several messages: time passes between them, and what fitted exactly would not any more. When
/// the hub starts again it looks again.
#[derive(Default)]
pub(crate) struct Promises(HashMap<JobName, Promise>);

impl Promises {
    /// The deadline by which these tasks can be done, if that is promised.
    fn find(&self, job: JobName, last: u32, asked_ms: u64) -> Option<u64> {
        let promise = self.0.get(&job).filter(|promise| last <= promise.until)?;
        (promise.deadline_ms.abs_diff(asked_ms) <= DEADLINES_APART_MAX_MS).then_some(promise.deadline_ms)
    }

    fn keep(&mut self, job: JobName, promise: Option<Promise>) {
        match promise {
            Some(promise) => drop(self.0.insert(job, promise)),
            None => drop(self.0.remove(&job)),
        }
    }

    /// A job is no more.
    pub fn forget(&mut self, job: JobName) {
        self.keep(job, None);
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl Shared {
    /// Serves such a stream. What is asked is done in order, and without waiting for the answers before.
    pub(crate) async fn serve_jobs(
        self: Arc<Self>,
        client: Arc<ClientSession>,
        sender: Sender,
        mut receiver: Receiver,
    ) {
        let (answers, waiting) = mpsc::channel(ANSWERS_MAX);
        let answering = tokio::spawn(answer(waiting, sender));
        while let Ok(Some(ask)) = receiver.next::<JobAsk>().await {
            let Ok(place) = answers.reserve().await else { break };
            place.send(lock(&self.state).job_asked(client.account(), ask));
        }
        drop(answers);
        let _ = answering.await;
    }
}

/// Gives the answers, each when it is durable.
async fn answer(mut waiting: mpsc::Receiver<(JobTold, Durable)>, mut sender: Sender) {
    while let Some((told, durable)) = waiting.recv().await {
        if durable.await.is_err() || sender.send(&told).await.is_err() {
            return;
        }
    }
    sender.finish();
    sender.stopped().await;
}

impl State {
    fn job_asked(&mut self, account: u128, ask: JobAsk) -> (JobTold, Durable) {
        let told = self.job_done(account, ask).unwrap_or_else(|refusal| self.told_refused(refusal));
        (told, self.placement.desk.durable())
    }

    fn told_refused(&self, refusal: Refusal) -> JobTold {
        let now_ms = self.placement.desk.now_ms();
        let (again_ms, earliest_in_ms) = match refusal {
            Refusal::Full(_, ms) => (ms, 0),
            Refusal::AccountFull(_) | Refusal::AccountJobs(_) => (1_000, 0),
            Refusal::TooLate(when_ms) => (0, when_ms.saturating_sub(now_ms).clamp(1, u32::MAX.into()) as u32),
            _ => (0, 0),
        };
        let is_passing = self.placement.is_passing(&Refused::Table(refusal));
        JobTold { refusal: refusal.to_string(), again_ms, earliest_in_ms, is_passing, ..JobTold::default() }
    }

    fn job_done(&mut self, account: u128, ask: JobAsk) -> Result<JobTold, Refusal> {
        self.placement.desk.is_crowded()?;
        if self.work.kept.has_ended(account) {
            return Err(Refusal::Invalid(REVOKED));
        }
        match ask.kind.ok_or(Refusal::Invalid("an empty question"))? {
            JobAskKind::Open(open) => self.open_job(account, open),
            JobAskKind::Submit(submit) => self.submit(account, &submit),
            JobAskKind::Close(job) => self.change(account, job, Event::Close),
            JobAskKind::Cancel(job) => self.change(account, job, Event::CancelJob),
            JobAskKind::Hold(job) => self.change(account, job, |job| Event::Hold(job, true)),
            JobAskKind::Release(job) => self.change(account, job, |job| Event::Hold(job, false)),
            JobAskKind::Urgency(changed) => {
                let urgency = urgency(changed.urgency)?;
                self.change(account, changed.job, |job| Event::Urgency(job, urgency))
            }
            JobAskKind::Forget(job) => {
                let told = self.change(account, job, Event::Forget)?;
                self.forgets(account, JobName::from_u64(job));
                Ok(told)
            }
        }
    }

    fn open_job(&mut self, account: u128, open: JobOpen) -> Result<JobTold, Refusal> {
        if self.placement.desk.journal().is_none() {
            return Err(Refusal::Invalid("this hub keeps no journal: it takes no jobs"));
        }
        let whose = self.placement.desk.account(account)?;
        let mut spec = spec(account, whose, &open)?;
        let is_driven = open.is_driven;
        let mut kept = JobOpen {
            key: open.key,
            name: open.name,
            common: open.common,
            retries_failures: open.retries_failures,
            memory_mib: open.memory_mib,
            ..JobOpen::default()
        };
        let is_new = self.placement.desk.table().job_with(whose, spec.key).is_none();
        if is_driven && is_new {
            match self.driven_tags(&spec.need, &open.tag_names) {
                Ok(tags) => (spec.need.tags, kept.tags) = (spec.need.tags | tags, tags),
                Err(refused) => return Ok(refused),
            }
            kept.tag_names = self.placement.tags.names(kept.tags);
        }
        spec.need.memory_mib = in_whole_steps(spec.need.memory_mib);
        let kept = kept.encode_to_vec();
        if is_new {
            self.may_open(account, &spec.need)?;
            self.may_bring(account, kept.len())?;
        }
        // One that is there has its bytes: where there is no room for more it is opened again all the same, for its results to be taken.
        let blobs: &[&[u8]] = if is_new { &[&kept] } else { &[] };
        let said = self.act(Entry { event: Event::Open(spec), blobs });
        match said.first() {
            Some(Effect::Job(name, tasks)) => {
                self.work.kept.opened(account, *name, spec.need);
                if is_driven && *tasks == 0 && !self.work.launches.has_driver(*name) {
                    self.act(Event::Away(*name, true));
                }
                let need = self.placement.desk.table().job(*name).map(|view| view.spec.need);
                let workers = need.filter(|_| is_driven).map_or(0, |need| self.placement.workers_for(&need));
                Ok(JobTold { job: name.to_u64(), tasks: *tasks, workers, ..JobTold::default() })
            }
            Some(Effect::Refused(refusal)) => Err(*refusal),
            _ => Err(Refusal::Unknown),
        }
    }

    /// The bits of the tags that a job's launches ask for; or what is told because no worker that is here can have them, also none that
    /// takes no tasks now.
    fn driven_tags(&self, need: &Need, names: &[String]) -> Result<u64, JobTold> {
        let lent = self.placement.lent_in_time();
        let nobody = lent.largest == 0;
        let lack = if nobody { None } else { lent.lacks(need) };
        let tags = lack.map_or_else(|| self.placement.tags.needed(names), Err);
        tags.map_err(|lack| match nobody {
            // After a start of the hub its workers come one by one.
            true => JobTold { refusal: "no worker is here".into(), again_ms: 1_000, ..JobTold::default() },
            false => {
                let refused = Refused::Lack(lack);
                let is_passing = self.placement.is_passing(&refused);
                JobTold { refusal: refused.to_string(), is_passing, ..JobTold::default() }
            }
        })
    }

    /// Takes tasks, as many as there is room for: the answer says how many there are then.
    fn submit(&mut self, account: u128, submit: &JobSubmit) -> Result<JobTold, Refusal> {
        let job = self.own_job(account, submit.job)?;
        if submit.count == 0 || submit.count > SUBMIT_MAX {
            return Err(Refusal::Invalid("1 to 1024 tasks are submitted at a time"));
        }
        if !submit.inputs.is_empty() && submit.inputs.len() != submit.count as usize {
            return Err(Refusal::Invalid("either each task has bytes of its own, or none has"));
        }
        let inputs: Vec<&[u8]> = submit.inputs.iter().map(|input| &input[..]).collect();
        let mut first = submit.first;
        let last = submit.first.checked_add(submit.count).ok_or(Refusal::Invalid("a job has fewer tasks"))?;
        let in_ms = u64::from(submit.deadline_in_ms);
        let asked_ms = if in_ms == 0 { 0 } else { self.placement.desk.now_ms() + in_ms };
        let promised_ms = self.work.promises.find(job, last, asked_ms);
        let (deadline_ms, mut is_promised) = (promised_ms.unwrap_or(asked_ms), promised_ms.is_some());
        let mut refused = None;
        while first < last && refused.is_none() {
            let fitting = match self.fitting(job, first) {
                Ok(fitting) => fitting,
                Err(full) => {
                    refused = Some(full);
                    break;
                }
            };
            let count = (last - first).min(BATCH_MAX as u32).min(fitting);
            let at = (first - submit.first) as usize;
            let blobs = inputs.get(at..at + count as usize).unwrap_or_default();
            let known = self.placement.desk.table().job(job).map_or(0, |view| view.tasks.saturating_sub(first));
            if known >= count {
                // They are there, also where there is no room for more.
                first += count;
                continue;
            }
            let more = blobs.iter().skip(known as usize).map(|blob| blob.len()).sum();
            if let Err(full) = self.may_bring(account, more) {
                refused = Some(full);
                break;
            }
            let later = submit.later.saturating_add(last - first - count);
            let event = Event::Submit { job, first, count: count as u8, later, is_promised, deadline_ms };
            let said = self.act(Entry { event, blobs });
            refused = said.iter().find_map(|effect| match effect {
                Effect::Refused(refusal) => Some(*refusal),
                _ => None,
            });
            first += count;
            is_promised |= deadline_ms != 0 && said.iter().any(|effect| matches!(effect, Effect::Submitted(_)));
        }
        let tasks = self.placement.desk.table().job(job).map_or(0, |view| view.tasks);
        if is_promised {
            let until = last.saturating_add(submit.later);
            self.work.promises.keep(job, (tasks < until).then_some(Promise { until, deadline_ms }));
        }
        let told = refused.map_or_else(JobTold::default, |refusal| self.told_refused(refusal));
        Ok(JobTold { job: submit.job, tasks, ..told })
    }

    /// How many tasks of a job, from one of them on, its account has room for. Without limits of its own an account has half of the table
    /// at most, and the last eighth is left to commands that somebody waits for.
    fn fitting(&self, job: JobName, first: u32) -> Result<u32, Refusal> {
        let table = self.placement.desk.table();
        let view = table.job(job).and_then(|view| Some((view.tasks, table.account_view(view.spec.account)?)));
        let (known, account) = view.ok_or(Refusal::Unknown)?;
        let all = table.capacity().tasks as u32;
        let left = all.saturating_sub(table.counts()[3] as u32).saturating_sub(all / KEPT_FOR_LAUNCHES);
        let most = match account.spec.tasks_max {
            u32::MAX => all / SHARE_OF_ACCOUNT,
            limit => limit,
        };
        let known = known.saturating_sub(first);
        match (known, most.saturating_sub(account.tasks), left) {
            (0, 0, _) => Err(Refusal::AccountFull(most)),
            (0, _, 0) => Err(Refusal::Full(Kind::Tasks, 1_000)),
            (known, room, left) => Ok(known.saturating_add(room.min(left))),
        }
    }

    fn change(
        &mut self,
        account: u128,
        job: u64,
        event: impl FnOnce(JobName) -> Event<'static>,
    ) -> Result<JobTold, Refusal> {
        let name = self.own_job(account, job)?;
        let said = self.act(event(name));
        if let Some(Effect::Refused(refusal)) = said.first() {
            return Err(*refusal);
        }
        let tasks = self.placement.desk.table().job(name).map_or(0, |view| view.tasks);
        Ok(JobTold { job, tasks, ..JobTold::default() })
    }

    /// A job of this account: nobody learns of others'.
    pub(crate) fn own_job(&self, account: u128, job: u64) -> Result<JobName, Refusal> {
        let (name, table) = (JobName::from_u64(job), self.placement.desk.table());
        let own = table.account(account).ok_or(Refusal::Unknown)?;
        let view = table.job(name).ok_or(Refusal::Unknown)?;
        if view.spec.account == own && !view.spec.is_volatile { Ok(name) } else { Err(Refusal::Unknown) }
    }
}

/// A job's name here: what the client chose, within its account.
pub(super) fn key(account: u128, chosen: &[u8]) -> Result<u128, Refusal> {
    if chosen.len() != 16 {
        return Err(Refusal::Invalid("a job's key has 16 bytes"));
    }
    Ok(Digest::of(&[&account.to_le_bytes(), chosen].concat()).first_u128_le())
}

fn urgency(number: u32) -> Result<Urgency, Refusal> {
    match number {
        1 => Ok(Urgency::Interactive),
        0 | 2 => Ok(Urgency::Normal),
        3 => Ok(Urgency::Spare),
        _ => Err(Refusal::Invalid("an urgency that this hub does not know")),
    }
}

fn spec(account: u128, whose: tasks::AccountName, open: &JobOpen) -> Result<JobSpec, Refusal> {
    let usual = Policy::default();
    let small = |number: u32, if_0: u8| if number == 0 { if_0 } else { number.min(u8::MAX.into()) as u8 };
    let quorum = small(open.quorum, 1);
    let target = small(open.target, quorum);
    let instances_max = small(open.instances_max, target.saturating_add(4).min(tasks::INSTANCES_MAX));
    Ok(JobSpec {
        key: key(account, &open.key)?,
        account: whose,
        urgency: urgency(open.urgency)?,
        need: Need {
            platform: Platform::LINUX_X86_64,
            level: open.level.min(4) as u8,
            cpus: open.cpus.clamp(1, u16::MAX.into()) as u16,
            memory_mib: open.memory_mib,
            tags: open.tags & OWNERS_TAGS | if open.is_driven { TAKES_LAUNCHES | trust::KNOWN } else { ASKS },
            is_homogeneous: open.is_homogeneous,
        },
        policy: Policy {
            quorum,
            target,
            instances_max,
            errors_max: open.errors_max.min(u8::MAX.into()) as u8,
            // More results than that, and no agreement, mean that there is none to be had.
            successes_max: quorum.saturating_add(4).min(instances_max),
            validation: if open.is_compared { Validation::Command } else { Validation::Bitwise },
            is_adaptive: open.is_adaptive,
            is_speculative: open.is_speculative,
            drops_late: open.drops_late,
            excuses_late: open.is_driven,
            delay_bound_ms: if open.delay_bound_ms == 0 { usual.delay_bound_ms } else { open.delay_bound_ms },
        },
        cost_ms: open.cost_ms.max(1),
        affinity: 0,
        failures_max: open.failures_max,
        is_volatile: false,
    })
}
