//! The read policy: closed in homes, open elsewhere as far as the user's own rights go, and shut to what is secret.

use super::names::{first_in_home, is_secret, is_tool, leads_to_tool};
use super::{Access, FileFacts, Gate, Scope};
use base::TreePath;
use std::hash::{DefaultHasher, Hash, Hasher};

/// What a command may see of a path, and why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadDecision {
    /// All of it.
    Allow,
    /// A directory on the way to what may be seen.
    Pass,
    /// Nothing, for this reason.
    Deny(&'static str),
}

/// Decides what one command may read.
///
/// In a home are readable: the project, paths named in arguments (with all beneath), toolchains and their settings,
/// folders named in variables like `PATH`, and what belongs to root and is readable by all. Where the home itself is
/// the working directory, also the files (not folders) in it that do not start with a dot: `gcc hello.c` finds
/// `hello.h`.
#[derive(Clone, Debug)]
pub struct ReadPolicy {
    scope: Scope,
    /// What is open in homes beside the project: named paths, folders, environments.
    open: Vec<TreePath>,
    fingerprint: u64,
}

impl ReadPolicy {
    /// The policy for a command about `scope`.
    pub fn new(scope: Scope) -> Self {
        // Only what makes a difference: outside homes and in the project everything is readable already.
        let matters = |path: &&TreePath| scope.home_of(path).is_some() && !scope.in_project(path);
        let all = scope.named.iter().chain(&scope.folders).chain(&scope.environments);
        let mut open: Vec<TreePath> = all.filter(matters).cloned().collect();
        open.sort();
        open.dedup();
        let project = scope.project.as_ref().map(|project| &project.root);
        let project = project.filter(|root| scope.home_of(root).is_some());
        let mut hasher = DefaultHasher::new();
        (&scope.home, scope.uid, scope.home_listed, scope.at_home(), project, &open).hash(&mut hasher);
        let fingerprint = hasher.finish();
        Self { scope, open, fingerprint }
    }

    /// Decides on a path that exists.
    pub fn decide(&self, path: &TreePath, facts: &FileFacts) -> ReadDecision {
        let home = self.scope.home_of(path);
        if is_secret(path, home.as_ref()) {
            return ReadDecision::Deny("it is on the list of secrets, which never leave this machine");
        }
        let Some(home) = home else { return ReadDecision::Allow };
        if self.scope.in_project(path) || self.open.iter().any(|open| path.is_within(open)) {
            return ReadDecision::Allow;
        }
        let own = self.scope.home.as_ref() == Some(&home);
        let of_root = facts.uid == 0 && facts.mode & 0o004 != 0 && !facts.directory;
        let roots_home = home.as_bytes() == b"/root";
        if of_root && self.scope.uid != 0 && !roots_home {
            return ReadDecision::Allow;
        }
        if own && is_tool(path, &home) {
            return ReadDecision::Allow;
        }
        if own && self.scope.at_home() && !facts.directory && is_plain_entry(path, &home) {
            return ReadDecision::Allow;
        }
        if facts.directory {
            if own && *path == home && self.scope.home_listed {
                return ReadDecision::Allow;
            }
            if *path == home || (own && leads_to_tool(path, &home)) || self.leads_to_open(path) {
                return ReadDecision::Pass;
            }
        }
        match own {
            true => ReadDecision::Deny("it is in your home, outside the project, and not named in the command"),
            false => ReadDecision::Deny("it is in another user's home"),
        }
    }

    fn leads_to_open(&self, path: &TreePath) -> bool {
        let project = self.scope.project.as_ref().map(|project| &project.root);
        self.open.iter().chain(project).any(|open| open.is_within(path))
    }
}

impl Gate for ReadPolicy {
    fn access(&self, path: &TreePath, facts: &FileFacts) -> Access {
        match self.decide(path, facts) {
            ReadDecision::Allow => Access::Allow,
            ReadDecision::Pass => Access::Pass,
            ReadDecision::Deny(_) => Access::Deny,
        }
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

/// Whether `path` is directly in `home`, without a dot in front.
pub(super) fn is_plain_entry(path: &TreePath, home: &TreePath) -> bool {
    path.parent().as_ref() == Some(home) && !first_in_home(path, home).starts_with(b".")
}
