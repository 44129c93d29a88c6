//! A second hub on the journal of the pool's, which is in a database: it waits, and takes over.

use super::other::{OtherHub, hub_command};
use super::{Pool, client_in, free_address};
use crate::error::{Error, Result};
use crate::process::{Daemon, wait_for};
use std::time::Duration;

/// The name of the standby.
const NAME: &str = "standby";
/// What it says while it waits, and once it holds the journal.
const WAITS: &str = "waiting as its standby";
const HOLDS: &str = "this hub holds the journal";
/// Where a machine keeps what hubs told of where they are.
const TOLD: [&str; 3] = ["client/state/client", "worker0/state/worker", "worker1/state/worker"];

impl Pool {
    /// Starts a standby, and waits until it waits and all machines of the pool have been told where it will be. Returns where.
    pub fn start_standby(&mut self, limit: Duration) -> Result<String> {
        let root = self.scratch.path().to_path_buf();
        let mut owner = client_in(&root, NAME, &root.join("bin"), 0)?;
        let is_of_hub = |name: &std::ffi::OsStr| {
            ["GLEANER_JOURNAL", "GLEANER_HOSTS_MAX", "GLEANER_TASKS_MAX"].iter().any(|known| name == *known)
        };
        owner.env.extend(self.owner.env.iter().filter(|(name, _)| is_of_hub(name)).cloned());
        let address = free_address();
        let mut command = hub_command(&root, NAME, &owner, &address);
        command.args(["--name", NAME]);
        let hub = Daemon::start(NAME, command, &root.join(format!("log/{NAME}.log")))?;
        self.standby = Some(OtherHub { hub, owner });
        let files: Vec<_> = TOLD[..1 + self.workers.len().min(2)].iter().map(|folder| root.join(folder)).collect();
        let is_told = |folder: &std::path::PathBuf| {
            let told = std::fs::read_to_string(folder.join("hub-addresses.json")).unwrap_or_default();
            told.contains(&address)
        };
        let all = wait_for(limit, || (self.standby_said(WAITS) && files.iter().all(is_told)).then_some(()));
        let unknown = || Error::Product(format!("not all know of the standby within {limit:?}\n{}", self.logs(15)));
        all.map(|()| address.clone()).ok_or_else(unknown)
    }

    /// Whether the standby has said this.
    fn standby_said(&self, what: &str) -> bool {
        let log = self.standby.as_ref().map(|standby| std::fs::read_to_string(&standby.hub.log).unwrap_or_default());
        log.is_some_and(|log| log.contains(what))
    }

    /// Whether the standby has taken over.
    pub fn standby_holds(&self) -> bool {
        self.standby_said(HOLDS)
    }
}
