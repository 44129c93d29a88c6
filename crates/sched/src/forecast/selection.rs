//! How the Network Weather Service chooses: sixteen rules, each of which follows the forecaster with the least error over some time, and
//! of these the one whose error was least so far. For comparison: [`Forecaster`](super::Forecaster) weighs instead.

use std::collections::VecDeque;

/// Over how many steps errors are compared; 0: over all.
const WINDOWS: [usize; 8] = [0, 1, 5, 10, 20, 30, 50, 100];
/// The longest of them.
const LONGEST: usize = 100;
/// Rules: by squared errors and by absolute ones.
const RULES: usize = 2 * WINDOWS.len();

/// The rules, and what they have seen.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Absolute errors of the last steps, newest first.
    errors: VecDeque<Vec<f64>>,
    /// Sums of errors by rule and forecaster.
    sums: [Vec<f64>; RULES],
    /// Each rule's own errors: squared for those that go by squares.
    own: [f64; RULES],
}

impl Selection {
    /// Among so many forecasters.
    pub fn new(count: usize) -> Self {
        Self {
            errors: VecDeque::with_capacity(LONGEST + 1),
            sums: std::array::from_fn(|_| vec![0.0; count]),
            own: [0.0; RULES],
        }
    }

    /// What the best rule's best forecaster says. `by_squares`: of the rules that go by squared errors, else by absolute ones.
    pub fn forecast(&self, each: &[f64], by_squares: bool) -> f64 {
        let half = if by_squares { 0..WINDOWS.len() } else { WINDOWS.len()..RULES };
        let rule = half.min_by(|one, other| self.own[*one].total_cmp(&self.own[*other])).unwrap_or(0);
        each[best(&self.sums[rule])]
    }

    /// What came of these forecasts.
    pub fn learn(&mut self, each: &[f64], value: f64) {
        for rule in 0..RULES {
            let error = (each[best(&self.sums[rule])] - value).abs();
            self.own[rule] += power(error, rule);
        }
        self.errors.push_front(each.iter().map(|forecast| (forecast - value).abs()).collect());
        for (rule, sums) in self.sums.iter_mut().enumerate() {
            let length = WINDOWS[rule % WINDOWS.len()];
            let gone = if length == 0 { None } else { self.errors.get(length) };
            for (at, sum) in sums.iter_mut().enumerate() {
                *sum += power(self.errors[0][at], rule) - gone.map_or(0.0, |errors| power(errors[at], rule));
            }
        }
        self.errors.truncate(LONGEST);
    }
}

fn power(error: f64, rule: usize) -> f64 {
    if rule < WINDOWS.len() { error * error } else { error }
}

fn best(sums: &[f64]) -> usize {
    (0..sums.len()).min_by(|one, other| sums[*one].total_cmp(&sums[*other])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_one_is_followed_and_the_next_after_a_change() {
        let mut selection = Selection::new(20);
        let mut each = [0.0; 20];
        (each[3], each[7]) = (1.0, 2.0);
        (0..150).for_each(|_| selection.learn(&each, 1.0));
        assert_eq!((selection.forecast(&each, true), selection.forecast(&each, false)), (1.0, 1.0));
        (0..150).for_each(|_| selection.learn(&each, 2.0));
        assert_eq!((selection.forecast(&each, true), selection.forecast(&each, false)), (2.0, 2.0));
    }
}
