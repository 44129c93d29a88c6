//! A journal is examined, cut down and brought up to today's format, and a hub goes on with it.

use super::*;
use crate::desk::{Desk, Room};
use std::fs;
use std::path::Path;
use std::time::Duration;
use store::journal::{Journal, Options};
use store::log::Place;
use tasks::{Effect, Event, JobSpec, Need, Policy, Urgency};

/// What format 1 is: see the tests of `tasks`.
const FORMAT_1: &[u8] = include_bytes!("../../../../tasks/tests/golden/ledger-1.snapshot");
/// The logic version that wrote it.
const LOGIC_1: u32 = 3;

fn options() -> Options {
    Options { segment_bytes: 32 << 10, buffer_bytes_max: 16 << 10, ..Options::default() }
}

fn open(folder: &Path) -> Result<Desk, DeskError> {
    let room = Room { hosts: 8, tasks: 64, bytes_max: 1 << 20 };
    Desk::open(Place::Disk(folder.to_owned()), room, options(), Box::new(|_| {}))
}

/// A job with some tasks.
fn submit(desk: &mut Desk, key: u128) {
    let account = desk.account(1).expect("room");
    let spec = JobSpec {
        key,
        account,
        urgency: Urgency::Normal,
        need: Need { cpus: 1, ..Need::default() },
        policy: Policy::default(),
        cost_ms: 1,
        affinity: 0,
        failures_max: 0,
        is_volatile: false,
    };
    let [Effect::Job(job, _), ..] = *desk.act(Event::Open(spec)) else { panic!("{:?}", desk.effects()) };
    desk.act(Event::Submit { job, first: 0, count: 3, later: 0, is_promised: false, deadline_ms: 0 });
}

fn jobs(desk: &Desk) -> usize {
    desk.table().jobs_after(None, usize::MAX).len()
}

/// Has some events happen, which are durable then.
fn pass(desk: &mut Desk) {
    for _ in 0..10 {
        for _ in 0..100 {
            desk.act(Event::Tick);
        }
        let journal = desk.journal().expect("it has one");
        journal.flush_wait(desk.taken, Duration::from_secs(20)).expect("durable");
    }
}

/// The journal of a hub that was stopped twice and then killed: two snapshots, and records behind them.
fn built(folder: &Path) -> Site {
    for key in 1..=3 {
        let mut desk = open(folder).expect("opened");
        submit(&mut desk, key);
        pass(&mut desk);
        if key < 3 {
            desk.close();
        }
    }
    Site::Disk(folder.to_owned())
}

fn found(site: &Site) -> Examined {
    examine(site, drop).expect("it is there")
}

/// All files but the lock, with their bytes.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
    let mut files: Vec<_> = entries
        .map(|entry| (entry.file_name().into_string().expect("a name"), fs::read(entry.path()).expect("a file")))
        .collect();
    files.sort();
    files
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).expect("a file");
    bytes[at] ^= 4;
    fs::write(path, bytes).expect("written");
}

#[test]
fn a_sound_journal_is_told_and_not_changed() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = built(folder.path());
    let before = files(folder.path());
    let mut stages = Vec::new();
    let seen = examine(&site, |stage| stages.push(stage)).expect("it is there");
    assert!(seen.wrong().is_empty() && seen.start.is_ok(), "{seen:?}");
    assert_eq!(seen.formats, [Some(SNAPSHOT_VERSION); 2]);
    assert!(seen.replayed > 1_000 && seen.report.segments.len() > 1, "{seen:?}");
    assert_eq!((stages[0], stages[1]), (Stage::Checksums, Stage::Snapshot(seen.report.snapshots[0].seq)));
    assert_eq!(plan(&site).expect("it starts"), Upgrade::Needless);
    assert!(files(folder.path()) == before);
    let none = Site::Disk(folder.path().join("none"));
    for error in [examine(&none, drop).err(), prune(&none).err(), upgrade(&none).err(), plan(&none).err()] {
        assert!(matches!(error, Some(DeskError::NoJournal { .. })), "{error:?}");
    }
    assert!(files(folder.path()) == before, "nothing is made");
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = built(folder.path());
    let sound = found(&site);
    // The newest snapshot: the one before it is taken.
    let newest = sound.report.snapshots[1].path.clone();
    flip(&newest, 300);
    let seen = found(&site);
    let wrong = seen.wrong();
    assert_eq!(wrong.len(), 1, "{wrong:?}");
    assert_eq!(wrong[0].place, Some((newest.clone(), 96)), "where its chunk begins");
    assert!(wrong[0].message.contains("a chunk of the snapshot is not whole"), "{wrong:?}");
    assert!(seen.start.is_ok() && seen.replayed > sound.replayed && seen.formats[1].is_none(), "{seen:?}");
    flip(&newest, 300);
    // A record in the first segment, which is before both.
    let first = sound.report.segments[0].path.clone();
    flip(&first, 530);
    let seen = found(&site);
    assert_eq!(seen.wrong()[0].place, Some((first.clone(), 512)), "{:?}", seen.wrong());
    flip(&first, 530);
    // A record that a start needs.
    let last = sound.report.segments.last().expect("a segment").path.clone();
    flip(&last, 530);
    let seen = found(&site);
    assert!(matches!(seen.start, Err(DeskError::Journal(JournalError::Damaged { .. }))), "{seen:?}");
    let wrong = seen.wrong();
    assert_eq!((wrong.len(), &wrong[0].place), (1, &Some((last.clone(), 512))), "{wrong:?}");
    assert_eq!(seen.formats, [Some(SNAPSHOT_VERSION); 2], "snapshots are read whatever the records are");
    assert!(prune(&site).is_err() && upgrade(&site).is_err() && plan(&site).is_err());
    flip(&last, 530);
    assert!(found(&site).wrong().is_empty());
    assert_eq!(jobs(&open(folder.path()).expect("opened")), 3);
}

