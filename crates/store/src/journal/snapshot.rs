//! Snapshots: a state of the core in a file of its own, in chunks with checksums. A file gets its name only once it is
//! durable; the newest two are kept, so that a damaged one is no loss.

use super::folder::Folder;
use super::format::{
    CHUNK_BYTES_MAX, CHUNK_HEADER_BYTES, Decoded, Identity, Key, SNAPSHOT_HEADER_BYTES, SnapshotHeader, VERSION,
    chunk_is_whole, chunk_len, seal_chunk,
};
use super::shared::Shared;
use super::{JournalError, Seq};
use crate::disk::{Access, DiskFile, read_exact_at, write_all_at};
use crate::intake::{SNAPSHOTS_KEPT, Source};
use crate::lock;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

/// How much is written before it is synced, in bytes: commits wait behind it on the disk.
const STEP_BYTES: usize = 1 << 20;

/// A snapshot, to be read. What is read was compared with its checksum; a disk that has changed since is an error.
pub struct Snapshot {
    /// The last record that it holds.
    pub seq: Seq,
    /// The version of the core that wrote it.
    pub logic_version: u32,
    /// The epoch in which it was written.
    pub epoch: u64,
    path: PathBuf,
    file: Box<dyn DiskFile>,
    key: Key,
    /// Where the next chunk is.
    at: u64,
    /// Its number.
    number: u64,
    chunk: Vec<u8>,
    /// How much of the chunk was taken.
    taken: usize,
    is_at_end: bool,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("seq", &self.seq).field("path", &self.path).finish_non_exhaustive()
    }
}

impl Snapshot {
    /// Opens a snapshot; its chunks are not looked at yet.
    pub(crate) fn open(folder: &Folder, identity: &Identity, seq: u64) -> Result<Self, JournalError> {
        Self::open_at(folder, folder.snapshot_path(seq), identity, seq)
    }

    /// The same for one that has not got its name yet.
    pub(crate) fn open_at(folder: &Folder, path: PathBuf, identity: &Identity, seq: u64) -> Result<Self, JournalError> {
        let file = folder.open(&path, Access::Read)?;
        let mut bytes = [0; SNAPSHOT_HEADER_BYTES];
        let header = match read_exact_at(&*file, &mut bytes, 0) {
            Ok(()) => SnapshotHeader::decode(&bytes),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Decoded::Broken,
            Err(error) => return Err(JournalError::io("read", &path, error)),
        };
        let header = match header {
            Decoded::Whole(header) if header.identity == *identity && header.seq == seq => header,
            Decoded::Newer(found) => return Err(JournalError::Newer { path, found, known: VERSION }),
            _ => return Err(JournalError::damaged(&path, 0, "the header of the snapshot is not whole")),
        };
        let SnapshotHeader { logic_version, epoch, .. } = header;
        let (key, at) = (identity.snapshot_key(seq), SNAPSHOT_HEADER_BYTES as u64);
        let chunk = vec![0; CHUNK_HEADER_BYTES];
        let taken = CHUNK_HEADER_BYTES;
        Ok(Self { seq: Seq(seq), logic_version, epoch, path, file, key, at, number: 0, chunk, taken, is_at_end: false })
    }

    /// Opens a snapshot once all of it was compared with its checksums.
    pub(crate) fn open_whole(folder: &Folder, identity: &Identity, seq: u64) -> Result<Self, JournalError> {
        Self::open(folder, identity, seq)?.whole()
    }

    /// The same snapshot at its beginning, once all of it was compared with its checksums.
    pub(crate) fn whole(mut self) -> Result<Self, JournalError> {
        while !self.is_at_end {
            self.next_chunk()?;
        }
        let (at, chunk) = (SNAPSHOT_HEADER_BYTES as u64, vec![0; CHUNK_HEADER_BYTES]);
        Ok(Self { at, number: 0, chunk, taken: CHUNK_HEADER_BYTES, is_at_end: false, ..self })
    }

    fn next_chunk(&mut self) -> Result<(), JournalError> {
        let damaged = |at, what| JournalError::damaged(&self.path, at, what);
        let failed = |error: io::Error, at| match error.kind() {
            io::ErrorKind::UnexpectedEof => JournalError::damaged(&self.path, at, "the snapshot ends too early"),
            _ => JournalError::io("read", &self.path, error),
        };
        let mut header = [0; CHUNK_HEADER_BYTES];
        read_exact_at(&*self.file, &mut header, self.at).map_err(|error| failed(error, self.at))?;
        let len = chunk_len(&header).ok_or_else(|| damaged(self.at, "the length of a chunk cannot be"))?;
        self.chunk.resize(CHUNK_HEADER_BYTES + len, 0);
        read_exact_at(&*self.file, &mut self.chunk, self.at).map_err(|error| failed(error, self.at))?;
        if !chunk_is_whole(&self.chunk, &self.key, self.number) {
            return Err(damaged(self.at, "a chunk of the snapshot is not whole"));
        }
        let end = self.at + self.chunk.len() as u64;
        if len == 0 && self.file.len().map_err(|error| failed(error, self.at))? != end {
            return Err(damaged(end, "the snapshot goes on behind its end"));
        }
        (self.at, self.is_at_end) = (end, len == 0);
        self.number += 1;
        self.taken = CHUNK_HEADER_BYTES;
        Ok(())
    }
}

