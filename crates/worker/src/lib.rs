//! x

pub mod delta;
