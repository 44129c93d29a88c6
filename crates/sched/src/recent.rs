//! What a machine has to spare at this moment, between two of the forecasts that are made from longer series.
//!
//! A forecast of the next minutes cannot know of a load that began a second ago, and a task that is sent there meanwhile waits for it. So
//! what was left over the last seconds bounds what is expected, until the next forecast has seen the same.

use crate::aside::Look;

/// The mean goes back over about so many seconds: less, and each burst of a build would be told; more, and tasks go where they starve.
const MEAN_S: f64 = 1.5;
/// What is left now counts as soon as it is less than this part of what is expected: a forecast differs from a moment all the time.
const PART: f64 = 0.5;

/// Guests that waited for so much of the time starve …
const WAITS: f64 = 0.5;
/// … which is believed for so long after the last of them, in seconds. A machine may be a part of another one: what it has left, its counters do not
/// tell, but guests do.
const BELIEVED_S: f64 = 10.0;

/// What was left over the last seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recent {
    left: Option<f64>,
    /// What each of the guests got that waited last, and how long ago that was, in seconds.
    starved: Option<(f64, f64)>,
}

/// How guests fared since the last look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fared {
    /// How many there are.
    pub guests: usize,
    /// For which part of the time one of them was ready and had no processor.
    pub waited: f64,
}

impl Recent {
    /// Takes another look into account.
    pub fn observe(&mut self, look: &Look) {
        let left = (look.processors - look.owner).max(0.0);
        let weight = (look.seconds / MEAN_S).clamp(0.0, 1.0);
        self.left = Some(self.left.map_or(left, |before| before + weight * (left - before)));
        self.starved =
            self.starved.map(|(share, ago_s)| (share, ago_s + look.seconds)).filter(|(_, ago_s)| *ago_s < BELIEVED_S);
    }

    /// Takes into account how guests fared in the time of that look.
    pub fn guests_fared(&mut self, look: &Look, fared: &Fared) {
        let share = look.guests / fared.guests.max(1) as f64;
        let wait = fared.guests > 0 && fared.waited > WAITS && share < PART;
        if wait {
            self.starved = Some((share, 0.0));
        } else if fared.guests > 0 && share >= PART {
            self.starved = None;
        }
    }

    /// What a task would have got of one processor (0 to 1), once that is known.
    pub fn share(&self) -> Option<f64> {
        let starved = self.starved.map_or(1.0, |(share, _)| share);
        self.left.map(|left| left.min(1.0).min(starved))
    }

    /// What a task will get, if `expected` of a processor is forecast; `None`: the forecast holds.
    pub fn bounds(&self, expected: f64) -> Option<f64> {
        self.share().filter(|share| *share < expected * PART)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(owner: f64) -> Look {
        Look { seconds: 0.5, processors: 2.0, owner, guests: 0.0 }
    }

    #[test]
    fn a_load_that_has_just_begun_bounds_what_is_expected_and_its_end_frees_it() {
        let mut recent = Recent::default();
        assert_eq!(recent.bounds(1.0), None);
        recent.observe(&look(0.1));
        assert_eq!(recent.bounds(1.0), None);
        let busy = (1..20).find(|_| {
            recent.observe(&look(2.0));
            recent.bounds(1.0).is_some()
        });
        assert!(busy.is_some_and(|looks| looks <= 4), "within two seconds: {busy:?}");
        (0..20).for_each(|_| recent.observe(&look(2.0)));
        assert!(recent.bounds(1.0).is_some_and(|share| share < 0.01));
        assert_eq!(recent.bounds(0.0), None, "nothing less can be expected");
        let calm = (1..20).find(|_| {
            recent.observe(&look(0.0));
            recent.bounds(1.0).is_none()
        });
        assert!(calm.is_some_and(|looks| looks <= 3), "{calm:?}");
    }

    #[test]
    fn guests_that_starve_tell_what_counters_do_not() {
        let mut recent = Recent::default();
        let calm = Look { guests: 0.05, ..look(0.5) };
        let mut go = |guests: usize, waited: f64, used: f64| {
            let look = Look { guests: used, ..calm };
            recent.observe(&look);
            recent.guests_fared(&look, &Fared { guests, waited });
            recent.share().expect("known")
        };
        assert_eq!(go(0, 0.0, 0.0), 1.0);
        assert_eq!(go(1, 0.9, 0.05), 0.05);
        assert_eq!(go(0, 0.0, 0.0), 0.05, "believed for a while");
        let later: Vec<f64> = (0..30).map(|_| go(0, 0.0, 0.0)).collect();
        assert_eq!((later[10], later[29]), (0.05, 1.0), "and then not");
        assert!(go(2, 0.8, 0.2) < 0.2);
        assert_eq!(go(1, 0.1, 0.9), 1.0, "one that gets a processor");
    }

    #[test]
    fn one_of_two_processors_is_enough() {
        let mut recent = Recent::default();
        (0..20).for_each(|_| recent.observe(&look(1.0)));
        assert_eq!(recent.bounds(1.0), None);
    }
}
