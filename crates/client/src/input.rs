//! A command's standard input at the client, over all attempts of its task.

use crate::stdio::{self, Done, Stop};
use bytes::Bytes;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Most bytes of standard input that are kept for another attempt.
const REPLAY_BYTES_MAX: usize = 1 << 20;
/// How long what is being read may take to end once it is called off: only a read that others were quicker than does not end at once.
const SETTLE_LIMIT: Duration = Duration::from_secs(1);

/// Standard input, over all attempts of a task.
pub struct Input {
    fd: Arc<OwnedFd>,
    /// All that was read, while it is little.
    pub(crate) kept: Vec<u8>,
    consumed: u64,
    /// There is no more.
    pub(crate) ended: bool,
    /// Whether the caller owns its terminal.
    foreground: bool,
    /// Calls off what is being read of a terminal.
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
        let (kept, consumed, ended, foreground) = (Vec::new(), 0, false, true);
        let (pause, reading, failed, is_unsettled) = (None, None, None, false);
        Self { fd, kept, consumed, ended, foreground, pause, reading, failed, is_unsettled }
    }

    /// The caller's descriptor.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Whether all that was read can be sent to another attempt.
    pub fn can_repeat(&self) -> bool {
        self.consumed == self.kept.len() as u64
    }

    /// Whether anything was read, or may have been.
    pub fn is_touched(&self) -> bool {
        self.consumed > 0 || self.is_unsettled
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.can_repeat() && self.kept.len() + bytes.len() <= REPLAY_BYTES_MAX {
            self.kept.extend_from_slice(bytes);
        }
        self.consumed += bytes.len() as u64;
    }

    /// Reads some of it, unless that is being done.
    pub(crate) fn start_reading(&mut self, stop: &Stop, bytes_max: usize) {
        let terminal = stdio::is_terminal(&self.fd);
        if self.reading.is_some() || self.ended || (terminal && !self.foreground) {
            return;
        }
        // Without an event of its own a read cannot be called off, and the terminal is shared as well as it can be.
        self.pause = if terminal { Stop::new().ok() } else { None };
        let (fd, stop, pause) = (self.fd.clone(), stop.clone(), self.pause.clone());
        self.reading = Some(tokio::task::spawn_blocking(move || {
            let stops: Vec<&Stop> = [Some(&stop), pause.as_ref()].into_iter().flatten().collect();
            stdio::read_some(&fd, &stops, bytes_max)
        }));
    }

    /// Whether the caller owns its terminal: while it does not, what is typed there is for others.
    pub(crate) fn set_foreground(&mut self, owned: bool) {
        self.foreground = owned;
        if let Some(pause) = self.pause.take_if(|_| !owned) {
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
                self.keep(&bytes);
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
        assert!(input.is_touched() && input.kept == b"words");

        let (read, _write) = pipe().unwrap();
        let mut input = Input::new(Arc::new(read));
        let stop = Stop::new().unwrap();
        input.start_reading(&stop, 100);
        stop.stop();
        input.settle().await;
        assert!(!input.is_touched(), "there was nothing to read");
    }
}
