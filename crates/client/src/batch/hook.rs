//! Commands that a job's owner has named, which run here: in the surroundings of the job's tasks, and what they say goes to a log in its
//! folder.

use super::job::Job;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::Command;

/// How long one may take.
const TIME_MAX: Duration = Duration::from_secs(3600);
/// What all of them have said may take so much; then it is begun anew.
const LOG_BYTES_MAX: u64 = 16 << 20;

/// A program in the surroundings of a job's tasks, which is told of which task it is run.
pub(super) fn command(job: &Job, index: u32, program: impl AsRef<OsStr>) -> Command {
    let surroundings = &job.spec.batch.surroundings;
    let id = job.id().to_hex();
    let mut command = Command::new(program);
    command.current_dir(OsStr::from_bytes(&surroundings.cwd)).env_clear();
    for entry in &surroundings.env {
        if let Some(at) = entry.iter().position(|byte| *byte == b'=').filter(|at| *at > 0) {
            command.env(OsStr::from_bytes(&entry[..at]), OsStr::from_bytes(&entry[at + 1..]));
        }
    }
    command.env("GLEANER_KEY", format!("{id}/{index}")).env("GLEANER_JOB", id).env("GLEANER_INDEX", index.to_string());
    command
}

/// Runs a command to its end. The error is what became of it, as what follows its name in a sentence.
pub(super) async fn run(job: &Job, mut command: Command, log: &str) -> Result<ExitStatus, String> {
    let no_log = |error| format!("has no log: {error}");
    let log = open_log(job, log).map_err(no_log)?;
    let again = log.try_clone().map_err(no_log)?;
    command.stdin(Stdio::null()).stdout(log).stderr(again).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| format!("cannot be started: {error}"))?;
    match tokio::time::timeout(TIME_MAX, child.wait()).await {
        Ok(status) => status.map_err(|error| format!("cannot be waited for: {error}")),
        Err(_) => Err(format!("took longer than {} s", TIME_MAX.as_secs())),
    }
}

fn open_log(job: &Job, name: &str) -> std::io::Result<File> {
    let path = job.folder().join(name);
    let is_full = std::fs::metadata(&path).is_ok_and(|found| found.len() > LOG_BYTES_MAX);
    if is_full {
        std::fs::remove_file(&path)?;
    }
    File::options().append(true).create(true).mode(0o600).open(path)
}
