//! The write policy: what of a task's changes is committed, what is dropped, and what makes the commit fail.

use super::caches::{is_cache, is_system_cache, leads_to_cache};
use super::granted::never;
use super::guarded::{guarded, is_of_integration};
use super::names::{first_in_home, is_secret, is_services_place, is_system_place, is_tool};
use super::read::is_plain_entry;
use super::{Scope, Trust};
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
    /// It is removed together with the folder in which it decides anything.
    pub goes_with_all: bool,
    /// It is what continuous integration looks for at the root of a repository, and there is none.
    pub is_no_root: bool,
    /// It is in a folder of `/run` that was there before.
    pub in_folder_of_service: bool,
}

/// Why a path is refused that its user may not change here.
pub const COULD_NOT: &str = "could not be changed by you here either";
/// Why a path is refused that is nothing of what a command is about.
const OUTSIDE: &str = "is outside the write policy";
/// Folders for everybody's files of the moment.
const TEMPORARY: [&[u8]; 3] = [b"/tmp/", b"/var/tmp/", b"/dev/shm/"];

/// What becomes of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteDecision {
    /// It is committed.
    Commit,
    /// It is dropped, and `explain` tells of it.
    Scratch(Dropped),
    /// Nothing of the task is committed, for this reason.
    Refuse(String),
}

/// Why a change is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// Of a cache, a history or the like in a home.
    Cache,
    /// Of a cache of the system.
    SystemCache,
    /// Of a cache that a variable names.
    NamedCache,
    /// Of compiled Python outside the project.
    ByteCode,
    /// A new folder on the way to such.
    WayToCache,
}

impl Dropped {
    /// The reason, for people, as what follows the path in a sentence.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Cache => "is a cache or history in a home, where only commands that run here leave something",
            Self::SystemCache => "is a cache of the system, where only commands that run here leave something",
            Self::NamedCache => "is a cache by the environment, where only commands that run here leave something",
            Self::ByteCode => "is compiled Python outside the project, which only commands that run here keep",
            Self::WayToCache => "was made for a cache, which is not kept either",
        }
    }
}

/// Decides what one command may change.
///
/// Committed are changes in the project and the active environment, in `/tmp`, `/var/tmp` and `/dev/shm` to what is new or the
/// user's own, in `/run` to what is new, and to what arguments, and scripts in them, name, with all beneath and with what stands beside it
/// under the same stem, but where programs and settings are ([`Self::is_meant`]); never to dot-files of a home (but in a project that has a marker and lies in one). Where the home itself is the working
/// directory, new files and folders in it are committed too, and `a.out` and its like may be replaced. What the project's file
/// grants is committed as well, unless it is secret or guarded. Where the environment says that something is elsewhere (`TMPDIR`,
/// `CARGO_TARGET_DIR`, `CCACHE_DIR`), that place is what it is for.
#[derive(Clone, Debug)]
pub struct WritePolicy {
    scope: Scope,
    allowed: Vec<TreePath>,
}

/// What compilers and profilers write when they are not told a name.
const DEFAULT_OUTPUTS: &[&[u8]] =
    &[b"a.out", b"gmon.out", b"nohup.out", b"perf.data", b"core", b"mon.out", b"texput.log"];

impl WritePolicy {
    /// The policy for a command about `scope`, with the paths that the caller allowed for once (`--allow-write`).
    pub fn new(mut scope: Scope, allowed: Vec<TreePath>) -> Self {
        // What is named to be run is no output.
        let Scope { named, mentioned, programs, .. } = &mut scope;
        [named, mentioned].into_iter().for_each(|paths| paths.retain(|path| !programs.contains(path)));
        Self { scope, allowed }
    }

    /// Whether the caller allowed changes at `path` in so many words.
    pub fn is_allowed(&self, path: &TreePath) -> bool {
        self.allowed.iter().any(|allowed| path.is_within(allowed))
    }

    /// The folders of the project, and the one where the command runs: what decides there is guarded, wherever it is.
    pub fn folders(&self) -> impl Iterator<Item = &TreePath> {
        self.roots().chain([&self.scope.cwd])
    }

    /// The folders of the project.
    pub fn roots(&self) -> impl Iterator<Item = &TreePath> {
        self.scope.project.iter().flat_map(super::Project::roots)
    }

    /// Why the project's file grants nothing, if there is one and it does not.
    pub fn grants_nothing(&self) -> Option<&str> {
        self.scope.grants_nothing.as_deref()
    }

