//! What a task leaves behind: the set of files created, changed and removed.

use crate::attr::{Attr, Xattr};
use crate::binding::Content;
use crate::id::Seq;
use crate::path::TreePath;

/// All changes of one task: last writes, then renames, then removals, then the rest with parents before children.
///
/// Renames and removals speak of the tree as it was *before* the task and happen all at once: `from` and the path of a
/// removal are paths before, so that two files or directories can swap their names. The target of a rename and all paths of the
/// rest are paths *after* the task. A removed directory's entries are removals of their own, children before parents
/// (save what is renamed and those within a directory that is), so that what the task did not see there is never lost. A path can
/// be among the removals and among the rest: what was there goes, and something new comes. The path of a last write is one before,
/// and is among the removals.
///
/// No path occurs twice among the last writes, nor among the targets of renames, nor among removals, nor among the rest.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Delta {
    /// The changes.
    pub changes: Vec<Change>,
}

impl Delta {
    /// Where it makes something that was not there.
    pub fn made(&self) -> impl Iterator<Item = &TreePath> {
        let is_made = |change: &&Change| match change.action {
            Action::Rename { .. } => true,
            Action::Remove | Action::LastWrite { .. } => false,
            _ => change.base == Base::Absent,
        };
        self.changes.iter().filter(is_made).map(|change| &change.path)
    }
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Where.
    pub path: TreePath,
    /// What the task saw there before it changed it; for a rename, and beneath a renamed directory, what it saw at the
    /// path before.
    pub base: Base,
    /// What is to be done.
    pub action: Action,
}

/// What was at a path when the task first saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// Nothing: known from the directory's listing, or asked.
    Absent,
    /// The binding with this number.
    Bound(Seq),
}

/// What a task did at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Removed it. A directory's entries are removed or renamed away by changes of their own.
    Remove,
    /// Renamed what is at `from` to this path. What was at this path before is a removal or
    /// another rename.
    ///
    /// A directory moves with all beneath; changes beneath follow under the new path, and changed attributes of the
    /// directory itself (its mtime, say) as a [`Action::Directory`].
    ///
    /// Of a file this one name moves; it stays the same file, and its other names stay. What else changed of it follows
    /// as a [`Action::File`] at the new path whose base is the rename's.
    Rename {
        /// Its path before.
        from: TreePath,
    },
    /// Made a directory, or changed the attributes of one. What was there and is not a directory is replaced.
    Directory {
        /// Attributes to give it (mode, uid, gid, mtime).
        attr: Attr,
        /// `user.` attributes to give it; others of that kind are removed.
        xattrs: Vec<Xattr>,
        /// The task removed the directory that was here and made a new one: the old one is among the removals, too.
        replaces: bool,
    },
    /// Made a file, or gave one new contents or attributes. If the path is among the removals it is another file than
    /// before; else it is the same one, and all names it has show the change.
    File {
        /// Attributes to give it (mode, uid, gid, size, mtime).
        attr: Attr,
        /// `user.` attributes to give it; others of that kind are removed.
        xattrs: Vec<Xattr>,
        /// Its bytes; without meaning ([`Content::Empty`]) if only attributes changed, of what may be a link or pipe, too.
        content: Content,
        /// How its bytes relate to those that the task saw.
        change: FileChange,
    },
    /// Changed the file that had this name before the task, which lost the name: its other names, wherever they are, show the change.
    /// Of what may be a link or pipe, too, only attributes change.
    LastWrite {
        /// Attributes to give it, as of a [`Action::File`].
        attr: Attr,
        /// `user.` attributes to give it; others of that kind are removed.
        xattrs: Vec<Xattr>,
        /// All its bytes; without meaning if only attributes changed.
        content: Content,
        /// How its bytes relate to those that the task saw; never [`FileChange::Appended`].
        change: FileChange,
    },
    /// Made a symbolic link.
    Symlink {
        /// Attributes to give it (uid, gid, mtime).
        attr: Attr,
        /// Where it points.
        target: Vec<u8>,
    },
    /// Made another name for the file that this delta has at `to`, earlier in the list, or that was there before the
    /// task.
    HardLink {
        /// The other name, after the task.
        to: TreePath,
    },
    /// Made a named pipe.
    Fifo {
        /// Attributes to give it (mode, uid, gid, mtime).
        attr: Attr,
    },
}

impl Action {
    /// The attributes that it gives, if any.
    pub fn attr(&self) -> Option<&Attr> {
        match self {
            Self::Directory { attr, .. }
            | Self::File { attr, .. }
            | Self::LastWrite { attr, .. }
            | Self::Symlink { attr, .. }
            | Self::Fifo { attr } => Some(attr),
            Self::Remove | Self::Rename { .. } | Self::HardLink { .. } => None,
        }
    }

    /// The attributes that it gives, to be changed.
    pub fn attr_mut(&mut self) -> Option<&mut Attr> {
        match self {
            Self::Directory { attr, .. }
            | Self::File { attr, .. }
            | Self::LastWrite { attr, .. }
            | Self::Symlink { attr, .. }
            | Self::Fifo { attr } => Some(attr),
            Self::Remove | Self::Rename { .. } | Self::HardLink { .. } => None,
        }
    }

    /// Attributes, content, and how that changed, of what has the bytes of a file.
    pub fn file(&self) -> Option<(&Attr, &Content, FileChange)> {
        match self {
            Self::File { attr, content, change, .. } | Self::LastWrite { attr, content, change, .. } => {
                Some((attr, content, *change))
            }
            _ => None,
        }
    }
}

/// How a file's bytes relate to those that the task saw at the path before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// New, or written in any way.
    Written,
    /// The first `from` bytes are those that the task saw (all of them); the rest was added. Of a new file `from` is 0: the task made it
    /// to add to it, and adds to what others have made at the path meanwhile.
    Appended {
        /// Length before, in bytes.
        from: u64,
    },
    /// Only attributes or times changed: the bytes are those that the task saw.
    Attributes,
}
