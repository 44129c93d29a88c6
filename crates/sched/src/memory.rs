//! How much memory guests may have beside an owner: prioritised page replacement (Linger-Longer), in today's terms.
//!
//! Without swap nothing but its end gives a guest's memory back; freezing only keeps it from growing. So what an owner will want
//! next must be free before he asks: a reserve that guests never get. What is left beyond it is theirs. As an owner grows into the reserve, in this
//! order: guests' cache is dropped, guests are frozen, and guests end, to be run again elsewhere, before the low mark. Guests that wait for memory
//! among themselves would wait for ever: after a while one of them goes.
//!
//! Deliberately not here: who reads memory, and who carries that out.

/// How fast a program can take memory, in bytes a second: 700 MB in a quarter of a second were measured.
const GROWTH_MAX: f64 = 3.0e9;
/// How long it takes until guests that end have given their memory back, in seconds.
const END_S: f64 = 0.3;
/// How long memory must have been free again before frozen guests go on, in seconds: that is not to be done twice a second.
const CALM_S: f64 = 5.0;
/// How long guests wait for memory until one of them goes, in seconds.
const WAIT_S: f64 = 10.0;
/// It is looked again after so long, in seconds.
const LOOK_S: (f64, f64) = (0.02, 2.0);
/// A limit is moved only by more than this part of it: each time costs a little.
const LIMIT_STEP: f64 = 0.02;

/// Available memory, in bytes, at which guests must do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// It never gets below this because of guests.
    pub low: u64,
    /// Guests never take what would leave less.
    pub high: u64,
    /// Guests never have more, however much is left.
    pub most: u64,
}

impl Marks {
    /// For a machine with so much memory; `reserve` and `most`: what its owner wants to have left, and to lend at most, if he said so.
    pub fn of(total: u64, reserve: Option<u64>, most: Option<u64>) -> Self {
        const MIB: u64 = 1 << 20;
        let high = reserve.unwrap_or_else(|| (total / 10).clamp(512 * MIB, 3072 * MIB)).min(total);
        Self { low: high / 3, high, most: most.unwrap_or(u64::MAX).min(total - high) }
    }

    fn middle(&self) -> u64 {
        self.low.midpoint(self.high)
    }
}

/// How memory is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Available to whoever asks for it, as the kernel estimates it: free, or cache that can be dropped; in bytes.
    pub available: u64,
    /// The free part.
    pub free: u64,
    /// Cache that is not guests' and is in use, in bytes: it is the owner's, too.
    pub owners_cache: u64,
    /// What only the end of guests gives back, in bytes.
    pub fixed: u64,
    /// Cache that is guests', in bytes.
    pub cache: u64,
    /// A guest waits for memory that the limit does not let it have.
    pub waits: bool,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// All guests together may have so much, in bytes.
    pub limit: u64,
    /// So much of their cache is to be dropped, in bytes.
    pub drop: u64,
    /// They are to be frozen, or kept so, and none are to come: one that came would have to go at once.
    pub freeze: bool,
    /// Guests that hold so much are to end, in bytes.
    pub end: u64,
    /// Guests have waited for memory for too long: one of those that have much of it is to end.
    pub crowded: bool,
    /// When to look again, in seconds.
    pub look_s: f64,
}

/// Judges how memory is, again and again.
#[derive(Clone, Debug)]
pub struct Keeper {
    marks: Marks,
    /// The last look, and when it was, in seconds.
    last: Option<(f64, u64)>,
    frozen: bool,
    /// Since when there has been enough again.
    calm_since: Option<f64>,
    /// Since when guests wait for memory.
    waits_since: Option<f64>,
    limit: u64,
}

impl Keeper {
    /// Nothing is frozen, and nothing was seen.
    pub fn new(marks: Marks) -> Self {
        Self { marks, last: None, frozen: false, calm_since: None, waits_since: None, limit: u64::MAX }
    }

    /// The marks that it goes by.
    pub fn marks(&self) -> Marks {
        self.marks
    }

