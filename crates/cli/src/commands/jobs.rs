//! `gleaner jobs`, and what changes one.

use super::{ask, ask_and_print};
use crate::args::{JobArgument, Jobs, JobsCommand, Output, PriorityArguments};
use crate::error::{CliError, Result};
use crate::render;
use client::report::{BatchChanged, BatchReport, BatchTaskLine, Batches, EveryonesJobs, Question};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

/// Tasks on a page.
const PAGE: u32 = 50;
/// Tasks in one answer of the daemon.
const PORTION: u32 = 1000;

/// Lists jobs, shows one, or prints what its tasks said.
pub fn run(arguments: Jobs) -> Result<ExitCode> {
    let listed = match (arguments.command, arguments.job) {
        (Some(JobsCommand::Output(output)), _) => return print_output(output),
        (None, Some(job)) => {
            let first = (arguments.page - 1).saturating_mul(PAGE);
            ask_and_print::<BatchReport>(&Question::Job { job, first, count: PAGE, wait_ms: 0 }, arguments.json)
        }
        (None, None) if arguments.everyone => {
            ask_and_print::<EveryonesJobs>(&Question::Everyone { page: arguments.page }, arguments.json)
        }
        (None, None) => ask_and_print::<Batches>(&Question::Jobs { all: arguments.all }, arguments.json),
    };
    listed.map(|()| ExitCode::SUCCESS)
}

/// Has a job wait, or go on.
pub fn hold(arguments: JobArgument, held: bool) -> Result {
    ask_and_print::<BatchChanged>(&Question::Hold { job: arguments.job, held }, arguments.json)
}

/// Makes a job more or less urgent.
pub fn priority(arguments: PriorityArguments) -> Result {
    let priority = arguments.priority.name().to_owned();
    ask_and_print::<BatchChanged>(&Question::Priority { job: arguments.job, priority }, arguments.json)
}

/// Fails if not all is there that the tasks said.
fn print_output(output: Output) -> Result<ExitCode> {
    let mut status = ExitCode::SUCCESS;
    let (mut first, end) = match output.index {
        Some(index) => (index, index.saturating_add(1)),
        None => (0, u32::MAX),
    };
    while first < end {
        let count = (end - first).min(PORTION);
        let report: BatchReport = ask(&Question::Job { job: output.job.clone(), first, count, wait_ms: 0 })?;
        if let Some(index) = output.index.filter(|_| report.tasks.is_empty()) {
            let why = format!("the job has {} tasks, and none with number {index}", report.job.tasks);
            return Err(CliError::user(why).hint(format!("gleaner jobs {}", output.job)));
        }
        for task in &report.tasks {
            if !print_task(task)? {
                return Ok(status);
            }
            if task.is_cut {
                let why = task.why.as_deref().unwrap_or("its output was cut");
                render::say(&format!("task {}: this is not all that it said: {why}", task.index));
                status = ExitCode::FAILURE;
            }
        }
        if report.tasks.len() < count as usize {
            break;
        }
        first += count;
    }
    Ok(status)
}

/// Prints what a task said; false: nobody reads it any more.
fn print_task(task: &BatchTaskLine) -> Result<bool> {
    let copied = |path: &Option<String>, out: &mut dyn Write| -> Result<bool> {
        let Some(path) = path else { return Ok(true) };
        let mut file = File::open(path).map_err(|error| CliError::file("reading", Path::new(path), error))?;
        match std::io::copy(&mut file, out).and_then(|_| out.flush()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(CliError::environment(format!("printing {path}: {error}"))),
        }
    };
    let is_read = copied(&task.stdout, &mut crate::inherited::out())?;
    // Nothing is left to be done if standard error is closed.
    copied(&task.stderr, &mut std::io::stderr().lock())?;
    Ok(is_read)
}
