//! The journal: a log of records that outlives a crash, for a core that is rebuilt from its inputs.
//!
//! Each record gets the next number. [`Journal::append`] only copies it; a thread writes whatever has gathered as one
//! batch, with one write and one sync, and then tells how far the records are durable. A batch is as large as the sync before
//! it was slow; if that was slower than what it brings, what was told is answered first, for up to a millisecond. Who
//! comes alone is written at once. What follows from a record must wait until it is told.
//!
//! After a crash, [`Journal::open`] gives the newest whole snapshot and the records after it, in order. Every record
//! that was told durable is among them; after those there may be some that were taken but not told.
//!
//! An error of writing or syncing ends the journal for good: a system that could not sync forgets that the bytes are
//! not on the disk, so a second try would be believed wrongly. The start after that writes the end of the log anew.
//!
//! A snapshot is made beside all that: [`Journal::durable`] reads the newest one and the records after it from the disk,
//! for a second core that is dropped once it was written.
//!
//! Deliberately not here: what the records mean, and replication. [`crate::pg_journal`] keeps the same in a database, and
//! [`crate::log`] is either.
//!
//! Bytes are in `format`, files made ahead and pruned in `ahead`, starting in `recover`, reading along in `durable`; for those who run a
//! hub `inspect` looks, and `upkeep` puts snapshots into a journal that no hub has open.

mod ahead;
mod commit;
mod durable;
mod error;
mod folder;
pub(crate) mod format;
mod inspect;
mod read;
mod recover;
pub(crate) mod shared;
mod snapshot;
pub(crate) mod status;
#[cfg(test)]
mod tests;
mod upkeep;

pub use durable::Durable;
pub use error::JournalError;
pub use inspect::{Report, SegmentReport, SnapshotReport, TornEnd, contents, dump, is_there, snapshot, verify};
pub use read::Records;
pub use snapshot::Snapshot;
pub use status::{Histogram, Options, Status, Times};
pub use upkeep::Upkeep;

use crate::disk::{Disk, RealDisk};
use crate::folder_lock::FolderLock;
use crate::intake::{self, Intake};
use crate::lock;
use commit::Committer;
use durable::{Pin, bytes_between};
use folder::Folder;
use shared::Shared;
use std::fmt;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The number of a record, from 1 on without gaps. `Seq(0)` stands before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Seq(pub u64);

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A record, as it is read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number.
    pub seq: Seq,
    /// The epoch in which it was written.
    pub epoch: u64,
    /// The version of the core that made it: see [`Recovered`].
    pub logic_version: u32,
    /// Its bytes.
    pub record: Vec<u8>,
}

/// What a journal held when it was opened.
///
/// The journal does not compare versions of the core. [`Snapshot::logic_version`] and each [`Entry::logic_version`] say
/// which version wrote it, and they may be higher than [`Options::logic_version`], too. Who opens the journal must
/// refuse a version that it cannot follow, and apply each record as its version did, or the state will be another than
/// the one that was acted upon. So a changed core begins best with a snapshot that the old one wrote of all its records:
/// then no record of the old one is left to be applied. What is written from now on has the new version, and begins a
/// segment of its own.
#[derive(Debug)]
pub struct Recovered {
    /// The newest snapshot that is whole, if there is any.
    pub snapshot: Option<Snapshot>,
    /// The records after it. An error is damage: the state must not be used then.
    pub records: Records,
    /// The last record.
    pub last: Seq,
    /// Snapshots that were damaged, under the names that they have now.
    pub snapshots_damaged: Vec<PathBuf>,
}

/// Called by the committing thread: with the last durable record after each batch, and once with the error that ended
/// the journal. The next batch waits until it returns. It must not drop the journal.
pub type Told = Box<dyn Fn(Result<Seq, Arc<JournalError>>) + Send>;

/// An open journal. Used by many threads at once; the records are numbered in the order of the calls.
///
/// Dropping it commits what was taken and waits for that. The folder stays locked while [`Records`] of it are read.
pub struct Journal {
    shared: Arc<Shared>,
    committing: Option<JoinHandle<()>>,
    making: Option<JoinHandle<()>>,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("folder", &self.shared.folder.path).finish_non_exhaustive()
    }
}

impl Journal {
    /// Opens the journal in `folder`, creating the folder (for its owner only) if need be.
    ///
    /// # Errors
    /// [`JournalError::Locked`] if another process has it open; [`JournalError::Fenced`] if a later epoch has written;
    /// [`JournalError::Damaged`], [`JournalError::Missing`] and [`JournalError::Newer`] if the records cannot be used
    /// as they are. A batch that a crash has torn is no error: nobody was told of it.
    pub fn open(folder: &Path, options: Options, told: Told) -> Result<(Self, Recovered), JournalError> {
        Self::open_on(Arc::new(RealDisk), folder, options, told)
    }

