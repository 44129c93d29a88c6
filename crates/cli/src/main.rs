//! The `gleaner` binary.

#[cfg(all(target_env = "gnu", target_arch = "x86_64"))]
mod old_glibc;

use clap::Parser;
use cli::args::{Arguments, for_program, may_want_json, with_tip};
use std::process::ExitCode;

/// Runs before the start-up of the standard library, see [`cli::inherited`].
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = cli::inherited::note;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse().map_err(|error| with_tip(error, std::env::args_os())) {
        Ok(arguments) => arguments,
        // Help and version are no errors.
        Err(error) if error.use_stderr() && may_want_json(std::env::args_os()) => {
            return for_program(&error, std::env::args_os()).report_json();
        }
        Err(error) => error.exit(),
    };
    let wants_json = arguments.wants_json();
    match cli::commands::run(arguments) {
        Ok(status) => status,
        Err(error) if wants_json => error.report_json(),
        Err(error) => error.report(),
    }
}