#[test]
fn a_journal_is_examined_while_a_hub_uses_it_and_neither_pruned_nor_upgraded() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = built(folder.path());
    let mut desk = open(folder.path()).expect("opened");
    let looking = std::thread::spawn({
        let site = site.clone();
        move || (0..6).map(|_| found(&site)).all(|seen| seen.wrong().is_empty() && seen.start.is_ok())
    });
    for key in 10..20 {
        submit(&mut desk, key);
        pass(&mut desk);
        desk.close();
    }
    assert!(looking.join().expect("it looks"));
    for error in [prune(&site).err(), upgrade(&site).err()] {
        assert!(matches!(error, Some(DeskError::Journal(JournalError::Locked { .. }))), "{error:?}");
    }
}

#[test]
fn pruning_leaves_a_snapshot_of_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = built(folder.path());
    let last = found(&site).report.last;
    let pruned = prune(&site).expect("it is sound");
    assert!(pruned.last == last && pruned.bytes.1 < pruned.bytes.0, "{pruned:?}");
    let again = prune(&site).expect("it is sound");
    assert_eq!((again.last, again.bytes.1), (last, pruned.bytes.1));
    let seen = found(&site);
    assert!(seen.wrong().is_empty() && seen.start.is_ok() && seen.replayed == 0, "{seen:?}");
    assert_eq!((seen.report.snapshots.len(), seen.report.segments.len()), (1, 1));
    let desk = open(folder.path()).expect("opened");
    assert_eq!((jobs(&desk), desk.table().tasks_of(desk.table().jobs_after(None, 1)[0], 9).len()), (3, 3));
}

/// A journal as a hub of format 1 left it, with so many records after its snapshot.
fn older(folder: &Path, behind: u64) -> Site {
    let options = Options { logic_version: LOGIC_1, ..options() };
    let (journal, _) = Journal::open(folder, options, Box::new(|_| {})).expect("opened");
    let write = |what: &[u8]| {
        let seq = journal.append(what).expect("taken");
        journal.flush_wait(seq, Duration::from_secs(20)).expect("durable")
    };
    for _ in 0..8 {
        write(b"a record of it");
    }
    let last = write(b"the last one");
    journal.write_snapshot(last, LOGIC_1, &mut |out| out.write_all(FORMAT_1)).expect("written");
    for _ in 0..behind {
        write(b"one more");
    }
    Site::Disk(folder.to_owned())
}

#[test]
fn a_journal_of_format_1_is_upgraded() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = older(folder.path(), 0);
    let error = open(folder.path()).expect_err("another format").to_string();
    assert!(error.contains("format 1") && error.contains("`gleaner journal upgrade`"), "{error}");
    assert!(matches!(prune(&site), Err(DeskError::Older { found: 1, .. })));
    let seen = found(&site);
    assert!(seen.wrong().is_empty() && seen.formats == [Some(1)], "sound, though not for this version: {seen:?}");
    assert!(matches!(seen.start, Err(DeskError::Older { seq: Seq(9), found: 1 })), "{seen:?}");
    let (before, want) = (files(folder.path()), Upgrade::Snapshot { seq: Seq(9), found: 1 });
    assert_eq!(plan(&site).expect("it can be"), want);
    assert!(files(folder.path()) == before, "to ask changes nothing");
    assert_eq!(upgrade(&site).expect("it can be"), want);
    assert_eq!(upgrade(&site).expect("it was"), Upgrade::Needless);
    let seen = found(&site);
    assert!(seen.wrong().is_empty() && seen.start.is_ok() && seen.formats == [Some(SNAPSHOT_VERSION)], "{seen:?}");
    let mut desk = open(folder.path()).expect("this version's");
    desk.table().check_invariants();
    assert_eq!(jobs(&desk), 4);
    submit(&mut desk, 99);
    drop(desk);
    assert_eq!(jobs(&open(folder.path()).expect("it goes on")), 5);
}

#[test]
fn records_after_an_older_snapshot_are_for_the_version_that_wrote_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = older(folder.path(), 2);
    let before = files(folder.path());
    let error = plan(&site).expect_err("records behind it");
    assert!(matches!(error, DeskError::OlderWithRecords { seq: Seq(9), found: 1, last: Seq(11), .. }), "{error}");
    assert!(error.to_string().contains("written by gleaner 0.1.0 up to 23 November 2026"), "{error}");
    assert!(found(&site).wrong().is_empty(), "it is sound");
    assert!(files(folder.path()) == before);
    let names = |files: Vec<(String, Vec<u8>)>| -> Vec<String> {
        let snapshots = files.into_iter().filter(|(name, _)| name.starts_with("snapshot"));
        snapshots.map(|(name, bytes)| format!("{name} {}", Digest::of(&bytes).to_hex())).collect()
    };
    assert!(matches!(upgrade(&site), Err(DeskError::OlderWithRecords { .. })));
    assert_eq!(names(files(folder.path())), names(before), "the snapshot is as it was");
}

#[test]
fn records_of_another_logic_are_for_the_version_that_wrote_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = Options { logic_version: LOGIC_VERSION + 1, ..options() };
    let (journal, _) = Journal::open(folder.path(), options, Box::new(|_| {})).expect("opened");
    journal.append(b"of tomorrow").expect("taken");
    drop(journal);
    let site = Site::Disk(folder.path().to_owned());
    for error in [plan(&site).err(), upgrade(&site).err(), prune(&site).err()] {
        assert!(matches!(error, Some(DeskError::OtherLogic { found }) if found == LOGIC_VERSION + 1), "{error:?}");
    }
    assert!(found(&site).wrong().is_empty());
}
