//! Reading: a snapshot and the records after it, by pages, out of one transaction that sees the tables as they were when it began.
//! So pruning takes nothing away from a reader, and neither waits for the other.

use super::blocking::{Blocking, Param};
use super::lease::Keeper;
use super::schema::{batch_sum, chunk_sum};
use crate::journal::format::front_record;
use crate::journal::{Entry, JournalError, Seq};
use crate::{lock, log};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use tokio_postgres::Row;

const VIEW: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
/// About a megabyte of batches, or the one that is larger.
const PAGE: &str = "SELECT first, count, epoch, logic_version, bytes, checksum FROM ( \
        SELECT *, sum(octet_length(bytes)) OVER (ORDER BY first) - octet_length(bytes) AS before FROM ( \
            SELECT * FROM {s}.batches WHERE first >= $1 AND first <= $2 ORDER BY first LIMIT 1000) AS page) AS sized \
    WHERE before < 1048576 ORDER BY first";
/// The batch with a record, or the one before it.
const WITH_RECORD: &str = "SELECT max(first) FROM {s}.batches WHERE first <= $1";
const FIRST: &str = "SELECT min(first) FROM {s}.batches";
const LAST: &str = "SELECT first + count - 1, epoch FROM {s}.batches ORDER BY first DESC LIMIT 1";
const SNAPSHOTS: &str = "SELECT seq, epoch, logic_version, chunks, bytes FROM {s}.snapshots ORDER BY seq";
const CHUNKS: &str =
    "SELECT bytes, checksum FROM {s}.chunks WHERE seq = $1 AND number >= $2 AND number < $3 ORDER BY number";
/// How many chunks are read at once.
const CHUNKS_AT_ONCE: i64 = 4;
/// The sizes of what is stored: records, and those of them after a snapshot.
const SIZES: &str = "SELECT coalesce(sum(octet_length(bytes)), 0)::bigint, \
    coalesce(sum(octet_length(bytes)) FILTER (WHERE first > $1), 0)::bigint FROM {s}.batches";

/// The tables as they were at one moment.
#[derive(Clone)]
pub(crate) struct View {
    keeper: Arc<Keeper>,
    session: Arc<Mutex<Blocking>>,
}

/// A row of the snapshots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SnapshotRow {
    pub seq: i64,
    pub epoch: i64,
    pub logic_version: i64,
    chunks: i64,
    pub bytes: i64,
}

impl View {
    /// Begins to look.
    pub fn open(keeper: &Arc<Keeper>) -> Result<Self, JournalError> {
        let session = Blocking::open(keeper, "read", Some(VIEW))?;
        Ok(Self { keeper: keeper.clone(), session: Arc::new(Mutex::new(session)) })
    }

    /// Asks for rows, of which there must be few. Waits for them.
    fn rows(&self, sql: &'static str, params: &[i64]) -> Result<Vec<Row>, JournalError> {
        let params = params.iter().map(|param| Box::new(*param) as Param).collect();
        lock(&self.session).rows(sql, params)
    }

    /// The snapshots, ascending.
    pub fn snapshots(&self) -> Result<Vec<SnapshotRow>, JournalError> {
        let row = |row: &Row| SnapshotRow {
            seq: row.get(0),
            epoch: row.get(1),
            logic_version: row.get(2),
            chunks: row.get(3),
            bytes: row.get(4),
        };
        Ok(self.rows(SNAPSHOTS, &[])?.iter().map(row).collect())
    }

    /// The last record that is stored.
    pub fn last(&self) -> Result<u64, JournalError> {
        Ok(self.rows(LAST, &[])?.first().map_or(0, |row| row.get::<_, i64>(0) as u64))
    }

    /// Bytes of all records, and of those after one.
    pub fn sizes(&self, base: u64) -> Result<(u64, u64), JournalError> {
        let rows = self.rows(SIZES, &[base as i64])?;
        Ok(rows.first().map_or((0, 0), |row| (row.get::<_, i64>(0) as u64, row.get::<_, i64>(1) as u64)))
    }

