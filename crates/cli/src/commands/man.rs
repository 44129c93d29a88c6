//! `gleaner man`.

use crate::args::{Arguments, Man, remrun};
use crate::error::{CliError, Result};
use clap::CommandFactory;

/// The page of the library for C, and the one that leads there.
const LIBRARY: [(&str, &str); 2] =
    [("gleaner.3", include_str!("../../../libgleaner/man/gleaner.3")), ("gleaner_run.3", ".so man3/gleaner.3\n")];

/// Writes a page for `gleaner`, one for each subcommand that is not hidden, that of `remrun`, and those of the library.
pub fn run(arguments: Man) -> Result {
    let dir = &arguments.dir;
    std::fs::create_dir_all(dir).map_err(|error| CliError::file("making", dir, error))?;
    clap_mangen::generate_to(Arguments::command(), dir).map_err(|error| CliError::file("writing into", dir, error))?;
    clap_mangen::generate_to(remrun::command(), dir).map_err(|error| CliError::file("writing into", dir, error))?;
    for (name, text) in LIBRARY {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(|error| CliError::file("writing", &path, error))?;
    }
    crate::render::say(&format!("manual pages written to {}", dir.display()));
    Ok(())
}
