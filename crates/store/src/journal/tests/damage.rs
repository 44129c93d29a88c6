//! Bytes that change after they were durable.

use super::sim::SimDisk;
use super::{JournalError, Seq, commit, commits, late, open, record, restart, small, snapshot};
use crate::journal::format::{SegmentHeader, SnapshotHeader};
use crate::journal::inspect::{dump_on, verify_on};
use std::sync::Arc;

/// A journal of some segments with two snapshots, and its last record. The first records are pruned.
fn built() -> (SimDisk, u64) {
    let (folder, disk) = (tempfile::tempdir().unwrap(), SimDisk::default());
    let (journal, _) = open(&disk, folder.path(), small()).unwrap();
    commits(&journal, 9, 2);
    snapshot(&journal).unwrap();
    commits(&journal, 9, 2);
    snapshot(&journal).unwrap();
    commits(&journal, 9, 2);
    journal.prune().unwrap();
    // Some batches in the last segment, so that its middle can be damaged.
    while tail(&disk).0.1 < 1536 {
        commit(&journal, 1).unwrap();
    }
    let last = journal.status().durable.0;
    drop(journal);
    (disk, last)
}

fn names(disk: &SimDisk, prefix: &str) -> Vec<String> {
    disk.names().into_iter().filter(|name| name.starts_with(prefix)).collect()
}

fn report(disk: &SimDisk) -> crate::journal::Report {
    verify_on(Arc::new(disk.clone()), "/journal".as_ref()).unwrap()
}

#[test]
fn a_sound_journal_is_told_in_full() {
    let (disk, last) = built();
    let operations = disk.world();
    let report = report(&disk);
    assert!(report.is_sound(), "{report:?}");
    assert_eq!(report.last, Seq(last));
    assert!(report.first > Seq(1), "the first segment was pruned");
    assert_eq!(report.snapshots.len(), 2);
    assert_eq!(report.segments[0].first, report.first);
    assert_eq!(report.segments.last().unwrap().last, Seq(last));
    for pair in report.segments.windows(2) {
        assert_eq!(pair[0].last.0 + 1, pair[1].first.0);
    }
    assert_eq!(restart(operations, small()).unwrap().0, last, "looking changes nothing");

    let entries = dump_on(Arc::new(disk.clone()), "/journal".as_ref(), Seq(0)).unwrap();
    let seqs: Vec<u64> = entries
        .map(|entry| entry.unwrap())
        .inspect(|entry| assert_eq!(entry.record, record(entry.seq.0)))
        .map(|entry| entry.seq.0)
        .collect();
    assert_eq!(seqs, (report.first.0..=last).collect::<Vec<_>>());
    let some = dump_on(Arc::new(disk.clone()), "/journal".as_ref(), Seq(last - 1)).unwrap();
    assert_eq!(some.map(|entry| entry.unwrap().seq.0).collect::<Vec<_>>(), [last - 1, last]);
    assert_eq!(dump_on(Arc::new(disk), "/journal".as_ref(), Seq(last + 7)).unwrap().count(), 0);
}

#[test]
fn any_byte_that_changes_is_found() {
    let (disk, last) = built();
    let logs: Vec<String> = names(&disk, "log-");
    let newest = names(&disk, "snapshot-").pop().unwrap();
    let newest: u64 = newest.strip_prefix("snapshot-").unwrap().parse().unwrap();
    // Where the last batch begins: its damage cannot be told from a crash.
    let (tail, end) = tail(&disk);
    let (mut found, mut cut, mut unused) = (0, 0, 0);
    for log in &logs {
        for at in 0..4096 {
            let is_written = *log < tail.0 || (*log == tail.0 && at < end);
            if !is_written && at % 97 != 0 {
                continue;
            }
            let flip = |bytes: &mut Vec<u8>| bytes[at] ^= 1 << (at % 8);
            disk.with(log, flip);
            match restart(disk.world(), small()) {
                Ok((now, _)) if now == last => unused += 1,
                Ok((now, _)) => {
                    assert!(*log == tail.0 && at >= tail.1, "{log} {at}: records after {now} are lost silently");
                    cut += 1;
                }
                Err(error) => {
                    assert!(matches!(error, JournalError::Damaged { .. }), "{log} {at}: {error}");
                    assert!(found % 16 > 0 || !report(&disk).is_sound(), "{log} {at}: the report must tell {error}");
                    assert!(error.to_string().contains("log-"), "{error}");
                    found += 1;
                }
            }
            disk.with(log, flip);
        }
    }
    assert!(found > 5000 && newest < last, "{found} found, {cut} cut off, {unused} in no use");
}

/// The last segment with records, and where its last batch begins and ends.
fn tail(disk: &SimDisk) -> ((String, usize), usize) {
    let logs = names(disk, "log-");
    let is_used = |log: &&String| disk.with(log, |bytes| bytes[512..516] == *b"GlnJ" && bytes[0] != 0);
    let used: Vec<&String> = logs.iter().filter(is_used).collect();
    // Files that pruning recycled hold old records under a later name.
    let in_use = |log: &&&String| {
        let index: u64 = log.strip_prefix("log-").unwrap().parse().unwrap();
        disk.with(log, |bytes| bytes[32..40] == index.to_le_bytes())
    };
    let last = *used.iter().rfind(in_use).unwrap();
    disk.with(last, |bytes| {
        let (mut at, mut before) = (512, 512);
        while bytes.get(at..at + 4) == Some(b"GlnJ") {
            before = at;
            let len = u32::from_le_bytes(bytes[at + 20..at + 24].try_into().unwrap());
            at += (len as usize).next_multiple_of(512);
        }
        ((last.clone(), before), at)
    })
}

