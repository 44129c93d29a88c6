//! `gleaner run`: the same as `remrun`, which lies beside this program.

use crate::args::Run;
use crate::error::{CliError, Result};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Becomes `remrun`.
pub fn run(arguments: Run) -> Result {
    let own = std::fs::read_link("/proc/self/exe").ok();
    let beside = own.and_then(|exe| Some(exe.parent()?.join("remrun"))).filter(|remrun| remrun.exists());
    let program = beside.unwrap_or_else(|| "remrun".into());
    let error = Command::new(&program).arg0("remrun").args(arguments.arguments).exec();
    Err(CliError::file("starting", &program, error).hint("install remrun beside gleaner"))
}
