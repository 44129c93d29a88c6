//! What goes to and from a task that runs, until its end or its failure.

use super::{Attr, Object};
use bytes::Bytes;
use prost::{Message, Oneof};

/// What goes from the client to a running task.
#[derive(Clone, PartialEq, Message)]
pub struct TaskInput {
    /// Which kind.
    #[prost(oneof = "InputKind", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10")]
    pub kind: Option<InputKind>,
}

/// Kinds of [`TaskInput`].
#[derive(Clone, PartialEq, Oneof)]
pub enum InputKind {
    /// Bytes for standard input, within the credit given.
    #[prost(bytes = "bytes", tag = "1")]
    Stdin(Bytes),
    /// Standard input ended.
    #[prost(bool, tag = "2")]
    StdinEnd(bool),
    /// Send this signal to the task's process group.
    #[prost(uint32, tag = "3")]
    Signal(u32),
    /// The terminal has this size now: rows * 65536 + columns.
    #[prost(uint32, tag = "4")]
    Resize(u32),
    /// The reader of this descriptor (1 or 2) is gone: the task's next write there gets SIGPIPE.
    #[prost(uint32, tag = "5")]
    OutputClosed(u32),
    /// End the task: nobody wants its result.
    #[prost(bool, tag = "6")]
    Cancel(bool),
    /// The client has all that it needs of the result.
    #[prost(bool, tag = "7")]
    Settled(bool),
    /// The client has the lock of this number for the task. One that cannot be had has the task called off.
    #[prost(fixed64, tag = "8")]
    Locked(u64),
    /// Whether somebody at the client has a port.
    #[prost(message, tag = "9")]
    Service(ServiceAnswer),
    /// Others read the caller's standard input as well: what the task has not read yet of what it was sent is to be thrown away, and
    /// [`OutputKind::StdinBack`] says how much it has read. No input is sent before that.
    #[prost(bool, tag = "10")]
    StdinBack(bool),
}

/// What comes from a task to its client.
#[derive(Clone, PartialEq, Message)]
pub struct TaskOutput {
    /// Which kind.
    #[prost(oneof = "OutputKind", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19")]
    pub kind: Option<OutputKind>,
}

/// Kinds of [`TaskOutput`].
#[derive(Clone, PartialEq, Oneof)]
pub enum OutputKind {
    /// The hub chose a worker.
    #[prost(message, tag = "1")]
    Placed(Placed),
    /// The command runs. Before this the task had no effect at all.
    #[prost(sint64, tag = "2")]
    Started(i64),
    /// Bytes of standard output.
    #[prost(bytes = "bytes", tag = "3")]
    Stdout(Bytes),
    /// Bytes of standard error.
    #[prost(bytes = "bytes", tag = "4")]
    Stderr(Bytes),
    /// So many more bytes of standard input may be sent.
    #[prost(uint32, tag = "5")]
    StdinCredit(u32),
    /// A signal of this number stopped the task.
    #[prost(uint32, tag = "6")]
    Stopped(u32),
    /// The command ended; the delta's objects follow, then `End`.
    #[prost(message, tag = "7")]
    Exited(Box<Exited>),
    /// A block or recipe of the delta.
    #[prost(message, tag = "8")]
    Object(Object),
    /// All has been sent.
    #[prost(bool, tag = "9")]
    End(bool),
    /// The task did not run, or did not end: nothing of it counts.
    #[prost(message, tag = "10")]
    Failed(Failed),
    /// Bytes that the task's terminal shows.
    #[prost(bytes = "bytes", tag = "11")]
    Terminal(Bytes),
    /// This signal has reached the task's processes: its worker lives.
    #[prost(uint32, tag = "12")]
    Signalled(u32),
    /// How far it has come.
    #[prost(message, tag = "13")]
    Progress(Progress),
    /// Guests rest where it runs until the machine's owner says otherwise. It may be done elsewhere instead; said again now and then.
    #[prost(message, tag = "14")]
    Resting(Resting),
    /// The task waits for a lock.
    #[prost(message, tag = "15")]
    Lock(LockRequest),
    /// The machine that has the task lives, and has nothing else to say of it: see [`crate::quiet`]. Told to the next machine only.
    #[prost(bool, tag = "16")]
    Alive(bool),
    /// The task waits to hear whether somebody at the client has a port.
    #[prost(message, tag = "17")]
    Service(ServiceRequest),
    /// So many bytes of standard input have been read out of the task's pipe. Said with 0 before the first credit: more will be said of it,
    /// and the client need not take the bytes that it sends out of its caller's pipe before.
    #[prost(uint64, tag = "18")]
    StdinTaken(u64),
    /// The answer to [`InputKind::StdinBack`]: so many bytes had been read out of the task's pipe, and nothing is in it, or on its way.
    #[prost(uint64, tag = "19")]
    StdinBack(u64),
}

