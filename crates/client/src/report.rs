//! What `gleaner` asks the client daemon over the door, and what it answers: the JSON of `base::door::Request::Ask` and
//! `base::door::Reply::Answer`.
//!
//! A question is an object whose `ask` names it, as in `{"ask": "explain", "task": "8f3a"}`: see [`Question`]. The answer
//! to each is the structure that the question's documentation names, or a [`Refusal`], told apart by its only member
//! `error`. `gleaner --json` prints answers as they are, so members are added, but never renamed or removed. Members
//! that a version does not know are ignored; those that are missing have their default.

mod accounts;
mod batch;
mod grants;
mod paths;
mod pool;

pub use accounts::{Account, AccountNode, Accounts, EveryonesJob, EveryonesJobs};
pub use batch::{BatchChanged, BatchLine, BatchReport, BatchTaskLine, Batches, Submitted};
pub use grants::{NeverGranted, ProjectGrants, Revocation, TrustedProject, TrustedProjects};
pub use paths::{DroppedLine, KeptBackLine};
pub use pool::{ClientFigures, ClientStatus, ExpectedShare, Times, WorkerStatus, WorkerTroubles};

use base::ExitStatus;
use serde::{Deserialize, Serialize};

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Question {
    /// How the pool is. Answer: [`Status`].
    Status,
    /// The pool, its hub's figures and the batch jobs at once, for who watches them. Answer: [`Overview`].
    Overview,
    /// What became of a task, or of a batch job or a task of it, and why. Answer: [`TaskReport`].
    Explain {
        /// The first digits of the task's number, or of the job's, there with `/` and the task's number within it if that is wanted; the
        /// last task if there is none.
        task: Option<String>,
    },
    /// The tasks that run, wait or ended lately, newest first. Answer: [`Tasks`].
    Tasks,
    /// End a task, or a batch job. Answer: [`Cancelled`].
    Cancel {
        /// The first digits of its number.
        task: String,
    },
    /// The batch jobs, newest first. Answer: [`Batches`].
    Jobs {
        /// Also those that were over long ago.
        #[serde(default)]
        all: bool,
    },
    /// One batch job, and some of its tasks. Answer: [`BatchReport`].
    Job {
        /// The first digits of its number.
        job: String,
        /// The number of the first task.
        #[serde(default)]
        first: u32,
        /// How many tasks; at most 1000.
        #[serde(default)]
        count: u32,
        /// Answer when something about it changes, at the latest after so many milliseconds, and those are at most 10,000.
        #[serde(default)]
        wait_ms: u32,
    },
    /// Have a batch job wait, or go on. Answer: [`BatchChanged`].
    Hold {
        /// The first digits of its number.
        job: String,
        /// Whether it is to wait.
        held: bool,
    },
    /// Give a batch job another priority. Answer: [`BatchChanged`].
    Priority {
        /// The first digits of its number.
        job: String,
        /// `urgent`, `normal` or `spare`.
        priority: String,
    },
    /// Shut a machine out of the pool. Answer: [`Revoked`].
    Revoke {
        /// The machine's name, or the first digits of its id.
        node: String,
    },
    /// Say how far a worker is trusted. Answer: [`Approved`].
    Approve {
        /// The machine's name, or the first digits of its id.
        node: String,
        /// `own`, `site` or `volunteer`.
        trust: String,
    },
    /// The last lines of the hub's audit log. Answer: [`Audit`].
    Audit {
        /// How many, at most 1000.
        count: u32,
    },
    /// Have a worker take no more tasks. Answer: [`Drained`].
    Drain {
        /// The machine's name, or the first digits of its id.
        node: String,
        /// Whether it is to take them again.
        undo: bool,
    },
    /// The hub's accounts; for who is not its owner, his own. Answer: [`Accounts`].
    Accounts {
        /// Which page, from 1.
        page: u32,
    },
    /// Change the limits of an account, as far as they are given. Answer: [`Account`].
    Limit {
        /// The name of its machine, or the first digits of that one's id.
        account: String,
        /// Its part in the turns of accounts, 1 or more.
        weight: Option<u16>,
        /// The part of all CPUs that is reserved for its deadlines, in thousandths.
        share_permille: Option<u16>,
        /// Most tasks at the hub; 4294967295: no limit.
        tasks: Option<u32>,
        /// Most tasks that run at a time; 4294967295: no limit.
        running: Option<u32>,
    },
    /// The jobs of all accounts, for the hub's owner. Answer: [`EveryonesJobs`].
    Everyone {
        /// Which page, from 1.
        page: u32,
    },
    /// Make a token for a machine that is to join. Answer: [`Token`].
    Token {
        /// What the joiner may be: `worker`, `client` or `admin`.
        role: String,
        /// How long the token is good for, in seconds.
        ttl_s: u64,
        /// How far a worker is trusted at once that joins with it: as in `Approve`; none: it waits for approval.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trust: Option<String>,
    },
    /// What deltas are kept because they were not committed. Answer: [`Kept`].
    Kept,
    /// Write a kept delta out, or commit it over what is there now. Answer: [`Recovered`].
    Recover {
        /// The first digits of the task's number; the newest kept delta if there is none.
        task: Option<String>,
        /// The folder to write it into, absolute; without one it is committed where it belongs.
        into: Option<String>,
        /// Paths, absolute, that the commit may change although the write policy refused them.
        #[serde(default)]
        allow_write: Vec<String>,
    },
    /// Read the configuration again. Answer: [`Done`].
    Reload,
    /// End the daemon once its tasks have been ended. Answer: [`Done`].
    Stop,
}

