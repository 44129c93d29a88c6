//! Workunits: hosts that ask for them, and those who submit them and take their results.
//!
//! | opens with | from, to | what follows |
//! |---|---|---|
//! | `Host` | host to hub | a [`HostTold`]; then [`HostAsk`] one way, and the other a [`HostTold`] for each, and as work comes |
//! | `Jobs` | client to hub | [`JobAsk`] one way, a [`JobTold`] for each the other, in order |
//! | `Drive` | client to hub | [`Place`] from the hub: for each a launch over a stream of its own, or a [`PlaceBack`] |
//! | `Collect` | client to hub | [`Endings`] from the hub, [`Taken`] to it |
//!
//! Times are relative, in milliseconds: nobody's clock need be right. What an input or a result is, is between those who submit and
//! those who run: at most 64 KiB.

use bytes::Bytes;
use prost::{Message, Oneof};

/// A host that asks for work joins, or comes back. A machine may join as several.
#[derive(Clone, PartialEq, Message)]
pub struct HostGreeting {
    /// Which host of its machine.
    #[prost(uint32, tag = "1")]
    pub number: u32,
    /// Processors that it lends.
    #[prost(uint32, tag = "2")]
    pub cpus: u32,
    /// Memory that it lends, in MiB.
    #[prost(uint32, tag = "3")]
    pub memory_mib: u32,
    /// Of x86-64: 1 to 4.
    #[prost(uint32, tag = "4")]
    pub level: u32,
    /// What it can run: bit n is tag n.
    #[prost(uint64, tag = "5")]
    pub tags: u64,
    /// Hosts of one class compute the same bits; 0: of none.
    #[prost(uint32, tag = "6")]
    pub redundancy: u32,
    /// How fast a processor is, in thousandths of the one that costs are given for.
    #[prost(uint32, tag = "7")]
    pub speed_permille: u32,
    /// It has started anew: what it had is lost.
    #[prost(bool, tag = "8")]
    pub is_fresh: bool,
    /// It is told of work as it comes, as much as it has processors. Otherwise it asks.
    #[prost(bool, tag = "10")]
    pub waits: bool,
    /// What it has, or has done and not reported, unless it has started anew. What the hub has sent beside that, it sends again.
    #[prost(message, repeated, tag = "11")]
    pub has: Vec<Instance>,
}

/// Most bytes of one stream of a task's output that a hub keeps until it is collected.
pub const OUTPUT_BYTES_MAX: u64 = 64 << 20;

/// One instance of a task.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Instance {
    /// Its task.
    #[prost(fixed64, tag = "1")]
    pub task: u64,
    /// Which copy.
    #[prost(uint32, tag = "2")]
    pub number: u32,
}

/// A host tells what has ended, and asks for more.
#[derive(Clone, PartialEq, Message)]
pub struct HostAsk {
    /// What has ended; at most 16.
    #[prost(message, repeated, tag = "1")]
    pub reports: Vec<Reported>,
    /// How many instances it wants; at most 16. Without meaning if it waits.
    #[prost(uint32, tag = "2")]
    pub want: u32,
}

/// An instance has ended.
#[derive(Clone, PartialEq, Message)]
pub struct Reported {
    /// Which.
    #[prost(message, optional, tag = "1")]
    pub instance: Option<Instance>,
    /// Digest of what was changed and printed, 32 bytes: equal results have equal ones. Empty: it failed.
    #[prost(bytes = "bytes", tag = "2")]
    pub digest: Bytes,
    /// The result.
    #[prost(bytes = "bytes", tag = "3")]
    pub result: Bytes,
    /// Processor time that it took, in milliseconds of the host's own.
    #[prost(uint32, tag = "4")]
    pub cost_ms: u32,
}

/// The answer to a [`HostGreeting`] and to each [`HostAsk`].
#[derive(Clone, PartialEq, Message)]
pub struct HostTold {
    /// What it is to run.
    #[prost(message, repeated, tag = "1")]
    pub assigned: Vec<Assigned>,
    /// What it need not go on with.
    #[prost(message, repeated, tag = "2")]
    pub stop: Vec<Instance>,
    /// There is nothing more: when to ask again, in milliseconds. 0: at will.
    #[prost(uint32, tag = "3")]
    pub again_ms: u32,
    /// Why it was refused; empty if it was not.
    #[prost(string, tag = "4")]
    pub refusal: String,
    /// It answers a [`HostAsk`], whose reports need not be sent again.
    #[prost(bool, tag = "7")]
    pub is_answer: bool,
    /// Of a greeting: what the hub thinks that it has. What is missing there is no longer wanted.
    #[prost(message, repeated, tag = "6")]
    pub has: Vec<Instance>,
}

