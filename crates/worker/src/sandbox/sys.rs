//! System calls that rustix does not offer in the form needed here, each behind a safe function that returns the error
//! as a [`Errno`].

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::event::{PollFd, Timespec};
use rustix::fs::{CWD, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Result of a system call.
pub type Result<T> = std::result::Result<T, Errno>;

/// What a libc call returned, or the error that it left in `errno`.
pub(super) fn check(result: libc::c_long) -> Result<libc::c_long> {
    if result >= 0 {
        return Ok(result);
    }
    let number = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    Err(Errno::from_raw_os_error(number))
}

/// The libc crate's constant of this name overflows its type.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Where a process finds itself after a fork.
pub enum Fork {
    /// In the new process.
    Child,
    /// In the old one: the new one's id, and a descriptor of it.
    Parent(i32, OwnedFd),
}

/// Forks with `clone3`. `namespaces`: `CLONE_NEW*`. `cgroup`: a folder of cgroup v2 in which the child starts.
///
/// # Safety
/// As for `fork`: the calling process must be single-threaded, or the child must keep to what is safe in a signal
/// handler; and the child must never return to a caller that owns something outside (it ends with `_exit` or `exec`).
pub unsafe fn fork_into(namespaces: i32, cgroup: Option<BorrowedFd<'_>>) -> Result<Fork> {
    let mut pidfd: RawFd = -1;
    // SAFETY: all zeroes is a valid value of this plain structure.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = namespaces as u32 as u64 | libc::CLONE_PIDFD as u64;
    arguments.pidfd = (&raw mut pidfd) as u64;
    arguments.exit_signal = libc::SIGCHLD as u64;
    if let Some(cgroup) = cgroup {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: without CLONE_VM this is a fork; the arguments outlive the call. The rest is the caller's promise.
    let id = check(unsafe { libc::syscall(libc::SYS_clone3, &raw mut arguments, size_of::<libc::clone_args>()) })?;
    if id == 0 {
        return Ok(Fork::Child);
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(Fork::Parent(id as i32, unsafe { OwnedFd::from_raw_fd(pidfd) }))
}

/// A plain fork, by the C library: 0 in the child.
///
/// # Safety
/// As for [`fork_into`].
pub unsafe fn fork() -> Result<i32> {
    // SAFETY: the caller's promise.
    check(unsafe { libc::fork() }.into()).map(|id| id as i32)
}

/// The stack of a process that is lent this one's memory: what it has to do before it executes a program needs a part of it.
const LENT_STACK_BYTES: usize = 64 << 10;

/// Forks without copying anything: the child has this process's memory, which stands still until the child has executed a program
/// or ended. The child begins with `child`, on a stack of its own. Its id.
///
/// # Safety
/// As for [`fork_into`]; besides, `child` must neither unwind, nor allocate, nor change what this process relies on.
pub unsafe fn fork_lent<F: FnOnce() -> i32>(child: F) -> Result<i32> {
    extern "C" fn begin<F: FnOnce() -> i32>(child: *mut libc::c_void) -> libc::c_int {
        // SAFETY: it is the caller's, who stands still, and is taken once.
        let child = unsafe { (*child.cast::<Option<F>>()).take() };
        exit_now(child.map_or(127, |child| child()))
    }
    let mut child = Some(child);
    let mut stack = Vec::<u8>::with_capacity(LENT_STACK_BYTES);
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack grows down from an aligned place within the allocation; it and the closure outlive the child's use of them.
    let id = unsafe {
        let top = stack.as_mut_ptr().add(LENT_STACK_BYTES - 16);
        let top = top.sub(top.addr() % 16);
        libc::clone(begin::<F>, top.cast(), flags, (&raw mut child).cast())
    };
    let id = check(id.into()).map(|id| id as i32);
    drop(stack);
    id
}

/// Takes a capability out of the bounding set; `EINVAL` says that there is none of this number.
pub fn drop_bounding(capability: u32) -> Result<()> {
    // SAFETY: plain integers.
    check(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(capability), 0, 0, 0) }.into()).map(drop)
}

/// Ends this process at once, without destructors or exit handlers: what a forked child must do.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit is always allowed.
    unsafe { libc::_exit(code) }
}

