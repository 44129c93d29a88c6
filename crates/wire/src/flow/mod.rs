//! How much may be under way: our own congestion control, for flights on links whose rate and delay are remembered.
//!
//! * [`machine`]: the rules, a pure machine with time as an input.
//! * [`control`]: the same as quinn wants it, with a handle through which what it learnt is read.
//!
//! A launch is a flight of a few packets to a few hundred KB after a pause. Slow start would cost it round trips; a window that is
//! too large fills the queue before the link, where the user's other traffic waits. So the window is the link's rate times its
//! delay, measured, remembered per network, and lowered as soon as packets are seen to queue.

use crate::message::PathLearnt;

mod control;
mod machine;

pub(crate) use control::FlowHandle;
pub use machine::Path;

/// What is known of the ways to and from a hub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// To the hub.
    pub up: Option<Path>,
    /// From the hub.
    pub down: Option<Path>,
    /// No UDP passes there.
    pub is_udp_blocked: bool,
}

/// Paths that a peer claims are believed within these bounds: bytes a second, and nanoseconds.
const RATES: std::ops::RangeInclusive<u64> = 1_000..=10_000_000_000;
const ROUND_TRIPS: std::ops::RangeInclusive<u64> = 10_000..=10_000_000_000;

impl From<Path> for PathLearnt {
    fn from(path: Path) -> Self {
        Self { rate: path.rate, round_trip: path.round_trip }
    }
}

impl Path {
    /// What a peer says, if it can be.
    pub fn claimed(learnt: PathLearnt) -> Option<Self> {
        let PathLearnt { rate, round_trip } = learnt;
        (RATES.contains(&rate) && ROUND_TRIPS.contains(&round_trip)).then_some(Self { rate, round_trip })
    }
}
