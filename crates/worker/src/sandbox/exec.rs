//! From the fork to the program: the last steps in the new process, and the search in PATH as `execvp` does it.

use std::ffi::{CStr, CString, c_char};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use base::Limit;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::order::{Failure, Priority};
use super::{interpreters, sys};

/// What the C library searches where there is no PATH.
const PATH_DEFAULT: &[u8] = b"/bin:/usr/bin";

/// Steps that the new process may fail in; the number travels to the guest's init.
pub const STEPS: [&str; 4] = ["standard streams", "priority", super::STEP_DIRECTORY, super::STEP_EXECUTE];

/// A program that was begun.
pub struct Begun {
    pub id: i32,
    /// Told where exec failed, and closed by a successful exec; `None`: the program has been executed.
    pub exec: Option<OwnedFd>,
}

/// What a program begins with.
#[derive(Debug)]
pub struct Surroundings<'a> {
    /// Its standard streams.
    pub streams: [RawFd; 3],
    /// Its terminal.
    pub terminal: Option<&'a OwnedFd>,
    /// The control group that it alone joins.
    pub idle: Option<&'a OwnedFd>,
    /// Descriptors beyond the streams that it keeps. Every other one is closed before a path of the client's is used.
    pub keep: Vec<RawFd>,
}

/// Why a program was not executed, from what [`Program::run`] returned.
pub fn not_executed(at: u8, errno: Errno) -> Failure {
    Failure::new(STEPS.get(usize::from(at)).copied().unwrap_or("start"), errno)
}

/// Strings as the kernel wants them: their addresses, and a null pointer.
#[derive(Debug)]
struct Strings {
    pointers: Vec<*const c_char>,
    _kept: Vec<CString>,
}

impl Strings {
    fn new(list: Vec<CString>) -> Self {
        let pointers = list.iter().map(|item| item.as_ptr()).chain([std::ptr::null()]).collect();
        Self { pointers, _kept: list }
    }
}

/// All that the new process needs, made before the fork.
#[derive(Debug)]
pub struct Program {
    /// What to try to execute, in order.
    candidates: Vec<CString>,
    argv: Strings,
    env: Strings,
    /// The arguments of the shell that runs what has no `#!` line, the second of which is the script's name.
    script: Vec<*const c_char>,
    cwd: CString,
    umask: u32,
    ignored_signals: u64,
    blocked_signals: u64,
    nice: u8,
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
        let argv = Strings::new(strings(command.argv)?);
        let script = [c"/bin/sh".as_ptr(), std::ptr::null()].into_iter().chain(argv.pointers[1..].iter().copied());
        Some(Self {
            candidates: strings(candidates)?,
            script: script.collect(),
            argv,
            env: Strings::new(strings(command.env)?),
            cwd: CString::new(command.cwd).ok()?,
            umask: command.umask,
            ignored_signals: command.ignored_signals,
            blocked_signals: command.blocked_signals,
            nice: command.nice,
            limits,
            cpus: (set.count() > 0).then_some(set),
            priority,
        })
    }

    /// Begins it in a process of its own. `attended`: this process has to do with that one before it is the program.
    pub fn begin(&mut self, mut surroundings: Surroundings<'_>, attended: bool) -> Result<Begun, Failure> {
        if attended { self.begin_copied(surroundings) } else { self.begin_at_once(&mut surroundings) }
    }

    /// In a copy of this process, which goes on meanwhile.
    fn begin_copied(&mut self, mut surroundings: Surroundings<'_>) -> Result<Begun, Failure> {
        let flags = rustix::pipe::PipeFlags::CLOEXEC;
        let (exec, tell) = rustix::pipe::pipe_with(flags).map_err(|errno| Failure::new("pipe", errno))?;
        surroundings.keep.push(tell.as_raw_fd());
        // SAFETY: this process has one thread, and the child ends in exec or exit_now.
        let id = unsafe { sys::fork() }.map_err(|errno| Failure::new("fork", errno))?;
        if id == 0 {
            let (at, errno) = self.run(&mut surroundings);
            let mut told = vec![at];
            told.extend(errno.raw_os_error().to_le_bytes());
            let _ = rustix::io::write(&tell, &told);
            sys::exit_now(127);
        }
        Ok(Begun { id, exec: Some(exec) })
    }

    /// Without a copy, which costs as much as the rest: this process stands still until the program has been executed.
    fn begin_at_once(&mut self, surroundings: &mut Surroundings<'_>) -> Result<Begun, Failure> {
        let mut failed = None;
        // SAFETY: this process has one thread, and the child allocates nothing, and ends in exec or exit_now.
        let begun = unsafe {
            sys::fork_lent(|| {
                failed = Some(self.run(surroundings));
                127
            })
        };
        let id = begun.map_err(|errno| Failure::new("fork", errno))?;
        let Some((at, errno)) = failed else { return Ok(Begun { id, exec: None }) };
        let _ = sys::wait_for(id, 0);
        Err(not_executed(at, errno))
    }

    /// Becomes the program. Returns the number of the step that failed, and why. Runs in the forked child, which may have been lent its
    /// parent's memory: nothing is allocated here.
    fn run(&mut self, surroundings: &mut Surroundings<'_>) -> (u8, Errno) {
        if let Err(errno) = self.settle(surroundings.streams, surroundings.terminal) {
            return (0, errno);
        }
        if let Err(errno) = self.be_polite(surroundings.idle) {
            return (1, errno);
        }
        // From here on paths are the client's: nothing of init's that one could lead to is open any more.
        sys::close_all_but(&mut surroundings.keep);
        let entered = sys::open_inside(&self.cwd, OFlags::PATH | OFlags::DIRECTORY).and_then(rustix::process::fchdir);
        if let Err(errno) = entered {
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
        if self.nice > 0 {
            sys::be_nice(self.nice)?;
        }
        if let Some(cpus) = &self.cpus {
            rustix::thread::sched_setaffinity(None, cpus)?;
        }
        for limit in &self.limits {
            sys::set_limit(limit.resource, limit.soft, limit.hard)?;
        }
        Ok(())
    }

    fn execute(&mut self) -> Errno {
        let (argv, env) = (&self.argv.pointers, &self.env.pointers);
        let mut refused = false;
        let mut last = Errno::NOENT;
        for path in &self.candidates {
            last = execute_inside(path, argv, env);
            match last {
                Errno::NOEXEC => {
                    // Without a #! line: a shell script, says POSIX.
                    self.script[1] = path.as_ptr();
                    return execute_inside(c"/bin/sh", &self.script, env);
                }
                Errno::ACCESS => refused = true,
                Errno::NOENT | Errno::STALE | Errno::NOTDIR | Errno::NODEV | Errno::TIMEDOUT => {}
                _ => return last,
            }
        }
        if refused { Errno::ACCESS } else { last }
    }
}

/// Executes what has this name inside, by what is inside. Until then this process is the worker's own program, to which `/proc/self/exe` leads.
/// Nobody can change the tree meanwhile: the program is the first of its task.
fn execute_inside(path: &CStr, argv: &[*const c_char], env: &[*const c_char]) -> Errno {
    match interpreters::are_inside(path) {
        Ok(()) => sys::execute(path, argv, env),
        Err(errno) => errno,
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
