//! Signals: while a command runs elsewhere they are read from a descriptor and passed on, instead of acting here.

use gleaner_client::door::start::last_error;
use gleaner_client::gather::is_ignored;
use rustix::io::Errno;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The signals that are not taken over: those that cannot be, those by which a terminal stops a process in the background, those
/// of a fault of our own, SIGPIPE of what we say ourselves, and the two that the C library keeps for itself.
const LEFT: [c_int; 13] = [
    libc::SIGKILL,
    libc::SIGSTOP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGPIPE,
    32,
    33,
];
/// Signals that do nothing to a process that does not take them over.
const HARMLESS: [c_int; 5] = [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH, libc::SIGTSTP];

/// Those that end a process that does not take them over.
const ENDING: [c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// The signals taken over from this process, until the original mask is set again.
#[derive(Debug)]
pub struct Signals {
    original: libc::sigset_t,
    descriptor: OwnedFd,
}

impl Signals {
    /// Blocks the signals and opens a descriptor for them. Those that the caller ignores or blocks are taken over as well: the
    /// command ignores or blocks them from its start, and may change its mind.
    pub fn take_over() -> Result<Self, Errno> {
        let all: Vec<c_int> = (1..=64).filter(|signal| !LEFT.contains(signal)).collect();
        Self::take_over_these(&all, true)
    }

    /// Takes over the signals that would end this process, alone, unless the caller ignores or blocks them.
    pub fn take_over_to_end() -> Result<Self, Errno> {
        Self::take_over_these(&ENDING, false)
    }

    fn take_over_these(signals: &[c_int], with_ignored: bool) -> Result<Self, Errno> {
        // SAFETY: plain calls on sets that live on this stack, in a process of one thread.
        unsafe {
            let mut original = MaybeUninit::<libc::sigset_t>::zeroed().assume_init();
            libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), &mut original);
            let mut taken = empty();
            for &signal in signals {
                // Linux keeps a blocked signal even if it is ignored.
                if with_ignored || (libc::sigismember(&original, signal) == 0 && !is_ignored(signal)) {
                    libc::sigaddset(&mut taken, signal);
                }
            }
            let descriptor = libc::signalfd(-1, &taken, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if descriptor == -1 {
                return Err(last_error());
            }
            let descriptor = OwnedFd::from_raw_fd(descriptor);
            // Terminal settings are changed only in the foreground; should that be lost in between, the change must not
            // stop us half-way.
            libc::sigaddset(&mut taken, libc::SIGTTOU);
            if libc::sigprocmask(libc::SIG_BLOCK, &taken, std::ptr::null_mut()) != 0 {
                return Err(last_error());
            }
            Ok(Self { original, descriptor })
        }
    }

    /// Whether `signal` would have ended this process if it had not been taken over.
    pub fn would_end(&self, signal: c_int) -> bool {
        // SAFETY: looks into a set that was filled.
        let blocked = unsafe { libc::sigismember(&self.original, signal) } == 1;
        !blocked && !HARMLESS.contains(&signal) && !is_ignored(signal)
    }

    /// The next signal that came, if any.
    pub fn next(&self) -> Option<c_int> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the buffer has the size given.
        let count = unsafe { libc::read(self.descriptor.as_raw_fd(), info.as_mut_ptr().cast(), size) };
        // SAFETY: a read gives whole records, and any bits are a valid record.
        (count == size as isize).then(|| unsafe { info.assume_init() }.ssi_signo as c_int)
    }

    /// Becomes readable when a signal came.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Sets the mask that the caller had: signals that came meanwhile act at once.
    pub fn restore(&self) {
        // SAFETY: sets this thread's own mask to what it was.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &self.original, std::ptr::null_mut()) };
    }

    /// Stops as if by `signal`, this process or (`whole_group`) its group, and returns when continued; at once if nobody
    /// could continue it (an orphaned group ignores the terminal's stop signals, as it does locally).
    pub fn stop_by(&self, signal: c_int, whole_group: bool) {
        let signal = match signal {
            libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => signal,
            _ => libc::SIGSTOP,
        };
        // SAFETY: signals to ourselves or our group, with the mask opened for this signal alone.
        unsafe {
            let target = if whole_group { 0 } else { libc::getpid() };
            let mut only = empty();
            libc::sigaddset(&mut only, signal);
            libc::kill(target, signal);
            libc::sigprocmask(libc::SIG_UNBLOCK, &only, std::ptr::null_mut());
            // Stopped here, until SIGCONT.
            libc::sigprocmask(libc::SIG_BLOCK, &only, std::ptr::null_mut());
            let mut continued = empty();
            libc::sigaddset(&mut continued, libc::SIGCONT);
            let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(&continued, std::ptr::null_mut(), &at_once);
        }
    }
}

fn empty() -> libc::sigset_t {
    // SAFETY: sigemptyset fills the set.
    unsafe {
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed().assume_init();
        libc::sigemptyset(&mut set);
        set
    }
}

/// Ends this process as `signal` would have ended the command, so that the caller sees a death by signal. Without a core
/// file: the core would be ours, not the command's. Returns only if the signal does not end a process: with the status
/// to exit with.
pub fn die_by(signal: u8, whole_group: bool) -> c_int {
    let number = c_int::from(signal);
    // SAFETY: plain calls on this process.
    unsafe {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
        libc::signal(number, libc::SIG_DFL);
        if whole_group {
            libc::kill(0, number);
        } else {
            // To this thread: another may be taking the process's signals from a descriptor.
            libc::raise(number);
        }
        let mut only = empty();
        libc::sigaddset(&mut only, number);
        libc::sigprocmask(libc::SIG_UNBLOCK, &only, std::ptr::null_mut());
    }
    128 + number
}
