//! The client daemon: what it knows of its own file system, what it lets out and in, and how it commits.

pub mod policy;
pub mod profile;
pub mod recipes;
pub mod remote_ability;
pub mod snapshot;
pub mod views;
