//! Which forecasters of several values to come are good on series of this kind, learnt on other series.
//!
//! A day of five-minute values has nine windows of thirty. No rule that begins with nothing finds the best of forty forecasters in these. So
//! these weights begin with what was learnt on made series and on half of the real ones (docs/decisions/0043-forecasts-of-short-series.md):
//! how good each of fifteen is on series like this one, by four features of it, and how far to trust what they erred by so far. That is
//! counted twice: over the windows that have ended; and over those that have not, as if the rest came as is foretold now.
//!
//! Constants were learnt at thirty values ahead; at other horizons time counts in horizons. None has a unit.

use std::array::from_fn;

/// Forecasters that are weighed.
const COUNT: usize = 15;
/// Features of a series.
const FEATURES: usize = 4;
/// What each feature usually is, and how far it usually lies from that.
const USUAL: [(f64, f64); FEATURES] = [(0.91, 0.19), (0.53, 0.32), (0.23, 0.27), (-0.32, 0.50)];
/// How much an error counts over windows that have ended, and over those that have not: always, and more by each feature.
const ENDED: (f64, [f64; FEATURES]) = (-2.2, [-2.6, 0.3, -0.4, -1.1]);
const OPEN: (f64, [f64; FEATURES]) = (-1.2, [-0.4, 0.4, 0.1, -0.3]);
/// Forecasters by their number, with the logarithms of their weights: always, and by each feature.
const WEIGHTS: [(usize, f64, [f64; FEATURES]); COUNT] = [
    (0, 0.3, [-0.9, 2.1, 0.8, 1.0]),     // last value
    (1, 1.7, [-0.6, -0.1, 0.0, 0.5]),    // running mean
    (2, -0.8, [0.6, -0.7, -0.4, -1.2]),  // smoothing, gain 0.05
    (3, -0.8, [-0.2, 0.1, 0.1, -0.3]),   // smoothing, gain 0.10
    (5, -0.2, [0.4, -0.3, -0.3, -0.7]),  // smoothing, gain 0.20
    (7, 0.3, [0.1, 1.7, -0.1, 0.1]),     // smoothing, gain 0.40
    (10, 0.3, [0.0, -0.2, -0.1, 1.3]),   // median of 31
    (12, -1.1, [-0.4, 0.0, 0.2, -0.2]),  // mean of 31
    (13, -0.1, [0.3, 0.1, -0.5, 0.0]),   // mean of 5
    (15, -0.1, [-0.2, -1.0, 1.3, -0.1]), // trimmed mean of 51
    (18, 0.5, [1.1, -0.5, -1.8, 0.1]),   // AR(16), 500 steps
    (19, -0.5, [0.3, 0.3, -0.1, 0.0]),   // AR(16), 200 steps
    (38, -0.1, [-0.4, -0.4, 0.3, -0.9]), // means before, 40 horizons
    (40, 0.0, [0.3, -2.3, 0.2, 0.2]),    // after such a value
    (41, 0.4, [-0.4, -0.8, 0.1, 0.1]),   // after such means
];
/// How fast errors of windows that have ended are forgotten.
const MEMORY: f64 = 0.995;
/// Added to an error, as a part of the mean one.
const FLOOR: f64 = 0.03;
/// No logarithm of errors or of what varies is further from 0.
const LOGARITHM_MAX: f64 = 3.0;
/// In how many horizons errors count whole: of windows that have ended, and of those that have not.
const WHOLE: (f64, f64) = (2.0, 0.5);
/// After how many horizons what the other weights say counts as much.
const HALF_AFTER: f64 = 8.0;

/// A forecast that was made some values ago, and the sum of these.
#[derive(Clone, Copy, Debug)]
pub struct Made<'a> {
    /// What each forecaster said.
    pub each: &'a [f64],
    /// The sum of the values since, and how many these are.
    pub came: f64,
    pub values: usize,
}

/// What is learnt of a series.
#[derive(Clone, Debug)]
pub struct Prior {
    horizon: f64,
    losses: [f64; COUNT],
    scores: f64,
    kind: Kind,
}

impl Prior {
    /// For the mean of so many values to come.
    pub fn new(horizon: usize) -> Self {
        Self { horizon: horizon as f64, losses: [0.0; COUNT], scores: 0.0, kind: Kind::default() }
    }

    /// One more value.
    pub fn see(&mut self, value: f64) {
        self.kind.see(value);
    }

    /// What came of these forecasts.
    pub fn learn(&mut self, each: &[f64], came: f64) {
        for (loss, (at, ..)) in self.losses.iter_mut().zip(&WEIGHTS) {
            *loss = MEMORY * *loss + (each[*at] - came).abs();
        }
        self.scores = MEMORY * self.scores + 1.0;
    }

