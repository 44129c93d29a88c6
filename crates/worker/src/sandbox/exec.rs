//! From the fork to the program: the last steps in the new process, and the search in PATH as `execvp` does it.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use base::Limit;
use rustix::fs::Mode;
use rustix::io::Errno;

use super::order::Priority;
use super::sys;

/// What the C library searches where there is no PATH.
const PATH_DEFAULT: &[u8] = b"/bin:/usr/bin";

/// Steps that the new process may fail in; the number travels to the guest's init.
pub const STEPS: [&str; 4] = ["standard streams", "priority", super::STEP_DIRECTORY, super::STEP_EXECUTE];

/// All that the new process needs, made before the fork.
#[derive(Debug)]
pub struct Program {
    /// What to try to execute, in order.
    candidates: Vec<CString>,
    argv: Vec<CString>,
    env: Vec<CString>,
    cwd: CString,
    umask: u32,
    ignored_signals: u64,
    blocked_signals: u64,
    /// Already within what the worker itself may have.
    limits: Vec<Limit>,
    cpus: Option<rustix::thread::CpuSet>,
    priority: Priority,
}

impl Program {
    /// From a command; `hard` are the worker's own hard limits. `None`: a NUL byte within.
    pub fn new(
        command: base::Command,
        cpus: &[u32],
        priority: Priority,
        hard: &[u64],
        bounds: &[Limit],
    ) -> Option<Self> {
        let strings = |list: Vec<Vec<u8>>| -> Option<Vec<CString>> {
            list.into_iter().map(|item| CString::new(item).ok()).collect()
        };
        let candidates = candidates(command.argv.first()?, &command.env);
        let limits = merge(&command.limits, bounds).into_iter().map(|limit| clamp(limit, hard)).collect();
        let mut set = rustix::thread::CpuSet::new();
        let fitting = cpus.iter().filter(|cpu| (**cpu as usize) < rustix::thread::CpuSet::MAX_CPU);
        fitting.for_each(|cpu| set.set(*cpu as usize));
        Some(Self {
            candidates: strings(candidates)?,
            argv: strings(command.argv)?,
            env: strings(command.env)?,
            cwd: CString::new(command.cwd).ok()?,
            umask: command.umask,
            ignored_signals: command.ignored_signals,
            blocked_signals: command.blocked_signals,
            limits,
            cpus: (set.count() > 0).then_some(set),
            priority,
        })
    }

    /// Becomes the program. Returns the number of the step that failed, and why. Runs in the forked child.
    pub fn run(&self, streams: [RawFd; 3], terminal: Option<&OwnedFd>, idle: Option<&OwnedFd>) -> (u8, Errno) {
        if let Err(errno) = self.settle(streams, terminal) {
            return (0, errno);
        }
        if let Err(errno) = self.be_polite(idle) {
            return (1, errno);
        }
        if let Err(errno) = rustix::process::chdir(&*self.cwd) {
            return (2, errno);
        }
        sys::ignore_signals(self.ignored_signals);
        sys::set_blocked_signals(self.blocked_signals);
        (3, self.execute())
    }

    fn settle(&self, streams: [RawFd; 3], terminal: Option<&OwnedFd>) -> Result<(), Errno> {
        // A group of its own in the init's session: so it can be stopped as a shell's job can, terminal or not.
        rustix::process::setpgid(None, None)?;
        if let Some(terminal) = terminal {
            sys::foreground(terminal.as_raw_fd(), rustix::process::getpid().as_raw_nonzero().get())?;
        }
        for (to, from) in streams.into_iter().enumerate() {
            sys::copy_to(from, to as RawFd)?;
        }
        Ok(())
    }

