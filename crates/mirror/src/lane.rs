//! A lane: a subtree of the mount that shows one view at one version, and what the kernel was told of it.

use crate::answer::LaneNumber;
use crate::node::NodeId;
use base::{Seq, TaskId, TreePath, Version, ViewId};
use std::collections::HashMap;

/// What the kernel was told of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// It is this node, by the binding with this number.
    Node { node: NodeId, seq: Seq },
    /// There is nothing: by a binding, or by the directory's listing.
    Absent { seq: Option<Seq> },
    /// An error, which the kernel does not keep; recorded for what the task saw.
    Refused { seq: Seq },
}

/// One subtree.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) number: LaneNumber,
    pub(crate) view: ViewId,
    pub(crate) version: Version,
    /// Where the view was when the lane was last made true to it.
    pub(crate) position: u64,
    /// The tasks that use it now; idle without any.
    pub(crate) tasks: Vec<TaskId>,
    /// When it was last taken or released, on the counter of uses.
    pub(crate) used: u64,
    pub(crate) root: NodeId,
    /// Its directories by path.
    pub(crate) dirs: HashMap<TreePath, NodeId>,
    /// What the kernel was told of files with several names, by device and inode: all names of one lead to the same node.
    pub(crate) linked: HashMap<(u64, u64), NodeId>,
    /// Names that the kernel was told.
    pub(crate) names: usize,
    /// The kernel forgot directories while tasks ran.
    pub(crate) forgotten: bool,
}

impl Lane {
    pub(crate) fn is_idle(&self) -> bool {
        self.tasks.is_empty()
    }
}
