//! The shapes that everything here is built of: fixed at the start, without growth, rehash, scan or allocation after it.
//!
//! Each counts its steps with a [`meter::Meter`]: one for each record or word that it looks at. That is what shows that an
//! event's work does not depend on how many hosts and tasks there are, on any machine.

pub(crate) mod bits;
pub(crate) mod keys;
pub(crate) mod list;
pub(crate) mod meter;
mod prefetch;
pub(crate) mod sets;
pub(crate) mod slab;
pub(crate) mod trie;
pub(crate) mod wheel;

/// No record: the end of a list, an empty bucket.
pub(crate) const NIL: u32 = u32::MAX;
