//! What a swarm does, and what came of it.

use crate::error::{Context, Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What a swarm does.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Plan {
    /// Where the hub listens.
    pub address: String,
    /// A token for the client.
    pub client_token: String,
    /// A token for each machine that the hosts are on.
    pub host_tokens: Vec<String>,
    /// How many hosts, spread over the machines.
    pub hosts: usize,
    /// Processors of each.
    pub cpus: u32,
    /// They wait for tasks; otherwise they ask for so many at a time.
    pub waits: bool,
    /// See `waits`.
    pub want: u32,
    /// Of a hundred tasks so many kill their host, silently, when they are half done.
    pub dying_percent: f64,
    /// After so many milliseconds such a host starts anew.
    pub dead_ms: u64,
    /// One after the other.
    pub phases: Vec<Phase>,
}

/// A job, as it is offered to the hub.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Phase {
    /// For figures.
    pub name: String,
    /// Tasks that are due each second; 0: as fast as they are done.
    pub rate: f64,
    /// For so long, in seconds.
    pub seconds: f64,
    /// Every so many seconds instead: so many tasks at once.
    pub every_s: f64,
    /// See `every_s`.
    pub burst: u32,
    /// Tasks in one message at most.
    pub batch: u32,
    /// Tasks that are submitted and not done at most.
    pub window: u32,
    /// What a task takes, in milliseconds.
    pub task_ms: u32,
    /// By when a task must be done, in milliseconds; 0: no deadline.
    pub deadline_ms: u32,
    /// When an instance is given up, in milliseconds; 0: an hour.
    pub delay_bound_ms: u32,
    /// Shortly before the deadline there is one more instance.
    pub is_speculative: bool,
    /// Results that must agree.
    pub quorum: u32,
    /// As many tasks as `window` are submitted, and nothing more is done.
    pub only_submits: bool,
}

/// What came of a phase. Times are from when a task was due, in milliseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Its name.
    pub phase: String,
    /// Tasks whose whole life was seen: submitted, sent, done, reported, decided, collected, and that known at the hub.
    pub done: u64,
    /// Of them without a result.
    pub failed: u64,
    /// Done in each second, first and last tenth of the time left out.
    pub per_s: f64,
    /// Whole life: median, 99.9th percentile, longest.
    pub life_ms: [f64; 3],
    /// Until the hub had said that it has the task.
    pub accepted_ms: [f64; 3],
    /// Until the client had its end.
    pub ended_ms: [f64; 3],
    /// By how much the client was late with submitting.
    pub lag_ms: [f64; 3],
    /// The machine's own hiccups meanwhile: by how much a sleep of 1 ms was too long.
    pub hiccup_ms: [f64; 3],
    /// Syncs of the hub's journal since it began: median, 99th percentile, longest. The hub says it, not the swarm.
    #[serde(default)]
    pub sync_ms: [f64; 3],
    /// Ends that came after the deadline.
    pub late: u64,
    /// Tasks that the hub had accepted and then did not know.
    pub lost: u64,
    /// Tasks that were told again after the hub had said that it knows them to be collected.
    pub twice: u64,
    /// How often the hub was gone and came back.
    pub reconnected: u64,
    /// Submissions that were refused for a while.
    pub refused: u64,
    /// Hosts that died.
    pub died: u64,
}

/// Reads a plan.
pub fn read(file: &Path) -> Result<Plan> {
    let bytes = std::fs::read(file).at("read", file)?;
    serde_json::from_slice(&bytes).map_err(|error| Error::Product(format!("{}: {error}", file.display())))
}

/// As a line of JSON.
pub fn line(outcome: &Outcome) -> Result<String> {
    serde_json::to_string(outcome).map_err(|error| Error::Product(error.to_string()))
}

/// Median, 99.9th percentile and maximum of nanoseconds, in milliseconds.
pub fn three(samples: &mut [u64]) -> [f64; 3] {
    samples.sort_unstable();
    let at = |part: f64| {
        let rank = (part * samples.len() as f64).ceil() as usize;
        samples.get(rank.clamp(1, samples.len().max(1)) - 1).map_or(0.0, |ns| *ns as f64 / 1e6)
    };
    [at(0.5), at(0.999), at(1.0)]
}
