//! What decides about what is run here later, found by where it is and not by what it is called: a link, a `.git` file, `commondir`,
//! `core.hooksPath` or a second name leads there from a path that looks harmless.
//!
//! Each place is known by device and inode, with the path that it stands for: what lies beneath is judged as if it lay there. Looked for
//! are the folders above a change, those of the project, the folders directly in these, and what a walk through the project has found
//! ([`Walks`]). A delta cannot make such a way itself: links and folders that are moved to the beginning of one are refused
//! ([`crate::policy::guarded_way`]).

mod settings;
mod walk;

pub use walk::Walks;

use crate::policy::{begins_guarded, guarded, guarded_places};
use crate::snapshot::unseen;
use base::TreePath;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, statat};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

/// Folders in a project's that are looked into, files of a folder of hooks, and folders that are remembered.
const INNER_MAX: usize = 512;
const HOOKS_MAX: usize = 256;
/// Entries of a folder whose names are read to see what is guarded there; in a larger one each guarded name is looked for.
const LISTED_MAX: usize = 2000;
const FOLDERS_MAX: usize = 4096;
/// Links that are followed one after the other.
const LINKS_MAX: usize = 8;
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

/// The guarded places around the changes of one delta.
#[derive(Debug, Default)]
pub struct Guard {
    /// What a place stands for.
    places: HashMap<Place, Vec<TreePath>>,
    /// The same of what is not there, to which a link leads.
    absent: HashMap<TreePath, Vec<TreePath>>,
    looked_at: HashSet<TreePath>,
    /// Where links in the home lead whose names are those of settings, and these; once it has been looked for.
    of_home: Option<Vec<(TreePath, TreePath)>>,
    /// What the folders above a path are, by their paths.
    known: HashMap<TreePath, Option<Place>>,
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

    /// What a change at `path` changes of what is guarded: a path that stands for it.
    pub fn meaning(&mut self, path: &TreePath, home: Option<&TreePath>) -> Option<TreePath> {
        let above: Vec<TreePath> = std::iter::successors(path.parent(), TreePath::parent).collect();
        above.iter().for_each(|folder| self.look_at(folder, home));
        let here = stat(path);
        // By whatever name: a second one of a hook is as good.
        let own = here.and_then(|stat| self.places.get(&place(&stat)));
        if let Some(meaning) = own.and_then(|meanings| meanings.first()) {
            return Some(meaning.clone());
        }
        if let Some(meaning) = self.absent.get(path).and_then(|meanings| meanings.first()) {
            return Some(meaning.clone());
        }
        let is_guarded = |path: &TreePath| guarded(path).is_some() || crate::policy::guarded_way(path).is_some();
        for folder in &above {
            let Some(rest) = path.relative_to(folder) else { continue };
            let absent = self.absent.get(folder).into_iter().flatten();
            if let Some(meaning) = absent.filter_map(|stands_for| stands_for.resolve(rest)).find(is_guarded) {
                return Some(meaning);
            }
            let Some(at) = *self.known.entry(folder.clone()).or_insert_with(|| stat(folder).map(|stat| place(&stat)))
            else {
                continue;
            };
            let stands_for = self.places.get(&at).into_iter().flatten();
            let mut meant = stands_for.filter_map(|stands_for| stands_for.resolve(rest));
            if let Some(meaning) = meant.find(is_guarded) {
                return Some(meaning);
            }
        }
        None
    }

