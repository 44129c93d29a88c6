//! What this process leaves out, so that a benchmark can tell what it is worth: `GLEANER_WITHOUT=prethrow,delta` in the
//! environment of a hub, a worker or a client's daemon. For measurement only: nothing gets better by it.
//!
//! Said once when the process starts ([`leave_out`]), and asked wherever one of the parts begins ([`is_left_out`]).

use std::sync::atomic::{AtomicU32, Ordering};

/// A part that can be left out. Results are the same without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What a program used before, and what is likely to be wanted, travels unasked: without, each launch begins with an empty view.
    Prethrow,
    /// What is much like something that the other side has travels as the difference.
    Delta,
    /// What travels is packed.
    Compression,
    /// The hub gives one worker what it has from another, or from before.
    CacheSharing,
    /// What a file in a known state holds is remembered.
    RecipeCache,
    /// What the hub's or worker's own distribution has is only named.
    OwnDistribution,
    /// Tasks of other accounts are guests: without, a worker treats all as its owner's.
    Guests,
}

/// All parts, with their names in the environment.
const PARTS: [(Part, &str); 7] = [
    (Part::Prethrow, "prethrow"),
    (Part::Delta, "delta"),
    (Part::Compression, "compression"),
    (Part::CacheSharing, "cache-sharing"),
    (Part::RecipeCache, "recipe-cache"),
    (Part::OwnDistribution, "own-distribution"),
    (Part::Guests, "guests"),
];

static LEFT_OUT: AtomicU32 = AtomicU32::new(0);

/// There is no such part.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no `{word}` to leave out: there are {}", PARTS.map(|(_, name)| name).join(", "))]
pub struct UnknownPart {
    word: String,
}

/// Leaves out the parts in this list, separated by commas, from now on.
pub fn leave_out(list: &str) -> Result<(), UnknownPart> {
    LEFT_OUT.store(parse(list)?, Ordering::Relaxed);
    Ok(())
}

/// Whether this process leaves it out.
pub fn is_left_out(part: Part) -> bool {
    LEFT_OUT.load(Ordering::Relaxed) & bit(part) != 0
}

fn bit(part: Part) -> u32 {
    1 << part as u32
}

fn parse(list: &str) -> Result<u32, UnknownPart> {
    let words = list.split(',').map(str::trim).filter(|word| !word.is_empty());
    words
        .map(|word| match PARTS.iter().find(|(_, name)| *name == word) {
            Some((part, _)) => Ok(bit(*part)),
            None => Err(UnknownPart { word: word.to_owned() }),
        })
        .try_fold(0, |all, one| Ok(all | one?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_its_parts() {
        assert_eq!(parse(""), Ok(0));
        assert_eq!(parse("delta, recipe-cache"), Ok(bit(Part::Delta) | bit(Part::RecipeCache)));
        let unknown = parse("prethrow,prefetch").expect_err("there is no such part").to_string();
        assert!(unknown.starts_with("there is no `prefetch` to leave out: there are prethrow, delta"), "{unknown}");
    }
}
