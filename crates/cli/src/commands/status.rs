//! `gleaner status`.

use crate::args::Json;
use crate::error::Result;
use client::report::{Question, Status};

/// Shows the pool.
pub fn run(arguments: Json) -> Result {
    super::ask_and_print::<Status>(&Question::Status, arguments.json)
}
