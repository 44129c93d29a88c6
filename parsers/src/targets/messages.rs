//! Messages between machines: whatever is decoded is encoded and decoded again as the same, and what a part makes of a message
//! survives the way back.

use super::{SMALL, made};
use crate::{Draw, Target};
use base::{Bound, Change, Command, Stdin, TreePath, ViewUpdate, Watch};
use bytes::Bytes;
use prost::Message;
use std::collections::BTreeSet;
use wire::convert;
use wire::message::work::{
    Collect, Drive, Endings, HostAsk, HostGreeting, HostTold, JobAsk, JobOpen, JobTold, LaunchResult, Taken,
};
use wire::message::{
    self as proto, Control, Elsewhere, Exited, Hello, Launch, Offer, Open, OpenKind, OutputKind, Welcome,
};

/// The first message of a connection, from who may be anybody, and those that follow it.
pub const GREETING: Target =
    Target { name: "greeting", check: |bytes| by_kind(bytes, GREETINGS), draw: draw_greeting, heap };
/// The first message of a stream.
pub const OPEN: Target = Target { name: "open", check: check_open, draw: draw_open, heap };
/// What goes to a task.
pub const INPUT: Target = Target { name: "input", check: same::<proto::TaskInput>, draw: draw_input, heap };
/// What comes from a task.
pub const OUTPUT: Target = Target { name: "output", check: check_output, draw: draw_output, heap };
/// Answers to what was asked.
pub const REPLY: Target = Target { name: "reply", check: check_reply, draw: draw_reply, heap };
/// Jobs of workunits.
pub const WORK: Target = Target { name: "work", check: |bytes| by_kind(bytes, WORKS), draw: draw_work, heap };
/// What a task left behind.
pub const DELTA: Target = Target { name: "delta", check: check_delta, draw: draw_delta, heap };

/// A part of a list costs two bytes of a message and some hundreds of heap, while lists double their room. Messages so large that
/// this matters are counted before they are decoded (`wire::parts`).
fn heap(bytes: &[u8]) -> usize {
    SMALL + 2000 * bytes.len()
}

/// Checks one kind of message.
type Check = fn(&[u8]) -> bool;

const GREETINGS: &[Check] = &[same::<Hello>, same::<Welcome>, same::<Control>, same::<Offer>, same::<Elsewhere>];
const WORKS: &[Check] = &[
    same::<HostGreeting>,
    same::<HostAsk>,
    same::<HostTold>,
    same::<JobAsk>,
    same::<JobTold>,
    same::<Collect>,
    same::<Drive>,
    same::<Endings>,
    same::<Taken>,
    same::<LaunchResult>,
    same::<JobOpen>,
];

/// The first byte says which kind the rest is.
fn by_kind(bytes: &[u8], kinds: &[Check]) -> bool {
    bytes.split_first().is_some_and(|(kind, rest)| kinds[usize::from(*kind) % kinds.len()](rest))
}

fn same<M: Message + Default + PartialEq>(bytes: &[u8]) -> bool {
    decoded::<M>(bytes).is_some()
}

/// Decodes a message as a receiver does.
fn decoded<M: Message + Default + PartialEq>(bytes: &[u8]) -> Option<M> {
    let message = M::decode(Bytes::copy_from_slice(bytes)).ok()?;
    let again = M::decode(&message.encode_to_vec()[..]).expect("what was read is read again");
    assert!(message == again, "a message changes by being passed on");
    Some(message)
}

fn check_open(bytes: &[u8]) -> bool {
    let Some(open) = decoded::<Open>(bytes) else { return false };
    let Some(OpenKind::Launch(launch)) = open.kind else { return true };
    let launch = *launch;
    let taken = launch.command.is_none_or(|command| {
        let taken = Command::try_from(command);
        taken
            .inspect(|command| assert_eq!(Command::try_from(proto::Command::from(command)).as_ref(), Ok(command)))
            .is_ok()
    });
    let watch = launch.watch.map(Watch::try_from);
    if let Some(Ok(watch)) = &watch {
        assert_eq!(Watch::try_from(proto::Watch::from(watch)).as_ref(), Ok(watch));
        let head = [0x7f; base::watch::HEAD_BYTES];
        watch.format_of(b"/a/b.c", &head);
    }
    let stdin = launch.stdin.map(Stdin::try_from);
    if let Some(Ok(stdin)) = &stdin {
        assert_eq!(Stdin::try_from(proto::Stdin::from(stdin)).as_ref(), Ok(stdin));
    }
    let mounts = convert::mounts(launch.mounts);
    if let Ok(mounts) = &mounts {
        assert!(mounts.len() <= base::mount::MOUNTS_MAX);
    }
    let steps = launch.view.into_iter().chain(launch.copied.and_then(|copied| copied.step));
    let taken_steps = steps.map(check_view).fold(true, |all, one| all & one);
    taken
        && taken_steps
        && mounts.is_ok()
        && [watch.is_some_and(|watch| watch.is_err()), stdin.is_some_and(|stdin| stdin.is_err())] == [false; 2]
}

