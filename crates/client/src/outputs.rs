//! A task's output, on its way to the caller's descriptors.
//!
//! Each stream has its own writer, so that a reader that has stopped reading one of them holds up neither the other nor
//! signals. What was delivered is remembered by its hash: a task that is run again must repeat it exactly, and is then
//! heard from where the first run fell silent. A write that fails is told to the task as far as that can be done, and to the
//! caller in any case: no status may hide that a byte was lost.

use crate::caller::Replies;
use crate::race::Contestant;
use crate::run::CODE_FAILED;
use crate::serve::blocking;
use crate::stdio::{Done, Stop, flush_error, is_unnamed_pipe, write_all};
use base::door::Reply;
use base::{Digest, ExitStatus};
use bytes::Bytes;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Frames that may wait for a slow reader; then the task waits.
const FRAMES_WAITING: usize = 8;

/// Which of a task's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// What the terminal shows.
    Terminal,
}

impl Stream {
    /// What a person calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stdout => "standard output",
            Self::Stderr => "standard error",
            Self::Terminal => "the terminal",
        }
    }
}

/// One output of a task, over all its attempts.
pub struct Output {
    sender: Option<mpsc::Sender<Bytes>>,
    writer: Option<JoinHandle<Option<Errno>>>,
    delivered: u64,
    hasher: blake3::Hasher,
    repeat: Option<Repeat>,
}

/// A second attempt's output while it repeats what the first delivered.
struct Repeat {
    expected: Digest,
    left: u64,
    hasher: blake3::Hasher,
}

/// What a caller is told of that.
pub(crate) const REPEATED_DIFFERENTLY: &str = "its first run came to nothing, and when the command ran again elsewhere its output was not what \
                                    it had been: nothing was committed; run it again";

/// A second attempt's output differs from what was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Differs;

impl Output {
    /// Writes to `fd`; `closed` is told once if nobody reads there any more. Of a contestant of a race, nothing is written before
    /// that has won.
    pub(crate) fn new(
        stream: Stream,
        fd: Arc<OwnedFd>,
        stop: Stop,
        closed: mpsc::UnboundedSender<Stream>,
        contestant: Option<Contestant>,
    ) -> Self {
        let (sender, mut receiver) = mpsc::channel(FRAMES_WAITING);
        let writer = tokio::spawn(async move {
            let held = match contestant {
                Some(contestant) => hold(&contestant, &mut receiver).await,
                None => Some(Vec::new()),
            };
            // What a run says that has lost is not for anybody.
            let Some(held) = held else {
                while receiver.recv().await.is_some() {}
                return None;
            };
            write_frames(stream, fd, stop, closed, held, receiver).await
        });
        Self { sender: Some(sender), writer: Some(writer), delivered: 0, hasher: blake3::Hasher::new(), repeat: None }
    }

    /// Bytes delivered so far.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// The task is run again: what was delivered is expected once more.
    pub fn start_over(&mut self) {
        if self.delivered > 0 {
            let expected = Digest(*self.hasher.finalize().as_bytes());
            self.repeat = Some(Repeat { expected, left: self.delivered, hasher: blake3::Hasher::new() });
        }
    }

    /// The part of a frame that is new: all of it, unless the task is being repeated.
    pub fn fresh(&mut self, mut frame: Bytes) -> Result<Bytes, Differs> {
        if let Some(repeat) = &mut self.repeat {
            let known = frame.split_to(repeat.left.min(frame.len() as u64) as usize);
            repeat.hasher.update(&known);
            repeat.left -= known.len() as u64;
            if repeat.left == 0 {
                if Digest(*repeat.hasher.finalize().as_bytes()) != repeat.expected {
                    return Err(Differs);
                }
                self.repeat = None;
            }
        }
        self.hasher.update(&frame);
        self.delivered += frame.len() as u64;
        Ok(frame)
    }

    /// Where fresh frames are sent. `None` once finished.
    pub fn sender(&self) -> Option<mpsc::Sender<Bytes>> {
        self.sender.clone()
    }

    /// The task has ended: waits until all is written, and returns why a part of it could not be. An error if a repeated task
    /// said less than the first time.
    pub fn finish(&mut self) -> impl Future<Output = Result<Option<Errno>, Differs>> + use<> {
        self.sender = None;
        let (writer, differs) = (self.writer.take(), self.repeat.is_some());
        async move {
            let lost = match writer {
                Some(writer) => writer.await.unwrap_or(Some(Errno::IO)),
                None => None,
            };
            if differs { Err(Differs) } else { Ok(lost) }
        }
    }
}