    /// The newest of these snapshots that is whole, and the records after it up to `last`. Those that are not whole are taken out.
    pub fn contents(&self, snapshots: &mut Vec<SnapshotRow>, last: u64) -> Result<log::Contents, JournalError> {
        let snapshot = loop {
            let Some(newest) = snapshots.last() else { break None };
            match self.whole(*newest) {
                Ok(()) => break Some(*newest),
                Err(error @ JournalError::DatabaseDamaged { .. }) => {
                    tracing::error!(%error, "a snapshot of the journal cannot be used; the one before it is taken");
                    snapshots.pop();
                }
                Err(error) => return Err(error),
            }
        };
        self.after(snapshot, last)
    }

    /// A snapshot, or nothing, and the records after it up to `last`.
    pub fn after(&self, snapshot: Option<SnapshotRow>, last: u64) -> Result<log::Contents, JournalError> {
        let base = snapshot.map_or(0, |snapshot| snapshot.seq as u64);
        let last = last.max(base);
        let records = self.records(base, last)?;
        let snapshot = snapshot.map(|row| log::Snapshot {
            seq: Seq(row.seq as u64),
            logic_version: row.logic_version as u32,
            epoch: row.epoch as u64,
            bytes: Box::new(Chunks::new(self.clone(), row)),
        });
        Ok(log::Contents { snapshot, records: log::Records(Box::new(records)), last: Seq(last) })
    }

    /// To look at what this session has written, before it is committed.
    pub fn within(keeper: &Arc<Keeper>, session: &Arc<Mutex<Blocking>>) -> Self {
        Self { keeper: keeper.clone(), session: session.clone() }
    }

    /// The first record that is stored; 0 if there is none.
    pub fn first(&self) -> Result<u64, JournalError> {
        Ok(self.rows(FIRST, &[])?.first().and_then(|row| row.get::<_, Option<i64>>(0)).unwrap_or(0) as u64)
    }

    /// Reads a snapshot once.
    pub fn whole(&self, row: SnapshotRow) -> Result<(), JournalError> {
        let mut chunks = Chunks::new(self.clone(), row);
        while chunks.advance()? {}
        if chunks.read != row.bytes {
            return Err(self.damaged(row.seq as u64, "the snapshot's length is another one"));
        }
        Ok(())
    }

    /// The records after `base`, up to `last`.
    pub fn records(&self, base: u64, last: u64) -> Result<Records, JournalError> {
        let from = base + 1;
        let one = |rows: Vec<Row>| rows.first().and_then(|row| row.get::<_, Option<i64>>(0)).unwrap_or(0) as u64;
        let mut next = from;
        if last >= from {
            next = one(self.rows(WITH_RECORD, &[from as i64])?);
            if next == 0 {
                let found = self.first()?;
                return Err(self.damaged(found, "the records before this one are missing"));
            }
        }
        let (page, batch) = (VecDeque::new(), None);
        Ok(Records { view: Some(self.clone()), page, batch, next, from, last, epoch: 0 })
    }

    pub fn damaged(&self, seq: u64, what: &'static str) -> JournalError {
        JournalError::DatabaseDamaged { place: self.keeper.place.to_string(), seq: Seq(seq), what }
    }
}

/// Reads a snapshot.
struct Chunks {
    view: View,
    row: SnapshotRow,
    /// The number of the next chunk to be asked for.
    next: i64,
    waiting: VecDeque<Vec<u8>>,
    taken: usize,
    read: i64,
}

impl Chunks {
    fn new(view: View, row: SnapshotRow) -> Self {
        Self { view, row, next: 0, waiting: VecDeque::new(), taken: 0, read: 0 }
    }

