//! Processes that a watched task signals: its own, or its client's.

use super::super::order::Sought;
use super::super::sys;
use super::{Decision, Listener, Notice};
use rustix::io::Errno;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Where the kernel tells the number of the last process of a namespace.
const LAST: &str = "/proc/sys/kernel/ns_last_pid";
/// What a task has for its parent: its init.
const INIT: i32 = 1;

impl Listener {
    /// A signal to a process or group. What is none of the task's may be one of the client's machine, which its client knows: a number that
    /// was read from a file, as servers leave them.
    pub(super) fn on_signal(&self, notice: &Notice) -> Decision {
        let (target, signal) = (notice.data.args[0] as i32, notice.data.args[1] as i32);
        if target == INIT && signal != 0 {
            return Decision::CallOff("it signals the process that has started it, which is on this machine".into());
        }
        // To its own group, or to all.
        if matches!(target, 0 | -1) || sys::kill(target, 0) != Err(Errno::SRCH) || self.had(target.unsigned_abs()) {
            return Decision::Go;
        }
        // Who tells ports tells processes as well; one of an older version says that there is none.
        match self.watch.tells_ports {
            true => Decision::AskService(notice.id, Sought::Process(target)),
            false => Decision::Go,
        }
    }

    /// Whether the task has had a process of this number.
    fn had(&self, number: u32) -> bool {
        let last = std::fs::read_to_string(LAST).ok().and_then(|text| text.trim().parse().ok());
        last.is_some_and(|last| (self.first_process..=last).contains(&number))
    }
}

/// Whether a program has others' rights when this process executes it: those of the file's owner or group, which are the process's own on its
/// client's machine alone. Of a script the kernel takes none.
pub(super) fn takes_rights(process: u32, program: &Path) -> bool {
    const SET_USER: u32 = 0o4000;
    // Without the right to execute it, the bit of the group means something else.
    const SET_GROUP: u32 = 0o2010;
    let Ok(found) = std::fs::metadata(program) else { return false };
    let is_set = |bits: u32| found.mode() & bits == bits;
    if !found.is_file() || !(is_set(SET_USER) || is_set(SET_GROUP)) {
        return false;
    }
    let Ok(own) = std::fs::metadata(format!("/proc/{process}")) else { return false };
    let is_script = || {
        let mut head = [0; 2];
        let read = std::fs::File::open(program).and_then(|file| file.read_exact_at(&mut head, 0));
        read.is_ok() && head == *b"#!"
    };
    let takes = is_set(SET_USER) && found.uid() != own.uid() || is_set(SET_GROUP) && found.gid() != own.gid();
    takes && !is_script()
}

/// Why a task is called off that signals a process of its client's machine.
pub(super) fn signals(process: i32) -> String {
    let (what, number) =
        if process < 0 { ("process group", process.unsigned_abs()) } else { ("process", process as u32) };
    format!("it signals, or asks for, {what} {number} of this machine")
}