/// A question that cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Why.
    pub error: Problem,
}

/// What is wrong, whose it is, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Whose fault it is.
    pub kind: ProblemKind,
    /// What is wrong, printable.
    pub message: String,
    /// What to do.
    #[serde(default)]
    pub hint: Option<String>,
}

/// Whose fault a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// What was typed.
    User,
    /// The configuration.
    Config,
    /// Something is missing or cannot be reached.
    Environment,
    /// A fault of this program.
    Internal,
}

/// How the pool is, as this client sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The hub's address; none if no pool is configured.
    pub hub: Option<String>,
    /// Whether the hub is connected now.
    pub connected: bool,
    /// The round trip to the hub, in microseconds.
    pub round_trip_us: Option<u64>,
    /// What carries the link: `udp`, or `tcp` where no UDP passes.
    pub carrier: Option<String>,
    /// What hinders, if something does.
    pub problem: Option<String>,
    /// Whose the workers are taken for: `own`, `site` or `volunteer`; empty if no pool is configured …
    pub trust: String,
    /// … and why.
    pub trust_why: String,
    /// The machines that run tasks.
    pub workers: Vec<WorkerStatus>,
    /// The accounts that may launch: told to the hub's owner alone.
    pub clients: Vec<ClientStatus>,
    /// Tasks that run.
    pub tasks_running: u64,
    /// Tasks that wait for a worker.
    pub tasks_queued: u64,
    /// Processor time of commands that ran elsewhere since the client daemon started, in microseconds …
    pub work_us: u64,
    /// … what of it was done a second time, because they were late …
    pub hedge_us: u64,
    /// … and how often that was.
    pub hedges: u64,
    /// What this client's daemon counts.
    pub client: ClientFigures,
}

/// How everything is, as this client sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Overview {
    /// The pool.
    pub status: Status,
    /// What the hub counts and measures, as it says it (`hub::figures::Figures`); null if it says nothing.
    pub figures: serde_json::Value,
    /// This account's batch jobs.
    pub jobs: Batches,
}

/// The tasks that run, wait or ended lately.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tasks {
    /// Newest first.
    pub tasks: Vec<TaskLine>,
}

/// One task in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskLine {
    /// All digits of its number.
    pub task: String,
    /// The command, its words as they were given; bytes that are not UTF-8 are escaped.
    pub argv: Vec<String>,
    /// `remote`, `local`, or `nowhere` if it was not run.
    pub place: String,
    /// The worker's name, if it ran remotely.
    pub worker: Option<String>,
    /// `queued`, `running`, `exit 0`, `signal 9`, `failed`, `cancelled`.
    pub status: String,
    /// Its exit code; null if it has none.
    pub exit: Option<u32>,
    /// The signal that ended it; null if none did.
    pub signal: Option<u32>,
    /// The signal's name, as `SIGKILL`, if it has one.
    pub signal_name: Option<String>,
    /// When it started: milliseconds since 1970 UTC.
    pub started_ms: i64,
    /// How long it took, or has taken until now, in microseconds.
    pub elapsed_us: u64,
    /// While it runs: what it waits for, for a person.
    pub waits: Option<String>,
}

