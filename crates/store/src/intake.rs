//! What a journal takes and has not written yet: the same for one on a disk and one in a database.
//!
//! Callers put records in; one thread takes out whatever has gathered as a batch, writes it, and tells how far the records are
//! durable. What gathers meanwhile is the next batch. Who owns the intake says how a batch is written: see [`Intake::run`].
//!
//! Its lock is held for copies in memory only.

use crate::journal::format::{BATCH_HEADER_BYTES, push_record};
use crate::journal::status::Histogram;
use crate::journal::{JournalError, Options, Seq, Status, Told};
use crate::lock;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// How many snapshots are kept: a damaged one is no loss.
pub(crate) const SNAPSHOTS_KEPT: usize = 2;
/// Bytes of records that nobody waits for which are gathered before they are written.
const QUIET_BYTES_MAX: usize = 64 << 10;
/// What is told brings new records within a moment, and the next batch would just miss them: they would wait for two syncs instead
/// of one. So it is begun later, by this part of the last sync, up to this time; not if a sync is shorter than what it brings.
const LINGER_PART: u32 = 4;
const LINGER_MAX: Duration = Duration::from_millis(1);
const LINGER_SYNC_MIN: Duration = Duration::from_millis(1);

/// What writes a state, for a snapshot.
pub(crate) type Source<'a> = &'a mut dyn FnMut(&mut dyn io::Write) -> io::Result<()>;

/// Records on their way to where they last.
pub(crate) struct Intake {
    /// Bytes that are stored, snapshots included.
    pub bytes: AtomicU64,
    options: Options,
    queue: Mutex<Queue>,
    /// Told when there is something to write, or nothing more will come.
    gathered: Condvar,
    /// Told when more is durable, or nothing more will be.
    progress: Condvar,
    /// Held by the one thread that writes a snapshot.
    snapshotting: Mutex<()>,
}

struct Queue {
    /// The next batch: room for its header, and records.
    batch: Vec<u8>,
    /// How many records it has.
    count: u32,
    /// Bytes of records that are being written.
    writing: usize,
    /// The number of the next record.
    next: u64,
    durable: Durable,
    epoch: u64,
    /// Whether the writing thread waits.
    is_idle: bool,
    /// Whether somebody waits for the next batch.
    is_wanted: bool,
    is_stopping: bool,
    dead: Option<Arc<JournalError>>,
    syncs: Histogram,
}

/// How far the records are durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Durable {
    /// The last record that is.
    pub last: u64,
    /// Where the batch that holds it ends, in its segment if there are any.
    pub end: u64,
}

/// Records that are written at once.
pub(crate) struct Batch {
    /// Room for a header, and the records.
    pub bytes: Vec<u8>,
    /// The number of the first record.
    pub first: u64,
    pub count: u32,
    pub epoch: u64,
}

/// How a batch was written.
pub(crate) struct Written {
    /// How long it took to make it durable.
    pub time: Duration,
    /// See [`Durable::end`].
    pub end: u64,
}

impl Queue {
    /// Bytes of records that are not durable.
    fn buffered(&self) -> usize {
        self.batch.len() - BATCH_HEADER_BYTES + self.writing
    }

    /// Whether there is a batch to be written: one that somebody waits for, or one that has grown by itself.
    fn is_due(&self) -> bool {
        self.count > 0 && (self.is_wanted || self.batch.len() > QUIET_BYTES_MAX)
    }

    fn check_alive(&self) -> Result<(), JournalError> {
        self.dead.as_ref().map_or(Ok(()), |cause| Err(JournalError::Dead(cause.clone())))
    }
}

impl Intake {
    /// An intake that goes on after what is durable, where `bytes` are stored.
    pub fn new(options: Options, durable: Durable, epoch: u64, bytes: u64) -> Self {
        let queue = Queue {
            batch: vec![0; BATCH_HEADER_BYTES],
            count: 0,
            writing: 0,
            next: durable.last + 1,
            durable,
            epoch,
            is_idle: false,
            is_wanted: false,
            is_stopping: false,
            dead: None,
            syncs: Histogram::default(),
        };
        Self {
            bytes: bytes.into(),
            options,
            queue: Mutex::new(queue),
            gathered: Condvar::new(),
            progress: Condvar::new(),
            snapshotting: Mutex::default(),
        }
    }

