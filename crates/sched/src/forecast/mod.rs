//! Forecasts of a series, of the next value or of the mean of the next ones: the battery of the Network Weather Service and
//! autoregression, weighed by how good they were.
//!
//! Each step goes the same way. What was forecast is scored by what came, as soon as all of it has come; then every forecaster learns the
//! value; then each forecasts what comes next. Two levels of weights make one forecast of them, which is corrected for its usual error ([`Near`]),
//! and an interval is put around that. Nothing depends on the unit or the size of the values: a series in percent has the forecasts of the same one in thousandths.
//!
//! Memory is bounded. A step takes some 10 µs one step ahead, and 70 µs more with the mean of the next 30 (`gleaner forecast --trace`, 4,000
//! steps).

mod ahead;
mod analogues;
mod autoregression;
mod battery;
mod correction;
mod interval;
mod likelihood;
mod near;
mod prior;
mod recent;
mod regression;
pub mod selection;
mod weights;

use ahead::Ahead;
use autoregression::Autoregression;
use battery::Battery;
use interval::Interval;
use near::Near;
use prior::{Made, Prior};
use recent::Recent;
use weights::Weighing;

/// How fast two autoregressions forget, by step.
const AUTOREGRESSIONS: [(f64, &str); 2] = [(0.998, "AR(16), 500 steps"), (0.995, "AR(16), 200 steps")];
/// Forecasters of the next value.
const NEAR: usize = battery::COUNT + AUTOREGRESSIONS.len();
/// The furthest horizon, in steps.
pub const HORIZON_MAX: usize = 1_000;

/// No value may be further from 0: sums of squares would be no numbers.
pub const VALUE_MAX: f64 = 1e100;
/// One of the values must be as far from 0 at least, unless all are 0: squares of smaller ones are lost.
pub const SIZE_MIN: f64 = 1e-100;

/// What is foretold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// The next value, or the mean of the next ones.
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
    pub fn score(&self, name: &str, forecasts: u64) -> Score {
        let count = forecasts.max(1) as f64;
        Score { name: name.to_owned(), mae: self.absolute / count, mse: self.squared / count }
    }
}

/// How good a forecaster was so far.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// Its name.
    pub name: String,
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
    /// Further than the next value.
    ahead: Option<Ahead>,
    weighing: Weighing,
    /// Of the next value, and of further ones.
    near: Option<Near>,
    prior: Option<Prior>,
    interval: Interval,
    /// What was forecast and is not scored yet, in a ring as long as the horizon.
    pending: Vec<Pending>,
    /// Values so far.
    count: u64,
    /// From which value on forecasts count that are made.
    counted_from: u64,
    told: Told,
}

/// A forecast whose values have not all come.
#[derive(Clone, Debug, Default)]
struct Pending {
    /// What each forecaster says.
    each: Vec<f64>,
    /// What the weighings of the lower level make of it.
    lower: Vec<f64>,
    forecast: Option<Forecast>,
    /// The sum of the values that came since.
    came: f64,
}

/// What was counted of errors.
#[derive(Clone, Debug, Default)]
struct Told {
    each: Vec<Tally>,
    own: Tally,
    /// Forecasts that were scored.
    scored: u64,
    /// What came beyond its interval.
    missed: u64,
    /// The sum of the intervals' widths.
    width: f64,
}

impl Default for Forecaster {
    fn default() -> Self {
        Self::over(1)
    }
}

impl Forecaster {
    /// Of the mean of the next so many values: from 1 to [`HORIZON_MAX`].
    pub fn over(horizon: usize) -> Self {
        let horizon = horizon.clamp(1, HORIZON_MAX);
        let count = names(horizon).len();
        let weighing = Weighing::new(count, horizon);
        let pending = Pending { each: vec![0.0; count], lower: vec![0.0; weighing.lower()], ..Pending::default() };
        Self {
            recent: Recent::default(),
            battery: Battery::default(),
            autoregressions: AUTOREGRESSIONS.map(|(memory, _)| Autoregression::new(memory)),
            ahead: (horizon > 1).then(|| Ahead::new(horizon)),
            weighing,
            near: (horizon == 1).then(|| Near::new(count)),
            prior: (horizon > 1).then(|| Prior::new(horizon)),
            interval: Interval::new(horizon),
            pending: vec![pending; horizon],
            count: 0,
            counted_from: 0,
            told: Told { each: vec![Tally::default(); count], ..Told::default() },
        }
    }

    /// Of how many values it foretells the mean.
    pub fn horizon(&self) -> usize {
        self.pending.len()
    }

