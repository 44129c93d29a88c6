//! A hub's journal for those who run the hub, wherever it is: looked at without changing it, or held so that no hub opens it.

use crate::journal::{self, JournalError, Recovered, Report, Seq};
use crate::log::{Contents, Records, Snapshot};
use crate::pg_journal;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Where a journal is.
#[derive(Clone, Debug)]
pub enum Site {
    /// In a folder.
    Disk(PathBuf),
    /// In a database.
    Postgres(Box<pg_journal::Place>),
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk(folder) => folder.display().fmt(f),
            Self::Postgres(place) => place.fmt(f),
        }
    }
}

impl Site {
    /// Whether there is a journal, or what is left of one.
    ///
    /// # Errors
    /// As [`journal::verify`].
    pub fn is_there(&self) -> Result<bool, JournalError> {
        match self {
            Self::Disk(folder) => journal::is_there(folder),
            Self::Postgres(place) => pg_journal::is_there(place),
        }
    }

    /// See [`journal::verify`].
    ///
    /// # Errors
    /// As there; of a database [`JournalError::Database`].
    pub fn verify(&self) -> Result<Report, JournalError> {
        match self {
            Self::Disk(folder) => journal::verify(folder),
            Self::Postgres(place) => pg_journal::verify(place),
        }
    }

    /// See [`journal::snapshot`].
    ///
    /// # Errors
    /// As there; of a database [`JournalError::Database`] and [`JournalError::DatabaseDamaged`].
    pub fn snapshot(&self, seq: Seq) -> Result<Snapshot, JournalError> {
        match self {
            Self::Disk(folder) => journal::snapshot(folder, seq).map(Snapshot::from),
            Self::Postgres(place) => pg_journal::snapshot(place, seq),
        }
    }

    /// See [`journal::contents`].
    ///
    /// # Errors
    /// As there; of a database [`JournalError::Database`] and [`JournalError::DatabaseDamaged`].
    pub fn contents(&self, snapshot: Option<Seq>) -> Result<Contents, JournalError> {
        match self {
            Self::Disk(folder) => journal::contents(folder, snapshot).map(Contents::from),
            Self::Postgres(place) => pg_journal::contents(place, snapshot),
        }
    }
}

impl From<Recovered> for Contents {
    fn from(found: Recovered) -> Self {
        let snapshot = found.snapshot.map(Snapshot::from);
        Self { snapshot, records: Records(Box::new(found.records)), last: found.last }
    }
}

/// A journal that is held. See [`journal::Upkeep`] for what each method promises; both kinds promise the same.
#[derive(Debug)]
pub enum Upkeep {
    /// In a folder.
    Disk(journal::Upkeep),
    /// In a database, whose lease this process holds.
    Postgres(pg_journal::Upkeep),
}

impl Upkeep {
    /// Holds a journal, and gives what is in it.
    ///
    /// # Errors
    /// As [`journal::Upkeep::open`]; of a database [`JournalError::Held`] if a hub has it.
    pub fn open(site: &Site) -> Result<(Self, Contents), JournalError> {
        match site {
            Site::Disk(folder) => {
                let (upkeep, found) = journal::Upkeep::open(folder)?;
                Ok((Self::Disk(upkeep), found.into()))
            }
            Site::Postgres(place) => {
                let (upkeep, contents) = pg_journal::Upkeep::open(place)?;
                Ok((Self::Postgres(upkeep), contents))
            }
        }
    }

    /// See [`journal::Upkeep::bytes`].
    ///
    /// # Errors
    /// As there.
    pub fn bytes(&self) -> Result<(u64, u64), JournalError> {
        match self {
            Self::Disk(upkeep) => upkeep.bytes(),
            Self::Postgres(upkeep) => upkeep.bytes(),
        }
    }

    /// See [`journal::Upkeep::put_snapshot`].
    ///
    /// # Errors
    /// As there; of a database [`JournalError::Database`] and [`JournalError::Fenced`].
    pub fn put_snapshot(
        &mut self,
        logic_version: u32,
        source: &mut dyn FnMut(&mut dyn io::Write) -> io::Result<()>,
        check: impl FnOnce(Snapshot) -> io::Result<()>,
    ) -> Result<(), JournalError> {
        match self {
            Self::Disk(upkeep) => upkeep.put_snapshot(logic_version, source, |written| check(written.into())),
            Self::Postgres(upkeep) => upkeep.put_snapshot(logic_version, source, check),
        }
    }

    /// See [`journal::Upkeep::remove_older`].
    ///
    /// # Errors
    /// As there.
    pub fn remove_older(&mut self) -> Result<(), JournalError> {
        match self {
            Self::Disk(upkeep) => upkeep.remove_older(),
            Self::Postgres(upkeep) => upkeep.remove_older(),
        }
    }
}
