//! A sparse queue by keys of 18 bits: the same bitmaps of bitmaps, but only where there are members.
//!
//! Its nodes are taken from a slab that all queues share. A queue is a root and costs nothing while it is empty; a member costs
//! at most three nodes, and members with keys near each other share them.

use super::NIL;
use super::slab::{Item, Slab};
use crate::snapshot::{Loader, Saver, Stopped, are_below, saved};
use base::codec::Malformed;

/// Keys are below this.
pub(crate) const KEYS: u32 = 1 << 18;
const LEVELS: u32 = 3;

/// 64 children or, on the lowest level, the first records of 64 buckets.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Node {
    used: u64,
    next_free: u32,
    children: [u32; 64],
}

saved!(Node { used: u64, next_free: u32, children: [u32; 64] });

impl Default for Node {
    fn default() -> Self {
        Self { used: 0, next_free: NIL, children: [NIL; 64] }
    }
}

impl Item for Node {
    fn next_free(&mut self) -> &mut u32 {
        &mut self.next_free
    }
}

fn digit(key: u32, level: u32) -> usize {
    (key >> (6 * (LEVELS - 1 - level))) as usize & 63
}

/// The nodes of all queues.
#[derive(Debug)]
pub(crate) struct Tries {
    pub nodes: Slab<Node>,
}

impl Tries {
    pub fn new(capacity: usize) -> Self {
        Self { nodes: Slab::new(capacity) }
    }

    pub fn save(&self, out: &mut Saver<'_>) -> Result<(), Stopped> {
        let Self { nodes } = self;
        nodes.save(out)
    }

    /// Loads those with room for `capacity` nodes, whose members are among the first `count` records.
    pub fn load(capacity: usize, count: u32, from: &mut Loader<'_>) -> Result<Self, Malformed> {
        let nodes = Slab::<Node>::load(capacity, from)?;
        let fresh = nodes.fresh();
        // On which level a node is, and so of what its children are, is known only from above.
        let is_sane = |node: &Node| are_below(fresh, [node.next_free]) && are_below(count.max(fresh), node.children);
        let are_sane = nodes.all().all(|(_, node)| is_sane(node));
        if are_sane { Ok(Self { nodes }) } else { Err(Malformed("a queue of records that were never used")) }
    }

    /// Whether a member can be added to any queue.
    pub fn has_room(&self) -> bool {
        self.nodes.room() >= LEVELS as usize
    }

    /// What is in the bucket `key` of the queue `root`; `NIL` if nothing.
    pub fn get(&self, root: u32, key: u32) -> u32 {
        let mut at = root;
        for level in 0..LEVELS {
            if at == NIL {
                return NIL;
            }
            at = self.child(at, digit(key, level));
        }
        at
    }

    fn child(&self, at: u32, digit: usize) -> u32 {
        let node = &self.nodes[at];
        if node.used & (1 << digit) == 0 { NIL } else { node.children[digit] }
    }

    /// Sets what is in a bucket; `NIL` empties it. There must be room ([`Tries::has_room`]) where it was empty.
    pub fn set(&mut self, root: &mut u32, key: u32, value: u32) {
        if value == NIL {
            return self.clear(root, key);
        }
        if *root == NIL {
            *root = self.node();
        }
        let mut at = *root;
        for level in 0..LEVELS {
            let digit = digit(key, level);
            let mut child = self.child(at, digit);
            if level + 1 == LEVELS {
                child = value;
            } else if child == NIL {
                child = self.node();
            }
            let node = &mut self.nodes[at];
            node.used |= 1 << digit;
            node.children[digit] = child;
            at = child;
        }
    }

    fn node(&mut self) -> u32 {
        let at = self.nodes.take().expect("whoever adds a member has seen that there is room");
        self.nodes[at].used = 0;
        at
    }

    fn clear(&mut self, root: &mut u32, key: u32) {
        let mut path = [NIL; LEVELS as usize];
        let mut at = *root;
        for level in 0..LEVELS {
            if at == NIL {
                return;
            }
            path[level as usize] = at;
            at = self.child(at, digit(key, level));
        }
        for level in (0..LEVELS).rev() {
            let at = path[level as usize];
            let node = &mut self.nodes[at];
            node.used &= !(1 << digit(key, level));
            if node.used != 0 {
                return;
            }
            self.nodes.give(at);
        }
        *root = NIL;
    }

    /// The first bucket with a member, as if keys began at `from` and went on from 0 behind the largest: key and value.
    pub fn first_around(&self, root: u32, from: u32) -> Option<(u32, u32)> {
        self.first_from(root, from).or_else(|| self.first_from(root, 0))
    }

    fn first_from(&self, root: u32, from: u32) -> Option<(u32, u32)> {
        if root == NIL {
            return None;
        }
        let mut path = [NIL; LEVELS as usize];
        let (mut at, mut level, mut floor) = (root, 0, digit(from, 0));
        path[0] = root;
        // Downwards along the key, as far as there are nodes; then to the next member, upwards if need be.
        let mut is_along = true;
        let mut key = 0;
        loop {
            let rest = if floor > 63 { 0 } else { self.nodes[at].used & (!0 << floor) };
            if rest == 0 {
                if level == 0 {
                    return None;
                }
                level -= 1;
                at = path[level as usize];
                is_along = false;
                key >>= 6;
                floor = (key & 63) as usize + 1;
                key &= !63;
                continue;
            }
            let digit_found = rest.trailing_zeros();
            is_along = is_along && digit_found as usize == digit(from, level);
            key = (key & !63) | digit_found;
            let child = self.nodes[at].children[digit_found as usize];
            if level + 1 == LEVELS {
                return Some((key, child));
            }
            level += 1;
            at = child;
            path[level as usize] = at;
            floor = if is_along { digit(from, level) } else { 0 };
            key <<= 6;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn is_a_map(
            steps in proptest::collection::vec((0u8..3, prop_oneof![0u32..200, 0u32..KEYS], 0u32..KEYS), 1..200)
        ) {
            let mut tries = Tries::new(1000);
            tries.nodes.column.meter.set(super::super::meter::Counting::Steps);
            let mut root = NIL;
            let mut model = BTreeMap::new();
            for (number, (kind, key, from)) in steps.into_iter().enumerate() {
                let key = if kind == 0 { model.keys().next().copied().unwrap_or(key) } else { key };
                let value = if kind == 0 { NIL } else { number as u32 };
                tries.set(&mut root, key, value);
                if kind == 0 { model.remove(&key); } else { model.insert(key, value); }
                let first = model.range(from..).chain(model.range(..from)).next().map(|(key, value)| (*key, *value));
                tries.nodes.column.meter.take();
                prop_assert_eq!(tries.first_around(root, from), first);
                prop_assert!(tries.nodes.column.meter.take().steps <= 18);
                prop_assert_eq!(tries.get(root, key), model.get(&key).copied().unwrap_or(NIL));
            }
            for key in model.keys() {
                tries.set(&mut root, *key, NIL);
            }
            prop_assert_eq!((root, tries.nodes.used()), (NIL, 0));
        }
    }
}
