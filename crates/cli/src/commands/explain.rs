//! `gleaner explain`.

use crate::args::Explain;
use crate::error::Result;
use client::report::{Question, TaskReport};

/// Tells what became of a task, and why.
pub fn run(arguments: Explain) -> Result {
    super::ask_and_print::<TaskReport>(&Question::Explain { task: arguments.task }, arguments.json)
}
