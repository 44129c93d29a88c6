//! Guests as the product runs them: `gleaner up` in an empty root, and `remrun` for each guest.

use crate::error::{Context, Error, Result};
use crate::pool::{Options, Pool};
use crate::process::wait_for;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Where the worker has a folder for each guest whose files are on disk.
const TASKS: &str = "worker0/state/worker/run/tasks";
/// How long the worker may take to remove what guests wrote.
const SETTLE: Duration = Duration::from_secs(60);

/// A pool of one worker that lends all CPUs of this machine.
#[derive(Debug)]
pub struct Ours {
    pool: Pool,
    place: PathBuf,
}

impl Ours {
    /// Starts it.
    pub fn start(cpus: usize) -> Result<Self> {
        let pool = Pool::start(Options::together(cpus)?)?;
        let place = pool.place("guests");
        std::fs::create_dir_all(&place).at("create", &place)?;
        Ok(Self { pool, place })
    }

    /// A guest that runs this program with these arguments; its folder is a tree of its own.
    pub fn command(&self, program: &Path, arguments: &[String]) -> Command {
        let program = program.to_string_lossy();
        let words: Vec<&str> =
            ["--no-local", &program].into_iter().chain(arguments.iter().map(String::as_str)).collect();
        let mut command = self.pool.client.remrun(&words);
        command.current_dir(&self.place);
        command
    }

    /// The process of hub and worker.
    pub fn pid(&self) -> i32 {
        self.pool.first_worker().pid().as_raw_nonzero().get()
    }

    /// Waits until the worker has removed what its guests wrote.
    pub fn settle(&self) -> Result<()> {
        let folder = self.pool.scratch.path().join(TASKS);
        let is_empty = || std::fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_none());
        let settled = wait_for(SETTLE, || is_empty().then_some(()));
        settled
            .ok_or_else(|| Error::Product(format!("{} is not empty {SETTLE:?} after the last guest", folder.display())))
    }

    /// Ends it; an error if it leaves anything behind.
    pub fn stop(self) -> Result<()> {
        crate::bench::stop(self.pool)
    }
}
