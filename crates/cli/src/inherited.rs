//! What a process was started with, noted before Rust's start-up changes it: that opens `/dev/null` in place of closed standard
//! streams, and ignores SIGPIPE. A program that is to become another one hands on what it was given; and what is written to
//! an output that is closed fails, as it does in other programs.
//!
//! `remrun` has no such start-up and needs none of this, see [`crate::remrun::streams`].

use std::io::{self, StdoutLock, Write};
use std::sync::atomic::{AtomicU8, Ordering};

/// Bit N: descriptor N was closed.
static NOTED: AtomicU8 = AtomicU8::new(0);
/// SIGPIPE was ignored.
const NO_SIGPIPE: u8 = 1 << 3;

/// Notes it. A constructor of the program: it runs before the start-up, and on one thread.
pub extern "C" fn note() {
    let closed = (0..3).filter(|stream| {
        // SAFETY: F_GETFD only looks.
        let flags = unsafe { libc::fcntl(*stream, libc::F_GETFD) };
        flags == -1
    });
    let mut noted: u8 = closed.map(|stream| 1 << stream).sum();
    // SAFETY: a disposition is plain data for which zeroes will do, and it is only read.
    let found = unsafe {
        let mut found: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut found) == 0).then_some(found.sa_sigaction)
    };
    noted |= if found == Some(libc::SIG_IGN) { NO_SIGPIPE } else { 0 };
    NOTED.store(noted, Ordering::Relaxed);
}

/// Whether a standard stream was closed.
pub fn is_closed(stream: u8) -> bool {
    NOTED.load(Ordering::Relaxed) & 1 << stream != 0
}

/// Fails if standard input was closed, which reads as if it were empty now.
pub fn check_input() -> io::Result<()> {
    if is_closed(0) { Err(io::Error::from_raw_os_error(libc::EBADF)) } else { Ok(()) }
}

/// Has the program that is executed next get what this one was given.
pub fn hand_on() {
    for stream in (0..3).filter(|stream| is_closed(*stream)) {
        // SAFETY: that it closes on execution changes nothing for this program, should that fail.
        unsafe { libc::fcntl(stream.into(), libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    if NOTED.load(Ordering::Relaxed) & NO_SIGPIPE == 0 {
        // SAFETY: no handler is installed that could run.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
}

/// Standard output, which nothing can be written to if it was closed: the standard library takes that for written.
#[derive(Debug)]
pub struct Out(Option<StdoutLock<'static>>);

/// Standard output, for this thread alone as long as it is held.
pub fn out() -> Out {
    Out((!is_closed(1)).then(|| io::stdout().lock()))
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Some(out) => out.write(bytes),
            None if bytes.is_empty() => Ok(0),
            None => Err(io::Error::from_raw_os_error(libc::EBADF)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.as_mut().map_or(Ok(()), Write::flush)
    }
}
