//! Cutting files and reading them back.

use super::{A, B, noise};
use crate::chunk::{self, CutError, Cutter, FINE_FILE_BYTES_MAX, hash_pieces};
use crate::{BlockStore, Options, ReadOutcome, RecipeIndex, StoreError, read_content};
use base::codec::Encode;
use base::{Content, Digest, LAZY_PIECE_BYTES, Piece, Recipe};
use fastcdc::v2020::FastCDC;
use proptest::prelude::*;
use std::collections::HashSet;
use std::convert::Infallible;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// A file of stretches: noise by seed, or a hole, each of so many bytes.
fn file_of(stretches: &[(Option<u64>, u64)]) -> (File, u64) {
    let file = tempfile::tempfile().unwrap();
    let mut at = 0;
    for (seed, len) in stretches {
        if let Some(seed) = seed {
            file.write_all_at(&noise(*seed, *len as usize), at).unwrap();
        }
        at += len;
    }
    file.set_len(at).unwrap();
    (file, at)
}

fn cut(file: &File, size: u64) -> chunk::Cut {
    chunk::cut(file, size, &mut |digest, bytes| {
        assert_eq!(Digest::of(bytes), digest);
        Ok::<_, Infallible>(())
    })
    .unwrap()
}

fn recipe(cut: &chunk::Cut) -> &Recipe {
    let found = cut.recipe.as_ref().expect("a recipe");
    assert_eq!(cut.content, Content::Recipe(Digest::of(&found.encoded)));
    assert_eq!(Recipe::from_bytes(&found.encoded).as_ref(), Ok(&found.recipe));
    &found.recipe
}

#[test]
fn small_files_are_one_block_or_nothing() {
    assert_eq!(cut(&file_of(&[]).0, 0).content, Content::Empty);
    for len in [1, 4096, 16 << 10] {
        let (file, size) = file_of(&[(Some(1), len)]);
        let found = cut(&file, size);
        assert_eq!(found.content, Content::Block(Digest::of(&noise(1, len as usize))));
        assert_eq!((found.size, found.recipe), (len, None));
    }
}

#[test]
fn streamed_cut_points_are_those_of_the_whole() {
    let bytes = noise(9, 3_300_001);
    let (file, size) = file_of(&[(Some(9), bytes.len() as u64)]);
    let found = cut(&file, size);
    let whole: Vec<u64> = FastCDC::new(&bytes, 16 << 10, 64 << 10, 256 << 10).map(|c| c.length as u64).collect();
    assert_eq!(recipe(&found).pieces.iter().map(|piece| piece.len).collect::<Vec<_>>(), whole);
    assert!(whole.len() > 20);
    // Golden: other cut points would make every cache useless, and must not come about by accident.
    assert_eq!(
        Digest::of(&found.recipe.unwrap().encoded).to_hex(),
        "b71d288176808c140997cd15c74bdcf7a9bd95a24912e5095040ddad6965a98a"
    );
}

#[test]
fn an_insertion_changes_few_blocks() {
    let blocks = |stretches: &[(Option<u64>, u64)]| -> HashSet<Digest> {
        let (file, size) = file_of(stretches);
        recipe(&cut(&file, size)).pieces.iter().filter_map(|piece| piece.block).collect()
    };
    let before = blocks(&[(Some(1), 1_000_000), (Some(2), 1_000_000)]);
    let after = blocks(&[(Some(1), 1_000_000), (Some(3), 7), (Some(2), 1_000_000)]);
    assert!(after.difference(&before).count() <= 3, "{} of {}", after.difference(&before).count(), after.len());
}

#[test]
fn holes_are_pieces_and_long_files_have_long_blocks() {
    let hole = 200 << 20;
    let (file, size) = file_of(&[(None, hole), (Some(1), 4 << 20), (None, hole), (Some(2), 4096), (None, 5 << 30)]);
    if rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)) != Ok(hole) {
        eprintln!("SKIPPED: the file system of the temporary folder reports no holes");
        return;
    }
    let found = cut(&file, size);
    let pieces = &recipe(&found).pieces;
    assert_eq!(pieces[0], Piece { len: hole, block: None });
    assert_eq!(pieces.last(), Some(&Piece { len: 5 << 30, block: None }));
    assert_eq!(pieces.iter().filter(|piece| piece.block.is_none()).count(), 3);
    let data: Vec<u64> = pieces.iter().filter(|piece| piece.block.is_some()).map(|piece| piece.len).collect();
    assert!((6..40).contains(&data.len()) && data.iter().all(|len| *len <= 1 << 20), "{data:?}");

    let (file, size) = file_of(&[(None, 9000)]);
    assert_eq!(recipe(&cut(&file, size)).pieces, [Piece { len: 9000, block: None }]);
    assert_eq!(FINE_FILE_BYTES_MAX, 64 << 20);
}

#[test]
fn a_file_that_has_become_shorter_gives_the_length_it_has() {
    for stretches in [&[(Some(1), 300_000)][..], &[(Some(1), 100_000), (None, 200_000)], &[(None, 300_000)]] {
        let (file, size) = file_of(stretches);
        let found = cut(&file, size + 70_000);
        assert_eq!(found.size, 300_000);
        assert_eq!(cut(&file, 250_000).size, 250_000, "no more is cut than was asked for");
        file.set_len(0).unwrap();
        assert_eq!((cut(&file, size).size, cut(&file, size).content), (0, Content::Empty));
    }
}

