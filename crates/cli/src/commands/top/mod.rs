//! `gleaner top`: the pool as it is, looked at again and again.
//!
//! A thread asks; what it hears is shown on the terminal ([`view`]: what there is to show, [`draw`]: how), or printed as lines of JSON
//! where there is no terminal. The terminal is left as it was found, whatever happens.

mod draw;
mod view;

use super::ask;
use crate::args::Top;
use crate::error::{CliError, Result};
use crate::remrun::signals::Signals;
use crate::render;
use client::report::{Overview, Question};
use ratatui::DefaultTerminal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Serialize;
use std::io::{IsTerminal, stdin, stdout};
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use view::{Key, View};

/// How often it is looked for signals, and how long there has been no answer.
const TICK: Duration = Duration::from_millis(250);
/// What a terminal that takes keys as they are gives for Ctrl-C.
const CONTROL_C: u8 = 3;
/// Answers that wait to be shown; who asks waits then.
const ANSWERS_MAX: usize = 2;

/// Watches the pool.
pub fn run(arguments: Top) -> Result<ExitCode> {
    let first: Overview = ask(&Question::Overview)?;
    if arguments.once {
        return print_once(&first);
    }
    if arguments.json || !stdout().is_terminal() || !stdin().is_terminal() {
        return print_lines(first, arguments.interval);
    }
    let signals = Signals::take_over_to_end().map_err(|error| CliError::internal(format!("signals: {error}")))?;
    let asking = Asking::start(arguments.interval)?;
    let mut view = View::with_interval(arguments.interval.as_millis() as u64);
    view.take(Ok(first), 0);
    // From here on also a panic leaves the terminal as it was.
    let shown = ratatui::try_init().and_then(|mut terminal| {
        let shown = show(&mut terminal, &mut view, &asking, &signals);
        // What it does when it is dropped, and complains of if the terminal is gone.
        let _ = terminal.show_cursor();
        std::mem::forget(terminal);
        shown
    });
    let _ = ratatui::try_restore();
    shown.map_err(|error| CliError::environment(format!("the terminal: {error}")).hint("gleaner top --json"))
}

/// A look, for programs.
#[derive(Serialize)]
struct Line<'a> {
    /// When: milliseconds since 1970 UTC.
    at_ms: i64,
    #[serde(flatten)]
    overview: &'a Overview,
}

impl<'a> Line<'a> {
    fn of(overview: &'a Overview) -> Self {
        Self { at_ms: wire::now_millis(), overview }
    }
}

fn print_once(overview: &Overview) -> Result<ExitCode> {
    render::print_json(&Line::of(overview))?;
    match &overview.status.problem {
        None => Ok(ExitCode::SUCCESS),
        Some(problem) => Err(CliError::environment(problem.clone()).hint("gleaner status")),
    }
}

/// Prints a line for each look, until nobody reads them.
fn print_lines(first: Overview, interval: Duration) -> Result<ExitCode> {
    let asking = Asking::start(interval)?;
    let mut next = Some(Ok(first));
    while let Some(answer) = next {
        let overview = answer.unwrap_or_else(|error| {
            let mut overview = Overview::default();
            overview.status.problem = Some(error);
            overview
        });
        let line =
            serde_json::to_string(&Line::of(&overview)).map_err(|error| CliError::internal(error.to_string()))?;
        if !render::print_to_reader(&format!("{}\n", render::json_shown(&line)))? {
            break;
        }
        next = asking.answers.recv().ok();
    }
    Ok(ExitCode::SUCCESS)
}

/// A thread that asks.
struct Asking {
    answers: Receiver<std::result::Result<Overview, String>>,
    _stop: Sender<std::convert::Infallible>,
}

