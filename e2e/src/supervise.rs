//! Runs the suite in a child process and, however that ends, removes what it left: Ctrl-C leaves nothing behind.

use crate::error::{Context, Result};
use crate::leftovers::sweep;
use crate::scratch::{PREFIX, abandoned, folders, remove_all};
use rustix::process::Signal;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicI32, Ordering};

/// Set in the child.
const CHILD: &str = "GLEANER_E2E_CHILD";
/// A scratch folder that holds a file of this name is left for a person to look at.
pub const KEEP: &str = "KEEP";

static CHILD_PID: AtomicI32 = AtomicI32::new(0);

/// Whether this process is the child that does the work.
pub fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Undoes what `nohup` and shells do to what they start in the background: it would be inherited by every case.
pub fn default_signals() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU] {
        // SAFETY: the default action needs no handler.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Starts this program again with the same arguments as the child, waits for its end, and cleans up after it.
pub fn parent() -> Result<ExitCode> {
    // A run that was killed with its parent leaves mounts, and disks that are full.
    abandoned().iter().try_for_each(|scratch| clear(scratch))?;
    let own = std::env::current_exe().context(|| "cannot find the suite's own binary".to_owned())?;
    let mut command = Command::new(own);
    command.args(std::env::args_os().skip(1)).env(CHILD, "1");
    // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            keep_from_cases()
        });
    }
    let mut child = command.spawn().context(|| "cannot start the suite".to_owned())?;
    CHILD_PID.store(child.id() as i32, Ordering::SeqCst);
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler makes one system call that is safe in handlers, on a number read from an atomic.
        unsafe { libc::signal(signal, kill_child as *const () as libc::sighandler_t) };
    }
    let status = child.wait().context(|| "cannot wait for the suite".to_owned())?;
    CHILD_PID.store(0, Ordering::SeqCst);
    clean(child.id())?;
    Ok(ExitCode::from(status.code().unwrap_or(128 + status.signal().unwrap_or(0)) as u8))
}

/// Has what a caller left open above standard error end with the program about to be run: a shell's `> >(tee log)`
/// leaves 63 open, and programs that count what they can open would count differently here and elsewhere.
fn keep_from_cases() -> std::io::Result<()> {
    // SAFETY: marks descriptors of this process, and touches no memory.
    match unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

extern "C" fn kill_child(_signal: libc::c_int) {
    let pid = CHILD_PID.load(Ordering::SeqCst);
    if pid > 0 {
        // SAFETY: kill has no memory effects; the pid is that of a child that was not yet waited for.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
}

fn clean(child: u32) -> Result<()> {
    crate::bench::group::sweep(child);
    folders(&format!("{PREFIX}{child}-")).try_for_each(|scratch| clear(&scratch))
}

/// Ends what runs in a scratch folder, and removes it unless somebody is to look at it.
fn clear(scratch: &Path) -> Result<()> {
    sweep(scratch);
    if scratch.join(KEEP).exists() { Ok(()) } else { remove_all(scratch) }
}
