//! Processes that stay: starts them in the background and waits until they are ready, and knows which ones run.

use crate::error::{CliError, Result};
use base::door::READY;
use gleaner_client::door::start::take_ready_descriptor;
use rustix::process::{Pid, PidfdFlags};
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long one that will not be ready may take to end.
const END_TIME_MAX: Duration = Duration::from_secs(2);
/// How long a process in the background may take until it is ready.
const READY_TIME_MAX: Duration = Duration::from_secs(30);
/// How long a process may take to end after it was told to.
const STOP_TIME_MAX: Duration = Duration::from_secs(15);
/// Longest text that a process says at its start.
const SAID_BYTES_MAX: usize = 64 << 10;

/// Makes a folder and what is above it, closed to others.
pub fn make_private_folder(path: &Path) -> Result {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|error| CliError::file("making", path, error).hint("choose another folder with --state"))
}

/// Starts this program again with `arguments`, in the background, with its talk in `log`, and waits until it is ready.
/// Returns the text that it passed to [`Ready::tell`].
pub fn start(arguments: &[OsString], log: &Path) -> Result<String> {
    let fail = |error: std::io::Error| CliError::environment(format!("starting in the background: {error}"));
    let log_file = OpenOptions::new().create(true).append(true).mode(0o600).open(log);
    let log_file = log_file.map_err(|error| CliError::file("opening", log, error))?;
    let begins_at = log_file.metadata().map_or(0, |metadata| metadata.len());
    let (ready, low_end) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|error| fail(error.into()))?;
    // Not one of the standard streams, which are set up in between.
    let ready_end = rustix::io::fcntl_dupfd_cloexec(&low_end, 10).map_err(|error| fail(error.into()))?;
    drop(low_end);
    let mut process = Command::new("/proc/self/exe");
    process.arg0("gleaner").args(arguments).arg("--ready-fd").arg(ready_end.as_raw_fd().to_string());
    process.stdin(Stdio::null()).stdout(log_file.try_clone().map_err(fail)?).stderr(log_file);
    let number = ready_end.as_raw_fd();
    // SAFETY: only system calls, which are safe between fork and exec; the descriptor is open until spawn returns.
    unsafe {
        process.pre_exec(move || {
            rustix::process::setsid()?;
            let ready = std::os::fd::BorrowedFd::borrow_raw(number);
            rustix::io::fcntl_setfd(ready, rustix::io::FdFlags::empty())?;
            Ok(())
        });
    }
    let mut child = process.spawn().map_err(fail)?;
    drop(ready_end);
    match listen(ready)? {
        Some(said) => Ok(said),
        None => {
            // It has closed the pipe without a word, so it has ended or is about to; it says why before that.
            let ended = ended_soon(&mut child).map(|status| format!(" ({status})")).unwrap_or_default();
            let message = format!("it ended before it was ready{ended}{}", tail(log, begins_at));
            Err(CliError::environment(message).hint(format!("its log is {}", log.display())))
        }
    }
}

/// How it has ended, if it does within a moment.
fn ended_soon(child: &mut std::process::Child) -> Option<std::process::ExitStatus> {
    let held = rustix::process::pidfd_open(Pid::from_child(child), PidfdFlags::empty()).ok()?;
    gleaner_client::door::wait_readable(held.as_fd(), Instant::now() + END_TIME_MAX).ok()?;
    child.try_wait().ok()?
}

/// What the process says, after [`READY`]; `None` if it ends without.
fn listen(ready: OwnedFd) -> Result<Option<String>> {
    let deadline = Instant::now() + READY_TIME_MAX;
    let mut ready = File::from(ready);
    let mut said = Vec::new();
    loop {
        if !gleaner_client::door::wait_readable(ready.as_fd(), deadline)? {
            return Err(CliError::environment(format!("not ready within {} s", READY_TIME_MAX.as_secs()))
                .hint("it still runs; `gleaner stop` ends it"));
        }
        let mut buffer = [0; 4096];
        let count = ready.read(&mut buffer).unwrap_or(0);
        said.extend_from_slice(&buffer[..count]);
        // A helper of the process may hold the pipe open, so its end is marked.
        let whole = said.ends_with(&[0]);
        if whole || count == 0 || said.len() > SAID_BYTES_MAX {
            let said = said.strip_suffix(&[0]).unwrap_or_default();
            return Ok(said.strip_prefix(READY).map(|text| String::from_utf8_lossy(text).into_owned()));
        }
    }
}

