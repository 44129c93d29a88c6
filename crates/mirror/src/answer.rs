//! What [`Lanes`](crate::Lanes) answers, and its limits.

use crate::node::{NodeId, NodeShape};
use base::{Attr, Content, Digest, Listing, Seq, TaskId, TreePath, Version, ViewId};
use std::sync::Arc;

/// Number of a lane within its mount: its root's name there. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneNumber(pub u64);

/// Bounds of what one mount keeps.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Names told to the kernel beyond which idle lanes are dropped, the least recently used first. At twice this,
    /// absences proved by listings are no longer left in the kernel's cache.
    pub names: usize,
    /// Lanes beyond which idle ones are dropped.
    pub lanes: usize,
    /// Views beyond which those without a lane are forgotten, the least recently used first.
    pub views: usize,
    /// Bytes of listings.
    pub listing_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { names: 400_000, lanes: 256, views: 1024, listing_bytes: 64 << 20 }
    }
}

/// A node with what a kernel is to know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The node.
    pub node: NodeId,
    /// The inode number to show: the client's, with a mark in bits 40 and up for files of its second and further file
    /// systems, since the mirror is one.
    pub ino: u64,
    /// Directory, file or link.
    pub shape: NodeShape,
    /// Attributes at the client.
    pub attr: Attr,
}

/// A path that must be asked of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The lane in which it is needed.
    pub lane: LaneNumber,
    /// The lane's view.
    pub view: ViewId,
    /// The first of the tasks that use the lane.
    pub task: TaskId,
    /// The path.
    pub path: TreePath,
}

/// The answer to a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The kernel may keep name and attributes for ever, and has one reference more to the node.
    Found(Shown),
    /// As `Found`, for the root of a lane whose attributes are not known yet: the kernel must ask for them. So nobody
    /// who waits for a lane's root holds up the directory of lanes.
    FoundRoot(NodeId),
    /// There is nothing of this name.
    Absent {
        /// The kernel may keep that.
        keep: bool,
    },
    /// `EACCES`: the policy keeps it at the client, or it is not a file, directory or link.
    Denied,
    /// The same in a directory that is closed to its own user at the client. The kernel asks, so a task has opened it since: only the
    /// client could look into it.
    Closed {
        /// The lane in which that is asked.
        lane: LaneNumber,
        /// The directory.
        path: TreePath,
    },
    /// The path must be bound ([`crate::Lanes::learn`]) first.
    Fault(Fault),
    /// The listing with this digest is needed ([`crate::Lanes::put_listing`]) first, in this lane.
    NeedsListing(LaneNumber, Digest),
    /// The directory is no longer in a lane that tasks use.
    Stale,
}

/// The answer to a question for attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attributes {
    /// The kernel may keep them for ever.
    Found(Shown),
    /// The path must be bound first.
    Fault(Fault),
    /// The node shows nothing any more.
    Stale,
}

/// The answer to a question for a directory's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    /// The names; the kernel may keep them for ever.
    Found {
        /// All names.
        listing: Arc<Listing>,
        /// The directory's own inode number, to show.
        ino: u64,
        /// The inode number of the directory above, to show.
        parent_ino: u64,
        /// What to combine with the entries' inode numbers to show them: see [`shown_ino`].
        ino_mark: u64,
    },
    /// The path must be bound first.
    Fault(Fault),
    /// The listing with this digest is needed first, in this lane.
    NeedsListing(LaneNumber, Digest),
    /// The client cannot list it, or it is too large.
    Unlistable {
        /// The lane in which that is asked.
        lane: LaneNumber,
        /// The directory.
        path: TreePath,
    },
    /// The node is no directory that tasks use.
    Stale,
}

/// Where the bytes of a file can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// A view that has the file.
    pub view: ViewId,
    /// A path of it there.
    pub path: TreePath,
    /// The binding of that path.
    pub seq: Seq,
    /// Its content.
    pub content: Content,
    /// Its length in bytes.
    pub size: u64,
}

/// What a kernel must be told to forget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// A name of a directory, or its absence, with all beneath.
    Entry {
        /// The directory.
        parent: NodeId,
        /// The name.
        name: Vec<u8>,
    },
    /// The attributes and the listing of a directory.
    Inode {
        /// The directory.
        node: NodeId,
    },
}

/// A lane given to a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The lane.
    pub lane: LaneNumber,
    /// What the kernel must forget before the task starts.
    pub invalidations: Vec<Invalidation>,
    /// Other tasks use it already.
    pub shared: bool,
}

/// Why a task gets no lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoLane {
    /// The view was never sent here, or was forgotten.
    #[error("view {} is not known: send the whole view", .0.0)]
    View(ViewId),
    /// The view is at another version.
    #[error("version {} of the view is not held, version {} is: apply the launch's view update first", wanted.0, held.0)]
    Version {
        /// The version asked for.
        wanted: Version,
        /// The version that is held.
        held: Version,
    },
}

/// Bits of an inode number that can be shown: an overlay of three file systems that keeps device numbers equal has the others for itself.
const INO_BITS: u32 = 61;

/// The inode number to show for `ino`, where `mark` tells devices apart. What file systems set of the highest bits (network and
/// FUSE file systems, overlays) is folded into lower ones.
pub fn shown_ino(ino: u64, mark: u64) -> u64 {
    let low = ino & ((1 << INO_BITS) - 1);
    // Beyond the bits of a mark.
    (low ^ ((ino >> INO_BITS) << 57)) ^ mark
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_inode_numbers_fit_and_stay_apart() {
        let numbers = [1, 1 << 40, u64::MAX, 1 << 63, (1 << 63) + 1, (1 << 62) + 1, (1 << 61) + 1, u64::MAX >> 1];
        let mut shown: Vec<u64> = numbers.iter().map(|ino| shown_ino(*ino, 3 << 40)).collect();
        assert!(shown.iter().all(|ino| ino >> INO_BITS == 0), "{shown:?}");
        assert_eq!(shown[0], 1 ^ (3 << 40));
        shown.sort_unstable();
        shown.dedup();
        assert_eq!(shown.len(), numbers.len());
    }
}
