//! What the journal takes, on a machine that does nothing else: `cargo run --release -p store --example measure_journal`.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use store::journal::{Journal, JournalError, Options, Seq};

const RECORD_BYTES: usize = 100;
/// How long the disk may take for anything.
const LONG: Duration = Duration::from_secs(60);

fn main() {
    measure_commits();
    measure_recovery();
    measure_append();
}

/// When each record was told durable.
type ToldAt = Arc<Mutex<Vec<Instant>>>;

fn open(folder: &Path, extra_fsync_delay: Duration) -> (Journal, ToldAt) {
    let told_at = ToldAt::default();
    let told = told_at.clone();
    let tell = Box::new(move |outcome: Result<Seq, Arc<JournalError>>| {
        told.lock().expect("nobody panics with it").resize(outcome.expect("the disk works").0 as usize, Instant::now());
    });
    let options = Options { extra_fsync_delay, ..Options::default() };
    let (journal, _) = Journal::open(folder, options, tell).expect("the disk works");
    // The first segment is made before the first commit.
    let seq = journal.append(&[0; RECORD_BYTES]).expect("the disk works");
    journal.flush_wait(seq, LONG).expect("the disk works");
    (journal, told_at)
}

/// Appends for a while: as many as come due at this rate, or as many as are taken. Gives the times of the calls.
fn offer(journal: &Journal, per_second: Option<u64>, time: Duration) -> Vec<Instant> {
    let record = [7; RECORD_BYTES];
    let begun = Instant::now();
    let mut calls = Vec::new();
    while begun.elapsed() < time {
        let due = per_second.map_or(u64::MAX, |rate| begun.elapsed().as_micros() as u64 * rate / 1_000_000);
        while (calls.len() as u64) < due && begun.elapsed() < time {
            match journal.append(&record) {
                Ok(_) => calls.push(Instant::now()),
                Err(JournalError::Full { .. }) => thread::park_timeout(Duration::from_micros(50)),
                Err(error) => panic!("{error}"),
            }
        }
        thread::park_timeout(Duration::from_micros(200));
    }
    calls
}

fn measure_commits() {
    println!("offered/s  delay ms  records/s  batches/s  sync ms p50, p99, max  append to told ms p50, p99, max");
    for offered in [Some(20_000), None] {
        for delay in [0, 100, 2_000, 10_000].map(Duration::from_micros) {
            let folder = tempfile::tempdir().expect("the disk works");
            let (journal, told_at) = open(folder.path(), delay);
            let batches = journal.status().syncs.count;
            let begun = Instant::now();
            let calls = offer(&journal, offered, Duration::from_secs(5));
            journal.flush_wait(journal.status().taken, LONG).expect("the disk works");
            let seconds = begun.elapsed().as_secs_f64();
            let syncs = journal.status().syncs;
            let told_at = told_at.lock().expect("nobody panics with it");
            let mut waits: Vec<Duration> = calls.iter().zip(&told_at[1..]).map(|(call, told)| *told - *call).collect();
            waits.sort_unstable();
            let millis = |time: Duration| time.as_secs_f64() * 1e3;
            println!(
                "{:>9}  {:>8}  {:>9.0}  {:>9.0}  {:.2} {:.2} {:.1}   {:.2} {:.2} {:.1}",
                offered.map_or("all".into(), |rate| rate.to_string()),
                millis(delay),
                calls.len() as f64 / seconds,
                (syncs.count - batches) as f64 / seconds,
                millis(syncs.p50),
                millis(syncs.p99),
                millis(syncs.max),
                millis(waits[waits.len() / 2]),
                millis(waits[waits.len() / 100 * 99]),
                millis(waits[waits.len() - 1]),
            );
        }
    }
}

fn measure_recovery() {
    // Small batches are written where a sync costs nothing.
    for (per_batch, parent) in [(1000, "/tmp"), (4, "/dev/shm")] {
        let (folder, records) = (tempfile::tempdir_in(parent).expect("the disk works"), 1_000_000);
        let record = [7; RECORD_BYTES];
        let (journal, _) = open(folder.path(), Duration::ZERO);
        for at in 0..records {
            let seq = journal.append(&record).expect("the disk works");
            if at % per_batch == 0 {
                journal.flush_wait(seq, LONG).expect("the disk works");
            }
        }
        drop(journal);
        let begun = Instant::now();
        let (journal, recovered) =
            Journal::open(folder.path(), Options::default(), Box::new(|_| {})).expect("the disk works");
        let opened = begun.elapsed();
        let last = recovered.last;
        assert_eq!(
            recovered.records.map(|entry| entry.expect("the disk works").record.len()).sum::<usize>(),
            last.0 as usize * 100
        );
        println!("{last} records, {per_batch} a batch or more: opened in {opened:?}, read after {:?}", begun.elapsed());
        println!("{} segments", journal.status().segments);
    }
}

fn measure_append() {
    let folder = tempfile::tempdir().expect("the disk works");
    let (journal, _) = open(folder.path(), Duration::from_secs(1));
    let record = [7; RECORD_BYTES];
    let begun = Instant::now();
    let count = 50_000;
    for _ in 0..count {
        journal.append(&record).expect("the disk works");
    }
    println!("an append takes {:?}", begun.elapsed() / count);
}