/// An instance for a host.
#[derive(Clone, PartialEq, Message)]
pub struct Assigned {
    /// Which.
    #[prost(message, optional, tag = "1")]
    pub instance: Option<Instance>,
    /// Of which job.
    #[prost(fixed64, tag = "2")]
    pub job: u64,
    /// Its number within its job.
    #[prost(uint32, tag = "3")]
    pub index: u32,
    /// When it is given up, in milliseconds from now.
    #[prost(uint32, tag = "4")]
    pub due_in_ms: u32,
    /// The task's own bytes.
    #[prost(bytes = "bytes", tag = "5")]
    pub input: Bytes,
    /// The job's bytes, with the first instance of it on this stream.
    #[prost(bytes = "bytes", tag = "6")]
    pub common: Bytes,
}

/// A client asks the hub about its jobs.
#[derive(Clone, PartialEq, Message)]
pub struct JobAsk {
    /// What.
    #[prost(oneof = "JobAskKind", tags = "1, 2, 3, 4, 5, 6, 7, 8")]
    pub kind: Option<JobAskKind>,
}

/// Kinds of [`JobAsk`].
#[derive(Clone, PartialEq, Oneof)]
pub enum JobAskKind {
    /// Open a job, or find it again.
    #[prost(message, tag = "1")]
    Open(JobOpen),
    /// Take these tasks.
    #[prost(message, tag = "2")]
    Submit(JobSubmit),
    /// No more tasks will come to this job.
    #[prost(fixed64, tag = "3")]
    Close(u64),
    /// Nobody wants this job any more.
    #[prost(fixed64, tag = "4")]
    Cancel(u64),
    /// Its tasks wait.
    #[prost(fixed64, tag = "5")]
    Hold(u64),
    /// Its tasks go on.
    #[prost(fixed64, tag = "6")]
    Release(u64),
    /// It becomes more or less urgent.
    #[prost(message, tag = "7")]
    Urgency(JobUrgency),
    /// A job that has ended is forgotten.
    #[prost(fixed64, tag = "8")]
    Forget(u64),
}

/// A job: tasks with one requirement and one policy.
#[derive(Clone, PartialEq, Message)]
pub struct JobOpen {
    /// Its name at the client, 16 bytes: opening it again finds it.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// Its name for people.
    #[prost(string, tag = "2")]
    pub name: String,
    /// What all its tasks share.
    #[prost(bytes = "bytes", tag = "3")]
    pub common: Bytes,
    /// 1 somebody waits for each task, 2 normal, 3 when nothing else is to be done.
    #[prost(uint32, tag = "4")]
    pub urgency: u32,
    /// Processors for one instance.
    #[prost(uint32, tag = "5")]
    pub cpus: u32,
    /// Memory for one instance, in MiB.
    #[prost(uint32, tag = "6")]
    pub memory_mib: u32,
    /// The least level of x86-64.
    #[prost(uint32, tag = "7")]
    pub level: u32,
    /// Tags that a host must have.
    #[prost(uint64, tag = "8")]
    pub tags: u64,
    /// All copies of a task run within one redundancy class.
    #[prost(bool, tag = "9")]
    pub is_homogeneous: bool,
    /// Results that must agree.
    #[prost(uint32, tag = "10")]
    pub quorum: u32,
    /// Instances at first; 0: as many as must agree.
    #[prost(uint32, tag = "11")]
    pub target: u32,
    /// Most instances of a task; 0: four more than at first.
    #[prost(uint32, tag = "12")]
    pub instances_max: u32,
    /// Most errors of a task.
    #[prost(uint32, tag = "13")]
    pub errors_max: u32,
    /// Hosts that were right for long need no others beside them.
    #[prost(bool, tag = "15")]
    pub is_adaptive: bool,
    /// Tasks get one more instance shortly before their deadline.
    #[prost(bool, tag = "16")]
    pub is_speculative: bool,
    /// Tasks that have missed their deadline are given up.
    #[prost(bool, tag = "17")]
    pub drops_late: bool,
    /// From sending until an instance is given up, in milliseconds; 0: an hour.
    #[prost(uint32, tag = "18")]
    pub delay_bound_ms: u32,
    /// Processor time of one task, estimated, in milliseconds.
    #[prost(uint32, tag = "19")]
    pub cost_ms: u32,
    /// With more failed tasks than that the job is cancelled.
    #[prost(uint32, tag = "20")]
    pub failures_max: u32,
    /// Its tasks are launches, which the client makes when they have a place ([`Drive`]). Otherwise hosts that ask for them know what to
    /// do with their bytes.
    #[prost(bool, tag = "21")]
    pub is_driven: bool,
    /// A launch that ends with another status than 0 has failed, and is tried again as far as `errors_max` says. Otherwise that
    /// is its result.
    #[prost(bool, tag = "22")]
    pub retries_failures: bool,
    /// Its client says which results agree ([`Endings::compare`]). Otherwise those do that are equal.
    #[prost(bool, tag = "23")]
    pub is_compared: bool,
    /// Of launches: names that the worker's owner has given it. In the journal each has a bit of `tags`, in their order.
    #[prost(string, repeated, tag = "24")]
    pub tag_names: Vec<String>,
}

