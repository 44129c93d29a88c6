//! What happens at the bounds, and who may write.

use super::sim::SimDisk;
use super::{Journal, JournalError, LONG, Seq, append, check, commit, commits, open, small, snapshot};
use crate::journal::Options;
use std::time::Duration;

fn folder() -> (tempfile::TempDir, SimDisk) {
    (tempfile::tempdir().unwrap(), SimDisk::default())
}

#[test]
fn a_full_buffer_refuses_and_takes_again_once_the_disk_has_caught_up() {
    let (folder, disk) = folder();
    let slow = Options { extra_fsync_delay: Duration::from_millis(60), ..small() };
    let (journal, _) = open(&disk, folder.path(), slow).unwrap();
    let mut taken = 0;
    let error = loop {
        match journal.append(&[7; 96]) {
            Ok(seq) => taken = seq.0,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, JournalError::Full { buffered: 2901..=3000, max: 3000 }), "{error}");
    assert_eq!((taken, journal.status().taken), (30, Seq(30)));
    assert!((2901..=3000).contains(&journal.status().buffered));
    journal.flush_wait(Seq(30), LONG).unwrap();
    assert_eq!(journal.status().buffered, 0);
    assert_eq!(journal.append(b"x").unwrap(), Seq(31), "what was refused has taken no number");
    let error = journal.flush_wait(Seq(31), Duration::ZERO).unwrap_err();
    assert!(matches!(error, JournalError::NotYet { seq: Seq(31), durable: Seq(30), .. }), "{error}");
    journal.flush_wait(Seq(31), LONG).unwrap();
    let syncs = journal.status().syncs;
    assert!(syncs.count >= 2 && syncs.p50 >= Duration::from_millis(53), "{syncs:?}");
    assert!(syncs.max >= syncs.p99 && syncs.p99 >= syncs.p50);
}

#[test]
fn a_record_may_be_as_large_as_the_buffer() {
    let (folder, disk) = folder();
    let options = Options { buffer_bytes_max: usize::MAX, ..small() };
    let (journal, _) = open(&disk, folder.path(), options).unwrap();
    let max = 4096 - 560 - 4;
    for len in [max, 0, max] {
        let seq = journal.append(&vec![9; len]).unwrap();
        journal.flush_wait(seq, LONG).unwrap();
    }
    let error = journal.append(&vec![9; max + 1]).unwrap_err();
    assert!(matches!(error, JournalError::TooLarge { .. }), "{error}");
    drop(journal);
    let (_, recovered) = open(&disk, folder.path(), options).unwrap();
    let lens: Vec<usize> = recovered.records.map(|entry| entry.unwrap().record.len()).collect();
    assert_eq!(lens, [max, 0, max]);
}

#[test]
fn too_many_bytes_are_announced_then_refused_and_snapshots_make_room() {
    let (folder, disk) = folder();
    let options = Options { bytes_max: 0, ..small() };
    let (journal, _) = open(&disk, folder.path(), options).unwrap();
    let mut was_tight = false;
    let error = loop {
        was_tight |= journal.status().is_tight;
        match commit(&journal, 1) {
            Ok(_) => assert!(journal.status().durable.0 < 1000),
            Err(error) => break error,
        }
    };
    assert!(was_tight);
    assert!(matches!(error, JournalError::TooManyBytes { max: 16384, .. }), "{error}");
    assert!(error.to_string().contains("write snapshots and prune"), "{error}");
    let durable = journal.status().durable;
    journal.write_snapshot(Seq(durable.0 - 1), 1, &mut |_| Ok(())).unwrap();
    assert_eq!(journal.prune().unwrap(), 0, "one snapshot alone frees nothing");
    journal.write_snapshot(durable, 1, &mut |_| Ok(())).unwrap();
    assert!(journal.prune().unwrap() > 0);
    commit(&journal, 1).unwrap();
}

#[test]
fn pruning_uses_two_segments_again_and_removes_the_rest() {
    let (folder, disk) = folder();
    let (journal, _) = open(&disk, folder.path(), small()).unwrap();
    commits(&journal, 60, 2);
    let before = journal.status();
    snapshot(&journal).unwrap();
    commit(&journal, 1).unwrap();
    snapshot(&journal).unwrap();
    let freed = journal.prune().unwrap();
    assert!(freed > 3, "{freed} freed");
    let after = journal.status();
    let logs = disk.names().iter().filter(|name| name.starts_with("log-")).count() as u64;
    assert!((2..=4).contains(&after.segments) && logs == after.segments, "{logs} of {}", after.segments);
    assert!(after.bytes < before.bytes);
    commits(&journal, 60, 2);
    drop(journal);
    let (journal, recovered) = open(&disk, folder.path(), small()).unwrap();
    let bytes = journal.status().bytes;
    assert_eq!(check(recovered).unwrap(), 241);
    let sum: usize =
        disk.names().iter().filter(|name| name.contains('-')).map(|name| disk.with(name, |b| b.len())).sum();
    // A segment may be on its way.
    assert!([bytes, bytes + 4096].contains(&(sum as u64)), "{bytes} told, {sum} there");
}