/// One change of a child's state as `waitpid` tells it: process and raw status. `None`: nothing to tell now.
/// `ECHILD`: there are no children.
pub fn wait_any(options: i32) -> Result<Option<(i32, i32)>> {
    wait_for(-1, options)
}

/// [`wait_any`] for one process.
pub fn wait_for(process: i32, options: i32) -> Result<Option<(i32, i32)>> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is a valid place for an int.
        match check(unsafe { libc::waitpid(process, &raw mut status, options) }.into()) {
            Ok(0) => return Ok(None),
            Ok(id) => return Ok(Some((id as i32, status))),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Sends a signal: to a process, or with a negative number to a group, or with -1 to all that may be signalled. Also where a filter has
/// init decide on those of its task.
pub fn kill(target: i32, signal: i32) -> Result<()> {
    let nothing = 0_usize;
    // SAFETY: plain integers; the kernel looks at the first two.
    check(unsafe { libc::syscall(libc::SYS_kill, target, signal, nothing, nothing, INIT_SIGN as usize) }).map(drop)
}

/// Sets every signal's disposition to the default.
pub fn default_signals() {
    // SAFETY: all zeroes is SIG_DFL without flags; numbers that cannot be changed are refused, which does no harm.
    unsafe {
        let action: libc::sigaction = std::mem::zeroed();
        for signal in 1..=64 {
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

/// Blocks every signal (`true`) or none.
pub fn block_signals(all: bool) {
    // SAFETY: the set is filled before it is used.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        if all {
            libc::sigfillset(&raw mut set);
        } else {
            libc::sigemptyset(&raw mut set);
        }
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}

/// Blocks the signals of this set, and no others: bit `n - 1` for signal `n`.
pub fn set_blocked_signals(set: u64) {
    // SAFETY: the set is filled before it is used; what cannot be blocked is left out by the kernel.
    unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut signals);
        for signal in (1..=64).filter(|signal| set & 1 << (signal - 1) != 0) {
            libc::sigaddset(&raw mut signals, signal);
        }
        libc::sigprocmask(libc::SIG_SETMASK, &raw const signals, std::ptr::null_mut());
    }
}

/// Ignores the signals of this set: bit `n - 1` for signal `n`.
pub fn ignore_signals(set: u64) {
    for signal in (1..=64).filter(|signal| set & 1 << (signal - 1) != 0) {
        // SAFETY: no handler is involved. What cannot be ignored is refused, and stays as it is.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// A descriptor from which blocked signals of these numbers can be read; does not block.
pub fn signal_descriptor(signals: &[i32]) -> Result<OwnedFd> {
    // SAFETY: the set is filled before it is used; the kernel makes a descriptor for us.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        check(libc::signalfd(-1, &raw const set, flags).into()).map(|fd| OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// The next signal of a [`signal_descriptor`]: its number, and whether the kernel itself sent it.
pub fn read_signal(descriptor: &OwnedFd) -> Option<(i32, bool)> {
    // SAFETY: all zeroes is a valid value of this plain structure.
    let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: the place is as long as is said.
    let count = unsafe { libc::read(descriptor.as_raw_fd(), (&raw mut info).cast(), size) };
    (count == size as isize).then_some((info.ssi_signo as i32, info.ssi_code == libc::SI_KERNEL))
}

/// Runs this process only when nobody else wants the CPU, and its disk requests likewise.
pub fn be_idle() -> Result<()> {
    const IOPRIO_WHO_PROCESS: libc::c_long = 1;
    const IOPRIO_CLASS_IDLE: libc::c_long = 3 << 13;
    // SAFETY: the parameter outlives the call; the rest are plain integers.
    unsafe {
        let parameter: libc::sched_param = std::mem::zeroed();
        check(libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameter).into())?;
        check(libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_CLASS_IDLE)).map(drop)
    }
}

/// Gives this process that nice value.
pub fn be_nice(value: u8) -> Result<()> {
    // SAFETY: plain integers.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, value.into()) }.into()).map(drop)
}

/// The nice value of a thread; the lowest if it is gone.
pub fn nice_of(thread: u32) -> i32 {
    let thread = rustix::process::Pid::from_raw(thread as i32);
    rustix::process::getpriority_process(thread).unwrap_or(-20)
}

/// Has a thread run only when nobody else wants the processor, or as any other. Without the right to, it stays as it is.
pub fn set_idle(thread: rustix::process::Pid, is_idle: bool) {
    let policy = if is_idle { libc::SCHED_IDLE } else { libc::SCHED_OTHER };
    // SAFETY: the parameter outlives the calls; the rest are plain integers.
    unsafe {
        let thread = thread.as_raw_nonzero().get();
        let parameter: libc::sched_param = std::mem::zeroed();
        if libc::sched_getscheduler(thread) != policy {
            libc::sched_setscheduler(thread, policy, &raw const parameter);
        }
    }
}

/// A resource limit, soft and hard; `u64::MAX` is none.
pub fn limit(resource: u32) -> Option<(u64, u64)> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the place is valid; an unknown resource is refused.
    check(unsafe { libc::getrlimit(resource as _, &raw mut limit) }.into()).ok()?;
    Some((limit.rlim_cur, limit.rlim_max))
}

/// Sets a resource limit, soft and hard.
pub fn set_limit(resource: u32, soft: u64, hard: u64) -> Result<()> {
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    // SAFETY: the limit outlives the call.
    check(unsafe { libc::setrlimit(resource as _, &raw const limit) }.into()).map(drop)
}

/// Closes every descriptor from 3 up that is not in `keep` (which is sorted by this).
pub fn close_all_but(keep: &mut [RawFd]) {
    keep.sort_unstable();
    let mut from: u32 = 3;
    for kept in keep.iter().map(|kept| *kept as u32).filter(|kept| *kept >= 3) {
        if kept > from {
            // SAFETY: the caller gives up every descriptor that is not in `keep`.
            unsafe { libc::syscall(libc::SYS_close_range, from, kept - 1, 0) };
        }
        from = kept + 1;
    }
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_close_range, from, u32::MAX, 0) };
}

