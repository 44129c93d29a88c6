//! The arguments of `gleaner bundle`.

use clap::Args;
use std::path::PathBuf;

/// `gleaner bundle`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = HELP)]
pub struct Bundle {
    /// The file to write; `-` for standard output. gleaner-bundle-TIME.tar.zst in this folder if not given
    pub file: Option<PathBuf>,
    /// Last lines of each log to take
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub lines: u32,
    /// Replace the names of users in the paths of homes
    #[arg(long)]
    pub hide_names: bool,
    /// Folder of what runs here, if it was started with another [env: GLEANER_STATE_DIR]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Print what was written, and what was left out, as JSON
    #[arg(long)]
    pub json: bool,
}

const HELP: &str = "\
In it: versions, kernel, the answers of doctor, status, top, tasks, jobs, guests and audit, settings, the names of variables, processes, \
memory, FUSE connections, processes that cannot be ended, the ends of the logs, and metrics. Nothing is sent anywhere.

Left out: keys, tokens, passwords, values of variables (but for gleaner's own), the arguments of commands, and whatever looks like one of these; \
of long numbers in hexadecimal the first 8 digits stay. left-out.json in it counts them. Look through it before you pass it on: tar --zstd -xf FILE";