/// How far a running task has come, by the worker's own accounting. Sent now and then, and when what it waits for changes.
#[derive(Clone, PartialEq, Message)]
pub struct Progress {
    /// Time since its program started, microseconds.
    #[prost(uint64, tag = "1")]
    pub ran_us: u64,
    /// Processor time that it has had, microseconds.
    #[prost(uint64, tag = "2")]
    pub cpu_us: u64,
    /// For how long some of it was ready and had no processor, microseconds.
    #[prost(uint64, tag = "3")]
    pub waited_us: u64,
    /// Why it does not run at all: its machine's guests rest or stand aside. Empty: it may run.
    #[prost(string, tag = "4")]
    pub rests: String,
}

/// A task rests.
#[derive(Clone, PartialEq, Message)]
pub struct Resting {
    /// Why, for a person.
    #[prost(string, tag = "1")]
    pub why: String,
    /// There is another worker that has room for it; set by the hub.
    #[prost(bool, tag = "2")]
    pub elsewhere: bool,
}

/// A task is about to talk to a port of the loopback address that nobody of its own has, or to signal a process that it has not, and waits
/// until the client has said whether it is that of a service, or a process, there.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ServiceRequest {
    /// By which it is answered.
    #[prost(fixed64, tag = "1")]
    pub number: u64,
    /// The port, of TCP or UDP. 0: no port is asked for.
    #[prost(uint32, tag = "2")]
    pub port: u32,
    /// The process, or with a negative number the group. 0: none is asked for.
    #[prost(sint32, tag = "3")]
    pub process: i32,
}

/// The answer to a [`ServiceRequest`].
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ServiceAnswer {
    /// Of the request.
    #[prost(fixed64, tag = "1")]
    pub number: u64,
    /// Somebody has the port, or is the process: the task has to run at its client.
    #[prost(bool, tag = "2")]
    pub is_there: bool,
}

/// A lock that a task wants on a file of its client.
#[derive(Clone, PartialEq, Message)]
pub struct LockRequest {
    /// By which it is answered.
    #[prost(fixed64, tag = "1")]
    pub number: u64,
    /// The file.
    #[prost(bytes = "vec", tag = "2")]
    pub path: Vec<u8>,
    /// For one alone.
    #[prost(bool, tag = "3")]
    pub is_exclusive: bool,
    /// Of a range of bytes (`fcntl`), not of the file (`flock`).
    #[prost(bool, tag = "4")]
    pub is_range: bool,
    /// Where it begins.
    #[prost(sint64, tag = "5")]
    pub start: i64,
    /// Its length; 0: to the end.
    #[prost(sint64, tag = "6")]
    pub len: i64,
    /// The file itself is the lock: the task makes it, and nobody else may have.
    #[prost(bool, tag = "7")]
    pub is_made: bool,
    /// The program would wait for it here. Else it goes on without, and may ask again for ever.
    #[prost(bool, tag = "8")]
    pub may_wait: bool,
    /// Where it is made: the task sees nothing there, so it has removed what was there before it began.
    #[prost(bool, tag = "9")]
    pub is_gone: bool,
}

/// Where a task runs.
#[derive(Clone, PartialEq, Message)]
pub struct Placed {
    /// The worker's node id.
    #[prost(bytes = "bytes", tag = "1")]
    pub worker: Bytes,
    /// Its name for people.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Why there.
    #[prost(string, tag = "3")]
    pub why: String,
    /// Nanoseconds in the hub's queue.
    #[prost(uint64, tag = "4")]
    pub queued_ns: u64,
    /// As in [`Hello::answers_signals`].
    #[prost(bool, tag = "5")]
    pub answers_signals: bool,
}

