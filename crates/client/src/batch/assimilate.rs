//! What is run here after each task of a job has ended, as its owner said: at least once, and until it ends well.

use super::collect::Collector;
use super::hook;
use super::job::Job;
use super::log::End;
use crate::serve::blocking_io;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// Pauses between tries: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// What all of them have said is here, in the job's folder.
const LOG: &str = "assimilate.log";

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
                let log = job.folder().join(LOG);
                let why = format!("--assimilate {why} (see {}); tried again in {} s", log.display(), pause.as_secs());
                tracing::info!(job = %job.id(), index, why, "a task is not assimilated");
                job.not_assimilated(index, Some(&why));
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
    job.not_assimilated(index, None);
    let job = job.clone();
    let written = blocking_io(move || job.assimilated(index)).await;
    written.map_err(|error| format!("writing a job's log: {error}"))
}

/// One try. The error is what became of it, as what follows its name in a sentence.
async fn run(job: &Job, line: &[u8], end: &End) -> Result<(), String> {
    let mut command = hook::command(job, end.index, "/bin/sh");
    command
        .arg("-c")
        .arg(OsStr::from_bytes(line))
        .env("GLEANER_STATUS", end.shell_code().to_string())
        .env("GLEANER_STDOUT", job.output(end.index, 1))
        .env("GLEANER_STDERR", job.output(end.index, 2));
    match hook::run(job, command, LOG).await? {
        status if status.success() => Ok(()),
        status => Err(format!("failed ({status})")),
    }
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
        let end = End::of(1, How::Exit(3));
        run(&job, b"echo $A $GLEANER_INDEX $GLEANER_STATUS $GLEANER_STDOUT >told", &end).await.unwrap();
        let told = std::fs::read_to_string(above.path().join("told")).unwrap();
        assert_eq!(told, format!("1 1 3 {}\n", job.output(1, 1).display()));
        let failed = run(&job, b"echo no; exit 4", &end).await.unwrap_err();
        assert!(failed.contains("exit status: 4"), "{failed}");
        assert_eq!(std::fs::read_to_string(job.folder().join(LOG)).unwrap(), "no\n");
    }
}
