//! `gleaner tasks`.

use crate::args::Json;
use crate::error::Result;
use client::report::{Question, Tasks};

/// Lists the tasks.
pub fn run(arguments: Json) -> Result {
    super::ask_and_print::<Tasks>(&Question::Tasks, arguments.json)
}
