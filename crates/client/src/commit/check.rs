//! From a delta and the tree as it is now to a plan, or to the conflicts between them.
//!
//! What the task saw (the evidence) is compared with what is there. Fine are: the same result there already; entries
//! that others added to a directory; a file that only grew, if the task only appended; a name that both made (the last
//! wins, and the report says so); removals of what is gone. Everything else that changed is a conflict.

use super::apply::io_error;
use super::error::{CommitError, Conflict, ConflictKind};
use super::place::Slots;
use super::plan::Step;
use super::policy::Allowed;
use super::stage::{FOLDER_PREFIX, Slot, Stages};
use super::stamp::Stamp;
use super::tree::{Meta, Node, Tree};
use super::{Contents, Evidence, Note, NoteKind};
use base::delta::FileChange;
use base::{Action, Attr, Base, Change, TreePath, Xattr};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// By how much the times that a file system gives lag behind the clock at most, in nanoseconds.
const CLOCK_TICK_NS: i64 = 20_000_000;

/// How what is at a path now relates to what the task saw there.
pub(super) enum Verdict {
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
pub(super) struct Parent {
    /// Whether its entries can be changed (once opened, if it is this user's).
    pub(super) writable: bool,
    /// Only owners may move entries away, and this user does not own the directory.
    pub(super) sticky: bool,
    /// Its time can be set to what it was, so that an exchange of entries leaves no trace in it.
    pub(super) owned: bool,
    /// Entries can be added only.
    pub(super) append_only: bool,
}

/// Makes the plan for one commit.
pub(crate) struct Planner<'a, 'b> {
    pub(super) tree: &'a Tree,
    pub(super) stages: &'a mut Stages<'b>,
    pub(super) evidence: &'a dyn Evidence,
    pub(super) contents: &'a dyn Contents,
    pub(super) changes: &'a [Cow<'a, Change>],
    /// Targets of renames and links that are to be copies.
    pub(super) copied: &'a HashSet<TreePath>,
    pub(super) staged: &'a Slots,
    pub(super) removed: HashMap<&'a TreePath, Base>,
    pub(super) renamed: HashMap<&'a TreePath, &'a TreePath>,
    pub(super) renamed_to: HashMap<&'a TreePath, &'a TreePath>,
    /// Directories that this commit makes.
    pub(super) made: HashSet<TreePath>,
    /// Those of them that hand their group down.
    pub(super) handing_down: HashSet<TreePath>,
    /// Whether directories, by what they are called now, hand access lists down.
    pub(super) lists: HashMap<TreePath, bool>,
    /// What is moved into place from where.
    pub(super) placed: HashMap<TreePath, Slot>,
    /// Files that are renamed.
    pub(super) moved_files: HashSet<&'a TreePath>,
    /// Renamed files that a rename cannot bring to where they go: what is copied there.
    pub(super) copies: HashMap<&'a TreePath, Slot>,
    /// Answers of [`Self::origin`].
    pub(super) origins: HashMap<TreePath, Option<TreePath>>,
    /// Directories, by what they are called now, that entries are moved into or out of.
    pub(super) parents: HashMap<TreePath, Parent>,
    /// Directories, by what they will be called, that are known to be there.
    pub(super) good_parents: HashSet<TreePath>,
    /// Directories (as they will be called) whose attributes the delta changes itself.
    pub(super) own_directories: HashSet<&'a TreePath>,
    /// Steps by kind, in the order in which they come.
    pub(super) open: Vec<Step>,
    pub(super) last_writes: Vec<Step>,
    pub(super) detach: Vec<Step>,
    pub(super) place: Vec<Step>,
    pub(super) write: Vec<Step>,
    pub(super) append: Vec<Step>,
    /// Appends to files that may only grow, which cannot be undone: after all that may fail.
    pub(super) append_only: Vec<Step>,
    pub(super) attributes: Vec<Step>,
    pub(super) directories: Vec<Step>,
    pub(super) conflicts: Vec<Conflict>,
    /// Where these are.
    pub(super) conflict_paths: HashSet<TreePath>,
    /// The folders above all changes, once that was asked.
    pub(super) above_changes: Option<HashSet<TreePath>>,
    pub(super) notes: Vec<Note>,
}

pub(super) type Checked<T> = Result<T, CommitError>;

