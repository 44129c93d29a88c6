//! Whether a guest waits for its standard input or output.
//!
//! Locally a command that never reads leaves its standard input to the next one (`ls | while read f; do gcc -c $f; done`).
//! So the first byte is sent only once some process of the task waits for it: one that is inside `read` (or a relative)
//! on the task's pipe, or in `poll`, `select` or `epoll`, which do not say of what. From then on bytes flow freely: who
//! reads a pipe through a buffer takes more than it needs locally as well.

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// First pause between two looks; it doubles up to the last.
const PAUSE_FIRST: Duration = Duration::from_millis(2);
const PAUSE_LAST: Duration = Duration::from_millis(50);
/// Most processes, and threads, looked at for one task; a task with more gets its input without waiting.
const PROCESSES_MAX: usize = 512;
const THREADS_MAX: usize = 1024;
/// Most descriptors that one look at a task asks about.
const DESCRIPTORS_MAX: usize = 4096;

/// What of a task's streams its processes may wait for.
#[derive(Clone, Debug, Default)]
pub struct Awaited {
    /// The pipe that is its standard input, by inode number.
    pub input: Option<u64>,
    /// Pipes that take its output, by inode number.
    pub outputs: Vec<u64>,
    /// Its terminal.
    pub terminal: bool,
}

/// What one look at a task's processes has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// A thread waits for one of the streams, or may.
    pub waits: bool,
    /// A thread is ready to run, or waits for a file.
    pub runs: bool,
}

/// Waits until a process in the tree below `init` (a process number as this process sees it) waits for input on the pipe
/// with this inode number.
pub async fn wait(init: u32, pipe_inode: u64) {
    let awaited = Awaited { input: Some(pipe_inode), ..Awaited::default() };
    let mut pause = PAUSE_FIRST;
    loop {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_LAST);
        let asked = Cell::new(0);
        let is_wanted = |thread: &Thread| thread.waits_for(&awaited, &asked);
        if threads_below(init).is_none_or(|threads| threads.iter().any(is_wanted)) || asked.get() > DESCRIPTORS_MAX {
            return;
        }
    }
}

/// Looks at the processes in the tree below `init`. Of too many it says that they run.
pub fn look(init: u32, awaited: &Awaited) -> Seen {
    let Some(threads) = threads_below(init) else { return Seen { waits: false, runs: true } };
    let (runs, asked) = (threads.iter().any(Thread::runs), Cell::new(0));
    Seen { waits: !runs && threads.iter().any(|thread| thread.waits_for(awaited, &asked)), runs }
}

#[derive(Clone, Copy)]
struct Thread {
    process: u32,
    thread: u32,
}

