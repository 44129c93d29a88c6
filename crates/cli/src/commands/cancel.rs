//! `gleaner cancel`.

use crate::args::TaskArgument;
use crate::error::Result;
use client::report::{Cancelled, Question};

/// Ends a task.
pub fn run(arguments: TaskArgument) -> Result {
    super::ask_and_print::<Cancelled>(&Question::Cancel { task: arguments.task }, arguments.json)
}
