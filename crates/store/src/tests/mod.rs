//! Tests of the store as a whole, with a disk that can be made faulty.

mod damage;
mod eviction;
mod faults;
mod files;
mod model;
mod system;
mod threads;

use crate::disk::{Access, Disk, DiskFile, RealDisk};
use crate::record::Header;
use crate::{BlockStore, Options, lock};
use base::{Digest, Tenant};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

pub(crate) const A: Tenant = Tenant(1);
pub(crate) const B: Tenant = Tenant(2);

/// Bytes without repetition, the same for the same seed.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Puts a block of 500 bytes.
pub(crate) fn put(store: &BlockStore, seed: u64) -> Digest {
    store.put(A, &noise(seed, 500)).unwrap()
}

/// Puts blocks of 500 bytes.
pub(crate) fn put_all(store: &BlockStore, seeds: std::ops::Range<u64>) -> Vec<Digest> {
    seeds.map(|seed| put(store, seed)).collect()
}

/// Options with a small bound; a segment takes an eighth of it at most.
pub(crate) fn small(bytes_max: u64) -> Options {
    Options { bytes_max, segment_bytes: bytes_max, ..Options::default() }
}

/// The segment files of a store, oldest first, with their lengths.
pub(crate) fn segment_files(dir: &Path) -> Vec<(PathBuf, u64)> {
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("seg-"))
        .map(|path| (path.clone(), std::fs::metadata(&path).unwrap().len()))
        .collect();
    files.sort();
    files
}

/// What a faulty disk does wrong.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// How many more bytes have room; removed files and cut tails give theirs back.
    pub room: Option<u64>,
    /// The next write stops after this many bytes, and then fails.
    pub fail_write_after: Option<usize>,
    /// Most bytes that one write takes.
    pub write_bytes_max: Option<usize>,
    pub fail_truncate: bool,
    pub fail_reads: bool,
    pub fail_create: bool,
    pub fail_remove: bool,
}

/// The real disk with faults.
#[derive(Clone, Default)]
pub(crate) struct FaultyDisk(pub Arc<Mutex<Faults>>);

struct FaultyFile(Box<dyn DiskFile>, Arc<Mutex<Faults>>);

impl FaultyDisk {
    pub fn set(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut lock(&self.0));
    }

    pub fn open(&self, dir: &Path, options: Options) -> BlockStore {
        BlockStore::open_on(Arc::new(self.clone()), dir, options).unwrap()
    }
}

fn eio() -> io::Error {
    Errno::IO.into()
}

impl Disk for FaultyDisk {
    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        RealDisk.list(dir)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        if access == Access::Create && lock(&self.0).fail_create {
            return Err(eio());
        }
        Ok(Box::new(FaultyFile(RealDisk.open(path, access)?, self.0.clone())))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut faults = lock(&self.0);
        if faults.fail_remove {
            return Err(eio());
        }
        if let Some(room) = &mut faults.room {
            *room += std::fs::metadata(path)?.len();
        }
        RealDisk.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn sync_names(&self, dir: &Path) -> io::Result<()> {
        RealDisk.sync_names(dir)
    }
}