    /// Takes a record for which nobody waits.
    pub fn append_quietly(&self, record: &[u8]) -> Result<Seq, JournalError> {
        let Options { buffer_bytes_max: max, bytes_max, .. } = self.options;
        let (mut queue, bytes) = (lock(&self.queue), self.bytes.load(Relaxed));
        queue.check_alive()?;
        let (need, buffered) = (record.len() + 4, queue.buffered());
        if need > max {
            return Err(JournalError::TooLarge { len: record.len(), max: max - 4 });
        }
        if bytes > bytes_max {
            return Err(JournalError::TooManyBytes { bytes, max: bytes_max });
        }
        if buffered + need > max {
            return Err(JournalError::Full { buffered, max });
        }
        push_record(&mut queue.batch, record);
        queue.count += 1;
        queue.next += 1;
        let seq = Seq(queue.next - 1);
        self.wake(queue);
        Ok(seq)
    }

    /// What was taken is written soon.
    pub fn commit_soon(&self) {
        let mut queue = lock(&self.queue);
        queue.is_wanted |= queue.count > 0;
        self.wake(queue);
    }

    /// Wakes the writing thread if it waits for what is there now.
    fn wake(&self, mut queue: MutexGuard<'_, Queue>) {
        let wakes = queue.is_due() && std::mem::take(&mut queue.is_idle);
        drop(queue);
        if wakes {
            self.gathered.notify_one();
        }
    }

    /// Whether so much waits, or is stored, that there is no more room than for what must be written down anyhow.
    pub fn is_crowded(&self) -> bool {
        let Options { buffer_bytes_max, bytes_max, .. } = self.options;
        self.bytes.load(Relaxed) > bytes_max / 8 * 7 || lock(&self.queue).buffered() > buffer_bytes_max / 4 * 3
    }

    /// Waits until a record is durable; says how far all are.
    pub fn flush_wait(&self, seq: Seq, timeout: Duration) -> Result<Seq, JournalError> {
        self.commit_soon();
        // No clock is asked to reach further.
        let deadline = Instant::now() + timeout.min(Duration::from_secs(1 << 30));
        let mut queue = lock(&self.queue);
        loop {
            let durable = Seq(queue.durable.last);
            if durable >= seq {
                return Ok(durable);
            }
            queue.check_alive()?;
            let not_yet = JournalError::NotYet { seq, durable, waited: timeout };
            queue = wait_until(&self.progress, queue, deadline).ok_or(not_yet)?;
        }
    }

    /// Waits until then; an error if the journal is dead.
    pub fn pause_until(&self, deadline: Instant) -> Result<(), JournalError> {
        let mut queue = lock(&self.queue);
        loop {
            queue.check_alive()?;
            match wait_until(&self.progress, queue, deadline) {
                Some(woken) => queue = woken,
                None => return Ok(()),
            }
        }
    }

    /// An error if the journal is dead.
    pub fn check_alive(&self) -> Result<(), JournalError> {
        lock(&self.queue).check_alive()
    }

    /// How far the records are durable; an error if the journal is dead.
    pub fn durable(&self) -> Result<Durable, JournalError> {
        let queue = lock(&self.queue);
        queue.check_alive()?;
        Ok(queue.durable)
    }

    /// The epoch that the next batch bears.
    pub fn epoch(&self) -> u64 {
        lock(&self.queue).epoch
    }

    /// Raises the epoch of what is not being written yet.
    pub fn set_epoch(&self, epoch: u64) -> Result<(), JournalError> {
        let mut queue = lock(&self.queue);
        queue.check_alive()?;
        if epoch < queue.epoch {
            return Err(JournalError::Fenced { found: queue.epoch, given: epoch });
        }
        queue.epoch = epoch;
        Ok(())
    }

