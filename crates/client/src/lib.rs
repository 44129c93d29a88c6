//! x

pub mod commit;
