//! The hub's log: the journal on this machine's disk, or the one in a database, with the same methods.

use crate::journal::{self, Entry, Journal, JournalError, Options, Seq, Status, Told};
use crate::pg_journal::{Lease, PgJournal};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Where a log is.
#[derive(Debug)]
pub enum Place {
    /// In a folder.
    Disk(PathBuf),
    /// In a database, whose lease this process holds.
    Postgres(Lease),
}

/// An open log. See [`Journal`] for what each method promises; both kinds promise the same.
#[derive(Debug)]
pub enum Log {
    /// On this machine's disk.
    Disk(Journal),
    /// In a database.
    Postgres(PgJournal),
}

/// What a log holds: at a start, or up to what is durable.
#[derive(Debug)]
pub struct Contents {
    /// The newest snapshot that is whole, if there is any.
    pub snapshot: Option<Snapshot>,
    /// The records after it, in order. An error is damage, or a database that was lost: the state must not be used then.
    pub records: Records,
    /// The last record.
    pub last: Seq,
}

/// A snapshot, to be read. What is read was compared with its checksums.
pub struct Snapshot {
    /// The last record that it holds.
    pub seq: Seq,
    /// The version of the core that wrote it.
    pub logic_version: u32,
    /// The epoch in which it was written.
    pub epoch: u64,
    pub(crate) bytes: Box<dyn io::Read + Send>,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("seq", &self.seq).finish_non_exhaustive()
    }
}

impl io::Read for Snapshot {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.bytes.read(buf)
    }
}

impl From<journal::Snapshot> for Snapshot {
    fn from(of_disk: journal::Snapshot) -> Self {
        let (seq, logic_version, epoch) = (of_disk.seq, of_disk.logic_version, of_disk.epoch);
        Self { seq, logic_version, epoch, bytes: Box::new(of_disk) }
    }
}

/// Records in their order, read as they are asked for. Ends after the first error.
pub struct Records(pub(crate) Box<dyn Iterator<Item = Result<Entry, JournalError>> + Send>);

impl std::fmt::Debug for Records {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Records")
    }
}

impl Iterator for Records {
    type Item = Result<Entry, JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

impl Log {
    /// Opens the log. In a database the epoch is the lease's, and [`Options::epoch`] is not looked at.
    ///
    /// # Errors
    /// As [`Journal::open`] and [`PgJournal::open`].
    pub fn open(place: Place, options: Options, told: Told) -> Result<(Self, Contents), JournalError> {
        match place {
            Place::Disk(folder) => {
                let (journal, found) = Journal::open(&folder, options, told)?;
                let snapshot = found.snapshot.map(Snapshot::from);
                let contents = Contents { snapshot, records: Records(Box::new(found.records)), last: found.last };
                Ok((Self::Disk(journal), contents))
            }
            Place::Postgres(lease) => {
                let (journal, contents) = PgJournal::open(lease, options, told)?;
                Ok((Self::Postgres(journal), contents))
            }
        }
    }

    /// See [`Journal::append_quietly`].
    ///
    /// # Errors
    /// As there.
    pub fn append_quietly(&self, record: &[u8]) -> Result<Seq, JournalError> {
        match self {
            Self::Disk(journal) => journal.append_quietly(record),
            Self::Postgres(journal) => journal.append_quietly(record),
        }
    }

    /// See [`Journal::commit_soon`].
    pub fn commit_soon(&self) {
        match self {
            Self::Disk(journal) => journal.commit_soon(),
            Self::Postgres(journal) => journal.commit_soon(),
        }
    }

    /// See [`Journal::flush_wait`].
    ///
    /// # Errors
    /// As there.
    pub fn flush_wait(&self, seq: Seq, timeout: Duration) -> Result<Seq, JournalError> {
        match self {
            Self::Disk(journal) => journal.flush_wait(seq, timeout),
            Self::Postgres(journal) => journal.flush_wait(seq, timeout),
        }
    }

    /// See [`Journal::is_crowded`].
    pub fn is_crowded(&self) -> bool {
        match self {
            Self::Disk(journal) => journal.is_crowded(),
            Self::Postgres(journal) => journal.is_crowded(),
        }
    }

    /// See [`Journal::durable`].
    ///
    /// # Errors
    /// As there.
    pub fn durable(&self) -> Result<Option<Contents>, JournalError> {
        match self {
            Self::Disk(journal) => Ok(journal.durable()?.map(|found| Contents {
                snapshot: found.snapshot.map(Snapshot::from),
                records: Records(Box::new(found.records)),
                last: found.last,
            })),
            Self::Postgres(journal) => journal.durable(),
        }
    }

    /// See [`Journal::write_snapshot`].
    ///
    /// # Errors
    /// As there.
    pub fn write_snapshot(
        &self,
        seq: Seq,
        logic_version: u32,
        source: &mut dyn FnMut(&mut dyn io::Write) -> io::Result<()>,
    ) -> Result<(), JournalError> {
        match self {
            Self::Disk(journal) => journal.write_snapshot(seq, logic_version, source),
            Self::Postgres(journal) => journal.write_snapshot(seq, logic_version, source),
        }
    }

    /// See [`Journal::prune`]; says how many segments or batches were freed.
    ///
    /// # Errors
    /// As there.
    pub fn prune(&self) -> Result<u64, JournalError> {
        match self {
            Self::Disk(journal) => journal.prune(),
            Self::Postgres(journal) => journal.prune(),
        }
    }

    /// See [`Journal::status`].
    pub fn status(&self) -> Status {
        match self {
            Self::Disk(journal) => journal.status(),
            Self::Postgres(journal) => journal.status(),
        }
    }
}
