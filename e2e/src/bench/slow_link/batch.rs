//! A job's tasks, launched together.

use super::workload::{Workload, output};
use crate::error::{Context, Error, Result};
use crate::pool::Pool;
use crate::process::Run;
use gleaner_client::{Session, Task};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// How long a task may take, with its wait for a worker.
const LIMIT: Duration = Duration::from_secs(900);

/// First argument with which the suite's binary calls [`calls`].
pub const CALLS_SUBCOMMAND: &str = "calls";

/// How the tasks of a job come to the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// By `gleaner run --job`: one look at the files, one flight.
    Job,
    /// By calls of the library, all at the same time, from one process that has no job.
    Calls,
    /// A `remrun` for each, all at the same time.
    Each,
}

/// What came of a job.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Seconds from the start to the end of the last task.
    pub took: f64,
    /// When what each task wrote was there.
    pub ends: Vec<f64>,
}

/// Runs all tasks, with their computing or (to learn what they use) without.
pub fn run(pool: &Pool, workload: &Workload, how: How, at_once: bool) -> Result<Batch> {
    let batch = match how {
        How::Job => {
            let gleaner =
                pool.client.gleaner.as_deref().ok_or_else(|| Error::Missing("there is no gleaner".to_owned()))?;
            let mut command = Command::new(gleaner);
            command.args(["run", "--no-local", "--jobs", &workload.tasks.len().to_string(), "--job"]);
            together(pool, workload, command, at_once)?
        }
        How::Calls => {
            let suite = std::env::current_exe().context(|| "cannot find the suite's own binary".to_owned())?;
            let mut command = Command::new(suite);
            command.arg(CALLS_SUBCOMMAND);
            together(pool, workload, command, at_once)?
        }
        How::Each => each(pool, workload, at_once)?,
    };
    workload.take_outputs()?;
    Ok(batch)
}

/// All tasks by one command, which gets a file of their commands as its last word.
fn together(pool: &Pool, workload: &Workload, mut command: Command, at_once: bool) -> Result<Batch> {
    let count = workload.tasks.len();
    let lines: String = (0..count).map(|number| workload.command(number, at_once).join(" ") + "\n").collect();
    // Outside the tasks' folder, whose listing goes along with each launch.
    let file = pool.scratch.path().join("job");
    std::fs::write(&file, lines).at("write", &file)?;
    command.arg(&file);
    pool.client.dress(&mut command);
    command.current_dir(workload.place());
    let outcome = Run::new(command).within(LIMIT).run()?.expect_ok("a job")?;
    let begun = outcome.started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    // What a commit puts into place changes then.
    let there = |number: usize| -> Result<f64> {
        let path = workload.place().join(output(number));
        let meta = std::fs::metadata(&path).at("look at", &path)?;
        Ok(meta.ctime() as f64 + meta.ctime_nsec() as f64 / 1e9 - begun)
    };
    Ok(Batch { took: outcome.elapsed.as_secs_f64(), ends: (0..count).map(there).collect::<Result<_>>()? })
}

/// Runs each line of a file as a call of the library, in a process of its own ([`CALLS_SUBCOMMAND`]).
pub fn calls(file: &Path) -> ExitCode {
    let run = || -> std::result::Result<(), String> {
        let lines = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
        let session = Session::open().map_err(|error| error.to_string())?;
        let one = |line: &str| {
            let task = Task::new(line.split_whitespace()).no_local(true);
            let outcome = session.run(&task).map_err(|error| format!("{line}: {error}"))?;
            let good = outcome.status == gleaner_client::ExitStatus::Code(0);
            if good { Ok(()) } else { Err(format!("{line}: {:?}", outcome.status)) }
        };
        let one = &one;
        std::thread::scope(|scope| {
            let calls: Vec<_> = lines.lines().map(|line| scope.spawn(move || one(line))).collect();
            calls.into_iter().try_for_each(|call| call.join().map_err(|_| "a call panicked".to_owned())?)
        })
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn each(pool: &Pool, workload: &Workload, at_once: bool) -> Result<Batch> {
    let started = Instant::now();
    let one = |number: usize| -> Result<f64> {
        let words = workload.command(number, at_once);
        let words = words.iter().map(String::as_str);
        let mut command = pool.client.remrun(&["--no-local"].into_iter().chain(words).collect::<Vec<_>>());
        command.current_dir(workload.place());
        Run::new(command).within(LIMIT).run()?.expect_ok(&format!("task {number}"))?;
        Ok(started.elapsed().as_secs_f64())
    };
    let one = &one;
    let ends: Vec<f64> = std::thread::scope(|scope| {
        let tasks: Vec<_> = (0..workload.tasks.len()).map(|number| scope.spawn(move || one(number))).collect();
        let ended = tasks.into_iter().map(|task| task.join().map_err(|_| Error::Product("a task panicked".into()))?);
        ended.collect::<Result<_>>()
    })?;
    Ok(Batch { took: ends.iter().copied().fold(0.0, f64::max), ends })
}