impl DiskFile for FaultyFile {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        if lock(&self.1).fail_reads { Err(eio()) } else { self.0.read_at(buf, offset) }
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let mut faults = lock(&self.1);
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let mut count = bytes.len().min(faults.write_bytes_max.unwrap_or(usize::MAX));
        if let Some(after) = &mut faults.fail_write_after {
            count = count.min(*after);
            *after -= count;
            if count == 0 {
                faults.fail_write_after = None;
                return Err(eio());
            }
        }
        if let Some(room) = &mut faults.room {
            count = count.min(*room as usize);
            *room -= count as u64;
            if count == 0 {
                return Err(Errno::NOSPC.into());
            }
        }
        assert_eq!(self.0.write_at(&[IoSlice::new(&bytes[..count])], offset)?, count);
        Ok(count)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        let mut faults = lock(&self.1);
        if faults.fail_truncate {
            return Err(eio());
        }
        let cut = self.0.len()?.saturating_sub(len);
        if let Some(room) = &mut faults.room {
            *room += cut;
        }
        self.0.truncate(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

#[test]
fn blocks_are_seen_by_the_tenants_that_have_shown_them() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("a/b");
    let store = BlockStore::open(&dir, Options::default()).unwrap();
    let digest = store.put(A, b"gleaner").unwrap();
    assert_eq!(digest, Digest::of(b"gleaner"));
    assert_eq!(store.get(A, &digest).unwrap().unwrap(), b"gleaner");
    assert_eq!(store.get(B, &digest).unwrap(), None);
    assert_eq!(store.read_at(B, &digest, 0, &mut [0; 9]).unwrap(), None);
    assert_eq!((store.len(B, &digest), store.contains(B, &digest)), (None, false));

    store.put_named(B, digest, b"gleaner").unwrap();
    let len = segment_files(&dir)[0].1;
    assert_eq!(len, 56 + 7 + 56, "the second tenant's entry takes a header and no bytes");
    store.put_named(B, digest, b"gleaner").unwrap();
    store.put(A, b"gleaner").unwrap();
    assert_eq!(segment_files(&dir)[0].1, len);
    assert_eq!((store.stats().entries, store.stats().blocks, store.stats().blocks_shared), (2, 1, 1));
    drop(store);
    let headers = [Header::block(A, digest, 7).encode(), Header::alias(B, digest).encode()];
    let golden = [&headers[0][..], b"gleaner", &headers[1][..]].concat();
    assert_eq!(std::fs::read(&segment_files(&dir)[0].0).unwrap(), golden);

    let store = BlockStore::open(&dir, Options::default()).unwrap();
    for tenant in [A, B] {
        let mut buf = [0; 4];
        assert_eq!(store.read_at(tenant, &digest, 5, &mut buf).unwrap(), Some(2));
        assert_eq!(&buf[..2], b"er");
        assert_eq!(store.read_at(tenant, &digest, 7, &mut buf).unwrap(), Some(0));
        assert_eq!(store.read_at(tenant, &digest, u64::MAX, &mut buf).unwrap(), Some(0));
        assert_eq!(store.len(tenant, &digest), Some(7));
    }
    assert!(!store.contains(Tenant(3), &digest));
}

#[test]
fn bytes_under_a_name_that_is_not_theirs_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = BlockStore::open(folder.path(), Options::default()).unwrap();
    let error = store.put_named(A, Digest::of(b"x"), b"y").unwrap_err();
    assert!(matches!(error, crate::StoreError::WrongDigest { .. }), "{error}");
    assert!(!store.contains(A, &Digest::of(b"x")) && !store.contains(A, &Digest::of(b"y")));
}

#[test]
fn the_largest_blob_fits_and_one_byte_more_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let store = BlockStore::open(folder.path(), Options::default()).unwrap();
    let mut blob = vec![7; base::BLOB_BYTES_MAX];
    let digest = store.put(A, &blob).unwrap();
    let empty = store.put(A, b"").unwrap();
    blob.push(7);
    assert!(matches!(store.put(A, &blob), Err(crate::StoreError::TooLarge { .. })));
    drop(store);
    let store = BlockStore::open(folder.path(), Options::default()).unwrap();
    assert_eq!(store.get(A, &digest).unwrap().unwrap(), blob[1..]);
    assert_eq!(store.get(A, &empty).unwrap().unwrap(), b"");
    assert_eq!(store.read_at(A, &empty, 0, &mut [0; 3]).unwrap(), Some(0));
}

#[test]
fn a_store_is_opened_once_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let store = BlockStore::open(folder.path(), Options::default()).unwrap();
    let error = BlockStore::open(folder.path(), Options::default()).unwrap_err();
    assert!(matches!(error, crate::StoreError::Locked { .. }));
    assert!(error.to_string().contains(folder.path().to_str().unwrap()), "{error}");
    drop(store);
    BlockStore::open(folder.path(), Options::default()).unwrap();
}
