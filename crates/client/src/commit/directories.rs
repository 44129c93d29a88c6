//! Planning directories: new ones, changed ones, and those that entries are moved into and out of.

use super::apply::io_error;
use super::check::{Checked, Parent, Planner, kept_mode, meta, meta_of};
use super::error::{CommitError, ConflictKind};
use super::plan::Step;
use super::rights;
use super::stage::Slot;
use super::tree::{self, Meta, Node, is_writable};
use super::validate::committed_xattrs;
use super::{NoteKind, closed};
use base::{Attr, Base, Change, TreePath, Xattr};
use std::collections::HashSet;

impl Planner<'_, '_> {
    pub(super) fn plan_directory(
        &mut self,
        change: &Change,
        attr: &Attr,
        xattrs: &[Xattr],
        replaces: bool,
    ) -> Checked<()> {
        let path = &change.path;
        let origin = self.origin(path);
        let there = match &origin {
            Some(origin) => self.look(origin)?,
            None => None,
        };
        let Some(node) = there else {
            if origin.is_some() && change.base != Base::Absent {
                // Somebody removed it. That matters only if the task put something there.
                match self.has_changes_within(path) {
                    true => self.conflict(path, ConflictKind::Gone),
                    false => self.note(path, NoteKind::AlreadyGone),
                }
                return Ok(());
            }
            return self.make_directory(path, attr, xattrs);
        };
        if self.is_made_alone(path, change.base) {
            self.conflict(path, ConflictKind::Made);
            return Ok(());
        }
        if node.is_directory() && replaces {
            // It should be among the removals.
            self.conflict(path, ConflictKind::DirectoryInTheWay);
            return Ok(());
        }
        if node.is_directory() {
            return self.change_directory(path, origin.as_ref().unwrap_or(path), &node, change.base, attr, xattrs);
        }
        let origin = origin.expect("what is there has an origin");
        match change.base {
            Base::Bound(_) => self.check_removed(&origin, change.base, &node, ConflictKind::Changed),
            Base::Absent if !self.evidence.may_replace_new() || self.is_older_than_task(&node) => {
                self.conflict(path, ConflictKind::NoEvidence)
            }
            Base::Absent => self.note(path, NoteKind::LastWins),
        }
        self.take_away(&origin, &node, None, false)?;
        self.make_directory(path, attr, xattrs)
    }

    /// Whether anything in the directory at `path` changes.
    fn has_changes_within(&mut self, path: &TreePath) -> bool {
        let changes = self.changes;
        let above = self.above_changes.get_or_insert_with(|| {
            let mut above = HashSet::new();
            for change in changes {
                let mut at = change.path.parent();
                while let Some(path) = at.take_if(|path| !above.contains(path)) {
                    at = path.parent();
                    above.insert(path);
                }
            }
            above
        });
        above.contains(path)
    }

    fn make_directory(&mut self, path: &TreePath, attr: &Attr, xattrs: &[Xattr]) -> Checked<()> {
        if !self.check_parent(path)? {
            return Ok(());
        }
        self.refuse_handed_down(path)?;
        // It keeps its time where the delta says nothing of it: programs give it back after such a change.
        self.parent_of(path)?;
        let mode = self.directory_mode(path, attr.mode)?;
        let io = |source| io_error("make directory", path, source);
        let slot = self.slot_for(path, true)?;
        let new = Meta { xattrs: Some(committed_xattrs(xattrs)), ..meta(attr, mode) };
        let node = super::place::make_directory(self.stages, slot, &new).map_err(io)?;
        let old = meta_of(&node, None);
        self.made.insert(path.clone());
        self.place.push(Step::Place { path: path.clone(), slot, ino: node.ino, over: None, moved: false });
        self.directories.push(Step::Attributes { path: path.clone(), ino: node.ino, old, new });
        Ok(())
    }

