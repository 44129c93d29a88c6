//! Circular lists through the records themselves: a list is the index of its first record, and the first knows the last.

use super::NIL;
use crate::snapshot::saved;
use std::ops::IndexMut;

/// Neighbours in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Links {
    pub prev: u32,
    pub next: u32,
}

saved!(Links { prev: u32, next: u32 });

impl Links {
    /// Both neighbours.
    pub fn both(&self) -> [u32; 2] {
        [self.prev, self.next]
    }
}

impl Default for Links {
    fn default() -> Self {
        Self { prev: NIL, next: NIL }
    }
}

/// A record that is in lists of the kind `L`, in one at a time.
pub(crate) trait Linked<L> {
    fn links(&mut self) -> &mut Links;
}

/// Puts a record at the end of the list that begins at `first`.
pub(crate) fn push_back<L, T: Linked<L>>(slab: &mut impl IndexMut<u32, Output = T>, first: &mut u32, at: u32) {
    if *first == NIL {
        *slab[at].links() = Links { prev: at, next: at };
        *first = at;
        return;
    }
    let head = *first;
    let tail = std::mem::replace(&mut slab[head].links().prev, at);
    slab[tail].links().next = at;
    *slab[at].links() = Links { prev: tail, next: head };
}

/// Puts a record at the front of the list that begins at `first`.
pub(crate) fn push_front<L, T: Linked<L>>(slab: &mut impl IndexMut<u32, Output = T>, first: &mut u32, at: u32) {
    push_back::<L, T>(slab, first, at);
    *first = at;
}

/// Takes a record out of the list that begins at `first`, which it must be in.
pub(crate) fn unlink<L, T: Linked<L>>(slab: &mut impl IndexMut<u32, Output = T>, first: &mut u32, at: u32) {
    let links = std::mem::take(slab[at].links());
    if links.next == at {
        *first = NIL;
        return;
    }
    slab[links.prev].links().next = links.next;
    slab[links.next].links().prev = links.prev;
    if *first == at {
        *first = links.next;
    }
}

/// Makes the second record of a list its first, and the first its last.
pub(crate) fn rotate<L, T: Linked<L>>(slab: &mut impl IndexMut<u32, Output = T>, first: &mut u32) {
    if *first != NIL {
        *first = slab[*first].links().next;
    }
}
