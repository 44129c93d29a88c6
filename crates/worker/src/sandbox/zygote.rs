//! The process that starts guests: small, with one thread, forked from the worker before the worker has any other, so
//! that forking it is cheap and safe at any time.
//!
//! It ends, and with it every guest, when the worker's end of the socket closes.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use base::codec::Encode;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal};

use super::cgroup::{Cgroups, Limits, Slot};
use super::init::{self, Setup};
use super::namespaces::Clients;
use super::order::{Failure, Order, Priority, Report, from_memory_file};
use super::rootfs::{self, Root};
use super::seccomp::Filters;
use super::socket::{self, PACKET_BYTES_MAX};
use super::stand_ins;
use super::sys::{self, Fork};

/// The namespaces that each task gets new; user and network are lent.
const NAMESPACES: i32 = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
/// First byte of a packet: the order follows, or is in the memory file that comes with it.
pub const INLINE: u8 = 0;
pub const IN_MEMORY_FILE: u8 = 1;
/// How long guests may take to die when the worker is gone.
const END_TIME_MAX: Duration = Duration::from_secs(40);
/// Of those by which the kernel reports the use of stand-ins, so many are kept that no task has now: a user may have 128.
const EVENTS_KEPT_MAX: usize = 16;

/// What the zygote knows from the start.
#[derive(Debug)]
pub struct Zygote {
    pub socket: OwnedFd,
    /// Folder with the mount templates.
    pub place: PathBuf,
    /// Template of `/sys`.
    pub system: Option<PathBuf>,
    /// Of guests.
    pub cgroups: Option<Cgroups>,
    /// Of the owner's own tasks.
    pub own_cgroups: Option<Cgroups>,
    pub filters: Filters,
    pub privileged: bool,
}

impl Zygote {
    fn groups(&mut self, priority: Priority) -> &mut Option<Cgroups> {
        match priority {
            Priority::Guest => &mut self.cgroups,
            Priority::Owner => &mut self.own_cgroups,
        }
    }
}

struct Running {
    id: i32,
    process: OwnedFd,
    id_base: u32,
    network: OwnedFd,
    /// Its network namespace has an interface, which is not for the next task.
    has_network: bool,
    slot: Option<Slot>,
    priority: Priority,
    events: Option<OwnedFd>,
}

struct State {
    zygote: Zygote,
    limits: Limits,
    clients: Clients,
    running: Vec<Running>,
    /// Of stand-ins, for the next tasks that have some.
    events: Vec<OwnedFd>,
    hard: Vec<u64>,
    /// This process.
    own: OwnedFd,
    buffer: Vec<u8>,
}

/// Serves the worker until it is gone. Never returns: this is another process.
pub fn run(zygote: Zygote) -> ! {
    sys::block_signals(true);
    sys::default_signals();
    sys::rename_command_line(b"gleaner");
    // Nothing of the worker's is kept open, least of all the other end of the socket.
    sys::close_all_but(&mut [zygote.socket.as_raw_fd()]);
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"gleaner-zygote");
    // A panic, here or in an init, must not unwind into what called `prepare`: that is another process's code.
    let served = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| serve(zygote)));
    sys::exit_now(i32::from(!matches!(served, Ok(Ok(())))))
}

fn serve(zygote: Zygote) -> Result<(), Errno> {
    rustix::process::chdir("/")?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    for standard in 0..3 {
        sys::copy_to(null.as_raw_fd(), standard)?;
    }
    let signals = sys::signal_descriptor(&[libc::SIGCHLD])?;
    let mut state = State {
        limits: zygote.cgroups.as_ref().map(Cgroups::limits).unwrap_or_default(),
        clients: Clients::new(zygote.place.clone()),
        running: Vec::new(),
        events: Vec::new(),
        hard: (0..16).map(|resource| sys::limit(resource).map_or(u64::MAX, |(_, hard)| hard)).collect(),
        own: rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?,
        buffer: vec![0; PACKET_BYTES_MAX],
        zygote,
    };
    loop {
        let mut poll = [PollFd::new(&state.zygote.socket, PollFlags::IN), PollFd::new(&signals, PollFlags::IN)];
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut poll, None))?;
        let [ordered, signalled] = [0, 1].map(|at: usize| !poll[at].revents().is_empty());
        if signalled {
            while sys::read_signal(&signals).is_some() {}
            state.reap();
        }
        if ordered && !state.on_order() {
            break;
        }
    }
    state.end(&signals);
    Ok(())
}

impl State {
    /// One order; `false`: the worker is gone.
    fn on_order(&mut self) -> bool {
        let received = socket::receive(&self.zygote.socket, &mut self.buffer);
        let (count, mut descriptors) = match received {
            Ok(Some(received)) => received,
            Err(Errno::AGAIN | Errno::MSGSIZE) => return true,
            Ok(None) | Err(_) => return false,
        };
        if descriptors.is_empty() {
            return true;
        }
        let status = descriptors.remove(0);
        let (report, process) = match self.start(count, descriptors, &status) {
            Ok(process) => {
                let running = self.running.iter().find(|running| running.id == process);
                let group = running.and_then(|running| Some(running.slot.as_ref()?.name().to_owned()));
                (Report::Forked(group.unwrap_or_default()), running)
            }
            Err(failure) => (Report::Failed(failure), None),
        };
        let descriptors: Vec<BorrowedFd<'_>> = process.iter().map(|running| running.process.as_fd()).collect();
        let _ = socket::send(&status, &report.to_bytes(), &descriptors, false);
        true
    }

