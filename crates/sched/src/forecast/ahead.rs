//! What foretells the mean of several values to come, besides forecasters of the next one.
//!
//! The battery over means of as many values (as the Network Weather Service's authors foretold five minutes: each mean a value of a
//! coarser series); such series begin at each step anew, and take turns. And a regression of the mean on means of the past over times
//! that double (as Corsi's heterogeneous autoregression: A simple approximate long-memory model of realized volatility, 2009), which
//! sees at once what is new and what has lasted for long. And what came after moments like this one ([`Analogues`]).

use super::analogues::Analogues;
use super::battery::{self, Battery};
use super::recent::Recent;
use super::regression::Regression;

/// Means of the past that the regression goes by.
const TERMS: usize = 8;
/// What the longest of them goes over, in horizons.
const LONGEST: usize = 8;
/// How fast two regressions forget: over so many horizons.
const MEMORIES: [(usize, &str); 2] = [(40, "means before, 40 horizons"), (200, "means before, 200 horizons")];

/// By what moments are alike.
const ALIKE: [&str; 2] = ["after such a value", "after such means"];

/// All that is remembered for it.
#[derive(Clone, Debug)]
pub struct Ahead {
    steps: usize,
    /// The last values, in a ring as long as the longest mean and a horizon more.
    ring: Vec<f64>,
    count: u64,
    phases: Vec<(Recent, Battery)>,
    regressions: [Regression<TERMS>; MEMORIES.len()],
    by_value: Analogues<1>,
    by_means: Analogues<3>,
}

impl Ahead {
    /// For means of so many values to come.
    pub fn new(steps: usize) -> Self {
        Self {
            steps,
            ring: vec![0.0; (LONGEST + 1) * steps],
            count: 0,
            phases: vec![Default::default(); steps],
            regressions: MEMORIES.map(|(horizons, _)| Regression::new(1.0 - 1.0 / (horizons * steps) as f64)),
            by_value: Analogues::default(),
            by_means: Analogues::default(),
        }
    }

    /// The forecasters' names.
    pub fn names() -> impl Iterator<Item = String> {
        let battery = battery::NAMES.iter().map(|name| format!("{name}, of means"));
        battery.chain(MEMORIES.iter().map(|(_, name)| *name).chain(ALIKE).map(str::to_owned))
    }

    /// One more value.
    pub fn learn(&mut self, value: f64) {
        let length = self.ring.len() as u64;
        self.ring[(self.count % length) as usize] = value;
        self.count += 1;
        self.regressions.iter_mut().for_each(|regression| regression.see(value));
        if self.count < self.steps as u64 {
            return;
        }
        let mean = self.mean(0, self.steps);
        let (recent, battery) = &mut self.phases[(self.count % self.steps as u64) as usize];
        battery.learn(recent, mean);
        recent.push(mean);
        if self.count > self.steps as u64 {
            let before = self.terms(self.steps);
            for regression in &mut self.regressions {
                regression.learn(&before, mean);
                if self.count >= 4 * self.steps as u64 {
                    regression.fit();
                }
            }
            let means = self.means(self.steps);
            self.by_value.learn([means[0]], mean);
            self.by_means.learn(means, mean);
        }
    }

    /// What each says of the mean of the values to come. There has been one value at least.
    pub fn forecast(&self, each: &mut [f64]) {
        let (battery, others) = each.split_at_mut(battery::COUNT);
        let (regressions, analogues) = others.split_at_mut(MEMORIES.len());
        let (recent, phase) = &self.phases[(self.count % self.steps as u64) as usize];
        match recent.len() {
            0 => battery.fill(self.mean(0, self.steps)),
            _ => phase.forecast(recent, battery),
        }
        let terms = self.terms(0);
        let known = &self.ring[..(self.count as usize).min(self.ring.len())];
        let low = known.iter().copied().fold(f64::INFINITY, f64::min);
        let high = known.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        for (forecast, regression) in regressions.iter_mut().zip(&self.regressions) {
            let foretold = regression.forecast(terms.iter().copied());
            *forecast = foretold.map_or(terms[TERMS - 1], |foretold| foretold.clamp(low, high));
        }
        let means = self.means(0);
        let alike = [self.by_value.forecast([means[0]]), self.by_means.forecast(means)];
        for (forecast, foretold) in analogues.iter_mut().zip(alike) {
            *forecast = foretold.unwrap_or(means[2]);
        }
    }

    /// The mean of so many values, or as many as there are, of which the newest came so many before the last.
    fn mean(&self, back: usize, count: usize) -> f64 {
        let end = self.count - back as u64;
        let count = (count as u64).min(end);
        let length = self.ring.len() as u64;
        (end - count..end).map(|at| self.ring[(at % length) as usize]).sum::<f64>() / count as f64
    }

    /// What moments are alike by, so many values ago: the last value, and the means of a sixth of a horizon and of two.
    fn means(&self, back: usize) -> [f64; 3] {
        [1, self.steps.div_ceil(6), 2 * self.steps].map(|count| self.mean(back, count))
    }

    /// What the regression went by so many values ago: means over times that double, the last over the longest.
    fn terms(&self, back: usize) -> [f64; TERMS] {
        std::array::from_fn(|at| self.mean(back, ((LONGEST * self.steps) >> (TERMS - 1 - at)).max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(steps: usize, values: impl Iterator<Item = f64>) -> Vec<f64> {
        let mut ahead = Ahead::new(steps);
        values.for_each(|value| ahead.learn(value));
        let mut each = vec![0.0; Ahead::names().count()];
        ahead.forecast(&mut each);
        each
    }

    #[test]
    fn means_are_values_of_a_coarser_series() {
        // 0 to 11: of four values each the means are 1.5, 5.5 and 9.5.
        let each = fed(4, (0..12).map(f64::from));
        assert_eq!((each[0], each[1]), (9.5, 5.5), "the last, and the mean of all");
        assert_eq!(fed(4, (0..2).map(f64::from))[..2], [0.5, 0.5], "no mean of four yet: of what there is");
    }

    #[test]
    fn what_comes_back_to_its_mean_is_known_to() {
        // Eight up, eight down: after the last up come the downs.
        let wave = |at: u32| if at % 16 < 8 { 1.0 } else { 0.0 };
        let each = fed(8, (0..1_608).map(wave));
        assert_eq!(each[0], 1.0, "the last mean of eight");
        assert!(each[battery::COUNT] < 0.1, "{}", each[battery::COUNT]);
    }
}
