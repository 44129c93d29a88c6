//! The first process of a task: builds the task's world, starts the program in it, and stays as its init.
//!
//! It is forked by the zygote into fresh namespaces, gives up every right that the program must not have before the
//! program exists, and cannot be traced by it. The worker talks with it over the status socket: a closed socket ends
//! the task.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use crate::ids::{Ids, NOBODY, Places};
use base::codec::Encode;
use base::{ExitStatus, Limit};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Resource, Signal};
use rustix::pty::OpenptFlags;
use rustix::thread::{CapabilitySet, CapabilitySets, Gid, LinkNameSpaceType, Uid, UnshareFlags};

use super::cgroup::Limits;
use super::exec::{Begun, Program, Surroundings, not_executed};
use super::held::Held;
use super::notices::{self, Decision, Listener};
use super::order::{DELIVER_BYTES_MAX, Deliver, Failure, Input, Order, Report, Sink};
use super::others::{self, Others};
use super::rootfs::{self, Root};
use super::seccomp::{Filters, Variant};
use super::stand_ins::StandIns;
use super::{descriptors, interfaces, socket, sys};

/// What root keeps over the task's own files and processes: as the same command has it at the client.
const ROOT_KEEPS: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID);
/// The part of the machine's memory that segments of System V's may take where no group counts them.
const SEGMENTS_PART: u64 = 16;
/// How long a task's last processes may take to die. Longer than a mirror answers.
const KILL_TIME_MAX: Duration = Duration::from_secs(40);

/// What the zygote hands over.
#[derive(Debug)]
pub struct Setup<'a> {
    pub status: &'a OwnedFd,
    pub order: Order,
    pub users: &'a OwnedFd,
    pub network: &'a OwnedFd,
    /// The `tasks` files of control groups to join.
    pub tasks: &'a [OwnedFd],
    /// The same of the group that the program alone joins.
    pub idle: Option<&'a OwnedFd>,
    pub root: Root<'a>,
    pub filters: &'a Filters,
    /// The worker's own hard resource limits.
    pub hard: &'a [u64],
    pub limits: Limits,
    /// The zygote's process.
    pub zygote: BorrowedFd<'a>,
    /// By which the kernel reports what becomes of stand-ins, if the task has some.
    pub events: Option<&'a OwnedFd>,
}

/// Runs the task to its end, and ends this process.
pub fn run(mut setup: Setup<'_>) -> ! {
    if setup.events.is_some() {
        descriptors::make_room(&mut setup);
    }
    descriptors::close_the_zygotes(&setup);
    let status = setup.status;
    let report = match start(setup) {
        Ok(guest) => guest.supervise(),
        Err(failure) => Some(Report::Failed(failure)),
    };
    if let Some(report) = report {
        let shared = if matches!(report, Report::Exited { .. }) { left_in_shared_memory() } else { None };
        let shared: Vec<BorrowedFd<'_>> = shared.iter().map(|folder| folder.as_fd()).collect();
        let _ = socket::send(status, &report.to_bytes(), &shared, true);
    }
    sys::exit_now(0)
}

/// The folder of shared memory, if something is left in it.
fn left_in_shared_memory() -> Option<OwnedFd> {
    let folder =
        rustix::fs::open("/dev/shm", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut entries = rustix::fs::Dir::read_from(&folder).ok()?;
    let is_entry = |name: &[u8]| name != b"." && name != b"..";
    entries.any(|entry| entry.is_ok_and(|entry| is_entry(entry.file_name().to_bytes()))).then_some(folder)
}

/// An object of System V's that is left: what it is, for people.
fn left_of_system_v() -> Option<String> {
    const KINDS: [&str; 3] = ["a segment of shared memory", "a queue of messages", "a set of semaphores"];
    let left = sys::left_of_system_v().into_iter().zip(KINDS).find(|(count, _)| *count > 0);
    left.map(|(_, what)| what.to_owned())
}

/// The running task as its init sees it.
struct Guest<'a> {
    status: &'a OwnedFd,
    signals: OwnedFd,
    /// Told where exec failed; closed by a successful exec.
    exec: Option<OwnedFd>,
    program: i32,
    /// A standard input that is a file.
    stdin: Option<&'a OwnedFd>,
    /// The terminal's master side, until the worker has it.
    terminal: Option<OwnedFd>,
    has_terminal: bool,
    /// Where its calls arrive that this process decides on.
    listener: Option<Listener>,
    /// The raw status of the program, once it has ended and others go on.
    outlived: Option<i32>,
    /// What outlived it is to end.
    others: Option<Others>,
    /// Whether it stands still though it does not count as stopped.
    held: Held,
}

