//! What a directory has, and of which blocks a file is: named by a hash, but the hash may be of anything.

use super::{SMALL, made};
use crate::{Draw, Target};
use base::codec::Encode;
use base::path::is_plain_name;
use base::{Listing, ListingEntry, NodeKind, Recipe};
use store::RecipeIndex;

/// The blocks of a file.
pub const RECIPE: Target =
    Target { name: "recipe", check: check_recipe, draw: |draw| made::recipe(draw).to_bytes(), heap };
/// The names of a directory.
pub const LISTING: Target = Target { name: "listing", check: check_listing, draw: draw_listing, heap };

/// Spans that are looked at of one recipe.
const SPANS_MAX: usize = 1000;

/// An entry takes nine bytes or more.
fn heap(bytes: &[u8]) -> usize {
    SMALL + 64 * bytes.len()
}

fn check_recipe(bytes: &[u8]) -> bool {
    let Ok(recipe) = Recipe::from_bytes(bytes) else { return false };
    assert_eq!(recipe.to_bytes(), bytes, "one recipe has one encoding, or its name would not be its own");
    let size = recipe.size;
    let offsets = [0, 1, size / 2, size.saturating_sub(1), size, u64::MAX];
    let index = RecipeIndex::new(recipe);
    assert_eq!(index.size(), size);
    for offset in offsets {
        for len in [0, 1, 4096, size, u64::MAX] {
            check_spans(&index, offset, len);
        }
        let (data, hole) = (index.seek_data(offset), index.seek_hole(offset));
        assert!(data.is_none_or(|data| (offset..size).contains(&data)), "data at {data:?} from {offset} of {size}");
        assert!(hole.is_none_or(|hole| (offset..=size).contains(&hole)), "a hole at {hole:?} from {offset} of {size}");
        assert_eq!(hole.is_some(), offset < size);
    }
    true
}

/// Spans are within their pieces, follow one another without a gap, and are all that was asked for.
fn check_spans(index: &RecipeIndex, offset: u64, len: u64) {
    let (mut at, mut is_whole) = (offset, true);
    for (count, span) in index.pieces_in(offset, len).enumerate() {
        let piece = index.pieces()[span.piece];
        assert!(span.offset == at && span.len > 0 && span.block == piece.block);
        assert!(span.offset_in_block.checked_add(span.len).is_some_and(|end| end <= piece.len));
        at += span.len;
        if count == SPANS_MAX {
            is_whole = false;
            break;
        }
    }
    let end = offset.saturating_add(len).min(index.size()).max(offset);
    assert!(!is_whole || at == end, "{len} bytes from {offset} end at {at}, not {end}");
}

fn check_listing(bytes: &[u8]) -> bool {
    let Ok(listing) = Listing::from_bytes(bytes) else { return false };
    assert_eq!(listing.to_bytes(), bytes, "one listing has one encoding");
    for entry in &listing.entries {
        assert!(is_plain_name(&entry.name));
        assert_eq!(listing.get(&entry.name), Some(entry), "each name is found");
    }
    assert!(listing.get(b"..").is_none() && listing.get(b"").is_none());
    true
}

fn draw_listing(draw: &mut Draw<'_>) -> Vec<u8> {
    let kind = |draw: &mut Draw<'_>| NodeKind::from_code(draw.byte() % 6).expect("there are six");
    let entries = draw.list(9, |draw| ListingEntry { name: draw.words(9), kind: kind(draw), ino: draw.number() });
    let mut listing = Listing::new(entries);
    listing.entries.retain(|entry| is_plain_name(&entry.name));
    listing.entries.dedup_by(|a, b| a.name == b.name);
    listing.to_bytes()
}