    /// What to do, at a time in seconds from any start.
    pub fn judge(&mut self, seen: &Seen, now_s: f64) -> Verdict {
        let (low, high) = (self.marks.low, self.marks.high);
        let lost_per_s = self.last.map_or(0.0, |(then_s, then)| {
            let lost = then.saturating_sub(seen.available) as f64;
            lost / (now_s - then_s).max(LOOK_S.0)
        });
        self.last = Some((now_s, seen.available));
        // Where it will be when guests that end now are gone, if it goes on like this.
        let soon = seen.available.saturating_sub((lost_per_s.min(GROWTH_MAX) * END_S) as u64);
        self.freeze(seen.available, soon, now_s);
        let must_end = self.frozen && soon < low;
        let is_empty = self.frozen && seen.fixed + seen.cache == 0;
        let look_s = if is_empty { LOOK_S.1 } else { seen.available.saturating_sub(low) as f64 / GROWTH_MAX / 2.0 };
        Verdict {
            limit: self.limit(seen),
            // What is free is had at once; what must be dropped first costs its new owner the time.
            drop: if seen.available < 2 * high { high.saturating_sub(seen.free).min(seen.cache) } else { 0 },
            freeze: self.frozen,
            end: if must_end { high.saturating_sub(seen.available).min(seen.fixed) } else { 0 },
            crowded: self.is_crowded(seen, now_s),
            look_s: look_s.clamp(LOOK_S.0, LOOK_S.1),
        }
    }

    fn freeze(&mut self, available: u64, soon: u64, now_s: f64) {
        if soon < self.marks.middle() {
            self.frozen = true;
            self.calm_since = None;
        } else if available >= self.marks.high {
            let since = *self.calm_since.get_or_insert(now_s);
            self.frozen &= now_s - since < CALM_S;
        } else {
            self.calm_since = None;
        }
    }

    /// Whether guests have waited for too long. Whoever is frozen does not wait, and what one leaves others have time to take.
    fn is_crowded(&mut self, seen: &Seen, now_s: f64) -> bool {
        if !seen.waits || self.frozen {
            self.waits_since = None;
            return false;
        }
        let is_crowded = now_s - *self.waits_since.get_or_insert(now_s) >= WAIT_S;
        if is_crowded {
            self.waits_since = None;
        }
        is_crowded
    }

