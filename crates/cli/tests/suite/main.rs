//! Tests of the two binaries as they are called.

mod fake;
mod gleaner;
mod remrun;
mod terminal;
