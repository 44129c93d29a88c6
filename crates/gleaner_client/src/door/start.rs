//! Starts the client daemon when nobody listens: one start, however many callers find it missing at the same moment.

use super::{Door, DoorError, Folder, system, timespec_until, wait_readable};
use base::path::printable;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use std::ffi::{CString, OsStr, c_char, c_int};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Name of the lock that a starter holds.
const LOCK_NAME: &str = "start.lock";
/// Name of the daemon's log.
pub const LOG_NAME: &str = "daemon.log";
/// The number under which the daemon gets its readiness pipe.
const READY_DESCRIPTOR: c_int = 3;
/// Longest complaint of a daemon that is shown.
const COMPLAINT_BYTES_MAX: u64 = 4096;

impl Door {
    /// Connects to the daemon in `folder`, and starts it first if nobody listens. Waits for that until `deadline`; one that ends meanwhile
    /// is not waited for.
    ///
    /// Forks; the child calls nothing that other threads of this process could disturb.
    pub fn open_or_start(folder: &Folder, deadline: Instant) -> Result<Self, DoorError> {
        match Self::open(folder) {
            Err(DoorError::NotListening) => {}
            other => return other,
        }
        let lock = folder.path().join(LOCK_NAME);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let lock = rustix::fs::open(&lock, flags, Mode::RUSR | Mode::WUSR).map_err(system("opening start.lock"))?;
        let mut pause = Duration::from_millis(2);
        loop {
            let locked = match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => true,
                Err(Errno::AGAIN | Errno::INTR) => false,
                Err(error) => return Err(system("locking start.lock")(error)),
            };
            // Whoever held the lock has started the daemon, or is about to.
            match Self::open(folder) {
                Err(DoorError::NotListening) => {}
                other => return other,
            }
            if locked {
                start(folder, deadline)?;
                return Self::open(folder);
            }
            if Instant::now() >= deadline {
                return Err(DoorError::NotStarted("another start of it takes too long".into()));
            }
            // A lock cannot be waited for with a time limit: look again, less and less often.
            let _ = rustix::event::poll(&mut [], Some(&timespec_until(Instant::now() + pause)));
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }
}

/// Starts the daemon, and waits until it listens.
fn start(folder: &Folder, deadline: Instant) -> Result<(), DoorError> {
    let log = folder.path().join(LOG_NAME);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let log_file =
        rustix::fs::open(&log, flags, Mode::RUSR | Mode::WUSR).map_err(system("opening the daemon's log"))?;
    let null = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(system("opening /dev/null"))?;
    let (ready, ready_end) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(system("making a pipe"))?;
    let programs: Vec<CString> = programs();
    let plan = Plan { programs, null: above(null)?, log: above(log_file)?, ready: above(ready_end)? };
    spawn(&plan)?;
    drop(plan);
    let mut ready = File::from(ready);
    let mut said = Vec::new();
    loop {
        if !wait_readable(ready.as_fd(), deadline)? {
            return Err(DoorError::NotStarted(format!("it was not ready in time; see {}", log.display())));
        }
        let mut buffer = [0u8; 512];
        let count = ready.read(&mut buffer).unwrap_or(0);
        said.extend_from_slice(&buffer[..count]);
        if said == base::door::READY {
            return Ok(());
        }
        if count == 0 || said.len() as u64 > COMPLAINT_BYTES_MAX {
            let complaint = String::from_utf8_lossy(&said);
            return Err(DoorError::NotStarted(match complaint.trim() {
                "" => format!("it ended before it was ready; see {}", log.display()),
                text => text.lines().map(|line| printable(line.as_bytes())).collect::<Vec<_>>().join("; "),
            }));
        }
    }
}

/// What the child needs, made before the fork: after it, memory must not be allocated.
struct Plan {
    programs: Vec<CString>,
    null: OwnedFd,
    log: OwnedFd,
    ready: OwnedFd,
}

