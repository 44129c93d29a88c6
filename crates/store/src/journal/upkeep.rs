//! A journal that no hub has open, held so that none opens it meanwhile: a snapshot of all can be put into it, also in the place of one
//! that holds the same records in another format, and what is older can be removed.
//!
//! A snapshot gets its name once it is durable and was read back. So at every moment the journal is what it was, or what it is to be.

use super::folder::Folder;
use super::format::{Identity, SnapshotHeader};
use super::recover::{self, Start};
use super::shared::Files;
use super::snapshot::Snapshot;
use super::{JournalError, Options, Recovered, Seq};
use crate::disk::{Access, Disk, RealDisk};
use crate::folder_lock::FolderLock;
use crate::intake::Source;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A journal that is held for upkeep.
pub struct Upkeep {
    folder: Folder,
    identity: Identity,
    /// The highest that a snapshot or a segment in use has; a batch that has a higher one is kept.
    epoch: u64,
    last: Seq,
    files: Files,
    bytes_found: u64,
    _lock: FolderLock,
}

impl std::fmt::Debug for Upkeep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upkeep").field("folder", &self.folder.path).finish_non_exhaustive()
    }
}

impl Upkeep {
    /// Holds the journal in `folder`, and gives what is in it. What a hub's start would mend is mended.
    ///
    /// # Errors
    /// [`JournalError::Locked`] if a hub has it open; [`JournalError::Io`] if it is not there; else as
    /// [`Journal::open`](super::Journal::open).
    pub fn open(folder: &Path) -> Result<(Self, Recovered), JournalError> {
        Self::open_on(Arc::new(RealDisk), folder)
    }

    pub(crate) fn open_on(disk: Arc<dyn Disk>, path: &Path) -> Result<(Self, Recovered), JournalError> {
        let held = FolderLock::take(path)
            .map_err(|error| JournalError::io("lock", &path.join("lock"), error))?
            .ok_or_else(|| JournalError::Locked { folder: path.to_owned() })?;
        let folder = Folder { disk, path: path.to_owned() };
        let bytes_found = folder.bytes()?;
        // No epoch is too late to look after a journal.
        let options = Options { epoch: u64::MAX, ..Options::default() }.bounded();
        let Start { identity, files, recovered, .. } = recover::start(&folder, &options)?;
        let epochs = recovered.snapshot.iter().map(|snapshot| snapshot.epoch);
        let epoch = epochs.chain(files.used.back().map(|segment| segment.epoch)).max().unwrap_or(0);
        Ok((Self { folder, identity, epoch, last: recovered.last, files, bytes_found, _lock: held }, recovered))
    }

    /// Bytes of all files, as they were found, and as they are.
    ///
    /// # Errors
    /// [`JournalError::Io`].
    pub fn bytes(&self) -> Result<(u64, u64), JournalError> {
        Ok((self.bytes_found, self.folder.bytes()?))
    }

    /// Writes a snapshot of the state after the last record, in the place of one that holds as much if there is one. `check` is given what
    /// was written, to be read; should it refuse it, all stays as it was.
    ///
    /// # Errors
    /// [`JournalError::Io`] and [`JournalError::NoRoom`].
    pub fn put_snapshot(
        &mut self,
        logic_version: u32,
        source: Source<'_>,
        check: impl FnOnce(Snapshot) -> io::Result<()>,
    ) -> Result<(), JournalError> {
        let seq = self.last.0;
        let (path, unfinished) = (self.folder.snapshot_path(seq), self.folder.unfinished_path("snapshot"));
        let header = SnapshotHeader { logic_version, identity: self.identity, seq, epoch: self.epoch };
        let written = self.folder.fill_snapshot(&unfinished, &header, source).and_then(|bytes| {
            let snapshot = Snapshot::open_at(&self.folder, unfinished.clone(), &self.identity, seq)?.whole()?;
            check(snapshot).map_err(|error| JournalError::io("read back", &unfinished, error))?;
            Ok(bytes)
        });
        let bytes = written.inspect_err(|_| {
            // What cannot be removed now is removed by the next start.
            let _ = self.folder.remove(&unfinished);
        })?;
        self.folder.rename(&unfinished, &path)?;
        self.folder.sync_names()?;
        self.files.snapshots.retain(|(other, _)| *other != seq);
        self.files.snapshots.push_back((seq, bytes));
        Ok(())
    }

    /// Removes all that the snapshot of the last record makes needless, if there is that one: snapshots before it, segments but for the
    /// last, and those made ahead.
    ///
    /// # Errors
    /// [`JournalError::Io`]; it may be tried again.
    pub fn remove_older(&mut self) -> Result<(), JournalError> {
        let Self { folder, files, last, .. } = self;
        if files.snapshots.back().is_none_or(|(newest, _)| newest != &last.0) {
            return Ok(());
        }
        // From the end of those made ahead, and from the beginning of the others: what is left follows one another.
        while let Some(index) = files.ahead.pop_back() {
            folder.remove(&folder.segment_path(index))?;
        }
        for (index, _) in files.strays.drain(..) {
            folder.remove(&folder.segment_path(index))?;
        }
        while files.snapshots.len() > 1 {
            folder.remove(&folder.snapshot_path(files.snapshots[0].0))?;
            files.snapshots.pop_front();
        }
        while files.used.len() > 1 {
            folder.remove(&folder.segment_path(files.used[0].index))?;
            files.used.pop_front();
        }
        folder.sync_names()
    }
}

impl Folder {
    /// The length of all files.
    fn bytes(&self) -> Result<u64, JournalError> {
        let names = self.disk.list(&self.path).map_err(|error| JournalError::io("list", &self.path, error))?;
        names.iter().try_fold(0, |sum, name| {
            let path = self.path.join(name);
            let len = self.open(&path, Access::Read)?.len().map_err(|error| JournalError::io("read", &path, error))?;
            Ok(sum + len)
        })
    }
}
