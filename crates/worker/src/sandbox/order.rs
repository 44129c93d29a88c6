//! What the worker orders of the sandbox, what a guest's init reports, and the encodings of both.

use std::io::{Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::ids::{Ids, Owner};
use base::codec::{Encode, Malformed, Reader, Writer};
use base::{Command, ExitStatus, Mount, Usage, Watch, WindowSize};

/// Longest order in bytes: arguments and environment.
const ORDER_BYTES_MAX: u64 = 32 << 20;

/// One task to be started.
#[derive(Debug)]
pub struct Order {
    /// What to run. Its ids that have no place among `ids` become nobody's.
    pub command: Command,
    /// Folder that is the lower layer of the task's root: a lane of a mirror, mounted where the worker sees it.
    pub lower: PathBuf,
    /// Mounts of the client's that the task is shown, in order of their paths: each is a file system of its own there.
    pub mounts: Vec<Mount>,
    /// Folder that holds the empty folders `upper`, `work` and `root`; made by the caller, never used twice.
    pub scratch: PathBuf,
    /// Standard input.
    pub stdin: Input,
    /// Standard output.
    pub stdout: Sink,
    /// Standard error.
    pub stderr: Sink,
    /// The task has a terminal of this size.
    pub terminal: Option<WindowSize>,
    /// Low ids inside are `id_base` and up outside. One number per client, never shared.
    pub id_base: u32,
    /// Where the others are.
    pub ids: Ids,
    /// CPUs that the task is to use, and that `nproc` shows; empty: all. A program can undo this.
    pub cpus: Vec<u32>,
    /// Number of the program's process inside; 0: the next one.
    pub first_process: u32,
    /// Most memory in bytes; `None`: unlimited.
    pub memory_bytes_max: Option<u64>,
    /// Most processes and threads; `None`: unlimited.
    pub pids_max: Option<u32>,
    /// What it is to this machine's owner.
    pub priority: Priority,
    /// Nice value of the task's session among this machine's sessions, where the kernel tells sessions apart (autogroups).
    pub session_nice: i8,
    /// What calls the task off; `None`: what it may not do is refused, and it goes on.
    pub watch: Option<Watch>,
    /// Values of attributes stayed at the client: who asks for one is called off.
    pub keeps_xattrs_back: bool,
}

/// How a task compares with what else runs on the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// After everybody else: somebody else's work.
    #[default]
    Guest,
    /// As any process: work of the account that the worker belongs to, sent from this machine.
    Owner,
}

/// Where standard input comes from.
#[derive(Debug, Default)]
pub enum Input {
    /// `/dev/null`.
    #[default]
    Null,
    /// A file inside, opened for reading at this offset.
    File {
        /// Absolute path inside.
        path: Vec<u8>,
        /// Offset in bytes.
        offset: u64,
    },
    /// This descriptor: the reading end of a pipe.
    Stream(OwnedFd),
    /// The task's terminal.
    Terminal,
}

/// Where standard output or standard error goes.
#[derive(Debug, Default)]
pub enum Sink {
    /// `/dev/null`.
    #[default]
    Null,
    /// This descriptor: the writing end of a pipe.
    Stream(OwnedFd),
    /// Standard error only: the same open file as standard output.
    SameAsStdout,
    /// The task's terminal.
    Terminal,
}

