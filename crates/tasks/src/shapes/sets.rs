//! A few sets of up to 1,024 small numbers each, made to be intersected: only words that have members are looked at.

use super::meter::Meter;
use crate::snapshot::{Loader, Saver, Stopped};
use base::codec::Malformed;

/// Words of one set.
pub(crate) const WORDS: usize = 16;
/// A set of numbers below 1,024.
pub(crate) type Set = [u64; WORDS];

/// `N` such sets, and which of their words have members.
#[derive(Debug)]
pub(crate) struct Sets<const N: usize> {
    words: [Set; N],
    filled: [u16; N],
    pub meter: Meter,
}

impl<const N: usize> Default for Sets<N> {
    fn default() -> Self {
        Self { words: [[0; WORDS]; N], filled: [0; N], meter: Meter::default() }
    }
}

impl<const N: usize> Sets<N> {
    pub fn insert(&mut self, set: usize, number: u16) {
        let word = usize::from(number) / 64;
        self.meter.touch(set * 2 + word / 8);
        self.words[set][word] |= 1 << (number % 64);
        self.filled[set] |= 1 << word;
    }

    pub fn remove(&mut self, set: usize, number: u16) {
        let word = usize::from(number) / 64;
        self.meter.touch(set * 2 + word / 8);
        self.words[set][word] &= !(1 << (number % 64));
        if self.words[set][word] == 0 {
            self.filled[set] &= !(1 << word);
        }
    }

    /// The members of a set that are in `other`, too, as if its words began at `start`.
    pub fn common<'a>(&'a self, set: usize, other: &'a Set, start: u32) -> impl Iterator<Item = u16> + 'a {
        let start = start % WORDS as u32;
        let mut left = self.filled[set].rotate_right(start);
        let mut word = 0;
        let mut members = 0u64;
        std::iter::from_fn(move || {
            while members == 0 {
                if left == 0 {
                    return None;
                }
                word = ((left.trailing_zeros() + start) % WORDS as u32) as usize;
                left &= left - 1;
                self.meter.touch(set * 2 + word / 8);
                members = self.words[set][word] & other[word];
            }
            let bit = members.trailing_zeros();
            members &= members - 1;
            Some((word * 64) as u16 + bit as u16)
        })
    }

    /// Which words have members follows from the words.
    pub fn save(&self, out: &mut Saver<'_>) -> Result<(), Stopped> {
        let Self { words, filled: _, meter: _ } = self;
        out.runs(words.as_flattened(), &0)
    }

    /// Loads what [`Sets::save`] wrote.
    pub fn load(from: &mut Loader<'_>) -> Result<Self, Malformed> {
        let mut sets = Self::default();
        let Self { words, filled, meter: _ } = &mut sets;
        from.runs(words.as_flattened_mut(), |at, _| {
            filled[at / WORDS] |= 1 << (at % WORDS);
            Ok(())
        })?;
        Ok(sets)
    }

    /// Whether all sets are empty.
    pub fn are_empty(&self) -> bool {
        self.filled.iter().all(|filled| *filled == 0)
    }

    /// Some member of any of the sets that are listed: another one for each `turn`. `other`: of which it must be a member, too.
    pub fn some(&self, other: Option<&Set>, turn: u32) -> Option<(usize, u16)> {
        // Which set, word and member by bits that do not depend on each other.
        let mixed = u64::from(turn).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let (set, word, member) = ((mixed >> 56) as u32, (mixed >> 48) as u32, (mixed >> 40) as u32);
        let mut sets = (0..N).filter(|set| self.filled[*set] != 0).fold(0u64, |sets, set| sets | 1 << set);
        while sets != 0 {
            let at = nth_around(sets, set);
            sets &= !(1 << at);
            let mut words = u64::from(self.filled[at]);
            while words != 0 {
                let place = nth_around(words, word);
                words &= !(1 << place);
                self.meter.touch(at * 2 + place / 8);
                let members = self.words[at][place] & other.map_or(!0, |other| other[place]);
                if members != 0 {
                    return Some((at, (place * 64 + nth_around(members, member)) as u16));
                }
            }
        }
        None
    }
}

/// The place of one of the ones of a word, by a number that may be larger than how many there are.
fn nth_around(mut word: u64, number: u32) -> usize {
    for _ in 0..number % word.count_ones() {
        word &= word - 1;
    }
    word.trailing_zeros() as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn are_sets(
            steps in proptest::collection::vec((any::<bool>(), 0usize..3, 0u16..1024), 1..100),
            others in proptest::collection::vec(0u16..1024, 0..60),
            turn in any::<u32>(),
        ) {
            let (mut sets, mut model) = (Sets::<3>::default(), vec![BTreeSet::new(); 3]);
            for (add, set, number) in steps {
                if add { sets.insert(set, number); model[set].insert(number); }
                else { sets.remove(set, number); model[set].remove(&number); }
            }
            let mut other = [0; WORDS];
            others.iter().for_each(|number| other[usize::from(number / 64)] |= 1 << (number % 64));
            let others: BTreeSet<u16> = others.into_iter().collect();
            for (set, members) in model.iter().enumerate() {
                let found: BTreeSet<u16> = sets.common(set, &other, turn).collect();
                prop_assert_eq!(found, members.intersection(&others).copied().collect());
            }
            let any = |found: Option<(usize, u16)>| found.is_none_or(|(set, number)| model[set].contains(&number));
            prop_assert!(any(sets.some(None, turn)) && any(sets.some(Some(&other), turn)));
            prop_assert_eq!(sets.are_empty(), model.iter().all(BTreeSet::is_empty));
            prop_assert_eq!(sets.some(None, turn).is_none(), sets.are_empty());
        }
    }

    #[test]
    fn every_member_has_its_turn() {
        let mut sets = Sets::<16>::default();
        let members = [(0, 0), (2, 3), (2, 4), (2, 900), (15, 7)];
        members.iter().for_each(|(set, number)| sets.insert(*set, *number));
        // Also where turns differ in few bits.
        for turn in [|turn: u32| turn, |turn: u32| turn << 16, |turn: u32| turn.wrapping_mul(0x10001)] {
            let found: BTreeSet<_> = (0..2000).filter_map(|number| sets.some(None, turn(number))).collect();
            assert_eq!(found.into_iter().collect::<Vec<_>>(), members);
        }
    }
}