/// How a task ended.
#[derive(Clone, PartialEq, Message)]
pub struct Exited {
    /// Exit code, if no signal ended it.
    #[prost(uint32, tag = "1")]
    pub code: u32,
    /// The signal that ended it, or 0.
    #[prost(uint32, tag = "2")]
    pub signal: u32,
    /// CPU time in user mode, microseconds.
    #[prost(uint64, tag = "3")]
    pub user_us: u64,
    /// CPU time in the kernel, microseconds.
    #[prost(uint64, tag = "4")]
    pub system_us: u64,
    /// Largest resident set, KiB.
    #[prost(uint64, tag = "5")]
    pub max_rss_kib: u64,
    /// Of a file as standard input: its final offset. Of a stream: how many bytes were read.
    #[prost(uint64, tag = "6")]
    pub stdin_offset: u64,
    /// What changed.
    #[prost(message, repeated, tag = "7")]
    pub changes: Vec<Change>,
    /// Small objects of the delta, so that it comes in one message.
    #[prost(message, repeated, tag = "8")]
    pub objects: Vec<Object>,
    /// Paths that were asked for while the task ran.
    #[prost(bytes = "vec", repeated, tag = "9")]
    pub faults: Vec<Vec<u8>>,
    /// Sockets and devices that the task left and that do not travel.
    #[prost(bytes = "vec", repeated, tag = "10")]
    pub skipped: Vec<Vec<u8>>,
    /// What the worker did and when: nanoseconds since it got the launch.
    #[prost(message, repeated, tag = "11")]
    pub timeline: Vec<Moment>,
    /// Bytes of contents fetched over the worker's link for this task.
    #[prost(uint64, tag = "12")]
    pub fetched_bytes: u64,
    /// The worker's signature, as [`super::Launch::signature`].
    #[prost(bytes = "bytes", tag = "13")]
    pub signature: Bytes,
    /// It used what nobody could be asked about: the client was gone, or did not answer. What it makes of that is not to be trusted.
    #[prost(bool, tag = "14")]
    pub is_unanswered: bool,
    /// Names of processes that had left its session, and ended with it.
    #[prost(string, repeated, tag = "15")]
    pub left: Vec<String>,
    /// The worker's seal, in place of a signature, if the launch had one for it.
    #[prost(bytes = "bytes", tag = "16")]
    pub seal: Bytes,
    /// What it rests on: an encoded `base::Basis`.
    #[prost(bytes = "bytes", tag = "17")]
    pub basis: Bytes,
}

/// One step of a task's time line.
#[derive(Clone, PartialEq, Message)]
pub struct Moment {
    /// What.
    #[prost(string, tag = "1")]
    pub what: String,
    /// When, nanoseconds since the launch reached the worker.
    #[prost(uint64, tag = "2")]
    pub at_ns: u64,
}

/// One change of a delta: `base::Change`.
#[derive(Clone, PartialEq, Message)]
pub struct Change {
    /// Where.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// Number of the binding that the task saw; 0: nothing was there.
    #[prost(uint64, tag = "2")]
    pub base: u64,
    /// 1 remove, 2 rename, 3 directory, 4 file, 5 link, 6 hard link, 7 fifo, 8 last write
    /// (fields as of a file).
    #[prost(uint32, tag = "3")]
    pub action: u32,
    /// Attributes to give it.
    #[prost(message, optional, tag = "4")]
    pub attr: Option<Attr>,
    /// `user.` attributes: name, value, name, value.
    #[prost(bytes = "vec", repeated, tag = "5")]
    pub xattrs: Vec<Vec<u8>>,
    /// Of a file: as in [`Bound`]; without meaning if only attributes changed.
    #[prost(uint32, tag = "6")]
    pub content: u32,
    /// Of a file: digest of block or recipe.
    #[prost(bytes = "vec", tag = "7")]
    pub digest: Vec<u8>,
    /// Of a link: its target; of a rename or hard link: the other path.
    #[prost(bytes = "vec", tag = "8")]
    pub other: Vec<u8>,
    /// Of a directory: 1 if it replaces the one before. Of a file: 0 written, 1 appended, 2 attributes only.
    #[prost(uint32, tag = "9")]
    pub how: u32,
    /// Of an append: length before.
    #[prost(uint64, tag = "10")]
    pub appended_from: u64,
    /// Of a file that is new and written: it was made to be added to, and is added to what others made meanwhile.
    #[prost(bool, tag = "11")]
    pub is_added: bool,
}

