//! Calls that name users or groups.

use libc::*;
use seccompiler::BpfProgram;

use super::{ALLOW, JUMP_AT_LEAST, JUMP_EQUAL, LOAD, NOTIFY, RETURN, argument, instruction};
use crate::ids::WIDE_MIN;

/// Which kind of id an argument is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    User,
    Group,
}

/// Which arguments of a call are users or groups: the first, and what it and those after it are.
pub fn owners(number: c_long) -> Option<(usize, &'static [Kind])> {
    const OWNER: &[Kind] = &[Kind::User, Kind::Group];
    #[cfg(target_arch = "x86_64")]
    if number == SYS_chown || number == SYS_lchown {
        return Some((1, OWNER));
    }
    match number {
        _ if number == SYS_fchown => Some((1, OWNER)),
        _ if number == SYS_fchownat => Some((2, OWNER)),
        _ if number == SYS_setuid || number == SYS_setfsuid => Some((0, &[Kind::User])),
        _ if number == SYS_setreuid => Some((0, &[Kind::User; 2])),
        _ if number == SYS_setresuid => Some((0, &[Kind::User; 3])),
        _ if number == SYS_setgid || number == SYS_setfsgid => Some((0, &[Kind::Group])),
        _ if number == SYS_setregid => Some((0, &[Kind::Group; 2])),
        _ if number == SYS_setresgid => Some((0, &[Kind::Group; 3])),
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
