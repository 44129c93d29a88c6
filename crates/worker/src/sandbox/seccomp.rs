//! The system calls that a guest may make.
//!
//! An allow-list after the one that container engines use by default, without what a task has no need of and attackers
//! like. What is known and refused returns EPERM; what is unknown returns ENOSYS, so that libc falls back; calls of
//! another architecture (32-bit programs) kill the program with SIGSYS.
//!
//! A task that is watched ([`Variant`]) stops at a refused call instead, and at a few that are allowed, until its init has decided
//! ([`super::notices`]). Allowed calls cost what they cost anyway.
//!
//! The program is a binary search over ranges of call numbers: ten comparisons a call at most, and cheap to install
//! once per task. (seccompiler's own compiler compares one number after the other, and knows one error number only.)

use seccompiler::{BpfProgram, sock_filter};
use std::borrow::Cow;

use libc::*;

use super::{copying, stand_ins, sys};
use pieces::{
    OUTPUTS, allocates, any_bit, asks_what_output_is, equals, opens, raises_disk, raises_policy, seeks_output,
};

pub use owners::owners;
mod owners;
mod pieces;

const LOAD: u16 = 0x20;
const JUMP_ALWAYS: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const JUMP_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const fn argument(index: u32) -> u32 {
    16 + 8 * index
}

/// Calls that the libc crate does not name.
#[cfg(target_arch = "x86_64")]
const IO_PGETEVENTS: c_long = 333;
#[cfg(target_arch = "aarch64")]
const IO_PGETEVENTS: c_long = 292;
pub const CACHESTAT: c_long = 451;
/// Requests that set a file's flags or its project: `FS_IOC_SETFLAGS`, the same of 32-bit programs, `FS_IOC_FSSETXATTR`.
pub const SET_FLAGS: [u32; 3] = [0x4008_6602, 0x4004_6602, 0x401c_5820];
/// Requests that read those, and where a file's blocks are: `FS_IOC_GETFLAGS`, the same of 32-bit programs, `FS_IOC_FSGETXATTR`,
/// `FS_IOC_FIEMAP`.
pub const READ_FLAGS: [u32; 4] = [0x8008_6601, 0x8004_6601, 0x801c_581f, 0xc020_660b];
pub const FCHMODAT2: c_long = 452;

const ALLOW: u32 = SECCOMP_RET_ALLOW;
const REFUSE: u32 = SECCOMP_RET_ERRNO | EPERM as u32;
/// The init decides.
const NOTIFY: u32 = SECCOMP_RET_USER_NOTIF;
/// The first number of an x32 call.
pub const X32: u32 = 0x4000_0000;
const UNKNOWN: u32 = SECCOMP_RET_ERRNO | ENOSYS as u32;
const NO_FAMILY: u32 = SECCOMP_RET_ERRNO | EAFNOSUPPORT as u32;

#[cfg(target_arch = "x86_64")]
pub const NATIVE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
pub const NATIVE: u32 = 0xc000_00b7;

/// Requests that type into a terminal.
const TYPING: [u32; 2] = [TIOCSTI as u32, TIOCLINUX as u32];

/// Flags of `clone` that make namespaces. (CLONE_NEWTIME is no flag of `clone`: its bit is part of the signal number.)
const NAMESPACE_FLAGS: u32 =
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET) as u32;

