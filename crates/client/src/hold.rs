//! What a young task says is held back for a moment: as long as nobody has heard of it, it can be called off and run here.
//!
//! Nobody waits for bytes in a file, which get there with the rest. A reader of a pipe or terminal may wait, so for them the moment
//! is too short to be felt.

use crate::outputs::Stream;
use crate::stdio;
use bytes::Bytes;
use rustix::fd::OwnedFd;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long output is held back after the start of the task …
const READER_TIME: Duration = Duration::from_millis(40);
/// … and where all of it goes into files.
const FILE_TIME: Duration = Duration::from_secs(1);
/// Most bytes that are held back.
const BYTES_MAX: usize = 256 << 10;
/// What a frame takes beside its bytes, of which it may have none.
pub(crate) const FRAME_BYTES: usize = 128;

/// How long output is held back.
#[derive(Clone, Copy, Debug)]
pub struct Hold(Duration);

impl Hold {
    /// For a caller with these descriptors 0, 1 and 2.
    pub fn new(fds: &[Arc<OwnedFd>; 3]) -> Self {
        let is_file = |fd: &Arc<OwnedFd>| stdio::is_null(fd) || stdio::file_number(fd).is_some();
        Self(if fds[1..].iter().all(is_file) { FILE_TIME } else { READER_TIME })
    }
}

/// Output of one attempt that is held back.
#[derive(Debug)]
pub struct Held {
    hold: Hold,
    until: Option<Instant>,
    is_over: bool,
    frames: VecDeque<(Stream, Bytes)>,
    bytes: usize,
}

impl Held {
    /// Nothing yet.
    pub fn new(hold: Hold) -> Self {
        Self { hold, until: None, is_over: false, frames: VecDeque::new(), bytes: 0 }
    }

    /// The task starts.
    pub fn start(&mut self, now: Instant) {
        self.until.get_or_insert(now + self.hold.0);
    }

    /// From now on nothing is held back.
    pub fn end(&mut self) {
        self.is_over = true;
    }

    /// Takes a frame; what is to be delivered now comes out of [`Held::next_due`].
    pub fn push(&mut self, stream: Stream, frame: Bytes) {
        self.bytes += frame.len() + FRAME_BYTES;
        self.frames.push_back((stream, frame));
        self.is_over |= self.bytes > BYTES_MAX;
    }

    /// The next frame that is to be delivered.
    pub fn next_due(&mut self) -> Option<(Stream, Bytes)> {
        if self.is_over { self.frames.pop_front() } else { None }
    }

    /// When the moment is over; never if nothing is held, or the task has not started.
    pub async fn over(&self) {
        wire::until(self.until.filter(|_| !self.is_over && !self.frames.is_empty())).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_young_task_is_held_back_and_an_older_one_is_not() {
        let mut held = Held::new(Hold(READER_TIME));
        held.start(Instant::now());
        held.push(Stream::Stdout, Bytes::from_static(b"one"));
        held.push(Stream::Stderr, Bytes::from_static(b"two"));
        assert_eq!(held.next_due(), None);
        let begun = Instant::now();
        held.over().await;
        assert_eq!(begun.elapsed().as_millis(), READER_TIME.as_millis());
        held.end();
        assert_eq!(
            held.next_due(),
            Some((Stream::Stdout, Bytes::from_static(b"one"))),
            "in the order in which it was said"
        );
        assert_eq!(held.next_due(), Some((Stream::Stderr, Bytes::from_static(b"two"))));
        held.push(Stream::Stdout, Bytes::from_static(b"three"));
        assert!(held.next_due().is_some());
    }

    #[test]
    fn what_goes_into_files_is_held_back_for_longer() {
        let folder = tempfile::tempdir().unwrap();
        let file: Arc<OwnedFd> = Arc::new(std::fs::File::create(folder.path().join("out")).unwrap().into());
        let (_reader, pipe) = rustix::pipe::pipe().unwrap();
        let pipe = Arc::new(pipe);
        let time = |out: &Arc<OwnedFd>| Hold::new(&[pipe.clone(), out.clone(), file.clone()]).0;
        assert_eq!((time(&file), time(&pipe)), (FILE_TIME, READER_TIME), "it is open for writing alone");
    }

    #[test]
    fn much_is_not_held_back() {
        let mut held = Held::new(Hold(FILE_TIME));
        held.push(Stream::Stdout, vec![0; BYTES_MAX - FRAME_BYTES].into());
        assert_eq!(held.next_due(), None);
        held.push(Stream::Stdout, vec![0; 1].into());
        assert!(held.next_due().is_some() && held.next_due().is_some());
    }
}
