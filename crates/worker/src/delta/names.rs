//! Which file, link or pipe of the client each one in the upper directory is, and what became of its names.
//!
//! A file that the overlay copied up is a file of the client still, under whatever names. Where it was the overlay notes
//! in two ways: by the path that it was renamed or linked from (always while it has no bytes of its own), and by the handle
//! of what it was copied from, which must be looked for.

use super::upper::{Copied, Entry, Kind};
use super::{DeltaError, Handle, Lens};
use base::{Binding, TreePath};
use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};

/// What is to be said of an entry that is a file, link or pipe.
#[derive(Debug, Default)]
pub(crate) struct Role {
    /// Where the file was before the task, if it is one that was there: the name that became this one, if any did.
    pub before: Option<TreePath>,
    /// How it came to this name.
    pub name: NameChange,
    /// Changes of the file itself are said at this name.
    pub speaks: bool,
    /// It was there before the task, under whatever names.
    pub is_old: bool,
}

/// How a file came to a name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum NameChange {
    /// It is a new file here, or has had this name before.
    #[default]
    None,
    /// The name at this path of the lower directory became this one.
    Renamed(TreePath),
    /// It has this other name, after the task.
    Link(TreePath),
}

/// Device and inode of a file at the client.
type Identity = (u64, u64);

/// Finds out about names.
pub(crate) struct Names<'a> {
    entries: &'a [Entry],
    lens: &'a dyn Lens,
    by_handle: OnceCell<HashMap<Handle, TreePath>>,
}

/// A file of the upper directory.
struct Group {
    /// Its names there: indices of entries, in order.
    names: Vec<usize>,
    /// Where it was copied from.
    source: Option<TreePath>,
    /// Those of its names that it had before.
    kept: Vec<usize>,
}

impl<'a> Names<'a> {
    pub(crate) fn new(entries: &'a [Entry], lens: &'a dyn Lens) -> Self {
        Self { entries, lens, by_handle: OnceCell::new() }
    }

    /// The role of each entry that is a file, link or pipe. Names that became others are taken out of `removed`; names of
    /// files in whose place something else is are added where that must be said.
    pub(crate) fn roles(&self, removed: &mut BTreeSet<TreePath>) -> Result<HashMap<usize, Role>, DeltaError> {
        let mut groups = Vec::new();
        for names in self.inodes() {
            let source = self.source(&names, removed)?;
            let was = |index: &usize| source.as_ref().is_some_and(|source| self.had_name(*index, source));
            let kept: Vec<usize> = names.iter().copied().filter(was).collect();
            groups.push(Group { names, source, kept });
        }
        let mut displaced = self.displaced(&groups);
        let mut free = self.free_names(&groups, removed, &displaced);
        let mut roles = HashMap::new();
        for group in &groups {
            self.give_roles(group, removed, &mut displaced, &mut free, &mut roles)?;
        }
        // What is in the place of a file that had other names is not that file; and a renamed file replaces nothing that
        // is not said to be gone.
        for (path, index) in displaced {
            let several = self.identity(&path).is_some_and(|(_, several)| several);
            let renamed = roles.get(&index).is_some_and(|role| matches!(role.name, NameChange::Renamed(_)));
            if renamed || several && matches!(self.entries[index].kind, Kind::File(_)) {
                removed.insert(path);
            }
        }
        Ok(roles)
    }