/// Allowed on every architecture, whatever the arguments.
#[rustfmt::skip]
const ALLOWED: &[c_long] = &[
    // Files.
    SYS_close, SYS_close_range, SYS_copy_file_range, SYS_dup, SYS_dup3, SYS_faccessat, SYS_faccessat2, SYS_fadvise64,
    SYS_fallocate, SYS_fchdir, SYS_fchmod, SYS_fchmodat, FCHMODAT2, SYS_fchown, SYS_fchownat, SYS_fcntl,
    SYS_fdatasync, SYS_fgetxattr, SYS_flistxattr, SYS_flock, SYS_fremovexattr, SYS_fsetxattr, SYS_fstat, SYS_fstatfs,
    SYS_fsync, SYS_ftruncate, SYS_getcwd, SYS_getdents64, SYS_getxattr, SYS_chdir, SYS_lgetxattr, SYS_linkat,
    SYS_listxattr, SYS_llistxattr, SYS_lremovexattr, SYS_lseek, SYS_lsetxattr, SYS_mkdirat, SYS_mknodat,
    SYS_newfstatat, SYS_openat, SYS_openat2, SYS_pread64, SYS_preadv, SYS_preadv2, SYS_pwrite64, SYS_pwritev,
    SYS_pwritev2, SYS_read, SYS_readahead, SYS_readlinkat, SYS_readv, SYS_removexattr, SYS_renameat2,
    SYS_sendfile, SYS_setxattr, SYS_splice, SYS_statfs, SYS_statx, SYS_symlinkat, SYS_sync,     SYS_syncfs, SYS_tee, SYS_truncate, SYS_umask, SYS_unlinkat, SYS_utimensat, SYS_vmsplice, SYS_write, SYS_writev,
    SYS_inotify_add_watch, SYS_inotify_init1, SYS_inotify_rm_watch, SYS_io_cancel, SYS_io_destroy, SYS_io_getevents,
    SYS_io_setup, SYS_io_submit, IO_PGETEVENTS, SYS_memfd_create, SYS_memfd_secret, SYS_pipe2, SYS_eventfd2,
    SYS_landlock_add_rule, SYS_landlock_create_ruleset, SYS_landlock_restrict_self, CACHESTAT,
    // Memory.
    SYS_brk, SYS_get_mempolicy, SYS_madvise, SYS_mbind, SYS_membarrier, SYS_mincore, SYS_mlock, SYS_mlock2,
    SYS_mlockall, SYS_mmap, SYS_mprotect, SYS_mremap, SYS_msync, SYS_munlock, SYS_munlockall, SYS_munmap,
    SYS_pkey_alloc, SYS_pkey_free, SYS_pkey_mprotect, SYS_process_madvise, SYS_process_mrelease, SYS_process_vm_readv,
    SYS_process_vm_writev, SYS_remap_file_pages, SYS_set_mempolicy, SYS_set_mempolicy_home_node,
    // Processes, threads, signals.
    SYS_capget, SYS_capset, SYS_execve, SYS_execveat, SYS_exit, SYS_exit_group, SYS_futex, SYS_futex_waitv,
    SYS_get_robust_list, SYS_getcpu, SYS_getegid, SYS_geteuid, SYS_getgid, SYS_getgroups, SYS_getpgid, SYS_getpid,
    SYS_getppid, SYS_getpriority, SYS_getresgid, SYS_getresuid, SYS_getrusage, SYS_getsid, SYS_gettid,
    SYS_getuid, SYS_ioprio_get, SYS_ioprio_set, SYS_kcmp, SYS_kill, SYS_pidfd_getfd, SYS_pidfd_open,
    SYS_pidfd_send_signal, SYS_prctl, SYS_prlimit64, SYS_ptrace, SYS_restart_syscall, SYS_rseq, SYS_rt_sigaction,
    SYS_rt_sigpending, SYS_rt_sigprocmask, SYS_rt_sigqueueinfo, SYS_rt_sigreturn, SYS_rt_sigsuspend,
    SYS_rt_sigtimedwait, SYS_rt_tgsigqueueinfo, SYS_sched_get_priority_max, SYS_sched_get_priority_min,
    SYS_sched_getaffinity, SYS_sched_getattr, SYS_sched_getparam, SYS_sched_getscheduler, SYS_sched_rr_get_interval,
    SYS_sched_setaffinity, SYS_sched_setattr, SYS_sched_setparam, SYS_sched_setscheduler, SYS_sched_yield,
    SYS_seccomp, SYS_set_robust_list, SYS_set_tid_address, SYS_setfsgid, SYS_setfsuid, SYS_setgid, SYS_setgroups,
    SYS_setpgid, SYS_setpriority, SYS_setregid, SYS_setresgid, SYS_setresuid, SYS_setreuid,     SYS_setsid, SYS_setuid, SYS_sigaltstack, SYS_signalfd4, SYS_tgkill, SYS_tkill, SYS_wait4, SYS_waitid,
    // Time.
    SYS_adjtimex, SYS_clock_adjtime, SYS_clock_getres, SYS_clock_gettime, SYS_clock_nanosleep, SYS_getitimer,
    SYS_gettimeofday, SYS_nanosleep, SYS_setitimer, SYS_timer_create, SYS_timer_delete, SYS_timer_getoverrun,
    SYS_timer_gettime, SYS_timer_settime, SYS_timerfd_create, SYS_timerfd_gettime, SYS_timerfd_settime, SYS_times,
    // Waiting, talking.
    SYS_accept, SYS_accept4, SYS_bind, SYS_connect, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait,
    SYS_epoll_pwait2, SYS_getpeername, SYS_getsockname, SYS_getsockopt, SYS_listen, SYS_mq_getsetattr, SYS_mq_notify,
    SYS_mq_open, SYS_mq_timedreceive, SYS_mq_timedsend, SYS_mq_unlink, SYS_msgctl, SYS_msgget, SYS_msgrcv,
    SYS_msgsnd, SYS_ppoll, SYS_pselect6, SYS_recvfrom, SYS_recvmmsg, SYS_recvmsg, SYS_semctl, SYS_semget, SYS_semop,
    SYS_semtimedop, SYS_sendmmsg, SYS_sendmsg, SYS_sendto, SYS_setsockopt, SYS_shmat, SYS_shmctl, SYS_shmdt,
    SYS_shmget, SYS_shutdown,
    // The rest.
    SYS_getrandom, SYS_sysinfo, SYS_uname,
];

