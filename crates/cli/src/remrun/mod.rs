//! `remrun`: hands one command over to the client daemon, waits for its end, and ends the same way.
//!
//! [`options`] reads the line, `gleaner_client` knocks at the door and collects what the command sees of this process,
//! [`session`] talks with the daemon, [`local`] runs the command here when it is to run here.

pub mod definition;
pub mod local;
pub mod options;
pub mod session;
pub mod signals;
pub mod streams;
pub mod terminal;

use base::ExitStatus;
use base::door::{GUEST_MARK, Request, VERSION};
use gleaner_client::descriptors::Inherited;
use gleaner_client::door::{Door, DoorError, Folder};
use gleaner_client::{TRIES_MAX, descriptors, gather, start_time_max};
use options::{Line, Run};
use rustix::io::Errno;
use session::{End, Session};
use signals::Signals;
use std::time::Instant;

/// Exit status when remrun itself fails.
pub const FAILED: u8 = 125;

/// Runs `remrun` with the arguments after its own name; returns the status to exit with, if it returns at all.
pub fn main(arguments: Vec<Vec<u8>>) -> i32 {
    let run = match options::parse(arguments) {
        Ok(Line::Run(run)) => run,
        Ok(Line::Help) => return print(&definition::help()),
        Ok(Line::Version) => return print(concat!("remrun ", env!("CARGO_PKG_VERSION"), "\n")),
        Err(what) => return fail(&format!("{what}\n  help: remrun --help"), FAILED),
    };
    // A guest's commands run where it runs: the daemon is out of its reach, and its files are all here.
    if rustix::fs::access(GUEST_MARK, rustix::fs::Access::EXISTS).is_ok() {
        return here(&run);
    }
    let closed = match streams::open_closed_streams() {
        Ok(closed) => closed,
        Err(error) => return fail(&format!("opening /dev/null: {error}"), FAILED),
    };
    let mut run = run;
    run.options.here = closed.map(|stream| format!("its standard {} is closed", streams::NAMES[stream]));
    match descriptors::look(&run.argv, &gather::environment()) {
        Inherited::Here(why) => run.options.here = run.options.here.or(Some(why)),
        Inherited::Watched(watched) => run.options.descriptors = watched,
    }
    elsewhere(&run)
}

/// Has the daemon run the command.
fn elsewhere(run: &Run) -> i32 {
    let folder = Folder::of_environment();
    let start_time = start_time_max(run.options.no_local);
    // Until the command is handed over, signals act on us as they would on it.
    let mut door = match Door::open_or_start(&folder, Instant::now() + start_time) {
        Ok(door) => door,
        Err(error) => return without_daemon(run, &error),
    };
    let tell = |why: &DoorError| {
        if rustix::termios::isatty(streams::standard_streams()[2]) {
            say(&session::waits_for(why));
        }
    };
    if let Err(stopped) = door.wait_while_stopped(tell) {
        return without_daemon(run, &stopped);
    }
    let request = match gather::command(run.argv.clone(), run.needs.clone()) {
        Ok(command) => Request::Run {
            version: VERSION,
            command: Box::new(command),
            options: run.options.clone(),
            window: streams::window(),
            world: gather::world(),
        },
        Err(error @ DoorError::Directory(_)) if !run.options.no_local => return stays_here(run, &error),
        Err(error) => return fail(&error.to_string(), FAILED),
    };
    let signals = match Signals::take_over() {
        Ok(signals) => signals,
        Err(error) => return fail(&format!("taking over the signals: {error}"), FAILED),
    };
    let mut session = Session::new(&folder, &signals);
    let mut tries = TRIES_MAX;
    loop {
        let ended = session.run(&mut door, &request);
        let lost = match ended.and_then(|end| conclude(run, end, &mut session, &signals, &door)) {
            Ok(status) => return status,
            Err(lost) => lost,
        };
        if let Some(task) = session.launched() {
            session.close();
            return outcome(&folder, task);
        }
        // Nothing was launched, so nothing can happen twice: again with a new daemon, and at last without one.
        tries -= 1;
        if tries == 0 {
            session.close();
            signals.restore();
            return without_daemon(run, &lost);
        }
        door = match Door::open_or_start(&folder, Instant::now() + start_time) {
            Ok(door) => door,
            Err(error) => {
                signals.restore();
                return without_daemon(run, &error);
            }
        };
    }
}

