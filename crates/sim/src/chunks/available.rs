//! What a machine has to spare for a guest as time goes by, and what was foretold of it at each moment.

use super::Setting;
use crate::cluster::Who;
use crate::owners::STEP_S;
use sched::forecast::{Forecast, Forecaster};

/// A guest gets so much of a processor that its owner wants all of (measured: docs/decisions/0032-the-owner-comes-first.md).
const LEAST: f64 = 0.003;
/// Measurements that the longer forecast is about, as a worker's is.
const FAR_STEPS: usize = 30;

/// A machine, which is gone through as far as anybody has asked.
pub struct Available {
    owner: Who,
    /// Processor time that a guest had had by each step, in seconds, had there been one all the time.
    had_s: Vec<f64>,
    /// Steps from one measurement to the next.
    every: usize,
    /// What was left over since the last one, in seconds.
    since_s: f64,
    near: Forecaster,
    far: Forecaster,
    /// What was foretold after each measurement: of the next one, and of the mean of the next thirty.
    foretold: Vec<[Forecast; 2]>,
}

impl std::fmt::Debug for Available {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Available").field("steps", &self.had_s.len()).finish_non_exhaustive()
    }
}

impl Available {
    /// The machine with this number, which has been watched for a while.
    pub fn new(setting: &Setting, seed: u64, number: usize) -> Self {
        let every = ((setting.every_s / STEP_S).round() as usize).max(1);
        let mut machine = Self {
            owner: Who::new(&setting.source, seed, number),
            had_s: vec![0.0],
            every,
            since_s: 0.0,
            near: Forecaster::over(1),
            far: Forecaster::over(FAR_STEPS),
            foretold: Vec::new(),
        };
        // One measurement at least: nothing is foretold before.
        let watched = ((setting.watched_s / STEP_S) as usize / every).max(1) * every;
        (1..=watched).for_each(|step| machine.step(step));
        machine.had_s = vec![0.0];
        machine.foretold.drain(..machine.foretold.len() - 1);
        machine
    }

    /// Goes on by the step that is the so-manieth.
    fn step(&mut self, number: usize) {
        let left_s = (1.0 - self.owner.step().used).clamp(LEAST, 1.0) * STEP_S;
        self.had_s.push(self.had_s[self.had_s.len() - 1] + left_s);
        self.since_s += left_s;
        if number.is_multiple_of(self.every) {
            let share = self.since_s / (self.every as f64 * STEP_S);
            self.since_s = 0.0;
            self.near.observe(share);
            self.far.observe(share);
            let known = Forecast { value: share, low: share, high: share };
            self.foretold.push([&self.near, &self.far].map(|forecaster| within(forecaster.next().unwrap_or(known))));
        }
    }

    /// Processor time that a guest gets from one moment to another, in seconds.
    pub fn had_s(&mut self, from_s: f64, until_s: f64) -> f64 {
        self.by_s(until_s) - self.by_s(from_s)
    }

    /// When a guest has had so much that begins then.
    pub fn done_s(&mut self, from_s: f64, needs_s: f64) -> f64 {
        let until = self.by_s(from_s) + needs_s;
        while self.had_s[self.had_s.len() - 1] < until {
            self.step(self.had_s.len());
        }
        let after = self.had_s.partition_point(|had| *had < until).max(1);
        let (before_s, had_s) = (self.had_s[after - 1], self.had_s[after]);
        (((after - 1) as f64 + (until - before_s) / (had_s - before_s)) * STEP_S).max(from_s)
    }

    /// What was foretold by then: of the next measurement, or of the mean of the next thirty, whichever is nearer to that horizon by its
    /// logarithm.
    pub fn foretold(&mut self, now_s: f64, horizon_s: f64) -> Forecast {
        let every_s = self.every as f64 * STEP_S;
        let measured = (now_s / every_s) as usize;
        while self.foretold.len() <= measured {
            self.step(self.had_s.len());
        }
        let is_far = horizon_s > every_s * (FAR_STEPS as f64).sqrt();
        self.foretold[measured][usize::from(is_far)]
    }

    fn by_s(&mut self, at_s: f64) -> f64 {
        let step = (at_s / STEP_S) as usize;
        while self.had_s.len() <= step + 1 {
            self.step(self.had_s.len());
        }
        let (before_s, after_s) = (self.had_s[step], self.had_s[step + 1]);
        before_s + (after_s - before_s) * (at_s / STEP_S - step as f64)
    }
}

/// There is no less than nothing, and no more than a processor.
fn within(Forecast { value, low, high }: Forecast) -> Forecast {
    let [value, low, high] = [value, low, high].map(|number| number.clamp(0.0, 1.0));
    Forecast { value, low, high }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Source;
    use crate::traces::Trace;
    use std::sync::Arc;

    fn machine(used: &[f64]) -> Available {
        let trace = Arc::new(Trace::new(used, &[], 2.0).expect("sound"));
        let setting = Setting {
            machines: 1,
            source: Source::Measured(vec![trace]),
            records: 1,
            work_s: 1.0,
            speed_max: 1.0,
            every_s: 10.0,
            watched_s: 600.0,
        };
        Available::new(&setting, 1, 0)
    }

    #[test]
    fn a_guest_has_what_is_left_over() {
        let mut machine = machine(&[0.75; 8]);
        assert!((machine.had_s(3.0, 103.0) - 25.0).abs() < 1e-6);
        assert!((machine.done_s(3.0, 25.0) - 103.0).abs() < 1e-6);
        assert_eq!(machine.done_s(7.0, 0.0), 7.0);
        let foretold = machine.foretold(55.0, 300.0);
        assert!((foretold.value - 0.25).abs() < 1e-6 && foretold.high - foretold.low < 1e-6, "{foretold:?}");
    }

    #[test]
    fn nothing_is_known_of_what_comes() {
        let mut one = machine(&[0.2, 0.9, 0.1, 0.4, 0.0, 0.7, 0.3]);
        let mut other = machine(&[0.2, 0.9, 0.1, 0.4, 0.0, 0.7, 0.3]);
        one.had_s(0.0, 10_000.0);
        assert_eq!(one.foretold(200.0, 10.0), other.foretold(200.0, 10.0));
        assert_ne!(one.foretold(200.0, 10.0), one.foretold(200.0, 1_000.0));
    }

    #[test]
    fn beside_an_owner_who_wants_all_a_guest_ends_all_the_same() {
        assert!((machine(&[1.0; 4]).done_s(0.0, 3.0) - 1_000.0).abs() < 1e-6);
    }
}