/// Allowed besides on this architecture: the older forms of the same calls.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const ALLOWED_HERE: &[c_long] = &[
    SYS_access, SYS_alarm, SYS_arch_prctl, SYS_chmod, SYS_chown, SYS_creat, SYS_dup2, SYS_epoll_create,
    SYS_epoll_wait, SYS_eventfd, SYS_fork, SYS_futimesat, SYS_getdents, SYS_getpgrp, SYS_inotify_init, SYS_lchown,
    SYS_link, SYS_lstat, SYS_mkdir, SYS_mknod, SYS_modify_ldt, SYS_open, SYS_pause, SYS_pipe, SYS_poll, SYS_readlink,
    SYS_rename, SYS_rmdir, SYS_select, SYS_signalfd, SYS_stat, SYS_symlink, SYS_time, SYS_unlink, SYS_utime,
    SYS_utimes, SYS_vfork, SYS_getrlimit, SYS_setrlimit, SYS_renameat, SYS_sync_file_range,
];
/// renameat, sync_file_range, getrlimit, setrlimit.
#[cfg(target_arch = "aarch64")]
const ALLOWED_HERE: &[c_long] = &[38, 84, 163, 164];

/// Programs do without, where they are told that there is none.
const IO_URING: [c_long; 3] = [SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register];

/// Known, and refused with EPERM: who may make the call outside, and its name if that is not its number's.
#[rustfmt::skip]
const REFUSED: &[(c_long, Caller, &str)] = &[
    (SYS_acct, Root, "acct"), (SYS_add_key, Anybody, "add_key"), (SYS_bpf, Anybody, "bpf"), (SYS_chroot, Root, "chroot"),
    (SYS_clock_settime, Root, "clock_settime"), (SYS_delete_module, Root, "delete_module"),
    (SYS_fanotify_init, Anybody, "fanotify_init"), (SYS_fanotify_mark, Anybody, "fanotify_mark"),
    (SYS_finit_module, Root, "finit_module"), (SYS_fsconfig, Root, "fsconfig"), (SYS_fsmount, Root, "fsmount"),
    (SYS_fsopen, Root, "fsopen"), (SYS_fspick, Root, "fspick"), (SYS_init_module, Root, "init_module"),
    (SYS_kexec_load, Root, "kexec_load"), (SYS_keyctl, Anybody, "keyctl"), (SYS_migrate_pages, Anybody, "migrate_pages"),
    (SYS_mount, Root, "mount"), (SYS_mount_setattr, Root, "mount_setattr"), (SYS_move_mount, Root, "move_mount"),
    (SYS_move_pages, Anybody, "move_pages"), (SYS_name_to_handle_at, Anybody, "name_to_handle_at"),
    (SYS_open_by_handle_at, Root, "open_by_handle_at"), (SYS_open_tree, Anybody, "open_tree"),
    (SYS_perf_event_open, Anybody, "perf_event_open"), (SYS_pivot_root, Root, "pivot_root"),
    (SYS_quotactl, Root, "quotactl"), (SYS_quotactl_fd, Root, "quotactl_fd"), (SYS_reboot, Root, "reboot"),
    (SYS_request_key, Anybody, "request_key"), (SYS_setdomainname, Root, "setdomainname"),
    (SYS_sethostname, Root, "sethostname"), (SYS_setns, Anybody, "setns"), (SYS_settimeofday, Root, "settimeofday"),
    (SYS_swapoff, Root, "swapoff"), (SYS_swapon, Root, "swapon"), (SYS_syslog, Anybody, "syslog"),
    (SYS_umount2, Root, "umount"), (SYS_userfaultfd, Anybody, "userfaultfd"), (SYS_vhangup, Root, "vhangup"),
];
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[(c_long, Caller, &str)] =
    &[(SYS_iopl, Root, "iopl"), (SYS_ioperm, Root, "ioperm"), (SYS_kexec_file_load, Root, "kexec_file_load")];