impl Order {
    /// Whether the task may use the network.
    pub fn has_network(&self) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.network)
    }

    /// The bytes, and the descriptors that go with them, in order.
    pub(super) fn pack(&self) -> (Vec<u8>, Vec<BorrowedFd<'_>>) {
        let mut descriptors = Vec::new();
        let mut out = Writer::default();
        self.command.encode(&mut out);
        out.bytes(self.lower.as_os_str().as_bytes());
        out.bytes(self.scratch.as_os_str().as_bytes());
        match &self.stdin {
            Input::Null => out.u8(0),
            Input::File { path, offset } => {
                out.u8(1);
                out.bytes(path);
                out.u64(*offset);
            }
            Input::Stream(stream) => {
                out.u8(2);
                descriptors.push(stream.as_fd());
            }
            Input::Terminal => out.u8(3),
        }
        for sink in [&self.stdout, &self.stderr] {
            match sink {
                Sink::Null => out.u8(0),
                Sink::SameAsStdout => out.u8(1),
                Sink::Stream(stream) => {
                    out.u8(2);
                    descriptors.push(stream.as_fd());
                }
                Sink::Terminal => out.u8(3),
            }
        }
        out.option(self.terminal.as_ref(), |out, window| {
            out.u32(window.rows.into());
            out.u32(window.columns.into());
        });
        out.u32(self.id_base);
        self.ids.encode(&mut out);
        out.list(&self.cpus, |out, cpu| out.u32(*cpu));
        out.u32(self.first_process);
        out.option(self.memory_bytes_max.as_ref(), |out, bytes| out.u64(*bytes));
        out.option(self.pids_max.as_ref(), |out, pids| out.u32(*pids));
        out.bool(self.priority == Priority::Owner);
        out.u8(self.session_nice as u8);
        out.option(self.watch.as_ref(), |out, watch| watch.encode(out));
        out.bool(self.keeps_xattrs_back);
        out.list(&self.mounts, |out, mount| mount.encode(out));
        (out.0, descriptors)
    }

    /// The order in these bytes; takes its descriptors from the front of the list.
    pub(super) fn unpack(bytes: &[u8], descriptors: Vec<OwnedFd>) -> Result<Self, Malformed> {
        let mut descriptors = descriptors.into_iter();
        let mut next = || descriptors.next().ok_or(Malformed("an order with too few descriptors"));
        let from = &mut Reader::new(bytes);
        let command = Command::decode(from)?;
        let lower = PathBuf::from(std::ffi::OsString::from_vec(from.bytes()?.to_vec()));
        let scratch = PathBuf::from(std::ffi::OsString::from_vec(from.bytes()?.to_vec()));
        let stdin = match from.u8()? {
            0 => Input::Null,
            1 => Input::File { path: from.bytes()?.to_vec(), offset: from.u64()? },
            2 => Input::Stream(next()?),
            3 => Input::Terminal,
            _ => return Err(Malformed("an unknown kind of standard input")),
        };
        let mut sink = || {
            Ok(match from.u8()? {
                0 => Sink::Null,
                1 => Sink::SameAsStdout,
                2 => Sink::Stream(next()?),
                3 => Sink::Terminal,
                _ => return Err(Malformed("an unknown kind of output")),
            })
        };
        let (stdout, stderr) = (sink()?, sink()?);
        let terminal = from.option(|from| {
            let mut side = || u16::try_from(from.u32()?).map_err(|_| Malformed("a terminal of impossible size"));
            Ok(WindowSize { rows: side()?, columns: side()? })
        })?;
        let order = Self {
            command,
            lower,
            scratch,
            stdin,
            stdout,
            stderr,
            terminal,
            id_base: from.u32()?,
            ids: Ids::decode(from)?,
            cpus: from.list(|from| from.u32())?,
            first_process: from.u32()?,
            memory_bytes_max: from.option(|from| from.u64())?,
            pids_max: from.option(|from| from.u32())?,
            priority: if from.bool()? { Priority::Owner } else { Priority::Guest },
            session_nice: from.u8()? as i8,
            watch: from.option(Watch::decode)?,
            keeps_xattrs_back: from.bool()?,
            mounts: from.list(Mount::decode)?,
        };
        if from.is_empty() { Ok(order) } else { Err(Malformed("bytes left over")) }
    }
}

/// A memory file with these bytes, for what does not fit a packet.
pub(super) fn to_memory_file(bytes: &[u8]) -> std::io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create(c"order", rustix::fs::MemfdFlags::CLOEXEC)?;
    std::io::Write::write_all(&mut std::fs::File::from(file.try_clone()?), bytes)?;
    Ok(file)
}

/// The bytes of a [`to_memory_file`].
pub(super) fn from_memory_file(file: OwnedFd) -> std::io::Result<Vec<u8>> {
    let mut file = std::fs::File::from(file);
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(ORDER_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What the zygote and a guest's init tell the worker.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// The guest's init exists, in the control group of this name, or in none; a descriptor of its process comes with this.
    Forked(String),
    /// The task could not be started.
    Failed(Failure),
    /// The program runs. With a terminal, its master side comes with this.
    Started,
    /// The program was stopped by this signal.
    Stopped(u8),
    /// The program goes on.
    Continued,
    /// The program has ended, but other processes of the task have not.
    OthersRemain,
    /// The program ended, and no process of the task is left.
    Exited {
        /// How.
        status: ExitStatus,
        /// What all processes of the task took.
        usage: Usage,
        /// Where a standard input that is a file was left.
        stdin_offset: Option<u64>,
        /// An object of System V's that is left, of which nothing goes to the client: what it is, for people. The folder of
        /// shared memory, if something is left in it, comes with this.
        left: Option<String>,
    },
    /// The task does what has to be done at its client: what that is, for people. It is to be ended.
    Unable(String),
    /// The same, since it names a user or group that it does not know.
    Names(Owner),
    /// The task was refused something, which is worth telling.
    Refused(String),
    /// The task waits for a lock.
    Lock(Lock),
    /// A process of this name would have outlived the program, and ends with it.
    Left(String),
    /// The task makes a file at this path to add to it.
    Adds(Vec<u8>),
    /// A signal of this number was delivered.
    Signalled(u8),
    /// The task has a network interface: its packets come by the descriptor with this.
    Network,
    /// The task waits to hear whether its client's machine has this, by this number.
    Service(u64, Sought),
}

/// What a task looks for that it has not itself: its client's machine may have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sought {
    /// A service at this port of the loopback address, by TCP or UDP.
    Port(u16),
    /// A process, or with a negative number a group.
    Process(i32),
}

