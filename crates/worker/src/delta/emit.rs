//! From what is in the upper directory to changes.

use super::compare::{
    COMPARED_BYTES_MAX, attr_of, same_attributes, same_beginning, same_content, with_old_xattrs, xattrs_before,
};
use super::upper::{Entry, Kind, Walked, is_absence};
use super::{Collected, Cut, DeltaError, Lens, Options, SkipReason, Skipped};
use base::delta::FileChange;
use base::{Action, Attr, Base, Binding, Change, Content, Delta, TreePath};
use rustix::fs::{Dir, FileType};
use std::collections::{HashMap, HashSet};
use std::io;

/// Makes changes of entries.
pub(crate) struct Emitter<'a> {
    lens: &'a dyn Lens,
    options: &'a Options,
    cut: Cut<'a>,
    /// Directories of the lower directory that are renamed.
    renamed: HashSet<TreePath>,
    renames: Vec<Change>,
    /// What is gone from the lower directory, with all beneath.
    gone: Vec<TreePath>,
    rest: Vec<Change>,
    links: Vec<Change>,
    skipped: Vec<Skipped>,
}

impl<'a> Emitter<'a> {
    pub(crate) fn new(lens: &'a dyn Lens, options: &'a Options, cut: Cut<'a>) -> Self {
        Self {
            lens,
            options,
            cut,
            renamed: HashSet::new(),
            renames: Vec::new(),
            gone: Vec::new(),
            rest: Vec::new(),
            links: Vec::new(),
            skipped: Vec::new(),
        }
    }

    /// All changes, in a delta's order.
    pub(crate) fn emit(mut self, walked: Walked) -> Result<Collected, DeltaError> {
        let firsts = first_names(&walked.entries);
        for entry in &walked.entries {
            if let Kind::Renamed { from } = &entry.kind {
                self.renamed.insert(from.clone());
            }
        }
        self.gone = walked.whiteouts;
        for (index, entry) in walked.entries.iter().enumerate() {
            match firsts.get(&index).map(|first| &walked.entries[*first]) {
                Some(first) => self.second_name(entry, first)?,
                None => self.entry(entry)?,
            }
        }
        let removals = self.removals()?;
        let mut changes = self.renames;
        changes.extend(removals);
        changes.append(&mut self.rest);
        changes.append(&mut self.links);
        Ok(Collected { delta: Delta { changes }, skipped: self.skipped })
    }

    /// The number of what the task saw at a path of the lower directory.
    fn base(&self, lower: Option<&TreePath>) -> Result<Base, DeltaError> {
        match lower {
            Some(lower) => self.lens.base_of(lower).ok_or_else(|| DeltaError::NoBase { path: lower.clone() }),
            None => Ok(Base::Absent),
        }
    }

    fn entry(&mut self, entry: &Entry) -> Result<(), DeltaError> {
        if let (false, Some((lower, Binding::Directory { .. }))) = (is_directory(entry), &entry.lower) {
            self.gone.push(lower.clone());
        }
        match &entry.kind {
            Kind::Directory { opaque } => self.directory(entry, *opaque),
            Kind::Renamed { from } => self.renamed_directory(entry, from),
            Kind::File { copied } => self.file(entry, *copied),
            Kind::Symlink { target } => self.symlink(entry, target),
            Kind::Fifo => {
                let attr = self.attr(entry);
                self.push(entry, Action::Fifo { attr })
            }
            Kind::Socket => self.skip(entry, SkipReason::Socket),
            Kind::Device => self.skip(entry, SkipReason::Device),
        }
    }

    /// What cannot travel. If it is in the place of something, that is gone all the same.
    fn skip(&mut self, entry: &Entry, why: SkipReason) -> Result<(), DeltaError> {
        self.skipped.push(Skipped { path: entry.path.clone(), why });
        if let Some((lower, binding)) = &entry.lower
            && !matches!(binding, Binding::Special)
        {
            self.gone.push(lower.clone());
        }
        Ok(())
    }

    fn attr(&self, entry: &Entry) -> Attr {
        attr_of(&entry.stat, entry.lower.as_ref().and_then(|(_, binding)| binding.attr()), self.options)
    }

    fn push(&mut self, entry: &Entry, action: Action) -> Result<(), DeltaError> {
        let base = self.base(entry.lower.as_ref().map(|(lower, _)| lower))?;
        self.rest.push(Change { path: entry.path.clone(), base, action });
        Ok(())
    }

    fn directory(&mut self, entry: &Entry, opaque: bool) -> Result<(), DeltaError> {
        let before = match &entry.lower {
            Some((lower, binding @ Binding::Directory { .. })) => Some((lower, binding)),
            _ => None,
        };
        let replaces = opaque && before.is_some_and(|(lower, _)| !self.renamed.contains(lower));
        if let Some((lower, _)) = before
            && opaque
        {
            self.gone.push(lower.clone());
        }
        let binding = before.map(|(_, binding)| binding).filter(|_| !opaque);
        let attr = attr_of(&entry.stat, binding.and_then(Binding::attr), self.options);
        let Some(xattrs) = self.directory_attributes(entry, &attr, binding) else { return Ok(()) };
        self.push(entry, Action::Directory { attr, xattrs, replaces })
    }

