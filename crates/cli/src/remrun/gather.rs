//! Collects what the command sees of this process: everything of [`base::Command`] that is not on the line.

use crate::door::{DoorError, system};
use base::{Command, Limit, WindowSize};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{CStr, c_char};
use std::os::fd::BorrowedFd;

/// Number of resource limits that Linux has.
const LIMITS: u32 = 16;

unsafe extern "C" {
    /// The process's environment, as the C library keeps it.
    static environ: *const *const c_char;
}

/// The command with this process's environment, folder, mask, ids, limits and host name.
pub fn command(argv: Vec<Vec<u8>>, cpus: u32) -> Result<Command, DoorError> {
    let cwd = rustix::process::getcwd(Vec::new()).map_err(system("finding the working directory"))?;
    Ok(Command {
        argv,
        env: environment(),
        cwd: cwd.into_bytes(),
        umask: umask().bits(),
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        groups: groups()?,
        limits: (0..LIMITS).filter_map(limit).collect(),
        hostname: rustix::system::uname().nodename().to_bytes().to_vec(),
        cpus,
        ignored_signals: super::signals::ignored(),
    })
}

fn environment() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    // SAFETY: the C library keeps `environ` as a null-terminated array of strings; this process has one thread and does
    // not change its environment.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            all.push(CStr::from_ptr(*at).to_bytes().to_vec());
            at = at.add(1);
        }
    }
    all
}

fn umask() -> Mode {
    // It can only be read by setting it; there is no other thread that could make a file meanwhile.
    let mask = rustix::process::umask(Mode::from_bits_retain(0o077));
    rustix::process::umask(mask);
    mask
}

fn groups() -> Result<Vec<u32>, DoorError> {
    // SAFETY: with a length of 0 nothing is written, and the number of groups is returned.
    let count = unsafe { libc::getgroups(0, std::ptr::null_mut()) };
    let mut groups = vec![0u32; usize::try_from(count).unwrap_or(0)];
    // SAFETY: the buffer holds `count` elements.
    let count = unsafe { libc::getgroups(count.max(0), groups.as_mut_ptr()) };
    match usize::try_from(count) {
        Ok(count) => {
            groups.truncate(count);
            Ok(groups)
        }
        Err(_) => Err(system("asking for the groups")(crate::door::start::last_error())),
    }
}

fn limit(resource: u32) -> Option<Limit> {
    let mut value = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes one structure. Resources that this kernel does not have give an error.
    match unsafe { libc::getrlimit64(resource, &mut value) } {
        0 => Some(Limit { resource, soft: value.rlim_cur, hard: value.rlim_max }),
        _ => None,
    }
}

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

/// Opens `/dev/null` in place of standard streams that are closed. The replacements vanish when a command is executed in
/// place, which then sees them closed, as it would without us.
pub fn open_closed_streams() -> Result<(), Errno> {
    for stream in 0..3 {
        // SAFETY: F_GETFD only looks.
        if unsafe { libc::fcntl(stream, libc::F_GETFD) } == -1 {
            // The lowest free number is this one: those below are open.
            let null = rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
            std::mem::forget(null);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gathers_what_this_process_has() {
        let command = command(vec![b"true".to_vec()], 3).expect("a working directory");
        assert_eq!(command.cpus, 3);
        assert_eq!(command.limits.len(), LIMITS as usize);
        let here = std::env::current_dir().expect("a working directory");
        assert_eq!(command.cwd, here.as_os_str().as_encoded_bytes());
        let path = std::env::var("PATH").expect("PATH is set in tests");
        assert!(command.env.contains(&format!("PATH={path}").into_bytes()));
    }
}
