//! Upkeep: a snapshot is put into a journal that no hub has open, and what is older is removed, with the power cut at every point.

use super::sim::{Crash, Fault, SimDisk, World};
use super::{JournalError, Seq, check, commits, late, open, restart, small, snapshot, state, write_parts};
use crate::journal::Upkeep;
use crate::journal::inspect::verify_on;
use rustix::io::Errno;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

/// A journal with two snapshots, and so many records behind the second one.
fn built(folder: &Path, behind: u64) -> SimDisk {
    let disk = SimDisk::default();
    let (journal, _) = open(&disk, folder, small()).unwrap();
    for _ in 0..2 {
        commits(&journal, 9, 3);
        snapshot(&journal).unwrap();
    }
    commits(&journal, behind, 1);
    drop(journal);
    disk
}

/// What another version would write of the state after a record.
fn other(seq: Seq) -> Vec<u8> {
    [b"otherwise: ".to_vec(), state(seq.0)].concat()
}

fn held(disk: &SimDisk, folder: &Path) -> Result<(Upkeep, Seq), JournalError> {
    let (upkeep, recovered) = Upkeep::open_on(Arc::new(disk.clone()), folder)?;
    let last = recovered.last;
    check(recovered)?;
    Ok((upkeep, last))
}

/// Puts the snapshot of another version into the place of the last one, or behind it.
fn put(upkeep: &mut Upkeep, last: Seq) -> Result<(), JournalError> {
    let bytes = other(last);
    upkeep.put_snapshot(2, &mut |out| write_parts(out, &bytes, 700), |mut written| {
        let mut again = Vec::new();
        written.read_to_end(&mut again)?;
        assert_eq!((again, written.logic_version), (bytes.clone(), 2));
        Ok(())
    })
}

/// Starts from what is there: whether the newest snapshot is the one that was put. If it is not, all is as it was.
fn is_put(world: World, folder: &Path, last: Seq) -> bool {
    let disk = SimDisk::of(world.clone());
    let (journal, mut recovered) = open(&disk, folder, late()).unwrap();
    let newest = recovered.snapshot.as_mut().unwrap();
    let is_put = newest.logic_version == 2;
    if is_put {
        let mut bytes = Vec::new();
        newest.read_to_end(&mut bytes).unwrap();
        assert_eq!((newest.seq, recovered.last, bytes), (last, last, other(last)));
        assert_eq!(recovered.records.count(), 0);
    } else {
        drop((journal, recovered));
        assert_eq!(restart(world, late()).unwrap().0, last.0);
    }
    is_put
}

#[test]
fn at_every_crash_the_journal_is_what_it_was_or_what_it_is_to_be() {
    for behind in [0, 5] {
        let folder = tempfile::tempdir().unwrap();
        let disk = built(folder.path(), behind);
        disk.record();
        let (mut upkeep, last) = held(&disk, folder.path()).unwrap();
        put(&mut upkeep, last).unwrap();
        let changes = disk.changes();
        upkeep.remove_older().unwrap();
        assert!(disk.changes() > changes + 3, "something is removed");
        drop(upkeep);
        let history = disk.history();
        let mut seen = [0, 0];
        for (point, (world, _)) in history.iter().enumerate() {
            let crashes = [Crash::Lost, Crash::Kept, Crash::Torn(100), Crash::Random(point as u64)];
            for crash in crashes {
                seen[usize::from(is_put(world.after(crash), folder.path(), last))] += 1;
            }
        }
        assert!(seen[0] > 10 && seen[1] > 10, "{seen:?}");
        assert!(is_put(history.last().unwrap().0.after(Crash::Lost), folder.path(), last));
    }
}

#[test]
fn an_error_at_any_operation_leaves_one_of_both() {
    let folder = tempfile::tempdir().unwrap();
    let start = built(folder.path(), 4);
    let world = start.world();
    let run = |disk: &SimDisk| {
        let (mut upkeep, last) = held(disk, folder.path())?;
        put(&mut upkeep, last)?;
        upkeep.remove_older().map(|()| last)
    };
    let whole = SimDisk::of(world.clone());
    let last = run(&whole).unwrap();
    let (operations, changes) = (whole.operations(), whole.changes());
    for (errno, once, count) in [(Errno::IO, true, operations), (Errno::NOSPC, false, changes)] {
        for at in 0..count {
            let disk = SimDisk::of(world.clone());
            disk.set_fault(Some(Fault { at, errno, once, is_of_changes: !once }));
            let outcome = run(&disk);
            disk.set_fault(None);
            for crash in [Crash::Lost, Crash::Kept, Crash::Random(at as u64)] {
                let is_put = is_put(disk.world().after(crash), folder.path(), last);
                assert!(is_put || outcome.is_err(), "operation {at}, {errno}, {crash:?}");
            }
        }
    }
}

#[test]
fn what_is_left_goes_on_and_is_sound() {
    let folder = tempfile::tempdir().unwrap();
    let disk = built(folder.path(), 5);
    let (mut upkeep, last) = held(&disk, folder.path()).unwrap();
    put(&mut upkeep, last).unwrap();
    upkeep.remove_older().unwrap();
    upkeep.remove_older().unwrap();
    let (before, after) = upkeep.bytes().unwrap();
    assert!(after < before / 3, "{before} bytes, then {after}");
    drop(upkeep);
    let report = verify_on(Arc::new(disk.clone()), folder.path()).unwrap();
    assert!(report.is_sound(), "{report:?}");
    assert_eq!((report.snapshots.len(), report.segments.len(), report.segments_unused), (1, 1, 0));
    assert_eq!((report.last, report.snapshots[0].seq), (last, last));
    assert_eq!(report.identity.len(), 32);
    let (journal, _) = open(&disk, folder.path(), late()).unwrap();
    commits(&journal, 9, 3);
    let told = journal.status().durable;
    drop(journal);
    let (_, recovered) = open(&disk, folder.path(), late()).unwrap();
    assert_eq!((recovered.last, recovered.records.count() as u64), (told, told.0 - last.0));
}

#[test]
fn what_is_refused_when_it_is_read_back_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let disk = built(folder.path(), 5);
    let (mut upkeep, last) = held(&disk, folder.path()).unwrap();
    let refuse = |_| Err(io::Error::other("it is another one"));
    let error = upkeep.put_snapshot(2, &mut |out| out.write_all(b"x"), refuse).unwrap_err();
    assert!(error.to_string().contains("read back") && error.to_string().contains("another one"), "{error}");
    upkeep.remove_older().unwrap();
    drop(upkeep);
    assert_eq!(restart(disk.world(), late()).unwrap().0, last.0);
}

#[test]
fn one_that_is_open_is_refused_and_so_is_one_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, _) = open(&SimDisk::default(), folder.path(), small()).unwrap();
    assert!(matches!(Upkeep::open(folder.path()), Err(JournalError::Locked { .. })));
    drop(journal);
    assert!(matches!(Upkeep::open(&folder.path().join("none")), Err(JournalError::Io { .. })));
}