    /// One forecast of all, and of `weighed`, which counts the more the longer the series is. `open` are those whose values have not all
    /// come.
    pub fn combine<'a>(&self, each: &[f64], weighed: f64, open: impl Iterator<Item = Made<'a>>) -> f64 {
        let horizons = (self.kind.values - 1.0).max(0.0) / self.horizon;
        let features = self.kind.features(horizons);
        let by = |(always, more): &(f64, [f64; FEATURES])| {
            always + more.iter().zip(features).map(|(more, feature)| more * feature).sum::<f64>()
        };
        let ended_part = (self.scores / (WHOLE.0 * self.horizon)).min(1.0);
        let open_part = (horizons / WHOLE.1).min(1.0);
        let ended = logarithms(&self.losses);
        let open = logarithms(&self.open_losses(each, open));
        let logarithm: [f64; COUNT] = from_fn(|at| {
            let (_, always, more) = &WEIGHTS[at];
            by(&(*always, *more)) + by(&ENDED) * ended[at] * ended_part + by(&OPEN) * open[at] * open_part
        });
        let most = logarithm.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (mut sum, mut weights) = (0.0, 0.0);
        for (logarithm, (at, ..)) in logarithm.iter().zip(&WEIGHTS) {
            let weight = (logarithm - most).exp();
            sum += weight * each[*at];
            weights += weight;
        }
        let part = 1.0 / (1.0 + horizons / HALF_AFTER);
        part * sum / weights + (1.0 - part) * weighed
    }

    /// Errors of the forecasts that are open, if what is missing comes as all foretell it now in the mean.
    fn open_losses<'a>(&self, each: &[f64], open: impl Iterator<Item = Made<'a>>) -> [f64; COUNT] {
        let now = WEIGHTS.iter().map(|(at, ..)| each[*at]).sum::<f64>() / COUNT as f64;
        let mut losses = [0.0; COUNT];
        for made in open {
            let come = (made.came + (self.horizon - made.values as f64) * now) / self.horizon;
            for (loss, (at, ..)) in losses.iter_mut().zip(&WEIGHTS) {
                *loss += (made.each[*at] - come).abs();
            }
        }
        losses
    }
}

/// By how much each is above the mean one; all 0 if there is none.
fn logarithms(losses: &[f64; COUNT]) -> [f64; COUNT] {
    let mean = losses.iter().sum::<f64>() / COUNT as f64;
    losses.map(|loss| match mean > 0.0 {
        true => (loss / mean + FLOOR).ln().clamp(-LOGARITHM_MAX, LOGARITHM_MAX),
        false => 0.0,
    })
}

/// Of which kind a series is.
#[derive(Clone, Debug, Default)]
struct Kind {
    values: f64,
    last: f64,
    mean: f64,
    variance: f64,
    /// Of each value with the one before.
    covariance: f64,
    /// How far the last values are from the mean.
    distance: f64,
    repeats: f64,
}

impl Kind {
    /// Over so many values means go.
    const LENGTH: f64 = 200.0;
    /// What a value leaves of the distance before.
    const DISTANCE_MEMORY: f64 = 0.9;

    fn see(&mut self, value: f64) {
        self.values += 1.0;
        if self.values == 1.0 {
            (self.mean, self.last) = (value, value);
            return;
        }
        let weight = 1.0 / self.values.min(Self::LENGTH);
        let (off, before) = (value - self.mean, self.last - self.mean);
        self.covariance += (off * before - self.covariance) * weight;
        self.variance += (off * off - self.variance) * weight;
        self.distance = Self::DISTANCE_MEMORY * self.distance + (1.0 - Self::DISTANCE_MEMORY) * off.abs();
        self.mean += off * weight;
        self.repeats += f64::from(value == self.last);
        self.last = value;
    }

    /// How long it is, how values go with those before, how many repeat it, and how much they vary now; off what is usual.
    fn features(&self, horizons: f64) -> [f64; FEATURES] {
        let varies = self.variance > 0.0;
        let now = if varies && self.distance > 0.0 { (self.distance / self.variance.sqrt()).ln() } else { 0.0 };
        let known = [
            // Thirty values were a horizon.
            (1.0 + 30.0 * horizons).ln() / 5.0,
            if varies { (self.covariance / self.variance).clamp(-1.0, 1.0) } else { 0.0 },
            self.repeats / (self.values - 1.0).max(1.0),
            now.clamp(-LOGARITHM_MAX, LOGARITHM_MAX),
        ];
        from_fn(|at| (known[at] - USUAL[at].0) / USUAL[at].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::names;

    #[test]
    fn numbers_are_of_the_forecasters_that_are_meant() {
        let names = names(30);
        let named: Vec<&str> = WEIGHTS.iter().map(|(at, ..)| &names[*at][..]).collect();
        assert_eq!((named[0], named[6], named[9]), ("last value", "median of 31", "trimmed mean of 51"));
        assert_eq!(
            (named[10], named[12], named[14]),
            ("AR(16), 500 steps", "means before, 40 horizons", "after such means")
        );
    }

    #[test]
    fn who_erred_least_gets_most_and_the_unit_does_not_matter() {
        let learnt = |unit: f64| {
            let mut prior = Prior::new(4);
            let mut each = [0.0; 42];
            each[10] = unit;
            for at in 0..40 {
                prior.see(unit * f64::from(at % 3));
                prior.learn(&each, unit);
            }
            prior.combine(&each, unit, std::iter::empty()) / unit
        };
        assert!((0.8..=1.0).contains(&learnt(1.0)), "{}", learnt(1.0));
        assert!((learnt(1.0) - learnt(1024.0)).abs() < 1e-9);
    }

    #[test]
    fn errors_count_before_all_values_have_come() {
        let mut prior = Prior::new(4);
        (0..10).for_each(|at| prior.see(f64::from(at)));
        let (now, mut made) = ([5.0; 42], [0.0; 42]);
        let mut each = now;
        (made[0], each[0]) = (5.0, 6.0);
        let open = |each| Made { each, came: 15.0, values: 3 };
        let knows = prior.combine(&each, 5.0, [open(&made)].into_iter());
        let knows_not = prior.combine(&each, 5.0, [open(&now)].into_iter());
        assert!(knows > knows_not, "{knows}, {knows_not}: the first was right when all others were not");
    }
}
