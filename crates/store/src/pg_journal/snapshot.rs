//! Writing snapshots, in chunks that each are a transaction; and freeing what is before the older of two.

use super::Shared;
use super::blocking::{Blocking, Param};
use super::lease::{Keeper, fenced};
use super::read::View;
use super::schema::chunk_sum;
use crate::intake::{SNAPSHOTS_KEPT, Source};
use crate::journal::format::CHUNK_BYTES_MAX;
use crate::journal::{JournalError, Seq};
use crate::lock;
use std::io;
use std::sync::atomic::Ordering::Relaxed;

const PUT_CHUNK: &str = fenced!(
    "INSERT INTO {s}.chunks (seq, number, bytes, checksum) SELECT $2, $3, $4, $5 FROM fence RETURNING 1::bigint"
);
/// From here on the snapshot is there.
const PUT_SNAPSHOT: &str = fenced!(
    "INSERT INTO {s}.snapshots (seq, epoch, logic_version, chunks, bytes) SELECT $2, $1, $3, $4, $5 FROM fence \
     RETURNING 1::bigint"
);
/// What is not of one of these snapshots goes, and what an unfinished one has left.
const DROP_SNAPSHOTS: &str = fenced!(
    ", gone AS (DELETE FROM {s}.snapshots WHERE seq <> ALL ($2) AND EXISTS (SELECT FROM fence)), \
    chunks AS (DELETE FROM {s}.chunks WHERE seq <> ALL ($2) AND EXISTS (SELECT FROM fence)) \
    SELECT count(*) FROM fence"
);
const PRUNE: &str = fenced!(
    ", gone AS (DELETE FROM {s}.batches WHERE EXISTS (SELECT FROM fence) AND first IN ( \
        SELECT first FROM {s}.batches WHERE first <= $2 AND first + count - 1 <= $2 ORDER BY first LIMIT 10000) \
        RETURNING octet_length(bytes) AS len) \
    SELECT (SELECT count(*) FROM fence), count(*), coalesce(sum(len), 0)::bigint FROM gone"
);

/// What a session for all this is for.
pub(super) const DOING: &str = "write a snapshot to";

/// Writes a snapshot's chunks.
struct Chunks<'a> {
    keeper: &'a Keeper,
    writer: &'a mut Blocking,
    seq: i64,
    number: i64,
    chunk: Vec<u8>,
    bytes: i64,
    failed: Option<JournalError>,
}

impl Chunks<'_> {
    fn put_chunk(&mut self) -> io::Result<()> {
        let chunk = std::mem::take(&mut self.chunk);
        let sum = chunk_sum(&self.keeper.identity, self.seq, self.number, &chunk).to_vec();
        self.bytes += chunk.len() as i64;
        let epoch = self.keeper.epoch as i64;
        let params: Vec<Param> =
            vec![Box::new(epoch), Box::new(self.seq), Box::new(self.number), Box::new(chunk), Box::new(sum)];
        self.number += 1;
        self.writer.fenced(PUT_CHUNK, params).map(drop).map_err(|error| {
            let told = io::Error::other(error.to_string());
            self.failed = Some(error);
            told
        })
    }
}

