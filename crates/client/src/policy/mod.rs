//! What may leave the client and what may change it: pure decisions over paths and facts, without I/O.

mod caches;
mod environment;
mod granted;
mod linked;
mod names;
mod read;
mod scope;
mod scripts;
#[cfg(test)]
pub(crate) mod testing;
mod write;

pub use caches::Places;
pub use environment::{Environment, environment};
pub use granted::{Granted, PROJECT_FILE, Pattern, without_effect};
pub(crate) use names::{guarded, guarded_places, guarded_way, secret_places};
pub use read::ReadPolicy;
pub use scope::{Lookup, Project, Scope, ScopeInput, project_of};
pub use write::{COULD_NOT, Dropped, WriteDecision, WriteFacts, WritePolicy};

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

/// Whose the workers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Trust {
    /// One's own: all but secrets may go there, as to any machine of one's own.
    Own,
    /// Others': only what a command is about may go there.
    #[default]
    Others,
}

/// What a command may see of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// All of it.
    Allow,
    /// A directory on the way to what may be seen: its attributes, and names in it one by one, but not its listing.
    Pass,
    /// Its attributes, as `ls -l` shows them, but not what it holds: a task that wants that cannot run elsewhere.
    Deny(Denial),
}

/// Why the contents of a path stay here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Denial {
    /// It is on the list of secrets.
    Secret,
    /// It has the name of a private key or a file of passwords, and is in no project.
    Key,
    /// It is hidden in the home, and its owner has closed it to all others.
    Private,
    /// It is in the home, and not what the command is about.
    Home,
    /// It is in another user's home.
    OthersHome,
    /// The user may not see it here either.
    Rights,
}

impl Denial {
    /// The reason, for people: "PATH was kept back by the read policy: …".
    pub fn reason(self) -> &'static str {
        match self {
            Self::Secret => "it is on the list of secrets, which never leave this machine",
            Self::Key => "files of this name hold keys or passwords, and it is in no project",
            Self::Private => "it is hidden in your home and closed to all others",
            Self::Home => "it is in your home, outside the project, and not named in the command",
            Self::OthersHome => "it is in another user's home",
            Self::Rights => "your own rights do not let you see it",
        }
    }

    /// What to do, for people.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Secret | Self::Private => "run the command here, without remrun",
            Self::Key => "run the command here, or move the file into the project",
            Self::Home => "name it in the command, or run the command here, without remrun",
            Self::OthersHome | Self::Rights => "run the command here, without remrun",
        }
    }
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