    /// The next value of the series. One that is not finite, or beyond [`VALUE_MAX`], is left out, as if there had been no
    /// measurement. Given back is the mean of the last values, if it had been foretold when they began.
    pub fn observe(&mut self, value: f64) -> Option<f64> {
        if value.is_nan() || value.abs() > VALUE_MAX {
            return None;
        }
        self.pending.iter_mut().for_each(|pending| pending.came += value);
        let at = (self.count % self.pending.len() as u64) as usize;
        self.hear_sooner();
        let came = self.pending[at].forecast.map(|forecast| self.score(at, &forecast));
        self.learn(value);
        self.forecast(at);
        came
    }

    /// What is foretold now; nothing before the first value.
    pub fn next(&self) -> Option<Forecast> {
        self.pending[self.newest()].forecast
    }

    /// What each forecaster says now, in the order of [`Forecaster::scores`].
    pub fn each(&self) -> &[f64] {
        &self.pending[self.newest()].each
    }

    /// Counts errors anew, of forecasts that are made from here on and of the last one. What was learnt stays.
    pub fn count_anew(&mut self) {
        self.told = Told { each: vec![Tally::default(); self.told.each.len()], ..Told::default() };
        self.counted_from = self.count;
    }

    /// Forecasts that were scored.
    pub fn scored(&self) -> u64 {
        self.told.scored
    }

    /// How many of those that were scored had what came within their intervals; 1 at first.
    pub fn coverage(&self) -> f64 {
        1.0 - self.told.missed as f64 / self.told.scored.max(1) as f64
    }

    /// How wide these were, in the mean.
    pub fn width(&self) -> f64 {
        self.told.width / self.told.scored.max(1) as f64
    }

    /// How good each forecaster was.
    pub fn scores(&self) -> Vec<Score> {
        let each = names(self.horizon()).into_iter().zip(&self.told.each);
        each.map(|(name, tally)| tally.score(&name, self.told.scored)).collect()
    }

    /// How good the forecast was that is made of all of them.
    pub fn own_score(&self) -> Score {
        self.told.own.score("all, weighed", self.told.scored)
    }

    fn newest(&self) -> usize {
        (self.count.saturating_sub(1) % self.pending.len() as u64) as usize
    }

    /// Scores a forecast all of whose values have come: their mean is given back.
    fn score(&mut self, at: usize, forecast: &Forecast) -> f64 {
        let pending = &self.pending[at];
        let horizon = self.pending.len() as u64;
        let came = pending.came / horizon as f64;
        // The one that was made when so many values had come.
        if self.count - horizon + 1 >= self.counted_from {
            let told = &mut self.told;
            told.scored += 1;
            told.missed += u64::from(!(forecast.low..=forecast.high).contains(&came));
            told.width += forecast.high - forecast.low;
            told.own.add(forecast.value - came);
            told.each.iter_mut().zip(&pending.each).for_each(|(tally, value)| tally.add(value - came));
        }
        self.interval.learn(came - forecast.value);
        self.weighing.learn(self.pending.len(), &pending.each, Some(&pending.lower), came);
        self.near.iter_mut().for_each(|near| near.learn(&pending.each, came));
        self.prior.iter_mut().for_each(|prior| prior.learn(&pending.each, came));
        came
    }

    /// Some hear by the first of the values that came, how good forecasts were.
    fn hear_sooner(&mut self) {
        for after in Weighing::sooner(self.pending.len()).filter(|after| *after as u64 <= self.count) {
            let made = ((self.count - after as u64) % self.pending.len() as u64) as usize;
            let pending = &self.pending[made];
            self.weighing.learn(after, &pending.each, None, pending.came / after as f64);
        }
    }

    fn learn(&mut self, value: f64) {
        self.count += 1;
        self.interval.see(value);
        self.prior.iter_mut().for_each(|prior| prior.see(value));
        self.battery.learn(&self.recent, value);
        self.recent.push(value);
        self.autoregressions.iter_mut().for_each(|model| model.learn(&self.recent));
        self.ahead.iter_mut().for_each(|ahead| ahead.learn(value));
    }

