//! What people and other parts may know of the table. Looking changes nothing, and lists come in pages.

use super::Table;
use super::records::{AWAY, Fate, HELD, Instance, JobStage, NO_INSTANCE, Presence, Stage, Standing};
use crate::event::{Failure, JobSpec, Urgency};
use crate::kinds::{Misfit, misfit};
use crate::names::{AccountName, HostName, InstanceName, JobName, TaskName};
use crate::shapes::NIL;
use crate::snapshot::saved;

/// Kinds of hosts of which it is said why they cannot have a task.
const MISFITS_MAX: usize = 8;

/// What has happened since the table was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Hosts that are there.
    pub hosts: u32,
    /// Tasks submitted.
    pub submitted: u64,
    /// Instances sent.
    pub sent: u64,
    /// Tasks that had a result, and were deleted.
    pub done: u64,
    /// Tasks that had none.
    pub failed: u64,
    /// Instances lost with their host, or in time.
    pub lost: u64,
    /// Of these, in time.
    pub late: u64,
    /// Instances added because a deadline was near.
    pub speculated: u64,
    /// Deadlines met.
    pub met: u64,
    /// Deadlines missed that had been admitted: wrong acceptances.
    pub missed: u64,
    /// Submissions refused because their deadline could not be met.
    pub too_late: u64,
    /// Events refused, for whatever reason.
    pub refused: u64,
    /// Hosts sent back for a while.
    pub back_offs: u64,
}

saved!(Totals {
    hosts: u32,
    submitted: u64,
    sent: u64,
    done: u64,
    failed: u64,
    lost: u64,
    late: u64,
    speculated: u64,
    met: u64,
    missed: u64,
    too_late: u64,
    refused: u64,
    back_offs: u64,
});

/// What there is now: counted as it changes, so that nobody who asks has to look through the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Tasks of which instances are to be sent, those of held jobs among them.
    pub ready: u32,
    /// Tasks of which instances are out.
    pub running: u32,
    /// Tasks of jobs that are held, or whose owner is away, until they are deleted; some of them may still run.
    pub held: u32,
    /// Instances that are out.
    pub out: u32,
    /// Processors that the hosts lend.
    pub cpus: u64,
    /// Processors that instances have.
    pub cpus_busy: u64,
}

/// A task, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskView {
    /// Its job, and its number within.
    pub job: JobName,
    /// See `job`.
    pub index: u32,
    /// Instances still to be sent, out, and made in all.
    pub unsent: u8,
    /// See `unsent`.
    pub out: u8,
    /// See `unsent`.
    pub made: u8,
    /// Results, and how many must agree.
    pub successes: u8,
    /// See `successes`.
    pub quorum: u8,
    /// Instances that failed or were lost.
    pub errors: u8,
    /// Its result: the instance that has it, or why there is none. `None`: not decided.
    pub result: Option<Result<u8, Failure>>,
    /// When it must be done, in milliseconds of the hub's time; 0: no deadline, or decided.
    pub deadline_ms: u64,
}

/// An instance, as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceView {
    /// Which.
    pub name: InstanceName,
    /// Where it went, if that host is still there.
    pub host: Option<HostName>,
    /// Whose host that was.
    pub account: AccountName,
    /// Out, or what came.
    pub state: InstanceState,
    /// When it is given up, in milliseconds of the hub's time; 0: it is not out.
    pub due_ms: u64,
}

/// What has become of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstanceState {
    /// It is at its host.
    Out,
    /// A result came.
    Done,
    /// It failed or was lost.
    Failed,
    /// Nothing came in time.
    Late,
}

/// A job, as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobView {
    /// Its name.
    pub name: JobName,
    /// What it was opened with, its urgency as it is now.
    pub spec: JobSpec,
    /// Tasks submitted.
    pub tasks: u32,
    /// Those that have not ended.
    pub unfinished: u32,
    /// Those with a result.
    pub done: u32,
    /// Those without.
    pub failed: u32,
    /// It is held.
    pub is_held: bool,
    /// Who is needed to run its tasks is away.
    pub is_away: bool,
    /// Tasks may still come.
    pub is_open: bool,
    /// All its tasks have ended, and no more will come.
    pub has_ended: bool,
}