    pub(crate) fn open_on(
        disk: Arc<dyn Disk>,
        path: &Path,
        options: Options,
        told: Told,
    ) -> Result<(Self, Recovered), JournalError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|error| JournalError::io("create the folder", path, error))?;
        let held = FolderLock::take(path)
            .map_err(|error| JournalError::io("lock", &path.join("lock"), error))?
            .ok_or_else(|| JournalError::Locked { folder: path.to_owned() })?;
        let options = options.bounded();
        let folder = Folder { disk, path: path.to_owned() };
        let mut start = recover::start(&folder, &options)?;
        let durable = intake::Durable { last: start.recovered.last.0, end: start.end };
        let shared = Arc::new(Shared {
            folder,
            identity: start.identity,
            options,
            intake: Intake::new(options, durable, start.epoch, start.bytes),
            files: Mutex::new(start.files),
            files_changed: Condvar::new(),
            segments: start.segments.into(),
            pins: Mutex::default(),
            _lock: held,
        });
        let base = start.recovered.snapshot.as_ref().map_or(0, |snapshot| snapshot.seq.0);
        start.recovered.records = start.recovered.records.pinned(Pin::new(shared.clone(), base));
        shared.want_ahead(&mut lock(&shared.files));
        let mut journal = Self { shared: shared.clone(), committing: None, making: None };
        let making = shared.clone();
        journal.making = Some(spawn(path, "journal-ahead", move || ahead::run(making))?);
        let committer = Committer::new(shared, start.current);
        journal.committing = Some(spawn(path, "journal-commit", move || committer.run(&told))?);
        Ok((journal, start.recovered))
    }

    /// Takes a record, which becomes durable soon. Never waits for the disk.
    ///
    /// # Errors
    /// As [`Journal::append_quietly`].
    pub fn append(&self, record: &[u8]) -> Result<Seq, JournalError> {
        let seq = self.append_quietly(record)?;
        self.commit_soon();
        Ok(seq)
    }

    /// What was taken becomes durable soon.
    pub fn commit_soon(&self) {
        self.shared.intake.commit_soon();
    }

    /// Whether so much waits for the disk, or lies on it, that there is no more room than for what must be written down anyhow.
    pub fn is_crowded(&self) -> bool {
        self.shared.intake.is_crowded()
    }

    /// Takes a record for which nobody waits: it becomes durable with the next one that somebody waits for, or when there are many,
    /// or at the end. Never waits for the disk.
    ///
    /// # Errors
    /// [`JournalError::Full`], [`JournalError::TooManyBytes`] and [`JournalError::TooLarge`] if the record was not
    /// taken, and the journal goes on; [`JournalError::Dead`] if it has ended.
    pub fn append_quietly(&self, record: &[u8]) -> Result<Seq, JournalError> {
        self.shared.intake.append_quietly(record)
    }

    /// Waits until a record is durable; says how far all are. For tests and for stopping.
    ///
    /// # Errors
    /// [`JournalError::NotYet`] after the timeout; [`JournalError::Dead`] if the journal has ended before.
    pub fn flush_wait(&self, seq: Seq, timeout: Duration) -> Result<Seq, JournalError> {
        self.shared.intake.flush_wait(seq, timeout)
    }

    /// Raises the epoch for what is written from now on, records included that were taken and wait.
    ///
    /// # Errors
    /// [`JournalError::Fenced`] if it is lower than the present one.
    pub fn set_epoch(&self, epoch: u64) -> Result<(), JournalError> {
        self.shared.intake.set_epoch(epoch)
    }

    /// Writes a snapshot of the state after record `seq`, which `source` writes out, and removes those before the
    /// newest two. Takes as long as the disk; appending goes on meanwhile.
    ///
    /// # Errors
    /// [`JournalError::SnapshotOrder`], [`JournalError::SnapshotBusy`]; [`JournalError::Io`] and
    /// [`JournalError::NoRoom`] if it could not be written, after which the journal goes on as before;
    /// [`JournalError::Dead`].
    pub fn write_snapshot(
        &self,
        seq: Seq,
        logic_version: u32,
        source: &mut dyn FnMut(&mut dyn io::Write) -> io::Result<()>,
    ) -> Result<(), JournalError> {
        self.shared.write_snapshot(seq, logic_version, source)
    }

    /// The state of what is durable now: the newest snapshot and the records after it, those in the segment that is being
    /// written included. `None` if that snapshot holds them all. Every record that was told is among them. To be
    /// read beside everything else, and for as long as it takes: appending and committing go on, pruning leaves alone
    /// what is to be read, and a snapshot that is removed stays readable. The snapshot has been read once when this
    /// returns; if it is damaged, it is put aside, and the one before it taken, as at a start.
    ///
    /// # Errors
    /// [`JournalError::Io`] if a file cannot be read; [`JournalError::Damaged`] (also from the records, as they are
    /// read) and [`JournalError::Missing`] if what is on the disk is no longer what was written. The journal goes on
    /// all the same; but the next start would fail as this has, unless a snapshot of the running core is written.
    /// [`JournalError::Dead`].
    pub fn durable(&self) -> Result<Option<Durable>, JournalError> {
        self.shared.durable()
    }

    /// Frees the segments that end before the older of two snapshots; says how many. Those that somebody reads, and those
    /// after them, are left to a later call: see [`Records`].
    ///
    /// # Errors
    /// [`JournalError::Io`] if a file could not be removed, which may be tried again; [`JournalError::Dead`].
    pub fn prune(&self) -> Result<u64, JournalError> {
        self.shared.prune()
    }

    /// What the journal holds and does. Waits for the disk only while names in the folder are changed.
    pub fn status(&self) -> Status {
        let files = lock(&self.shared.files);
        let snapshot = files.snapshots.back().map_or(0, |(seq, _)| *seq);
        let bytes_after = |durable: intake::Durable| bytes_between(&files.used, snapshot, durable.last, durable.end);
        Status {
            segments: self.shared.segments.load(Relaxed),
            not_ahead: files.failed.clone(),
            ..self.shared.intake.status(snapshot, bytes_after)
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.shared.intake.stop();
        join(self.committing.take());
        lock(&self.shared.files).is_stopping = true;
        self.shared.files_changed.notify_all();
        join(self.making.take());
    }
}

fn spawn(path: &Path, name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, JournalError> {
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(run);
    spawned.map_err(|error| JournalError::io("start a thread for", path, error))
}

fn join(thread: Option<JoinHandle<()>>) {
    if let Some(thread) = thread {
        // A panic has ended the journal, and was told.
        let _ = thread.join();
    }
}