    fn forecast(&mut self, at: usize) {
        let horizon = self.pending.len();
        let pending = &mut self.pending[at];
        let (near, ahead) = pending.each.split_at_mut(NEAR);
        let (battery, models) = near.split_at_mut(battery::COUNT);
        self.battery.forecast(&self.recent, battery);
        for (forecast, model) in models.iter_mut().zip(&self.autoregressions) {
            *forecast = model.mean_ahead(&self.recent, horizon);
        }
        if let Some(known) = &self.ahead {
            known.forecast(ahead);
        }
        let mut value = self.weighing.combine(&pending.each, &mut pending.lower);
        if let Some(near) = &mut self.near {
            value = near.combine(&pending.each, value, self.recent.back(0));
        }
        if let Some(prior) = &self.prior {
            let made = |values: u64| {
                let Pending { each, came, .. } = &self.pending[(at + horizon - values as usize) % horizon];
                Made { each, came: *came, values: values as usize }
            };
            let open = (1..self.count.min(horizon as u64)).map(made);
            value = prior.combine(&self.pending[at].each, value, open);
        }
        let (low, high) = self.interval.around(value);
        let pending = &mut self.pending[at];
        (pending.forecast, pending.came) = (Some(Forecast { value, low, high }), 0.0);
    }
}

/// The names of the forecasters of such a horizon.
pub fn names(horizon: usize) -> Vec<String> {
    let near = battery::NAMES.into_iter().chain(AUTOREGRESSIONS.map(|(_, name)| name)).map(str::to_owned);
    near.chain(Ahead::names().filter(|_| horizon > 1)).collect()
}

#[cfg(test)]
mod days;
#[cfg(test)]
mod traces;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    fn fed(values: impl IntoIterator<Item = f64>) -> Forecaster {
        let mut forecaster = Forecaster::default();
        for value in values {
            forecaster.observe(value);
        }
        forecaster
    }

    #[test]
    fn nothing_is_foretold_of_nothing_and_a_constant_for_ever() {
        assert_eq!(Forecaster::default().next(), None);
        let next = fed([0.7; 300]).next().expect("a forecast");
        assert!((next.value - 0.7).abs() < 1e-9 && (next.low, next.high) == (next.value, next.value), "{next:?}");
        assert_eq!(fed([f64::NAN, f64::INFINITY, 1e101, -f64::MAX]).next(), None);
    }

    #[test]
    fn the_largest_and_the_smallest_values_are_foretold_as_others_are() {
        let mut dice = Dice::new(3);
        let noise: Vec<f64> = (0..400).map(|_| dice.unit() - 0.5).collect();
        for horizon in [1, 30] {
            let fed = |unit: f64| {
                let mut forecaster = Forecaster::over(horizon);
                noise.iter().for_each(|value| _ = forecaster.observe(value * unit));
                let (next, score) = (forecaster.next().expect("a forecast"), forecaster.own_score());
                [next.value, next.low, next.high, score.mae, score.mse / unit].map(|figure| figure / unit)
            };
            let usual = fed(1.0);
            // Powers of two near the bounds: nothing is rounded.
            for exponent in [332, -331] {
                assert_eq!(fed(2f64.powi(exponent)), usual, "{horizon} ahead, 2^{exponent}");
            }
        }
    }

    #[test]
    fn a_period_is_found_and_known_for_certain() {
        let saw = (0..2_000).map(|at| f64::from(at % 4));
        let forecaster = fed(saw);
        let next = forecaster.next().expect("a forecast");
        assert!(next.value.abs() < 0.1, "0 comes next: {next:?}");
        let last = forecaster.scores().remove(0);
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
    fn what_lies_further_ahead_is_scored_when_it_has_come() {
        let mut forecaster = Forecaster::over(3);
        let came: Vec<Option<f64>> = (0..6).map(|value| forecaster.observe(f64::from(value))).collect();
        assert_eq!(came, [None, None, None, Some(2.0), Some(3.0), Some(4.0)]);
        assert_eq!(forecaster.scored(), 3);
        // The first forecast was 0, of 1, 2 and 3.
        assert!(forecaster.own_score().mae > 0.5, "{:?}", forecaster.own_score());
        forecaster.count_anew();
        (0..3).for_each(|_| assert!(forecaster.observe(0.0).is_some()));
        assert_eq!(forecaster.scored(), 1, "the last one before, and none that were made earlier");
    }

    #[test]
    fn a_constant_goes_on_for_ever_and_the_horizon_is_bounded() {
        let mut forecaster = Forecaster::over(usize::MAX);
        assert_eq!(forecaster.horizon(), HORIZON_MAX);
        forecaster = Forecaster::over(30);
        for _ in 0..300 {
            forecaster.observe(0.7);
        }
        let next = forecaster.next().expect("a forecast");
        assert!((next.value - 0.7).abs() < 1e-9 && next.high - next.low < 1e-9, "{next:?}");
        assert_eq!(forecaster.scored(), 270);
    }

    #[test]
    fn every_forecaster_has_a_name_of_its_own() {
        let different: std::collections::BTreeSet<String> = names(30).into_iter().collect();
        assert_eq!((different.len(), names(30).len(), names(1).len()), (42, 42, NEAR));
    }
}