    /// Forks the init of a new task: its process id.
    fn start(&mut self, count: usize, mut descriptors: Vec<OwnedFd>, status: &OwnedFd) -> Result<i32, Failure> {
        let unreadable = |message: String| Failure { step: "order".into(), errno: 0, message };
        let order = match self.buffer[..count] {
            [IN_MEMORY_FILE] if !descriptors.is_empty() => {
                let bytes = from_memory_file(descriptors.remove(0)).map_err(|error| unreadable(error.to_string()))?;
                Order::unpack(&bytes, descriptors)
            }
            [INLINE, ref bytes @ ..] => Order::unpack(bytes, descriptors),
            _ => return Err(unreadable("of an unknown kind".into())),
        };
        let order = order.map_err(|error| unreadable(error.to_string()))?;
        let priority = order.priority;
        let slot = match self.zygote.groups(priority) {
            Some(groups) => Some(groups.take(order.memory_bytes_max, order.pids_max).map_err(|error| Failure {
                step: "control group".into(),
                errno: error.raw_os_error().unwrap_or(0),
                message: error.to_string(),
            })?),
            None => None,
        };
        let (id_base, has_network) = (order.id_base, order.has_network());
        let forked = self.events_for(&order).and_then(|events| {
            let (id, process, network) = self.fork(order, slot.as_ref(), status, events.as_ref())?;
            Ok((id, process, network, events))
        });
        match forked {
            Ok((id, process, network, events)) => {
                self.running.push(Running { id, process, id_base, network, has_network, slot, priority, events });
                Ok(id)
            }
            Err(failure) => {
                self.give_back_group(slot, priority);
                Err(failure)
            }
        }
    }

    /// Those of a task that has stand-ins.
    fn events_for(&mut self, order: &Order) -> Result<Option<OwnedFd>, Failure> {
        if order.watch.as_ref().is_none_or(|watch| watch.descriptors.is_empty()) {
            return Ok(None);
        }
        let events = self.events.pop().map_or_else(stand_ins::events, Ok);
        events.map(Some).map_err(|errno| Failure::new("descriptors", errno))
    }

    fn fork(
        &mut self,
        order: Order,
        slot: Option<&Slot>,
        status: &OwnedFd,
        events: Option<&OwnedFd>,
    ) -> Result<(i32, OwnedFd, OwnedFd), Failure> {
        let id_base = order.id_base;
        let (client, network) = self.clients.take(id_base, &order.ids)?;
        let group = slot.and_then(|slot| slot.folder.as_ref()).map(|folder| folder.as_fd());
        // SAFETY: this process has one thread; the child runs the task's init, which ends in exit_now.
        match unsafe { sys::fork_into(NAMESPACES, group) } {
            Ok(Fork::Parent(id, process)) => Ok((id, process, network)),
            Ok(Fork::Child) => {
                let (lower, scratch, mounts) = (order.lower.clone(), order.scratch.clone(), order.mounts.clone());
                let resolvers = order.has_network().then(|| self.zygote.place.join(rootfs::RESOLVERS));
                let root = Root {
                    lower: &lower,
                    scratch: &scratch,
                    mounts: &mounts,
                    devices: &client.devices,
                    system: self.zygote.system.as_deref(),
                    resolvers: resolvers.as_deref(),
                    id_base,
                    shared_bytes_max: order.memory_bytes_max,
                    privileged: self.zygote.privileged,
                };
                init::run(Setup {
                    status,
                    order,
                    users: &client.users,
                    network: &network,
                    tasks: slot.map_or(&[], |slot| &slot.tasks),
                    idle: slot.and_then(|slot| slot.idle.as_ref()),
                    root,
                    filters: &self.zygote.filters,
                    hard: &self.hard,
                    limits: self.limits,
                    zygote: self.own.as_fd(),
                    events,
                })
            }
            Err(errno) => {
                self.clients.give_back(id_base, Some(network));
                Err(Failure::new("fork", errno))
            }
        }
    }

    /// Takes back what ended tasks were lent.
    fn reap(&mut self) {
        while let Ok(Some((id, _))) = sys::wait_any(libc::WNOHANG) {
            if let Some(at) = self.running.iter().position(|running| running.id == id) {
                let ended = self.running.swap_remove(at);
                self.clients.give_back(ended.id_base, (!ended.has_network).then_some(ended.network));
                self.events.extend(ended.events.filter(|_| self.events.len() < EVENTS_KEPT_MAX));
                self.give_back_group(ended.slot, ended.priority);
            }
        }
    }

    fn give_back_group(&mut self, slot: Option<Slot>, priority: Priority) {
        if let (Some(groups), Some(slot)) = (self.zygote.groups(priority), slot) {
            groups.give_back(slot);
        }
    }

    /// Ends every guest.
    fn end(mut self, signals: &OwnedFd) {
        for running in &self.running {
            let _ = rustix::process::pidfd_send_signal(&running.process, Signal::KILL);
        }
        let until = Instant::now() + END_TIME_MAX;
        while Instant::now() < until {
            self.reap();
            if self.running.is_empty() {
                break;
            }
            let second = rustix::time::Timespec { tv_sec: 1, tv_nsec: 0 };
            let _ = rustix::event::poll(&mut [PollFd::new(signals, PollFlags::IN)], Some(&second));
            while sys::read_signal(signals).is_some() {}
        }
        for groups in [self.zygote.cgroups.take(), self.zygote.own_cgroups.take()].into_iter().flatten() {
            groups.remove();
        }
    }
}
