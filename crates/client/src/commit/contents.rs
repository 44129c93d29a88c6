//! Planning files: written, appended to, or given other attributes.

use super::apply::io_error;
use super::check::{Checked, Planner, Verdict, changed_or_unknown, kept_mode, meta, meta_of};
use super::error::ConflictKind;
use super::plan::Step;
use super::rights;
use super::stage::Slot;
use super::stamp::{Seen, Stamp};
use super::tree::{self, Meta, Node};
use super::{NoteKind, closed, files};
use crate::snapshot::is_open_to_write;
use base::delta::FileChange;
use base::{Action, Attr, Base, Content, TreePath, Xattr};
use rustix::fs::OFlags;

/// An error like the kernel's if the file at `path` is `fixed`, so that it is known before anything is changed.
pub(super) fn refuse_fixed(what: &'static str, path: &TreePath, fixed: bool) -> Checked<()> {
    match fixed {
        true => Err(io_error(what, path, std::io::Error::from_raw_os_error(rustix::io::Errno::PERM.raw_os_error()))),
        false => Ok(()),
    }
}

impl Planner<'_, '_> {
    pub(super) fn plan_written(
        &mut self,
        index: usize,
        path: &TreePath,
        attr: &Attr,
        xattrs: &[Xattr],
        verdict: Verdict,
    ) -> Checked<()> {
        let Some(slot) = self.staged.get(index) else { return Ok(()) };
        let node = match verdict {
            Verdict::Fresh => return self.place_new(path, slot),
            Verdict::Unchanged(node) => node,
            Verdict::Gone => {
                self.conflict(path, ConflictKind::Gone);
                return Ok(());
            }
            Verdict::BothMade(node) | Verdict::Changed(node, _) if self.is_identical(path, slot, &node)? => {
                self.note(path, NoteKind::Identical);
                return self.give_attributes(path, &node, attr, xattrs);
            }
            Verdict::BothMade(node) => {
                self.note(path, NoteKind::LastWins);
                node
            }
            Verdict::Changed(_, seen) => {
                self.conflict(path, changed_or_unknown(seen));
                return Ok(());
            }
        };
        self.keep_hidden_attributes(path, slot, &node, xattrs)?;
        if attr.accessed.0.is_none() {
            self.keep_access_time(path, slot, &node)?;
        }
        if self.copies.contains_key(path) {
            return self.place_instead(path, slot);
        }
        if node.is_file() && self.must_stay(path, slot, &node, attr)? {
            refuse_fixed("write", path, node.immutable || node.append_only || self.shows_elsewhere(&node))?;
            return self.overwrite(path, slot, &node, attr, xattrs);
        }
        if self.moved_files.contains(path) {
            return self.place_instead(path, slot);
        }
        self.place_over(path, slot, &node)
    }

    /// Gives what is in `slot` the time of the last access that `node` has, which it is to replace: writing does not move it.
    fn keep_access_time(&mut self, path: &TreePath, slot: Slot, node: &Node) -> Checked<()> {
        let held = self.stages.hold(slot);
        let given = held.and_then(|held| tree::set_atime(&held, node.atime));
        given.map_err(|source| io_error("stage", path, source))
    }

    /// Gives what is in `slot` the attributes of the file which it is to replace, where the task was not shown their values.
    fn keep_hidden_attributes(&mut self, path: &TreePath, slot: Slot, node: &Node, xattrs: &[Xattr]) -> Checked<()> {
        if !node.is_file() || !xattrs.iter().any(Xattr::is_kept_back) {
            return Ok(());
        }
        let io = |source| io_error("keep the attributes of", path, source);
        let origin = self.origin(path).unwrap_or_else(|| path.clone());
        let present =
            self.tree.hold(&origin).and_then(|held| closed::all_xattrs(self.tree, &held, node)).map_err(io)?;
        let all = closed::with_kept_back(xattrs, &present);
        let staged = self.stages.hold(slot).map_err(io)?;
        let node = tree::node_of(&staged).map_err(io)?;
        tree::set_meta(&staged, &meta_of(&node, Some(all))).map_err(io)
    }

    /// Places a new file where another one was to be moved, which then only leaves its place.
    fn place_instead(&mut self, path: &TreePath, slot: Slot) -> Checked<()> {
        let new = self.staged_ino(path, slot)?;
        self.placed.insert(path.clone(), slot);
        let staged = slot;
        let planned = self.place.iter_mut().find(|step| step.path() == path);
        if let Some(Step::Place { slot, ino, moved, .. }) = planned {
            (*slot, *ino, *moved) = (staged, new, false);
        }
        Ok(())
    }

