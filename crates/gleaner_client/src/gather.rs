//! Collects what a command sees of this process: everything of [`base::Command`] but the words themselves.

use crate::door::{DoorError, system};
use base::door::{Scheduling, World};
use base::{Command, Limit, Needs};
use rustix::fs::{AtFlags, CWD, Mode, StatxFlags};
use rustix::io::Errno;
use std::ffi::{CStr, c_char, c_int};
use std::mem::MaybeUninit;

/// Number of resource limits that Linux has.
const LIMITS: u32 = 16;

/// Asks `statx` for the number of a mount that is never used again (Linux 6.8 and later).
const STATX_MNT_ID_UNIQUE: u32 = 0x4000;

unsafe extern "C" {
    /// The process's environment, as the C library keeps it.
    static environ: *const *const c_char;
}

/// A command with this process's environment, folder, mask, ids, limits and host name, for a process of one thread.
pub fn command(argv: Vec<Vec<u8>>, needs: Needs) -> Result<Command, DoorError> {
    with_umask(argv, needs, umask_alone())
}

/// As [`command`], where other threads may run: none of them may change the environment meanwhile.
pub fn command_among_threads(argv: Vec<Vec<u8>>, needs: Needs) -> Result<Command, DoorError> {
    with_umask(argv, needs, umask_of_status())
}

fn with_umask(argv: Vec<Vec<u8>>, needs: Needs, umask: u32) -> Result<Command, DoorError> {
    let cwd = rustix::process::getcwd(Vec::new()).map_err(DoorError::Directory)?;
    is_here(&cwd).map_err(DoorError::Directory)?;
    Ok(Command {
        argv,
        env: environment(),
        cwd: cwd.into_bytes(),
        umask,
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        groups: groups()?,
        limits: (0..LIMITS).filter_map(limit).collect(),
        hostname: rustix::system::uname().nodename().to_bytes().to_vec(),
        needs,
        ignored_signals: ignored_signals(),
        blocked_signals: blocked_signals(),
        nice: u8::try_from(nice()).unwrap_or(0),
    })
}

/// Where this process stands. What the kernel does not say is 0.
pub fn world() -> World {
    let wanted = StatxFlags::INO | StatxFlags::MNT_ID | StatxFlags::from_bits_retain(STATX_MNT_ID_UNIQUE);
    let root = rustix::fs::statx(CWD, "/", AtFlags::STATX_DONT_SYNC, wanted);
    let (root_mount, root_inode) = root.map_or((0, 0), |root| (root.stx_mnt_id, root.stx_ino));
    let namespace = |path: &str| rustix::fs::stat(path).map_or(0, |found| found.st_ino);
    World {
        // Before Linux 5.8 mounts cannot be asked for.
        root_mount: if root_mount == 0 { namespace("/proc/self/ns/mnt") } else { root_mount },
        root_inode,
        users: namespace("/proc/self/ns/user"),
        // SAFETY: only asks for it; the value is none that could be set.
        personality: unsafe { libc::personality(0xffff_ffff) } as u32,
        capabilities: rustix::thread::capabilities(None).map_or(0, |sets| sets.effective.bits()),
        scheduling: scheduling(),
    }
}

fn nice() -> i32 {
    rustix::process::getpriority_process(None).unwrap_or(0)
}

/// How this thread is scheduled.
fn scheduling() -> Scheduling {
    const OF_PROCESS: libc::c_int = 1;
    let nice = nice();
    // SAFETY: plain integers; they only ask.
    let (policy, disk) = unsafe { (libc::sched_getscheduler(0), libc::syscall(libc::SYS_ioprio_get, OF_PROCESS, 0)) };
    Scheduling {
        is_raised: nice < 0,
        policy: u32::try_from(policy & !libc::SCHED_RESET_ON_FORK).unwrap_or(0),
        disk: own_disk_priority(u32::try_from(disk).unwrap_or(0), nice),
        processors: rustix::thread::sched_getaffinity(None).map_or(0, |set| set.count()),
    }
}

