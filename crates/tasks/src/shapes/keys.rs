//! From a 128-bit name to a record: two buckets of eight places for each name, four times as many places as records.
//!
//! No place is ever moved, so adding looks at 16 places at most. With a quarter of the places taken, both buckets of a new name
//! are full with a probability below 10^-9 for names that are digests or random; then the name is refused.

use super::NIL;
use super::meter::Meter;
use crate::snapshot::{Loader, Saver, Stopped, below};
use base::codec::Malformed;

const PLACES: usize = 8;

/// A table of names. The names themselves are in the records.
#[derive(Debug)]
pub(crate) struct Keys {
    places: Vec<[u32; PLACES]>,
    /// Where a name begins to be looked for: mixed with it, so that nobody can choose names for one bucket.
    salt: u128,
    pub meter: Meter,
}

impl Keys {
    pub fn new(capacity: usize, salt: u128) -> Self {
        let buckets = (capacity * 4).div_ceil(PLACES).next_power_of_two().max(2);
        Self { places: vec![[NIL; PLACES]; buckets], salt, meter: Meter::default() }
    }

    fn buckets(&self, key: u128) -> [usize; 2] {
        let mask = self.places.len() - 1;
        // Multiplication by odd constants spreads what differs anywhere over the upper bits (Knuth, 6.4).
        let mixed = (key ^ self.salt).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        let first = (mixed >> 96) as usize & mask;
        let second = (mixed >> 64) as u32 as usize & mask;
        [first, if second == first { first ^ 1 } else { second }]
    }

    /// The record whose name it is: `is_it` compares with the one that is in a place.
    pub fn find(&self, key: u128, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        for bucket in self.buckets(key) {
            self.meter.touch(bucket / 2);
            if let Some(at) = self.places[bucket].iter().copied().find(|at| *at != NIL && is_it(*at)) {
                return Some(at);
            }
        }
        None
    }

    /// Adds a name that is not there. False: there is no place for it.
    #[must_use]
    pub fn add(&mut self, key: u128, at: u32) -> bool {
        let buckets = self.buckets(key);
        let free = |bucket: usize, places: &[[u32; PLACES]]| places[bucket].iter().filter(|at| **at == NIL).count();
        self.meter.touch(buckets[0] / 2);
        self.meter.touch(buckets[1] / 2);
        let bucket =
            if free(buckets[0], &self.places) >= free(buckets[1], &self.places) { buckets[0] } else { buckets[1] };
        let place = self.places[bucket].iter_mut().find(|at| **at == NIL);
        place.map(|place| *place = at).is_some()
    }

    /// Removes the name of a record.
    pub fn remove(&mut self, key: u128, at: u32) {
        for bucket in self.buckets(key) {
            self.meter.touch(bucket / 2);
            if let Some(place) = self.places[bucket].iter_mut().find(|place| **place == at) {
                *place = NIL;
                return;
            }
        }
    }

    pub fn bytes(&self) -> usize {
        self.places.len() * size_of::<[u32; PLACES]>()
    }

    /// Saves it with its salt: a table that is loaded finds a name where this one does.
    pub fn save(&self, out: &mut Saver<'_>) -> Result<(), Stopped> {
        let Self { places, salt, meter: _ } = self;
        out.put(salt)?;
        out.runs(places.as_flattened(), &NIL)
    }

    /// Loads one that was made for so many names, of the first `count` records.
    pub fn load(capacity: usize, count: u32, from: &mut Loader<'_>) -> Result<Self, Malformed> {
        let mut keys = Self::new(capacity, from.get()?);
        from.runs(keys.places.as_flattened_mut(), below(count))?;
        Ok(keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_finds_every_name() {
        let mut keys = Keys::new(10_000, 77);
        let name = |at: u32| u128::from(at) << 64;
        for at in 0..10_000 {
            assert_eq!(keys.find(name(at), |found| found == at), None);
            assert!(keys.add(name(at), at), "no place for {at}");
        }
        for at in 0..10_000 {
            assert_eq!(keys.find(name(at), |found| found == at), Some(at));
            keys.remove(name(at), at);
            assert_eq!(keys.find(name(at), |found| found == at), None);
        }
    }
}
