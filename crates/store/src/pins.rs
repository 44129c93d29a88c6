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
        self.pins.add(self.tenant, digests);
        self.digests.extend_from_slice(digests);
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut counts = lock(&self.pins.counts);
        for digest in &self.digests {
            if let Some(count) = counts.get_mut(&(self.tenant, *digest)) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&(self.tenant, *digest));
                }
            }
        }
        self.pins.releases.fetch_add(1, Relaxed);
    }
}

/// How often each block is pinned.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    counts: Mutex<HashMap<(Tenant, Digest), u64>>,
    /// How many guards were dropped so far.
    pub releases: AtomicU64,
}

impl Pins {
    /// Pins blocks.
    pub fn pin(self: &Arc<Self>, tenant: Tenant, digests: &[Digest]) -> Pin {
        self.add(tenant, digests);
        Pin { pins: self.clone(), tenant, digests: digests.to_vec() }
    }

    fn add(&self, tenant: Tenant, digests: &[Digest]) {
        let mut counts = lock(&self.counts);
        for digest in digests {
            *counts.entry((tenant, *digest)).or_default() += 1;
        }
    }

    /// Whether any of these tenants has pinned a block.
    pub fn holds(&self, tenants: impl Iterator<Item = Tenant>, digest: &Digest) -> bool {
        let counts = lock(&self.counts);
        !counts.is_empty() && tenants.into_iter().any(|tenant| counts.contains_key(&(tenant, *digest)))
    }

    /// All that is pinned now.
    pub fn all(&self) -> Vec<(Tenant, Digest)> {
        lock(&self.counts).keys().copied().collect()
    }

    /// How many pairs of tenant and block are pinned.
    pub fn count(&self) -> u64 {
        lock(&self.counts).len() as u64
    }
}
