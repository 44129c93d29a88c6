//! The journal in PostgreSQL, for a hub that is to outlive its machine: what [`crate::journal`] is on a disk, with the same methods.
//!
//! A hub first takes the [`Lease`] of a [`Place`]; a second one waits for it, and takes it when the first has not renewed it in
//! time, with the next epoch. Each transaction checks the epoch, so a hub that was replaced writes nothing, whenever it notices.
//!
//! [`PgJournal::append_quietly`] only copies a record. A thread commits whatever has gathered as one transaction, and then tells
//! how far the records are durable; what comes meanwhile is the next one. A commit whose answer is lost is looked for
//! before anything else is written. Nothing is told that is not committed.
//!
//! As long as a lease lasts, lost connections are made again; then the journal is dead.
//!
//! Deliberately not here: how the database is made to survive its own machine. What it commits must be on the
//! replica that takes over from it (`synchronous_standby_names`), or told records are lost with it.
//!
//! The statements are beside what uses them; tables in `schema`, the fence in `lease`. For those who run a hub `inspect` looks without a
//! lease, and `upkeep` takes it.

mod blocking;
mod commit;
mod engine;
mod hubs;
mod inspect;
mod lease;
mod place;
mod read;
mod schema;
mod session;
mod snapshot;
#[cfg(test)]
mod tests;
mod tls;
mod upkeep;

pub use inspect::{contents, is_there, snapshot, verify};
pub use lease::{Files, Lease, Taking};
pub use place::Place;
pub use upkeep::Upkeep;

use crate::intake::{Durable, Intake};
use crate::journal::{JournalError, Options, Seq, Status, Told};
use crate::{lock, log};
use commit::Committer;
use lease::Keeper;
use read::View;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// An open journal in a database. Used by many threads at once, those of a runtime included.
///
/// Dropping it commits what was taken, waits for that, and gives the lease back.
pub struct PgJournal {
    shared: Arc<Shared>,
    committing: Option<JoinHandle<()>>,
    /// Given back once all is committed.
    lease: Lease,
}

/// Shared by the callers, the committing thread, and what renews the lease.
pub(crate) struct Shared {
    keeper: Arc<Keeper>,
    options: Options,
    intake: Intake,
    bytes_after_snapshot: AtomicU64,
    /// The last records of the snapshots, ascending, and their lengths.
    snapshots: Mutex<Vec<(u64, u64)>>,
}

impl std::fmt::Debug for PgJournal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PgJournal").field("place", &self.shared.keeper.place).finish_non_exhaustive()
    }
}

impl PgJournal {
    /// Opens the journal that the lease is for. Of the options, those about segments, the epoch and a slower disk are not
    /// looked at. Waits for the database.
    ///
    /// # Errors
    /// [`JournalError::Database`] if it cannot be read, [`JournalError::DatabaseDamaged`] if what is there is not what was
    /// written; [`JournalError::LeaseLost`] or [`JournalError::Fenced`] if the lease has ended already.
    pub fn open(lease: Lease, options: Options, told: Told) -> Result<(Self, log::Contents), JournalError> {
        let keeper = lease.keeper().clone();
        let view = View::open(&keeper)?;
        let mut snapshots = view.snapshots()?;
        let contents = view.contents(&mut snapshots, view.last()?)?;
        let (records, after) = view.sizes(contents.snapshot.as_ref().map_or(0, |snapshot| snapshot.seq.0))?;
        let snapshots: Vec<(u64, u64)> = snapshots.iter().map(|row| (row.seq as u64, row.bytes as u64)).collect();
        let bytes = records + snapshots.iter().map(|(_, bytes)| bytes).sum::<u64>();
        let options = options.bounded();
        let shared = Arc::new(Shared {
            intake: Intake::new(options, Durable { last: contents.last.0, end: 0 }, keeper.epoch, bytes),
            bytes_after_snapshot: after.into(),
            snapshots: Mutex::new(snapshots),
            options,
            keeper: keeper.clone(),
        });
        let weak = Arc::downgrade(&shared);
        keeper.on_end(Box::new(move |error| {
            if let Some(shared) = weak.upgrade() {
                shared.intake.kill(error);
            }
        }));
        shared.intake.check_alive().map_err(|error| match error {
            JournalError::Dead(cause) => Arc::into_inner(cause).unwrap_or_else(|| keeper.fenced()),
            error => error,
        })?;
        let committer = Committer::new(shared.clone());
        let spawned = std::thread::Builder::new().name("pg-journal-commit".into()).spawn(move || committer.run(&told));
        let committing = spawned.map_err(|error| keeper.place.failed("start a thread for", error))?;
        Ok((Self { shared, committing: Some(committing), lease }, contents))
    }

