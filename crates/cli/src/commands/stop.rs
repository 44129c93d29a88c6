//! `gleaner stop`: ends what runs here in the background.

use crate::args::Stop;
use crate::config::{Config, Flags, Surroundings};
use crate::detach::{await_end, stop_role};
use crate::error::Result;
use crate::render::say;
use client::report::Question;
use gleaner_client::door::{Door, DoorError, Folder};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::OwnedFd;

/// Ends worker, hub and client daemon, as far as they run.
pub fn run(arguments: Stop) -> Result {
    let mut stopped = false;
    match Door::open(&Folder::of_environment()) {
        Ok(mut door) => {
            // Before it is asked: later the number may be another's.
            let process = door.process().and_then(|number| Some((number, watch(number)?)));
            let done = super::end_daemon(&mut door, &Question::Stop)?;
            if let Some((number, process)) = process {
                await_end(&process, "client daemon", number)?;
            }
            say("the client daemon has ended");
            done.note.iter().for_each(|note| say(note));
            stopped = true;
        }
        Err(DoorError::NotListening) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = Flags { state_dir: arguments.state, ..Flags::default() };
    let config = Config::load(&Surroundings::of_process(), flags)?;
    // `up` holds both locks with one process: once that has ended, the second is free.
    for role in ["worker", "hub"] {
        if let Some(pid) = stop_role(&config.state_dir.value, role)? {
            say(&format!("{role} stopped (process {pid})"));
            stopped = true;
        }
    }
    if !stopped {
        say(&format!("nothing runs here with state in {}", config.state_dir.value.display()));
    }
    Ok(())
}

/// A process, to wait for its end.
fn watch(number: i32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(number)?, PidfdFlags::empty()).ok()
}
