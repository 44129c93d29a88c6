//! The client daemon.

pub mod report;
