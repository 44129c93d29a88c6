//! What a delta does to folders and names, for those who decide about one path of it.

use crate::guard::{Guard, REPOSITORY, is_bare, is_repository};
use crate::policy::{guarded_in, is_within_git};
use base::delta::FileChange;
use base::{Action, Change, Delta, TreePath};
use rustix::fs::{AtFlags, CWD, statat};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, OnceLock};
use wire::lock;

/// The bits by which group and others may read a file.
pub(super) const OTHERS_READ: u32 = 0o044;

/// The directories of a delta.
#[derive(Debug)]
pub struct Directories<'a> {
    /// All that it makes or changes.
    pub(super) all: HashSet<&'a TreePath>,
    /// Where it puts a new or renamed one, and from where it takes one away: who owned what was there does not matter below them.
    pub(super) replaced: Vec<&'a TreePath>,
    /// Where a link, another name or another folder comes to be, and from where something is moved away.
    pub(super) moved: HashSet<&'a TreePath>,
    /// What is renamed, by what it is called then.
    renamed: HashMap<&'a TreePath, &'a TreePath>,
    /// The same by what it is called now.
    renamed_from: HashMap<&'a TreePath, &'a TreePath>,
    /// Where it has files.
    pub(super) files: HashSet<&'a TreePath>,
    /// Where it has symbolic links.
    links: HashSet<&'a TreePath>,
    /// Where it has further names of files.
    second_names: HashSet<&'a TreePath>,
    /// What it removes.
    removed: HashSet<&'a TreePath>,
    /// What it writes to, and removes: other names of that remain.
    last_written: HashSet<&'a TreePath>,
    /// What it makes that repositories have, by folder.
    parts: HashSet<(TreePath, &'static str)>,
    /// What it gives another name, and does not change otherwise.
    pub(super) linked: HashSet<&'a TreePath>,
    /// What is called otherwise, or as well.
    pub(super) sources: HashSet<&'a TreePath>,
    /// What it opens to others, and does not change otherwise.
    pub(super) opened: HashSet<&'a TreePath>,
    /// Where it makes something, and the folders above that; put together when it is asked for.
    made_or_above: OnceLock<HashSet<TreePath>>,
    /// What is guarded around it; looked for with the first change.
    pub(crate) guard: Mutex<Option<Guard>>,
}

