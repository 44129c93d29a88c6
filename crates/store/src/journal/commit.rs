//! Batches that are made durable: written to the end of a segment, and synced.

use super::format::{Key, SECTOR_BYTES, SegmentHeader, padded, seal_batch};
use super::shared::Shared;
use super::{JournalError, Told};
use crate::disk::{Access, DiskFile, write_all_at};
use crate::intake::{Batch, Written, wait_until};
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
    /// `None` if the next batch begins a segment.
    current: Option<Current>,
}

impl Committer {
    pub fn new(shared: Arc<Shared>, current: Option<Current>) -> Self {
        Self { shared, current }
    }

    /// Commits until the journal stops or dies.
    pub fn run(mut self, told: &Told) {
        let shared = self.shared.clone();
        shared.intake.run(told, |batch| self.write(batch));
    }

    /// Makes a batch durable.
    fn write(&mut self, batch: &mut Batch) -> Result<Written, JournalError> {
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
        Ok(Written { time: begun.elapsed(), end: current.at })
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
