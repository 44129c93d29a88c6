//! `gleaner run --job`: many commands at once, as tasks of one job.
//!
//! [`source`] reads the commands as they are wanted, with [`template`] for what is filled in; the threads of [`worker`]
//! run them through `gleaner_client`; the main thread shows what they said, each task apart ([`output`]), how far the job
//! is ([`progress`]), and what became of it ([`report`]).

pub mod output;
pub mod progress;
pub mod report;
pub mod source;
pub mod template;
pub mod worker;

use crate::args::{Halt, Run};
use crate::error::{CliError, Result};
use crate::remrun::signals::{Signals, die_by};
use gleaner_client::{Cancel, Session, descriptors, gather};
use progress::Progress;
use report::Tally;
use source::{Source, Typed};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use worker::{Event, Finished, Settings, Shared, Way};

/// Most tasks at once.
pub const JOBS_MAX: u32 = 512;
/// Ended tasks that may wait until they are shown, beside as many as run.
const WAITING: u64 = 64;
/// Events that wait for the main thread; beyond, threads wait.
const EVENTS_MAX: usize = 64;
/// How long tasks that were called off may take to end.
const CANCEL_TIME_MAX: Duration = Duration::from_secs(5);
/// Descriptors that this process may need.
const DESCRIPTORS: u64 = 8192;

/// Runs a job to its end. The process must have a single thread.
pub fn run(arguments: &Run, typed: Typed) -> Result<ExitCode> {
    let here = kept_here(arguments)?;
    let source = Source::new(arguments.job.as_deref(), typed)?;
    // Before it is changed for this process: tasks have what it was.
    let session = Session::open().map_err(failed)?;
    let way = match here {
        true => Way::Here(session, Cancel::new().map_err(failed)?),
        false => Way::Job(session.job().map_err(failed)?),
    };
    let count = arguments.jobs.unwrap_or_else(|| default_jobs(arguments));
    raise_descriptor_limit();
    let signals = Signals::take_over_to_end().map_err(|error| CliError::internal(error.to_string()))?;
    let settings = Settings {
        needs: arguments.needs.with_cpus(arguments.cpus),
        no_local: arguments.no_local,
        no_remote: here,
        verbose: arguments.verbose,
        allow_write: arguments.allow_write.clone(),
        retries: arguments.retries,
        halt: arguments.halt != Halt::Never,
    };
    let total = source.total();
    let shared = Shared::new(source, way, settings, u64::from(count) * 2 + WAITING);
    let (events, arriving) = sync_channel(EVENTS_MAX);
    let no_threads = |error| CliError::environment(format!("starting a thread: {error}"));
    worker::start(&shared, count, &events).map_err(no_threads)?;
    watch(signals, events).map_err(no_threads)?;
    let runner = Runner {
        shared,
        options: Shown { keep_order: arguments.keep_order, json: arguments.json, halt: arguments.halt },
        begun: Instant::now(),
        progress: Progress::new(total),
        tally: Tally::default(),
        waiting: BTreeMap::new(),
        next: 1,
        threads: count,
        cancelled: None,
        signal: None,
        trouble: None,
    };
    runner.run(&arriving)
}

/// Whether the tasks run here: it was asked for, or descriptors are open for them that do not travel.
fn kept_here(arguments: &Run) -> Result<bool> {
    let words: Vec<Vec<u8>> = arguments.command.iter().map(|word| word.clone().into_vec()).collect();
    let Some(why) = descriptors::keep_here(&words, &gather::environment()) else { return Ok(arguments.no_remote) };
    if arguments.no_local || !arguments.needs.tag.is_empty() {
        return Err(CliError::user(format!("{why}, and --no-local or --tag forbids to run it here"))
            .hint("close it for the job, such as with 3<&-"));
    }
    if arguments.verbose && !arguments.no_remote {
        crate::render::say(&format!("the job runs here: {why}"));
    }
    Ok(true)
}

fn failed(error: gleaner_client::Error) -> CliError {
    match error {
        gleaner_client::Error::Door(error) => error.into(),
        error => CliError::environment(error.to_string()),
    }
}

/// As many tasks as the pool has CPUs for, and as many again on their way if the way is long.
fn default_jobs(arguments: &Run) -> u32 {
    let here = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let status = match arguments.no_remote {
        true => None,
        false => crate::commands::ask::<client::report::Status>(&client::report::Question::Status).ok(),
    };
    let pool = status.map(|status| {
        let far = status.round_trip_us.is_some_and(|round_trip| round_trip > 5_000);
        status.workers.iter().map(|worker| worker.cpus).sum::<u32>().saturating_mul(if far { 2 } else { 1 })
    });
    let cpus = pool.filter(|cpus| *cpus > 0).unwrap_or(here);
    (cpus / arguments.cpus.max(1)).clamp(1, JOBS_MAX)
}

/// Each task needs a few descriptors here; tasks themselves have the limit that was.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(DESCRIPTORS, |maximum| maximum.min(DESCRIPTORS));
    if current.is_some_and(|current| current < wanted) {
        // With fewer, tasks that find none fail and say so.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
}

