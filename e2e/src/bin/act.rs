//! The actor of the differential harness by chance, as a program of its own: it must be small, for each program of the harness starts it.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(e2e::differ::actor::main(std::env::args_os().skip(1)))
}