/// All threads of the processes below `init`; `None`: there are too many.
fn threads_below(init: u32) -> Option<Vec<Thread>> {
    let mut found = Vec::new();
    let mut todo = vec![init];
    let mut seen = 0;
    while let Some(process) = todo.pop() {
        seen += 1;
        if seen > PROCESSES_MAX {
            return None;
        }
        for thread in numbers_in(&PathBuf::from(format!("/proc/{process}/task"))) {
            let children = fs::read_to_string(format!("/proc/{process}/task/{thread}/children"));
            todo.extend(children.unwrap_or_default().split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
            if process != init {
                found.push(Thread { process, thread });
            }
            if found.len() > THREADS_MAX {
                return None;
            }
        }
    }
    Some(found)
}

fn numbers_in(folder: &std::path::Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

impl Thread {
    /// Whether it is ready to run, or waits for a file.
    fn runs(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/task/{}/stat", self.process, self.thread)).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with(['R', 'D']))
    }

    /// Whether it is inside a system call that waits for one of these, or may. `asked`: of how many descriptors it was asked.
    fn waits_for(&self, awaited: &Awaited, asked: &Cell<usize>) -> bool {
        let call = fs::read_to_string(format!("/proc/{}/task/{}/syscall", self.process, self.thread));
        let call = call.unwrap_or_default();
        let mut words = call.split_whitespace();
        let Some(number) = words.next().and_then(|word| word.parse::<i64>().ok()) else { return false };
        let arguments: Vec<&str> = words.collect();
        let is_input = |stream: Stream| {
            stream == Stream::Terminal && awaited.terminal || awaited.input.map(Stream::Pipe) == Some(stream)
        };
        let is_output = |stream: Stream| {
            stream == Stream::Terminal && awaited.terminal
                || matches!(stream, Stream::Pipe(inode) if awaited.outputs.contains(&inode))
        };
        let on = |at: Option<usize>| {
            let descriptor = arguments.get(at?)?.strip_prefix("0x")?;
            self.stream(u64::from_str_radix(descriptor, 16).ok()?)
        };
        let calls = waited_for(number);
        on(calls.read).is_some_and(is_input)
            || on(calls.written).is_some_and(is_output)
            || calls.some && self.has_open(|stream| is_input(stream) || is_output(stream), asked)
    }

    /// By its name: to ask the file itself might be a request to this worker.
    fn stream(&self, descriptor: u64) -> Option<Stream> {
        let target = fs::read_link(format!("/proc/{}/fd/{descriptor}", self.process)).ok()?;
        let name = target.to_str()?;
        match name.strip_prefix("pipe:[").and_then(|number| number.strip_suffix(']')) {
            Some(number) => number.parse().ok().map(Stream::Pipe),
            None => (name == "/dev/tty" || name.starts_with("/dev/pts/")).then_some(Stream::Terminal),
        }
    }

    fn has_open(&self, is_one: impl Fn(Stream) -> bool, asked: &Cell<usize>) -> bool {
        if asked.get() > DESCRIPTORS_MAX {
            return false;
        }
        let descriptors = numbers_in(&PathBuf::from(format!("/proc/{}/fd", self.process)));
        descriptors.into_iter().any(|descriptor| {
            asked.set(asked.get() + 1);
            asked.get() <= DESCRIPTORS_MAX && self.stream(descriptor.into()).is_some_and(&is_one)
        })
    }
}

/// What a descriptor may lead to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stream {
    /// A pipe with this inode number.
    Pipe(u64),
    Terminal,
}

/// What a system call may wait for: which of its arguments are descriptors that are read from and written to, or some descriptor or other.
#[derive(Default)]
struct Calls {
    read: Option<usize>,
    written: Option<usize>,
    some: bool,
}

fn waited_for(number: i64) -> Calls {
    #[cfg(target_arch = "x86_64")]
    const WAITS: [i64; 7] = [
        libc::SYS_poll,
        libc::SYS_ppoll,
        libc::SYS_select,
        libc::SYS_pselect6,
        libc::SYS_epoll_wait,
        libc::SYS_epoll_pwait,
        libc::SYS_epoll_pwait2,
    ];
    #[cfg(not(target_arch = "x86_64"))]
    const WAITS: [i64; 4] = [libc::SYS_ppoll, libc::SYS_pselect6, libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2];
    let (read, written) = match number {
        libc::SYS_read | libc::SYS_readv => (Some(0), None),
        libc::SYS_write | libc::SYS_writev => (None, Some(0)),
        libc::SYS_splice => (Some(0), Some(2)),
        libc::SYS_tee => (Some(0), Some(1)),
        libc::SYS_vmsplice => (Some(0), Some(0)),
        libc::SYS_sendfile => (Some(1), Some(0)),
        _ => (None, None),
    };
    Calls { read, written, some: WAITS.contains(&number) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    #[test]
    fn who_waits_for_its_streams_is_told_from_who_runs() {
        let seen = |script: &str, is_wanted: fn(Seen) -> bool| {
            let (input, into) = rustix::pipe::pipe().expect("a pipe");
            let (_out, output) = rustix::pipe::pipe().expect("a pipe");
            let inode = |pipe| rustix::fs::fstat(pipe).expect("a pipe").st_ino;
            let awaited = Awaited { input: Some(inode(&input)), outputs: vec![inode(&output)], ..Awaited::default() };
            // What is looked at is below what a task's init is.
            let mut child = Command::new("sh");
            child.args(["-c", &format!("({script}); true")]).stdin(Stdio::from(input)).stdout(Stdio::from(output));
            let mut child = child.process_group(0).spawn().expect("spawned");
            let limit = std::time::Instant::now() + Duration::from_secs(10);
            let mut last = look(child.id(), &awaited);
            while !is_wanted(last) && std::time::Instant::now() < limit {
                std::thread::yield_now();
                last = look(child.id(), &awaited);
            }
            drop(into);
            let all = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process_group(all, rustix::process::Signal::KILL).expect("ours to end");
            child.wait().expect("ours to reap");
            last
        };
        let waits = |seen: Seen| seen.waits;
        assert_eq!(seen("cat", waits), Seen { waits: true, runs: false });
        assert_eq!(seen("exec yes", waits), Seen { waits: true, runs: false }, "for somebody to read");
        assert_eq!(seen("while :; do :; done", |seen| seen.runs), Seen { waits: false, runs: true });
        assert_eq!(seen("exec sleep 1", |seen| !seen.runs), Seen::default(), "it waits for the time");
    }

    fn wanted_within(program: &[&str], limit: Duration) -> bool {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let inode = rustix::fs::fstat(&reader).expect("a pipe").st_ino;
        let mut child =
            Command::new(program[0]).args(&program[1..]).stdin(Stdio::from(reader)).spawn().expect("spawned");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let wanted =
            runtime.block_on(async { tokio::time::timeout(limit, wait(std::process::id(), inode)).await.is_ok() });
        assert!(writer.as_raw_fd() >= 0);
        drop(writer);
        child.kill().expect("ours to end");
        child.wait().expect("ours to reap");
        wanted
    }

    #[test]
    fn readers_are_told_from_others() {
        assert!(wanted_within(&["cat"], Duration::from_secs(5)));
        assert!(wanted_within(&["sh", "-c", "sleep 0; exec cat"], Duration::from_secs(5)));
        assert!(!wanted_within(&["sleep", "2"], Duration::from_millis(300)));
    }
}
