//! What decides about what is run here later, found by where it is and not by what it is called: a link, a `.git` file, `commondir`,
//! `core.hooksPath` or a second name leads there from a path that looks harmless.
//!
//! Each place is known by device and inode, with the path that it stands for: what lies beneath is judged as if it lay there. Looked for
//! are the folders above a change, those of the project, the folders directly in these, and what a walk through the project has found
//! ([`Walks`]). A delta cannot make such a way itself: links and folders that are moved to the beginning of one are refused
//! ([`crate::policy::guarded_way`]). Nor does it bend one: no link, and no folder that was elsewhere, comes to be above such a place.

mod settings;
mod walk;

pub use walk::Walks;

use crate::policy::{guarded_beginning, guarded_places};
use crate::snapshot::disk::{target_of, walk_by};
use crate::snapshot::unseen;
use base::TreePath;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, statat};
use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::os::fd::OwnedFd;

/// Folders in a project's that are looked into, files of a folder of hooks, and files of git's settings.
const INNER_MAX: usize = 512;
const HOOKS_MAX: usize = 256;
const SETTINGS_MAX: usize = 16;
/// Entries of a folder whose names are read to see what is guarded there; in a larger one each guarded name is looked for.
const LISTED_MAX: usize = 2000;
/// Folders that are looked into for one delta; of one with changes in more nothing is committed.
const FOLDERS_MAX: usize = 100_000;
/// Largest file that is read to see where it leads.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// What git runs of a folder of hooks.
const HOOKS: [&str; 28] = [
    "applypatch-msg",
    "commit-msg",
    "fsmonitor-watchman",
    "p4-changelist",
    "p4-post-changelist",
    "p4-pre-submit",
    "p4-prepare-changelist",
    "post-applypatch",
    "post-checkout",
    "post-commit",
    "post-index-change",
    "post-merge",
    "post-receive",
    "post-rewrite",
    "post-update",
    "pre-applypatch",
    "pre-auto-gc",
    "pre-commit",
    "pre-merge-commit",
    "pre-push",
    "pre-rebase",
    "pre-receive",
    "prepare-commit-msg",
    "proc-receive",
    "push-to-checkout",
    "reference-transaction",
    "sendemail-validate",
    "update",
];
/// By what git knows a repository.
pub(crate) const REPOSITORY: [&str; 4] = ["HEAD", "commondir", "objects", "refs"];

/// Device and inode.
type Place = (u64, u64);

/// What a place stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// A path that would decide the same.
    pub stands_for: TreePath,
    /// The folder in which, or above which, it is said that it does: with that it decides nothing any more.
    pub from: TreePath,
}

impl Meaning {
    fn beneath(&self, rest: &[u8]) -> Option<Self> {
        Some(Self { stands_for: self.stands_for.resolve(rest)?, from: self.from.clone() })
    }
}

/// The guarded places around the changes of one delta.
#[derive(Debug)]
pub struct Guard {
    /// What a place stands for.
    places: HashMap<Place, Vec<Meaning>>,
    /// The same of what is not there, to which a link leads.
    absent: HashMap<TreePath, Vec<Meaning>>,
    /// Folders and links by way of which one of these is found, and what that is.
    ways: HashMap<TreePath, String>,
    looked_at: HashSet<TreePath>,
    /// Folders that may still be looked into; `None`: there were more.
    left: Option<usize>,
    /// Where links in the home lead whose names are those of settings, and these.
    of_home: Vec<(TreePath, TreePath)>,
    /// What the folders above a path are, by their paths.
    known: HashMap<TreePath, Option<Place>>,
    /// Where links lead that were met.
    targets: HashMap<TreePath, Option<Vec<u8>>>,
}

impl Default for Guard {
    fn default() -> Self {
        let (places, absent, ways, looked_at, of_home, known, targets) = Default::default();
        Self { places, absent, ways, looked_at, left: Some(FOLDERS_MAX), of_home, known, targets }
    }
}

