//! What tells one state of a file at the client from another.

use super::tree::Node;
pub use crate::snapshot::Stamp;
use base::Time;

impl Stamp {
    /// The stamp of what is open, or named, in `node`.
    pub(crate) fn of_node(node: &Node) -> Self {
        Self { dev: node.dev, ino: node.ino, size: node.size, mtime: node.mtime, ctime: node.ctime, mount: node.mount }
    }

    /// Whether content is the same in both as far as inode, size and mtime tell: attributes or names may differ.
    pub(crate) fn same_content(&self, other: &Self) -> bool {
        let of = |stamp: &Self| (stamp.dev, stamp.mount, stamp.ino, stamp.size, stamp.mtime);
        of(self) == of(other)
    }
}

/// What still compares after a file was renamed, which changes its ctime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Inode number.
    pub ino: u64,
    /// Length in bytes; 0 for directories, whose size is no sign.
    pub size: u64,
    /// Time of the last change of content; 0 for directories, whose entries are compared instead.
    pub mtime: Time,
}

impl Seen {
    /// What a later look at what goes will be compared with. Of what has other names nothing is lost with this one, and this very
    /// commit may write to it first: it counts by its inode alone.
    pub(crate) fn of_leaving(node: &Node) -> Self {
        match node.nlink > 1 {
            true => Self { ino: node.ino, size: 0, mtime: Time(0) },
            false => Self::of(node),
        }
    }

    /// Whether this is of what `node` is now.
    pub(crate) fn is_of(&self, node: &Node) -> bool {
        let by_inode = (self.size, self.mtime) == (0, Time(0));
        if by_inode { self.ino == node.ino } else { *self == Self::of(node) }
    }

    /// What a later look will be compared with.
    pub(crate) fn of(node: &Node) -> Self {
        match node.is_directory() {
            true => Self { ino: node.ino, size: 0, mtime: Time(0) },
            false => Self { ino: node.ino, size: node.size, mtime: node.mtime },
        }
    }
}
