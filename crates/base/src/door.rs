//! The door: what `remrun` and `gleaner` say to the client daemon over its Unix socket, and what it answers.
//!
//! Each message is a 32-bit little-endian length and that many bytes. `remrun`'s first message carries its descriptors
//! 0, 1 and 2 beside the bytes (`SCM_RIGHTS`); a closed descriptor is replaced by `/dev/null`, and keeps the command here.
//!
//! A daemon that meets another [`VERSION`] gives up its socket (removes the name), closes the connection and ends when
//! its tasks have: the caller then starts a daemon of its own version.
//!
//! A daemon is started as `gleaner daemon --ready-fd N`, and writes [`READY`] to that descriptor once it listens; any
//! other text there says why it cannot.

use crate::batch::{Batch, BatchTask};
use crate::codec::{Encode, Malformed, Reader, Writer};
use crate::command::{Command, ExitStatus, WindowSize};
use crate::id::{JobId, TaskId};

/// Version of this protocol: both sides come from one build, so a difference means that the daemon must be restarted.
pub const VERSION: u32 = 14;

/// Longest message, in bytes: arguments and environment may take 2 MiB (`ARG_MAX`) and more.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Name of the socket in the daemon's runtime folder.
pub const SOCKET_NAME: &str = "door";

/// What a daemon that was just started writes to its readiness pipe once its socket accepts connections.
pub const READY: &[u8] = b"ready\n";

/// Path at which a guest finds out that it is one: `remrun` in a guest runs its command in place.
pub const GUEST_MARK: &str = "/dev/gleaner";

/// Why `ccache` runs here. The caller then has what it does not find in its cache compiled elsewhere.
pub const CCACHE_HERE: &str = "ccache looks into its cache on this machine; what it does not find is compiled elsewhere, by \
                               CCACHE_PREFIX=remrun unless that is set";

/// What the caller allows and asks.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Options {
    /// Fail rather than run here (`--no-local`).
    pub no_local: bool,
    /// Paths that the write policy shall admit for this command (`--allow-write`).
    pub allow_write: Vec<Vec<u8>>,
    /// Say afterwards on standard error where it ran and what it cost (`--verbose`).
    pub verbose: bool,
    /// The job that the command belongs to: it sees the files as they were when the job was opened.
    pub job: Option<JobId>,
    /// Its place in the job: results of tasks with lower ranks go first.
    pub rank: u32,
    /// Told to run the command here, the caller becomes it: the end of the one is the end of the other.
    pub becomes: bool,
    /// Run it here as well, in a sandbox, and commit the result of the one that ends first (`--race`).
    pub race: bool,
    /// It may use the network, and so begins once only (`--net`).
    pub net: bool,
    /// Why the caller has to run the command itself: what surrounds it there cannot be had elsewhere.
    pub here: Option<String>,
    /// Descriptors above standard error that the caller has open for the command: their numbers, and what is open there, for people.
    pub descriptors: Vec<(u32, String)>,
}

/// Where the caller stands: a daemon that stands elsewhere would take other files for the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct World {
    /// The mount that its root folder is on, as the kernel numbers mounts. No two mount namespaces share a mount.
    pub root_mount: u64,
    /// Inode number of its root folder.
    pub root_inode: u64,
    /// Inode number of its user namespace; 0: not known.
    pub users: u64,
    /// Its execution domain (`personality(2)`).
    pub personality: u32,
    /// Its effective capabilities, a bit each.
    pub capabilities: u64,
    /// How the kernel schedules it.
    pub scheduling: Scheduling,
}

/// How the kernel schedules a process, as far as a worker does not do the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Scheduling {
    /// Whether its nice value is below 0.
    pub is_raised: bool,
    /// Its policy (`sched_getscheduler(2)`); 0 is the ordinary one.
    pub policy: u32,
    /// Class and level of its disk requests (`ioprio_get(2)`); 0: none of its own.
    pub disk: u32,
    /// How many processors it may use; 0: not known.
    pub processors: u32,
}