#[test]
fn a_damaged_snapshot_is_put_aside_and_the_one_before_it_taken() {
    let (disk, last) = built();
    let newest = names(&disk, "snapshot-").pop().unwrap();
    let len = disk.with(&newest, |bytes| bytes.len());
    for at in 0..=len {
        let world = SimDisk::of(disk.world());
        world.with(&newest, |bytes| match at {
            at if at == len => bytes.push(0),
            at if at % 5 == 0 => bytes.truncate(at),
            _ => bytes[at] ^= 0x10,
        });
        assert!(!report(&world).is_sound(), "byte {at}");
        let (now, after) = restart(world.world(), small()).unwrap();
        assert_eq!(now, last);
        assert_eq!(names(&SimDisk::of(after), "damaged-"), [format!("damaged-{newest}")]);
    }
    for snapshot in names(&disk, "snapshot-") {
        disk.with(&snapshot, |bytes| bytes[100] ^= 1);
    }
    let error = restart(disk.world(), small()).unwrap_err();
    assert!(matches!(error, JournalError::Missing { wanted: Seq(1), .. }), "{error}");
    assert!(report(&disk).damage.is_some());
}

#[test]
fn files_that_are_gone_are_missed() {
    let (disk, _) = built();
    for name in names(&disk, "log-").into_iter().chain(["journal".into()]) {
        let world = SimDisk::of(disk.world());
        let whole = report(&disk);
        let newest = whole.snapshots[1].seq;
        let is_in_use = name == "journal" || whole.segments.iter().any(|segment| segment.path.ends_with(&name));
        let is_old = whole.segments.iter().any(|segment| segment.path.ends_with(&name) && segment.last <= newest);
        // The last segment cannot be missed if the newest snapshot ends before it.
        let is_last = whole.segments.last().unwrap().path.ends_with(&name);
        let is_needed = is_in_use && !is_old && !is_last;
        world.lose(&name);
        assert!(!is_in_use || is_last || name == "journal" || report(&world).damage.is_some(), "{name}");
        match restart(world.world(), small()) {
            Ok(_) => assert!(!is_needed, "{name} is not missed"),
            Err(error) => {
                assert!(is_needed, "{name}: {error}");
                let is_told = matches!(error, JournalError::Damaged { .. } | JournalError::Missing { .. });
                assert!(is_told, "{name}: {error}");
            }
        }
    }
}

#[test]
fn a_newer_version_is_refused_by_name() {
    let (disk, _) = built();
    let newer = |name: &str, bytes: usize| {
        let world = SimDisk::of(disk.world());
        world.with(name, |file| {
            file[8] = 2;
            let sum = *blake3::hash(&file[..bytes - 16]).as_bytes();
            file[bytes - 16..bytes].copy_from_slice(&sum[..16]);
        });
        let error = restart(world.world(), late()).unwrap_err();
        assert!(matches!(error, JournalError::Newer { found: 2, known: 1, .. }), "{name}: {error}");
        assert!(error.to_string().contains("start the newer program again"), "{error}");
    };
    newer("journal", 48);
    newer(&names(&disk, "log-")[1], size_of_val(&encoded_segment()));
    newer(&names(&disk, "snapshot-")[1], size_of_val(&encoded_snapshot()));
}

fn encoded_segment() -> [u8; 512] {
    let identity = crate::journal::format::Identity([0; 16]);
    SegmentHeader { logic_version: 0, identity, index: 0, first: 0, epoch: 0, bytes: 0 }.encode()
}

fn encoded_snapshot() -> [u8; 96] {
    let identity = crate::journal::format::Identity([0; 16]);
    SnapshotHeader { logic_version: 0, identity, seq: 0, epoch: 0 }.encode()
}

#[test]
fn a_record_that_looks_like_a_batch_is_a_record() {
    let (folder, disk) = (tempfile::tempdir().unwrap(), SimDisk::default());
    let (journal, _) = open(&disk, folder.path(), small()).unwrap();
    commit(&journal, 1).unwrap();
    let stolen = disk.with("log-000000000001", |bytes| bytes[512..1024].to_vec());
    // The copy begins at a sector's beginning.
    let fake = [vec![0; 512 - 52], stolen].concat();
    let seq = journal.append(&fake).unwrap();
    journal.flush_wait(seq, super::LONG).unwrap();
    drop(journal);
    assert_eq!((report(&disk).is_sound(), report(&disk).last), (true, Seq(2)));
    // And if the batch around it is torn, it is not taken for one that goes on behind it.
    disk.with("log-000000000001", |bytes| {
        let copy = (1536..4096).step_by(512).find(|at| bytes[*at..*at + 4] == *b"GlnJ");
        assert!(copy.is_some(), "the copy lies where a batch could");
        bytes[1024 + 60] ^= 1;
    });
    assert_eq!((report(&disk).is_sound(), report(&disk).last), (true, Seq(1)));
}