    /// Whether the file at `path` can only be written in place: it has other names, is a mount, cannot be renamed, a new one could not
    /// have its owner and group, or others who have it open may wait for the lock that the task has on it, or write to it: what they write
    /// afterwards must not go to a file that is gone.
    fn must_stay(&mut self, path: &TreePath, slot: Slot, node: &Node, attr: &Attr) -> Checked<bool> {
        let parent = self.parent_of(path)?;
        let foreign = parent.sticky && !rights::owns(node);
        let touched = path.parent().is_some_and(|parent| self.own_directories.contains(&parent));
        let replaceable = parent.writable && (parent.owned || touched) && !parent.append_only;
        let held = self.tree.hold(&self.origin(path).unwrap_or_else(|| path.clone()));
        let is_locked = self.evidence.is_locked(path);
        if held.is_ok_and(|held| (is_locked && tree::is_writable_file(&held)) || tree::has_access_list(held)) {
            return Ok(true);
        }
        let there = self.tree.open_file(&self.origin(path).unwrap_or_else(|| path.clone()), OFlags::RDONLY);
        if there.is_ok_and(is_open_to_write) {
            return Ok(true);
        }
        let owned = rights::may_own(attr, self.stages.group(slot.folder));
        let has_names = node.nlink > 1 && !self.shows_elsewhere(node);
        Ok(has_names || node.mount_root || node.append_only || foreign || !replaceable || !owned)
    }

    /// Whether what is written to this file would show at names at which this commit may write nothing.
    fn shows_elsewhere(&self, node: &Node) -> bool {
        node.is_file() && node.nlink > 1 && !self.evidence.may_show_at_all((node.dev, node.ino), node.nlink)
    }

    fn is_identical(&mut self, path: &TreePath, slot: Slot, node: &Node) -> Checked<bool> {
        if !node.is_file() {
            return Ok(false);
        }
        let staged = self.stages.open(slot).map_err(|source| io_error("read", path, source))?;
        let origin = self.origin(path).unwrap_or_else(|| path.clone());
        // What cannot be read here is not known to be identical.
        let Ok(there) = self.tree.open_file(&origin, OFlags::RDONLY) else { return Ok(false) };
        files::same_bytes(&staged, &there.into()).map_err(|source| io_error("compare", path, source))
    }

    pub(super) fn place_new(&mut self, path: &TreePath, slot: Slot) -> Checked<()> {
        self.refuse_handed_down(path)?;
        self.parent_of(path)?;
        let ino = self.staged_ino(path, slot)?;
        self.placed.insert(path.clone(), slot);
        self.place.push(Step::Place { path: path.clone(), slot, ino, over: None, moved: false });
        Ok(())
    }

    pub(super) fn place_over(&mut self, path: &TreePath, slot: Slot, node: &Node) -> Checked<()> {
        if node.mount_root {
            self.conflict(path, ConflictKind::MountPoint);
            return Ok(());
        }
        self.stages.note_leaving(node);
        self.parent_of(path)?;
        let ino = self.staged_ino(path, slot)?;
        self.placed.insert(path.clone(), slot);
        let seen = Seen::of_leaving(node);
        if self.stages.exchanges(slot.folder) {
            self.place.push(Step::Place { path: path.clone(), slot, ino, over: Some(seen), moved: false });
            return Ok(());
        }
        let origin = self.origin(path).unwrap_or_else(|| path.clone());
        self.take_away(&origin, node, None, false)?;
        self.place.push(Step::Place { path: path.clone(), slot, ino, over: None, moved: false });
        Ok(())
    }

    fn staged_ino(&self, path: &TreePath, slot: Slot) -> Checked<u64> {
        let node = self.stages.node(slot).map_err(|source| io_error("stage", path, source))?;
        let missing = || io_error("stage", path, std::io::ErrorKind::NotFound.into());
        node.map(|node| node.ino).ok_or_else(missing)
    }

    fn overwrite(&mut self, path: &TreePath, slot: Slot, node: &Node, attr: &Attr, xattrs: &[Xattr]) -> Checked<()> {
        let origin = self.origin(path).unwrap_or_else(|| path.clone());
        let step = self.overwriting(path, &origin, slot, node, attr, xattrs)?;
        self.write.push(step);
        Ok(())
    }

