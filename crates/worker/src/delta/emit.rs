//! From what is in the upper directory to changes.

use super::compare::{
    COMPARED_BYTES_MAX, attr_of, attr_of_new, same_attributes, same_beginning, same_content, with_old_xattrs,
    xattrs_before,
};
use super::left::{self, Moved};
use super::names::{NameChange, Names, Role};
use super::upper::{Copied, Entry, Kind, Walked, walk_index};
use super::{Collected, Cut, DeltaError, Lens, Options, SkipReason, Skipped};
use base::delta::FileChange;
use base::{Action, Attr, Base, Binding, Change, Content, Delta, Time, TreePath};
use std::collections::{BTreeSet, HashSet};
use std::io;

/// Makes changes of entries.
pub(crate) struct Emitter<'a> {
    lens: &'a dyn Lens,
    options: &'a Options,
    cut: Cut<'a>,
    last_writes: Vec<Change>,
    renames: Vec<Change>,
    rest: Vec<Change>,
    links: Vec<Change>,
    skipped: Vec<Skipped>,
}

/// What is no longer where it was.
struct Away {
    moved: Moved,
    removed: BTreeSet<TreePath>,
    /// Files whose name became another.
    renamed: HashSet<TreePath>,
}

impl Away {
    /// Whether what was at `lower` is removed or renamed by a change of its own.
    fn has(&self, lower: &TreePath) -> bool {
        self.renamed.contains(lower) || self.removed.contains(lower)
    }
}

impl<'a> Emitter<'a> {
    pub(crate) fn new(lens: &'a dyn Lens, options: &'a Options, cut: Cut<'a>) -> Self {
        let (last_writes, renames, rest, links, skipped) = Default::default();
        Self { lens, options, cut, last_writes, renames, rest, links, skipped }
    }

    /// All changes, in a delta's order.
    pub(crate) fn emit(mut self, walked: &Walked) -> Result<Collected, DeltaError> {
        let entries = &walked.entries;
        let moved = left::moved(entries);
        let mut removed = left::removed(walked, &moved, self.lens, self.options)?;
        let names = Names::new(entries, self.lens);
        let mut roles = names.roles(&mut removed)?;
        let only_indexed = self.only_indexed(&names, entries, &removed)?;
        self.check_several_names(entries, &removed)?;
        // What is in the place of such a file is not that file.
        removed.extend(only_indexed.iter().filter_map(|entry| Some(entry.lower.as_ref()?.0.clone())));
        let renamed = roles.values().filter_map(|role| match &role.name {
            NameChange::Renamed(from) => Some(from.clone()),
            _ => None,
        });
        let away = Away { renamed: renamed.collect(), moved, removed };
        for (index, entry) in entries.iter().enumerate() {
            let role = roles.remove(&index).unwrap_or_default();
            self.entry(entry, &role, &away)?;
        }
        for entry in &only_indexed {
            self.last_write(entry)?;
        }
        let mut changes = self.last_writes;
        changes.append(&mut self.renames);
        // Children before parents.
        for path in away.removed.into_iter().rev() {
            match self.lens.base_of(&path).ok_or_else(|| DeltaError::NoBase { path: path.clone() })? {
                Base::Absent => {}
                base => changes.push(Change { path, base, action: Action::Remove }),
            }
        }
        changes.append(&mut self.rest);
        changes.append(&mut self.links);
        Ok(Collected { delta: Delta { changes }, skipped: self.skipped })
    }

    /// Files that the task may have changed, and then removed under all the names by which it had come to them, with such a name.
    /// They have others, wherever these are.
    fn only_indexed(
        &self,
        names: &Names<'_>,
        entries: &[Entry],
        removed: &BTreeSet<TreePath>,
    ) -> Result<Vec<Entry>, DeltaError> {
        let Some(index) = &self.options.index else { return Ok(Vec::new()) };
        let shown: HashSet<(u64, u64)> = entries.iter().map(|entry| (entry.stat.st_dev, entry.stat.st_ino)).collect();
        let mut lost = removed.clone();
        lost.extend(entries.iter().filter_map(|entry| entry.lower.as_ref().map(|(path, _)| path.clone())));
        let mut found = Vec::new();
        for (handle, mut entry) in walk_index(index, self.lens, self.options)? {
            if shown.contains(&(entry.stat.st_dev, entry.stat.st_ino)) {
                continue;
            }
            let Some(before) = names.lost_name(&handle, &lost) else {
                if self.is_untouched(&entry, &lost) {
                    continue;
                }
                let path = lost.first().cloned().unwrap_or_else(TreePath::root);
                return Err(DeltaError::SecondName { path });
            };
            if !names.has_others(&before, &lost) {
                continue;
            }
            let binding = self.lens.binding_of(&before).ok_or_else(|| DeltaError::NoBase { path: before.clone() })?;
            entry.path = before.clone();
            entry.lower = Some((before, binding));
            found.push(entry);
        }
        Ok(found)
    }

