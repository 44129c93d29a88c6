//! Programs that a stop signal cannot stop, since they wait for a child that shares their memory until it has executed something (`vfork`,
//! `posix_spawn`: shells begin their commands so). Both are told to stop. A child that does so before it has executed keeps its parent
//! waiting in the kernel, which neither goes on nor counts as stopped: nobody would learn that the task stands still. A continue signal frees
//! both.

use super::others::has_stopped_child;
use std::fs;
use std::time::{Duration, Instant};

/// The first look at a program that was told to stop, and the longest pause between two.
const LOOK_FIRST: Duration = Duration::from_millis(10);
const LOOK_LAST: Duration = Duration::from_secs(1);

/// Looks at a program that was told to stop until it has taken the signal.
#[derive(Debug, Default)]
pub struct Held {
    /// What it was told to stop by, and when to look at it.
    told: Option<(i32, Instant, Duration)>,
    /// Of a task with a terminal, which may tell it to stop by itself: when to look.
    terminal: Option<Instant>,
    /// That it is held was said.
    is_said: bool,
}

/// How it stands with a program and a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    /// It has taken it, or has not got it.
    Yes,
    /// Not yet.
    No,
    /// Not before its child goes on, which is stopped.
    Held,
}

impl Held {
    /// Nobody was told anything yet.
    pub fn new(has_terminal: bool) -> Self {
        Self { terminal: has_terminal.then(|| Instant::now() + LOOK_LAST), ..Self::default() }
    }

    /// The program was sent a signal.
    pub fn sent(&mut self, signal: i32) {
        match signal {
            libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => {
                self.told = Some((signal, Instant::now() + LOOK_FIRST, LOOK_FIRST));
            }
            libc::SIGCONT | libc::SIGKILL => (self.told, self.is_said) = (None, false),
            _ => {}
        }
    }

    /// When to look next.
    pub fn next(&self) -> Option<Instant> {
        self.told.map(|(_, next, _)| next).into_iter().chain(self.terminal).min()
    }

    /// Looks, if it is time to. Returns the signal by which the program stands still, once.
    pub fn look(&mut self, program: i32) -> Option<u8> {
        let now = Instant::now();
        if self.next().is_none_or(|next| now < next) {
            return None;
        }
        if let Some(next) = &mut self.terminal {
            *next = now + LOOK_LAST;
        }
        let (signal, pause) = self.told.map_or((libc::SIGTSTP, LOOK_LAST), |(signal, _, pause)| (signal, pause));
        let taken = taken(program, signal);
        self.told = match taken {
            Taken::No => self.told.map(|_| (signal, now + pause * 2, (pause * 2).min(LOOK_LAST))),
            Taken::Yes | Taken::Held => None,
        };
        let was_said = std::mem::replace(&mut self.is_said, taken == Taken::Held);
        (taken == Taken::Held && !was_said).then_some(signal as u8)
    }
}

fn taken(program: i32, signal: i32) -> Taken {
    let status = fs::read_to_string(format!("/proc/{program}/status")).unwrap_or_default();
    match is_pending(&status, signal) {
        false => Taken::Yes,
        true if is_uninterruptible(&status) && has_stopped_child(program) => Taken::Held,
        true => Taken::No,
    }
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Whether a signal to the whole process waits for it.
fn is_pending(status: &str, signal: i32) -> bool {
    let pending = field(status, "ShdPnd").and_then(|bits| u64::from_str_radix(bits, 16).ok());
    pending.is_some_and(|bits| bits & 1 << (signal - 1) != 0)
}

fn is_uninterruptible(status: &str) -> bool {
    field(status, "State").is_some_and(|state| state.starts_with('D'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process in a group of its own that waits, as after `vfork`, for a child that pauses.
    fn waits_for_its_child() -> i32 {
        // SAFETY: the processes make system calls alone. Without CLONE_VM the child has memory of its own, so that all else is as after a fork.
        unsafe {
            let parent = libc::fork();
            if parent == 0 {
                libc::setpgid(0, 0);
                let flags = (libc::CLONE_VFORK | libc::SIGCHLD) as libc::c_ulong;
                libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0);
                loop {
                    libc::pause();
                }
            }
            parent
        }
    }

    fn until(what: &str, mut is_so: impl FnMut() -> bool) {
        let limit = Instant::now() + Duration::from_secs(10);
        while !is_so() {
            assert!(Instant::now() < limit, "{what}");
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }

    fn has_stopped(process: i32) -> bool {
        // SAFETY: asks for our own child.
        unsafe { libc::waitpid(process, std::ptr::null_mut(), libc::WNOHANG | libc::WUNTRACED) == process }
    }

    #[test]
    fn a_program_that_its_stopped_child_holds_stands_still() {
        let program = waits_for_its_child();
        let status = || fs::read_to_string(format!("/proc/{program}/status")).unwrap_or_default();
        until("it waits for its child", || is_uninterruptible(&status()));
        let mut held = Held::default();
        assert_eq!(held.look(program), None, "nobody was told anything");
        // SAFETY: signals to our own children.
        unsafe { libc::kill(-program, libc::SIGTSTP) };
        held.sent(libc::SIGTSTP);
        until("it stands still", || held.look(program) == Some(libc::SIGTSTP as u8));
        assert!(!has_stopped(program), "it does not count as stopped");
        assert_eq!(held.next(), None, "that is said once");
        // SAFETY: the same.
        unsafe { libc::kill(-program, libc::SIGCONT) };
        held.sent(libc::SIGCONT);
        until("its child goes on", || !has_stopped_child(program) && !is_pending(&status(), libc::SIGTSTP));
        // SAFETY: the same.
        unsafe { libc::kill(-program, libc::SIGKILL) };
        // SAFETY: waits for our own child.
        unsafe { libc::waitpid(program, std::ptr::null_mut(), 0) };
    }

    #[test]
    fn a_program_that_stops_is_not_held() {
        use std::os::unix::process::CommandExt;
        // In a group of its own: the kernel stops nobody of an orphaned one by this signal, which the tests' own may be.
        let mut child = std::process::Command::new("sleep").arg("60").process_group(0).spawn().expect("sleep runs");
        let program = child.id() as i32;
        let mut held = Held::default();
        // SAFETY: a signal to our own child.
        unsafe { libc::kill(program, libc::SIGTSTP) };
        held.sent(libc::SIGTSTP);
        until("it has taken the signal", || {
            assert_eq!(held.look(program), None);
            held.next().is_none()
        });
        assert!(has_stopped(program));
        child.kill().and_then(|()| child.wait()).expect("it ends");
    }

    #[test]
    fn what_waits_is_read() {
        let status = "Name:\ta\nState:\tD (disk sleep)\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000080000\n";
        assert!(is_pending(status, libc::SIGTSTP) && !is_pending(status, libc::SIGTTIN));
        assert!(is_uninterruptible(status) && !is_pending("", libc::SIGTSTP) && !is_uninterruptible(""));
    }
}
