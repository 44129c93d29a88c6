//! Hubs beside the pool's own: each with an owner, a folder and a log of its own.

use super::{Pool, STOP};
use crate::client::Client;
use crate::error::Result;
use crate::process::Daemon;
use crate::scratch::MARK;
use std::path::Path;
use std::process::Command;

/// A hub that is not the pool's own.
#[derive(Debug)]
pub struct OtherHub {
    /// It.
    pub hub: Daemon,
    /// Its owner.
    pub owner: Client,
}

impl OtherHub {
    /// Stops it, and returns what is wrong about that.
    pub(super) fn stop(&mut self) -> Result<Vec<String>> {
        let name = &self.hub.name;
        let outcome = self.owner.gleaner(&["stop"])?;
        let mut wrong = Vec::new();
        if !outcome.ok() {
            wrong.push(format!("gleaner stop at the hub `{name}`: {}: {}", outcome.ended, outcome.said()));
        }
        if !self.hub.stop(STOP) {
            wrong.push(format!("the hub `{}` did not stop within {STOP:?} of SIGTERM", self.hub.name));
        }
        Ok(wrong)
    }
}

impl Pool {
    /// The hubs beside the pool's own.
    pub(super) fn other_hubs(&mut self) -> impl Iterator<Item = &mut OtherHub> {
        self.branch.iter_mut().chain(&mut self.standby)
    }
}

/// The command that starts a hub of `side`, whose folder has this name and which listens there.
pub(super) fn hub_command(root: &Path, name: &str, side: &Client, listen: &str) -> Command {
    let mut command = Command::new(root.join("bin/gleaner"));
    command.args(["hub", "--listen", listen, "--state"]).arg(root.join(name).join("state"));
    side.dress(&mut command);
    command.env(MARK, root);
    command
}