    /// Whether a file, link or pipe of the index, of which it is not known which of the `lost` it is, is as one of these was.
    fn is_untouched(&self, entry: &Entry, lost: &BTreeSet<TreePath>) -> bool {
        let is_like = |path: &TreePath| match (&entry.kind, self.lens.binding_of(path)) {
            (Kind::File(Copied { bare: true, .. }), Some(Binding::File { attr, xattrs, .. })) => {
                let now = attr_of(&entry.stat, Some(&attr), self.options);
                let own = if self.options.xattrs_mirrored { &entry.xattrs } else { &xattrs };
                attr.nlink > 1 && now.size == attr.size && same_attributes(&now, &attr, own, &xattrs)
            }
            (Kind::Symlink { .. }, Some(Binding::Symlink { attr, .. }))
            | (Kind::Socket, Some(Binding::Special { attr })) => {
                attr.nlink > 1 && same_attributes(&self.attr_of_other(entry, &attr), &attr, &[], &[])
            }
            _ => false,
        };
        lost.iter().any(is_like)
    }

    /// An overlay without an index gives each name of a file a copy of its own: what it then shows the task is wrong, and what it
    /// says of the names as well.
    fn check_several_names(&self, entries: &[Entry], removed: &BTreeSet<TreePath>) -> Result<(), DeltaError> {
        if self.options.privileged && self.options.index.as_ref().is_none_or(|index| index.is_dir()) {
            return Ok(());
        }
        let of_several = |binding: Option<Binding>| match binding {
            Some(Binding::Directory { .. }) | None => None,
            Some(binding) => binding.attr().filter(|attr| attr.nlink > 1).map(|attr| (attr.size, attr.mtime)),
        };
        // What was renamed is a copy, and has the time of what is gone.
        let gone: HashSet<(u64, Time)> =
            removed.iter().filter_map(|path| of_several(self.lens.binding_of(path))).collect();
        let is_one = |entry: &&Entry| {
            let Entry { kind, stat, lower, .. } = entry;
            let now = (stat.st_size as u64, Time::from_parts(stat.st_mtime, stat.st_mtime_nsec as i64));
            let was = lower.as_ref().and_then(|(_, binding)| of_several(Some(binding.clone())));
            !matches!(kind, Kind::Directory { .. } | Kind::Renamed { .. })
                && (gone.contains(&now) || was.is_some() && matches!(kind, Kind::File(_)))
        };
        match entries.iter().find(is_one) {
            Some(entry) => Err(DeltaError::SecondName { path: entry.path.clone() }),
            None => Ok(()),
        }
    }

    /// The number of what the task saw at a path of the lower directory.
    fn base(&self, lower: Option<&TreePath>) -> Result<Base, DeltaError> {
        match lower {
            Some(lower) => self.lens.base_of(lower).ok_or_else(|| DeltaError::NoBase { path: lower.clone() }),
            None => Ok(Base::Absent),
        }
    }

    fn entry(&mut self, entry: &Entry, role: &Role, away: &Away) -> Result<(), DeltaError> {
        match &entry.kind {
            Kind::Socket if !role.is_old => return self.skip(entry, SkipReason::Socket),
            Kind::Device if !role.is_old => return self.skip(entry, SkipReason::Device),
            _ => {}
        }
        match &role.name {
            NameChange::None => {}
            NameChange::Renamed(from) => {
                let action = Action::Rename { from: from.clone() };
                self.renames.push(Change { path: entry.path.clone(), base: self.base(Some(from))?, action });
            }
            NameChange::Link(to) => {
                let base = self.base(entry.lower.as_ref().map(|(lower, _)| lower))?;
                let action = Action::HardLink { to: to.clone() };
                self.links.push(Change { path: entry.path.clone(), base, action });
            }
        }
        match &entry.kind {
            Kind::Directory { opaque } => self.directory(entry, *opaque, away),
            Kind::Renamed { from } => self.renamed_directory(entry, from),
            _ if !role.speaks => Ok(()),
            Kind::File(copied) => match &role.before {
                Some(before) => self.old_file(entry, copied, before),
                None => self.new_file(entry, copied, away),
            },
            Kind::Symlink { .. } | Kind::Fifo | Kind::Socket | Kind::Device if role.is_old => {
                self.old_other(entry, role.before.as_ref())
            }
            Kind::Symlink { target } => self.symlink(entry, target, away),
            Kind::Socket | Kind::Device => Ok(()),
            Kind::Fifo => {
                let attr = self.attr(entry);
                self.push(entry, Action::Fifo { attr })
            }
        }
    }