/// What an order says.
#[derive(PartialEq, Eq)]
enum Ordered {
    /// To go on.
    GoOn,
    /// To end what outlives the program.
    EndOthers,
    /// Nothing more: the worker is gone.
    Gone,
}

fn timespec_until(moment: Instant) -> rustix::time::Timespec {
    let left = moment.saturating_duration_since(Instant::now());
    rustix::time::Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
}

fn step(name: &'static str) -> impl Fn(Errno) -> Failure {
    move |errno| Failure::new(name, errno)
}

fn start<'a>(setup: Setup<'a>) -> Result<Guest<'a>, Failure> {
    die_with(setup.zygote)?;
    for tasks in setup.tasks {
        rustix::io::write(tasks, b"0").map_err(step("control group"))?;
    }
    // What they are called at the worker is no guest's business; a kernel without groups has none to hide.
    // SAFETY: descriptors are not unshared.
    let _ = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWCGROUP) };
    // Out of memory, guests go first. Before the credentials change, for the file is root's.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    if setup.order.first_process > 1 {
        // As well while the credentials are root's. A kernel without it gives the next number.
        let _ = std::fs::write("/proc/sys/kernel/ns_last_pid", (setup.order.first_process - 1).to_string());
    }
    if !setup.limits.memory {
        // Segments of System V's that nobody has attached are in no process's memory, so they are not seen.
        let info = rustix::system::sysinfo();
        let bytes = info.totalram as u64 * u64::from(info.mem_unit) / SEGMENTS_PART;
        let _ = std::fs::write("/proc/sys/kernel/shmall", (bytes / rustix::param::page_size() as u64).to_string());
    }
    let network = Some(LinkNameSpaceType::Network);
    rustix::thread::move_into_link_name_space(setup.network.as_fd(), network).map_err(step("network namespace"))?;
    if setup.order.has_network() {
        let device = interfaces::open().map_err(step(super::STEP_NETWORK))?;
        let told = socket::send(setup.status, &Report::Network.to_bytes(), &[device.as_fd()], true);
        told.map_err(step(super::STEP_NETWORK))?;
    }
    rustix::process::setsid().map_err(step("session"))?;
    if setup.order.session_nice != 0 {
        // Without rights over it, or without autogroups, it counts as any session.
        let _ = std::fs::write("/proc/self/autogroup", setup.order.session_nice.to_string());
    }
    let name = &setup.order.command.hostname;
    rustix::system::sethostname(&name[..name.len().min(64)]).map_err(step("host name"))?;
    let Ids { users, groups } = &setup.order.ids;
    let [uid, gid] = [users.shown(setup.order.command.uid), groups.shown(setup.order.command.gid)];
    let outside = |places: &Places, id| setup.root.id_base + places.offset_of(id).unwrap_or(NOBODY);
    descriptors::own_pipes(&setup.order, outside(users, uid), outside(groups, gid));
    rootfs::enter(&setup.root)?;

    become_user(&setup, uid, gid).map_err(step("user"))?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(step("user"))?;
    // The change of user has undone it.
    die_with(setup.zygote)?;
    let listener = install_filter(&setup, uid)?;
    launch(setup, listener)
}

/// Where the calls arrive that the filter has this process decide, if the task is watched and this kernel can do that.
fn install_filter(setup: &Setup<'_>, uid: u32) -> Result<Option<Listener>, Failure> {
    let attributes = setup.order.keeps_xattrs_back;
    let unwatched = attributes.then(base::Watch::default);
    if let Some(watch) = setup.order.watch.as_ref().or(unwatched.as_ref()) {
        let (programs, locks, lock_files) = (!watch.formats.is_empty(), watch.locks, watch.lock_files);
        let has_files = watch.outputs.iter().any(Option::is_some);
        let rights = uid != 0;
        let variant = Variant { programs, locks, lock_files, attributes, outputs: has_files, rights };
        let ordinary = &*setup.filters.watched(variant);
        let (installed, stand_ins) = match watch.descriptors.as_slice() {
            [] => (notices::install(ordinary), None),
            numbers => {
                let events = setup.events.ok_or_else(|| Failure::new("descriptors", Errno::BADF))?;
                let placed = StandIns::place(numbers, ordinary.clone(), events).map_err(step("descriptors"))?;
                let filter = setup.filters.with_stand_ins(variant, numbers);
                (Ok(notices::install(&filter).map_err(step("descriptors"))?), Some(placed))
            }
        };
        if let Ok(listener) = installed {
            let outputs = descriptors::outputs(&setup.order, watch);
            // The first is this process itself.
            let first = setup.order.first_process.max(1);
            let listener = Listener::new(listener, watch.clone(), uid == 0, stand_ins, outputs, first);
            return Ok(Some(listener.of_ids(setup.order.ids.clone())));
        }
    }
    if attributes {
        return Err(Failure::new("system call filter", Errno::OPNOTSUPP));
    }
    match seccompiler::apply_filter(setup.filters.plain()) {
        Ok(()) => Ok(None),
        Err(error) => Err(Failure { step: "system call filter".into(), errno: 0, message: error.to_string() }),
    }
}

