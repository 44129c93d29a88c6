//! The log of a job: what was decided about it, and how each task ended. Lines are only ever added; what a crash has torn off at the
//! end is cut away when the log is opened again.
//!
//! A line is the first 16 digits of the BLAKE3 of the rest, a space, and an [`Entry`] as JSON.

use base::{Digest, ExitStatus};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use wire::{lock, now_millis};

/// Digits of a line's digest.
const SUM_DIGITS: usize = 16;
/// Longest reason that is written down, in bytes.
const WHY_BYTES_MAX: usize = 2048;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// The hub is about to hear of it.
    Opened,
    /// Its tasks wait, or go on.
    Held(bool),
    /// It has this priority from now on.
    Priority(u8),
    /// It is given up, for this reason.
    Cancelled(String),
    /// An instance of a task is launched.
    Launched {
        /// The task.
        index: u32,
        /// Which instance.
        number: u32,
        /// What it sees was as it is then or was looked at later: nanoseconds since 1970.
        since_ns: i64,
        /// What was said with the launch, which the result's signature names: 64 hexadecimal digits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        statement: Option<String>,
    },
    /// An instance of a task could not be told what it asked: what it leaves behind is not to be trusted.
    Tainted {
        /// The task.
        index: u32,
        /// Which instance.
        number: u32,
        /// What it could not be told.
        why: String,
    },
    /// An instance of a task has a lock, which is lost with the daemon.
    Locked {
        /// The task.
        index: u32,
        /// Which instance.
        number: u32,
        /// The file.
        path: String,
    },
    /// A task has ended.
    Ended(End),
    /// What is to be run after a task was.
    Assimilated(u32),
    /// All of it has been taken from the hub.
    Collected,
    /// The hub is about to be given these tasks, under the next numbers there: of a job in which some come after others.
    HandedOver(Vec<u32>),
    /// What came of a task is not used: it is handed over once more.
    Again(u32),
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Its number within the job, from 0.
    pub index: u32,
    /// How.
    pub how: How,
    /// Its own exit code, or the signal that ended it, where that is not what `how` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<Own>,
    /// The worker's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub worker: String,
    /// When that was known here: milliseconds since 1970.
    pub at_ms: i64,
    /// Bytes that it said on standard output and standard error.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub said: [u64; 2],
    /// There was more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

impl End {
    /// Of a task of which there is nothing more to say.
    pub fn of(index: u32, how: How) -> Self {
        Self { index, how, own: None, worker: String::new(), at_ms: now_millis(), said: [0, 0], is_cut: false }
    }

    /// The task's own end, as far as it had one.
    pub fn own(&self) -> Option<Own> {
        self.ended_by_itself().or(self.own)
    }

    /// Its own end, if that is what counts.
    pub fn ended_by_itself(&self) -> Option<Own> {
        match self.how {
            How::Exit(code) => Some(Own::Exit(code)),
            How::Signal(signal) => Some(Own::Signal(signal)),
            _ => None,
        }
    }

    /// As a shell shows it; 125 for a command that has no end of its own, or whose good end does not count.
    pub fn shell_code(&self) -> u8 {
        match self.own() {
            Some(Own::Exit(0)) if !self.how.is_good() => NO_RESULT,
            Some(Own::Exit(code)) => code,
            Some(Own::Signal(signal)) => 128 + (signal & 0x7f),
            None => NO_RESULT,
        }
    }
}

/// What a shell is told of a command that did not take place.
const NO_RESULT: u8 = 125;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Own {
    /// With this exit code.
    Exit(u8),
    /// By this signal.
    Signal(u8),
}

impl From<Own> for ExitStatus {
    fn from(own: Own) -> Self {
        match own {
            Own::Exit(code) => Self::Code(code),
            Own::Signal(signal) => Self::Signal(signal),
        }
    }
}

