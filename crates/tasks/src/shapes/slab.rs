//! Records of one kind, in an array whose room is set aside at once. What was never used is not written to: a table with room for
//! many costs the memory of those that it has had.

use super::NIL;
use super::keys::Keys;
use super::meter::Meter;
use super::prefetch::prefetch;
use crate::snapshot::{Loader, Saved, Saver, Stopped};
use base::codec::Malformed;
use std::ops::{Index, IndexMut};

/// A record that can be on the list of free ones.
pub(crate) trait Item: Default + Clone {
    /// The next free record, while this one is free.
    fn next_free(&mut self) -> &mut u32;
}

/// A record whose name is its index and a generation: one more with each use, and with each end of one, so odd while it is in use.
pub(crate) trait Named: Item {
    fn generation(&self) -> u32;
}

/// An array that counts what is looked at.
#[derive(Debug)]
pub(crate) struct Column<T> {
    /// With room for all from the start, so that none is ever moved.
    items: Vec<T>,
    capacity: usize,
    pub meter: Meter,
}

impl<T: Default + Clone> Column<T> {
    /// All records are made here, and none later.
    pub fn new(capacity: usize) -> Self {
        let mut column = Self::empty(capacity);
        column.items.resize(capacity, T::default());
        column
    }

    /// Has room for so many records, which are made one after the other.
    pub fn empty(capacity: usize) -> Self {
        assert!(capacity < NIL as usize, "an index has 32 bits");
        Self { items: Vec::with_capacity(capacity), capacity, meter: Meter::default() }
    }

    /// Writes a record, and makes those before it that are not made yet. Records are used in their order: there are none, or one.
    pub fn put(&mut self, at: u32, item: T) {
        assert!((at as usize) < self.capacity, "a record beyond the array");
        if self.items.len() <= at as usize {
            self.items.resize(at as usize + 1, T::default());
        }
        self[at] = item;
    }

    /// How many records there is room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes of memory that it holds when all records are used.
    pub fn bytes(&self) -> usize {
        self.capacity * size_of::<T>()
    }

    /// Has the processor get a record that is needed soon, while something else is done.
    #[inline]
    pub fn prefetch(&self, at: u32) {
        if let Some(item) = self.items.get(at as usize) {
            prefetch(item);
        }
    }

    /// A record, if there is one with this index, without counting.
    pub fn get(&self, at: u32) -> Option<&T> {
        self.items.get(at as usize)
    }

    /// A record, without counting: for checks and for what people ask.
    pub fn peek(&self, at: u32) -> &T {
        &self.items[at as usize]
    }
}

impl<T: Saved + Default + Clone> Column<T> {
    /// Saves the first `count` records. The others are as they were made, or not made yet.
    pub fn save(&self, count: u32, out: &mut Saver<'_>) -> Result<(), Stopped> {
        out.all(&self.items[..count as usize])
    }

    /// Loads one with room for `capacity` records, of which the first `count` were saved. The caller has seen that that is sane.
    pub fn load(capacity: usize, count: u32, from: &mut Loader<'_>) -> Result<Self, Malformed> {
        Self::load_as::<T>(capacity, count, from)
    }
}

impl<T: Default + Clone> Column<T> {
    /// The same of records that were saved as `S`.
    fn load_as<S: Saved + Into<T>>(capacity: usize, count: u32, from: &mut Loader<'_>) -> Result<Self, Malformed> {
        Ok(Self { items: from.all_as::<S, T>(count as usize, capacity)?, capacity, meter: Meter::default() })
    }
}

impl<T: Saved + PartialEq + Clone> Column<T> {
    /// Saves all records that are not `empty`.
    pub fn save_runs(&self, empty: &T, out: &mut Saver<'_>) -> Result<(), Stopped> {
        out.runs(&self.items, empty)
    }

    /// Loads what [`Column::save_runs`] wrote; `each` looks at what was written.
    pub fn load_runs(
        capacity: usize,
        empty: &T,
        each: impl FnMut(usize, &T) -> Result<(), Malformed>,
        from: &mut Loader<'_>,
    ) -> Result<Self, Malformed> {
        let mut items = vec![empty.clone(); capacity];
        from.runs(&mut items, each)?;
        Ok(Self { items, capacity, meter: Meter::default() })
    }
}

impl<T> Index<u32> for Column<T> {
    type Output = T;

    #[inline]
    fn index(&self, at: u32) -> &T {
        self.meter.touch(at as usize * size_of::<T>() / 64);
        &self.items[at as usize]
    }
}

impl<T> IndexMut<u32> for Column<T> {
    #[inline]
    fn index_mut(&mut self, at: u32) -> &mut T {
        self.meter.touch(at as usize * size_of::<T>() / 64);
        &mut self.items[at as usize]
    }
}

