//! Records of one kind, in an array that is as large as it will ever be.

use super::NIL;
use super::keys::Keys;
use super::meter::Meter;
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
    items: Vec<T>,
    pub meter: Meter,
}

impl<T: Default + Clone> Column<T> {
    /// All records are made here, and none later.
    pub fn new(capacity: usize) -> Self {
        assert!(capacity < NIL as usize, "an index has 32 bits");
        Self { items: vec![T::default(); capacity], meter: Meter::default() }
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Bytes of memory that it holds.
    pub fn bytes(&self) -> usize {
        self.items.len() * size_of::<T>()
    }

    /// A record, without counting: for checks and for what people ask.
    pub fn peek(&self, at: u32) -> &T {
        &self.items[at as usize]
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
    /// All records are made here, and none later.
    pub fn new(capacity: usize) -> Self {
        Self { column: Column::new(capacity), free: NIL, fresh: 0, used: 0 }
    }

    pub fn used(&self) -> usize {
        self.used as usize
    }

    pub fn room(&self) -> usize {
        self.column.len() - self.used as usize
    }

    /// Takes a free record; what it holds is up to its last user. `None`: all are in use.
    pub fn take(&mut self) -> Option<u32> {
        let at = if self.free != NIL {
            let at = self.free;
            self.free = *self[at].next_free();
            at
        } else if (self.fresh as usize) < self.column.len() {
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

impl<T: Named> Slab<T> {
    /// The index of the record with this name, if it is there.
    pub fn find(&self, at: u32, generation: u32) -> Option<u32> {
        let is_it = generation % 2 == 1 && (at as usize) < self.column.len() && self[at].generation() == generation;
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
