//! Where each block is, in memory: a map from digest to place, cut into shards so that a reader waits for at most one
//! short change, and never for the growth of the whole map.

use crate::pins::Pins;
use crate::segment::Segment;
use base::{Digest, Tenant};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

const SHARDS: usize = 64;

/// Where a block's bytes are.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub segment: Arc<Segment>,
    /// Where the bytes start in the segment: segments stay below 4 GiB.
    pub offset: u32,
    /// Length in bytes.
    pub len: u32,
    /// Whether the bytes are known to have the block's digest.
    pub verified: bool,
}

/// How a tenant stands to a block.
#[derive(Clone, Debug)]
pub(crate) enum Shown {
    /// It has shown the block.
    ByIt,
    /// Only others have.
    ByOthers,
    /// Someone has, but the bytes here were not compared with the digest since the store was opened.
    Unverified(Place),
    /// Nobody has.
    No,
}

/// What became of an attempt to remove a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// It is gone.
    Removed,
    /// It is not in that segment (any more).
    Elsewhere,
    /// It is pinned.
    Pinned,
}

#[derive(Debug)]
struct Slot {
    segment: Arc<Segment>,
    offset: u32,
    len: u32,
    verified: AtomicBool,
    /// Read since the record was written.
    used: AtomicBool,
    tenant: Tenant,
    /// Further tenants: few blocks have any.
    others: Vec<Tenant>,
}

impl Slot {
    fn tenants(&self) -> impl Iterator<Item = Tenant> + '_ {
        std::iter::once(self.tenant).chain(self.others.iter().copied())
    }

    fn is_shown_by(&self, tenant: Tenant) -> bool {
        self.tenant == tenant || self.others.contains(&tenant)
    }

    fn place(&self) -> Place {
        let verified = self.verified.load(Relaxed);
        Place { segment: self.segment.clone(), offset: self.offset, len: self.len, verified }
    }

    fn is_at(&self, place: &Place) -> bool {
        self.segment.id == place.segment.id && self.offset == place.offset
    }

    /// Marks the block as used. A look before the store saves the shared cache line from needless writes.
    fn touch(&self) {
        if !self.used.load(Relaxed) {
            self.used.store(true, Relaxed);
        }
    }
}

/// A block of a segment that is about to be dropped.
#[derive(Clone, Debug)]
pub(crate) struct Resident {
    pub digest: Digest,
    pub place: Place,
    pub used: bool,
}

type Shard = HashMap<Digest, Slot>;

/// The map.
#[derive(Debug)]
pub(crate) struct Index {
    shards: Vec<RwLock<Shard>>,
    /// Pairs of tenant and block.
    entries: AtomicU64,
}

impl Default for Index {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| RwLock::default()).collect(), entries: AtomicU64::new(0) }
    }
}

