//! What is run here after each task of a job has ended, as its owner said: at least once, and until it ends well.

use super::collect::Collector;
use super::job::Job;
use super::log::End;
use crate::serve::blocking_io;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// Pauses between tries: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// How long one may take.
const TIME_MAX: Duration = Duration::from_secs(3600);
/// What all of them have said may take so much; then it is begun anew.
const LOG_BYTES_MAX: u64 = 16 << 20;

/// Runs what is to be run after a task, until it ends well or the job is given up. The error: that cannot be written down.
pub(super) async fn assimilate(collector: &Collector, index: u32) -> Result<(), String> {
    let job = &collector.way.job;
    let Some(line) = &job.spec.batch.assimilate else { return Ok(()) };
    let Some(end) = job.end(index) else { return Ok(()) };
    let mut pause = PAUSE_MIN;
    loop {
        let slot = collector.hooks.acquire().await.map_err(|error| error.to_string())?;
        let ran = run(job, line, &end).await;
        drop(slot);
        match ran {
            Ok(()) => break,
            Err(why) => {
                let log = log_path(job);
                let why = format!("--assimilate {why} (see {}); tried again in {} s", log.display(), pause.as_secs());
                tracing::info!(job = %job.id(), index, why, "a task is not assimilated");
                job.trouble(index, &why);
            }
        }
        if job.wanted().borrow().cancelled.is_some() {
            return Ok(());
        }
        if tokio::time::timeout(pause, collector.way.joined.connection.closed()).await.is_ok() {
            return Err("the connection to the hub ended".into());
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
    let job = job.clone();
    let written = blocking_io(move || job.assimilated(index)).await;
    written.map_err(|error| format!("writing a job's log: {error}"))
}

fn log_path(job: &Job) -> PathBuf {
    job.folder().join("assimilate.log")
}

/// One try. The error is what became of it, as what follows its name in a sentence.
async fn run(job: &Job, line: &[u8], end: &End) -> Result<(), String> {
    let log = log(job).map_err(|error| format!("has no log: {error}"))?;
    let again = log.try_clone().map_err(|error| format!("has no log: {error}"))?;
    let mut command = command(job, line, end);
    command.stdin(Stdio::null()).stdout(log).stderr(again).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| format!("cannot be started: {error}"))?;
    match tokio::time::timeout(TIME_MAX, child.wait()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("failed ({status})")),
        Ok(Err(error)) => Err(format!("cannot be waited for: {error}")),
        Err(_) => Err(format!("took longer than {} s", TIME_MAX.as_secs())),
    }
}

fn log(job: &Job) -> std::io::Result<File> {
    let path = log_path(job);
    let is_full = std::fs::metadata(&path).is_ok_and(|found| found.len() > LOG_BYTES_MAX);
    if is_full {
        std::fs::remove_file(&path)?;
    }
    File::options().append(true).create(true).mode(0o600).open(path)
}

fn command(job: &Job, line: &[u8], end: &End) -> Command {
    let surroundings = &job.spec.batch.surroundings;
    let (id, index) = (job.id().to_hex(), end.index);
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(OsStr::from_bytes(line)).current_dir(OsStr::from_bytes(&surroundings.cwd)).env_clear();
    for entry in &surroundings.env {
        if let Some(at) = entry.iter().position(|byte| *byte == b'=').filter(|at| *at > 0) {
            command.env(OsStr::from_bytes(&entry[..at]), OsStr::from_bytes(&entry[at + 1..]));
        }
    }
    command
        .env("GLEANER_KEY", format!("{id}/{index}"))
        .env("GLEANER_JOB", id)
        .env("GLEANER_INDEX", index.to_string())
        .env("GLEANER_STATUS", end.how.shell_code().to_string())
        .env("GLEANER_STDOUT", job.output(index, 1))
        .env("GLEANER_STDERR", job.output(index, 2));
    command
}

#[cfg(test)]
mod tests {
    use super::super::folder::Draft;
    use super::super::folder::tests::{spec_of, task};
    use super::super::log::How;
    use super::*;

    #[tokio::test]
    async fn it_is_told_which_task_and_how_it_ended() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("job");
        let mut draft = Draft::begin(&folder).unwrap();
        draft.add(&[task("a"), task("b")]).unwrap();
        let mut spec = spec_of(2);
        spec.batch.surroundings.cwd = above.path().as_os_str().as_encoded_bytes().to_vec();
        spec.batch.surroundings.env = vec![b"A=1".to_vec()];
        draft.finish(&spec).unwrap();
        let job = Job::load(&folder).unwrap();
        let end = End { index: 1, how: How::Exit(3), worker: String::new(), at_ms: 0, said: [0, 0], is_cut: false };
        run(&job, b"echo $A $GLEANER_INDEX $GLEANER_STATUS $GLEANER_STDOUT >told", &end).await.unwrap();
        let told = std::fs::read_to_string(above.path().join("told")).unwrap();
        assert_eq!(told, format!("1 1 3 {}\n", job.output(1, 1).display()));
        let failed = run(&job, b"echo no; exit 4", &end).await.unwrap_err();
        assert!(failed.contains("exit status: 4"), "{failed}");
        assert_eq!(std::fs::read_to_string(log_path(&job)).unwrap(), "no\n");
    }
}