    /// The dot-file of `home`, or what is in its folders of settings and programs, which is a link that leads to `path` or above it: to
    /// something within one of these roots of the project, for who keeps settings under version control has them there.
    pub fn led_from_home<'a>(
        &mut self,
        path: &TreePath,
        home: &TreePath,
        roots: impl Iterator<Item = &'a TreePath>,
    ) -> Option<TreePath> {
        let of_home = self.of_home.get_or_insert_with(|| links_of_settings(home));
        if of_home.is_empty() {
            return None;
        }
        let is_root: Vec<&TreePath> = roots.collect();
        let leads_here = |(target, _): &&(TreePath, TreePath)| {
            path.is_within(target) && !is_root.iter().any(|root| root.is_within(target))
        };
        of_home.iter().find(leads_here).map(|(_, at)| at.clone())
    }

    fn add(&mut self, at: &TreePath, stands_for: &str) {
        let Some(stands_for) = TreePath::parse(stands_for.as_bytes()) else { return };
        let meanings = match statat(CWD, at.as_bytes(), AtFlags::empty()) {
            Ok(found) => self.places.entry(place(&found)).or_default(),
            Err(_) => match leads_to_nothing(at) {
                Some(target) => self.absent.entry(target).or_default(),
                None => return,
            },
        };
        if !meanings.contains(&stands_for) {
            meanings.push(stands_for);
        }
    }

    /// The same of what counts as soon as something is there.
    fn add_there_or_not(&mut self, at: &TreePath, stands_for: &str) {
        if let (None, Some(stands_for)) = (stat(at), TreePath::parse(stands_for.as_bytes())) {
            self.absent.entry(at.clone()).or_default().push(stands_for);
        }
        self.add(at, stands_for);
    }

    /// Notes what is guarded in `folder`.
    pub fn look_at(&mut self, folder: &TreePath, home: Option<&TreePath>) {
        if self.looked_at.len() >= FOLDERS_MAX || !self.looked_at.insert(folder.clone()) {
            return;
        }
        if folder.name() != b".git" && is_bare(folder) {
            self.look_at_git(folder, folder, home);
        }
        if !may_begin_guarded(folder) {
            return;
        }
        for name in guarded_places() {
            let (first, rest) = name.split_once('/').map_or((name, ""), |(first, rest)| (first, rest));
            if stat(&folder.join(first.as_bytes())).is_none() {
                continue;
            }
            if !rest.is_empty() {
                self.add(&folder.join(first.as_bytes()), &format!("/{first}"));
            }
            if let Some(at) = folder.resolve(name.as_bytes()) {
                self.add(&at, &format!("/{name}"));
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
            self.add(git, "/.git");
            for name in ["hooks", "config", "config.worktree", "commondir", "info/attributes"] {
                if let Some(at) = git.resolve(name.as_bytes()) {
                    self.add(&at, &format!("/.git/{name}"));
                }
            }
            self.look_at_hooks(&git.join(b"hooks"));
            settings.extend([git.join(b"config"), git.join(b"config.worktree")]);
        }
        let mut at = 0;
        while let Some(file) = settings.get(at).cloned().filter(|_| at < 16) {
            let text = text(&file).unwrap_or_default();
            for (section, name, value) in
                settings::assignments(&text).into_iter().filter(|(_, _, value)| !value.is_empty())
            {
                let from =
                    if section == "core" { folder.clone() } else { file.parent().unwrap_or_else(TreePath::root) };
                let led = match (value.strip_prefix("~/"), home) {
                    (Some(rest), Some(home)) => home.resolve(rest.as_bytes()),
                    _ => from.resolve(value.as_bytes()),
                };
                match (section.as_str(), name.as_str(), led) {
                    // Where all of the tree would be hooks, each of them is one by its name alone.
                    ("core", "hookspath", Some(hooks)) if folder.is_within(&hooks) => {
                        HOOKS
                            .iter()
                            .for_each(|name| self.add_there_or_not(&hooks.join(name.as_bytes()), "/.git/hooks"));
                    }
                    ("core", "hookspath", Some(hooks)) => {
                        self.add(&hooks, "/.git/hooks");
                        self.look_at_hooks(&hooks);
                    }
                    ("include" | "includeif", "path", Some(included)) => {
                        self.add(&included, "/.git/config");
                        settings.push(included);
                    }
                    _ => {}
                }
            }
            at += 1;
        }
    }

    /// A hook may have a second name, or be a link.
    fn look_at_hooks(&mut self, hooks: &TreePath) {
        for name in entries(hooks, |_| true, HOOKS_MAX) {
            if !name.ends_with(b".sample") {
                self.add(&hooks.join(&name), "/.git/hooks");
            }
        }
    }
}

/// Where the links lead that are settings in `home` by their names, and these names.
fn links_of_settings(home: &TreePath) -> Vec<(TreePath, TreePath)> {
    const FOLDERS: [&str; 6] =
        ["", ".config", ".config/systemd", ".config/autostart", ".local/bin", ".local/share/applications"];
    let mut found = Vec::new();
    for folder in FOLDERS.iter().filter_map(|folder| home.resolve(folder.as_bytes())) {
        let is_setting = |name: &[u8]| folder != *home || name.starts_with(b".") || name == b"bin";
        let links = entries(&folder, |kind| kind == FileType::Symlink, INNER_MAX);
        for at in links.iter().filter(|name| is_setting(name)).map(|name| folder.join(name)) {
            let there = std::fs::canonicalize(OsStr::from_bytes(at.as_bytes())).ok();
            let there = there.and_then(|target| TreePath::parse(target.as_os_str().as_bytes()));
            found.extend(there.or_else(|| leads_to_nothing(&at)).map(|target| (target, at.clone())));
        }
    }
    found
}

/// Where the link at `at` leads, if that is not there.
fn leads_to_nothing(at: &TreePath) -> Option<TreePath> {
    let mut at = at.clone();
    for _ in 0..LINKS_MAX {
        let text = match rustix::fs::readlinkat(CWD, at.as_bytes(), Vec::new()) {
            Ok(text) => text.into_bytes(),
            Err(Errno::NOENT) => return Some(at),
            Err(_) => return None,
        };
        let target = at.parent()?.resolve(&text)?;
        let folder = std::fs::canonicalize(OsStr::from_bytes(target.parent()?.as_bytes())).ok()?;
        at = TreePath::parse(folder.as_os_str().as_bytes())?.join(target.name());
    }
    None
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

/// Whether something that is guarded may be in `folder`, by the names of its entries.
fn may_begin_guarded(folder: &TreePath) -> bool {
    list(folder).is_none_or(|list| list.enumerate().any(|(at, (name, _))| at >= LISTED_MAX || begins_guarded(&name)))
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
fn list(folder: &TreePath) -> Option<impl Iterator<Item = (Vec<u8>, FileType)>> {
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
