//! The worker: runs tasks on machines that have none of their files.
//!
//! The way of a task: [`net`] gets the launch, [`task`] prepares and attends it, [`sandbox`] runs its processes on a lane
//! of the client's [`fuse`] mirror under an overlay, [`delta`] reads what it left behind, [`result`] keeps the contents
//! for whoever asks.
//!
//! * [`clients`]: whose tasks run here, their [`mirrors`] and user ids; [`cpus`]: which processors each task is to use.
//! * `request`: a launch, checked; `progress`: how far its task has come; `out`: what it says.
//! * [`scratch`]: where tasks write; [`room`]: whether there is room; [`charge`]: what each takes and may take; [`trees`]: removing what they left.
//! * [`content`]: where a mirror's bytes come from.
//! * [`host`]: what this machine has to spare, and what its owner is spared.
//! * [`network`]: the network of a task that may have one. [`own_share`]: what part of the processors its owner's own tasks get.
//! * [`signatures`]: whose launches begin here, and whose their results are.
//! * [`good_bye`]: what becomes of them when the worker is told to end, or its machine goes to [`sleep`].
//! * [`streams`], [`demand`], `pumps`: standard input and output; `stream_waits`: tasks that only wait for these; `unconfirmed`: signals that
//!   are not yet with the program.

pub mod backlog;
pub mod charge;
pub mod clients;
pub mod content;
pub mod cpus;
pub mod delta;
pub mod demand;
mod feeding;
pub mod fuse;
pub mod good_bye;
pub mod host;
pub mod ids;
mod lane;
pub mod mirrors;
pub mod net;
pub mod network;
mod out;
pub mod own_share;
mod progress;
mod pumps;
mod request;
pub mod result;
pub mod room;
pub mod sandbox;
pub mod scratch;
pub mod signatures;
pub mod sleep;
mod stream_waits;
pub mod streams;
pub mod task;
pub mod trees;
pub mod troubles;
mod unconfirmed;
