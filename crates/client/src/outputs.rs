//! A task's output, on its way to the caller's descriptors.
//!
//! Each stream has its own writer, so that a reader that has stopped reading one of them holds up neither the other nor
//! signals. What was delivered is remembered by its hash: a task that is run again must repeat it exactly, and is then
//! heard from where the first run fell silent.

use crate::race::Contestant;
use crate::serve::blocking;
use crate::stdio::{Done, Stop, write_all};
use base::Digest;
use bytes::Bytes;
use rustix::fd::OwnedFd;
use std::sync::Arc;
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

/// One output of a task, over all its attempts.
pub struct Output {
    sender: Option<mpsc::Sender<Bytes>>,
    writer: Option<JoinHandle<()>>,
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
            let Some(held) = held else { return while receiver.recv().await.is_some() {} };
            write_frames(stream, fd, stop, closed, held, receiver).await;
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

    /// The task has ended: waits until all is written. An error if a repeated task said less than the first time.
    pub fn finish(&mut self) -> impl Future<Output = Result<(), Differs>> + use<> {
        self.sender = None;
        let (writer, differs) = (self.writer.take(), self.repeat.is_some());
        async move {
            if let Some(writer) = writer {
                let _ = writer.await;
            }
            if differs { Err(Differs) } else { Ok(()) }
        }
    }
}

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

async fn write_frames(
    stream: Stream,
    fd: Arc<OwnedFd>,
    stop: Stop,
    closed: mpsc::UnboundedSender<Stream>,
    held: Vec<Bytes>,
    mut frames: mpsc::Receiver<Bytes>,
) {
    let mut open = true;
    let mut held = held.into_iter();
    while let Some(frame) = next(&mut held, &mut frames).await {
        if !open {
            continue;
        }
        let (fd, stop) = (fd.clone(), stop.clone());
        if blocking(move || write_all(&fd, &stop, &frame)).await != Some(Done::Ok(())) {
            open = false;
            let _ = closed.send(stream);
        }
    }
}

async fn next(held: &mut impl Iterator<Item = Bytes>, frames: &mut mpsc::Receiver<Bytes>) -> Option<Bytes> {
    match held.next() {
        Some(frame) => Some(frame),
        None => frames.recv().await,
    }
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
