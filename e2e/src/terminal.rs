//! A pseudo-terminal for a command under test.

use crate::error::{Context, Result};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Size in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

impl Size {
    /// Reads `24x80`.
    pub fn parse(text: &str) -> Option<Self> {
        let (rows, columns) = text.trim().split_once('x')?;
        Some(Self { rows: rows.parse().ok()?, columns: columns.parse().ok()? })
    }
}

/// Opens a terminal of this size; the child end of it becomes the command's three streams and its controlling terminal.
pub fn attach(command: &mut Command, size: Size) -> Result<OwnedFd> {
    let what = || "cannot open a pseudo-terminal".to_owned();
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).context(what)?;
    rustix::pty::grantpt(&master).context(what)?;
    rustix::pty::unlockpt(&master).context(what)?;
    let name = rustix::pty::ptsname(&master, Vec::new()).context(what)?;
    resize(&master, size)?;
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let slave = File::from(rustix::fs::open(name, flags, rustix::fs::Mode::empty()).context(what)?);
    let clone = || slave.try_clone().context(what);
    command.stdin(Stdio::from(clone()?)).stdout(Stdio::from(clone()?)).stderr(Stdio::from(clone()?));
    // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
            Ok(())
        });
    }
    Ok(master)
}

/// Changes the size; the programs in the terminal get SIGWINCH.
pub fn resize(master: &OwnedFd, size: Size) -> Result<()> {
    let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(master, size).context(|| "cannot resize the terminal".to_owned())
}
