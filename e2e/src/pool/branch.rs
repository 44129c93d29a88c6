//! A branch: a hub behind the pool's own, on a host of its own, with workers of its own.

use super::{BRANCH, FAR_PORT, Pool, STOP, client_in, in_empty_root, wait_for_hub};
use crate::client::Client;
use crate::error::{Error, Result};
use crate::process::{Daemon, wait_for};
use crate::scenario::END_BOUND;
use crate::scratch::MARK;
use std::process::Command;

/// The name of the branch's hub.
const NAME: &str = "branch";

/// A hub that works for the pool's.
#[derive(Debug)]
pub struct Branch {
    /// It.
    pub hub: Daemon,
    /// Its owner.
    pub owner: Client,
}

impl Pool {
    /// Starts a branch with this many workers, which are the pool's last then, and waits until the client sees what it lends.
    pub fn add_branch(&mut self, workers: usize) -> Result<()> {
        let root = self.scratch.path().to_path_buf();
        let host = self.testbed().host(BRANCH).entrance();
        let mut owner = client_in(&root, NAME, &root.join("bin"), 0)?;
        owner.host = Some(host.clone());
        let listen = format!("{}:{FAR_PORT}", self.testbed().host(BRANCH).address());
        let mut command = Command::new(root.join("bin/gleaner"));
        command.args(["hub", "--name", NAME, "--listen", &listen, "--join", &self.token("worker")?, "--state"]);
        command.arg(root.join(NAME).join("state"));
        owner.dress(&mut command);
        command.env(MARK, &root);
        let hub = wait_for_hub(&root, NAME, command)?;
        self.branch = Some(Branch { hub, owner: owner.clone() });
        for number in 0..workers {
            let token = owner.token("worker")?;
            let name = format!("{NAME}-worker{number}");
            let mut command = in_empty_root(&root, &name, &["join", &token], &self.options)?;
            host.run_here(&mut command);
            self.workers.push(Daemon::start(&name, command, &root.join(format!("log/{name}.log")))?);
        }
        self.wait_for_cpus(self.workers.len() * self.options.cpus)
    }

    /// Waits until the client sees that this many CPUs are lent.
    fn wait_for_cpus(&mut self, count: usize) -> Result<()> {
        let client = self.client.clone();
        let lent = || {
            let status = client.json(&["status", "--json"]).ok()?;
            let cpus: u64 = super::workers_in(&status).iter().filter_map(|worker| worker["cpus"].as_u64()).sum();
            (cpus == count as u64).then_some(())
        };
        let logs = |pool: &Self| Error::Product(format!("no {count} CPUs within {END_BOUND:?}\n{}", pool.logs(15)));
        wait_for(END_BOUND, lent).ok_or_else(|| logs(self))
    }
}

impl Branch {
    /// Stops it, and returns what is wrong about that.
    pub(super) fn stop(&mut self) -> Result<Vec<String>> {
        let outcome = self.owner.gleaner(&["stop"])?;
        let mut wrong = Vec::new();
        if !outcome.ok() {
            wrong.push(format!("gleaner stop at the branch: {}: {}", outcome.ended, outcome.said()));
        }
        if !self.hub.stop(STOP) {
            wrong.push(format!("the branch's hub did not stop within {STOP:?} of SIGTERM"));
        }
        Ok(wrong)
    }
}