/// What became of one task, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskReport {
    /// All digits of its number.
    pub task: String,
    /// The command, its words as they were given; bytes that are not UTF-8 are escaped.
    pub argv: Vec<String>,
    /// `remote`, `local`, or `nowhere` if it was not run.
    pub place: String,
    /// The worker's name, if it ran remotely.
    pub worker: Option<String>,
    /// Why it ran there.
    pub why: String,
    /// How long it was expected to take here, in microseconds, if that was weighed.
    pub expected_here_us: Option<u64>,
    /// How long it was expected to take there.
    pub expected_there_us: Option<u64>,
    /// As in [`TaskLine`].
    pub status: String,
    /// What its caller was told, if it failed without a status of its own.
    pub failed: Option<String>,
    /// As in [`TaskLine`].
    pub exit: Option<u32>,
    /// As in [`TaskLine`].
    pub signal: Option<u32>,
    /// As in [`TaskLine`].
    pub signal_name: Option<String>,
    /// When it started: milliseconds since 1970 UTC.
    pub started_ms: i64,
    /// While it runs on a worker: for how long it has been there, in microseconds. So much of it at most is done again if it has to go elsewhere.
    pub again_us: Option<u64>,
    /// While it runs on a worker: processor time that it has had there, in microseconds, as far as that is known.
    pub cpu_us: Option<u64>,
    /// While it runs: what it waits for, for a person.
    pub waits: Option<String>,
    /// What happened when.
    pub timeline: Vec<Moment>,
    /// Round trips between client and hub that the command waited for.
    pub round_trips: u64,
    /// What carried the link at its end: `udp`, or `tcp` where no UDP passes; none if it was not launched.
    pub carrier: Option<String>,
    /// Bytes sent for it.
    pub bytes_up: u64,
    /// Bytes received for it.
    pub bytes_down: u64,
    /// Paths and pieces that the worker had to ask the client for.
    pub faults: u64,
    /// The first of those paths.
    pub faulted_paths: Vec<String>,
    /// Paths that changed after the launch, before they were first used.
    pub late: Vec<String>,
    /// Paths that were sent or known beforehand.
    pub paths_in_view: u64,
    /// Paths that the task changed, and that were committed.
    pub committed: Vec<String>,
    /// Paths that the task changed, and that were dropped, as the write policy says.
    pub scratch: Vec<String>,
    /// The same with the reasons.
    pub dropped: Vec<DroppedLine>,
    /// Why the `.gleaner.toml` of the command's project grants nothing, if there is one and it does not.
    pub grants_nothing: Option<String>,
    /// Paths that changed here while the task ran, so that nothing was committed.
    pub conflicts: Vec<String>,
    /// Paths that the read policy kept back when the task read them.
    pub kept_back: Vec<KeptBackLine>,
    /// Secrets of the project's own that a worker of one's own was given, since output of the command had been delivered.
    pub lent: Vec<String>,
    /// Names of variables that stayed here: they look secret, and the workers are not one's own.
    pub withheld: Vec<String>,
    /// Questions of the worker that were refused: it asked for more than such a program could need.
    pub over_budget: u64,
    /// The batch job that this is about, or whose task: then only `task`, `argv`, `place`, `worker`, `why`, `status` and `started_ms` (of the
    /// job) are said.
    pub job: Option<Box<BatchLine>>,
}

/// One line of a task's time line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Moment {
    /// When: microseconds since the command was handed over.
    pub at_us: u64,
    /// What happened.
    pub what: String,
}

/// A task or a batch job that was told to end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cancelled {
    /// All digits of the task's number; empty if it is a job.
    pub task: String,
    /// The command, its words as they were given; bytes that are not UTF-8 are escaped.
    pub argv: Vec<String>,
    /// The batch job, if it is one.
    pub job: Option<BatchChanged>,
}

/// A machine that is shut out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Revoked {
    /// Its name; of an older hub's what it was called in the question.
    pub name: String,
    /// The first digits of its id.
    pub id: String,
}

/// A worker, and how far it is trusted now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Approved {
    /// Its name; of an older hub's what it was called in the question.
    pub name: String,
    /// The first digits of its id.
    pub id: String,
    /// `own`, `site` or `volunteer`.
    pub trust: String,
}

