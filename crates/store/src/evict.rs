//! Making room: the oldest segment goes, whole. What is pinned in it is copied forward first; what was used since it
//! was written gets a second chance and is copied too, up to half a segment each time room is made, so that the work
//! of one write stays bounded however hot the cache is.
//!
//! Copying takes the writer's lock for each block, and no lock that a reader waits for.

use crate::block_store::BlockStore;
use crate::error::StoreError;
use crate::index::{Place, Removal, Resident};
use crate::lock;
use crate::options::bump;
use crate::record::{HEADER_BYTES, Header, Kind};
use crate::segment::{Found, Segment, scan};
use base::Digest;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{PoisonError, TryLockError};

/// How many entries writers may add above the bound while another thread makes room.
const ENTRIES_SLACK: u64 = 1 << 16;

impl BlockStore {
    fn fits(&self, need: u64, bytes_slack: u64, entries_slack: u64) -> bool {
        let bytes_fit = self.bytes.load(Relaxed).saturating_add(need) <= self.options.bytes_max + bytes_slack;
        bytes_fit && self.index.entries() < self.options.entries_max + entries_slack
    }

    /// Drops the oldest segments until `need` bytes fit below the store's bound. While another thread is at it, a
    /// segment's worth of writes may go ahead; beyond that they wait for it.
    ///
    /// # Errors
    /// [`StoreError::Full`] if what is pinned leaves no room.
    pub(crate) fn make_room(&self, need: u64) -> Result<(), StoreError> {
        if self.fits(need, 0, 0) {
            return Ok(());
        }
        let _guard = match self.evicting.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if self.fits(need, self.options.segment_bytes, ENTRIES_SLACK) => {
                return Ok(());
            }
            Err(TryLockError::WouldBlock) => self.evicting.lock().unwrap_or_else(PoisonError::into_inner),
        };
        if self.fits(need, 0, 0) {
            return Ok(());
        }
        let full = || StoreError::Full { dir: self.dir.clone(), bytes_max: self.options.bytes_max };
        // Where nothing was written or unpinned since the last vain attempt, another is as vain, and is not cheap.
        let changes = 1 + self.pins.releases.load(Relaxed) + self.counters.blocks_written.load(Relaxed);
        if self.full_at.load(Relaxed) == changes {
            return Err(full());
        }
        let pinned = self.pinned_bytes();
        let mut budget = self.options.segment_bytes / 2;
        let victims: Vec<Arc<Segment>> = lock(&self.segments).values().cloned().collect();
        let mut is_vain = true;
        for segment in victims {
            // Copying forward most of a segment gains little, for much work.
            let is_worth_it = pinned.get(&segment.id).copied().unwrap_or(0) <= segment.end.load(Relaxed) / 4 * 3;
            if is_worth_it {
                // A copy that the disk refused may be possible the next time.
                is_vain &= self.drop_segment(&segment, &mut budget);
            }
            if self.fits(need, 0, 0) {
                return Ok(());
            }
        }
        if is_vain {
            self.full_at.store(changes, Relaxed);
        }
        Err(full())
    }

    /// Drops the oldest segment in which nothing is pinned, because the disk has no room; nothing is copied.
    /// `dropped_before` is the count of dropped segments when the write that failed began: if another thread has freed
    /// some since, that is enough.
    ///
    /// # Errors
    /// [`StoreError::DiskFull`] if there is no such segment.
    pub(crate) fn free_disk(&self, dropped_before: u64) -> Result<(), StoreError> {
        let _guard = lock(&self.evicting);
        if self.counters.segments_dropped.load(Relaxed) != dropped_before {
            return Ok(());
        }
        let pinned = self.pinned_bytes();
        let victims: Vec<Arc<Segment>> = lock(&self.segments).values().cloned().collect();
        for segment in victims {
            let is_empty = segment.end.load(Relaxed) == 0;
            if !is_empty && !pinned.contains_key(&segment.id) && self.drop_segment(&segment, &mut 0) {
                return Ok(());
            }
        }
        Err(StoreError::DiskFull { dir: self.dir.clone() })
    }

    /// How many bytes of each segment are pinned, record headers included.
    fn pinned_bytes(&self) -> HashMap<u32, u64> {
        let mut seen: HashSet<Digest> = HashSet::new();
        let mut bytes = HashMap::new();
        for (tenant, digest) in self.pins.all() {
            if let Some((segment, len)) = self.index.segment_of(tenant, &digest)
                && seen.insert(digest)
            {
                *bytes.entry(segment).or_default() += len + HEADER_BYTES as u64;
            }
        }
        bytes
    }

    /// Drops a segment. Blocks that are pinned are copied forward, and used ones as far as `budget` (in bytes) goes.
    /// False if it must stay, because something pinned in it could not be copied.
    fn drop_segment(&self, segment: &Arc<Segment>, budget: &mut u64) -> bool {
        self.seal(segment);
        let residents = self.index.residents(segment.id);
        for Resident { digest, place, used } in &residents {
            let len = u64::from(place.len) + HEADER_BYTES as u64;
            if self.index.is_pinned(digest, &self.pins) {
                if self.copy_forward(digest, place).is_err() {
                    return false;
                }
            } else if *used && len <= *budget && self.copy_forward(digest, place).is_ok() {
                *budget -= len;
            }
        }
        for Resident { digest, place, .. } in &residents {
            match self.index.remove_unless_pinned(digest, place, &self.pins) {
                Removal::Removed => bump(&self.counters.blocks_dropped),
                Removal::Elsewhere => {}
                // Pinned since the first look.
                Removal::Pinned if self.copy_forward(digest, place).is_err() => return false,
                Removal::Pinned => {}
            }
        }
        self.keep_aliases(segment);
        self.remove_segment(segment);
        bump(&self.counters.segments_dropped);
        true
    }

    /// Writes again those aliases in a segment whose block is in an older one, which stayed because it is pinned. Best
    /// effort: an alias that is lost is missed after the next start only, and the tenant shows the block again.
    fn keep_aliases(&self, segment: &Segment) {
        let is_oldest = lock(&self.segments).keys().next().is_none_or(|oldest| *oldest >= segment.id);
        if is_oldest {
            return;
        }
        let found = scan(&*segment.file, segment.end.load(Relaxed)).found;
        for Found { header, .. } in found.iter().filter(|found| found.header.kind == Kind::Alias) {
            let mut writer = lock(&self.writer);
            let place = self.index.segment_of(header.tenant, &header.digest);
            if place.is_some_and(|(holder, _)| holder < segment.id)
                && let Err(error) = self.append(&mut writer, &[&header.encode()])
            {
                tracing::debug!(%error, "cannot copy an alias forward");
                return;
            }
        }
    }

    /// Sees to it that nothing more is written to a segment.
    fn seal(&self, segment: &Segment) {
        let mut writer = lock(&self.writer);
        if writer.segment.as_ref().is_some_and(|newest| newest.id == segment.id) {
            writer.segment = None;
        }
    }

    /// Writes a block again, with all its tenants, and points the index there. One that cannot be read is forgotten.
    fn copy_forward(&self, digest: &Digest, place: &Place) -> Result<(), StoreError> {
        let Ok(Some(bytes)) = self.read_whole(digest, place) else { return Ok(()) };
        let mut writer = lock(&self.writer);
        // Tenants are only added under the writer's lock, so none is lost here.
        let Some(tenants) = self.index.tenants_at(digest, place) else { return Ok(()) };
        let [first, others @ ..] = tenants.as_slice() else { return Ok(()) };
        let header = Header::block(*first, *digest, bytes.len()).encode();
        let aliases: Vec<u8> = others.iter().flat_map(|other| Header::alias(*other, *digest).encode()).collect();
        let (segment, at) = self.append(&mut writer, &[&header, &bytes, &aliases])?;
        let to = Place { segment, offset: at + HEADER_BYTES as u32, len: place.len, verified: true };
        self.index.relocate(digest, place, to);
        bump(&self.counters.blocks_copied);
        Ok(())
    }
}
