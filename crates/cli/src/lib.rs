//! The two programs that people type: `remrun CMD` runs one command elsewhere, `gleaner` makes and watches the pool.
//!
//! [`remrun`] and the door of `gleaner_client` hold no thread, no async runtime and no argument parser, so that the `remrun` binary,
//! which is linked from them alone, starts in about a millisecond. All else belongs to `gleaner`: [`args`] is its manual,
//! [`commands`] has a file for each subcommand, [`job`] runs many commands, [`parts`] is the only place that calls hub, worker and client daemon,
//! and [`whereabouts`] knows where hubs are.

pub mod answers;
pub mod args;
pub mod commands;
pub mod config;
pub mod detach;
pub mod error;
pub mod inherited;
pub mod job;
pub mod logging;
pub mod machine;
pub mod own_files;
pub mod parts;
pub mod remrun;
pub mod render;
pub mod resident;
pub mod whereabouts;