/// The last lines of the log since `begins_at`, for an error message.
fn tail(log: &Path, begins_at: u64) -> String {
    let Ok(bytes) = std::fs::read(log) else { return String::new() };
    let new = bytes.get(begins_at as usize..).unwrap_or_default();
    let lines: Vec<String> = new.split(|byte| *byte == b'\n').map(base::path::printable).collect();
    let lines: Vec<&String> = lines.iter().filter(|line| !line.is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(5)..];
    last.iter().map(|line| format!("\n  {line}")).collect()
}

/// How a process tells that it is ready: to the starter's pipe, or to standard output if it runs in view.
#[derive(Debug)]
pub struct Ready(Option<OwnedFd>);

impl Ready {
    /// By the `--ready-fd` argument.
    pub fn new(descriptor: Option<i32>) -> Result<Self> {
        Ok(Self(descriptor.map(take_ready_descriptor).transpose()?))
    }

    /// Tells it, with text for the person who started it.
    pub fn tell(self, text: &str) -> std::io::Result<()> {
        match self.0 {
            Some(pipe) => File::from(pipe).write_all(&[READY, text.as_bytes(), &[0]].concat()),
            None => {
                let mut out = std::io::stdout().lock();
                out.write_all(text.as_bytes()).and_then(|()| out.flush())
            }
        }
    }
}

/// The right to be the only process of a role in a state folder; given back when the process ends, however it ends.
#[derive(Debug)]
pub struct RoleLock(#[expect(dead_code, reason = "held for its lock")] File);

fn lock_path(state_dir: &Path, role: &str) -> PathBuf {
    state_dir.join(format!("{role}.lock"))
}

fn record_lock() -> libc::flock {
    // SAFETY: all zeroes are a valid record.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as i16;
    lock
}

/// Takes the lock of `role` in `state_dir`.
pub fn lock_role(state_dir: &Path, role: &str) -> Result<RoleLock> {
    let path = lock_path(state_dir, role);
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = file.map_err(|error| CliError::file("opening", &path, error))?;
    // A record lock, not flock: the kernel tells who holds it, and no child inherits it.
    // SAFETY: the descriptor and the record are ours.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &record_lock()) } == 0 {
        return Ok(RoleLock(file));
    }
    let who = holder(&path).map(|pid| format!(" as process {pid}")).unwrap_or_default();
    Err(CliError::environment(format!("a {role} with state in {} runs already{who}", state_dir.display()))
        .hint("`gleaner stop` ends it; another one needs another folder: --state DIR"))
}

/// The process that has `role` in `state_dir` now, if there is one.
pub fn running(state_dir: &Path, role: &str) -> Option<i32> {
    holder(&lock_path(state_dir, role))
}

/// The process that holds the lock at `path`.
fn holder(path: &Path) -> Option<i32> {
    let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
    let mut lock = record_lock();
    // SAFETY: the descriptor is ours; the kernel fills the record.
    let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &mut lock) };
    (asked == 0 && lock.l_type != libc::F_UNLCK as i16 && lock.l_pid > 0).then_some(lock.l_pid)
}

