//! What the callers of a journal and its two threads share.
//!
//! Locks: `snapshotting`, then `files`, then `queue` or `pins`. The queue's is held for copies in memory only; that of the files
//! also while names are changed and synced, so that indexes are given out in order and none is left out.

use super::folder::Folder;
use super::format::{BATCH_HEADER_BYTES, Identity, SegmentHeader, push_record};
use super::status::Histogram;
use super::{JournalError, Options, Seq};
use crate::folder_lock::FolderLock;
use crate::lock;
use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of records that nobody waits for which are gathered before they are written.
const QUIET_BYTES_MAX: usize = 64 << 10;

/// Shared by all handles and threads of an open journal.
pub(crate) struct Shared {
    pub folder: Folder,
    pub identity: Identity,
    pub options: Options,
    pub queue: Mutex<Queue>,
    /// Told when there is something to commit, or nothing more will come.
    pub gathered: Condvar,
    /// Told when more is durable, or nothing more will be.
    pub progress: Condvar,
    pub files: Mutex<Files>,
    /// Told when a segment is wanted or made.
    pub files_changed: Condvar,
    /// Bytes on disk.
    pub bytes: AtomicU64,
    /// Segments, those ahead included.
    pub segments: AtomicU64,
    /// For each that reads records: the one before the first that it wants.
    pub pins: Mutex<Vec<u64>>,
    /// Held by the one thread that writes a snapshot.
    pub snapshotting: Mutex<()>,
    /// Held, so that no other process opens the journal.
    pub _lock: FolderLock,
}

/// Records on their way to the disk.
pub(crate) struct Queue {
    /// The next batch: room for its header, and records.
    pub batch: Vec<u8>,
    /// How many records it has.
    pub count: u32,
    /// Bytes of records that are being written.
    pub writing: usize,
    /// The number of the next record.
    pub next: u64,
    /// The last durable record.
    pub durable: u64,
    /// Where the batch that holds it ends in its segment.
    pub end: u64,
    pub epoch: u64,
    /// Whether the committer waits.
    pub is_idle: bool,
    /// Whether somebody waits for the next batch.
    pub is_wanted: bool,
    pub is_stopping: bool,
    pub dead: Option<Arc<JournalError>>,
    pub syncs: Histogram,
}

impl Queue {
    /// A queue that goes on after the last record.
    pub fn new(last: u64, end: u64, epoch: u64) -> Self {
        Self {
            batch: vec![0; BATCH_HEADER_BYTES],
            count: 0,
            writing: 0,
            next: last + 1,
            durable: last,
            end,
            epoch,
            is_idle: false,
            is_wanted: false,
            is_stopping: false,
            dead: None,
            syncs: Histogram::default(),
        }
    }

    /// Bytes of records that are not durable.
    pub fn buffered(&self) -> usize {
        self.batch.len() - BATCH_HEADER_BYTES + self.writing
    }

    /// Takes a record behind `bytes` that are stored already; gives its number.
    pub fn take(&mut self, record: &[u8], bytes: u64, options: &Options) -> Result<Seq, JournalError> {
        self.check_alive()?;
        let (max, need, buffered) = (options.buffer_bytes_max, record.len() + 4, self.buffered());
        if need > max {
            return Err(JournalError::TooLarge { len: record.len(), max: max - 4 });
        }
        if bytes > options.bytes_max {
            return Err(JournalError::TooManyBytes { bytes, max: options.bytes_max });
        }
        if buffered + need > max {
            return Err(JournalError::Full { buffered, max });
        }
        push_record(&mut self.batch, record);
        self.count += 1;
        self.next += 1;
        Ok(Seq(self.next - 1))
    }

    /// Whether there is a batch to be written: one that somebody waits for, or one that has grown by itself.
    pub fn is_due(&self) -> bool {
        self.count > 0 && (self.is_wanted || self.batch.len() > QUIET_BYTES_MAX)
    }

    /// An error if the journal is dead.
    pub fn check_alive(&self) -> Result<(), JournalError> {
        self.dead.as_ref().map_or(Ok(()), |cause| Err(JournalError::Dead(cause.clone())))
    }
}

/// The files of the journal.
#[derive(Debug)]
pub(crate) struct Files {
    /// Segments in use, oldest first; the last one is written.
    pub used: VecDeque<SegmentHeader>,
    /// Indexes of segments made ahead, which follow the last one in use.
    pub ahead: VecDeque<u64>,
    /// The index of the segment that is made next.
    pub next_index: u64,
    /// Segments before those in use that a crash brought back, with their lengths.
    pub strays: Vec<(u64, u64)>,
    /// The last records of the snapshots, ascending, and their lengths.
    pub snapshots: VecDeque<(u64, u64)>,
    /// A segment is to be made.
    pub is_wanted: bool,
    /// One is being made.
    pub is_making: bool,
    pub is_stopping: bool,
    /// Why the last one could not be made.
    pub failed: Option<Arc<JournalError>>,
}

impl Shared {
    /// Ends the journal, for the first reason that is given.
    pub fn kill(&self, cause: JournalError) -> Arc<JournalError> {
        let mut queue = lock(&self.queue);
        let cause = match cause {
            JournalError::Dead(cause) => cause,
            cause => Arc::new(cause),
        };
        let cause = queue.dead.get_or_insert(cause).clone();
        drop(queue);
        self.gathered.notify_all();
        self.progress.notify_all();
        cause
    }

    /// Ends the journal if an operation that its files depend on has failed.
    pub fn fatal<T>(&self, outcome: Result<T, JournalError>) -> Result<T, JournalError> {
        outcome.map_err(|error| JournalError::Dead(self.kill(error)))
    }
}

/// Waits for a condition variable, as [`lock`] does for a mutex.
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Waits until a deadline at most; `None` once it has passed.
pub(crate) fn wait_until<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    deadline: Instant,
) -> Option<MutexGuard<'a, T>> {
    let left = deadline.checked_duration_since(Instant::now()).filter(|left| *left > Duration::ZERO)?;
    Some(condvar.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0)
}

/// Waits until a record is durable; says how far all are.
pub(crate) fn wait_durable(
    queue: &Mutex<Queue>,
    progress: &Condvar,
    seq: Seq,
    timeout: Duration,
) -> Result<Seq, JournalError> {
    // No clock is asked to reach further.
    let deadline = Instant::now() + timeout.min(Duration::from_secs(1 << 30));
    let mut queue = lock(queue);
    let mut durable = queue.durable;
    while durable < seq.0 {
        queue.check_alive()?;
        queue = wait_until(progress, queue, deadline).ok_or(JournalError::NotYet {
            seq,
            durable: Seq(durable),
            waited: timeout,
        })?;
        durable = queue.durable;
    }
    Ok(Seq(durable))
}
