//! Sessions and jobs: what a program runs its tasks with.

use crate::cancel::Cancel;
use crate::door::{Door, DoorError, Folder};
use crate::elsewhere::{self, START_TIME_MAX, Sent, TRIES_MAX};
use crate::error::{Error, failed, system};
use crate::task::{Ended, Outcome, Place, Streams, Task};
use crate::{gather, here};
use base::codec::Malformed;
use base::door::{GUEST_MARK, Options, Reply, Request, VERSION};
use base::{Command, ExitStatus, JobId, Needs};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// Longest output that is kept in memory for [`Outcome`], in bytes, of each stream.
pub const OUTPUT_BYTES_MAX: u64 = 256 << 20;

/// The way to this user's client daemon, with the surroundings in which tasks run. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Session(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    folder: Folder,
    surroundings: Command,
    /// This is a guest of a worker, out of whose reach the daemon is: its tasks run where it runs.
    is_guest: bool,
}

/// Tasks that see one state of the files: that of the moment at which the job was opened, whatever the others change. The
/// job ends when this is dropped. A task that runs on this machine sees the files as they are.
#[derive(Debug)]
pub struct Job {
    session: Session,
    /// None: no daemon can be had, and tasks run here.
    opened: Result<Opened, String>,
    cancel: Cancel,
    /// Rank of the next task that says none.
    next_rank: AtomicU32,
}

#[derive(Debug)]
struct Opened {
    id: JobId,
    /// The job lasts as long as this connection.
    _door: Door,
}

impl Session {
    /// Takes this process's environment, working directory, umask, limits and ids as the surroundings of all tasks.
    ///
    /// No other thread may change the environment meanwhile.
    pub fn open() -> Result<Self, Error> {
        let surroundings = gather::command_among_threads(Vec::new(), Needs::default())?;
        let is_guest = rustix::fs::access(GUEST_MARK, rustix::fs::Access::EXISTS).is_ok();
        Ok(Self(Arc::new(Inner { folder: Folder::of_environment(), surroundings, is_guest })))
    }

    /// Opens a job. If no daemon can be started its tasks run here.
    pub fn job(&self) -> Result<Job, Error> {
        let opened = match self.0.is_guest {
            true => Err(GUEST.to_owned()),
            false => match self.open_job() {
                Ok(opened) => Ok(opened),
                Err(Error::Door(error)) => Err(error.to_string()),
                Err(error) => return Err(error),
            },
        };
        Ok(Job { session: self.clone(), opened, cancel: Cancel::new()?, next_rank: AtomicU32::new(0) })
    }

    fn open_job(&self) -> Result<Opened, Error> {
        let mut lost = DoorError::NotListening;
        for _ in 0..TRIES_MAX {
            let deadline = Instant::now() + START_TIME_MAX;
            let mut door = Door::open_or_start(&self.0.folder, deadline)?;
            let asked = door.send(&Request::Job { version: VERSION }, &[]).and_then(|()| door.receive(deadline));
            match asked {
                Ok(Some(Reply::Job(id))) => return Ok(Opened { id, _door: door }),
                Ok(Some(Reply::Failed { message, code })) => return Err(Error::NotRun { message, code }),
                Ok(Some(_)) => return Err(DoorError::Malformed(Malformed("a job answered by something else")).into()),
                // It was just ending, or of another version.
                Ok(None) => {}
                Err(error) => lost = error,
            }
        }
        Err(lost.into())
    }

    /// Runs a task with an empty standard input, waits for its end, and returns all that it said.
    pub fn run(&self, task: &Task) -> Result<Outcome, Error> {
        captured(|streams| self.run_with(task, streams, &Cancel::new()?))
    }

    /// Runs a task on these streams, and waits for its end, or until it is called off.
    pub fn run_with(&self, task: &Task, streams: Streams<'_>, cancel: &Cancel) -> Result<Ended, Error> {
        self.run_in(None, task, streams, cancel)
    }

    fn run_in(&self, job: Option<&Job>, task: &Task, streams: Streams<'_>, cancel: &Cancel) -> Result<Ended, Error> {
        let command = task.command(&self.0.surroundings)?;
        let here = |why: String, notes: Vec<String>| {
            let status = here::run(&command, streams, cancel)?;
            Ok(Ended { status, place: Place::Here { why }, notes })
        };
        let unless_forbidden = |why: String, notes| match task.is_elsewhere() {
            true => Err(Error::NotRun { message: format!("{why}, and it must not run here"), code: 125 }),
            false => here(why, notes),
        };
        if task.no_remote {
            return here("it must run here".into(), Vec::new());
        }
        if self.0.is_guest {
            return here(GUEST.into(), Vec::new());
        }
        let (job, rank) = match job.map(|job| (&job.opened, job.rank_of(task))) {
            Some((Err(why), _)) => return unless_forbidden(why.clone(), Vec::new()),
            Some((Ok(opened), rank)) => (Some(opened.id), rank),
            None => (None, 0),
        };
        let options = Options {
            no_local: task.is_elsewhere(),
            allow_write: task.allow_write.clone(),
            verbose: task.notes,
            job,
            rank,
            becomes: false,
            race: false,
            net: false,
            here: None,
            descriptors: Vec::new(),
        };
        let (command_sent, world) = (Box::new(command.clone()), crate::gather::world());
        let request = Request::Run { version: VERSION, command: command_sent, options, window: None, world };
        let mut notes = Vec::new();
        match elsewhere::run(&self.0.folder, &request, streams, cancel, &mut notes)? {
            Sent::Ended(status, task) => Ok(Ended { status, place: Place::Pool(task), notes }),
            Sent::RunHere(why) => here(why, notes),
            Sent::NoDaemon(error) => unless_forbidden(error.to_string(), notes),
        }
    }
}

