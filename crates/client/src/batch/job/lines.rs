//! A job and its tasks in lines, for who asks.

use super::super::log::{End, How};
use super::{Job, State};
use crate::report::{self, BatchLine, BatchTaskLine};
use base::path::{faithful, printable};
use std::collections::BTreeMap;
use wire::lock;

/// Of a task that said more than is kept.
const CUT: &str = "its output was cut: of each stream the first 64 MiB are kept";
/// Most tasks that are named as those after which one comes.
const AFTER_SHOWN_MAX: usize = 64;

impl Job {
    /// It in a line.
    pub fn line(&self) -> BatchLine {
        let state = lock(&self.state);
        let wanted = self.wanted.borrow();
        let tasks = self.spec.tasks;
        let ended = state.ends.len() as u32;
        let running = state.running();
        let word = match (&wanted.cancelled, state.collected) {
            (Some(_), true) => "cancelled",
            (Some(_), false) => "cancelling",
            (None, true) if state.failed > 0 => "failed",
            (None, true) if state.cut > 0 => "cut",
            (None, true) => "done",
            (None, false) if wanted.is_held == Some(true) => "held",
            (None, false) if state.at_hub < self.to_hand_over(&state, state.at_hub) => "submitting",
            (None, false) if running > 0 || ended > 0 => "running",
            (None, false) => "waiting",
        };
        BatchLine {
            job: self.id().to_hex(),
            name: self.spec.batch.name.clone(),
            state: word.into(),
            problem: wanted
                .cancelled
                .clone()
                .or_else(|| self.hindrance_in(&state))
                .or_else(|| hindered(&state))
                .or_else(|| cut(&state)),
            priority: wanted.priority.name().into(),
            tasks,
            done: ended - state.failed.min(ended),
            failed: state.failed,
            running,
            waiting: tasks.saturating_sub(ended + running),
            submitted_ms: self.spec.submitted_ms,
            ended_ms: state.collected.then(|| state.ends.values().map(|end| end.at_ms).max().unwrap_or_default()),
            folder: printable(self.folder.as_os_str().as_encoded_bytes()),
        }
    }

    /// What hinders all of its tasks, if that is known here.
    pub fn hindrance(&self) -> Option<String> {
        self.hindrance_in(&lock(&self.state))
    }

    fn hindrance_in(&self, state: &State) -> Option<String> {
        state.problem.clone().or_else(|| self.lacks_workers(state))
    }

    /// That fewer workers are here than results must agree.
    fn lacks_workers(&self, state: &State) -> Option<String> {
        let (quorum, workers) = (self.spec.batch.quorum, state.workers.filter(|workers| *workers > 0)?);
        (workers < quorum && !state.collected).then(|| {
            let are = if workers == 1 {
                "1 that can run its tasks is"
            } else {
                &*format!("{workers} that can run its tasks are")
            };
            format!("--quorum {quorum} needs {quorum} workers of different owners, and {are} here: it waits for more")
        })
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
        let status = match end {
            Some(end) if end.is_cut => format!("{}, output cut", end.how.name()),
            Some(end) => end.how.name(),
            None if state.underway.contains_key(&index) => "running".into(),
            None => "waiting".into(),
        };
        let why = match end {
            Some(End { how: How::Cancelled, .. }) => self.wanted.borrow().cancelled.clone(),
            Some(end) => state
                .not_assimilated
                .get(&index)
                .cloned()
                .or_else(|| end.how.why().map(str::to_owned))
                .or_else(|| end.is_cut.then(|| CUT.to_owned())),
            None => state.troubles.get(&index).cloned().or_else(|| self.lacks_results(&state, index)),
        };
        let (exit, signal, signal_name) =
            end.and_then(End::own).map(|own| report::ended(own.into())).unwrap_or_default();
        let file = |stream: u8| {
            let has_any = end.is_some_and(|end| end.said[usize::from(stream) - 1] > 0);
            has_any.then(|| self.output(index, stream).to_string_lossy().into_owned())
        };
        BatchTaskLine {
            index,
            name: task.name,
            argv: task.argv.iter().map(|word| faithful(word)).collect(),
            status,
            exit,
            signal,
            signal_name,
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

    /// Why a task has no end although results of it are there.
    fn lacks_results(&self, state: &State, index: u32) -> Option<String> {
        let quorum = self.spec.batch.quorum;
        let landed = state.launched.get(&index)?.iter().filter(|(_, one)| one.is_over).count() as u32;
        if quorum < 2 || landed == 0 {
            return None;
        }
        let lacks = match landed < quorum {
            true => format!("it has {landed} of the {quorum} results that must agree"),
            false => format!("its {landed} results do not agree so far"),
        };
        Some(match state.workers {
            Some(1) => format!("{lacks}, and the only worker that is here has run it: it waits for another one"),
            Some(workers) if landed >= workers => {
                format!("{lacks}, and each of the {workers} workers that are here has run it: it waits for another one")
            }
            _ => format!("{lacks}: it waits for another worker's"),
        })
    }
}

/// That not all is there of what tasks said.
fn cut(state: &State) -> Option<String> {
    match state.cut {
        0 => None,
        1 => Some("the output of a task was cut: gleaner jobs JOB shows which".into()),
        tasks => Some(format!("the outputs of {tasks} tasks were cut: gleaner jobs JOB shows which")),
    }
}

/// What keeps results from being put into place, if something does.
fn hindered(state: &State) -> Option<String> {
    let others = |all: &BTreeMap<u32, String>| match all.len() - 1 {
        0 => String::new(),
        count => format!(" (and so {count} others)"),
    };
    if let Some((index, why)) = state.stuck.iter().next() {
        let others = others(&state.stuck);
        return Some(format!("what task {index} made waits to be put into place{others}: {why}"));
    }
    let (index, why) = state.not_assimilated.iter().next()?;
    Some(format!("task {index} has ended{}: {why}", others(&state.not_assimilated)))
}
