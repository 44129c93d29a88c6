//! When a task is expected to end that gets a part of a processor, as it is foretold.

/// Deviations between the ends of an interval that holds nine in ten, if what is foretold is normal: twice 1.645.
const DEVIATIONS: f64 = 3.29;
/// Nobody is taken for slower than this: a machine that gives less gives nothing.
const LEAST: f64 = 0.001;

/// What a task gets of a processor, as a part of it (0 to 1): its mean, and an interval that holds it nine times in ten.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// In the mean.
    pub mean: f64,
    /// It is no less, …
    pub low: f64,
    /// … and no more.
    pub high: f64,
}

/// When a task ends, in seconds from its start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finish {
    /// If what it gets is the most that is expected.
    pub soonest: f64,
    /// In the mean.
    pub expected: f64,
    /// If what it gets is the least.
    pub latest: f64,
}

impl Share {
    /// All of a processor, for sure.
    pub const WHOLE: Self = Self { mean: 1.0, low: 1.0, high: 1.0 };

    /// Of these thousandths: as machines tell one another.
    pub fn of_permille(mean: u32, low: u32, high: u32) -> Self {
        let part = |permille: u32| f64::from(permille) / 1e3;
        Self { mean: part(mean), low: part(low), high: part(high) }
    }

    /// The steady share on which a task would be expected to end when it is on this one. Whoever gets a half of the time all and else hardly
    /// anything waits longer than with a half: to the second order a share of variance v is worth `mean - v / mean`, and it is never worth less than
    /// the least that is expected.
    pub fn worth(&self) -> f64 {
        let Self { mean, low, high } = *self;
        let deviation = (high - low).max(0.0) / DEVIATIONS;
        (mean - deviation * deviation / mean.max(LEAST)).max(low.min(mean)).max(LEAST)
    }

    /// Of a task of so many seconds of a whole processor.
    pub fn finish(&self, seconds: f64) -> Finish {
        let on = |share: f64| seconds / share.max(LEAST);
        Finish { soonest: on(self.high), expected: on(self.worth()), latest: on(self.low) }
    }

    /// Of this many processors with this share and of those with that, one by chance.
    pub fn and(self, cpus: u32, other: Self, others: u32) -> Self {
        let all = (f64::from(cpus) + f64::from(others)).max(1.0);
        let mean = |one: f64, other: f64| (one * f64::from(cpus) + other * f64::from(others)) / all;
        Self { mean: mean(self.mean, other.mean), low: mean(self.low, other.low), high: mean(self.high, other.high) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sure_half_is_worth_more_than_the_doubtful_one() {
        let sure = Share { mean: 0.5, low: 0.5, high: 0.5 };
        let doubtful = Share { low: 0.1, high: 0.9, ..sure };
        assert!((sure.worth() - 0.5).abs() < 1e-12);
        assert!(doubtful.worth() < 0.4 && doubtful.worth() > 0.1, "{}", doubtful.worth());
        let Finish { soonest, expected, latest } = doubtful.finish(10.0);
        assert!((soonest - 10.0 / 0.9).abs() < 1e-9 && (latest - 100.0).abs() < 1e-9);
        assert!(soonest < expected && expected < latest);
    }

    #[test]
    fn what_cannot_be_is_bounded() {
        for share in [Share { mean: 0.0, low: 0.0, high: 1.0 }, Share { mean: 0.0, low: 0.5, high: 0.2 }] {
            assert!(share.worth() >= LEAST && share.finish(1.0).latest <= 1_000.0 + 1e-9, "{share:?}");
        }
        assert_eq!(Share::WHOLE.worth(), 1.0);
    }

    #[test]
    fn machines_together_are_in_between() {
        let slow = Share { mean: 0.2, low: 0.1, high: 0.4 };
        let all = Share::WHOLE.and(3, slow, 1);
        assert!((all.mean - 0.8).abs() < 1e-12 && (all.low - 0.775).abs() < 1e-12);
        assert_eq!(slow.and(0, Share::WHOLE, 0), Share { mean: 0.0, low: 0.0, high: 0.0 });
    }
}
