//! `gleaner worker`: runs tasks of the pool that this machine has joined.

use crate::args::Worker;
use crate::config::{Config, Flags, Surroundings};
use crate::detach::{self, Ready, lock_role, make_private_folder};
use crate::error::{CliError, Result};
use crate::parts::{self, PartError, WorkerConfig};
use crate::render::{print, say};

/// Starts the worker.
pub fn run(arguments: Worker) -> Result {
    let ready = Ready::new(arguments.background.ready_fd)?;
    let config = Config::load(&Surroundings::of_process(), flags(&arguments))?;
    let Some(hub) = config.worker_hub.clone() else {
        return Err(CliError::config("this machine has joined no pool").hint("gleaner join TOKEN"));
    };
    if arguments.background.detach {
        return start_in_background(&config, &detach::own_arguments());
    }
    crate::resident::prepare();
    let worker = WorkerConfig { hub: Some(hub.value), ..own_config(&config)? };
    let _lock = lock_role(&config.state_dir.value, "worker")?;
    // Before any thread exists.
    let sandbox = parts::prepare_sandbox(&worker).map_err(super::part_failed)?;
    let name = worker.hub.as_ref().map_or("the hub", super::hub_name).to_owned();
    let tell = Box::new(move |()| {
        say(&format!("works for {name}"));
        ready.tell("").map_err(|error| PartError::Failed(format!("telling that the worker is ready: {error}")))
    });
    parts::run_worker(worker, sandbox, tell).map_err(super::part_failed)
}

/// The settings that its flags give.
pub fn flags(arguments: &Worker) -> Flags {
    Flags {
        state_dir: arguments.node.state.clone(),
        name: arguments.node.name.clone(),
        cpus: arguments.cpus,
        tags: arguments.tag.clone(),
        listen: None,
        metrics: None,
    }
}

/// The worker's configuration, without a hub; makes its folder.
pub fn own_config(config: &Config) -> Result<WorkerConfig> {
    let state_dir = config.state_dir.value.join("worker");
    make_private_folder(&state_dir)?;
    crate::machine::mark(&state_dir);
    let (name, tags) = (config.name.value.clone(), config.tags.value.0.clone());
    let all = worker::scratch::memory_bytes();
    let memory_reserve = config.memory_reserve.as_ref().map(|reserve| reserve.value.bytes(all));
    let memory_max = config.memory_max.as_ref().map(|most| most.value.bytes(all));
    let rest = config.rest.value.clone();
    let disk = store::room::Room::at(&state_dir).map_or(0, |disk| disk.all_bytes);
    let lent = config.guests.value.lent(disk);
    let (cpus, own_work, lends_network) = (config.cpus.value, config.own_work.value, config.guests.value.network);
    let there_are = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
    if cpus > there_are {
        let what = format!("offers {cpus} CPUs, and this machine has {there_are}: as many tasks at once share them");
        say(&format!("{what} (cpus = \"100%\" in node.toml, or no --cpus, offers all that there are)"));
    }
    Ok(WorkerConfig {
        hub: None,
        state_dir,
        name,
        cpus,
        tags,
        rest,
        memory_reserve,
        memory_max,
        lent,
        lends_network,
        requires_signatures: config.node_signatures.value.are_required(),
        own_work,
    })
}

/// Starts `gleaner` with `arguments` in the background, and prints what it says.
pub fn start_in_background(config: &Config, arguments: &[std::ffi::OsString]) -> Result {
    make_private_folder(&config.state_dir.value)?;
    let log = config.state_dir.value.join("gleaner.log");
    let said = detach::start(arguments, &log)?;
    say(&format!("runs in the background; log: {}; `gleaner stop` ends it", log.display()));
    print(&said)
}
