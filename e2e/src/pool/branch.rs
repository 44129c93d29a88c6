//! A branch: a hub behind the pool's own, on a host of its own, with workers of its own.

use super::other::{OtherHub, hub_command};
use super::{BRANCH, FAR_PORT, Pool, client_in, in_empty_root, wait_for_hub};
use crate::error::{Error, Result};
use crate::process::{Daemon, wait_for};
use crate::scenario::END_BOUND;

/// The name of the branch's hub.
const NAME: &str = "branch";

impl Pool {
    /// Starts a branch with this many workers, which are the pool's last then, and waits until the client sees what it lends.
    pub fn add_branch(&mut self, workers: usize) -> Result<()> {
        let root = self.scratch.path().to_path_buf();
        let host = self.testbed().host(BRANCH).entrance();
        let mut owner = client_in(&root, NAME, &root.join("bin"), 0)?;
        owner.host = Some(host.clone());
        let listen = format!("{}:{FAR_PORT}", self.testbed().host(BRANCH).address());
        let mut command = hub_command(&root, NAME, &owner, &listen);
        command.args(["--name", NAME, "--join", &self.token("worker")?]);
        let hub = wait_for_hub(&root, NAME, command)?;
        self.branch = Some(OtherHub { hub, owner: owner.clone() });
        for number in 0..workers {
            let token = owner.token("worker")?;
            let name = format!("{NAME}-worker{number}");
            let mut command = in_empty_root(&root, &name, &["join", &token], &self.options)?;
            host.run_here(&mut command);
            self.workers.push(Daemon::start(&name, command, &root.join(format!("log/{name}.log")))?);
        }
        self.wait_for_cpus(self.workers.len() * self.options.cpus)
    }

    /// Starts a worker of the pool's own hub on that host, and waits until the client sees what it lends.
    pub fn add_far_worker(&mut self) -> Result<()> {
        let host = self.testbed().host(BRANCH).entrance();
        let worker = self.start_worker_at(self.workers.len(), &host)?;
        self.workers.push(worker);
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