fn check_view(update: proto::ViewUpdate) -> bool {
    let Ok(update) = ViewUpdate::try_from(update) else { return false };
    assert_eq!(ViewUpdate::try_from(proto::ViewUpdate::from(&update)).as_ref(), Ok(&update));
    true
}

fn check_output(bytes: &[u8]) -> bool {
    let Some(output) = decoded::<proto::TaskOutput>(bytes) else { return false };
    match output.kind {
        Some(OutputKind::Exited(exited)) => {
            let status = exited.status();
            assert!(matches!(status, base::ExitStatus::Code(_)) || status.shell_code() >= 128);
            check_changes(exited.changes).is_some()
        }
        Some(OutputKind::Failed(failed)) => {
            failed.reason();
            true
        }
        _ => true,
    }
}

fn check_reply(bytes: &[u8]) -> bool {
    let Some((kind, rest)) = bytes.split_first() else { return false };
    match kind % 3 {
        0 => decoded::<proto::BindReply>(rest).is_some_and(|reply| reply.bounds.into_iter().all(check_bound)),
        1 => same::<proto::ObjectReply>(rest),
        _ => same::<proto::Answer>(rest),
    }
}

fn check_bound(bound: proto::Bound) -> bool {
    let Ok(bound) = Bound::try_from(bound) else { return false };
    assert_eq!(Bound::try_from(proto::Bound::from(&bound)).as_ref(), Ok(&bound));
    true
}

/// The delta of these changes, if all of them can be.
fn check_changes(changes: Vec<proto::Change>) -> Option<base::Delta> {
    let delta = convert::delta(changes).ok()?;
    for change in &delta.changes {
        assert_eq!(Change::try_from(proto::Change::from(change)).as_ref(), Ok(change));
    }
    Some(delta)
}

fn check_delta(bytes: &[u8]) -> bool {
    let Some(exited) = decoded::<Exited>(bytes) else { return false };
    let Some(delta) = check_changes(exited.changes) else { return false };
    if client::commit::validate(&delta).is_ok() {
        check_rules(&delta);
    }
    true
}

/// The rules of a delta once more, as slowly and plainly as they are stated ([`base::Delta`]).
fn check_rules(delta: &base::Delta) {
    use base::Action::{Directory, HardLink, LastWrite, Remove, Rename};
    let group = |change: &Change| match change.action {
        LastWrite { .. } => 0,
        Rename { .. } => 1,
        Remove => 2,
        _ => 3,
    };
    assert!(delta.changes.iter().map(group).is_sorted(), "out of order");
    for kind in 0..4 {
        let all: Vec<&Change> = delta.changes.iter().filter(|change| group(change) == kind).collect();
        let paths: BTreeSet<&TreePath> = all.iter().map(|change| &change.path).collect();
        assert_eq!(paths.len(), all.len(), "a path occurs twice");
    }
    let rest: Vec<&Change> = delta.changes.iter().filter(|change| group(change) == 3).collect();
    let is_removed =
        |path: &TreePath| delta.changes.iter().any(|change| change.action == Remove && change.path == *path);
    for (at, change) in rest.iter().enumerate() {
        assert!(
            !change.path.is_root() || matches!(change.action, Directory { replaces: false, .. }),
            "the root is replaced"
        );
        let is_needed = |other: &Change| change.path != other.path && change.path.is_within(&other.path);
        for other in rest.iter().filter(|other| is_needed(other)) {
            assert!(matches!(other.action, Directory { .. }), "something is in what is no directory");
        }
        for later in &rest[at + 1..] {
            assert!(change.path.parent().as_ref() != Some(&later.path), "a directory comes after what is in it");
            assert!(!matches!(&change.action, HardLink { to } if *to == later.path), "a link comes before its file");
        }
    }
    let lost = delta.changes.iter().filter(|change| matches!(change.action, LastWrite { .. }));
    assert!(lost.into_iter().all(|change| is_removed(&change.path)), "a last write of what has its name still");
}

fn draw_greeting(draw: &mut Draw<'_>) -> Vec<u8> {
    let hello = Hello {
        version: draw.word(),
        role: draw.word(),
        name: draw.text(20),
        secret: draw.blob(16).into(),
        cpus: draw.word(),
        memory_bytes: draw.number(),
        clock: draw.number() as i64,
        instance: draw.number(),
        platform: draw.text(20),
        tags: draw.list(4, |draw| draw.text(8)),
        system: draw.blob(32).into(),
        ..Hello::default()
    };
    let welcome = Welcome {
        version: draw.word(),
        refusal: draw.text(9),
        name: draw.text(9),
        hubs: draw.list(3, |draw| draw.blob(32).into()),
        addresses: draw.list(3, |draw| draw.text(12)),
        epoch: draw.number(),
        ..Welcome::default()
    };
    if draw.flag() {
        [&[0][..], &hello.encode_to_vec()[..]].concat()
    } else {
        [&[1][..], &welcome.encode_to_vec()[..]].concat()
    }
}