impl<'a> Directories<'a> {
    /// Those of `delta`.
    pub fn of(delta: &'a Delta) -> Self {
        let of = |is_one: fn(&Action) -> bool| -> HashSet<&'a TreePath> {
            delta.changes.iter().filter(|change| is_one(&change.action)).map(|change| &change.path).collect()
        };
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
        let renamed: HashMap<&TreePath, &TreePath> = renames.collect();
        let sources = delta.changes.iter().filter_map(|change| match &change.action {
            Action::HardLink { to: source } | Action::Rename { from: source } => Some(source),
            _ => None,
        });
        let mut directories = Self {
            all: of(|action| matches!(action, Action::Directory { .. })),
            replaced: replaced.flatten().collect(),
            moved: moved.flatten().collect(),
            renamed_from: renamed.iter().map(|(to, from)| (*from, *to)).collect(),
            renamed,
            files: of(|action| matches!(action, Action::File { .. } | Action::Fifo { .. })),
            links: of(|action| matches!(action, Action::Symlink { .. })),
            second_names: of(|action| matches!(action, Action::HardLink { .. })),
            removed: of(|action| matches!(action, Action::Remove)),
            last_written: of(|action| matches!(action, Action::LastWrite { .. })),
            parts: HashSet::new(),
            linked: linked(delta),
            sources: sources.collect(),
            opened: of(opens),
            made_or_above: OnceLock::new(),
            guard: Mutex::default(),
        };
        let made = delta.changes.iter().map(|change| &change.path).filter(|path| directories.makes(path));
        let parts = made.filter_map(|path| Some((path.parent()?, part_of_repository(path)?)));
        directories.parts = parts.collect();
        directories
    }

    /// Has what is guarded be looked for again.
    pub fn forget(&self) {
        *lock(&self.guard) = None;
    }

    /// The folder that what is made at `path`, with the rest, makes a repository of without a working tree: what in it is called `config`
    /// may have been there before.
    pub(super) fn makes_repository(&self, path: &TreePath) -> Option<TreePath> {
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

    pub(super) fn makes(&self, path: &TreePath) -> bool {
        self.all.contains(path) || self.files.contains(path) || self.moved.contains(path)
    }

    /// Whether what is at `path` decides something in a folder that is removed with it, and nothing comes there again: a result may say
    /// that it removed what it in truth replaces. A repository also goes if its `.git` does, and that `is_named` or the folder is
    /// a new one.
    pub(super) fn goes_with_all(&self, path: &TreePath, is_named: impl Fn(&TreePath) -> bool) -> bool {
        if !self.removed.contains(path) || self.last_written.contains(path) {
            return false;
        }
        let Some((folder, _)) = guarded_in(path) else { return false };
        let mut ways = std::iter::successors(Some(path.clone()), TreePath::parent);
        let Some(top) = ways.find(|at| at.parent().as_ref() == Some(&folder)) else { return false };
        let is_folder_removed = self.removed.contains(&folder);
        let goes_alone = self.removed.contains(&top)
            && top.name() == b".git"
            && (is_folder_removed || is_named(&top))
            && !self.leads_elsewhere(&folder)
            && !self.sources.contains(&folder);
        let top = match (goes_alone, is_folder_removed) {
            (true, _) => top,
            (false, true) => folder,
            (false, false) => return false,
        };
        let mut way = std::iter::successors(Some(path.clone()), TreePath::parent).take_while(|at| at.is_within(&top));
        !self.made_or_above().contains(path) && !way.any(|at| self.makes(&at))
    }

    /// Whether what is at `path` is removed with `folder`, and neither comes again.
    pub(super) fn goes_with(&self, path: &TreePath, folder: &TreePath) -> bool {
        self.removed.contains(path)
            && self.removed.contains(folder)
            && !self.last_written.contains(path)
            && !self.made_or_above().contains(path)
            && !self.makes(folder)
            && !std::iter::successors(path.parent(), TreePath::parent)
                .take_while(|at| at.is_within(folder))
                .any(|at| self.makes(&at))
    }

    fn made_or_above(&self) -> &HashSet<TreePath> {
        self.made_or_above.get_or_init(|| {
            let made = self.all.iter().chain(&self.files).chain(&self.moved);
            let mut all: HashSet<TreePath> = HashSet::new();
            for path in made {
                let mut at = Some((*path).clone());
                while let Some(path) = at.take_if(|path| !all.contains(path)) {
                    at = path.parent();
                    all.insert(path);
                }
            }
            all
        })
    }

    /// Where what will be at `path` is now, if it is moved there.
    pub(super) fn was(&self, path: &TreePath) -> Option<TreePath> {
        if self.renamed.is_empty() {
            return None;
        }
        let mut at = std::iter::successors(Some(path.clone()), TreePath::parent);
        let (to, from) = at.find_map(|at| self.renamed.get_key_value(&at))?;
        from.resolve(path.relative_to(to)?)
    }

    /// Where what is at `path` now is moved to.
    pub(super) fn moves_to(&self, path: &TreePath) -> Option<&'a TreePath> {
        self.renamed_from.get(path).copied()
    }

    /// Whether a link, or what was elsewhere, comes to be at `path`: what is found by it is not known by its names.
    pub(super) fn leads_elsewhere(&self, path: &TreePath) -> bool {
        self.links.contains(path) || self.second_names.contains(path) || self.renamed.contains_key(path)
    }

    /// Whether a link, or a folder that was elsewhere, comes to be at `path`.
    pub(super) fn brings_folder(&self, path: &TreePath) -> bool {
        self.links.contains(path) || self.renamed.get(path).is_some_and(|from| is_folder(from))
    }

    /// The same, or a folder is moved away from there.
    pub(super) fn links_or_moves_folder(&self, path: &TreePath) -> bool {
        self.brings_folder(path) || (self.sources.contains(path) && is_folder(path))
    }

    /// Whether a link is made, or a folder is moved, where a repository may look for hooks and settings: what is in the folder is not known
    /// by its names. Git itself does neither there.
    pub(super) fn rearranges_git(&self, path: &TreePath) -> bool {
        is_within_git(path) && self.links_or_moves_folder(path)
    }
}

fn is_folder(path: &TreePath) -> bool {
    super::stat(path).is_some_and(super::is_directory)
}

/// Whether a change of attributes lets others read a file.
fn opens(action: &Action) -> bool {
    matches!(action, Action::File { attr, change: FileChange::Attributes, .. } if attr.mode & OTHERS_READ != 0)
}

/// What of a delta gets another name, and no other change.
fn linked(delta: &Delta) -> HashSet<&TreePath> {
    let linked = delta.changes.iter().filter_map(|change: &Change| match &change.action {
        Action::HardLink { to } => Some(to),
        _ => None,
    });
    let mut linked: HashSet<&TreePath> = linked.collect();
    if !linked.is_empty() {
        for change in &delta.changes {
            linked.remove(&change.path);
        }
    }
    linked
}

/// What of a repository an entry of this name is, whatever the case of its letters.
fn part_of_repository(path: &TreePath) -> Option<&'static str> {
    REPOSITORY.into_iter().find(|part| part.as_bytes().eq_ignore_ascii_case(path.name()))
}
