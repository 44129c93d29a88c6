//! Runs a command with a limit, collects what it says, and tells how it ended. Also daemons that are stopped by pid.

use crate::error::{Context, Error, Result};
use crate::terminal::{self, Size};
use crate::tree::now_of_files;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, PipeReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// How long streams may stay open after the command has ended before they are left alone.
const DRAIN: Duration = Duration::from_secs(5);

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this status.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
    /// It was killed at the limit.
    TimedOut,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "status {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::TimedOut => f.write_str("killed at the limit"),
        }
    }
}

impl From<ExitStatus> for Ended {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, signal) => Self::Signal(signal.unwrap_or(0)),
        }
    }
}

/// What standard input is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Input {
    /// `/dev/null`.
    #[default]
    Null,
    /// Closed.
    Closed,
    /// A pipe with these bytes, then its end.
    Pipe(Vec<u8>),
    /// A pipe to which nothing is ever written and that does not end before the command.
    Endless,
}

/// Where the output goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Streams {
    /// A pipe each.
    #[default]
    Separate,
    /// One pipe for both.
    Merged,
    /// A terminal of this size for all three.
    Terminal(Size),
}

/// Something done to the terminal once a text was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Typed {
    /// Waits until the output, from where the last one was found, contains this.
    pub wait: Vec<u8>,
    /// Then does this.
    pub action: Action,
}

/// What is done to the terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// These bytes are typed.
    Text(Vec<u8>),
    /// The terminal gets this size.
    Resize(Size),
}

/// A command to run.
pub struct Run {
    /// The program with arguments, environment and folder.
    pub command: Command,
    /// Its input.
    pub input: Input,
    /// Its outputs.
    pub streams: Streams,
    /// What is typed.
    pub typed: Vec<Typed>,
    /// When it is killed, with its process group.
    pub limit: Duration,
}

/// What came of a command.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How it ended.
    pub ended: Ended,
    /// What it wrote to standard output (with merged streams and a terminal: to both).
    pub stdout: Vec<u8>,
    /// What it wrote to standard error.
    pub stderr: Vec<u8>,
    /// Bytes of its input that nobody has taken.
    pub left: usize,
    /// When it was started.
    pub started: SystemTime,
    /// When it had ended.
    pub finished: SystemTime,
    /// How long it took, until its end and that of its streams.
    pub elapsed: Duration,
}

impl Outcome {
    /// Whether it exited with 0.
    pub fn ok(&self) -> bool {
        self.ended == Ended::Code(0)
    }

    /// Standard output as text, without the newline at its end.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end().to_owned()
    }

    /// Standard error as text, without the newline at its end.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&self.stderr).trim_end().to_owned()
    }

    /// The outcome, or an error that shows how it ended and what it said.
    pub fn expect_ok(self, what: &str) -> Result<Self> {
        if self.ok() {
            return Ok(self);
        }
        let said = tail(&[self.stdout.as_slice(), self.stderr.as_slice()].concat(), 30);
        Err(Error::Product(format!("{what}: {}\n{said}", self.ended)))
    }
}

