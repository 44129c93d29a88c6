//! What is due when: buckets of one millisecond for the next 262 seconds, of 33 seconds for 37 hours behind them.
//!
//! Far buckets are moved into near ones ahead of time, some records at each turn, so that no turn has a whole bucket to move.
//! What is due later than 37 hours from now is put into the last bucket, and moved on from there when its time has come.

use super::NIL;
use super::bits::BitSet;
use super::list::{Linked, push_back, unlink};
use super::meter::{Counting, Meter, Work};
use crate::snapshot::{Loader, Saver, Stopped, are_below};
use base::codec::Malformed;
use std::ops::IndexMut;

/// Near buckets: 64^3 of 1 ms.
const NEAR: u32 = 1 << 18;
/// Far buckets: 64^2 of 2^15 ms.
const FAR: u32 = 1 << 12;
const FAR_SHIFT: u32 = 15;
/// How long before it begins a far bucket is moved, in milliseconds: less than the near buckets reach, by more than its width.
const AHEAD: u64 = (NEAR - (2 << FAR_SHIFT)) as u64;

/// How far the wheel may stay behind the time while nothing is due, in milliseconds.
const STRAY_MAX: u64 = 1_000;

/// The list of a bucket.
pub(crate) struct Due;

/// A record that can be due.
pub(crate) trait Timed: Linked<Due> {
    /// Its bucket, while it is in one: kept by the wheel.
    fn bucket(&mut self) -> &mut u32;
    /// When it is due: milliseconds, the low 32 bits.
    fn due_ms(&self) -> u32;
}

/// A hierarchical timing wheel over the records of one slab.
#[derive(Debug)]
pub(crate) struct Wheel {
    near: BitSet<3>,
    far: BitSet<2>,
    /// The first record of each bucket; the far ones behind the near ones.
    heads: Vec<u32>,
    /// All that was due before has been handed out.
    base_ms: u64,
    /// Far buckets before this one have been moved.
    far_base: u64,
    meter: Meter,
}

impl Wheel {
    /// Empty, at a time in milliseconds.
    pub fn new(now_ms: u64) -> Self {
        Self {
            near: BitSet::new(),
            far: BitSet::new(),
            heads: vec![NIL; (NEAR + FAR) as usize],
            base_ms: now_ms,
            far_base: (now_ms + AHEAD) >> FAR_SHIFT,
            meter: Meter::default(),
        }
    }

    /// Which buckets have records follows from the heads.
    pub fn save(&self, out: &mut Saver<'_>) -> Result<(), Stopped> {
        let Self { near: _, far: _, heads, base_ms, far_base, meter: _ } = self;
        out.put(base_ms)?;
        out.put(far_base)?;
        out.runs(heads, &NIL)
    }

    /// Loads one over the first `count` records.
    pub fn load(count: u32, from: &mut Loader<'_>) -> Result<Self, Malformed> {
        let mut wheel = Self { base_ms: from.get()?, far_base: from.get()?, ..Self::new(0) };
        let (near, far) = (&mut wheel.near, &mut wheel.far);
        from.runs(&mut wheel.heads, |bucket, head| {
            let bucket = bucket as u32;
            if bucket < NEAR {
                near.insert(bucket)
            } else {
                far.insert(bucket - NEAR)
            }
            // A bucket that was written has a record.
            if *head < count { Ok(()) } else { Err(Malformed("a timer of a record that was never used")) }
        })?;
        Ok(wheel)
    }

    /// Whether all of these are buckets, or none.
    pub fn are_buckets(buckets: impl IntoIterator<Item = u32>) -> bool {
        are_below(NEAR + FAR, buckets)
    }

    /// A time from its low 32 bits: the one next to what is due now.
    pub fn widen(&self, low: u32) -> u64 {
        let ahead = low.wrapping_sub(self.base_ms as u32) as i32;
        self.base_ms.saturating_add_signed(ahead.into())
    }

    fn bucket_of(&self, due_ms: u64) -> u32 {
        let due_ms = due_ms.max(self.base_ms);
        let far = due_ms >> FAR_SHIFT;
        if far < self.far_base {
            (due_ms % u64::from(NEAR)) as u32
        } else {
            NEAR + (far.min(self.far_base + u64::from(FAR) - 2) % u64::from(FAR)) as u32
        }
    }

