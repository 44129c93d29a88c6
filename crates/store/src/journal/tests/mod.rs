//! Tests of the journal as a whole, most of them on a disk in memory that crashes and fails.

mod bounds;
mod crash;
mod damage;
mod durable;
mod faults;
mod model;
mod plain;
mod sim;
mod upkeep;

use super::folder::Folder;
use super::recover::{self, Start};
use super::{Durable, Entry, Journal, JournalError, Options, Records, Recovered, Seq, Snapshot, Told};
use crate::tests::noise;
use sim::{SimDisk, World};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// Longer than any test may take.
const LONG: Duration = Duration::from_secs(20);

/// Small segments: a header and seven sectors.
fn small() -> Options {
    Options { segment_bytes: 4096, buffer_bytes_max: 3000, bytes_max: 1 << 20, ..Options::default() }
}

/// The bytes of each record, which its number tells.
fn record(seq: u64) -> Vec<u8> {
    noise(seq, (seq * 53 % 311) as usize)
}

/// The state after a record.
fn state(seq: u64) -> Vec<u8> {
    noise(seq ^ 0x5eed, (seq * 97 % 1500) as usize)
}

/// Opens a journal on a disk in memory, which learns how far it is durable.
fn open(disk: &SimDisk, folder: &Path, options: Options) -> Result<(Journal, Recovered), JournalError> {
    let told = disk.told.clone();
    let told: Told = Box::new(move |outcome| {
        if let Ok(seq) = outcome {
            assert!(told.swap(seq.0, SeqCst) < seq.0, "what is durable grows");
        }
    });
    Journal::open_on(Arc::new(disk.clone()), folder, options, told)
}

/// Appends the next records one by one.
fn append(journal: &Journal, count: u64) -> Result<Seq, JournalError> {
    let mut last = journal.status().taken;
    for _ in 0..count {
        let next = Seq(last.0 + 1);
        last = journal.append(&record(next.0))?;
        assert_eq!(last, next);
    }
    Ok(last)
}

/// Appends the next records and waits until they are durable; each call is a batch of its own, or some.
fn commit(journal: &Journal, count: u64) -> Result<Seq, JournalError> {
    let last = append(journal, count)?;
    journal.flush_wait(last, LONG)
}

/// Commits again and again.
fn commits(journal: &Journal, batches: u64, count: u64) {
    for _ in 0..batches {
        commit(journal, count).unwrap();
    }
}

/// Writes a snapshot of what is durable.
fn snapshot(journal: &Journal) -> Result<(), JournalError> {
    let seq = journal.status().durable;
    journal.write_snapshot(seq, 1, &mut |out| out.write_all(&state(seq.0)))
}

/// Makes a snapshot of what is durable, as a hub does beside its running core, and prunes.
fn cycle(journal: &Journal) -> Result<(), JournalError> {
    let Some(durable) = journal.durable()? else { return Ok(()) };
    let last = check_durable(durable)?;
    journal.write_snapshot(Seq(last), 1, &mut |out| out.write_all(&state(last)))?;
    journal.prune().map(drop)
}

/// Reads what was recovered to its end, and checks that it is what was written; gives the last record.
fn check(recovered: Recovered) -> Result<u64, JournalError> {
    check_parts(recovered.snapshot, recovered.records, recovered.last)
}

/// The same for what was durable.
fn check_durable(durable: Durable) -> Result<u64, JournalError> {
    check_parts(durable.snapshot, durable.records, durable.last)
}

fn check_parts(snapshot: Option<Snapshot>, records: Records, last: Seq) -> Result<u64, JournalError> {
    let mut next = 1;
    if let Some(mut snapshot) = snapshot {
        let mut bytes = Vec::new();
        let read = snapshot.read_to_end(&mut bytes);
        read.map_err(|error| JournalError::io("read", "a snapshot".as_ref(), error))?;
        assert_eq!(bytes, state(snapshot.seq.0), "the snapshot at {}", snapshot.seq);
        next = snapshot.seq.0 + 1;
    }
    for entry in records {
        let Entry { seq, record: bytes, .. } = entry?;
        assert_eq!(seq.0, next, "there is no gap");
        assert_eq!(bytes, record(next), "record {next}");
        next += 1;
    }
    assert_eq!(last.0, next - 1);
    Ok(next - 1)
}

/// Starts from a world, without threads; gives the last record, and the world after it.
fn restart(world: World, options: Options) -> Result<(u64, World), JournalError> {
    let disk = SimDisk::of(world);
    let folder = Folder { disk: Arc::new(disk.clone()), path: "/journal".into() };
    let Start { recovered, .. } = recover::start(&folder, &options.bounded())?;
    Ok((check(recovered)?, disk.world()))
}

/// Writes to a journal all that can be written: batches, segments, snapshots, pruning, starts and new versions.
/// Goes on after errors that do not end the journal.
fn exercise(disk: &SimDisk, folder: &Path) -> Result<(), JournalError> {
    for round in 0..3 {
        let options = Options { epoch: round, logic_version: round as u32 / 2, ..small() };
        let (journal, recovered) = open(disk, folder, options)?;
        check(recovered)?;
        for step in 0..20 {
            commit(&journal, 1 + (step + round) % 4)?;
            match step {
                2 => journal.set_epoch(round + 1)?,
                4 | 6 | 17 => unless_dead(snapshot(&journal))?,
                16 => unless_dead(cycle(&journal))?,
                7 | 19 => unless_dead(journal.prune().map(drop))?,
                _ => {}
            }
        }
        append(&journal, 2)?;
    }
    Ok(())
}

fn unless_dead(outcome: Result<(), JournalError>) -> Result<(), JournalError> {
    match outcome {
        Err(error @ JournalError::Dead(_)) => Err(error),
        _ => Ok(()),
    }
}

/// A writer's error for tests.
fn broken() -> io::Error {
    io::Error::other("the core cannot be written")
}

/// The options with which all that [`exercise`] writes can be opened.
fn late() -> Options {
    Options { epoch: 9, logic_version: 9, ..small() }
}

/// Writes bytes as a source of a snapshot does.
fn write_parts(out: &mut dyn Write, bytes: &[u8], part: usize) -> io::Result<()> {
    bytes.chunks(part).try_for_each(|part| out.write_all(part))
}
