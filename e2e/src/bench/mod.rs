//! What a launch costs, measured in interleaved rounds, beside the same work run locally and by the peers that install here; and
//! what parts of the product can do by themselves, what owners notice of guests, and what forecasts are good for.

pub mod busy;
pub mod files;
pub mod forecast;
pub mod group;
pub mod guest;
pub mod launch;
pub mod library;
pub mod peers;
pub mod samples;
pub mod slow_link;
pub mod tasks;

pub use forecast::{SPIN_SUBCOMMAND, spin};
pub use guest::{LOAD_SUBCOMMAND, load};
pub use library::{SCAN_SUBCOMMAND, scan};
pub use slow_link::{CALLS_SUBCOMMAND, calls};
pub use tasks::{REPLAY_SUBCOMMAND, replay};

use crate::error::{Error, Result};
use crate::pool::{self, Pool};

/// What is measured, and how it is shown.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Figures as JSON on standard output, instead of a table.
    pub json: bool,
    /// Rounds; in each, every kind of launch once.
    pub rounds: usize,
    /// Whether coreutils is built as well (minutes).
    pub build: bool,
    /// Whether peers run beside us.
    pub peers: bool,
    /// Hub and worker in processes of their own, instead of one as `gleaner up` makes it.
    pub apart: bool,
    /// First uses alone, each beside warm uses on the same pool.
    pub cold_only: bool,
}

impl Options {
    /// The pool that is measured: one worker.
    fn pool(&self, cpus: usize) -> Result<pool::Options> {
        let options = if self.apart { pool::Options::new(1, cpus) } else { pool::Options::together(cpus) };
        // As it is where one's own machine is in one's own pool.
        Ok(pool::Options { guests: false, ..options? })
    }
}

/// Stops a pool; an error if it leaves anything behind.
fn stop(pool: Pool) -> Result<()> {
    let wrong = pool.stop(false)?;
    if wrong.is_empty() { Ok(()) } else { Err(Error::Product(format!("left behind: {}", wrong.join("; ")))) }
}
