//! The bound that a container puts on processor time: a control group with a quota holds guests and others. The counters of the machine do not
//! show it, nor that it is used up.

/// What the kernel has counted of such a group.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// When, in nanoseconds.
    pub at_ns: u64,
    /// Processor time of all in it, in nanoseconds, if that is counted.
    pub used_ns: Option<u64>,
    /// Periods in which it had used its quota up.
    pub throttled: u64,
    /// Processor time of this worker and its guests, in nanoseconds.
    pub ours_ns: u64,
}

/// Processor time that all in a group may use in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Of all processors together, in nanoseconds.
    pub quota_ns: u64,
    /// From one refill to the next, in nanoseconds.
    pub period_ns: u64,
}

/// How much a group lets its guests have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// Processors that all in it have together.
    pub processors: f64,
    /// Those that others in it used.
    pub others: f64,
}

impl Quota {
    /// Of `cpu.max`: two numbers of microseconds, or `max`, which is no bound.
    pub fn of_version_2(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        Self::of_us(words.next()?.parse().ok()?, words.next()?.parse().ok()?)
    }

    /// Of `cpu.cfs_quota_us`, -1 is no bound, and `cpu.cfs_period_us`.
    pub fn of_version_1(quota: &str, period: &str) -> Option<Self> {
        Self::of_us(quota.trim().parse().ok()?, period.trim().parse().ok()?)
    }

    fn of_us(quota: u64, period: u64) -> Option<Self> {
        let [quota_ns, period_ns] = [quota.checked_mul(1_000)?, period.checked_mul(1_000)?];
        (period_ns > 0).then_some(Self { quota_ns, period_ns })
    }

    fn processors(&self) -> f64 {
        self.quota_ns as f64 / self.period_ns as f64
    }
}

/// `cpu.stat` of both versions: periods in which the quota was used up.
pub fn throttled(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("nr_throttled "))?.trim().parse().ok()
}

impl Bound {
    /// Between two looks. `None`: no time lies between them.
    pub fn between(quota: &Quota, before: &Counts, after: &Counts) -> Option<Self> {
        let ns = after.at_ns.checked_sub(before.at_ns).filter(|ns| *ns > 0)? as f64;
        // In a period that ended without any left, all was used.
        let at_least = after.throttled.saturating_sub(before.throttled) as f64 * quota.quota_ns as f64;
        let used = before.used_ns.zip(after.used_ns).map_or(0.0, |(from, to)| to.saturating_sub(from) as f64);
        let ours = after.ours_ns.saturating_sub(before.ours_ns) as f64;
        let processors = quota.processors();
        let others = ((used.max(at_least) - ours) / ns).clamp(0.0, processors);
        Some(Self { processors, others })
    }

    /// Processors that are left for guests.
    pub fn left(&self) -> f64 {
        (self.processors - self.others).max(0.0)
    }

    /// What a newcomer of the priority of the others gets of a processor: at least a half, unless there are many of them.
    pub fn among_equals(&self) -> f64 {
        self.left().max(self.processors / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const HALF: Quota = Quota { quota_ns: 50 * MS, period_ns: 100 * MS };

    #[test]
    fn quotas_are_read_from_both_versions() {
        assert_eq!(Quota::of_version_2("50000 100000\n"), Some(HALF));
        assert_eq!(Quota::of_version_2("max 100000\n"), None);
        assert_eq!(Quota::of_version_1("50000\n", "100000\n"), Some(HALF));
        assert_eq!(Quota::of_version_1("-1\n", "100000\n"), None);
        assert_eq!(throttled("nr_periods 90\nnr_throttled 7\nthrottled_time 5\n"), Some(7));
        assert_eq!(throttled("usage_usec 5\n"), None);
    }

    #[test]
    fn what_others_use_is_not_left() {
        let before = Counts { at_ns: 1_000 * MS, used_ns: Some(900 * MS), throttled: 3, ours_ns: 100 * MS };
        let after = Counts { at_ns: 2_000 * MS, used_ns: Some(1_200 * MS), throttled: 3, ours_ns: 200 * MS };
        let bound = Bound::between(&HALF, &before, &after).expect("a second");
        assert!((bound.others - 0.2).abs() < 1e-9 && (bound.left() - 0.3).abs() < 1e-9, "{bound:?}");
        assert_eq!(Bound::between(&HALF, &after, &before), None);
    }

    #[test]
    fn who_uses_the_quota_up_is_seen_also_where_usage_is_not_counted() {
        let before = Counts { used_ns: None, ..Counts::default() };
        let looks = |throttled, ours_ns| {
            let after = Counts { at_ns: 1_000 * MS, used_ns: None, throttled, ours_ns };
            Bound::between(&HALF, &before, &after).expect("a second").left()
        };
        assert_eq!(looks(10, 0), 0.0, "two loops");
        assert!((looks(10, 480 * MS) - 0.48).abs() < 1e-9, "it is the guests that use it up");
        assert_eq!(looks(0, 0), 0.5);
    }
}
