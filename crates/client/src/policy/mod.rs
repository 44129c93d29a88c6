//! What may leave the client and what may change it: pure decisions over paths and facts, without I/O.

mod environment;
mod names;
mod read;
mod scope;
mod write;

pub use environment::{Environment, environment};
pub use read::{ReadDecision, ReadPolicy};
pub use scope::{Lookup, Project, Scope, ScopeInput, project_of};
pub use write::{WriteDecision, WriteFacts, WritePolicy};

use base::TreePath;

/// What a policy is told of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FileFacts {
    /// Its owner.
    pub uid: u32,
    /// Its permission bits.
    pub mode: u32,
    /// It is a directory.
    pub directory: bool,
}

/// What a command may see of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// All of it.
    Allow,
    /// A directory on the way to what may be seen: its attributes, and names in it one by one, but not its listing.
    Pass,
    /// Nothing: it is shown as closed (`EACCES`), never as absent.
    Deny,
}

/// Decides what may be read.
pub trait Gate: Send + Sync {
    /// What may be seen of `path`, which exists and of which these are the facts. No component of it is a link.
    fn access(&self, path: &TreePath, facts: &FileFacts) -> Access;

    /// A number that is the same for two gates only if they decide all alike.
    fn fingerprint(&self) -> u64;
}

/// Lets everything be seen.
#[derive(Clone, Copy, Debug)]
pub struct Open;

impl Gate for Open {
    fn access(&self, _path: &TreePath, _facts: &FileFacts) -> Access {
        Access::Allow
    }

    fn fingerprint(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests;
