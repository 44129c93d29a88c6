//! A command's standard input at the client, over all attempts of its task.

use crate::peek::{Part, Peeked, Taken};
use crate::stdio::{self, Done, Stop};
use bytes::Bytes;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;
use wire::lock;

/// How long what is being read may take to end once it is called off: only a read that others were quicker than does not end at once.
const SETTLE_LIMIT: Duration = Duration::from_secs(1);

/// Standard input, over all attempts of a task.
pub struct Input {
    fd: Arc<OwnedFd>,
    /// All that was taken of it.
    taken: Arc<Mutex<Taken>>,
    /// It is one that can be looked into, and the number of the attempt that does, if this one does.
    part: Option<Part>,
    peeks: Option<u32>,
    /// There is no more.
    pub(crate) ended: bool,
    /// Whether the caller owns its terminal.
    foreground: bool,
    /// Calls off what is being read.
    pause: Option<Stop>,
    /// What is being read.
    pub(crate) reading: Option<JoinHandle<Done<Vec<u8>>>>,
    /// Why it cannot be read any further, if that is not its end.
    pub(crate) failed: Option<Errno>,
    /// It is not known what a read that was called off has taken.
    is_unsettled: bool,
}

impl Input {
    /// Nothing read yet.
    pub fn new(fd: Arc<OwnedFd>) -> Self {
        let (taken, part, peeks, ended, foreground) = (Arc::default(), None, None, false, true);
        let (pause, reading, failed, is_unsettled) = (None, None, None, false);
        Self { fd, taken, part, peeks, ended, foreground, pause, reading, failed, is_unsettled }
    }

    /// The caller's descriptor.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Whether all that was taken can be sent to another attempt.
    pub fn can_repeat(&self) -> bool {
        lock(&self.taken).is_whole()
    }

    /// Whether anything was taken, or may have been.
    pub fn is_touched(&self) -> bool {
        lock(&self.taken).bytes > 0 || self.is_unsettled
    }

    /// Another attempt begins: what it is sent first, since that is taken already.
    pub(crate) fn begin(&mut self) -> Bytes {
        if self.peeks.take().is_some() {
            // What the last attempt looks for is not for this one.
            self.pause.take().into_iter().for_each(|pause| pause.stop());
            (self.reading, self.ended) = (None, false);
        }
        Bytes::copy_from_slice(&lock(&self.taken).kept)
    }

    /// The task has taken so many bytes since its attempt began, and its worker goes on to say so: before the first, it can be looked into.
    pub(crate) fn note_taken(&mut self, bytes: u64) {
        if bytes == 0 && self.peeks.is_none() && self.reading.is_none() {
            if self.part.is_none() {
                self.part = Part::new(self.fd.clone(), self.taken.clone());
            }
            self.peeks = self.peeked().map(|peeked| peeked.begin());
        } else if let Some(peeked) = self.looked_into() {
            peeked.note_taken(bytes);
        }
    }

    fn peeked(&self) -> Option<&Arc<Peeked>> {
        self.part.as_ref()?.peeked.as_ref()
    }

    /// What this attempt looks into.
    fn looked_into(&self) -> Option<&Arc<Peeked>> {
        self.peeks.and(self.peeked())
    }

    /// How much the attempt has taken, as far as that is known.
    pub(crate) fn told(&self) -> u64 {
        self.looked_into().map_or(0, |peeked| peeked.told())
    }

    /// Whether something else has read what this attempt was sent.
    pub(crate) fn was_read_by_others(&self) -> bool {
        self.looked_into().is_some_and(|peeked| peeked.was_read_by_others())
    }

    /// The task has ended and has taken so many bytes since its attempt began; the rest is for the next one.
    pub(crate) fn leave_rest(&self, bytes: u64) {
        self.looked_into().into_iter().for_each(|peeked| peeked.leave_rest(bytes));
    }

    /// Reads some of it, unless that is being done.
    pub(crate) fn start_reading(&mut self, stop: &Stop, bytes_max: usize) {
        let terminal = stdio::is_terminal(&self.fd);
        if self.reading.is_some() || self.ended || (terminal && !self.foreground) {
            return;
        }
        let peeked = self.peeks.zip(self.peeked().cloned());
        // Without an event of its own a read cannot be called off, and the terminal is shared as well as it can be.
        self.pause = if terminal || peeked.is_some() { Stop::new().ok() } else { None };
        let (fd, stop, pause) = (self.fd.clone(), stop.clone(), self.pause.clone());
        self.reading = Some(tokio::task::spawn_blocking(move || {
            let stops: Vec<&Stop> = [Some(&stop), pause.as_ref()].into_iter().flatten().collect();
            match peeked {
                Some((attempt, peeked)) => peeked.look(attempt, &stops, bytes_max),
                None => stdio::read_some(&fd, &stops, bytes_max),
            }
        }));
    }

    /// Whether the caller owns its terminal: while it does not, what is typed there is for others.
    pub(crate) fn set_foreground(&mut self, owned: bool) {
        self.foreground = owned;
        if let Some(pause) = self.pause.take_if(|_| !owned && stdio::is_terminal(&self.fd)) {
            pause.stop();
        }
    }

    /// Waits for the end of a read that was called off, and takes what it has read: nobody else finds that at the caller's descriptor.
    pub(crate) async fn settle(&mut self) {
        let Some(reading) = self.reading.take() else { return };
        match tokio::time::timeout(SETTLE_LIMIT, reading).await {
            Ok(Ok(read)) => {
                self.take(read);
            }
            Ok(Err(_)) | Err(_) => self.is_unsettled = true,
        }
    }

    /// Takes what was read; returns what is to be sent.
    pub(crate) fn take(&mut self, read: Done<Vec<u8>>) -> Option<Bytes> {
        let paused = self.pause.take().is_none() && stdio::is_terminal(&self.fd);
        match read {
            Done::Ok(bytes) if !bytes.is_empty() => {
                if self.peeks.is_none() {
                    lock(&self.taken).add(&bytes);
                }
                return Some(bytes.into());
            }
            Done::Stopped if paused => {}
            // A terminal that hung up has ended, as it has for a command that runs here.
            Done::Failed(errno) if !stdio::is_terminal(&self.fd) => self.failed = Some(errno),
            Done::Ok(_) | Done::Closed | Done::Stopped | Done::Failed(_) => self.ended = true,
        }
        None
    }
}

/// What was read, once it is.
pub(crate) async fn finished(reading: &mut Option<JoinHandle<Done<Vec<u8>>>>) -> Done<Vec<u8>> {
    match reading {
        Some(reading) => reading.await.unwrap_or(Done::Closed),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::pipe;

    #[tokio::test]
    async fn what_is_being_read_when_a_task_is_called_off_is_not_forgotten() {
        let (read, write) = pipe().unwrap();
        let mut input = Input::new(Arc::new(read));
        let stop = Stop::new().unwrap();
        input.start_reading(&stop, 100);
        rustix::io::write(&write, b"words").unwrap();
        // Nobody awaits the read any more when it has taken them.
        tokio::time::timeout(Duration::from_secs(10), async {
            while !input.reading.as_ref().is_some_and(JoinHandle::is_finished) {
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap();
        stop.stop();
        input.settle().await;
        assert!(input.is_touched() && input.begin() == b"words"[..]);

        let (read, _write) = pipe().unwrap();
        let mut input = Input::new(Arc::new(read));
        let stop = Stop::new().unwrap();
        input.start_reading(&stop, 100);
        stop.stop();
        input.settle().await;
        assert!(!input.is_touched(), "there was nothing to read");
    }
}
