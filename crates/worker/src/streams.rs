//! A task's standard streams at the worker: pipes and a terminal, passed on without waiting for more than there is.

use crate::demand;
use crate::sandbox::{Input, Sink};
use base::{Output, Stdin, WindowSize};
use bytes::{Buf as _, Bytes, BytesMut};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use wire::message::{OutputKind, TaskOutput};

/// Most bytes of output in one message.
const FRAME_BYTES: usize = 128 << 10;
/// First pause between two looks at what was read of the input; it doubles up to the last.
const PAUSE_FIRST: Duration = Duration::from_millis(2);
const PAUSE_LAST: Duration = Duration::from_millis(100);
/// Portions of input that wait for their pipe.
const ITEMS_WAITING: usize = 64;
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
                let fed = Arc::new(Fed { pipe: reader.try_clone()?, written: Mutex::new(0) });
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

/// A task's input pipe, and what was written into it.
pub struct Fed {
    /// Its end for reading, so that what nobody has read is not lost before it is counted.
    pipe: OwnedFd,
    written: Mutex<u64>,
}

impl Fed {
    /// How many bytes were read out of it.
    fn taken(&self) -> u64 {
        let written = wire::lock(&self.written);
        written.saturating_sub(rustix::io::ioctl_fionread(&self.pipe).unwrap_or(0))
    }

    fn inode(&self) -> u64 {
        rustix::fs::fstat(&self.pipe).map_or(0, |pipe| pipe.st_ino)
    }

    /// Writes all of them.
    async fn write(&self, pipe: &pipe::Sender, mut bytes: Bytes) -> io::Result<()> {
        while !bytes.is_empty() {
            pipe.writable().await?;
            let mut written = wire::lock(&self.written);
            match pipe.try_write(&bytes) {
                Ok(count) => {
                    *written += count as u64;
                    drop(written);
                    bytes.advance(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// What feeds a task's input pipe. Ends when this goes.
pub struct Feeding {
    /// What goes into it.
    pub items: mpsc::Sender<InputItem>,
    fed: Arc<Fed>,
    task: AbortHandle,
}

impl Feeding {
    /// Begins, for the task with this init, whose client hears `words`.
    pub fn begin((pipe, fed): (pipe::Sender, Arc<Fed>), init: Option<u32>, words: mpsc::Sender<TaskOutput>) -> Self {
        let (items, queue) = mpsc::channel(ITEMS_WAITING);
        let task = tokio::spawn(feed_pipe(pipe, (fed.clone(), init), queue, words)).abort_handle();
        Self { items, fed, task }
    }

    /// How many bytes were read out of the pipe.
    pub fn taken(&self) -> u64 {
        self.fed.taken()
    }
}

impl Drop for Feeding {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Writes input to the pipe, grants credit as it drains, and says how much was read. Ends at the end of the input. `init`: the task's;
/// `None`: it has ended already, so nothing may be taken from what the next command is to read.
async fn feed_pipe(
    pipe: pipe::Sender,
    (fed, init): (Arc<Fed>, Option<u32>),
    mut items: mpsc::Receiver<InputItem>,
    words: mpsc::Sender<TaskOutput>,
) {
    let Some(init) = init else { return };
    tokio::select! {
        () = demand::wait(init, fed.inode()) => {}
        // No input comes before it was asked for: the task has ended.
        _ = items.recv() => return,
    }
    let (mut told, mut pause) = (0, PAUSE_FIRST);
    let first = [OutputKind::StdinTaken(told), OutputKind::StdinCredit(CREDIT_BYTES as u32)];
    if !say(&words, first).await {
        return;
    }
    loop {
        let mut credit = 0;
        // What is there when the last that was written is read is told as well: who sends it may have no room for more before.
        let is_all_told = told == *wire::lock(&fed.written);
        tokio::select! {
            item = items.recv() => {
                let Some(InputItem::Bytes(bytes)) = item else { return };
                credit = bytes.len() as u32;
                if fed.write(&pipe, bytes).await.is_err() {
                    return;
                }
            }
            () = tokio::time::sleep(pause), if !is_all_told => pause = (pause * 2).min(PAUSE_LAST),
        }
        let taken = fed.taken();
        if taken != told {
            (told, pause) = (taken, PAUSE_FIRST);
            if !say(&words, [OutputKind::StdinTaken(taken)]).await {
                return;
            }
        }
        if credit > 0 && !say(&words, [OutputKind::StdinCredit(credit)]).await {
            return;
        }
    }
}

/// False: nobody hears it.
async fn say(words: &mpsc::Sender<TaskOutput>, said: impl IntoIterator<Item = OutputKind>) -> bool {
    for word in said {
        if words.send(word.into()).await.is_err() {
            return false;
        }
    }
    true
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

    fn pipe_of_task() -> (pipe::Sender, Arc<Fed>) {
        let streams = Streams::new(&Stdin::Stream, Output::Null, Output::Null).expect("pipes");
        (streams.input.expect("a pipe"), streams.fed.expect("the same"))
    }

    #[test]
    fn what_a_task_leaves_in_its_pipe_is_not_counted_as_taken() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (pipe, fed) = pipe_of_task();
            let reader = fed.pipe.try_clone().expect("a copy");
            fed.write(&pipe, Bytes::from_static(b"one two")).await.expect("room");
            assert_eq!(fed.taken(), 0);
            rustix::io::read(&reader, &mut [0; 3]).expect("three bytes");
            drop((reader, pipe));
            assert_eq!(fed.taken(), 3, "also when nobody has it open any more");
        });
    }

    /// A short command may have ended before its input is looked after: what it was not asked for stays for the next one.
    #[test]
    fn a_task_that_has_ended_already_is_given_no_input() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (to_program, fed) = pipe_of_task();
            let (_items, queue) = mpsc::channel(1);
            let (words, mut granted) = mpsc::channel(1);
            let feeding =
                tokio::time::timeout(Duration::from_secs(5), feed_pipe(to_program, (fed, None), queue, words));
            feeding.await.expect("it ends at once");
            assert_eq!(granted.recv().await, None);
        });
    }

    #[test]
    fn nobody_looks_for_demand_once_the_task_has_ended() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (to_program, fed) = pipe_of_task();
            let (items, queue) = mpsc::channel(1);
            let (words, _granted) = mpsc::channel(1);
            let feeding = tokio::spawn(feed_pipe(to_program, (fed, Some(u32::MAX)), queue, words));
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(!feeding.is_finished(), "it waits for demand");
            drop(items);
            let ended = tokio::time::timeout(Duration::from_secs(5), feeding).await;
            ended.expect("it ends with the task").expect("no panic");
        });
    }
}
