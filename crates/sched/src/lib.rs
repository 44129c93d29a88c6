//! What hosts will have to spare, and what follows from it: pure functions and small states, fed with measurements.
//!
//! [`forecast`] foretells a series of measurements, such as the share of its processors that a host has to spare every ten seconds, with an
//! interval that is right as often as it says, [`finish`] what that means for a task; [`chunks`] divides work by it. [`sense`] makes such measurements
//! of what a kernel counts; [`recent`] bounds a forecast by the last seconds; [`series`] says how such a series depends on its past. [`charge`] says who must go
//! that takes more than it may.
//!
//! Deliberately not here: where measurements come from, and clocks: a series is measured at even times, whatever these are.

pub mod aside;
pub mod charge;
pub mod chunks;
#[cfg(test)]
mod dice;
pub mod finish;
pub mod forecast;
pub mod linger;
pub mod memory;
pub mod places;
pub mod presence;
pub mod recent;
pub mod rest;
pub mod sense;
pub mod series;
