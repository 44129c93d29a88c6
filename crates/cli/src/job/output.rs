//! What a task said, kept apart from what others say until it is shown: little in memory, much in a file without a name.

use crate::error::{CliError, Result};
use gleaner_client::{Error, Streams};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};

/// Up to so many bytes are kept in memory once the task has ended.
const LITTLE_BYTES: u64 = 4 << 10;
/// Most bytes of one stream in a line of JSON.
const JSON_BYTES_MAX: u64 = 1 << 20;

/// Where a task writes while it runs.
pub struct Spool {
    stdout: File,
    stderr: File,
}

/// What an ended task has said on one stream.
pub enum Said {
    /// All of it.
    Little(Vec<u8>),
    /// A file with it, of this length.
    Much(File, u64),
}

impl Spool {
    /// Empty.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { stdout: tempfile::tempfile()?, stderr: tempfile::tempfile()? })
    }

    /// The task's streams.
    pub fn streams<'a>(&'a self, stdin: BorrowedFd<'a>) -> Streams<'a> {
        Streams { stdin, stdout: self.stdout.as_fd(), stderr: self.stderr.as_fd() }
    }

    /// The task has ended: what it said on standard output and error.
    pub fn said(self) -> std::io::Result<[Said; 2]> {
        Ok([Said::of(self.stdout)?, Said::of(self.stderr)?])
    }
}

impl Said {
    /// Nothing.
    pub fn nothing() -> [Self; 2] {
        [Self::Little(Vec::new()), Self::Little(Vec::new())]
    }

    fn of(mut file: File) -> std::io::Result<Self> {
        let len = file.metadata()?.len();
        file.rewind()?;
        if len > LITTLE_BYTES {
            return Ok(Self::Much(file, len));
        }
        let mut bytes = Vec::with_capacity(len as usize);
        file.take(LITTLE_BYTES).read_to_end(&mut bytes)?;
        Ok(Self::Little(bytes))
    }

    /// Shows it.
    pub fn write_to(&mut self, mut out: impl Write) -> std::io::Result<()> {
        match self {
            Self::Little(bytes) => out.write_all(bytes)?,
            Self::Much(file, _) => drop(std::io::copy(file, &mut out)?),
        }
        out.flush()
    }

    /// Its beginning as text, and whether there is more.
    pub fn text(&mut self) -> Result<(String, bool)> {
        let truncated = matches!(self, Self::Much(_, len) if *len > JSON_BYTES_MAX);
        let bytes = match self {
            Self::Little(bytes) => std::mem::take(bytes),
            Self::Much(file, _) => {
                let mut bytes = Vec::new();
                let read = file.take(JSON_BYTES_MAX).read_to_end(&mut bytes);
                read.map_err(|error| CliError::environment(format!("reading a task's output again: {error}")))?;
                bytes
            }
        };
        Ok((String::from_utf8_lossy(&bytes).into_owned(), truncated))
    }
}

/// A temporary file that cannot be had or read, as the failure of its task.
pub fn spool_failed(source: std::io::Error) -> Error {
    Error::System { what: "keeping a task's output in a temporary file (TMPDIR)", source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_and_much_are_told_whole() {
        for len in [0, 10, LITTLE_BYTES, LITTLE_BYTES + 1, 3 << 20] {
            let mut spool = Spool::new().expect("files");
            spool.stdout.write_all(&vec![b'x'; len as usize]).expect("written");
            let [mut stdout, stderr] = spool.said().expect("read");
            assert!(matches!(stderr, Said::Little(bytes) if bytes.is_empty()));
            assert_eq!(matches!(stdout, Said::Little(_)), len <= LITTLE_BYTES);
            let mut shown = Vec::new();
            stdout.write_to(&mut shown).expect("written");
            assert_eq!(shown.len() as u64, len);
        }
        let mut spool = Spool::new().expect("files");
        spool.stderr.write_all(&vec![b'x'; 3 << 20]).expect("written");
        let [_, mut stderr] = spool.said().expect("read");
        let (text, truncated) = stderr.text().expect("read");
        assert_eq!((text.len() as u64, truncated), (JSON_BYTES_MAX, true));
    }
}
