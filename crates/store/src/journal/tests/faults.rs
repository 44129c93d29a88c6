//! A disk that fails, at every single operation.

use super::sim::{Crash, Fault, SimDisk};
use super::{
    Journal, JournalError, LONG, Seq, append, broken, check, commit, commits, exercise, late, open, restart, small,
    snapshot,
};
use rustix::io::Errno;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, mpsc};
use std::time::Instant;

#[test]
fn an_error_at_any_operation_loses_nothing_that_was_told() {
    let (folder, disk) = (tempfile::tempdir().unwrap(), SimDisk::default());
    exercise(&disk, folder.path()).unwrap();
    let (operations, changes) = (disk.operations(), disk.changes());
    let mut died = 0;
    // Reading fails once in a while, writing to a full disk for good.
    for (errno, once, count) in [(Errno::IO, true, operations), (Errno::NOSPC, false, changes)] {
        for at in 0..count {
            let (folder, disk) = (tempfile::tempdir().unwrap(), SimDisk::default());
            disk.set_fault(Some(Fault { at, errno, once, is_of_changes: !once }));
            if let Err(error) = exercise(&disk, folder.path()) {
                died += 1;
                let words = error.to_string();
                let has_sense = words.contains("error 5") || words.contains("no room") || words.contains("os error");
                assert!(has_sense, "operation {at}, {errno}: {words}");
            }
            disk.set_fault(None);
            let told = disk.told.load(SeqCst);
            let world = disk.world();
            for crash in [None, Some(Crash::Lost), Some(Crash::Kept), Some(Crash::Random(at as u64))] {
                let left = crash.map_or_else(|| world.clone(), |crash| world.after(crash));
                let outcome = restart(left, late());
                let (last, started) = outcome.unwrap_or_else(|error| panic!("{at}, {errno}, {crash:?}: {error}"));
                assert!(last >= told, "operation {at}, {errno}, {crash:?}: {last} of {told}");
                let (again, _) = restart(started.after(Crash::Lost), late()).unwrap();
                assert_eq!(again, last, "operation {at}, {errno}, {crash:?}: a crash after the start");
            }
            if once {
                go_on(folder.path(), SimDisk::of(world));
            }
        }
    }
    assert!(died > changes, "most errors end the journal: {died} of {}", operations + changes);
}

/// Goes on after a failure, where the system gives what it forgot to write; and then the power is cut.
fn go_on(folder: &std::path::Path, disk: SimDisk) {
    let (journal, recovered) = open(&disk, folder, late()).unwrap();
    check(recovered).unwrap();
    commits(&journal, 12, 1);
    let told = journal.status().durable.0;
    assert_eq!(restart(disk.world().after(Crash::Lost), late()).unwrap().0, told);
}

/// A journal, and what it tells.
fn told(disk: &SimDisk, folder: &std::path::Path) -> (Journal, mpsc::Receiver<Result<Seq, Arc<JournalError>>>) {
    let (sender, told) = mpsc::channel();
    let tell = Box::new(move |outcome| sender.send(outcome).unwrap());
    (Journal::open_on(Arc::new(disk.clone()), folder, small(), tell).unwrap().0, told)
}

#[test]
fn a_sync_that_fails_ends_the_journal_and_is_not_tried_again() {
    let (folder, disk) = (tempfile::tempdir().unwrap(), SimDisk::default());
    let (journal, told) = told(&disk, folder.path());
    commit(&journal, 3).unwrap();
    let first = told.recv_timeout(LONG).unwrap().unwrap();
    assert!(first >= Seq(1));
    // Wait until no segment is being made, so that the next operations are the write and the sync.
    commit(&journal, 1).unwrap();
    until(|| journal.status().segments == 2);
    disk.set_fault(Some(Fault { at: disk.operations() + 1, errno: Errno::IO, once: true, is_of_changes: false }));
    let error = commit(&journal, 1).unwrap_err();
    assert!(matches!(error, JournalError::Dead(_)), "{error}");
    assert!(error.to_string().contains("takes no more records, since cannot sync"), "{error}");
    assert!(error.to_string().contains("see to the disk or the database, and start again"), "{error}");
    let operations = disk.operations();
    for outcome in [append(&journal, 1).map(drop), snapshot(&journal), journal.prune().map(drop), journal.set_epoch(9)]
    {
        assert!(matches!(outcome, Err(JournalError::Dead(_))), "{outcome:?}");
    }
    let last = std::iter::from_fn(|| told.recv_timeout(LONG).ok()).last().unwrap();
    assert!(last.unwrap_err().to_string().contains("cannot sync"));
    let status = journal.status();
    assert_eq!((status.durable, status.taken), (Seq(4), Seq(5)));
    assert!(status.dead.is_some());
    drop(journal);
    assert_eq!(disk.operations(), operations, "nothing is tried again");
}

/// Waits for what another thread does.
fn until(done: impl Fn() -> bool) {
    let deadline = Instant::now() + LONG;
    while !done() {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
}

#[test]
fn a_segment_that_could_not_be_made_ahead_is_tried_again_when_it_is_needed() {
    for is_mended in [true, false] {
        let (folder, disk) = (tempfile::tempdir().unwrap(), SimDisk::default());
        let (journal, _) = open(&disk, folder.path(), small()).unwrap();
        until(|| journal.status().segments == 1);
        disk.fail_create(Some(Errno::NOSPC));
        commit(&journal, 1).unwrap();
        until(|| journal.status().not_ahead.is_some());
        let words = journal.status().not_ahead.unwrap().to_string();
        assert!(words.contains("no room on the disk of the journal"), "{words}");
        if is_mended {
            disk.fail_create(None);
            commits(&journal, 10, 1);
            assert!(journal.status().segments > 1);
            continue;
        }
        let error = (0..10).find_map(|_| commit(&journal, 1).err()).unwrap();
        assert!(error.to_string().contains("no room on the disk of the journal"), "{error}");
        let told = journal.status().durable.0;
        drop(journal);
        assert!(restart(disk.world(), small()).unwrap().0 >= told);
    }
}

#[test]
fn a_snapshot_that_fails_is_no_end() {
    let (folder, disk) = (tempfile::tempdir().unwrap(), SimDisk::default());
    let (journal, _) = open(&disk, folder.path(), small()).unwrap();
    commit(&journal, 3).unwrap();
    until(|| journal.status().segments == 2);
    disk.fail_create(Some(Errno::NOSPC));
    let error = snapshot(&journal).unwrap_err();
    assert!(matches!(error, JournalError::NoRoom { .. }), "{error}");
    disk.fail_create(None);
    let error = journal.write_snapshot(Seq(3), 1, &mut |_| Err(broken())).unwrap_err();
    assert!(error.to_string().contains("the core cannot be written"), "{error}");
    assert!(!disk.names().iter().any(|name| name.starts_with("tmp-")), "{:?}", disk.names());
    snapshot(&journal).unwrap();
    commit(&journal, 1).unwrap();
    assert_eq!((journal.status().snapshot, journal.status().durable), (Seq(3), Seq(4)));
}
