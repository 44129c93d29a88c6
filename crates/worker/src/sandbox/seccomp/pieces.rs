//! Pieces of filters that look at arguments.

use libc::{
    AT_EMPTY_PATH, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, O_NOFOLLOW, O_RDWR, SCHED_DEADLINE, SCHED_FIFO,
    SCHED_RESET_ON_FORK, SCHED_RR, SEEK_CUR, c_int,
};
use seccompiler::BpfProgram;

use super::{ALLOW, JUMP_ANY_BIT, JUMP_AT_LEAST, JUMP_EQUAL, LOAD, NOTIFY, RETURN, argument, instruction};

/// Room from which on init looks whether there is so much, in bytes: less is left free in any case.
const ROOM_BYTES: u32 = 64 << 20;

/// Has init decide on much room, and on what few file systems do.
pub(super) fn allocates(program: &mut BpfProgram) {
    program.extend([
        instruction(LOAD, 0, 0, argument(1)),
        instruction(JUMP_ANY_BIT, 5, 0, !((FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE) as u32)),
        instruction(JUMP_ANY_BIT, 5, 0, FALLOC_FL_PUNCH_HOLE as u32),
        instruction(LOAD, 0, 0, argument(3) + 4),
        instruction(JUMP_EQUAL, 0, 2, 0),
        instruction(LOAD, 0, 0, argument(3)),
        instruction(JUMP_AT_LEAST, 0, 1, ROOM_BYTES),
        instruction(RETURN, 0, 0, NOTIFY),
        instruction(RETURN, 0, 0, ALLOW),
    ]);
}

/// Standard output and error.
pub(super) const OUTPUTS: [u32; 2] = [1, 2];

/// Has init decide on moves within standard output or error; to ask where it is moves nothing.
pub(super) fn seeks_output(program: &mut BpfProgram) {
    program.extend([
        instruction(LOAD, 0, 0, argument(0)),
        instruction(JUMP_EQUAL, 1, 0, OUTPUTS[0]),
        instruction(JUMP_EQUAL, 0, 7, OUTPUTS[1]),
        instruction(LOAD, 0, 0, argument(2)),
        instruction(JUMP_EQUAL, 0, 4, SEEK_CUR as u32),
        instruction(LOAD, 0, 0, argument(1)),
        instruction(JUMP_EQUAL, 0, 2, 0),
        instruction(LOAD, 0, 0, argument(1) + 4),
        instruction(JUMP_EQUAL, 1, 0, 0),
        instruction(RETURN, 0, 0, NOTIFY),
        instruction(RETURN, 0, 0, ALLOW),
    ]);
}

/// Has init decide on questions what standard output or error is: those that name no path.
pub(super) fn asks_what_output_is(flags: u32, program: &mut BpfProgram) {
    program.extend([
        instruction(LOAD, 0, 0, argument(0)),
        instruction(JUMP_EQUAL, 1, 0, OUTPUTS[0]),
        instruction(JUMP_EQUAL, 0, 3, OUTPUTS[1]),
        instruction(LOAD, 0, 0, argument(flags)),
        instruction(JUMP_ANY_BIT, 0, 1, AT_EMPTY_PATH as u32),
        instruction(RETURN, 0, 0, NOTIFY),
        instruction(RETURN, 0, 0, ALLOW),
    ]);
}

/// Has init decide on policies of real time.
pub(super) fn raises_policy(program: &mut BpfProgram) {
    let policies = [SCHED_FIFO, SCHED_RR, SCHED_DEADLINE].map(|policy| policy as u32);
    let both = policies.into_iter().chain(policies.map(|policy| policy | SCHED_RESET_ON_FORK as u32));
    equals(1, both.map(|policy| (policy, NOTIFY)), program);
}

/// Has init decide on the highest class of disk requests: of the classes only that has the one bit and not the other.
pub(super) fn raises_disk(program: &mut BpfProgram) {
    program.extend([
        instruction(LOAD, 0, 0, argument(2)),
        instruction(JUMP_ANY_BIT, 2, 0, 2 << 13),
        instruction(JUMP_ANY_BIT, 0, 1, 1 << 13),
        instruction(RETURN, 0, 0, NOTIFY),
        instruction(RETURN, 0, 0, ALLOW),
    ]);
}

/// Has init decide on what is opened with any of these flags, or as shared memory is: to be changed, and not through a link.
pub(super) fn opens(at: u32, flags: c_int, program: &mut BpfProgram) {
    program.extend([
        instruction(LOAD, 0, 0, argument(at)),
        instruction(JUMP_ANY_BIT, 2, 0, flags as u32),
        instruction(JUMP_ANY_BIT, 0, 2, O_NOFOLLOW as u32),
        instruction(JUMP_ANY_BIT, 0, 1, O_RDWR as u32),
        instruction(RETURN, 0, 0, NOTIFY),
        instruction(RETURN, 0, 0, ALLOW),
    ]);
}

/// The first answer if the argument has any of these bits, else the second.
pub(super) fn any_bit(at: u32, bits: u32, [any, none]: [u32; 2], program: &mut BpfProgram) {
    program.extend([
        instruction(LOAD, 0, 0, argument(at)),
        instruction(JUMP_ANY_BIT, 0, 1, bits),
        instruction(RETURN, 0, 0, any),
        instruction(RETURN, 0, 0, none),
    ]);
}

/// The answer that belongs to the argument's value; what is not named is allowed.
pub(super) fn equals(at: u32, answers: impl IntoIterator<Item = (u32, u32)>, program: &mut BpfProgram) {
    program.push(instruction(LOAD, 0, 0, argument(at)));
    for (value, answer) in answers {
        program.extend([instruction(JUMP_EQUAL, 0, 1, value), instruction(RETURN, 0, 0, answer)]);
    }
    program.push(instruction(RETURN, 0, 0, ALLOW));
}