/// Opens what a client named, in this process's root. No link of `/proc` is followed, by which a descriptor, a root or a program of
/// this process itself would be reached. Allocates nothing. Also where a filter has init decide on what its task opens in this way.
pub fn open_inside(path: &CStr, flags: OFlags) -> Result<OwnedFd> {
    // `struct open_how`: flags, mode, and how the path is looked up.
    let how = [u64::from((flags | OFlags::CLOEXEC).bits()), 0, ResolveFlags::NO_MAGICLINKS.bits()];
    let (cwd, path, len) = (CWD.as_raw_fd(), path.as_ptr(), size_of_val(&how));
    // SAFETY: the path ends in a zero byte; it and the structure, which is as long as is said, outlive the call.
    let opened = unsafe { libc::syscall(libc::SYS_openat2, cwd, path, how.as_ptr(), len, INIT_SIGN as usize) };
    // SAFETY: the kernel has just made this descriptor for us.
    check(opened).map(|fd| unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Shows `name` as this process's command line, and no more of the one that it was started with: all processes of a task can read it.
/// What the C library has of the arguments is gone as well.
pub fn rename_command_line(name: &[u8]) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The program's name, in parentheses, may have blanks; the third field comes after it.
    let fields: Vec<&str> = stat.rsplit_once(") ").map(|(_, rest)| rest.split(' ').collect()).unwrap_or_default();
    let field = |number: usize| fields.get(number - 3).and_then(|field| field.parse::<usize>().ok()).unwrap_or(0);
    let (start, end) = (field(48), field(49));
    let Some(len) = end.checked_sub(start).filter(|len| start != 0 && *len > 0) else { return };
    let shown = name.len().min(len - 1);
    // SAFETY: the kernel has put the arguments there for this process, which has one thread and does not read them.
    unsafe {
        let arguments = std::ptr::with_exposed_provenance_mut::<u8>(start);
        std::ptr::write_bytes(arguments, 0, len);
        std::ptr::copy_nonoverlapping(name.as_ptr(), arguments, shown);
    }
}

/// Makes `to` a copy of `from`, one that outlives an exec.
pub fn copy_to(from: RawFd, to: RawFd) -> Result<()> {
    if from == to {
        // SAFETY: plain integers.
        return check(unsafe { libc::fcntl(from, libc::F_SETFD, 0) }.into()).map(drop);
    }
    // SAFETY: the caller owns what is at `to`, and gives it up.
    check(unsafe { libc::dup2(from, to) }.into()).map(drop)
}

/// By this a filter knows a [`poll`], [`attribute`], [`open_inside`], [`send_message`], [`kill`] or [`execute`] of a task's init, and in
/// which argument it is. Without a signal mask the kernel does not look at the mask's length; of the others it looks at four arguments at most.
pub const INIT_SIGN: u32 = 0x696e_6974;
pub const INIT_SIGN_AT: u32 = 4;

/// Waits as `poll` does, also where a filter has init decide on those of its task: it must not wait for itself.
pub fn poll(descriptors: &mut [PollFd<'_>], timeout: Option<&Timespec>) -> Result<usize> {
    let mut timeout = timeout.map(|timeout| libc::timespec { tv_sec: timeout.tv_sec, tv_nsec: timeout.tv_nsec });
    let timeout = timeout.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
    let (first, count) = (descriptors.as_mut_ptr(), descriptors.len());
    let no_mask = std::ptr::null::<libc::sigset_t>();
    // SAFETY: the list is as long as is said and laid out as the kernel's; list and time outlive the call.
    let ready = unsafe { libc::syscall(libc::SYS_ppoll, first, count, timeout, no_mask, INIT_SIGN as usize) };
    check(ready).map(|ready| ready as usize)
}

/// What an attribute of a file is, also where a filter has init decide on those that its task asks for. Of a link itself, unless it
/// `follows`.
pub fn attribute(path: &Path, follows: bool, name: &[u8], value: &mut [u8]) -> Result<usize> {
    let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| Errno::INVAL);
    let (path, name) = (text(path.as_os_str().as_bytes())?, text(name)?);
    let call = if follows { libc::SYS_getxattr } else { libc::SYS_lgetxattr };
    let (path, name, room, len) = (path.as_ptr(), name.as_ptr(), value.as_mut_ptr(), value.len());
    // SAFETY: path and name end in a zero byte; they and the room, which is as long as is said, outlive the call.
    let got = unsafe { libc::syscall(call, path, name, room, len, INIT_SIGN as usize) };
    check(got).map(|len| len as usize)
}

/// What `fstat` (`mask`: `statx`, with this mask) would put into memory of a file that is at this path, and not of what a link leads to;
/// `None`: no regular file is there.
pub fn told_of_file(path: &[u8], mask: Option<u32>) -> Option<Vec<u8>> {
    const FORMAT: libc::mode_t = libc::S_IFMT;
    let path = CString::new(path).ok()?;
    // SAFETY: all zeroes is a valid value of both plain structures.
    let (mut stat, mut statx): (libc::stat, libc::statx) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    let (got, mode, bytes) = match mask {
        Some(mask) => {
            let mask = mask | libc::STATX_TYPE;
            // SAFETY: the path ends in a zero byte; it and the structure outlive the call.
            let got =
                unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), libc::AT_SYMLINK_NOFOLLOW, mask, &raw mut statx) };
            (got, statx.stx_mode.into(), bytes_of(&statx))
        }
        None => {
            // SAFETY: as above.
            let got = unsafe { libc::lstat(path.as_ptr(), &raw mut stat) };
            (got, stat.st_mode, bytes_of(&stat))
        }
    };
    (got == 0 && mode & FORMAT == libc::S_IFREG).then_some(bytes)
}

