//! Reading along: what is durable is read from the disk while the journal goes on, so that a snapshot can be made of it
//! without a look at the core that is running.
//!
//! A batch that is durable is not written to again, and none shares a sector with it. So the segment that is being
//! written can be read, too, as far as it was durable when the reading began; nothing behind that is looked at. Only a
//! file that pruning frees is written over, in its next use. So each reader pins the segments that it needs, and pruning
//! leaves them and those after them to the next call. It does not wait for readers, nor readers for it.

use super::format::{SECTOR_BYTES, SegmentHeader};
use super::read::Records;
use super::shared::Shared;
use super::snapshot::Snapshot;
use super::{JournalError, Seq};
use crate::lock;
use std::collections::VecDeque;
use std::sync::Arc;

/// What an open journal has durable: together the state after record `last`.
#[derive(Debug)]
pub struct Durable {
    /// The newest snapshot that is whole, if there is any.
    pub snapshot: Option<Snapshot>,
    /// The records after it up to `last`, at least one. An error is damage: the state must not be used then.
    pub records: Records,
    /// The last record that was durable at the call: the one to give to
    /// [`write_snapshot`](super::Journal::write_snapshot).
    pub last: Seq,
}

/// Keeps pruning from the records after one.
pub(crate) struct Pin {
    shared: Arc<Shared>,
    base: u64,
}

impl Pin {
    /// Pins the records after `base`. They must be there: the caller holds the lock of the files, or nobody prunes yet.
    pub fn new(shared: Arc<Shared>, base: u64) -> Self {
        lock(&shared.pins).push(base);
        Self { shared, base }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut pins = lock(&self.shared.pins);
        if let Some(at) = pins.iter().position(|base| *base == self.base) {
            pins.swap_remove(at);
        }
    }
}

impl Shared {
    /// What is durable now; `None` if the newest snapshot holds it all.
    pub fn durable(self: &Arc<Self>) -> Result<Option<Durable>, JournalError> {
        // Each turn but the last has put a snapshot aside, of which there are few.
        loop {
            let files = lock(&self.files);
            let last = self.intake.durable()?.last;
            let newest = files.snapshots.back().map(|(seq, _)| *seq);
            let base = newest.unwrap_or(0);
            if last <= base {
                return Ok(None);
            }
            let segments: Vec<SegmentHeader> = files.used.iter().filter(|used| used.first <= last).copied().collect();
            // Opened before it can be removed, and pinned before it can be pruned.
            let opened = newest.map(|seq| Snapshot::open(&self.folder, &self.identity, seq));
            let pin = Pin::new(self.clone(), base);
            drop(files);
            let snapshot = match opened.map(|opened| opened.and_then(Snapshot::whole)).transpose() {
                Ok(snapshot) => snapshot,
                Err(error @ JournalError::Damaged { .. }) => {
                    tracing::error!(%error, "a snapshot of the journal cannot be used; the one before it is taken");
                    self.put_aside(base)?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let found = segments.first().map_or(0, |segment| segment.first);
            if found == 0 || found > base + 1 {
                let folder = self.folder.path.clone();
                return Err(JournalError::Missing { folder, wanted: Seq(base + 1), found: Seq(found) });
            }
            let records = Records::new(self.folder.clone(), self.identity, segments, base + 1, last).pinned(pin);
            return Ok(Some(Durable { snapshot, records, last: Seq(last) }));
        }
    }

    /// Renames a damaged snapshot, so that it counts neither for pruning nor as one of those that are kept.
    fn put_aside(&self, seq: u64) -> Result<(), JournalError> {
        let mut files = lock(&self.files);
        let Some(at) = files.snapshots.iter().position(|(other, _)| *other == seq) else { return Ok(()) };
        // A name that a crash takes back is put aside by the start.
        self.folder.rename(&self.folder.snapshot_path(seq), &self.folder.damaged_path(seq))?;
        if let Some((_, bytes)) = files.snapshots.remove(at) {
            self.intake.bytes.fetch_sub(bytes, std::sync::atomic::Ordering::Relaxed);
        }
        Ok(())
    }
}

/// About how many bytes the batches take that hold the records after `base` up to `last`, which ends at `end` in its
/// segment. Within the segment in which `base` lies, all records count for equally long.
pub(crate) fn bytes_between(used: &VecDeque<SegmentHeader>, base: u64, last: u64, end: u64) -> u64 {
    let (mut last, mut end, mut sum) = (last, Some(end), 0);
    for segment in used.iter().rev() {
        // One that was begun may hold nothing yet.
        if last < segment.first {
            continue;
        }
        if last <= base {
            break;
        }
        let (count, wanted) = (last + 1 - segment.first, last - base.max(segment.first - 1));
        let bytes = end.take().unwrap_or(segment.bytes).saturating_sub(SECTOR_BYTES as u64);
        // No more than `bytes`.
        sum += (u128::from(bytes) * u128::from(wanted) / u128::from(count)) as u64;
        last = segment.first - 1;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::format::Identity;

    #[test]
    fn bytes_are_counted_by_segments_and_estimated_within_one() {
        let segment = |index, first| {
            let identity = Identity([0; 16]);
            SegmentHeader { logic_version: 0, identity, index, first, epoch: 0, bytes: 4096 }
        };
        // The last one was begun, and holds nothing.
        let used: VecDeque<_> = [segment(1, 11), segment(2, 21), segment(3, 41), segment(4, 51)].into();
        let between = |base, last, end| bytes_between(&used, base, last, end);
        assert_eq!(between(10, 50, 1536), 3584 + 3584 + 1024);
        assert_eq!(between(25, 50, 1536), 3584 * 15 / 20 + 1024);
        assert_eq!(between(45, 50, 1536), 512);
        assert_eq!((between(50, 50, 1536), between(60, 50, 1536)), (0, 0));
        assert_eq!(between(50, 51, 1024), 512);
        assert_eq!(bytes_between(&VecDeque::new(), 0, 0, 0), 0);
    }
}
