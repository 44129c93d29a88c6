//! Silence, as a process notices it that may have been stopped, or whose machine may have slept: what came meanwhile it has not read
//! yet, so the time does not count.

use crate::connection::Connection;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(50);
/// So much of the time from look to look counts at most: on a busy machine looks are late, and there may be something to read that is not read yet.
const COUNTED_MAX: Duration = Duration::from_millis(100);
/// A look that is later by this much: this process did not run.
const LATE: Duration = Duration::from_secs(1);

/// Whether nothing is heard of the other end for `limit`, from now on. What this process does not run meanwhile is waited for on top, and
/// then `limit` begins anew.
pub async fn is_silent(connection: &Connection, limit: Duration) -> bool {
    let before = connection.heard();
    let mut silence = Silence::new(limit);
    loop {
        let looked = now();
        tokio::time::sleep(LOOK).await;
        if connection.heard() != before || connection.is_closed() {
            return connection.is_closed();
        }
        if silence.looked(now().saturating_sub(looked)) {
            return true;
        }
    }
}

/// Whether a wait for `limit` that began then took so much longer that this process cannot have run all the time.
pub(crate) fn was_away(began: Duration, limit: Duration) -> bool {
    now().saturating_sub(began) > limit + LATE
}

/// A time that passes also while the machine sleeps.
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec as u32)
}

/// Counts the time from look to look. A break begins it anew, however long that was.
struct Silence {
    limit: Duration,
    left: Duration,
}

impl Silence {
    fn new(limit: Duration) -> Self {
        Self { limit, left: limit }
    }

    /// One more look has found nothing, which took so long. Whether these are enough.
    fn looked(&mut self, took: Duration) -> bool {
        self.left = if took > LOOK + LATE { self.limit } else { self.left.saturating_sub(took.min(COUNTED_MAX)) };
        self.left.is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_break_begins_silence_anew() {
        let mut silence = Silence::new(LOOK * 3);
        assert!(!silence.looked(LOOK) && !silence.looked(LOOK / 2));
        assert!(!silence.looked(Duration::from_secs(3_600)), "nothing was read for an hour");
        assert!(!silence.looked(LOOK) && !silence.looked(LOOK));
        assert!(silence.looked(LOOK));
    }

    #[test]
    fn looks_that_are_late_do_not_make_it_longer() {
        let mut silence = Silence::new(COUNTED_MAX * 3);
        assert!(!silence.looked(COUNTED_MAX) && !silence.looked(COUNTED_MAX * 5), "what came meanwhile is read first");
        assert!(silence.looked(COUNTED_MAX));
    }

    #[test]
    fn a_wait_that_took_much_longer_was_a_break() {
        let began = now();
        assert!(!was_away(began, LOOK));
        assert!(was_away(began.saturating_sub(LOOK + LATE * 2), LOOK));
    }
}