impl Sought {
    /// Port and process; one of them is 0.
    pub fn numbers(self) -> (u16, i32) {
        match self {
            Self::Port(port) => (port, 0),
            Self::Process(process) => (0, process),
        }
    }

    fn of(port: u16, process: i32) -> Self {
        if process == 0 { Self::Port(port) } else { Self::Process(process) }
    }
}

/// A lock that a task wants on a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lock {
    /// By which it is granted.
    pub number: u64,
    /// The file, as the task sees it.
    pub path: Vec<u8>,
    /// For one alone.
    pub is_exclusive: bool,
    /// Of these bytes, from and how many (0: to the end); else of the file.
    pub range: Option<(i64, i64)>,
    /// The file itself is the lock, and the task makes it.
    pub is_made: bool,
    /// The program waits for it.
    pub may_wait: bool,
    /// The task makes it, and sees nothing there.
    pub is_gone: bool,
}

/// Why a task could not be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What was being done; [`super::STEP_EXECUTE`] and [`super::STEP_DIRECTORY`] are the command's own fault.
    pub step: String,
    /// The system's error number; 0 if it is none of the system's.
    pub errno: i32,
    /// More, for a person.
    pub message: String,
}

impl Failure {
    pub(super) fn new(step: &str, errno: rustix::io::Errno) -> Self {
        Self { step: step.to_owned(), errno: errno.raw_os_error(), message: errno.to_string() }
    }

    /// The status that a shell gives a command that could not be executed: 127 where it was not found, otherwise 126.
    pub fn shell_code(&self) -> u8 {
        if self.errno == libc::ENOENT { 127 } else { 126 }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.step, self.message)
    }
}

impl Encode for Report {
    fn encode(&self, out: &mut Writer) {
        match self {
            Self::Forked(group) => {
                out.u8(0);
                out.bytes(group.as_bytes());
            }
            Self::Failed(failure) => {
                out.u8(1);
                out.bytes(failure.step.as_bytes());
                out.i32(failure.errno);
                out.bytes(failure.message.as_bytes());
            }
            Self::Started => out.u8(2),
            Self::Stopped(signal) => out.raw(&[3, *signal]),
            Self::Continued => out.u8(4),
            Self::OthersRemain => out.u8(6),
            Self::Unable(text) | Self::Refused(text) => {
                out.u8(if matches!(self, Self::Unable(_)) { 7 } else { 8 });
                out.bytes(text.as_bytes());
            }
            Self::Names(owner) => {
                out.u8(15);
                owner.encode(out);
            }
            Self::Lock(lock) => {
                out.u8(9);
                out.u64(lock.number);
                out.bytes(&lock.path);
                out.bool(lock.is_exclusive);
                out.option(lock.range.as_ref(), |out, (start, len)| {
                    out.u64(*start as u64);
                    out.u64(*len as u64);
                });
                out.bool(lock.is_made);
                out.bool(lock.may_wait);
                out.bool(lock.is_gone);
            }
            Self::Left(name) => {
                out.u8(10);
                out.bytes(name.as_bytes());
            }
            Self::Adds(path) => {
                out.u8(11);
                out.bytes(path);
            }
            Self::Signalled(signal) => {
                out.u8(12);
                out.u8(*signal);
            }
            Self::Network => out.u8(13),
            Self::Service(number, sought) => {
                let (port, process) = sought.numbers();
                out.u8(14);
                out.u64(*number);
                out.u32(port.into());
                out.i32(process);
            }
            Self::Exited { status, usage, stdin_offset, left } => {
                out.u8(5);
                status.encode(out);
                out.u64(usage.user_us);
                out.u64(usage.system_us);
                out.u64(usage.max_rss_kib);
                out.option(stdin_offset.as_ref(), |out, offset| out.u64(*offset));
                out.option(left.as_ref(), |out, left| out.bytes(left.as_bytes()));
            }
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let text = |from: &mut Reader<'_>| Ok(String::from_utf8_lossy(from.bytes()?).into_owned());
        Ok(match from.u8()? {
            0 => Self::Forked(text(from)?),
            1 => Self::Failed(Failure { step: text(from)?, errno: from.i32()?, message: text(from)? }),
            2 => Self::Started,
            3 => Self::Stopped(from.u8()?),
            4 => Self::Continued,
            6 => Self::OthersRemain,
            7 => Self::Unable(text(from)?),
            8 => Self::Refused(text(from)?),
            15 => Self::Names(Owner::decode(from)?),
            10 => Self::Left(text(from)?),
            11 => Self::Adds(from.bytes()?.to_vec()),
            12 => Self::Signalled(from.u8()?),
            13 => Self::Network,
            14 => Self::Service(from.u64()?, Sought::of(from.u32()? as u16, from.i32()?)),
            9 => Self::Lock(Lock {
                number: from.u64()?,
                path: from.bytes()?.to_vec(),
                is_exclusive: from.bool()?,
                range: from.option(|from| Ok((from.u64()? as i64, from.u64()? as i64)))?,
                is_made: from.bool()?,
                may_wait: from.bool()?,
                is_gone: from.bool()?,
            }),
            5 => Self::Exited {
                status: ExitStatus::decode(from)?,
                usage: Usage { user_us: from.u64()?, system_us: from.u64()?, max_rss_kib: from.u64()? },
                stdin_offset: from.option(|from| from.u64())?,
                left: from.option(text)?,
            },
            _ => return Err(Malformed("an unknown report")),
        })
    }
}

/// What the worker tells a running task's init.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deliver {
    /// A signal of this number is for the program, or for its process group.
    Signal { number: u8, group: bool },
    /// What remains after the program is to end.
    EndOthers,
    /// The lock of this number is the task's.
    Locked(u64),
    /// The answer to the question of this number: whether there is a service.
    Service { number: u64, is_there: bool },
}

