//! What the processes that stay have in common: a log, and memory and descriptors to work with.

/// Prepares this process to stay. Call it before any thread exists.
pub fn prepare() {
    crate::logging::begin();
    keep_freed_memory();
    open_many_files();
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