/// The last lines of the hub's audit log, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Audit {
    /// Objects with `at_ms`, `what`, and more by what it is.
    pub entries: Vec<serde_json::Value>,
}

/// A worker that takes no more tasks, or takes them again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Drained {
    /// Its name; of an older hub's what it was called in the question.
    pub name: String,
    /// The first digits of its id.
    pub id: String,
    /// Whether it takes tasks.
    pub takes_tasks: bool,
    /// CPUs that are busy there still.
    pub busy: u32,
}

/// A token for a machine that is to join.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Token {
    /// The token: a secret.
    pub token: String,
    /// What the joiner may be.
    pub role: String,
    /// How long it is good for, in seconds.
    pub expires_in_s: u64,
}

/// Deltas that are kept because they were not committed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Kept {
    /// Newest first.
    pub kept: Vec<KeptDelta>,
}

/// One kept delta.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptDelta {
    /// All digits of its task's number.
    pub task: String,
    /// The command, its words as they were given; bytes that are not UTF-8 are escaped.
    pub argv: Vec<String>,
    /// Why it was not committed.
    pub reason: String,
    /// Paths that it changes: the first thousand at most.
    pub paths: Vec<String>,
    /// What it does at each of these paths, as a line of text.
    pub changes: Vec<String>,
    /// How many changes it has.
    pub changes_count: u64,
    /// Bytes that it holds.
    pub bytes: u64,
    /// When it was kept: milliseconds since 1970 UTC.
    pub kept_ms: i64,
    /// How long ago that was, in seconds.
    pub age_s: u64,
}

/// A kept delta that was written out, or committed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Recovered {
    /// All digits of its task's number.
    pub task: String,
    /// Where it was written; none if it was committed where it belongs.
    pub into: Option<String>,
    /// Paths that were written or removed: the first thousand at most.
    pub paths: Vec<String>,
    /// How many changes there were.
    pub changes_count: u64,
    /// The number under which what the commit replaced is kept, if it replaced anything: to recover that is to undo this.
    pub replaced: Option<String>,
    /// Paths of changes that could not be made, because what they are about is gone.
    pub skipped: Vec<String>,
}

/// What was asked is done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Done {
    /// What there is to say of it.
    pub note: Option<String>,
}

/// How a command ended, as answers have it: its exit code, or the signal that ended it and that one's name.
pub fn ended(status: ExitStatus) -> (Option<u32>, Option<u32>, Option<String>) {
    match status {
        ExitStatus::Code(code) => (Some(code.into()), None, None),
        ExitStatus::Signal(signal) => (None, Some(signal.into()), signal_name(signal)),
    }
}

/// The name of a signal, as `SIGKILL`.
pub fn signal_name(signal: u8) -> Option<String> {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM",
        "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF",
        "WINCH", "IO", "PWR", "SYS",
    ];
    match signal {
        1..=31 => Some(format!("SIG{}", NAMES[usize::from(signal) - 1])),
        34 => Some("SIGRTMIN".into()),
        35..=64 => Some(format!("SIGRTMIN+{}", signal - 34)),
        _ => None,
    }
}

/// The digits of a number or id that people see and type.
pub fn short(digits: &str) -> String {
    digits.chars().take(8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_named() {
        let json = |question| serde_json::to_string(&question).expect("plain data");
        assert_eq!(json(Question::Status), r#"{"ask":"status"}"#);
        assert_eq!(json(Question::Explain { task: Some("8f".into()) }), r#"{"ask":"explain","task":"8f"}"#);
        assert_eq!(
            serde_json::from_str::<Question>(r#"{"ask":"explain"}"#).ok(),
            Some(Question::Explain { task: None })
        );
    }

    #[test]
    fn signals_have_names() {
        let names = [1, 9, 15, 31, 34, 40, 65, 0].map(|signal| signal_name(signal).unwrap_or_default());
        assert_eq!(names, ["SIGHUP", "SIGKILL", "SIGTERM", "SIGSYS", "SIGRTMIN", "SIGRTMIN+6", "", ""]);
    }

    #[test]
    fn unknown_and_missing_members_are_no_fault() {
        let status: Status = serde_json::from_str(r#"{"hub": "a:1", "news": 3}"#).expect("readable");
        assert_eq!((status.hub.as_deref(), status.connected), (Some("a:1"), false));
    }
}