impl From<ExitStatus> for Own {
    fn from(status: ExitStatus) -> Self {
        match status {
            ExitStatus::Code(code) => Self::Exit(code),
            ExitStatus::Signal(signal) => Self::Signal(signal),
        }
    }
}

fn is_nothing(said: &[u64; 2]) -> bool {
    *said == [0, 0]
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// With this exit code, and its changes are committed.
    Exit(u8),
    /// By this signal, and its changes are committed.
    Signal(u8),
    /// It ran, and its changes are not committed, for this reason.
    NotCommitted(String),
    /// It has no result, for this reason.
    Failed(String),
    /// It was never run, for this reason: one that it comes after did not end well.
    NotRun(String),
    /// Its job was given up before.
    Cancelled,
}

impl How {
    /// A command's own end.
    pub fn of_status(status: ExitStatus) -> Self {
        match status.into() {
            Own::Exit(code) => Self::Exit(code),
            Own::Signal(signal) => Self::Signal(signal),
        }
    }

    /// Whether this is a good end.
    pub fn is_good(&self) -> bool {
        *self == Self::Exit(0)
    }

    /// In a word or two.
    pub fn name(&self) -> String {
        match self {
            Self::Exit(code) => format!("exit {code}"),
            Self::Signal(signal) => format!("signal {signal}"),
            Self::NotCommitted(_) => "not committed".into(),
            Self::Failed(_) => "failed".into(),
            Self::NotRun(_) => "not run".into(),
            Self::Cancelled => "cancelled".into(),
        }
    }

    /// Why, if it was not its own end.
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::NotCommitted(why) | Self::Failed(why) | Self::NotRun(why) => Some(why),
            _ => None,
        }
    }
}

/// A reason, as far as it is written down.
pub fn shortened(why: &str) -> String {
    why[..why.floor_char_boundary(WHY_BYTES_MAX)].to_owned()
}

/// An open log.
#[derive(Debug)]
pub struct Log {
    file: File,
    /// Bytes written.
    written: Mutex<u64>,
    /// Held while the file is flushed.
    flushing: Mutex<()>,
    flushed: AtomicU64,
}

impl Log {
    /// Opens a log, or begins one; gives what is in it.
    pub fn open(path: &Path) -> io::Result<(Self, Vec<Entry>)> {
        let mut file = File::options().read(true).append(true).create(true).mode(0o600).open(path)?;
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(0))?;
        file.read_to_end(&mut bytes)?;
        let (entries, len) = read(&bytes);
        if len < bytes.len() {
            tracing::warn!(path = %path.display(), bytes = bytes.len() - len, "the torn end of a log is cut away");
            file.set_len(len as u64)?;
            file.sync_data()?;
        }
        let (written, flushed) = (Mutex::new(len as u64), AtomicU64::new(len as u64));
        Ok((Self { file, written, flushing: Mutex::default(), flushed }, entries))
    }

    /// Adds a line. It outlives this process at once, and the machine when [`Self::flush`] says so: the number is for that.
    pub fn add(&self, entry: &Entry) -> io::Result<u64> {
        let line = line(entry)?;
        let mut written = lock(&self.written);
        if let Err(error) = (&self.file).write_all(&line) {
            // Half a line would hide all that come after it.
            let _ = self.file.set_len(*written);
            return Err(error);
        }
        *written += line.len() as u64;
        Ok(*written)
    }

    /// Waits until all up to this number is on the disk. Those who wait at once share one flush.
    pub fn flush(&self, upto: u64) -> io::Result<()> {
        let _turn = lock(&self.flushing);
        if self.flushed.load(Ordering::SeqCst) >= upto {
            return Ok(());
        }
        let written = *lock(&self.written);
        self.file.sync_data()?;
        self.flushed.store(written, Ordering::SeqCst);
        Ok(())
    }

    /// Adds a line and waits until it is on the disk.
    pub fn keep(&self, entry: &Entry) -> io::Result<()> {
        self.flush(self.add(entry)?)
    }
}

