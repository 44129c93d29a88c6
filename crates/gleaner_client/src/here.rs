//! Runs a task on this machine, in the surroundings that it would have had elsewhere.

use crate::cancel::{Cancel, Woken};
use crate::error::{Error, failed, system};
use crate::task::Streams;
use base::path::printable;
use base::{Command, ExitStatus};
use rustix::event::Timespec;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Stdio};

/// How long a task that was asked to end may take, before it is made to.
const END_TIME_MAX: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// Runs the command to its end, unless it is called off.
pub fn run(command: &Command, streams: Streams<'_>, cancel: &Cancel) -> Result<ExitStatus, Error> {
    if cancel.is_cancelled() {
        return Err(Error::Cancelled);
    }
    // At a terminal it has to stay in the group that the terminal listens to.
    let own_group = !rustix::termios::isatty(streams.stdin);
    let mut child = spawn(command, streams, own_group)?;
    let pid = Pid::from_child(&child);
    let process = pidfd_open(pid, PidfdFlags::empty()).map_err(system("watching a task"))?;
    if cancel.wait(process.as_fd(), None)? == Woken::Cancelled {
        end(&mut child, own_group, process.as_fd())?;
        return Err(Error::Cancelled);
    }
    let status = child.wait().map_err(failed("waiting for a task"))?;
    Ok(ExitStatus::from_wait(status.into_raw()))
}

fn spawn(command: &Command, streams: Streams<'_>, own_group: bool) -> Result<Child, Error> {
    let os = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    let copy = |stream: BorrowedFd<'_>| {
        let copied = stream.try_clone_to_owned().map_err(failed("copying a descriptor"))?;
        Ok::<Stdio, Error>(copied.into())
    };
    let mut process = std::process::Command::new(os(&command.argv[0]));
    process.args(command.argv[1..].iter().map(|word| os(word))).current_dir(os(&command.cwd)).env_clear();
    for entry in &command.env {
        let Some(at) = entry.iter().skip(1).position(|byte| *byte == b'=').map(|at| at + 1) else { continue };
        process.env(os(&entry[..at]), os(&entry[at + 1..]));
    }
    process.stdin(copy(streams.stdin)?).stdout(copy(streams.stdout)?).stderr(copy(streams.stderr)?);
    if own_group {
        process.process_group(0);
    }
    prepare(&mut process, command);
    process.spawn().map_err(|error| {
        let name = printable(&command.argv[0]);
        let code = if error.kind() == ErrorKind::NotFound { 127 } else { 126 };
        match rustix::fs::access(command.cwd.as_slice(), rustix::fs::Access::EXEC_OK) {
            Err(folder) => Error::NotRun { message: format!("{}: {folder}", printable(&command.cwd)), code: 126 },
            Ok(()) => Error::NotRun { message: format!("{name}: {error}"), code },
        }
    })
}

/// What a task of this machine is to have: no more descriptors than it would have had (a process that runs many tasks needs
/// more), and no longer a life than the thread that waits for it.
fn prepare(process: &mut std::process::Command, command: &Command) {
    let resource = rustix::process::Resource::Nofile as u32;
    let limit = command.limits.iter().find(|limit| limit.resource == resource).copied();
    // SAFETY: both are single system calls, and safe between fork and exec.
    unsafe {
        process.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            let Some(limit) = limit else { return Ok(()) };
            let value = libc::rlimit64 { rlim_cur: limit.soft, rlim_max: limit.hard };
            match libc::setrlimit64(resource as _, &value) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
}

/// Has a task end, and all that it has started and kept in its group.
fn end(child: &mut Child, own_group: bool, process: BorrowedFd<'_>) -> Result<(), Error> {
    let pid = Pid::from_child(child);
    let tell = |signal| match own_group {
        true => kill_process_group(pid, signal),
        false => kill_process(pid, signal),
    };
    // It may have ended by itself meanwhile.
    let _ = tell(Signal::TERM);
    let never = Cancel::new()?;
    never.wait(process, Some(END_TIME_MAX))?;
    let _ = tell(Signal::KILL);
    child.wait().map_err(failed("waiting for a task"))?;
    Ok(())
}
