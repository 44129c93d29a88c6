//! The processes of a task that are left when its program has ended. Elsewhere they would live on, but a task's end is the end of all.
//! So they get a moment: most of them are about to end as well, and only wait for a processor. Those that then still wait for
//! something are reported, for they are meant to outlive the command.

use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::sys;

/// Processes that are named at most.
const NAMED_MAX: usize = 8;
/// How long none of them may do anything, before they count as left.
const CALM: Duration = Duration::from_millis(300);
/// How long they may take in all.
const WIND_UP_MAX: Duration = Duration::from_secs(10);
/// How often they are looked at, in milliseconds.
pub const LOOK_MS: u64 = 20;

/// What is left, on its way to its end.
#[derive(Debug)]
pub struct Others {
    since: Instant,
    calm_since: Instant,
    ticks: u64,
}

/// One of them.
#[derive(Debug, PartialEq, Eq)]
struct Process {
    name: String,
    state: u8,
    parent: i32,
    session: i32,
    /// Processor time, in the kernel's ticks.
    ticks: u64,
}

impl Others {
    /// From now on they are waited for.
    pub fn begin() -> Self {
        Self { since: Instant::now(), calm_since: Instant::now(), ticks: 0 }
    }

    /// Whether it is time to end them.
    pub fn are_left(&mut self) -> bool {
        let now = Instant::now();
        let all = alive();
        let ticks = all.iter().map(|process| process.ticks).sum();
        let is_busy = all.iter().any(|process| matches!(process.state, b'R' | b'D'));
        if is_busy || std::mem::replace(&mut self.ticks, ticks) != ticks {
            self.calm_since = now;
        }
        // Who has left the session will not end by itself.
        let is_calm = now - self.calm_since >= CALM;
        is_calm || now - self.since >= WIND_UP_MAX || !all.is_empty() && all.iter().all(is_daemon)
    }
}

/// Names of the processes that are alive and meant to be: what an interrupted program had begun is not, unless it left the session.
pub fn names(status: i32) -> Vec<String> {
    let is_meant = |process: &Process| is_daemon(process) || !was_interrupted(status);
    alive().into_iter().filter(is_meant).take(NAMED_MAX).map(|process| process.name).collect()
}

/// Whether a program that ended with this raw status most likely ended by a signal.
pub fn was_interrupted(status: i32) -> bool {
    libc::WIFSIGNALED(status) || libc::WIFEXITED(status) && libc::WEXITSTATUS(status) > 128
}

fn is_daemon(process: &Process) -> bool {
    Some(process.session) != own_session()
}

/// Whether this process has children still: orphans of the task become its children.
pub fn remain() -> bool {
    loop {
        match sys::wait_any(libc::WNOHANG) {
            Ok(Some(_)) => {}
            Err(Errno::CHILD) => return false,
            Ok(None) | Err(_) => return true,
        }
    }
}

fn own_session() -> Option<i32> {
    rustix::process::getsid(None).ok().map(|session| session.as_raw_nonzero().get())
}

/// Whether a process has a child that is stopped.
pub fn has_stopped_child(parent: i32) -> bool {
    alive().iter().any(|process| process.state == b'T' && process.parent == parent)
}

/// Those but for this one.
fn alive() -> Vec<Process> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let own = std::process::id();
    let number = |entry: &std::fs::DirEntry| entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
    let others = processes.flatten().filter(|entry| number(entry).is_some_and(|number| number != own));
    let stat = others.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    stat.filter_map(|stat| process(&stat)).filter(|process| !matches!(process.state, b'Z' | b'X')).collect()
}

/// From a line of `/proc/N/stat`.
fn process(stat: &str) -> Option<Process> {
    // Its name, in parentheses, can be anything; behind that: state, parent, group, session, and the times as fields 14 and 15.
    let (name, rest) = (stat.split_once('(')?.1.rsplit_once(')')?.0, stat.rsplit_once(')')?.1);
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Process {
        name: name.to_owned(),
        state: *fields.first()?.as_bytes().first()?,
        parent: fields.get(1)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        ticks: number(11)? + number(12)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_from_its_line() {
        let line = "7 (a) b) S 1 7 5 0 -1 4194560 10 0 0 0 30 12 0 0 20 0 1 0 9 0 0";
        let want = Process { name: "a) b".into(), state: b'S', parent: 1, session: 5, ticks: 42 };
        assert_eq!(process(line), Some(want));
        assert_eq!(process("7 (x) S"), None);
    }
}
