//! Tests of the two binaries as they are called.

mod bundle;
mod fake;
mod gleaner;
mod jobs;
mod journal;
mod old_glibc;
mod remrun;
mod terminal;
mod top;
mod trust;
