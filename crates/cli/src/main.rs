//! The `gleaner` binary.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = cli::args::Arguments::parse();
    match cli::commands::run(arguments) {
        Ok(status) => status,
        Err(error) => error.report(),
    }
}
