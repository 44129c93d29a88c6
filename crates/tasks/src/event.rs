//! What happens to the table, and what it wants done: all that goes in and out.

use crate::kinds::{Need, Shape};
use crate::names::{AccountName, HostName, InstanceName, JobName, TaskName};
use crate::snapshot::{saved, saved_choice};
use std::fmt;

/// Most items in one event: tasks, results, instances.
pub const BATCH_MAX: usize = 16;
/// Most instances of one task.
pub const INSTANCES_MAX: u8 = 16;
/// Most instances that one host has at a time. A larger machine joins as several hosts.
pub const RUNNING_MAX: usize = 128;
/// Most deadlines that the unfinished tasks of one job have at a time.
pub const DEADLINES_MAX: u8 = 16;
/// Most accounts with a reserved share.
pub const RESERVED_MAX: usize = 16;
/// The longest delay bound of an instance, and the farthest deadline: ten days, in milliseconds.
pub const DELAY_MAX_MS: u32 = 864_000_000;

/// How urgent a job is. Within one, accounts take turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Urgency {
    /// Somebody waits for each task at a terminal.
    Interactive,
    /// With deadlines, within the account's reserved share. Jobs get it by themselves, see [`AccountSpec::share_permille`].
    Reserved,
    /// As soon as possible.
    #[default]
    Normal,
    /// When nothing else is to be done.
    Spare,
}

saved_choice!(Urgency { Interactive = 0, Reserved = 1, Normal = 2, Spare = 3 });

impl Urgency {
    /// All of them, the most urgent first.
    pub const ALL: [Self; 4] = [Self::Interactive, Self::Reserved, Self::Normal, Self::Spare];
}

/// Who looks whether results are right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Validation {
    /// As many equal results as the quorum says: by the digest of what the task changed.
    #[default]
    Bitwise,
    /// A command of the user, over as many results as the quorum says ([`Effect::Compare`]); with a quorum of 1, over each.
    Command,
}

saved_choice!(Validation { Bitwise = 0, Command = 1 });

/// How a job's tasks are to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Results that must agree, each of another account.
    pub quorum: u8,
    /// Instances that are made at first; at least the quorum.
    pub target: u8,
    /// Most instances of one task, also of those that were lost.
    pub instances_max: u8,
    /// A task with more errors than that has failed.
    pub errors_max: u8,
    /// A task with more results than that and no quorum has failed.
    pub successes_max: u8,
    /// Who looks.
    pub validation: Validation,
    /// Hosts whose results were right for long need no others beside theirs, except now and then.
    pub is_adaptive: bool,
    /// Shortly before its deadline a task without result gets some instances more.
    pub is_speculative: bool,
    /// A task that has missed its deadline is given up.
    pub drops_late: bool,
    /// An instance that is late says nothing against its host: it may be the task that takes too long.
    pub excuses_late: bool,
    /// From sending until an instance is given up, in milliseconds.
    pub delay_bound_ms: u32,
}

saved!(Policy {
    quorum: u8,
    target: u8,
    instances_max: u8,
    errors_max: u8,
    successes_max: u8,
    validation: Validation,
    is_adaptive: bool,
    is_speculative: bool,
    drops_late: bool,
    excuses_late: bool,
    delay_bound_ms: u32,
});

impl Policy {
    /// Whether a result is good only with another account's beside it.
    pub fn needs_agreement(&self) -> bool {
        self.quorum > 1
    }
}

impl Default for Policy {
    /// One instance, which is given up after an hour and then made anew, four times.
    fn default() -> Self {
        Self {
            quorum: 1,
            target: 1,
            instances_max: 5,
            errors_max: 4,
            successes_max: 5,
            validation: Validation::Bitwise,
            is_adaptive: false,
            is_speculative: false,
            drops_late: false,
            excuses_late: false,
            delay_bound_ms: 3_600_000,
        }
    }
}

/// An account, as it is added or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountSpec {
    /// Its name outside.
    pub key: u128,
    /// Its part in the turns of accounts; at least 1.
    pub weight: u16,
    /// The part of all processors that is reserved for its deadlines, in thousandths.
    pub share_permille: u16,
    /// Most tasks that it may have in the table.
    pub tasks_max: u32,
    /// Most instances of its tasks that may be out at a time.
    pub running_max: u32,
}

saved!(AccountSpec { key: u128, weight: u16, share_permille: u16, tasks_max: u32, running_max: u32 });

/// A host, as it joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSpec {
    /// Its name outside.
    pub key: u128,
    /// Whose it is.
    pub account: AccountName,
    /// What it is.
    pub shape: Shape,
    /// How fast one processor is, in thousandths of the one that costs are given for.
    pub speed_permille: u32,
    /// It has started anew: what it had is lost. Otherwise it goes on with it.
    pub is_fresh: bool,
    /// It is connected, and sent tasks as they come. Otherwise it asks ([`Event::Request`]).
    pub is_attached: bool,
}

