//! Results as they come, honest and not.

use super::*;
use base::Piece;
use std::io::Read;
use std::os::fd::AsFd;

#[test]
fn large_results_go_to_a_file_and_come_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut spool = Spool::new(folder.path().to_owned());
    let blocks: Vec<Vec<u8>> = (0..12u8).map(|number| vec![number; 1 << 20]).collect();
    let mut pieces = Vec::new();
    for block in &blocks {
        spool.put(Digest::of(block), block).expect("kept");
        pieces.push(Piece { len: block.len() as u64, block: Some(Digest::of(block)) });
    }
    pieces.push(Piece { len: 5000, block: None });
    let recipe = Recipe { size: pieces.iter().map(|piece| piece.len).sum(), pieces };
    let name = Digest::of(&recipe.to_bytes());
    spool.put(name, &recipe.to_bytes()).expect("kept");
    let out = folder.path().join("out");
    spool.write_from(&Content::Recipe(name), 1 << 20, &File::create(&out).expect("made")).expect("written");
    let mut written = Vec::new();
    File::open(&out).expect("there").read_to_end(&mut written).expect("read");
    assert_eq!(written.len() as u64, recipe.size - (1 << 20));
    assert!(written.starts_with(&blocks[1]) && written.ends_with(&[0; 5000]));

    let whole = folder.path().join("whole");
    let content = Content::Recipe(name);
    spool.write_from(&content, 0, &File::create(&whole).expect("made")).expect("written");
    let whole = File::options().read(true).write(true).open(&whole).expect("there");
    let begins = |from| spool.begins_as(&content, from, &whole).expect("compared");
    assert!(begins(0) && begins(1) && begins((3 << 20) + 7) && begins(recipe.size) && begins(recipe.size - 1));
    whole.write_all_at(b"x", 3 << 20).expect("written");
    assert!(begins(3 << 20) && !begins((3 << 20) + 7));
    whole.set_len(5).expect("cut");
    assert!(begins(5) && !begins(6));
}

#[test]
fn a_large_file_that_was_announced_is_linked_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let held = File::open(folder.path()).expect("there");
    let mut spool = Spool::new(folder.path().to_owned());
    let blocks: Vec<Vec<u8>> = [1u8, 2, 1, 3].map(|number| vec![number; 1 << 20]).to_vec();
    let piece = |block: &Vec<u8>| Piece { len: block.len() as u64, block: Some(Digest::of(block)) };
    let mut pieces: Vec<Piece> = blocks.iter().map(piece).collect();
    pieces.push(Piece { len: 5000, block: None });
    let recipe = Recipe { size: pieces.iter().map(|piece| piece.len).sum(), pieces };
    let name = Digest::of(&recipe.to_bytes());
    let content = Content::Recipe(name);
    spool.put(Digest::of(&blocks[1]), &blocks[1]).expect("kept: a block that comes first");
    spool.expect([(content, recipe.size)].into_iter()).expect("noted");
    spool.put(name, &recipe.to_bytes()).expect("kept");
    spool.put(Digest::of(&blocks[0]), &blocks[0]).expect("kept");
    let link = |spool: &Spool, name: &[u8]| spool.link_to(&content, held.as_fd(), name).expect("tried");
    assert!(!link(&spool, b"early"), "a block is missing");
    spool.put(Digest::of(&blocks[3]), &blocks[3]).expect("kept");
    assert!(link(&spool, b"whole") && !link(&spool, b"twice"), "two files are not one");
    let expected = [&blocks.concat()[..], &[0; 5000]].concat();
    assert!(std::fs::read(folder.path().join("whole")).expect("there") == expected);
    let rights = rustix::fs::fcntl_getfl(&spool.wholes[0].file).expect("open");
    assert!(!rights.intersects(rustix::fs::OFlags::RDWR), "nobody writes it any more");
    let copy = folder.path().join("copy");
    spool.write_from(&content, 0, &File::create(&copy).expect("made")).expect("written");
    assert!(std::fs::read(&copy).expect("there") == expected);
}

#[test]
fn a_result_is_no_larger_than_it_was_said_to_be() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut spool = Spool::new(folder.path().to_owned());
    spool.bytes_left = 10;
    let block = vec![7u8; 1 << 20];
    let refused = spool.put(Digest::of(&block), &block).expect_err("more than is announced");
    assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
    spool.expect([(Content::Recipe(Digest([1; 32])), 2 << 20)].into_iter()).expect("noted");
    spool.put(Digest::of(&block), &block).expect("that is of the file");
    // A recipe that says less of a block than the block has.
    let piece = Piece { len: 5, block: Some(Digest::of(&block)) };
    let recipe = Recipe { size: 10, pieces: vec![piece; 2] };
    let name = Digest::of(&recipe.to_bytes());
    spool.put(name, &recipe.to_bytes()).expect("kept");
    assert_eq!(spool.measure(&Content::Recipe(name)).expect("measured"), Measure { len: 10, data: 10 });
    let out = File::create(folder.path().join("out")).expect("made");
    assert!(spool.write_from(&Content::Recipe(name), 0, &out).is_err());
    assert_eq!(out.metadata().expect("there").len(), 0, "nothing of it is written");
}

