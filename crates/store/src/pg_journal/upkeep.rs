//! A journal in a database whose lease is held for upkeep: what [`crate::journal::Upkeep`] is on a disk. A snapshot is put in one
//! transaction, read back before that is committed, so it is there whole or the one before it is.

use super::blocking::{Blocking, Param};
use super::engine::Engine;
use super::lease::{Lease, Taking, fenced};
use super::read::View;
use super::snapshot::DOING;
use super::{PgJournal, Place};
use crate::intake::Source;
use crate::journal::{JournalError, Options, Seq};
use crate::{lock, log};
use std::io;
use std::sync::{Arc, Mutex};

const DROP_SNAPSHOT: &str = fenced!(
    ", gone AS (DELETE FROM {s}.snapshots WHERE seq = $2 AND EXISTS (SELECT FROM fence)), \
    chunks AS (DELETE FROM {s}.chunks WHERE seq = $2 AND EXISTS (SELECT FROM fence)) \
    SELECT count(*) FROM fence"
);

/// A journal that is held for upkeep.
#[derive(Debug)]
pub struct Upkeep {
    journal: PgJournal,
    last: Seq,
    bytes_found: u64,
}

impl Upkeep {
    /// Takes the lease if no hub has it, and gives what is in the journal.
    ///
    /// # Errors
    /// [`JournalError::Held`] if a hub has it; else as [`PgJournal::open`].
    pub fn open(place: &Place) -> Result<(Self, log::Contents), JournalError> {
        let engine = Engine::start().map_err(|error| place.failed("start a runtime for", error))?;
        let asked = place.clone();
        let taken = engine.wait(async move { Lease::take(&asked, "gleaner journal", &[]).await });
        let lease = match taken.ok_or_else(|| place.failed("take the lease of", "a bug"))?? {
            Taking::Taken(lease) => lease,
            Taking::Held(by) => return Err(JournalError::Held { place: place.to_string(), by }),
            Taking::Lost(why) => return Err(place.failed("take the lease of", why)),
        };
        let (journal, contents) = PgJournal::open(lease, Options::default(), Box::new(|_| {}))?;
        let bytes_found = journal.status().bytes;
        Ok((Self { journal, last: contents.last, bytes_found }, contents))
    }

    /// Bytes of records and snapshots, as they were found, and as they are.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn bytes(&self) -> Result<(u64, u64), JournalError> {
        let view = View::open(&self.journal.shared.keeper)?;
        let snapshots: i64 = view.snapshots()?.iter().map(|row| row.bytes).sum();
        Ok((self.bytes_found, view.sizes(0)?.0 + snapshots as u64))
    }

    /// See [`crate::journal::Upkeep::put_snapshot`].
    ///
    /// # Errors
    /// [`JournalError::Database`]; [`JournalError::Fenced`] if a hub has taken over.
    pub fn put_snapshot(
        &mut self,
        logic_version: u32,
        source: Source<'_>,
        check: impl FnOnce(log::Snapshot) -> io::Result<()>,
    ) -> Result<(), JournalError> {
        let (shared, seq) = (&self.journal.shared, self.last.0);
        let writer = Arc::new(Mutex::new(Blocking::open(&shared.keeper, DOING, Some("BEGIN"))?));
        let params: Vec<Param> = vec![Box::new(shared.keeper.epoch as i64), Box::new(seq as i64)];
        lock(&writer).fenced(DROP_SNAPSHOT, params)?;
        let bytes = shared.put_snapshot(&mut lock(&writer), self.last, logic_version, source)?;
        let view = View::within(&shared.keeper, &writer);
        let mut written = view.snapshots()?;
        written.retain(|row| row.seq as u64 == seq);
        let written = view.contents(&mut written, seq)?.snapshot;
        let written = written.ok_or_else(|| view.damaged(seq, "the snapshot is not what was written"))?;
        check(written).map_err(|error| shared.keeper.place.failed("read back a snapshot of", error))?;
        lock(&writer).rows("COMMIT", Vec::new())?;
        let mut known = lock(&shared.snapshots);
        known.retain(|(other, _)| *other != seq);
        known.push((seq, bytes));
        Ok(())
    }

    /// Removes all that the snapshot of the last record makes needless, if there is that one: snapshots and records before it.
    ///
    /// # Errors
    /// As [`Upkeep::put_snapshot`]; it may be tried again.
    pub fn remove_older(&mut self) -> Result<(), JournalError> {
        let shared = &self.journal.shared;
        if lock(&shared.snapshots).last().is_none_or(|(newest, _)| *newest != self.last.0) {
            return Ok(());
        }
        shared.keep_only(&mut Blocking::open(&shared.keeper, DOING, None)?, 1)?;
        shared.free_to(self.last.0 as i64).map(drop)
    }
}