impl Index {
    fn shard(&self, digest: &Digest) -> RwLockReadGuard<'_, Shard> {
        self.shards[digest.0[0] as usize % SHARDS].read().unwrap_or_else(PoisonError::into_inner)
    }

    fn shard_mut(&self, digest: &Digest) -> RwLockWriteGuard<'_, Shard> {
        self.shards[digest.0[0] as usize % SHARDS].write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pairs of tenant and block.
    pub fn entries(&self) -> u64 {
        self.entries.load(Relaxed)
    }

    /// Distinct blocks.
    pub fn blocks(&self) -> u64 {
        self.shards.iter().map(|shard| shard.read().unwrap_or_else(PoisonError::into_inner).len() as u64).sum()
    }

    /// Where a tenant's block is, marking it as used.
    pub fn find(&self, tenant: Tenant, digest: &Digest) -> Option<Place> {
        let shard = self.shard(digest);
        let slot = shard.get(digest).filter(|slot| slot.is_shown_by(tenant))?;
        slot.touch();
        Some(slot.place())
    }

    /// Length of a tenant's block in bytes, without marking it as used.
    pub fn len(&self, tenant: Tenant, digest: &Digest) -> Option<u64> {
        let shard = self.shard(digest);
        shard.get(digest).filter(|slot| slot.is_shown_by(tenant)).map(|slot| u64::from(slot.len))
    }

    /// How a tenant stands to a block, marking it as used if the tenant has shown it.
    pub fn shown(&self, tenant: Tenant, digest: &Digest) -> Shown {
        match self.shard(digest).get(digest) {
            Some(slot) if !slot.verified.load(Relaxed) => Shown::Unverified(slot.place()),
            Some(slot) if slot.is_shown_by(tenant) => {
                slot.touch();
                Shown::ByIt
            }
            Some(_) => Shown::ByOthers,
            None => Shown::No,
        }
    }

    /// Adds a block; if it is there, it moves to the new place and keeps its tenants.
    pub fn insert(&self, tenant: Tenant, digest: Digest, place: Place) {
        let mut shard = self.shard_mut(&digest);
        let mut slot = Slot {
            segment: place.segment,
            offset: place.offset,
            len: place.len,
            verified: AtomicBool::new(place.verified),
            used: AtomicBool::new(false),
            tenant,
            others: Vec::new(),
        };
        let mut added = 1;
        if let Some(old) = shard.remove(&digest) {
            slot.others = old.tenants().filter(|other| *other != tenant).collect();
            added = u64::from(!old.is_shown_by(tenant));
        }
        shard.insert(digest, slot);
        self.entries.fetch_add(added, Relaxed);
    }

    /// Adds a tenant to a block that is there; false if it is not.
    pub fn add_tenant(&self, tenant: Tenant, digest: &Digest) -> bool {
        let mut shard = self.shard_mut(digest);
        let Some(slot) = shard.get_mut(digest) else { return false };
        if !slot.is_shown_by(tenant) {
            slot.others.push(tenant);
            self.entries.fetch_add(1, Relaxed);
        }
        true
    }

    /// Notes that the bytes at a place have the block's digest.
    pub fn verify(&self, digest: &Digest, place: &Place) {
        if let Some(slot) = self.shard(digest).get(digest).filter(|slot| slot.is_at(place)) {
            slot.verified.store(true, Relaxed);
        }
    }

    /// Forgets a block if it is still at this place.
    pub fn forget(&self, digest: &Digest, place: &Place) {
        let mut shard = self.shard_mut(digest);
        if shard.get(digest).is_some_and(|slot| slot.is_at(place)) {
            self.remove(&mut shard, digest);
        }
    }

    /// The tenants of a block if it is still at this place: the first is the one in its record.
    pub fn tenants_at(&self, digest: &Digest, place: &Place) -> Option<Vec<Tenant>> {
        let shard = self.shard(digest);
        shard.get(digest).filter(|slot| slot.is_at(place)).map(|slot| slot.tenants().collect())
    }

    /// Moves a block from one place to another, where it has yet to be used again.
    pub fn relocate(&self, digest: &Digest, from: &Place, to: Place) {
        let mut shard = self.shard_mut(digest);
        if let Some(slot) = shard.get_mut(digest).filter(|slot| slot.is_at(from)) {
            slot.segment = to.segment;
            slot.offset = to.offset;
            slot.used.store(false, Relaxed);
        }
    }

    /// The blocks in a segment, in the order in which they lie there.
    pub fn residents(&self, segment: u32) -> Vec<Resident> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
            let here = shard.iter().filter(|(_, slot)| slot.segment.id == segment);
            found.extend(here.map(|(digest, slot)| Resident {
                digest: *digest,
                place: slot.place(),
                used: slot.used.load(Relaxed),
            }));
        }
        found.sort_unstable_by_key(|resident| resident.place.offset);
        found
    }

    /// Whether a block is pinned by any of its tenants.
    pub fn is_pinned(&self, digest: &Digest, pins: &Pins) -> bool {
        self.shard(digest).get(digest).is_some_and(|slot| pins.holds(slot.tenants(), digest))
    }

    /// Where a tenant's block is, without marking it as used: the segment, and the length in bytes.
    pub fn segment_of(&self, tenant: Tenant, digest: &Digest) -> Option<(u32, u64)> {
        let shard = self.shard(digest);
        let slot = shard.get(digest).filter(|slot| slot.is_shown_by(tenant))?;
        Some((slot.segment.id, u64::from(slot.len)))
    }

    /// Removes a block if it is at this place and not pinned. Pins are looked up under the shard's lock: once a pin is
    /// taken, no block that is there goes.
    pub fn remove_unless_pinned(&self, digest: &Digest, place: &Place, pins: &Pins) -> Removal {
        let mut shard = self.shard_mut(digest);
        match shard.get(digest) {
            Some(slot) if !slot.is_at(place) => Removal::Elsewhere,
            Some(slot) if pins.holds(slot.tenants(), digest) => Removal::Pinned,
            Some(_) => {
                self.remove(&mut shard, digest);
                Removal::Removed
            }
            None => Removal::Elsewhere,
        }
    }

    fn remove(&self, shard: &mut Shard, digest: &Digest) {
        if let Some(slot) = shard.remove(digest) {
            self.entries.fetch_sub(1 + slot.others.len() as u64, Relaxed);
        }
    }
}
