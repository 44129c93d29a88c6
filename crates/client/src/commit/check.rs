//! From a delta and the tree as it is now to a plan, or to the conflicts between them.
//!
//! What the task saw (the evidence) is compared with what is there. Fine are: the same result there already; entries
//! that others added to a directory; a file that only grew, if the task only appended; a name that both made (the last
//! wins, and the report says so); removals of what is gone. Everything else that changed is a conflict.

use super::apply::{SubtreeSum, io_error};
use super::error::{CommitError, Conflict, ConflictKind};
use super::place::Slots;
use super::plan::Step;
use super::stage::{FOLDER_PREFIX, Slot, Stages, names_in};
use super::stamp::{Seen, Stamp};
use super::tree::{self, Meta, Node, Tree, is_writable};
use super::validate::committed_xattrs;
use super::{Evidence, Note, NoteKind};
use base::delta::FileChange;
use base::{Action, Attr, Base, Change, Digest, TreePath, Xattr};
use rustix::fs::OFlags;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};

/// How what is at a path now relates to what the task saw there.
enum Verdict {
    /// Nothing is there, and the task saw nothing, or this delta takes away what is there.
    Fresh,
    /// It is what the task saw.
    Unchanged(Node),
    /// The task saw nothing, and something is there.
    BothMade(Node),
    /// It changed. The stamp is what the task saw, if that is known.
    Changed(Node, Option<Stamp>),
    /// The task saw something, and nothing is there.
    Gone,
}

/// A directory that entries are moved into or out of.
#[derive(Clone, Copy)]
struct Parent {
    /// Whether its entries can be changed (once opened, if it is this user's).
    writable: bool,
    /// Only owners may move entries away, and this user does not own the directory.
    sticky: bool,
}

/// Makes the plan for one commit.
pub(crate) struct Planner<'a, 'b> {
    pub(crate) tree: &'a Tree,
    pub(crate) stages: &'a mut Stages<'b>,
    evidence: &'a dyn Evidence,
    changes: &'a [Cow<'a, Change>],
    staged: &'a Slots,
    removed: HashMap<&'a TreePath, Base>,
    renamed: HashMap<&'a TreePath, &'a TreePath>,
    renamed_to: HashMap<&'a TreePath, &'a TreePath>,
    /// Directories that this commit makes.
    made: HashSet<TreePath>,
    /// What is moved into place from where.
    pub(crate) placed: HashMap<TreePath, Slot>,
    /// Answers of [`Self::origin`].
    origins: HashMap<TreePath, Option<TreePath>>,
    /// Directories, by what they are called now, that entries are moved into or out of.
    parents: HashMap<TreePath, Parent>,
    /// Directories, by what they will be called, that are known to be there.
    good_parents: HashSet<TreePath>,
    /// Directories (as they will be called) whose attributes the delta changes itself.
    own_directories: HashSet<&'a TreePath>,
    /// Steps by kind, in the order in which they come.
    pub(crate) open: Vec<Step>,
    pub(crate) detach: Vec<Step>,
    pub(crate) place: Vec<Step>,
    pub(crate) write: Vec<Step>,
    pub(crate) append: Vec<Step>,
    pub(crate) attributes: Vec<Step>,
    pub(crate) directories: Vec<Step>,
    pub(crate) conflicts: Vec<Conflict>,
    pub(crate) notes: Vec<Note>,
}

type Checked<T> = Result<T, CommitError>;