/// A recipe is a few bytes, whatever lengths it speaks of.
#[test]
fn a_hole_of_any_length_is_compared_piece_by_piece() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut spool = Spool::new(folder.path().to_owned());
    let tail = b"end".to_vec();
    let hole = 1u64 << 45;
    let pieces = vec![Piece { len: hole, block: None }, Piece { len: 3, block: Some(Digest::of(&tail)) }];
    let recipe = Recipe { size: hole + 3, pieces };
    let name = Digest::of(&recipe.to_bytes());
    spool.put(name, &recipe.to_bytes()).expect("kept");
    let content = Content::Recipe(name);
    let file = File::options().read(true).write(true).create_new(true).open(folder.path().join("f")).expect("made");
    let begins = |from| spool.begins_as(&content, from, &file).expect("compared");
    assert!(!begins(hole) && begins(0), "the file has nothing of that");
    file.set_len(300_000).expect("set");
    assert!(begins(300_000) && begins(COMPARED_BYTES as u64) && !begins(300_001) && !begins(hole + 1));
    file.write_all_at(b"x", 200_000).expect("written");
    assert!(begins(200_000) && !begins(200_001) && !begins(hole));
}

#[test]
fn what_is_announced_is_no_more_than_can_be_committed_and_costs_what_it_takes() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut spool = Spool::new(folder.path().to_owned());
    let name = |number: u8| Content::Recipe(Digest([number; 32]));
    spool.expect((0..3).map(|number| (name(number), 1 << 62))).expect("noted");
    assert_eq!(spool.bytes_left, ANNOUNCED_BYTES_MAX);
    spool.allow(u64::MAX);
    assert_eq!(spool.bytes_left, ANNOUNCED_BYTES_MAX);
    spool.bytes_left = 10 * OBJECT_BYTES_MIN;
    let put = |number: u32| spool.put(Digest::of(&number.to_le_bytes()[..2]), &number.to_le_bytes()[..2]).is_ok();
    assert_eq!((0..1000).map(put).filter(|is_kept| *is_kept).count(), 10, "each object costs what it takes");
}

#[test]
fn a_result_leaves_room_on_the_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut spool = Spool::new(folder.path().to_owned());
    assert!(spool.take_room(1).is_ok() && spool.room_bytes < ROOM_STEP_BYTES);
    let room = Room::at(folder.path()).expect("asked");
    let left = room.bytes.saturating_sub(LEFT_BYTES.min(room.all_bytes / LEFT_PART));
    let refused = spool.take_room(left.saturating_add(1 << 40)).expect_err("more than there is");
    assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
    assert!(spool.take_room(1).is_ok(), "what is small still finds its place");
    // A block that belongs to very many places takes room for each.
    let block = vec![7u8; 1 << 20];
    let places = left / (1 << 20) + 10_000;
    spool.wanted.insert(Digest::of(&block), (0..places).map(|at| (0, at << 20, 1 << 20)).collect());
    assert!(spool.put(Digest::of(&block), &block).is_err());
}

#[test]
fn a_recipe_that_is_larger_than_its_file_gets_no_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut spool = Spool::new(folder.path().to_owned());
    let block = vec![7u8; 1 << 20];
    let piece = Piece { len: 1 << 20, block: Some(Digest::of(&block)) };
    let recipe = Recipe { size: 64 << 20, pieces: vec![piece; 64] };
    let name = Digest::of(&recipe.to_bytes());
    spool.expect([(Content::Recipe(name), 5 << 20)].into_iter()).expect("noted");
    spool.put(name, &recipe.to_bytes()).expect("kept");
    spool.put(Digest::of(&block), &block).expect("kept");
    assert!(spool.wholes.is_empty(), "5 MiB were announced");
}

#[test]
fn forged_objects_are_refused() {
    let mut spool = Spool::new(std::env::temp_dir());
    let refused = spool.put(Digest::of(b"a"), b"b").expect_err("another hash");
    assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
    assert_eq!(spool.get(&Digest::of(b"a")).expect_err("not there").kind(), io::ErrorKind::NotFound);
}
