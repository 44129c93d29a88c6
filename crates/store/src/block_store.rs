//! The block store: opening, writing and reading. Making room is in `evict`.
//!
//! Blocks are appended to the newest segment file under one lock; the index is told only after the bytes are written,
//! so it never names bytes that are not there. Nothing is synced: after a power failure a record may have lost its
//! bytes, so a block that was written before the store was opened is compared with its digest when it is first read.
//!
//! Locks, in the order in which they are taken: `evicting`, `writer`, a shard of the index, the pins. `segments` is
//! taken last and alone. Reads take one shard, shared, and let go of it before any I/O.

use crate::disk::{Access, Disk, RealDisk, read_exact_at, write_all_at};
use crate::error::{StoreError, is_no_room};
use crate::folder_lock::FolderLock;
use crate::index::{Index, Place, Shown};
use crate::lock;
use crate::options::{Counters, Options, Stats, bump};
use crate::pins::{Pin, Pins};
use crate::recent::Recent;
use crate::record::{HEADER_BYTES, Header, Kind};
use crate::segment::{Found, Segment, scan, segment_id, segment_path, verify_tail};
use base::{BLOB_BYTES_MAX, Digest, Tenant};
use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::io;
use std::ops::Range;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// A place in the order in which bytes are appended to a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    segment: u32,
    at: u64,
}

impl Mark {
    /// The part of a segment that comes after it, in bytes from the segment's start.
    fn in_segment(self, segment: &Segment) -> Range<u64> {
        let end = segment.end.load(Relaxed);
        let start = if segment.id == self.segment { self.at.min(end) } else { 0 };
        start..end
    }
}

/// A part of one of a store's files. Another thread may remove the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The file.
    pub path: PathBuf,
    /// Bytes from its start.
    pub bytes: Range<u64>,
    segment: u32,
}

impl Stretch {
    /// The place before its file's byte `at`.
    pub fn mark(&self, at: u64) -> Mark {
        Mark { segment: self.segment, at }
    }
}

/// A bounded cache of blocks on disk, by tenant and digest. Shared by many threads; no method needs more than `&self`.
///
/// Reading takes microseconds where the page cache has the bytes: 5 us for 4 KiB, comparing them with their name included. Writing does too (8 us for 4 KiB,
/// hashing included), except when old blocks must make room: that copies up to a segment, for a fraction of a second.
/// Opening takes 2 us for each block (all measured as in [`crate::chunk`]).
pub struct BlockStore {
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) index: Index,
    /// By number, so by age.
    pub(crate) segments: Mutex<BTreeMap<u32, Arc<Segment>>>,
    /// Length of all segments.
    pub(crate) bytes: AtomicU64,
    pub(crate) writer: Mutex<Writer>,
    /// Held by the one thread that makes room.
    pub(crate) evicting: Mutex<()>,
    pub(crate) pins: Arc<Pins>,
    pub(crate) counters: Counters,
    recent: Recent,
    /// The count of changes (see `make_room`) at which no room could be made; 0 if it always could.
    pub(crate) full_at: AtomicU64,
    /// Held, so that no other process opens the store.
    _lock: FolderLock,
}

/// Where the next record goes.
#[derive(Debug)]
pub(crate) struct Writer {
    /// The newest segment; `None` if the next record starts one.
    pub segment: Option<Arc<Segment>>,
    next_id: u32,
}

