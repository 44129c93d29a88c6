//! Tests of the two binaries as they are called.

mod fake;
mod gleaner;
mod jobs;
mod journal;
mod remrun;
mod terminal;
mod top;