impl io::Read for Snapshot {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.chunk.len() && !self.is_at_end {
            self.next_chunk().map_err(io::Error::other)?;
        }
        let rest = &self.chunk[self.taken..];
        let count = rest.len().min(buf.len());
        buf[..count].copy_from_slice(&rest[..count]);
        self.taken += count;
        Ok(count)
    }
}

/// Writes a snapshot's file.
struct SnapshotWriter<'a> {
    file: &'a dyn DiskFile,
    key: Key,
    at: u64,
    number: u64,
    /// Room for a chunk's header, and its bytes.
    chunk: Vec<u8>,
    unsynced: usize,
}

impl SnapshotWriter<'_> {
    fn put_chunk(&mut self) -> io::Result<()> {
        seal_chunk(&mut self.chunk, &self.key, self.number);
        write_all_at(self.file, &[&self.chunk], self.at)?;
        self.at += self.chunk.len() as u64;
        self.number += 1;
        self.unsynced += self.chunk.len();
        self.chunk.truncate(CHUNK_HEADER_BYTES);
        if self.unsynced >= STEP_BYTES {
            self.unsynced = 0;
            self.file.sync()?;
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<u64> {
        if self.chunk.len() > CHUNK_HEADER_BYTES {
            self.put_chunk()?;
        }
        self.put_chunk()?;
        self.file.sync()?;
        Ok(self.at)
    }
}

impl io::Write for SnapshotWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = CHUNK_HEADER_BYTES + CHUNK_BYTES_MAX - self.chunk.len();
        let count = room.min(bytes.len());
        self.chunk.extend_from_slice(&bytes[..count]);
        if count == room {
            self.put_chunk()?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    /// Writes a snapshot, and removes those before the newest two.
    pub fn write_snapshot(&self, seq: Seq, logic_version: u32, source: Source<'_>) -> Result<(), JournalError> {
        let newest = || lock(&self.files).snapshots.back().map_or(0, |(seq, _)| *seq);
        let _one = self.intake.begin_snapshot(seq, newest)?;
        let epoch = self.intake.epoch();
        let unfinished = self.folder.unfinished_path("snapshot");
        let header = SnapshotHeader { logic_version, identity: self.identity, seq: seq.0, epoch };
        let bytes = self.folder.fill_snapshot(&unfinished, &header, source).inspect_err(|_| {
            // What cannot be removed now is removed by the next snapshot or start.
            let _ = self.folder.remove(&unfinished);
        })?;
        let named = self.folder.rename(&unfinished, &self.folder.snapshot_path(seq.0));
        self.intake.fatal(named.and_then(|()| self.folder.sync_names()))?;
        self.intake.bytes.fetch_add(bytes, Relaxed);
        let mut files = lock(&self.files);
        files.snapshots.push_back((seq.0, bytes));
        while files.snapshots.len() > SNAPSHOTS_KEPT {
            let (oldest, bytes) = files.snapshots[0];
            self.folder.remove(&self.folder.snapshot_path(oldest))?;
            files.snapshots.pop_front();
            self.intake.bytes.fetch_sub(bytes, Relaxed);
        }
        Ok(())
    }
}

impl Folder {
    /// Writes all of a snapshot and syncs it; says how long it is.
    pub fn fill_snapshot(&self, path: &Path, header: &SnapshotHeader, source: Source<'_>) -> Result<u64, JournalError> {
        // One that an earlier failure has left.
        match self.disk.remove(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(JournalError::io("remove", path, error)),
        }
        let file = self.open(path, Access::Create)?;
        let key = header.identity.snapshot_key(header.seq);
        let (at, chunk) = (SNAPSHOT_HEADER_BYTES as u64, vec![0; CHUNK_HEADER_BYTES]);
        let mut writer = SnapshotWriter { file: &*file, key, at, number: 0, chunk, unsynced: 0 };
        write_all_at(&*file, &[&header.encode()], 0)
            .and_then(|()| source(&mut writer))
            .and_then(|()| writer.finish())
            .map_err(|error| JournalError::io("write", path, error))
    }
}