/// The client launches tasks of a job as they get places. While nobody does, the job's tasks wait.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Drive {
    /// Which job.
    #[prost(fixed64, tag = "1")]
    pub job: u64,
}

/// An instance of a task has a place at a worker: the client is to launch it ([`super::Launch::place`]), within 60 s.
#[derive(Clone, PartialEq, Message)]
pub struct Place {
    /// Which instance: it names the place.
    #[prost(message, optional, tag = "1")]
    pub instance: Option<Instance>,
    /// Its task's number within its job.
    #[prost(uint32, tag = "2")]
    pub index: u32,
    /// There is no such job, or it is not driven; empty if all is well.
    #[prost(string, tag = "3")]
    pub refusal: String,
}

/// Nothing is launched at a [`Place`], or what was is over for its client.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct PlaceBack {
    /// As in [`Place::instance`].
    #[prost(message, optional, tag = "1")]
    pub instance: Option<Instance>,
    /// The client knows already what has become of the task: it is cancelled. Otherwise it has failed, and may have another place.
    #[prost(bool, tag = "2")]
    pub is_over: bool,
    /// Nothing is given back: this place is kept, for its task waits at its client for what another command has there.
    #[prost(message, optional, tag = "3")]
    pub kept: Option<Instance>,
}

/// The result of a task that was a launch: kept at the hub until it is taken, so that it outlives its client's daemon.
#[derive(Clone, PartialEq, Message)]
pub struct LaunchResult {
    /// How it ended, and what changed. Its objects, and those that it names, can be had of the hub by `Objects`.
    #[prost(message, optional, tag = "1")]
    pub exited: Option<super::Exited>,
    /// If that is too large for this message: the name of the object that holds it, encoded.
    #[prost(bytes = "bytes", tag = "2")]
    pub exited_at: Bytes,
    /// Standard output: the names of the objects that hold it, one after the other.
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub stdout: Vec<Bytes>,
    /// Standard error, likewise.
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub stderr: Vec<Bytes>,
    /// Output beyond the limit of 64 MiB was dropped.
    #[prost(bool, tag = "5")]
    pub is_cut: bool,
    /// The worker's name for people.
    #[prost(string, tag = "6")]
    pub worker: String,
}

/// Tasks of a job.
#[derive(Clone, PartialEq, Message)]
pub struct JobSubmit {
    /// Which job.
    #[prost(fixed64, tag = "1")]
    pub job: u64,
    /// The number of the first within the job. What was submitted before is not taken again.
    #[prost(uint32, tag = "2")]
    pub first: u32,
    /// How many; at most 1024.
    #[prost(uint32, tag = "3")]
    pub count: u32,
    /// By when, in milliseconds from now; 0: no deadline.
    #[prost(uint32, tag = "4")]
    pub deadline_in_ms: u32,
    /// Each one's own bytes, or none at all.
    #[prost(bytes = "bytes", repeated, tag = "5")]
    pub inputs: Vec<Bytes>,
    /// How many follow with the same deadline: none is taken if not all can be done in time.
    #[prost(uint32, tag = "6")]
    pub later: u32,
}

/// How urgent a job is from now on.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct JobUrgency {
    /// Which job.
    #[prost(fixed64, tag = "1")]
    pub job: u64,
    /// As in [`JobOpen::urgency`].
    #[prost(uint32, tag = "2")]
    pub urgency: u32,
}