/// The answer to a caller whose command ended, and perhaps could not say all that it said. Its own status stands unless that would hide the loss, or
/// is no more than the loss's consequence.
pub(crate) async fn with_lost_output(
    status: ExitStatus,
    lost: Option<(Stream, Errno)>,
    replies: &mut Replies,
) -> Reply {
    let Some((stream, errno)) = lost else { return Reply::Done(status) };
    let what = format!("{}: {errno}: a part of what the command said there is lost", stream.name());
    let hidden = [ExitStatus::Code(0), ExitStatus::Signal(SIGPIPE)].contains(&status);
    if hidden {
        let message = format!("{what}\n  what it did to files is committed");
        return Reply::Failed { message, code: CODE_FAILED };
    }
    let _ = replies.send(&Reply::Note(what)).await;
    Reply::Done(status)
}

const SIGPIPE: u8 = 13;

/// Most bytes of one output that a run in a race may hold back: with more it has won, if the other one has not.
const HELD_BYTES_MAX: usize = 8 << 20;

/// Holds frames back until the race is decided: what was held if this run has won, or has ended.
async fn hold(contestant: &Contestant, frames: &mut mpsc::Receiver<Bytes>) -> Option<Vec<Bytes>> {
    let (mut held, mut bytes) = (Vec::new(), 0);
    loop {
        let frame = tokio::select! {
            biased;
            won = contestant.decided() => return won.then_some(held),
            frame = frames.recv() => frame,
        };
        // It has ended without a word of who won: it came to nothing.
        let frame: Bytes = frame?;
        bytes += frame.len();
        held.push(frame);
        if bytes > HELD_BYTES_MAX && !contestant.claim() {
            return None;
        }
    }
}

/// Writes frames until the task has ended. Returns the error of the first write that failed, other than for want of a reader.
async fn write_frames(
    stream: Stream,
    fd: Arc<OwnedFd>,
    stop: Stop,
    closed: mpsc::UnboundedSender<Stream>,
    held: Vec<Bytes>,
    mut frames: mpsc::Receiver<Bytes>,
) -> Option<Errno> {
    let (mut open, mut written, mut lost) = (true, false, None);
    let mut held = held.into_iter();
    let watched = watched(&fd);
    loop {
        let frame = tokio::select! {
            biased;
            frame = next(&mut held, &mut frames) => frame,
            () = unread(watched.as_ref()), if open => {
                open = false;
                let _ = closed.send(stream);
                continue;
            }
        };
        let Some(frame) = frame else { break };
        if !open {
            continue;
        }
        let (to, stop) = (fd.clone(), stop.clone());
        match blocking(move || write_all(&to, &stop, &frame)).await {
            Some(Done::Ok(())) => {
                written = true;
                continue;
            }
            Some(Done::Failed(errno)) => lost = Some(errno),
            Some(Done::Closed | Done::Stopped) => {}
            None => lost = Some(Errno::IO),
        }
        open = false;
        // Programs go on when they cannot complain. A signal would end them; what is lost is told at the end.
        if !(stream == Stream::Stderr && lost.is_some()) {
            let _ = closed.send(stream);
        }
    }
    if written && lost.is_none() {
        lost = blocking(move || flush_error(&fd)).await.flatten();
    }
    lost
}

async fn next(held: &mut impl Iterator<Item = Bytes>, frames: &mut mpsc::Receiver<Bytes>) -> Option<Bytes> {
    match held.next() {
        Some(frame) => Some(frame),
        None => frames.recv().await,
    }
}

/// A pipe, to be noticed when its reader goes: then the task's next write must fail, and not the one after the next.
fn watched(fd: &Arc<OwnedFd>) -> Option<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: the descriptor is owned by what is registered, and stays open and the same for as long as that lives.
    is_unnamed_pipe(fd).then(|| unsafe { AsyncFd::register_with_interest(fd.clone(), Interest::ERROR) }.ok())?
}

