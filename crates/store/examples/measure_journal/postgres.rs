//! The journal in PostgreSQL.

use super::{COMMITS, LONG, Opened, append, measure_commits};
use std::time::Instant;
use store::journal::Options;
use store::log;
use store::pg_journal::{Lease, Place};

/// Tasks whose records a standby reads.
const TASKS: u64 = 100_000;
/// Records of one task: about what a workunit leaves in the hub's journal.
const RECORDS_PER_TASK: u64 = 5;

pub fn measure(url: &str) {
    let place = |schema: &str| {
        let and = if url.contains('?') { '&' } else { '?' };
        let schema = format!("{schema}_{}", std::process::id());
        Place::parse(&format!("{url}{and}schema={schema}")).expect("a URL")
    };
    println!("{COMMITS}");
    for offered in [Some(1_000), Some(20_000), None] {
        measure_commits(&open(&place("commits")), offered);
    }
    for per_batch in [1000, 10] {
        measure_takeover(&place("takeover"), per_batch);
    }
}

fn open(place: &Place) -> Opened {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let lease =
        runtime.block_on(Lease::wait(place, "measure", &[], |why| println!("{why}"))).expect("the database works");
    super::open(log::Place::Postgres(lease), Options::default())
}

/// How long a standby takes from the lease to the last record, and to a state of the same tasks in a snapshot.
fn measure_takeover(place: &Place, per_batch: u64) {
    let opened = open(place);
    let before = opened.contents.last.0;
    for at in 1..=TASKS * RECORDS_PER_TASK {
        let seq = append(&opened.log, &[7; 200]);
        if at % per_batch == 0 {
            opened.log.flush_wait(seq, LONG).expect("the database works");
        }
    }
    let batches = opened.log.status().syncs.count;
    drop(opened);
    let begun = Instant::now();
    let Opened { log, contents, .. } = open(place);
    let (opened, last) = (begun.elapsed(), contents.last);
    let count = contents.records.inspect(|entry| assert!(entry.is_ok(), "the database works")).count() as u64;
    let read = begun.elapsed();
    println!("{count} records in {batches} batches: lease and opening {opened:?}, read after {read:?}");
    assert_eq!(count, last.0 - contents.snapshot.map_or(0, |snapshot| snapshot.seq.0));
    assert_eq!(last.0 - before, TASKS * RECORDS_PER_TASK);
    let begun = Instant::now();
    let state = vec![7; TASKS as usize * 300];
    log.write_snapshot(last, 0, &mut |out| out.write_all(&state)).expect("the database works");
    let written = begun.elapsed();
    let begun = Instant::now();
    println!("pruned {} batches in {:?}", log.prune().expect("the database works"), begun.elapsed());
    drop(log);
    let begun = Instant::now();
    let found = open(place);
    let mut snapshot = found.contents.snapshot.expect("it was written");
    let bytes = std::io::copy(&mut snapshot, &mut std::io::sink()).expect("the database works");
    println!("a snapshot of {bytes} bytes: written in {written:?}, read after {:?}", begun.elapsed());
}
