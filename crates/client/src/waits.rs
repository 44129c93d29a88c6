//! Why a command waited, and for how long: of all its waits the longest, for `--verbose`.
//!
//! It waits for one thing at a time. The clock is the caller's.

use base::units::micros;
use std::time::{Duration, Instant};

/// A shorter wait is not worth a word.
const SHOWN_MIN: Duration = Duration::from_millis(100);

/// The waits of one command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waits {
    now: Option<Wait>,
    longest: Option<(Duration, String)>,
}

#[derive(Clone, Debug)]
struct Wait {
    reason: String,
    begun: Instant,
    /// What the worker counted of it, if that is more than what was seen of it here.
    counted: Duration,
}

impl Waits {
    /// It waits for this now. A new reason ends an earlier wait.
    pub fn begin(&mut self, reason: &str, now: Instant) {
        if self.reason() == Some(reason) {
            return;
        }
        self.end(now);
        self.now = Some(Wait { reason: reason.to_owned(), begun: now, counted: Duration::ZERO });
    }

    /// The worker's view: what it waits for, if it does, and for how long altogether. The words of one wait change as it
    /// lasts, so that the last ones count.
    pub fn counted(&mut self, reason: Option<&str>, counted: Duration, now: Instant) {
        let Some(reason) = reason else { return self.end(now) };
        let begun = self.now.as_ref().map_or(now, |wait| wait.begun);
        self.now = Some(Wait { reason: reason.to_owned(), begun, counted });
    }

    /// It goes on.
    pub fn end(&mut self, now: Instant) {
        let ended = self.now.take().map(|wait| wait.lasted(now));
        self.longest = ended.into_iter().chain(self.longest.take()).max_by_key(|(lasted, _)| *lasted);
    }

    /// What it waits for now.
    pub fn reason(&self) -> Option<&str> {
        self.now.as_ref().map(|wait| wait.reason.as_str())
    }

    /// For how long it has waited for what it waits for now.
    pub fn lasted(&self, now: Instant) -> Duration {
        self.now.clone().map(|wait| wait.lasted(now).0).unwrap_or_default()
    }

    /// The longest wait for a person, if it was long enough to be worth it.
    pub fn in_words(&self, now: Instant) -> Option<String> {
        let mut all = self.clone();
        all.end(now);
        let (lasted, reason) = all.longest.filter(|(lasted, _)| *lasted >= SHOWN_MIN)?;
        Some(format!("longest wait {} ({reason})", micros(lasted.as_micros() as u64)))
    }
}

impl Wait {
    fn lasted(self, now: Instant) -> (Duration, String) {
        (now.saturating_duration_since(self.begun).max(self.counted), self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_wait_is_named_with_its_last_words() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let mut waits = Waits::default();
        waits.begin("waits for a place at the hub", at(0));
        waits.end(at(99));
        assert_eq!(waits.in_words(at(9_999)), None, "it is not worth a word, nor is what came after it");
        waits.begin("waits for a place at the hub", at(100));
        waits.counted(None, Duration::ZERO, at(350));
        assert_eq!(waits.in_words(at(400)).expect("one"), "longest wait 0.25 s (waits for a place at the hub)");
        for (ms, reason) in [(1_000, "got 0.1 s of 1.0"), (2_500, "got 0.2 s of 2.5")] {
            waits.counted(Some(reason), Duration::from_millis(ms - 200), at(ms));
        }
        assert_eq!(waits.lasted(at(2_500)), Duration::from_millis(2_300), "the worker's count");
        assert_eq!(waits.in_words(at(2_500)).expect("it lasts"), "longest wait 2.30 s (got 0.2 s of 2.5)");
        waits.begin("waits for the link", at(4_000));
        waits.end(at(5_000));
        assert_eq!(waits.in_words(at(9_000)).expect("one"), "longest wait 3.00 s (got 0.2 s of 2.5)");
    }
}