#[cfg(target_arch = "aarch64")]
const REFUSED_HERE: &[(c_long, Caller, &str)] = &[];

/// Who may make a call that is refused here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caller {
    Root,
    Anybody,
}

use Caller::{Anybody, Root};

/// A call that is refused: who may make it elsewhere, and its name.
pub fn refused(number: c_long) -> Option<(Caller, &'static str)> {
    let found = REFUSED.iter().chain(REFUSED_HERE).find(|(refused, ..)| *refused == number)?;
    Some((found.1, found.2))
}

/// What a task's init decides on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Variant {
    /// The formats of programs that are executed.
    pub programs: bool,
    /// Locks on files.
    pub locks: bool,
    /// What is made to lock something.
    pub lock_files: bool,
    /// Attributes whose values are asked for, or that are removed.
    pub attributes: bool,
    /// What standard output and error are.
    pub outputs: bool,
    /// Programs that take on others' rights when they are executed: root has them.
    pub rights: bool,
}

/// The filters of all tasks.
#[derive(Debug)]
pub struct Filters {
    plain: BpfProgram,
    watched: [BpfProgram; 32],
}

impl Variant {
    fn of([programs, locks, lock_files, outputs, rights]: [bool; 5]) -> Self {
        Self { programs, locks, lock_files, attributes: false, outputs, rights }
    }
}

impl Filters {
    /// Compiles them.
    pub fn compile() -> Self {
        let variant = |bits: usize| Variant::of([1, 2, 4, 8, 16].map(|bit| bits & bit != 0));
        Self { plain: compile(None, &[]), watched: std::array::from_fn(|bits| compile(Some(variant(bits)), &[])) }
    }

    /// The one that refuses without a question.
    pub fn plain(&self) -> &BpfProgram {
        &self.plain
    }

    /// The one that has the init decide also on the use of these descriptors. Made for the task.
    pub fn with_stand_ins(&self, variant: Variant, descriptors: &[u32]) -> BpfProgram {
        compile(Some(variant), descriptors)
    }

    /// The one that has the init decide. Made for the task where it is a rare one.
    pub fn watched(&self, variant: Variant) -> Cow<'_, BpfProgram> {
        let Variant { programs, locks, lock_files, attributes, outputs, rights } = variant;
        if attributes {
            return Cow::Owned(compile(Some(variant), &[]));
        }
        let bits = [programs, locks, lock_files, outputs, rights].into_iter().rev();
        Cow::Borrowed(&self.watched[bits.fold(0, |number, bit| 2 * number + usize::from(bit))])
    }
}

/// What becomes of one call in a filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Rule {
    verdict: Verdict,
    /// Arguments that are descriptors: init decides if there is a stand-in at one.
    uses: &'static [u32],
    /// Unless the second argument is one of these.
    harmless: &'static [u32],
}

/// What becomes of one call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Return(u32),
    /// No new namespaces; the flags are this argument.
    Namespaces(u32),
    /// No devices; the mode is this argument.
    MakeNode(u32),
    /// With something in memory; its address is this argument.
    Points(u32),
    /// But for letting go.
    LockFile,
    /// What locks.
    Control,
    /// What must not be there, is added to, or may be shared memory; the flags are this argument.
    Open(u32),
    /// What is added to, or may be shared memory; the flags are this argument.
    OpenToAdd(u32),
    /// Only to where nothing is.
    RenameToNew,
    /// Holes and a little room, but neither much room nor what few file systems do.
    Allocate,
    /// Unix, IPv4, IPv6; of netlink only routes.
    Socket,
    /// No typing into terminals; clones of files, if init makes them, and flags that workers do not have.
    Ioctl,
    IoctlOfWatched,
    /// A priority above the ordinary one, by nice value, policy or for the disk: that which a process gives itself before it is the
    /// program is none, for it must not wait for its init.
    Raise,
    RaisePolicy,
    RaiseDisk,
    /// What changes nothing about the security of a program.
    Personality,
    /// Within standard output or error, but for asking where it is.
    SeekOutput,
    /// Standard output or error.
    Output,
    /// What standard output or error is; the flags are this argument.
    StatOutput(u32),
    /// Ids that have no fixed place, from this argument on.
    Owners(u32, u32),
    /// Those of the init itself go on ([`sys::poll`]).
    UnlessInit,
}