impl Guard {
    /// Those of these folders of a project, and of the settings in `home`.
    pub fn look_at_project<'a>(&mut self, folders: impl Iterator<Item = &'a TreePath>, home: Option<&TreePath>) {
        for folder in folders {
            self.look_at(folder, home);
            if home == Some(folder) || folder.is_root() || folder.parent().is_some_and(|parent| parent.is_root()) {
                continue;
            }
            let inner = entries(folder, |kind| matches!(kind, FileType::Directory | FileType::Unknown), INNER_MAX);
            inner.iter().for_each(|name| self.look_at(&folder.join(name), home));
        }
    }

    /// Those to which links in `home` lead whose names are those of settings.
    pub fn look_at_home(&mut self, home: &TreePath, walks: &Walks) {
        for at in links_of_settings(home).into_iter().chain(walks.links_in_settings(home).iter().cloned()) {
            let from = at.parent().unwrap_or_else(TreePath::root);
            if let Some(end) = self.find(&at, &from, &at.to_string()) {
                self.of_home.push((end, at));
            }
        }
    }

    /// Notes by way of what the settings at `at` are found, which the variable `name` says.
    pub fn add_way_of_settings(&mut self, at: &TreePath, name: &str) {
        self.find(at, &TreePath::root(), name);
    }

    /// What a change at `path` changes of what is guarded.
    pub fn meanings(&mut self, path: &TreePath, home: Option<&TreePath>) -> Vec<Meaning> {
        let above: Vec<TreePath> = std::iter::successors(path.parent(), TreePath::parent).collect();
        above.iter().for_each(|folder| self.look_at(folder, home));
        // By whatever name: a second one of a hook is as good.
        let own = stat(path).and_then(|stat| self.places.get(&place(&stat)));
        let mut meanings: Vec<Meaning> = own.into_iter().flatten().cloned().collect();
        meanings.extend(self.absent.get(path).into_iter().flatten().cloned());
        for folder in &above {
            let Some(rest) = path.relative_to(folder) else { continue };
            let absent = self.absent.get(folder).into_iter().flatten();
            meanings.extend(absent.filter_map(|meaning| meaning.beneath(rest)));
            let Some(at) = *self.known.entry(folder.clone()).or_insert_with(|| stat(folder).map(|stat| place(&stat)))
            else {
                continue;
            };
            let stands_for = self.places.get(&at).into_iter().flatten();
            meanings.extend(stands_for.filter_map(|meaning| meaning.beneath(rest)));
        }
        meanings
    }

    /// What is found by way of `path`, if something that is guarded is: with a link or another folder there that would be something else.
    pub fn on_way(&self, path: &TreePath) -> Option<String> {
        self.ways.get(path).map(|what| format!("it is on the way to what {what} leads to"))
    }

    /// Whether there were more folders than are looked into: then it is not known what is guarded.
    pub fn is_exhausted(&self) -> bool {
        self.left.is_none()
    }

    /// The dot-file of the home, or what is in its folders of settings and programs, which is a link that leads to `path` or above it: to
    /// something within one of these roots of the project, for who keeps settings under version control has them there.
    pub fn led_from_home<'a>(&self, path: &TreePath, roots: impl Iterator<Item = &'a TreePath>) -> Option<TreePath> {
        if self.of_home.is_empty() {
            return None;
        }
        let is_root: Vec<&TreePath> = roots.collect();
        let leads_here = |(target, _): &&(TreePath, TreePath)| {
            path.is_within(target) && !is_root.iter().any(|root| root.is_within(target))
        };
        self.of_home.iter().find(leads_here).map(|(_, at)| at.clone())
    }

    /// Where what is found by `at` is in truth. Notes by way of what it is found, but for the folders above `from`: there what says where it
    /// is would be another one, too.
    fn find(&mut self, at: &TreePath, from: &TreePath, what: &str) -> Option<TreePath> {
        let mut ways = Vec::new();
        let targets = &mut self.targets;
        let end = walk_by(at, &mut |way| ways.push(way.clone()), &mut |at| {
            targets.entry(at.clone()).or_insert_with(|| target_of(at)).clone()
        })?;
        for way in ways.into_iter().filter(|way| *way != end && !from.is_within(way)) {
            self.ways.entry(way).or_insert_with(|| what.to_owned());
        }
        Some(end)
    }

    /// Notes what is found by `at`, as what is in `from` or above says.
    fn add(&mut self, at: &TreePath, stands_for: &str, from: &TreePath) {
        let Some(end) = self.find(at, from, stands_for.trim_start_matches('/')) else { return };
        let Some(stands_for) = TreePath::parse(stands_for.as_bytes()) else { return };
        let meaning = Meaning { stands_for, from: from.clone() };
        let meanings = match stat(&end) {
            Some(found) => self.places.entry(place(&found)).or_default(),
            None => self.absent.entry(end).or_default(),
        };
        if !meanings.contains(&meaning) {
            meanings.push(meaning);
        }
    }

    /// Notes what is guarded in `folder`.
    pub fn look_at(&mut self, folder: &TreePath, home: Option<&TreePath>) {
        if !self.looked_at.insert(folder.clone()) {
            return;
        }
        // Of those that the delta makes nothing is to be seen.
        if !stat(folder).is_some_and(|stat| is(&stat, FileType::Directory)) {
            return;
        }
        self.left = self.left.and_then(|left| left.checked_sub(1));
        if self.left.is_none() {
            return;
        }
        if folder.name() != b".git" && is_bare(folder) {
            self.look_at_git(folder, folder, home);
        }
        let begin = beginnings(folder);
        if begin.as_ref().is_some_and(HashSet::is_empty) {
            return;
        }
        let is_there = |first: &str| match &begin {
            Some(begin) => begin.contains(&first.to_ascii_lowercase().into_bytes()),
            None => stat(&folder.join(first.as_bytes())).is_some(),
        };
        for name in guarded_places() {
            let (first, rest) = name.split_once('/').map_or((name, ""), |(first, rest)| (first, rest));
            if !is_there(first) {
                continue;
            }
            // A link or a folder there is judged by its name.
            let top = folder.join(first.as_bytes());
            if !rest.is_empty() {
                self.add(&top, &format!("/{first}"), &top);
            }
            if let Some(at) = folder.resolve(name.as_bytes()) {
                self.add(&at, &format!("/{name}"), &top);
            }
        }
        let git = folder.join(b".git");
        if let Some(there) = stat(&git) {
            let own = if is(&there, FileType::RegularFile) { led_to(&git, "gitdir:", folder) } else { Some(git) };
            own.into_iter().for_each(|own| self.look_at_git(&own, folder, home));
        }
    }

    /// Notes what is guarded in the git folder `own` of the tree at `folder`.
    fn look_at_git(&mut self, own: &TreePath, folder: &TreePath, home: Option<&TreePath>) {
        let common = led_to(&own.join(b"commondir"), "", own);
        let mut settings: Vec<TreePath> = TreePath::parse(b"/etc/gitconfig").into_iter().collect();
        for name in [".gitconfig", ".config/git/config"] {
            settings.extend(home.and_then(|home| home.resolve(name.as_bytes())));
        }
        for git in std::iter::once(own).chain(&common) {
            self.add(git, "/.git", folder);
            for name in ["hooks", "config", "config.worktree", "commondir", "info/attributes"] {
                if let Some(at) = git.resolve(name.as_bytes()) {
                    self.add(&at, &format!("/.git/{name}"), folder);
                }
            }
            self.look_at_hooks(&git.join(b"hooks"), folder);
            settings.extend([git.join(b"config"), git.join(b"config.worktree")]);
        }
        let mut at = 0;
        while let Some(file) = settings.get(at).cloned().filter(|_| at < SETTINGS_MAX) {
            let included = self.look_at_settings(&file, folder, home);
            settings.extend(included);
            at += 1;
        }
    }

    /// Notes what a file of git's settings says of hooks in the tree at `folder`. Returns the files of settings that it includes.
    fn look_at_settings(&mut self, file: &TreePath, folder: &TreePath, home: Option<&TreePath>) -> Vec<TreePath> {
        let mut all_included = Vec::new();
        let text = text(file).unwrap_or_default();
        let beside = file.parent().unwrap_or_else(TreePath::root);
        for (section, name, value) in settings::assignments(&text).into_iter().filter(|(_, _, value)| !value.is_empty())
        {
            let from = if section == "core" { folder } else { &beside };
            let led = match (value.strip_prefix("~/"), home) {
                (Some(rest), Some(home)) => home.resolve(rest.as_bytes()),
                _ => from.resolve(value.as_bytes()),
            };
            // What is named as a whole is found from wherever the file is.
            let from = if value.starts_with(['/', '~']) { &beside } else { from };
            match (section.as_str(), name.as_str(), led) {
                // Where all of the tree would be hooks, each of them is one by its name alone.
                ("core", "hookspath", Some(hooks)) if folder.is_within(&hooks) => {
                    HOOKS.iter().for_each(|name| self.add(&hooks.join(name.as_bytes()), "/.git/hooks", from));
                }
                ("core", "hookspath", Some(hooks)) => {
                    self.add(&hooks, "/.git/hooks", from);
                    self.look_at_hooks(&hooks, from);
                }
                ("include" | "includeif", "path", Some(included)) => {
                    self.add(&included, "/.git/config", from);
                    all_included.push(included);
                }
                _ => {}
            }
        }
        all_included
    }

    /// A hook may have a second name, or be a link.
    fn look_at_hooks(&mut self, hooks: &TreePath, from: &TreePath) {
        for name in entries(hooks, |_| true, HOOKS_MAX) {
            if !name.ends_with(b".sample") {
                self.add(&hooks.join(&name), "/.git/hooks", from);
            }
        }
    }
}