/// Longest encoding of what an init is told, bytes.
pub(super) const DELIVER_BYTES_MAX: usize = 10;

impl Encode for Deliver {
    fn encode(&self, out: &mut Writer) {
        match self {
            Self::Signal { number, group } => out.raw(&[0, *number, u8::from(*group)]),
            Self::EndOthers => out.u8(1),
            Self::Locked(number) => {
                out.u8(2);
                out.u64(*number);
            }
            Self::Service { number, is_there } => {
                out.u8(3);
                out.u64(*number);
                out.bool(*is_there);
            }
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match from.u8()? {
            0 => Self::Signal { number: from.u8()?, group: from.bool()? },
            1 => Self::EndOthers,
            2 => Self::Locked(from.u64()?),
            3 => Self::Service { number: from.u64()?, is_there: from.bool()? },
            _ => return Err(Malformed("an unknown order to an init")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_and_reports_round_trip() {
        let (read, write) = rustix::pipe::pipe().expect("a pipe");
        let table = crate::ids::Table::new(7);
        table.place(&Command { uid: 70_000, gid: 70_001, ..Command::default() }).expect("there is room");
        let order = Order {
            command: Command { argv: vec![b"x".to_vec()], ..Command::default() },
            lower: "/l".into(),
            scratch: "/s".into(),
            stdin: Input::Stream(read),
            stdout: Sink::Stream(write),
            stderr: Sink::SameAsStdout,
            terminal: Some(WindowSize { rows: 2, columns: 3 }),
            id_base: 7,
            ids: table.places(),
            cpus: vec![1],
            first_process: 3000,
            memory_bytes_max: Some(9),
            pids_max: None,
            priority: Priority::Owner,
            session_nice: -9,
            watch: Some(Watch::default()),
            keeps_xattrs_back: true,
            mounts: vec![Mount {
                at: base::TreePath::parse(b"/m").expect("a normal path"),
                read_only: true,
                no_exec: false,
            }],
        };
        let (bytes, descriptors) = order.pack();
        let copies = descriptors.iter().map(|fd| fd.try_clone_to_owned().expect("a copy")).collect();
        let again = Order::unpack(&bytes, copies).expect("a good order");
        assert_eq!((again.pack().0, &again.ids), (bytes.clone(), &order.ids));
        assert!(Order::unpack(&bytes, Vec::new()).is_err(), "descriptors are missing");

        let ended =
            Report::Exited { status: ExitStatus::Code(3), usage: Usage::default(), stdin_offset: Some(4), left: None };
        let sought = [Sought::Port(65535), Sought::Process(-78)].map(|sought| Report::Service(u64::MAX, sought));
        for report in [ended, Report::Signalled(64), Report::Network].into_iter().chain(sought) {
            assert_eq!(Report::from_bytes(&report.to_bytes()), Ok(report));
        }
        let signal = Deliver::Signal { number: 64, group: true };
        let service = Deliver::Service { number: u64::MAX, is_there: true };
        for told in [signal, Deliver::EndOthers, Deliver::Locked(u64::MAX), service] {
            let bytes = told.to_bytes();
            assert!(bytes.len() <= DELIVER_BYTES_MAX);
            assert_eq!(Deliver::from_bytes(&bytes), Ok(told));
        }
    }

    #[test]
    fn large_orders_travel_in_memory_files() {
        let bytes = vec![7; 3 << 20];
        let file = to_memory_file(&bytes).expect("a memory file");
        assert_eq!(from_memory_file(file).expect("its bytes"), bytes);
    }
}