/// What becomes of a call; for a task that nobody watches, of all that is refused.
fn verdict(number: c_long, watched: Option<Variant>) -> Verdict {
    let is_watched = |what: fn(&Variant) -> bool| watched.as_ref().is_some_and(what);
    match number {
        _ if number == SYS_clone => Verdict::Namespaces(0),
        _ if number == SYS_unshare => Verdict::Namespaces(0),
        _ if makes_node(number).is_some() && is_watched(|variant| variant.lock_files) => Verdict::Return(NOTIFY),
        _ if let Some((_, _, mode)) = makes_node(number) => Verdict::MakeNode(mode as u32),
        _ if [SYS_socket, SYS_socketpair].contains(&number) => Verdict::Socket,
        _ if number == SYS_ioctl && watched.is_some() => Verdict::IoctlOfWatched,
        _ if number == SYS_ioctl => Verdict::Ioctl,
        _ if number == SYS_copy_file_range && watched.is_some() => Verdict::Return(NOTIFY),
        _ if number == SYS_personality => Verdict::Personality,
        _ if number == SYS_fallocate && watched.is_some() => Verdict::Allocate,
        _ if number == SYS_connect && watched.is_some() => Verdict::Return(NOTIFY),
        _ if number == SYS_sendto && watched.is_some() => Verdict::Points(4),
        // Whether it has an address is in memory, out of a filter's sight.
        _ if number == SYS_sendmsg && watched.is_some() => Verdict::UnlessInit,
        _ if number == SYS_sendmmsg && watched.is_some() => Verdict::Return(NOTIFY),
        // A number that no process of the task has may be one of its client's machine.
        _ if number == SYS_kill && watched.is_some() => Verdict::UnlessInit,
        // Without room for an answer it only asks for the interface's version, which libraries do as they are loaded.
        _ if number == SYS_capget && watched.is_some() => Verdict::Points(1),
        _ if number == SYS_flock && is_watched(|variant| variant.locks) => Verdict::LockFile,
        _ if number == SYS_fcntl && is_watched(|variant| variant.locks) => Verdict::Control,
        _ if [SYS_execve, SYS_execveat].contains(&number) && is_watched(|variant| variant.programs) => {
            Verdict::Return(NOTIFY)
        }
        // The task's own program takes on none, as its client has seen.
        _ if number == SYS_execve && is_watched(|variant| variant.rights) => Verdict::UnlessInit,
        _ if IO_URING.contains(&number) && watched.is_none() => Verdict::Return(REFUSE),
        _ if number == SYS_io_uring_setup => Verdict::Return(NOTIFY),
        _ if [SYS_mq_open, SYS_shmget, SYS_semget, SYS_msgget].contains(&number) && watched.is_some() => {
            Verdict::Return(NOTIFY)
        }
        _ if number == SYS_sched_setattr && watched.is_some() => Verdict::Return(NOTIFY),
        _ if number == SYS_setpriority && watched.is_some() => Verdict::Raise,
        _ if number == SYS_sched_setscheduler && watched.is_some() => Verdict::RaisePolicy,
        _ if number == SYS_ioprio_set && watched.is_some() => Verdict::RaiseDisk,
        _ if name_of_attribute(number).is_some() && watched.is_some() => Verdict::Return(NOTIFY),
        _ if asks_for_attribute(number) && is_watched(|variant| variant.attributes) => Verdict::UnlessInit,
        _ if number == SYS_openat && is_watched(|variant| variant.lock_files) => Verdict::Open(2),
        #[cfg(target_arch = "x86_64")]
        _ if number == SYS_open && is_watched(|variant| variant.lock_files) => Verdict::Open(1),
        _ if number == SYS_openat && watched.is_some() => Verdict::OpenToAdd(2),
        #[cfg(target_arch = "x86_64")]
        _ if number == SYS_open && watched.is_some() => Verdict::OpenToAdd(1),
        // Its flags are in memory. Few programs use it.
        _ if number == SYS_openat2 && is_watched(|variant| variant.lock_files) => Verdict::UnlessInit,
        _ if number == SYS_setgroups && watched.is_some() => Verdict::Return(NOTIFY),
        _ if let Some((at, kinds)) = owners(number).filter(|_| watched.is_some()) => {
            Verdict::Owners(at as u32, kinds.len() as u32)
        }
        _ if number == SYS_lseek && watched.is_some() => Verdict::SeekOutput,
        _ if number == SYS_ftruncate && watched.is_some() => Verdict::Output,
        _ if number == SYS_fstat && is_watched(|variant| variant.outputs) => Verdict::Output,
        _ if number == SYS_newfstatat && is_watched(|variant| variant.outputs) => Verdict::StatOutput(3),
        _ if number == SYS_statx && is_watched(|variant| variant.outputs) => Verdict::StatOutput(2),
        _ if number == SYS_renameat2 && is_watched(|variant| variant.lock_files) => Verdict::RenameToNew,
        _ if makes(number).is_some() && is_watched(|variant| variant.lock_files) => Verdict::Return(NOTIFY),
        _ if ALLOWED.contains(&number) || ALLOWED_HERE.contains(&number) => Verdict::Return(ALLOW),
        _ if refused(number).is_some() => Verdict::Return(no(watched)),
        // clone3 too: its flags are out of a filter's sight, and libc falls back to clone.
        _ => Verdict::Return(UNKNOWN),
    }
}

