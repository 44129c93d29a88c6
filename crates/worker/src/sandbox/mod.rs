//! The sandbox: how a task's processes are started, isolated, signalled and reaped.
//!
//! [`prepare`] is the first thing that the worker does, while it has one thread. It makes the mount namespace private
//! and forks the *zygote*, which forks the *init* of every task into namespaces of its own; the init builds the task's
//! root, gives up all rights and starts the program:
//!
//! ```text
//! worker ──order──► zygote ──clone3──► init (PID 1 of the task) ──fork──► program
//!    ▲                                  │
//!    └──────────── status socket ───────┘
//! ```
//!
//! Nothing survives its parent: the zygote ends with the worker (its socket closes), each init with the zygote
//! (parent-death signal), all processes of a task with its init (the kernel).
//!
//! A guest sees the overlay on its client's mirror, its own `/proc`, a read-only `/sys` and a small `/dev`. Whatever the
//! tree holds at these three paths is covered, and a delta must ignore all three. Low ids inside are
//! [`Order::id_base`] and up outside: so the upper layer has them, and so the mirror must show files. Others have places among
//! the last of these ([`crate::ids`]), or become nobody's. No network but a loopback interface of the client's own, and for a task that may use the network an interface whose
//! packets go to the worker (`interfaces`).

mod attempts;
mod attributes;
mod cgroup;
mod copying;
mod descriptors;
mod exec;
mod guest;
mod held;
mod init;
mod interfaces;
mod interpreters;
mod levers;
mod mounts;
mod namespaces;
mod notices;
mod order;
mod others;
mod rootfs;
mod scripts;
mod seccomp;
mod socket;
mod stand_ins;
mod sys;
mod user;
mod zygote;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::thread::UnshareFlags;

pub use cgroup::{Limits, find as hierarchy};
pub use guest::{Control, Event, Guest, Sent};
pub use interfaces::{ADDRESS as NETWORK_ADDRESS, GATEWAY as NETWORK_GATEWAY, MTU as NETWORK_MTU};
pub use levers::{Held, Levers, Refusals, Waits, wants_processor};
pub use mounts::folder as mount_folder;
pub use order::{Failure, Input, Lock, Order, Priority, Sink};

/// [`Failure::step`]: the program itself could not be executed.
pub const STEP_EXECUTE: &str = "execute";
/// [`Failure::step`]: the working directory could not be entered.
pub const STEP_DIRECTORY: &str = "working directory";

/// [`Failure::step`]: the client's mounts could not be made.
pub const STEP_MOUNTS: &str = "the client's mounts";
/// [`Failure::step`]: the task's way to the network could not be made.
pub const STEP_NETWORK: &str = "network interface";

/// How long an order may wait for a zygote that is behind.
const SEND_TRIES: u32 = 2_000;
const SEND_PAUSE: Duration = Duration::from_millis(5);

/// How the sandbox is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// A folder for mount templates, made if missing: for this worker alone.
    pub place: PathBuf,
    /// Name of the control group, for this worker alone: what an earlier worker left under it is killed and removed.
    /// `None`: no control groups.
    pub cgroup: Option<String>,
}

/// Why the sandbox cannot be used, or a task could not be handed to it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A step of the preparation failed.
    #[error("cannot prepare the sandbox: {step}: {source}")]
    Prepare {
        /// Which.
        step: String,
        /// Why.
        source: io::Error,
    },
    /// Without root, and without user namespaces.
    #[error(
        "cannot isolate guests without root, since user namespaces are refused here ({0}): run the worker as root, or \
         allow them (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, \
         kernel.apparmor_restrict_unprivileged_userns)"
    )]
    NoUserNamespaces(io::Error),
    /// Without root, and without subordinate ids.
    #[error("cannot isolate guests without root: {0}")]
    NoSubordinateIds(String),
    /// The zygote is gone, and all guests with it.
    #[error("the sandbox process has ended, and all tasks with it: restart the worker")]
    ZygoteGone,
    /// The zygote does not keep up.
    #[error("the sandbox has taken no orders for {} s: too many tasks at once", SEND_TRIES as u64 * SEND_PAUSE.as_millis() as u64 / 1000)]
    Overloaded,
    /// The task could not even be forked.
    #[error("cannot start the task: {0}")]
    Refused(Failure),
    /// There are no more events: the task has ended.
    #[error("the task has ended already")]
    Ended,
    /// A killed task does not die.
    #[error("the killed task is not gone after {0} s: a process of it hangs in the kernel")]
    Undead(u64),
    /// A socket failed.
    #[error("talking to the sandbox failed: {0}")]
    Socket(io::Error),
    /// Worker and sandbox are of one build, so this is a fault of ours.
    #[error("the sandbox said what the worker does not understand")]
    Confused,
}

impl Error {
    fn prepare(step: &str, source: io::Error) -> Self {
        Self::Prepare { step: step.to_owned(), source }
    }

    fn socket(error: io::Error) -> Self {
        Self::Socket(error)
    }
}

/// The worker's end of the sandbox. Dropping it ends every task.
#[derive(Debug)]
pub struct SandboxServer {
    socket: OwnedFd,
    zygote: Arc<OwnedFd>,
    privileged: bool,
    limits: Limits,
    levers: Levers,
    own_levers: Levers,
}

