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
    /// What it needs of the machine that it runs on.
    pub needs: Needs,
    /// Signals that the caller ignores, and so the command from its start: bit `n - 1` for signal `n`.
    pub ignored_signals: u64,
    /// Signals that the caller blocks, and so the command from its start, in the same way. Not kept with batch jobs.
    pub blocked_signals: u64,
    /// Nice value of the caller, 0 to 19, and so of the command from its start. Not kept with batch jobs.
    pub nice: u8,
}

impl Command {
    /// Whether this signal ends the command if it comes before the program can have said what it makes of it.
    pub fn is_ended_by(&self, signal: u8) -> bool {
        // SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH.
        const HARMLESS: [u8; 8] = [17, 18, 19, 20, 21, 22, 23, 28];
        let kept_off = self.ignored_signals | self.blocked_signals;
        (1..=64).contains(&signal) && !HARMLESS.contains(&signal) && kept_off & 1 << (signal - 1) == 0
    }
}

/// The highest nice value, of the lowest priority.
pub const NICE_MAX: u8 = 19;

/// Most tags that a command asks for, or that a machine has.
pub const TAGS_MAX: usize = 16;
/// Longest tag, in bytes.
pub const TAG_BYTES_MAX: usize = 64;

/// What a command needs of the machine that it runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needs {
    /// CPUs; at least 1.
    pub cpus: u32,
    /// Memory that the machine has at least, in MiB; 0: any.
    pub memory_mib: u32,
    /// Level of x86-64 that its program was built for, 1 to 4; 0: not known.
    pub level: u8,
    /// Names that the machine's owner has given it, all of them ([`is_tag`]).
    pub tags: Vec<String>,
}

impl Default for Needs {
    /// One CPU of any machine.
    fn default() -> Self {
        Self { cpus: 1, memory_mib: 0, level: 0, tags: Vec::new() }
    }
}

/// Reads a size of memory, such as `500M` or `8G`, as MiB; nothing if it is none.
pub fn memory_mib(text: &str) -> Option<u32> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let times = match unit {
        "M" | "m" => 1,
        "G" | "g" => 1 << 10,
        "T" | "t" => 1 << 20,
        _ => return None,
    };
    let number: u32 = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
    number.checked_mul(times).filter(|mib| *mib > 0)
}

/// Whether that can be the name of a tag: letters, digits, and `.`, `_`, `:`, `-` within.
pub fn is_tag(text: &str) -> bool {
    let is_within = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    begins && text.len() <= TAG_BYTES_MAX && text.bytes().all(is_within)
}

/// Whether a command may ask for these, or a machine have them.
pub fn are_tags(tags: &[String]) -> bool {
    tags.len() <= TAGS_MAX && tags.iter().all(|tag| is_tag(tag))
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

/// Whether a process can have ended by this signal: not by one that stops it, lets it go on or is ignored, nor by a number that is none.
pub fn is_fatal(signal: u32) -> bool {
    // SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG and SIGWINCH.
    (1..=64).contains(&signal) && !matches!(signal, 17..=23 | 28)
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
            Self::Signal(signal) => 128u8.saturating_add(signal),
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
        self.encode_kept(out);
        out.u64(self.blocked_signals);
        out.u8(self.nice);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let kept = Self::decode_kept(from)?;
        Ok(Self { blocked_signals: from.u64()?, nice: from.u8()?.min(NICE_MAX), ..kept })
    }
}

impl Command {
    /// What is kept of it with a batch job.
    pub(crate) fn encode_kept(&self, out: &mut Writer) {
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
        self.needs.encode(out);
        out.u64(self.ignored_signals);
    }

    /// A command as [`Self::encode_kept`] has written it.
    pub(crate) fn decode_kept(from: &mut Reader<'_>) -> Result<Self, Malformed> {
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
            needs: Needs::decode(from)?,
            ignored_signals: from.u64()?,
            blocked_signals: 0,
            nice: 0,
        };
        if command.argv.is_empty() { Err(Malformed("a command without a program")) } else { Ok(command) }
    }
}

impl Encode for Needs {
    fn encode(&self, out: &mut Writer) {
        out.u32(self.cpus);
        out.u32(self.memory_mib);
        out.u8(self.level);
        out.list(&self.tags, |out, tag| out.bytes(tag.as_bytes()));
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let wrong = Malformed("tags that cannot be");
        let tag = |from: &mut Reader<'_>| String::from_utf8(from.bytes()?.to_vec()).map_err(|_| wrong);
        let needs = Self { cpus: from.u32()?, memory_mib: from.u32()?, level: from.u8()?, tags: from.list(tag)? };
        if are_tags(&needs.tags) { Ok(needs) } else { Err(wrong) }
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
        assert_eq!((ExitStatus::Signal(15).shell_code(), ExitStatus::Signal(200).shell_code()), (143, 255));
        assert!([1, 2, 9, 15, 31, 34, 64].into_iter().all(is_fatal));
        assert!(![0, 17, 18, 19, 20, 21, 22, 23, 28, 65, 127, 128 + 9, 256 + 9, u32::MAX].into_iter().any(is_fatal));
    }

    #[test]
    fn commands_round_trip() {
        let command = Command {
            argv: vec![b"gcc".to_vec(), b"-c".to_vec()],
            limits: vec![Limit { resource: 7, soft: 1024, hard: u64::MAX }],
            groups: vec![0, 27],
            needs: Needs { cpus: 2, memory_mib: 300, level: 3, tags: vec!["gpu".into(), "site:a".into()] },
            blocked_signals: 1 << 63,
            nice: 7,
            ..Command::default()
        };
        assert_eq!(Command::from_bytes(&command.to_bytes()), Ok(command));
    }

    #[test]
    fn signals_that_end_a_command_at_its_start() {
        let command = Command { ignored_signals: 1, blocked_signals: 1 << 63, ..Command::default() };
        assert!([2, 9, 15, 27, 29, 34].into_iter().all(|signal| command.is_ended_by(signal)));
        assert!(![0, 1, 17, 18, 20, 23, 28, 64, 65].into_iter().any(|signal| command.is_ended_by(signal)));
    }

    #[test]
    fn memory_has_a_unit() {
        let read = ["500M", "8G", "2t", "8", "G", "", "-1G", "+1G", "0M", "9999999G", "1\u{fc}"].map(memory_mib);
        let none = [None; 8];
        assert_eq!(read[..3], [Some(500), Some(8 << 10), Some(2 << 20)]);
        assert_eq!(read[3..], none);
    }

    #[test]
    fn tags_are_names() {
        assert!(["gpu", "8g", "site:a-b_c.d"].into_iter().all(is_tag));
        assert!(!["", "-x", "a b", "a,b", "\u{fc}"].into_iter().any(is_tag) && !is_tag(&"x".repeat(65)));
        let mut bytes = Needs { tags: vec!["gpu".into()], ..Needs::default() }.to_bytes();
        *bytes.last_mut().unwrap() = b' ';
        assert!(Needs::from_bytes(&bytes).is_err());
    }
}