/// Calls that set priorities.
pub const RAISES: [c_long; 4] = [SYS_setpriority, SYS_sched_setscheduler, SYS_sched_setattr, SYS_ioprio_set];

/// Which argument of a call that sets an attribute of a file is the attribute's name.
pub fn name_of_attribute(number: c_long) -> Option<usize> {
    [SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr].contains(&number).then_some(1)
}

/// Whether a call asks for an attribute of a file, or removes it: its second argument is the attribute's name.
pub fn asks_for_attribute(number: c_long) -> bool {
    const CALLS: [c_long; 6] =
        [SYS_getxattr, SYS_lgetxattr, SYS_fgetxattr, SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr];
    CALLS.contains(&number)
}

/// Which arguments of a call that makes a folder, link or pipe, or renames something to where nothing is, are the folder that the name is relative to, if there is one, and the name.
pub fn makes(number: c_long) -> Option<(Option<usize>, usize)> {
    #[cfg(target_arch = "x86_64")]
    match number {
        _ if number == SYS_mkdir => return Some((None, 0)),
        _ if number == SYS_link || number == SYS_symlink => return Some((None, 1)),
        _ => {}
    }
    match number {
        _ if number == SYS_mkdirat => Some((Some(0), 1)),
        _ if number == SYS_linkat => Some((Some(2), 3)),
        _ if number == SYS_symlinkat => Some((Some(1), 2)),
        _ if number == SYS_renameat2 => Some((Some(2), 3)),
        _ => None,
    }
}

/// Which arguments of a call that makes a pipe or device are the folder that the name is relative to, the name, and the mode.
pub fn makes_node(number: c_long) -> Option<(Option<usize>, usize, usize)> {
    match number {
        #[cfg(target_arch = "x86_64")]
        _ if number == SYS_mknod => Some((None, 0, 1)),
        _ if number == SYS_mknodat => Some((Some(0), 1, 2)),
        _ => None,
    }
}

/// What becomes of a call that is refused.
fn no(watched: Option<Variant>) -> u32 {
    if watched.is_some() { NOTIFY } else { REFUSE }
}

