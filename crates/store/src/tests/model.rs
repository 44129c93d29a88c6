//! The store against a trivial model.

use super::{noise, segment_files};
use crate::{BlockStore, Options, Pin, StoreError};
use base::{Digest, Tenant};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use std::path::Path;

const TENANTS: u32 = 3;
const BLOCKS: u64 = 40;

#[derive(Clone, Debug)]
enum Op {
    Put(u32, u64),
    PutNamed(u32, u64),
    Get(u32, u64),
    ReadAt(u32, u64, u64, usize),
    Pin(u32, u64),
    Unpin(usize),
    Reopen,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let pair = (0..TENANTS, 0..BLOCKS);
    let op = prop_oneof![
        6 => pair.clone().prop_map(|(tenant, block)| Op::Put(tenant, block)),
        3 => pair.clone().prop_map(|(tenant, block)| Op::PutNamed(tenant, block)),
        4 => pair.clone().prop_map(|(tenant, block)| Op::Get(tenant, block)),
        3 => (pair.clone(), 0..700u64, 0..700usize).prop_map(|((tenant, block), at, len)| {
            Op::ReadAt(tenant, block, at, len)
        }),
        2 => pair.prop_map(|(tenant, block)| Op::Pin(tenant, block)),
        2 => any::<usize>().prop_map(Op::Unpin),
        1 => Just(Op::Reopen),
    ];
    proptest::collection::vec(op, 1..150)
}

fn block(number: u64) -> Vec<u8> {
    noise(number, (number * 37 % 600) as usize)
}

fn digest(number: u64) -> Digest {
    Digest::of(&block(number))
}

/// A store that is compared with what it must, and may, hold.
struct World<'a> {
    dir: &'a Path,
    options: Options,
    store: Option<BlockStore>,
    /// What was ever shown.
    shown: HashSet<(u32, u64)>,
    pins: Vec<(u32, u64, Pin)>,
    drops_blocks: bool,
}

impl<'a> World<'a> {
    fn new(dir: &'a Path, options: Options, drops_blocks: bool) -> Self {
        let store = Some(BlockStore::open(dir, options).unwrap());
        Self { dir, options, store, shown: HashSet::new(), pins: Vec::new(), drops_blocks }
    }

    fn store(&self) -> &BlockStore {
        self.store.as_ref().unwrap()
    }

    fn present(&self) -> HashSet<(u32, u64)> {
        let all = (0..TENANTS).flat_map(|tenant| (0..BLOCKS).map(move |block| (tenant, block)));
        all.filter(|(tenant, block)| self.store().contains(Tenant(*tenant), &digest(*block))).collect()
    }

    fn step(&mut self, op: &Op) {
        let before = self.present();
        match *op {
            Op::Put(tenant, number) | Op::PutNamed(tenant, number) => {
                self.put(tenant, number, matches!(op, Op::Put(..)))
            }
            Op::Get(tenant, number) => {
                let found = self.store().get(Tenant(tenant), &digest(number)).unwrap();
                assert_eq!(found, before.contains(&(tenant, number)).then(|| block(number)));
            }
            Op::ReadAt(tenant, number, offset, len) => {
                let mut buf = vec![0; len];
                let count = self.store().read_at(Tenant(tenant), &digest(number), offset, &mut buf).unwrap();
                assert_eq!(count.is_some(), before.contains(&(tenant, number)));
                if let Some(count) = count {
                    let whole = block(number);
                    let rest = &whole[whole.len().min(offset as usize)..];
                    assert_eq!(&buf[..count], &rest[..rest.len().min(len)]);
                }
            }
            Op::Pin(tenant, number) => {
                let pin = self.store().pin(Tenant(tenant), &[digest(number)]);
                self.pins.push((tenant, number, pin));
            }
            Op::Unpin(at) if !self.pins.is_empty() => drop(self.pins.swap_remove(at % self.pins.len())),
            Op::Unpin(_) => {}
            Op::Reopen => {
                self.pins.clear();
                self.store = None;
                self.store = Some(BlockStore::open(self.dir, self.options).unwrap());
                assert!(before.is_subset(&self.present()), "lost by reopening");
            }
        }
        self.check(&before);
    }

    fn put(&mut self, tenant: u32, number: u64, unnamed: bool) {
        let bytes = block(number);
        let result = match unnamed {
            true => self.store().put(Tenant(tenant), &bytes).map(|found| assert_eq!(found, digest(number))),
            false => self.store().put_named(Tenant(tenant), digest(number), &bytes),
        };
        match result {
            Ok(()) => {
                self.shown.insert((tenant, number));
                assert_eq!(self.store().get(Tenant(tenant), &digest(number)).unwrap(), Some(bytes));
            }
            Err(StoreError::Full { .. }) => assert!(self.drops_blocks && !self.pins.is_empty()),
            Err(error) => panic!("{error}"),
        }
    }

    fn check(&self, before: &HashSet<(u32, u64)>) {
        let present = self.present();
        assert!(present.is_subset(&self.shown), "seen without having been shown");
        if !self.drops_blocks {
            assert_eq!(present, self.shown);
        }
        for (tenant, number, _) in &self.pins {
            let pair = (*tenant, *number);
            assert!(!before.contains(&pair) || present.contains(&pair), "dropped while pinned: {pair:?}");
        }
        let stats = self.store().stats();
        assert!(stats.bytes <= self.options.bytes_max, "{stats:?}");
        assert_eq!(stats.entries, present.len() as u64);
        let files = segment_files(self.dir);
        assert_eq!(stats.bytes, files.iter().map(|(_, len)| len).sum::<u64>());
        assert_eq!(stats.segments, files.len() as u64);
        let mut pins: HashMap<(u32, u64), u32> = HashMap::new();
        self.pins.iter().for_each(|(tenant, number, _)| *pins.entry((*tenant, *number)).or_default() += 1);
        assert_eq!(stats.pinned, pins.len() as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_store_with_room_holds_all_that_was_shown(ops in ops()) {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { bytes_max: 1 << 20, segment_bytes: 2048, ..Options::default() };
        let mut world = World::new(folder.path(), options, false);
        ops.iter().for_each(|op| world.step(op));
    }

    #[test]
    fn a_store_without_room_keeps_what_is_pinned_and_stays_within_its_bound(ops in ops()) {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { bytes_max: 6000, segment_bytes: 700, ..Options::default() };
        let mut world = World::new(folder.path(), options, true);
        ops.iter().for_each(|op| world.step(op));
    }
}