    /// The extended attributes of a directory; `None` if neither they nor others changed.
    fn directory_attributes(&self, entry: &Entry, attr: &Attr, before: Option<&Binding>) -> Option<Vec<base::Xattr>> {
        let old = before.map(xattrs_before).unwrap_or_default();
        let xattrs = match self.options.xattrs_mirrored {
            true => entry.xattrs.clone(),
            false => with_old_xattrs(&entry.xattrs, old),
        };
        let same = before.and_then(Binding::attr).is_some_and(|before| same_attributes(attr, before, &xattrs, old));
        (!same).then_some(xattrs)
    }

    fn renamed_directory(&mut self, entry: &Entry, from: &TreePath) -> Result<(), DeltaError> {
        if let Some((lower, _)) = &entry.lower {
            self.gone.push(lower.clone());
        }
        let base = self.base(Some(from))?;
        let action = Action::RenameDirectory { from: from.clone() };
        self.renames.push(Change { path: entry.path.clone(), base, action });
        let binding = self.lens.binding_of(from);
        let attr = attr_of(&entry.stat, binding.as_ref().and_then(Binding::attr), self.options);
        if let Some(xattrs) = self.directory_attributes(entry, &attr, binding.as_ref()) {
            let action = Action::Directory { attr, xattrs, replaces: false };
            self.rest.push(Change { path: entry.path.clone(), base, action });
        }
        Ok(())
    }

    fn symlink(&mut self, entry: &Entry, target: &[u8]) -> Result<(), DeltaError> {
        let attr = self.attr(entry);
        if let Some((_, Binding::Symlink { attr: before, target: old })) = &entry.lower
            && old == target
            && (attr.uid, attr.gid, attr.mtime) == (before.uid, before.gid, before.mtime)
        {
            return Ok(());
        }
        self.push(entry, Action::Symlink { attr, target: target.to_vec() })
    }

    fn file(&mut self, entry: &Entry, copied: Option<bool>) -> Result<(), DeltaError> {
        let io = |source| DeltaError::Io { what: "read", path: entry.path.clone(), source };
        let attr = self.attr(entry);
        let file = entry.open().map_err(io)?;
        let content = if attr.size == 0 { Content::Empty } else { (self.cut)(&file, attr.size).map_err(io)? };
        let Some((lower, Binding::File { attr: before, content: old, xattrs: old_xattrs })) = &entry.lower else {
            let (xattrs, change) = (entry.xattrs.clone(), FileChange::Written);
            return self.push(entry, Action::File { attr, xattrs, content, change });
        };
        let xattrs = match self.options.xattrs_mirrored || copied == Some(false) {
            true => entry.xattrs.clone(),
            false => with_old_xattrs(&entry.xattrs, old_xattrs),
        };
        let same = self.is_same(&file, &attr, &content, lower, before, old).map_err(io)?;
        if same && same_attributes(&attr, before, &xattrs, old_xattrs) {
            return Ok(());
        }
        if copied == Some(false) && before.nlink > 1 {
            // Not the file of several names that was here: that one keeps its other names, and its bytes.
            self.gone.push(lower.clone());
            return self.push(entry, Action::File { attr, xattrs, content, change: FileChange::Written });
        }
        let change = match same {
            true => FileChange::Attributes,
            false if self.has_grown(&file, &attr, lower, before).map_err(io)? => {
                FileChange::Appended { from: before.size }
            }
            false => FileChange::Written,
        };
        self.push(entry, Action::File { attr, xattrs, content, change })
    }

    fn is_same(
        &self,
        file: &std::fs::File,
        attr: &Attr,
        content: &Content,
        lower: &TreePath,
        before: &Attr,
        old: &Content,
    ) -> io::Result<bool> {
        if attr.size != before.size {
            return Ok(false);
        }
        match same_content(content, old) {
            Some(same) => Ok(same),
            None if attr.size > COMPARED_BYTES_MAX => Ok(false),
            None => self.same_as_base(file, lower, attr.size),
        }
    }

    /// Whether bytes were added to the end, and nothing else.
    fn has_grown(&self, file: &std::fs::File, attr: &Attr, lower: &TreePath, before: &Attr) -> io::Result<bool> {
        let (old, new) = (before.size, attr.size);
        Ok(old > 0 && new > old && old <= COMPARED_BYTES_MAX && self.same_as_base(file, lower, old)?)
    }

    fn same_as_base(&self, file: &std::fs::File, lower: &TreePath, len: u64) -> io::Result<bool> {
        match self.lens.open_base(lower) {
            Ok(base) => same_beginning(file, &base, len),
            // A file that cannot be read any more is not known to be the same.
            Err(_) => Ok(false),
        }
    }

