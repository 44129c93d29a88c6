//! Autoregression of order 16 (Dinda, O'Hallaron: Host load prediction using linear models, 2000), fitted anew at each step by least
//! squares over a past that fades.
//!
//! With so many terms a fit can promise what never was: no forecast leaves the range of the last values.

use super::recent::Recent;
use super::regression::Regression;

/// Terms: the last value, the one before, and so on.
const ORDER: usize = 16;

/// A model that forgets.
#[derive(Clone, Debug)]
pub struct Autoregression(Regression<ORDER>);

impl Autoregression {
    /// One whose weights fade so.
    pub fn new(memory: f64) -> Self {
        Self(Regression::new(memory))
    }

    /// Learns the last value.
    pub fn learn(&mut self, recent: &Recent) {
        self.0.see(recent.back(0));
        if recent.len() <= ORDER {
            return;
        }
        self.0.learn(&std::array::from_fn(|lag| recent.back(lag + 1)), recent.back(0));
        if recent.len() >= 2 * ORDER {
            self.0.fit();
        }
    }

    /// The mean of the next so many values, each foretold as if those before it had come as they were foretold.
    pub fn mean_ahead(&self, recent: &Recent, steps: usize) -> f64 {
        let (low, high) = recent.bounds();
        let mut last = [0.0; ORDER];
        last.iter_mut().zip(recent.last(ORDER)).for_each(|(last, value)| *last = value);
        let mut sum = 0.0;
        for _ in 0..steps {
            let Some(next) = self.0.forecast(last.iter().copied()) else { return recent.back(0) };
            let next = next.clamp(low, high);
            sum += next;
            last.rotate_right(1);
            last[0] = next;
        }
        sum / steps as f64
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
        assert!((model.mean_ahead(&recent, 1) - wave(1_000)).abs() < 0.05, "{}", model.mean_ahead(&recent, 1));
    }

    #[test]
    fn what_does_not_vary_goes_on_and_no_forecast_leaves_the_range() {
        let (model, recent) = fed([3.0; 100].into_iter());
        assert_eq!(model.mean_ahead(&recent, 1), 3.0);
        assert_eq!(model.mean_ahead(&recent, 30), 3.0);
        let growing = (0..200).map(|at| f64::from(at) * f64::from(at));
        let (model, recent) = fed(growing);
        assert!(model.mean_ahead(&recent, 1) <= recent.bounds().1);
    }
}