/// What a process has set as priority of its disk requests; 0 if it is what follows from its nice value.
fn own_disk_priority(told: u32, nice: i32) -> u32 {
    const CLASS_SHIFT: u32 = 13;
    const BEST_EFFORT: u32 = 2;
    let (class, level) = (told >> CLASS_SHIFT, told & ((1 << CLASS_SHIFT) - 1));
    let follows = class == 0 || class == BEST_EFFORT && i32::try_from(level) == Ok((nice + 20) / 5);
    if follows { 0 } else { told }
}

/// Whether this path names the working directory: something may have been mounted over it, or it was moved away.
/// Or folders on the way to it are closed to this user, who was in it as another: nothing can begin there.
fn is_here(path: &CStr) -> Result<(), Errno> {
    let identity = |path: &CStr| rustix::fs::stat(path).map(|found| (found.st_dev, found.st_ino));
    match (identity(path), identity(c".")) {
        (Ok(by_path), Ok(by_process)) if by_path == by_process => Ok(()),
        (Err(Errno::ACCESS), _) | (_, Err(Errno::ACCESS)) => Err(Errno::ACCESS),
        (Err(_), _) | (_, Err(_)) if path.to_bytes().starts_with(b"/") => Ok(()),
        _ => Err(Errno::STALE),
    }
}

/// The environment that this process was started with.
pub fn environment() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    // SAFETY: the C library keeps `environ` as a null-terminated array of strings; nobody changes the environment
    // meanwhile, as callers are told.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            all.push(CStr::from_ptr(*at).to_bytes().to_vec());
            at = at.add(1);
        }
    }
    all
}

/// The mask can only be asked for by setting it, which another thread could notice.
fn umask_alone() -> u32 {
    let mask = rustix::process::umask(Mode::from_bits_retain(0o077));
    rustix::process::umask(mask);
    mask.bits()
}

/// The mask as /proc tells it; the usual one where there is no /proc.
fn umask_of_status() -> u32 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let told = status.lines().find_map(|line| u32::from_str_radix(line.strip_prefix("Umask:")?.trim(), 8).ok());
    told.unwrap_or(0o022)
}

/// The signals that this process was started to ignore: bit `n - 1` for signal `n`.
fn ignored_signals() -> u64 {
    (1..=64).filter(|signal| is_ignored(*signal)).fold(0, |set, signal| set | 1 << (signal - 1))
}

/// The signals that this thread was started to block, in the same way.
fn blocked_signals() -> u64 {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: only asks for the mask, which fills the set.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), set.as_mut_ptr());
        (1..=64)
            .filter(|signal| libc::sigismember(set.as_ptr(), *signal) == 1)
            .fold(0, |all, signal| all | 1 << (signal - 1))
    }
}

/// Whether this process ignores `signal`.
pub fn is_ignored(signal: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: only asks for the action; zeroes are a valid one.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        action.assume_init().sa_sigaction == libc::SIG_IGN
    }
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
    match unsafe { libc::getrlimit64(resource as _, &mut value) } {
        0 => Some(Limit { resource, soft: value.rlim_cur, hard: value.rlim_max }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_of_disk_requests_is_told_if_it_was_set() {
        let best_effort = |level: u32| (2 << 13) | level;
        assert_eq!([own_disk_priority(0, 0), own_disk_priority(best_effort(4), 0)], [0, 0]);
        assert_eq!(own_disk_priority(best_effort(5), 7), 0);
        assert_eq!(own_disk_priority(best_effort(1), 0), best_effort(1));
        assert_eq!(own_disk_priority(3 << 13, 0), 3 << 13, "idle");
    }

    #[test]
    fn gathers_what_this_process_has() {
        let command =
            command(vec![b"true".to_vec()], Needs { cpus: 3, ..Needs::default() }).expect("a working directory");
        assert_eq!(command.needs.cpus, 3);
        assert_eq!(command.limits.len(), LIMITS as usize);
        let here = std::env::current_dir().expect("a working directory");
        assert_eq!(command.cwd, here.as_os_str().as_encoded_bytes());
        let path = std::env::var("PATH").expect("PATH is set in tests");
        assert!(command.env.contains(&format!("PATH={path}").into_bytes()));
        assert_eq!(umask_of_status(), command.umask);
    }
}
