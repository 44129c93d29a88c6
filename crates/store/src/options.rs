//! The store's bounds, and the figures it keeps about itself.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bounds of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Most bytes on disk, record headers included. While one thread makes room, the store may exceed this by up to two
    /// segments and what is being written.
    pub bytes_max: u64,
    /// Length of a segment, the unit in which old blocks go, in bytes. Kept between a 512th and an eighth of
    /// `bytes_max`, so that the store neither holds thousands of open files nor loses much at once, and at most 2 GiB.
    pub segment_bytes: u64,
    /// Most pairs of tenant and block. A block takes up to 200 bytes of memory, whatever the length of the block.
    pub entries_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { bytes_max: 10 << 30, segment_bytes: 128 << 20, entries_max: 2 << 20 }
    }
}

impl Options {
    /// The same options, with the segment's length within its limits.
    pub(crate) fn bounded(self) -> Self {
        let segment_bytes = self.segment_bytes.clamp(self.bytes_max / 512, self.bytes_max / 8).clamp(1, 2 << 30);
        Self { segment_bytes, entries_max: self.entries_max.max(1), ..self }
    }
}

/// What a store holds and has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Pairs of tenant and block that can be read.
    pub entries: u64,
    /// Distinct blocks.
    pub blocks: u64,
    /// Segment files.
    pub segments: u64,
    /// Length of all segments, in bytes.
    pub bytes: u64,
    /// The bound on `bytes`.
    pub bytes_max: u64,
    /// Pairs of tenant and block that are pinned, present or not.
    pub pinned: u64,
    /// Reads that found their block.
    pub hits: u64,
    /// Reads that did not.
    pub misses: u64,
    /// Blocks written because they were new.
    pub blocks_written: u64,
    /// Blocks that one tenant showed when another's copy was there already.
    pub blocks_shared: u64,
    /// Segments dropped to make room.
    pub segments_dropped: u64,
    /// Blocks that went with them.
    pub blocks_dropped: u64,
    /// Blocks that were copied forward instead, being pinned or used.
    pub blocks_copied: u64,
    /// Blocks forgotten because the disk no longer gives what was written.
    pub blocks_damaged: u64,
}

/// The counters behind [`Stats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub hits: AtomicU64,
    pub misses: AtomicU64,
    pub blocks_written: AtomicU64,
    pub blocks_shared: AtomicU64,
    pub segments_dropped: AtomicU64,
    pub blocks_dropped: AtomicU64,
    pub blocks_copied: AtomicU64,
    pub blocks_damaged: AtomicU64,
}

/// Adds one.
pub(crate) fn bump(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_stay_between_a_512th_and_an_eighth_of_the_store() {
        let bounded = |bytes_max, segment_bytes| {
            Options { bytes_max, segment_bytes, ..Options::default() }.bounded().segment_bytes
        };
        assert_eq!(bounded(10 << 30, 128 << 20), 128 << 20);
        assert_eq!(bounded(64 << 20, 128 << 20), 8 << 20);
        assert_eq!(bounded(1 << 40, 128 << 20), 2 << 30);
        assert_eq!(bounded(1 << 43, 128 << 20), 2 << 30);
        assert_eq!(bounded(0, 0), 1);
    }
}