impl<'a, 'b> Planner<'a, 'b> {
    /// A planner for `changes`, whose new contents are staged in `staged`.
    pub(crate) fn new(
        tree: &'a Tree,
        stages: &'a mut Stages<'b>,
        evidence: &'a dyn Evidence,
        changes: &'a [Cow<'a, Change>],
        staged: &'a Slots,
    ) -> Self {
        let mut removed = HashMap::new();
        let mut own_directories = HashSet::new();
        let (mut renamed, mut renamed_to) = (HashMap::new(), HashMap::new());
        for change in changes {
            match &change.action {
                Action::Remove => {
                    removed.insert(&change.path, change.base);
                }
                Action::RenameDirectory { from } => {
                    renamed.insert(from, &change.path);
                    renamed_to.insert(&change.path, from);
                }
                Action::Directory { .. } => {
                    own_directories.insert(&change.path);
                }
                _ => {}
            }
        }
        Self {
            tree,
            stages,
            evidence,
            changes,
            staged,
            removed,
            renamed,
            renamed_to,
            made: HashSet::new(),
            placed: HashMap::new(),
            origins: HashMap::new(),
            parents: HashMap::new(),
            good_parents: HashSet::new(),
            own_directories,
            open: Vec::new(),
            detach: Vec::new(),
            place: Vec::new(),
            write: Vec::new(),
            append: Vec::new(),
            attributes: Vec::new(),
            directories: Vec::new(),
            conflicts: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Checks all changes and plans those that are needed.
    ///
    /// # Errors
    /// All conflicts, or the first failed system call.
    pub(crate) fn plan(&mut self) -> Checked<Vec<Step>> {
        self.plan_detached()?;
        for (index, change) in self.changes.iter().enumerate() {
            match change.action {
                Action::Remove | Action::RenameDirectory { .. } => {}
                _ => self.plan_change(index, change)?,
            }
        }
        // Only now is it known which directories are made.
        for change in self.changes {
            if let Action::RenameDirectory { .. } = change.action
                && self.check_parent(&change.path)?
            {
                self.parent_of(&change.path)?;
            }
        }
        if !self.conflicts.is_empty() {
            return Err(CommitError::Conflict(std::mem::take(&mut self.conflicts)));
        }
        let depth = |step: &Step| step.path().components().count();
        self.place.sort_by_key(depth);
        self.detach.sort_by_key(|step| std::cmp::Reverse(depth(step)));
        self.directories.sort_by_key(|step| std::cmp::Reverse(depth(step)));
        let mut steps = std::mem::take(&mut self.open);
        steps.append(&mut self.detach);
        for kind in [&mut self.place, &mut self.write, &mut self.attributes, &mut self.append, &mut self.directories] {
            steps.append(kind);
        }
        Ok(steps)
    }

    pub(crate) fn conflict(&mut self, path: &TreePath, why: ConflictKind) {
        self.conflicts.push(Conflict { path: path.clone(), why });
    }

    pub(crate) fn note(&mut self, path: &TreePath, kind: NoteKind) {
        self.notes.push(Note { path: path.clone(), kind });
    }

    pub(crate) fn look(&self, path: &TreePath) -> Checked<Option<Node>> {
        self.tree.node(path).map_err(|source| io_error("look at", path, source))
    }

    /// The path at which `path` (of the tree after the commit) is now; `None` if this delta removes or renames away what
    /// is there, or makes a directory above.
    pub(crate) fn origin(&mut self, path: &TreePath) -> Option<TreePath> {
        if let Some(known) = self.origins.get(path) {
            return known.clone();
        }
        let origin = match (self.renamed_to.get(path), path.parent()) {
            (Some(from), _) => Some((*from).clone()),
            (None, None) => Some(path.clone()),
            (None, Some(parent)) => {
                let here = self.origin(&parent).map(|parent| parent.join(path.name()));
                here.filter(|here| !self.removed.contains_key(here) && !self.renamed.contains_key(here))
            }
        };
        self.origins.insert(path.clone(), origin.clone());
        origin
    }

    /// Plans removals and renames: all at once, deepest first, in the tree as it is.
    fn plan_detached(&mut self) -> Checked<()> {
        let mut leaving: Vec<(&'a TreePath, Base, Option<&'a TreePath>)> = Vec::new();
        for change in self.changes {
            match &change.action {
                Action::Remove => {
                    let covered = change.path.parent().is_some_and(|parent| self.removed.contains_key(&parent));
                    if !covered {
                        leaving.push((&change.path, change.base, None));
                    }
                }
                Action::RenameDirectory { from } => leaving.push((from, change.base, Some(&change.path))),
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
        let beneath = match node.is_directory() {
            true => Some(self.check_beneath(path)?),
            false => {
                self.check_removed(path, base, &node, ConflictKind::Changed);
                None
            }
        };
        self.take_away(path, Seen::of(&node), beneath, false).map(drop)
    }

    /// Whether a file that is to go is still what the task saw.
    fn check_removed(&mut self, path: &TreePath, base: Base, node: &Node, why: ConflictKind) {
        let Base::Bound(seq) = base else { return self.conflict(path, why) };
        match self.evidence.stamp_of(path, seq) {
            Some(stamp) if stamp == Stamp::of(node) => {}
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
                match self.removed.get(&path).copied() {
                    None => self.conflict(&path, ConflictKind::InRemovedDirectory),
                    Some(base) if !node.is_directory() => {
                        self.check_removed(&path, base, &node, ConflictKind::InRemovedDirectory);
                    }
                    Some(_) => open.push(path.clone()),
                }
                let relative = &path.as_bytes()[top.as_bytes().len()..];
                sum.add(relative, &Seen::of(&node));
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
        if !node.is_directory() || seen.is_some_and(|stamp| stamp.ino != node.ino) {
            self.conflict(from, ConflictKind::Changed);
            return Ok(());
        }
        let occupied = self.occupant(to)?;
        if occupied.is_some() {
            self.conflict(to, ConflictKind::DirectoryInTheWay);
            return Ok(());
        }
        self.open_if_needed(from, &node)?;
        let slot = self.take_away(from, Seen::of(&node), None, true)?;
        self.place.push(Step::Place { path: to.clone(), slot, ino: node.ino, over: None, moved: true });
        Ok(())
    }

    /// What is now where the target of a rename will be, and stays there.
    fn occupant(&mut self, to: &TreePath) -> Checked<Option<Node>> {
        let Some(parent) = to.parent() else { return Ok(None) };
        let Some(here) = self.origin(&parent).map(|parent| parent.join(to.name())) else { return Ok(None) };
        match self.removed.contains_key(&here) || self.renamed.contains_key(&here) {
            true => Ok(None),
            false => self.look(&here),
        }
    }

    fn plan_change(&mut self, index: usize, change: &'a Change) -> Checked<()> {
        let path = &change.path;
        if let Action::Directory { attr, xattrs, replaces } = &change.action {
            return self.plan_directory(change, attr, xattrs, *replaces);
        }
        if !self.check_parent(path)? {
            return Ok(());
        }
        let verdict = self.verdict(change)?;
        if let Verdict::Unchanged(node) | Verdict::BothMade(node) | Verdict::Changed(node, _) = &verdict
            && node.is_directory()
        {
            self.conflict(path, ConflictKind::DirectoryInTheWay);
            return Ok(());
        }
        match &change.action {
            Action::File { attr, xattrs, change: how, .. } => match how {
                FileChange::Written => self.plan_written(index, path, attr, xattrs, verdict),
                FileChange::Appended { from } => self.plan_appended(index, path, attr, xattrs, *from, verdict),
                FileChange::Attributes => self.plan_attributes(path, attr, xattrs, verdict),
            },
            action => self.plan_other(path, action, verdict),
        }
    }

    fn verdict(&mut self, change: &Change) -> Checked<Verdict> {
        let Some(origin) = self.origin(&change.path) else { return Ok(Verdict::Fresh) };
        let there = self.look(&origin)?;
        Ok(match (change.base, there) {
            (Base::Absent, None) => Verdict::Fresh,
            (Base::Absent, Some(node)) => Verdict::BothMade(node),
            (Base::Bound(_), None) => Verdict::Gone,
            (Base::Bound(seq), Some(node)) => match self.evidence.stamp_of(&origin, seq) {
                Some(stamp) if stamp == Stamp::of(&node) => Verdict::Unchanged(node),
                seen => Verdict::Changed(node, seen),
            },
        })
    }

    fn plan_directory(&mut self, change: &Change, attr: &Attr, xattrs: &[Xattr], replaces: bool) -> Checked<()> {
        let path = &change.path;
        let origin = self.origin(path);
        let there = match &origin {
            Some(origin) => self.look(origin)?,
            None => None,
        };
        let Some(node) = there else {
            if origin.is_some() && change.base != Base::Absent {
                // Somebody removed it. That matters only if the task put something there.
                match self.changes.iter().any(|other| other.path != *path && other.path.is_within(path)) {
                    true => self.conflict(path, ConflictKind::Gone),
                    false => self.note(path, NoteKind::AlreadyGone),
                }
                return Ok(());
            }
            return self.make_directory(path, attr, xattrs);
        };
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
            Base::Absent => self.note(path, NoteKind::LastWins),
        }
        self.take_away(&origin, Seen::of(&node), None, false)?;
        self.make_directory(path, attr, xattrs)
    }

    fn make_directory(&mut self, path: &TreePath, attr: &Attr, xattrs: &[Xattr]) -> Checked<()> {
        if !self.check_parent(path)? {
            return Ok(());
        }
        let mode = self.directory_mode(path, attr.mode)?;
        let io = |source| io_error("make directory", path, source);
        let slot = self.slot_for(path)?;
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
        let parent = path.parent().and_then(|parent| self.origin(&parent));
        let inherits = match parent {
            Some(parent) if mode & 0o2000 != 0 => self.look(&parent)?.is_some_and(|node| node.mode & 0o2000 != 0),
            _ => false,
        };
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
        let present = tree::xattrs_of(&held).map_err(io)?;
        let wanted = committed_xattrs(xattrs);
        let old = meta_of(node, (present != wanted).then_some(present));
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

    /// Whether there will be a directory for `path` to be in; else a conflict.
    pub(crate) fn check_parent(&mut self, path: &TreePath) -> Checked<bool> {
        let Some(parent) = path.parent() else { return Ok(true) };
        if self.made.contains(&parent) || self.renamed_to.contains_key(&parent) || self.good_parents.contains(&parent) {
            return Ok(true);
        }
        let there = match self.origin(&parent) {
            Some(origin) => self.look(&origin)?.is_some_and(|node| node.is_directory()),
            None => false,
        };
        if there {
            self.good_parents.insert(parent);
        } else if !self.conflicts.iter().any(|conflict| path.is_within(&conflict.path)) {
            // A directory of this delta whose own conflict is known already needs no second line.
            self.conflict(path, ConflictKind::ParentGone);
        }
        Ok(there)
    }

    /// What can be done with entries of the directory that `path` is in; opens it for the commit if need be.
    fn parent_of(&mut self, path: &TreePath) -> Checked<Parent> {
        let free = Parent { writable: true, sticky: false };
        let Some(parent) = path.parent() else { return Ok(free) };
        match if self.made.contains(&parent) { None } else { self.origin(&parent) } {
            None => Ok(free),
            Some(origin) => self.inspect_parent(&origin),
        }
    }

    fn inspect_parent(&mut self, path: &TreePath) -> Checked<Parent> {
        if let Some(known) = self.parents.get(path) {
            return Ok(*known);
        }
        let io = |source| io_error("look at", path, source);
        let Some(node) = self.look(path)? else { return Ok(Parent { writable: false, sticky: false }) };
        let user = rustix::process::geteuid().as_raw();
        let sticky = node.mode & 0o1000 != 0 && user != 0 && user != node.uid;
        let held = self.tree.directory(path).map_err(io)?;
        let writable = is_writable(&*held) || self.open_if_needed(path, &node)?;
        // Should all be undone, this comes last: the directory's mtime is what it was.
        let (ino, old, new) = (node.ino, meta_of(&node, None), meta_of(&node, None));
        self.open.insert(0, Step::Open { path: path.clone(), ino, old, new });
        if let Some(after) = self.after(path) {
            // The task's own entries would have changed its mtime, and the delta would say so: what changes it is the
            // way in which files are replaced.
            let as_it_is = meta_of(&node, None);
            let (old, new) = (as_it_is.clone(), as_it_is);
            self.directories.push(Step::Attributes { path: after, ino: node.ino, old, new });
        }
        let known = Parent { writable, sticky };
        self.parents.insert(path.clone(), known);
        Ok(known)
    }

    /// Plans to move what is at `path` (before the commit) into a slot.
    fn take_away(&mut self, path: &TreePath, seen: Seen, beneath: Option<Digest>, moves: bool) -> Checked<Slot> {
        let parent = path.parent().unwrap_or_else(TreePath::root);
        self.inspect_parent(&parent)?;
        let folder = self.stages.folder_for(self.tree, &parent);
        let slot = self.stages.slot(folder.map_err(|source| io_error("make a staging folder for", path, source))?);
        self.detach.push(Step::Detach { path: path.clone(), slot, seen, beneath, moves });
        Ok(slot)
    }

    /// Makes a directory of this user's writable for the commit, if it is not. Tells whether it will be.
    fn open_if_needed(&mut self, path: &TreePath, node: &Node) -> Checked<bool> {
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

    /// A slot from which, and into which, an entry at `path` can be renamed.
    pub(crate) fn slot_for(&mut self, path: &TreePath) -> Checked<Slot> {
        let mut at = path.parent();
        while let Some(parent) = at {
            let origin = if self.made.contains(&parent) { None } else { self.origin(&parent) };
            if let Some(origin) = origin
                && self.look(&origin)?.is_some_and(|node| node.is_directory())
            {
                let folder = self.stages.folder_for(self.tree, &origin);
                let folder = folder.map_err(|source| io_error("make a staging folder for", path, source))?;
                return Ok(self.stages.slot(folder));
            }
            at = parent.parent();
        }
        Ok(self.stages.slot(0))
    }

    fn plan_written(
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
        if node.is_file() && self.must_stay(path, &node)? {
            return self.overwrite(path, slot, &node, attr, xattrs);
        }
        self.place_over(path, slot, &node)
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
        super::files::same_bytes(&staged, &there.into()).map_err(|source| io_error("compare", path, source))
    }

    pub(crate) fn place_new(&mut self, path: &TreePath, slot: Slot) -> Checked<()> {
        self.parent_of(path)?;
        let ino = self.staged_ino(path, slot)?;
        self.placed.insert(path.clone(), slot);
        self.place.push(Step::Place { path: path.clone(), slot, ino, over: None, moved: false });
        Ok(())
    }

    pub(crate) fn place_over(&mut self, path: &TreePath, slot: Slot, node: &Node) -> Checked<()> {
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
        super::files::copy_content(&from.into(), &copy).map_err(io)?;
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
        let origin = self.origin(path).unwrap_or_else(|| path.clone());
        let (old, new) = self.both_metas(&origin, node, attr, xattrs, kept_mode(attr.mode, node.mode))?;
        if old != new {
            self.attributes.push(Step::Attributes { path: path.clone(), ino: node.ino, old, new });
        }
        Ok(())
    }

    fn plan_attributes(&mut self, path: &TreePath, attr: &Attr, xattrs: &[Xattr], verdict: Verdict) -> Checked<()> {
        match verdict {
            Verdict::Unchanged(node) if node.is_file() => self.give_attributes(path, &node, attr, xattrs),
            // Others' new attributes only, or this very result: the last wins.
            Verdict::Changed(node, Some(stamp))
                if node.is_file()
                    && (stamp.same_content(&Stamp::of(&node))
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

    fn plan_appended(
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
        let (at, len) = (node.size, attr.size - from);
        self.append.push(Step::Append { path: path.clone(), slot, ino: node.ino, at, len, old, meta });
        Ok(())
    }

    /// Links, symbolic links and pipes.
    fn plan_other(&mut self, path: &TreePath, action: &Action, verdict: Verdict) -> Checked<()> {
        if let Verdict::BothMade(node) | Verdict::Changed(node, _) = &verdict
            && self.is_there_already(path, action, node)?
        {
            self.note(path, NoteKind::Identical);
            return Ok(());
        }
        let over = match verdict {
            Verdict::Fresh => None,
            Verdict::Unchanged(node) => Some(node),
            Verdict::BothMade(node) => {
                self.note(path, NoteKind::LastWins);
                Some(node)
            }
            Verdict::Changed(_, seen) => {
                self.conflict(path, changed_or_unknown(seen));
                return Ok(());
            }
            Verdict::Gone => {
                self.conflict(path, ConflictKind::Gone);
                return Ok(());
            }
        };
        let Some(slot) = self.make_other(path, action)? else { return Ok(()) };
        match over {
            Some(node) => self.place_over(path, slot, &node),
            None => self.place_new(path, slot),
        }
    }
}

fn changed_or_unknown(seen: Option<Stamp>) -> ConflictKind {
    if seen.is_some() { ConflictKind::Changed } else { ConflictKind::NoEvidence }
}

/// Mode bits for what exists already: set-id bits only where both have them.
fn kept_mode(wanted: u32, present: u32) -> u32 {
    (wanted & 0o1777) | (wanted & present & 0o6000)
}

/// The attributes that a change asks for.
pub(crate) fn meta(attr: &Attr, mode: u32) -> Meta {
    Meta { mode, uid: attr.uid, gid: attr.gid, mtime: attr.mtime, xattrs: None }
}

/// The attributes that are there.
fn meta_of(node: &Node, xattrs: Option<Vec<Xattr>>) -> Meta {
    Meta { mode: node.mode, uid: node.uid, gid: node.gid, mtime: node.mtime, xattrs }
}

/// Whether `path` is, or is in, a staging folder.
pub(crate) fn is_staging(path: &TreePath) -> bool {
    path.components().any(|name| name.starts_with(FOLDER_PREFIX))
}
