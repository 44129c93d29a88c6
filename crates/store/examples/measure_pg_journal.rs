//! What the journal in PostgreSQL takes, against a server that is given:
//! `cargo run --release -p store --example measure_pg_journal -- postgres://user@host/database`. It uses schemas of its own.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use store::journal::{JournalError, Options, Seq};
use store::log::Contents;
use store::pg_journal::{Lease, PgJournal, Place};

const RECORD_BYTES: usize = 100;
/// How long the database may take for anything.
const LONG: Duration = Duration::from_secs(60);
/// Tasks whose records a standby reads.
const TASKS: u64 = 100_000;
/// Records of one task: about what a workunit leaves in the hub's journal.
const RECORDS_PER_TASK: u64 = 5;

fn main() {
    let url = std::env::args().nth(1).expect("the URL of a database is the argument");
    let place = |schema: &str| {
        let and = if url.contains('?') { '&' } else { '?' };
        let schema = format!("{schema}_{}", std::process::id());
        Place::parse(&format!("{url}{and}schema={schema}")).expect("a URL")
    };
    measure_commits(&place("commits"));
    measure_takeover(&place("takeover"));
}

/// When each record was told durable.
type ToldAt = Arc<Mutex<Vec<Instant>>>;

fn take(place: &Place) -> Lease {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(Lease::wait(place, "measure", |why| println!("{why}"))).expect("the database works")
}

fn open(place: &Place) -> (PgJournal, Contents, ToldAt) {
    let told_at = ToldAt::default();
    let told = told_at.clone();
    let tell = Box::new(move |outcome: Result<Seq, Arc<JournalError>>| {
        if let Ok(seq) = outcome {
            told.lock().expect("nobody panics with it").resize(seq.0 as usize, Instant::now());
        }
    });
    let (journal, contents) = PgJournal::open(take(place), Options::default(), tell).expect("the database works");
    (journal, contents, told_at)
}

/// Appends for a while: as many as come due at this rate, or as many as are taken. Gives the times of the calls.
fn offer(journal: &PgJournal, per_second: Option<u64>, time: Duration) -> Vec<Instant> {
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

fn measure_commits(place: &Place) {
    println!("offered/s  records/s  batches/s  commit ms p50, p99, max  append to told ms p50, p99, max");
    for offered in [Some(1_000), Some(20_000), None] {
        let (journal, _, told_at) = open(place);
        let before = journal.status();
        let begun = Instant::now();
        let calls = offer(&journal, offered, Duration::from_secs(5));
        let taken = journal.status().taken;
        journal.flush_wait(taken, LONG).expect("the database works");
        let seconds = begun.elapsed().as_secs_f64();
        let syncs = journal.status().syncs;
        // The last one is told right after that.
        drop(journal);
        let told_at = told_at.lock().expect("nobody panics with it");
        let told = &told_at[before.taken.0 as usize..];
        let mut waits: Vec<Duration> = calls.iter().zip(told).map(|(call, told)| *told - *call).collect();
        waits.sort_unstable();
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        println!(
            "{:>9}  {:>9.0}  {:>9.0}  {:.2} {:.2} {:.1}   {:.2} {:.2} {:.1}",
            offered.map_or("all".into(), |rate| rate.to_string()),
            calls.len() as f64 / seconds,
            syncs.count as f64 / seconds,
            millis(syncs.p50),
            millis(syncs.p99),
            millis(syncs.max),
            millis(waits[waits.len() / 2]),
            millis(waits[waits.len() / 100 * 99]),
            millis(waits[waits.len() - 1]),
        );
    }
}

/// How long a standby takes from the lease to the last record, and to a state of the same tasks in a snapshot.
fn measure_takeover(place: &Place) {
    let record = [7; 200];
    for per_batch in [1000, 10] {
        let (journal, contents, _) = open(place);
        let before = contents.last.0;
        for at in 1..=TASKS * RECORDS_PER_TASK {
            let seq = loop {
                match journal.append(&record) {
                    Ok(seq) => break seq,
                    Err(JournalError::Full { .. }) => thread::park_timeout(Duration::from_micros(200)),
                    Err(error) => panic!("{error}"),
                }
            };
            if at % per_batch == 0 {
                journal.flush_wait(seq, LONG).expect("the database works");
            }
        }
        let batches = journal.status().syncs.count;
        drop(journal);
        let begun = Instant::now();
        let (journal, contents, _) = open(place);
        let (opened, last) = (begun.elapsed(), contents.last);
        let count = contents.records.inspect(|entry| assert!(entry.is_ok(), "the database works")).count() as u64;
        assert_eq!(count, last.0 - contents.snapshot.map_or(0, |snapshot| snapshot.seq.0));
        println!(
            "{count} records in {batches} batches: lease and opening {opened:?}, read after {:?}",
            begun.elapsed()
        );
        assert_eq!(last.0 - before, TASKS * RECORDS_PER_TASK);
        let begun = Instant::now();
        let state = vec![7; TASKS as usize * 300];
        journal.write_snapshot(last, 0, &mut |out| out.write_all(&state)).expect("the database works");
        let written = begun.elapsed();
        let begun = Instant::now();
        println!("pruned {} batches in {:?}", journal.prune().expect("the database works"), begun.elapsed());
        drop(journal);
        let begun = Instant::now();
        let (_journal, contents, _) = open(place);
        let mut snapshot = contents.snapshot.expect("it was written");
        let bytes = std::io::copy(&mut snapshot, &mut std::io::sink()).expect("the database works");
        println!("a snapshot of {bytes} bytes: written in {written:?}, read after {:?}", begun.elapsed());
    }
}
