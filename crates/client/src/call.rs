//! One command as a caller, or the daemon itself, hands it over.

use crate::race::Contestant;
use base::door::Options;
use base::{Command, TaskId, WindowSize};
use rustix::fd::OwnedFd;

/// What is asked of the daemon.
pub struct Call {
    /// The task's number.
    pub task: TaskId,
    /// What to run.
    pub command: Command,
    /// What the caller allows.
    pub options: Options,
    /// Size of the caller's terminal.
    pub window: Option<WindowSize>,
    /// The caller's descriptors 0, 1 and 2.
    pub descriptors: Vec<OwnedFd>,
    /// The race that this is a part of.
    pub(crate) contestant: Option<Contestant>,
}
