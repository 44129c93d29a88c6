//! The write policy, with the facts that it asks for: who owns what is there, and what the user's own rights allow.

use crate::commit;
use crate::guard::{Guard, REPOSITORY, Walks, entries, is_bare, is_repository};
use crate::policy::{
    Access, FileFacts, ReadPolicy, Scope, WriteDecision, WriteFacts, WritePolicy, guarded, guarded_in, guarded_way,
    is_of_integration,
};
use base::{Action, Change, Delta, TreePath};
use rustix::fs::{Access as Rights, AtFlags, CWD, FileType, Stat, accessat, statat};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

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
        if let Some(reason) = directories.sources.contains(path).then(|| self.keeps_name(path)).flatten() {
            return commit::WriteDecision::Refuse(reason);
        }
        let facts = WriteFacts { is_no_root: self.is_no_root(path, directories), ..facts(path, directories) };
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
    /// another name. Within the project it is as secret by any name.
    fn keeps_name(&self, path: &TreePath) -> Option<String> {
        let scope = self.policy.scope();
        if self.policy.is_allowed(path) || scope.in_project(path) {
            return None;
        }
        let read = ReadPolicy::new(scope.clone());
        let (mut ahead, mut looked_at) = (vec![path.clone()], 0);
        while let Some(at) = ahead.pop() {
            looked_at += 1;
            if looked_at > MOVED_MAX {
                return Some(format!("has more than {MOVED_MAX} files in it, which a command elsewhere may not move"));
            }
            let Ok(stat) = statat(CWD, at.as_bytes(), AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let (uid, mode, directory) = (stat.st_uid, stat.st_mode & 0o7777, is_directory(stat));
            let kind = FileType::from_raw_mode(stat.st_mode);
            if !directory && kind != FileType::RegularFile {
                continue;
            }
            if let Access::Deny(denial) = read.decide(&at, &FileFacts { uid, mode, directory }) {
                return Some(format!("may not be read elsewhere, by another name either: {}", denial.reason()));
            }
            if directory {
                let names = entries(&at, |_| true, MOVED_MAX);
                ahead.extend(names.iter().map(|name| at.join(name)));
            }
        }
        None
    }

    /// Whether `path` is where continuous integration would look in a repository, and no repository is there.
    fn is_no_root(&self, path: &TreePath, directories: &Directories<'_>) -> bool {
        let Some((folder, name)) = guarded_in(path) else { return false };
        let git = folder.join(b".git");
        is_of_integration(name)
            && !self.policy.folders().any(|root| *root == folder)
            && !directories.makes(&git)
            && statat(CWD, git.as_bytes(), AtFlags::SYMLINK_NOFOLLOW).is_err()
    }

    /// What a change at `path`, which the policy lets through by its name, is of what is guarded.
    fn guards(&self, path: &TreePath, directories: &Directories<'_>) -> Option<String> {
        let mut guard = wire::lock(&directories.guard);
        let (is_new, guard) = (guard.is_none(), guard.get_or_insert_default());
        if is_new {
            guard.look_at_project(self.policy.folders(), self.policy.home());
            for root in self.policy.roots() {
                let found = self.walks.found_in(root);
                found.iter().for_each(|folder| guard.look_at(folder, self.policy.home()));
            }
        }
        let moves = directories.moved.contains(path);
        if let Some(way) = guarded_way(path).filter(|_| moves || directories.files.contains(path)) {
            return Some(way.to_owned());
        }
        if directories.brings_folder_into_git(path) {
            return Some(".git".to_owned());
        }
        if let Some(folder) = directories.makes_repository(path) {
            return Some(format!("git would take {folder} for a repository, with settings of its own"));
        }
        if let Some(name) = self.policy.variable_of_settings(path) {
            return Some(format!("settings, as {name} says"));
        }
        if let Some(at) = self.policy.home().and_then(|home| guard.led_from_home(path, home, self.policy.roots())) {
            return Some(format!("it is what {at} leads to"));
        }
        let meaning = guard.meaning(path, self.policy.home())?;
        let is_folder = statat(CWD, path.as_bytes(), AtFlags::SYMLINK_NOFOLLOW).is_ok_and(is_directory);
        match guarded(&meaning) {
            Some(name) => Some(name.to_owned()),
            // The folder that leads there: what is in it may change, but no other comes in its place.
            None => guarded_way(&meaning).filter(|_| moves || !is_folder).map(str::to_owned),
        }
    }
}

/// The directories of a delta.
#[derive(Debug)]
pub struct Directories<'a> {
    /// All that it makes or changes.
    all: HashSet<&'a TreePath>,
    /// Where it puts a new or renamed one, and from where it takes one away: who owned what was there does not matter below them.
    replaced: Vec<&'a TreePath>,
    /// Where a link, another name or another folder comes to be, and from where something is moved away.
    moved: HashSet<&'a TreePath>,
    /// What is renamed, by what it is called then.
    renamed: HashMap<&'a TreePath, &'a TreePath>,
    /// Where it has files.
    files: HashSet<&'a TreePath>,
    /// What it removes.
    removed: HashSet<&'a TreePath>,
    /// What it makes that repositories have, by folder.
    parts: HashSet<(TreePath, &'static str)>,
    /// What it gives another name, and does not change otherwise.
    linked: HashSet<&'a TreePath>,
    /// What is called otherwise, or as well.
    sources: HashSet<&'a TreePath>,
    /// What is guarded around it; looked for with the first change.
    guard: Mutex<Option<Guard>>,
}

