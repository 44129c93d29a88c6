//! `gleaner recover`.

use crate::args::Recover;
use crate::error::{CliError, Result};
use client::report::{Kept, Question, Recovered};

/// Lists what is kept, or writes one kept delta out.
pub fn run(arguments: Recover) -> Result {
    if arguments.list {
        return super::ask_and_print::<Kept>(&Question::Kept, arguments.json);
    }
    // The daemon has another working directory.
    let into = arguments.into.map(|into| {
        let absolute = std::path::absolute(&into).map_err(|error| CliError::file("finding", &into, error))?;
        absolute.into_os_string().into_string().map_err(|path| {
            CliError::user(format!("--into {}: not UTF-8", base::path::printable(path.as_encoded_bytes())))
                .hint("choose a folder with a plain name")
        })
    });
    let question = Question::Recover { task: arguments.task, into: into.transpose()? };
    super::ask_and_print::<Recovered>(&question, arguments.json)
}