#[test]
fn the_sinks_error_ends_the_cutting() {
    let (file, size) = file_of(&[(Some(1), 1 << 20)]);
    let mut calls = 0;
    let result = chunk::cut(&file, size, &mut |_, _| {
        calls += 1;
        if calls == 3 { Err("enough") } else { Ok(()) }
    });
    assert!(matches!(result, Err(CutError::Sink("enough"))));
    assert_eq!(calls, 3);
}

#[test]
fn lazy_pieces_cover_the_file_and_notice_when_it_shrinks() {
    let len = 2 * LAZY_PIECE_BYTES + 5;
    let (file, size) = file_of(&[(Some(1), len)]);
    let whole = noise(1, len as usize);
    let pieces: Vec<_> = hash_pieces(&file, 1..9, size).map(Result::unwrap).collect();
    assert_eq!(pieces.iter().map(|piece| piece.index).collect::<Vec<_>>(), [1, 2]);
    for piece in pieces {
        let start = (piece.index * LAZY_PIECE_BYTES) as usize;
        assert_eq!(piece.bytes, whole[start..start + piece.bytes.len()]);
        assert_eq!(piece.digest, Digest::of(&piece.bytes));
    }
    assert_eq!(hash_pieces(&file, 3..u64::MAX, size).count(), 0);
    let error = hash_pieces(&file, 2..3, size + 1).next().unwrap().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
}

#[test]
fn missing_and_short_blocks_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let store = BlockStore::open(folder.path(), Options::default()).unwrap();
    let [first, second, third] = [1, 2, 3].map(|seed| Digest::of(&noise(seed, 100)));
    let piece = |block| Piece { len: 100, block };
    let pieces = vec![piece(Some(first)), piece(Some(second)), piece(None), piece(Some(third)), piece(Some(second))];
    let index = RecipeIndex::new(Recipe { size: 500, pieces });
    let read = |offset, len: usize| read_content(&store, A, &index, offset, &mut vec![0xff; len]).unwrap();
    store.put(B, &noise(2, 100)).unwrap();
    assert_eq!(read(0, 600), ReadOutcome::Missing(vec![first, second, third]));
    store.put(A, &noise(1, 100)).unwrap();
    assert_eq!(read(0, 100), ReadOutcome::Filled(100));
    assert_eq!(read(50, 449), ReadOutcome::Missing(vec![second, third]));
    assert_eq!(read(200, 100), ReadOutcome::Filled(100));
    assert_eq!(read(500, 10), ReadOutcome::Filled(0));
    assert_eq!(read(0, 0), ReadOutcome::Filled(0));

    let lie = RecipeIndex::new(Recipe { size: 101, pieces: vec![Piece { len: 101, block: Some(first) }] });
    let error = read_content(&store, A, &lie, 0, &mut [0; 200]).unwrap_err();
    assert!(matches!(error, StoreError::ShortBlock { want: 101, len: 100, .. }), "{error}");
    assert_eq!(read_content(&store, A, &lie, 0, &mut [0; 50]).unwrap(), ReadOutcome::Filled(50));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_file_reads_back_as_it_was(
        stretches in proptest::collection::vec((proptest::option::of(0..5u64), 1..150_000u64), 0..8),
        reads in proptest::collection::vec((0..600_000u64, 0..400_000usize), 1..8),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let store = BlockStore::open(folder.path(), Options::default()).unwrap();
        let (file, size) = file_of(&stretches);
        let mut whole = vec![0; size as usize];
        file.read_exact_at(&mut whole, 0).unwrap();
        let mut cutter = Cutter::default();
        let mut put = |digest, bytes: &[u8]| store.put_named(A, digest, bytes);
        let found = cutter.cut(&file, size, &mut put).unwrap();
        prop_assert_eq!(&cutter.cut(&file, size, &mut put).unwrap(), &found);
        prop_assert_eq!(found.size, size);
        let pieces = match found.content {
            Content::Empty => Vec::new(),
            Content::Block(digest) => vec![Piece { len: size, block: Some(digest) }],
            _ => recipe(&found).pieces.clone(),
        };
        let index = RecipeIndex::new(Recipe { size, pieces });
        prop_assert_eq!(index.size(), size);
        for (offset, len) in reads.into_iter().chain([(0, whole.len())]) {
            let mut buf = vec![0xff; len];
            let rest = &whole[whole.len().min(offset as usize)..];
            let want = &rest[..rest.len().min(len)];
            let outcome = read_content(&store, A, &index, offset, &mut buf).unwrap();
            prop_assert_eq!(outcome, ReadOutcome::Filled(want.len()));
            prop_assert!(&buf[..want.len()] == want);
            prop_assert_eq!(index.pieces_in(offset, len as u64).map(|span| span.len).sum::<u64>(), want.len() as u64);
        }
    }

    #[test]
    fn holes_are_found_as_a_scan_finds_them(lens in proptest::collection::vec((any::<bool>(), 1..4u64), 0..12)) {
        let block = Some(Digest::of(b"x"));
        let pieces: Vec<Piece> =
            lens.iter().map(|(is_data, len)| Piece { len: *len, block: block.filter(|_| *is_data) }).collect();
        let is_data: Vec<bool> = lens.iter().flat_map(|(is_data, len)| vec![*is_data; *len as usize]).collect();
        let size = is_data.len() as u64;
        let index = RecipeIndex::new(Recipe { size, pieces });
        for at in 0..size + 2 {
            let next = |what| (at..size).find(|at| is_data[*at as usize] == what);
            prop_assert_eq!(index.seek_data(at), next(true));
            prop_assert_eq!(index.seek_hole(at), (at < size).then(|| next(false).unwrap_or(size)));
        }
    }
}
