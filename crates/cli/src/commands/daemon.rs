//! `gleaner daemon`: the client daemon. `remrun` starts it.

use crate::args::Daemon;
use crate::config::{Config, Flags, Prefer, Surroundings};
use crate::detach::make_private_folder;
use crate::error::{CliError, Result};
use crate::parts::{self, ClientConfig, ClientEnd};
use gleaner_client::door::Folder;
use gleaner_client::door::start::take_ready_descriptor;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Runs the client daemon until it is told to stop.
pub fn run(arguments: Daemon) -> Result {
    let ready = arguments.ready_fd.map(take_ready_descriptor).transpose()?;
    crate::resident::leave_caller();
    crate::resident::prepare();
    let started = serve(ready.as_ref());
    if let (Err(error), Some(ready)) = (&started, ready) {
        // For the one who waits; the log has it as well. It may have gone already.
        let _ = File::from(ready).write_all(error.to_string().as_bytes());
    }
    started
}

fn serve(ready: Option<&OwnedFd>) -> Result {
    loop {
        let config = configured()?;
        let ready = ready.map(OwnedFd::try_clone).transpose();
        let ready = ready.map_err(|error| CliError::environment(error.to_string()))?;
        let is_current = || configured().is_ok_and(|now| now == config);
        match parts::run_client(config.clone(), ready, is_current).map_err(super::part_failed)? {
            ClientEnd::Told => return Ok(()),
            ClientEnd::Outdated => {}
        }
    }
}

fn configured() -> Result<ClientConfig> {
    let folder = Folder::of_environment();
    folder.secure()?;
    let config = Config::load(&Surroundings::of_process(), Flags::default())?;
    let state_dir = config.state_dir.value.join("client");
    make_private_folder(&state_dir)?;
    Ok(ClientConfig {
        runtime_dir: folder.path().to_owned(),
        state_dir,
        hub: config.client_hub.map(|hub| hub.value),
        link_wait: Duration::from_secs(config.link_wait_s.value.into()),
        prefers_there: config.prefer.value == Prefer::There,
    })
}
