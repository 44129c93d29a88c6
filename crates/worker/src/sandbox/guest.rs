//! The worker's side of one task: its events, and the means to signal and end it.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use base::codec::Encode;
use base::{ExitStatus, Usage};
use rustix::io::Errno;
use rustix::process::Signal;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::Error;
use crate::ids::Owner;

use super::order::{Deliver, Failure, Lock, Report, Sought};
use super::socket;

/// How long a killed task may take to be gone: longer than a mirror takes to end a pending request.
const GONE_TIMEOUT: Duration = Duration::from_secs(45);
/// Longest report in bytes.
const REPORT_BYTES_MAX: usize = 16 << 10;

/// Most reports of an init before the zygote's own: a program can be stopped and continued in between.
const EARLY_MAX: usize = 64;

/// A report and its descriptors.
type Told = (Report, Vec<OwnedFd>);

/// What happens to a task.
#[derive(Debug)]
pub enum Event {
    /// The program runs. With a terminal: its master side.
    Started {
        /// Master side of the task's terminal, if it has one: to be read and written, and told new sizes
        /// (`tcsetwinsize`). Reading fails with EIO once the last process has let go of the terminal.
        terminal: Option<OwnedFd>,
    },
    /// The program was stopped by this signal.
    Stopped(u8),
    /// The program goes on.
    Continued,
    /// The program has ended, but other processes of the task have not: they run on until they end by themselves, or
    /// [`Control::end_others`] ends them.
    OthersRemain,
    /// The program ended, and no process of the task is left: the upper layer is complete.
    Exited {
        /// How.
        status: ExitStatus,
        /// What all processes of the task took.
        usage: Usage,
        /// Where a standard input that is a file was left.
        stdin_offset: Option<u64>,
        /// An object of System V's that is left, for people: nothing of it goes to the client.
        left: Option<String>,
        /// The folder of shared memory, if something is left in it.
        shared: Option<OwnedFd>,
    },
    /// The task was killed as a whole: by [`Control::kill`], with its zygote, or for want of memory. No process of it is
    /// left.
    Killed,
    /// The program could not be started; no process of the task is left.
    Failed(Failure),
    /// The task does what has to be done at its client: what that is, for people. It waits to be killed.
    Unable(String),
    /// The same, since it names a user or group that it does not know.
    Names(Owner),
    /// The task was refused something: what, for people.
    Refused(String),
    /// The task waits for a lock, until [`Control::locked`].
    Lock(Lock),
    /// It waits to hear whether its client's machine has this.
    Service {
        /// By which it is answered.
        number: u64,
        /// A port, or a process.
        sought: Sought,
    },
    /// A process of this name had left the task's session, and ends with it.
    Left(String),
    /// The task makes a file at this path to add to it.
    Adds(Vec<u8>),
    /// A signal of this number is with the program, or came too late for it. Each that was sent is confirmed, in its turn, until the
    /// program ends.
    Signalled(u8),
    /// The task has a network interface, before it starts: its packets, to be read and written ([`crate::network`]).
    Network(OwnedFd),
}

/// Where a signal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// On its way.
    OnItsWay,
    /// Nowhere: there is no room for more, hundreds are on their way.
    NoRoom,
    /// Nowhere: the task is gone.
    Gone,
}

/// A task that was started. Dropping it kills the task.
#[derive(Debug)]
pub struct Guest {
    status: AsyncFd<Arc<OwnedFd>>,
    control: Control,
    group: String,
    /// What the init told before the zygote had told of the init.
    early: VecDeque<Told>,
    ended: bool,
}

/// Signals and ends a task; can be cloned, and does nothing once the task is gone.
#[derive(Clone, Debug)]
pub struct Control {
    status: Arc<OwnedFd>,
    process: Arc<OwnedFd>,
}

impl Guest {
    /// Waits for the zygote's word on a task whose status socket is `status`.
    pub(super) async fn adopt(status: OwnedFd) -> Result<Self, Error> {
        rustix::io::ioctl_fionbio(&status, true).map_err(|errno| Error::socket(errno.into()))?;
        let shared = Arc::new(status);
        let status = watch(shared.clone()).map_err(Error::socket)?;
        // The init may speak before the zygote does; the zygote holds the socket open until it has spoken.
        let mut early = VecDeque::new();
        while early.len() <= EARLY_MAX {
            match receive(&status).await? {
                Some((Report::Forked(group), descriptors)) => {
                    let process = descriptors.into_iter().next().ok_or(Error::Confused)?;
                    let control = Control { status: shared, process: Arc::new(process) };
                    return Ok(Self { status, control, group, early, ended: false });
                }
                Some(told) => early.push_back(told),
                None => match early.pop_front() {
                    Some((Report::Failed(failure), _)) => return Err(Error::Refused(failure)),
                    Some(_) => return Err(Error::Confused),
                    None => return Err(Error::ZygoteGone),
                },
            }
        }
        Err(Error::Confused)
    }

