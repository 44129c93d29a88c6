//! The hub's time: it never goes back, and goes on when the hub is started again.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970 as the machine's clock had them at the start, and from then on what has passed: a clock that is set
/// moves no deadline.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    base_ns: u64,
}

impl Clock {
    /// Goes on from `last`, if that is later than now.
    pub fn start(last: u64) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        Self { started: Instant::now(), base_ns: now.max(last) }
    }

    /// Nanoseconds.
    pub fn now(&self) -> u64 {
        self.base_ns + self.started.elapsed().as_nanos() as u64
    }
}