/// Compiles the filter of a task whose init decides on this; `None`: nothing is decided, what is refused returns an error. Of a watched
/// task init decides also on calls that use one of these `descriptors`.
fn compile(watched: Option<Variant>, descriptors: &[u32]) -> BpfProgram {
    let numbers = ALLOWED.iter().chain(ALLOWED_HERE).copied();
    let numbers = numbers.chain(REFUSED.iter().chain(REFUSED_HERE).map(|(number, ..)| *number));
    let beyond = 1 + numbers.max().expect("the lists are not empty");
    let mut ranges: Vec<(u32, Rule)> = Vec::new();
    for number in 0..=beyond {
        let rule = match descriptors {
            [] => Rule { verdict: verdict(number, watched), uses: &[], harmless: &[] },
            _ if number == SYS_ppoll => Rule { verdict: Verdict::UnlessInit, uses: &[], harmless: &[] },
            _ if stand_ins::names_in_memory(number) => {
                Rule { verdict: Verdict::Return(NOTIFY), uses: &[], harmless: &[] }
            }
            _ => Rule {
                verdict: verdict(number, watched),
                uses: stand_ins::arguments(number),
                harmless: stand_ins::harmless(number),
            },
        };
        if ranges.last().is_none_or(|(_, last)| *last != rule) {
            ranges.push((number as u32, rule));
        }
    }
    let foreign = if watched.is_some() { NOTIFY } else { SECCOMP_RET_KILL_PROCESS };
    let x32 = if watched.is_some() { NOTIFY } else { UNKNOWN };
    let mut program = vec![
        instruction(LOAD, 0, 0, ARCHITECTURE),
        instruction(JUMP_EQUAL, 1, 0, NATIVE),
        instruction(RETURN, 0, 0, foreign),
        instruction(LOAD, 0, 0, NUMBER),
        // x32 calls have numbers from 2^30 up.
        instruction(JUMP_AT_LEAST, 0, 1, X32),
        instruction(RETURN, 0, 0, x32),
    ];
    search(&ranges, descriptors, no(watched), &mut program);
    program
}

/// What a filter answers to a call, found as the kernel does it.
pub fn evaluate(program: &BpfProgram, data: &seccomp_data) -> u32 {
    let (mut at, mut value) = (0, 0);
    while let Some(step) = program.get(at) {
        at += 1;
        let jump = |is_so: bool| usize::from(if is_so { step.jt } else { step.jf });
        match step.code {
            LOAD => value = field(data, step.k),
            JUMP_ALWAYS => at += step.k as usize,
            JUMP_EQUAL => at += jump(value == step.k),
            JUMP_AT_LEAST => at += jump(value >= step.k),
            JUMP_ANY_BIT => at += jump(value & step.k != 0),
            _ => return step.k,
        }
    }
    NOTIFY
}

/// The 32 bits at an offset of what a filter sees.
fn field(data: &seccomp_data, offset: u32) -> u32 {
    match offset {
        NUMBER => data.nr as u32,
        ARCHITECTURE => data.arch,
        _ => {
            let argument =
                data.args.get((offset.saturating_sub(argument(0)) / 8) as usize).copied().unwrap_or_default();
            // Both architectures have the lower half first.
            if offset % 8 == 4 { (argument >> 32) as u32 } else { argument as u32 }
        }
    }
}

fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// Appends the search among `ranges`, each from its number up to the next one's.
fn search(ranges: &[(u32, Rule)], descriptors: &[u32], no: u32, program: &mut BpfProgram) {
    if let [(_, rule)] = ranges {
        look_for(rule, descriptors, program);
        return leaf(rule.verdict, no, program);
    }
    let (low, high) = ranges.split_at(ranges.len() / 2);
    let at = program.len();
    search(low, descriptors, no, program);
    let beyond = (program.len() - at) as u32;
    match u8::try_from(beyond) {
        Ok(beyond) => program.insert(at, instruction(JUMP_AT_LEAST, beyond, 0, high[0].0)),
        // A conditional jump reaches no further, so the way up goes over an unconditional one.
        Err(_) => drop(
            program
                .splice(at..at, [instruction(JUMP_AT_LEAST, 0, 1, high[0].0), instruction(JUMP_ALWAYS, 0, 0, beyond)]),
        ),
    }
    search(high, descriptors, no, program);
}

/// Has init decide on a call that uses one of these descriptors.
fn look_for(rule: &Rule, descriptors: &[u32], program: &mut BpfProgram) {
    if rule.uses.is_empty() {
        return;
    }
    let checks = rule.uses.len() * (1 + descriptors.len());
    if !rule.harmless.is_empty() {
        program.push(instruction(LOAD, 0, 0, argument(1)));
        for (at, value) in rule.harmless.iter().enumerate() {
            // Over the rest of these, the checks, the jump and the answer.
            program.push(instruction(JUMP_EQUAL, (rule.harmless.len() - at - 1 + checks + 2) as u8, 0, *value));
        }
    }
    let end = program.len() + checks;
    for at in rule.uses {
        program.push(instruction(LOAD, 0, 0, argument(*at)));
        for number in descriptors {
            // To the answer, which is behind the jump.
            program.push(instruction(JUMP_EQUAL, (end - program.len()) as u8, 0, *number));
        }
    }
    program.extend([instruction(JUMP_ALWAYS, 0, 0, 1), instruction(RETURN, 0, 0, NOTIFY)]);
}