    /// The step that writes the file that is at `origin` now, and at `path` when that is done.
    fn overwriting(
        &mut self,
        path: &TreePath,
        origin: &TreePath,
        slot: Slot,
        node: &Node,
        attr: &Attr,
        xattrs: &[Xattr],
    ) -> Checked<Step> {
        let io = |source| io_error("keep a copy of", path, source);
        let undo = self.stages.slot(slot.folder);
        let from = closed::open_file(self.tree, origin).map_err(io)?;
        let copy = self.stages.create(undo).map_err(io)?;
        files::copy_content(&from.into(), &copy).map_err(io)?;
        let (old, meta) = self.both_metas(origin, node, attr, xattrs, attr.mode & 0o1777)?;
        Ok(Step::Overwrite { path: path.clone(), slot, undo, seen: Seen::of(node), old, meta })
    }

    /// Plans what is written to files by names that go: while they have these names still.
    pub(super) fn plan_last_writes(&mut self) -> Checked<()> {
        for (index, change) in self.changes.iter().enumerate() {
            let Action::LastWrite { attr, xattrs, change: how, .. } = &change.action else { continue };
            let path = &change.path;
            let is_meant = |node: &Node| node.is_file() || (*how == FileChange::Attributes && !node.is_directory());
            let Some(node) = self.look(path)?.filter(is_meant) else {
                self.conflict(path, ConflictKind::Gone);
                continue;
            };
            let seen = match change.base {
                Base::Bound(seq) => self.evidence.stamp_of(path, seq),
                Base::Absent => None,
            };
            if seen != Some(Stamp::of_node(&node)) {
                self.conflict(path, changed_or_unknown(seen));
                continue;
            }
            refuse_fixed("write", path, node.immutable || node.append_only)?;
            // Its name goes, and who has the others is not to see it.
            if *how != FileChange::Attributes && self.shows_elsewhere(&node) {
                continue;
            }
            let step = match self.staged.get(index) {
                Some(slot) if *how != FileChange::Attributes => {
                    self.overwriting(path, path, slot, &node, attr, xattrs)?
                }
                _ => {
                    let (old, new) = self.both_metas(path, &node, attr, xattrs, kept_mode(attr.mode, node.mode))?;
                    Step::Attributes { path: path.clone(), ino: node.ino, old, new }
                }
            };
            self.last_writes.push(step);
        }
        Ok(())
    }

    fn both_metas(
        &self,
        origin: &TreePath,
        node: &Node,
        attr: &Attr,
        xattrs: &[Xattr],
        mode: u32,
    ) -> Checked<(Meta, Meta)> {
        let io = |source| io_error("look at", origin, source);
        let held = self.tree.hold(origin).map_err(io)?;
        let present = closed::all_xattrs(self.tree, &held, node).map_err(io)?;
        let new = closed::with_kept_back(xattrs, &present);
        let old = Meta { atime: attr.accessed.0.map(|_| node.atime), ..meta_of(node, Some(present)) };
        Ok((old, Meta { xattrs: Some(new), ..meta(attr, mode) }))
    }

    fn give_attributes(&mut self, path: &TreePath, node: &Node, attr: &Attr, xattrs: &[Xattr]) -> Checked<()> {
        if let Some(copy) = self.copies.get(path) {
            let io = |source| io_error("change the attributes of", path, source);
            let held = self.stages.hold(*copy).map_err(io)?;
            let present =
                tree::node_of(&held).and_then(|copy| closed::all_xattrs(self.tree, &held, &copy)).map_err(io)?;
            let all = closed::with_kept_back(xattrs, &present);
            let new = Meta { xattrs: Some(all), ..meta(attr, kept_mode(attr.mode, node.mode)) };
            return tree::set_meta(&held, &new).map_err(io);
        }
        let origin = self.origin(path).unwrap_or_else(|| path.clone());
        let (old, new) = self.both_metas(&origin, node, attr, xattrs, kept_mode(attr.mode, node.mode))?;
        if old != new {
            let only_time = Meta { mtime: old.mtime, atime: old.atime, ..new.clone() } == old;
            refuse_fixed("change the attributes of", path, node.immutable || (node.append_only && !only_time))?;
            self.attributes.push(Step::Attributes { path: path.clone(), ino: node.ino, old, new });
        }
        Ok(())
    }

