//! The threads that run a job's tasks, each one task at a time, and the gate that keeps them from running ahead of what
//! is shown.

use super::output::{Said, Spool, spool_failed};
use super::source::{Item, Source};
use crate::error::CliError;
use base::ExitStatus;
use gleaner_client::{Cancel, Ended, Error, Job, Session, Streams, Task};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use wire::lock;

/// Stack of a thread, in bytes: it waits, and little else.
const STACK_BYTES: usize = 256 << 10;

/// What a thread tells.
pub enum Event {
    /// A task has begun.
    Begun,
    /// A task has ended.
    Ended(Box<Finished>),
    /// There are no more tasks for this thread.
    Idle,
    /// The commands cannot be read any further.
    Trouble(CliError),
    /// This process got a signal.
    Signal(i32),
}

/// A task that ended one way or the other.
pub struct Finished {
    /// What it was.
    pub item: Item,
    /// How it ended.
    pub result: Result<Ended, Error>,
    /// How often it was run.
    pub attempts: u32,
    /// How long it took, over all attempts.
    pub took: Duration,
    /// What it said on standard output and error, at the last attempt.
    pub said: [Said; 2],
}

impl Finished {
    /// Whether it came to a good end.
    pub fn succeeded(&self) -> bool {
        matches!(&self.result, Ok(ended) if ended.status == ExitStatus::Code(0))
    }

    /// Whether it failed of its own.
    pub fn failed(&self) -> bool {
        !self.succeeded() && !self.is_cancelled()
    }

    /// Whether it was called off.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.result, Err(Error::Cancelled))
    }
}

/// What every task of the job is run with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What it asks for.
    pub needs: base::Needs,
    /// Fail rather than run here.
    pub no_local: bool,
    /// Run here.
    pub no_remote: bool,
    /// Ask where it ran.
    pub verbose: bool,
    /// What it may change beside.
    pub allow_write: Vec<std::path::PathBuf>,
    /// How often a task that failed is run again.
    pub retries: u32,
    /// No task begins after one has failed.
    pub halt: bool,
}

/// Where tasks run.
pub enum Way {
    /// As tasks of a job.
    Job(Job),
    /// On this machine, all of them.
    Here(Session, Cancel),
}

impl Way {
    /// Calls off all tasks.
    pub fn cancel(&self) {
        match self {
            Self::Job(job) => job.cancel(),
            Self::Here(_, cancel) => cancel.cancel(),
        }
    }

    fn run(&self, task: &Task, streams: Streams<'_>) -> Result<Ended, Error> {
        match self {
            Self::Job(job) => job.run_with(task, streams),
            Self::Here(session, cancel) => session.run_with(task, streams, cancel),
        }
    }
}

/// What the threads share.
pub struct Shared {
    /// Where the tasks come from. Held while a line is waited for.
    source: Mutex<Source>,
    /// Where they run.
    pub way: Way,
    settings: Settings,
    gate: Mutex<Gate>,
    opened: Condvar,
}

/// How far the threads may run ahead.
struct Gate {
    taken: u64,
    shown: u64,
    ahead_max: u64,
    closed: bool,
}

impl Shared {
    /// At most `ahead_max` tasks run or wait to be shown.
    pub fn new(source: Source, way: Way, settings: Settings, ahead_max: u64) -> Arc<Self> {
        let gate = Mutex::new(Gate { taken: 0, shown: 0, ahead_max, closed: false });
        Arc::new(Self { source: Mutex::new(source), way, settings, gate, opened: Condvar::new() })
    }

    /// A task has been shown: another may be taken.
    pub fn shown(&self) {
        lock(&self.gate).shown += 1;
        self.opened.notify_one();
    }

    /// No further task begins.
    pub fn close(&self) {
        lock(&self.gate).closed = true;
        self.opened.notify_all();
    }

    /// Waits until a task may be taken; false if none may any more.
    fn pass(&self) -> bool {
        let mut gate = lock(&self.gate);
        while !gate.closed && gate.taken - gate.shown >= gate.ahead_max {
            gate = self.opened.wait(gate).unwrap_or_else(PoisonError::into_inner);
        }
        gate.taken += u64::from(!gate.closed);
        !gate.closed
    }

    fn take(&self) -> Result<Option<Item>, CliError> {
        if !self.pass() {
            return Ok(None);
        }
        let mut source = lock(&self.source);
        let item = source.take();
        // Looked at before another thread can find a line that cannot be read, which ends the job only behind this one.
        let is_closed = lock(&self.gate).closed;
        drop(source);
        match item {
            // It was closed while the line was waited for.
            Ok(Some(_)) if is_closed => Ok(None),
            Ok(Some(item)) => Ok(Some(item)),
            other => {
                self.close();
                other
            }
        }
    }
}

/// Starts `count` threads that run tasks until there are no more.
pub fn start(shared: &Arc<Shared>, count: u32, events: &SyncSender<Event>) -> std::io::Result<()> {
    for number in 0..count {
        let (shared, events) = (shared.clone(), events.clone());
        let thread = std::thread::Builder::new().name(format!("task-{number}")).stack_size(STACK_BYTES);
        thread.spawn(move || work(&shared, &events))?;
    }
    Ok(())
}

/// One thread. Nobody listens any more when the job is over: then it ends too.
fn work(shared: &Shared, events: &SyncSender<Event>) {
    loop {
        let item = match shared.take() {
            Ok(Some(item)) => item,
            Ok(None) => break,
            Err(error) => {
                let _ = events.send(Event::Trouble(error));
                break;
            }
        };
        if events.send(Event::Begun).is_err() {
            return;
        }
        let finished = finish(shared, item);
        if shared.settings.halt && finished.failed() {
            shared.close();
        }
        if events.send(Event::Ended(Box::new(finished))).is_err() {
            return;
        }
    }
    let _ = events.send(Event::Idle);
}

/// Runs a task to its end, again if it fails and may be.
fn finish(shared: &Shared, item: Item) -> Finished {
    let settings = &shared.settings;
    let task = Task::new(item.command.argv.iter().map(|word| OsStr::from_bytes(word)));
    let task = task
        .cpus(settings.needs.cpus)
        .no_local(settings.no_local)
        .no_remote(settings.no_remote)
        .notes(settings.verbose);
    let task = settings.needs.tags.iter().fold(task.memory_mib(settings.needs.memory_mib), |task, tag| task.tag(tag));
    let task = task.rank(item.number.try_into().unwrap_or(u32::MAX));
    let task = settings.allow_write.iter().fold(task, |task, path| task.allow_write(path));
    let begun = Instant::now();
    let mut attempts = 0;
    loop {
        attempts += 1;
        let (result, said) = attempt(shared, &task);
        let finished = Finished { item: item.clone(), result, attempts, took: begun.elapsed(), said };
        if !finished.failed() || attempts > settings.retries {
            return finished;
        }
    }
}

fn attempt(shared: &Shared, task: &Task) -> (Result<Ended, Error>, [Said; 2]) {
    let spooled = || {
        let null = File::open("/dev/null").map_err(spool_failed)?;
        Ok((null, Spool::new().map_err(spool_failed)?))
    };
    let (null, spool) = match spooled() {
        Ok(spooled) => spooled,
        Err(error) => return (Err(error), Said::nothing()),
    };
    let result = shared.way.run(task, spool.streams(null.as_fd()));
    match spool.said() {
        Ok(said) => (result, said),
        Err(error) => (Err(spool_failed(error)), Said::nothing()),
    }
}
