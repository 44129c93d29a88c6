//! Which calls the filters let pass, stop and ask about.

use super::*;

/// What the filter answers. The arguments' upper halves are 0.
fn run(program: &BpfProgram, architecture: u32, number: u32, arguments: &[u32]) -> u32 {
    let args = std::array::from_fn(|at| arguments.get(at).copied().unwrap_or_default().into());
    evaluate(program, &seccomp_data { nr: number as i32, arch: architecture, instruction_pointer: 0, args })
}

const ALL: Variant =
    Variant { programs: true, locks: true, lock_files: true, attributes: true, outputs: true, rights: true };
const NONE: Variant =
    Variant { programs: false, locks: false, lock_files: false, attributes: false, outputs: false, rights: false };

#[test]
fn filter_agrees_with_the_lists() {
    for watched in [None, Some(NONE), Some(ALL)] {
        let program = compile(watched, &[]);
        assert!(program.len() < 1024, "{} instructions", program.len());
        for number in 0..1000 {
            let got = run(&program, NATIVE, number, &[0, 0, 9]);
            match verdict(number.into(), watched) {
                Verdict::Return(value) => assert_eq!(got, value, "call {number}"),
                Verdict::Socket => assert_eq!(got, NO_FAMILY, "call {number}"),
                Verdict::LockFile | Verdict::UnlessInit => assert_eq!(got, NOTIFY, "call {number}"),
                _ => assert_eq!(got, ALLOW, "call {number}"),
            }
        }
    }
}

#[test]
fn filter_looks_at_arguments() {
    for watched in [None, Some(ALL)] {
        let (program, no) = (compile(watched, &[]), no(watched));
        let call = |number: c_long, arguments: &[u32]| run(&program, NATIVE, number as u32, arguments);
        for flag in [CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWCGROUP] {
            assert_eq!(call(SYS_clone, &[flag as u32 | SIGCHLD as u32]), no);
            assert_eq!(call(SYS_unshare, &[flag as u32]), no);
        }
        assert_eq!(call(SYS_clone, &[(CLONE_VM | CLONE_THREAD | CLONE_SIGHAND) as u32]), ALLOW);
        assert_eq!(call(SYS_unshare, &[CLONE_FS as u32]), ALLOW);
        for family in [AF_UNIX, AF_INET, AF_INET6] {
            assert_eq!(call(SYS_socket, &[family as u32, 1, 0]), ALLOW);
            assert_eq!(call(SYS_socketpair, &[family as u32, 1, 0]), ALLOW);
        }
        for family in [AF_ALG, AF_VSOCK, AF_PACKET] {
            assert_eq!(call(SYS_socket, &[family as u32, 1, 0]), NO_FAMILY);
            assert_eq!(call(SYS_socketpair, &[family as u32, 1, 0]), NO_FAMILY, "its module would be loaded");
        }
        assert_eq!(call(SYS_socket, &[AF_NETLINK as u32, 3, NETLINK_ROUTE as u32]), ALLOW);
        assert_eq!(call(SYS_socket, &[AF_NETLINK as u32, 3, NETLINK_AUDIT as u32]), NO_FAMILY);
        assert_eq!(call(SYS_ioctl, &[0, TIOCSTI as u32]), REFUSE);
        assert_eq!(call(SYS_ioctl, &[0, TIOCGWINSZ as u32]), ALLOW);
        assert_eq!(call(SYS_personality, &[u32::MAX]), ALLOW);
        assert_eq!(call(SYS_personality, &[0x0040_0000]), REFUSE, "READ_IMPLIES_EXEC");
        assert_eq!(call(SYS_clone3, &[]), UNKNOWN);
        let few = if watched.is_some() { NOTIFY } else { ALLOW };
        assert_eq!(call(SYS_fallocate, &[3, (FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE) as u32]), ALLOW);
        assert_eq!(call(SYS_fallocate, &[3, FALLOC_FL_ZERO_RANGE as u32]), few);
        assert_eq!(call(SYS_fallocate, &[3, FALLOC_FL_COLLAPSE_RANGE as u32]), few);
        let hole = (FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE) as u32;
        for (mode, len, answer) in [(0, 1 << 20, ALLOW), (0, 1 << 30, few), (hole, 1 << 30, ALLOW)] {
            assert_eq!(call(SYS_fallocate, &[3, mode, 0, len]), answer, "{mode} {len}");
        }
        assert_eq!(call(SYS_fchownat, &[70_000, 70_000, 1000, u32::MAX, 70_000]), ALLOW, "no group");
        assert_eq!(call(SYS_setpriority, &[0, 0, 19]), ALLOW);
        assert_eq!(call(SYS_setpriority, &[0, 0, -1i32 as u32]), few);
        for policy in [SCHED_OTHER, SCHED_BATCH, SCHED_IDLE, SCHED_IDLE | SCHED_RESET_ON_FORK] {
            assert_eq!(call(SYS_sched_setscheduler, &[0, policy as u32]), ALLOW, "policy {policy}");
        }
        for policy in [SCHED_FIFO, SCHED_RR | SCHED_RESET_ON_FORK, SCHED_DEADLINE] {
            assert_eq!(call(SYS_sched_setscheduler, &[0, policy as u32]), few, "policy {policy}");
        }
        for (class, want) in [(0, ALLOW), (1, few), (2, ALLOW), (3, ALLOW)] {
            assert_eq!(call(SYS_ioprio_set, &[1, 0, class << 13 | 4]), want, "class {class}");
        }
        for (kind, want) in [(S_IFCHR, no), (S_IFBLK, no), (S_IFIFO, few), (S_IFREG, few), (S_IFSOCK, few)] {
            assert_eq!(call(SYS_mknodat, &[0, 0, kind | 0o644]), want, "{kind:o}");
        }
    }
}

