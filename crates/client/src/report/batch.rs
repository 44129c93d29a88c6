//! What is said of batch jobs.

use serde::{Deserialize, Serialize};

/// A batch job that was submitted. Also the answer where nothing was changed, because there was one with that key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Submitted {
    /// The job.
    pub job: BatchLine,
    /// It was submitted before: this changed nothing.
    pub existed: bool,
    /// The hub has all of it that can begin, for good. Otherwise it is kept here until the hub takes it.
    pub at_hub: bool,
}

/// This account's batch jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Batches {
    /// Newest first.
    pub jobs: Vec<BatchLine>,
    /// Older ones that are not shown.
    pub older: u64,
}

/// One batch job in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BatchLine {
    /// All digits of its number.
    pub job: String,
    /// Its name.
    pub name: String,
    /// `submitting`, `waiting`, `held`, `running`, `done`, `cut` (done, but outputs were cut), `failed`, `cancelling`,
    /// `cancelled`, `damaged` (its folder cannot be read).
    pub state: String,
    /// What hinders it, or why it was given up.
    pub problem: Option<String>,
    /// `urgent`, `normal`, `spare`.
    pub priority: String,
    /// Tasks that it has.
    pub tasks: u32,
    /// Those that ended well.
    pub done: u32,
    /// Those that ended otherwise.
    pub failed: u32,
    /// Those that run.
    pub running: u32,
    /// Those that wait.
    pub waiting: u32,
    /// When it was submitted: milliseconds since 1970 UTC.
    pub submitted_ms: i64,
    /// When its last task ended, if it is over.
    pub ended_ms: Option<i64>,
    /// The folder with its record and its tasks' outputs.
    pub folder: String,
}

impl BatchLine {
    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        self.ended_ms.is_some()
    }
}

/// One batch job, with some of its tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BatchReport {
    /// The job.
    pub job: BatchLine,
    /// The folder that its commands run in.
    pub cwd: String,
    /// Tasks, in their order.
    pub tasks: Vec<BatchTaskLine>,
    /// The number of the first of them.
    pub first: u32,
}

/// One task of a batch job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BatchTaskLine {
    /// Its number within the job, from 0.
    pub index: u32,
    /// Its name, if it was given one.
    pub name: String,
    /// The command, its words as they were given; bytes that are not UTF-8 are escaped.
    pub argv: Vec<String>,
    /// `waiting`, `running`, `exit 0`, `signal 9`, `not committed`, `failed`, `not run`, `cancelled`; the same and `, output cut`, if
    /// it said more than is kept.
    pub status: String,
    /// Its own exit code, also where what it made does not count; null if it has none.
    pub exit: Option<u32>,
    /// The signal that ended it, likewise.
    pub signal: Option<u32>,
    /// The signal's name, as `SIGKILL`, if it has one.
    pub signal_name: Option<String>,
    /// Why it has no result, or what it waits for and what went wrong with it last.
    pub why: Option<String>,
    /// The worker's name.
    pub worker: Option<String>,
    /// The number under which `gleaner recover` knows its changes, should they not be committed.
    pub commit: String,
    /// When its end was known here: milliseconds since 1970 UTC.
    pub ended_ms: Option<i64>,
    /// The file with its standard output; none if it said nothing.
    pub stdout: Option<String>,
    /// The same of standard error.
    pub stderr: Option<String>,
    /// It said more than is kept.
    pub is_cut: bool,
    /// Tasks of the job after which it comes; the first 64 of them.
    pub after: Vec<u32>,
    /// Of these, those that have not ended, if it has not; the first 64 of them. It begins when there is none.
    pub waits_for: Vec<u32>,
    /// Whether the command of `--assimilate` has done its part, if there is one.
    pub is_assimilated: Option<bool>,
}

/// A batch job that was changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BatchChanged {
    /// The job.
    pub job: BatchLine,
    /// The hub knows. Otherwise it is told as soon as that is possible.
    pub at_hub: bool,
    /// Why it does not know yet.
    pub why_not: Option<String>,
}
