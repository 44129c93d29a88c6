//! The write policy: what of a task's changes is committed, what is dropped, and what makes the commit fail.

use super::Scope;
use super::names::{first_in_home, guarded, is_cache, is_secret, is_system_cache, leads_to_cache};
use super::read::is_plain_entry;
use base::TreePath;

/// What the write policy is told of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteFacts {
    /// The owner of what is there; `None` if nothing is.
    pub owner: Option<u32>,
    /// What is there, or is to be made, is a directory.
    pub directory: bool,
    /// The user's own rights would let this change happen here.
    pub may_write: bool,
    /// The path is in a repository that this very task makes (no `.git` was there before).
    pub new_repository: bool,
}

/// Why a path is refused that its user may not change here.
pub const COULD_NOT: &str = "could not be changed by you here either";
/// Folders for everybody's files of the moment.
const TEMPORARY: [&[u8]; 5] = [b"/tmp/", b"/var/tmp/", b"/dev/shm/", b"/run/", b"/var/run/"];

/// What becomes of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteDecision {
    /// It is committed.
    Commit,
    /// It is dropped, and `explain` tells of it: caches.
    Scratch,
    /// Nothing of the task is committed, for this reason.
    Refuse(String),
}

/// Decides what one command may change.
///
/// Committed are changes in the project and the active environment, in `/tmp`, `/var/tmp` and `/dev/shm` to what is new or the
/// user's own, and to what arguments name, with all beneath and with what stands beside it under the same stem; never
/// to dot-files of a home (but in a project that has a marker and lies in one). Where the home itself is the working
/// directory, new files and folders in it are committed too, and `a.out` and its like may be replaced.
#[derive(Clone, Debug)]
pub struct WritePolicy {
    scope: Scope,
    allowed: Vec<TreePath>,
}

/// What compilers and profilers write when they are not told a name.
const DEFAULT_OUTPUTS: &[&[u8]] =
    &[b"a.out", b"gmon.out", b"nohup.out", b"perf.data", b"core", b"mon.out", b"texput.log"];

impl WritePolicy {
    /// The policy for a command about `scope`, with the paths that the caller allowed for once (`--allow-write`) or in
    /// a trusted `.gleaner.toml`.
    pub fn new(scope: Scope, allowed: Vec<TreePath>) -> Self {
        Self { scope, allowed }
    }

    /// Whether the caller allowed changes at `path` in so many words.
    pub fn is_allowed(&self, path: &TreePath) -> bool {
        self.allowed.iter().any(|allowed| path.is_within(allowed))
    }

    /// The folders of the project, and the one where the command runs: what decides there is guarded, wherever it is.
    pub fn folders(&self) -> impl Iterator<Item = &TreePath> {
        self.scope.project.iter().flat_map(super::Project::roots).chain([&self.scope.cwd])
    }

    /// The user's home.
    pub fn home(&self) -> Option<&TreePath> {
        self.scope.home.as_ref()
    }

    /// Decides on a change at `path`.
    pub fn decide(&self, path: &TreePath, facts: &WriteFacts) -> WriteDecision {
        use WriteDecision::{Commit, Refuse, Scratch};
        if self.is_allowed(path) {
            return Commit;
        }
        let home = self.scope.home_of(path);
        // What is dropped needs no rights, and must not fail a command for a cache that it would have liked to keep.
        if self.is_scratch(path, home.as_ref()) {
            return Scratch;
        }
        if is_secret(path, home.as_ref()) {
            return Refuse(format!("{path} is on the list of secrets, which no command may change from elsewhere"));
        }
        if let Some(name) = guarded(path).filter(|name| !is_new_sample(path, name, facts)) {
            return Refuse(format!("{path} decides what is run here later ({name})"));
        }
        if !facts.may_write {
            return Refuse(format!("{path} {COULD_NOT}"));
        }
        if self.commits(path, facts, home.as_ref()) {
            return Commit;
        }
        // A directory is dropped with the caches for which it was made.
        let is_new_directory = facts.directory && facts.owner.is_none();
        match home {
            Some(home) if is_new_directory && leads_to_cache(path, &home) => Scratch,
            _ => Refuse(format!("{path} is outside the write policy")),
        }
    }

    fn is_scratch(&self, path: &TreePath, home: Option<&TreePath>) -> bool {
        if self.scope.in_project(path) || self.in_environment(path) {
            return false;
        }
        let compiled = path.components().any(|name| name == b"__pycache__");
        match home {
            Some(home) => compiled || is_cache(path, home),
            None => (compiled || is_system_cache(path)) && !self.scope.is_named(path),
        }
    }

    fn commits(&self, path: &TreePath, facts: &WriteFacts, home: Option<&TreePath>) -> bool {
        if self.in_environment(path) {
            return true;
        }
        let mut meant = self.scope.named.iter().chain(&self.allowed);
        if facts.directory && facts.owner.is_none() && meant.any(|meant| meant.is_within(path)) {
            // Made on the way to what is named or allowed.
            return true;
        }
        if let Some(home) = home {
            if path == home {
                return false;
            }
            let project = self.scope.project.as_ref().filter(|project| path.is_within(&project.root));
            if first_in_home(path, home).starts_with(b".") {
                // A project in a dot-folder, as of one's settings.
                return project
                    .is_some_and(|project| project.marked && first_in_home(&project.root, home).starts_with(b"."));
            }
            if self.scope.at_home()
                && self.scope.home.as_ref() == Some(home)
                && self.is_output_at_home(path, facts, home)
            {
                return true;
            }
        }
        if self.scope.in_project(path) || self.scope.is_named(path) || self.scope.is_beside_named(path) {
            return true;
        }
        let temporary = TEMPORARY.iter().any(|folder| path.as_bytes().starts_with(folder));
        temporary && path.components().count() > 1 && facts.owner.is_none_or(|owner| owner == self.scope.uid)
    }

    fn in_environment(&self, path: &TreePath) -> bool {
        self.scope.environments.iter().any(|environment| path.is_within(environment))
    }

    /// In the home as the working directory: what is new, or has a name that tools give by themselves.
    fn is_output_at_home(&self, path: &TreePath, facts: &WriteFacts, home: &TreePath) -> bool {
        // The first component is known not to start with a dot.
        facts.owner.is_none() || (is_plain_entry(path, home) && DEFAULT_OUTPUTS.contains(&path.name()))
    }
}

/// A new repository comes with examples of hooks, and with the folder for them.
fn is_new_sample(path: &TreePath, guarded: &str, facts: &WriteFacts) -> bool {
    let is_sample = path.name().ends_with(b".sample") || (facts.directory && path.name() == b"hooks");
    facts.new_repository && guarded == ".git/hooks" && is_sample
}
