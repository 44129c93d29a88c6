//! The two programs that people type: `remrun CMD` runs one command elsewhere, `gleaner` makes and watches the pool.
//!
//! [`remrun`] and [`door`] hold no thread, no async runtime and no argument parser, so that the `remrun` binary, which is
//! linked from them alone, starts in about a millisecond. All else belongs to `gleaner`: [`args`] is its manual,
//! [`commands`] has a file for each subcommand, [`parts`] is the only place that calls hub, worker and client daemon.

pub mod answers;
pub mod args;
pub mod commands;
pub mod config;
pub mod detach;
pub mod door;
pub mod error;
pub mod logging;
pub mod parts;
pub mod remrun;
pub mod render;
pub mod resident;
