//! The arguments of simulations.

use clap::{Args, Subcommand};

/// `gleaner sim`.
#[derive(Clone, Debug, Args)]
pub struct Sim {
    /// What is simulated.
    #[command(subcommand)]
    pub what: SimCommand,
}

/// What is simulated.
#[derive(Clone, Debug, Subcommand)]
pub enum SimCommand {
    /// Guests on owners' machines: to linger, or to leave when the owner comes back
    Linger(Linger),
}

/// `gleaner sim linger`.
#[derive(Clone, Copy, Debug, Args)]
#[command(after_long_help = HELP)]
pub struct Linger {
    /// Machines; the published figures are of 64
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub machines: u32,
    /// Worlds that are simulated for each figure
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub replicates: u32,
    /// The first world's seed; the next has the next one
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What help and manual say of it.
const HELP: &str = "\
Linger-Longer's study of sequential jobs (Ryu, Hollingsworth, 1998): W1 is 128 jobs of 600 s that are submitted at once, W2 16 jobs of 1800 s. LL lingers with the \
owner and moves when that pays, LF never moves, IE (Berkeley NOW) leaves at once, PM (Condor) waits for 60 s and leaves then.

For each measure: what is simulated here, the mean of all worlds and within how much of it the true mean lies nineteen times in twenty; what was published; \
and whether that lies where 95% of single worlds do. Owners' behaviour was fitted to the figures that were published, so that agreement alone proves little.";
