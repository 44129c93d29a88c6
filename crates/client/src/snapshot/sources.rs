//! Where the bytes are that the client has told others of: tables from digests to files, so that no bytes are kept
//! twice.

use super::Stamp;
use super::lru::Lru;
use base::{Digest, TreePath};
use bytes::Bytes;
use std::fs::File;
use std::sync::{Arc, Mutex};
use wire::lock;

/// Blocks whose place is remembered.
const BLOCKS_MAX: usize = 262_144;
/// Lazily bound files that are remembered.
const LAZY_MAX: usize = 65_536;
/// Listings and recipes that are kept as they are, in bytes.
const BLOB_BYTES_MAX: usize = 64 << 20;
/// Bytes of blocks that are kept for a moment: who has just been told of them asks for them next.
const FRESH_BYTES_MAX: usize = 8 << 20;
/// Listings and recipes whose path is remembered, so that they can be made again.
const ORIGINS_MAX: usize = 262_144;
/// Directories whose listing is remembered.
const LISTED_MAX: usize = 4096;
/// Files with the same block that are remembered.
const PLACES_MAX: usize = 3;
/// Files that are held open: well below what a process may open by default.
const HELD_MAX: usize = 128;

/// Part of a file. Whether it still holds the block is for the hash to say.
#[derive(Clone, Debug)]
pub(crate) struct BlockPlace {
    pub path: TreePath,
    pub offset: u64,
    pub len: u32,
}

/// The tables.
#[derive(Debug)]
pub(crate) struct Sources {
    blocks: Mutex<Lru<Digest, Vec<BlockPlace>>>,
    lazy: Mutex<Lru<Digest, (TreePath, Stamp)>>,
    blobs: Mutex<Lru<Digest, Bytes>>,
    fresh: Mutex<Lru<Digest, Bytes>>,
    origins: Mutex<Lru<Digest, TreePath>>,
    listed: Mutex<Lru<TreePath, (Stamp, Digest)>>,
    kept_back: Mutex<Lru<Digest, Vec<TreePath>>>,
    held: Mutex<Lru<Digest, Arc<File>>>,
}

impl Sources {
    pub fn new() -> Self {
        Self {
            blocks: Mutex::new(Lru::new(BLOCKS_MAX)),
            lazy: Mutex::new(Lru::new(LAZY_MAX)),
            blobs: Mutex::new(Lru::new(BLOB_BYTES_MAX)),
            fresh: Mutex::new(Lru::new(FRESH_BYTES_MAX)),
            origins: Mutex::new(Lru::new(ORIGINS_MAX)),
            listed: Mutex::new(Lru::new(LISTED_MAX)),
            kept_back: Mutex::new(Lru::new(LAZY_MAX)),
            held: Mutex::new(Lru::new(HELD_MAX)),
        }
    }

    /// Remembers where blocks of a file are.
    pub fn add_blocks(&self, path: &TreePath, blocks: &[(Digest, u64, u32)]) {
        let mut table = lock(&self.blocks);
        for (digest, offset, len) in blocks {
            let place = BlockPlace { path: path.clone(), offset: *offset, len: *len };
            match table.get(digest) {
                Some(places) => {
                    places.retain(|other| other.path != *path);
                    places.truncate(PLACES_MAX - 1);
                    places.insert(0, place);
                }
                None => table.insert(*digest, vec![place], 1),
            }
        }
    }

    /// Where a block is, the latest place first.
    pub fn blocks(&self, digest: &Digest) -> Vec<BlockPlace> {
        lock(&self.blocks).get(digest).cloned().unwrap_or_default()
    }

    /// Remembers which file in which state a stamp's digest stands for.
    pub fn add_lazy(&self, digest: Digest, path: &TreePath, stamp: Stamp) {
        lock(&self.lazy).insert(digest, (path.clone(), stamp), 1);
    }

    /// The file and state that a stamp's digest stands for.
    pub fn lazy(&self, digest: &Digest) -> Option<(TreePath, Stamp)> {
        lock(&self.lazy).get(digest).cloned()
    }

    /// Remembers which file it is whose contents stay here, by the name that others were told.
    pub fn add_kept_back(&self, name: Digest, path: &TreePath) {
        let mut table = lock(&self.kept_back);
        match table.get(&name) {
            Some(paths) => {
                paths.retain(|other| other != path);
                paths.truncate(PLACES_MAX - 1);
                paths.insert(0, path.clone());
            }
            None => table.insert(name, vec![path.clone()], 1),
        }
    }

    /// The paths of the file whose contents stay here under this name, the latest first; none: there is no such file.
    pub fn kept_back(&self, name: &Digest) -> Vec<TreePath> {
        lock(&self.kept_back).get(name).cloned().unwrap_or_default()
    }

    /// Keeps a lazily bound file open once a task reads it: what has its name later is another file, here as there.
    pub fn hold(&self, stamp: Digest, file: Arc<File>) {
        lock(&self.held).insert(stamp, file, 1);
    }

    /// The file that was bound with this stamp, if it is held open.
    pub fn held(&self, stamp: &Digest) -> Option<Arc<File>> {
        lock(&self.held).get(stamp).cloned()
    }

    /// Keeps a block that was just read and hashed.
    pub fn add_fresh(&self, digest: Digest, block: Bytes) {
        let len = block.len();
        lock(&self.fresh).insert(digest, block, len);
    }

    /// Closes all that is held open, and drops the blocks that are kept for a moment.
    pub fn let_go(&self) {
        *lock(&self.held) = Lru::new(HELD_MAX);
        *lock(&self.fresh) = Lru::new(FRESH_BYTES_MAX);
    }

    /// Keeps a listing or recipe, and the path it is of.
    pub fn add_blob(&self, digest: Digest, path: &TreePath, bytes: impl FnOnce() -> Vec<u8>) {
        lock(&self.origins).insert(digest, path.clone(), 1);
        let mut blobs = lock(&self.blobs);
        if blobs.get(&digest).is_none() {
            let bytes = Bytes::from(bytes());
            let weight = bytes.len() + 128;
            blobs.insert(digest, bytes, weight);
        }
    }

    /// Remembers what the listing of a directory in this state is called. The caller knows that a later change would show in the stamp.
    pub fn add_listing(&self, path: &TreePath, stamp: Stamp, listing: Digest) {
        lock(&self.listed).insert(path.clone(), (stamp, listing), 1);
    }

    /// What the listing of a directory in this state is called, if it is kept.
    pub fn listing(&self, path: &TreePath, stamp: &Stamp) -> Option<Digest> {
        let listing = lock(&self.listed).get(path).filter(|(known, _)| known == stamp).map(|(_, listing)| *listing)?;
        lock(&self.blobs).get(&listing).is_some().then_some(listing)
    }

    /// A listing, recipe or block that is kept.
    pub fn blob(&self, digest: &Digest) -> Option<Bytes> {
        let kept = lock(&self.blobs).get(digest).cloned();
        // In the order in which they came, for blocks of one file share its memory: it is free when the last of them goes.
        kept.or_else(|| lock(&self.fresh).peek(digest).cloned())
    }

    /// The path that a listing or recipe is of.
    pub fn origin(&self, digest: &Digest) -> Option<TreePath> {
        lock(&self.origins).get(digest).cloned()
    }

    /// Forgets a kept listing or recipe, not where it was from.
    #[cfg(test)]
    pub fn forget_blob(&self, digest: &Digest) {
        lock(&self.blobs).remove(digest);
    }
}