/// From `remrun` or `gleaner` to the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Run a command: the first message of a connection, with descriptors 0, 1 and 2.
    Run {
        /// [`VERSION`] of the caller.
        version: u32,
        /// What to run.
        command: Box<Command>,
        /// What the caller allows.
        options: Options,
        /// Size of the caller's terminal, if standard input or output is one.
        window: Option<WindowSize>,
        /// Where the caller stands.
        world: World,
    },
    /// Open a job: the first message of a connection. The job lasts as long as the connection.
    Job {
        /// [`VERSION`] of the caller.
        version: u32,
    },
    /// Take a batch job: the first message of a connection. Its tasks follow in [`Request::Tasks`], then [`Request::Submitted`]. The
    /// answer is a [`Reply::Answer`].
    Submit {
        /// [`VERSION`] of the caller.
        version: u32,
        /// The job.
        batch: Box<Batch>,
        /// Where the caller stands.
        world: World,
    },
    /// The next tasks of the batch job that is being submitted.
    Tasks(Vec<BatchTask>),
    /// These were all.
    Submitted,
    /// What became of a task whose daemon died: the first message of a connection.
    Outcome(TaskId),
    /// A question of `gleaner`, as JSON: the first message of a connection.
    Ask(Vec<u8>),
    /// The caller received this signal: pass it on.
    Signal(u8),
    /// The caller's terminal changed its size.
    Resize(WindowSize),
    /// Whether the caller owns its terminal just now: while it does not (it runs in the background of a shell, or
    /// another command reads the terminal), the daemon must not read standard input if that is a terminal. Until this
    /// message comes, it does.
    Foreground(bool),
}

/// From the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Nothing was consumed or delivered: the caller is to run the command itself.
    RunHere {
        /// Why, for a person.
        why: String,
    },
    /// The task has this number; it is being launched. `terminal`: the caller puts its terminal into raw mode.
    Launched {
        /// The task.
        task: TaskId,
        /// Whether the task has a terminal.
        terminal: bool,
    },
    /// The task was stopped by this signal (as by Ctrl-Z): the caller stops as well, and sends SIGCONT when continued.
    Stopped(u8),
    /// It ended and its delta is committed.
    Done(ExitStatus),
    /// It did not take place, and nothing was committed: a message for a person (several lines, printable), and the
    /// status to exit with.
    Failed {
        /// What, where, and what to do.
        message: String,
        /// Exit status.
        code: u8,
    },
    /// A line for the caller's standard error.
    Note(String),
    /// The answer to [`Request::Ask`], as JSON.
    Answer(Vec<u8>),
    /// The answer to [`Request::Outcome`]: the task's end if it was committed, or `None`.
    Outcome(Option<ExitStatus>),
    /// The answer to [`Request::Job`]: the job's number, for [`Options::job`].
    Job(JobId),
    /// Whether what is typed at a terminal is for the task, Ctrl-C and Ctrl-Z included: its program runs. Until this message comes, and where
    /// it is not, these are signals to the caller, who else could not end what has not started.
    Keys(bool),
}

