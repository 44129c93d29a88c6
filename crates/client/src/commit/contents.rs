//! Planning files: written, appended to, or given other attributes.

use super::apply::io_error;
use super::check::{Checked, Planner, Verdict, changed_or_unknown, kept_mode, meta, meta_of};
use super::error::ConflictKind;
use super::plan::Step;
use super::stage::Slot;
use super::stamp::{Seen, Stamp};
use super::tree::{self, Meta, Node};
use super::validate::committed_xattrs;
use super::{NoteKind, files};
use base::{Attr, TreePath, Xattr};
use rustix::fs::OFlags;

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
        if self.copies.contains_key(path) {
            return self.place_instead(path, slot);
        }
        if node.is_file() && self.must_stay(path, &node)? {
            return self.overwrite(path, slot, &node, attr, xattrs);
        }
        if self.moved_files.contains(path) {
            return self.place_instead(path, slot);
        }
        self.place_over(path, slot, &node)
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

    /// Whether the file at `path` can only be written in place: it has other names, is a mount, or cannot be renamed.
    fn must_stay(&mut self, path: &TreePath, node: &Node) -> Checked<bool> {
        let parent = self.parent_of(path)?;
        let foreign = parent.sticky && node.uid != rustix::process::geteuid().as_raw();
        Ok(node.nlink > 1 || node.mount_root || !parent.writable || foreign)
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
        self.parent_of(path)?;
        let ino = self.staged_ino(path, slot)?;
        self.placed.insert(path.clone(), slot);
        let seen = Seen::of(node);
        if self.stages.exchanges(slot.folder) {
            self.place.push(Step::Place { path: path.clone(), slot, ino, over: Some(seen), moved: false });
            return Ok(());
        }
        let origin = self.origin(path).unwrap_or_else(|| path.clone());
        self.take_away(&origin, seen, None, false)?;
        self.place.push(Step::Place { path: path.clone(), slot, ino, over: None, moved: false });
        Ok(())
    }

    fn staged_ino(&self, path: &TreePath, slot: Slot) -> Checked<u64> {
        let node = self.stages.node(slot).map_err(|source| io_error("stage", path, source))?;
        let missing = || io_error("stage", path, std::io::ErrorKind::NotFound.into());
        node.map(|node| node.ino).ok_or_else(missing)
    }

    fn overwrite(&mut self, path: &TreePath, slot: Slot, node: &Node, attr: &Attr, xattrs: &[Xattr]) -> Checked<()> {
        let io = |source| io_error("keep a copy of", path, source);
        let undo = self.stages.slot(slot.folder);
        let origin = self.origin(path).unwrap_or_else(|| path.clone());
        let from = self.tree.open_file(&origin, OFlags::RDONLY).map_err(io)?;
        let copy = self.stages.create(undo).map_err(io)?;
        files::copy_content(&from.into(), &copy).map_err(io)?;
        let (old, meta) = self.both_metas(&origin, node, attr, xattrs, attr.mode & 0o1777)?;
        self.write.push(Step::Overwrite { path: path.clone(), slot, undo, seen: Seen::of(node), old, meta });
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
        let old = meta_of(node, Some(tree::xattrs_of(&held).map_err(io)?));
        Ok((old, Meta { xattrs: Some(committed_xattrs(xattrs)), ..meta(attr, mode) }))
    }

    fn give_attributes(&mut self, path: &TreePath, node: &Node, attr: &Attr, xattrs: &[Xattr]) -> Checked<()> {
        if let Some(copy) = self.copies.get(path) {
            let new = Meta { xattrs: Some(committed_xattrs(xattrs)), ..meta(attr, kept_mode(attr.mode, node.mode)) };
            let given = self.stages.hold(*copy).and_then(|held| tree::set_meta(&held, &new));
            return given.map_err(|source| io_error("change the attributes of", path, source));
        }
        let origin = self.origin(path).unwrap_or_else(|| path.clone());
        let (old, new) = self.both_metas(&origin, node, attr, xattrs, kept_mode(attr.mode, node.mode))?;
        if old != new {
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
            Verdict::Unchanged(node) if node.is_file() => self.give_attributes(path, &node, attr, xattrs),
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
        let (at, len) = (node.size, attr.size - from);
        self.append.push(Step::Append { path: path.clone(), slot, ino: node.ino, at, len, old, meta });
        Ok(())
    }
}
