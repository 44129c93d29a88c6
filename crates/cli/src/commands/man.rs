//! `gleaner man`.

use crate::args::{Arguments, Man};
use crate::error::{CliError, Result};
use clap::CommandFactory;

/// Writes a page for `gleaner` and one for each subcommand that is not hidden.
pub fn run(arguments: Man) -> Result {
    let dir = &arguments.dir;
    std::fs::create_dir_all(dir).map_err(|error| CliError::file("making", dir, error))?;
    clap_mangen::generate_to(Arguments::command(), dir).map_err(|error| CliError::file("writing into", dir, error))?;
    crate::render::say(&format!("manual pages written to {}", dir.display()));
    Ok(())
}
