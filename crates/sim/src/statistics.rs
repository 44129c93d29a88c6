//! Means with intervals.

use sched::series::mean;

/// A mean over replicates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    /// The mean.
    pub value: f64,
    /// The true one is within so much of it, nineteen times in twenty.
    pub within: f64,
    /// One replicate is within so much of it, nineteen times in twenty, as far as replicates are normal.
    pub one_within: f64,
}

/// Of two deviations on either side is 95% of a normal distribution.
const DEVIATIONS: f64 = 1.96;

impl Mean {
    /// Of replicates that do not depend on one another.
    pub fn of(values: &[f64]) -> Self {
        let (value, deviation) = (mean(values), deviation(values));
        let count = values.len().max(1) as f64;
        Self { value, within: DEVIATIONS * deviation / count.sqrt(), one_within: DEVIATIONS * deviation }
    }
}

/// The standard deviation of a sample; 0 of fewer than two values.
pub fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    if values.len() < 2 { 0.0 } else { (squares / (values.len() - 1) as f64).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_and_how_far_off_it_may_be() {
        let of = Mean::of(&[1.0, 3.0, 5.0, 7.0]);
        assert_eq!((of.value, mean(&[]), deviation(&[4.0])), (4.0, 0.0, 0.0));
        let deviation = (20.0f64 / 3.0).sqrt();
        assert!((of.one_within - 1.96 * deviation).abs() < 1e-12 && (of.within - of.one_within / 2.0).abs() < 1e-12);
    }
}