    /// What guests hold, and may take beside: what is available beyond the reserve and the owner's cache. Theirs is a part of that.
    fn limit(&mut self, seen: &Seen) -> u64 {
        let room = seen.available.saturating_sub(self.marks.high).saturating_sub(seen.owners_cache);
        let limit = (seen.fixed + room).min(self.marks.most);
        let moved = limit.abs_diff(self.limit) as f64;
        if moved > self.limit as f64 * LIMIT_STEP || limit < seen.fixed + seen.cache {
            self.limit = limit;
        }
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1_000_000_000;
    const MARKS: Marks = Marks { low: GB, high: 3 * GB, most: u64::MAX };

    fn seen(available: u64, fixed: u64) -> Seen {
        Seen { available, free: available, owners_cache: 0, fixed, cache: 0, waits: false }
    }

    #[test]
    fn marks_follow_the_machine_and_its_owner() {
        assert_eq!(Marks::of(64 << 30, None, None), Marks { low: 1 << 30, high: 3 << 30, most: 61 << 30 });
        assert_eq!(Marks::of(2 << 30, None, None).high, 512 << 20);
        let named = Marks::of(24 << 30, Some(6 << 30), Some(9 << 30));
        assert_eq!(named, Marks { low: 2 << 30, high: 6 << 30, most: 9 << 30 });
        let too_much = Marks::of(1 << 30, Some(6 << 30), Some(9 << 30));
        assert_eq!((too_much.high, too_much.most), (1 << 30, 0));
    }

    #[test]
    fn guests_get_what_is_left_beyond_the_reserve_and_the_owners_cache() {
        let mut keeper = Keeper::new(MARKS);
        assert_eq!(keeper.judge(&seen(10 * GB, GB), 0.0).limit, 8 * GB);
        let cached = Seen { owners_cache: 4 * GB, cache: 2 * GB, ..seen(10 * GB, GB) };
        assert_eq!(keeper.judge(&cached, 1.0).limit, 4 * GB);
        let calm = keeper.judge(&seen(6 * GB + GB / 100, GB), 2.0);
        assert_eq!((calm.limit, calm.drop, calm.freeze, calm.end), (4 * GB, 0, false, 0), "a little does not move it");
    }

    #[test]
    fn guests_never_have_more_than_their_host_lends() {
        let mut keeper = Keeper::new(Marks { most: 5 * GB, ..MARKS });
        assert_eq!(keeper.judge(&seen(20 * GB, GB), 0.0).limit, 5 * GB);
        assert_eq!(keeper.judge(&seen(5 * GB, GB), 1.0).limit, 3 * GB);
    }

    #[test]
    fn one_goes_of_guests_that_wait_for_memory_for_long() {
        let mut keeper = Keeper::new(MARKS);
        let mut at = |waits: bool, available: u64, now_s: f64| {
            keeper.judge(&Seen { waits, ..seen(available, 4 * GB) }, now_s).crowded
        };
        assert_eq!(
            [0.0, 5.0, 9.9, 10.0, 12.0, 19.0, 22.0].map(|now_s| at(true, 4 * GB, now_s)),
            [false, false, false, true, false, false, true]
        );
        assert_eq!(
            [(true, 30.0), (false, 35.0), (true, 41.0)].map(|(waits, now_s)| at(waits, 4 * GB, now_s)),
            [false; 3]
        );
        assert!(!at(true, GB, 60.0), "they are frozen");
    }

    #[test]
    fn as_an_owner_grows_cache_goes_then_guests_freeze_then_end() {
        let mut keeper = Keeper::new(MARKS);
        let at = |keeper: &mut Keeper, available: u64, now_s: f64| {
            let verdict = keeper.judge(&Seen { free: available / 2, cache: GB / 2, ..seen(available, 4 * GB) }, now_s);
            (verdict.drop, verdict.freeze, verdict.end)
        };
        assert_eq!(at(&mut keeper, 8 * GB, 0.0), (0, false, 0));
        assert_eq!(at(&mut keeper, 3 * GB, 100.0), (GB / 2, false, 0));
        assert_eq!(at(&mut keeper, 19 * GB / 10, 200.0), (GB / 2, true, 0));
        assert_eq!(at(&mut keeper, 9 * GB / 10, 300.0), (GB / 2, true, 21 * GB / 10));
    }

    #[test]
    fn who_grows_fast_is_met_on_the_way() {
        let mut keeper = Keeper::new(MARKS);
        keeper.judge(&seen(5 * GB, 4 * GB), 0.0);
        // 2.5 GB a second: within 0.3 s it would be 0.75 GB less.
        let verdict = keeper.judge(&seen(5 * GB / 2, 4 * GB), 1.0);
        assert!(verdict.freeze && verdict.end == 0);
        let verdict = keeper.judge(&seen(17 * GB / 10, 4 * GB), 1.3);
        assert!(verdict.end > GB && verdict.look_s < 0.15, "{verdict:?}");
    }

    #[test]
    fn the_frozen_go_on_once_it_has_been_calm() {
        let mut keeper = Keeper::new(MARKS);
        assert!(keeper.judge(&seen(3 * GB / 2, GB), 0.0).freeze);
        for (now_s, available, frozen) in [
            (1.0, 4 * GB, true),
            (5.0, 4 * GB, true),
            (5.5, 5 * GB / 2, true),
            (6.0, 4 * GB, true),
            (11.1, 4 * GB, false),
        ] {
            assert_eq!(keeper.judge(&seen(available, GB), now_s).freeze, frozen, "at {now_s}");
        }
        assert!(!keeper.judge(&seen(5 * GB / 2, GB), 20.0).freeze, "between the marks nothing begins");
    }

    #[test]
    fn where_there_are_no_guests_none_come_while_memory_is_short_and_it_is_looked_seldom() {
        let mut keeper = Keeper::new(MARKS);
        let verdict = keeper.judge(&seen(GB / 2, 0), 0.0);
        assert_eq!((verdict.freeze, verdict.end, verdict.drop, verdict.limit), (true, 0, 0, 0));
        assert_eq!(verdict.look_s, LOOK_S.1);
        assert!(keeper.judge(&seen(4 * GB, 0), 10.0).freeze && !keeper.judge(&seen(4 * GB, 0), 15.1).freeze);
    }
}