impl<'a, 'b> Planner<'a, 'b> {
    /// A planner for the changes in `allowed`, whose new contents are staged in `staged`.
    pub(crate) fn new(
        tree: &'a Tree,
        stages: &'a mut Stages<'b>,
        (evidence, contents): (&'a dyn Evidence, &'a dyn Contents),
        allowed: &'a Allowed<'a>,
        staged: &'a Slots,
    ) -> Self {
        let changes = &allowed.changes;
        let mut removed = HashMap::new();
        let mut own_directories = HashSet::new();
        let (mut renamed, mut renamed_to) = (HashMap::new(), HashMap::new());
        for change in changes {
            match &change.action {
                Action::Remove => {
                    removed.insert(&change.path, change.base);
                }
                Action::Rename { from } => {
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
            contents,
            changes,
            copied: &allowed.copies,
            staged,
            removed,
            renamed,
            renamed_to,
            made: HashSet::new(),
            handing_down: HashSet::new(),
            lists: HashMap::new(),
            placed: HashMap::new(),
            moved_files: HashSet::new(),
            copies: HashMap::new(),
            origins: HashMap::new(),
            parents: HashMap::new(),
            good_parents: HashSet::new(),
            own_directories,
            open: Vec::new(),
            last_writes: Vec::new(),
            detach: Vec::new(),
            place: Vec::new(),
            write: Vec::new(),
            append: Vec::new(),
            append_only: Vec::new(),
            attributes: Vec::new(),
            directories: Vec::new(),
            conflicts: Vec::new(),
            conflict_paths: HashSet::new(),
            above_changes: None,
            notes: Vec::new(),
        }
    }

    /// Checks all changes and plans those that are needed.
    ///
    /// # Errors
    /// All conflicts, or the first failed system call.
    pub(crate) fn plan(&mut self) -> Checked<Vec<Step>> {
        self.plan_last_writes()?;
        self.plan_detached()?;
        for (index, change) in self.changes.iter().enumerate() {
            match change.action {
                Action::LastWrite { .. } | Action::Remove | Action::Rename { .. } => {}
                _ => self.plan_change(index, change)?,
            }
        }
        // Only now is it known which directories are made.
        for change in self.changes {
            if let Action::Rename { .. } = change.action
                && self.check_parent(&change.path)?
            {
                self.parent_of(&change.path)?;
            }
        }
        // As late as can be: a program here that has the lock now has not yet read what this commit writes.
        for path in self.evidence.kept_free() {
            let is_changed = self.changes.iter().any(|change| change.path == *path);
            if !is_changed && self.look_where_allowed(path)?.is_some() {
                self.conflict(path, ConflictKind::Made);
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
        steps.append(&mut self.last_writes);
        steps.append(&mut self.detach);
        let kinds = [
            &mut self.place,
            &mut self.write,
            &mut self.attributes,
            &mut self.append,
            &mut self.directories,
            &mut self.append_only,
        ];
        for kind in kinds {
            steps.append(kind);
        }
        Ok(steps)
    }

    pub(crate) fn conflict(&mut self, path: &TreePath, why: ConflictKind) {
        self.conflict_paths.insert(path.clone());
        self.conflicts.push(Conflict { path: path.clone(), why });
    }

    pub(crate) fn note(&mut self, path: &TreePath, kind: NoteKind) {
        self.notes.push(Note { path: path.clone(), kind });
    }

    pub(crate) fn look(&self, path: &TreePath) -> Checked<Option<Node>> {
        self.tree.node(path).map_err(|source| io_error("look at", path, source))
    }

    /// The same; nothing in a folder in which this user may not look, where a task of theirs cannot have made anything either.
    fn look_where_allowed(&self, path: &TreePath) -> Checked<Option<Node>> {
        match self.tree.node(path) {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(None),
            other => other.map_err(|source| io_error("look at", path, source)),
        }
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

    fn plan_change(&mut self, index: usize, change: &'a Change) -> Checked<()> {
        let path = &change.path;
        if let Action::Directory { attr, xattrs, replaces } = &change.action {
            return self.plan_directory(change, attr, xattrs, *replaces);
        }
        if !self.check_parent(path)? {
            return Ok(());
        }
        if self.was_to_be_seen(change)? {
            // Also if it is the same now: of two that count from nothing each has written 1.
            self.conflict(path, ConflictKind::Changed);
            return Ok(());
        }
        let verdict = self.verdict(change)?;
        if matches!(verdict, Verdict::Changed(..)) && self.is_made_alone(path, change.base) {
            self.conflict(path, ConflictKind::Made);
            return Ok(());
        }
        if let Verdict::Unchanged(node) | Verdict::BothMade(node) | Verdict::Changed(node, _) = &verdict
            && node.is_directory()
        {
            self.conflict(path, ConflictKind::DirectoryInTheWay);
            return Ok(());
        }
        match &change.action {
            Action::File { attr, xattrs, content, change: how } => match how {
                FileChange::Written => self.plan_written(index, path, attr, xattrs, verdict),
                FileChange::Appended { .. } if change.base == Base::Absent && matches!(verdict, Verdict::Fresh) => {
                    self.plan_written(index, path, attr, xattrs, verdict)
                }
                FileChange::Appended { .. }
                    if change.base == Base::Absent
                        && matches!(&verdict, Verdict::Changed(node, _) if self.is_older_than_task(node)) =>
                {
                    self.conflict(path, ConflictKind::NoEvidence);
                    Ok(())
                }
                FileChange::Appended { from } => {
                    let verdict = self.seen_by_content(path, content, *from, verdict)?;
                    self.plan_appended(index, path, attr, xattrs, *from, verdict)
                }
                FileChange::Attributes => self.plan_attributes(path, attr, xattrs, verdict),
            },
            action => self.plan_other(path, action, verdict),
        }
    }

    fn verdict(&mut self, change: &Change) -> Checked<Verdict> {
        let Some(origin) = self.origin(&change.path) else { return Ok(Verdict::Fresh) };
        let there = self.look(&origin)?;
        let may_replace_new = self.evidence.may_replace_new() && !self.evidence.is_locked(&change.path);
        Ok(match (change.base, there) {
            (Base::Absent, None) => Verdict::Fresh,
            (Base::Absent, Some(node)) if self.is_older_than_task(&node) => Verdict::Changed(node, None),
            (Base::Absent, Some(node)) if may_replace_new => Verdict::BothMade(node),
            (Base::Absent, Some(node)) => Verdict::Changed(node, None),
            (Base::Bound(_), None) => Verdict::Gone,
            (Base::Bound(seq), Some(node)) => match self.evidence.stamp_of(&origin, seq) {
                Some(stamp) if stamp == Stamp::of_node(&node) => Verdict::Unchanged(node),
                seen => Verdict::Changed(node, seen),
            },
        })
    }

    /// Whether `node` was there, as it is, before the task: then the task saw it, whatever its worker says.
    pub(super) fn is_older_than_task(&self, node: &Node) -> bool {
        self.evidence.seen_since().is_some_and(|since| node.ctime.plus(CLOCK_TICK_NS) < since)
    }

    /// Whether the task has locked something by making it at `path`, or holds it against others: what they have made there is not the same
    /// thing, however much it looks like it.
    pub(super) fn is_made_alone(&self, path: &TreePath, base: Base) -> bool {
        base == Base::Absent && self.evidence.is_locked(path)
    }

    /// Whether something was there when the task got its lock, which it did not see. (What is added to a file is added to what is there.)
    fn was_to_be_seen(&mut self, change: &Change) -> Checked<bool> {
        let adds = matches!(change.action, Action::File { change: FileChange::Appended { .. }, .. });
        let Some(since) = self.evidence.locked_since().filter(|_| !adds && change.base == Base::Absent) else {
            return Ok(false);
        };
        let Some(origin) = self.origin(&change.path) else { return Ok(false) };
        Ok(self.look(&origin)?.is_some_and(|there| there.ctime <= since))
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

pub(super) fn changed_or_unknown(seen: Option<Stamp>) -> ConflictKind {
    if seen.is_some() { ConflictKind::Changed } else { ConflictKind::NoEvidence }
}

/// Mode bits for what exists already: set-id bits only where both have them.
pub(super) fn kept_mode(wanted: u32, present: u32) -> u32 {
    (wanted & 0o1777) | (wanted & present & 0o6000)
}

/// The attributes that a change asks for.
pub(crate) fn meta(attr: &Attr, mode: u32) -> Meta {
    Meta { mode, uid: attr.uid, gid: attr.gid, mtime: attr.mtime, atime: attr.accessed.0, xattrs: None }
}

/// The attributes that are there, but for the time of the last access: reading moves it, and what it was is not put back.
pub(super) fn meta_of(node: &Node, xattrs: Option<Vec<Xattr>>) -> Meta {
    Meta { mode: node.mode, uid: node.uid, gid: node.gid, mtime: node.mtime, atime: None, xattrs }
}

/// Whether `path` is, or is in, a staging folder.
pub(crate) fn is_staging(path: &TreePath) -> bool {
    path.components().any(|name| name.starts_with(FOLDER_PREFIX))
}
