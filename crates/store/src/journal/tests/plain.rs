//! The journal on this machine's disk.

use super::durable::beside_a_writer;
use super::{Journal, JournalError, LONG, Options, Seq, check, cycle, write_parts};
use crate::journal::{dump, verify};
use crate::tests::noise;
use std::io::Read;
use std::path::Path;
use std::sync::mpsc;

fn options() -> Options {
    Options { segment_bytes: 64 << 10, ..Options::default() }
}

fn plain(folder: &Path) -> (Journal, super::Recovered) {
    Journal::open(folder, options(), Box::new(|_| {})).unwrap()
}

/// A disk that loses the first page of the only segment loses its header and first batches: what is behind them tells that from a segment
/// made ahead.
#[test]
fn a_segment_whose_first_page_is_lost_is_not_an_unused_one() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, _) = plain(folder.path());
    for number in 0..12u64 {
        let seq = journal.append(&noise(number, 400)).unwrap();
        journal.flush_wait(seq, LONG).unwrap();
    }
    drop(journal);
    let entries = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let is_log =
        |path: &std::path::PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"log-"));
    let log = entries.filter(is_log).min().unwrap();
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[..4096].fill(0);
    std::fs::write(&log, bytes).unwrap();
    let opened = Journal::open(folder.path(), options(), Box::new(|_| {}));
    assert!(matches!(opened, Err(JournalError::Damaged { .. })), "twelve durable records are gone without a word");
    assert!(!verify(folder.path()).unwrap().is_sound());
}

#[test]
fn many_threads_append_and_all_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/journal");
    let (sender, told) = mpsc::channel();
    let tell = Box::new(move |outcome: Result<Seq, _>| sender.send(outcome.unwrap()).unwrap());
    let (journal, recovered) = Journal::open(&path, options(), tell).unwrap();
    assert_eq!((recovered.last, recovered.records.count()), (Seq(0), 0));
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let journal = &journal;
            scope.spawn(move || {
                for at in 0..500u16 {
                    let record = [&[thread][..], &at.to_le_bytes(), &noise(u64::from(at), 40)].concat();
                    while let Err(error) = journal.append(&record) {
                        assert!(matches!(error, JournalError::Full { .. }), "{error}");
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
    assert_eq!(journal.flush_wait(Seq(2000), LONG).unwrap(), Seq(2000));
    drop(journal);
    let told: Vec<Seq> = told.iter().collect();
    assert!(told.is_sorted_by(|a, b| a < b));
    assert_eq!(told.last(), Some(&Seq(2000)));

    let report = verify(&path).unwrap();
    assert!(report.is_sound() && report.segments.len() > 1, "{report:?}");
    assert_eq!((report.first, report.last), (Seq(1), Seq(2000)));
    assert_eq!(dump(&path, Seq(1999)).unwrap().count(), 2);
    let (_journal, recovered) = plain(&path);
    let mut next = [0; 4];
    for entry in recovered.records {
        let record = entry.unwrap().record;
        let (thread, at) = (usize::from(record[0]), u16::from_le_bytes([record[1], record[2]]));
        assert_eq!(at, next[thread], "a thread's records are in its order");
        assert_eq!(record[3..], noise(u64::from(at), 40));
        next[thread] += 1;
    }
    assert_eq!(next, [500; 4]);
}

#[test]
fn a_large_snapshot_is_written_while_records_come_and_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, _) = plain(folder.path());
    let seq = journal.append(b"first").unwrap();
    journal.flush_wait(seq, LONG).unwrap();
    let state = noise(5, 1_300_000);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| journal.write_snapshot(seq, 6, &mut |out| write_parts(out, &state, 70_001)));
        while !writing.is_finished() {
            let seq = journal.append(b"more").unwrap();
            journal.flush_wait(seq, LONG).unwrap();
        }
        writing.join().unwrap().unwrap();
    });
    drop(journal);
    let (journal, recovered) = plain(folder.path());
    let mut snapshot = recovered.snapshot.unwrap();
    assert_eq!((snapshot.seq, snapshot.logic_version), (seq, 6));
    let mut bytes = Vec::new();
    snapshot.read_to_end(&mut bytes).unwrap();
    assert!(bytes == state);
    assert_eq!(recovered.records.count() as u64, recovered.last.0 - 1);
    assert_eq!(journal.status().snapshot, seq);
}

#[test]
fn snapshots_are_made_beside_a_writer_and_files_are_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { segment_bytes: 16 << 10, ..Options::default() };
    let reopen = || Journal::open(folder.path(), options, Box::new(|_| {})).unwrap();
    let (journal, _) = reopen();
    beside_a_writer(&journal, 6, |_| {
        let before = journal.status().snapshot;
        cycle(&journal).unwrap();
        journal.status().snapshot.0 > before.0 + 30
    });
    let last = journal.status().durable.0;
    drop(journal);
    assert_eq!(check(reopen().1).unwrap(), last);
}

#[test]
fn a_journal_that_is_dropped_has_committed_all() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, _) = plain(folder.path());
    for _ in 0..100 {
        journal.append(b"x").unwrap();
    }
    drop(journal);
    assert_eq!(plain(folder.path()).1.last, Seq(100));
}