/// Whether the file system of a file has an id (UUID), of which the kernel makes what it tells.
pub fn has_file_system_id(file: impl AsFd) -> bool {
    // SAFETY: all zeroes is a valid value of this plain structure.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, and the structure outlives the call.
    let got = unsafe { libc::fstatfs(file.as_fd().as_raw_fd(), &raw mut found) };
    got == 0 && bytes_of(&found.f_fsid).iter().any(|byte| *byte != 0)
}

/// The memory of a plain structure of the kernel's that was made of zeroes.
fn bytes_of<T>(value: &T) -> Vec<u8> {
    // SAFETY: it is as long as its type, and what lies between its fields is zero.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast::<u8>(), size_of::<T>()) }.to_vec()
}

/// Sends a packet with at least one descriptor, also where a filter has init decide on what its task sends.
pub fn send_message(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[RawFd], flags: libc::c_int) -> Result<()> {
    // Rounded up to whole headers, which are aligned as the kernel wants them.
    let rights_bytes = size_of_val(descriptors);
    // SAFETY: these only compute lengths.
    let (space, len) = unsafe { (libc::CMSG_SPACE(rights_bytes as u32), libc::CMSG_LEN(rights_bytes as u32)) };
    let mut control = vec![0_u64; (space as usize).div_ceil(size_of::<u64>())];
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all zeroes is a valid value of this plain structure.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), space as _);
    // SAFETY: the control buffer has room for one header and the descriptors behind it, as was computed.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = len as _;
        std::ptr::copy_nonoverlapping(descriptors.as_ptr().cast::<u8>(), libc::CMSG_DATA(header), rights_bytes);
    }
    let (socket, message, flags) = (socket.as_raw_fd(), &raw const message, libc::c_long::from(flags));
    // SAFETY: the message and all that it points to outlive the call.
    let sent = unsafe { libc::syscall(libc::SYS_sendmsg, socket, message, flags, 0_usize, INIT_SIGN as usize) };
    check(sent).map(drop)
}