    /// What a command there is about.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Whether the project's file lets its commands use the network; `None` if the command is in no project.
    pub fn grants_network(&self) -> Option<bool> {
        self.scope.project.as_ref().map(|_| self.scope.granted.network)
    }

    /// The user's home.
    pub fn home(&self) -> Option<&TreePath> {
        self.scope.home.as_ref()
    }

    /// The variable that names `path`, or a folder that it is in, as settings by which something is run later.
    pub fn variable_of_settings(&self, path: &TreePath) -> Option<&'static str> {
        self.scope.settings.iter().find_map(|(at, name)| path.is_within(at).then_some(*name))
    }

    /// Decides on a change at `path`.
    pub fn decide(&self, path: &TreePath, facts: &WriteFacts) -> WriteDecision {
        use WriteDecision::{Commit, Refuse, Scratch};
        if self.is_allowed(path) {
            return Commit;
        }
        let home = self.scope.home_of(path);
        let is_granted = self.scope.granted.writes(path) && never(path, home.as_ref(), &self.scope.closed).is_none();
        // What is dropped needs no rights, and must not fail a command for a cache that it would have liked to keep.
        // Scripts make notes in caches as tools do; who gives an argument there wants it.
        let is_output = !facts.directory && self.scope.named.binary_search(path).is_ok();
        if let Some(why) = self.scratch(path, home.as_ref()).filter(|_| !is_granted && !is_output) {
            return Scratch(why);
        }
        let is_closed = self.scope.closed.iter().any(|closed| path.is_within(closed));
        if is_closed || is_secret(path, home.as_ref()) {
            return Refuse(format!("{path} is on the list of secrets, which no command may change from elsewhere"));
        }
        let is_new = |name: &str| is_new_sample(path, name, facts) || is_new_tree(path, name, facts);
        let counts = |name: &&str| !(facts.goes_with_all || facts.is_no_root && is_of_integration(name));
        if let Some(name) = guarded(path).filter(counts).filter(|name| !is_new(name)) {
            return Refuse(format!("{path} decides what is run here later ({name})"));
        }
        if !facts.may_write {
            return Refuse(format!("{path} {COULD_NOT}"));
        }
        if is_granted || self.commits(path, facts, home.as_ref()) {
            return Commit;
        }
        // A directory is dropped with the caches for which it was made.
        let leads_to_cache =
            || home.is_some_and(|home| leads_to_cache(path, &home)) || self.scope.places.leads_to_cache(path);
        match facts.directory && facts.owner.is_none() && leads_to_cache() {
            true => Scratch(Dropped::WayToCache),
            false => Refuse(format!("{path} {OUTSIDE}")),
        }
    }

    /// Whether the project's file could grant changes at `path`, which the policy refused with this reason.
    pub fn may_be_granted(&self, path: &TreePath, reason: &str) -> bool {
        let home = self.scope.home_of(path);
        let is_whole_home = |home: &TreePath| home.is_within(path);
        reason.ends_with(OUTSIDE)
            && self.scope.project.is_some()
            && !self.scope.home.as_ref().is_some_and(is_whole_home)
            && never(path, home.as_ref(), &self.scope.closed).is_none()
    }

    fn scratch(&self, path: &TreePath, home: Option<&TreePath>) -> Option<Dropped> {
        if self.scope.in_project(path) || self.in_environment(path) {
            return None;
        }
        if let Some(why) = self.scope.places.drops(path).filter(|_| !self.scope.is_named(path)) {
            return Some(why);
        }
        let is_compiled = path.components().any(|name| name == b"__pycache__");
        let compiled = is_compiled.then_some(Dropped::ByteCode);
        match home {
            Some(home) => is_cache(path, home).then_some(Dropped::Cache).or(compiled),
            None if self.scope.is_named(path) => None,
            None => is_system_cache(path).then_some(Dropped::SystemCache).or(compiled),
        }
    }

    fn commits(&self, path: &TreePath, facts: &WriteFacts, home: Option<&TreePath>) -> bool {
        if self.in_environment(path) {
            return true;
        }
        let is_own = facts.owner.is_none_or(|owner| owner == self.scope.uid);
        if self.scope.places.outputs.iter().any(|output| path.is_within(output))
            || (is_own && self.scope.places.temporary.iter().any(|folder| path.is_within(folder) && path != folder))
        {
            return true;
        }
        let meant = self.scope.named.iter().chain(&self.scope.mentioned).chain(&self.scope.places.outputs);
        let mut meant = meant.chain(&self.allowed);
        let mut is_on_the_way = || {
            // What is made on the way to a cache is dropped with it.
            meant.any(|meant| meant.is_within(path) && self.scratch(meant, home).is_none())
                || self.scope.granted.write.iter().any(|at| at.is_beneath(path))
        };
        if facts.directory && facts.owner.is_none() && is_on_the_way() {
            // Made on the way to what is named, allowed or granted.
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
        if self.scope.in_project(path) || self.is_meant(path) {
            return true;
        }
        let temporary = TEMPORARY.iter().any(|folder| path.as_bytes().starts_with(folder));
        // What services have there is not replaced.
        let is_runtime = facts.owner.is_none() && is_note_of_run(path, facts);
        (temporary || is_runtime) && path.components().count() > 1 && is_own
    }

    /// Whether the arguments, or a script in them, name `path`, or what it lies in or stands beside. Where programs and settings are that
    /// other commands use, a folder may be named to be read: only what is named itself counts there, with what lies in it if it is no such
    /// place, and what is called as something else that is named, as in `cp -r tool ~/bin`. Of root's settings, for workers of others, not
    /// even that.
    fn is_meant(&self, path: &TreePath) -> bool {
        let of_system = self.scope.uid == 0 && is_system_place(path) && !path.as_bytes().starts_with(b"/opt/");
        if of_system && is_services_place(path) && self.scope.trust != Trust::Own {
            return false;
        }
        let folders = &self.scope.folders;
        if !of_system && !folders.iter().any(|folder| path.is_within(folder)) {
            return self.scope.is_named(path) || self.scope.is_beside_named(path);
        }
        let has_programs = |at: &TreePath| of_system || folders.iter().any(|folder| folder.is_within(at));
        let mut ways = std::iter::successors(Some(path.clone()), TreePath::parent);
        ways.any(|at| {
            (self.scope.is_named_itself(&at) && (at == *path || !has_programs(&at))) || self.scope.is_copy_of_named(&at)
        })
    }

    /// Whether an environment outside the project is at `path` itself: the next command finds it by that.
    pub fn is_environment(&self, path: &TreePath) -> bool {
        self.scope.own_environments.contains(path) && !self.scope.in_project(path)
    }

    fn in_environment(&self, path: &TreePath) -> bool {
        self.scope.own_environments.iter().any(|environment| path.is_within(environment))
    }

    /// In the home as the working directory: what is new, or has a name that tools give by themselves.
    fn is_output_at_home(&self, path: &TreePath, facts: &WriteFacts, home: &TreePath) -> bool {
        // The first component is known not to start with a dot. What is put where programs are is run by their names.
        let has_programs = is_tool(path, home) || self.scope.folders.iter().any(|folder| path.is_within(folder));
        (facts.owner.is_none() && !has_programs)
            || (is_plain_entry(path, home) && DEFAULT_OUTPUTS.contains(&path.name()))
    }
}