/// Has this process killed when the zygote dies.
fn die_with(zygote: BorrowedFd<'_>) -> Result<(), Failure> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(step("parent"))?;
    // It may have died just before: its process descriptor is readable then.
    let mut poll = [PollFd::from_borrowed_fd(zygote, PollFlags::IN)];
    match rustix::event::poll(&mut poll, Some(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(0) => Ok(()),
        _ => sys::exit_now(1),
    }
}

fn become_user(setup: &Setup<'_>, uid: u32, gid: u32) -> Result<(), Errno> {
    rustix::thread::move_into_link_name_space(setup.users.as_fd(), Some(LinkNameSpaceType::User))?;
    let keeps = if uid == 0 { ROOT_KEEPS } else { CapabilitySet::empty() };
    for capability in 0..64 {
        if keeps.bits() & (1 << capability) == 0 {
            match sys::drop_bounding(capability) {
                Ok(()) => {}
                Err(Errno::INVAL) => break,
                Err(error) => return Err(error),
            }
        }
    }
    let groups: Vec<Gid> =
        setup.order.command.groups.iter().map(|group| Gid::from_raw(setup.order.ids.groups.shown(*group))).collect();
    rustix::thread::set_thread_groups(&groups)?;
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    let sets = CapabilitySets { effective: keeps, permitted: keeps, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets)
}

/// Standard streams, terminal, fork.
fn launch<'a>(setup: Setup<'a>, listener: Option<Listener>) -> Result<Guest<'a>, Failure> {
    let stand_ins = listener.as_ref().and_then(Listener::stand_ins);
    let places: Vec<RawFd> = stand_ins.iter().flat_map(|stand_ins| stand_ins.numbers()).collect();
    let mut keep = descriptors::kept(&setup);
    keep.extend(&places);
    keep.extend(stand_ins.iter().map(|stand_ins| stand_ins.events().as_raw_fd()));
    keep.extend(listener.iter().map(|listener| listener.as_fd().as_raw_fd()));
    // From here on paths are the client's: namespaces and groups that were joined are closed.
    sys::close_all_but(&mut keep);
    // What is made here must live as long as the process: nothing is dropped, exit_now ends it.
    let order: &'a mut Order = Box::leak(Box::new(setup.order));
    let bounds = bounds(order, setup.limits);
    let command = std::mem::take(&mut order.command);
    let order: &'a Order = order;
    let shows_all =
        matches!((&order.stdin, &order.stdout, &order.stderr), (Input::Terminal, Sink::Terminal, Sink::Terminal));
    let terminal =
        order.terminal.map(|window| open_terminal(window, shows_all)).transpose().map_err(step("terminal"))?;
    let (streams, stdin) = streams(order, terminal.as_ref().map(|(_, slave)| slave))?;
    let program = Program::new(command, &order.cpus, order.priority, setup.hard, &bounds).ok_or_else(|| Failure {
        step: super::STEP_EXECUTE.into(),
        errno: libc::EINVAL,
        message: "a NUL byte in the command".into(),
    })?;
    let signals = sys::signal_descriptor(&[libc::SIGCHLD, libc::SIGHUP]).map_err(step("signals"))?;
    // Nothing of it is freed: this process ends in exit_now.
    let program = Box::leak(Box::new(program));
    let slave = terminal.as_ref().map(|(_, slave)| slave);
    let Begun { id, exec } = {
        let surroundings = Surroundings { streams, terminal: slave, idle: setup.idle, keep: places };
        program.begin(surroundings, decides_on_start(order))?
    };
    let (has_terminal, terminal) = match terminal {
        Some((master, _slave)) => (true, Some(master)),
        None => (false, None),
    };
    let mut keep = vec![setup.status.as_raw_fd(), signals.as_raw_fd()];
    keep.extend(exec.iter().map(|exec| exec.as_raw_fd()));
    keep.extend(listener.iter().map(|listener| listener.as_fd().as_raw_fd()));
    let stand_ins = listener.as_ref().and_then(Listener::stand_ins);
    keep.extend(stand_ins.iter().flat_map(|stand_ins| stand_ins.numbers().chain([stand_ins.events().as_raw_fd()])));
    keep.extend(stdin.iter().chain(&terminal.as_ref()).map(|fd| fd.as_raw_fd()));
    sys::close_all_but(&mut keep);
    let is_started = exec.is_none();
    let mut guest = Guest {
        status: setup.status,
        signals,
        exec,
        program: id,
        stdin,
        terminal,
        has_terminal,
        listener,
        outlived: None,
        others: None,
        held: Held::new(has_terminal),
    };
    if is_started {
        guest.has_started();
    }
    Ok(guest)
}

