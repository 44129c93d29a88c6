//! Forecasts of a series, one step ahead: the battery of the Network Weather Service and autoregression, weighed by how good they were.
//!
//! Each step goes the same way. What was forecast is scored by what came; then every forecaster learns it; then each forecasts the next
//! value. Two levels of weights make one forecast of them, and an interval is put around that. Nothing depends
//! on the unit or the size of the values: a series in percent has the forecasts of the same one in thousandths.
//!
//! Memory is bounded and allocated at the start; a step takes some microseconds.

mod autoregression;
mod battery;
mod interval;
mod recent;
pub mod selection;
mod weights;

use autoregression::Autoregression;
use battery::Battery;
use interval::Interval;
use recent::Recent;
use weights::{Fading, Polynomial};

/// How fast two autoregressions forget, by step.
const AUTOREGRESSIONS: [(f64, &str); 2] = [(0.998, "AR(16), 500 steps"), (0.995, "AR(16), 200 steps")];
/// How fast weights of the lower level forget, by step: for series that change their ways, and those that do not.
const FADING: [f64; 4] = [0.9, 0.95, 0.98, 0.995];
/// Forecasters of the series itself.
pub const FORECASTERS: usize = battery::COUNT + AUTOREGRESSIONS.len();

/// What is foretold of the next value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// The value.
    pub value: f64,
    /// It lies between these, nine times in ten.
    pub low: f64,
    /// See `low`.
    pub high: f64,
}

/// Sums of errors.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    absolute: f64,
    squared: f64,
}

impl Tally {
    /// A forecast was off by so much.
    pub fn add(&mut self, error: f64) {
        self.absolute += error.abs();
        self.squared += error * error;
    }

    /// Over so many forecasts, of a forecaster of this name.
    pub fn score(&self, name: &'static str, forecasts: u64) -> Score {
        let count = forecasts.max(1) as f64;
        Score { name, mae: self.absolute / count, mse: self.squared / count }
    }
}

/// How good a forecaster was so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Its name.
    pub name: &'static str,
    /// Mean absolute error.
    pub mae: f64,
    /// Mean squared error.
    pub mse: f64,
}

/// Forecasts a series.
#[derive(Clone, Debug)]
pub struct Forecaster {
    recent: Recent,
    battery: Battery,
    autoregressions: [Autoregression; AUTOREGRESSIONS.len()],
    /// What each forecasts now.
    each: [f64; FORECASTERS],
    polynomial: Polynomial<FORECASTERS>,
    fading: [Fading<FORECASTERS>; FADING.len()],
    /// What the weighings of the lower level forecast now.
    lower: [f64; 1 + FADING.len()],
    upper: Polynomial<{ 1 + FADING.len() }>,
    interval: Interval,
    next: Option<Forecast>,
    /// What is told of errors.
    told: Told,
}

/// What was counted of errors.
#[derive(Clone, Debug, Default)]
struct Told {
    each: [Tally; FORECASTERS],
    own: Tally,
    /// Forecasts that were scored.
    scored: u64,
    /// Values beyond their intervals.
    missed: u64,
    /// The sum of the intervals' widths.
    width: f64,
}

impl Default for Forecaster {
    fn default() -> Self {
        Self {
            recent: Recent::default(),
            battery: Battery::default(),
            autoregressions: AUTOREGRESSIONS.map(|(memory, _)| Autoregression::new(memory)),
            each: [0.0; FORECASTERS],
            polynomial: Polynomial::default(),
            fading: FADING.map(Fading::new),
            lower: [0.0; 1 + FADING.len()],
            upper: Polynomial::default(),
            interval: Interval::default(),
            next: None,
            told: Told::default(),
        }
    }
}

impl Forecaster {
    /// The next value of the series. One that is not finite is left out, as if there had been no measurement.
    pub fn observe(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        if let Some(next) = self.next {
            self.score(&next, value);
        }
        self.learn(value);
        self.each = self.forecasts();
        self.lower[0] = self.polynomial.combine(&self.each);
        for (lower, fading) in self.lower[1..].iter_mut().zip(&self.fading) {
            *lower = fading.combine(&self.each);
        }
        let value = self.upper.combine(&self.lower);
        let (low, high) = self.interval.around(value);
        self.next = Some(Forecast { value, low, high });
    }

    /// What is foretold of the next value; nothing before the first one.
    pub fn next(&self) -> Option<Forecast> {
        self.next
    }

    /// What each forecaster says of the next value, in the order of [`Forecaster::scores`].
    pub fn each(&self) -> &[f64; FORECASTERS] {
        &self.each
    }