/// A host, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostView {
    /// Whose it is.
    pub account: AccountName,
    /// Processors that are free, of how many.
    pub cpus_free: i32,
    /// See `cpus_free`.
    pub cpus: u16,
    /// What it has.
    pub running: Vec<InstanceName>,
    /// Results in a row that were right.
    pub right: u16,
    /// It is sent back for a while.
    pub is_backing_off: bool,
    /// It was late, and nothing was heard of it since: it gets nothing for a while.
    pub is_silent: bool,
    /// It gets nothing more.
    pub is_draining: bool,
}

/// How busy a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostLoad {
    /// Processors that are free; below zero where it lends less than it did.
    pub cpus_free: i32,
    /// Processors that it lends.
    pub cpus: u16,
    /// How fast one is taken to be: see [`HostSpec`](crate::HostSpec).
    pub speed_permille: u32,
    /// It has what was asked for near.
    pub is_warm: bool,
}

/// Why a task that is ready is not running, as placement sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waits {
    /// It is decided, or all its instances are out.
    Not,
    /// The user's command looks at its results.
    Compared,
    /// Its job is held or cancelled.
    Held,
    /// Who is needed to run its tasks is away.
    Away,
    /// No host has joined.
    NoHosts,
    /// No host that is there can ever have it: for some kinds of hosts, why.
    FitsNowhere(Vec<Misfit>),
    /// All hosts that can have it lend nothing for now.
    Resting,
    /// Its account has as many instances out as it may.
    AccountLimit(u32),
    /// The accounts of all hosts that asked have a copy of it, or had one: another is waited for.
    OtherAccounts,
    /// Other groups of its account stand before it.
    OthersOfAccount,
    /// Its turn will come: so much more urgent, or other accounts' work, is waiting.
    Turn(Urgency),
}

impl Table {
    /// When the last event was, in nanoseconds of the hub's time.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The account with this key.
    pub fn account(&self, key: u128) -> Option<AccountName> {
        let at = self.account_keys.find(key, |at| self.accounts[at].key == key)?;
        Some(self.accounts[at].name(at))
    }

    /// The job of an account with this key.
    pub fn job_with(&self, account: AccountName, key: u128) -> Option<JobName> {
        let account = self.account_at(account).ok()?;
        let is_it = |at: u32| self.jobs[at].key == key && self.jobs[at].account == account;
        self.job_keys.find(key, is_it).map(|at| self.jobs[at].name(at))
    }

    /// The task of a job with this number, if it is among so many that are looked at.
    pub fn task_with(&self, job: JobName, index: u32, looks: usize) -> Option<TaskName> {
        self.siblings(job).take(looks).find(|name| self.tasks[name.at].index == index)
    }

    /// The first task of a job that is ready.
    pub fn ready_of(&self, job: JobName) -> Option<TaskName> {
        let job = &self.jobs[self.job_at(job).ok()?];
        let mut group = job.groups;
        for _ in 0..job.group_count {
            let at = self.groups[group].ready;
            if at != NIL {
                return Some(self.tasks[at].name(at));
            }
            group = self.groups[group].siblings.next;
        }
        None
    }

    /// What has happened so far.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// What there is now.
    pub fn gauges(&self) -> &Gauges {
        &self.gauges
    }

    /// The same, by looking through the table.
    pub(super) fn counted(&self) -> Gauges {
        let mut found = Gauges::default();
        for (_, task) in self.tasks.all().filter(|(_, task)| task.stage != Stage::Free) {
            found.ready += u32::from(task.stage == Stage::Open && task.is_listed);
            found.running += u32::from(task.out > 0);
            found.out = found.out.saturating_add(task.out.into());
        }
        for (_, job) in self.jobs.all().filter(|(_, job)| job.is_held()) {
            found.held = found.held.saturating_add(job.unfinished);
        }
        for (_, host) in self.hosts.all().filter(|(_, host)| host.presence != Presence::Free) {
            let cpus = self.kinds.shape(host.kind).cpus;
            let is_there = host.presence != Presence::Gone;
            found.cpus += if is_there { u64::from(cpus) } else { 0 };
            found.cpus_busy += u64::try_from(i64::from(cpus) - i64::from(host.cpus_free)).unwrap_or(0);
        }
        found
    }

    /// How many accounts, hosts, jobs, tasks and instances there are.
    pub fn counts(&self) -> [usize; 5] {
        [self.accounts.used(), self.hosts.used(), self.jobs.used(), self.tasks.used(), self.instances.used()]
    }