/// The folder of the daemon's socket and lock, absolute: the first that applies of `$GLEANER_RUNTIME_DIR`,
/// `$XDG_RUNTIME_DIR/gleaner`, `/run/user/UID/gleaner` and `/tmp/gleaner-UID`. Values that are not absolute paths count
/// as unset. `usable` tells whether a path is a folder that belongs to `uid`; it is asked of the parents of the second
/// and third, which may be stale or another user's (as after `su`).
///
/// Who uses the folder must first see that it is a real folder, owned by `uid`, with mode 0700.
pub fn runtime_folder(
    gleaner_runtime_dir: Option<&[u8]>,
    xdg_runtime_dir: Option<&[u8]>,
    uid: u32,
    usable: impl Fn(&[u8]) -> bool,
) -> Vec<u8> {
    let absolute = |value: Option<&[u8]>| value.filter(|value| value.starts_with(b"/")).map(<[u8]>::to_vec);
    if let Some(folder) = absolute(gleaner_runtime_dir) {
        return folder;
    }
    let of_system = format!("/run/user/{uid}").into_bytes();
    let parents = [absolute(xdg_runtime_dir), Some(of_system)];
    match parents.into_iter().flatten().find(|parent| usable(parent)) {
        Some(mut parent) => {
            parent.extend_from_slice(b"/gleaner");
            parent
        }
        None => format!("/tmp/gleaner-{uid}").into_bytes(),
    }
}

/// A message with its length before it, as it goes over the socket. Fails if it is longer than [`MESSAGE_BYTES_MAX`].
pub fn frame(message: &impl Encode) -> Result<Vec<u8>, Malformed> {
    let mut out = Writer(vec![0; 4]);
    message.encode(&mut out);
    let len = out.0.len() - 4;
    if len > MESSAGE_BYTES_MAX {
        return Err(Malformed("a message longer than the door allows (16 MiB)"));
    }
    out.0[..4].copy_from_slice(&(len as u32).to_le_bytes());
    Ok(out.0)
}

/// Takes the first whole message off the front of what was received, without its length; `None` if more must come.
/// Fails if the message claims to be longer than [`MESSAGE_BYTES_MAX`].
pub fn take_frame(received: &mut Vec<u8>) -> Result<Option<Vec<u8>>, Malformed> {
    let Some(head) = received.first_chunk::<4>() else { return Ok(None) };
    let len = u32::from_le_bytes(*head) as usize;
    if len > MESSAGE_BYTES_MAX {
        return Err(Malformed("a message longer than the door allows (16 MiB)"));
    }
    if received.len() < 4 + len {
        return Ok(None);
    }
    let message = received[4..4 + len].to_vec();
    received.drain(..4 + len);
    Ok(Some(message))
}

impl Encode for Request {
    fn encode(&self, out: &mut Writer) {
        match self {
            Self::Run { version, command, options, window, world } => {
                out.u8(0);
                out.u32(*version);
                command.encode(out);
                out.bool(options.no_local);
                out.list(&options.allow_write, |out, path| out.bytes(path));
                out.bool(options.verbose);
                out.option(options.job.as_ref(), |out, job| out.u64(job.0));
                out.u32(options.rank);
                out.bool(options.becomes);
                out.bool(options.race);
                out.bool(options.net);
                out.option(options.here.as_ref(), |out, why| out.bytes(why.as_bytes()));
                out.list(&options.descriptors, |out, (number, what)| {
                    out.u32(*number);
                    out.bytes(what.as_bytes());
                });
                out.option(window.as_ref(), write_window);
                world.encode(out);
            }
            Self::Outcome(task) => {
                out.u8(1);
                out.u128(task.0);
            }
            Self::Ask(json) => {
                out.u8(2);
                out.bytes(json);
            }
            Self::Signal(signal) => out.raw(&[3, *signal]),
            Self::Resize(window) => {
                out.u8(4);
                write_window(out, window);
            }
            Self::Foreground(owned) => {
                out.u8(5);
                out.bool(*owned);
            }
            Self::Job { version } => {
                out.u8(6);
                out.u32(*version);
            }
            Self::Submit { version, batch, world } => {
                out.u8(7);
                out.u32(*version);
                batch.encode(out);
                world.encode(out);
            }
            Self::Tasks(tasks) => {
                out.u8(8);
                out.list(tasks, |out, task| task.encode(out));
            }
            Self::Submitted => out.u8(9),
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match from.u8()? {
            0 => Self::Run {
                version: read_version(from)?,
                command: Box::new(Command::decode(from)?),
                options: Options {
                    no_local: from.bool()?,
                    allow_write: from.list(|from| Ok(from.bytes()?.to_vec()))?,
                    verbose: from.bool()?,
                    job: from.option(|from| Ok(JobId(from.u64()?)))?,
                    rank: from.u32()?,
                    becomes: from.bool()?,
                    race: from.bool()?,
                    net: from.bool()?,
                    here: from.option(read_text)?,
                    descriptors: from.list(|from| Ok((from.u32()?, read_text(from)?)))?,
                },
                window: from.option(read_window)?,
                world: World::decode(from)?,
            },
            1 => Self::Outcome(TaskId(from.u128()?)),
            2 => Self::Ask(from.bytes()?.to_vec()),
            3 => Self::Signal(from.u8()?),
            4 => Self::Resize(read_window(from)?),
            5 => Self::Foreground(from.bool()?),
            6 => Self::Job { version: read_version(from)? },
            7 => Self::Submit {
                version: read_version(from)?,
                batch: Box::new(Batch::decode(from)?),
                world: World::decode(from)?,
            },
            8 => Self::Tasks(from.list(BatchTask::decode)?),
            9 => Self::Submitted,
            _ => return Err(Malformed("an unknown request")),
        })
    }
}