#[test]
fn a_watched_task_stops_where_its_init_decides() {
    let (plain, watched) = (compile(None, &[]), compile(Some(ALL), &[]));
    let calm = compile(Some(NONE), &[]);
    for (number, arguments, in_plain, in_calm) in [
        (SYS_mount, &[][..], REFUSE, NOTIFY),
        (SYS_io_uring_setup, &[], REFUSE, NOTIFY),
        (SYS_connect, &[], ALLOW, NOTIFY),
        (SYS_fchownat, &[0, 0, 1000, 70_000], ALLOW, NOTIFY),
        (SYS_fchown, &[70_000, u32::MAX, 70_000], ALLOW, NOTIFY),
        (SYS_setresuid, &[5, u32::MAX, 1_200_345_678], ALLOW, NOTIFY),
        (SYS_setgroups, &[1], ALLOW, NOTIFY),
        (SYS_copy_file_range, &[], ALLOW, NOTIFY),
        (SYS_ioctl, &[0, copying::CLONE_FILE], ALLOW, NOTIFY),
        (SYS_ioctl, &[0, copying::CLONE_RANGE], ALLOW, NOTIFY),
        (SYS_ioctl, &[0, SET_FLAGS[0]], ALLOW, NOTIFY),
        (SYS_ioctl, &[0, SET_FLAGS[2]], ALLOW, NOTIFY),
        (SYS_ioctl, &[0, READ_FLAGS[0]], ALLOW, NOTIFY),
        (SYS_capget, &[1, 2], ALLOW, NOTIFY),
        (SYS_lseek, &[1, 0, SEEK_SET as u32], ALLOW, NOTIFY),
        (SYS_lseek, &[2, 5, SEEK_CUR as u32], ALLOW, NOTIFY),
        (SYS_ftruncate, &[1, 0], ALLOW, NOTIFY),
        (SYS_fstat, &[1], ALLOW, ALLOW),
        (SYS_newfstatat, &[2, 5, 6, AT_EMPTY_PATH as u32], ALLOW, ALLOW),
        (SYS_statx, &[1, 5, (AT_EMPTY_PATH | AT_NO_AUTOMOUNT) as u32, 7, 8], ALLOW, ALLOW),
        (SYS_sendto, &[1, 2, 3, 4, 5], ALLOW, NOTIFY),
        (SYS_sendmsg, &[1, 2, 0], ALLOW, NOTIFY),
        (SYS_sendmmsg, &[1, 2, 1, 0], ALLOW, NOTIFY),
        (SYS_kill, &[1, 0], ALLOW, NOTIFY),
        (SYS_execve, &[], ALLOW, ALLOW),
        (SYS_mkdirat, &[], ALLOW, ALLOW),
        (SYS_openat, &[0, 0, (O_CREAT | O_EXCL) as u32], ALLOW, ALLOW),
        (SYS_openat, &[0, 0, (O_CREAT | O_APPEND) as u32], ALLOW, NOTIFY),
        (SYS_openat2, &[], ALLOW, ALLOW),
        (SYS_renameat2, &[0, 0, 0, 0, RENAME_NOREPLACE], ALLOW, ALLOW),
        (SYS_mknodat, &[0, 0, S_IFIFO], ALLOW, ALLOW),
        (SYS_flock, &[0, (LOCK_EX | LOCK_NB) as u32], ALLOW, ALLOW),
        (SYS_fcntl, &[0, F_SETLK as u32], ALLOW, ALLOW),
        (SYS_fcntl, &[0, F_GETLK as u32], ALLOW, ALLOW),
        (SYS_fcntl, &[0, F_OFD_GETLK as u32], ALLOW, ALLOW),
        (SYS_fcntl, &[0, F_OFD_SETLKW as u32], ALLOW, ALLOW),
    ] {
        let of = |program| run(program, NATIVE, number as u32, arguments);
        assert_eq!([of(&plain), of(&calm), of(&watched)], [in_plain, in_calm, NOTIFY], "call {number}");
    }
    for (number, arguments) in [
        (SYS_sendto, &[1, 2, 3, 4, 0][..]),
        (SYS_sendmsg, &[1, 2, 0, 0, sys::INIT_SIGN]),
        (SYS_kill, &[1, 0, 0, 0, sys::INIT_SIGN]),
        (SYS_capget, &[1, 0]),
        (SYS_lseek, &[1, 0, SEEK_CUR as u32]),
        (SYS_lseek, &[3, 5, SEEK_SET as u32]),
        (SYS_ftruncate, &[0, 0]),
        (SYS_fstat, &[3]),
        (SYS_newfstatat, &[1, 5, 6, AT_SYMLINK_NOFOLLOW as u32]),
        (SYS_statx, &[0, 5, AT_EMPTY_PATH as u32, 7, 8]),
        (SYS_ioctl, &[0, TCGETS as u32]),
        (SYS_openat, &[0, 0, O_CREAT as u32]),
        (SYS_renameat2, &[0, 0, 0, 0, RENAME_EXCHANGE]),
        (SYS_flock, &[0, LOCK_UN as u32]),
        (SYS_fcntl, &[0, F_GETFD as u32]),
    ] {
        assert_eq!(run(&watched, NATIVE, number as u32, arguments), ALLOW, "call {number}");
    }
    for (architecture, number) in [(0x4000_0003, 1), (NATIVE, X32 | 1)] {
        assert_eq!(run(&watched, architecture, number, &[]), NOTIFY);
    }
    assert_eq!(run(&plain, 0x4000_0003, 1, &[]), SECCOMP_RET_KILL_PROCESS, "32-bit");
    assert_eq!(run(&plain, NATIVE, X32 | 1, &[]), UNKNOWN, "x32");
}

