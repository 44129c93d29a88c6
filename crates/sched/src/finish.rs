//! What a foretold part of a processor is worth to a task: on how much of one, for sure, it would be expected to end at the same time.

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

impl Share {
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
    }

    #[test]
    fn what_cannot_be_is_bounded() {
        for share in [Share { mean: 0.0, low: 0.0, high: 1.0 }, Share { mean: 0.0, low: 0.5, high: 0.2 }] {
            assert!(share.worth() >= LEAST, "{share:?}");
        }
        assert_eq!(Share::of_permille(1_000, 1_000, 1_000).worth(), 1.0);
    }
}