impl Encode for World {
    fn encode(&self, out: &mut Writer) {
        [self.root_mount, self.root_inode, self.users, self.capabilities].iter().for_each(|number| out.u64(*number));
        out.u32(self.personality);
        let Scheduling { is_raised, policy, disk, processors } = self.scheduling;
        out.bool(is_raised);
        [policy, disk, processors].iter().for_each(|number| out.u32(*number));
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            root_mount: from.u64()?,
            root_inode: from.u64()?,
            users: from.u64()?,
            capabilities: from.u64()?,
            personality: from.u32()?,
            scheduling: Scheduling {
                is_raised: from.bool()?,
                policy: from.u32()?,
                disk: from.u32()?,
                processors: from.u32()?,
            },
        })
    }
}

impl Encode for Reply {
    fn encode(&self, out: &mut Writer) {
        match self {
            Self::RunHere { why } => {
                out.u8(0);
                out.bytes(why.as_bytes());
            }
            Self::Launched { task, terminal } => {
                out.u8(1);
                out.u128(task.0);
                out.bool(*terminal);
            }
            Self::Stopped(signal) => out.raw(&[2, *signal]),
            Self::Done(status) => {
                out.u8(3);
                status.encode(out);
            }
            Self::Failed { message, code } => {
                out.raw(&[4, *code]);
                out.bytes(message.as_bytes());
            }
            Self::Note(line) => {
                out.u8(5);
                out.bytes(line.as_bytes());
            }
            Self::Answer(json) => {
                out.u8(6);
                out.bytes(json);
            }
            Self::Outcome(status) => {
                out.u8(7);
                out.option(status.as_ref(), |out, status| status.encode(out));
            }
            Self::Job(job) => {
                out.u8(8);
                out.u64(job.0);
            }
            Self::Keys(given) => {
                out.u8(9);
                out.bool(*given);
            }
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match from.u8()? {
            0 => Self::RunHere { why: read_text(from)? },
            1 => Self::Launched { task: TaskId(from.u128()?), terminal: from.bool()? },
            2 => Self::Stopped(from.u8()?),
            3 => Self::Done(ExitStatus::decode(from)?),
            4 => {
                let code = from.u8()?;
                Self::Failed { message: read_text(from)?, code }
            }
            5 => Self::Note(read_text(from)?),
            6 => Self::Answer(from.bytes()?.to_vec()),
            7 => Self::Outcome(from.option(ExitStatus::decode)?),
            8 => Self::Job(JobId(from.u64()?)),
            9 => Self::Keys(from.bool()?),
            _ => return Err(Malformed("an unknown reply")),
        })
    }
}

