//! The words that every part of Gleaner shares, as plain types: ids, digests, times, attributes, bindings, deltas,
//! commands, and the door through which `remrun` talks to the client daemon.
//!
//! Nothing here does I/O, reads a clock or knows a wire format. `wire` converts these types to messages at the edge.

pub mod attr;
pub mod basis;
pub mod batch;
pub mod binding;
pub mod codec;
pub mod command;
pub mod delta;
pub mod digest;
pub mod door;
pub mod id;
pub mod mount;
pub mod path;
pub mod tally;
pub mod time;
pub mod units;
pub mod view;
pub mod watch;
pub mod words;

pub use attr::{Accessed, Attr, Xattr};
pub use basis::{Basis, Listed, Mark};
pub use batch::{Batch, BatchTask, Priority};
pub use binding::{Binding, Content, Listing, ListingEntry, NodeKind, Piece, Recipe};
pub use command::{Command, ExitStatus, Limit, Needs, Output, Stdin, Usage, WindowSize};
pub use delta::{Action, Base, Change, Delta};
pub use digest::{Digest, Digester};
pub use id::{BatchId, JobId, NodeId, Seq, TaskId, Tenant, Version, ViewId};
pub use mount::Mount;
pub use path::TreePath;
pub use time::Time;
pub use view::{Bound, ViewUpdate};
pub use watch::Watch;

/// Largest block, in bytes: what one piece of a file, one listing or one recipe may measure on its own.
pub const BLOCK_BYTES_MAX: usize = 1 << 20;
/// Largest encoded listing or recipe, in bytes. A directory whose listing is larger is asked name by name.
pub const BLOB_BYTES_MAX: usize = 16 << 20;
/// Files larger than this are bound without being hashed, and fetched piece by piece as they are read.
pub const EAGER_FILE_BYTES_MAX: u64 = 4 << 20;
/// Length of the pieces of a lazily bound file, in bytes; the last piece is shorter.
pub const LAZY_PIECE_BYTES: u64 = 256 << 10;
