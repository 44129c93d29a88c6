//! A task's standard streams at the worker: pipes and a terminal, passed on without waiting for more than there is.

use crate::feeding::Fed;
use crate::sandbox::{Input, Sink};
use base::{Output, Stdin, WindowSize};
use bytes::{Bytes, BytesMut};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use tokio::io::AsyncReadExt;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;

/// Most bytes of output in one message.
const FRAME_BYTES: usize = 128 << 10;

/// The ends of a task's streams: those that the task gets, and ours.
pub struct Streams {
    /// For the order.
    pub stdin: Input,
    /// For the order.
    pub stdout: Sink,
    /// For the order.
    pub stderr: Sink,
    /// Where input is written.
    pub input: Option<pipe::Sender>,
    /// The input pipe, whoever has its other ends.
    pub fed: Option<Arc<Fed>>,
    /// Where standard output is read.
    pub output: Option<pipe::Receiver>,
    /// Where standard error is read.
    pub error: Option<pipe::Receiver>,
}

impl Streams {
    /// Makes the pipes that these kinds of streams need. Must run in a tokio runtime.
    pub fn new(stdin: &Stdin, stdout: Output, stderr: Output) -> io::Result<Self> {
        let (input, stdin, fed) = match stdin {
            Stdin::Null => (None, Input::Null, None),
            Stdin::File { path, offset } => (None, Input::File { path: path.clone(), offset: *offset }, None),
            Stdin::Terminal => (None, Input::Terminal, None),
            Stdin::Stream => {
                let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
                let fed = Arc::new(Fed::new(reader.try_clone()?)?);
                (Some(pipe::Sender::from_owned_fd(nonblocking(writer)?)?), Input::Stream(reader), Some(fed))
            }
        };
        let sink = |kind| match kind {
            Output::Null => Ok((None, Sink::Null)),
            Output::SameAsStdout => Ok((None, Sink::SameAsStdout)),
            Output::Terminal => Ok((None, Sink::Terminal)),
            Output::Stream => {
                let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
                Ok::<_, io::Error>((Some(pipe::Receiver::from_owned_fd(nonblocking(reader)?)?), Sink::Stream(writer)))
            }
        };
        let (output, stdout) = sink(stdout)?;
        let (error, stderr) = sink(stderr)?;
        Ok(Self { stdin, stdout, stderr, input, fed, output, error })
    }
}

/// The pipe's other end is another open file: only ours becomes non-blocking.
fn nonblocking(fd: OwnedFd) -> io::Result<OwnedFd> {
    rustix::io::ioctl_fionbio(&fd, true)?;
    Ok(fd)
}

/// The number that a pipe has in the names of descriptors.
pub fn inode(pipe: impl AsFd) -> u64 {
    rustix::fs::fstat(pipe).map_or(0, |pipe| pipe.st_ino)
}

/// What is read of an output, until its end.
pub async fn next_output(reader: &mut Option<pipe::Receiver>, buffer: &mut BytesMut) -> Option<Bytes> {
    let Some(pipe) = reader else { return std::future::pending().await };
    buffer.reserve(FRAME_BYTES);
    match pipe.read_buf(&mut buffer.limited()).await {
        Ok(count) if count > 0 => Some(buffer.split().freeze()),
        Ok(_) | Err(_) => None,
    }
}

trait Limited {
    fn limited(&mut self) -> bytes::buf::Limit<&mut BytesMut>;
}

impl Limited for BytesMut {
    fn limited(&mut self) -> bytes::buf::Limit<&mut BytesMut> {
        bytes::BufMut::limit(self, FRAME_BYTES)
    }
}

/// The master side of a task's terminal.
pub struct Terminal {
    master: AsyncFd<OwnedFd>,
}

impl Terminal {
    /// Must run in a tokio runtime.
    pub fn new(master: OwnedFd) -> io::Result<Self> {
        let master = nonblocking(master)?;
        // SAFETY: the AsyncFd owns the descriptor, which stays open and the same for as long as it lives.
        Ok(Self { master: unsafe { AsyncFd::register(master) }? })
    }

    /// What the terminal shows; `None` once no process has it open any more.
    pub async fn read(&self) -> Option<Bytes> {
        let mut buffer = vec![0; 16 << 10];
        loop {
            let mut ready = self.master.readable().await.ok()?;
            match ready.try_io(|master| Ok(rustix::io::read(master, &mut buffer)?)) {
                Ok(Ok(0) | Err(_)) => return None,
                Ok(Ok(count)) => {
                    buffer.truncate(count);
                    return Some(buffer.into());
                }
                Err(_not_ready) => {}
            }
        }
    }

    /// Types these bytes.
    pub async fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let mut ready = self.master.writable().await?;
            match ready.try_io(|master| Ok(rustix::io::write(master, bytes)?)) {
                Ok(written) => bytes = &bytes[written?..],
                Err(_not_ready) => {}
            }
        }
        Ok(())
    }

    /// Tells the terminal's programs its size.
    pub fn resize(&self, window: WindowSize) {
        let size = rustix::termios::Winsize { ws_row: window.rows, ws_col: window.columns, ws_xpixel: 0, ws_ypixel: 0 };
        let _ = rustix::termios::tcsetwinsize(self.master.get_ref().as_fd(), size);
    }

    /// Types the end-of-file character.
    pub async fn end(&self) {
        const END_OF_FILE: &[u8] = &[4];
        let _ = self.write(END_OF_FILE).await;
    }
}