    /// Counts errors anew from here on. What was learnt stays.
    pub fn count_anew(&mut self) {
        self.told = Told::default();
    }

    /// Forecasts that were scored.
    pub fn scored(&self) -> u64 {
        self.told.scored
    }

    /// How many values of those that were scored lay within their intervals; 1 at first.
    pub fn coverage(&self) -> f64 {
        1.0 - self.told.missed as f64 / self.told.scored.max(1) as f64
    }

    /// How wide these were, in the mean.
    pub fn width(&self) -> f64 {
        self.told.width / self.told.scored.max(1) as f64
    }

    /// How good each forecaster was.
    pub fn scores(&self) -> [Score; FORECASTERS] {
        let names = names();
        std::array::from_fn(|at| self.told.each[at].score(names[at], self.told.scored))
    }

    /// How good the forecast was that is made of all of them.
    pub fn own_score(&self) -> Score {
        self.told.own.score("all, weighed", self.told.scored)
    }

    fn score(&mut self, next: &Forecast, value: f64) {
        let told = &mut self.told;
        told.scored += 1;
        told.missed += u64::from(!(next.low..=next.high).contains(&value));
        told.width += next.high - next.low;
        told.own.add(next.value - value);
        told.each.iter_mut().zip(&self.each).for_each(|(tally, forecast)| tally.add(forecast - value));
        self.interval.learn(value - next.value);
        self.upper.learn(&self.lower, value);
        self.polynomial.learn(&self.each, value);
        self.fading.iter_mut().for_each(|fading| fading.learn(&self.each, value));
    }

    fn learn(&mut self, value: f64) {
        self.battery.learn(&self.recent, value);
        self.recent.push(value);
        self.autoregressions.iter_mut().for_each(|model| model.learn(&self.recent));
    }

    fn forecasts(&self) -> [f64; FORECASTERS] {
        let mut each = [0.0; FORECASTERS];
        let (battery, models) = each.split_at_mut(battery::COUNT);
        self.battery.forecast(&self.recent, battery);
        for (forecast, model) in models.iter_mut().zip(&self.autoregressions) {
            *forecast = model.forecast(&self.recent);
        }
        each
    }
}

/// The forecasters' names.
pub fn names() -> [&'static str; FORECASTERS] {
    std::array::from_fn(|at| match at.checked_sub(battery::COUNT) {
        None => battery::NAMES[at],
        Some(at) => AUTOREGRESSIONS[at].1,
    })
}

#[cfg(test)]
mod traces;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    fn fed(values: impl IntoIterator<Item = f64>) -> Forecaster {
        let mut forecaster = Forecaster::default();
        values.into_iter().for_each(|value| forecaster.observe(value));
        forecaster
    }

    #[test]
    fn nothing_is_foretold_of_nothing_and_a_constant_for_ever() {
        assert_eq!(Forecaster::default().next(), None);
        let next = fed([0.7; 300]).next().expect("a forecast");
        assert!((next.value - 0.7).abs() < 1e-9 && (next.low, next.high) == (next.value, next.value), "{next:?}");
        assert_eq!(fed([f64::NAN, f64::INFINITY]).next(), None);
    }

    #[test]
    fn a_period_is_found_and_known_for_certain() {
        let saw = (0..2_000).map(|at| f64::from(at % 4));
        let forecaster = fed(saw);
        let next = forecaster.next().expect("a forecast");
        assert!(next.value.abs() < 0.1, "0 comes next: {next:?}");
        let last = forecaster.scores()[0];
        assert_eq!(last.name, "last value");
        assert!(forecaster.own_score().mae < last.mae / 4.0, "{forecaster:?}");
    }

    #[test]
    fn the_unit_does_not_matter() {
        let mut dice = Dice::new(1);
        let noise: Vec<f64> = (0..500).map(|_| dice.unit()).collect();
        let (ones, thousands) = (fed(noise.iter().copied()), fed(noise.iter().map(|value| value * 1024.0)));
        let (one, thousand) = (ones.next().expect("one"), thousands.next().expect("one"));
        assert!((one.value * 1024.0 - thousand.value).abs() < 1e-6, "{one:?}, {thousand:?}");
        assert!((one.high * 1024.0 - thousand.high).abs() < 1e-6, "{one:?}, {thousand:?}");
        assert!((0.87..0.93).contains(&ones.coverage()), "{}", ones.coverage());
    }

    #[test]
    fn every_forecaster_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<&str> = names().into_iter().collect();
        assert_eq!(names.len(), FORECASTERS);
    }
}