impl<'a> Directories<'a> {
    /// Those of `delta`.
    pub fn of(delta: &'a Delta) -> Self {
        let is_directory = |change: &&Change| matches!(change.action, Action::Directory { .. });
        let all = delta.changes.iter().filter(is_directory).map(|change| &change.path).collect();
        let replaced = delta.changes.iter().flat_map(|change| match &change.action {
            Action::Directory { replaces: true, .. } => [Some(&change.path), None],
            Action::Rename { from } => [Some(&change.path), Some(from)],
            _ => [None, None],
        });
        let moved = delta.changes.iter().flat_map(|change| match &change.action {
            Action::Rename { from } => [Some(&change.path), Some(from)],
            Action::Symlink { .. } | Action::HardLink { .. } | Action::Directory { replaces: true, .. } => {
                [Some(&change.path), None]
            }
            _ => [None, None],
        });
        let renames = delta.changes.iter().filter_map(|change| match &change.action {
            Action::Rename { from } => Some((&change.path, from)),
            _ => None,
        });
        let renamed = renames.collect();
        let is_file = |change: &&Change| matches!(change.action, Action::File { .. } | Action::Fifo { .. });
        let files = delta.changes.iter().filter(is_file).map(|change| &change.path).collect();
        let is_removal = |change: &&Change| matches!(change.action, Action::Remove);
        let removed = delta.changes.iter().filter(is_removal).map(|change| &change.path).collect();
        let linked = delta.changes.iter().filter_map(|change| match &change.action {
            Action::HardLink { to } => Some(to),
            _ => None,
        });
        let mut linked: HashSet<&TreePath> = linked.collect();
        for change in &delta.changes {
            linked.remove(&change.path);
        }
        let sources = delta.changes.iter().filter_map(|change| match &change.action {
            Action::HardLink { to: source } | Action::Rename { from: source } => Some(source),
            _ => None,
        });
        let sources = sources.collect();
        let (moved, guard) = (moved.flatten().collect(), Mutex::default());
        let replaced = replaced.flatten().collect();
        let mut directories =
            Self { all, replaced, moved, renamed, files, removed, parts: HashSet::new(), linked, sources, guard };
        let made = delta.changes.iter().map(|change| &change.path).filter(|path| directories.makes(path));
        let parts = made.filter_map(|path| Some((path.parent()?, part_of_repository(path)?)));
        directories.parts = parts.collect();
        directories
    }

    /// The folder that what is made at `path`, with the rest, makes a repository of without a working tree: what in it is called `config`
    /// may have been there before.
    fn makes_repository(&self, path: &TreePath) -> Option<TreePath> {
        let folder = path.parent().filter(|_| part_of_repository(path).is_some() && self.makes(path))?;
        // Those within one are judged by where they are.
        let is_new = !folder.components().any(|name| name == b".git") && !is_bare(&folder);
        let is_there = |path: &TreePath| statat(CWD, path.as_bytes(), AtFlags::SYMLINK_NOFOLLOW).is_ok();
        let was = self.was(&folder);
        let will_have = |part: &'static str| {
            self.parts.contains(&(folder.clone(), part))
                || is_there(&folder.join(part.as_bytes()))
                || was.as_ref().is_some_and(|was| is_there(&was.join(part.as_bytes())))
        };
        (is_new && is_repository(will_have)).then_some(folder)
    }

    fn makes(&self, path: &TreePath) -> bool {
        self.all.contains(path) || self.files.contains(path) || self.moved.contains(path)
    }

    /// Whether what is at `path` decides something in a folder that is removed with it.
    fn goes_with_all(&self, path: &TreePath) -> bool {
        self.removed.contains(path) && guarded_in(path).is_some_and(|(folder, _)| self.removed.contains(&folder))
    }

    /// Where what will be in the folder at `path` is now, if it is moved there.
    fn was(&self, path: &TreePath) -> Option<TreePath> {
        let mut at = std::iter::successors(Some(path.clone()), TreePath::parent);
        let (to, from) = at.find_map(|at| self.renamed.get_key_value(&at))?;
        from.resolve(path.relative_to(to)?)
    }

    /// Whether a folder is moved to `path`, which is where a repository may look for hooks and settings: what is in the folder is not
    /// known by its names.
    fn brings_folder_into_git(&self, path: &TreePath) -> bool {
        let parts: Vec<&[u8]> = path.components().collect();
        let Some(at) = parts.iter().position(|part| *part == b".git") else { return false };
        let is_data = |part: &&[u8]| matches!(*part, b"refs" | b"logs" | b"objects");
        let from = self.renamed.get(path).filter(|_| !parts.iter().skip(at + 1).take(1).any(is_data));
        from.is_some_and(|from| statat(CWD, from.as_bytes(), AtFlags::SYMLINK_NOFOLLOW).is_ok_and(is_directory))
    }
}

/// What of a repository an entry of this name is, whatever the case of its letters.
fn part_of_repository(path: &TreePath) -> Option<&'static str> {
    REPOSITORY.into_iter().find(|part| part.as_bytes().eq_ignore_ascii_case(path.name()))
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
        goes_with_all: directories.goes_with_all(path),
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
    use base::{Attr, Base, Change};

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
