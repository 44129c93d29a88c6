//! The caller's terminal: raw while a command with a terminal runs elsewhere, and as it was on every way out.
//!
//! Several `remrun`s may share one terminal. Only one of them at a time has it: the one that is in the foreground and
//! holds the terminal's lock. The others look again from time to time ([`Terminal::acquire`]).

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use std::ffi::c_int;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The settings that a fatal signal restores; null while there are none.
static SAVED: AtomicPtr<Termios> = AtomicPtr::new(std::ptr::null_mut());

/// Signals that can end this process without being passed on.
const FATAL: [c_int; 13] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGABRT,
    libc::SIGSYS,
    libc::SIGTRAP,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPIPE,
];

/// Standard input, if it is a terminal.
#[derive(Debug)]
pub struct Terminal {
    stdin: BorrowedFd<'static>,
    is_terminal: bool,
    raw: Option<Raw>,
    /// Ctrl-C and the like are typed for the task; and they once were.
    gives_keys: bool,
    has_given_keys: bool,
}

/// What must be given back.
#[derive(Debug)]
struct Raw {
    before: Termios,
    _lock: OwnedFd,
}

impl Terminal {
    /// Looks at `stdin`.
    pub fn new(stdin: BorrowedFd<'static>) -> Self {
        Self { stdin, is_terminal: rustix::termios::isatty(stdin), raw: None, gives_keys: false, has_given_keys: false }
    }

    /// Whether standard input is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Whether it is raw now, by our doing.
    pub fn is_raw(&self) -> bool {
        self.raw.is_some()
    }

    /// Whether Ctrl-C and the like are typed for the task, and are no signals.
    pub fn gives_keys(&self) -> bool {
        self.is_raw() && self.gives_keys
    }

    /// Whether what ended the task may have been typed for it.
    pub fn has_given_keys(&self) -> bool {
        self.is_raw() && self.has_given_keys
    }

    /// From now on Ctrl-C and the like are typed for the task, or are signals, as they are without us.
    pub fn give_keys(&mut self, given: bool) {
        self.gives_keys = given;
        self.has_given_keys |= given;
        if let Some(raw) = self.raw.as_ref().filter(|_| self.in_foreground()) {
            let _ = tcsetattr(self.stdin, OptionalActions::Now, &self.settings(&raw.before));
        }
    }

    /// Raw settings, where those were before.
    fn settings(&self, before: &Termios) -> Termios {
        let mut raw = before.clone();
        raw.make_raw();
        if !shows_all() {
            // What goes to a pipe may come back to this terminal by another program, which counts on its settings.
            raw.output_modes = before.output_modes;
        }
        if !self.gives_keys {
            raw.local_modes |= before.local_modes & LocalModes::ISIG;
        }
        raw
    }

    /// Whether this process is in the foreground of its terminal. A terminal that does not control us has no foreground
    /// of ours to lose.
    pub fn in_foreground(&self) -> bool {
        self.is_terminal && tcgetpgrp(self.stdin).map_or(true, |group| group == rustix::process::getpgrp())
    }

    /// Makes the terminal raw, if standard input is one, is ours just now, and no other `remrun` has it; whether it is
    /// raw afterwards. Locks are kept in `folder`.
    pub fn acquire(&mut self, folder: &Path) -> bool {
        if self.raw.is_some() {
            return true;
        }
        if !self.in_foreground() {
            return false;
        }
        let Some(lock) = self.lock(folder) else { return false };
        let Ok(before) = tcgetattr(self.stdin) else { return false };
        arm_fatal_signals(&before);
        let raw = self.settings(&before);
        // What was typed ahead is kept: it is for the command.
        if tcsetattr(self.stdin, OptionalActions::Drain, &raw).is_err() {
            SAVED.store(std::ptr::null_mut(), Ordering::Release);
            return false;
        }
        self.raw = Some(Raw { before, _lock: lock });
        true
    }

    /// Gives the terminal its settings back, unless it belongs to another group meanwhile (whose shell has set it).
    pub fn release(&mut self) {
        if let Some(raw) = self.raw.take() {
            if self.in_foreground() {
                let _ = tcsetattr(self.stdin, OptionalActions::Drain, &raw.before);
            }
            SAVED.store(std::ptr::null_mut(), Ordering::Release);
        }
    }

    fn lock(&self, folder: &Path) -> Option<OwnedFd> {
        let device = rustix::fs::fstat(self.stdin).ok()?.st_rdev;
        let name = format!("terminal-{}-{}.lock", rustix::fs::major(device), rustix::fs::minor(device));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let lock = rustix::fs::open(folder.join(name), flags, Mode::RUSR | Mode::WUSR).ok()?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(lock)
    }
}

/// Whether standard output and error are terminals as well.
fn shows_all() -> bool {
    rustix::termios::isatty(rustix::stdio::stdout()) && rustix::termios::isatty(rustix::stdio::stderr())
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.release();
    }
}

/// Has signals that end this process restore `settings` first.
fn arm_fatal_signals(settings: &Termios) {
    // Left behind on purpose: a handler may read it at any moment. A few dozen bytes for each stop and continuation.
    SAVED.store(Box::into_raw(Box::new(settings.clone())), Ordering::Release);
    for signal in FATAL {
        // SAFETY: all zeroes are a valid action; the handler is safe in a signal; an action that is not the default
        // (SIGPIPE ignored, say) is left alone.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut action);
            if action.sa_sigaction == libc::SIG_DFL {
                action.sa_sigaction = restore_and_die as extern "C" fn(c_int) as usize;
                action.sa_flags = libc::SA_RESETHAND;
                libc::sigaction(signal, &action, std::ptr::null_mut());
            }
        }
    }
}

/// Handler: one system call to restore the terminal, then the signal again, with its default action.
extern "C" fn restore_and_die(signal: c_int) {
    let saved = SAVED.load(Ordering::Acquire);
    if !saved.is_null() {
        // SAFETY: what SAVED points to is never freed. Descriptor 0 is open for the life of the process.
        let (stdin, settings) = unsafe { (BorrowedFd::borrow_raw(0), &*saved) };
        let _ = tcsetattr(stdin, OptionalActions::Now, settings);
    }
    // SAFETY: the action is the default again (SA_RESETHAND); the signal acts when this handler returns.
    unsafe { libc::raise(signal) };
}
