//! What can go wrong for a task: each says what, where, and what to do.

use crate::door::DoorError;
use base::ExitStatus;
use rustix::io::Errno;

/// A task did not take place, or not as it should.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A word, name or folder cannot be part of a command.
    #[error("{0}")]
    Argument(String),
    /// The client daemon cannot be talked to.
    #[error(transparent)]
    Door(#[from] DoorError),
    /// The task did not take place, or its changes could not be committed: nothing was changed.
    #[error("{message}")]
    NotRun {
        /// What, where, and what to do.
        message: String,
        /// What `remrun` would exit with: 127 if the command was not found, 126 if it cannot be executed, else 125.
        code: u8,
    },
    /// It was called off: nothing was changed, unless it ran here.
    #[error("cancelled")]
    Cancelled,
    /// It ended, but said more than is kept in memory.
    #[error("the task's output has {bytes} bytes, more than {bytes_max}: give it a file to write to")]
    TooMuchOutput {
        /// How it ended. What it changed is committed.
        status: ExitStatus,
        /// Length of the longer of its outputs.
        bytes: u64,
        /// How long it may be.
        bytes_max: u64,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
}

impl Error {
    /// The status that `remrun` would exit with.
    pub fn code(&self) -> u8 {
        match self {
            Self::NotRun { code, .. } => *code,
            _ => 125,
        }
    }
}

/// Names what failed in a system call.
pub(crate) fn system(what: &'static str) -> impl FnOnce(Errno) -> Error {
    move |source| Error::System { what, source: source.into() }
}

/// The same for what the standard library says.
pub(crate) fn failed(what: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::System { what, source }
}