    /// A further name of a file that has `first` as well.
    fn second_name(&mut self, entry: &Entry, first: &Entry) -> Result<(), DeltaError> {
        let inode = |entry: &Entry| match (&entry.lower, &entry.kind) {
            (_, Kind::File { copied: Some(false) }) => None,
            (Some((_, Binding::File { attr, .. })), _) => Some((attr.dev, attr.ino)),
            _ => None,
        };
        if inode(entry).is_some() && inode(entry) == inode(first) {
            return Ok(());
        }
        if let Some((lower, Binding::Directory { .. })) = &entry.lower {
            self.gone.push(lower.clone());
        }
        let base = self.base(entry.lower.as_ref().map(|(lower, _)| lower))?;
        self.links.push(Change { path: entry.path.clone(), base, action: Action::HardLink { to: first.path.clone() } });
        Ok(())
    }

    /// A removal for each path of the lower directory that is gone, children before parents.
    fn removals(&mut self) -> Result<Vec<Change>, DeltaError> {
        let mut tops = std::mem::take(&mut self.gone);
        tops.sort();
        tops.dedup();
        let mut all: Vec<TreePath> = Vec::new();
        for top in tops {
            if self.renamed.contains(&top) || all.last().is_some_and(|last| *last == top) {
                continue;
            }
            self.add_removals(top, &mut all)?;
        }
        // Children before parents; and a whiteout beneath a directory that is gone was counted twice.
        all.sort_by(|a, b| b.as_bytes().cmp(a.as_bytes()));
        all.dedup();
        let mut changes = Vec::with_capacity(all.len());
        for path in all {
            match self.base(Some(&path))? {
                Base::Absent => {}
                base => changes.push(Change { path, base, action: Action::Remove }),
            }
        }
        Ok(changes)
    }

    fn add_removals(&self, top: TreePath, all: &mut Vec<TreePath>) -> Result<(), DeltaError> {
        let known_directory = matches!(self.lens.binding_of(&top), Some(Binding::Directory { .. }));
        let mut open = if known_directory { vec![top.clone()] } else { vec![] };
        all.push(top);
        while let Some(directory) = open.pop() {
            for (name, is_directory) in self.list_base(&directory)? {
                let path = directory.join(&name);
                if self.renamed.contains(&path) {
                    continue;
                }
                if is_directory {
                    open.push(path.clone());
                }
                all.push(path);
                if all.len() > self.options.entries_max {
                    return Err(DeltaError::TooMany { max: self.options.entries_max });
                }
            }
        }
        Ok(())
    }

    /// The names in a directory of the lower directory, and which of them are directories.
    fn list_base(&self, path: &TreePath) -> Result<Vec<(Vec<u8>, bool)>, DeltaError> {
        let io = |source| DeltaError::Io { what: "list what was in", path: path.clone(), source };
        let open = match self.lens.open_base(path) {
            Ok(open) => open,
            // What the task could not list either it cannot have emptied: the client finds its entries, if any.
            Err(error) if is_absence(&error) || error.kind() == io::ErrorKind::PermissionDenied => {
                return Ok(Vec::new());
            }
            Err(error) => return Err(io(error)),
        };
        let mut names = Vec::new();
        for entry in Dir::read_from(&open).map_err(|error| io(error.into()))? {
            let entry = entry.map_err(|error| io(error.into()))?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let is_directory = match entry.file_type() {
                FileType::Unknown => {
                    matches!(self.lens.binding_of(&path.join(name)), Some(Binding::Directory { .. }))
                }
                kind => kind == FileType::Directory,
            };
            names.push((name.to_vec(), is_directory));
        }
        Ok(names)
    }
}

fn is_directory(entry: &Entry) -> bool {
    matches!(entry.kind, Kind::Directory { .. } | Kind::Renamed { .. })
}

/// For each entry that is a further name of a file: the entry that is its first. The first is one that the client has
/// already, if there is such.
fn first_names(entries: &[Entry]) -> HashMap<usize, usize> {
    let mut groups: HashMap<(u64, u64), Vec<usize>> = HashMap::new();
    for (index, entry) in entries.iter().enumerate() {
        if entry.stat.st_nlink > 1 && matches!(entry.kind, Kind::File { .. } | Kind::Symlink { .. } | Kind::Fifo) {
            groups.entry((entry.stat.st_dev, entry.stat.st_ino)).or_default().push(index);
        }
    }
    let mut firsts = HashMap::new();
    for names in groups.values().filter(|names| names.len() > 1) {
        let kept = |index: &&usize| match &entries[**index] {
            Entry { kind: Kind::File { copied }, lower: Some((_, Binding::File { .. })), .. } => *copied != Some(false),
            _ => false,
        };
        let first = *names.iter().find(kept).unwrap_or(&names[0]);
        firsts.extend(names.iter().filter(|index| **index != first).map(|index| (*index, first)));
    }
    firsts
}