    /// The mode of a new directory: set-group-id only where the directory above hands it down.
    fn directory_mode(&mut self, path: &TreePath, mode: u32) -> Checked<u32> {
        let parent = path.parent().filter(|_| mode & 0o2000 != 0);
        let inherits = match parent {
            Some(parent) if self.made.contains(&parent) => self.handing_down.contains(&parent),
            Some(parent) => match self.origin(&parent) {
                Some(origin) => self.look(&origin)?.is_some_and(|node| node.mode & 0o2000 != 0),
                None => false,
            },
            None => false,
        };
        if inherits {
            self.handing_down.insert(path.clone());
        }
        Ok(mode & if inherits { 0o3777 } else { 0o1777 })
    }

    fn change_directory(
        &mut self,
        path: &TreePath,
        origin: &TreePath,
        node: &Node,
        base: Base,
        attr: &Attr,
        xattrs: &[Xattr],
    ) -> Checked<()> {
        let io = |source| io_error("look at", path, source);
        let held = self.tree.hold(origin).map_err(io)?;
        let present = closed::all_xattrs(self.tree, &held, node).map_err(io)?;
        let wanted = closed::with_kept_back(xattrs, &present);
        let old = meta_of(node, (present != wanted).then_some(present));
        let old = Meta { atime: attr.accessed.0.map(|_| node.atime), ..old };
        let mut new = meta(attr, kept_mode(attr.mode, node.mode));
        new.xattrs = old.xattrs.is_some().then_some(wanted);
        let seen = match base {
            Base::Bound(seq) => self.evidence.stamp_of(origin, seq),
            Base::Absent => None,
        };
        if seen.is_none_or(|stamp| stamp.mtime != node.mtime) {
            // Others changed entries, too: the later change counts.
            new.mtime = new.mtime.max(node.mtime);
        }
        self.directories.push(Step::Attributes { path: path.clone(), ino: node.ino, old, new });
        Ok(())
    }

    /// An error if what is new at `path` would get an access list here.
    pub(super) fn refuse_handed_down(&mut self, path: &TreePath) -> Checked<()> {
        let Some(parent) = path.parent().filter(|parent| !self.made.contains(parent)) else { return Ok(()) };
        let Some(origin) = self.origin(&parent) else { return Ok(()) };
        if let Some(hands_down) = self.lists.get(&origin) {
            return if *hands_down { Err(CommitError::HandsListDown(origin)) } else { Ok(()) };
        }
        let hands_down = self.tree.directory(&origin).is_ok_and(|held| tree::hands_list_down(&*held));
        self.lists.insert(origin, hands_down);
        self.refuse_handed_down(path)
    }

    /// Whether there will be a directory for `path` to be in; else a conflict.
    pub(super) fn check_parent(&mut self, path: &TreePath) -> Checked<bool> {
        let Some(parent) = path.parent() else { return Ok(true) };
        if self.moved_files.contains(&parent) {
            self.conflict(path, ConflictKind::ParentGone);
            return Ok(false);
        }
        if self.made.contains(&parent) || self.renamed_to.contains_key(&parent) || self.good_parents.contains(&parent) {
            return Ok(true);
        }
        let there = match self.origin(&parent) {
            Some(origin) => self.look(&origin)?.is_some_and(|node| node.is_directory()),
            None => false,
        };
        if there {
            self.good_parents.insert(parent);
        } else if !std::iter::successors(Some(path.clone()), TreePath::parent)
            .any(|at| self.conflict_paths.contains(&at))
        {
            // A directory of this delta whose own conflict is known already needs no second line.
            self.conflict(path, ConflictKind::ParentGone);
        }
        Ok(there)
    }

    /// What can be done with entries of the directory that `path` is in; opens it for the commit if need be.
    pub(super) fn parent_of(&mut self, path: &TreePath) -> Checked<Parent> {
        let free = Parent { writable: true, sticky: false, owned: true, append_only: false };
        let Some(parent) = path.parent() else { return Ok(free) };
        match if self.made.contains(&parent) { None } else { self.origin(&parent) } {
            None => Ok(free),
            Some(origin) => self.inspect_parent(&origin),
        }
    }

