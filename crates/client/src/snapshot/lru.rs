//! A map with a bound: when its entries weigh too much, those longest unused go.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// A map whose entries have weights, and that forgets the entries that were longest not used.
#[derive(Debug)]
pub(crate) struct Lru<K, V> {
    entries: HashMap<K, Slot<V>>,
    by_use: BTreeMap<u64, K>,
    clock: u64,
    weight: usize,
    weight_max: usize,
}

#[derive(Debug)]
struct Slot<V> {
    value: V,
    used: u64,
    weight: usize,
}

impl<K: Hash + Eq + Clone, V> Lru<K, V> {
    /// An empty map that holds entries of at most `weight_max` together.
    pub fn new(weight_max: usize) -> Self {
        Self { entries: HashMap::new(), by_use: BTreeMap::new(), clock: 0, weight: 0, weight_max }
    }

    /// The value of `key`, which counts as used.
    pub fn get(&mut self, key: &K) -> Option<&mut V> {
        let slot = self.entries.get_mut(key)?;
        let name = self.by_use.remove(&slot.used)?;
        self.clock += 1;
        slot.used = self.clock;
        self.by_use.insert(self.clock, name);
        Some(&mut slot.value)
    }

    /// The value of `key`, which does not count as used.
    pub fn peek(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|slot| &slot.value)
    }

    /// Puts an entry in the place of what `key` had. An entry heavier than the whole map is not kept.
    pub fn insert(&mut self, key: K, value: V, weight: usize) {
        self.remove(&key);
        if weight > self.weight_max {
            return;
        }
        self.clock += 1;
        self.weight += weight;
        self.by_use.insert(self.clock, key.clone());
        self.entries.insert(key, Slot { value, used: self.clock, weight });
        while self.weight > self.weight_max && self.pop_oldest().is_some() {}
    }

    /// Takes out the value of `key`.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let slot = self.entries.remove(key)?;
        self.by_use.remove(&slot.used);
        self.weight -= slot.weight;
        Some(slot.value)
    }

    /// Takes out the entry that was longest not used.
    pub fn pop_oldest(&mut self) -> Option<(K, V)> {
        let (_, key) = self.by_use.pop_first()?;
        let slot = self.entries.remove(&key)?;
        self.weight -= slot.weight;
        Some((key, slot.value))
    }

    /// The entries, the longest unused first.
    pub fn oldest_first(&self) -> impl Iterator<Item = (&K, &V)> {
        self.by_use.values().filter_map(|key| Some((key, &self.entries.get(key)?.value)))
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_the_longest_unused() {
        let mut map = Lru::new(3);
        for key in 0..3 {
            map.insert(key, key * 10, 1);
        }
        map.get(&0);
        map.insert(3, 30, 1);
        assert_eq!(map.peek(&1), None);
        assert_eq!(map.oldest_first().map(|(key, _)| *key).collect::<Vec<_>>(), [2, 0, 3]);
        map.insert(4, 40, 3);
        assert_eq!((map.len(), map.peek(&4)), (1, Some(&40)));
        map.insert(5, 50, 4);
        assert_eq!((map.len(), map.peek(&5)), (1, None), "heavier than the whole map");
    }
}
