//! x
pub mod fuse;
