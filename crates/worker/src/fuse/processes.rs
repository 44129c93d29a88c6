//! What is to be known of the processes whose requests a mirror answers.

/// Whether `pid` is a thread of this process.
pub(super) fn is_own(pid: u32) -> bool {
    pid != 0 && std::path::Path::new(&format!("/proc/self/task/{pid}")).exists()
}

/// Whether the thread `pid` is being killed: then SIGKILL is pending for it, whatever signal kills it.
pub(super) fn is_dying(pid: u32) -> bool {
    if pid == 0 {
        return false;
    }
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
    let pending = |line: &str| {
        let mask = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    status.lines().filter_map(pending).any(|mask| mask & (1 << (libc::SIGKILL - 1)) != 0)
}
