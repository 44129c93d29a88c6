//! Operations on processes, signals and limits.

use super::files::done;
use super::{Actor, Fault, Reported, Words, read_up_to, show, sys, write_all};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, Ordering};

/// Signals that the handler has seen.
static SEEN: AtomicI32 = AtomicI32::new(0);
/// The longest output of a program that is taken, bytes.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// The same of a file that was added to: the largest that programs make, and more.
const APPENDED_BYTES_MAX: usize = 16 << 20;

extern "C" fn note(_signal: libc::c_int) {
    SEEN.fetch_add(1, Ordering::Relaxed);
}

impl Actor {
    /// Processes, signals, limits.
    pub(super) fn process(&mut self, words: &Words<'_>) -> Option<Reported> {
        Some(match words.verb {
            "fork" => self.fork(words),
            "program" => self.program(words),
            "appenders" => self.appenders(words),
            "locked" => self.locked(words),
            "signal" => signal(words),
            "raise" => self.raise(words),
            "group" => {
                let own = sys!(libc::setpgid(0, 0));
                own.and_then(|_| sys!(libc::getpgrp()))
                    .map(|group| format!("own {}", group == i64::from(std::process::id())))
            }
            "limit" => self.limit(words),
            "nice" => sys!(libc::getpriority(libc::PRIO_PROCESS, 0)).map(|nice| nice.to_string()),
            "whoami" => Ok(format!("{:?} {:?}", sys!(libc::geteuid()), sys!(libc::getegid()))),
            _ => return None,
        })
    }

    /// Starts a child that does `work` and ends with its status.
    pub(super) fn child(&mut self, work: impl FnOnce(&mut Self) -> u8) -> Result<i64, Fault> {
        self.flush();
        let pid = sys!(libc::fork())?;
        if pid == 0 {
            let code = work(self);
            self.flush();
            // SAFETY: ends this process at once; there is nothing that must be dropped in a copy.
            unsafe { libc::_exit(i32::from(code)) }
        }
        Ok(pid)
    }

    /// A child does the operations of the body; its end is waited for.
    fn fork(&mut self, words: &Words<'_>) -> Reported {
        let body = words.body;
        let child = self.child(|child| child.run(body).unwrap_or(0))?;
        wait_for(child)
    }

    /// Runs a program of the tree with a word, and shows its output.
    fn program(&mut self, words: &Words<'_>) -> Reported {
        let path = words.path(0)?;
        let word = words.path(1)?;
        let mut ends = [0; 2];
        sys!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC))?;
        let child = self.child(|_| {
            let _ = sys!(libc::dup2(ends[1], 1));
            let list = [path.as_ptr(), word.as_ptr(), std::ptr::null()];
            match sys!(libc::execv(path.as_ptr(), list.as_ptr())) {
                Err(Fault::System(number)) => number as u8,
                _ => 0,
            }
        })?;
        sys!(libc::close(ends[1]))?;
        let read = read_up_to(ends[0], OUTPUT_BYTES_MAX);
        sys!(libc::close(ends[0]))?;
        Ok(format!("{} {}", show(&read?), wait_for(child)?))
    }

    /// Two processes append records to one file at the same time: none may be lost or torn.
    fn appenders(&mut self, words: &Words<'_>) -> Reported {
        let (path, count) = (words.path(0)?, words.number(1)?.clamp(0, 200));
        // What is there may end without a line's end: whose record came after it would be seen. Who may not read it could not put them in order.
        let fd = sys!(libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CREAT | libc::O_APPEND, 0o644))? as RawFd;
        write_all(fd, b"\n")?;
        sys!(libc::close(fd))?;
        let append = |letter: u8| {
            let Ok(fd) = sys!(libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND, 0o644)) else {
                return 1;
            };
            let record = [&[letter; 40][..], b"\n"].concat();
            (0..count).map(|_| u8::from(write_all(fd as RawFd, &record).is_err())).max().unwrap_or(0)
        };
        let children = [self.child(|_| append(b'a'))?, self.child(|_| append(b'b'))?];
        let ends = children.map(wait_for);
        let fd = sys!(libc::open(path.as_ptr(), libc::O_RDWR))? as RawFd;
        let bytes = read_up_to(fd, APPENDED_BYTES_MAX)?;
        // Who came first is chance: in order, both sides have the same.
        let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        lines.sort_unstable();
        let sorted = lines.concat();
        sys!(libc::lseek(fd, 0, libc::SEEK_SET))?;
        let written = write_all(fd, &sorted);
        sys!(libc::close(fd))?;
        let [one, other] = ends;
        Ok(format!("{} {} {} {}", one?, other?, written?, show(&sorted)))
    }

    /// Locks a file of the tree, and has a child try to.
    fn locked(&mut self, words: &Words<'_>) -> Reported {
        let path = words.path(0)?;
        let lock = |fd: RawFd| {
            let whole = libc::flock { l_type: libc::F_WRLCK as i16, l_whence: 0, l_start: 0, l_len: 0, l_pid: 0 };
            sys!(libc::fcntl(fd, libc::F_SETLK, &whole))
        };
        let fd = sys!(libc::open(path.as_ptr(), libc::O_RDWR))? as RawFd;
        let own = lock(fd).map(done);
        let child =
            self.child(|_| match sys!(libc::open(path.as_ptr(), libc::O_RDWR)).map(|fd| lock(fd as RawFd)) {
                Ok(Ok(_)) => 0,
                _ => 1,
            })?;
        let there = wait_for(child)?;
        sys!(libc::close(fd))?;
        Ok(format!("{} there {there}", own?))
    }

    fn raise(&mut self, words: &Words<'_>) -> Reported {
        // What is not written by now is lost, if this ends the process.
        self.flush();
        let before = SEEN.load(Ordering::Relaxed);
        let raised = sys!(libc::raise(words.number(0)? as i32));
        raised.map(|_| format!("seen {}", SEEN.load(Ordering::Relaxed) - before))
    }

    fn limit(&mut self, words: &Words<'_>) -> Reported {
        let what = match words.text(0)? {
            "file" => libc::RLIMIT_FSIZE,
            "descriptors" => libc::RLIMIT_NOFILE,
            "core" => libc::RLIMIT_CORE,
            other => return Err(Fault::Wrong(format!("no limit is called {other}"))),
        };
        // From here on a write may end the process.
        self.each = true;
        self.flush();
        let value = words.number(1)? as u64;
        let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
        sys!(libc::setrlimit(what, &limit)).map(done)
    }
}

/// What came of a child, in words.
pub(super) fn wait_for(child: i64) -> Reported {
    let mut status = 0;
    loop {
        match sys!(libc::waitpid(child as i32, &mut status, 0)) {
            Ok(_) if libc::WIFEXITED(status) => return Ok(format!("exit {}", libc::WEXITSTATUS(status))),
            Ok(_) => return Ok(format!("signal {}", libc::WTERMSIG(status))),
            Err(Fault::System(libc::EINTR)) => {}
            Err(fault) => return Err(fault),
        }
    }
}

fn signal(words: &Words<'_>) -> Reported {
    let how = match words.text(1)? {
        "ignore" => libc::SIG_IGN,
        "default" => libc::SIG_DFL,
        _ => note as extern "C" fn(libc::c_int) as usize,
    };
    let old = sys!(libc::signal(words.number(0)? as i32, how) as i64)?;
    Ok(match old as usize {
        libc::SIG_IGN => "was ignored".into(),
        libc::SIG_DFL => "was default".into(),
        _ => "was handled".into(),
    })
}