    /// Puts a record in, which says itself when it is due.
    pub fn insert<T: Timed>(&mut self, slab: &mut impl IndexMut<u32, Output = T>, at: u32) {
        let due = self.widen(slab[at].due_ms());
        let bucket = self.bucket_of(due);
        *slab[at].bucket() = bucket;
        self.meter.touch(bucket as usize / 16);
        let head = &mut self.heads[bucket as usize];
        let was_empty = *head == NIL;
        push_back::<Due, T>(slab, head, at);
        if was_empty {
            if bucket < NEAR { self.near.insert(bucket) } else { self.far.insert(bucket - NEAR) }
        }
    }

    /// Takes a record out, if it is in.
    pub fn remove<T: Timed>(&mut self, slab: &mut impl IndexMut<u32, Output = T>, at: u32) {
        let bucket = std::mem::replace(slab[at].bucket(), NIL);
        if bucket == NIL {
            return;
        }
        self.meter.touch(bucket as usize / 16);
        let head = &mut self.heads[bucket as usize];
        unlink::<Due, T>(slab, head, at);
        if *head == NIL {
            if bucket < NEAR { self.near.remove(bucket) } else { self.far.remove(bucket - NEAR) }
        }
    }

    /// Takes out the next record that is due at `now_ms`. `None`: there is none, or far buckets must be moved first.
    pub fn next<T: Timed>(&mut self, slab: &mut impl IndexMut<u32, Output = T>, now_ms: u64) -> Option<u32> {
        if self.base_ms > now_ms {
            return None;
        }
        let origin = (self.base_ms % u64::from(NEAR)) as u32;
        let ahead = |bucket: u32| u64::from(bucket.wrapping_sub(origin) % NEAR);
        let first = self.near.first_around(origin).filter(|bucket| self.base_ms + ahead(*bucket) <= now_ms);
        let Some(bucket) = first else {
            // What is still in far buckets comes first.
            self.base_ms = (now_ms + 1).min(self.far_base << FAR_SHIFT);
            return None;
        };
        self.base_ms += ahead(bucket);
        self.meter.touch(bucket as usize / 16);
        let at = self.heads[bucket as usize];
        self.remove(slab, at);
        Some(at)
    }

    /// Moves at most `budget` records from far buckets that begin soon into near ones. False: more must be moved.
    pub fn cascade<T: Timed>(&mut self, slab: &mut impl IndexMut<u32, Output = T>, budget: u32) -> bool {
        let mut left = budget;
        loop {
            let wanted = (self.base_ms + AHEAD) >> FAR_SHIFT;
            if self.far_base >= wanted {
                return true;
            }
            let bucket = NEAR + (self.far_base % u64::from(FAR)) as u32;
            self.meter.touch(bucket as usize / 16);
            let at = self.heads[bucket as usize];
            if at == NIL {
                self.skip_empty(wanted);
                continue;
            }
            if left == 0 {
                return false;
            }
            left -= 1;
            self.remove(slab, at);
            // As long as the bucket is not empty it is the first far one: what belongs to it goes to the near ones.
            self.far_base += 1;
            self.insert(slab, at);
            self.far_base -= 1;
        }
    }

    /// On to the next far bucket that has records, at once, or to this one.
    fn skip_empty(&mut self, wanted: u64) {
        let origin = (self.far_base % u64::from(FAR)) as u32;
        let next = self.far.first_around(origin).map(|next| u64::from(next.wrapping_sub(origin) % FAR));
        self.far_base = next.map_or(wanted, |ahead| (self.far_base + ahead).min(wanted));
    }

    /// Follows the time where nothing has been due for a while, so that what is put in goes by its own millisecond.
    pub fn follow(&mut self, now_ms: u64) {
        if now_ms < self.base_ms + STRAY_MAX {
            return;
        }
        self.base_ms = self.next_ms().map_or(now_ms, |next| next.min(now_ms));
        let wanted = (self.base_ms + AHEAD) >> FAR_SHIFT;
        if self.far_base < wanted {
            self.skip_empty(wanted);
        }
    }

    /// All that was due before has been handed out, in milliseconds.
    pub fn base_ms(&self) -> u64 {
        self.base_ms
    }

    /// When the next record is due, in milliseconds; or a far bucket must be moved.
    pub fn next_ms(&self) -> Option<u64> {
        let origin = (self.base_ms % u64::from(NEAR)) as u32;
        let near = self.near.first_around(origin);
        let near = near.map(|bucket| self.base_ms + u64::from(bucket.wrapping_sub(origin) % NEAR));
        let origin = (self.far_base % u64::from(FAR)) as u32;
        let far = self.far.first_around(origin);
        let far = far.map(|bucket| {
            let begins = (self.far_base + u64::from(bucket.wrapping_sub(origin) % FAR)) << FAR_SHIFT;
            // The first millisecond of which the time is as far ahead as the bucket's end.
            (begins + (1 << FAR_SHIFT)).saturating_sub(AHEAD).max(self.base_ms)
        });
        near.into_iter().chain(far).min()
    }

