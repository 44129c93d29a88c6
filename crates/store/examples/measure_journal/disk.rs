//! The journal on a disk.

use super::{COMMITS, LONG, RECORD_BYTES, append, measure_commits, open};
use std::time::{Duration, Instant};
use store::journal::Options;
use store::log::Place;

/// Records that a start reads.
const RECORDS: u64 = 1_000_000;

pub fn measure() {
    for delay in [0, 100, 2_000, 10_000].map(Duration::from_micros) {
        println!("with {delay:?} more for each sync:\n{COMMITS}");
        for offered in [Some(20_000), None] {
            let folder = tempfile::tempdir().expect("the disk works");
            let options = Options { extra_fsync_delay: delay, ..Options::default() };
            measure_commits(&open(Place::Disk(folder.path().to_owned()), options), offered);
        }
    }
    // Small batches are written where a sync costs nothing.
    measure_recovery(1000, "/tmp");
    measure_recovery(4, "/dev/shm");
    measure_append();
}

fn measure_recovery(per_batch: u64, parent: &str) {
    let folder = tempfile::tempdir_in(parent).expect("the disk works");
    let place = || Place::Disk(folder.path().to_owned());
    let opened = open(place(), Options::default());
    for at in 0..RECORDS {
        let seq = append(&opened.log, &[7; RECORD_BYTES]);
        if at % per_batch == 0 {
            opened.log.flush_wait(seq, LONG).expect("the disk works");
        }
    }
    drop(opened);
    let begun = Instant::now();
    let found = open(place(), Options::default());
    let opened = begun.elapsed();
    let records = found.contents.records.map(|entry| entry.expect("the disk works").record);
    assert_eq!(records.map(|record| record.len()).sum::<usize>(), RECORDS as usize * RECORD_BYTES);
    let (read, segments) = (begun.elapsed(), found.log.status().segments);
    println!(
        "{RECORDS} records in {segments} segments, {per_batch} a batch or more: opened in {opened:?}, read after {read:?}"
    );
}

fn measure_append() {
    let folder = tempfile::tempdir().expect("the disk works");
    let options = Options { extra_fsync_delay: Duration::from_secs(1), ..Options::default() };
    let opened = open(Place::Disk(folder.path().to_owned()), options);
    let (begun, count) = (Instant::now(), 50_000);
    for _ in 0..count {
        append(&opened.log, &[7; RECORD_BYTES]);
    }
    println!("an append takes {:?}", begun.elapsed() / count);
}
