//! `gleaner daemon`: the client daemon. `remrun` starts it.

use crate::args::Daemon;
use crate::config::{CLIENT_FILE, Config, Flags, Prefer, Surroundings};
use crate::detach::make_private_folder;
use crate::error::{CliError, Result};
use crate::machine;
use crate::own_files::own_files;
use crate::parts::{self, ClientConfig, ClientEnd};
use client::settings::{Reading, Source};
use gleaner_client::door::Folder;
use gleaner_client::door::start::take_ready_descriptor;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;
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
        match parts::run_client(config.clone(), settings(&config)?, ready, is_current).map_err(super::part_failed)? {
            ClientEnd::Told => return Ok(()),
            ClientEnd::Outdated => {}
        }
    }
}

/// Where a daemon that was started with `started` finds what has been changed since.
fn settings(started: &ClientConfig) -> Result<Source> {
    let file = Surroundings::of_process().config_dir()?.join(CLIENT_FILE);
    let started = started.clone();
    let read = move || match configured() {
        Ok(now) => {
            let choices = now.choices();
            let (link_wait, prefers_there) = (started.link_wait, started.prefers_there);
            let is_same_daemon = ClientConfig { link_wait, prefers_there, ..now } == started;
            Ok(Reading { choices, is_same_daemon })
        }
        Err(error) => Err(in_a_line(&error.to_string())),
    };
    Ok(Source { file, read: Arc::new(read) })
}

/// A parser's complaint without the excerpt that it draws.
pub(super) fn in_a_line(complaint: &str) -> String {
    let is_drawn = |line: &&str| line.contains(" | ") || line.trim().starts_with('|');
    complaint.lines().filter(|line| !is_drawn(line)).collect::<Vec<_>>().join(": ")
}

fn configured() -> Result<ClientConfig> {
    let folder = Folder::of_environment();
    folder.secure()?;
    let config = Config::load(&Surroundings::of_process(), Flags::default())?;
    let state_dir = config.state_dir.value.join("client");
    make_private_folder(&state_dir)?;
    machine::mark(&state_dir);
    Ok(ClientConfig {
        closed: own_files(&config, folder.path()),
        trust: config.client_trust.map(|trust| trust.value),
        requires_signatures: config.client_signatures.value.are_required(),
        runtime_dir: folder.path().to_owned(),
        state_dir,
        hub: config.client_hub.map(|hub| hub.value),
        link_wait: Duration::from_secs(config.link_wait_s.value.into()),
        prefers_there: config.prefer.value == Prefer::There,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_fits_a_line() {
        let error =
            toml::from_str::<crate::config::ClientFile>("hub = []\nlink_wait_s = \"soon\"\n").expect_err("no number");
        let line = in_a_line(&format!("client.toml: {}", error.to_string().trim_end()));
        assert!(line.starts_with("client.toml: TOML parse error at line 2, column 15: invalid type"), "{line}");
        assert!(!line.contains('\n'), "{line}");
    }
}