    /// Entries by inode of the upper directory.
    fn inodes(&self) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let mut known: HashMap<(u64, u64), usize> = HashMap::new();
        for (index, entry) in self.entries.iter().enumerate() {
            if matches!(entry.kind, Kind::Directory { .. } | Kind::Renamed { .. }) {
                continue;
            }
            if entry.stat.st_nlink == 1 {
                groups.push(vec![index]);
                continue;
            }
            let at = *known.entry((entry.stat.st_dev, entry.stat.st_ino)).or_insert(groups.len());
            match groups.get_mut(at) {
                Some(group) => group.push(index),
                None => groups.push(vec![index]),
            }
        }
        groups
    }

    /// What is known of the file at `path` of the lower directory, and whether it has several names.
    fn identity(&self, path: &TreePath) -> Option<(Identity, bool)> {
        let attr = match self.lens.binding_of(path)? {
            Binding::File { attr, .. } | Binding::Symlink { attr, .. } | Binding::Special { attr } => attr,
            Binding::Absent | Binding::Denied | Binding::Directory { .. } => return None,
        };
        Some(((attr.dev, attr.ino), attr.nlink > 1))
    }

    /// Whether two paths of the lower directory are names of one file.
    fn is_same(&self, one: &TreePath, other: &TreePath) -> bool {
        one == other
            || match (self.identity(one), self.identity(other)) {
                (Some((one, true)), Some((other, true))) => one == other,
                _ => false,
            }
    }

    /// The path of the file, link or pipe that was at an entry's place.
    fn file_before(&self, index: usize) -> Option<&'a TreePath> {
        match &self.entries[index].lower {
            Some((lower, Binding::File { .. } | Binding::Symlink { .. } | Binding::Special { .. })) => Some(lower),
            _ => None,
        }
    }

    /// The same, if it was of the entry's kind.
    fn like_before(&self, index: usize) -> Option<&'a TreePath> {
        let entry = &self.entries[index];
        match (&entry.kind, &entry.lower) {
            (Kind::File(_), Some((lower, Binding::File { .. })))
            | (Kind::Symlink { .. }, Some((lower, Binding::Symlink { .. })))
            | (Kind::Fifo | Kind::Socket | Kind::Device, Some((lower, Binding::Special { .. }))) => Some(lower),
            _ => None,
        }
    }

    /// Whether an entry is at a name that the file at `source` had before.
    fn had_name(&self, index: usize, source: &TreePath) -> bool {
        self.like_before(index).is_some_and(|lower| self.is_same(lower, source))
    }

    /// Where the file of these names was copied from; `None` if it is new.
    fn source(&self, names: &[usize], removed: &BTreeSet<TreePath>) -> Result<Option<TreePath>, DeltaError> {
        let entry = &self.entries[names[0]];
        let same = |lower: &&TreePath| self.lens.handle_of(lower).as_ref() == entry.origin.as_ref();
        let own_same = || names.iter().filter_map(|index| self.like_before(*index)).find(same);
        let Kind::File(Copied { copied, bare, from }) = &entry.kind else {
            let Some(origin) = &entry.origin else { return Ok(None) };
            return Ok(own_same().or_else(|| self.by_handle(removed).get(origin)).cloned());
        };
        let own = || names.iter().find_map(|index| self.like_before(*index));
        if let Some(from) = from
            && self.identity(from).is_some()
        {
            return Ok(Some(from.clone()));
        }
        let source = match (copied, &entry.origin) {
            (Some(false), _) => None,
            (Some(true), Some(origin)) if !bare => {
                let elsewhere = || self.by_handle(removed).get(origin);
                // Handles of a mirror change when its kernel forgets a file: then what is at its place is the best guess.
                let guess = || own().filter(|path| !self.identity(path).is_some_and(|(_, several)| several));
                own_same().or_else(elsewhere).or_else(guess)
            }
            _ => own(),
        };
        match source {
            None if *bare => Err(DeltaError::BadNote { path: entry.path.clone() }),
            source => Ok(source.cloned()),
        }
    }

    /// Files that are gone, or in whose place something is, by handle.
    fn by_handle(&self, removed: &BTreeSet<TreePath>) -> &HashMap<Handle, TreePath> {
        self.by_handle.get_or_init(|| {
            let there = (0..self.entries.len()).filter_map(|index| self.file_before(index));
            let gone = removed.iter().filter(|path| self.identity(path).is_some());
            there.chain(gone).filter_map(|path| Some((self.lens.handle_of(path)?, path.clone()))).collect()
        })
    }

    /// Files of the lower directory in whose place something else is, with its entry.
    fn displaced(&self, groups: &[Group]) -> HashMap<TreePath, usize> {
        let kept: BTreeSet<usize> = groups.iter().flat_map(|group| group.kept.iter().copied()).collect();
        let others = (0..self.entries.len()).filter(|index| !kept.contains(index));
        others.filter_map(|index| Some((self.file_before(index)?.clone(), index))).collect()
    }

    /// The names that files of several names have lost.
    fn free_names(
        &self,
        groups: &[Group],
        removed: &BTreeSet<TreePath>,
        displaced: &HashMap<TreePath, usize>,
    ) -> HashMap<Identity, BTreeSet<TreePath>> {
        let mut free: HashMap<Identity, BTreeSet<TreePath>> = HashMap::new();
        let sources = groups.iter().filter_map(|group| group.source.as_ref());
        if !sources.filter_map(|source| self.identity(source)).any(|(_, several)| several) {
            return free;
        }
        for path in removed.iter().chain(displaced.keys()) {
            if let Some((identity, true)) = self.identity(path) {
                free.entry(identity).or_default().insert(path.clone());
            }
        }
        free
    }

    fn give_roles(
        &self,
        group: &Group,
        removed: &mut BTreeSet<TreePath>,
        displaced: &mut HashMap<TreePath, usize>,
        free: &mut HashMap<Identity, BTreeSet<TreePath>>,
        roles: &mut HashMap<usize, Role>,
    ) -> Result<(), DeltaError> {
        let mut lost: Vec<TreePath> = Vec::new();
        if let Some(source) = &group.source {
            let several = self.identity(source).filter(|(_, several)| *several);
            match several.and_then(|(identity, _)| free.remove(&identity)) {
                Some(names) => lost.extend(names),
                None if removed.contains(source) || displaced.contains_key(source) => lost.push(source.clone()),
                None => {}
            }
        }
        let mut lost = lost.into_iter();
        let is_old = group.source.is_some();
        let mut first: Option<TreePath> = None;
        for index in group.kept.iter().chain(group.names.iter().filter(|index| !group.kept.contains(index))) {
            let entry = &self.entries[*index];
            let speaks = first.is_none();
            let role = match first.clone() {
                _ if group.kept.contains(index) => {
                    Role { before: self.file_before(*index).cloned(), name: NameChange::None, speaks, is_old }
                }
                first => match (lost.next(), first) {
                    (Some(from), _) => {
                        removed.remove(&from);
                        displaced.remove(&from);
                        Role { before: Some(from.clone()), name: NameChange::Renamed(from), speaks, is_old }
                    }
                    (None, Some(first)) => Role { before: None, name: NameChange::Link(first), speaks: false, is_old },
                    (None, None) => self.role_of_new(entry)?,
                },
            };
            first.get_or_insert_with(|| entry.path.clone());
            roles.insert(*index, role);
        }
        Ok(())
    }

    /// The role of a file's only name: it must have its bytes.
    fn role_of_new(&self, entry: &Entry) -> Result<Role, DeltaError> {
        match &entry.kind {
            Kind::File(Copied { bare: true, .. }) => Err(DeltaError::BadNote { path: entry.path.clone() }),
            _ => Ok(Role { before: None, name: NameChange::None, speaks: true, is_old: false }),
        }
    }

    /// A path of the file that the overlay's index has under `handle`, among those that are `lost`. `None`: none is of that file.
    pub(crate) fn lost_name(&self, handle: &Handle, lost: &BTreeSet<TreePath>) -> Option<TreePath> {
        let is_it = |path: &&TreePath| {
            self.identity(path).is_some_and(|(_, several)| several)
                && self.lens.handle_of(path).as_ref() == Some(handle)
        };
        lost.iter().find(is_it).cloned()
    }

    /// Whether the file at `path` has names that are not among those that are `lost`.
    pub(crate) fn has_others(&self, path: &TreePath, lost: &BTreeSet<TreePath>) -> bool {
        let names = self.lens.binding_of(path).and_then(|binding| Some(binding.attr()?.nlink as usize));
        names.is_some_and(|names| lost.iter().filter(|other| self.is_same(other, path)).count() < names)
    }
}
