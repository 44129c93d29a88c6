//! The write policy, with the facts that it asks for: who owns what is there, and what the user's own rights allow.

mod directories;
mod names;

pub use directories::Directories;
use directories::OTHERS_READ;
pub use names::NamesWithin;

use crate::commit;
use crate::guard::{Guard, Walks, entries};
use crate::policy::{
    Access, Denial, FileFacts, ReadPolicy, Scope, WriteDecision, WriteFacts, WritePolicy, guarded, guarded_folder,
    guarded_in, guarded_way, is_of_integration, is_within_git,
};
use crate::snapshot::{is_in_tests, is_of_project, secret_in_project};
use base::TreePath;
use rustix::fs::{Access as Rights, AtFlags, CWD, FileType, Stat, accessat, statat};
use rustix::io::Errno;
use std::sync::Arc;

/// Entries of a folder that are looked at before it is moved.
const MOVED_MAX: usize = 10_000;
/// Set-user-id and set-group-id bits.
const SET_IDS: u32 = 0o6000;

/// Decides what one command may change.
#[derive(Clone, Debug)]
pub struct WriteRules {
    policy: WritePolicy,
    walks: Arc<Walks>,
}

impl WriteRules {
    /// For a command about `scope`, with the paths that its caller allowed, and what is known of the projects there are.
    pub fn new(scope: Scope, allowed: Vec<TreePath>, walks: Arc<Walks>) -> Self {
        Self { policy: WritePolicy::new(scope, allowed), walks }
    }

    /// Why the project's file grants nothing, if there is one and it does not.
    pub fn grants_nothing(&self) -> Option<&str> {
        self.policy.grants_nothing()
    }

    /// Whether the project's file lets its commands use the network; `None` if the command is in no project.
    pub fn grants_network(&self) -> Option<bool> {
        self.policy.grants_network()
    }

    /// What its caller can do about what is refused; `home` if the command has none of its own.
    pub fn remedies<'a>(&'a self, home: Option<&'a TreePath>) -> commit::remedies::Remedies<'a> {
        let may_be_granted = Box::new(|path: &TreePath, reason: &str| self.policy.may_be_granted(path, reason));
        commit::remedies::Remedies {
            home: self.policy.home().or(home),
            may_be_granted,
            grants_nothing: self.grants_nothing(),
        }
    }

    /// What becomes of a change at `path`, of a delta that has these `directories`. Looks at the file system.
    pub fn decide(&self, path: &TreePath, directories: &Directories<'_>) -> commit::WriteDecision {
        let kept = || directories.sources.contains(path).then(|| self.keeps_name(path, directories)).flatten();
        if let Some(reason) = kept().or_else(|| self.keeps_closed(path, directories)) {
            return commit::WriteDecision::Refuse(reason);
        }
        let is_named = |path: &TreePath| self.policy.scope().is_named_itself(path);
        let facts = WriteFacts {
            is_no_root: self.is_no_root(path, directories),
            goes_with_all: directories.goes_with_all(path, is_named),
            ..facts(path, directories)
        };
        match self.policy.decide(path, &facts) {
            WriteDecision::Commit if self.policy.is_allowed(path) => commit::WriteDecision::Commit,
            WriteDecision::Commit if facts.goes_with_all => commit::WriteDecision::Commit,
            WriteDecision::Commit => {
                match self.guards(path, directories).filter(|name| !(facts.is_no_root && is_of_integration(name))) {
                    Some(name) => commit::WriteDecision::Refuse(format!("decides what is run here later ({name})")),
                    None => commit::WriteDecision::Commit,
                }
            }
            WriteDecision::Scratch(why) => commit::WriteDecision::Scratch(why.reason()),
            WriteDecision::Refuse(why) => {
                // The policy names the path, and so does who shows the reason.
                let reason = why.strip_prefix(&format!("{path} ")).unwrap_or(&why);
                commit::WriteDecision::Refuse(reason.to_owned())
            }
        }
    }
}