/// Replaces this process; returns only to say why it could not. The lists end in a null pointer.
pub fn execute(path: &CStr, argv: &[*const libc::c_char], env: &[*const libc::c_char]) -> Errno {
    debug_assert!(argv.last().is_some_and(|last| last.is_null()) && env.last().is_some_and(|last| last.is_null()));
    // The kernel looks at three arguments; by the fifth a filter lets it go on.
    let (nothing, sign) = (0_usize, INIT_SIGN as usize);
    let (path, argv, env) = (path.as_ptr(), argv.as_ptr(), env.as_ptr());
    // SAFETY: the lists end in a null pointer, and their strings are the caller's and live.
    match check(unsafe { libc::syscall(libc::SYS_execve, path, argv, env, nothing, sign) }) {
        Err(error) => error,
        Ok(_) => Errno::INVAL,
    }
}

/// Makes `group` the foreground group of this session's terminal.
pub fn foreground(terminal: RawFd, group: i32) -> Result<()> {
    // SAFETY: plain integers.
    check(unsafe { libc::tcsetpgrp(terminal, group) }.into()).map(drop)
}

/// CPU time and memory of all children that were waited for: user and system time in microseconds, KiB.
pub fn usage_of_children() -> base::Usage {
    // SAFETY: all zeroes is a valid value of this plain structure, which the call fills.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    base::Usage {
        user_us: micros(usage.ru_utime),
        system_us: micros(usage.ru_stime),
        max_rss_kib: usage.ru_maxrss as u64,
    }
}

/// How many segments of shared memory, queues of messages and sets of semaphores of System V there are in this namespace.
pub fn left_of_system_v() -> [u64; 3] {
    // SAFETY: all zeroes is a valid value of these plain structures, which the calls fill. A kernel without these objects refuses.
    unsafe {
        let mut shared: ShmInfo = std::mem::zeroed();
        let mut messages: libc::msginfo = std::mem::zeroed();
        let mut semaphores: libc::seminfo = std::mem::zeroed();
        let ok = |result: libc::c_int| result >= 0;
        let segments = ok(libc::shmctl(0, SHM_INFO, (&raw mut shared).cast()));
        let queues = ok(libc::msgctl(0, libc::MSG_INFO, (&raw mut messages).cast()));
        let sets = ok(libc::semctl(0, 0, libc::SEM_INFO, &raw mut semaphores));
        [
            if segments { shared.used_ids as u64 } else { 0 },
            if queues { messages.msgpool as u64 } else { 0 },
            if sets { semaphores.semusz as u64 } else { 0 },
        ]
    }
}

/// Asks how many segments there are; and the kernel's answer, `struct shm_info`.
const SHM_INFO: libc::c_int = 14;
#[repr(C)]
struct ShmInfo {
    used_ids: libc::c_int,
    /// Pages and counts of swapping.
    _rest: [libc::c_ulong; 5],
}