#[test]
fn snapshots_are_in_order_and_two_are_kept() {
    let (folder, disk) = folder();
    let (journal, _) = open(&disk, folder.path(), small()).unwrap();
    let write = |seq| journal.write_snapshot(Seq(seq), 1, &mut |out| out.write_all(&super::state(seq)));
    assert!(matches!(write(0), Err(JournalError::SnapshotOrder { .. })));
    commit(&journal, 9).unwrap();
    assert!(matches!(write(10), Err(JournalError::SnapshotOrder { durable: Seq(9), .. })));
    for seq in [3, 5, 9] {
        write(seq).unwrap();
    }
    assert!(matches!(write(9), Err(JournalError::SnapshotOrder { newest: Seq(9), .. })));
    let kept = disk.names().iter().filter(|name| name.starts_with("snapshot-")).count();
    assert_eq!(kept, 2);
    let mut inner = None;
    commit(&journal, 1).unwrap();
    journal
        .write_snapshot(Seq(10), 1, &mut |out| {
            inner = Some(journal.write_snapshot(Seq(10), 1, &mut |_| Ok(())));
            out.write_all(&super::state(10))
        })
        .unwrap();
    assert!(matches!(inner, Some(Err(JournalError::SnapshotBusy))));
    drop(journal);
    assert_eq!(check(open(&disk, folder.path(), small()).unwrap().1).unwrap(), 10);
}

#[test]
fn a_journal_is_opened_once_at_a_time() {
    let (folder, disk) = folder();
    let (journal, _) = open(&disk, folder.path(), small()).unwrap();
    let error = open(&disk, folder.path(), small()).unwrap_err();
    assert!(matches!(error, JournalError::Locked { .. }), "{error}");
    assert!(error.to_string().contains(folder.path().to_str().unwrap()), "{error}");
    drop(journal);
    open(&disk, folder.path(), small()).unwrap();
}

#[test]
fn a_hub_whose_epoch_is_over_is_refused() {
    let (folder, disk) = folder();
    let at = |epoch| Options { epoch, ..small() };
    let (journal, _) = open(&disk, folder.path(), at(3)).unwrap();
    commit(&journal, 1).unwrap();
    journal.set_epoch(5).unwrap();
    assert!(matches!(journal.set_epoch(4), Err(JournalError::Fenced { found: 5, given: 4 })));
    commit(&journal, 1).unwrap();
    drop(journal);
    let error = open(&disk, folder.path(), at(4)).unwrap_err();
    assert!(matches!(error, JournalError::Fenced { found: 5, given: 4 }), "{error}");
    let (journal, recovered) = open(&disk, folder.path(), at(5)).unwrap();
    let epochs: Vec<u64> = recovered.records.map(|entry| entry.unwrap().epoch).collect();
    assert_eq!(epochs, [3, 5]);
    // A snapshot bears its epoch, too.
    journal.set_epoch(8).unwrap();
    snapshot(&journal).unwrap();
    drop(journal);
    assert!(matches!(open(&disk, folder.path(), at(7)), Err(JournalError::Fenced { found: 8, .. })));
}

#[test]
fn each_record_tells_which_version_of_the_core_made_it() {
    let (folder, disk) = folder();
    for version in [1, 1, 2, 3] {
        let options = Options { logic_version: version, ..small() };
        let (journal, _) = open(&disk, folder.path(), options).unwrap();
        commit(&journal, 1).unwrap();
    }
    let (journal, recovered) = open(&disk, folder.path(), small()).unwrap();
    let versions: Vec<u32> = recovered.records.map(|entry| entry.unwrap().logic_version).collect();
    assert_eq!(versions, [1, 1, 2, 3]);
    drop(journal);
}

#[test]
fn a_function_that_panics_ends_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let disk = std::sync::Arc::new(SimDisk::default());
    let told = Box::new(|_| panic!("a test's panic"));
    let (journal, _) = Journal::open_on(disk, folder.path(), small(), told).unwrap();
    append(&journal, 1).unwrap();
    let error = loop {
        match journal.append(b"x") {
            Err(error @ JournalError::Dead(_)) => break error,
            _ => std::thread::yield_now(),
        }
    };
    assert!(error.to_string().contains("broke down"), "{error}");
}