impl Asking {
    /// Asks once in an interval, the first time when one has passed.
    fn start(interval: Duration) -> Result<Self> {
        let (answered, answers) = mpsc::sync_channel(ANSWERS_MAX);
        let (stop, stopped) = mpsc::channel();
        let asks = move || {
            let mut due = Instant::now() + interval;
            while stopped.recv_timeout(due.saturating_duration_since(Instant::now())) == Err(RecvTimeoutError::Timeout)
            {
                // One that was answered late is not made up for.
                due = Instant::now() + interval;
                // A daemon that has ended (`gleaner up` and `use` see to that) is started again, as by any command.
                if answered.send(ask(&Question::Overview).map_err(|error| error.message)).is_err() {
                    return;
                }
            }
        };
        let started = std::thread::Builder::new().name("asks".into()).spawn(asks);
        started.map_err(|error| CliError::environment(format!("no thread: {error}")))?;
        Ok(Self { answers, _stop: stop })
    }
}

fn show(
    terminal: &mut DefaultTerminal,
    view: &mut View,
    asking: &Asking,
    signals: &Signals,
) -> std::io::Result<ExitCode> {
    let began = Instant::now();
    loop {
        let now_ms = began.elapsed().as_millis() as u64;
        while let Ok(answer) = asking.answers.try_recv() {
            view.take(answer, now_ms);
        }
        terminal.draw(|frame| draw::draw(frame, view, now_ms))?;
        let keys = match typed(signals)? {
            Typed::Keys(keys) => keys,
            Typed::Signal(signal) => return Ok(ExitCode::from(128 + signal)),
            Typed::End => return Ok(ExitCode::SUCCESS),
        };
        if !keys.into_iter().all(|key| view.press(key)) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// What came from the person, or from whoever ends this.
enum Typed {
    Keys(Vec<Key>),
    Signal(u8),
    /// There is no terminal any more.
    End,
}

/// Waits for it, a tick at most. Keys are read here: what reads them in libraries goes on reading for ever when the terminal is gone.
fn typed(signals: &Signals) -> std::io::Result<Typed> {
    let tick = Timespec { tv_sec: 0, tv_nsec: TICK.subsec_nanos().into() };
    let (input, told) = (stdin(), signals.as_fd());
    let mut waits = [PollFd::new(&input, PollFlags::IN), PollFd::from_borrowed_fd(told, PollFlags::IN)];
    match poll(&mut waits, Some(&tick)) {
        Ok(_) => {}
        Err(Errno::INTR) => return Ok(Typed::Keys(Vec::new())),
        Err(error) => return Err(error.into()),
    }
    let is_readable = !waits[0].revents().is_empty();
    if let Some(signal) = signals.next() {
        return Ok(Typed::Signal(signal as u8));
    }
    let mut bytes = [0; 64];
    match if is_readable { rustix::io::read(&input, &mut bytes) } else { return Ok(Typed::Keys(Vec::new())) } {
        Ok(0) | Err(Errno::IO) => Ok(Typed::End),
        Ok(count) => Ok(Typed::Keys(keys(&bytes[..count]))),
        Err(Errno::INTR | Errno::AGAIN) => Ok(Typed::Keys(Vec::new())),
        Err(error) => Err(error.into()),
    }
}

/// The keys that mean something. Behind an escape comes one that does not.
fn keys(bytes: &[u8]) -> Vec<Key> {
    let plain = bytes.iter().take_while(|byte| **byte != 0x1b);
    plain
        .filter_map(|byte| match *byte {
            b'q' | CONTROL_C => Some(Key::End),
            b'c' => Some(Key::ByCpus),
            b'n' => Some(Key::ByName),
            b'?' | b'h' => Some(Key::Help),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_c_ends_and_c_sorts() {
        assert_eq!(keys(b"cn?"), [Key::ByCpus, Key::ByName, Key::Help]);
        assert_eq!((keys(b"q"), keys(b"\x03")), (vec![Key::End], vec![Key::End]));
        assert_eq!(keys(b"\x1b[Dq\x1bc"), [], "an arrow is none of them");
    }

    #[test]
    fn a_line_has_all_that_was_answered() {
        let mut overview = Overview::default();
        overview.status.tasks_running = 3;
        let line = serde_json::to_value(Line::of(&overview)).expect("plain data");
        assert_eq!((&line["status"]["tasks_running"], &line["jobs"]["older"]), (&3.into(), &0.into()));
        assert!(line["at_ms"].is_i64() && line["figures"].is_null(), "{line}");
    }
}
