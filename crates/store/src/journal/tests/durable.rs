//! Reading what is durable while the journal goes on.

use super::sim::{Crash, SimDisk};
use super::{
    Journal, JournalError, LONG, Seq, check, check_durable, commit, commits, cycle, late, open, record, restart, small,
    snapshot, state,
};
use crate::journal::Options;
use crate::journal::inspect::{dump_on, verify_on};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

fn opened(options: Options) -> (tempfile::TempDir, SimDisk, Journal) {
    let (folder, disk) = (tempfile::tempdir().unwrap(), SimDisk::default());
    let (journal, _) = open(&disk, folder.path(), options).unwrap();
    (folder, disk, journal)
}

fn count(disk: &SimDisk, prefix: &str) -> usize {
    disk.names().iter().filter(|name| name.starts_with(prefix)).count()
}

/// Tells the writer to stop, also where a test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Does something a number of times while another thread commits, not too far ahead of the snapshots. What it does says whether it counts.
pub(super) fn beside_a_writer(journal: &Journal, times: u64, mut step: impl FnMut(u64) -> bool) {
    let is_done = AtomicBool::new(false);
    let write = || {
        while !is_done.load(SeqCst) {
            let status = journal.status();
            // Else it would come to the bound before there are two snapshots, by the older of which pruning goes.
            if status.durable.0 - status.snapshot.0 < 300 {
                commit(journal, 3).unwrap();
            }
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        let writer = scope.spawn(write);
        let _stop = StopOnDrop(&is_done);
        let mut round = 0;
        while round < times {
            assert!(!writer.is_finished());
            round += u64::from(step(round));
        }
    });
}

#[test]
fn what_is_durable_is_read_in_full_and_none_if_a_snapshot_holds_it() {
    let (_folder, _, journal) = opened(small());
    assert!(journal.durable().unwrap().is_none());
    let mut before = 0;
    for round in 1..20 {
        let last = commit(&journal, 1 + round % 5).unwrap();
        let status = journal.status();
        assert!(status.bytes_after_snapshot > 0, "{status:?}");
        let durable = journal.durable().unwrap().unwrap();
        assert_eq!((durable.last, durable.snapshot.as_ref().map_or(0, |snapshot| snapshot.seq.0)), (last, before));
        check_durable(durable).unwrap();
        if round % 3 == 0 {
            cycle(&journal).unwrap();
            assert!(journal.durable().unwrap().is_none());
            let status = journal.status();
            assert_eq!((status.snapshot, status.bytes_after_snapshot), (last, 0));
            before = last.0;
        }
    }
}

#[test]
fn the_bytes_after_a_snapshot_are_the_same_after_a_start() {
    let (folder, disk, journal) = opened(small());
    commits(&journal, 20, 2);
    cycle(&journal).unwrap();
    commits(&journal, 20, 2);
    let before = journal.status().bytes_after_snapshot;
    assert!((20 * 512..).contains(&before), "{before}");
    drop(journal);
    for options in [small(), late()] {
        let (journal, _) = open(&disk, folder.path(), options).unwrap();
        assert_eq!(journal.status().bytes_after_snapshot, before);
    }
}

#[test]
fn snapshots_are_made_beside_a_writer_and_all_is_there_after_a_crash() {
    let (folder, disk, journal) = opened(small());
    let mut last = 0;
    beside_a_writer(&journal, 200, |round| {
        let told = disk.told.load(SeqCst);
        let Some(durable) = journal.durable().unwrap() else { return false };
        let now = check_durable(durable).unwrap();
        assert!(now >= told && now > last, "{now} after {last}, {told} was told");
        last = now;
        journal.write_snapshot(Seq(last), 1, &mut |out| out.write_all(&state(last))).unwrap();
        journal.prune().unwrap();
        if round % 20 == 0 {
            let (told, world) = (disk.told.load(SeqCst), disk.world());
            assert!(restart(world.after(Crash::Random(round)), small()).unwrap().0 >= told);
        }
        true
    });
    let last = journal.status().durable.0;
    assert!(last > 400, "the writer came to {last} only");
    drop(journal);
    assert_eq!(check(open(&disk, folder.path(), small()).unwrap().1).unwrap(), last);
}