    fn skip(&mut self, entry: &Entry, why: SkipReason) -> Result<(), DeltaError> {
        self.skipped.push(Skipped { path: entry.path.clone(), why });
        Ok(())
    }

    /// The attributes of what is made anew at the client.
    fn attr(&self, entry: &Entry) -> Attr {
        attr_of_new(&entry.stat, entry.lower.as_ref().and_then(|(_, binding)| binding.attr()), self.options)
    }

    fn push(&mut self, entry: &Entry, action: Action) -> Result<(), DeltaError> {
        let base = self.base(entry.lower.as_ref().map(|(lower, _)| lower))?;
        self.rest.push(Change { path: entry.path.clone(), base, action });
        Ok(())
    }

    fn directory(&mut self, entry: &Entry, opaque: bool, away: &Away) -> Result<(), DeltaError> {
        let before = match &entry.lower {
            Some((lower, binding @ Binding::Directory { .. })) => Some((lower, binding)),
            _ => None,
        };
        let replaces = opaque && before.is_some_and(|(lower, _)| !away.moved.contains_key(lower));
        let binding = before.map(|(_, binding)| binding).filter(|_| !opaque);
        let mut attr = attr_of(&entry.stat, binding.and_then(Binding::attr), self.options);
        if entry.path == self.options.at {
            // The root of an overlay is of its upper layer: there reading is noted, too.
            attr.accessed.0 =
                attr.accessed.0.filter(|time| *time < self.options.launch || *time > self.options.task_end);
        }
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
        let base = self.base(Some(from))?;
        let action = Action::Rename { from: from.clone() };
        self.renames.push(Change { path: entry.path.clone(), base, action });
        let binding = self.lens.binding_of(from);
        let attr = attr_of(&entry.stat, binding.as_ref().and_then(Binding::attr), self.options);
        if let Some(xattrs) = self.directory_attributes(entry, &attr, binding.as_ref()) {
            let action = Action::Directory { attr, xattrs, replaces: false };
            self.rest.push(Change { path: entry.path.clone(), base, action });
        }
        Ok(())
    }

    /// A link that was not there before. One like it may have been at its place: if that stays, nothing changed.
    fn symlink(&mut self, entry: &Entry, target: &[u8], away: &Away) -> Result<(), DeltaError> {
        let attr = self.attr(entry);
        if let Some((lower, Binding::Symlink { attr: before, target: old })) = &entry.lower
            && !away.has(lower)
            && old == target
            && (attr.uid, attr.gid, attr.mtime) == (before.uid, before.gid, before.mtime)
            && attr.shown_access() == before.shown_access()
        {
            return Ok(());
        }
        self.push(entry, Action::Symlink { attr, target: target.to_vec() })
    }

    /// A link or pipe that was at `before`: of it, attributes may have changed.
    fn old_other(&mut self, entry: &Entry, before: Option<&TreePath>) -> Result<(), DeltaError> {
        let Some(before) = before else { return Ok(()) };
        let changed = self.changed_other(entry, before)?;
        self.rest.extend(changed);
        Ok(())
    }

    /// What changed of a link or pipe that was at `before`, if anything did.
    fn changed_other(&self, entry: &Entry, before: &TreePath) -> Result<Option<Change>, DeltaError> {
        let binding = self.lens.binding_of(before).ok_or_else(|| DeltaError::NoBase { path: before.clone() })?;
        let Some(old) = binding.attr() else { return Err(DeltaError::NoBase { path: before.clone() }) };
        let attr = self.attr_of_other(entry, old);
        if same_attributes(&attr, old, &[], &[]) {
            return Ok(None);
        }
        let (xattrs, content, change) = (Vec::new(), Content::Empty, FileChange::Attributes);
        let (base, action) = (self.base(Some(before))?, Action::File { attr, xattrs, content, change });
        Ok(Some(Change { path: entry.path.clone(), base, action }))
    }

    /// The attributes of a link or pipe. Links have no mode of their own.
    fn attr_of_other(&self, entry: &Entry, old: &Attr) -> Attr {
        let attr = attr_of(&entry.stat, Some(old), self.options);
        Attr { mode: if matches!(entry.kind, Kind::Symlink { .. }) { old.mode } else { attr.mode }, ..attr }
    }

    /// A file that was not there before. What was at its place, if it had no other name, may be much like it.
    fn new_file(&mut self, entry: &Entry, copied: &Copied, away: &Away) -> Result<(), DeltaError> {
        let there = match &entry.lower {
            Some((lower, Binding::File { .. })) => Some(lower),
            _ => None,
        };
        match there.filter(|lower| !away.has(lower)) {
            Some(lower) => self.old_file(entry, copied, lower),
            None => {
                let attr = self.attr(entry);
                let (_, content) = self.content(entry, &attr)?;
                let xattrs = entry.xattrs.clone();
                let change = match entry.lower.is_none() && self.options.added_to.contains(&entry.path) {
                    true => FileChange::Appended { from: 0 },
                    false => FileChange::Written,
                };
                self.push(entry, Action::File { attr, xattrs, content, change })
            }
        }
    }