/// Whether this process must decide on calls of the program's process before it is the program.
fn decides_on_start(order: &Order) -> bool {
    order.watch.as_ref().is_some_and(|watch| !watch.formats.is_empty() || !watch.descriptors.is_empty())
}

/// No limit that lets a guest raise its priority; and limits of single processes, or of a user's processes, where there are no control groups for
/// all of them. The latter is far above what a task may have, which is watched: who comes to it is told of it.
fn bounds(order: &Order, limits: Limits) -> Vec<Limit> {
    let bound = |resource: u32, value: u64| Limit { resource, soft: value, hard: value };
    let memory = order.memory_bytes_max.filter(|_| !limits.memory).map(|bytes| bound(Resource::Data as u32, bytes));
    let pids =
        order.pids_max.filter(|_| !limits.pids).map(|pids| bound(Resource::Nproc as u32, 2 * u64::from(pids) + 1_000));
    let priority = [Resource::Nice, Resource::Rtprio].map(|resource| bound(resource as u32, 0));
    priority.into_iter().chain(memory).chain(pids).collect()
}

/// A terminal of the task's own: master and slave. It becomes this session's. Unless the task's streams are all terminals,
/// the client's terminal still turns line feeds into new lines, and this one must not.
fn open_terminal(window: base::WindowSize, shows_all: bool) -> Result<(OwnedFd, OwnedFd), Errno> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = rustix::pty::openpt(flags)?;
    rustix::pty::unlockpt(&master)?;
    let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
    let size = rustix::termios::Winsize { ws_row: window.rows, ws_col: window.columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&master, size)?;
    if !shows_all {
        let mut settings = rustix::termios::tcgetattr(&slave)?;
        settings.output_modes.remove(rustix::termios::OutputModes::OPOST);
        rustix::termios::tcsetattr(&slave, rustix::termios::OptionalActions::Now, &settings)?;
    }
    rustix::process::ioctl_tiocsctty(&slave)?;
    Ok((master, slave))
}

/// Descriptors for standard input, output and error, and the input's if it is a file.
fn streams<'a>(order: &'a Order, terminal: Option<&OwnedFd>) -> Result<([RawFd; 3], Option<&'a OwnedFd>), Failure> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let null: &'static OwnedFd = Box::leak(Box::new(null.map_err(step("/dev/null"))?));
    let terminal = terminal.map(|terminal| terminal.as_raw_fd());
    let of_terminal = || {
        let message = "no terminal was ordered".to_owned();
        terminal.ok_or_else(|| Failure { step: "standard streams".into(), errno: 0, message })
    };
    let mut file = None;
    let stdin = match &order.stdin {
        Input::Null => null.as_raw_fd(),
        Input::Stream(stream) => stream.as_raw_fd(),
        Input::Terminal => of_terminal()?,
        Input::File { path, offset } => {
            let opened = open_input(path, *offset).map_err(step("standard input"))?;
            file.insert(&*Box::leak(Box::new(opened))).as_raw_fd()
        }
    };
    let sink = |sink: &Sink, same: RawFd| {
        Ok(match sink {
            Sink::Null => null.as_raw_fd(),
            Sink::Stream(stream) => stream.as_raw_fd(),
            Sink::SameAsStdout => same,
            Sink::Terminal => of_terminal()?,
        })
    };
    let stdout = sink(&order.stdout, null.as_raw_fd())?;
    Ok(([stdin, stdout, sink(&order.stderr, stdout)?], file))
}