#[test]
fn uses_of_descriptors_stop_and_all_else_goes_on() {
    let many: Vec<u32> = (48..64).collect();
    assert!(compile(Some(ALL), &many).len() < 4096);
    for (numbers, used) in [(&[5, 7][..], 7), (&many, 63)] {
        let program = compile(Some(NONE), numbers);
        for (number, arguments, want) in [
            (SYS_read, &[used, 0, 1][..], NOTIFY),
            (SYS_read, &[4, used, used], ALLOW),
            (SYS_close, &[used], ALLOW),
            (SYS_fcntl, &[used, F_GETFD as u32], ALLOW),
            (SYS_fcntl, &[used, F_SETFD as u32, 1], ALLOW),
            (SYS_fcntl, &[used, F_GETFL as u32], NOTIFY),
            (SYS_ioctl, &[used, FIOCLEX as u32], ALLOW),
            (SYS_ioctl, &[used, TCGETS as u32], NOTIFY),
            (SYS_ioctl, &[1, TIOCSTI as u32], REFUSE),
            (SYS_dup3, &[used, 1], NOTIFY),
            (SYS_dup3, &[1, used], ALLOW),
            (SYS_mmap, &[0, 9, 1, 2, used], NOTIFY),
            (SYS_mmap, &[0, 9, 1, 2, u32::MAX], ALLOW),
            (SYS_splice, &[1, 0, used], NOTIFY),
            (SYS_openat, &[AT_FDCWD as u32, 0, used], ALLOW),
            (SYS_openat, &[used, 0, 0], NOTIFY),
            (SYS_ppoll, &[], NOTIFY),
            (SYS_ppoll, &[1, 1, 0, 0, sys::INIT_SIGN], ALLOW),
            (SYS_flock, &[used, LOCK_EX as u32], NOTIFY),
            (SYS_flock, &[1, LOCK_EX as u32], ALLOW),
            (SYS_mount, &[], NOTIFY),
            (SYS_getpid, &[used], ALLOW),
        ] {
            assert_eq!(run(&program, NATIVE, number as u32, arguments), want, "call {number} with {arguments:?}");
        }
    }
}
