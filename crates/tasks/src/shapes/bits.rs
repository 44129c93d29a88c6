//! Sets of small numbers as bitmaps of bitmaps: the first member from a number on is found in as many steps as there are levels.

use super::meter::Meter;

/// A set of numbers below `64^LEVELS`, at most 64^3.
#[derive(Debug)]
pub(crate) struct BitSet<const LEVELS: usize> {
    /// The words of all levels, the root first.
    words: Vec<u64>,
    pub meter: Meter,
}

/// Where a level's words begin: 0, 1, 1 + 64.
const START: [usize; 4] = [0, 1, 65, 65 + 4096];

impl<const LEVELS: usize> BitSet<LEVELS> {
    /// An empty set.
    pub fn new() -> Self {
        Self { words: vec![0; START[LEVELS]], meter: Meter::default() }
    }

    /// How many numbers it can hold.
    pub const SIZE: u32 = 1 << (6 * LEVELS);

    fn word(&mut self, level: usize, number: u32) -> &mut u64 {
        let at = START[level] + (number >> (6 * (LEVELS - level))) as usize;
        self.meter.touch(at / 8);
        &mut self.words[at]
    }

    fn bit(level: usize, number: u32) -> u32 {
        (number >> (6 * (LEVELS - 1 - level))) & 63
    }

    pub fn insert(&mut self, number: u32) {
        for level in (0..LEVELS).rev() {
            let word = self.word(level, number);
            let was = *word;
            *word |= 1 << Self::bit(level, number);
            if was != 0 {
                return;
            }
        }
    }

    pub fn remove(&mut self, number: u32) {
        for level in (0..LEVELS).rev() {
            let word = self.word(level, number);
            *word &= !(1 << Self::bit(level, number));
            if *word != 0 {
                return;
            }
        }
    }

    /// The least member that is not less than `from`.
    pub fn first_from(&self, from: u32) -> Option<u32> {
        if from >= Self::SIZE {
            return None;
        }
        // Upwards until a word has a member at or behind the place.
        let mut level = LEVELS - 1;
        let mut floor = Self::bit(level, from);
        loop {
            let rest = if floor > 63 { 0 } else { self.peek(level, from) & (!0 << floor) };
            if rest != 0 {
                let upper = from >> (6 * (LEVELS - level));
                return Some(self.descend(level, upper << 6 | rest.trailing_zeros()));
            }
            if level == 0 {
                return None;
            }
            level -= 1;
            floor = Self::bit(level, from) + 1;
        }
    }

    /// The least member, as if numbers began at `from` and went on from 0 behind the largest.
    pub fn first_around(&self, from: u32) -> Option<u32> {
        self.first_from(from).or_else(|| self.first_from(0))
    }

    fn peek(&self, level: usize, number: u32) -> u64 {
        let at = START[level] + (number >> (6 * (LEVELS - level))) as usize;
        self.meter.touch(at / 8);
        self.words[at]
    }

    fn descend(&self, level: usize, mut prefix: u32) -> u32 {
        for start in &START[level + 1..LEVELS] {
            let at = start + prefix as usize;
            self.meter.touch(at / 8);
            prefix = prefix << 6 | self.words[at].trailing_zeros();
        }
        prefix
    }

    pub fn bytes(&self) -> usize {
        self.words.len() * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn is_a_set(steps in proptest::collection::vec((any::<bool>(), 0u32..4096, 0u32..4096), 1..300)) {
            let (mut bits, mut model) = (BitSet::<2>::new(), BTreeSet::new());
            bits.meter.set(super::super::meter::Counting::Steps);
            for (add, number, from) in steps {
                if add { bits.insert(number); model.insert(number); } else { bits.remove(number); model.remove(&number); }
                let first = model.range(from..).next().copied();
                prop_assert_eq!(bits.first_from(from), first);
                prop_assert_eq!(bits.first_around(from), first.or(model.first().copied()));
                prop_assert!(bits.meter.take().steps <= 2 + 3 + 2 * 3 + 4);
            }
        }

        #[test]
        fn of_three_levels(numbers in proptest::collection::vec(0u32..1 << 18, 1..50), from in 0u32..1 << 18) {
            let mut bits = BitSet::<3>::new();
            numbers.iter().for_each(|number| bits.insert(*number));
            let model: BTreeSet<u32> = numbers.iter().copied().collect();
            prop_assert_eq!(bits.first_from(from), model.range(from..).next().copied());
            numbers.iter().for_each(|number| bits.remove(*number));
            prop_assert_eq!(bits.first_from(0), None);
        }
    }
}
