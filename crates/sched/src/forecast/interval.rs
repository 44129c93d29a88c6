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

/// Errors several steps ahead as parts of how far values usually lie from their mean: the middles of ten equally likely parts of those on
/// short series. A day of five-minute values has nine windows of thirty: who knows nothing else finds no quantile of 5% in them.
const PRIOR: [f64; 10] = [0.005, 0.05, 0.10, 0.175, 0.27, 0.39, 0.55, 0.81, 1.25, 2.73];
/// As many windows these count as.
const PRIOR_WINDOWS: usize = 6;
/// By how much larger they are at first, when that distance is not known either; it fades within a horizon.
const PRIOR_FIRST: f64 = 1.5;
/// How fast the distance forgets.
const SPREAD_MEMORY: f64 = 0.99;

/// The errors, and the quantiles that are used.
#[derive(Clone, Debug)]
pub struct Interval {
    /// Values of which the mean is foretold.
    alike: usize,
    /// The last ones, in a ring; in the order of their size; and room for these with those that are known before.
    errors: Vec<f64>,
    sorted: Vec<f64>,
    merged: Vec<f64>,
    window: usize,
    count: u64,
    step: f64,
    below: f64,
    above: f64,
    spread: Spread,
    /// What is added to a forecast.
    low: f64,
    high: f64,
}

/// How far values usually lie from their mean so far.
#[derive(Clone, Copy, Debug, Default)]
struct Spread {
    values: f64,
    mean: f64,
    weight: f64,
    distance: f64,
}

impl Spread {
    fn see(&mut self, value: f64) {
        self.values += 1.0;
        self.mean += (value - self.mean) / self.values;
        self.weight = SPREAD_MEMORY * self.weight + 1.0;
        self.distance += ((value - self.mean).abs() - self.distance) / self.weight;
    }
}

impl Interval {
    /// One for forecasts of which so many in a row err nearly alike.
    pub fn new(alike: usize) -> Self {
        let window = WINDOW * alike;
        Self {
            alike,
            errors: Vec::with_capacity(window),
            sorted: Vec::with_capacity(window),
            merged: Vec::new(),
            window,
            count: 0,
            step: STEP / alike as f64,
            below: MISSES,
            above: MISSES,
            spread: Spread::default(),
            low: 0.0,
            high: 0.0,
        }
    }

    /// One more value of the series.
    pub fn see(&mut self, value: f64) {
        self.spread.see(value);
    }

    /// The interval around a forecast. With nothing known it is as wide as the value is large.
    pub fn around(&mut self, forecast: f64) -> (f64, f64) {
        let has_prior = self.alike > 1 && self.spread.values > 1.0;
        if self.count == 0 && !has_prior {
            return (forecast - forecast.abs(), forecast + forecast.abs());
        }
        if has_prior {
            self.merge();
        }
        let all = if has_prior { &self.merged } else { &self.sorted };
        self.low = quantile(all, self.below).min(0.0);
        self.high = quantile(all, 1.0 - self.above).max(0.0);
        (forecast + self.low, forecast + self.high)
    }

    /// Puts the errors that are known before among those that were seen.
    fn merge(&mut self) {
        let age = (self.spread.values - 1.0) / self.alike as f64;
        let unit = self.spread.distance * (1.0 + PRIOR_FIRST * (-age).exp());
        // Each counts as so many errors, alike as these are.
        let copies = (PRIOR_WINDOWS * self.alike).div_ceil(2 * PRIOR.len());
        let below = PRIOR.iter().rev().map(|part| -part * unit);
        self.merged.clear();
        let mut from = 0;
        for known in below.chain(PRIOR.iter().map(|part| part * unit)) {
            let to = place(&self.sorted, known).max(from);
            self.merged.extend_from_slice(&self.sorted[from..to]);
            self.merged.extend(std::iter::repeat_n(known, copies));
            from = to;
        }
        self.merged.extend_from_slice(&self.sorted[from..]);
    }

    /// By how much a value was larger than its forecast.
    pub fn learn(&mut self, error: f64) {
        if self.count > 0 {
            self.below += self.step * (MISSES - f64::from(error < self.low));
            self.above += self.step * (MISSES - f64::from(error > self.high));
        }
        match self.errors.len() < self.window {
            true => self.errors.push(error),
            false => {
                let oldest = std::mem::replace(&mut self.errors[(self.count % self.window as u64) as usize], error);
                // It was put there when it was learnt.
                self.sorted.remove(place(&self.sorted, oldest));
            }
        }
        self.sorted.insert(place(&self.sorted, error), error);
        self.count += 1;
    }
}

/// Where an error stands, or would stand, among sorted ones.
fn place(sorted: &[f64], error: f64) -> usize {
    sorted.partition_point(|one| one.total_cmp(&error).is_lt())
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
    fn errors_stay_in_order_and_are_merged_as_if_all_were_sorted() {
        let (mut interval, mut dice) = (Interval::new(3), Dice::new(4));
        for step in 0..1_000 {
            interval.see(dice.unit());
            // Many are the same, and 0 has two signs.
            interval.learn((dice.unit() * 9.0 - 4.0).round() * if step % 2 == 0 { 0.1 } else { -0.1 });
            interval.around(0.5);
            let (mut errors, mut merged) = (interval.errors.clone(), interval.merged.clone());
            errors.sort_unstable_by(f64::total_cmp);
            merged.sort_unstable_by(f64::total_cmp);
            let bits = |all: &[f64]| all.iter().map(|one| one.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&errors), bits(&interval.sorted), "step {step}");
            assert_eq!(bits(&merged), bits(&interval.merged), "step {step}");
        }
        assert_eq!(interval.sorted.len(), 300);
        // One of each that is known before.
        assert_eq!(interval.merged.len(), 300 + 2 * PRIOR.len());
    }

    #[test]
    fn what_is_always_right_has_no_width() {
        let mut interval = Interval::new(1);
        (0..100).for_each(|_| interval.learn(0.0));
        assert_eq!(interval.around(3.0), (3.0, 3.0));
    }

    #[test]
    fn further_ahead_something_is_known_before_any_error() {
        let mut interval = Interval::new(30);
        interval.see(1.0);
        assert_eq!(interval.around(3.0), (0.0, 6.0), "as wide as the value is large");
        (0..20).for_each(|at| interval.see(f64::from(at % 2)));
        let (low, high) = interval.around(0.5);
        let early = high - low;
        assert!((low + high - 1.0).abs() < 1e-9 && (1.5..5.0).contains(&early), "{low} to {high}");
        for _ in 0..3_000 {
            interval.see(0.5);
            interval.learn(0.125);
        }
        let (low, high) = interval.around(0.5);
        assert!(high - low < early / 8.0, "{low} to {high}");
    }

    #[test]
    fn quantiles_go_on_beyond_the_outermost() {
        let sorted = [0.0, 1.0, 2.0];
        assert_eq!([0.25, 0.5, 0.75, 0.375].map(|part| quantile(&sorted, part)), [0.0, 1.0, 2.0, 0.5]);
        assert_eq!([0.0, 1.0].map(|part| quantile(&sorted, part)), [-2.0, 4.0]);
    }
}
