//! The protocol of the mirrored file system: what a client's paths mean at each version of a view, what the kernel of a
//! worker was told of it, and what must be invalidated or asked.
//!
//! Nothing here knows FUSE, does I/O, reads a clock or starts a thread: the adapter in `worker` does.
//!
//! - [`View`]: the bindings of one view, on hub and worker.
//! - [`Lanes`]: all that one mount shows: lanes (subtrees, each one view at one version), nodes, listings.

mod advance;
mod answer;
mod cache;
mod evidence;
mod lane;
mod lanes;
mod node;
mod record;
mod view;

pub use answer::{
    Attributes, Fault, Invalidation, LaneNumber, Limits, Lookup, Names, NoLane, Shown, Source, Taken, shown_ino,
};
pub use cache::Cache;
pub use evidence::Evidence;
pub use lanes::Lanes;
pub use node::{NodeId, NodeShape, ROOT};
pub use view::{Applied, Cursor, Gap, LOG_MAX, View};
