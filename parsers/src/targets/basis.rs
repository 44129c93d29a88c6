//! What a worker says that a result rests on.

use super::SMALL;
use crate::{Draw, Target};
use base::codec::Encode;
use base::{Basis, Digest, Listed};

/// What a result rests on.
pub const BASIS: Target = Target { name: "basis", check, draw, heap: |bytes| SMALL + 64 * bytes.len() };

/// Numbers that are known here.
const KNOWN: u64 = 1000;

fn known(number: u64) -> Result<Digest, bool> {
    if number < KNOWN { Ok(digest(number)) } else { Err(false) }
}

fn digest(number: u64) -> Digest {
    Digest::of(&number.to_le_bytes())
}

fn check(bytes: &[u8]) -> bool {
    let Ok(basis) = Basis::from_bytes(bytes) else { return false };
    assert_eq!(Basis::from_bytes(&basis.to_bytes()).as_ref(), Ok(&basis));
    for listed in basis.pieces.iter().map(|(_, pieces)| pieces).chain([&basis.bindings]) {
        let numbers: Vec<u64> = listed.numbers().take_while(|number| *number < KNOWN).collect();
        assert!(numbers.is_sorted_by(|one, other| one < other), "the numbers are in order");
        if listed.check(known, true).is_ok() {
            let again = Listed::of(numbers.into_iter().map(|number| (number, digest(number))).collect());
            assert_eq!(again.numbers().collect::<Vec<_>>(), listed.numbers().collect::<Vec<_>>());
        }
    }
    true
}

fn draw(draw: &mut Draw<'_>) -> Vec<u8> {
    let listed = |draw: &mut Draw<'_>| {
        let numbers = draw.list(20, |draw| if draw.flag() { draw.number() % KNOWN } else { draw.number() >> 1 });
        Listed::of(numbers.into_iter().map(|number| (number, digest(number))).collect())
    };
    let bindings = listed(draw);
    let pieces = draw.list(3, |draw| (Digest(draw.name()), listed(draw)));
    Basis { bindings, pieces, refused: draw.list(3, |draw| draw.blob(40)) }.to_bytes()
}