    fn be_polite(&self, idle: Option<&OwnedFd>) -> Result<(), Errno> {
        rustix::process::umask(Mode::from_raw_mode(self.umask & 0o777));
        if let Some(idle) = idle {
            rustix::io::write(idle, b"0")?;
        }
        if self.priority == Priority::Guest {
            sys::be_idle()?;
        }
        if let Some(cpus) = &self.cpus {
            rustix::thread::sched_setaffinity(None, cpus)?;
        }
        for limit in &self.limits {
            sys::set_limit(limit.resource, limit.soft, limit.hard)?;
        }
        Ok(())
    }

    fn execute(&self) -> Errno {
        let pointers = |list: &[CString]| {
            let mut pointers: Vec<_> = list.iter().map(|item| item.as_ptr()).collect();
            pointers.push(std::ptr::null());
            pointers
        };
        let (argv, env) = (pointers(&self.argv), pointers(&self.env));
        let mut refused = false;
        let mut last = Errno::NOENT;
        for path in &self.candidates {
            last = sys::execute(path, &argv, &env);
            match last {
                Errno::NOEXEC => {
                    // Without a #! line: a shell script, says POSIX.
                    let mut script = vec![c"/bin/sh".as_ptr(), path.as_ptr()];
                    script.extend_from_slice(&argv[1..]);
                    return sys::execute(c"/bin/sh", &script, &env);
                }
                Errno::ACCESS => refused = true,
                Errno::NOENT | Errno::STALE | Errno::NOTDIR | Errno::NODEV | Errno::TIMEDOUT => {}
                _ => return last,
            }
        }
        if refused { Errno::ACCESS } else { last }
    }
}

/// The paths to try for `program`.
fn candidates(program: &[u8], env: &[Vec<u8>]) -> Vec<Vec<u8>> {
    if program.is_empty() {
        return Vec::new();
    }
    if program.contains(&b'/') {
        return vec![program.to_vec()];
    }
    let path = env.iter().find_map(|variable| variable.strip_prefix(b"PATH=")).unwrap_or(PATH_DEFAULT);
    let folders = path.split(|byte| *byte == b':');
    folders.map(|folder| if folder.is_empty() { program.to_vec() } else { [folder, b"/", program].concat() }).collect()
}

/// The limits, each no higher than the bound of its resource if there is one.
fn merge(limits: &[Limit], bounds: &[Limit]) -> Vec<Limit> {
    let mut merged = limits.to_vec();
    for bound in bounds {
        match merged.iter_mut().find(|limit| limit.resource == bound.resource) {
            Some(limit) => (limit.soft, limit.hard) = (limit.soft.min(bound.soft), limit.hard.min(bound.hard)),
            None => merged.push(*bound),
        }
    }
    merged
}

fn clamp(limit: Limit, hard: &[u64]) -> Limit {
    let own = hard.get(limit.resource as usize).copied().unwrap_or(u64::MAX);
    let hard = limit.hard.min(own);
    Limit { resource: limit.resource, soft: limit.soft.min(hard), hard }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_is_that_of_execvp() {
        let env = [b"HOME=/".to_vec(), b"PATH=/a::/b".to_vec()];
        assert_eq!(candidates(b"x", &env), [b"/a/x".to_vec(), b"x".to_vec(), b"/b/x".to_vec()]);
        assert_eq!(candidates(b"./x", &env), [b"./x".to_vec()]);
        assert_eq!(candidates(b"x", &[]), [b"/bin/x".to_vec(), b"/usr/bin/x".to_vec()]);
        assert!(candidates(b"", &env).is_empty());
    }

    #[test]
    fn limits_stay_below_the_workers_own() {
        let limit = Limit { resource: 1, soft: 90, hard: u64::MAX };
        assert_eq!(clamp(limit, &[5, 50]), Limit { resource: 1, soft: 50, hard: 50 });
        assert_eq!(clamp(limit, &[5]), limit);
        let bound = Limit { resource: 1, soft: 70, hard: 70 };
        assert_eq!(merge(&[limit], &[bound]), [bound]);
        assert_eq!(merge(&[], &[bound]), [bound]);
    }
}
