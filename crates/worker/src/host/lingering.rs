//! Guests that would end sooner elsewhere: by foresight ([`sched::linger::foresight`]), where to move is to begin again.
//!
//! A guest stays with an owner who leaves little of the processor unless it is expected to end sooner by doing all that it has done again where
//! there is more: by what this machine's past tells of how long its owner will go on so, and by what other guests needed. Its memory is not
//! moved (`docs/decisions/0038-no-checkpoints.md`).

use sched::finish::Share;
use sched::linger::foresight::{Guest, Prices, Waiting, plan};
use sched::linger::outlook::Outlook;
use std::time::{Duration, Instant};
use wire::message::Expected;

/// An owner who has been there for less may be gone at once, …
const OWNER_S_MIN: f64 = 60.0;
/// … and a guest that has come since was sent here when that was known: it stays for as long.
pub const STAY_MIN: Duration = Duration::from_secs(60);
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
    /// What this machine's past tells.
    pub outlook: Outlook,
}

impl Lot {
    /// As it was seen last.
    pub fn new(owner_s: Option<f64>, expected: Option<Expected>, outlook: Outlook) -> Self {
        let worth = expected.map_or(1.0, |told| Share::of_permille(told.mean, told.low, told.high).worth());
        Self { owner_s, worth, outlook }
    }

    /// Whether guests might be better off elsewhere: then the hub is asked.
    pub fn asks(&self) -> bool {
        self.owner_s.is_some_and(|owner_s| owner_s >= OWNER_S_MIN) && self.worth <= 1.0 - GAIN_MIN
    }

    /// A guest here, to weigh: for how long it has been here, in seconds, the processor time that it has had, and what it is believed to need
    /// further.
    pub fn guest(&self, stayed_s: f64, spent_s: f64, left_s: f64) -> Guest<'_> {
        Guest { host: &self.outlook, stayed_s, lived_s: stayed_s, moves: 0, spent_s, left_s }
    }

    /// Which of these goes where tasks get this part of a processor, if one does; and how much sooner it will end, in seconds.
    pub fn goes(&self, guests: &[Guest<'_>], elsewhere: f64) -> Option<(usize, f64)> {
        if !self.asks() || elsewhere < self.worth + GAIN_MIN {
            return None;
        }
        let there = Share { mean: elsewhere, low: elsewhere, high: elsewhere };
        let going = plan(guests, &[&there], Prices { move_s: None, launch_s: LAUNCH_S }, Waiting::default());
        going.first().map(|going| (going.guest, going.saves_s))
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

    /// An owner who has been there for so long, and always left this part of the processor.
    fn lot(owner_s: f64, mean: u32) -> Lot {
        let expected = Expected { mean, low: mean, high: mean, ..Expected::default() };
        let mut outlook = Outlook::new(true, 0.0);
        (0..(owner_s / 10.0) as usize).for_each(|_| outlook.observe(true, 1.0 - f64::from(mean) / 1e3, 10.0));
        Lot::new(Some(owner_s), Some(expected), outlook)
    }

    fn goes(lot: &Lot, spent_and_left: &[(f64, f64)], elsewhere: f64) -> Option<usize> {
        let guest = |(spent_s, left_s): &(f64, f64)| lot.guest(1e6, *spent_s, *left_s);
        let guests: Vec<Guest<'_>> = spent_and_left.iter().map(guest).collect();
        lot.goes(&guests, elsewhere).map(|(at, _)| at)
    }

    #[test]
    fn who_loses_little_and_has_much_before_it_goes() {
        let one_goes = |owner_s, spent_s, left_s| goes(&lot(owner_s, 25), &[(spent_s, left_s)], 0.95).is_some();
        assert!(!one_goes(59.0, 0.0, 600.0) && one_goes(3_000.0, 0.0, 600.0));
        assert!(one_goes(3_000.0, 600.0, 600.0) && !one_goes(3_000.0, 1e6, 10.0));
        assert_eq!(goes(&lot(3_000.0, 25), &[(500.0, 600.0), (5.0, 600.0)], 0.95), Some(1));
    }

    #[test]
    fn nobody_goes_for_little_or_from_an_owner_who_is_away() {
        let one = [(1.0, 600.0)];
        assert_eq!(goes(&lot(1e5, 700), &one, 0.9), None);
        assert_eq!(goes(&Lot { owner_s: None, ..lot(0.0, 10) }, &one, 1.0), None);
        assert!(!Lot::new(Some(1e6), None, Outlook::default()).asks(), "nothing is known of what there is");
        assert_eq!(goes(&lot(1e5, 10), &one, 0.0), None, "nowhere");
        assert_eq!(goes(&lot(1e5, 10), &[], 1.0), None, "nobody is here");
    }

    #[test]
    fn an_answer_holds_for_one_guest() {
        let mut elsewhere = Elsewhere::heard(0.5);
        assert_eq!((elsewhere.take(), elsewhere.take()), (Some(0.5), None));
    }
}