/// What a program notes in `/run` of its run: itself in no folder, in its user's, in one that is new, or by its name. In a folder that is
/// there services look for what they are to do.
fn is_note_of_run(path: &TreePath, facts: &WriteFacts) -> bool {
    const ENDINGS: [&[u8]; 2] = [b".pid", b".lock"];
    let parts: Vec<&[u8]> = path.components().collect();
    match parts[..] {
        [b"run", b"user", _, _, ..] | [b"run", b"lock", _, ..] | [b"run", _] | [b"var", b"run", _] => true,
        [b"run", _, _, ..] | [b"var", b"run", _, _, ..] => {
            !facts.in_folder_of_service || ENDINGS.iter().any(|ending| path.name().ends_with(ending))
        }
        _ => false,
    }
}

/// A further working tree of a repository comes with files that say where it is.
fn is_new_tree(path: &TreePath, guarded: &str, facts: &WriteFacts) -> bool {
    let parts: Vec<&[u8]> = path.components().collect();
    let is_of_tree = match parts[..] {
        [ref above @ .., b"worktrees", name, _] => above.contains(&&b".git"[..]) && name != b".git",
        _ => false,
    };
    facts.owner.is_none() && guarded == ".git/commondir" && is_of_tree
}

/// A new repository comes with examples of hooks, and with the folder for them.
fn is_new_sample(path: &TreePath, guarded: &str, facts: &WriteFacts) -> bool {
    let is_sample = path.name().ends_with(b".sample") || (facts.directory && path.name() == b"hooks");
    facts.new_repository && guarded == ".git/hooks" && is_sample
}