/// Ends as the talk with the daemon ended. The error is that the daemon is gone.
fn conclude(run: &Run, end: End, session: &mut Session<'_>, signals: &Signals, door: &Door) -> Result<i32, DoorError> {
    let gave_keys = session.close();
    match end {
        End::Done(status) => Ok(end_as(status, gave_keys)),
        End::RunHere(why) => {
            signals.restore();
            if run.options.verbose {
                say(&format!("runs here: {why}"));
            }
            if why == base::door::CCACHE_HERE {
                local::have_ccache_send();
            }
            Ok(here(run))
        }
        End::Failed { message, code } => Ok(fail(&message, code)),
        End::Interrupted(signal) => Ok(end_as(ExitStatus::Signal(signal), gave_keys)),
        End::Stopped => Ok(stopped(run, session.launched(), signals, &door.stopped())),
        End::Lost => Err(DoorError::NotListening),
    }
}

/// The daemon is stopped: what it has not launched runs here.
fn stopped(run: &Run, launched: Option<base::TaskId>, signals: &Signals, why: &DoorError) -> i32 {
    match launched {
        Some(task) => fail(&gleaner_client::unknown_end(why, task), FAILED),
        None => {
            signals.restore();
            without_daemon(run, why)
        }
    }
}

/// The daemon cannot be had: runs the command here, if the caller allows that.
fn without_daemon(run: &Run, error: &DoorError) -> i32 {
    if run.options.no_local {
        return fail(&error.to_string(), FAILED);
    }
    say(&format!("{error}; running here"));
    here(run)
}

/// Runs the command here, for this reason.
fn stays_here(run: &Run, why: &DoorError) -> i32 {
    if run.options.verbose {
        say(&format!("runs here: {why}"));
    }
    here(run)
}

/// Runs the command in our place.
fn here(run: &Run) -> i32 {
    let (what, status) = local::become_command(&run.argv);
    fail(&what, status)
}

/// The daemon died while the command ran: a new one knows from its journal whether the end was committed.
fn outcome(folder: &Folder, task: base::TaskId) -> i32 {
    match gleaner_client::ask_outcome(folder, task) {
        Ok(Some(Some(status))) => end_as(status, false),
        Ok(Some(None)) => fail("the client daemon died while the command ran; nothing was committed", FAILED),
        Ok(None) => {
            fail("the client daemon died while the command ran, and again when asked what became of it", FAILED)
        }
        Err(error) => {
            let hint = format!("  what became of it: gleaner explain {task}");
            fail(&format!("the client daemon died while the command ran; {error}\n{hint}"), FAILED)
        }
    }
}

/// Ends as the command ended. `gave_keys`: what ended it may have been typed, as Ctrl-C, and locally would have reached all of the
/// foreground.
fn end_as(status: ExitStatus, gave_keys: bool) -> i32 {
    match status {
        ExitStatus::Code(code) => code.into(),
        ExitStatus::Signal(signal) if !base::command::is_fatal(signal.into()) => {
            fail(&format!("the command is said to have ended by signal {signal}, by which none ends"), FAILED)
        }
        ExitStatus::Signal(signal) => {
            let typed = [libc::SIGINT, libc::SIGQUIT].contains(&signal.into());
            signals::die_by(signal, typed && gave_keys)
        }
    }
}

/// Writes lines to standard error: each with our name before it, except those that continue one (indented).
fn say(message: &str) {
    say_lines(message, "\n");
}

/// The same with `end` after each line: a raw terminal wants a carriage return as well.
fn say_lines(message: &str, end: &str) {
    let mut text = String::with_capacity(message.len() + 16);
    for line in message.lines() {
        if !line.starts_with(' ') {
            text.push_str("remrun: ");
        }
        text.push_str(&base::path::shown(line));
        text.push_str(end);
    }
    write_all(2, text.as_bytes());
}

fn fail(message: &str, code: u8) -> i32 {
    say(message);
    code.into()
}

fn print(text: &str) -> i32 {
    if write_all(1, text.as_bytes()) { 0 } else { FAILED.into() }
}

/// Writes to one of the standard streams; whether all was written.
fn write_all(stream: usize, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match rustix::io::write(streams::standard_streams()[stream], bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    true
}
