//! The read policy: shut to what is secret, and closed in homes where the workers are others'; open elsewhere as far as
//! the user's own rights go.

use super::file_names::{is_history, is_history_of_interpreter};
use super::names::{first_in_home, is_made_for_a_moment, is_secret, is_system_place, is_tool, leads_to_tool};
use super::{Access, Denial, FileFacts, Gate, Project, Scope, Trust};
use base::TreePath;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Decides what one command may read.
///
/// On workers of one's own all is readable but secrets: files known to hold them, wherever they are; in homes those that are hidden and
/// closed to all others; outside homes those that are closed, unless they are the project's, or named. What a file holds is looked at when
/// it is bound ([`super::secret_in`]).
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
        (&scope.opened, scope.closes_all).hash(&mut hasher);
        if scope.trust == Trust::Anybody {
            (&scope.named, &scope.mentioned).hash(&mut hasher);
        }
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
            let for_anybody = || self.decide_on_anybodys(path, facts, None);
            return match (self.scope.trust == Trust::Anybody).then(for_anybody) {
                Some(decided) if decided != Access::Allow => decided,
                _ => self.decide_outside_homes(path, facts, is_about),
            };
        };
        if !facts.directory && is_history(path.name()) && !self.scope.in_project(path) {
            return Access::Deny(Denial::Typed);
        }
        if self.scope.trust == Trust::Anybody {
            return self.decide_on_anybodys(path, facts, Some(&home));
        }
        let own = self.scope.home.as_ref() == Some(&home);
        let is_tool = own && is_tool(path, &home);
        if is_about || is_tool {
            return Access::Allow;
        }
        match self.scope.trust {
            Trust::Own => self.decide_on_own(path, facts, &home),
            Trust::Others | Trust::Anybody => self.decide_on_others(path, facts, &home),
        }
    }

    /// Outside homes: what its owner has closed to all others is no accident, unless all that this user makes is closed so; what is a
    /// group's goes to workers of one's own.
    fn decide_outside_homes(&self, path: &TreePath, facts: &FileFacts, is_about: bool) -> Access {
        if facts.directory || facts.mode & 0o004 != 0 || is_about || self.opens(path) {
            return Access::Allow;
        }
        let of_system = is_system_place(path);
        if !of_system && facts.mode & 0o040 != 0 && self.scope.trust == Trust::Own {
            return Access::Allow;
        }
        let is_own = facts.uid == self.scope.uid && self.scope.trust == Trust::Own;
        match is_own && !of_system && (self.scope.closes_all || is_made_for_a_moment(path)) {
            true => Access::Allow,
            false => Access::Deny(Denial::Closed),
        }
    }

    /// For workers of anybody: what the command names, and what is everybody's on any machine.
    fn decide_on_anybodys(&self, path: &TreePath, facts: &FileFacts, home: Option<&TreePath>) -> Access {
        let is_public = facts.uid == 0 && facts.mode & 0o004 != 0 && home.is_none() && is_system_place(path);
        if self.scope.is_named(path) || is_public {
            return Access::Allow;
        }
        if facts.directory { Access::Pass } else { Access::Deny(Denial::Unnamed) }
    }

    fn opens(&self, path: &TreePath) -> bool {
        self.scope.opened.iter().any(|open| path.is_within(open))
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

    fn is_about(&self, path: &TreePath) -> bool {
        let scope = &self.scope;
        scope.in_project(path) || scope.granted.reads(path) || scope.is_named(path)
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

/// Whether `path` is directly in `home`, without a dot in front.
pub(super) fn is_plain_entry(path: &TreePath, home: &TreePath) -> bool {
    path.parent().as_ref() == Some(home) && !first_in_home(path, home).starts_with(b".")
}