    /// What was touched since the last call.
    pub fn work(&self) -> Work {
        let mut work = self.meter.take();
        work += self.near.meter.take();
        work += self.far.meter.take();
        work
    }

    pub fn count(&self, counting: Counting) {
        [&self.meter, &self.near.meter, &self.far.meter].iter().for_each(|meter| meter.set(counting));
    }

    pub fn bytes(&self) -> usize {
        self.heads.len() * 4 + self.near.bytes() + self.far.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::list::Links;
    use super::super::slab::{Item, Slab};
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug)]
    struct Timer {
        links: Links,
        bucket: u32,
        due_ms: u64,
    }

    impl Default for Timer {
        fn default() -> Self {
            Self { links: Links::default(), bucket: NIL, due_ms: 0 }
        }
    }

    impl Item for Timer {
        fn next_free(&mut self) -> &mut u32 {
            &mut self.links.next
        }
    }

    impl Linked<Due> for Timer {
        fn links(&mut self) -> &mut Links {
            &mut self.links
        }
    }

    impl Timed for Timer {
        fn bucket(&mut self) -> &mut u32 {
            &mut self.bucket
        }

        fn due_ms(&self) -> u32 {
            self.due_ms as u32
        }
    }

    /// Delays from nothing to a week, in milliseconds.
    fn delays() -> impl Strategy<Value = u64> {
        prop_oneof![0u64..100, 0u64..300_000, 200_000u64..400_000, 0u64..140_000_000, 0u64..700_000_000]
    }

    proptest! {
        // Each case makes a wheel of a megabyte.
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn all_fire_once_and_in_time(
            start in prop_oneof![Just(0u64), Just(u64::from(u32::MAX) - 100), 0u64..1 << 40],
            steps in proptest::collection::vec((delays(), delays(), 0u8..4), 1..60),
        ) {
            let mut slab = Slab::<Timer>::new(64);
            let mut wheel = Wheel::new(start);
            let mut now = start;
            let mut model: BTreeMap<u32, u64> = BTreeMap::new();
            for (delay, pass, kind) in steps {
                if kind == 0 && let Some((&at, _)) = model.iter().next() {
                    wheel.remove(&mut slab, at);
                    slab.give(at);
                    model.remove(&at);
                } else if let Some(at) = slab.take() {
                    slab[at] = Timer { due_ms: now + delay, ..Timer::default() };
                    wheel.insert(&mut slab, at);
                    model.insert(at, now + delay);
                }
                // Time passes as it does: in turns, each of which moves what must be moved.
                let until = now + if kind == 3 { pass } else { pass % 1000 };
                let is_jump = pass % 2 == 0;
                while now < until {
                    let next = if is_jump { until } else { wheel.next_ms().unwrap_or(until).clamp(now + 1, until) };
                    now = next;
                    wheel.follow(now);
                    let mut last = 0;
                    while wheel.next_ms().is_some_and(|next| next <= now) {
                        while !wheel.cascade(&mut slab, 16) {}
                        while let Some(at) = wheel.next(&mut slab, now) {
                            let due = model.remove(&at).expect("is in");
                            prop_assert!(last <= due && due <= now, "in time and in order");
                            last = due;
                            slab.give(at);
                        }
                    }
                    prop_assert!(model.values().all(|due| *due > now), "left behind at {}: {:?}", now, model);
                }
            }
        }

        #[test]
        fn an_operation_is_a_few_steps(dues in proptest::collection::vec(delays(), 1..60)) {
            let mut slab = Slab::<Timer>::new(64);
            let mut wheel = Wheel::new(7);
            wheel.count(Counting::Steps);
            slab.column.meter.set(Counting::Steps);
            for due in dues {
                let at = slab.take().expect("room");
                slab[at] = Timer { due_ms: 7 + due, ..Timer::default() };
                slab.column.meter.take();
                wheel.insert(&mut slab, at);
                let steps = wheel.work().steps + slab.column.meter.take().steps;
                prop_assert!((3..=9).contains(&steps), "{} steps", steps);
            }
        }
    }
}
