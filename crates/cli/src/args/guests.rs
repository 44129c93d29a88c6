//! The arguments of what an owner says to the worker of his machine.

use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// `gleaner guests` and `gleaner resume`.
#[derive(Clone, Debug, Args)]
pub struct Guests {
    /// Folder of the worker, if it was started with another [env: GLEANER_STATE_DIR]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `gleaner pause`.
#[derive(Clone, Debug, Args)]
pub struct Pause {
    /// For how long, such as 90s, 20m or 2h; until `gleaner resume` if not given. It holds also if the worker starts again
    #[arg(value_name = "TIME", value_parser = super::times::duration)]
    pub time: Option<Duration>,
    /// Have guests leave, rather than wait here: they are done again elsewhere, and give their memory back
    #[arg(long)]
    pub evict: bool,
    /// Of which worker.
    #[command(flatten)]
    pub guests: Guests,
}
