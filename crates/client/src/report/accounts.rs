//! What is said of accounts, and of the jobs of all of them: as the hub says it.

use serde::{Deserialize, Serialize};

/// A page of a hub's accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Accounts {
    /// In the order in which they came; at most 256.
    pub accounts: Vec<Account>,
    /// How many are on the pages behind this one.
    pub more: u64,
}

/// One account: its limits, and what it has used, by `remrun` as by jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Account {
    /// The machines that it is of; none if they were revoked.
    pub nodes: Vec<AccountNode>,
    /// Its part in the turns of accounts.
    pub weight: u16,
    /// The part of all CPUs that is reserved for its deadlines, in thousandths.
    pub share_permille: u16,
    /// Its tasks at the hub.
    pub tasks: u32,
    /// Most that it may have there; none: no limit.
    pub tasks_max: Option<u32>,
    /// Those that run; a task that runs twice counts twice.
    pub running: u32,
    /// Most that may run at a time; none: no limit.
    pub running_max: Option<u32>,
    /// CPU time that its tasks have taken, in milliseconds.
    pub used_ms: u64,
    /// CPU time that its machines have given to tasks, in milliseconds, by what these were estimated to take.
    pub given_ms: u64,
    /// Its tasks that ended with a result, since it was first here.
    pub done: u64,
    /// Its tasks that ended without one.
    pub failed: u64,
    /// Deadlines met.
    pub met: u64,
    /// Deadlines missed.
    pub missed: u64,
}

/// A machine that an account is of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AccountNode {
    /// Its name.
    pub name: String,
    /// All digits of its id.
    pub id: String,
    /// `client`, `worker` or `admin`; `hub` for clients that come through the hub with this id.
    pub role: String,
}

/// A page of the jobs of all accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EveryonesJobs {
    /// At most 100, in the order of the hub's table.
    pub jobs: Vec<EveryonesJob>,
    /// There are others on the pages behind this one.
    pub more: bool,
}

/// One job, as its hub sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EveryonesJob {
    /// All digits of its number at its owner's; empty if the hub does not know it.
    pub job: String,
    /// Its name.
    pub name: String,
    /// The names of its account's machines; empty if they were revoked.
    pub account: String,
    /// `ready`, `held`, `away` (whoever launches its tasks is not connected), `running`, `ended`.
    pub state: String,
    /// `urgent`, `normal`, `spare`.
    pub priority: String,
    /// Its tasks that the hub was given.
    pub tasks: u32,
    /// Those that ended, and whose end was told.
    pub ended: u32,
    /// Those of them without a result.
    pub failed: u32,
    /// Those that run, among the first 4096 that have not ended.
    pub running: u32,
    /// The earliest deadline of those that have not ended: milliseconds since 1970 UTC.
    pub deadline_ms: Option<i64>,
}
