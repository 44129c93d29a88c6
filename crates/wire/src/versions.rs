//! Versions of the protocol between machines: a program speaks the newest that it knows and the one before, so that a pool is upgraded, or
//! taken back, machine by machine while it works. The hub goes first.
//!
//! Messages are protobuf: what a version adds, the one before does not see. A joiner says the newest version that it speaks; the hub
//! answers with the one that both do, or refuses and names its own, and then the joiner says that, if it speaks it.
//!
//! - 1: the first.
//! - 2: the welcome names the version that both speak; in 1 it is the hub's own.
//! - 3: who has a task says so ([`crate::quiet`]); clients sign launches, and workers results ([`crate::signed`]).

use std::sync::atomic::{AtomicU32, Ordering};

/// The newest version.
pub const NEWEST: u32 = 3;
/// The first in which who has a task says so.
const ALIVE: u32 = 3;
/// The first in which launches and results are signed.
const SIGNED: u32 = 3;
/// Versions that a program speaks.
const SPOKEN: u32 = 2;

/// The newest that this process speaks.
static OWN: AtomicU32 = AtomicU32::new(NEWEST);

/// There is no such version.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no version of the protocol: there are 1 to {NEWEST}")]
pub struct UnknownVersion(String);

/// Has this process be like a program whose newest version is this one: only for tests of what is done with older programs.
pub fn be_like(version: &str) -> Result<(), UnknownVersion> {
    let number = version.parse().ok().filter(|number| (1..=NEWEST).contains(number));
    OWN.store(number.ok_or_else(|| UnknownVersion(version.to_owned()))?, Ordering::Relaxed);
    Ok(())
}

/// The newest version that this process speaks.
pub fn own() -> u32 {
    OWN.load(Ordering::Relaxed)
}

/// Whether this process speaks it.
pub fn is_spoken(version: u32) -> bool {
    speaks(own(), version)
}

/// The one that is spoken with who says this one: what a welcome says. One that is not spoken is answered with our own.
pub fn agreed(said: u32) -> u32 {
    if is_spoken(said) { said } else { own() }
}

/// Whether in this version, the one that two ends speak, who has a task says so.
pub fn has_alive(version: u32) -> bool {
    version >= ALIVE
}

/// Whether machines that speak this version sign: launches and results, from end to end ([`crate::signed`]).
pub fn has_signatures(version: u32) -> bool {
    version >= SIGNED
}

fn speaks(own: u32, version: u32) -> bool {
    version > 0 && version <= own && version + SPOKEN > own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_and_the_one_before_are_spoken() {
        assert_eq!([0, 1, 2, 3].map(|version| speaks(2, version)), [false, true, true, false]);
        assert_eq!([2, 3, 4, 5].map(|version| speaks(4, version)), [false, true, true, false]);
        assert_eq!([0, 1, 2].map(|version| speaks(1, version)), [false, true, false]);
        assert_eq!((agreed(NEWEST), agreed(NEWEST - 1), agreed(NEWEST + 1)), (NEWEST, NEWEST - 1, NEWEST));
        assert!(is_spoken(NEWEST) && is_spoken(NEWEST - 1) && !is_spoken(u32::MAX));
        assert!(be_like("0").is_err() && be_like("x").is_err() && be_like(&(NEWEST + 1).to_string()).is_err());
    }
}
