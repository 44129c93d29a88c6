//! Intervals that hold as often as they say: adaptive conformal inference (Gibbs, Candès: Adaptive conformal inference under distribution
//! shift, 2021), each side for itself.
//!
//! An interval reaches from one quantile of the last errors to another. Whenever a value lay outside, the quantile is moved out, and
//! otherwise in by as much less as a miss is to be rarer. So in the long run the intervals hold nine times in ten for any series, and the
//! fewer errors are looked at, the sooner after it has changed.

/// Errors that are looked at, as far as they are not alike: over several values to come, errors that follow one another share most of these.
const WINDOW: usize = 100;
/// How often a value may lie below the interval, and as often above.
const MISSES: f64 = 0.05;
/// By how much one miss moves a quantile; one of many alike by as much less.
const STEP: f64 = 0.015;

/// The errors, and the quantiles that are used.
#[derive(Clone, Debug)]
pub struct Interval {
    /// The last ones, in a ring; and room to sort them.
    errors: Vec<f64>,
    sorted: Vec<f64>,
    count: u64,
    step: f64,
    below: f64,
    above: f64,
    /// What is added to a forecast.
    low: f64,
    high: f64,
}

impl Interval {
    /// One for forecasts of which so many in a row err nearly alike.
    pub fn new(alike: usize) -> Self {
        let window = WINDOW * alike;
        Self {
            errors: Vec::with_capacity(window),
            sorted: Vec::with_capacity(window),
            count: 0,
            step: STEP / alike as f64,
            below: MISSES,
            above: MISSES,
            low: 0.0,
            high: 0.0,
        }
    }

    /// The interval around a forecast. With no error known it is as wide as the value is large.
    pub fn around(&self, forecast: f64) -> (f64, f64) {
        if self.count == 0 {
            return (forecast - forecast.abs(), forecast + forecast.abs());
        }
        (forecast + self.low, forecast + self.high)
    }

    /// By how much a value was larger than its forecast.
    pub fn learn(&mut self, error: f64) {
        if self.count > 0 {
            self.below += self.step * (MISSES - f64::from(error < self.low));
            self.above += self.step * (MISSES - f64::from(error > self.high));
        }
        let window = self.errors.capacity();
        match self.errors.len() < window {
            true => self.errors.push(error),
            false => self.errors[(self.count % window as u64) as usize] = error,
        }
        self.count += 1;
        self.sorted.clone_from(&self.errors);
        self.sorted.sort_unstable_by(f64::total_cmp);
        self.low = quantile(&self.sorted, self.below).min(0.0);
        self.high = quantile(&self.sorted, 1.0 - self.above).max(0.0);
    }
}

/// The value that this part of all is below; outside of 0 to 1 as much beyond the outermost as all are apart.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let (least, most) = (sorted[0], sorted[sorted.len() - 1]);
    let at = part * (sorted.len() + 1) as f64 - 1.0;
    let last = (sorted.len() - 1) as f64;
    if at < 0.0 {
        return least - (most - least) * (-at).min(1.0);
    }
    if at > last {
        return most + (most - least) * (at - last).min(1.0);
    }
    let (floor, next) = (at as usize, (at as usize + 1).min(sorted.len() - 1));
    sorted[floor] + (sorted[next] - sorted[floor]) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    #[test]
    fn nine_values_in_ten_lie_within_also_when_the_noise_grows() {
        let (mut interval, mut next) = (Interval::new(1), Dice::new(9));
        let mut missed = Vec::new();
        for step in 0..6_000 {
            let size = [1.0, 8.0, 0.5][step / 500 % 3];
            let error = (next.unit() - 0.2) * size;
            let (low, high) = interval.around(0.0);
            missed.push(f64::from(!(low..=high).contains(&error)));
            interval.learn(error);
        }
        let rate = missed.iter().sum::<f64>() / missed.len() as f64;
        assert!((0.08..0.12).contains(&rate), "{rate}");
        let worst = missed.windows(360).map(|window| window.iter().sum::<f64>()).fold(0.0, f64::max) / 360.0;
        assert!(worst < 0.17, "{worst}");
    }

    #[test]
    fn what_is_always_right_has_no_width() {
        let mut interval = Interval::new(1);
        (0..100).for_each(|_| interval.learn(0.0));
        assert_eq!(interval.around(3.0), (3.0, 3.0));
    }

    #[test]
    fn quantiles_go_on_beyond_the_outermost() {
        let sorted = [0.0, 1.0, 2.0];
        assert_eq!([0.25, 0.5, 0.75, 0.375].map(|part| quantile(&sorted, part)), [0.0, 1.0, 2.0, 0.5]);
        assert_eq!([0.0, 1.0].map(|part| quantile(&sorted, part)), [-2.0, 4.0]);
    }
}
