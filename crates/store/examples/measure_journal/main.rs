//! What the journal takes, on a machine that does nothing else: `cargo run --release -p store --example measure_journal`.
//!
//! With the URL of a PostgreSQL database behind that (`-- postgres://user@host/database`), what the journal takes there, in schemas
//! of its own.

mod disk;
mod postgres;

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use store::journal::{JournalError, Options, Seq};
use store::log::{Contents, Log, Place};

const RECORD_BYTES: usize = 100;
/// How long the disk or the database may take for anything.
const LONG: Duration = Duration::from_secs(60);

fn main() {
    match std::env::args().nth(1) {
        None => disk::measure(),
        Some(url) => postgres::measure(&url),
    }
}

/// An open journal, what it held, and when each record was told durable.
struct Opened {
    log: Log,
    contents: Contents,
    told_at: Arc<Mutex<Vec<Instant>>>,
}

fn open(place: Place, options: Options) -> Opened {
    let told_at = Arc::<Mutex<Vec<Instant>>>::default();
    let told = told_at.clone();
    let tell = Box::new(move |outcome: Result<Seq, Arc<JournalError>>| {
        if let Ok(seq) = outcome {
            told.lock().expect("nobody panics with it").resize(seq.0 as usize, Instant::now());
        }
    });
    let (log, contents) = Log::open(place, options, tell).expect("it can be opened");
    Opened { log, contents, told_at }
}

/// Appends a record that somebody waits for; waits where there is no room.
fn append(log: &Log, record: &[u8]) -> Seq {
    loop {
        match log.append_quietly(record) {
            Ok(seq) => {
                log.commit_soon();
                return seq;
            }
            Err(JournalError::Full { .. }) => thread::park_timeout(Duration::from_micros(50)),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Appends for a while: as many as come due at this rate, or as many as are taken. Gives the times of the calls.
fn offer(log: &Log, per_second: Option<u64>, time: Duration) -> Vec<Instant> {
    let begun = Instant::now();
    let mut calls = Vec::new();
    while begun.elapsed() < time {
        let due = per_second.map_or(u64::MAX, |rate| begun.elapsed().as_micros() as u64 * rate / 1_000_000);
        while (calls.len() as u64) < due && begun.elapsed() < time {
            append(log, &[7; RECORD_BYTES]);
            calls.push(Instant::now());
        }
        thread::park_timeout(Duration::from_micros(200));
    }
    calls
}

const COMMITS: &str =
    "offered/s  records/s  batches/s  a batch's sync or commit ms p50, p99, max  append to told ms p50, p99, max";

/// Prints a row of figures under [`COMMITS`].
fn measure_commits(opened: &Opened, offered: Option<u64>) {
    let Opened { log, told_at, .. } = opened;
    // The first segment is made before the first commit.
    log.flush_wait(append(log, &[0; RECORD_BYTES]), LONG).expect("it is written");
    let before = log.status();
    let begun = Instant::now();
    let calls = offer(log, offered, Duration::from_secs(5));
    let last = log.status().taken;
    log.flush_wait(last, LONG).expect("it is written");
    let seconds = begun.elapsed().as_secs_f64();
    let syncs = log.status().syncs;
    // The last batch is told right after it was waited for.
    while (told_at.lock().expect("nobody panics with it").len() as u64) < last.0 {
        thread::park_timeout(Duration::from_millis(1));
    }
    let told_at = told_at.lock().expect("nobody panics with it");
    let told = &told_at[before.taken.0 as usize..];
    let mut waits: Vec<Duration> = calls.iter().zip(told).map(|(call, told)| *told - *call).collect();
    waits.sort_unstable();
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "{:>9}  {:>9.0}  {:>9.0}  {:.2} {:.2} {:.1}   {:.2} {:.2} {:.1}",
        offered.map_or("all".into(), |rate| rate.to_string()),
        calls.len() as f64 / seconds,
        (syncs.count - before.syncs.count) as f64 / seconds,
        millis(syncs.p50),
        millis(syncs.p99),
        millis(syncs.max),
        millis(waits[waits.len() / 2]),
        millis(waits[waits.len() / 100 * 99]),
        millis(waits[waits.len() - 1]),
    );
}