    /// Goes to the next chunks; false if there is none.
    fn advance(&mut self) -> Result<bool, JournalError> {
        let end = (self.next + CHUNKS_AT_ONCE).min(self.row.chunks);
        self.waiting.clear();
        for (row, number) in self.view.rows(CHUNKS, &[self.row.seq, self.next, end])?.iter().zip(self.next..) {
            let (bytes, sum): (Vec<u8>, &[u8]) = (row.get(0), row.get(1));
            if *sum != chunk_sum(&self.view.keeper.identity, self.row.seq, number, &bytes) {
                return Err(self.view.damaged(self.row.seq as u64, "a chunk of the snapshot is not what was written"));
            }
            self.read += bytes.len() as i64;
            self.waiting.push_back(bytes);
        }
        if self.waiting.len() as i64 != end - self.next {
            return Err(self.view.damaged(self.row.seq as u64, "a chunk of the snapshot is missing"));
        }
        self.next = end;
        Ok(!self.waiting.is_empty())
    }
}

impl io::Read for Chunks {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(chunk) = self.waiting.front() {
                let rest = &chunk[self.taken..];
                if !rest.is_empty() {
                    let count = rest.len().min(buf.len());
                    buf[..count].copy_from_slice(&rest[..count]);
                    self.taken += count;
                    return Ok(count);
                }
                self.waiting.pop_front();
                self.taken = 0;
            } else if !self.advance().map_err(io::Error::other)? {
                return Ok(0);
            }
        }
    }
}

/// A batch as it was read.
struct Batch {
    first: u64,
    end: u64,
    epoch: u64,
    logic_version: u32,
    bytes: Vec<u8>,
    /// Where the next record begins.
    at: usize,
}

/// The records of a view in their order.
pub(crate) struct Records {
    view: Option<View>,
    page: VecDeque<Batch>,
    batch: Option<Batch>,
    /// The number of the next record.
    next: u64,
    /// The first record that the caller wants, and the last.
    from: u64,
    last: u64,
    epoch: u64,
}

impl Records {
    fn advance(&mut self) -> Result<Option<Entry>, JournalError> {
        let Some(view) = self.view.clone() else { return Ok(None) };
        while self.next <= self.last {
            let Some(batch) = &mut self.batch else {
                self.take_batch(&view)?;
                continue;
            };
            if self.next == batch.end {
                self.batch = None;
                continue;
            }
            let record = front_record(&batch.bytes[batch.at..]);
            let record = record.ok_or_else(|| view.damaged(self.next, "a batch lacks records"))?;
            batch.at += 4 + record.len();
            let seq = self.next;
            self.next += 1;
            if seq >= self.from {
                let (epoch, logic_version, record) = (batch.epoch, batch.logic_version, record.to_vec());
                return Ok(Some(Entry { seq: Seq(seq), epoch, logic_version, record }));
            }
        }
        Ok(None)
    }

    fn take_batch(&mut self, view: &View) -> Result<(), JournalError> {
        if self.page.is_empty() {
            for row in view.rows(PAGE, &[self.next as i64, self.last as i64])? {
                let (first, count): (i64, i32) = (row.get(0), row.get(1));
                let (epoch, logic_version, bytes): (i64, i64, Vec<u8>) = (row.get(2), row.get(3), row.get(4));
                let sum = batch_sum(&view.keeper.identity, [first, count.into(), epoch, logic_version], &bytes);
                if *row.get::<_, &[u8]>(5) != sum {
                    return Err(view.damaged(first as u64, "a batch is not what was written"));
                }
                let (first, epoch, logic_version) = (first as u64, epoch as u64, logic_version as u32);
                let end = first + count as u64;
                self.page.push_back(Batch { first, end, epoch, logic_version, bytes, at: 0 });
            }
        }
        match self.page.pop_front() {
            Some(batch) if batch.first == self.next && batch.epoch >= self.epoch => {
                self.epoch = batch.epoch;
                self.batch = Some(batch);
                Ok(())
            }
            _ => Err(view.damaged(self.next, "a batch does not follow the one before")),
        }
    }
}

impl Iterator for Records {
    type Item = Result<Entry, JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.advance().transpose();
        if !matches!(item, Some(Ok(_))) {
            // An error is the end.
            (self.view, self.batch) = (None, None);
        }
        item
    }
}