    /// The next event. After `Exited`, `Killed` or `Failed` there is none: an error. Can be cancelled without losing one.
    pub async fn event(&mut self) -> Result<Event, Error> {
        if self.ended {
            return Err(Error::Ended);
        }
        let told = match self.early.pop_front() {
            Some(early) => Some(early),
            None => receive(&self.status).await?,
        };
        let event = match told {
            Some((Report::Started, descriptors)) => Event::Started { terminal: descriptors.into_iter().next() },
            Some((Report::Stopped(signal), _)) => Event::Stopped(signal),
            Some((Report::Continued, _)) => Event::Continued,
            Some((Report::OthersRemain, _)) => Event::OthersRemain,
            Some((Report::Exited { status, usage, stdin_offset, left }, descriptors)) => {
                Event::Exited { status, usage, stdin_offset, left, shared: descriptors.into_iter().next() }
            }
            Some((Report::Failed(failure), _)) => Event::Failed(failure),
            Some((Report::Unable(why), _)) => Event::Unable(why),
            Some((Report::Names(owner), _)) => Event::Names(owner),
            Some((Report::Refused(what), _)) => Event::Refused(what),
            Some((Report::Lock(lock), _)) => Event::Lock(lock),
            Some((Report::Service(number, sought), _)) => Event::Service { number, sought },
            Some((Report::Left(name), _)) => Event::Left(name),
            Some((Report::Adds(path), _)) => Event::Adds(path),
            Some((Report::Signalled(signal), _)) => Event::Signalled(signal),
            Some((Report::Network, descriptors)) => {
                Event::Network(descriptors.into_iter().next().ok_or(Error::Confused)?)
            }
            Some((Report::Forked(_), _)) => return Err(Error::Confused),
            None => {
                self.gone().await?;
                Event::Killed
            }
        };
        self.ended = matches!(event, Event::Exited { .. } | Event::Killed | Event::Failed(_));
        Ok(event)
    }

    /// Name of its control group among its worker's, for [`super::Levers`]; empty: it has none.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// A handle to signal and end the task.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Waits until nothing of the task is left: no process, no mount. Then its folders can be removed, and the lower
    /// layer changed. Soon true after `Exited` or `Failed`; before, only if the task is killed.
    pub async fn gone(&self) -> Result<(), Error> {
        let process = watch(self.control.process.clone()).map_err(Error::socket)?;
        match tokio::time::timeout(GONE_TIMEOUT, process.readable()).await {
            Ok(ready) => ready.map(drop).map_err(Error::socket),
            Err(_) => Err(Error::Undead(GONE_TIMEOUT.as_secs())),
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.control.kill();
    }
}

impl Control {
    /// Sends a signal to the program, or to its process group.
    pub fn signal(&self, number: u8, group: bool) -> Sent {
        match self.tell(Deliver::Signal { number, group }) {
            Ok(()) => Sent::OnItsWay,
            Err(Errno::AGAIN | Errno::NOBUFS) => Sent::NoRoom,
            Err(_) => Sent::Gone,
        }
    }

    /// The task has the lock of this number.
    pub fn locked(&self, number: u64) {
        let _ = self.tell(Deliver::Locked(number));
    }

    /// Whether there is the service that the task has asked about by this number.
    pub fn service(&self, number: u64, is_there: bool) {
        let _ = self.tell(Deliver::Service { number, is_there });
    }

    fn tell(&self, what: Deliver) -> Result<(), Errno> {
        socket::send(&*self.status, &what.to_bytes(), &[], false)
    }

    /// The number of the task's first process, its init, as this process sees it; `None` once it is gone.
    pub fn process_id(&self) -> Option<u32> {
        use std::os::fd::AsRawFd;
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", self.process.as_raw_fd())).ok()?;
        info.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok())
    }

    /// Ends the processes that outlive the program.
    pub fn end_others(&self) {
        let _ = self.tell(Deliver::EndOthers);
    }

    /// Kills all processes of the task at once.
    pub fn kill(&self) {
        let _ = rustix::process::pidfd_send_signal(self.process.as_fd(), Signal::KILL);
    }
}

/// Registers a descriptor with the runtime, to be told when it is readable.
pub(super) fn watch(descriptor: Arc<OwnedFd>) -> std::io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: what the AsyncFd holds keeps this one descriptor open.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?)
}

/// The next report and its descriptors; `None`: the other side is gone.
async fn receive(status: &AsyncFd<Arc<OwnedFd>>) -> Result<Option<Told>, Error> {
    let mut bytes = [0; REPORT_BYTES_MAX];
    loop {
        let mut ready = status.readable().await.map_err(Error::socket)?;
        match socket::receive(&**status.get_ref(), &mut bytes) {
            Ok(Some((count, descriptors))) => {
                let report = Report::from_bytes(&bytes[..count]).map_err(|_| Error::Confused)?;
                return Ok(Some((report, descriptors)));
            }
            Ok(None) => return Ok(None),
            Err(Errno::AGAIN) => ready.clear_ready(),
            Err(errno) => return Err(Error::socket(errno.into())),
        }
    }
}
