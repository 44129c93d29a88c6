//! What may leave the client and what may change it: pure decisions over paths and facts, without I/O.

mod caches;
mod contents;
mod environment;
mod file_names;
mod granted;
mod guarded;
mod linked;
mod names;
mod reached;
mod read;
mod scope;
mod scripts;
#[cfg(test)]
pub(crate) mod testing;
mod write;

pub use caches::Places;
pub use contents::{LOOK_BYTES, LOOK_BYTES_WITHIN, Looked, holds_texts, is_gleaner_key, secret_in};
pub use environment::{Environment, environment, looks_secret};
pub use granted::{Granted, PROJECT_FILE, Pattern, without_effect};
pub(crate) use guarded::{
    begins_guarded, guarded, guarded_beginning, guarded_folder, guarded_in, guarded_places, guarded_way,
    is_of_integration, is_within_git,
};
pub(crate) use names::secret_places;
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
    /// Others' of the same site: only what a command is about may go there.
    #[default]
    Others,
    /// Anybody's: only what a command names may go there, and what everybody may read.
    Anybody,
}

impl From<wire::Trust> for Trust {
    fn from(class: wire::Trust) -> Self {
        match class {
            wire::Trust::Own => Self::Own,
            wire::Trust::Site => Self::Others,
            wire::Trust::Volunteer | wire::Trust::Waiting => Self::Anybody,
        }
    }
}

impl Trust {
    /// The class of workers that what was prepared for these may go to.
    pub fn class(self) -> wire::Trust {
        match self {
            Self::Own => wire::Trust::Own,
            Self::Others => wire::Trust::Site,
            Self::Anybody => wire::Trust::Volunteer,
        }
    }
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
    /// It has what was typed, by its name.
    Typed,
    /// It holds a private key.
    Key,
    /// It holds passwords or tokens.
    Passwords,
    /// It is in the folder of a hub, a worker or a client daemon.
    State,
    /// Its owner has closed it to all others, and it is neither in a home nor in the project.
    Closed,
    /// It is hidden in the home, and its owner has closed it to all others.
    Private,
    /// It is in the home, and not what the command is about.
    Home,
    /// It is in another user's home.
    OthersHome,
    /// The command does not name it, and the workers are anybody's.
    Unnamed,
    /// The user may not see it here either.
    Rights,
}

impl Denial {
    /// The reason, for people: "PATH was kept back by the read policy: …".
    pub fn reason(self) -> &'static str {
        match self {
            Self::Secret => "it is on the list of secrets, which never leave this machine",
            Self::Typed => "files of this name hold what was typed, passwords among it",
            Self::Key => "it holds a private key",
            Self::Passwords => "it holds passwords or tokens",
            Self::State => "it belongs to a hub, a worker or the client daemon of this program",
            Self::Closed => "it is closed to all but its owner, and in no project",
            Self::Private => "it is hidden in your home and closed to all others",
            Self::Home => "it is in your home, outside the project, and not named in the command",
            Self::OthersHome => "it is in another user's home",
            Self::Unnamed => "the command does not name it, and the workers may be anybody's",
            Self::Rights => "your own rights do not let you see it",
        }
    }

    /// What to do, for people.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Home | Self::Closed | Self::Unnamed => {
                "name it in the command, or run the command here, without remrun"
            }
            Self::Secret
            | Self::Typed
            | Self::Key
            | Self::Passwords
            | Self::State
            | Self::Private
            | Self::OthersHome
            | Self::Rights => "run the command here, without remrun",
        }
    }

    /// Whether it never leaves this machine by whatever way, not as a command's standard input either.
    pub fn is_of_secret(self) -> bool {
        matches!(self, Self::Secret | Self::Typed | Self::Key | Self::Passwords | Self::State | Self::Private)
    }
}

/// Decides what may be read.
pub trait Gate: Send + Sync {
    /// What may be seen of `path`, which exists and of which these are the facts. No component of it is a link.
    fn access(&self, path: &TreePath, facts: &FileFacts) -> Access;

    /// Whether `path` is what the command is about, and not just what it needs to run.
    fn is_about(&self, path: &TreePath) -> bool;

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

    fn is_about(&self, _path: &TreePath) -> bool {
        true
    }

    fn fingerprint(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests;
