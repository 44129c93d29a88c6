//! Many threads at once.

use super::{noise, segment_files, small};
use crate::{BlockStore, StoreError};
use base::{Digest, Tenant};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const THREADS: u64 = 6;
const ROUNDS: u64 = 1500;

fn block(number: u64) -> Vec<u8> {
    noise(number, 100 + (number * 53 % 900) as usize)
}

#[test]
fn threads_see_right_bytes_or_none_and_what_they_pinned() {
    let folder = tempfile::tempdir().unwrap();
    let store = BlockStore::open(folder.path(), small(64 << 10)).unwrap();
    let hits = AtomicUsize::new(0);
    let refused = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, hits, refused) = (&store, &hits, &refused);
            scope.spawn(move || work(store, thread, hits, refused));
        }
    });
    let stats = store.stats();
    // There is room for one block in fourteen, and 9,000 questions: how many find theirs goes by how the threads take turns.
    assert!(hits.load(Relaxed) > 300 && stats.segments_dropped > 10, "{hits:?} {stats:?}");
    assert!(refused.load(Relaxed) < 100, "pins leave room: {stats:?}");
    assert_eq!(stats.pinned, 0);
    assert_eq!(stats.blocks_damaged, 0);
    assert_eq!(stats.bytes, segment_files(folder.path()).iter().map(|(_, len)| len).sum::<u64>());

    let present = |store: &BlockStore| -> Vec<(u64, u64)> {
        let all = (0..THREADS).flat_map(|tenant| (0..300).map(move |number| (tenant, number)));
        all.filter(|(tenant, number)| {
            store
                .get(Tenant(*tenant as u32), &Digest::of(&block(*number)))
                .unwrap()
                .is_some_and(|b| b == block(*number))
        })
        .collect()
    };
    let before = present(&store);
    assert_eq!(before.len() as u64, store.stats().entries);
    drop(store);
    let after = present(&BlockStore::open(folder.path(), small(64 << 10)).unwrap());
    assert!(before.iter().all(|pair| after.contains(pair)));
}

/// Puts, reads and pins blocks that other threads use as well, as another tenant.
fn work(store: &BlockStore, thread: u64, hits: &AtomicUsize, refused: &AtomicUsize) {
    let tenant = Tenant(thread as u32);
    let mut pinned = None;
    let mut state = thread + 1;
    for round in 0..ROUNDS {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = (state >> 33) % 300;
        let bytes = block(number);
        let digest = Digest::of(&bytes);
        match store.put(tenant, &bytes) {
            Ok(_) => {}
            Err(StoreError::Full { .. }) => {
                refused.fetch_add(1, Relaxed);
                // One that pins much may just have lost its processor: it is let go on, as by whoever waits for room.
                std::thread::yield_now();
            }
            Err(error) => panic!("{error}"),
        }
        let other = Digest::of(&block((state >> 20) % 300));
        if let Some(found) = store.get(tenant, &other).unwrap() {
            assert_eq!(Digest::of(&found), other);
            hits.fetch_add(1, Relaxed);
        }
        if round % 20 == 0 {
            let pin = store.pin(tenant, &[digest]);
            pinned = store.contains(tenant, &digest).then_some((digest, bytes, pin));
        }
        if let Some((digest, bytes, _)) = &pinned {
            let mut buf = vec![0; bytes.len()];
            assert_eq!(store.read_at(tenant, digest, 0, &mut buf).unwrap(), Some(bytes.len()), "pinned");
            assert_eq!(&buf, bytes);
        }
    }
}

#[test]
fn a_block_that_many_put_at_once_is_written_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = BlockStore::open(folder.path(), small(1 << 20)).unwrap();
    let start = std::sync::Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, start) = (&store, &start);
            scope.spawn(move || {
                for number in 0..50 {
                    start.wait();
                    store.put(Tenant(thread as u32), &block(number)).unwrap();
                }
            });
        }
    });
    let stats = store.stats();
    assert_eq!((stats.blocks, stats.blocks_written), (50, 50));
    assert_eq!((stats.entries, stats.blocks_shared), (50 * THREADS, 50 * (THREADS - 1)));
}