/// Prepares the sandbox and forks the zygote. Call it first thing in `main`, before any thread exists.
///
/// The caller is in a private mount namespace afterwards; what it mounts there later, guests can have as lower layers.
/// Without root it is in a user namespace besides, as root over its subordinate ids.
pub fn prepare(config: &Config) -> Result<SandboxServer, Error> {
    let step = |step: &'static str| move |errno: Errno| Error::prepare(step, errno.into());
    let privileged = rustix::process::geteuid().is_root();
    if privileged {
        // SAFETY: descriptors are not unshared.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.map_err(step("mount namespace"))?;
    } else {
        user::enter()?;
    }
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    rustix::mount::mount_change("/", private).map_err(step("private mounts"))?;
    let system = mount_templates(&config.place)?;
    let name = config.cgroup.as_deref();
    let cgroups = name.and_then(|name| cgroup::Cgroups::prepare(name, Priority::Guest));
    let own_cgroups = name.and_then(|name| cgroup::Cgroups::prepare(&format!("own-{name}"), Priority::Owner));
    let limits = cgroups.as_ref().map(cgroup::Cgroups::limits).unwrap_or_default();
    let levers = cgroups.as_ref().map(cgroup::Cgroups::levers).unwrap_or_default();
    let own_levers = own_cgroups.as_ref().map(cgroup::Cgroups::levers).unwrap_or_default();
    let filters = seccomp::Filters::compile();
    let (socket, theirs) = socket::pair().map_err(step("socket"))?;
    let place = config.place.clone();
    let zygote = zygote::Zygote { socket: theirs, place, system, cgroups, own_cgroups, filters, privileged };
    // SAFETY: the caller has one thread; the child runs the zygote, which ends in exit_now.
    let id = unsafe { sys::fork() }.map_err(step("fork"))?;
    if id == 0 {
        zygote::run(zygote);
    }
    drop(zygote);
    let id = rustix::process::Pid::from_raw(id).expect("fork gives the parent a positive id");
    let zygote = rustix::process::pidfd_open(id, rustix::process::PidfdFlags::empty()).map_err(step("zygote"))?;
    Ok(SandboxServer { socket, zygote: Arc::new(zygote), privileged, limits, levers, own_levers })
}

/// What control groups would hold at a worker that is started like this process.
pub fn possible_limits() -> Limits {
    let name = format!("gleaner-doctor-{}", std::process::id());
    let Some(groups) = cgroup::Cgroups::prepare(&name, Priority::Guest) else { return Limits::default() };
    let limits = groups.limits();
    groups.remove();
    limits
}

/// A small file system at `place`, and in it a read-only `/sys` if there can be one.
fn mount_templates(place: &Path) -> Result<Option<PathBuf>, Error> {
    let step = |source: io::Error| Error::prepare("mount templates", source);
    std::fs::create_dir_all(place).map_err(step)?;
    let flags = MountFlags::NOSUID;
    rustix::mount::mount("gleaner", place, "tmpfs", flags, Some(c"mode=700,size=1m")).map_err(|e| step(e.into()))?;
    // The names of hosts are asked for at the worker's end of a task's interface.
    std::fs::write(place.join(rootfs::RESOLVERS), format!("nameserver {NETWORK_GATEWAY}\n")).map_err(step)?;
    let system = place.join("sys");
    std::fs::create_dir(&system).map_err(step)?;
    let plain = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let bound = rustix::mount::mount_bind("/sys", &system)
        .and_then(|()| rustix::mount::mount_remount(&system, MountFlags::BIND | MountFlags::RDONLY | plain, ""));
    Ok(bound.is_ok().then_some(system))
}

impl SandboxServer {
    /// Whether the worker is root: then id ranges are the caller's to choose, otherwise see [`SandboxServer::id_base`].
    pub fn privileged(&self) -> bool {
        self.privileged
    }

    /// Where the guests' ids must start without root; as root, the first of the ranges that the caller may give, one
    /// per client.
    pub fn id_base(&self) -> u32 {
        if self.privileged { 0x6000_0000 } else { user::ID_BASE }
    }

    /// What control groups hold; for the rest there are only resource limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// What can be done with all guests, or one, while they run.
    pub fn levers(&self) -> &Levers {
        &self.levers
    }

    /// What is known of the owner's own tasks while they run.
    pub fn own_levers(&self) -> &Levers {
        &self.own_levers
    }

    /// Starts a task. The descriptors of the order are the task's alone afterwards. Must run in a tokio runtime.
    pub async fn spawn(&self, order: Order) -> Result<Guest, Error> {
        let (ours, theirs) = socket::pair().map_err(|errno| Error::socket(errno.into()))?;
        let (bytes, streams) = order.pack();
        let mut descriptors = vec![theirs.as_fd()];
        let mut packet = vec![zygote::INLINE];
        let file;
        if bytes.len() < socket::PACKET_BYTES_MAX {
            packet.extend_from_slice(&bytes);
        } else {
            packet[0] = zygote::IN_MEMORY_FILE;
            file = order::to_memory_file(&bytes).map_err(Error::socket)?;
            descriptors.push(file.as_fd());
        }
        descriptors.extend(streams);
        self.send(&packet, &descriptors).await?;
        drop(descriptors);
        drop((theirs, order));
        Guest::adopt(ours).await
    }

    async fn send(&self, packet: &[u8], descriptors: &[std::os::fd::BorrowedFd<'_>]) -> Result<(), Error> {
        for _ in 0..SEND_TRIES {
            match socket::send(&self.socket, packet, descriptors, false) {
                Ok(()) => return Ok(()),
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::TOOMANYREFS) => tokio::time::sleep(SEND_PAUSE).await,
                Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => return Err(Error::ZygoteGone),
                Err(errno) => return Err(Error::socket(errno.into())),
            }
        }
        Err(Error::Overloaded)
    }

    /// Waits until the zygote has ended, which it does by itself only when something killed it: no task can run then.
    pub async fn ended(&self) -> io::Result<()> {
        guest::watch(self.zygote.clone())?.readable().await.map(drop)
    }
}
