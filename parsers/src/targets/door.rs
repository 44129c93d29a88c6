//! The door of the client daemon: what any program of the same user can write into its socket, and what it answers.

use super::{SMALL, made};
use crate::{Draw, Target};
use base::batch::{Batch, BatchTask, Priority};
use base::codec::Encode;
use base::door::{self, Options, Reply, Request, Scheduling, World};
use base::{BatchId, ExitStatus, JobId, TaskId, WindowSize};

/// What a caller says.
pub const REQUEST: Target =
    Target { name: "door_request", check: again::<Request>, draw: |draw| request(draw).to_bytes(), heap };
/// What it is answered.
pub const REPLY: Target = Target { name: "door_reply", check: check_reply, draw: |draw| reply(draw).to_bytes(), heap };
/// Messages one after the other, as the socket gives them.
pub const STREAM: Target = Target { name: "door_stream", check: check_stream, draw: draw_stream, heap };

/// An item of a list takes four bytes or more, and its structure some dozens of heap, in a list that doubles its room.
fn heap(bytes: &[u8]) -> usize {
    SMALL + 64 * bytes.len()
}

fn again<T: Encode + PartialEq + std::fmt::Debug>(bytes: &[u8]) -> bool {
    let Ok(value) = T::from_bytes(bytes) else { return false };
    assert_eq!(T::from_bytes(&value.to_bytes()).as_ref(), Ok(&value));
    true
}

fn check_reply(bytes: &[u8]) -> bool {
    if let Ok(Reply::Done(status) | Reply::Outcome(Some(status))) = Reply::from_bytes(bytes) {
        // What a caller that cannot end by the signal ends with.
        assert!(matches!(status, ExitStatus::Code(_)) || status.shell_code() >= 128);
    }
    again::<Reply>(bytes)
}

/// The first byte says how many bytes come at a time. However many, the messages are the same.
fn check_stream(bytes: &[u8]) -> bool {
    let Some((step, bytes)) = bytes.split_first() else { return false };
    let whole = messages(bytes, bytes.len().max(1));
    assert_eq!(whole, messages(bytes, usize::from(*step).max(1)));
    whole.is_some_and(|all| !all.is_empty())
}

fn messages(bytes: &[u8], step: usize) -> Option<Vec<Vec<u8>>> {
    let (mut received, mut taken) = (Vec::new(), Vec::new());
    for part in bytes.chunks(step) {
        received.extend_from_slice(part);
        while let Some(message) = door::take_frame(&mut received).ok()? {
            assert!(message.len() <= door::MESSAGE_BYTES_MAX);
            taken.push(message);
        }
    }
    Some(taken)
}

fn draw_stream(draw: &mut Draw<'_>) -> Vec<u8> {
    let framed = |draw: &mut Draw<'_>| door::frame(&Request::Ask(draw.blob(20))).expect("it is short");
    let first = framed(draw);
    [vec![draw.byte()], first, draw.list(3, framed).concat()].concat()
}

fn world(draw: &mut Draw<'_>) -> World {
    World {
        root_mount: draw.number(),
        root_inode: draw.number(),
        users: draw.number(),
        personality: draw.word(),
        capabilities: draw.number(),
        scheduling: Scheduling {
            is_raised: draw.flag(),
            policy: draw.word(),
            disk: draw.word(),
            processors: draw.word(),
        },
    }
}

fn window(draw: &mut Draw<'_>) -> WindowSize {
    WindowSize { rows: draw.word() as u16, columns: draw.word() as u16 }
}

fn options(draw: &mut Draw<'_>) -> Options {
    Options {
        no_local: draw.flag(),
        allow_write: draw.list(3, |draw| draw.blob(9)),
        verbose: draw.flag(),
        job: draw.flag().then(|| JobId(draw.number())),
        rank: draw.word(),
        becomes: draw.flag(),
        race: draw.flag(),
        net: draw.flag(),
        here: draw.flag().then(|| draw.text(9)),
        descriptors: draw.list(3, |draw| (draw.word(), draw.text(9))),
    }
}

/// A job as it is read: of its surroundings what is kept.
fn batch(draw: &mut Draw<'_>) -> Batch {
    Batch {
        id: BatchId(draw.number().into()),
        name: draw.text(9),
        surroundings: base::Command { blocked_signals: 0, nice: 0, ..made::command(draw) },
        allow_write: draw.list(2, |draw| draw.blob(9)),
        priority: draw.of(&Priority::ALL),
        is_held: draw.flag(),
        quorum: draw.word(),
        deadline_ms: draw.flag().then(|| draw.number()),
        takes_ms: draw.flag().then(|| draw.number()),
        time_limit_ms: draw.flag().then(|| draw.number()),
        retries: draw.flag().then(|| draw.word()),
        failures_max: draw.flag().then(|| draw.word()),
        assimilate: draw.flag().then(|| draw.blob(9)),
        validate: draw.flag().then(|| draw.blob(9)),
        after: draw.list(3, |draw| BatchId(draw.number().into())),
    }
}

fn request(draw: &mut Draw<'_>) -> Request {
    let version = door::VERSION;
    match draw.below(9) {
        0 | 1 => {
            let (command, options) = (Box::new(made::command(draw)), options(draw));
            Request::Run { version, command, options, window: draw.flag().then(|| window(draw)), world: world(draw) }
        }
        2 => Request::Submit { version, batch: Box::new(batch(draw)), world: world(draw) },
        3 => Request::Tasks(draw.list(3, |draw| BatchTask {
            name: draw.text(9),
            argv: draw.list(3, |draw| draw.blob(9)),
            after: draw.list(3, Draw::word),
        })),
        4 => Request::Ask(draw.blob(20)),
        5 => Request::Signal(draw.byte()),
        6 => Request::Resize(window(draw)),
        7 => Request::Outcome(TaskId(draw.number().into())),
        _ => Request::Job { version },
    }
}

fn reply(draw: &mut Draw<'_>) -> Reply {
    let status = if draw.flag() { ExitStatus::Code(draw.byte()) } else { ExitStatus::Signal(draw.byte()) };
    match draw.below(7) {
        0 => Reply::RunHere { why: draw.text(20) },
        1 => Reply::Launched { task: TaskId(draw.number().into()), terminal: draw.flag() },
        2 => Reply::Done(status),
        3 => Reply::Failed { message: draw.text(20), code: draw.byte() },
        4 => Reply::Note(draw.text(20)),
        5 => Reply::Answer(draw.blob(20)),
        _ => Reply::Outcome(draw.flag().then_some(status)),
    }
}
