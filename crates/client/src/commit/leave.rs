//! Planning what goes: removals and renamed directories, all at once, in the tree as it is before the commit.

use super::apply::{SubtreeSum, io_error};
use super::check::{Checked, Planner, changed_or_unknown, meta_of};
use super::contents::refuse_fixed;
use super::error::ConflictKind;
use super::plan::Step;
use super::stage::{Slot, names_in};
use super::stamp::{Seen, Stamp};
use super::tree::{self, Meta, Node, os};
use super::{NoteKind, closed, files};
use base::{Action, Base, Digest, TreePath};
use rustix::fs::{FileType, Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

impl<'a> Planner<'a, '_> {
    /// Plans removals and renames: all at once, deepest first, in the tree as it is.
    pub(super) fn plan_detached(&mut self) -> Checked<()> {
        let mut leaving: Vec<(&'a TreePath, Base, Option<&'a TreePath>)> = Vec::new();
        for change in self.changes {
            match &change.action {
                Action::Remove => {
                    let covered = change.path.parent().is_some_and(|parent| self.removed.contains_key(&parent));
                    if !covered {
                        leaving.push((&change.path, change.base, None));
                    }
                }
                Action::Rename { from } => leaving.push((from, change.base, Some(&change.path))),
                _ => {}
            }
        }
        leaving.sort_by_key(|(path, ..)| std::cmp::Reverse(path.components().count()));
        for (path, base, to) in leaving {
            match to {
                Some(to) => self.plan_rename(path, base, to)?,
                None => self.plan_removal(path, base)?,
            }
        }
        Ok(())
    }

    fn plan_removal(&mut self, path: &'a TreePath, base: Base) -> Checked<()> {
        let Some(node) = self.look(path)? else {
            self.note(path, NoteKind::AlreadyGone);
            return Ok(());
        };
        if node.is_directory() && self.is_layered(path)? {
            return self.plan_piecewise(path);
        }
        let beneath = match node.is_directory() {
            true => Some(self.check_beneath(path)?),
            false => {
                self.check_removed(path, base, &node, ConflictKind::Changed);
                None
            }
        };
        self.take_away(path, &node, beneath, false).map(drop)
    }

    /// Whether `path` is on an overlay file system: most of these cannot rename directories of their lower layers.
    fn is_layered(&self, path: &TreePath) -> Checked<bool> {
        const OVERLAY: i64 = 0x794c_7630;
        let io = |source| io_error("look at", path, source);
        let held = self.tree.directory(path).map_err(io)?;
        let system = rustix::fs::fstatfs(&*held).map_err(|error| io(error.into()))?;
        Ok(system.f_type == OVERLAY)
    }

    /// Plans the removal of a directory by that of all that is in it.
    fn plan_piecewise(&mut self, top: &TreePath) -> Checked<()> {
        self.check_beneath(top)?;
        let mut open = vec![top.clone()];
        while let Some(at) = open.pop() {
            let Some(node) = self.look(&at)? else { continue };
            let held = self.open_directory(&at)?;
            for name in names_in(&held).map_err(|source| io_error("list", &at, source))? {
                let path = at.join(&name);
                match self.look(&path)? {
                    Some(_) if self.renamed.contains_key(&path) => {}
                    Some(node) if node.is_directory() => open.push(path),
                    Some(node) => drop(self.take_away(&path, &node, None, false)?),
                    None => {}
                }
            }
            self.inspect_parent(&at.parent().unwrap_or_else(TreePath::root))?;
            let xattrs =
                closed::all_xattrs(self.tree, &held, &node).map_err(|source| io_error("look at", &at, source))?;
            let old = meta_of(&node, Some(xattrs));
            self.detach.push(Step::RemoveDirectory { path: at, ino: node.ino, old });
        }
        Ok(())
    }

    /// Whether a file that is to go is still what the task saw.
    pub(super) fn check_removed(&mut self, path: &TreePath, base: Base, node: &Node, why: ConflictKind) {
        let Base::Bound(seq) = base else { return self.conflict(path, why) };
        match self.evidence.stamp_of(path, seq) {
            Some(stamp) if stamp == Stamp::of_node(node) => {}
            Some(_) => self.conflict(path, why),
            None => self.conflict(path, ConflictKind::NoEvidence),
        }
    }

    /// Checks that all that is in a directory which is to go was seen by the task, and sums it up.
    fn check_beneath(&mut self, top: &TreePath) -> Checked<Digest> {
        let mut sum = SubtreeSum::default();
        let mut open = vec![top.clone()];
        while let Some(at) = open.pop() {
            let held = self.open_directory(&at)?;
            for name in names_in(&held).map_err(|source| io_error("list", &at, source))? {
                let path = at.join(&name);
                if self.renamed.contains_key(&path) {
                    continue;
                }
                let node = tree::node_at(&held, &name).map_err(|source| io_error("look at", &path, source))?;
                let Some(node) = node else { continue };
                if node.mount_root {
                    self.conflict(&path, ConflictKind::MountPoint);
                    continue;
                }
                self.stages.note_leaving(&node);
                match self.removed.get(&path).copied() {
                    None => self.conflict(&path, ConflictKind::InRemovedDirectory),
                    Some(base) if !node.is_directory() => {
                        self.check_removed(&path, base, &node, ConflictKind::InRemovedDirectory);
                    }
                    Some(_) => open.push(path.clone()),
                }
                let relative = &path.as_bytes()[top.as_bytes().len()..];
                sum.add(relative, &Seen::of_leaving(&node));
            }
        }
        Ok(sum.finish())
    }

    fn open_directory(&self, path: &TreePath) -> Checked<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let parent = self.tree.parent(path).map_err(|source| io_error("open", path, source))?;
        tree::open_beneath(parent.as_fd(), path.name(), flags).map_err(|source| io_error("open", path, source))
    }

    fn plan_rename(&mut self, from: &'a TreePath, base: Base, to: &'a TreePath) -> Checked<()> {
        let Some(node) = self.look(from)? else {
            self.conflict(from, ConflictKind::Gone);
            return Ok(());
        };
        let seen = match base {
            Base::Bound(seq) => self.evidence.stamp_of(from, seq),
            Base::Absent => None,
        };
        if !node.is_directory() {
            return self.plan_file_rename(from, &node, seen, to);
        }
        if seen.is_some_and(|stamp| stamp.ino != node.ino) {
            self.conflict(from, ConflictKind::Changed);
            return Ok(());
        }
        if self.holds_mount(from)? {
            self.conflict(from, ConflictKind::MountPoint);
            return Ok(());
        }
        let occupied = self.occupant(to)?;
        if occupied.is_some() {
            self.conflict(to, ConflictKind::DirectoryInTheWay);
            return Ok(());
        }
        self.open_if_needed(from, &node)?;
        let slot = self.take_away(from, &node, None, true)?;
        self.place.push(Step::Place { path: to.clone(), slot, ino: node.ino, over: None, moved: true });
        Ok(())
    }

    /// Whether something is mounted beneath the directory at `path`.
    fn holds_mount(&self, path: &TreePath) -> Checked<bool> {
        let io = |source| io_error("look at", path, source);
        let held = self.tree.hold(path).map_err(io)?;
        // By its path for the whole system: the tree may be a part of that.
        let at = rustix::fs::readlink(tree::magic(&held), Vec::new()).map_err(|errno| io(errno.into()))?;
        let mounts = crate::mounts::visible().map_err(io)?;
        let Some(at) = TreePath::parse(at.as_bytes()) else { return Ok(false) };
        Ok(mounts.iter().any(|mount| mount.at != at && mount.at.is_within(&at)))
    }

    fn plan_file_rename(
        &mut self,
        from: &'a TreePath,
        node: &Node,
        seen: Option<Stamp>,
        to: &'a TreePath,
    ) -> Checked<()> {
        // Its attributes may have changed, and go with it.
        if !seen.is_some_and(|stamp| stamp.same_content(&Stamp::of_node(node))) {
            self.conflict(from, changed_or_unknown(seen));
            return Ok(());
        }
        self.moved_files.insert(to);
        let target = self.slot_for(to, false)?;
        let taken = match self.copied.contains(to) {
            true => None,
            false => Some(self.take_away(from, node, None, true)?),
        };
        let (slot, ino, moved) = match taken.filter(|taken| taken.folder == target.folder) {
            Some(slot) => (slot, node.ino, true),
            // To another file system: as `mv` does.
            None => {
                let copy = self.copy_to(from, target, node)?;
                self.copies.insert(to, target);
                self.placed.insert(to.clone(), target);
                (target, copy, false)
            }
        };
        let step = |over| Step::Place { path: to.clone(), slot, ino, over, moved };
        match self.occupant(to)? {
            None => self.place.push(step(None)),
            Some((_, there)) if there.is_directory() => self.conflict(to, ConflictKind::DirectoryInTheWay),
            Some((_, there)) if there.mount_root => self.conflict(to, ConflictKind::MountPoint),
            Some(_) if self.evidence.is_locked(to) => self.conflict(to, ConflictKind::Made),
            Some((_, there)) if self.is_older_than_task(&there) || !self.evidence.may_replace_new() => {
                self.conflict(to, ConflictKind::NoEvidence);
            }
            Some((_, there)) if self.evidence.locked_since().is_some_and(|since| there.ctime <= since) => {
                self.conflict(to, ConflictKind::Changed);
            }
            Some((here, there)) => {
                self.note(to, NoteKind::LastWins);
                if self.stages.exchanges(slot.folder) {
                    self.place.push(step(Some(Seen::of_leaving(&there))));
                } else {
                    self.place.push(step(None));
                    self.take_away(&here, &there, None, false)?;
                }
            }
        }
        Ok(())
    }

    /// Copies what is at `from`, a file, link or pipe, with its attributes into `slot`. Returns the copy's inode number.
    pub(super) fn copy_to(&mut self, from: &TreePath, slot: Slot, node: &Node) -> Checked<u64> {
        let io = |source| io_error("copy", from, source);
        if !node.is_file() {
            return self.copy_other(from, slot, node).map_err(io);
        }
        let held = self.tree.hold(from).map_err(io)?;
        let xattrs = Some(closed::all_xattrs(self.tree, &held, node).map_err(io)?);
        let original = closed::open_file(self.tree, from).map_err(io)?;
        let copy = self.stages.create(slot).map_err(io)?;
        files::copy_content(&original.into(), &copy).map_err(io)?;
        let copy = OwnedFd::from(copy);
        tree::set_meta(&copy, &Meta { mode: node.mode & 0o1777, atime: Some(node.atime), ..meta_of(node, xattrs) })
            .map_err(io)?;
        Ok(tree::node_of(&copy).map_err(io)?.ino)
    }

    fn copy_other(&self, from: &TreePath, slot: Slot, node: &Node) -> io::Result<u64> {
        let (into, name) = (self.stages.held(slot.folder), self.stages.name(slot));
        match node.kind {
            FileType::Symlink => {
                let parent = self.tree.parent(from)?;
                let target = rustix::fs::readlinkat(&*parent, os(from.name()), Vec::new())?;
                rustix::fs::symlinkat(&target, into, os(&name))?;
            }
            FileType::Fifo => rustix::fs::mkfifoat(into, os(&name), Mode::from_raw_mode(0o600))?,
            _ => return Err(io::Error::other("it is a socket or device, which stays on its file system")),
        }
        let copy = self.stages.hold(slot)?;
        tree::set_meta(&copy, &Meta { mode: node.mode & 0o1777, atime: Some(node.atime), ..meta_of(node, None) })?;
        Ok(tree::node_of(&copy)?.ino)
    }

    /// What is now where the target of a rename will be, and stays there, with its path now: what the task has seen there would be among the
    /// removals.
    fn occupant(&mut self, to: &TreePath) -> Checked<Option<(TreePath, Node)>> {
        let Some(parent) = to.parent() else { return Ok(None) };
        let Some(here) = self.origin(&parent).map(|parent| parent.join(to.name())) else { return Ok(None) };
        match self.removed.contains_key(&here) || self.renamed.contains_key(&here) {
            true => Ok(None),
            false => Ok(self.look(&here)?.map(|node| (here, node))),
        }
    }

    /// Plans to move what is at `path` (before the commit) into a slot.
    pub(super) fn take_away(
        &mut self,
        path: &TreePath,
        node: &Node,
        beneath: Option<Digest>,
        moves: bool,
    ) -> Checked<Slot> {
        if node.mount_root {
            // Renamed, the mount would go with it.
            self.conflict(path, ConflictKind::MountPoint);
        }
        self.stages.note_leaving(node);
        let io = |source| io_error("make a staging folder for", path, source);
        let parent = path.parent().unwrap_or_else(TreePath::root);
        self.inspect_parent(&parent)?;
        let what = if moves { "rename" } else { "remove" };
        refuse_fixed(what, path, node.immutable || node.append_only)?;
        let slot = match node.is_directory() && !self.may_change_parent(path)? {
            true => self.stages.slot_beside(self.tree, &parent).map_err(io)?,
            false => {
                let folder = self.stages.folder_for(self.tree, &parent, false).map_err(io)?;
                self.stages.slot(folder)
            }
        };
        self.detach.push(Step::Detach { path: path.clone(), slot, seen: Seen::of_leaving(node), beneath, moves });
        Ok(slot)
    }

    /// Whether the directory at `path` can be moved to another one: that changes its entry `..`.
    fn may_change_parent(&self, path: &TreePath) -> Checked<bool> {
        let is_opened = |step: &Step| matches!(step, Step::Open { path: at, old, new, .. } if at == path && old != new);
        if self.open.iter().any(is_opened) {
            return Ok(true);
        }
        let held = self.tree.hold(path).map_err(|source| io_error("look at", path, source))?;
        Ok(tree::is_writable(&held))
    }
}
