//! Where a file has data and where holes, by its recipe.

use base::Recipe;
use rustix::io::Errno;

/// Where data or a hole is found from `offset` on, as `lseek` with `SEEK_DATA` or `SEEK_HOLE` does.
pub(super) fn seek(size: u64, recipe: Option<&Recipe>, offset: u64, whence: i32) -> Result<u64, Errno> {
    if offset >= size {
        return Err(Errno::NXIO);
    }
    let wants_hole = match whence {
        libc::SEEK_DATA => false,
        libc::SEEK_HOLE => true,
        _ => return Err(Errno::INVAL),
    };
    let mut at = 0;
    for piece in recipe.map_or(&[][..], |recipe| &recipe.pieces) {
        let end = at + piece.len;
        if end > offset && piece.block.is_none() == wants_hole {
            return Ok(offset.max(at));
        }
        at = end;
    }
    match (recipe, wants_hole) {
        // There is a hole behind the end, and without a recipe all is data.
        (_, true) => Ok(size),
        (None, false) => Ok(offset),
        (Some(_), false) => Err(Errno::NXIO),
    }
}

/// Whether all of a range is holes.
pub(super) fn is_hole(recipe: &Recipe, offset: u64, len: u64) -> bool {
    let mut at = 0;
    for piece in &recipe.pieces {
        let start = at;
        at += piece.len;
        if at > offset && start < offset + len && piece.block.is_some() {
            return false;
        }
        if at >= offset + len {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Digest, Piece};

    #[test]
    fn seeking_finds_data_and_holes() {
        let block = Some(Digest::of(b""));
        let pieces = [(10, block), (20, None), (5, block), (7, None)].map(|(len, block)| Piece { len, block });
        let recipe = Recipe { size: 42, pieces: pieces.to_vec() };
        let data = |offset| seek(42, Some(&recipe), offset, libc::SEEK_DATA);
        let hole = |offset| seek(42, Some(&recipe), offset, libc::SEEK_HOLE);
        assert_eq!((data(0), data(10), data(34), data(35)), (Ok(0), Ok(30), Ok(34), Err(Errno::NXIO)));
        assert_eq!((hole(0), hole(15), hole(30), hole(41)), (Ok(10), Ok(15), Ok(35), Ok(41)));
        assert_eq!(data(42), Err(Errno::NXIO));
        assert_eq!(seek(42, None, 7, libc::SEEK_DATA), Ok(7));
        assert_eq!(seek(42, None, 7, libc::SEEK_HOLE), Ok(42));
        assert!(is_hole(&recipe, 10, 20) && is_hole(&recipe, 12, 3) && is_hole(&recipe, 35, 7));
        assert!(!is_hole(&recipe, 9, 3) && !is_hole(&recipe, 29, 2) && !is_hole(&recipe, 35, 8));
    }
}