    /// A task, if it is there.
    pub fn task(&self, name: TaskName) -> Option<TaskView> {
        let at = self.task_at(name).ok()?;
        let task = &self.tasks[at];
        let decided = || if task.canonical == NO_INSTANCE { task.failure.map(Err) } else { Some(Ok(task.canonical)) };
        Some(TaskView {
            job: self.jobs[task.job].name(task.job),
            index: task.index,
            unsent: task.unsent,
            out: task.out,
            made: task.made,
            successes: task.successes,
            quorum: task.quorum,
            errors: task.errors,
            result: decided(),
            deadline_ms: if task.group == NIL { 0 } else { self.groups[task.group].deadline_ms },
        })
    }

    /// Whether a task is there.
    pub fn is_there(&self, name: TaskName) -> bool {
        self.task_at(name).is_ok()
    }

    /// Whether a task's client sends it again when the hub starts anew.
    pub fn is_volatile(&self, name: TaskName) -> bool {
        self.task_at(name).is_ok_and(|at| self.jobs[self.tasks[at].job].is_volatile)
    }

    /// Whether a host is sent tasks as they come.
    pub fn is_attached(&self, name: HostName) -> bool {
        self.host_at(name).is_ok_and(|at| self.hosts[at].is_attached)
    }

    /// Whether a report of this host about that instance would be taken: it was sent there, and nothing came yet.
    pub fn awaits(&self, host: HostName, instance: InstanceName) -> bool {
        let (Ok(host), Ok(task)) = (self.host_at(host), self.task_at(instance.task)) else { return false };
        let is_awaited =
            |at: u32| self.host_of(at) == Some(host) && matches!(self.instances[at].fate, Fate::Out | Fate::Late);
        self.instance_of(task, instance.number).is_some_and(is_awaited)
    }

    /// The instances of a task, the newest first.
    pub fn instances(&self, name: TaskName) -> Vec<InstanceView> {
        let Ok(task) = self.task_at(name) else { return Vec::new() };
        let next = |at: u32| (at != NIL).then_some(at);
        let all = std::iter::successors(next(self.tasks[task].newest), |at| next(self.instances[*at].before));
        all.map(|at| {
            let instance = &self.instances[at];
            InstanceView {
                name: InstanceName { task: name, number: instance.number },
                host: self.host_of(at).map(|host| self.hosts[host].name(host)),
                account: self.accounts[instance.account].name(instance.account),
                state: match instance.fate {
                    Fate::Out => InstanceState::Out,
                    Fate::Done => InstanceState::Done,
                    Fate::Failed => InstanceState::Failed,
                    Fate::Late => InstanceState::Late,
                },
                due_ms: if instance.fate == Fate::Out { self.due_ms(instance) } else { 0 },
            }
        })
        .collect()
    }

    /// When an instance that is out is given up.
    fn due_ms(&self, instance: &Instance) -> u64 {
        let now_ms = self.now_ms();
        // Of the timer's time the low bits are kept: it is nearer than half of what these can tell.
        let left_ms = instance.due_ms.wrapping_sub(now_ms as u32) as i32;
        let delay_ms = self.jobs[self.tasks[instance.task].job].policy.delay_bound_ms;
        let after_ms = if instance.is_watched { delay_ms } else { 0 };
        now_ms.saturating_add_signed(left_ms.into()) + u64::from(after_ms)
    }

    /// A job, if it is there.
    pub fn job(&self, name: JobName) -> Option<JobView> {
        let at = self.job_at(name).ok()?;
        let job = &self.jobs[at];
        let spec = JobSpec {
            key: job.key,
            account: self.accounts[job.account].name(job.account),
            urgency: job.urgency,
            need: *self.kinds.need(job.need),
            policy: job.policy,
            cost_ms: job.cost_ms,
            affinity: job.affinity,
            failures_max: job.failures_max,
            is_volatile: job.is_volatile,
        };
        Some(JobView {
            name,
            spec,
            tasks: job.submitted,
            unfinished: job.unfinished,
            done: job.done,
            failed: job.failed,
            is_held: job.held & HELD != 0,
            is_away: job.held & AWAY != 0,
            is_open: job.stage == JobStage::Open,
            has_ended: job.stage == JobStage::Ended,
        })
    }

    /// The jobs after one (from the first on with `None`), at most `count`.
    pub fn jobs_after(&self, after: Option<JobName>, count: usize) -> Vec<JobName> {
        let from = after.map_or(0, |name| name.at + 1);
        let live = self.jobs.all().skip(from as usize).filter(|(_, job)| job.generation % 2 == 1);
        live.take(count).map(|(at, job)| job.name(at)).collect()
    }