impl WriteRules {
    /// Why what is at `path` is not to be called otherwise, or as well: it has something that commands elsewhere may not read, and would by
    /// another name. In the project a name makes a difference to files that are secret by what they hold: among tests they are lent, and
    /// some are not known for what they are.
    fn keeps_name(&self, path: &TreePath, directories: &Directories<'_>) -> Option<String> {
        let scope = self.policy.scope();
        if self.policy.is_allowed(path) {
            return None;
        }
        if scope.in_project(path) {
            let is_folder = stat(path).is_some_and(is_directory);
            let matters = !is_folder || self.comes_among_tests(path, directories);
            let root = self.policy.roots().find(|root| path.is_within(root));
            // What everybody has who has the project may be called as its owners like.
            let is_secret = |at: &TreePath, stat: Stat| match is_directory(stat) {
                true => None,
                false => secret_in_project(at).filter(|_| !is_of_project(at, root)),
            };
            return matters.then(|| denied_in(path, is_secret)).flatten();
        }
        let read = ReadPolicy::new(scope.clone());
        denied_in(path, |at, stat| {
            let (uid, mode, directory) = (stat.st_uid, stat.st_mode & 0o7777, is_directory(stat));
            match read.decide(at, &FileFacts { uid, mode, directory }) {
                Access::Deny(denial) => Some(denial),
                Access::Allow | Access::Pass => None,
            }
        })
    }

    /// Whether the folder at `path` is moved to where a project's tests are, and was not there before.
    fn comes_among_tests(&self, path: &TreePath, directories: &Directories<'_>) -> bool {
        let is_among = |path: &TreePath| {
            let inner = self.policy.roots().find_map(|root| path.join(b"x").relative_to(root).map(<[u8]>::to_vec));
            inner.is_some_and(|inner| is_in_tests(&inner))
        };
        directories.moves_to(path).is_some_and(is_among) && !is_among(path)
    }

    /// Why what is at `path` is not opened to others: it is a secret, and one that is closed is not lent.
    fn keeps_closed(&self, path: &TreePath, directories: &Directories<'_>) -> Option<String> {
        let is_closed = || stat(path).is_some_and(|stat| stat.st_mode & OTHERS_READ == 0);
        if !directories.opened.contains(path) || self.policy.is_allowed(path) || !is_closed() {
            return None;
        }
        let denial = secret_in_project(path)?;
        Some(format!("is opened to others, and may not be read elsewhere: {}", denial.reason()))
    }

    /// Whether `path` is where continuous integration would look in a repository, and no repository is there.
    fn is_no_root(&self, path: &TreePath, directories: &Directories<'_>) -> bool {
        let Some((folder, name)) = guarded_in(path) else { return false };
        let git = folder.join(b".git");
        is_of_integration(name)
            && !self.policy.folders().any(|root| *root == folder)
            && !directories.makes(&git)
            && stat(&git).is_none()
            && directories.was(&git).is_none_or(|git| stat(&git).is_none())
    }

    /// What a change at `path`, which the policy lets through by its name, is of what is guarded.
    fn guards(&self, path: &TreePath, directories: &Directories<'_>) -> Option<String> {
        let mut guard = wire::lock(&directories.guard);
        let (is_new, guard) = (guard.is_none(), guard.get_or_insert_default());
        if is_new {
            self.look_around(guard);
        }
        let moves = directories.moved.contains(path);
        if let Some(way) = guarded_way(path).filter(|_| moves || directories.files.contains(path)) {
            return Some(way.to_owned());
        }
        if let Some(folder) = guarded_folder(path).filter(|_| directories.brings_folder(path)) {
            return Some(folder.to_owned());
        }
        if directories.rearranges_git(path) {
            return Some(".git".to_owned());
        }
        if let Some(folder) = directories.makes_repository(path) {
            return Some(format!("git would take {folder} for a repository, with settings of its own"));
        }
        if self.policy.is_environment(path) && directories.leads_elsewhere(path) {
            return Some("an environment is found by it".to_owned());
        }
        if let Some(name) = self.policy.variable_of_settings(path) {
            return Some(format!("settings, as {name} says"));
        }
        // What is in a folder that is moved is what it was before.
        let was = directories.was(path);
        let meant = std::iter::once(path).chain(&was).find_map(|at| self.guards_at(guard, at, path, directories));
        meant.or_else(|| guard.on_way(path).filter(|_| leads_away(path, directories)))
    }

    fn look_around(&self, guard: &mut Guard) {
        let home = self.policy.home();
        guard.look_at_project(self.policy.folders(), home);
        for root in self.policy.roots() {
            let found = self.walks.found_in(root);
            found.iter().for_each(|folder| guard.look_at(folder, home));
        }
        if let Some(home) = home {
            guard.look_at_home(home, &self.walks);
        }
        for (at, name) in &self.policy.scope().settings {
            guard.add_way_of_settings(at, name);
        }
    }

