//! Weighing forecasters by how good they were.
//!
//! [`Polynomial`] has no parameter, and its error is near that of the best weights in hindsight, however the series goes (ML-Poly: Gaillard,
//! Stoltz, van Erven: A second-order bound with excess losses, 2014). [`Fading`] forgets, and so follows who is good now (Hedge, with
//! losses that fade, as parts of the loss that was usual lately). Both are the same for any unit of the values.

/// Weights by the regret for not having followed a forecaster, and by how much that varied.
#[derive(Clone, Debug)]
pub struct Polynomial<const COUNT: usize> {
    regrets: [f64; COUNT],
    squares: [f64; COUNT],
}

impl<const COUNT: usize> Default for Polynomial<COUNT> {
    fn default() -> Self {
        Self { regrets: [0.0; COUNT], squares: [0.0; COUNT] }
    }
}

impl<const COUNT: usize> Polynomial<COUNT> {
    /// One forecast of all.
    pub fn combine(&self, each: &[f64; COUNT]) -> f64 {
        mean(each, |at| if self.squares[at] > 0.0 { self.regrets[at].max(0.0) / self.squares[at] } else { 0.0 })
    }

    /// What came of these forecasts.
    pub fn learn(&mut self, each: &[f64; COUNT], value: f64) {
        let own = self.combine(each);
        // The absolute error's slope: how much less it had been, to first order, had one been followed a little more.
        let slope = if own == value { 0.0 } else { (own - value).signum() };
        for (at, forecast) in each.iter().enumerate() {
            let regret = slope * (own - forecast);
            self.regrets[at] += regret;
            self.squares[at] += regret * regret;
        }
    }
}

/// Weights by losses that fade.
#[derive(Clone, Debug)]
pub struct Fading<const COUNT: usize> {
    /// What a step leaves of a loss.
    memory: f64,
    losses: [f64; COUNT],
    /// Its own loss, usually, and over how many steps that is a mean.
    usual: f64,
    steps: f64,
}

impl<const COUNT: usize> Fading<COUNT> {
    /// One that forgets so fast.
    pub fn new(memory: f64) -> Self {
        Self { memory, losses: [0.0; COUNT], usual: 0.0, steps: 0.0 }
    }

    /// One forecast of all.
    pub fn combine(&self, each: &[f64; COUNT]) -> f64 {
        let least = self.losses.iter().copied().fold(f64::INFINITY, f64::min);
        mean(each, |at| match self.losses[at] - least {
            more if more <= 0.0 => 1.0,
            _ if self.usual <= 0.0 => 0.0,
            more => (-more / self.usual).exp(),
        })
    }

    /// What came of these forecasts.
    pub fn learn(&mut self, each: &[f64; COUNT], value: f64) {
        let own = (self.combine(each) - value).abs();
        for (loss, forecast) in self.losses.iter_mut().zip(each) {
            *loss = *loss * self.memory + (forecast - value).abs();
        }
        self.steps = self.steps * self.memory + 1.0;
        self.usual += (own - self.usual) / self.steps;
    }
}

/// The weighed mean; the plain one if nobody has a weight.
fn mean<const COUNT: usize>(each: &[f64; COUNT], weight: impl Fn(usize) -> f64) -> f64 {
    let (mut sum, mut weights) = (0.0, 0.0);
    for (at, forecast) in each.iter().enumerate() {
        let weight = weight(at);
        sum += weight * forecast;
        weights += weight;
    }
    if weights > 0.0 && sum.is_finite() && weights.is_finite() {
        return sum / weights;
    }
    each.iter().sum::<f64>() / COUNT as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_is_right_gets_all() {
        let (mut polynomial, mut fading) = (Polynomial::default(), Fading::new(0.9));
        let each = [1.0, 2.0, 9.0];
        assert_eq!((polynomial.combine(&each), fading.combine(&each)), (4.0, 4.0));
        for _ in 0..200 {
            polynomial.learn(&each, 2.0);
            fading.learn(&each, 2.0);
        }
        assert!((polynomial.combine(&each) - 2.0).abs() < 0.05, "{}", polynomial.combine(&each));
        assert!((fading.combine(&each) - 2.0).abs() < 0.05, "{}", fading.combine(&each));
    }

    #[test]
    fn a_mean_of_two_may_be_better_than_either() {
        let mut polynomial = Polynomial::default();
        for _ in 0..2_000 {
            polynomial.learn(&[0.0, 10.0], 4.0);
        }
        assert!((polynomial.combine(&[0.0, 10.0]) - 4.0).abs() < 0.3, "{}", polynomial.combine(&[0.0, 10.0]));
    }

    #[test]
    fn who_forgets_follows_a_change_at_once() {
        let mut fading = Fading::new(0.9);
        (0..1_000).for_each(|_| fading.learn(&[0.0, 1.0], 0.0));
        (0..40).for_each(|_| fading.learn(&[0.0, 1.0], 1.0));
        assert!(fading.combine(&[0.0, 1.0]) > 0.9, "{}", fading.combine(&[0.0, 1.0]));
    }
}
