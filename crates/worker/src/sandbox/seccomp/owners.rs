//! Calls that name users or groups.

use libc::*;
use seccompiler::BpfProgram;

use super::{ALLOW, JUMP_AT_LEAST, JUMP_EQUAL, LOAD, NOTIFY, RETURN, argument, instruction};
use crate::ids::{Owner, WIDE_MIN};

/// What a number names.
pub type Names = fn(u32) -> Owner;
const USER: Names = Owner::User;
const GROUP: Names = Owner::Group;

/// Which arguments of a call are users or groups: the first, and what it and those after it are.
pub fn owners(number: c_long) -> Option<(usize, &'static [Names])> {
    const OWNER: &[Names] = &[USER, GROUP];
    #[cfg(target_arch = "x86_64")]
    if number == SYS_chown || number == SYS_lchown {
        return Some((1, OWNER));
    }
    match number {
        _ if number == SYS_fchown => Some((1, OWNER)),
        _ if number == SYS_fchownat => Some((2, OWNER)),
        _ if number == SYS_setuid || number == SYS_setfsuid => Some((0, &[USER])),
        _ if number == SYS_setreuid => Some((0, &[USER; 2])),
        _ if number == SYS_setresuid => Some((0, &[USER; 3])),
        _ if number == SYS_setgid || number == SYS_setfsgid => Some((0, &[GROUP])),
        _ if number == SYS_setregid => Some((0, &[GROUP; 2])),
        _ if number == SYS_setresgid => Some((0, &[GROUP; 3])),
        _ => None,
    }
}

/// Has init decide where one of `count` arguments is an id without a fixed place, or nobody; the highest number stands for none.
pub(super) fn names_wide(at: u32, count: u32, program: &mut BpfProgram) {
    for at in at..at + count {
        program.extend([
            instruction(LOAD, 0, 0, argument(at)),
            instruction(JUMP_AT_LEAST, 0, 2, WIDE_MIN),
            instruction(JUMP_EQUAL, 1, 0, u32::MAX),
            instruction(RETURN, 0, 0, NOTIFY),
        ]);
    }
    program.push(instruction(RETURN, 0, 0, ALLOW));
}