/// Returns once nobody reads the pipe any more; never where none is watched.
async fn unread(pipe: Option<&AsyncFd<Arc<OwnedFd>>>) {
    let Some(pipe) = pipe else { return std::future::pending().await };
    let ready: io::Result<_> = pipe.ready(Interest::ERROR).await;
    if ready.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Waits for room at a writer.
pub(crate) async fn reserve(writer: Option<mpsc::Sender<Bytes>>) -> Option<mpsc::OwnedPermit<Bytes>> {
    writer?.reserve_owned().await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn output() -> (Output, std::fs::File) {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let stop = Stop::new().expect("an event");
        let (closed, _) = mpsc::unbounded_channel();
        (Output::new(Stream::Stdout, Arc::new(writer), stop, closed, None), reader.into())
    }

    #[tokio::test]
    async fn a_repeated_task_is_heard_from_where_it_fell_silent() {
        let (mut output, mut reader) = output();
        let send = async |output: &mut Output, frame: &'static [u8]| {
            let fresh = output.fresh(Bytes::from_static(frame))?;
            output.sender().expect("open").send(fresh).await.expect("the writer lives");
            Ok::<(), Differs>(())
        };
        send(&mut output, b"one two").await.expect("fresh");
        output.start_over();
        send(&mut output, b"one").await.expect("the same");
        send(&mut output, b" two three").await.expect("the same, and more");
        output.finish().await.expect("complete");
        drop(output);
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("read");
        assert_eq!(text, "one two three");
    }

    #[tokio::test]
    async fn a_reader_that_goes_is_noticed_without_a_write() {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let (closed, mut told) = mpsc::unbounded_channel();
        let stop = Stop::new().expect("an event");
        let mut output = Output::new(Stream::Stdout, Arc::new(writer), stop, closed, None);
        drop(reader);
        assert_eq!(told.recv().await, Some(Stream::Stdout));
        assert_eq!(output.finish().await, Ok(None), "what nobody reads is not lost");
    }

    #[tokio::test]
    async fn what_cannot_be_written_is_told_at_the_end() {
        for (stream, is_closed) in [(Stream::Stdout, true), (Stream::Stderr, false)] {
            let full = std::fs::File::options().write(true).open("/dev/full").expect("a device");
            let (closed, mut told) = mpsc::unbounded_channel();
            let stop = Stop::new().expect("an event");
            let mut output = Output::new(stream, Arc::new(full.into()), stop, closed, None);
            output.sender().expect("open").send(Bytes::from_static(b"x")).await.expect("the writer lives");
            assert_eq!(output.finish().await, Ok(Some(Errno::NOSPC)));
            assert_eq!(told.recv().await.is_some(), is_closed);
        }
    }

    fn of_race(contestant: Contestant) -> (Output, std::fs::File) {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let (stop, (closed, _)) = (Stop::new().expect("an event"), mpsc::unbounded_channel());
        (Output::new(Stream::Stdout, Arc::new(writer), stop, closed, Some(contestant)), reader.into())
    }

    #[tokio::test]
    async fn what_a_run_in_a_race_says_is_held_back_until_it_has_won() {
        let (here, there) = crate::race::contestants();
        let ((mut won, mut won_reader), (mut lost, mut lost_reader)) = (of_race(here.clone()), of_race(there));
        for output in [&won, &lost] {
            output.sender().expect("open").send(Bytes::from_static(b"said ")).await.expect("the writer lives");
        }
        assert!(here.claim());
        won.sender().expect("open").send(Bytes::from_static(b"more")).await.expect("the writer lives");
        for output in [&mut won, &mut lost] {
            output.finish().await.expect("complete");
        }
        drop((won, lost));
        let mut texts = [String::new(), String::new()];
        won_reader.read_to_string(&mut texts[0]).expect("read");
        lost_reader.read_to_string(&mut texts[1]).expect("read");
        assert_eq!(texts, ["said more", ""]);
    }

    #[tokio::test]
    async fn who_says_more_than_is_held_back_has_won() {
        let (here, there) = crate::race::contestants();
        let (output, _reader) = of_race(here.clone());
        let sender = output.sender().expect("open");
        for _ in 0..=HELD_BYTES_MAX >> 20 {
            sender.send(vec![0; 1 << 20].into()).await.expect("the writer lives");
        }
        assert!(here.decided().await && !there.claim());
    }

    #[tokio::test]
    async fn another_output_is_noticed() {
        let (mut output, _reader) = output();
        output.fresh(Bytes::from_static(b"abc")).expect("fresh");
        output.start_over();
        assert_eq!(output.fresh(Bytes::from_static(b"abd")), Err(Differs));
        let (mut output, _reader) = self::output();
        output.fresh(Bytes::from_static(b"abc")).expect("fresh");
        output.start_over();
        output.fresh(Bytes::from_static(b"ab")).expect("so far the same");
        assert_eq!(output.finish().await, Err(Differs));
    }
}