/// Ends the process that holds the lock of `role` in `state_dir`, and waits for its end. Its number, if there was one.
pub fn stop_role(state_dir: &Path, role: &str) -> Result<Option<i32>> {
    let path = lock_path(state_dir, role);
    let Some(number) = holder(&path) else { return Ok(None) };
    let fail = |error: rustix::io::Errno| CliError::environment(format!("stopping process {number}: {error}"));
    let Some(pid) = rustix::process::Pid::from_raw(number) else { return Ok(None) };
    let process = match rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
        Ok(process) => process,
        Err(rustix::io::Errno::SRCH) => return Ok(None),
        Err(error) => return Err(fail(error)),
    };
    // The number may have passed to another process before it was opened: the lock tells.
    if holder(&path) != Some(number) {
        return Ok(None);
    }
    rustix::process::pidfd_send_signal(&process, rustix::process::Signal::TERM).map_err(fail)?;
    await_end(&process, role, number)?;
    Ok(Some(number))
}

/// Waits for the end of a process that was told to end. The error says what to do if it does not.
pub fn await_end(process: &OwnedFd, role: &str, number: i32) -> Result {
    match gleaner_client::door::wait_readable(process.as_fd(), Instant::now() + STOP_TIME_MAX)? {
        true => Ok(()),
        false => Err(CliError::environment(format!(
            "the {role}, process {number}, did not end within {} s",
            STOP_TIME_MAX.as_secs()
        ))
        .hint(format!("kill -9 {number} ends it; its next start cleans up"))),
    }
}

/// The arguments of this process without its name and without `--detach`.
pub fn own_arguments() -> Vec<OsString> {
    std::env::args_os().skip(1).filter(|argument| argument != OsStr::new("--detach")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_held_by_one_process_and_stopped_by_its_lock() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        assert_eq!(stop_role(dir.path(), "hub").expect("looked"), None);
        // Another process takes the lock: record locks do not exclude their own.
        let script = "import fcntl,sys,time\nf=open(sys.argv[1],'w')\nfcntl.lockf(f,fcntl.LOCK_EX)\nprint('ok',flush=True)\ntime.sleep(60)";
        let path = lock_path(dir.path(), "hub");
        let holder = Command::new("python3").args(["-c", script]).arg(&path).stdout(Stdio::piped()).spawn();
        let Ok(mut holder) = holder else {
            println!("SKIPPED: there is no python3 to hold a lock");
            return;
        };
        let mut said = [0; 2];
        holder.stdout.as_mut().expect("piped").read_exact(&mut said).expect("it holds the lock");
        let refused = lock_role(dir.path(), "hub").expect_err("it is held");
        assert!(refused.message.contains(&format!("process {}", holder.id())), "{refused}");
        assert_eq!(stop_role(dir.path(), "hub").expect("stopped"), Some(holder.id() as i32));
        holder.wait().expect("it ended");
        lock_role(dir.path(), "hub").expect("free again");
    }

    #[test]
    fn readiness_comes_with_its_text() {
        let pipe = || rustix::pipe::pipe().expect("a pipe");
        let (out, into) = pipe();
        Ready(Some(into)).tell("join line\n").expect("told");
        assert_eq!(listen(out).expect("heard"), Some("join line\n".into()));
        let (out, into) = pipe();
        drop(into);
        assert_eq!(listen(out).expect("heard"), None);
    }

    /// Not a test by itself: what [`start`] starts in the tests.
    #[test]
    fn stand_in() {
        let arguments: Vec<String> = std::env::args().collect();
        if let Some(at) = arguments.iter().position(|argument| argument == "--ready-fd") {
            let ready = Ready::new(arguments[at + 1].parse().ok()).expect("a pipe");
            ready.tell("join line\n").expect("told");
        }
    }

    #[test]
    fn starts_in_the_background_and_waits_until_ready() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let log = dir.path().join("log");
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let said = start(&words(&["--exact", "detach::tests::stand_in", "--nocapture", "--"]), &log).expect("ready");
        assert_eq!(said, "join line\n");
        let begun = Instant::now();
        let error = start(&words(&["--no-such-option"]), &log).expect_err("it ends at once");
        assert!(error.message.contains("ended before it was ready"), "{error}");
        assert!(error.message.contains("no-such-option"), "the log's end is shown: {error}");
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}
