//! `gleaner recover`.

use super::{ask, ask_and_print};
use crate::answers::Render;
use crate::args::Recover;
use crate::error::{CliError, Result};
use client::report::{Kept, Question, Recovered};
use std::io::{BufRead, IsTerminal, Write};
use std::path::Path;

/// Lists what is kept, writes one kept delta out, or commits it over what is there now.
pub fn run(arguments: Recover) -> Result {
    let Recover { task, commit, allow_write, into, list, json } = arguments;
    if list || (task.is_none() && into.is_none()) {
        return ask_and_print::<Kept>(&Question::Kept, json);
    }
    if let (Some(task), None, false) = (&task, &into, commit)
        && !agreed(task)?
    {
        return Err(CliError::user("nothing was committed"));
    }
    // The daemon has another working directory.
    let allow_write = allow_write.iter().map(|path| absolute("--allow-write", path)).collect::<Result<_>>()?;
    let into = into.map(|into| absolute("--into", &into)).transpose()?;
    ask_and_print::<Recovered>(&Question::Recover { task, into, allow_write }, json)
}

/// Shows what would be committed, and asks whether it shall.
fn agreed(task: &str) -> Result<bool> {
    let kept: Kept = ask(&Question::Kept)?;
    let delta = kept.kept.iter().find(|delta| delta.task.starts_with(task)).ok_or_else(|| {
        CliError::user(format!("nothing is kept of a task whose number starts with `{task}`"))
            .hint("gleaner recover lists what is kept")
    })?;
    if !std::io::stdin().is_terminal() {
        return Err(CliError::user("there is no terminal on which to ask whether it shall win over what is here now")
            .hint(format!("gleaner recover {task} --commit does not ask; --into FOLDER writes its files elsewhere")));
    }
    let question = "\nCommit this over what is here now? What it replaces is kept in its stead. [y/N] ";
    let mut out = std::io::stderr().lock();
    let mut answer = String::new();
    out.write_all((delta.render() + question).as_bytes())
        .and_then(|()| out.flush())
        .and_then(|()| std::io::stdin().lock().read_line(&mut answer))
        .map_err(|error| CliError::environment(format!("asking on the terminal: {error}")))?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

/// The path as the daemon must be told it.
fn absolute(option: &str, path: &Path) -> Result<String> {
    let absolute = std::path::absolute(path).map_err(|error| CliError::file("finding", path, error))?;
    absolute.into_os_string().into_string().map_err(|path| {
        CliError::user(format!("{option} {}: not UTF-8", base::path::printable(path.as_encoded_bytes())))
            .hint("choose a folder with a plain name")
    })
}
