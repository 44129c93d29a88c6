//! Whether the client daemon lives on. One that was stopped (SIGSTOP, a debugger) takes no message and closes no connection: without
//! this its callers would wait for ever.

use super::{Door, DoorError};
use rustix::event::Timespec;
use std::time::{Duration, Instant};

/// From look to look. It costs a look at one small file.
const LOOK: Duration = Duration::from_secs(1);
/// Looks that find it stopped until that is told …
const TOLD_AFTER: u32 = 2;
/// … until a command that was not launched is given up …
const GIVEN_UP_AFTER: u32 = 10;
/// … and one that was.
const GIVEN_UP_LAUNCHED_AFTER: u32 = 30;

/// What is known of the daemon's life.
#[derive(Debug)]
pub struct Pulse {
    looked: Instant,
    /// Looks, one after the other, that found it stopped. They are counted since time may pass in which this process is stopped, too.
    stopped: u32,
}

/// How it stands with a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It lives, as far as is known.
    Lives,
    /// It has been stopped for a while: who waits is told.
    Stopped,
    /// It has been stopped for so long that nobody should wait any more.
    GivenUp,
}

impl Pulse {
    /// It has just accepted a connection.
    pub fn new() -> Self {
        Self { looked: Instant::now(), stopped: 0 }
    }

    /// When to look again.
    pub fn next(&self) -> Instant {
        self.looked + LOOK
    }

    /// The time until then, as `poll` wants it.
    pub fn timeout(&self) -> Timespec {
        super::timespec_until(self.next())
    }

    /// Looks, if it is time to.
    pub fn look(&mut self, door: &Door, is_launched: bool) -> Life {
        let now = Instant::now();
        if now >= self.next() {
            self.looked = now;
            let is_stopped = door.process.is_some_and(is_stopped);
            self.stopped = if is_stopped { self.stopped.saturating_add(1) } else { 0 };
        }
        life(self.stopped, is_launched)
    }
}

impl Door {
    /// Waits for a daemon that is stopped to go on, before anything is sent: descriptors that were would be open in its queue, and whoever
    /// reads the other end of a pipe would wait for it. `tell` is called after a while. The error is that it was waited for long enough.
    pub fn wait_while_stopped(&self, tell: impl Fn(&DoorError)) -> Result<(), DoorError> {
        for look in 0..GIVEN_UP_AFTER {
            if !self.process.is_some_and(is_stopped) {
                return Ok(());
            }
            if look == TOLD_AFTER {
                tell(&self.stopped());
            }
            // It has nothing to say yet: this returns early if it dies.
            super::wait_readable(self.as_fd(), Instant::now() + LOOK)?;
        }
        Err(self.stopped())
    }
}

impl Default for Pulse {
    fn default() -> Self {
        Self::new()
    }
}

fn life(stopped: u32, is_launched: bool) -> Life {
    let given_up = if is_launched { GIVEN_UP_LAUNCHED_AFTER } else { GIVEN_UP_AFTER };
    match stopped {
        looks if looks >= given_up => Life::GivenUp,
        looks if looks >= TOLD_AFTER => Life::Stopped,
        _ => Life::Lives,
    }
}

/// Whether a process is stopped, by a signal or by who traces it. Not known of one that cannot be seen.
pub(super) fn is_stopped(process: i32) -> bool {
    let stat = std::fs::read(format!("/proc/{process}/stat")).unwrap_or_default();
    matches!(state_in(&stat), Some(b'T' | b't'))
}

/// The state of a process, from its `stat`: it stands behind the name, which may hold parentheses.
fn state_in(stat: &[u8]) -> Option<u8> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(end + 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_process_is_known() {
        assert_eq!(state_in(b"12 (a) R (b)) T 1 2"), Some(b'T'));
        assert_eq!(state_in(b"12 (gleaner) S 1"), Some(b'S'));
        assert_eq!(state_in(b""), None);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep runs");
        let process = child.id() as i32;
        assert!(!is_stopped(process));
        // SAFETY: signals to our own child.
        unsafe { libc::kill(process, libc::SIGSTOP) };
        let until = Instant::now() + Duration::from_secs(10);
        while !is_stopped(process) && Instant::now() < until {
            let _ = rustix::event::poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: 5_000_000 }));
        }
        assert!(is_stopped(process));
        child.kill().and_then(|()| child.wait()).expect("it ends");
        assert!(!is_stopped(process));
    }

    #[test]
    fn what_was_launched_is_waited_for_longer() {
        let lives = |is_launched| [0, 1, 2, 9, 10, 29, 30].map(|stopped| life(stopped, is_launched));
        use Life::{GivenUp, Lives, Stopped};
        assert_eq!(lives(false), [Lives, Lives, Stopped, Stopped, GivenUp, GivenUp, GivenUp]);
        assert_eq!(lives(true), [Lives, Lives, Stopped, Stopped, Stopped, Stopped, GivenUp]);
    }
}
