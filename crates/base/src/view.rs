//! How a client tells hub and workers what its paths mean now.

use crate::binding::Binding;
use crate::id::{Seq, Version, ViewId};
use crate::path::TreePath;

/// The step of one view (the paths that one program uses) from one version to the next.
///
/// Every path that is in a view after the step was checked at the client after the launch that carries the step: what a
/// view says is true for that launch. What it does not say must be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewUpdate {
    /// Which view.
    pub view: ViewId,
    /// The version that this step starts from; 0: from nothing, and `set` is the whole view.
    pub base: Version,
    /// The version that it leads to; equal to `base` if nothing changed.
    pub version: Version,
    /// Paths that were added or changed, with what they are now.
    pub set: Vec<Bound>,
    /// Paths that are no longer in the view.
    pub drop: Vec<TreePath>,
}

/// A path with what it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The path.
    pub path: TreePath,
    /// Number of this binding.
    pub seq: Seq,
    /// What the path is.
    pub binding: Binding,
}