fn line(entry: &Entry) -> io::Result<Vec<u8>> {
    let json = serde_json::to_string(entry)?;
    Ok(format!("{} {json}\n", &Digest::of(json.as_bytes()).to_hex()[..SUM_DIGITS]).into_bytes())
}

/// The entries of whole lines, and how many bytes those have.
fn read(bytes: &[u8]) -> (Vec<Entry>, usize) {
    let (mut entries, mut len) = (Vec::new(), 0);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let Some(entry) = parse(line) else { break };
        entries.push(entry);
        len += line.len();
    }
    (entries, len)
}

fn parse(line: &[u8]) -> Option<Entry> {
    let line = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let (sum, json) = line.split_at_checked(SUM_DIGITS)?;
    let json = json.strip_prefix(' ')?;
    let is_whole = Digest::of(json.as_bytes()).to_hex().starts_with(sum);
    serde_json::from_str(json).ok().filter(|_| is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(index: u32, how: How) -> Entry {
        Entry::Ended(End { index, how, own: None, worker: "rack".into(), at_ms: 5, said: [1, 0], is_cut: false })
    }

    #[test]
    fn what_was_added_is_there_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (log, before) = Log::open(&path).unwrap();
        assert_eq!(before, []);
        let entries = [
            Entry::Held(true),
            Entry::Launched { index: 3, number: 1, since_ns: -1, statement: None },
            Entry::Launched { index: 3, number: 2, since_ns: -1, statement: Some("5a".repeat(32)) },
            ended(3, How::Exit(0)),
            ended(4, How::NotCommitted("it's \"so\"\nand so".into())),
            Entry::HandedOver(vec![0, 7]),
            Entry::Again(7),
            Entry::Collected,
        ];
        entries.iter().for_each(|entry| log.keep(entry).unwrap());
        drop(log);
        assert_eq!(Log::open(&path).unwrap().1, entries);
    }

    #[test]
    fn a_torn_end_is_cut_away_and_what_follows_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (log, _) = Log::open(&path).unwrap();
        log.keep(&ended(0, How::Exit(0))).unwrap();
        log.keep(&ended(1, How::Signal(9))).unwrap();
        drop(log);
        let whole = std::fs::read(&path).unwrap();
        let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for len in first..whole.len() {
            std::fs::write(&path, &whole[..len]).unwrap();
            let (log, entries) = Log::open(&path).unwrap();
            assert_eq!(entries, [ended(0, How::Exit(0))], "{len} bytes");
            log.keep(&ended(2, How::Exit(1))).unwrap();
            drop(log);
            assert_eq!(Log::open(&path).unwrap().1, [ended(0, How::Exit(0)), ended(2, How::Exit(1))]);
        }
    }

    #[test]
    fn lines_are_as_they_were() {
        let want = b"{\"ended\":{\"index\":0,\"how\":{\"exit\":0},\"worker\":\"rack\",\"at_ms\":5,\"said\":[1,0]}}\n";
        assert_eq!(&line(&ended(0, How::Exit(0))).unwrap()[SUM_DIGITS + 1..], want);
        let own = Some(Own::Exit(7));
        let failed = End { own, ..End::of(1, How::Failed("exit 7, twice (1 retry)".into())) };
        assert_eq!((failed.shell_code(), End { own: Some(Own::Exit(0)), ..failed.clone() }.shell_code()), (7, 125));
        let text = String::from_utf8(line(&Entry::Ended(failed)).unwrap()).unwrap();
        assert!(text.contains(r#""how":{"failed":"exit 7, twice (1 retry)"},"own":{"exit":7},"at_ms""#), "{text}");
        assert!(line(&Entry::Collected).unwrap().ends_with(b" \"collected\"\n"));
        assert!(line(&Entry::HandedOver(vec![0, 7])).unwrap().ends_with(b" {\"handed_over\":[0,7]}\n"));
        assert!(line(&Entry::Again(7)).unwrap().ends_with(b" {\"again\":7}\n"));
    }
}
