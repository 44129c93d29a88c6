//! Making room.

use super::{A, B, noise, put, put_all, segment_files, small};
use crate::{BlockStore, Options, StoreError};
use base::{Digest, Tenant};

/// A store with room for 24 blocks of 500 bytes, three to a segment.
fn open(dir: &std::path::Path) -> BlockStore {
    BlockStore::open(dir, small(24 * 556)).unwrap()
}

#[test]
fn the_oldest_goes_first_and_what_was_read_gets_a_second_chance_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let first = put_all(&store, 0..3);
    store.get(A, &first[1]).unwrap();
    assert!(store.contains(A, &first[2]), "asking whether it is there is no use of it");
    put_all(&store, 3..25);
    let seen = |store: &BlockStore| first.iter().map(|digest| store.contains(A, digest)).collect::<Vec<_>>();
    assert_eq!(seen(&store), [false, true, false]);
    assert_eq!((store.stats().segments_dropped, store.stats().blocks_copied), (1, 1));
    put_all(&store, 25..60);
    assert_eq!(seen(&store), [false, false, false], "not read since it was copied");
}

#[test]
fn a_cache_in_which_all_is_hot_still_makes_room_with_bounded_work() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let mut copied = 0;
    for seed in 0..200 {
        let digest = put(&store, seed);
        store.get(A, &digest).unwrap();
        let now = store.stats().blocks_copied;
        assert!(now - copied <= 2, "at most half a segment is copied for one write");
        copied = now;
        assert!(store.stats().bytes <= 24 * 556);
    }
    assert!(copied > 0);
}

#[test]
fn pinned_blocks_stay_with_all_their_tenants_even_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let tenants: Vec<Tenant> = (1..6).map(Tenant).collect();
    let pin = store.pin(Tenant(4), &[Digest::of(&noise(0, 500))]);
    let digest = Digest::of(&noise(0, 500));
    tenants.iter().for_each(|tenant| store.put_named(*tenant, digest, &noise(0, 500)).unwrap());
    for seed in 1..200 {
        put(&store, seed);
        assert!(store.contains(Tenant(4), &digest));
    }
    assert!(store.stats().blocks_copied >= 4);
    drop(store);
    let store = open(folder.path());
    for tenant in tenants {
        assert_eq!(store.get(tenant, &digest).unwrap().unwrap(), noise(0, 500), "{tenant:?}");
    }
    assert!(!store.contains(Tenant(6), &digest));
    drop(pin);
}

#[test]
fn a_store_full_of_pinned_blocks_refuses_until_one_is_let_go() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let digests = put_all(&store, 0..24);
    let mut pins: Vec<_> = digests.iter().map(|digest| store.pin(A, &[*digest])).collect();
    for _ in 0..3 {
        let error = store.put(A, &noise(100, 500)).unwrap_err();
        assert!(matches!(error, StoreError::Full { .. }), "{error}");
    }
    assert!(digests.iter().all(|digest| store.contains(A, digest)));
    store.put(A, &noise(3, 500)).expect("what is there needs no room");
    // A segment goes when a quarter of it or more is not pinned.
    drop(pins.drain(4..6));
    put(&store, 100);
    let seen: Vec<bool> = digests.iter().map(|digest| store.contains(A, digest)).collect();
    assert_eq!(seen.iter().filter(|seen| !**seen).count(), 2);
    assert!(!seen[4] && !seen[5]);
}

#[test]
fn pins_count() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let digest = put(&store, 0);
    let pin = store.pin(A, &[digest, digest]);
    let mut second = store.pin(A, &[]);
    second.extend(&[digest]);
    drop(pin);
    put_all(&store, 1..100);
    assert!(store.contains(A, &digest));
    drop(second);
    put_all(&store, 100..200);
    assert!(!store.contains(A, &digest));
    assert_eq!(store.stats().pinned, 0);
}

#[test]
fn entries_are_bounded_too() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { bytes_max: 1 << 20, segment_bytes: 4096, entries_max: 500 };
    let store = BlockStore::open(folder.path(), options).unwrap();
    for number in 0..3000u64 {
        store.put(A, &number.to_le_bytes()).unwrap();
        store.put(B, &number.to_le_bytes()).unwrap();
        assert!(store.stats().entries <= 500);
    }
    assert!(store.stats().segments_dropped > 0);
}

#[test]
fn a_store_opened_with_a_smaller_bound_shrinks() {
    let folder = tempfile::tempdir().unwrap();
    let store = BlockStore::open(folder.path(), small(100 * 556)).unwrap();
    let digests = put_all(&store, 0..100);
    drop(store);
    let store = open(folder.path());
    assert!(store.stats().bytes <= 24 * 556);
    assert!(store.contains(A, &digests[99]) && !store.contains(A, &digests[0]));
    assert_eq!(store.stats().bytes, segment_files(folder.path()).iter().map(|(_, len)| len).sum::<u64>());
}

#[test]
fn a_read_that_has_begun_outlives_its_segment() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let digest = put(&store, 0);
    let place = store.index.find(A, &digest).unwrap();
    put_all(&store, 1..200);
    assert!(!place.segment.path.exists());
    assert_eq!(store.read_whole(&digest, &place).unwrap().unwrap(), noise(0, 500));
}

#[test]
fn a_blob_larger_than_a_segment_takes_one_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    put(&store, 0);
    let large = store.put(A, &noise(1, 6000)).unwrap();
    put(&store, 2);
    assert_eq!(segment_files(folder.path()).iter().map(|(_, len)| *len).collect::<Vec<_>>(), [556, 6056, 556]);
    let whole = store.put(A, &noise(3, 24 * 556 - 56)).unwrap();
    assert!(!store.contains(A, &large));
    assert_eq!(store.get(A, &whole).unwrap().unwrap().len(), 24 * 556 - 56);
    assert!(matches!(store.put(A, &noise(4, 24 * 556 - 55)), Err(StoreError::TooLarge { .. })));
    drop(store);
    assert!(open(folder.path()).contains(A, &whole));
}
