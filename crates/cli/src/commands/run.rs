//! `gleaner run`: one command, as `remrun` (which lies beside this program) runs it, or the many of a job.

use crate::args::Run;
use crate::error::{CliError, Result};
use crate::inherited;
use crate::job;
use crate::job::source::Typed;
use crate::remrun::local;
use crate::render;
use client::program::remrun;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

/// Runs a job if there are several commands, else becomes `remrun`.
pub fn run(arguments: Run) -> Result<ExitCode> {
    let typed = Typed::new(arguments.command.iter().cloned().map(OsStringExt::into_vec));
    if arguments.job.is_some() || !typed.lists.is_empty() {
        if arguments.race {
            return Err(CliError::user("--race is for single commands").hint("gleaner run --race COMMAND"));
        }
        return job::run(&arguments, typed);
    }
    if arguments.command.is_empty() {
        return Err(CliError::user("no command given").hint("gleaner run --help"));
    }
    if arguments.jobs.is_some() || arguments.retries > 0 || arguments.keep_order || arguments.json {
        let what = "--jobs, --retries, --keep-order and --json are for jobs";
        return Err(CliError::user(what).hint("gleaner run --job FILE, or gleaner run COMMAND ::: ARGUMENT..."));
    }
    if arguments.no_remote && !arguments.needs.tag.is_empty() {
        return Err(CliError::user("--tag asks for another machine, which --no-remote forbids").hint("leave one out"));
    }
    if arguments.no_remote {
        return Ok(become_command(arguments.command));
    }
    let mut words: Vec<OsString> = vec![remrun(), "--cpus".into(), arguments.cpus.to_string().into()];
    words.extend(arguments.needs.memory.into_iter().flat_map(|mib| ["--memory".into(), format!("{mib}M").into()]));
    words.extend(arguments.needs.tag.iter().flat_map(|tag| ["--tag".into(), tag.into()]));
    words.extend(arguments.no_local.then(|| "--no-local".into()));
    words.extend(arguments.race.then(|| "--race".into()));
    words.extend(arguments.verbose.then(|| "--verbose".into()));
    for path in arguments.allow_write {
        words.extend(["--allow-write".into(), path.into()]);
    }
    words.push("--".into());
    words.extend(arguments.command);
    Ok(become_command(words))
}

/// Becomes this command, with the streams and signals that this process was given. Returns how it ends if that fails.
fn become_command(words: Vec<OsString>) -> ExitCode {
    inherited::hand_on();
    let words: Vec<Vec<u8>> = words.into_iter().map(OsStringExt::into_vec).collect();
    let (what, status) = local::become_command(&words);
    render::say(&what);
    status.into()
}
