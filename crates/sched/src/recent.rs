//! What a machine has to spare at this moment, between two of the forecasts that are made from longer series.
//!
//! A forecast of the next minutes cannot know of a load that began a second ago, and a task that is sent there meanwhile waits for it. So
//! what was left over the last seconds bounds what is expected, until the next forecast has seen the same.

use crate::aside::Look;

/// The mean goes back over about so many seconds: less, and each burst of a build would be told; more, and tasks go where they starve.
const MEAN_S: f64 = 1.5;
/// What is left now counts as soon as it is less than this part of what is expected: a forecast differs from a moment all the time.
const PART: f64 = 0.5;

/// What was left over the last seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recent {
    left: Option<f64>,
}

impl Recent {
    /// Takes another look into account.
    pub fn observe(&mut self, look: &Look) {
        let left = (look.processors - look.owner).max(0.0);
        let weight = (look.seconds / MEAN_S).clamp(0.0, 1.0);
        self.left = Some(self.left.map_or(left, |before| before + weight * (left - before)));
    }

    /// What a task would have got of one processor (0 to 1), once that is known.
    pub fn share(&self) -> Option<f64> {
        self.left.map(|left| left.min(1.0))
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
    fn one_of_two_processors_is_enough() {
        let mut recent = Recent::default();
        (0..20).for_each(|_| recent.observe(&look(1.0)));
        assert_eq!(recent.bounds(1.0), None);
    }
}