impl io::Write for Chunks<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = CHUNK_BYTES_MAX - self.chunk.len();
        let count = room.min(bytes.len());
        self.chunk.extend_from_slice(&bytes[..count]);
        if count == room {
            self.put_chunk()?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    /// Writes a snapshot, and removes those before the newest two.
    pub fn write_snapshot(&self, seq: Seq, logic_version: u32, source: Source<'_>) -> Result<(), JournalError> {
        let _one = self.intake.begin_snapshot(seq, || lock(&self.snapshots).last().map_or(0, |(seq, _)| *seq))?;
        let mut writer = Blocking::open(&self.keeper, DOING, None)?;
        // What an earlier failure has left.
        self.keep_only(&mut writer, SNAPSHOTS_KEPT)?;
        let bytes = self.fatal_if_fenced(self.put_snapshot(&mut writer, seq, logic_version, source))?;
        lock(&self.snapshots).push((seq.0, bytes));
        self.intake.bytes.fetch_add(bytes, Relaxed);
        self.count(seq)?;
        self.keep_only(&mut writer, SNAPSHOTS_KEPT)
    }

    /// Sets both counters of bytes to what the tables hold: a statement whose answer was lost may have freed what was not
    /// counted. What is committed meanwhile may be counted twice until the next snapshot.
    fn count(&self, newest: Seq) -> Result<(), JournalError> {
        let (all_before, after_before) = (self.intake.bytes.load(Relaxed), self.bytes_after_snapshot.load(Relaxed));
        let (records, after) = View::open(&self.keeper)?.sizes(newest.0)?;
        let all = records + lock(&self.snapshots).iter().map(|(_, bytes)| bytes).sum::<u64>();
        // The differences may be negative: then adding them wraps around.
        self.intake.bytes.fetch_add(all.wrapping_sub(all_before), Relaxed);
        self.bytes_after_snapshot.fetch_add(after.wrapping_sub(after_before), Relaxed);
        Ok(())
    }

    pub(super) fn put_snapshot(
        &self,
        writer: &mut Blocking,
        seq: Seq,
        logic_version: u32,
        source: Source<'_>,
    ) -> Result<u64, JournalError> {
        let seq = seq.0 as i64;
        let mut chunks =
            Chunks { keeper: &self.keeper, writer, seq, number: 0, chunk: Vec::new(), bytes: 0, failed: None };
        let mut written = source(&mut chunks);
        if written.is_ok() && !chunks.chunk.is_empty() {
            written = chunks.put_chunk();
        }
        if let Err(error) = written {
            let failed = || self.keeper.place.failed(DOING, error);
            return Err(chunks.failed.take().unwrap_or_else(failed));
        }
        let (count, bytes) = (chunks.number, chunks.bytes);
        let params: Vec<Param> = vec![
            Box::new(self.keeper.epoch as i64),
            Box::new(seq),
            Box::new(i64::from(logic_version)),
            Box::new(count),
            Box::new(bytes),
        ];
        writer.fenced(PUT_SNAPSHOT, params)?;
        Ok(bytes as u64)
    }

    /// Removes all snapshots but the newest `count` that are known to be whole.
    pub(super) fn keep_only(&self, writer: &mut Blocking, count: usize) -> Result<(), JournalError> {
        let (kept, gone) = {
            let known = lock(&self.snapshots);
            let (gone, kept) = known.split_at(known.len().saturating_sub(count));
            (kept.to_vec(), gone.iter().map(|(_, bytes)| *bytes).sum::<u64>())
        };
        let seqs: Vec<i64> = kept.iter().map(|(seq, _)| *seq as i64).collect();
        let params: Vec<Param> = vec![Box::new(self.keeper.epoch as i64), Box::new(seqs)];
        self.fatal_if_fenced(writer.fenced(DROP_SNAPSHOTS, params))?;
        *lock(&self.snapshots) = kept;
        self.intake.bytes.fetch_sub(gone, Relaxed);
        Ok(())
    }

    /// Frees the batches that end before the older of the two snapshots; says how many.
    pub fn prune(&self) -> Result<u64, JournalError> {
        self.intake.check_alive()?;
        let older = {
            let known = lock(&self.snapshots);
            known.len().checked_sub(2).map(|at| known[at].0 as i64)
        };
        let Some(older) = older else { return Ok(0) };
        self.free_to(older)
    }

    /// Frees the batches that end with a record or before it; says how many.
    pub(super) fn free_to(&self, older: i64) -> Result<u64, JournalError> {
        let mut writer = Blocking::open(&self.keeper, DOING, None)?;
        let mut freed = 0;
        loop {
            let params: Vec<Param> = vec![Box::new(self.keeper.epoch as i64), Box::new(older)];
            let [_, count, bytes] = self.fatal_if_fenced(writer.fenced(PRUNE, params))?;
            if count == 0 {
                return Ok(freed);
            }
            freed += count as u64;
            self.intake.bytes.fetch_sub(bytes as u64, Relaxed);
        }
    }

    /// Another hub has taken over: that is the end, whoever notices it first.
    fn fatal_if_fenced<T>(&self, outcome: Result<T, JournalError>) -> Result<T, JournalError> {
        outcome.map_err(|error| match error {
            JournalError::Fenced { .. } => JournalError::Dead(self.intake.kill(error)),
            error => error,
        })
    }
}
