//! `gleaner completions`.

use crate::args::{Arguments, Completions};
use crate::error::Result;
use clap::CommandFactory;

/// Prints the completions for a shell.
pub fn run(arguments: Completions) -> Result {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "gleaner", &mut text);
    crate::render::print(&String::from_utf8_lossy(&text))
}
