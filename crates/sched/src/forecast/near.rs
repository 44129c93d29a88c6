//! What is made of the weighed forecast of the next value: corrected for its usual error at such moments, beside rules that follow sooner,
//! and weighed again. On a series that mostly repeats its last value, what is one of the forecasts, and no mean of them.

use super::correction::Correction;
use super::likelihood::{Likelihood, Middle};
use super::weights::Polynomial;

/// Likelihoods that make means: how fast they forget, and how much an error counts.
const MEANS: [(f64, f64); 2] = [(0.995, 0.5), (0.9, 0.5)];
/// The same of the one that makes a median.
const MEDIAN: (f64, f64) = (0.995, 1.0);
/// What is corrected: the means, and the forecast that is handed in.
const CORRECTED: usize = MEANS.len() + 1;
/// How fast repeats are forgotten, and from which part of all on a series repeats itself.
const REPEATS: (f64, f64) = (0.995, 0.75);

/// What is learnt of it.
#[derive(Clone, Debug)]
pub struct Near {
    means: [Likelihood; MEANS.len()],
    median: Likelihood,
    corrections: [Correction; CORRECTED],
    upper: Polynomial,
    /// Values that were the same as the one before, of so many; both fade.
    repeated: f64,
    of: f64,
    last: f64,
    /// The last forecasts, before and after correction; the last of the latter is the median.
    said: [f64; CORRECTED],
    corrected: [f64; CORRECTED + 1],
}

impl Near {
    /// Of so many forecasters.
    pub fn new(count: usize) -> Self {
        Self {
            means: MEANS.map(|(memory, power)| Likelihood::new(count, memory, power, Middle::Mean)),
            median: Likelihood::new(count, MEDIAN.0, MEDIAN.1, Middle::Median),
            corrections: Default::default(),
            upper: Polynomial::new(CORRECTED + 1),
            repeated: 0.0,
            of: 0.0,
            last: 0.0,
            said: [0.0; CORRECTED],
            corrected: [0.0; CORRECTED + 1],
        }
    }

    /// One forecast of all, and of what weights made of them.
    pub fn combine(&mut self, each: &[f64], weighed: f64, last: f64) -> f64 {
        self.last = last;
        self.said[MEANS.len()] = weighed;
        self.said.iter_mut().zip(&self.means).for_each(|(said, mean)| *said = mean.combine(each));
        for ((to, said), correction) in self.corrected.iter_mut().zip(&self.said).zip(&self.corrections) {
            *to = correction.correct(*said, last);
        }
        let median = self.median.combine(each);
        self.corrected[CORRECTED] = median;
        if self.repeated >= REPEATS.1 * self.of { median } else { self.upper.combine(&self.corrected) }
    }

    /// What came of the last forecasts.
    pub fn learn(&mut self, each: &[f64], came: f64) {
        self.upper.learn(&self.corrected, came);
        for (correction, said) in self.corrections.iter_mut().zip(&self.said) {
            correction.learn(*said, self.last, came);
        }
        self.means.iter_mut().for_each(|mean| mean.learn(each, came));
        self.median.learn(each, came);
        self.repeated = self.repeated * REPEATS.0 + f64::from(came == self.last);
        self.of = self.of * REPEATS.0 + 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_values_mostly_repeat_one_of_the_forecasts_is_taken() {
        let mut near = Near::new(2);
        assert_eq!(near.combine(&[1.0, 2.0], 1.5, 1.0), 1.0, "the first, while nothing is known");
        for _ in 0..50 {
            near.combine(&[1.0, 1.0], 1.0, 1.0);
            near.learn(&[1.0, 1.0], 1.0);
        }
        near.combine(&[1.0, 1.0], 1.0, 1.0);
        near.learn(&[1.0, 1.0], 9.0);
        assert_eq!(near.combine(&[9.0, 2.0], 5.0, 9.0), 9.0, "after a jump");
    }

    #[test]
    fn a_skewed_error_is_corrected() {
        let mut near = Near::new(1);
        // Nine of ten values are 0, and the mean is 1.
        for step in 0..200 {
            near.combine(&[1.0], 1.0, 0.5);
            near.learn(&[1.0], if step % 10 == 0 { 10.0 } else { 0.0 });
        }
        let value = near.combine(&[1.0], 1.0, 0.5);
        assert!(value < 0.4, "{value}");
    }
}