    pub(super) fn inspect_parent(&mut self, path: &TreePath) -> Checked<Parent> {
        if let Some(known) = self.parents.get(path) {
            return Ok(*known);
        }
        let io = |source| io_error("look at", path, source);
        let absent = Parent { writable: false, sticky: false, owned: false, append_only: false };
        let Some(node) = self.look(path)? else { return Ok(absent) };
        let owned = rights::owns(&node);
        let held = self.tree.directory(path).map_err(io)?;
        let writable = is_writable(&*held) || self.open_if_needed(path, &node)?;
        let as_it_is = meta_of(&node, None);
        if owned {
            // Should all be undone, this comes last: the directory's mtime is what it was.
            let (ino, old, new) = (node.ino, as_it_is.clone(), as_it_is.clone());
            self.open.insert(0, Step::Open { path: path.clone(), ino, old, new });
        }
        if let Some(after) = self.after(path).filter(|_| owned) {
            // The task's own entries would have changed its mtime, and the delta would say so: what changes it is the
            // way in which files are replaced.
            let (old, new) = (as_it_is.clone(), as_it_is);
            self.directories.push(Step::Attributes { path: after, ino: node.ino, old, new });
        }
        let known =
            Parent { writable, sticky: node.mode & 0o1000 != 0 && !owned, owned, append_only: node.append_only };
        self.parents.insert(path.clone(), known);
        Ok(known)
    }

    /// Makes a directory of this user's writable for the commit, if it is not. Tells whether it will be.
    pub(super) fn open_if_needed(&mut self, path: &TreePath, node: &Node) -> Checked<bool> {
        let user = rustix::process::geteuid().as_raw();
        if user == 0 || node.uid != user || node.mode & 0o300 == 0o300 {
            return Ok(false);
        }
        let old = meta_of(node, None);
        let new = Meta { mode: node.mode | 0o300, ..old.clone() };
        let is_this = |step: &Step| matches!(step, Step::Open { path: at, old, new, .. } if at == path && old != new);
        if self.open.iter().any(is_this) {
            return Ok(true);
        }
        self.open.push(Step::Open { path: path.clone(), ino: node.ino, old: old.clone(), new: new.clone() });
        if let Some(after) = self.after(path) {
            self.directories.push(Step::Attributes { path: after, ino: node.ino, old: new, new: old });
        }
        Ok(true)
    }

    /// Where the directory at `path` will be after the commit, unless the delta changes its attributes itself.
    fn after(&self, path: &TreePath) -> Option<TreePath> {
        let mut at = Some(path.clone());
        let mut after = path.clone();
        while let Some(ancestor) = at {
            if let Some(to) = self.renamed.get(&ancestor) {
                let beneath = path.relative_to(&ancestor).unwrap_or_default();
                after = to.resolve(beneath).unwrap_or(after);
                break;
            }
            at = ancestor.parent();
        }
        (!self.own_directories.contains(&after) && !self.removed.contains_key(path)).then_some(after)
    }

    /// A slot from which, and into which, an entry at `path` can be renamed; if `is_new`, what is made in it gets the
    /// group that it would get there.
    pub(super) fn slot_for(&mut self, path: &TreePath, is_new: bool) -> Checked<Slot> {
        let mut at = path.parent();
        while let Some(parent) = at {
            let origin = if self.made.contains(&parent) { None } else { self.origin(&parent) };
            if let Some(origin) = origin
                && self.look(&origin)?.is_some_and(|node| node.is_directory())
            {
                let folder = self.stages.folder_for(self.tree, &origin, is_new);
                let folder = folder.map_err(|source| io_error("make a staging folder for", path, source))?;
                return Ok(self.stages.slot(folder));
            }
            at = parent.parent();
        }
        Ok(self.stages.slot(0))
    }
}