/// An array of records, with the free ones in a list. Indices are 32 bits; who hands them out keeps a generation in the record.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    pub column: Column<T>,
    /// The first of those that were used and are free again.
    free: u32,
    /// The first of those that were never used: all from here on.
    fresh: u32,
    used: u32,
}

impl<T: Item> Slab<T> {
    /// Has room for so many records; each is made when it is first used.
    pub fn new(capacity: usize) -> Self {
        Self { column: Column::empty(capacity), free: NIL, fresh: 0, used: 0 }
    }

    pub fn used(&self) -> usize {
        self.used as usize
    }

    /// How many records were ever used: the first ones.
    pub fn fresh(&self) -> u32 {
        self.fresh
    }

    pub fn room(&self) -> usize {
        self.column.capacity() - self.used as usize
    }

    /// The record that is taken next, if any is.
    pub fn next_free(&self) -> u32 {
        if self.free == NIL { self.fresh } else { self.free }
    }

    /// Takes a free record; what it holds is up to its last user. `None`: all are in use.
    pub fn take(&mut self) -> Option<u32> {
        let at = if self.free != NIL {
            let at = self.free;
            self.free = *self[at].next_free();
            // Whoever takes the next one.
            self.column.prefetch(self.free);
            at
        } else if (self.fresh as usize) < self.column.capacity() {
            self.column.items.push(T::default());
            self.fresh += 1;
            self.fresh - 1
        } else {
            return None;
        };
        self.used += 1;
        Some(at)
    }

    /// Gives a record back.
    pub fn give(&mut self, at: u32) {
        let next = self.free;
        *self[at].next_free() = next;
        self.free = at;
        self.used -= 1;
    }

    /// As [`Slab::take`], for a record with a name from outside. `None` also where the table of names has no place for it.
    pub fn take_as(&mut self, keys: &mut Keys, key: u128) -> Option<u32> {
        let at = self.take()?;
        let is_added = keys.add(key, at);
        if !is_added {
            self.give(at);
        }
        is_added.then_some(at)
    }

    /// Every record that was ever used, without counting: for checks, snapshots and lists for people.
    pub fn all(&self) -> impl Iterator<Item = (u32, &T)> {
        self.column.items[..self.fresh as usize].iter().enumerate().map(|(at, item)| (at as u32, item))
    }
}

impl<T: Item + Saved> Slab<T> {
    /// Saves the records that were ever used, also those that are free again: they have the list of free ones, and generations.
    pub fn save(&self, out: &mut Saver<'_>) -> Result<(), Stopped> {
        let Self { column, free, fresh, used } = self;
        out.put(&[*free, *fresh, *used])?;
        column.save(*fresh, out)
    }

    /// Loads one with room for `capacity` records. The caller has seen that that is sane.
    pub fn load(capacity: usize, from: &mut Loader<'_>) -> Result<Self, Malformed> {
        Self::load_as::<T>(capacity, from)
    }
}

impl<T: Item> Slab<T> {
    /// The same of records that were saved as `S`: as an older format has them.
    pub fn load_as<S: Saved + Into<T>>(capacity: usize, from: &mut Loader<'_>) -> Result<Self, Malformed> {
        let [free, fresh, used] = from.get()?;
        if fresh as usize > capacity || used > fresh {
            return Err(Malformed("more records than there is room"));
        }
        if (free == NIL) != (used == fresh) || (free != NIL && free >= fresh) {
            return Err(Malformed("a list of free records that does not begin at one"));
        }
        Ok(Self { column: Column::load_as::<S>(capacity, fresh, from)?, free, fresh, used })
    }
}

impl<T: Named> Slab<T> {
    /// The index of the record with this name, if it is there.
    pub fn find(&self, at: u32, generation: u32) -> Option<u32> {
        let is_it = generation % 2 == 1 && at < self.fresh && self[at].generation() == generation;
        is_it.then_some(at)
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, at: u32) -> &T {
        &self.column[at]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, at: u32) -> &mut T {
        &mut self.column[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Item for u32 {
        fn next_free(&mut self) -> &mut u32 {
            self
        }
    }

    #[test]
    fn records_are_made_when_they_are_used() {
        let (mut slab, mut beside) = (Slab::<u32>::new(1000), Column::<u32>::empty(1000));
        assert_eq!((slab.room(), slab.column.capacity(), slab.column.items.len()), (1000, 1000, 0));
        let place = slab.column.items.as_ptr();
        for want in 0..1000 {
            assert_eq!(slab.take(), Some(want));
            beside.put(want, want);
        }
        assert_eq!((slab.take(), slab.room()), (None, 0));
        assert_eq!(slab.column.items.as_ptr(), place, "none was moved");
        assert_eq!((beside[999], beside.get(1000)), (999, None));
    }
}