#[test]
fn pruning_leaves_alone_what_is_being_read() {
    let (_folder, disk, journal) = opened(small());
    commits(&journal, 30, 2);
    let (unread, mut begun) = (journal.durable().unwrap().unwrap(), journal.durable().unwrap().unwrap());
    assert_eq!(begun.records.next().unwrap().unwrap().record, record(1));
    for _ in 0..2 {
        commits(&journal, 30, 2);
        snapshot(&journal).unwrap();
    }
    let later = journal.durable().unwrap();
    assert!(later.is_none());
    assert_eq!(journal.prune().unwrap(), 0, "all is being read");
    commits(&journal, 60, 2);
    assert_eq!(check_durable(unread).unwrap(), 60);
    assert_eq!(journal.prune().unwrap(), 0, "the other one still reads");
    let rest: Vec<_> = begun.records.by_ref().map(|entry| entry.unwrap().record).collect();
    assert_eq!(rest, (2..=60).map(record).collect::<Vec<_>>());
    // At its end it holds nothing any more, though it is there.
    let freed = journal.prune().unwrap();
    assert!(freed > 8, "{freed} freed");
    assert!(begun.records.next().is_none());
    // One that is dropped unread holds nothing, too, nor does one that begins behind what can be freed.
    drop(journal.durable().unwrap());
    let _after = journal.durable().unwrap().unwrap();
    cycle(&journal).unwrap();
    commit(&journal, 1).unwrap();
    let logs = count(&disk, "log-");
    cycle(&journal).unwrap();
    assert!(count(&disk, "log-") <= logs);
}

#[test]
fn what_was_recovered_is_not_pruned_before_it_was_read() {
    let (folder, disk, journal) = opened(small());
    commits(&journal, 30, 2);
    drop(journal);
    let (journal, recovered) = open(&disk, folder.path(), small()).unwrap();
    for _ in 0..2 {
        commits(&journal, 30, 2);
        snapshot(&journal).unwrap();
    }
    assert_eq!(journal.prune().unwrap(), 0);
    commits(&journal, 30, 2);
    drop(journal);
    // Nor would another process's journal get at it.
    let error = open(&disk, folder.path(), small()).unwrap_err();
    assert!(matches!(error, JournalError::Locked { .. }), "{error}");
    assert_eq!(check(recovered).unwrap(), 60);
    assert_eq!(check(open(&disk, folder.path(), small()).unwrap().1).unwrap(), 240);
}

#[test]
fn a_snapshot_that_is_removed_while_it_is_read_stays_readable() {
    let (_folder, disk, journal) = opened(small());
    commit(&journal, 5).unwrap();
    snapshot(&journal).unwrap();
    commit(&journal, 1).unwrap();
    let mut durable = journal.durable().unwrap().unwrap();
    for _ in 0..3 {
        commit(&journal, 1).unwrap();
        snapshot(&journal).unwrap();
    }
    assert!(!disk.names().contains(&"snapshot-00000000000000000005".to_owned()));
    let mut bytes = Vec::new();
    durable.snapshot.take().unwrap().read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, state(5));
}

#[test]
fn a_snapshot_that_has_been_damaged_is_put_aside_and_the_one_before_it_taken() {
    let (_folder, disk, journal) = opened(small());
    for _ in 0..2 {
        commits(&journal, 20, 2);
        cycle(&journal).unwrap();
    }
    let (newest, bytes) = ("snapshot-00000000000000000080", journal.status().bytes);
    assert_eq!(journal.durable().unwrap().map(|durable| durable.last), None, "nothing is new");
    commit(&journal, 1).unwrap();
    let len = disk.with(newest, |bytes| {
        bytes[97] ^= 1;
        bytes.len() as u64
    });
    let durable = journal.durable().unwrap().unwrap();
    assert_eq!((durable.snapshot.as_ref().unwrap().seq, durable.last), (Seq(40), Seq(81)));
    assert_eq!(check_durable(durable).unwrap(), 81);
    let status = journal.status();
    // Segments may have been made ahead meanwhile.
    assert_eq!((status.snapshot, (status.bytes + len - bytes) % 4096), (Seq(40), 0));
    assert_eq!(count(&disk, "damaged-snapshot-"), 1);
    let report = verify_on(Arc::new(disk.clone()), "/journal".as_ref()).unwrap();
    assert_eq!((report.is_sound(), report.snapshots_aside.len()), (true, 1));
    // The next snapshot is one of two that are whole, and pruning goes by the other.
    cycle(&journal).unwrap();
    disk.with("snapshot-00000000000000000081", |bytes| bytes[97] ^= 1);
    commit(&journal, 1).unwrap();
    assert_eq!(check_durable(journal.durable().unwrap().unwrap()).unwrap(), 82);
    drop(journal);
    assert_eq!(restart(disk.world(), small()).unwrap().0, 82);
}

