//! x
pub mod sandbox;