fn open_input(path: &[u8], offset: u64) -> Result<OwnedFd, Errno> {
    let path = CString::new(path).map_err(|_| Errno::INVAL)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = sys::open_inside(&path, flags)?;
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(offset))?;
    Ok(file)
}

impl Guest<'_> {
    /// Until the program has ended: the last report. `None`: the worker is gone, or wants no more of this task.
    fn supervise(mut self) -> Option<Report> {
        loop {
            let [told, ordered, signalled, noticed, used] = self.wait();
            // First, for exec comes before the end.
            if told && let Some(failure) = self.on_exec() {
                return Some(Report::Failed(failure));
            }
            if noticed {
                self.on_notice();
            }
            if used && let Some(why) = self.stand_ins().and_then(StandIns::why_used) {
                self.report(&Report::Unable(why), &[]);
            }
            if ordered {
                match (self.on_order(), self.outlived) {
                    (Ordered::Gone, _) => {
                        self.end_all();
                        return None;
                    }
                    (Ordered::EndOthers, Some(_)) => self.others = self.others.take().or_else(|| Some(Others::begin())),
                    _ => {}
                }
            }
            if signalled {
                let ended = self.on_signal();
                if ended.is_some() && others::remain() {
                    self.outlived = ended;
                    match self.has_terminal {
                        true => self.others = Some(Others::begin()),
                        false => self.report(&Report::OthersRemain, &[]),
                    }
                } else if let Some(status) = ended.or(self.outlived.filter(|_| !others::remain())) {
                    return Some(self.on_end(status));
                }
            }
            if let Some(signal) = self.held.look(self.program) {
                self.report(&Report::Stopped(signal), &[]);
            }
            if let (Some(status), Some(others)) = (self.outlived, &mut self.others)
                && (others::was_interrupted(status) || others.are_left())
            {
                return Some(self.on_end(status));
            }
        }
    }

    /// Waits for exec, the worker, a signal, a call to decide on or a stand-in's use: which of them have something.
    fn wait(&self) -> [bool; 5] {
        let mut poll = vec![PollFd::new(self.status, PollFlags::IN), PollFd::new(&self.signals, PollFlags::IN)];
        let exec = self.exec.as_ref().map(|exec| PollFd::new(exec, PollFlags::IN));
        let listener = self.listener.as_ref().map(|listener| PollFd::new(listener, PollFlags::IN));
        let at = exec.as_ref().map(|_| poll.len());
        poll.extend(exec);
        let at = [at, listener.as_ref().map(|_| poll.len())];
        poll.extend(listener);
        let stand_ins = self.stand_ins();
        let used = stand_ins.map(|_| poll.len());
        poll.extend(stand_ins.map(|stand_ins| PollFd::from_borrowed_fd(stand_ins.events(), PollFlags::IN)));
        // Without an end of its own: a task may run for ever, and its worker's death closes the status socket.
        let looks = self.others.as_ref().map(|_| Instant::now() + Duration::from_millis(others::LOOK_MS));
        let look = looks.into_iter().chain(self.held.next()).min().map(timespec_until);
        let _ = sys::poll(&mut poll, look.as_ref());
        let ready = |at: Option<usize>| at.is_some_and(|at| !poll[at].revents().is_empty());
        [ready(at[0]), ready(Some(0)), ready(Some(1)), ready(at[1]), ready(used)]
    }

    fn stand_ins(&self) -> Option<&StandIns> {
        self.listener.as_ref().and_then(Listener::stand_ins)
    }

    fn on_notice(&mut self) {
        match self.listener.as_mut().map(Listener::attend) {
            Some(Decision::CallOff(why)) => self.report(&Report::Unable(why), &[]),
            Some(Decision::Names(owner)) => self.report(&Report::Names(owner), &[]),
            Some(Decision::FailAndTell(_, what)) => self.report(&Report::Refused(what), &[]),
            Some(Decision::Ask(lock)) => self.report(&Report::Lock(lock), &[]),
            Some(Decision::AskService(number, sought)) => self.report(&Report::Service(number, sought), &[]),
            Some(Decision::Adds(path)) => self.report(&Report::Adds(path), &[]),
            Some(Decision::Go | Decision::Return(_) | Decision::Fail(_)) | None => {}
        }
    }

    fn report(&self, report: &Report, descriptors: &[BorrowedFd<'_>]) {
        // A worker that is gone shows as a closed socket in the next round.
        let _ = socket::send(self.status, &report.to_bytes(), descriptors, true);
    }

    fn on_exec(&mut self) -> Option<Failure> {
        let mut told = [0; 5];
        let count = self.exec.take().map_or(Ok(0), |exec| rustix::io::read(&exec, &mut told));
        if count == Ok(told.len()) {
            let [at, errno @ ..] = told;
            let _ = sys::wait_for(self.program, 0);
            return Some(not_executed(at, Errno::from_raw_os_error(i32::from_le_bytes(errno))));
        }
        self.has_started();
        None
    }

    fn has_started(&mut self) {
        let terminal = self.terminal.take();
        let descriptors: Vec<_> = terminal.iter().map(|terminal| terminal.as_fd()).collect();
        self.report(&Report::Started, &descriptors);
    }

    /// Carries out one order.
    fn on_order(&mut self) -> Ordered {
        let mut bytes = [0; DELIVER_BYTES_MAX];
        let (count, _) = match socket::receive(self.status, &mut bytes) {
            Ok(Some(received)) => received,
            Err(Errno::AGAIN) => return Ordered::GoOn,
            Ok(None) | Err(_) => return Ordered::Gone,
        };
        match Deliver::from_bytes(&bytes[..count]) {
            Ok(Deliver::Locked(number)) => self.listener.iter_mut().for_each(|listener| listener.grant(number)),
            Ok(Deliver::Service { number, is_there }) => {
                let called_off = self.listener.as_mut().and_then(|listener| listener.hear_of_service(number, is_there));
                called_off.into_iter().for_each(|why| self.report(&Report::Unable(why), &[]));
            }
            Ok(Deliver::EndOthers) => return Ordered::EndOthers,
            Ok(Deliver::Signal { number, group }) => {
                let _ = sys::kill(if group { -self.program } else { self.program }, number.into());
                self.held.sent(number.into());
                self.report(&Report::Signalled(number), &[]);
            }
            Err(_) => {}
        }
        Ordered::GoOn
    }

    /// Reaps, and passes on what happened to the program; its raw status if it ended.
    fn on_signal(&self) -> Option<i32> {
        while let Some((signal, by_kernel)) = sys::read_signal(&self.signals) {
            // The terminal is gone: the session's leader is told, and tells the program.
            if signal == libc::SIGHUP && by_kernel && self.has_terminal {
                let _ = sys::kill(-self.program, libc::SIGHUP);
                let _ = sys::kill(-self.program, libc::SIGCONT);
            }
        }
        let options = libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED;
        let mut ended = None;
        while let Ok(Some((id, status))) = sys::wait_any(options) {
            if id != self.program {
                continue;
            }
            if libc::WIFSTOPPED(status) {
                self.report(&Report::Stopped(libc::WSTOPSIG(status) as u8), &[]);
            } else if libc::WIFCONTINUED(status) {
                self.report(&Report::Continued, &[]);
            } else {
                ended = Some(status);
            }
        }
        ended
    }

    fn on_end(&self, status: i32) -> Report {
        if others::remain() {
            others::names(status).into_iter().for_each(|name| self.report(&Report::Left(name), &[]));
        }
        if !self.end_all() {
            let message = format!("processes of the task do not die within {} s", KILL_TIME_MAX.as_secs());
            return Report::Failed(Failure { step: "end".into(), errno: 0, message });
        }
        Report::Exited {
            status: ExitStatus::from_wait(status),
            usage: sys::usage_of_children(),
            stdin_offset: self.stdin.and_then(|stdin| rustix::fs::tell(stdin).ok()),
            left: left_of_system_v(),
        }
    }

    /// Kills and reaps every other process of the task; `false` if one does not die.
    fn end_all(&self) -> bool {
        // By the clock: each child that dies ends a wait.
        let until = Instant::now() + KILL_TIME_MAX;
        while Instant::now() < until {
            loop {
                match sys::wait_any(libc::WNOHANG) {
                    Ok(Some(_)) => {}
                    // Orphans become this process's children, so without children there are no others.
                    Err(Errno::CHILD) => return true,
                    Ok(None) | Err(_) => break,
                }
            }
            let _ = sys::kill(-1, libc::SIGKILL);
            let mut poll = [PollFd::new(&self.signals, PollFlags::IN)];
            let second = rustix::time::Timespec { tv_sec: 1, tv_nsec: 0 };
            let _ = sys::poll(&mut poll, Some(&second));
            while sys::read_signal(&self.signals).is_some() {}
        }
        false
    }
}