/// Tells of signals, from a thread of its own.
fn watch(signals: Signals, events: SyncSender<Event>) -> std::io::Result<()> {
    let wait = move || {
        loop {
            let mut polled = [rustix::event::PollFd::from_borrowed_fd(signals.as_fd(), rustix::event::PollFlags::IN)];
            let _ = rustix::event::poll(&mut polled, None);
            while let Some(signal) = signals.next() {
                if events.send(Event::Signal(signal)).is_err() {
                    return;
                }
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).stack_size(128 << 10).spawn(wait)?;
    Ok(())
}

/// How tasks are shown.
struct Shown {
    keep_order: bool,
    json: bool,
    halt: Halt,
}

/// The main thread's part of a job.
struct Runner {
    shared: Arc<Shared>,
    options: Shown,
    begun: Instant,
    progress: Progress,
    tally: Tally,
    /// Ended tasks whose turn to be shown has not come.
    waiting: BTreeMap<u64, Finished>,
    /// The number of the task whose turn it is.
    next: u64,
    /// Threads that still run.
    threads: u32,
    /// Until when tasks that were called off may take.
    cancelled: Option<Instant>,
    signal: Option<i32>,
    trouble: Option<CliError>,
}

impl Runner {
    fn run(mut self, events: &Receiver<Event>) -> Result<ExitCode> {
        while self.threads > 0 {
            let event = match self.cancelled {
                None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(deadline) => events.recv_timeout(deadline.saturating_duration_since(Instant::now())),
            };
            match event {
                Ok(Event::Begun) => self.progress.begun(),
                Ok(Event::Ended(finished)) => self.on_ended(*finished)?,
                Ok(Event::Idle) => self.threads -= 1,
                // What was read before still runs.
                Ok(Event::Trouble(error)) => drop(self.trouble.get_or_insert(error)),
                Ok(Event::Signal(signal)) => self.on_signal(signal),
                // One waits for a line that does not come, or for a daemon that hangs.
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        self.end()
    }

    fn on_ended(&mut self, finished: Finished) -> Result {
        self.progress.ended(finished.succeeded());
        self.tally.count(&finished);
        let failed = finished.failed();
        match self.options.keep_order {
            false => self.show(finished)?,
            true => {
                self.waiting.insert(finished.item.number, finished);
                while let Some(finished) = self.waiting.remove(&self.next) {
                    self.next += 1;
                    self.show(finished)?;
                }
            }
        }
        if failed && self.options.halt == Halt::Now {
            self.cancel();
        }
        Ok(())
    }

    fn on_signal(&mut self, signal: i32) {
        if self.signal.replace(signal).is_some() {
            // Once more: at once.
            self.cancelled = Some(Instant::now());
        }
        self.cancel();
    }

    fn cancel(&mut self) {
        self.shared.close();
        self.shared.way.cancel();
        self.cancelled.get_or_insert_with(|| Instant::now() + CANCEL_TIME_MAX);
    }

    /// Shows what a task said.
    fn show(&mut self, mut finished: Finished) -> Result {
        let json = self.options.json;
        let shown = self.progress.aside(|| match json {
            true => {
                let line = report::json(&mut finished)?;
                Ok(writeln!(crate::inherited::out(), "{line}"))
            }
            false => {
                let [stdout, stderr] = &mut finished.said;
                let shown = stdout.write_to(crate::inherited::out());
                // Nothing is left to be done if standard error is closed.
                let _ = stderr.write_to(std::io::stderr().lock());
                let _ = std::io::stderr().lock().write_all(report::remarks(&finished).as_bytes());
                Ok::<_, CliError>(shown)
            }
        })?;
        self.shared.shown();
        match shown {
            Ok(()) => Ok(()),
            // As `yes | head`: nobody wants to know any more.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.signal = Some(libc::SIGPIPE);
                self.cancel();
                Ok(())
            }
            Err(error) => {
                self.cancel();
                Err(CliError::environment(format!("writing to standard output: {error}")))
            }
        }
    }

    fn end(mut self) -> Result<ExitCode> {
        for finished in std::mem::take(&mut self.waiting).into_values() {
            self.show(finished)?;
        }
        self.progress.close();
        if self.options.json {
            let line = self.tally.json(self.begun.elapsed())?;
            // Whoever does not read it does not want it.
            let _ = writeln!(std::io::stdout().lock(), "{line}");
        }
        if self.signal != Some(libc::SIGPIPE) {
            let _ = std::io::stderr().lock().write_all(self.tally.summary().as_bytes());
        }
        if let Some(signal) = self.signal {
            // Signals that are taken over have numbers below 32.
            let status = die_by(signal as u8, false);
            return Ok(ExitCode::from(status as u8));
        }
        match self.trouble.take() {
            Some(error) => Err(error),
            None => Ok(ExitCode::from(self.tally.exit_status())),
        }
    }
}