impl std::fmt::Debug for BlockStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockStore").field("dir", &self.dir).field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl BlockStore {
    /// Opens the store in `dir`, creating the folder (for its owner only) if need be. Reads the headers of all records.
    ///
    /// # Errors
    /// [`StoreError::Locked`] if another process has it open; [`StoreError::Io`] if the folder cannot be used. Damaged
    /// records are no error: they are forgotten.
    pub fn open(dir: &Path, options: Options) -> Result<Self, StoreError> {
        Self::open_on(Arc::new(RealDisk), dir, options)
    }

    pub(crate) fn open_on(disk: Arc<dyn Disk>, dir: &Path, options: Options) -> Result<Self, StoreError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(|error| StoreError::io("create the folder", dir, error))?;
        let lock = FolderLock::take(dir)
            .map_err(|error| StoreError::io("lock", dir.join("lock"), error))?
            .ok_or_else(|| StoreError::Locked { dir: dir.to_owned() })?;
        let mut store = Self {
            dir: dir.to_owned(),
            options: options.bounded(),
            disk,
            index: Index::default(),
            segments: Mutex::default(),
            bytes: AtomicU64::new(0),
            writer: Mutex::new(Writer { segment: None, next_id: 1 }),
            evicting: Mutex::default(),
            pins: Arc::default(),
            counters: Counters::default(),
            recent: Recent::default(),
            full_at: AtomicU64::new(0),
            _lock: lock,
        };
        store.load()?;
        // The bounds may have shrunk since. Nothing is pinned yet, so there is always something to drop.
        store.make_room(0)?;
        Ok(store)
    }

    /// Names this store: another one has another name, and so has this one after its folder was removed.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the name cannot be read or kept.
    pub fn identity(&self) -> Result<[u8; 16], StoreError> {
        let path = self.dir.join("identity");
        let failed = |what| move |path: &Path, error| StoreError::io(what, path, error);
        match std::fs::read(&path) {
            Ok(bytes) if bytes.len() == 16 => return Ok(bytes.try_into().expect("it has 16 bytes")),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("read")(&path, error)),
        }
        let mut fresh = [0; 16];
        std::fs::File::open("/dev/urandom")
            .and_then(|mut random| io::Read::read_exact(&mut random, &mut fresh))
            .and_then(|()| std::fs::write(&path, fresh))
            .map_err(|error| failed("write")(&path, error))?;
        Ok(fresh)
    }

    /// Reads all segments that are in the folder.
    fn load(&mut self) -> Result<(), StoreError> {
        let names = self.disk.list(&self.dir).map_err(|error| StoreError::io("list", &self.dir, error))?;
        let mut ids: Vec<u32> = names.iter().filter_map(|name| segment_id(name)).collect();
        ids.sort_unstable();
        let last = ids.last().copied();
        for id in ids {
            let path = segment_path(&self.dir, id);
            let open = || -> io::Result<_> {
                let file = self.disk.open(&path, Access::Write)?;
                let len = file.len()?;
                Ok((file, len))
            };
            let (file, len) = open().map_err(|error| StoreError::io("open", &path, error))?;
            let mut scan = scan(&*file, len);
            let mut is_whole = scan.end == len;
            if Some(id) == last {
                verify_tail(&*file, &mut scan);
                is_whole = scan.end == len || (!scan.is_unreadable && file.truncate(scan.end).is_ok());
            }
            if scan.end < len {
                tracing::warn!(segment = %path.display(), scan.end, len, "a segment's end is damaged or unreadable");
            }
            // What cannot be cut off still takes its room.
            let end = if is_whole { scan.end } else { len };
            let segment = Segment::new(id, path, file, end);
            self.adopt(&segment, &scan.found);
            let writer = self.writer.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
            writer.next_id = id.saturating_add(1);
            writer.segment = is_whole.then(|| segment.clone());
            self.bytes.fetch_add(end, Relaxed);
            lock(&self.segments).insert(id, segment);
        }
        Ok(())
    }

    /// Takes the records of a segment into the index. An alias of a block that is not here means nothing.
    fn adopt(&self, segment: &Arc<Segment>, found: &[Found]) {
        for record in found {
            let Header { kind, tenant, digest, len } = record.header;
            // Segments of another program version, longer than this one makes them, are read as far as offsets reach.
            let Ok(offset) = u32::try_from(record.offset) else { break };
            match kind {
                Kind::Block => {
                    let place = Place { segment: segment.clone(), offset, len, verified: record.verified };
                    self.index.insert(tenant, digest, place);
                }
                Kind::Alias => {
                    self.index.add_tenant(tenant, &digest);
                }
            }
        }
    }

    /// Stores bytes that a tenant has shown, and returns their digest. Does nothing if they are there.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`], [`StoreError::Full`], [`StoreError::DiskFull`], [`StoreError::Io`].
    pub fn put(&self, tenant: Tenant, bytes: &[u8]) -> Result<Digest, StoreError> {
        self.check_len(bytes.len())?;
        let digest = Digest::of(bytes);
        self.insert(tenant, digest, bytes)?;
        Ok(digest)
    }

    /// Stores bytes that came under a name, after comparing the two. Does nothing if they are there.
    ///
    /// # Errors
    /// [`StoreError::WrongDigest`] if the name is not theirs; else as [`Self::put`].
    pub fn put_named(&self, tenant: Tenant, digest: Digest, bytes: &[u8]) -> Result<(), StoreError> {
        self.check_len(bytes.len())?;
        let found = Digest::of(bytes);
        if found != digest {
            return Err(StoreError::WrongDigest { named: digest, found });
        }
        self.insert(tenant, digest, bytes)
    }

    /// As [`Self::put_named`], by a caller that has just compared name and bytes, or computed the one from the other.
    ///
    /// # Errors
    /// As for [`Self::put`].
    pub fn put_checked(&self, tenant: Tenant, digest: Digest, bytes: &[u8]) -> Result<(), StoreError> {
        self.check_len(bytes.len())?;
        debug_assert_eq!(Digest::of(bytes), digest, "a block under a wrong name");
        self.insert(tenant, digest, bytes)
    }

    /// The bytes of a block; `None` if the tenant has not shown it, or it is no longer here.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the disk fails; the block is then forgotten.
    pub fn get(&self, tenant: Tenant, digest: &Digest) -> Result<Option<Vec<u8>>, StoreError> {
        let bytes = match self.index.find(tenant, digest) {
            Some(place) => self.read_whole(digest, &place)?,
            None => None,
        };
        bump(if bytes.is_some() { &self.counters.hits } else { &self.counters.misses });
        Ok(bytes)
    }

    /// Reads a block from `offset` into `buf`: returns how many bytes, fewer than `buf` takes only at the block's end;
    /// `None` if the tenant has not shown the block, or it is no longer here.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn read_at(
        &self,
        tenant: Tenant,
        digest: &Digest,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<Option<usize>, StoreError> {
        let count = match self.index.find(tenant, digest) {
            Some(place) => self.read_part(digest, &place, offset, buf)?,
            None => None,
        };
        bump(if count.is_some() { &self.counters.hits } else { &self.counters.misses });
        Ok(count)
    }

    /// Whether a tenant's block is here. Does not count as a use.
    pub fn contains(&self, tenant: Tenant, digest: &Digest) -> bool {
        self.len(tenant, digest).is_some()
    }

    /// Length in bytes of a tenant's block, if it is here. Does not count as a use.
    pub fn len(&self, tenant: Tenant, digest: &Digest) -> Option<u64> {
        self.index.len(tenant, digest)
    }

    /// Keeps blocks from being dropped until the guard is. They need not be here yet. To rely on a block: pin it first,
    /// then see whether it is there.
    pub fn pin(&self, tenant: Tenant, digests: &[Digest]) -> Pin {
        // Looked up before: the lock of the pins is the last one.
        let lens: Vec<u64> = digests.iter().map(|digest| self.len(tenant, digest).unwrap_or_default()).collect();
        self.pins.pin(tenant, digests, &lens)
    }

    /// Bytes of a tenant's blocks that are pinned, each counted once, with 200 more for each.
    pub fn pinned_bytes_of(&self, tenant: Tenant) -> u64 {
        self.pins.bytes_of(tenant)
    }

    /// Most bytes on disk: see [`Options::bytes_max`].
    pub fn bytes_max(&self) -> u64 {
        self.options.bytes_max
    }

    /// What the store holds and has done.
    pub fn stats(&self) -> Stats {
        let counters = &self.counters;
        Stats {
            entries: self.index.entries(),
            blocks: self.index.blocks(),
            segments: lock(&self.segments).len() as u64,
            bytes: self.bytes.load(Relaxed),
            bytes_max: self.options.bytes_max,
            pinned: self.pins.count(),
            hits: counters.hits.load(Relaxed),
            misses: counters.misses.load(Relaxed),
            blocks_written: counters.blocks_written.load(Relaxed),
            blocks_shared: counters.blocks_shared.load(Relaxed),
            segments_dropped: counters.segments_dropped.load(Relaxed),
            blocks_dropped: counters.blocks_dropped.load(Relaxed),
            blocks_copied: counters.blocks_copied.load(Relaxed),
            blocks_damaged: counters.blocks_damaged.load(Relaxed),
        }
    }

    fn check_len(&self, len: usize) -> Result<(), StoreError> {
        let max = (BLOB_BYTES_MAX as u64).min(self.options.bytes_max.saturating_sub(HEADER_BYTES as u64));
        if len as u64 > max {
            return Err(StoreError::TooLarge { len: len as u64, max });
        }
        Ok(())
    }

    /// Stores bytes under their digest.
    fn insert(&self, tenant: Tenant, digest: Digest, bytes: &[u8]) -> Result<(), StoreError> {
        match self.index.shown(tenant, &digest) {
            Shown::ByIt => return Ok(()),
            // Good bytes are at hand: if those on disk are not the same, they are replaced.
            Shown::Unverified(place) => drop(self.read_whole(&digest, &place)),
            Shown::ByOthers | Shown::No => {}
        }
        self.make_room((HEADER_BYTES + bytes.len()) as u64)?;
        let dropped = self.counters.segments_dropped.load(Relaxed);
        match self.append_block(tenant, digest, bytes) {
            Err(StoreError::DiskFull { .. }) => {
                self.free_disk(dropped)?;
                self.append_block(tenant, digest, bytes)
            }
            other => other,
        }
    }

    /// Writes a block, or an alias of it if another tenant has shown it.
    fn append_block(&self, tenant: Tenant, digest: Digest, bytes: &[u8]) -> Result<(), StoreError> {
        let mut writer = lock(&self.writer);
        match self.index.shown(tenant, &digest) {
            Shown::ByIt => return Ok(()),
            Shown::ByOthers => {
                self.append(&mut writer, &[&Header::alias(tenant, digest).encode()])?;
                if self.index.add_tenant(tenant, &digest) {
                    self.pins.arrived(tenant, &digest, bytes.len() as u64);
                    bump(&self.counters.blocks_shared);
                    return Ok(());
                }
                // The block has just been dropped to make room: it is written anew.
            }
            Shown::Unverified(_) | Shown::No => {}
        }
        let header = Header::block(tenant, digest, bytes.len());
        let (segment, at) = self.append(&mut writer, &[&header.encode(), bytes])?;
        let place = Place { segment, offset: at + HEADER_BYTES as u32, len: header.len, verified: true };
        self.index.insert(tenant, digest, place);
        self.pins.arrived(tenant, &digest, bytes.len() as u64);
        bump(&self.counters.blocks_written);
        Ok(())
    }

    /// Writes parts of records one after the other into one segment. Returns where they start.
    pub(crate) fn append(&self, writer: &mut Writer, parts: &[&[u8]]) -> Result<(Arc<Segment>, u32), StoreError> {
        let need: u64 = parts.iter().map(|part| part.len() as u64).sum();
        if let Some(segment) = &writer.segment {
            let end = segment.end.load(Relaxed);
            if end > 0 && end + need > self.options.segment_bytes {
                writer.segment = None;
            }
        }
        let segment = match &writer.segment {
            Some(segment) => segment.clone(),
            None => self.start_segment(writer)?,
        };
        let end = segment.end.load(Relaxed);
        if let Err(error) = write_all_at(&*segment.file, parts, end) {
            // The next record must not follow a torn one: if that cannot be cut off, it goes into another segment.
            if let Err(error) = segment.file.truncate(end) {
                tracing::warn!(segment = %segment.path.display(), %error, "cannot cut off a torn record");
                writer.segment = None;
                if end == 0 {
                    self.remove_segment(&segment);
                }
            }
            return Err(self.write_error("write to", &segment.path, error));
        }
        segment.end.store(end + need, Relaxed);
        self.bytes.fetch_add(need, Relaxed);
        let at = u32::try_from(end).expect("a segment starts no record beyond 2 GiB");
        Ok((segment, at))
    }

    fn start_segment(&self, writer: &mut Writer) -> Result<Arc<Segment>, StoreError> {
        let id = writer.next_id;
        let path = segment_path(&self.dir, id);
        let file = self.disk.open(&path, Access::Create).map_err(|error| self.write_error("create", &path, error))?;
        let segment = Segment::new(id, path, file, 0);
        writer.next_id = id.checked_add(1).expect("four thousand million segments were never written");
        writer.segment = Some(segment.clone());
        lock(&self.segments).insert(id, segment.clone());
        Ok(segment)
    }

    /// Behind the last byte that was appended so far.
    pub fn mark(&self) -> Mark {
        let segments = lock(&self.segments);
        let last = segments.values().next_back();
        last.map_or(Mark::default(), |last| Mark { segment: last.id, at: last.end.load(Relaxed) })
    }

    /// What was appended after `mark` and had not to make room again, the oldest first.
    pub fn appended(&self, mark: Mark) -> Vec<Stretch> {
        let segments = lock(&self.segments);
        let after = segments.range(mark.segment..).map(|(_, segment)| {
            let bytes = mark.in_segment(segment);
            Stretch { path: segment.path.clone(), bytes, segment: segment.id }
        });
        after.filter(|stretch| !stretch.bytes.is_empty()).collect()
    }

    /// How much that is, in bytes.
    pub fn appended_bytes(&self, mark: Mark) -> u64 {
        let segments = lock(&self.segments);
        segments
            .range(mark.segment..)
            .map(|(_, segment)| mark.in_segment(segment))
            .map(|part| part.end - part.start)
            .sum()
    }

    /// Takes a segment that no block is in out of the store. A reader that has it open may still finish.
    pub(crate) fn remove_segment(&self, segment: &Segment) {
        if lock(&self.segments).remove(&segment.id).is_some() {
            self.bytes.fetch_sub(segment.end.load(Relaxed), Relaxed);
        }
        match self.disk.remove(&segment.path) {
            Ok(()) => segment.set_removed(),
            Err(error) => {
                tracing::warn!(segment = %segment.path.display(), %error, "cannot remove an old segment");
            }
        }
    }

    fn write_error(&self, doing: &'static str, path: &Path, error: io::Error) -> StoreError {
        match is_no_room(&error) {
            true => StoreError::DiskFull { dir: self.dir.clone() },
            false => StoreError::io(doing, path, error),
        }
    }

    /// Reads a block, and compares it with its digest: disks flip bits also while a store is open. `None` if it is damaged.
    pub(crate) fn read_whole(&self, digest: &Digest, place: &Place) -> Result<Option<Vec<u8>>, StoreError> {
        let mut bytes = vec![0; place.len as usize];
        if !self.read_place(digest, place, 0, &mut bytes)? {
            return Ok(None);
        }
        if Digest::of(&bytes) != *digest {
            self.forget(digest, place, "its bytes have another hash");
            return Ok(None);
        }
        if !place.verified {
            self.index.verify(digest, place);
        }
        Ok(Some(bytes))
    }

    fn read_part(
        &self,
        digest: &Digest,
        place: &Place,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<Option<usize>, StoreError> {
        let rest = u64::from(place.len).saturating_sub(offset);
        let count = buf.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
        if count == 0 {
            return Ok(Some(0));
        }
        let bytes = match self.recent.find(digest) {
            Some(bytes) => bytes,
            None => {
                let Some(bytes) = self.read_whole(digest, place)? else { return Ok(None) };
                let bytes = Arc::new(bytes);
                if offset + (count as u64) < bytes.len() as u64 {
                    self.recent.note(*digest, bytes.clone());
                }
                bytes
            }
        };
        let Some(part) = bytes.get(offset as usize..offset as usize + count) else { return Ok(None) };
        buf[..count].copy_from_slice(part);
        Ok(Some(count))
    }

    /// Reads from a place, without any lock. False if the segment ends before: then the block is forgotten, as it is
    /// when the disk fails, so that it can be had again from elsewhere.
    fn read_place(&self, digest: &Digest, place: &Place, offset: u64, buf: &mut [u8]) -> Result<bool, StoreError> {
        match read_exact_at(&*place.segment.file, buf, u64::from(place.offset) + offset) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.forget(digest, place, "its segment was cut short");
                Ok(false)
            }
            Err(error) => {
                self.forget(digest, place, "the disk cannot read it");
                Err(StoreError::io("read", &place.segment.path, error))
            }
        }
    }

    fn forget(&self, digest: &Digest, place: &Place, why: &str) {
        tracing::warn!(block = ?digest, segment = %place.segment.path.display(), why, "forgot a damaged block");
        bump(&self.counters.blocks_damaged);
        self.index.forget(digest, place);
    }
}