/// `no`: what becomes of calls that are refused for their arguments.
fn leaf(verdict: Verdict, no: u32, program: &mut BpfProgram) {
    let answer = |value| instruction(RETURN, 0, 0, value);
    match verdict {
        Verdict::Return(value) => program.push(answer(value)),
        Verdict::Namespaces(at) => any_bit(at, NAMESPACE_FLAGS, [no, ALLOW], program),
        // Of the kinds of files only devices have the one bit and not the other.
        Verdict::MakeNode(at) => program.extend([
            instruction(LOAD, 0, 0, argument(at)),
            instruction(JUMP_ANY_BIT, 0, 2, S_IFCHR),
            instruction(JUMP_ANY_BIT, 1, 0, S_IFREG),
            answer(no),
            answer(ALLOW),
        ]),
        Verdict::Points(at) => program.extend([
            instruction(LOAD, 0, 0, argument(at)),
            instruction(JUMP_EQUAL, 0, 2, 0),
            instruction(LOAD, 0, 0, argument(at) + 4),
            instruction(JUMP_EQUAL, 1, 0, 0),
            answer(NOTIFY),
            answer(ALLOW),
        ]),
        Verdict::Open(at) => opens(at, O_EXCL | O_APPEND, program),
        Verdict::OpenToAdd(at) => opens(at, O_APPEND, program),
        Verdict::RenameToNew => any_bit(4, RENAME_NOREPLACE, [NOTIFY, ALLOW], program),
        Verdict::Owners(at, count) => owners::names_wide(at, count, program),
        Verdict::Allocate => allocates(program),
        Verdict::SeekOutput => seeks_output(program),
        Verdict::StatOutput(flags) => asks_what_output_is(flags, program),
        Verdict::Output => equals(0, OUTPUTS.map(|output| (output, NOTIFY)), program),
        Verdict::LockFile => any_bit(1, LOCK_UN as u32, [ALLOW, NOTIFY], program),
        Verdict::Control => {
            let locks = [F_GETLK, F_OFD_GETLK, F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW];
            equals(1, locks.map(|lock| (lock as u32, NOTIFY)), program);
        }
        Verdict::Socket => program.extend([
            instruction(LOAD, 0, 0, argument(0)),
            instruction(JUMP_EQUAL, 5, 0, AF_UNIX as u32),
            instruction(JUMP_EQUAL, 4, 0, AF_INET as u32),
            instruction(JUMP_EQUAL, 3, 0, AF_INET6 as u32),
            instruction(JUMP_EQUAL, 0, 3, AF_NETLINK as u32),
            instruction(LOAD, 0, 0, argument(2)),
            instruction(JUMP_EQUAL, 0, 1, NETLINK_ROUTE as u32),
            answer(ALLOW),
            answer(NO_FAMILY),
        ]),
        Verdict::Ioctl => equals(1, TYPING.map(|request| (request, REFUSE)), program),
        Verdict::IoctlOfWatched => {
            let asked = SET_FLAGS.into_iter().chain(READ_FLAGS).chain([copying::CLONE_FILE, copying::CLONE_RANGE]);
            let typing = TYPING.map(|request| (request, REFUSE));
            equals(1, typing.into_iter().chain(asked.map(|request| (request, NOTIFY))), program);
        }
        Verdict::UnlessInit => program.extend([
            instruction(LOAD, 0, 0, argument(sys::INIT_SIGN_AT)),
            instruction(JUMP_EQUAL, 0, 1, sys::INIT_SIGN),
            answer(ALLOW),
            answer(NOTIFY),
        ]),
        Verdict::Raise => any_bit(2, 1 << 31, [NOTIFY, ALLOW], program),
        Verdict::RaisePolicy => raises_policy(program),
        Verdict::RaiseDisk => raises_disk(program),
        Verdict::Personality => program.extend([
            // Only asking, or Linux with or without: UNAME26 0x20000, ADDR_NO_RANDOMIZE 0x40000, PER_LINUX32 8.
            instruction(LOAD, 0, 0, argument(0)),
            instruction(JUMP_EQUAL, 1, 0, u32::MAX),
            instruction(JUMP_ANY_BIT, 1, 0, !(0x0002_0000 | 0x0004_0000 | 8)),
            answer(ALLOW),
            answer(REFUSE),
        ]),
    }
}

#[cfg(test)]
mod tests;
