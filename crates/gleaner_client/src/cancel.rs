//! Calls off tasks that other threads wait for.

use crate::error::{Error, system};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Calls off tasks: those that run with it end, and those that come later do not begin.
#[derive(Clone, Debug)]
pub struct Cancel(Arc<OwnedFd>);

/// What a wait came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// There is something to be read.
    Ready,
    /// It was called off.
    Cancelled,
    /// The time is over.
    TimedOut,
}

impl Cancel {
    /// Nothing is called off yet.
    pub fn new() -> Result<Self, Error> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Self(Arc::new(event.map_err(system("making an event"))?)))
    }

    /// Calls off, for good.
    pub fn cancel(&self) {
        // It can only fail if it was called off some 2^64 times.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Whether it was called off.
    pub fn is_cancelled(&self) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut polled = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut polled, Some(&at_once)).is_ok_and(|count| count > 0)
    }

    /// Waits until `descriptor` is readable, or it is called off, or `time_max` is over.
    pub(crate) fn wait(&self, descriptor: BorrowedFd<'_>, time_max: Option<Timespec>) -> Result<Woken, Error> {
        loop {
            let mut polled = [
                PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(descriptor, PollFlags::IN),
            ];
            match poll(&mut polled, time_max.as_ref()) {
                Err(Errno::INTR) => {}
                Err(error) => return Err(system("waiting for a task")(error)),
                Ok(0) => return Ok(Woken::TimedOut),
                Ok(_) if !polled[0].revents().is_empty() => return Ok(Woken::Cancelled),
                Ok(_) => return Ok(Woken::Ready),
            }
        }
    }
}
