//! What is refused: launches and results that were changed, and those of others.

use super::*;
use crate::message::work::Instance;
use crate::message::{Attr, Budget, Change, Command, Mount, Object, OutputFile, Stdin, ViewUpdate, Watch};
use base::Digest;

const HUB: NodeId = NodeId(Digest([7; 32]));
const BRANCH: NodeId = NodeId(Digest([8; 32]));

fn check_launch(launch: &Launch, hub: NodeId) -> Result<(Parties, Statement, bool), NotSigned> {
    let (parties, claim) = Claim::of_launch(launch, hub)?;
    Ok((parties, claim.statement, claim.check()?.is_some()))
}

/// A change, and what it is called.
type Changed<T> = (&'static str, fn(&mut T));

/// A launch as the hub passes it on.
fn launch(key: &Key) -> (Launch, Statement) {
    let command = Command {
        argv: vec![b"cc".to_vec(), b"-c".to_vec()],
        env: vec![b"A=1".to_vec()],
        cwd: b"/here".to_vec(),
        limits: vec![7, 1, 1],
        ..Command::default()
    };
    let mut launch = Launch {
        task: Bytes::from_static(&[1; 16]),
        attempt: 1,
        command: Some(command),
        stdin: Some(Stdin::default()),
        launched: 5,
        place: Some(Instance { task: 3, number: 0 }),
        watch: Some(Watch::default()),
        mounts: vec![Mount { at: b"/home".to_vec(), read_only: true, no_exec: false }],
        budget: Some(Budget { paths: 1, bytes: 2 }),
        trust: 1,
        ..Launch::default()
    };
    let statement = sign_launch(key, HUB, &mut launch);
    launch.client = [&key.node().0.0[..], &[9; 8]].concat().into();
    (launch, statement)
}

#[test]
fn a_launch_is_its_client_s() {
    let key = Key::generate();
    let (launch, statement) = launch(&key);
    let client = key.node();
    assert_eq!(check_launch(&launch, HUB), Ok((Parties { client, hub: HUB }, statement, true)));
    let behind = Launch { client: [&HUB.0.0[..], &launch.client].concat().into(), ..launch.clone() };
    assert_eq!(check_launch(&behind, BRANCH), Ok((Parties { client, hub: HUB }, statement, true)), "behind a hub");
    let passed = Launch {
        view: Some(ViewUpdate { version: 3, ..ViewUpdate::default() }),
        objects: vec![Object::default()],
        client_to_hub: 77,
        tenant_number: 4,
        waiting: 9,
        ..launch.clone()
    };
    assert_eq!(check_launch(&passed, HUB).map(|checked| checked.1), Ok(statement), "what hubs do");
    let unsigned = Launch { signature: Bytes::new(), ..launch };
    assert_eq!(check_launch(&unsigned, HUB), Ok((Parties { client, hub: HUB }, statement, false)));
    assert_eq!(check_launch(&Launch::default(), HUB), Err(NotSigned::Nobody));
}

#[test]
fn a_launch_that_was_changed_is_refused() {
    let key = Key::generate();
    let (good, _) = launch(&key);
    let changes: [Changed<Launch>; 17] = [
        ("task", |launch| launch.task = Bytes::from_static(&[2; 16])),
        ("attempt", |launch| launch.attempt = 2),
        ("time", |launch| launch.launched += 1),
        ("argument", |launch| launch.command.as_mut().unwrap().argv.push(b"x".to_vec())),
        ("words", |launch| launch.command.as_mut().unwrap().argv = vec![b"cc-c".to_vec()]),
        ("variable", |launch| launch.command.as_mut().unwrap().env.clear()),
        ("folder", |launch| launch.command.as_mut().unwrap().cwd = b"/there".to_vec()),
        ("user", |launch| launch.command.as_mut().unwrap().uid = 1),
        ("limit", |launch| launch.command.as_mut().unwrap().limits[1] = 2),
        ("standard input", |launch| launch.stdin.as_mut().unwrap().kind = 1),
        ("network", |launch| launch.watch.as_mut().unwrap().network = true),
        ("output", |launch| launch.watch.as_mut().unwrap().stdout = Some(OutputFile::default())),
        ("no watch", |launch| launch.watch = None),
        ("mount", |launch| launch.mounts[0].read_only = false),
        ("budget", |launch| launch.budget.as_mut().unwrap().bytes = 3),
        ("trust", |launch| launch.trust = 3),
        ("place", |launch| launch.place.as_mut().unwrap().number = 1),
    ];
    for (what, change) in changes {
        let mut launch = good.clone();
        change(&mut launch);
        assert_eq!(check_launch(&launch, HUB), Err(NotSigned::Wrong), "{what}");
    }
    assert_eq!(check_launch(&good, BRANCH), Err(NotSigned::Wrong), "another pool's worker");
}

#[test]
fn a_launch_that_another_signed_is_refused() {
    let (key, other) = (Key::generate(), Key::generate());
    let (good, _) = launch(&key);
    // Another client's launch under this one's name: a fit signature of the wrong key.
    let mut stolen = good.clone();
    let statement = Statement::of_launch(&stolen, Parties { client: key.node(), hub: HUB });
    stolen.signature = Bytes::copy_from_slice(&other.sign(&statement.0));
    let expected = NotSigned::Other { expected: key.node(), found: other.node() };
    assert_eq!(check_launch(&stolen, HUB), Err(expected));
    let renamed = Launch { client: [&other.node().0.0[..], &[9; 8]].concat().into(), ..good };
    assert_eq!(check_launch(&renamed, HUB), Err(NotSigned::Wrong));
}

fn result() -> Exited {
    let attr = Some(Attr { mode: 0o644, size: 3, ..Attr::default() });
    let change = Change { path: b"/a.o".to_vec(), action: 4, digest: vec![5; 32], attr, ..Change::default() };
    Exited { code: 0, changes: vec![change], user_us: 4, ..Exited::default() }
}

#[test]
fn a_result_is_its_worker_s_and_its_launch_s() {
    let (key, streams) = (Key::generate(), Streams::default());
    let (_, statement) = launch(&Key::generate());
    let mut good = result();
    streams.add(Streams::STDOUT, b"said");
    good.signature = Statement::of_result(&statement, &streams, &good).signed_by(&key);
    let check = |exited: &Exited| Claim::of_result(exited, &statement, &streams, Some(key.node())).check();
    assert_eq!(check(&good), Ok(Some(key.node())));
    let passed = Exited { objects: vec![Object::default()], faults: vec![b"/x".to_vec()], ..good.clone() };
    assert_eq!(check(&passed), Ok(Some(key.node())), "what hubs leave out");
    assert_eq!(check(&result()), Ok(None));

    let changes: [Changed<Exited>; 8] = [
        ("code", |exited| exited.code = 1),
        ("signal", |exited| exited.signal = 9),
        ("contents", |exited| exited.changes[0].digest[0] = 6),
        ("path", |exited| exited.changes[0].path = b"/b.o".to_vec()),
        ("mode", |exited| exited.changes[0].attr.as_mut().unwrap().mode = 0o755),
        ("one change less", |exited| exited.changes.clear()),
        ("unanswered", |exited| exited.is_unanswered = true),
        ("what it rests on", |exited| exited.basis = Bytes::from_static(b"x")),
    ];
    for (what, change) in changes {
        let mut exited = good.clone();
        change(&mut exited);
        assert_eq!(check(&exited), Err(NotSigned::Wrong), "{what}");
    }
    let other = Statement::from_digest(Digest::of(b"another launch"));
    let silent = Streams::default();
    let of = |launch, streams, worker| Claim::of_result(&good, launch, streams, Some(worker)).check();
    assert_eq!(of(&other, &streams, key.node()), Err(NotSigned::Wrong), "another task's");
    assert_eq!(of(&statement, &silent, key.node()), Err(NotSigned::Wrong), "other output");
    assert_eq!(of(&statement, &streams, HUB), Err(NotSigned::Other { expected: HUB, found: key.node() }));
}

#[test]
fn who_has_signed_is_not_heard_without() {
    let peers = Peers::new(None, false);
    let (newest, before) = (crate::versions::NEWEST, crate::versions::NEWEST - 1);
    assert_eq!(peers.may_be_unsigned(Some(HUB), newest), Ok(()), "it may be of the version before");
    peers.has_signed(HUB);
    assert_eq!(peers.may_be_unsigned(Some(HUB), newest), Err(NotSigned::Missing(HUB)));
    assert_eq!(peers.may_be_unsigned(Some(BRANCH), newest), Ok(()));
    assert_eq!(peers.may_be_unsigned(Some(HUB), before), Ok(()), "the hub was taken back");
    let strict = Peers::new(None, true);
    assert_eq!(strict.may_be_unsigned(Some(BRANCH), before), Err(NotSigned::Required));
    assert_eq!(
        (strict.may_be_unsigned(None, newest), peers.may_be_unsigned(None, newest)),
        (Err(NotSigned::Required), Ok(()))
    );
}

/// What the statements are at this version: others do not fit those of machines that have it.
#[test]
fn statements_are_as_they_were() {
    let key = [1, 2].map(|number| NodeId(Digest([number; 32])));
    let launched = Launch { task: Bytes::from_static(&[1; 16]), attempt: 1, ..Launch::default() };
    let statement = Statement::of_launch(&launched, Parties { client: key[0], hub: key[1] });
    let ended = Statement::of_result(&statement, &Streams::default(), &result());
    assert_eq!(statement.0.to_hex(), "13e5e6e496554210ebdb3a9d1aa13687452d8214f3c0839777a1c5a0c96fd6e9");
    assert_eq!(ended.0.to_hex(), "c98894adc6d424da5a046bddadb3a30e157379e806d7dc6e41f434679005f4a6");
}
