//! Autoregression of order 16 (Dinda, O'Hallaron: Host load prediction using linear models, 2000), fitted anew at each step by least
//! squares over a past that fades.
//!
//! With so many terms a fit can promise what never was: no forecast leaves the range of the last values.

use super::recent::Recent;

/// Terms.
const ORDER: usize = 16;
/// Added to each variance, as a part of their mean: so a series that is nearly constant or periodic has a solution.
const RIDGE: f64 = 1e-3;

/// A model that forgets.
#[derive(Clone, Debug)]
pub struct Autoregression {
    /// What a step leaves of all weights before.
    memory: f64,
    weight: f64,
    mean: f64,
    /// How values go together that are so many steps back, two and two; the lower half.
    covariances: [[f64; ORDER]; ORDER],
    /// How the next value goes with those before.
    with_next: [f64; ORDER],
    /// Of the last value, the one before, and so on.
    coefficients: Option<[f64; ORDER]>,
}

impl Autoregression {
    /// One whose weights fade so.
    pub fn new(memory: f64) -> Self {
        Self {
            memory,
            weight: 0.0,
            mean: 0.0,
            covariances: [[0.0; ORDER]; ORDER],
            with_next: [0.0; ORDER],
            coefficients: None,
        }
    }

    /// Learns the last value.
    pub fn learn(&mut self, recent: &Recent) {
        self.weight = self.memory * self.weight + 1.0;
        self.mean += (recent.back(0) - self.mean) / self.weight;
        if recent.len() <= ORDER {
            return;
        }
        let before: [f64; ORDER] = std::array::from_fn(|lag| recent.back(lag + 1) - self.mean);
        let next = recent.back(0) - self.mean;
        for (row, one) in before.iter().enumerate() {
            self.with_next[row] = self.memory * self.with_next[row] + one * next;
            for (sum, other) in self.covariances[row][..=row].iter_mut().zip(&before) {
                *sum = self.memory * *sum + one * other;
            }
        }
        if recent.len() >= 2 * ORDER {
            self.coefficients = self.solve();
        }
    }

    /// The next value.
    pub fn forecast(&self, recent: &Recent) -> f64 {
        let Some(coefficients) = &self.coefficients else { return recent.back(0) };
        let sum = coefficients.iter().zip(recent.last(ORDER)).map(|(part, value)| part * (value - self.mean));
        let (low, high) = recent.bounds();
        (self.mean + sum.sum::<f64>()).clamp(low, high)
    }

    /// The normal equations' solution, by Cholesky's decomposition. `None`: the series does not vary.
    fn solve(&self) -> Option<[f64; ORDER]> {
        let ridge = RIDGE * (0..ORDER).map(|at| self.covariances[at][at]).sum::<f64>() / ORDER as f64;
        let mut lower = [[0.0; ORDER]; ORDER];
        let mut solution = [0.0; ORDER];
        for row in 0..ORDER {
            for column in 0..=row {
                let known: f64 = (0..column).map(|at| lower[row][at] * lower[column][at]).sum();
                let left = self.covariances[row][column] - known;
                lower[row][column] = match row == column {
                    true => Some((left + ridge).sqrt()).filter(|root| *root > 0.0 && root.is_finite())?,
                    false => left / lower[column][column],
                };
            }
            let known: f64 = (0..row).map(|at| lower[row][at] * solution[at]).sum();
            solution[row] = (self.with_next[row] - known) / lower[row][row];
        }
        for row in (0..ORDER).rev() {
            let known: f64 = (row + 1..ORDER).map(|at| lower[at][row] * solution[at]).sum();
            solution[row] = (solution[row] - known) / lower[row][row];
        }
        solution.iter().all(|part| part.is_finite()).then_some(solution)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(values: impl Iterator<Item = f64>) -> (Autoregression, Recent) {
        let (mut model, mut recent) = (Autoregression::new(0.998), Recent::default());
        for value in values {
            recent.push(value);
            model.learn(&recent);
        }
        (model, recent)
    }

    #[test]
    fn an_oscillation_is_continued() {
        let wave = |at: u32| 5.0 + (f64::from(at) * 0.7).sin();
        let (model, recent) = fed((0..1_000).map(wave));
        assert!((model.forecast(&recent) - wave(1_000)).abs() < 0.05, "{}", model.forecast(&recent));
    }

    #[test]
    fn what_does_not_vary_goes_on_and_no_forecast_leaves_the_range() {
        let (model, recent) = fed([3.0; 100].into_iter());
        assert_eq!(model.forecast(&recent), 3.0);
        let growing = (0..200).map(|at| f64::from(at) * f64::from(at));
        let (model, recent) = fed(growing);
        assert!(model.forecast(&recent) <= recent.bounds().1);
    }
}
