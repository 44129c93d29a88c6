//! Makes a kept delta fit the tree as it is now: what it says of the tree before is replaced by what is there, so that its
//! commit finds nothing changed. And makes the opposite: what brings back all that the commit takes away.
//!
//! The kept delta wins. Whatever stands where it has something is replaced; what it removes goes, with all that others put
//! into it since; directories that it needs and that are gone are made. What it says of files that it does not hold and
//! that are gone (a new name, say, or other attributes) is skipped.

use super::stored::name_of;
use crate::commit::apply::io_error;
use crate::commit::stage::names_in;
use crate::commit::tree::{self, Node, Tree};
use crate::commit::validate::committed_xattrs;
use crate::commit::{CommitError, Contents, Evidence, Measure, Stamp, files};
use base::delta::FileChange;
use base::{Action, Attr, Base, Change, Content, Delta, Seq, Time, TreePath};
use rustix::fs::{FileType, OFlags};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

type Fitting<T> = Result<T, CommitError>;

/// A kept delta as it is to be committed now.
pub(super) struct Fitted {
    /// The changes.
    pub delta: Delta,
    /// What is there now, where they say that something is.
    pub seen: Seen,
    /// What brings back what they take away; its contents are those at the paths of `undo_contents`.
    pub undo: Delta,
    /// Where contents of `undo` are now.
    pub undo_contents: HashMap<Content, TreePath>,
    /// Whether they take anything away.
    pub replaces: bool,
    /// Paths of changes that cannot be made any more.
    pub skipped: Vec<TreePath>,
}

/// What is there now: its stamp is among [`Seen`].
const NOW: Base = Base::Bound(Seq(1));

/// Stamps of what is there now.
#[derive(Default)]
pub(super) struct Seen(HashMap<TreePath, Stamp>);

impl Evidence for Seen {
    fn stamp_of(&self, path: &TreePath, _: Seq) -> Option<Stamp> {
        self.0.get(path).copied()
    }
}

/// Contents that are files of a tree.
pub(super) struct Named<'a> {
    pub tree: &'a Tree,
    pub names: &'a HashMap<Content, TreePath>,
}

impl Named<'_> {
    fn open(&self, content: &Content) -> io::Result<File> {
        let path = self.names.get(content).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.tree.open_file(path, OFlags::RDONLY)?.into())
    }
}

impl Contents for Named<'_> {
    fn measure(&self, content: &Content) -> io::Result<Measure> {
        if *content == Content::Empty {
            return Ok(Measure::default());
        }
        let metadata = self.open(content)?.metadata()?;
        Ok(Measure { len: metadata.len(), data: metadata.len().min(metadata.blocks().saturating_mul(512)) })
    }

    fn write_to(&self, content: &Content, file: &File) -> io::Result<()> {
        files::copy_content(&self.open(content)?, file)
    }

    fn append_to(&self, content: &Content, from: u64, file: &File) -> io::Result<()> {
        let whole = self.open(content)?;
        let len = whole.metadata()?.len();
        files::append_content(&whole, file, from, file.metadata()?.len(), len)
    }

    fn begins_as(&self, content: &Content, from: u64, file: &File) -> io::Result<bool> {
        files::same_beginning(&self.open(content)?, file, from)
    }
}

/// Fits `delta`, whose contents are `kept`, to `tree`.
///
/// # Errors
/// If something is in the way that cannot be kept, or cannot be looked at.
pub(super) fn fit(tree: &Tree, delta: &Delta, kept: &Named<'_>, now: Time) -> Fitting<Fitted> {
    let mut fit = Fit {
        tree,
        kept,
        now,
        renamed: BTreeMap::new(),
        renamed_to: BTreeMap::new(),
        removed: BTreeSet::new(),
        rest: Vec::new(),
        made: HashSet::new(),
        seen: Seen::default(),
        restored: BTreeMap::new(),
        unmade: Vec::new(),
        undo_contents: HashMap::new(),
        replaces: false,
        skipped: Vec::new(),
    };
    for change in &delta.changes {
        match &change.action {
            Action::Rename { from } => fit.fit_rename(from, &change.path)?,
            Action::Remove => fit.remove(&change.path)?,
            _ => {}
        }
    }
    for change in &delta.changes {
        match &change.action {
            Action::Rename { .. } | Action::Remove => {}
            // Its other names are not known.
            Action::LastWrite { .. } => fit.skipped.push(change.path.clone()),
            action => fit.fit_change(&change.path, action)?,
        }
    }
    let targets: Vec<TreePath> = fit.renamed_to.keys().cloned().collect();
    targets.iter().try_for_each(|to| fit.clear_for_rename(to))?;
    Ok(fit.finish())
}

struct Fit<'a> {
    tree: &'a Tree,
    kept: &'a Named<'a>,
    now: Time,
    renamed: BTreeMap<TreePath, TreePath>,
    renamed_to: BTreeMap<TreePath, TreePath>,
    removed: BTreeSet<TreePath>,
    rest: Vec<Change>,
    /// Paths at which `rest` makes something.
    made: HashSet<TreePath>,
    seen: Seen,
    /// What is at paths now, as the undoing change puts it back.
    restored: BTreeMap<TreePath, Action>,
    /// Paths at which nothing is now, and something will be.
    unmade: Vec<TreePath>,
    undo_contents: HashMap<Content, TreePath>,
    replaces: bool,
    skipped: Vec<TreePath>,
}

