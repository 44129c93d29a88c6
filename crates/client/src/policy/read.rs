//! The read policy: shut to what is secret, and closed in homes where the workers are others'; open elsewhere as far as
//! the user's own rights go.

use super::names::{first_in_home, is_history_of_interpreter, is_secret, is_tool, leads_to_tool, looks_secret};
use super::{Access, Denial, FileFacts, Gate, Project, Scope, Trust};
use base::TreePath;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Decides what one command may read.
///
/// On workers of one's own all is readable but secrets: files known to hold them, wherever they are; in homes and outside
/// projects also those that look like keys, and those that are hidden and closed to all others.
///
/// On others' are readable in a home: the project and what its file grants, paths named in arguments (with all beneath), toolchains
/// and their settings, folders named in variables like `PATH`, and what belongs to root and is readable by all. Where the home itself is
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
        let all = scope.named.iter().chain(&scope.mentioned).chain(&scope.folders).chain(&scope.environments);
        let mut open: Vec<TreePath> = all.filter(matters).cloned().collect();
        open.sort();
        open.dedup();
        let project = scope.project.iter().flat_map(Project::roots).filter(|root| scope.home_of(root).is_some());
        let project: Vec<&TreePath> = project.collect();
        let mut hasher = DefaultHasher::new();
        (&scope.home, scope.uid, scope.home_listed, scope.at_home(), project, &open).hash(&mut hasher);
        (scope.trust, &scope.closed, &scope.granted.read).hash(&mut hasher);
        let fingerprint = hasher.finish();
        Self { scope, open, fingerprint }
    }

    /// Decides on a path that exists.
    pub fn decide(&self, path: &TreePath, facts: &FileFacts) -> Access {
        let home = self.scope.home_of(path);
        if is_secret(path, home.as_ref()) || self.scope.closed.iter().any(|closed| path.is_within(closed)) {
            return self.deny(Denial::Secret, facts);
        }
        let is_open = self.open.iter().any(|open| path.is_within(open));
        let is_about = self.scope.in_project(path) || is_open || self.scope.granted.reads(path);
        let Some(home) = home else {
            // Whoever may read it is to read it: certificates of authorities are no keys.
            let is_closed = facts.mode & 0o004 == 0 && !facts.directory && !is_about;
            return match is_closed && looks_secret(path.name()) && !self.scope.is_named(path) {
                true => Access::Deny(Denial::Key),
                false => Access::Allow,
            };
        };
        let own = self.scope.home.as_ref() == Some(&home);
        let is_tool = own && is_tool(path, &home);
        if !facts.directory && looks_secret(path.name()) && !self.scope.in_project(path) && !is_tool {
            let in_folder = |folder: &TreePath| path.is_within(folder);
            if !self.scope.environments.iter().chain(&self.scope.folders).any(in_folder) {
                return Access::Deny(Denial::Key);
            }
        }
        if is_about || is_tool {
            return Access::Allow;
        }
        match self.scope.trust {
            Trust::Own => self.decide_on_own(path, facts, &home),
            Trust::Others => self.decide_on_others(path, facts, &home),
        }
    }

    /// In a home, outside what the command is about, for workers of one's own.
    fn decide_on_own(&self, path: &TreePath, facts: &FileFacts, home: &TreePath) -> Access {
        let is_others_closed = facts.mode & 0o004 == 0 && facts.uid != self.scope.uid;
        if self.scope.home.as_ref() != Some(home) && is_others_closed && path != home {
            return self.deny(Denial::OthersHome, facts);
        }
        // With a umask of 077 all is closed to others: but what is hidden as well is seldom data.
        let is_hidden = path.relative_to(home).is_some_and(|rest| rest.starts_with(b"."));
        let is_hidden = is_hidden && !is_history_of_interpreter(path.name());
        match is_hidden && facts.mode & 0o077 == 0 && !facts.directory {
            true => Access::Deny(Denial::Private),
            false => Access::Allow,
        }
    }

    /// The same for workers of others.
    fn decide_on_others(&self, path: &TreePath, facts: &FileFacts, home: &TreePath) -> Access {
        let own = self.scope.home.as_ref() == Some(home);
        let of_root = facts.uid == 0 && facts.mode & 0o004 != 0 && !facts.directory;
        let roots_home = home.as_bytes() == b"/root";
        if of_root && self.scope.uid != 0 && !roots_home {
            return Access::Allow;
        }
        if own && self.scope.at_home() && !facts.directory && is_plain_entry(path, home) {
            return Access::Allow;
        }
        if facts.directory {
            if own && path == home && self.scope.home_listed {
                return Access::Allow;
            }
            if path == home || (own && leads_to_tool(path, home)) || self.leads_to_open(path) {
                return Access::Pass;
            }
        }
        Access::Deny(if own { Denial::Home } else { Denial::OthersHome })
    }

    /// What is denied; of folders the names may be seen by machines of one's own, as all attributes may.
    fn deny(&self, denial: Denial, facts: &FileFacts) -> Access {
        match facts.directory && self.scope.trust == Trust::Own {
            true => Access::Allow,
            false => Access::Deny(denial),
        }
    }

    fn leads_to_open(&self, path: &TreePath) -> bool {
        let project = self.scope.project.iter().flat_map(Project::roots);
        let grants_beneath = || self.scope.granted.read.iter().any(|pattern| pattern.is_beneath(path));
        self.open.iter().chain(project).any(|open| open.is_within(path)) || grants_beneath()
    }
}

impl Gate for ReadPolicy {
    fn access(&self, path: &TreePath, facts: &FileFacts) -> Access {
        self.decide(path, facts)
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

/// Whether `path` is directly in `home`, without a dot in front.
pub(super) fn is_plain_entry(path: &TreePath, home: &TreePath) -> bool {
    path.parent().as_ref() == Some(home) && !first_in_home(path, home).starts_with(b".")
}
