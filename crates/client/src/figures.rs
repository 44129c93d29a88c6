//! What the client daemon counts, for whoever wonders in the night why commands run here, or are refused.

use crate::report::{ClientFigures, Times};
use base::TaskId;
use base::door::Reply;
use base::tally::Tally;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use wire::lock;

/// Since the daemon started.
#[derive(Debug, Default)]
pub struct Figures {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    commands: u64,
    here: Tally,
    failed: Tally,
    /// Commands that had to begin again, since a worker or a link was lost.
    begun_again: u64,
    /// Commits that are under way, and since when.
    committing: HashMap<TaskId, Instant>,
    commits: Times,
}

/// A commit, until this is dropped.
#[derive(Debug)]
pub struct Committing<'a>(&'a Figures, TaskId);

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        if let Some(begun) = state.committing.remove(&self.1) {
            state.commits.add(begun.elapsed());
        }
    }
}

impl Figures {
    /// A command is over: what its caller is told, and how often it was launched.
    pub fn ended(&self, reply: &Reply, attempts: u32) {
        let mut state = lock(&self.state);
        state.begun_again += u64::from(attempts.saturating_sub(1));
        state.commands += 1;
        match reply {
            Reply::RunHere { why } => state.here.add(why),
            Reply::Failed { message, .. } => state.failed.add(message),
            _ => {}
        }
    }

    /// A commit begins.
    pub fn committing(&self, task: TaskId) -> Committing<'_> {
        lock(&self.state).committing.insert(task, Instant::now());
        Committing(self, task)
    }

    /// All of it, and how far the hub's clock is ahead of ours.
    pub fn told(&self, hub_clock_ahead_ns: Option<i64>) -> ClientFigures {
        let state = lock(&self.state);
        let oldest = state.committing.values().min().map_or(Duration::ZERO, Instant::elapsed);
        ClientFigures {
            commands: state.commands,
            here: state.here.counts().clone(),
            failed: state.failed.counts().clone(),
            begun_again: state.begun_again,
            commits_pending: state.committing.len() as u64,
            commit_oldest_ms: oldest.as_millis() as u64,
            commits: state.commits,
            hub_clock_ahead_us: hub_clock_ahead_ns.map(|ns| ns / 1000),
        }
    }
}

impl Times {
    fn add(&mut self, took: Duration) {
        let micros = took.as_micros() as u64;
        self.count += 1;
        self.sum_us = self.sum_us.saturating_add(micros);
        self.max_us = self.max_us.max(micros);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ExitStatus;

    #[test]
    fn ends_are_counted_by_reason() {
        let figures = Figures::default();
        figures.ended(&Reply::RunHere { why: "quicker here: 1 ms here".into() }, 0);
        figures.ended(&Reply::RunHere { why: "quicker here: 2 ms here".into() }, 1);
        figures.ended(&Reply::Failed { message: "nothing committed: /x is outside".into(), code: 125 }, 3);
        figures.ended(&Reply::Done(ExitStatus::Code(0)), 1);
        let told = figures.told(Some(-7_000_000));
        assert_eq!((told.commands, told.begun_again, told.hub_clock_ahead_us), (4, 2, Some(-7000)));
        assert_eq!(told.here["quicker here: … ms here"], 2);
        assert_eq!(told.failed["nothing committed: … is outside"], 1);
    }

    #[test]
    fn commits_are_pending_until_they_are_done() {
        let figures = Figures::default();
        let (first, second) = (figures.committing(TaskId(1)), figures.committing(TaskId(2)));
        assert_eq!(figures.told(None).commits_pending, 2);
        drop(first);
        let told = figures.told(None);
        assert_eq!((told.commits_pending, told.commits.count), (1, 1));
        drop(second);
        let told = figures.told(None);
        assert_eq!((told.commits_pending, told.commit_oldest_ms, told.commits.count), (0, 0, 2));
        assert!(told.commits.sum_us >= told.commits.max_us);
    }
}
