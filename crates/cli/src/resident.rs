//! What the processes that stay have in common: a log, and memory and descriptors to work with.

/// Prepares this process to stay. Call it before any thread exists.
pub fn prepare() {
    crate::logging::begin();
    keep_freed_memory();
    open_many_files();
}

/// Gives up what the process that started this one had set for itself and its commands: this one stays for others. What cannot be
/// undone without rights stays as it is. Call it before any thread exists.
pub fn leave_caller() {
    raise_limits();
    // SAFETY: plain calls on this process, with numbers and with a structure that lives on this stack.
    unsafe {
        // A write beyond a limit of file size is an error, and not the end: a handler, for what is executed later not to ignore it.
        libc::signal(libc::SIGXFSZ, nothing as *const () as libc::sighandler_t);
        let ordinary = libc::sched_param { sched_priority: 0 };
        libc::sched_setscheduler(0, libc::SCHED_OTHER, &ordinary);
        libc::setpriority(libc::PRIO_PROCESS, 0, 0);
        const OF_PROCESS: libc::c_int = 1;
        libc::syscall(libc::SYS_ioprio_set, OF_PROCESS, 0, 0);
        libc::prctl(libc::PR_SET_TIMERSLACK, 0);
        libc::personality(0);
    }
    let mut all = rustix::thread::CpuSet::new();
    (0..rustix::thread::CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    let _ = rustix::thread::sched_setaffinity(None, &all);
    let _ = std::fs::write("/proc/self/oom_score_adj", "0");
}

extern "C" fn nothing(_signal: libc::c_int) {}

/// Raises each limit as far as that may be. That of stacks decides how memory is laid out, and core files are no matter of limits.
fn raise_limits() {
    use rustix::process::Resource;
    const LIMITS: u32 = 16;
    const NOT_THESE: [u32; 2] = [Resource::Stack as u32, Resource::Core as u32];
    for resource in (0..LIMITS).filter(|resource| !NOT_THESE.contains(resource)) {
        let mut value = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: reads and writes one structure. Resources that this kernel does not have give an error.
        unsafe {
            if libc::getrlimit64(resource as _, &mut value) == 0 {
                value.rlim_cur = value.rlim_max;
                libc::setrlimit64(resource as _, &value);
            }
        }
    }
}

/// Has the allocator use freed memory again instead of giving it back to the kernel at once: contents pass in pieces of some
/// hundred kilobytes, and getting the memory for each anew from the kernel took a fifth of the time of a first use.
#[cfg(target_env = "gnu")]
fn keep_freed_memory() {
    const SETTINGS: [(libc::c_int, libc::c_int); 4] = [
        // Larger pieces come from the kernel and go back to it.
        (libc::M_MMAP_THRESHOLD, 4 << 20),
        (libc::M_TRIM_THRESHOLD, 16 << 20),
        (libc::M_TOP_PAD, 1 << 20),
        // Each keeps memory of its own.
        (libc::M_ARENA_MAX, 4),
    ];
    for (name, value) in SETTINGS {
        // SAFETY: there is one thread, and a setting that is not taken changes nothing.
        unsafe { libc::mallopt(name, value) };
    }
}

#[cfg(not(target_env = "gnu"))]
fn keep_freed_memory() {}

/// Each command that runs costs a few descriptors. What is executed later has limits of its own.
fn open_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Where even this is refused, the limit is as it was.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
