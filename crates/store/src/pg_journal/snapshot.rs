//! Writing snapshots, in chunks that each are a transaction; and freeing what is before the older of two.

use super::Shared;
use super::lease::{Keeper, fenced};
use super::read::View;
use super::schema::chunk_sum;
use super::session::{Session, Trouble};
use crate::intake::{SNAPSHOTS_KEPT, Source};
use crate::journal::format::CHUNK_BYTES_MAX;
use crate::journal::{JournalError, Seq};
use crate::lock;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio_postgres::types::ToSql;

const PUT_CHUNK: &str =
    fenced!("INSERT INTO {s}.chunks (seq, number, bytes, checksum) SELECT $2, $3, $4, $5 FROM fence");
/// From here on the snapshot is there.
const PUT_SNAPSHOT: &str = fenced!(
    "INSERT INTO {s}.snapshots (seq, epoch, logic_version, chunks, bytes) SELECT $2, $1, $3, $4, $5 FROM fence"
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

/// An owned parameter of a statement.
type Param = Box<dyn ToSql + Sync + Send>;

/// A session whose caller waits, on a thread of any kind.
struct Writer<'a> {
    keeper: &'a Arc<Keeper>,
    session: Option<Session>,
}

impl<'a> Writer<'a> {
    fn open(keeper: &'a Arc<Keeper>) -> Result<Self, JournalError> {
        let ours = keeper.clone();
        let session = keeper.engine.wait(async move { ours.session().await });
        let session = session.unwrap_or_else(|| Err(Trouble::Lost("a bug".into())));
        let session = session.map_err(|why| keeper.place.failed("write a snapshot to", why))?;
        Ok(Self { keeper, session: Some(session) })
    }

    /// Does a statement that gives a row, the first number of which is 0 if another hub has taken over.
    fn ask(&mut self, sql: &'static str, params: Vec<Param>) -> Result<[i64; 3], JournalError> {
        let failed = |why: &dyn std::fmt::Display| self.keeper.place.failed("write a snapshot to", why);
        let mut session = self.session.take().ok_or_else(|| failed(&"the connection was lost"))?;
        let asked = self.keeper.engine.wait(async move {
            let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|param| &**param as _).collect();
            let rows = session.rows(sql, &params).await;
            (session, rows)
        });
        let (session, rows) = asked.ok_or_else(|| failed(&"a bug"))?;
        let rows = rows.map_err(|why| failed(&why))?;
        self.session = Some(session);
        let row = rows.first();
        let numbers = std::array::from_fn(|at| row.filter(|row| at < row.len()).map_or(0, |row| row.get(at)));
        if numbers[0] == 0 { Err(self.keeper.fenced()) } else { Ok(numbers) }
    }

    /// Does a statement that writes one row.
    fn put(&mut self, sql: &'static str, params: Vec<Param>) -> Result<(), JournalError> {
        let failed = |why: &dyn std::fmt::Display| self.keeper.place.failed("write a snapshot to", why);
        let mut session = self.session.take().ok_or_else(|| failed(&"the connection was lost"))?;
        let put = self.keeper.engine.wait(async move {
            let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|param| &**param as _).collect();
            let count = session.execute(sql, &params).await;
            (session, count)
        });
        let (session, count) = put.ok_or_else(|| failed(&"a bug"))?;
        let count = count.map_err(|why| failed(&why))?;
        self.session = Some(session);
        if count == 0 { Err(self.keeper.fenced()) } else { Ok(()) }
    }
}

/// Writes a snapshot's chunks.
struct Chunks<'a, 'b> {
    writer: &'b mut Writer<'a>,
    seq: i64,
    number: i64,
    chunk: Vec<u8>,
    bytes: i64,
    failed: Option<JournalError>,
}

impl Chunks<'_, '_> {
    fn put_chunk(&mut self) -> io::Result<()> {
        let chunk = std::mem::take(&mut self.chunk);
        let sum = chunk_sum(&self.writer.keeper.identity, self.seq, self.number, &chunk).to_vec();
        self.bytes += chunk.len() as i64;
        let epoch = self.writer.keeper.epoch as i64;
        let params: Vec<Param> =
            vec![Box::new(epoch), Box::new(self.seq), Box::new(self.number), Box::new(chunk), Box::new(sum)];
        self.number += 1;
        self.writer.put(PUT_CHUNK, params).map_err(|error| {
            let told = io::Error::other(error.to_string());
            self.failed = Some(error);
            told
        })
    }
}

impl io::Write for Chunks<'_, '_> {
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
        let mut writer = Writer::open(&self.keeper)?;
        // What an earlier failure has left.
        self.keep_only(&mut writer, SNAPSHOTS_KEPT)?;
        let bytes = self.fatal_if_fenced(self.put_snapshot(&mut writer, seq, logic_version, source))?;
        lock(&self.snapshots).push((seq.0, bytes));
        self.intake.bytes.fetch_add(bytes, Relaxed);
        let before = self.bytes_after_snapshot.load(Relaxed);
        let (_, after) = View::open(&self.keeper)?.sizes(seq.0)?;
        let since = self.bytes_after_snapshot.load(Relaxed) - before;
        self.bytes_after_snapshot.store(after + since, Relaxed);
        self.keep_only(&mut writer, SNAPSHOTS_KEPT)
    }

    fn put_snapshot(
        &self,
        writer: &mut Writer<'_>,
        seq: Seq,
        logic_version: u32,
        source: Source<'_>,
    ) -> Result<u64, JournalError> {
        let seq = seq.0 as i64;
        let mut chunks = Chunks { writer, seq, number: 0, chunk: Vec::new(), bytes: 0, failed: None };
        let mut written = source(&mut chunks);
        if written.is_ok() && !chunks.chunk.is_empty() {
            written = chunks.put_chunk();
        }
        if let Err(error) = written {
            let failed = || self.keeper.place.failed("write a snapshot to", error);
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
        writer.put(PUT_SNAPSHOT, params)?;
        Ok(bytes as u64)
    }

    /// Removes all snapshots but the newest `count` that are known to be whole.
    fn keep_only(&self, writer: &mut Writer<'_>, count: usize) -> Result<(), JournalError> {
        let (kept, gone) = {
            let known = lock(&self.snapshots);
            let (gone, kept) = known.split_at(known.len().saturating_sub(count));
            (kept.to_vec(), gone.iter().map(|(_, bytes)| *bytes).sum::<u64>())
        };
        let seqs: Vec<i64> = kept.iter().map(|(seq, _)| *seq as i64).collect();
        let params: Vec<Param> = vec![Box::new(self.keeper.epoch as i64), Box::new(seqs)];
        self.fatal_if_fenced(writer.ask(DROP_SNAPSHOTS, params))?;
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
        let mut writer = Writer::open(&self.keeper)?;
        let mut freed = 0;
        loop {
            let params: Vec<Param> = vec![Box::new(self.keeper.epoch as i64), Box::new(older)];
            let [_, count, bytes] = self.fatal_if_fenced(writer.ask(PRUNE, params))?;
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
