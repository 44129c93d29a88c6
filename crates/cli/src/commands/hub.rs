//! `gleaner hub`: a hub alone.

use super::use_hub::Whose;
use super::{use_hub, worker};
use crate::args::{Hub, NodeFlags, Serve};
use crate::config::{self, Config, Flags, NODE_FILE, NodeFile, Surroundings};
use crate::detach::{self, Ready, lock_role, make_private_folder};
use crate::error::{CliError, Result};
use crate::parts::{self, HubConfig, HubReady, Joiner, PartError};
use crate::render::say;
use gleaner_client::door::Folder;
use serde::Serialize;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// Starts the hub.
pub fn run(arguments: Hub) -> Result {
    let ready = Ready::new(arguments.background.ready_fd)?;
    let config = Config::load(&Surroundings::of_process(), flags(arguments.node, arguments.serve))?;
    if let Some(token) = arguments.above.join {
        return join(&config, &token);
    }
    if arguments.background.detach {
        return worker::start_in_background(&config, &detach::own_arguments());
    }
    crate::resident::prepare();
    let hub = own_config(&config)?;
    let _lock = lock_role(&config.state_dir.value, "hub")?;
    let account = Account::of_process()?;
    let tell = Box::new(move |hub: HubReady| {
        account.use_hub(&hub.client_token)?;
        tell(ready, &hub, arguments.json)
    });
    parts::run_hub(hub, tell).map_err(super::part_failed)
}

/// The settings that the flags of `hub` and `up` give.
pub fn flags(node: NodeFlags, serve: Serve) -> Flags {
    Flags { listen: serve.listen, metrics: serve.metrics, state_dir: node.state, name: node.name, ..Flags::default() }
}

/// The hub's configuration; makes its folder.
pub fn own_config(config: &Config) -> Result<HubConfig> {
    let state_dir = config.state_dir.value.join("hub");
    make_private_folder(&state_dir)?;
    crate::machine::mark(&state_dir);
    let above = config.hub_above.as_ref().map(|above| above.value.clone());
    Ok(HubConfig {
        listen: config.listen.value,
        state_dir,
        name: config.name.value.clone(),
        above,
        hosts_max: config.hosts_max.value,
        tasks_max: config.tasks_max.value,
        is_own_pool: false,
        journal: config.journal.as_ref().map(|journal| journal.value.clone()),
        metrics: config.metrics.as_ref().map(|metrics| metrics.value),
        extra_sync_delay: extra_sync_delay()?,
    })
}

/// As `$GLEANER_EXTRA_SYNC_US` says, in microseconds: for measurement only.
fn extra_sync_delay() -> Result<Duration> {
    let Ok(text) = std::env::var("GLEANER_EXTRA_SYNC_US") else { return Ok(Duration::ZERO) };
    let wrong = |_| CliError::environment("GLEANER_EXTRA_SYNC_US is no number").hint("unset GLEANER_EXTRA_SYNC_US");
    text.parse().map(Duration::from_micros).map_err(wrong)
}

/// Redeems the token of the hub that this one is to work for, keeps what it gave, and starts afresh without it: redeeming may
/// have left threads behind, and a worker must begin with one.
pub fn join(config: &Config, token: &str) -> Result {
    let token = super::token_text(token)?;
    let hub = own_config(config)?;
    let above = parts::redeem(&token, Joiner::Hub, &hub.state_dir, &hub.name).map_err(super::part_failed)?.hub;
    let path = config.dir.join(NODE_FILE);
    let before: NodeFile = config::read(&path)?;
    config::write(&path, &NodeFile { above: above.addresses.clone(), above_key: Some(above.key.to_hex()), ..before })?;
    say(&format!("works for the hub at {}", super::hub_name(&above)));
    let arguments = without_token(std::env::args_os().skip(1));
    let error = Command::new("/proc/self/exe").arg0("gleaner").args(arguments).exec();
    Err(CliError::environment(format!("starting the hub: {error}")).hint("gleaner hub"))
}

/// The arguments without `--join TOKEN`.
fn without_token(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut left = Vec::new();
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--join") => drop(arguments.next()),
            Some(text) if text.starts_with("--join=") => {}
            _ => left.push(argument),
        }
    }
    left
}

/// This account as a client. Its commands know nothing of the flags that a hub is started with.
pub struct Account {
    config: Config,
    door: Folder,
}

impl Account {
    /// To be called before a sandbox is prepared: without root the process is in a user namespace from then on, where this
    /// account looks like another.
    pub fn of_process() -> Result<Self> {
        let config = Config::load(&Surroundings::of_process(), Flags::default())?;
        Ok(Self { config, door: Folder::of_environment() })
    }

    /// Has its commands run on the pool of the hub that made `token`.
    pub fn use_hub(&self, token: &str) -> Result<(), PartError> {
        use_hub::redeem(&self.config, token, Whose::OfOwnHub).map_err(|error| PartError::Failed(error.to_string()))?;
        if let Err(error) = use_hub::reload(&self.door) {
            say(&format!("the client daemon does not know of it yet ({error}): `gleaner stop` restarts it"));
        }
        Ok(())
    }
}

/// What `up --json` and `hub --json` print.
#[derive(Debug, Serialize)]
struct Announcement<'a> {
    addresses: &'a [String],
    hub_key: String,
    worker_token: &'a str,
    join: String,
}

/// Tells the person (or the program) who started a hub how to join it.
pub fn tell(ready: Ready, hub: &HubReady, json: bool) -> Result<(), PartError> {
    let failed = |error: &dyn std::fmt::Display| PartError::Failed(format!("telling that the hub is ready: {error}"));
    ready.tell(&announcement(hub, json).map_err(|error| failed(&error))?).map_err(|error| failed(&error))
}

fn announcement(hub: &HubReady, json: bool) -> serde_json::Result<String> {
    let join = format!("gleaner join {}", hub.worker_token);
    if json {
        let announcement = Announcement {
            addresses: &hub.addresses,
            hub_key: hub.key.to_hex(),
            worker_token: &hub.worker_token,
            join,
        };
        return Ok(serde_json::to_string(&announcement)? + "\n");
    }
    Ok(format!(
        "hub at {}\n\
         commands of this account now run on its workers: remrun COMMAND\n\
         to add a machine of yours, once within 15 minutes (`gleaner token` makes more), type there, and paste the second line:\n  \
         gleaner join -\n  {}\n",
        hub.addresses.join(", "),
        hub.worker_token
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_starts_afresh_without_the_token() {
        let left = |line: &str| without_token(line.split(' ').map(OsString::from)).join(std::ffi::OsStr::new(" "));
        assert_eq!(left("hub --listen 0.0.0.0:1 --join T --detach"), "hub --listen 0.0.0.0:1 --detach");
        assert_eq!(left("up --join=T"), "up");
        assert_eq!(left("up --join -"), "up");
    }

    #[test]
    fn announcements() {
        let hub = HubReady {
            addresses: vec!["10.0.0.5:7433".into()],
            key: base::Digest([7; 32]),
            worker_token: "W".into(),
            client_token: "C".into(),
        };
        let text = announcement(&hub, false).expect("plain data");
        let want = "\
hub at 10.0.0.5:7433
commands of this account now run on its workers: remrun COMMAND
to add a machine of yours, once within 15 minutes (`gleaner token` makes more), type there, and paste the second line:
  gleaner join -
  W
";
        assert_eq!(text, want);
        let json = announcement(&hub, true).expect("plain data");
        assert!(json.contains(r#""join":"gleaner join W""#) && !json.contains("client_token"), "{json}");
    }
}
