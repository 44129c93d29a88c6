//! What became of a job's tasks: a line of JSON for each, and the summary for people.

use super::worker::Finished;
use crate::error::Result;
use crate::render::json_shown;
use base::ExitStatus;
use base::path::{faithful, printable, shown, shown_lines};
use gleaner_client::{Error, Place};
use serde::Serialize;
use std::fmt::Write;
use std::time::Duration;

/// Failures that the summary names.
const FAILURES_MAX: usize = 20;
/// Longest command in the summary, in characters.
const COMMAND_CHARACTERS_MAX: usize = 120;
/// Largest exit status that counts failed tasks, as GNU parallel has it.
const STATUS_MAX: u64 = 101;

/// A task, as JSON: what it shares with the other tasks that `gleaner` lists is called as there (`docs/json.md`).
#[derive(Default, Serialize)]
struct TaskLine {
    /// Its number from 1, as `{#}`.
    number: u64,
    /// From 0.
    index: u64,
    origin: Option<String>,
    argv: Vec<String>,
    /// `exit 0`, `signal 9`, `failed`, `cancelled`.
    status: String,
    exit: Option<u32>,
    signal: Option<u32>,
    signal_name: Option<String>,
    /// Why it ran here, or has no end of its own.
    why: Option<String>,
    /// `remote`, `local` or `nowhere`.
    place: &'static str,
    /// For `gleaner explain`, if it ran elsewhere.
    task: Option<String>,
    attempts: u32,
    elapsed_us: u64,
    stdout_text: String,
    stderr_text: String,
    /// It said more than is shown.
    is_cut: bool,
}

/// All tasks, as JSON.
#[derive(Serialize)]
struct SummaryLine {
    tasks: u64,
    succeeded: u64,
    failed: u64,
    cancelled: u64,
    here: u64,
    elapsed_us: u64,
}

/// How the tasks of a job came out so far.
#[derive(Default)]
pub struct Tally {
    succeeded: u64,
    failed: u64,
    cancelled: u64,
    here: u64,
    failures: Vec<String>,
}

impl Tally {
    /// Counts a task.
    pub fn count(&mut self, finished: &Finished) {
        if let Ok(ended) = &finished.result {
            self.here += u64::from(matches!(ended.place, Place::Here { .. }));
        }
        if finished.is_cancelled() {
            self.cancelled += 1;
        } else if finished.succeeded() {
            self.succeeded += 1;
        } else {
            self.failed += 1;
            if self.failures.len() < FAILURES_MAX {
                self.failures.push(failure(finished));
            }
        }
    }

    /// The exit status of the job: how many failed, at most 101.
    pub fn exit_status(&self) -> u8 {
        // At most 101, so that it fits.
        self.failed.min(STATUS_MAX) as u8
    }

    /// What went wrong, for people; nothing if nothing did.
    pub fn summary(&self) -> String {
        let mut text = String::new();
        let all = self.succeeded + self.failed + self.cancelled;
        // Writing to a string cannot fail.
        if self.failed > 0 {
            let _ = writeln!(text, "gleaner run: {} of {all} tasks failed:", self.failed);
            for failure in &self.failures {
                let _ = writeln!(text, "  {failure}");
            }
            if self.failed > self.failures.len() as u64 {
                let _ = writeln!(text, "  and {} more", self.failed - self.failures.len() as u64);
            }
        }
        if self.cancelled > 0 {
            let _ = writeln!(text, "gleaner run: {} of {all} tasks were called off", self.cancelled);
        }
        text
    }

    /// The last line of `--json`.
    pub fn json(&self, took: Duration) -> Result<String> {
        let Self { succeeded, failed, cancelled, here, .. } = *self;
        let tasks = succeeded + failed + cancelled;
        let elapsed_us = took.as_micros() as u64;
        to_json(
            &serde_json::json!({ "summary": SummaryLine { tasks, succeeded, failed, cancelled, here, elapsed_us } }),
        )
    }
}

fn to_json(value: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string(value).map_err(|error| crate::error::CliError::internal(error.to_string()))?;
    Ok(json_shown(&text))
}

/// `FILE:LINE: exited with status 1: COMMAND`.
fn failure(finished: &Finished) -> String {
    let origin = finished.item.origin.clone().unwrap_or_else(|| format!("task {}", finished.item.index()));
    let how = match &finished.result {
        Ok(ended) => match ended.status {
            ExitStatus::Code(code) => format!("exited with status {code}"),
            ExitStatus::Signal(signal) => format!("killed by signal {signal}"),
        },
        Err(error) => shown(error.to_string().lines().next().unwrap_or_default()).into_owned(),
    };
    let shown = printable(&finished.item.command.shown);
    let command: String = shown.chars().take(COMMAND_CHARACTERS_MAX).collect();
    let more = if command.len() < shown.len() { "…" } else { "" };
    format!("{origin}: {how}: {command}{more}")
}

/// What is to be said of a task at once, beside what it said itself.
pub fn remarks(finished: &Finished) -> String {
    let origin = finished.item.origin.clone().unwrap_or_else(|| format!("task {}", finished.item.index()));
    let mut text = String::new();
    match &finished.result {
        Ok(ended) => {
            for note in &ended.notes {
                let _ = writeln!(text, "gleaner run: {origin}: {}", shown(note));
            }
            if let (Place::Here { why }, false) = (&ended.place, ended.notes.is_empty()) {
                let _ = writeln!(text, "gleaner run: {origin}: ran here: {}", shown(why));
            }
        }
        Err(Error::Cancelled) => {}
        Err(error) => {
            let _ = writeln!(text, "gleaner run: {origin}: {}", shown_lines(&error.to_string()));
        }
    }
    text
}

/// The line of `--json` for a task.
pub fn json(finished: &mut Finished) -> Result<String> {
    let [stdout, stderr] = &mut finished.said;
    let ((stdout_text, more_out), (stderr_text, more_err)) = (stdout.text()?, stderr.text()?);
    let mut line = TaskLine {
        number: finished.item.number,
        index: finished.item.index(),
        origin: finished.item.origin.clone(),
        argv: finished.item.command.argv.iter().map(|word| faithful(word)).collect(),
        place: "nowhere",
        attempts: finished.attempts,
        elapsed_us: finished.took.as_micros() as u64,
        stdout_text,
        stderr_text,
        is_cut: more_out || more_err,
        ..TaskLine::default()
    };
    match &finished.result {
        Ok(ended) => {
            line.status = status(ended.status);
            (line.exit, line.signal, line.signal_name) = client::report::ended(ended.status);
            match &ended.place {
                Place::Pool(task) => (line.place, line.task) = ("remote", Some(task.to_hex())),
                Place::Here { why } => (line.place, line.why) = ("local", Some(why.clone())),
            }
        }
        Err(error) => {
            line.status = if finished.is_cancelled() { "cancelled".into() } else { "failed".into() };
            line.why = Some(error.to_string());
        }
    }
    to_json(&line)
}

fn status(ended: ExitStatus) -> String {
    match ended {
        ExitStatus::Code(code) => format!("exit {code}"),
        ExitStatus::Signal(signal) => format!("signal {signal}"),
    }
}
