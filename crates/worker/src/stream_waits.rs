//! Tasks that only wait for their standard input, or for somebody to take their output. As long as they do, what they have of the machine
//! is lent once more: a pipeline of more commands than there are places would wait for itself for ever.

use crate::demand::{Awaited, look};
use crate::sandbox::Control;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// When a task that has begun is looked at first, and how long after a look at which it waited: it waits if it did at two looks in turn.
const FIRST_LOOK: Duration = Duration::from_millis(150);
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// While it does something else the pauses double up to this.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Most CPUs that are lent once more: each such task takes memory, and all may go on at the same time.
const CPUS_MAX: u32 = 64;

/// CPUs of all tasks of a worker that only wait for their streams.
#[derive(Clone, Debug, Default)]
pub struct StreamWaits(Arc<watch::Sender<u32>>);

/// One task's, until this is dropped.
#[derive(Debug)]
pub struct StreamWait {
    all: StreamWaits,
    cpus: u32,
    pause: Duration,
    next: Instant,
    waited: bool,
    /// Its CPUs are lent once more.
    is_counted: bool,
}

impl StreamWaits {
    /// A task has begun that has so many.
    pub fn begin(&self, cpus: u32) -> StreamWait {
        let (next, waited, is_counted) = (Instant::now() + FIRST_LOOK, false, false);
        StreamWait { all: self.clone(), cpus: cpus.max(1), pause: LOOK_EVERY, next, waited, is_counted }
    }

    /// How many are lent once more.
    pub fn lent_again(&self) -> u32 {
        (*self.0.borrow()).min(CPUS_MAX)
    }

    /// Told when that changes.
    pub fn subscribe(&self) -> watch::Receiver<u32> {
        self.0.subscribe()
    }
}

impl StreamWait {
    /// Waits until the task should be looked at.
    pub async fn due(&self) {
        tokio::time::sleep_until(self.next.into()).await;
    }

    /// Looks at the task's processes, if they may wait for any of these streams now.
    pub fn look(&mut self, task: &Control, awaited: Option<Awaited>) {
        let waits = task.process_id().zip(awaited).is_some_and(|(init, awaited)| look(init, &awaited).waits);
        self.pause = if waits { LOOK_EVERY } else { (self.pause * 2).min(PAUSE_MAX) };
        self.next = Instant::now() + self.pause;
        self.found(waits);
    }

    /// Its program has ended, and what it has said is `taken` in so long.
    pub async fn over<T>(&mut self, taken: impl Future<Output = T>) -> T {
        let mut taken = std::pin::pin!(taken);
        let is_taken = match tokio::time::timeout(FIRST_LOOK, &mut taken).await {
            Ok(is_taken) => is_taken,
            Err(_) => {
                self.count(true);
                taken.await
            }
        };
        self.count(false);
        is_taken
    }

    fn found(&mut self, waits: bool) {
        let waited = std::mem::replace(&mut self.waited, waits);
        self.count(waits && waited);
    }

    fn count(&mut self, counts: bool) {
        if counts != std::mem::replace(&mut self.is_counted, counts) {
            self.all.0.send_modify(|all| *all = if counts { *all + self.cpus } else { all.saturating_sub(self.cpus) });
        }
    }
}

impl Drop for StreamWait {
    fn drop(&mut self) {
        self.found(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_at_two_looks_lends_what_it_has() {
        let all = StreamWaits::default();
        let (mut one, mut other) = (all.begin(0), all.begin(100));
        let mut told = all.subscribe();
        one.found(true);
        assert_eq!((all.lent_again(), told.has_changed().expect("alive")), (0, false), "for a moment");
        one.found(true);
        assert_eq!((all.lent_again(), told.has_changed().expect("alive")), (1, true));
        told.mark_unchanged();
        one.found(true);
        assert!(!told.has_changed().expect("alive"));
        other.found(true);
        other.found(true);
        assert_eq!(all.lent_again(), CPUS_MAX);
        drop(other);
        assert_eq!(all.lent_again(), 1, "it has ended");
        one.found(false);
        one.found(true);
        assert_eq!(all.lent_again(), 0, "it has gone on in between");
    }
}