/// Why a task did not take place.
#[derive(Clone, PartialEq, Message)]
pub struct Failed {
    /// 1: the program was not found (`errno` says why exec failed). 2: trouble at the worker, may be tried elsewhere.
    /// 3: no worker can take it. 4: the hub lacks the view's base: send it whole. 5: cancelled. 6: refused.
    /// 7: a file changed at the client while it was read. 8: the worker's owner needs the place. 9: what it does cannot be done
    /// elsewhere: to be run where it was asked for.
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    /// For a person.
    #[prost(string, tag = "2")]
    pub message: String,
    /// `errno` of a failed exec.
    #[prost(int32, tag = "3")]
    pub errno: i32,
    /// Of 3: workers have left lately, or none has come yet, so that one may be back in a moment.
    #[prost(bool, tag = "4")]
    pub is_passing: bool,
    /// The program was not begun. Said by the worker that had the task alone: a hub that lost it does not know.
    #[prost(bool, tag = "5")]
    pub is_not_begun: bool,
}

impl From<InputKind> for TaskInput {
    fn from(kind: InputKind) -> Self {
        Self { kind: Some(kind) }
    }
}

impl OutputKind {
    /// Whether it is a part of the result. Once a task has ended nothing else shows that the rest is coming.
    pub fn is_of_result(&self) -> bool {
        matches!(self, Self::Exited(_) | Self::Object(_) | Self::End(_) | Self::Failed(_))
    }
}

impl From<OutputKind> for TaskOutput {
    fn from(kind: OutputKind) -> Self {
        Self { kind: Some(kind) }
    }
}

/// Why a task did not take place, as a plain type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedKind {
    /// The program could not be executed.
    Exec,
    /// Trouble at the worker or on the way: may be tried elsewhere.
    Trouble,
    /// No worker can take it.
    NoWorker,
    /// The hub does not have the version that the view update starts from.
    ViewGap,
    /// It was cancelled.
    Cancelled,
    /// It is not allowed.
    Refused,
    /// A file changed at the client while the task read it.
    Changed,
    /// The worker's owner needs what it had there: to be done elsewhere, which is nobody's fault.
    Evicted,
    /// It does what cannot be done on any worker: to be run where it was asked for.
    Unable,
}

impl FailedKind {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Exec,
        Self::Trouble,
        Self::NoWorker,
        Self::ViewGap,
        Self::Cancelled,
        Self::Refused,
        Self::Changed,
        Self::Evicted,
        Self::Unable,
    ];

    /// Its name where launches are counted by kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exec => "not_executed",
            Self::Trouble => "trouble",
            Self::NoWorker => "no_worker",
            Self::ViewGap => "view_gap",
            Self::Cancelled => "cancelled",
            Self::Refused => "refused",
            Self::Changed => "changed",
            Self::Evicted => "evicted",
            Self::Unable => "unable",
        }
    }

    /// The message that says so.
    pub fn because(self, message: impl Into<String>) -> Failed {
        Failed { kind: self as u32 + 1, message: message.into(), ..Failed::default() }
    }
}

impl Failed {
    /// The same, of a program that was not begun.
    pub fn before_begin(self) -> Self {
        Self { is_not_begun: true, ..self }
    }

    /// The kind; what this version does not know counts as trouble.
    pub fn reason(&self) -> FailedKind {
        let at = (self.kind as usize).wrapping_sub(1);
        FailedKind::ALL.get(at).copied().unwrap_or(FailedKind::Trouble)
    }
}