saved!(HostSpec {
    key: u128,
    account: AccountName,
    shape: Shape,
    speed_permille: u32,
    is_fresh: bool,
    is_attached: bool,
});

/// A job, as it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobSpec {
    /// Its name outside, within its account: opening it again gives the same job.
    pub key: u128,
    /// Whose it is.
    pub account: AccountName,
    /// How urgent.
    pub urgency: Urgency,
    /// What each task needs.
    pub need: Need,
    /// How they are done.
    pub policy: Policy,
    /// Processor time of one task at speed 1000, estimated, in milliseconds; at least 1.
    pub cost_ms: u32,
    /// Hosts with the same number have what these tasks need near; 0: none.
    pub affinity: u32,
    /// With more failed tasks than that the job is cancelled.
    pub failures_max: u32,
    /// Its tasks are forgotten when the hub starts anew: their client sends them again.
    pub is_volatile: bool,
}

saved!(JobSpec {
    key: u128,
    account: AccountName,
    urgency: Urgency,
    need: Need,
    policy: Policy,
    cost_ms: u32,
    affinity: u32,
    failures_max: u32,
    is_volatile: bool,
});

/// What came of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A result, by the digest of what was changed and printed.
    Done([u8; 32]),
    /// It could not be done there.
    Failed,
    /// It was done there and came to no good end, which says nothing against the host.
    Unsuccessful,
}

/// An instance that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Which.
    pub instance: InstanceName,
    /// How.
    pub outcome: Outcome,
    /// Processor time that it took at speed 1000, in milliseconds.
    pub cost_ms: u32,
}

/// Something happens. An event carries [`BATCH_MAX`] items at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// An account is added, or changed.
    Account(AccountSpec),
    /// A host joins, or comes back.
    Join(HostSpec),
    /// A host is gone for good: what it had is done elsewhere.
    Leave(HostName),
    /// A host lends more or less than before. What it has goes on, also beyond that.
    Resize(HostName, Shape),
    /// A task gets more or less of one of its processors than before, as it is foretold: [`HostSpec::speed_permille`].
    Speed(HostName, u32),
    /// A host gets no more tasks, or gets them again.
    Drain(HostName, bool),
    /// A host has this near, of late ([`JobSpec::affinity`]).
    Warm(HostName, u32),
    /// A job is opened.
    Open(JobSpec),
    /// Tasks of a job. Those before [`JobView::tasks`](crate::JobView) were submitted already, and are not taken again.
    Submit {
        /// Their job.
        job: JobName,
        /// The number of the first one within the job.
        first: u32,
        /// How many.
        count: u8,
        /// How many follow with the same deadline: none is taken if not all can be done in time.
        later: u32,
        /// They were among those that followed when it was found that all can be done in time: that holds.
        is_promised: bool,
        /// When they must be done, in milliseconds of the hub's time; 0: no deadline.
        deadline_ms: u64,
    },
    /// No more tasks will come: once all are done, so is the job.
    Close(JobName),
    /// A host wants so many instances.
    Request {
        /// Which host.
        host: HostName,
        /// How many.
        want: u8,
    },
    /// Instances have ended, and the host wants so many others.
    Report {
        /// Which host.
        host: HostName,
        /// What ended.
        reports: &'a [Report],
        /// How many more it wants, unless it is attached.
        want: u8,
    },
    /// What the user's command said of results.
    Compared {
        /// Of which task.
        task: TaskName,
        /// Those that agree: bit n is instance n. None: there is no quorum among them.
        agree: u16,
    },
    /// The result has reached where it goes ([`Effect::Assimilate`]).
    Assimilated(&'a [TaskName]),
    /// A task is no longer wanted.
    CancelTask(TaskName),
    /// A job is no longer wanted.
    CancelJob(JobName),
    /// A job's tasks wait, or go on.
    Hold(JobName, bool),
    /// Who is needed to run a job's tasks is away, or is back. They wait meanwhile, beside being held.
    Away(JobName, bool),
    /// A job becomes more or less urgent.
    Urgency(JobName, Urgency),
    /// A job that is done is forgotten.
    Forget(JobName),
    /// Time has passed.
    Tick,
}

/// Why an event was not done. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The name is of nothing that is there (any more).
    Unknown,
    /// The table has no room for more of these; when to try again, in milliseconds.
    Full(Kind, u32),
    /// The account has as many tasks as it may.
    AccountFull(u32),
    /// The account has as many jobs as it may.
    AccountJobs(u32),
    /// A value is outside its range.
    Invalid(&'static str),
    /// No host that has joined can ever do it.
    FitsNowhere,
    /// It cannot be done in time: when it could be, in milliseconds of the hub's time.
    TooLate(u64),
    /// More deadlines at a time than [`DEADLINES_MAX`].
    Deadlines,
    /// The job takes no more tasks: closed, cancelled or done.
    Ended,
    /// Tasks between those that are known and these have not come.
    Gap(u32),
}

