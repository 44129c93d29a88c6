//! Pins: blocks that must not be dropped while a guard lives.

use crate::lock;
use base::{Digest, Tenant};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Keeps blocks in the store until it is dropped. A block may be pinned before it is there: it then stays from its
/// arrival on.
#[derive(Debug)]
#[must_use = "the blocks are pinned only as long as this lives"]
pub struct Pin {
    pins: Arc<Pins>,
    tenant: Tenant,
    digests: Vec<Digest>,
}

impl Pin {
    /// Pins further blocks of the same tenant.
    pub fn extend(&mut self, digests: &[Digest]) {
        self.pins.add(self.tenant, digests, &[]);
        self.digests.extend_from_slice(digests);
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut counts = lock(&self.pins.counts);
        self.digests.iter().for_each(|digest| counts.take(self.tenant, digest));
        drop(counts);
        self.pins.releases.fetch_add(1, Relaxed);
    }
}

/// What a pinned block counts for beside its bytes, whether it is there or not: it takes memory.
pub(crate) const BYTES_OF_ONE: u64 = 200;

/// How often each block is pinned, and how many bytes of each tenant are.
#[derive(Debug, Default)]
struct Counts {
    blocks: HashMap<(Tenant, Digest), Pinned>,
    of_tenants: HashMap<Tenant, u64>,
}

#[derive(Debug, Default)]
struct Pinned {
    count: u64,
    /// How long the block is; 0: it is not there yet.
    len: u64,
}

impl Counts {
    fn add(&mut self, tenant: Tenant, digest: &Digest, len: u64) {
        let pinned = self.blocks.entry((tenant, *digest)).or_default();
        let mut more = if pinned.count == 0 { BYTES_OF_ONE } else { 0 };
        pinned.count += 1;
        if pinned.len == 0 {
            pinned.len = len;
            more += len;
        }
        *self.of_tenants.entry(tenant).or_default() += more;
    }

    fn take(&mut self, tenant: Tenant, digest: &Digest) {
        let at = (tenant, *digest);
        let Some(pinned) = self.blocks.get_mut(&at) else { return };
        pinned.count -= 1;
        if pinned.count > 0 {
            return;
        }
        let less = BYTES_OF_ONE + pinned.len;
        self.blocks.remove(&at);
        if let Some(bytes) = self.of_tenants.get_mut(&tenant) {
            *bytes -= less;
            if *bytes == 0 {
                self.of_tenants.remove(&tenant);
            }
        }
    }
}

/// All pins of a store.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    counts: Mutex<Counts>,
    /// How many guards were dropped so far.
    pub releases: AtomicU64,
}

impl Pins {
    /// Pins blocks. `lens`: how long each is that is there, in the same order.
    pub fn pin(self: &Arc<Self>, tenant: Tenant, digests: &[Digest], lens: &[u64]) -> Pin {
        self.add(tenant, digests, lens);
        Pin { pins: self.clone(), tenant, digests: digests.to_vec() }
    }

    fn add(&self, tenant: Tenant, digests: &[Digest], lens: &[u64]) {
        let mut counts = lock(&self.counts);
        for (at, digest) in digests.iter().enumerate() {
            counts.add(tenant, digest, lens.get(at).copied().unwrap_or_default());
        }
    }

    /// A block of a tenant is there from now on. It may have been pinned before.
    pub fn arrived(&self, tenant: Tenant, digest: &Digest, len: u64) {
        let mut counts = lock(&self.counts);
        let Counts { blocks, of_tenants } = &mut *counts;
        if let Some(pinned) = blocks.get_mut(&(tenant, *digest)).filter(|pinned| pinned.len == 0) {
            pinned.len = len;
            *of_tenants.entry(tenant).or_default() += len;
        }
    }

    /// Bytes of a tenant's blocks that are pinned, each counted once, and what they take beside these.
    pub fn bytes_of(&self, tenant: Tenant) -> u64 {
        lock(&self.counts).of_tenants.get(&tenant).copied().unwrap_or_default()
    }

    /// Whether any of these tenants has pinned a block.
    pub fn holds(&self, tenants: impl Iterator<Item = Tenant>, digest: &Digest) -> bool {
        let blocks = &lock(&self.counts).blocks;
        !blocks.is_empty() && tenants.into_iter().any(|tenant| blocks.contains_key(&(tenant, *digest)))
    }

    /// All that is pinned now.
    pub fn all(&self) -> Vec<(Tenant, Digest)> {
        lock(&self.counts).blocks.keys().copied().collect()
    }

    /// How many pairs of tenant and block are pinned.
    pub fn count(&self) -> u64 {
        lock(&self.counts).blocks.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockStore, Options};

    #[test]
    fn pinned_bytes_of_a_tenant_are_counted_once_and_as_they_come() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = BlockStore::open(folder.path(), Options::default()).expect("opened");
        let (one, other) = (Tenant(1), Tenant(2));
        let there = store.put(one, &[7; 1_000]).expect("kept");
        let later = Digest::of(&[8; 300]);
        let first = store.pin(one, &[there, later]);
        assert_eq!(store.pinned_bytes_of(one), 1_000 + 2 * BYTES_OF_ONE);
        let second = store.pin(one, &[there, there, later]);
        assert_eq!(store.pinned_bytes_of(one), 1_000 + 2 * BYTES_OF_ONE, "they are the same");
        store.put(other, &[8; 300]).expect("kept");
        assert_eq!(store.pinned_bytes_of(one), 1_000 + 2 * BYTES_OF_ONE, "of another");
        store.put(one, &[8; 300]).expect("kept");
        assert_eq!(store.pinned_bytes_of(one), 1_300 + 2 * BYTES_OF_ONE);
        drop(first);
        assert_eq!((store.pinned_bytes_of(one), store.pinned_bytes_of(other)), (1_300 + 2 * BYTES_OF_ONE, 0));
        drop(second);
        assert_eq!((store.pinned_bytes_of(one), store.stats().pinned), (0, 0));
    }
}
