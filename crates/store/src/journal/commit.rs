//! The thread that commits: whatever has gathered while the last batch was synced is the next one.

use super::format::{BATCH_HEADER_BYTES, Key, SECTOR_BYTES, SegmentHeader, padded, seal_batch};
use super::shared::{Shared, wait, wait_until};
use super::{JournalError, Seq, Told};
use crate::disk::{Access, DiskFile, write_all_at};
use crate::lock;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// The segment that is written.
pub(crate) struct Current {
    pub file: Box<dyn DiskFile>,
    pub path: PathBuf,
    pub key: Key,
    /// Where the next batch goes.
    pub at: u64,
    /// Length of the segment.
    pub bytes: u64,
}

/// The committing side of a journal.
pub(crate) struct Committer {
    shared: Arc<Shared>,
    told: Told,
    /// `None` if the next batch begins a segment.
    current: Option<Current>,
    /// The vector that was written last, to be filled again.
    emptied: Vec<u8>,
}

/// What is committed at once.
struct Batch {
    bytes: Vec<u8>,
    first: u64,
    count: u32,
    epoch: u64,
}

/// Ends the journal if the thread that holds it panics.
struct EndOnPanic(Arc<Shared>);

impl Drop for EndOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.kill(JournalError::Panicked);
        }
    }
}

impl Committer {
    pub fn new(shared: Arc<Shared>, told: Told, current: Option<Current>) -> Self {
        Self { shared, told, current, emptied: Vec::new() }
    }

    /// Commits until the journal stops or dies.
    pub fn run(mut self) {
        let _end = EndOnPanic(self.shared.clone());
        while let Some(batch) = self.gather() {
            let last = batch.first + u64::from(batch.count) - 1;
            match self.write(batch) {
                Ok(time) => self.finish(last, time),
                Err(error) => drop(self.shared.kill(error)),
            }
        }
        let dead = lock(&self.shared.queue).dead.clone();
        if let Some(cause) = dead {
            (self.told)(Err(cause));
        }
    }

    /// Waits for records; `None` if there will be none.
    fn gather(&mut self) -> Option<Batch> {
        let mut queue = lock(&self.shared.queue);
        while queue.dead.is_none() && !queue.is_due() && !queue.is_stopping {
            queue.is_idle = true;
            queue = wait(&self.shared.gathered, queue);
        }
        (queue.is_idle, queue.is_wanted) = (false, false);
        if queue.dead.is_some() || queue.count == 0 {
            return None;
        }
        self.emptied.resize(BATCH_HEADER_BYTES, 0);
        let bytes = std::mem::replace(&mut queue.batch, std::mem::take(&mut self.emptied));
        let count = std::mem::take(&mut queue.count);
        queue.writing = bytes.len() - BATCH_HEADER_BYTES;
        Some(Batch { bytes, first: queue.next - u64::from(count), count, epoch: queue.epoch })
    }

    /// Makes a batch durable; says how long the sync took.
    fn write(&mut self, mut batch: Batch) -> Result<Duration, JournalError> {
        let len = padded(batch.bytes.len()) as u64;
        if self.current.as_ref().is_none_or(|current| current.at + len > current.bytes) {
            self.current = None;
            self.current = Some(self.begin_segment(batch.first, batch.epoch)?);
        }
        let current = self.current.as_mut().expect("a segment was begun if there was none");
        seal_batch(&mut batch.bytes, &current.key, batch.first, batch.epoch, batch.count);
        write_all_at(&*current.file, &[&batch.bytes], current.at)
            .map_err(|error| JournalError::io("write to", &current.path, error))?;
        let begun = Instant::now();
        current.file.sync().map_err(|error| JournalError::io("sync", &current.path, error))?;
        pause(self.shared.options.extra_fsync_delay);
        current.at += len;
        batch.bytes.truncate(BATCH_HEADER_BYTES);
        self.emptied = batch.bytes;
        Ok(begun.elapsed())
    }

    /// Begins the next segment. Its header is durable before anything follows it, so that a broken header in front of
    /// a batch can only be damage.
    fn begin_segment(&self, first: u64, epoch: u64) -> Result<Current, JournalError> {
        let shared = &self.shared;
        let index = shared.take_ahead()?;
        let path = shared.folder.segment_path(index);
        let file = shared.folder.open(&path, Access::Write)?;
        let bytes = shared.options.segment_bytes;
        let (identity, logic_version) = (shared.identity, shared.options.logic_version);
        let header = SegmentHeader { logic_version, identity, index, first, epoch, bytes };
        write_all_at(&*file, &[&header.encode()], 0).map_err(|error| JournalError::io("write to", &path, error))?;
        file.sync().map_err(|error| JournalError::io("sync", &path, error))?;
        lock(&shared.files).used.push_back(header);
        Ok(Current { file, path, key: identity.segment_key(index), at: SECTOR_BYTES as u64, bytes })
    }

    /// Tells that a batch is durable.
    fn finish(&self, last: u64, time: Duration) {
        let mut queue = lock(&self.shared.queue);
        queue.syncs.add(time);
        queue.writing = 0;
        if queue.dead.is_some() {
            return;
        }
        queue.durable = last;
        queue.end = self.current.as_ref().map_or(0, |current| current.at);
        drop(queue);
        self.shared.progress.notify_all();
        (self.told)(Ok(Seq(last)));
    }
}

/// Stands for a slower disk.
fn pause(time: Duration) {
    if time.is_zero() {
        return;
    }
    let (mutex, never, deadline) = (Mutex::new(()), Condvar::new(), Instant::now() + time);
    let mut guard = Some(lock(&mutex));
    while let Some(held) = guard.take() {
        guard = wait_until(&never, held, deadline);
    }
}
