//! `gleaner stop`: ends what runs here in the background.

use crate::args::Stop;
use crate::config::{Config, Flags, Surroundings};
use crate::detach::stop_role;
use crate::error::Result;
use crate::render::say;
use client::report::Question;
use gleaner_client::door::{Door, DoorError, Folder};

/// Ends worker, hub and client daemon, as far as they run.
pub fn run(arguments: Stop) -> Result {
    let mut stopped = false;
    match Door::open(&Folder::of_environment()) {
        Ok(mut door) => {
            let done = super::end_daemon(&mut door, &Question::Stop)?;
            say("the client daemon ends");
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
