//! A command as it is typed at the client, and how it ended.

use crate::codec::{Encode, Malformed, Reader, Writer};

/// What is to be run, and what of the caller's state it sees.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Command {
    /// Program (a path, or a name to be found in PATH) and arguments; at least one.
    pub argv: Vec<Vec<u8>>,
    /// Environment, each `NAME=value`.
    pub env: Vec<Vec<u8>>,
    /// Working directory, absolute.
    pub cwd: Vec<u8>,
    /// File mode creation mask.
    pub umask: u32,
    /// User id seen inside.
    pub uid: u32,
    /// Group id seen inside.
    pub gid: u32,
    /// Supplementary groups seen inside.
    pub groups: Vec<u32>,
    /// Resource limits (`setrlimit`).
    pub limits: Vec<Limit>,
    /// Host name seen inside.
    pub hostname: Vec<u8>,
    /// CPUs asked for; at least 1.
    pub cpus: u32,
    /// Signals that the caller ignores, and so the command from its start: bit `n - 1` for signal `n`.
    pub ignored_signals: u64,
}

/// One resource limit: the `RLIMIT_*` number of Linux, and its soft and hard value (`u64::MAX`: none).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// `RLIMIT_*`.
    pub resource: u32,
    /// Soft limit.
    pub soft: u64,
    /// Hard limit.
    pub hard: u64,
}

/// What standard input is.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Stdin {
    /// `/dev/null`, or closed.
    #[default]
    Null,
    /// A regular file of the client's, at this offset: opened in the mirror, and its final offset reported.
    File {
        /// Where it is.
        path: Vec<u8>,
        /// Offset in bytes at the start.
        offset: u64,
    },
    /// A pipe or socket: bytes are sent as they come.
    Stream,
    /// The task's terminal.
    Terminal,
}

/// What standard output or standard error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Output {
    /// `/dev/null`, or closed.
    #[default]
    Null,
    /// Bytes are sent back as they come.
    Stream,
    /// Standard error only: the same open file as standard output, so that their order is kept.
    SameAsStdout,
    /// The task's terminal.
    Terminal,
}

/// Size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// It exited with this status, 0 to 255.
    Code(u8),
    /// This signal ended it.
    Signal(u8),
}

impl ExitStatus {
    /// From the status that `waitpid` gives.
    pub fn from_wait(status: i32) -> Self {
        if status & 0x7f == 0 { Self::Code((status >> 8) as u8) } else { Self::Signal((status & 0x7f) as u8) }
    }

    /// What a shell shows as `$?`.
    pub fn shell_code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

/// What a task took of the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Usage {
    /// CPU time in user mode, microseconds.
    pub user_us: u64,
    /// CPU time in the kernel, microseconds.
    pub system_us: u64,
    /// Largest resident set of a process, KiB.
    pub max_rss_kib: u64,
}

impl Encode for Command {
    fn encode(&self, out: &mut Writer) {
        out.list(&self.argv, |out, item| out.bytes(item));
        out.list(&self.env, |out, item| out.bytes(item));
        out.bytes(&self.cwd);
        out.u32(self.umask);
        out.u32(self.uid);
        out.u32(self.gid);
        out.list(&self.groups, |out, group| out.u32(*group));
        out.list(&self.limits, |out, limit| {
            out.u32(limit.resource);
            out.u64(limit.soft);
            out.u64(limit.hard);
        });
        out.bytes(&self.hostname);
        out.u32(self.cpus);
        out.u64(self.ignored_signals);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let command = Self {
            argv: from.list(|from| Ok(from.bytes()?.to_vec()))?,
            env: from.list(|from| Ok(from.bytes()?.to_vec()))?,
            cwd: from.bytes()?.to_vec(),
            umask: from.u32()?,
            uid: from.u32()?,
            gid: from.u32()?,
            groups: from.list(|from| from.u32())?,
            limits: from.list(|from| Ok(Limit { resource: from.u32()?, soft: from.u64()?, hard: from.u64()? }))?,
            hostname: from.bytes()?.to_vec(),
            cpus: from.u32()?,
            ignored_signals: from.u64()?,
        };
        if command.argv.is_empty() { Err(Malformed("a command without a program")) } else { Ok(command) }
    }
}

impl Encode for ExitStatus {
    fn encode(&self, out: &mut Writer) {
        match self {
            Self::Code(code) => out.raw(&[0, *code]),
            Self::Signal(signal) => out.raw(&[1, *signal]),
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        match (from.u8()?, from.u8()?) {
            (0, code) => Ok(Self::Code(code)),
            (1, signal) => Ok(Self::Signal(signal)),
            _ => Err(Malformed("an exit status of an unknown kind")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_statuses() {
        assert_eq!(ExitStatus::from_wait(0x0300), ExitStatus::Code(3));
        assert_eq!(ExitStatus::from_wait(0x8b), ExitStatus::Signal(11), "the core-dump bit is not part of the number");
        assert_eq!(ExitStatus::Signal(15).shell_code(), 143);
    }

    #[test]
    fn commands_round_trip() {
        let command = Command {
            argv: vec![b"gcc".to_vec(), b"-c".to_vec()],
            limits: vec![Limit { resource: 7, soft: 1024, hard: u64::MAX }],
            groups: vec![0, 27],
            cpus: 2,
            ..Command::default()
        };
        assert_eq!(Command::from_bytes(&command.to_bytes()), Ok(command));
    }
}
