//! One task at the client daemon, from handing it over until its end.

use crate::cancel::{Cancel, Woken};
use crate::door::pulse::{Life, Pulse};
use crate::door::{Door, DoorError, Folder, Received};
use crate::error::Error;
use crate::task::Streams;
use base::codec::Malformed;
use base::door::{Reply, Request};
use base::{ExitStatus, TaskId};
use std::time::{Duration, Instant};

/// How often a daemon that goes away is tried. More than twice, since a dying one may still accept a caller.
pub const TRIES_MAX: u32 = 3;
/// How long it may take to have a daemon that listens, where there is no other way. One that dies is not waited for: this is for machines that
/// are busy.
pub const START_TIME_MAX: Duration = Duration::from_secs(60);
/// The same where a command can run here instead.
const START_TIME_MAX_OR_HERE: Duration = Duration::from_secs(10);
/// How long it may take to learn what became of a task whose daemon died.
const OUTCOME_TIME_MAX: Duration = START_TIME_MAX;

/// What the daemon made of a task.
pub enum Sent {
    /// It ended there.
    Ended(ExitStatus, TaskId),
    /// It is to run here, for this reason.
    RunHere(String),
    /// The daemon cannot be had; nothing has happened.
    NoDaemon(DoorError),
}

/// How one talk with the daemon ended.
enum Talk {
    Sent(Sent),
    /// The daemon is gone, and the task was this one if it was launched.
    Lost(Option<TaskId>),
}

/// How long a command waits for a daemon that listens.
pub fn start_time_max(no_local: bool) -> Duration {
    if no_local { START_TIME_MAX } else { START_TIME_MAX_OR_HERE }
}

/// Hands a task over and waits for its end. What the daemon notes goes to `notes`.
pub fn run(
    folder: &Folder,
    request: &Request,
    streams: Streams<'_>,
    cancel: &Cancel,
    notes: &mut Vec<String>,
) -> Result<Sent, Error> {
    let mut lost = DoorError::NotListening;
    let start_time = start_time_max(matches!(request, Request::Run { options, .. } if options.no_local));
    for _ in 0..TRIES_MAX {
        if cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let mut door = match Door::open_or_start(folder, Instant::now() + start_time) {
            Ok(door) => door,
            Err(error) => return Ok(Sent::NoDaemon(error)),
        };
        if let Err(stopped) = door.wait_while_stopped(|_| {}) {
            return Ok(Sent::NoDaemon(stopped));
        }
        match talk(&mut door, request, streams, cancel, notes) {
            Ok(Talk::Sent(sent)) => return Ok(sent),
            Ok(Talk::Lost(Some(task))) => return outcome(folder, task),
            // Nothing was launched, so nothing can happen twice.
            Ok(Talk::Lost(None)) => {}
            Err(Error::Door(error)) => lost = error,
            Err(error) => return Err(error),
        }
    }
    Ok(Sent::NoDaemon(lost))
}

fn talk(
    door: &mut Door,
    request: &Request,
    streams: Streams<'_>,
    cancel: &Cancel,
    notes: &mut Vec<String>,
) -> Result<Talk, Error> {
    match door.send(request, &[streams.stdin, streams.stdout, streams.stderr]) {
        // What it said before it closed the connection is still to be read.
        Ok(()) | Err(DoorError::System { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let (mut launched, mut pulse) = (None, Pulse::new());
    loop {
        match door.receive_now()? {
            Received::End => return Ok(Talk::Lost(launched)),
            Received::Nothing => {
                // The daemon ends what it runs for a caller that is gone.
                if cancel.wait(door.as_fd(), Some(pulse.timeout()))? == Woken::Cancelled {
                    return Err(Error::Cancelled);
                }
                if pulse.look(door, launched.is_some()) == Life::GivenUp {
                    return given_up(door.stopped(), launched);
                }
            }
            Received::Reply(Reply::Launched { task, .. }) => launched = Some(task),
            Received::Reply(Reply::Note(note)) => notes.push(note),
            // A task of a library has nobody to stop with it: it goes on when it is continued.
            Received::Reply(Reply::Stopped(_) | Reply::Keys(_)) => {}
            Received::Reply(Reply::Done(status)) => {
                return Ok(Talk::Sent(Sent::Ended(status, launched.unwrap_or(TaskId(0)))));
            }
            Received::Reply(Reply::RunHere { why }) => return Ok(Talk::Sent(Sent::RunHere(why))),
            Received::Reply(Reply::Failed { message, code }) => return Err(Error::NotRun { message, code }),
            Received::Reply(Reply::Answer(_) | Reply::Outcome(_) | Reply::Job(_)) => {
                return Err(DoorError::Malformed(Malformed("an answer that was not asked for")).into());
            }
        }
    }
}

/// The daemon is stopped: a task that it has not launched runs here, and of another one it is not known what becomes.
fn given_up(why: DoorError, launched: Option<TaskId>) -> Result<Talk, Error> {
    match launched {
        None => Ok(Talk::Sent(Sent::NoDaemon(why))),
        Some(task) => Err(Error::NotRun { message: unknown_end(&why, task), code: 125 }),
    }
}

/// What to say of a command whose daemon was stopped.
pub fn unknown_end(why: &DoorError, task: TaskId) -> String {
    format!("{why}; what becomes of the command is not known\n  once it goes on: gleaner explain {task}")
}

/// The daemon died while the task ran: a new one knows from its journal whether the end was committed.
fn outcome(folder: &Folder, task: TaskId) -> Result<Sent, Error> {
    let not_run = |message: String| Err(Error::NotRun { message, code: 125 });
    match ask_outcome(folder, task) {
        Ok(Some(Some(status))) => Ok(Sent::Ended(status, task)),
        Ok(Some(None)) => not_run("the client daemon died while the command ran; nothing was committed".into()),
        Ok(None) => {
            not_run("the client daemon died while the command ran, and again when asked what became of it".into())
        }
        Err(error) => not_run(format!(
            "the client daemon died while the command ran; {error}\n  what became of it: gleaner explain {task}"
        )),
    }
}

/// Asks a new daemon what became of a task whose daemon died: `Some(None)` if nothing was committed, `None` if the daemon
/// died as well.
pub fn ask_outcome(folder: &Folder, task: TaskId) -> Result<Option<Option<ExitStatus>>, DoorError> {
    let deadline = Instant::now() + OUTCOME_TIME_MAX;
    let ask = || {
        let mut door = Door::open_or_start(folder, deadline)?;
        door.send(&Request::Outcome(task), &[])?;
        door.receive(deadline)
    };
    let mut asked = ask();
    for _ in 1..TRIES_MAX {
        if !matches!(asked, Ok(None) | Err(DoorError::System { .. })) {
            break;
        }
        asked = ask();
    }
    match asked? {
        Some(Reply::Outcome(outcome)) => Ok(Some(outcome)),
        _ => Ok(None),
    }
}
