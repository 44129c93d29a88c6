//! The system calls that a guest may make.
//!
//! An allow-list after the one that container engines use by default, without what a task has no need of and attackers
//! like. What is known and refused returns EPERM; what is unknown returns ENOSYS, so that libc falls back; calls of
//! another architecture (32-bit programs) kill the program with SIGSYS.
//!
//! The program is a binary search over ranges of call numbers: ten comparisons a call at most, and cheap to install
//! once per task. (seccompiler's own compiler compares one number after the other, and knows one error number only.)

use seccompiler::{BpfProgram, sock_filter};

use libc::*;

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
const CACHESTAT: c_long = 451;
const FCHMODAT2: c_long = 452;

const ALLOW: u32 = SECCOMP_RET_ALLOW;
const REFUSE: u32 = SECCOMP_RET_ERRNO | EPERM as u32;
const UNKNOWN: u32 = SECCOMP_RET_ERRNO | ENOSYS as u32;
const NO_FAMILY: u32 = SECCOMP_RET_ERRNO | EAFNOSUPPORT as u32;

#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xc000_00b7;

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
    SYS_shmget, SYS_shutdown, SYS_socketpair,
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

/// Known, and refused with EPERM.
#[rustfmt::skip]
const REFUSED: &[c_long] = &[
    SYS_acct, SYS_add_key, SYS_bpf, SYS_chroot, SYS_clock_settime, SYS_delete_module, SYS_fanotify_init,
    SYS_fanotify_mark, SYS_finit_module, SYS_fsconfig, SYS_fsmount, SYS_fsopen, SYS_fspick, SYS_init_module,
    SYS_io_uring_enter, SYS_io_uring_register, SYS_io_uring_setup, SYS_kexec_load, SYS_keyctl, SYS_migrate_pages,
    SYS_mount, SYS_mount_setattr, SYS_move_mount, SYS_move_pages, SYS_name_to_handle_at, SYS_open_by_handle_at,
    SYS_open_tree, SYS_perf_event_open, SYS_pivot_root, SYS_quotactl, SYS_quotactl_fd, SYS_reboot, SYS_request_key,
    SYS_setdomainname, SYS_sethostname, SYS_setns, SYS_settimeofday, SYS_swapoff, SYS_swapon, SYS_syslog, SYS_umount2,
    SYS_unshare, SYS_userfaultfd, SYS_vhangup,
];
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[c_long] = &[SYS_iopl, SYS_ioperm, SYS_kexec_file_load];
#[cfg(target_arch = "aarch64")]
const REFUSED_HERE: &[c_long] = &[];

/// What becomes of one call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Return(u32),
    /// No new namespaces.
    Clone,
    /// Unix, IPv4, IPv6; of netlink only routes.
    Socket,
    /// No typing into terminals.
    Ioctl,
    /// What changes nothing about the security of a program.
    Personality,
}

fn verdict(number: c_long) -> Verdict {
    match number {
        _ if number == SYS_clone => Verdict::Clone,
        _ if number == SYS_socket => Verdict::Socket,
        _ if number == SYS_ioctl => Verdict::Ioctl,
        _ if number == SYS_personality => Verdict::Personality,
        _ if ALLOWED.contains(&number) || ALLOWED_HERE.contains(&number) => Verdict::Return(ALLOW),
        _ if REFUSED.contains(&number) || REFUSED_HERE.contains(&number) => Verdict::Return(REFUSE),
        // clone3 too: its flags are out of a filter's sight, and libc falls back to clone.
        _ => Verdict::Return(UNKNOWN),
    }
}

/// Compiles the filter.
pub fn compile() -> BpfProgram {
    let beyond = 1 + ALLOWED.iter().chain(REFUSED).chain(ALLOWED_HERE).max().expect("the lists are not empty");
    let mut ranges: Vec<(u32, Verdict)> = Vec::new();
    for number in 0..=beyond {
        let verdict = verdict(number);
        if ranges.last().is_none_or(|(_, last)| *last != verdict) {
            ranges.push((number as u32, verdict));
        }
    }
    let mut program = vec![
        instruction(LOAD, 0, 0, ARCHITECTURE),
        instruction(JUMP_EQUAL, 1, 0, NATIVE),
        instruction(RETURN, 0, 0, SECCOMP_RET_KILL_PROCESS),
        instruction(LOAD, 0, 0, NUMBER),
    ];
    // x32 calls have numbers from 2^30 up: beyond the last range, so unknown.
    search(&ranges, &mut program);
    program
}

fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// Appends the search among `ranges`, each from its number up to the next one's.
fn search(ranges: &[(u32, Verdict)], program: &mut BpfProgram) {
    if let [(_, verdict)] = ranges {
        return leaf(*verdict, program);
    }
    let (low, high) = ranges.split_at(ranges.len() / 2);
    let at = program.len();
    program.push(instruction(JUMP_AT_LEAST, 0, 1, high[0].0));
    // A conditional jump reaches 255 instructions, so the way up goes over an unconditional one.
    program.push(instruction(JUMP_ALWAYS, 0, 0, 0));
    search(low, program);
    program[at + 1].k = (program.len() - at - 2) as u32;
    search(high, program);
}

