//! Time as an input: integers, never clocks.

/// A point on some machine's wall clock: nanoseconds since 1970-01-01 UTC, negative before. Covers the years 1678 to 2262.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Time(pub i64);

impl Time {
    /// From the seconds and nanoseconds of a `timespec`; saturates outside the range.
    pub fn from_parts(secs: i64, nanos: i64) -> Self {
        Self(secs.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    /// Whole seconds, rounded down, as in a `timespec`.
    pub fn secs(self) -> i64 {
        self.0.div_euclid(1_000_000_000)
    }

    /// The nanoseconds beyond `secs`, from 0 to 999,999,999.
    pub fn nanos(self) -> u32 {
        self.0.rem_euclid(1_000_000_000) as u32
    }

    /// Nanoseconds from `earlier` to `self`; negative if `earlier` is later.
    pub fn since(self, earlier: Time) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// This time moved by `nanos`.
    pub fn plus(self, nanos: i64) -> Self {
        Self(self.0.saturating_add(nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_before_1970_round_down() {
        let time = Time::from_parts(-1, 250);
        assert_eq!((time.secs(), time.nanos()), (-1, 250));
    }
}
