//! A bounded table of immutable things named by digest: listings, recipes.

use base::Digest;
use std::collections::HashMap;

/// Values by digest, forgotten when not used for long. Two generations: what is used moves to the young one; when the
/// young one holds half the bound, the old one is dropped and the young one becomes old. So every operation is O(1).
#[derive(Debug)]
pub struct Cache<V> {
    young: HashMap<Digest, (V, usize)>,
    old: HashMap<Digest, (V, usize)>,
    young_bytes: usize,
    bytes_max: usize,
}

impl<V: Clone> Cache<V> {
    /// An empty table for about `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), young_bytes: 0, bytes_max }
    }

    /// Puts `value`, which takes about `bytes`. The last value put is always found until the next is put.
    pub fn put(&mut self, digest: Digest, value: V, bytes: usize) {
        if self.young_bytes + bytes > self.bytes_max / 2 && !self.young.is_empty() {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if self.young.insert(digest, (value, bytes)).is_none() {
            self.young_bytes += bytes;
        }
    }

    /// The value named `digest`, which counts as used.
    pub fn get(&mut self, digest: &Digest) -> Option<V> {
        if let Some((value, _)) = self.young.get(digest) {
            return Some(value.clone());
        }
        let (value, bytes) = self.old.remove(digest)?;
        self.put(*digest, value.clone(), bytes);
        Some(value)
    }

    /// The value named `digest`; does not count as a use.
    pub fn peek(&self, digest: &Digest) -> Option<&V> {
        self.young.get(digest).or_else(|| self.old.get(digest)).map(|(value, _)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_is_used_and_stays_bounded() {
        let name = |at: u32| Digest::of(&at.to_le_bytes());
        let mut cache = Cache::new(100);
        for at in 0..1000 {
            cache.put(name(at), at, 10);
            assert_eq!(cache.get(&name(0)), Some(0), "used all the time");
            assert!(cache.young.len() + cache.old.len() <= 12);
        }
        assert_eq!(cache.peek(&name(1)), None);
        assert_eq!(cache.peek(&name(999)), Some(&999));
        cache.put(name(5000), 7, 1000);
        assert_eq!(cache.get(&name(5000)), Some(7), "larger than the bound, but the last");
    }
}