    /// Takes a record, which becomes durable soon. Never waits for the database.
    ///
    /// # Errors
    /// As [`PgJournal::append_quietly`].
    pub fn append(&self, record: &[u8]) -> Result<Seq, JournalError> {
        let seq = self.append_quietly(record)?;
        self.commit_soon();
        Ok(seq)
    }

    /// Takes a record for which nobody waits: it becomes durable with the next one that somebody waits for, or when there are many,
    /// or at the end. Never waits for the database.
    ///
    /// # Errors
    /// [`JournalError::Full`], [`JournalError::TooManyBytes`] and [`JournalError::TooLarge`] if the record was not taken,
    /// and the journal goes on; [`JournalError::Dead`] if it has ended, or its lease has.
    pub fn append_quietly(&self, record: &[u8]) -> Result<Seq, JournalError> {
        let shared = &self.shared;
        if !shared.keeper.is_held() {
            let why = "this process was stopped for too long".to_owned();
            let place = shared.keeper.place.to_string();
            return Err(JournalError::Dead(shared.intake.kill(JournalError::LeaseLost { place, why })));
        }
        shared.intake.append_quietly(record)
    }

    /// What was taken becomes durable soon.
    pub fn commit_soon(&self) {
        self.shared.intake.commit_soon();
    }

    /// Whether so much waits for the database, or lies in it, that there is no more room than for what must be written down
    /// anyhow.
    pub fn is_crowded(&self) -> bool {
        self.shared.intake.is_crowded()
    }

    /// Waits until a record is durable; says how far all are. For tests and for stopping.
    ///
    /// # Errors
    /// [`JournalError::NotYet`] after the timeout; [`JournalError::Dead`] if the journal has ended before.
    pub fn flush_wait(&self, seq: Seq, timeout: Duration) -> Result<Seq, JournalError> {
        self.shared.intake.flush_wait(seq, timeout)
    }

    /// Writes a snapshot of the state after record `seq`, which `source` writes out, and removes those before the newest two.
    /// Appending goes on meanwhile.
    ///
    /// # Errors
    /// [`JournalError::SnapshotOrder`], [`JournalError::SnapshotBusy`]; [`JournalError::Database`] if it could not be
    /// written, after which the journal goes on as before; [`JournalError::Dead`], also if another hub has taken over.
    pub fn write_snapshot(
        &self,
        seq: Seq,
        logic_version: u32,
        source: &mut dyn FnMut(&mut dyn io::Write) -> io::Result<()>,
    ) -> Result<(), JournalError> {
        self.shared.write_snapshot(seq, logic_version, source)
    }

    /// The state of what is durable now: the newest snapshot and the records after it. `None` if that snapshot, which is not
    /// looked at then, holds them all. To be read beside everything else, and for as long as it takes, over a connection of its own.
    ///
    /// # Errors
    /// As [`PgJournal::open`], after which the journal goes on; [`JournalError::Dead`].
    pub fn durable(&self) -> Result<Option<log::Contents>, JournalError> {
        let last = self.shared.intake.durable()?.last;
        let view = View::open(&self.shared.keeper)?;
        let mut snapshots = view.snapshots()?;
        if snapshots.last().map_or(0, |newest| newest.seq as u64) >= last {
            return Ok(None);
        }
        let contents = view.contents(&mut snapshots, last)?;
        let whole: Vec<u64> = snapshots.iter().map(|row| row.seq as u64).collect();
        let newest = whole.last().copied().unwrap_or(0);
        // Pruning goes by those that are whole.
        lock(&self.shared.snapshots).retain(|(seq, _)| *seq > newest || whole.contains(seq));
        Ok(Some(contents))
    }

    /// Frees the batches that end before the older of two snapshots; says how many.
    ///
    /// # Errors
    /// [`JournalError::Database`], after which it may be tried again; [`JournalError::Dead`].
    pub fn prune(&self) -> Result<u64, JournalError> {
        self.shared.prune()
    }

    /// What the journal holds and does. There are no segments, and [`Status::syncs`] are commits.
    pub fn status(&self) -> Status {
        let snapshot = lock(&self.shared.snapshots).last().map_or(0, |(seq, _)| *seq);
        self.shared.intake.status(snapshot, |_| self.shared.bytes_after_snapshot.load(Relaxed))
    }

    /// What keeps files that the hubs of this journal share.
    pub fn files(&self) -> Files {
        self.lease.files()
    }

    #[cfg(test)]
    pub(crate) fn freeze(&self) {
        self.lease.freeze();
    }
}

impl Drop for PgJournal {
    fn drop(&mut self) {
        self.shared.intake.stop();
        if let Some(thread) = self.committing.take() {
            // A panic has ended the journal, and was told.
            let _ = thread.join();
        }
    }
}