fn read_version(from: &mut Reader<'_>) -> Result<u32, Malformed> {
    match from.u32()? {
        VERSION => Ok(VERSION),
        _ => Err(Malformed("another version of remrun")),
    }
}

fn write_window(out: &mut Writer, window: &WindowSize) {
    out.u32(window.rows.into());
    out.u32(window.columns.into());
}

fn read_window(from: &mut Reader<'_>) -> Result<WindowSize, Malformed> {
    let mut side = || u16::try_from(from.u32()?).map_err(|_| Malformed("a terminal of impossible size"));
    Ok(WindowSize { rows: side()?, columns: side()? })
}

fn read_text(from: &mut Reader<'_>) -> Result<String, Malformed> {
    String::from_utf8(from.bytes()?.to_vec()).map_err(|_| Malformed("text that is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip() {
        let command = Command { argv: vec![b"true".to_vec()], ..Command::default() };
        let run = Request::Run {
            version: VERSION,
            command: Box::new(command),
            options: Options {
                no_local: true,
                allow_write: vec![b"/x".to_vec()],
                verbose: false,
                job: Some(JobId(5)),
                rank: 6,
                becomes: true,
                race: true,
                net: true,
                here: Some("its standard output is closed".into()),
                descriptors: vec![(5, "a file, /x".into())],
            },
            window: Some(WindowSize { rows: 24, columns: 80 }),
            world: World {
                root_mount: 1,
                root_inode: 2,
                users: 3,
                personality: 4,
                capabilities: 5,
                scheduling: Scheduling { is_raised: true, policy: 6, disk: 7, processors: 8 },
            },
        };
        let others = [
            Request::Signal(2),
            Request::Ask(b"{}".to_vec()),
            Request::Outcome(TaskId(7)),
            Request::Job { version: VERSION },
            Request::Tasks(vec![BatchTask { argv: vec![b"true".to_vec()], ..BatchTask::default() }]),
            Request::Submitted,
        ];
        for request in others.into_iter().chain([run, Request::Foreground(false)]) {
            assert_eq!(Request::from_bytes(&request.to_bytes()), Ok(request));
        }
        for reply in [
            Reply::Launched { task: TaskId(9), terminal: true },
            Reply::Done(ExitStatus::Signal(9)),
            Reply::Failed { message: "no".into(), code: 125 },
            Reply::Outcome(None),
            Reply::Job(JobId(1)),
            Reply::Keys(true),
        ] {
            assert_eq!(Reply::from_bytes(&reply.to_bytes()), Ok(reply));
        }
    }

    #[test]
    fn runtime_folders_by_strength() {
        let all = |_: &[u8]| true;
        assert_eq!(runtime_folder(Some(b"/g"), Some(b"/x"), 7, all), b"/g");
        assert_eq!(runtime_folder(Some(b""), Some(b"/x"), 7, all), b"/x/gleaner");
        assert_eq!(runtime_folder(Some(b"relative"), None, 7, all), b"/run/user/7/gleaner");
        assert_eq!(runtime_folder(None, Some(b"/x"), 7, |path| path == b"/run/user/7"), b"/run/user/7/gleaner");
        assert_eq!(runtime_folder(None, Some(b"/x"), 7, |_| false), b"/tmp/gleaner-7");
    }

    #[test]
    fn frames_come_whole_or_not_at_all() {
        let framed = frame(&Request::Signal(2)).expect("short");
        let mut received = framed[..5].to_vec();
        assert_eq!(take_frame(&mut received), Ok(None));
        received.extend_from_slice(&framed[5..]);
        received.extend_from_slice(&[9]);
        assert_eq!(take_frame(&mut received), Ok(Some(vec![3, 2])));
        assert_eq!(received, [9]);
        assert!(take_frame(&mut vec![0xff; 8]).is_err());
        assert!(frame(&Request::Ask(vec![0; MESSAGE_BYTES_MAX])).is_err());
    }
}
