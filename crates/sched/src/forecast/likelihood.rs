//! Weights by how likely forecasters are, each taken to err by a usual size of its own that nobody knows (Laplace's distribution, its size
//! integrated out): the sum of its errors to the power of how many there were.
//!
//! A forecaster that is always right gets all weight at its first success, which no rule does that goes by the size of losses alone. Before
//! anything is known the first forecaster has half of the weight: it is the last value, and a series that never moved repeats it.

/// Errors below this part of the mean are as good as none.
const NOTHING: f64 = 1e-12;

/// What is made of forecasts and weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Middle {
    Mean,
    /// What half of the weight lies below: on a series of states, one of these.
    Median,
}

/// The weights.
#[derive(Clone, Debug)]
pub struct Likelihood {
    /// What a score leaves of those before.
    memory: f64,
    /// How much an error counts: 1 if those of one step were independent of those of the next, less as they are not.
    power: f64,
    middle: Middle,
    losses: Vec<f64>,
    scores: f64,
}

impl Likelihood {
    /// Of so many forecasters.
    pub fn new(count: usize, memory: f64, power: f64, middle: Middle) -> Self {
        Self { memory, power, middle, losses: vec![0.0; count], scores: 0.0 }
    }

    /// One forecast of all.
    pub fn combine(&self, each: &[f64]) -> f64 {
        let weights = self.weights();
        match self.middle {
            Middle::Mean => weights.iter().zip(each).map(|(weight, forecast)| weight * forecast).sum(),
            Middle::Median => median(each, &weights),
        }
    }

    /// What came of these forecasts.
    pub fn learn(&mut self, each: &[f64], value: f64) {
        for (loss, forecast) in self.losses.iter_mut().zip(each) {
            *loss = *loss * self.memory + (forecast - value).abs();
        }
        self.scores = self.scores * self.memory + 1.0;
    }

    /// They sum to 1.
    fn weights(&self) -> Vec<f64> {
        let count = self.losses.len() as f64;
        let mean = self.losses.iter().sum::<f64>() / count;
        let known = |loss: f64| match mean > 0.0 {
            true => -self.power * self.scores * (loss / mean + NOTHING).ln(),
            false => 0.0,
        };
        let first = count.ln();
        let mut weights: Vec<f64> =
            self.losses.iter().enumerate().map(|(at, loss)| known(*loss) + if at == 0 { first } else { 0.0 }).collect();
        let most = weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        weights.iter_mut().for_each(|weight| *weight = (*weight - most).exp());
        let sum: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|weight| *weight /= sum);
        weights
    }
}

/// Half of the weight lies at it or below.
fn median(each: &[f64], weights: &[f64]) -> f64 {
    let mut pairs: Vec<(f64, f64)> = each.iter().copied().zip(weights.iter().copied()).collect();
    pairs.sort_unstable_by(|(one, _), (other, _)| one.total_cmp(other));
    let mut below = 0.0;
    let found = pairs.iter().find(|(_, weight)| {
        below += weight;
        below >= 0.5
    });
    found.or(pairs.last()).map_or(f64::NAN, |(forecast, _)| *forecast)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_has_half_until_something_is_known() {
        let (mean, median) = (Likelihood::new(3, 0.9, 0.5, Middle::Mean), Likelihood::new(3, 0.9, 0.5, Middle::Median));
        assert!((mean.combine(&[1.0, 6.0, 6.0]) - 3.0).abs() < 1e-9);
        assert_eq!(median.combine(&[1.0, 6.0, 6.0]), 1.0);
    }

    #[test]
    fn who_was_right_once_while_others_erred_is_followed() {
        let mut likelihood = Likelihood::new(3, 0.995, 1.0, Middle::Mean);
        (0..30).for_each(|_| likelihood.learn(&[5.0, 5.0, 5.0], 5.0));
        likelihood.learn(&[4.0, 5.0, 4.5], 5.0);
        assert_eq!(likelihood.combine(&[0.0, 7.0, 100.0]), 7.0);
    }

    #[test]
    fn the_unit_does_not_matter() {
        let learnt = |unit: f64| {
            let mut likelihood = Likelihood::new(2, 0.9, 0.5, Middle::Mean);
            (1..9).for_each(|at| likelihood.learn(&[0.0, unit * f64::from(at)], unit));
            likelihood.combine(&[0.0, unit]) / unit
        };
        assert!((learnt(1.0) - learnt(1024.0)).abs() < 1e-12);
    }
}
