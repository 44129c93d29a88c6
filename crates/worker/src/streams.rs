//! A task's standard streams at the worker: pipes and a terminal, passed on without waiting for more than there is.

use crate::demand;
use crate::sandbox::{Input, Sink};
use base::{Output, Stdin, WindowSize};
use bytes::{Bytes, BytesMut};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

/// Most bytes of output in one message.
const FRAME_BYTES: usize = 128 << 10;
/// Bytes of standard input that may be on their way at once.
pub const CREDIT_BYTES: usize = 256 << 10;

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
    /// Inode number of the input pipe.
    pub input_inode: u64,
    /// Where standard output is read.
    pub output: Option<pipe::Receiver>,
    /// Where standard error is read.
    pub error: Option<pipe::Receiver>,
}

impl Streams {
    /// Makes the pipes that these kinds of streams need. Must run in a tokio runtime.
    pub fn new(stdin: &Stdin, stdout: Output, stderr: Output) -> io::Result<Self> {
        let (input, stdin, input_inode) = match stdin {
            Stdin::Null => (None, Input::Null, 0),
            Stdin::File { path, offset } => (None, Input::File { path: path.clone(), offset: *offset }, 0),
            Stdin::Terminal => (None, Input::Terminal, 0),
            Stdin::Stream => {
                let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
                let inode = rustix::fs::fstat(&reader)?.st_ino;
                (Some(pipe::Sender::from_owned_fd(nonblocking(writer)?)?), Input::Stream(reader), inode)
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
        Ok(Self { stdin, stdout, stderr, input, input_inode, output, error })
    }
}

/// The pipe's other end is another open file: only ours becomes non-blocking.
fn nonblocking(fd: OwnedFd) -> io::Result<OwnedFd> {
    rustix::io::ioctl_fionbio(&fd, true)?;
    Ok(fd)
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

/// What goes to a task's standard input.
pub enum InputItem {
    /// Bytes.
    Bytes(Bytes),
    /// The end.
    End,
}

/// Writes input to the pipe, and grants credit as it drains. Ends at the end of the input, or when nobody reads. `demand_of`: the
/// task's init and its pipe; `None`: it has ended already, so nothing may be taken from what the next command is to read.
pub async fn feed_pipe(
    mut pipe: pipe::Sender,
    demand_of: Option<(u32, u64)>,
    mut items: mpsc::Receiver<InputItem>,
    credit: mpsc::Sender<u32>,
) {
    let Some((init, inode)) = demand_of else { return };
    tokio::select! {
        () = demand::wait(init, inode) => {}
        // No input comes before it was asked for: the task has ended.
        _ = items.recv() => return,
    }
    if credit.send(CREDIT_BYTES as u32).await.is_err() {
        return;
    }
    while let Some(InputItem::Bytes(bytes)) = items.recv().await {
        if pipe.write_all(&bytes).await.is_err() {
            return;
        }
        if credit.send(bytes.len() as u32).await.is_err() {
            return;
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A short command may have ended before its input is looked after: what it was not asked for stays for the next one.
    #[test]
    fn a_task_that_has_ended_already_is_given_no_input() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (to_program, _program) = pipe::pipe().expect("a pipe");
            let (_items, queue) = mpsc::channel(1);
            let (credit, mut granted) = mpsc::channel(1);
            let feeding = tokio::time::timeout(Duration::from_secs(5), feed_pipe(to_program, None, queue, credit));
            feeding.await.expect("it ends at once");
            assert_eq!(granted.recv().await, None);
        });
    }

    #[test]
    fn nobody_looks_for_demand_once_the_task_has_ended() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (to_program, _program) = pipe::pipe().expect("a pipe");
            let (items, queue) = mpsc::channel(1);
            let (credit, _granted) = mpsc::channel(1);
            let feeding = tokio::spawn(feed_pipe(to_program, Some((u32::MAX, 0)), queue, credit));
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(!feeding.is_finished(), "it waits for demand");
            drop(items);
            let ended = tokio::time::timeout(Duration::from_secs(5), feeding).await;
            ended.expect("it ends with the task").expect("no panic");
        });
    }
}
