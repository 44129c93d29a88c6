//! The standard streams of `remrun` and the size of its terminal.

use base::WindowSize;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

/// Size of the first of the standard streams that is a terminal.
pub fn window() -> Option<WindowSize> {
    standard_streams().iter().find_map(|stream| {
        let size = rustix::termios::tcgetwinsize(stream).ok()?;
        Some(WindowSize { rows: size.ws_row, columns: size.ws_col })
    })
}

/// Descriptors 0, 1 and 2; they are open once [`open_closed_streams`] has run.
pub fn standard_streams() -> [BorrowedFd<'static>; 3] {
    // SAFETY: `open_closed_streams` saw to it that they are open, and nothing closes them.
    unsafe { [BorrowedFd::borrow_raw(0), BorrowedFd::borrow_raw(1), BorrowedFd::borrow_raw(2)] }
}

/// What the three standard streams are called.
pub const NAMES: [&str; 3] = ["input", "output", "error"];

/// Opens `/dev/null` in place of standard streams that are closed, and returns the first that was. The replacements vanish when
/// a command is executed in place, which then sees them closed, as it would without us.
pub fn open_closed_streams() -> Result<Option<usize>, Errno> {
    let mut first = None;
    for stream in 0..3 {
        // SAFETY: F_GETFD only looks.
        if unsafe { libc::fcntl(stream, libc::F_GETFD) } == -1 {
            // The lowest free number is this one: those below are open.
            let null = rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
            std::mem::forget(null);
            first.get_or_insert(stream as usize);
        }
    }
    Ok(first)
}
