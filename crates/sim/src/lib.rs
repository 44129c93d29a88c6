//! Worlds in virtual time, in which the policies of [`sched`] meet owners, machines and jobs, as those of the real hub and workers do.
//!
//! Everything follows from a seed. A world is made of [`owners`], who come and go and use their machines; [`cluster`] runs jobs there by a
//! policy; [`study`] repeats that, and sets it beside what was published. [`chunks`] divides work over such machines.
//!
//! Deliberately not here: threads and files. Whoever wants replicates side by side runs [`study::replicate`] on threads of his own.

pub mod bursts;
pub mod chunks;
pub mod cluster;
mod complex;
pub mod dice;
pub mod owners;
pub mod parallel;
pub mod parameters;
pub mod statistics;
pub mod study;
pub mod traces;
