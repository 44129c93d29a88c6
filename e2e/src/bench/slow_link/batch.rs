//! A job's tasks, launched together.

use super::workload::Workload;
use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::process::Run;
use std::time::{Duration, Instant};

/// How long a task may take, with its wait for a worker.
const LIMIT: Duration = Duration::from_secs(900);

/// How the tasks of a job come to the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// A `remrun` for each, all at the same time.
    Each,
}

/// How a job is launched unless that is what is measured.
pub const USUAL: How = How::Each;

/// What came of a job.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Seconds from the start to the end of the last task.
    pub took: f64,
    /// When each task had ended.
    pub ends: Vec<f64>,
}

/// Runs all tasks, with their computing or (to learn what they use) without.
pub fn run(pool: &Pool, workload: &Workload, how: How, at_once: bool) -> Result<Batch> {
    let started = Instant::now();
    let ends = match how {
        How::Each => each(pool, workload, at_once, started)?,
    };
    workload.take_outputs()?;
    Ok(Batch { took: ends.iter().copied().fold(0.0, f64::max), ends })
}

fn each(pool: &Pool, workload: &Workload, at_once: bool, started: Instant) -> Result<Vec<f64>> {
    let one = |number: usize| -> Result<f64> {
        let words = workload.command(number, at_once);
        let words = words.iter().map(String::as_str);
        let mut command = pool.client.remrun(&["--no-local"].into_iter().chain(words).collect::<Vec<_>>());
        command.current_dir(workload.place());
        Run::new(command).within(LIMIT).run()?.expect_ok(&format!("task {number}"))?;
        Ok(started.elapsed().as_secs_f64())
    };
    let one = &one;
    std::thread::scope(|scope| {
        let tasks: Vec<_> = (0..workload.tasks.len()).map(|number| scope.spawn(move || one(number))).collect();
        let ended = tasks.into_iter().map(|task| task.join().map_err(|_| Error::Product("a task panicked".into()))?);
        ended.collect()
    })
}
