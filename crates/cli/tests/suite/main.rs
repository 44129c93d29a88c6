//! Tests of the two binaries as they are called.

mod fake;
mod remrun;
mod terminal;