    pub(super) fn plan_attributes(
        &mut self,
        path: &TreePath,
        attr: &Attr,
        xattrs: &[Xattr],
        verdict: Verdict,
    ) -> Checked<()> {
        match verdict {
            Verdict::Unchanged(node) if !node.is_directory() => self.give_attributes(path, &node, attr, xattrs),
            // Others' new attributes only, or this very result: the last wins.
            Verdict::Changed(node, Some(stamp))
                if node.is_file()
                    && (stamp.same_content(&Stamp::of_node(&node))
                        || (node.size, node.mtime) == (attr.size, attr.mtime)) =>
            {
                self.give_attributes(path, &node, attr, xattrs)
            }
            Verdict::Changed(_, seen) => {
                self.conflict(path, changed_or_unknown(seen));
                Ok(())
            }
            Verdict::Unchanged(_) | Verdict::BothMade(_) => {
                self.conflict(path, ConflictKind::Changed);
                Ok(())
            }
            Verdict::Fresh | Verdict::Gone => {
                self.conflict(path, ConflictKind::Gone);
                Ok(())
            }
        }
    }

    /// Of a file that was added to: if what the task saw is not known, its content tells. A file that begins with it still is as
    /// good as one that others added to.
    pub(super) fn seen_by_content(
        &mut self,
        path: &TreePath,
        content: &Content,
        from: u64,
        verdict: Verdict,
    ) -> Checked<Verdict> {
        let node = match verdict {
            Verdict::BothMade(node) if node.is_file() => {
                let stamp = Stamp::of_node(&node);
                return Ok(Verdict::Changed(node, Some(stamp)));
            }
            Verdict::Changed(node, None) if node.is_file() && node.size >= from => node,
            other => return Ok(other),
        };
        let origin = self.origin(path).unwrap_or_else(|| path.clone());
        let Ok(file) = self.tree.open_file(&origin, OFlags::RDONLY) else { return Ok(Verdict::Changed(node, None)) };
        let same = self.contents.begins_as(content, from, &file.into());
        let same = same.map_err(|source| io_error("compare", path, source))?;
        Ok(Verdict::Changed(node, same.then(|| Stamp::of_node(&node))))
    }

    pub(super) fn plan_appended(
        &mut self,
        index: usize,
        path: &TreePath,
        attr: &Attr,
        xattrs: &[Xattr],
        from: u64,
        verdict: Verdict,
    ) -> Checked<()> {
        let Some(slot) = self.staged.get(index) else { return Ok(()) };
        let (node, mtime) = match verdict {
            Verdict::Unchanged(node) if node.is_file() && node.size == from => (node, attr.mtime),
            Verdict::Changed(node, Some(stamp))
                if node.is_file() && (node.dev, node.ino) == (stamp.dev, stamp.ino) && node.size >= from =>
            {
                self.note(path, NoteKind::AppendedAtEnd);
                (node, attr.mtime.max(node.mtime))
            }
            Verdict::Fresh | Verdict::Gone => {
                self.conflict(path, ConflictKind::Gone);
                return Ok(());
            }
            Verdict::Changed(_, seen) => {
                self.conflict(path, changed_or_unknown(seen));
                return Ok(());
            }
            Verdict::Unchanged(_) | Verdict::BothMade(_) => {
                self.conflict(path, ConflictKind::Changed);
                return Ok(());
            }
        };
        let origin = self.origin(path).unwrap_or_else(|| path.clone());
        let (old, new) = self.both_metas(&origin, &node, attr, xattrs, kept_mode(attr.mode, node.mode))?;
        let meta = Meta { mtime, ..new };
        if let Some(copy) = self.copies.get(path) {
            let io = |source| io_error("append to", path, source);
            let (added, copy) = (self.stages.open(slot).map_err(io)?, self.stages.open_to_write(*copy).map_err(io)?);
            files::append_content(&added, &copy, 0, node.size, attr.size - from).map_err(io)?;
            return tree::set_meta(&copy.into(), &meta).map_err(io);
        }
        refuse_fixed("append to", path, node.immutable || self.shows_elsewhere(&node))?;
        let (at, len) = (node.size, attr.size - from);
        let steps = if node.append_only { &mut self.append_only } else { &mut self.append };
        steps.push(Step::Append { path: path.clone(), slot, ino: node.ino, at, len, old, meta });
        Ok(())
    }
}