    /// The same of what is at `at`, which the delta has at `path`, by where it is.
    fn guards_at(
        &self,
        guard: &mut Guard,
        at: &TreePath,
        path: &TreePath,
        directories: &Directories<'_>,
    ) -> Option<String> {
        if let Some(dot_file) = guard.led_from_home(at, self.policy.roots()) {
            return Some(format!("it is what {dot_file} leads to"));
        }
        let meanings = guard.meanings(at, self.policy.home()).into_iter();
        let meanings = meanings.filter(|meaning| !directories.goes_with(path, &meaning.from));
        let meanings: Vec<TreePath> = meanings.map(|meaning| meaning.stands_for).collect();
        if let Some(name) = meanings.iter().find_map(guarded) {
            return Some(name.to_owned());
        }
        if guard.is_exhausted() {
            return Some("nobody looks for that in so many folders".to_owned());
        }
        if at != path {
            return None;
        }
        // The folder that leads there: what is in it may change, but no other comes in its place.
        let moves = || directories.moved.contains(path) || !stat(path).is_some_and(is_directory);
        if let Some(way) = meanings.iter().find_map(guarded_way).filter(|_| moves()) {
            return Some(way.to_owned());
        }
        if meanings.iter().any(is_within_git) && directories.links_or_moves_folder(path) {
            return Some(".git".to_owned());
        }
        let folder = meanings.iter().find_map(guarded_folder);
        folder.filter(|_| directories.brings_folder(path)).map(str::to_owned)
    }
}

/// Why what is at `path` may not be moved or named again for what it is, or has in it, by what `denial` says of each file and folder.
fn denied_in(path: &TreePath, denial: impl Fn(&TreePath, Stat) -> Option<Denial>) -> Option<String> {
    let (mut ahead, mut looked_at) = (vec![path.clone()], 0);
    while let Some(at) = ahead.pop() {
        looked_at += 1;
        if looked_at > MOVED_MAX {
            return Some(format!("has more than {MOVED_MAX} files in it, which a command elsewhere may not move"));
        }
        let Some(stat) = stat(&at) else { continue };
        let is_folder = is_directory(stat);
        if !is_folder && FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            continue;
        }
        if let Some(denial) = denial(&at, stat) {
            return Some(format!("may not be read elsewhere, by another name either: {}", denial.reason()));
        }
        if is_folder {
            let names = entries(&at, |_| true, MOVED_MAX);
            ahead.extend(names.iter().map(|name| at.join(name)));
        }
    }
    None
}

/// Whether what is found by way of `path` is elsewhere after the delta: a link comes to be there, or what has another name now, or a folder
/// where a link is.
fn leads_away(path: &TreePath, directories: &Directories<'_>) -> bool {
    let is_no_folder = || stat(path).is_some_and(|stat| !is_directory(stat));
    directories.leads_elsewhere(path)
        || directories.files.contains(path)
        || (directories.all.contains(path) && is_no_folder())
}

fn stat(path: &TreePath) -> Option<Stat> {
    statat(CWD, path.as_bytes(), AtFlags::SYMLINK_NOFOLLOW).ok()
}

fn facts(path: &TreePath, directories: &Directories<'_>) -> WriteFacts {
    let found = statat(CWD, path.as_bytes(), AtFlags::SYMLINK_NOFOLLOW).ok();
    WriteFacts {
        owner: found.map(|stat| stat.st_uid),
        directory: found.map_or_else(|| directories.all.contains(path), is_directory),
        // Another name is made where that name is: whether this file may have one, the kernel says. Rights that it gives are not
        // to be had longer by that.
        may_write: (directories.linked.contains(path) && found.is_some_and(|stat| stat.st_mode & SET_IDS == 0))
            || may_write(path, &directories.replaced)
            || found.is_some_and(|stat| may_change(path, &stat)),
        new_repository: is_in_new_repository(path),
        goes_with_all: false,
        is_no_root: false,
        in_folder_of_service: is_in_folder_of_run(path),
    }
}