/// The last lines of some output.
pub fn tail(bytes: &[u8], lines: usize) -> String {
    let text = String::from_utf8_lossy(bytes);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// A shell with this script.
pub fn shell(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(script);
    command
}

impl Run {
    /// Separate pipes, no input, two minutes.
    pub fn new(command: Command) -> Self {
        let limit = Duration::from_secs(120);
        Self { command, input: Input::Null, streams: Streams::Separate, typed: Vec::new(), limit }
    }

    /// The same with another limit.
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs it to its end.
    pub fn run(mut self) -> Result<Outcome> {
        let started = now_of_files();
        let clock = Instant::now();
        let name = format!("cannot run {:?}", self.command.get_program());
        let (mut child, mut pump) = self.spawn().map_err(|error| match error {
            Error::Io { source, .. } => Error::Io { what: name, source },
            other => other,
        })?;
        let ended = pump.turn(&mut child, clock + self.limit)?;
        let left = pump.left();
        let [stdout, stderr] = pump.collected;
        Ok(Outcome { ended, stdout, stderr, left, started, finished: SystemTime::now(), elapsed: clock.elapsed() })
    }

    fn spawn(&mut self) -> Result<(Child, Pump)> {
        let mut pump = Pump { typed: self.typed.drain(..).collect(), ..Pump::default() };
        if let Streams::Terminal(size) = self.streams {
            let master = terminal::attach(&mut self.command, size)?;
            let reader = master.try_clone().context(|| "cannot duplicate a descriptor".to_owned())?;
            pump.master = Some(master);
            pump.readers[0] = Some(File::from(reader));
            let child = self.command.spawn().context(String::new)?;
            drop(std::mem::replace(&mut self.command, Command::new("true")));
            return Ok((child, pump));
        }
        self.command.process_group(0);
        let (reader, writer) = std::io::pipe().context(|| "cannot make a pipe".to_owned())?;
        pump.readers[0] = Some(File::from(OwnedFd::from(reader)));
        if self.streams == Streams::Merged {
            self.command.stderr(writer.try_clone().context(|| "cannot duplicate a descriptor".to_owned())?);
        } else {
            let (reader, writer) = std::io::pipe().context(|| "cannot make a pipe".to_owned())?;
            pump.readers[1] = Some(File::from(OwnedFd::from(reader)));
            self.command.stderr(writer);
        }
        self.command.stdout(writer);
        match std::mem::take(&mut self.input) {
            Input::Null => drop(self.command.stdin(Stdio::null())),
            Input::Closed => close_stdin(&mut self.command),
            Input::Pipe(bytes) => pump.to_write = bytes.into(),
            Input::Endless => pump.endless = true,
        }
        if pump.endless || !pump.to_write.is_empty() {
            let (reader, writer) = std::io::pipe().context(|| "cannot make a pipe".to_owned())?;
            rustix::io::ioctl_fionbio(&writer, true).context(|| "cannot set a pipe non-blocking".to_owned())?;
            pump.input = Some(reader.try_clone().context(|| "cannot duplicate a descriptor".to_owned())?);
            self.command.stdin(reader);
            pump.writer = Some(File::from(OwnedFd::from(writer)));
        }
        let child = self.command.spawn().context(String::new)?;
        // The command holds our copies of the child's ends of the pipes: without them gone no pipe would ever end.
        drop(std::mem::replace(&mut self.command, Command::new("true")));
        Ok((child, pump))
    }
}

fn close_stdin(command: &mut Command) {
    command.stdin(Stdio::null());
    // SAFETY: between fork and exec the closure makes one system call; nobody else owns descriptor 0 of the child.
    unsafe {
        command.pre_exec(|| {
            rustix::io::close(0);
            Ok(())
        });
    }
}

/// Moves bytes between us and a running command.
#[derive(Default)]
struct Pump {
    readers: [Option<File>; 2],
    collected: [Vec<u8>; 2],
    writer: Option<File>,
    /// The command's end of that pipe.
    input: Option<PipeReader>,
    to_write: VecDeque<u8>,
    endless: bool,
    master: Option<OwnedFd>,
    typed: VecDeque<Typed>,
    seen: usize,
}

impl Pump {
    fn turn(&mut self, child: &mut Child, deadline: Instant) -> Result<Ended> {
        let pid = Pid::from_child(child);
        let pidfd =
            rustix::process::pidfd_open(pid, PidfdFlags::empty()).context(|| "cannot watch the command".to_owned())?;
        let mut ended: Option<(Ended, Instant)> = None;
        loop {
            let open = self.readers.iter().any(Option::is_some);
            let stop = ended.as_ref().map_or(deadline, |(_, at)| *at + DRAIN);
            match &ended {
                Some((ended, _)) if !open || Instant::now() >= stop => return Ok(*ended),
                None if Instant::now() >= deadline => {
                    kill_group(pid);
                    let _ = child.kill();
                    child.wait().context(|| "cannot wait for the command".to_owned())?;
                    ended = Some((Ended::TimedOut, Instant::now() - DRAIN));
                    self.step(None, Instant::now())?;
                    continue;
                }
                _ => {}
            }
            let exited = self.step(ended.is_none().then_some(&pidfd), stop)?;
            if exited && ended.is_none() {
                let status = child.wait().context(|| "cannot wait for the command".to_owned())?;
                ended = Some((Ended::from(status), Instant::now()));
                self.writer = None;
            }
        }
    }

    /// Waits for one thing to happen and deals with it; true once the process has exited.
    fn step(&mut self, pidfd: Option<&OwnedFd>, stop: Instant) -> Result<bool> {
        let left = stop.saturating_duration_since(Instant::now());
        let ready: Vec<bool> = {
            let writer = self.writer.as_ref().filter(|_| !self.to_write.is_empty() || !self.endless);
            let watched = [
                (self.readers[0].as_ref().map(AsFd::as_fd), PollFlags::IN),
                (self.readers[1].as_ref().map(AsFd::as_fd), PollFlags::IN),
                (writer.map(AsFd::as_fd), PollFlags::OUT),
                (pidfd.map(AsFd::as_fd), PollFlags::IN),
            ];
            let mut fds = Vec::new();
            let mut index = [None; 4];
            for (slot, (fd, flags)) in watched.into_iter().enumerate() {
                if let Some(fd) = fd {
                    index[slot] = Some(fds.len());
                    fds.push(PollFd::from_borrowed_fd(fd, flags));
                }
            }
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match rustix::event::poll(&mut fds, Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).context(|| "cannot poll".to_owned()),
            }
            index.iter().map(|at| at.is_some_and(|at: usize| !fds[at].revents().is_empty())).collect()
        };
        for (slot, _) in ready.iter().take(2).enumerate().filter(|(_, ready)| **ready) {
            self.read(slot);
        }
        if ready[2] {
            self.write();
        }
        self.type_next()?;
        Ok(ready[3])
    }

    /// What nobody has taken of the input.
    fn left(&self) -> usize {
        let in_pipe = self.input.as_ref().and_then(|input| rustix::io::ioctl_fionread(input).ok());
        self.to_write.len() + in_pipe.unwrap_or(0) as usize
    }

    fn read(&mut self, slot: usize) {
        let Some(reader) = &mut self.readers[slot] else { return };
        let mut buffer = [0u8; 65536];
        match reader.read(&mut buffer) {
            Ok(0) => self.readers[slot] = None,
            Ok(count) => self.collected[slot].extend_from_slice(&buffer[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            // A terminal whose last user is gone answers EIO.
            Err(_) => self.readers[slot] = None,
        }
    }

    fn write(&mut self) {
        let Some(writer) = &mut self.writer else { return };
        let (front, _) = self.to_write.as_slices();
        match writer.write(&front[..front.len().min(65536)]) {
            Ok(count) => drop(self.to_write.drain(..count)),
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            // Nobody reads it any more.
            Err(_) => self.to_write.clear(),
        }
        if self.to_write.is_empty() && !self.endless {
            self.writer = None;
        }
    }

    fn type_next(&mut self) -> Result<()> {
        let Some(master) = &self.master else { return Ok(()) };
        while let Some(next) = self.typed.front() {
            let Some(at) = find(&self.collected[0][self.seen..], &next.wait) else { break };
            self.seen += at + next.wait.len();
            match &next.action {
                Action::Text(text) => {
                    rustix::io::write(master, text).context(|| "cannot type into the terminal".to_owned())?;
                }
                Action::Resize(size) => terminal::resize(master, *size)?,
            }
            self.typed.pop_front();
        }
        Ok(())
    }
}

fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    if needle.is_empty() {
        return Some(0);
    }
    hay.windows(needle.len()).position(|window| window == needle)
}

fn kill_group(pid: Pid) {
    let _ = rustix::process::kill_process_group(pid, Signal::KILL);
}

/// Waits this long: only inside loops that look for something and have an end.
pub fn pause(time: Duration) {
    let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    let _ = rustix::event::poll(&mut [], Some(&timeout));
}

/// Looks every 20 ms whether `check` gives something, until the limit.
pub fn wait_for<T>(limit: Duration, mut check: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = check() {
            return Some(found);
        }
        if Instant::now() >= end {
            return None;
        }
        pause(Duration::from_millis(20));
    }
}

