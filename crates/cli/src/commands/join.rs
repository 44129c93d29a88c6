//! `gleaner join`: makes this machine a worker of a pool, and runs the worker.

use super::worker;
use crate::args::{Join, Worker};
use crate::config::{self, Config, NODE_FILE, NodeFile, Surroundings};
use crate::detach::make_private_folder;
use crate::error::{CliError, Result};
use crate::parts::{self, Joiner};
use crate::render::say;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Redeems the token, keeps what it gave, and becomes `gleaner worker`.
pub fn run(arguments: Join) -> Result {
    let config = Config::load(&Surroundings::of_process(), worker::flags(&arguments.worker))?;
    let token = super::token_of(&arguments.token)?;
    let state_dir = config.state_dir.value.join("worker");
    make_private_folder(&state_dir)?;
    let hub = parts::redeem(&token, Joiner::Worker, &state_dir, &config.name.value).map_err(super::part_failed)?.hub;
    let path = config.dir.join(NODE_FILE);
    let before: NodeFile = config::read(&path)?;
    let after = NodeFile { hub: hub.addresses.clone(), hub_key: Some(hub.key.to_hex()), ..before };
    config::write(&path, &after)?;
    say(&format!("joined the pool of {}", super::hub_name(&hub)));
    let arguments_of_worker = worker_arguments(&arguments.worker);
    if arguments.worker.background.detach {
        return worker::start_in_background(&config, &arguments_of_worker);
    }
    // Redeeming may have left threads behind, and a worker must begin with one: start afresh.
    let error = Command::new("/proc/self/exe").arg0("gleaner").args(&arguments_of_worker).exec();
    Err(CliError::environment(format!("starting the worker: {error}")).hint("gleaner worker"))
}

/// The line of `gleaner worker` that does what `join` was told.
fn worker_arguments(worker: &Worker) -> Vec<OsString> {
    let mut line: Vec<OsString> = vec!["worker".into()];
    let mut flag = |name: &str, value: Option<OsString>| {
        if let Some(value) = value {
            line.extend([OsString::from(name), value]);
        }
    };
    flag("--state", worker.node.state.clone().map(Into::into));
    flag("--name", worker.node.name.clone().map(Into::into));
    flag("--cpus", worker.cpus.map(|cpus| cpus.to_string().into()));
    worker.tag.iter().for_each(|tag| flag("--tag", Some(tag.into())));
    line
}
