//! Tests of the journal in a database, on servers of their own. PostgreSQL must be installed: `apt-get install postgresql`.

mod faults;
mod hubs;
mod plain;
mod server;
mod tls;
mod upkeep;

use super::{Lease, PgJournal, Place, Taking};
use crate::journal::{JournalError, Options, Seq};
use crate::{lock, log};
use server::Server;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Longer than any step may take.
const LONG: Duration = Duration::from_secs(20);

/// A journal that remembers what it told.
struct Hub {
    journal: PgJournal,
    told: Arc<Mutex<Told>>,
}

#[derive(Default)]
struct Told {
    durable: u64,
    end: Option<Arc<JournalError>>,
}

/// The bytes of each record, which its number tells.
fn record(seq: u64) -> Vec<u8> {
    crate::tests::noise(seq, (seq * 53 % 311) as usize)
}

fn state(seq: u64) -> Vec<u8> {
    crate::tests::noise(seq ^ 0x5eed, (seq * 7919 % 900_000) as usize)
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn take(place: &Place) -> Lease {
    block_on(Lease::wait(place, "test", &[], |_| {})).unwrap()
}

fn open_with(lease: Lease, options: Options) -> Result<(Hub, log::Contents), JournalError> {
    let told = Arc::new(Mutex::new(Told::default()));
    let telling = told.clone();
    let tell = Box::new(move |outcome: Result<Seq, Arc<JournalError>>| {
        let mut told = lock(&telling);
        match outcome {
            Ok(seq) => {
                assert!(seq.0 > told.durable && told.end.is_none(), "what is durable grows");
                told.durable = seq.0;
            }
            Err(error) => assert!(told.end.replace(error).is_none(), "there is one end"),
        }
    });
    let (journal, contents) = PgJournal::open(lease, options, tell)?;
    Ok((Hub { journal, told }, contents))
}

fn open(place: &Place) -> (Hub, log::Contents) {
    open_with(take(place), Options { logic_version: 3, ..Options::default() }).unwrap()
}

impl Hub {
    /// Appends the next records, and waits until they are durable.
    fn commit(&self, count: u64) -> Result<Seq, JournalError> {
        let mut last = self.journal.status().taken;
        for _ in 0..count {
            let next = last.0 + 1;
            last = self.journal.append_quietly(&record(next))?;
            assert_eq!(last.0, next);
        }
        self.journal.flush_wait(last, LONG)
    }

    fn snapshot(&self) -> Result<(), JournalError> {
        let seq = self.journal.status().durable;
        self.journal.write_snapshot(seq, 3, &mut |out| out.write_all(&state(seq.0)))
    }

    fn durable(&self) -> u64 {
        lock(&self.told).durable
    }

    /// Why the journal has ended, once it has.
    fn end(&self) -> Arc<JournalError> {
        for _ in 0..2000 {
            if let Some(end) = &lock(&self.told).end {
                return end.clone();
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
        panic!("the journal goes on");
    }
}

/// Compares all that was found with what was written; gives the snapshot's record and the last one.
fn check(contents: log::Contents) -> (u64, u64) {
    let mut base = 0;
    if let Some(mut snapshot) = contents.snapshot {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut snapshot, &mut bytes).unwrap();
        base = snapshot.seq.0;
        assert!(bytes == state(base), "the snapshot at {base}");
        assert_eq!(snapshot.logic_version, 3);
    }
    let mut next = base + 1;
    for entry in contents.records {
        let entry = entry.unwrap();
        assert_eq!((entry.seq.0, entry.logic_version), (next, 3));
        assert!(entry.record == record(next), "record {next}");
        next += 1;
    }
    assert_eq!(next, contents.last.0 + 1);
    (base, contents.last.0)
}
