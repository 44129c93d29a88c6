//! Guests that would end sooner elsewhere: by Linger-Longer ([`sched::linger`]), where to move is to begin again.
//!
//! A guest stays with an owner who leaves little of the processor until what it may win elsewhere has made up for what it has done here, which
//! would be lost: the longer it has been at work, the longer it stays. Its memory is not moved: no checkpoint (CRIU) holds a task whose
//! files are served by this process.

use sched::finish::Share;
use sched::linger::{Action, Here, Policy, decide};
use std::time::{Duration, Instant};
use wire::message::Expected;

/// An owner who has been there for less may be gone at once.
const OWNER_S_MIN: f64 = 60.0;
/// Elsewhere a task must get so much more of a processor at least.
const GAIN_MIN: f64 = 0.25;
/// How old an answer of the hub may be.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// What a launch takes beside what the task does, in seconds.
const LAUNCH_S: f64 = 1.0;

/// How it is for guests here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lot {
    /// For how long the owner has been there, in seconds; none: he is away.
    pub owner_s: Option<f64>,
    /// What a guest is expected to get of a processor.
    pub worth: f64,
}

impl Lot {
    /// As it was seen last.
    pub fn new(owner_s: Option<f64>, expected: Option<Expected>) -> Self {
        let worth = expected.map_or(1.0, |told| Share::of_permille(told.mean, told.low, told.high).worth());
        Self { owner_s, worth }
    }

    /// Whether guests might be better off elsewhere: then the hub is asked.
    pub fn asks(&self) -> bool {
        self.owner_s.is_some_and(|owner_s| owner_s >= OWNER_S_MIN) && self.worth <= 1.0 - GAIN_MIN
    }

    /// Whether one that has had so many seconds of a processor goes where tasks get this part of one.
    pub fn goes(&self, spent_s: f64, elsewhere: f64) -> bool {
        if !self.asks() || elsewhere < self.worth + GAIN_MIN {
            return false;
        }
        let again_s = spent_s / elsewhere + LAUNCH_S;
        let here = Here { owner_s: self.owner_s, used: 1.0 - self.worth };
        decide(Policy::LingerLonger, here, Some(1.0 - elsewhere), again_s) == Action::Move
    }
}

/// What the hub has said last: the part of a processor that a task would get elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct Elsewhere(Option<(Instant, f64)>);

impl Elsewhere {
    /// The hub says so.
    pub fn heard(share: f64) -> Self {
        Self(Some((Instant::now(), share)))
    }

    /// What it has said, if that is not long ago. It is said once: who goes takes the place.
    pub fn take(&mut self) -> Option<f64> {
        let (at, share) = self.0.take()?;
        (at.elapsed() <= ANSWER_MAX).then_some(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lot(owner_s: f64, mean: u32) -> Lot {
        let expected = Expected { mean, low: mean, high: mean, ..Expected::default() };
        Lot::new(Some(owner_s), Some(expected))
    }

    #[test]
    fn the_longer_a_guest_was_at_work_the_longer_it_stays() {
        // Nearly nothing here, nearly all there: about as long as what would be lost.
        let goes = |owner_s, spent_s| lot(owner_s, 25).goes(spent_s, 0.95);
        assert_eq!((goes(59.0, 0.0), goes(60.0, 0.0), goes(60.0, 50.0)), (false, true, true));
        assert_eq!((goes(300.0, 600.0), goes(700.0, 600.0)), (false, true));
        // Half of a processor is not left for as long.
        assert!(!lot(700.0, 500).goes(600.0, 0.95) && lot(1_400.0, 500).goes(600.0, 0.95));
    }

    #[test]
    fn nobody_goes_for_little_or_from_an_owner_who_is_away() {
        assert!(!lot(1e6, 700).goes(1.0, 0.9));
        assert!(!Lot { owner_s: None, ..lot(0.0, 10) }.goes(1.0, 1.0));
        assert!(!Lot::new(Some(1e6), None).asks(), "nothing is known of what there is");
        assert!(!lot(1e6, 10).goes(1.0, 0.0), "nowhere");
    }

    #[test]
    fn an_answer_holds_for_one_guest() {
        let mut elsewhere = Elsewhere::heard(0.5);
        assert_eq!((elsewhere.take(), elsewhere.take()), (Some(0.5), None));
    }
}