/// Moves a descriptor above those that the child gives away.
fn above(descriptor: OwnedFd) -> Result<OwnedFd, DoorError> {
    rustix::io::fcntl_dupfd_cloexec(&descriptor, READY_DESCRIPTOR + 1).map_err(system("moving a descriptor"))
}

/// Where `gleaner` may be: beside this program, then in PATH.
fn programs() -> Vec<CString> {
    let beside = std::fs::read_link("/proc/self/exe").ok().and_then(|exe| Some(exe.parent()?.join("gleaner")));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = path.as_bytes().split(|byte| *byte == b':').filter(|folder| folder.starts_with(b"/"));
    let in_path = in_path.map(|folder| Path::new(OsStr::from_bytes(folder)).join("gleaner"));
    let all = beside
        .into_iter()
        .chain(in_path)
        .filter(|program: &PathBuf| rustix::fs::access(program, rustix::fs::Access::EXEC_OK).is_ok());
    all.filter_map(|program| CString::new(program.into_os_string().into_vec()).ok()).collect()
}

/// Starts the program in a session of its own, as nobody's child.
fn spawn(plan: &Plan) -> Result<(), DoorError> {
    // SAFETY: whatever other threads do: the child calls only functions that are safe between fork and exec.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(system("starting the client daemon")(last_error())),
        0 => {
            // SAFETY: this is the child, which must not return into its parent's code.
            unsafe {
                libc::setsid();
                if libc::fork() == 0 {
                    become_daemon(plan);
                }
                libc::_exit(0)
            }
        }
        child => {
            // SAFETY: `child` is our own child; it ends at once. ECHILD (SIGCHLD is ignored) is as good.
            while unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) } == -1 && last_error() == Errno::INTR {}
            Ok(())
        }
    }
}

/// In the daemon-to-be: gives away all that is the caller's, then becomes the program.
///
/// # Safety
/// Only between fork and exec.
unsafe fn become_daemon(plan: &Plan) {
    // SAFETY: only async-signal-safe calls, on descriptors and strings that the plan keeps alive.
    unsafe {
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        libc::umask(0o077);
        libc::chdir(c"/".as_ptr());
        libc::dup2(plan.null.as_raw_fd(), 0);
        libc::dup2(plan.log.as_raw_fd(), 1);
        libc::dup2(plan.log.as_raw_fd(), 2);
        libc::dup2(plan.ready.as_raw_fd(), READY_DESCRIPTOR);
        // What the caller inherited (pipes of a make, above all) must not be held open by the daemon.
        let first = (READY_DESCRIPTOR + 1) as u32;
        libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
        let arguments: [*const c_char; 5] =
            [c"gleaner".as_ptr(), c"daemon".as_ptr(), c"--ready-fd".as_ptr(), c"3".as_ptr(), std::ptr::null()];
        for program in &plan.programs {
            libc::execv(program.as_ptr(), arguments.as_ptr());
        }
        let complaint = b"there is no program `gleaner`, neither beside remrun nor in PATH";
        libc::write(READY_DESCRIPTOR, complaint.as_ptr().cast(), complaint.len());
        libc::_exit(127);
    }
}

/// The error of the last system call that went through libc.
pub fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Takes the readiness pipe that a starter passed as descriptor `number`.
///
/// Fails if `number` is a standard stream or not open. Call it once, before anything else is opened.
pub fn take_ready_descriptor(number: c_int) -> Result<OwnedFd, DoorError> {
    // SAFETY: F_GETFD only looks.
    if number < READY_DESCRIPTOR || unsafe { libc::fcntl(number, libc::F_GETFD) } == -1 {
        return Err(DoorError::NotStarted(format!("descriptor {number} is not a readiness pipe")));
    }
    // SAFETY: the descriptor is open, was passed to this process for this purpose, and is owned from here on only.
    let ready = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&ready, rustix::io::FdFlags::CLOEXEC).map_err(system("keeping the readiness pipe"))?;
    Ok(ready)
}
