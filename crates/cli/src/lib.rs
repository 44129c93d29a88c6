//! The two programs that people type: `remrun CMD` runs one command elsewhere, `gleaner` makes and watches the pool.
//!
//! [`remrun`] and [`door`] hold no thread, no async runtime and no argument parser, so that the `remrun` binary, which is
//! linked from them alone, starts in about a millisecond. All else belongs to `gleaner`.

pub mod door;
pub mod remrun;
