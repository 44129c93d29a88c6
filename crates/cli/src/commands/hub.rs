//! `gleaner hub`: a hub alone.

use super::worker;
use crate::args::{Hub, NodeFlags};
use crate::config::{Config, Flags, Surroundings};
use crate::detach::{self, Ready, lock_role, make_private_folder};
use crate::error::Result;
use crate::parts::{self, HubConfig, HubReady, PartError};
use serde::Serialize;

/// Starts the hub.
pub fn run(arguments: Hub) -> Result {
    let ready = Ready::new(arguments.background.ready_fd)?;
    let config = Config::load(&Surroundings::of_process(), flags(arguments.node, arguments.listen, None))?;
    if arguments.background.detach {
        return worker::start_in_background(&config, &detach::own_arguments());
    }
    crate::logging::begin();
    let hub = own_config(&config)?;
    let _lock = lock_role(&config.state_dir.value, "hub")?;
    let tell = Box::new(move |hub: HubReady| tell(ready, &hub, arguments.json, None));
    parts::run_hub(hub, tell).map_err(super::part_failed)
}

/// The settings that the flags of `hub` and `up` give.
pub fn flags(node: NodeFlags, listen: Option<String>, cpus: Option<u32>) -> Flags {
    Flags { listen, cpus, state_dir: node.state, name: node.name }
}

/// The hub's configuration; makes its folder.
pub fn own_config(config: &Config) -> Result<HubConfig> {
    let state_dir = config.state_dir.value.join("hub");
    make_private_folder(&state_dir)?;
    Ok(HubConfig { listen: config.listen.value, state_dir, name: config.name.value.clone() })
}

/// What `up --json` and `hub --json` print.
#[derive(Debug, Serialize)]
struct Announcement<'a> {
    addresses: &'a [String],
    hub_key: String,
    worker_token: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_token: Option<&'a str>,
    join: String,
}

/// Tells the person (or the program) who started a hub how to join it.
pub fn tell(ready: Ready, hub: &HubReady, json: bool, note: Option<&str>) -> Result<(), PartError> {
    let failed = |error: &dyn std::fmt::Display| PartError::Failed(format!("telling that the hub is ready: {error}"));
    ready.tell(&announcement(hub, json, note).map_err(|error| failed(&error))?).map_err(|error| failed(&error))
}

fn announcement(hub: &HubReady, json: bool, note: Option<&str>) -> serde_json::Result<String> {
    let join = format!("echo {} | gleaner join -", hub.worker_token);
    if json {
        // With `up`, this account has used up the client's token; after `hub`, someone else will.
        let client_token = note.is_none().then_some(hub.client_token.as_str());
        let announcement = Announcement {
            addresses: &hub.addresses,
            hub_key: hub.key.to_hex(),
            worker_token: &hub.worker_token,
            client_token,
            join,
        };
        return Ok(serde_json::to_string(&announcement)? + "\n");
    }
    let mut text = format!("hub at {}\n", hub.addresses.join(", "));
    match note {
        Some(note) => text.push_str(&format!("{note}\n")),
        None => text.push_str(&format!("to use it:         echo {} | gleaner use -\n", hub.client_token)),
    }
    text.push_str(&format!("to add a machine:  {join}\n"));
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements() {
        let hub = HubReady {
            addresses: vec!["10.0.0.5:7433".into()],
            key: base::Digest([7; 32]),
            worker_token: "W".into(),
            client_token: "C".into(),
        };
        let text = announcement(&hub, false, None).expect("plain data");
        let want = "\
hub at 10.0.0.5:7433
to use it:         echo C | gleaner use -
to add a machine:  echo W | gleaner join -
";
        assert_eq!(text, want);
        let json = announcement(&hub, true, Some("ready")).expect("plain data");
        assert!(json.contains(r#""join":"echo W | gleaner join -""#) && !json.contains("client_token"), "{json}");
    }
}
