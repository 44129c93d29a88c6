//! Commands that a job's owner has named, which run here: in the surroundings of the job's tasks, and what they say goes to a log in its
//! folder.

use super::job::Job;
use rustix::process::{Pid, Signal};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::Command;

/// How long one may take.
const TIME_MAX: Duration = Duration::from_secs(3600);
/// How long one goes on whose job has been cancelled.
const CANCELLED_TIME_MAX: Duration = Duration::from_secs(10);
/// How long one has to end that is told to.
const GRACE: Duration = Duration::from_secs(2);
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

/// Runs a command to its end, or to its job's. The error is what became of it, as what follows its name in a sentence.
pub(super) async fn run(job: &Job, mut command: Command, log: &str) -> Result<ExitStatus, String> {
    let no_log = |error| format!("has no log: {error}");
    let log = open_log(job, log).map_err(no_log)?;
    let again = log.try_clone().map_err(no_log)?;
    command.stdin(Stdio::null()).stdout(log).stderr(again).kill_on_drop(true).process_group(0);
    let mut child = command.spawn().map_err(|error| format!("cannot be started: {error}"))?;
    let group = Group(child.id());
    let mut wanted = job.wanted();
    let cancelled = async {
        let _ = wanted.wait_for(|wanted| wanted.cancelled.is_some()).await;
        tokio::time::sleep(CANCELLED_TIME_MAX).await;
    };
    let why = tokio::select! {
        status = child.wait() => {
            std::mem::forget(group);
            return status.map_err(|error| format!("cannot be waited for: {error}"));
        }
        () = tokio::time::sleep(TIME_MAX) => format!("took longer than {} s", TIME_MAX.as_secs()),
        () = cancelled => format!("was ended {} s after its job was cancelled", CANCELLED_TIME_MAX.as_secs()),
    };
    group.signal(Signal::TERM);
    let _ = tokio::time::timeout(GRACE, child.wait()).await;
    Err(why)
}

/// The processes of a command, of which none is left when it is dropped.
struct Group(Option<u32>);

impl Group {
    fn signal(&self, signal: Signal) {
        let leader = self.0.and_then(|leader| Pid::from_raw(leader as i32));
        // There may be none any more.
        let _ = leader.map(|leader| rustix::process::kill_process_group(leader, signal));
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
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

#[cfg(test)]
mod tests {
    use super::super::folder::Draft;
    use super::super::folder::tests::{spec_of, task};
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_ends_with_its_job_and_leaves_nothing() {
        let above = tempfile::tempdir().expect("a folder");
        let folder = above.path().join("job");
        let mut draft = Draft::begin(&folder).expect("begun");
        draft.add(&[task("a")]).expect("added");
        let mut spec = spec_of(1);
        spec.batch.surroundings.cwd = above.path().as_os_str().as_encoded_bytes().to_vec();
        draft.finish(&spec).expect("finished");
        let job = Job::load(&folder).expect("loaded");
        job.cancel("by its owner").expect("written down");
        let mut sleeps = command(&job, 0, "/bin/sh");
        sleeps.arg("-c").arg("trap '' TERM; echo $$ > group; sleep 600 & wait");
        let why = run(&job, sleeps, "log").await.expect_err("it does not end by itself");
        assert!(why.contains("was ended 10 s after its job was cancelled"), "{why}");
        let group = std::fs::read_to_string(above.path().join("group")).unwrap_or_default();
        let is_left = |group: &str| {
            let group = group.trim().parse().ok().and_then(Pid::from_raw);
            group.is_some_and(|group| rustix::process::kill_process_group(group, Signal::CONT).is_ok())
        };
        // Who was killed may be there for a moment.
        let begun = std::time::Instant::now();
        while is_left(&group) && begun.elapsed() < Duration::from_secs(10) {
            tokio::task::yield_now().await;
        }
        assert!(!is_left(&group), "its group {group} is left");
    }
}
