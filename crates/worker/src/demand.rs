//! Whether a guest waits for standard input.
//!
//! Locally a command that never reads leaves its standard input to the next one (`ls | while read f; do gcc -c $f; done`).
//! So the first byte is sent only once some process of the task waits for it: one that is inside `read` (or a relative)
//! on the task's pipe, or in `poll`, `select` or `epoll`, which do not say of what. From then on bytes flow freely: who
//! reads a pipe through a buffer takes more than it needs locally as well.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// First pause between two looks; it doubles up to the last.
const PAUSE_FIRST: Duration = Duration::from_millis(2);
const PAUSE_LAST: Duration = Duration::from_millis(50);
/// Most processes looked at for one task; a task with more gets its input without waiting.
const PROCESSES_MAX: usize = 512;

/// Waits until a process in the tree below `init` (a process number as this process sees it) waits for input on the pipe
/// with this inode number.
pub async fn wait(init: u32, pipe_inode: u64) {
    let mut pause = PAUSE_FIRST;
    loop {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_LAST);
        if is_wanted(init, pipe_inode) {
            return;
        }
    }
}

fn is_wanted(init: u32, pipe_inode: u64) -> bool {
    let name = format!("pipe:[{pipe_inode}]");
    let mut todo = vec![init];
    let mut seen = 0;
    while let Some(process) = todo.pop() {
        seen += 1;
        if seen > PROCESSES_MAX {
            return true;
        }
        for thread in numbers_in(&PathBuf::from(format!("/proc/{process}/task"))) {
            let children = fs::read_to_string(format!("/proc/{process}/task/{thread}/children"));
            todo.extend(children.unwrap_or_default().split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
            if process != init && waits_for(process, thread, &name) {
                return true;
            }
        }
    }
    false
}

fn numbers_in(folder: &std::path::Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Whether a thread is inside a system call that waits for the pipe, or may.
fn waits_for(process: u32, thread: u32, pipe: &str) -> bool {
    let call = fs::read_to_string(format!("/proc/{process}/task/{thread}/syscall")).unwrap_or_default();
    let mut words = call.split_whitespace();
    let Some(number) = words.next().and_then(|word| word.parse::<i64>().ok()) else { return false };
    let argument = |at: usize| {
        let word = call.split_whitespace().nth(1 + at)?.strip_prefix("0x")?;
        u64::from_str_radix(word, 16).ok()
    };
    match input_argument(number) {
        Wait::No => false,
        Wait::Some => has_open(process, pipe),
        Wait::On(at) => argument(at).is_some_and(|descriptor| {
            let target = fs::read_link(format!("/proc/{process}/fd/{descriptor}"));
            target.is_ok_and(|target| target.to_str() == Some(pipe))
        }),
    }
}

fn has_open(process: u32, pipe: &str) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    descriptors.into_iter().any(|entry| fs::read_link(entry.path()).is_ok_and(|to| to.to_str() == Some(pipe)))
}

enum Wait {
    /// The call reads from no descriptor.
    No,
    /// It waits for some descriptor or other.
    Some,
    /// It reads from the descriptor in this argument.
    On(usize),
}

fn input_argument(number: i64) -> Wait {
    const READS: [i64; 5] = [libc::SYS_read, libc::SYS_readv, libc::SYS_splice, libc::SYS_tee, libc::SYS_vmsplice];
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
    if number == libc::SYS_sendfile {
        Wait::On(1)
    } else if READS.contains(&number) {
        Wait::On(0)
    } else if WAITS.contains(&number) {
        Wait::Some
    } else {
        Wait::No
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::process::{Command, Stdio};

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