fn draw_open(draw: &mut Draw<'_>) -> Vec<u8> {
    let mount = |draw: &mut Draw<'_>| proto::Mount {
        at: draw.path().as_bytes().to_vec(),
        read_only: draw.flag(),
        no_exec: draw.flag(),
    };
    let mut mounts = draw.list(4, mount);
    mounts.sort_by(|a, b| a.at.cmp(&b.at));
    mounts.dedup_by(|a, b| a.at == b.at);
    let formats = draw.list(2, |draw| proto::Format {
        name: draw.blob(5),
        extension: draw.flag().then(|| draw.blob(4)),
        offset: draw.word(),
        magic: draw.blob(9),
        mask: draw.blob(9),
    });
    let watch = proto::Watch {
        locks: draw.flag(),
        formats,
        // Port 0 stands for others, and is told first.
        ports: if draw.flag() { vec![0, draw.word() & 0xffff] } else { draw.list(3, |draw| draw.word() & 0xffff) },
        descriptors: draw.list(3, |draw| 3 + u32::from(draw.byte() % 61)),
        ..proto::Watch::default()
    };
    let launch = Launch {
        task: draw.name::<16>().to_vec().into(),
        attempt: draw.word(),
        command: Some((&made::command(draw)).into()),
        stdin: Some(proto::Stdin {
            kind: draw.below(4) as u32,
            path: draw.path().as_bytes().to_vec(),
            offset: draw.number(),
        }),
        view: Some((&made::view_update(draw)).into()),
        objects: draw.list(3, |draw| proto::Object::new(made::digest(draw), draw.blob(20))),
        launched: draw.number() as i64,
        mounts,
        watch: draw.flag().then_some(watch),
        whole: draw.list(3, |draw| draw.blob(32).into()),
        ..Launch::default()
    };
    Open::from(OpenKind::Launch(Box::new(launch))).encode_to_vec()
}

fn draw_input(draw: &mut Draw<'_>) -> Vec<u8> {
    use proto::InputKind::{Cancel, Locked, Resize, Service, Settled, Signal, Stdin, StdinEnd};
    let kind = match draw.below(8) {
        0 => Stdin(draw.blob(40).into()),
        1 => StdinEnd(draw.flag()),
        2 => Signal(draw.word()),
        3 => Resize(draw.word()),
        4 => Cancel(draw.flag()),
        5 => Settled(draw.flag()),
        6 => Service(proto::ServiceAnswer { number: draw.number(), is_there: draw.flag() }),
        _ => Locked(draw.number()),
    };
    proto::TaskInput::from(kind).encode_to_vec()
}

fn draw_output(draw: &mut Draw<'_>) -> Vec<u8> {
    let kind = match draw.below(6) {
        5 => OutputKind::Service(proto::ServiceRequest {
            number: draw.number(),
            port: draw.word(),
            process: draw.word() as i32,
        }),
        0 => OutputKind::Stdout(draw.blob(40).into()),
        1 => {
            OutputKind::Placed(proto::Placed { worker: draw.blob(32).into(), name: draw.text(9), ..Default::default() })
        }
        2 => OutputKind::Failed(proto::Failed {
            kind: draw.word(),
            message: draw.text(20),
            errno: draw.word() as i32,
            is_passing: draw.flag(),
            is_not_begun: draw.flag(),
        }),
        _ => OutputKind::Exited(Box::new(exited(draw))),
    };
    proto::TaskOutput::from(kind).encode_to_vec()
}

fn exited(draw: &mut Draw<'_>) -> Exited {
    Exited {
        code: draw.word(),
        signal: draw.word(),
        changes: draw.list(6, |draw| (&made::change(draw)).into()),
        objects: draw.list(2, |draw| proto::Object::new(made::digest(draw), draw.blob(20))),
        faults: draw.list(2, |draw| draw.blob(9)),
        left: draw.list(2, |draw| draw.text(9)),
        ..Exited::default()
    }
}

fn draw_reply(draw: &mut Draw<'_>) -> Vec<u8> {
    let reply = proto::BindReply {
        bounds: draw.list(4, |draw| (&made::bound(draw)).into()),
        objects: draw.list(2, |draw| proto::Object::new(made::digest(draw), draw.blob(20))),
        error: draw.text(9),
        errno: draw.word() as i32,
    };
    [&[0][..], &reply.encode_to_vec()[..]].concat()
}

fn draw_work(draw: &mut Draw<'_>) -> Vec<u8> {
    let result = LaunchResult { stdout: draw.list(3, |draw| draw.blob(9).into()), ..LaunchResult::default() };
    [&[9][..], &result.encode_to_vec()[..]].concat()
}

fn draw_delta(draw: &mut Draw<'_>) -> Vec<u8> {
    exited(draw).encode_to_vec()
}
