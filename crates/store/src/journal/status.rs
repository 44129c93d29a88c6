//! The bounds of a journal, and the figures that it keeps about itself.

use super::{JournalError, Seq};
use std::sync::Arc;
use std::time::Duration;

/// Bounds of a journal, and who writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Length of a segment in bytes, a multiple of 4096 and at least that. It holds what one commit writes.
    pub segment_bytes: u64,
    /// Most bytes of records that are not durable yet, four more for each. At most a segment less 560 bytes.
    pub buffer_bytes_max: usize,
    /// Bytes on disk, snapshots and segments made ahead included, above which nothing more is taken; at least four
    /// segments. [`Status::is_tight`] says so at three quarters of it.
    pub bytes_max: u64,
    /// The version of the core that makes the records from now on.
    pub logic_version: u32,
    /// A number that is higher for each hub that takes over; one with a lower number is refused.
    pub epoch: u64,
    /// Waits so long after each sync, to stand for a slower disk. For measuring and for nothing else.
    pub extra_fsync_delay: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            buffer_bytes_max: 8 << 20,
            bytes_max: 4 << 30,
            logic_version: 0,
            epoch: 0,
            extra_fsync_delay: Duration::ZERO,
        }
    }
}

impl Options {
    /// The same options within their limits.
    pub(crate) fn bounded(self) -> Self {
        let segment_bytes = self.segment_bytes.clamp(4096, 1 << 30).next_multiple_of(4096);
        let buffer_bytes_max = self.buffer_bytes_max.min(segment_bytes as usize - 560);
        Self { segment_bytes, buffer_bytes_max, bytes_max: self.bytes_max.max(4 * segment_bytes), ..self }
    }
}

/// What a journal holds and does.
#[derive(Clone, Debug)]
pub struct Status {
    /// Bytes on disk.
    pub bytes: u64,
    /// The bound on `bytes`.
    pub bytes_max: u64,
    /// `bytes` is above three quarters of its bound: it is time for a snapshot, and for pruning.
    pub is_tight: bool,
    /// Segments, those made ahead included.
    pub segments: u64,
    /// The last record that was taken.
    pub taken: Seq,
    /// The last record that is durable.
    pub durable: Seq,
    /// The last record of the newest snapshot.
    pub snapshot: Seq,
    /// Bytes of the log after the newest snapshot: what a start would read, and the next snapshot save. About, where that
    /// snapshot or a batch ends within a segment; 0 if the snapshot holds all that is durable. A snapshot is to be begun
    /// long before this is half of `bytes_max`: pruning goes by the older of two, so of a journal that has come to its
    /// bound since that one, nothing can be freed, and for a newer snapshot it would need a new record.
    pub bytes_after_snapshot: u64,
    /// Bytes of records that were taken and are not durable yet.
    pub buffered: usize,
    /// The bound on `buffered`.
    pub buffered_max: usize,
    /// The epoch that the next batch bears.
    pub epoch: u64,
    /// How long the syncs of batches took; their count is the count of batches.
    pub syncs: Times,
    /// Why the last segment could not be made ahead. It is tried again when one is needed, and then it is final.
    pub not_ahead: Option<Arc<JournalError>>,
    /// Why the journal takes no more.
    pub dead: Option<Arc<JournalError>>,
}

/// How long something took, each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// How many there were.
    pub count: u64,
    /// All of them together.
    pub sum: Duration,
    /// Half of them took no longer; exact to an eighth.
    pub p50: Duration,
    /// All but one of a hundred took no longer; exact to an eighth.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
}

/// Counts durations by their length in microseconds, eight classes for each doubling.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    sum: Duration,
    max: Duration,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; class(u64::MAX) + 1], sum: Duration::ZERO, max: Duration::ZERO }
    }
}

impl Histogram {
    /// Counts one more.
    pub fn add(&mut self, time: Duration) {
        self.counts[class(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))] += 1;
        self.sum = self.sum.saturating_add(time);
        self.max = self.max.max(time);
    }

    /// What there is to say of those that were counted.
    pub fn times(&self) -> Times {
        let count = self.counts.iter().sum();
        let (p50, p99) = (self.quantile(count, 50), self.quantile(count, 99));
        Times { count, sum: self.sum, p50, p99, max: self.max }
    }

    fn quantile(&self, count: u64, percent: u64) -> Duration {
        let mut rest = (count * percent).div_ceil(100);
        for (class, here) in self.counts.iter().enumerate() {
            if rest <= *here {
                return Duration::from_micros(longest(class)).min(self.max);
            }
            rest -= here;
        }
        self.max
    }
}

fn class(micros: u64) -> usize {
    if micros < 8 {
        return micros as usize;
    }
    let shift = 60 - micros.leading_zeros();
    8 * (shift as usize + 1) + (micros >> shift) as usize - 8
}

/// The longest duration of a class.
fn longest(class: usize) -> u64 {
    if class < 8 {
        return class as u64;
    }
    let shift = class / 8 - 1;
    let above = (class % 8 + 9) as u128;
    u64::try_from((above << shift) - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_follow_one_another_and_are_an_eighth_wide() {
        for class_number in 0..class(u64::MAX) {
            let longest = longest(class_number);
            assert_eq!((class(longest), class(longest + 1)), (class_number, class_number + 1));
        }
        assert_eq!(longest(class(u64::MAX)), u64::MAX);
    }

    #[test]
    fn quantiles_are_near() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.times(), Times::default());
        (1..=1000).for_each(|millis| histogram.add(Duration::from_millis(millis)));
        let times = histogram.times();
        assert_eq!((times.count, times.max), (1000, Duration::from_secs(1)));
        assert_eq!(times.sum, Duration::from_millis(500_500));
        assert!((500..563).contains(&times.p50.as_millis()), "{times:?}");
        assert!((990..=1000).contains(&times.p99.as_millis()), "{times:?}");
    }

    #[test]
    fn options_are_kept_within_their_limits() {
        let options = Options { segment_bytes: 5000, bytes_max: 0, ..Options::default() }.bounded();
        assert_eq!((options.segment_bytes, options.bytes_max), (8192, 4 * 8192));
        assert_eq!(options.buffer_bytes_max, 8192 - 560);
        assert_eq!(Options::default().bounded(), Options::default());
    }
}
