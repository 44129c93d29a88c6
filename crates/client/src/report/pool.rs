//! Of [`super::Status`]: workers, clients, and what this client counts.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One machine that runs tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerStatus {
    /// Its name.
    pub name: String,
    /// The first digits of its id.
    pub id: String,
    /// CPUs that it offers.
    pub cpus: u32,
    /// CPUs that tasks have now.
    pub busy: u32,
    /// Memory that it lends, in MiB.
    pub memory_mib: u32,
    /// Level of x86-64 of its processors; 0: not known.
    pub level: u32,
    /// Names that its owner has given it.
    pub tags: Vec<String>,
    /// What a task will get of a CPU, as the machine foretells it.
    pub expected: Option<ExpectedShare>,
    /// `ready`, `full`, `waiting for approval`, `gone`, and the like.
    pub state: String,
    /// Why it gives nothing, for a person.
    pub why: Option<String>,
    /// How far it is trusted: `own`, `site`, `volunteer`, or `waiting` for that to be said.
    pub trust: String,
    /// What it has trouble with; null: nothing.
    pub troubles: Option<WorkerTroubles>,
}

/// What a worker has trouble with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerTroubles {
    /// For how long the oldest request of a guest for a file has waited, in seconds, in steps.
    pub oldest_request_s: u32,
    /// Tasks that were told to end some seconds ago and have not.
    pub unkillable: u32,
    /// How far its clock is ahead of the hub's, in milliseconds, in steps.
    pub clock_ahead_ms: i32,
}

impl WorkerTroubles {
    /// The same for a person.
    pub fn in_words(&self) -> String {
        let Self { oldest_request_s, unkillable, clock_ahead_ms } = *self;
        let seconds = f64::from(clock_ahead_ms.unsigned_abs()) / 1e3;
        let way = if clock_ahead_ms > 0 { "ahead of" } else { "behind" };
        let all = [
            (oldest_request_s > 0).then(|| format!("a guest waits for a file for more than {oldest_request_s} s")),
            (unkillable > 0).then(|| format!("tasks that cannot be ended: {unkillable}")),
            (clock_ahead_ms != 0).then(|| format!("its clock is {seconds:.1} s {way} the hub's")),
        ];
        all.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

/// What a task will get of a CPU in the next minutes, in thousandths of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExpectedShare {
    /// In the mean.
    pub mean: u32,
    /// Nine times in ten no less, …
    pub low: u32,
    /// … and no more.
    pub high: u32,
    /// How far such forecasts were off so far, in the mean.
    pub error: u32,
    /// In how many of a thousand what came was between `low` and `high`.
    pub covered: u32,
}

/// One account that may launch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientStatus {
    /// Its name.
    pub name: String,
    /// The first digits of its id.
    pub id: String,
    /// Whether it is connected now.
    pub connected: bool,
}

/// What this client counts since its daemon started. Reasons are sentences without names, paths and numbers; there are at most 49 of each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientFigures {
    /// Commands that have ended.
    pub commands: u64,
    /// How often commands ran on this machine, by reason.
    pub here: BTreeMap<String, u64>,
    /// How often commands were refused or failed but for their own status, by reason.
    pub failed: BTreeMap<String, u64>,
    /// How often a launch was made once more, since the one before came to nothing.
    pub begun_again: u64,
    /// Commits that are under way.
    pub commits_pending: u64,
    /// For how long the oldest of them has been, in milliseconds.
    pub commit_oldest_ms: u64,
    /// How long commits took.
    pub commits: Times,
    /// How far the hub's clock is ahead of this machine's, in microseconds; null: not connected.
    pub hub_clock_ahead_us: Option<i64>,
}

/// How long something took, each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Times {
    /// How often that was.
    pub count: u64,
    /// All together, in microseconds.
    pub sum_us: u64,
    /// The longest.
    pub max_us: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn troubles_are_told_in_words() {
        let troubles = WorkerTroubles { oldest_request_s: 8, unkillable: 1, clock_ahead_ms: -3200 };
        let want = "a guest waits for a file for more than 8 s; tasks that cannot be ended: 1; its clock is 3.2 s behind the hub's";
        assert_eq!(troubles.in_words(), want);
        assert_eq!(WorkerTroubles::default().in_words(), "");
    }
}
