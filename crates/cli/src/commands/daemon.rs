//! `gleaner daemon`: the client daemon. `remrun` starts it.

use crate::args::Daemon;
use crate::config::{Config, Flags, Surroundings};
use crate::detach::make_private_folder;
use crate::door::Folder;
use crate::door::start::take_ready_descriptor;
use crate::error::Result;
use crate::parts::{self, ClientConfig};
use std::fs::File;
use std::io::Write;

/// Runs the client daemon until it is told to stop.
pub fn run(arguments: Daemon) -> Result {
    let ready = arguments.ready_fd.map(take_ready_descriptor).transpose()?;
    crate::logging::begin();
    let started = configured().and_then(|config| {
        let ready = ready.as_ref().map(|ready| ready.try_clone()).transpose();
        let ready = ready.map_err(|error| crate::error::CliError::environment(error.to_string()))?;
        parts::run_client(config, ready).map_err(super::part_failed)
    });
    if let (Err(error), Some(ready)) = (&started, ready) {
        // For the one who waits; the log has it as well. It may have gone already.
        let _ = File::from(ready).write_all(error.to_string().as_bytes());
    }
    started
}

fn configured() -> Result<ClientConfig> {
    let folder = Folder::of_environment();
    folder.secure()?;
    let config = Config::load(&Surroundings::of_process(), Flags::default())?;
    let state_dir = config.state_dir.value.join("client");
    make_private_folder(&state_dir)?;
    Ok(ClientConfig { runtime_dir: folder.path().to_owned(), state_dir, hub: config.client_hub.map(|hub| hub.value) })
}