/// Whether `path` is in a folder of `/run` that is there.
fn is_in_folder_of_run(path: &TreePath) -> bool {
    let within =
        ["/run", "/var/run"].iter().find_map(|run| path.as_bytes().strip_prefix(run.as_bytes())?.strip_prefix(b"/"));
    let first = within.and_then(|rest| rest.split(|byte| *byte == b'/').next());
    first.is_some_and(|first| statat(CWD, [b"/run/", first].concat(), AtFlags::empty()).is_ok_and(is_directory))
}

fn is_directory(stat: Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// Whether the user may change the nearest directory above `path` that exists: what the task made on the way is its own.
/// A closed directory of the user's own counts, too: the task may have opened it, and the commit opens it as well.
fn may_write(path: &TreePath, replaced: &[&TreePath]) -> bool {
    let above = std::iter::successors(path.parent(), TreePath::parent);
    let mut above = above.filter(|above| !replaced.iter().any(|replaced| above.is_within(replaced)));
    // A file in the way is one that the task replaces by a directory: that is decided on its own.
    let is_directory = |path: &TreePath| statat(CWD, path.as_bytes(), AtFlags::empty()).is_ok_and(is_directory);
    let nearest = above.find(is_directory);
    let rights = Rights::WRITE_OK | Rights::EXEC_OK;
    let is_owned = |path: &TreePath| statat(CWD, path.as_bytes(), AtFlags::empty()).is_ok_and(|stat| is_own(&stat));
    nearest.is_some_and(|directory| match accessat(CWD, directory.as_bytes(), rights, AtFlags::empty()) {
        Ok(()) => true,
        // Else it is read-only, or may not be changed by anybody.
        Err(error) => error == Errno::ACCESS && is_owned(&directory),
    })
}

/// Whether the user may change what is at `path` itself. (Whether it can be removed or renamed depends on its directory: then
/// the commit says so.) A symbolic link may be written by anybody, who can set its times to the present by that.
fn may_change(path: &TreePath, stat: &Stat) -> bool {
    let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
    is_own(stat) || is_link || accessat(CWD, path.as_bytes(), Rights::WRITE_OK, AtFlags::empty()).is_ok()
}

fn is_own(stat: &Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw()
}

/// Whether `path` lies in a `.git` that is not there yet.
fn is_in_new_repository(path: &TreePath) -> bool {
    let mut above = std::iter::successors(Some(path.clone()), TreePath::parent);
    let repository = above.find(|path| path.name() == b".git");
    repository.is_some_and(|path| statat(CWD, path.as_bytes(), AtFlags::SYMLINK_NOFOLLOW).is_err())
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Action, Attr, Base, Change, Delta};

    #[test]
    fn another_name_needs_no_right_to_write_the_file() {
        let at = |name: &str| TreePath::parse(name.as_bytes()).expect("a path");
        let link =
            || Change { path: at("/tmp/p"), base: Base::Absent, action: Action::HardLink { to: at("/proc/version") } };
        let linked = Delta { changes: vec![link()] };
        assert!(facts(&at("/proc/version"), &Directories::of(&linked)).may_write);
        // Who changes it as well needs the right to.
        let removed = Change { path: at("/proc/version"), base: Base::Absent, action: Action::Remove };
        let changed = Delta { changes: vec![link(), removed] };
        assert!(Directories::of(&changed).linked.is_empty());
    }

    #[test]
    fn directories_of_a_delta_are_new_ones_too() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| TreePath::parse(folder.path().join(name).as_os_str().as_encoded_bytes()).expect("a path");
        std::fs::create_dir(folder.path().join("old")).expect("made");
        let new = |name: &str| {
            let action = Action::Directory { attr: Attr::default(), xattrs: Vec::new(), replaces: false };
            Change { path: at(name), base: Base::Absent, action }
        };
        let moved = Change { path: at("moved"), base: Base::Absent, action: Action::Rename { from: at("old") } };
        let delta = Delta { changes: vec![moved, new("old"), new("old/d")] };
        let directories = Directories::of(&delta);
        assert!(facts(&at("old/d"), &directories).directory && !facts(&at("old/e"), &directories).directory);
        assert_eq!(directories.replaced, [&at("moved"), &at("old")]);
        // What was there, and may be closed to the user, is elsewhere now.
        std::fs::remove_dir(folder.path().join("old")).expect("removed");
        std::fs::write(folder.path().join("old"), "in the way").expect("written");
        assert!(facts(&at("old/d"), &directories).may_write);
    }
}
