//! What a forecast is usually off by at moments like this one: the median of its past errors where it said about the same, and stood as far
//! from the last value.
//!
//! Weighed means foretell means; the absolute error is least at the median, which for loads that burst lies lower.

/// Errors that are remembered: a day in steps of five minutes.
const MOMENTS: usize = 288;
/// As many as there must be before anything is corrected.
const LEAST: usize = 20;
/// The nearest part of them, but at least and at most so many.
const PART: usize = 4;
const NEAREST: (usize, usize) = (5, 64);
/// Errors that count as if they had been none: few ones move little.
const NONE: f64 = 15.0;

/// A moment, and what came.
#[derive(Clone, Copy, Debug)]
struct Moment {
    forecast: f64,
    /// By how much the last value was above it.
    last_above: f64,
    /// By how much the next one was.
    error: f64,
}

/// The errors.
#[derive(Clone, Debug, Default)]
pub struct Correction {
    /// In a ring.
    moments: Vec<Moment>,
    count: usize,
}

impl Correction {
    /// Such a forecast, corrected.
    pub fn correct(&self, forecast: f64, last: f64) -> f64 {
        let all = self.moments.len();
        if all < LEAST {
            return forecast;
        }
        let above = last - forecast;
        let apart = |moment: &Moment| [(moment.forecast - forecast).abs(), (moment.last_above - above).abs()];
        // How far moments are apart usually is the unit of either.
        let mut units = [0.0; 2];
        for moment in &self.moments {
            units.iter_mut().zip(apart(moment)).for_each(|(unit, apart)| *unit += apart / all as f64);
        }
        let in_units = |apart: [f64; 2]| -> f64 {
            apart.iter().zip(units).filter(|(_, unit)| *unit > 0.0).map(|(apart, unit)| apart / unit).sum()
        };
        let mut near: Vec<(f64, f64)> =
            self.moments.iter().map(|moment| (in_units(apart(moment)), moment.error)).collect();
        let count = (all / PART).clamp(NEAREST.0, NEAREST.1);
        near.select_nth_unstable_by(count - 1, |(one, _), (other, _)| one.total_cmp(other));
        let mut errors: Vec<f64> = near[..count].iter().map(|(_, error)| *error).collect();
        errors.sort_unstable_by(f64::total_cmp);
        let median = f64::midpoint(errors[(count - 1) / 2], errors[count / 2]);
        forecast + median * count as f64 / (count as f64 + NONE)
    }

    /// A forecast, what the last value was when it was made, and what came.
    pub fn learn(&mut self, forecast: f64, last: f64, came: f64) {
        let moment = Moment { forecast, last_above: last - forecast, error: came - forecast };
        match self.moments.get_mut(self.count % MOMENTS) {
            Some(oldest) => *oldest = moment,
            None => self.moments.push(moment),
        }
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_comes_back_is_corrected_where_it_does() {
        let mut correction = Correction::default();
        // Above the last value it says two too many, and is right below.
        for _ in 0..40 {
            correction.learn(5.0, 3.0, 3.0);
            correction.learn(5.0, 7.0, 5.0);
        }
        let above = correction.correct(5.0, 3.0);
        assert!((3.0..4.0).contains(&above), "{above}");
        assert_eq!(correction.correct(5.0, 7.0), 5.0);
    }

    #[test]
    fn little_is_known_at_first_and_what_is_remembered_is_bounded() {
        let mut correction = Correction::default();
        (0..LEAST - 1).for_each(|_| correction.learn(1.0, 1.0, 2.0));
        assert_eq!(correction.correct(1.0, 1.0), 1.0);
        (0..2 * MOMENTS).for_each(|_| correction.learn(1.0, 1.0, 1.0));
        assert_eq!((correction.moments.len(), correction.correct(1.0, 1.0)), (MOMENTS, 1.0));
    }
}