const GUEST: &str = "this is a task already, and its commands run where it runs";

impl Job {
    /// As [`Session::run`], in this job.
    pub fn run(&self, task: &Task) -> Result<Outcome, Error> {
        captured(|streams| self.run_with(task, streams))
    }

    /// As [`Session::run_with`], in this job.
    pub fn run_with(&self, task: &Task, streams: Streams<'_>) -> Result<Ended, Error> {
        self.session.run_in(Some(self), task, streams, &self.cancel)
    }

    fn rank_of(&self, task: &Task) -> u32 {
        task.rank.unwrap_or_else(|| self.next_rank.fetch_add(1, Ordering::Relaxed))
    }

    /// Calls off all tasks of the job, those that run and those to come.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// What calls off all tasks of the job.
    pub fn canceller(&self) -> Cancel {
        self.cancel.clone()
    }
}

/// Runs with outputs that go to files without names, and reads these: an output may be long, and no thread is needed to read it.
fn captured(run: impl FnOnce(Streams<'_>) -> Result<Ended, Error>) -> Result<Outcome, Error> {
    let spool = || tempfile::tempfile().map_err(failed("making a temporary file"));
    let null = rustix::fs::open(c"/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let null = null.map_err(system("opening /dev/null"))?;
    let (stdout, stderr) = (spool()?, spool()?);
    let ended = run(Streams { stdin: null.as_fd(), stdout: stdout.as_fd(), stderr: stderr.as_fd() })?;
    let Ended { status, place, notes } = ended;
    Ok(Outcome { status, stdout: contents(stdout, status)?, stderr: contents(stderr, status)?, place, notes })
}

fn contents(mut file: File, status: ExitStatus) -> Result<Vec<u8>, Error> {
    let reading = "reading a task's output";
    let bytes = file.metadata().map_err(failed(reading))?.len();
    if bytes > OUTPUT_BYTES_MAX {
        return Err(Error::TooMuchOutput { status, bytes, bytes_max: OUTPUT_BYTES_MAX });
    }
    let mut contents = Vec::with_capacity(bytes as usize);
    file.rewind().map_err(failed(reading))?;
    file.take(OUTPUT_BYTES_MAX).read_to_end(&mut contents).map_err(failed(reading))?;
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn session() -> Session {
        Session::open().expect("a process has surroundings")
    }

    #[test]
    fn a_task_that_must_run_here_does() {
        let task = Task::shell("echo $A; echo err >&2; pwd; exit 3").env("A", "x y").folder("/").no_remote(true);
        let outcome = session().run(&task).expect("it runs");
        assert_eq!((outcome.status, outcome.stderr.as_slice()), (ExitStatus::Code(3), &b"err\n"[..]));
        assert_eq!(outcome.stdout, b"x y\n/\n");
        assert!(matches!(outcome.place, Place::Here { .. }));
        let killed = session().run(&Task::shell("kill -9 $$").no_remote(true)).expect("it runs");
        assert_eq!(killed.status, ExitStatus::Signal(9));
    }

    #[test]
    fn what_cannot_run_is_told_apart() {
        let code = |task: Task| session().run(&task.no_remote(true)).expect_err("it cannot").code();
        assert_eq!(code(Task::new(["no-such-program"])), 127);
        assert_eq!(code(Task::new(["/etc/passwd"])), 126);
        assert_eq!(code(Task::new(["true"]).folder("/no/such/folder")), 126);
    }

    #[test]
    fn what_runs_here_can_be_called_off() {
        let cancel = Cancel::new().expect("an event");
        let file = tempfile::tempfile().expect("a file");
        let streams = Streams { stdin: file.as_fd(), stdout: file.as_fd(), stderr: file.as_fd() };
        let pipe = rustix::pipe::pipe().expect("a pipe");
        let begun = Instant::now();
        let ended = std::thread::scope(|threads| {
            let task = Task::shell("sleep 60 & wait").no_remote(true);
            let waiting = threads.spawn({
                let cancel = cancel.clone();
                move || session().run_with(&task, streams, &cancel)
            });
            // Time for it to begin: nothing ever comes of this event.
            let time = rustix::event::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            Cancel::new().expect("an event").wait(pipe.0.as_fd(), Some(time)).expect("a wait");
            cancel.cancel();
            waiting.join().expect("no panic")
        });
        assert!(matches!(ended, Err(Error::Cancelled)), "{ended:?}");
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert!(matches!(session().run_with(&Task::new(["true"]), streams, &cancel), Err(Error::Cancelled)));
    }
}