impl Fit<'_> {
    fn look(&self, path: &TreePath) -> Fitting<Option<Node>> {
        self.tree.node(path).map_err(|source| io_error("look at", path, source))
    }

    /// Where `path` (of the tree after the commit) is now; `None` if what is there goes away.
    fn origin(&self, path: &TreePath) -> Option<TreePath> {
        if let Some(from) = self.renamed_to.get(path) {
            return Some(from.clone());
        }
        let Some(parent) = path.parent() else { return Some(path.clone()) };
        let here = self.origin(&parent)?.join(path.name());
        (!self.removed.contains(&here) && !self.renamed.contains_key(&here)).then_some(here)
    }

    /// What is now where `path` will be, with its path now.
    fn there(&self, path: &TreePath) -> Fitting<Option<(TreePath, Node)>> {
        let Some(here) = self.origin(path) else { return Ok(None) };
        Ok(self.look(&here)?.map(|node| (here, node)))
    }

    fn fit_rename(&mut self, from: &TreePath, to: &TreePath) -> Fitting<()> {
        match self.look(from)? {
            Some(node) => {
                self.seen.0.insert(from.clone(), Stamp::of_node(&node));
                self.renamed.insert(from.clone(), to.clone());
                self.renamed_to.insert(to.clone(), from.clone());
            }
            None => self.skipped.push(to.clone()),
        }
        Ok(())
    }

    /// Makes room for what is renamed to `to`.
    fn clear_for_rename(&mut self, to: &TreePath) -> Fitting<()> {
        self.make_parents(to)?;
        let Some(parent) = to.parent().and_then(|parent| self.origin(&parent)) else { return Ok(()) };
        let here = parent.join(to.name());
        match self.renamed.contains_key(&here) {
            true => Ok(()),
            false => self.remove(&here),
        }
    }

    /// Plans that what is at `path` now goes, with all beneath but what is renamed.
    fn remove(&mut self, path: &TreePath) -> Fitting<()> {
        let mut open = vec![path.clone()];
        while let Some(path) = open.pop() {
            if self.renamed.contains_key(&path) || self.removed.contains(&path) {
                continue;
            }
            let Some(node) = self.look(&path)? else { continue };
            let action = self.as_it_is(&path, &node)?;
            self.restored.insert(path.clone(), action);
            self.replaces = true;
            self.seen.0.insert(path.clone(), Stamp::of_node(&node));
            if node.is_directory() {
                let io = |source| io_error("list", &path, source);
                let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                let held = self.tree.open_file(&path, flags).map_err(io)?;
                open.extend(names_in(&held).map_err(io)?.iter().map(|name| path.join(name)));
            }
            self.removed.insert(path);
        }
        Ok(())
    }

    /// The change that makes what is at `path` now.
    fn as_it_is(&mut self, path: &TreePath, node: &Node) -> Fitting<Action> {
        let io = |source| io_error("look at", path, source);
        let attr = Attr {
            mode: node.mode & 0o1777,
            uid: node.uid,
            gid: node.gid,
            size: node.size,
            mtime: node.mtime,
            accessed: base::Accessed(Some(node.atime)),
            ..Attr::default()
        };
        Ok(match node.kind {
            FileType::RegularFile => {
                let xattrs = self.xattrs(path)?;
                let content = name_of(path, node.size);
                self.undo_contents.insert(content, path.clone());
                Action::File { attr, xattrs, content, change: FileChange::Written }
            }
            FileType::Directory => Action::Directory { attr, xattrs: self.xattrs(path)?, replaces: false },
            FileType::Symlink => {
                let parent = self.tree.parent(path).map_err(io)?;
                let target = rustix::fs::readlinkat(&*parent, tree::os(path.name()), Vec::new());
                Action::Symlink { attr, target: target.map_err(|error| io(error.into()))?.into_bytes() }
            }
            FileType::Fifo => Action::Fifo { attr },
            _ => {
                let source = io::Error::other("it is a socket or device, which cannot be kept: remove it first");
                return Err(io_error("replace", path, source));
            }
        })
    }

    fn xattrs(&self, path: &TreePath) -> Fitting<Vec<base::Xattr>> {
        let found = self.tree.hold(path).and_then(|held| tree::xattrs_of(&held));
        found.map(|xattrs| committed_xattrs(&xattrs)).map_err(|source| io_error("look at", path, source))
    }

    /// Makes the directories above `path` that will not be there.
    fn make_parents(&mut self, path: &TreePath) -> Fitting<()> {
        let mut missing = Vec::new();
        let mut at = path.parent();
        while let Some(parent) = at.filter(|parent| !parent.is_root() && !self.made.contains(parent)) {
            match self.there(&parent)? {
                Some((_, node)) if node.is_directory() => break,
                Some((here, _)) => self.remove(&here)?,
                None => {}
            }
            at = parent.parent();
            missing.push(parent);
        }
        let attr = Attr {
            mode: 0o755,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            mtime: self.now,
            ..Attr::default()
        };
        for path in missing.into_iter().rev() {
            self.push(path, Base::Absent, Action::Directory { attr, xattrs: Vec::new(), replaces: false });
        }
        Ok(())
    }

    /// Adds a change of the rest. What it makes where nothing is must be undone by removing it.
    fn push(&mut self, path: TreePath, base: Base, action: Action) {
        self.made.insert(path.clone());
        if base == Base::Absent {
            self.unmade.push(path.clone());
        }
        self.rest.push(Change { path, base, action });
    }

    fn fit_change(&mut self, path: &TreePath, action: &Action) -> Fitting<()> {
        let directory = matches!(action, Action::Directory { .. });
        let mut there = self.there(path)?;
        let only_attributes = matches!(action, Action::File { change: FileChange::Attributes, .. });
        if only_attributes && !there.as_ref().is_some_and(|(_, node)| node.is_file()) {
            self.skipped.push(path.clone());
            return Ok(());
        }
        if let Action::HardLink { to } = action
            && !self.is_linkable(to)?
        {
            self.skipped.push(path.clone());
            return Ok(());
        }
        self.make_parents(path)?;
        if let Some((here, node)) = &there
            && node.is_directory() != directory
        {
            self.remove(here)?;
            there = None;
        }
        let mut action = action.clone();
        match &mut action {
            // The old directory, if it is there still, is among what is removed.
            Action::Directory { replaces, .. } => *replaces = false,
            Action::File { change, content, .. } => {
                if let FileChange::Appended { from } = *change
                    && !self.begins_alike(there.as_ref(), content, from)
                {
                    *change = FileChange::Written;
                }
            }
            _ => {}
        }
        let base = if there.is_some() { NOW } else { Base::Absent };
        if let Some((here, node)) = there {
            self.restore(&here, &node, &action)?;
            let mut stamp = Stamp::of_node(&node);
            if matches!(action, Action::File { change: FileChange::Appended { from }, .. } if from < node.size) {
                // Others added to it: the check must know it as changed, so that this part is added after theirs.
                stamp.ctime = Time(0);
            }
            self.seen.0.insert(here, stamp);
        }
        self.push(path.clone(), base, action);
        Ok(())
    }

    /// Notes what undoes `action` where `node` is now.
    fn restore(&mut self, here: &TreePath, node: &Node, action: &Action) -> Fitting<()> {
        let mut before = self.as_it_is(here, node)?;
        match (&mut before, action) {
            (Action::File { change, content, .. }, Action::File { change: FileChange::Attributes, .. }) => {
                (*change, *content) = (FileChange::Attributes, Content::Empty);
                self.replaces = true;
            }
            // Of a directory only the attributes are given, which is no loss.
            (Action::Directory { .. }, _) => {}
            _ => self.replaces = true,
        }
        self.restored.insert(here.clone(), before);
        Ok(())
    }

    /// Whether there will be something at `to` that can have another name.
    fn is_linkable(&self, to: &TreePath) -> Fitting<bool> {
        Ok(self.made.contains(to) || self.there(to)?.is_some_and(|(_, node)| !node.is_directory()))
    }

    /// Whether the file that is there begins with the first `from` bytes of the kept one, so that the rest can be added.
    fn begins_alike(&self, there: Option<&(TreePath, Node)>, content: &Content, from: u64) -> bool {
        let Some((here, _)) = there.filter(|(_, node)| node.is_file() && node.size >= from) else { return false };
        if from == 0 {
            return true;
        }
        let (Ok(one), Ok(other)) = (self.tree.open_file(here, OFlags::RDONLY), self.kept.open(content)) else {
            return false;
        };
        files::same_beginning(&one.into(), &other, from).unwrap_or(false)
    }

    fn finish(self) -> Fitted {
        let deepest_first = |paths: &mut Vec<TreePath>| {
            paths.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
        };
        let change = |path, base, action| Change { path, base, action };
        let mut removed: Vec<TreePath> = self.removed.into_iter().collect();
        deepest_first(&mut removed);
        let mut unmade = self.unmade;
        deepest_first(&mut unmade);
        let renames = self.renamed.iter().map(|(from, to)| (from.clone(), to.clone()));
        let moved = |(from, to)| change(to, NOW, Action::Rename { from });
        let gone = |path| change(path, NOW, Action::Remove);
        let changes = renames.clone().map(moved).chain(removed.into_iter().map(gone)).chain(self.rest).collect();
        // Paths sorted by their bytes have parents before children.
        let back = self.restored.into_iter().map(|(path, action)| change(path, NOW, action));
        let undo = renames.map(|(from, to)| moved((to, from))).chain(unmade.into_iter().map(gone)).chain(back);
        let mut skipped = self.skipped;
        skipped.sort();
        skipped.dedup();
        Fitted {
            delta: Delta { changes },
            seen: self.seen,
            undo: Delta { changes: undo.collect() },
            undo_contents: self.undo_contents,
            replaces: self.replaces,
            skipped,
        }
    }
}