#[test]
fn damage_in_what_is_read_is_told_by_file_and_offset() {
    let (_folder, disk, journal) = opened(small());
    commits(&journal, 30, 1);
    // The first batch, and the very last one, behind which nothing shows that it is not whole.
    let last = journal.status().durable;
    let report = verify_on(Arc::new(disk.clone()), "/journal".as_ref()).unwrap();
    let tail = report.segments.iter().rfind(|segment| segment.first <= last).unwrap().path.clone();
    let tail = tail.file_name().unwrap().to_str().unwrap();
    let end = disk.with(tail, |bytes| (512..4096).step_by(512).rfind(|at| bytes[*at..*at + 4] == *b"GlnJ").unwrap());
    for (name, at) in [("log-000000000001", 512), (tail, end)] {
        disk.with(name, |bytes| bytes[at + 30] ^= 1);
        let error = check_durable(journal.durable().unwrap().unwrap()).unwrap_err();
        let JournalError::Damaged { path, offset, .. } = &error else { panic!("{error}") };
        assert!(path.ends_with(name) && *offset == at as u64, "{error}");
        disk.with(name, |bytes| bytes[at + 30] ^= 1);
    }
    commit(&journal, 1).unwrap();
    assert_eq!(check_durable(journal.durable().unwrap().unwrap()).unwrap(), 31, "the journal goes on");
}

#[test]
fn a_journal_that_is_in_use_is_told_sound() {
    let slow = Options { extra_fsync_delay: Duration::from_micros(100), ..small() };
    let (_folder, disk, journal) = opened(slow);
    let shared: Arc<SimDisk> = Arc::new(disk.clone());
    let look = || {
        for _ in 0..150 {
            let told = disk.told.load(SeqCst);
            let report = verify_on(shared.clone(), "/journal".as_ref()).unwrap();
            assert!(report.is_sound() && report.last.0 >= told && report.is_there, "{report:?}");
            let entries = dump_on(shared.clone(), "/journal".as_ref(), Seq(told)).unwrap();
            // The segment may be pruned before it is read.
            assert!(entries.map_while(Result::ok).all(|entry| entry.record == record(entry.seq.0)));
        }
    };
    std::thread::scope(|scope| {
        let looker = scope.spawn(look);
        beside_a_writer(&journal, 1, |_| {
            cycle(&journal).unwrap();
            looker.is_finished()
        });
    });
}

#[test]
fn a_torn_end_is_told_and_is_no_damage() {
    let (_folder, disk, journal) = opened(small());
    commits(&journal, 2, 1);
    let verify = |disk: &SimDisk| verify_on(Arc::new(disk.clone()), "/journal".as_ref()).unwrap();
    assert_eq!(verify(&disk).torn, None);
    let seq = journal.append(&[7; 2000]).unwrap();
    journal.flush_wait(seq, LONG).unwrap();
    disk.with("log-000000000001", |bytes| bytes[1536 + 600..].fill(0));
    let report = verify(&disk);
    let torn = report.torn.as_ref().unwrap();
    assert!(report.is_sound() && torn.path.ends_with("log-000000000001"), "{report:?}");
    assert_eq!((report.last, torn.offset, torn.records), (Seq(2), 1536, 1));
    assert!(!verify_on(Arc::new(SimDisk::default()), "/journal".as_ref()).unwrap().is_there);
}

#[test]
fn a_journal_that_is_dead_gives_nothing() {
    let (_folder, disk, journal) = opened(small());
    commit(&journal, 1).unwrap();
    disk.set_fault(Some(super::sim::Fault { at: 0, errno: rustix::io::Errno::IO, once: false, is_of_changes: true }));
    commit(&journal, 1).unwrap_err();
    assert!(matches!(journal.durable(), Err(JournalError::Dead(_))));
}
