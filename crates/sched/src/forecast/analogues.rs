//! What came after the past moments that were most like this one: the median of it (method of analogues: Lorenz, Atmospheric predictability as
//! revealed by naturally occurring analogues, 1969).
//!
//! A load that goes by states has a mean to come that lies where nothing ever comes: beside rare bursts either all is free for five minutes
//! or much is not. A median of what came after such moments is what errs least.

/// Moments that are remembered.
const MOMENTS: usize = 4_096;
/// The nearest of them, of which the median is taken, …
const NEAREST: usize = 128;
/// … and what part of all there are at most, while these are few.
const PART: usize = 8;

/// Moments by so many features, and what came after each.
#[derive(Clone, Debug)]
pub struct Analogues<const N: usize> {
    /// In a ring.
    moments: Vec<([f64; N], f64)>,
    count: u64,
    /// By how much each feature differed from one moment to the next one remembered, usually: its unit.
    usual: [f64; N],
}

impl<const N: usize> Default for Analogues<N> {
    fn default() -> Self {
        Self { moments: Vec::new(), count: 0, usual: [0.0; N] }
    }
}

impl<const N: usize> Analogues<N> {
    /// This came after a moment of these features.
    pub fn learn(&mut self, features: [f64; N], came: f64) {
        let at = (self.count % MOMENTS as u64) as usize;
        if let Some((last, _)) = self.count.checked_sub(1).map(|last| &self.moments[(last % MOMENTS as u64) as usize]) {
            let weight = 1.0 / self.count.min(MOMENTS as u64) as f64;
            for ((usual, now), last) in self.usual.iter_mut().zip(features).zip(last) {
                *usual += ((now - last).abs() - *usual) * weight;
            }
        }
        match self.moments.get_mut(at) {
            Some(moment) => *moment = (features, came),
            None => self.moments.push((features, came)),
        }
        self.count += 1;
    }

    /// What comes after such a moment; nothing before any has been seen.
    pub fn forecast(&self, features: [f64; N]) -> Option<f64> {
        let apart = |others: &[f64; N]| -> f64 {
            let each = features.iter().zip(others).zip(&self.usual).filter(|(_, usual)| **usual > 0.0);
            each.map(|((one, other), usual)| (one - other).abs() / usual).sum()
        };
        let mut near: Vec<(f64, f64)> = self.moments.iter().map(|(others, came)| (apart(others), *came)).collect();
        let count = NEAREST.min(near.len().div_ceil(PART));
        if count == 0 {
            return None;
        }
        near.select_nth_unstable_by(count - 1, |(one, _), (other, _)| one.total_cmp(other));
        let middle = (count - 1) / 2;
        let (_, (_, median), _) =
            near[..count].select_nth_unstable_by(middle, |(_, one), (_, other)| one.total_cmp(other));
        Some(*median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_as_it_mostly_was_after_such_a_moment() {
        let mut analogues = Analogues::default();
        assert_eq!(analogues.forecast([1.0, 5.0]), None);
        for at in 0..3_000 {
            // After 0 comes 7, but every fourth time 100; after 1 comes 9. The second feature says nothing.
            let came = if at % 2 == 1 {
                9.0
            } else if at % 8 == 0 {
                100.0
            } else {
                7.0
            };
            analogues.learn([f64::from(at % 2), f64::from(at % 7) / 7.0], came);
        }
        assert_eq!(analogues.forecast([0.01, 0.5]), Some(7.0));
        assert_eq!(analogues.forecast([0.98, 0.5]), Some(9.0));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_a_constant_has_no_unit() {
        let mut analogues = Analogues::default();
        (0..2 * MOMENTS).for_each(|at| analogues.learn([3.0], at as f64));
        assert_eq!(analogues.moments.len(), MOMENTS);
        assert!(analogues.forecast([3.0]).is_some_and(|came| came >= MOMENTS as f64));
    }
}
