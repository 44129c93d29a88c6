//! A lane: a subtree of the mount that shows one view at one version, and what the kernel was told of it.

use crate::answer::LaneNumber;
use crate::evidence::{By, Evidence};
use crate::node::NodeId;
use base::{Digest, Seq, TaskId, TreePath, Version, ViewId};
use std::collections::HashMap;
use std::sync::Arc;

/// What the kernel was told of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// It is this node, by this binding.
    Node { node: NodeId, by: By },
    /// There is nothing: by a binding, or by the directory's listing.
    Absent { by: Option<By> },
    /// An error, which the kernel does not keep; recorded for what the task saw.
    Refused { by: By },
}

impl Told {
    /// The binding that it was told by; `None`: by the directory's own.
    pub(crate) fn by(&self) -> Option<By> {
        match self {
            Self::Node { by, .. } | Self::Refused { by } => Some(*by),
            Self::Absent { by } => *by,
        }
    }
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
    /// What the kernel was told since the lane was idle last, and of which it was told something else since; `None`: that was too much to
    /// be kept.
    pub(crate) past: Option<Vec<By>>,
    /// The names of the lazily bound files of which the kernel was told, by the numbers of their bindings.
    pub(crate) lazy: HashMap<Seq, Digest>,
    /// What its tasks rest on, while that is as it was when it was last asked.
    pub(crate) evidence: Option<Arc<Evidence>>,
}

impl Lane {
    pub(crate) fn is_idle(&self) -> bool {
        self.tasks.is_empty()
    }
}