    /// The tasks of a job that are there, at most `count`.
    pub fn tasks_of(&self, name: JobName, count: usize) -> Vec<TaskName> {
        self.siblings(name).take(count).collect()
    }

    fn siblings(&self, job: JobName) -> impl Iterator<Item = TaskName> + '_ {
        let first = self.job_at(job).map_or(NIL, |job| self.jobs[job].tasks);
        let next = move |at: u32| (at != first).then_some(at);
        let all = std::iter::successors((first != NIL).then_some(first), move |at| next(self.tasks[*at].siblings.next));
        all.map(|at| self.tasks[at].name(at))
    }

    /// A host, if it is there.
    pub fn host(&self, name: HostName) -> Option<HostView> {
        let at = self.host_at(name).ok()?;
        let host = &self.hosts[at];
        let places = (0..u128::BITS).filter(|place| host.places & (1 << place) != 0);
        let running = places.map(|place| {
            let instance = &self.instances[self.host_more[at].running[place as usize]];
            let task = self.tasks[instance.task].name(instance.task);
            InstanceName { task, number: instance.number }
        });
        Some(HostView {
            account: self.accounts[host.account].name(host.account),
            cpus_free: host.cpus_free,
            cpus: self.kinds.shape(host.kind).cpus,
            running: running.collect(),
            right: host.right,
            is_backing_off: host.is_backing_off,
            is_silent: host.is_silent,
            is_draining: host.presence == Presence::Draining,
        })
    }

    /// How many hosts, among the first so many, are sent back for a while.
    pub fn backing_off(&self, looks: usize) -> usize {
        let is_back = |host: &super::records::Host| host.presence == Presence::Here && host.is_backing_off;
        self.hosts.all().take(looks).filter(|(_, host)| is_back(host)).count()
    }

    /// How busy a host is, and whether it has something near ([`JobSpec::affinity`]).
    pub fn load(&self, name: HostName, affinity: u32) -> Option<HostLoad> {
        let at = self.host_at(name).ok()?;
        let host = &self.hosts[at];
        Some(HostLoad {
            cpus_free: host.cpus_free,
            cpus: self.kinds.shape(host.kind).cpus,
            speed_permille: self.host_more[at].speed_permille,
            is_warm: affinity != 0 && self.host_more[at].warm.contains(&affinity),
        })
    }

    /// Why a task is not running: by what placement looks at, in its order. `None`: there is no such task.
    pub fn waits(&self, name: TaskName) -> Option<Waits> {
        let at = self.task_at(name).ok()?;
        let task = &self.tasks[at];
        let job = &self.jobs[task.job];
        Some(match task.stage {
            Stage::Comparing => Waits::Compared,
            Stage::Open if task.unsent > 0 => {
                if job.held == AWAY {
                    return Some(Waits::Away);
                }
                if job.held != 0 {
                    return Some(Waits::Held);
                }
                self.why_unsent(task.group, job.account, job.need)
            }
            _ => Waits::Not,
        })
    }

    fn why_unsent(&self, group: u32, account: u32, need: u16) -> Waits {
        if self.totals.hosts == 0 {
            return Waits::NoHosts;
        }
        let need = self.kinds.need(need);
        let kinds = 0..self.kinds.counts().0 as u16;
        let there = kinds.filter(|kind| self.supply[u32::from(*kind)] > 0).map(|kind| self.kinds.shape(kind));
        let (mut misfits, mut any_fits, mut any_lends) = (Vec::new(), false, false);
        for shape in there {
            match misfit(shape, need) {
                Some(misfit) => misfits.push(misfit),
                None => (any_fits, any_lends) = (true, any_lends || shape.cpus > 0),
            }
        }
        if !any_fits {
            misfits.truncate(MISFITS_MAX);
            return Waits::FitsNowhere(misfits);
        }
        if !any_lends {
            return Waits::Resting;
        }
        let account = &self.accounts[account];
        if account.running >= account.running_max {
            return Waits::AccountLimit(account.running_max);
        }
        if self.groups[group].standing == Standing::Aside {
            return Waits::OtherAccounts;
        }
        let lane = self.groups[group].lane;
        if self.head(lane) != group { Waits::OthersOfAccount } else { Waits::Turn(self.lanes[lane].urgency) }
    }
}
