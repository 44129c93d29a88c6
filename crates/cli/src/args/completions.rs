//! `gleaner completions`.

use clap::{Args, ValueEnum};

/// `gleaner completions`.
#[derive(Clone, Copy, Debug, Args)]
pub struct Completions {
    /// The shell
    pub shell: clap_complete::Shell,
    /// Of which program
    #[arg(value_enum, default_value = "gleaner")]
    pub program: Program,
}

/// What is completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Program {
    /// Its subcommands and their options
    Gleaner,
    /// Its options, and the command that it runs
    Remrun,
}
