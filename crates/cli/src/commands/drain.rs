//! `gleaner drain`.

use crate::args::Drain;
use crate::error::Result;
use client::report::{Drained, Question};

/// Has a worker take no more tasks, or take them again.
pub fn run(arguments: Drain) -> Result {
    let question = Question::Drain { node: arguments.node, undo: arguments.undo };
    super::ask_and_print::<Drained>(&question, arguments.json)
}