    /// Begins the snapshot after record `seq`: one at a time, newer than the newest, and of what is durable.
    pub fn begin_snapshot(&self, seq: Seq, newest: impl FnOnce() -> u64) -> Result<MutexGuard<'_, ()>, JournalError> {
        let one = match self.snapshotting.try_lock() {
            Ok(one) => one,
            Err(TryLockError::Poisoned(one)) => one.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(JournalError::SnapshotBusy),
        };
        let (newest, durable) = (newest(), self.durable()?.last);
        if seq.0 <= newest || seq.0 > durable {
            return Err(JournalError::SnapshotOrder { seq, newest: Seq(newest), durable: Seq(durable) });
        }
        Ok(one)
    }

    /// What is known here of the journal's status, which has this newest snapshot. `bytes_after` says of what is durable how much
    /// came after that.
    pub fn status(&self, snapshot: u64, bytes_after: impl FnOnce(Durable) -> u64) -> Status {
        let Options { bytes_max, buffer_bytes_max, .. } = self.options;
        let bytes = self.bytes.load(Relaxed);
        let queue = lock(&self.queue);
        Status {
            bytes,
            bytes_max,
            is_tight: bytes > bytes_max / 4 * 3,
            segments: 0,
            taken: Seq(queue.next - 1),
            durable: Seq(queue.durable.last),
            snapshot: Seq(snapshot),
            bytes_after_snapshot: bytes_after(queue.durable),
            buffered: queue.buffered(),
            buffered_max: buffer_bytes_max,
            epoch: queue.epoch,
            syncs: queue.syncs.times(),
            not_ahead: None,
            dead: queue.dead.clone(),
        }
    }

    /// Ends the journal, for the first reason that is given.
    pub fn kill(&self, cause: JournalError) -> Arc<JournalError> {
        let cause = match cause {
            JournalError::Dead(cause) => cause,
            cause => Arc::new(cause),
        };
        let cause = lock(&self.queue).dead.get_or_insert(cause).clone();
        self.gathered.notify_all();
        self.progress.notify_all();
        cause
    }

    /// Ends the journal if an operation that it depends on has failed.
    pub fn fatal<T>(&self, outcome: Result<T, JournalError>) -> Result<T, JournalError> {
        outcome.map_err(|error| JournalError::Dead(self.kill(error)))
    }

    /// Has the writing thread end once all is written.
    pub fn stop(&self) {
        lock(&self.queue).is_stopping = true;
        self.gathered.notify_all();
    }

    /// Writes batches until the journal stops or dies, and tells of them. This is all that the writing thread does.
    pub fn run(&self, told: &Told, mut write: impl FnMut(&mut Batch) -> Result<Written, JournalError>) {
        let _end = EndOnPanic(self);
        // The vector that was written last, to be filled again.
        let (mut emptied, mut last_sync) = (Vec::new(), Duration::ZERO);
        while let Some(mut batch) = self.gather(&mut emptied, last_sync) {
            match write(&mut batch) {
                Ok(written) => {
                    self.finish(&batch, &written, told);
                    last_sync = written.time;
                }
                Err(error) => drop(self.kill(error)),
            }
            emptied = batch.bytes;
        }
        let dead = lock(&self.queue).dead.clone();
        if let Some(cause) = dead {
            told(Err(cause));
        }
    }

    /// Waits for records; `None` if there will be none.
    fn gather(&self, emptied: &mut Vec<u8>, last_sync: Duration) -> Option<Batch> {
        let mut queue = lock(&self.queue);
        // With nothing there, who comes first is written at once.
        if queue.is_due() && last_sync >= LINGER_SYNC_MIN {
            let time = (last_sync / LINGER_PART).min(LINGER_MAX);
            let lingers =
                |queue: &mut Queue| queue.dead.is_none() && !queue.is_stopping && queue.batch.len() <= QUIET_BYTES_MAX;
            let waited = self.gathered.wait_timeout_while(queue, time, lingers);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        while queue.dead.is_none() && !queue.is_due() && !queue.is_stopping {
            queue.is_idle = true;
            queue = wait(&self.gathered, queue);
        }
        (queue.is_idle, queue.is_wanted) = (false, false);
        if queue.dead.is_some() || queue.count == 0 {
            return None;
        }
        emptied.clear();
        emptied.resize(BATCH_HEADER_BYTES, 0);
        let bytes = std::mem::replace(&mut queue.batch, std::mem::take(emptied));
        let count = std::mem::take(&mut queue.count);
        queue.writing = bytes.len() - BATCH_HEADER_BYTES;
        Some(Batch { bytes, first: queue.next - u64::from(count), count, epoch: queue.epoch })
    }

    /// Tells that a batch is durable.
    fn finish(&self, batch: &Batch, written: &Written, told: &Told) {
        let last = batch.first + u64::from(batch.count) - 1;
        let mut queue = lock(&self.queue);
        queue.syncs.add(written.time);
        queue.writing = 0;
        if queue.dead.is_some() {
            return;
        }
        queue.durable = Durable { last, end: written.end };
        drop(queue);
        self.progress.notify_all();
        told(Ok(Seq(last)));
    }
}

impl Batch {
    /// The records, without the room for a header.
    pub fn records(&self) -> &[u8] {
        &self.bytes[BATCH_HEADER_BYTES..]
    }
}

/// Ends the journal if the thread that holds it panics.
struct EndOnPanic<'a>(&'a Intake);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.kill(JournalError::Panicked);
        }
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
