//! A job and its tasks in lines, for who asks.

use super::Job;
use crate::report::{BatchLine, BatchTaskLine};
use base::path::printable;
use wire::lock;

/// Most tasks that are named as those after which one comes.
const AFTER_SHOWN_MAX: usize = 64;

impl Job {
    /// It in a line.
    pub fn line(&self) -> BatchLine {
        let state = lock(&self.state);
        let wanted = self.wanted.borrow();
        let tasks = self.spec.tasks;
        let ended = state.ends.len() as u32;
        let running = state.running.min(tasks - ended.min(tasks));
        let word = match (&wanted.cancelled, state.collected) {
            (Some(_), true) => "cancelled",
            (Some(_), false) => "cancelling",
            (None, true) if state.failed > 0 => "failed",
            (None, true) => "done",
            (None, false) if wanted.is_held == Some(true) => "held",
            (None, false) if state.at_hub < self.to_hand_over(&state) => "submitting",
            (None, false) if running > 0 || ended > 0 => "running",
            (None, false) => "waiting",
        };
        BatchLine {
            job: self.id().to_hex(),
            name: self.spec.batch.name.clone(),
            state: word.into(),
            problem: wanted.cancelled.clone().or_else(|| state.problem.clone()),
            priority: wanted.priority.name().into(),
            tasks,
            done: ended - state.failed.min(ended),
            failed: state.failed,
            running,
            waiting: tasks - ended.min(tasks) - running,
            submitted_ms: self.spec.submitted_ms,
            ended_ms: state.collected.then(|| state.ends.values().map(|end| end.at_ms).max().unwrap_or_default()),
            folder: printable(self.folder.as_os_str().as_encoded_bytes()),
        }
    }

    /// Some of its tasks.
    pub fn task_lines(&self, first: u32, count: u32) -> Vec<BatchTaskLine> {
        let last = first.saturating_add(count).min(self.spec.tasks);
        (first..last).map(|index| self.task_line(index)).collect()
    }

    fn task_line(&self, index: u32) -> BatchTaskLine {
        let task = self.tasks.get(index).unwrap_or_default();
        let state = lock(&self.state);
        let end = state.ends.get(&index);
        let has_not_ended = |index: &&u32| end.is_none() && !state.ends.contains_key(index);
        let waits_for = task.after.iter().filter(has_not_ended).take(AFTER_SHOWN_MAX).copied().collect();
        let is_launched = state.launched.get(&index).into_iter().flatten().any(|(_, one)| one.view.is_some());
        let status = match end {
            Some(end) => end.how.name(),
            None if is_launched => "running".into(),
            None => "waiting".into(),
        };
        let why = end.and_then(|end| end.how.why().map(str::to_owned)).or_else(|| state.troubles.get(&index).cloned());
        let file = |stream: u8| {
            let has_any = end.is_some_and(|end| end.said[usize::from(stream) - 1] > 0);
            has_any.then(|| self.output(index, stream).to_string_lossy().into_owned())
        };
        BatchTaskLine {
            index,
            name: task.name,
            argv: task.argv.iter().map(|word| printable(word)).collect(),
            status,
            why,
            worker: end.map(|end| end.worker.clone()).filter(|worker| !worker.is_empty()),
            commit: self.commit_task(index).to_hex(),
            ended_ms: end.map(|end| end.at_ms),
            stdout: file(1),
            stderr: file(2),
            is_cut: end.is_some_and(|end| end.is_cut),
            after: task.after.into_iter().take(AFTER_SHOWN_MAX).collect(),
            waits_for,
            is_assimilated: self.spec.batch.assimilate.as_ref().map(|_| state.assimilated.contains(&index)),
        }
    }
}