/// The answer to a [`JobAsk`], once what it says is durable.
#[derive(Clone, PartialEq, Message)]
pub struct JobTold {
    /// The job.
    #[prost(fixed64, tag = "1")]
    pub job: u64,
    /// Tasks that it has now, those that ended included.
    #[prost(uint32, tag = "2")]
    pub tasks: u32,
    /// Why it was refused; empty if it was not.
    #[prost(string, tag = "3")]
    pub refusal: String,
    /// It was refused, and may be tried again after so many milliseconds. 0: not.
    #[prost(uint32, tag = "4")]
    pub again_ms: u32,
    /// Its deadline cannot be met; this one could, in milliseconds from now. 0: something else.
    #[prost(uint32, tag = "5")]
    pub earliest_in_ms: u32,
    /// Of a job that was opened, and whose tasks are launches: how many workers are here that can have them. Each counts as an owner
    /// of its own where results must agree.
    #[prost(uint32, tag = "6")]
    pub workers: u32,
    /// No worker that is here could have its tasks, and one that could may be back in a moment.
    #[prost(bool, tag = "7")]
    pub is_passing: bool,
}

/// Asks for the ends of a job's tasks.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Collect {
    /// Which job.
    #[prost(fixed64, tag = "1")]
    pub job: u64,
    /// Most that are on their way and not yet taken; 0: 256.
    #[prost(uint32, tag = "2")]
    pub ahead: u32,
}

/// A task has ended. It is told again, over this stream or a later one, until it is taken: the key is job and index.
#[derive(Clone, PartialEq, Message)]
pub struct Ended {
    /// Which task.
    #[prost(fixed64, tag = "1")]
    pub task: u64,
    /// Its number within its job.
    #[prost(uint32, tag = "2")]
    pub index: u32,
    /// Why there is no result: 0 there is one; 1 too many errors, 2 too many instances, 3 no agreement, 4 late, 5 cancelled.
    #[prost(uint32, tag = "3")]
    pub failure: u32,
    /// The instance whose result it is.
    #[prost(uint32, tag = "4")]
    pub number: u32,
    /// The result; without one, that of the last run which had any.
    #[prost(bytes = "bytes", tag = "5")]
    pub result: Bytes,
    /// Of a launch that is tried again: how the runs ended that failed, in their order. Up to 255 an exit code, from 256 on a signal
    /// and 256. The hub forgets them when it starts again.
    #[prost(uint32, repeated, tag = "6")]
    pub statuses: Vec<u32>,
    /// How often it was sent to a host.
    #[prost(uint32, tag = "7")]
    pub runs: u32,
    /// How many of these had a result that counts.
    #[prost(uint32, tag = "8")]
    pub results: u32,
}

/// Tasks have ended.
#[derive(Clone, PartialEq, Message)]
pub struct Endings {
    /// Which.
    #[prost(message, repeated, tag = "1")]
    pub ended: Vec<Ended>,
    /// Nothing more will come: the job has ended, and all that ended was taken.
    #[prost(bool, tag = "2")]
    pub is_last: bool,
    /// There is no such job; empty if there is.
    #[prost(string, tag = "3")]
    pub refusal: String,
    /// So many of those that were taken over this stream, in their order, are known to be: they are never told again.
    #[prost(uint64, tag = "4")]
    pub settled: u64,
    /// The client is to say of these tasks which results agree, see [`Taken::compared`].
    #[prost(message, repeated, tag = "5")]
    pub compare: Vec<Compare>,
}

/// A task whose results are to be compared. It is told again, over a later stream, until that is done.
#[derive(Clone, PartialEq, Message)]
pub struct Compare {
    /// Which task.
    #[prost(fixed64, tag = "1")]
    pub task: u64,
    /// Its number within its job.
    #[prost(uint32, tag = "2")]
    pub index: u32,
    /// Its results; at most 16.
    #[prost(message, repeated, tag = "3")]
    pub candidates: Vec<Candidate>,
}

/// The result of one instance.
#[derive(Clone, PartialEq, Message)]
pub struct Candidate {
    /// Which instance.
    #[prost(uint32, tag = "1")]
    pub number: u32,
    /// The result, as in [`Ended::result`].
    #[prost(bytes = "bytes", tag = "2")]
    pub result: Bytes,
}

/// What came of a [`Compare`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Compared {
    /// Which task.
    #[prost(fixed64, tag = "1")]
    pub task: u64,
    /// The most instances whose results agree: bit n is instance n. None: no result is good.
    #[prost(uint32, tag = "2")]
    pub agree: u32,
}

/// These have reached where they go, and need not be told again.
#[derive(Clone, PartialEq, Message)]
pub struct Taken {
    /// Which tasks.
    #[prost(fixed64, repeated, tag = "1")]
    pub tasks: Vec<u64>,
    /// These were compared.
    #[prost(message, repeated, tag = "2")]
    pub compared: Vec<Compared>,
}