/// A process that serves until it is stopped; killed on drop, and when its parent dies.
#[derive(Debug)]
pub struct Daemon {
    /// What it is, for messages.
    pub name: String,
    /// What it said on both streams.
    pub log: PathBuf,
    child: Child,
}

impl Daemon {
    /// Starts it, with both output streams in a log file.
    pub fn start(name: &str, mut command: Command, log: &Path) -> Result<Self> {
        let file = File::options().create(true).append(true).open(log).at("open", log)?;
        let second = file.try_clone().at("open", log)?;
        command.stdin(Stdio::null()).stdout(file).stderr(second).process_group(0);
        // SAFETY: between fork and exec the closure makes one system call and allocates nothing.
        unsafe {
            command.pre_exec(|| Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?));
        }
        let child = command.spawn().context(|| format!("cannot start {name}"))?;
        Ok(Self { name: name.to_owned(), log: log.to_path_buf(), child })
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Whether it still runs; an error that shows its log if not.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait().context(|| format!("cannot look after {}", self.name))? {
            None => Ok(()),
            Some(status) => {
                let log = std::fs::read(&self.log).unwrap_or_default();
                Err(Error::Product(format!("{} ended ({}):\n{}", self.name, Ended::from(status), tail(&log, 20))))
            }
        }
    }

    /// How it ended, if it has within the limit.
    pub fn ended(&mut self, limit: Duration) -> Option<Ended> {
        wait_for(limit, || self.child.try_wait().ok().flatten()).map(Ended::from)
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let _ = rustix::process::kill_process(self.pid(), signal);
    }

    /// Kills it at once and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGTERM; SIGKILL after the limit. Says whether the first was enough.
    pub fn stop(&mut self, limit: Duration) -> bool {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return true;
        }
        self.signal(Signal::TERM);
        let done = wait_for(limit, || self.child.try_wait().ok().flatten()).is_some();
        self.kill();
        done
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str) -> Outcome {
        Run::new(shell(script)).run().unwrap()
    }

    #[test]
    fn streams_and_status() {
        let outcome = run("echo out; echo err >&2; exit 3");
        assert_eq!((outcome.ended, outcome.stdout, outcome.stderr), (Ended::Code(3), b"out\n".into(), b"err\n".into()));
        assert_eq!(run("kill -9 $$").ended, Ended::Signal(9));
    }

    #[test]
    fn the_limit_kills_the_group() {
        let outcome = Run::new(shell("echo a; sleep 60 | sleep 60")).within(Duration::from_millis(300)).run().unwrap();
        assert_eq!(outcome.ended, Ended::TimedOut);
        assert!(outcome.elapsed < Duration::from_secs(10));
    }

    #[test]
    fn inputs() {
        let mut cat = Run::new(shell("cat | wc -c"));
        cat.input = Input::Pipe(vec![b'x'; 300_000]);
        assert_eq!(cat.run().unwrap().text(), "300000");
        let mut closed = Run::new(shell("cat"));
        closed.input = Input::Closed;
        assert_eq!(closed.run().unwrap().ended, Ended::Code(1));
        let mut endless = Run::new(shell("sleep 0.1; echo done"));
        endless.input = Input::Endless;
        assert_eq!(endless.run().unwrap().text(), "done");
    }

    #[test]
    fn merged_streams_keep_their_order() {
        let mut both = Run::new(shell("echo 1; echo 2 >&2; echo 3"));
        both.streams = Streams::Merged;
        assert_eq!(both.run().unwrap().text(), "1\n2\n3");
    }

    #[test]
    fn a_terminal_that_is_typed_into_and_resized() {
        let size = Size { rows: 20, columns: 70 };
        let mut terminal = Run::new(shell("trap 'stty size' WINCH; tty -s && stty size; read a; echo got $a; read b"));
        terminal.streams = Streams::Terminal(size);
        terminal.typed = vec![
            Typed { wait: b"20 70".into(), action: Action::Text(b"word\n".into()) },
            Typed { wait: b"got word".into(), action: Action::Resize(Size { rows: 30, columns: 90 }) },
            Typed { wait: b"30 90".into(), action: Action::Text(b"\n".into()) },
        ];
        let outcome = terminal.within(Duration::from_secs(10)).run().unwrap();
        let text = outcome.text();
        assert!(text.contains("got word") && text.contains("30 90"), "{text:?}");
        assert_ne!(outcome.ended, Ended::TimedOut);
    }
}
