//! `gleaner completions`.

use crate::args::{Arguments, Completions, Program, remrun};
use crate::error::{CliError, Result};
use clap::CommandFactory;

/// Prints the completions for a shell.
pub fn run(arguments: Completions) -> Result {
    if arguments.program == Program::Remrun {
        let script = remrun::completions(arguments.shell).ok_or_else(|| {
            let message = format!("there are no completions of remrun for {}", arguments.shell);
            CliError::user(message).hint("there are some for bash, fish and zsh")
        })?;
        return crate::render::print(&script);
    }
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "gleaner", &mut text);
    crate::render::print(&String::from_utf8_lossy(&text))
}