/// Of what the table is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Accounts.
    Accounts,
    /// Hosts.
    Hosts,
    /// Kinds of hosts or of needs.
    Kinds,
    /// Jobs.
    Jobs,
    /// Tasks.
    Tasks,
    /// Deadlines of jobs.
    Deadlines,
    /// Reserved shares.
    Shares,
    /// Bytes of jobs, tasks and results.
    Bytes,
    /// The journal: the disk is behind.
    Journal,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => write!(f, "there is nothing of that name (any more)"),
            Self::Full(Kind::Journal, _) => write!(f, "the hub's disk is behind; try again later"),
            Self::Full(kind, _) => write!(f, "the hub has no room for more {}; try again later", kind.plural()),
            Self::AccountFull(max) => write!(f, "the account has as many tasks at the hub as it may have: {max}"),
            Self::AccountJobs(max) => write!(
                f,
                "the account has as many jobs at the hub as it may have: {max}; it may open another when one of them is forgotten"
            ),
            Self::Invalid(what) => write!(f, "{what}"),
            Self::FitsNowhere => write!(f, "no host that has joined can do it"),
            Self::TooLate(_) => f.write_str("it cannot be done by its deadline"),
            Self::Deadlines => write!(f, "unfinished tasks of one job have {DEADLINES_MAX} deadlines at most"),
            Self::Ended => write!(f, "the job takes no more tasks"),
            Self::Gap(next) => write!(f, "the next task of this job is number {next}"),
        }
    }
}

impl Kind {
    fn plural(self) -> &'static str {
        match self {
            Self::Accounts => "accounts",
            Self::Hosts => "hosts",
            Self::Kinds => "kinds of hosts and needs",
            Self::Jobs => "jobs",
            Self::Tasks => "tasks",
            Self::Deadlines => "deadlines",
            Self::Shares => "reserved shares",
            Self::Bytes => "bytes of jobs, tasks and results",
            Self::Journal => "records",
        }
    }
}

/// Why a task has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Too many instances failed.
    Errors,
    /// As many instances as there may be, and no quorum.
    Instances,
    /// As many results as there may be, and no quorum.
    NoConsensus,
    /// It missed its deadline, and was to be dropped then.
    Late,
    /// Cancelled.
    Cancelled,
}

saved_choice!(Failure { Errors = 0, Instances = 1, NoConsensus = 2, Late = 3, Cancelled = 4 });

/// Something is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The event was refused.
    Refused(Refusal),
    /// The account's name in the table.
    Account(AccountName),
    /// The host's name in the table.
    Host(HostName),
    /// The job's name in the table, and how many tasks it has.
    Job(JobName, u32),
    /// A task's name in the table.
    Submitted(TaskName),
    /// Send this instance to that host.
    Send {
        /// Where to.
        host: HostName,
        /// What.
        instance: InstanceName,
        /// Its number within its job.
        index: u32,
        /// When it is given up, in milliseconds of the hub's time.
        due_ms: u64,
    },
    /// There is nothing (more) for a host that asked; when to ask again, in milliseconds.
    Nothing(HostName, u32),
    /// A host need not go on with that: it is done, cancelled or given up.
    Stop(HostName, InstanceName),
    /// Have the user's command look at these results: bit n is instance n.
    Compare(TaskName, u16),
    /// Bring the canonical result to where it goes, or tell the failure. At least once; its key stays the same.
    Assimilate {
        /// Which task.
        task: TaskName,
        /// Its job's name outside, and its number within: the key.
        job: u128,
        /// See `job`.
        index: u32,
        /// The instance whose result it is, or why there is none.
        result: Result<u8, Failure>,
    },
    /// A task has been deleted: so may be all that belongs to it.
    Deleted(TaskName),
    /// All tasks of a job have ended.
    JobEnded(JobName),
    /// A host that fails everything gets nothing for so long, in milliseconds.
    BackOff(HostName, u32),
}

/// What one event wants done. Its room is made once, for the most that any event can want.
#[derive(Debug)]
pub struct Effects {
    list: Vec<Effect>,
}

/// Most effects of one event.
pub const EFFECTS_MAX: usize = 256;

impl Default for Effects {
    fn default() -> Self {
        Self { list: Vec::with_capacity(EFFECTS_MAX) }
    }
}

impl Effects {
    pub(crate) fn clear(&mut self) {
        self.list.clear();
    }

    /// An event is refused before it comes to the table.
    pub fn refuse(&mut self, refusal: Refusal) {
        self.clear();
        self.push(Effect::Refused(refusal));
    }

    pub(crate) fn push(&mut self, effect: Effect) {
        assert!(self.list.len() < EFFECTS_MAX, "an event has a bounded number of effects");
        self.list.push(effect);
    }
}

impl std::ops::Deref for Effects {
    type Target = [Effect];

    fn deref(&self) -> &[Effect] {
        &self.list
    }
}
