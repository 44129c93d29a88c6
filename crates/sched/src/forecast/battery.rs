//! The primary forecasters of the Network Weather Service (Wolski: Dynamically forecasting network performance using the Network
//! Weather Service, 1998): means, medians and exponential smoothing over windows of several lengths.

use super::recent::{RECENT_MAX, Recent};

/// How many there are.
pub const COUNT: usize = 18;
/// Their names, in order.
pub const NAMES: [&str; COUNT] = [
    "last value",
    "running mean",
    "smoothing, gain 0.05",
    "smoothing, gain 0.10",
    "smoothing, gain 0.15",
    "smoothing, gain 0.20",
    "smoothing, gain 0.30",
    "smoothing, gain 0.40",
    "smoothing, gain 0.50",
    "smoothing, gain 0.75",
    "median of 31",
    "median of 5",
    "mean of 31",
    "mean of 5",
    "trimmed mean of 31",
    "trimmed mean of 51",
    "adaptive median, 5 to 21",
    "adaptive median, 21 to 51",
];
/// Gains of the smoothing.
const GAINS: [f64; 8] = [0.05, 0.10, 0.15, 0.20, 0.30, 0.40, 0.50, 0.75];
/// The part that a trimmed mean leaves out at each end.
const TRIMMED: f64 = 0.3;

/// What the forecasters remember besides the last values.
#[derive(Clone, Debug)]
pub struct Battery {
    count: u64,
    mean: f64,
    smoothed: [f64; GAINS.len()],
    adaptive: [Adaptive; 2],
}

impl Default for Battery {
    fn default() -> Self {
        let short = Adaptive { least: 5, most: 21, step: 1, length: 10 };
        let long = Adaptive { least: 21, most: 51, step: 5, length: 30 };
        Self { count: 0, mean: 0.0, smoothed: [0.0; GAINS.len()], adaptive: [short, long] }
    }
}

impl Battery {
    /// One more value, of which `recent` does not know yet.
    pub fn learn(&mut self, recent: &Recent, value: f64) {
        self.count += 1;
        self.mean += (value - self.mean) / self.count as f64;
        for (smoothed, gain) in self.smoothed.iter_mut().zip(GAINS) {
            *smoothed = if self.count == 1 { value } else { *smoothed + gain * (value - *smoothed) };
        }
        if self.count > 1 {
            self.adaptive.iter_mut().for_each(|adaptive| adaptive.learn(recent, value));
        }
    }

    /// What each says of the next value. There has been one at least.
    pub fn forecast(&self, recent: &Recent, each: &mut [f64]) {
        let mut room = [0.0; RECENT_MAX];
        let mean = |count: usize| recent.last(count).sum::<f64>() / count.min(recent.len()) as f64;
        each[0] = recent.back(0);
        each[1] = self.mean;
        each[2..10].copy_from_slice(&self.smoothed);
        each[10] = median(recent.sorted(31, &mut room));
        each[11] = median(recent.sorted(5, &mut room));
        each[12] = mean(31);
        each[13] = mean(5);
        each[14] = trimmed(recent.sorted(31, &mut room));
        each[15] = trimmed(recent.sorted(51, &mut room));
        each[16] = self.adaptive[0].forecast(recent);
        each[17] = self.adaptive[1].forecast(recent);
    }
}

/// A median over a window whose length follows the series.
#[derive(Clone, Copy, Debug)]
struct Adaptive {
    least: usize,
    most: usize,
    step: usize,
    length: usize,
}

impl Adaptive {
    fn forecast(&self, recent: &Recent) -> f64 {
        median(recent.sorted(self.length, &mut [0.0; RECENT_MAX]))
    }

    /// Moves to the smaller or larger window if that would have been nearer.
    fn learn(&mut self, recent: &Recent, value: f64) {
        let lengths =
            [self.length, (self.length - self.step).max(self.least), (self.length + self.step).min(self.most)];
        let error = |length: &usize| (Self { length: *length, ..*self }.forecast(recent) - value).abs();
        let best = lengths.iter().min_by(|one, other| error(one).total_cmp(&error(other)));
        self.length = best.copied().unwrap_or(self.length);
    }
}

fn median(sorted: &[f64]) -> f64 {
    f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
}

fn trimmed(sorted: &[f64]) -> f64 {
    let left_out = (sorted.len() as f64 * TRIMMED) as usize;
    let kept = &sorted[left_out..sorted.len() - left_out];
    kept.iter().sum::<f64>() / kept.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forecasts(values: &[f64]) -> [f64; COUNT] {
        let (mut battery, mut recent, mut each) = (Battery::default(), Recent::default(), [0.0; COUNT]);
        for value in values {
            battery.learn(&recent, *value);
            recent.push(*value);
        }
        battery.forecast(&recent, &mut each);
        each
    }

    #[test]
    fn each_says_what_its_name_says() {
        let each = forecasts(&[1.0, 2.0, 3.0, 4.0, 10.0, 3.0]);
        let of = |name: &str| each[NAMES.iter().position(|known| *known == name).expect("known")];
        assert_eq!((of("last value"), of("median of 5"), of("mean of 5")), (3.0, 3.0, 4.4));
        assert!((of("running mean") - 23.0 / 6.0).abs() < 1e-12);
        // One is left out at each end.
        assert_eq!((of("trimmed mean of 31"), of("median of 31")), (3.0, 3.0));
        let smoothed = [2.0, 3.0, 4.0, 10.0, 3.0].iter().fold(1.0, |level, value| level + 0.5 * (value - level));
        assert!((of("smoothing, gain 0.50") - smoothed).abs() < 1e-12);
    }

    #[test]
    fn a_window_grows_and_shrinks_with_the_series() {
        let mut adaptive = Adaptive { least: 5, most: 21, step: 1, length: 10 };
        let mut recent = Recent::default();
        (0..51).for_each(|value| recent.push(f64::from(value)));
        // What comes is what came last: the shorter the better.
        (0..20).for_each(|_| adaptive.learn(&recent, 50.0));
        assert_eq!(adaptive.length, 5);
        (0..40).for_each(|_| adaptive.learn(&recent, 30.0));
        assert_eq!(adaptive.length, 21);
    }
}
