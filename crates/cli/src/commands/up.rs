//! `gleaner up`: a pool in one process. This account uses it from then on.

use super::{hub, worker};
use crate::args::Up;
use crate::config::{Config, Flags, Surroundings};
use crate::detach::{self, Ready, lock_role};
use crate::error::Result;
use crate::parts::{self, HubConfig, HubReady};

/// Starts hub and worker.
pub fn run(arguments: Up) -> Result {
    let ready = Ready::new(arguments.background.ready_fd)?;
    let flags = Flags { cpus: arguments.cpus, tags: arguments.tag, ..hub::flags(arguments.node, arguments.serve) };
    let config = Config::load(&Surroundings::of_process(), flags)?;
    if let Some(token) = arguments.above.join {
        return hub::join(&config, &token);
    }
    if arguments.background.detach {
        return worker::start_in_background(&config, &detach::own_arguments());
    }
    crate::resident::prepare();
    let hub_config = hub::own_config(&config)?;
    let hub_config = HubConfig { is_own_pool: arguments.while_stdin, ..hub_config };
    let worker_config = worker::own_config(&config)?;
    let _locks = (lock_role(&config.state_dir.value, "hub")?, lock_role(&config.state_dir.value, "worker")?);
    let account = hub::Account::of_process()?;
    // Before any thread exists.
    let sandbox = parts::prepare_sandbox(&worker_config).map_err(super::part_failed)?;
    let json = arguments.json;
    let tell = Box::new(move |hub: HubReady| {
        account.use_hub(&hub.client_token)?;
        hub::tell(ready, &hub, json)
    });
    parts::run_both(hub_config, worker_config, sandbox, tell, arguments.while_stdin).map_err(super::part_failed)
}