    fn content(&mut self, entry: &Entry, attr: &Attr) -> Result<(std::fs::File, Content), DeltaError> {
        let io = |source| DeltaError::Io { what: "read", path: entry.path.clone(), source };
        let file = entry.open().map_err(io)?;
        let content = if attr.size == 0 { Content::Empty } else { (self.cut)(&file, attr.size).map_err(io)? };
        Ok((file, content))
    }

    /// A file that was at `lower`, or took the place of one that was there.
    fn old_file(&mut self, entry: &Entry, copied: &Copied, lower: &TreePath) -> Result<(), DeltaError> {
        let changed = self.changed_file(entry, copied, lower)?;
        self.rest.extend(changed);
        Ok(())
    }

    /// A file, link or pipe that lost all the names by which the task had come to it, and has others.
    fn last_write(&mut self, entry: &Entry) -> Result<(), DeltaError> {
        let Some((lower, _)) = &entry.lower else { return Ok(()) };
        let changed = match &entry.kind {
            Kind::File(copied) => self.changed_file(entry, copied, lower)?,
            _ => self.changed_other(entry, lower)?,
        };
        let Some(changed) = changed else { return Ok(()) };
        let Action::File { attr, xattrs, content, change } = changed.action else { return Ok(()) };
        let change = if change == FileChange::Attributes { change } else { FileChange::Written };
        let action = Action::LastWrite { attr, xattrs, content, change };
        self.last_writes.push(Change { action, ..changed });
        Ok(())
    }

    /// What changed of a file that was at `lower`, if anything did.
    fn changed_file(&mut self, entry: &Entry, copied: &Copied, lower: &TreePath) -> Result<Option<Change>, DeltaError> {
        let Some(Binding::File { attr: before, content: old, xattrs: old_xattrs }) = self.lens.binding_of(lower) else {
            return Err(DeltaError::NoBase { path: lower.clone() });
        };
        let attr = match copied.copied == Some(false) {
            true => attr_of_new(&entry.stat, Some(&before), self.options),
            false => attr_of(&entry.stat, Some(&before), self.options),
        };
        let xattrs = match self.options.xattrs_mirrored || copied.copied == Some(false) {
            true => entry.xattrs.clone(),
            false => with_old_xattrs(&entry.xattrs, &old_xattrs),
        };
        let (content, change) = match copied.bare {
            true => (Content::Empty, FileChange::Attributes),
            // Whoever makes a file where another owner's was may not be able to write to that one.
            false if copied.copied == Some(false) && attr.uid != before.uid => {
                (self.content(entry, &attr)?.1, FileChange::Written)
            }
            false => {
                let (file, content) = self.content(entry, &attr)?;
                self.compared(&file, &attr, content, lower, (&before, &old)).map_err(|source| DeltaError::Io {
                    what: "read",
                    path: entry.path.clone(),
                    source,
                })?
            }
        };
        if change == FileChange::Attributes && same_attributes(&attr, &before, &xattrs, &old_xattrs) {
            return Ok(None);
        }
        let base = self.base(Some(lower))?;
        let action = Action::File { attr, xattrs, content, change };
        Ok(Some(Change { path: entry.path.clone(), base, action }))
    }

    /// How the bytes of `file` relate to those that were at `lower`.
    fn compared(
        &self,
        file: &std::fs::File,
        attr: &Attr,
        content: Content,
        lower: &TreePath,
        (before, old): (&Attr, &Content),
    ) -> io::Result<(Content, FileChange)> {
        if self.is_same(file, attr, &content, lower, before, old)? {
            return Ok((Content::Empty, FileChange::Attributes));
        }
        let grown = self.has_grown(file, attr, lower, before)?;
        Ok((content, if grown { FileChange::Appended { from: before.size } } else { FileChange::Written }))
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
        // What is written to an empty file is added to it: so many may write to one log from its first line on.
        Ok(new > old && (old == 0 || old <= COMPARED_BYTES_MAX && self.same_as_base(file, lower, old)?))
    }

    fn same_as_base(&self, file: &std::fs::File, lower: &TreePath, len: u64) -> io::Result<bool> {
        match self.lens.open_base(lower) {
            Ok(base) => same_beginning(file, &base, len),
            // A file that cannot be read any more is not known to be the same.
            Err(_) => Ok(false),
        }
    }
}