fn leaf(verdict: Verdict, program: &mut BpfProgram) {
    let answer = |value| instruction(RETURN, 0, 0, value);
    match verdict {
        Verdict::Return(value) => program.push(answer(value)),
        Verdict::Clone => program.extend([
            instruction(LOAD, 0, 0, argument(0)),
            instruction(JUMP_ANY_BIT, 0, 1, NAMESPACE_FLAGS),
            answer(REFUSE),
            answer(ALLOW),
        ]),
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
        Verdict::Ioctl => program.extend([
            instruction(LOAD, 0, 0, argument(1)),
            instruction(JUMP_EQUAL, 2, 0, TIOCSTI as u32),
            instruction(JUMP_EQUAL, 1, 0, TIOCLINUX as u32),
            answer(ALLOW),
            answer(REFUSE),
        ]),
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
mod tests {
    use super::*;

    /// What the filter answers, by interpreting it as the kernel does.
    fn run(program: &BpfProgram, architecture: u32, number: u32, arguments: [u32; 3]) -> u32 {
        let (mut at, mut value) = (0, 0);
        for _ in 0..program.len() {
            let step = &program[at];
            at += 1;
            match step.code {
                LOAD => {
                    value = match step.k {
                        NUMBER => number,
                        ARCHITECTURE => architecture,
                        offset => arguments[(offset as usize - 16) / 8],
                    }
                }
                JUMP_ALWAYS => at += step.k as usize,
                JUMP_EQUAL => at += usize::from(if value == step.k { step.jt } else { step.jf }),
                JUMP_AT_LEAST => at += usize::from(if value >= step.k { step.jt } else { step.jf }),
                JUMP_ANY_BIT => at += usize::from(if value & step.k != 0 { step.jt } else { step.jf }),
                RETURN => return step.k,
                other => panic!("an instruction of an unknown kind: {other}"),
            }
        }
        panic!("the filter does not end");
    }

    #[test]
    fn filter_agrees_with_the_lists() {
        let program = compile();
        assert!(program.len() < 1024, "{} instructions", program.len());
        for number in 0..1000 {
            let got = run(&program, NATIVE, number, [0, 0, 9]);
            match verdict(number.into()) {
                Verdict::Return(value) => assert_eq!(got, value, "call {number}"),
                Verdict::Socket => assert_eq!(got, NO_FAMILY, "call {number}"),
                _ => assert_eq!(got, ALLOW, "call {number}"),
            }
        }
    }

    #[test]
    fn filter_looks_at_arguments() {
        let program = compile();
        let call = |number: c_long, arguments| run(&program, NATIVE, number as u32, arguments);
        for flag in [CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWCGROUP] {
            assert_eq!(call(SYS_clone, [flag as u32 | SIGCHLD as u32, 0, 0]), REFUSE);
        }
        assert_eq!(call(SYS_clone, [(CLONE_VM | CLONE_THREAD | CLONE_SIGHAND) as u32, 0, 0]), ALLOW);
        for family in [AF_UNIX, AF_INET, AF_INET6] {
            assert_eq!(call(SYS_socket, [family as u32, 1, 0]), ALLOW);
        }
        for family in [AF_ALG, AF_VSOCK, AF_PACKET] {
            assert_eq!(call(SYS_socket, [family as u32, 1, 0]), NO_FAMILY);
        }
        assert_eq!(call(SYS_socket, [AF_NETLINK as u32, 3, NETLINK_ROUTE as u32]), ALLOW);
        assert_eq!(call(SYS_socket, [AF_NETLINK as u32, 3, NETLINK_AUDIT as u32]), NO_FAMILY);
        assert_eq!(call(SYS_ioctl, [0, TIOCSTI as u32, 0]), REFUSE);
        assert_eq!(call(SYS_ioctl, [0, TIOCGWINSZ as u32, 0]), ALLOW);
        assert_eq!(call(SYS_personality, [u32::MAX, 0, 0]), ALLOW);
        assert_eq!(call(SYS_personality, [0x0040_0000, 0, 0]), REFUSE, "READ_IMPLIES_EXEC");
        assert_eq!(call(SYS_clone3, [0; 3]), UNKNOWN);
        assert_eq!(call(SYS_io_uring_setup, [0; 3]), REFUSE);
        assert_eq!(run(&program, 0x4000_0003, 1, [0; 3]), SECCOMP_RET_KILL_PROCESS, "32-bit");
        assert_eq!(run(&program, NATIVE, 0x4000_0001, [0; 3]), UNKNOWN, "x32");
    }
}