/// The links that are settings in `home` by their names.
fn links_of_settings(home: &TreePath) -> Vec<TreePath> {
    const FOLDERS: [&str; 6] =
        ["", ".config", ".config/systemd", ".config/autostart", ".local/bin", ".local/share/applications"];
    let mut found = Vec::new();
    for folder in FOLDERS.iter().filter_map(|folder| home.resolve(folder.as_bytes())) {
        let is_setting = |name: &[u8]| folder != *home || name.starts_with(b".") || name == b"bin";
        let links = entries(&folder, |kind| kind == FileType::Symlink, INNER_MAX);
        found.extend(links.iter().filter(|name| is_setting(name)).map(|name| folder.join(name)));
    }
    found
}

/// Whether `folder` is a repository without a working tree, by what git knows one.
pub(crate) fn is_bare(folder: &TreePath) -> bool {
    is_repository(|name| stat(&folder.join(name.as_bytes())).is_some())
}

/// Whether git takes a folder that has entries of such names for a repository.
pub(crate) fn is_repository(has: impl Fn(&'static str) -> bool) -> bool {
    let [head, common, objects, refs] = REPOSITORY;
    has(head) && (has(common) || (has(objects) && has(refs)))
}

/// The names in `folder` by which something that is guarded may begin, in small letters; `None` if they are too many to be read, or cannot
/// be.
fn beginnings(folder: &TreePath) -> Option<HashSet<Vec<u8>>> {
    let mut found = HashSet::new();
    for (at, (name, _)) in list(folder)?.enumerate() {
        if at >= LISTED_MAX {
            return None;
        }
        found.extend(guarded_beginning(&name));
    }
    Some(found)
}

/// Opens to read, so that nobody sees by the time of the last access that this was looked at.
fn open(path: &TreePath, flags: OFlags) -> Option<OwnedFd> {
    let flags = flags | OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    unseen(|more| rustix::fs::open(path.as_bytes(), flags | more, Mode::empty())).ok()
}

/// The names of the first entries of a folder that are of such kinds; none if it cannot be listed.
pub(crate) fn entries(folder: &TreePath, is_wanted: impl Fn(FileType) -> bool, most: usize) -> Vec<Vec<u8>> {
    let entries = list(folder).into_iter().flatten();
    entries.filter(|(_, kind)| is_wanted(*kind)).take(most).map(|(name, _)| name).collect()
}

/// The names and kinds of the entries of a folder, if it can be listed.
pub(crate) fn list(folder: &TreePath) -> Option<impl Iterator<Item = (Vec<u8>, FileType)>> {
    let listing = open(folder, OFlags::DIRECTORY).and_then(|held| Dir::new(held).ok())?;
    let named = listing.flatten().map(|entry| (entry.file_name().to_bytes().to_vec(), entry.file_type()));
    Some(named.filter(|(name, _)| !matches!(name.as_slice(), b"." | b"..")))
}

fn stat(path: &TreePath) -> Option<Stat> {
    statat(CWD, path.as_bytes(), AtFlags::SYMLINK_NOFOLLOW).ok()
}

fn place(stat: &Stat) -> Place {
    (stat.st_dev, stat.st_ino)
}

fn is(stat: &Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(stat.st_mode) == kind
}

fn text(path: &TreePath) -> Option<String> {
    let is_file = statat(CWD, path.as_bytes(), AtFlags::empty()).is_ok_and(|stat| is(&stat, FileType::RegularFile));
    let mut bytes = Vec::new();
    let file = is_file.then(|| open(path, OFlags::empty()))??;
    std::fs::File::from(file).take(TEXT_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Where the first line of the file at `path` leads, seen from `from`.
fn led_to(path: &TreePath, before: &str, from: &TreePath) -> Option<TreePath> {
    let text = text(path)?;
    let line = text.lines().next()?.strip_prefix(before)?.trim();
    from.resolve(line.as_bytes()).filter(|_| !line.is_empty())
}

#[cfg(test)]
mod tests;
