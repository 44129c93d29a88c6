//! What can go wrong in the journal, and what to do then.

use super::Seq;
use crate::error::is_no_room;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Why the journal refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another process has the journal open.
    #[error("the journal {folder} is in use by another process: stop that one first, two must never write one journal")]
    Locked {
        /// The journal's folder.
        folder: PathBuf,
    },
    /// A hub holds the journal in a database.
    #[error(
        "the hub {by} holds the journal in {place}: stop it and its standby first; one that was killed holds it until its lease ends"
    )]
    Held {
        /// The database, without its password.
        place: String,
        /// The name of the hub.
        by: String,
    },
    /// The operating system failed an operation.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// What was being done, as in "cannot ... the path".
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file system has no room.
    #[error("cannot {doing} {path}: no room on the disk of the journal: free some space there, then start again")]
    NoRoom {
        /// What was being done, as in "cannot ... the path".
        doing: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// An earlier error ended the journal.
    #[error(
        "the journal takes no more records, since {0}. Everything it told durable is kept: see to the disk or the database, and start \
         again; nothing is tried twice, because a disk that failed once cannot be believed the second time"
    )]
    Dead(Arc<JournalError>),
    /// The thread that writes ended by a fault of its own, or of the function that it calls.
    #[error("the journal's writing thread broke down: this is a bug, its words are on stderr")]
    Panicked,
    /// The buffer is full: the disk is slower than what comes in. The record was not taken.
    #[error("the journal's buffer is full ({buffered} of {max} bytes wait for the disk): try again once it told more")]
    Full {
        /// Bytes that are not durable yet.
        buffered: usize,
        /// Most such bytes.
        max: usize,
    },
    /// The journal has reached its bound on disk. The record was not taken; writing a snapshot and pruning make room.
    #[error(
        "the journal has {bytes} bytes, more than its bound of {max}: write snapshots and prune, or raise the bound"
    )]
    TooManyBytes {
        /// Bytes on disk.
        bytes: u64,
        /// The bound.
        max: u64,
    },
    /// A record larger than the journal takes.
    #[error("a record of {len} bytes is larger than the journal takes ({max} bytes)")]
    TooLarge {
        /// The length that was offered, in bytes.
        len: usize,
        /// The largest length, in bytes.
        max: usize,
    },
    /// Bytes that were durable are no longer what they were.
    #[error(
        "the journal is damaged at {path}, byte {offset}: {what}. Nothing after this place may be used: copy the \
         folder, look at the disk, and go back to a backup or to another hub's journal"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// Records are not there that must be.
    #[error(
        "the journal {folder} has no record {wanted}, which comes after its newest whole snapshot; the records it has \
         begin at {found}: files are missing, bring back the folder as it was"
    )]
    Missing {
        /// The journal's folder.
        folder: PathBuf,
        /// The first record that is needed.
        wanted: Seq,
        /// The first that is there; `Seq(0)` if there is none.
        found: Seq,
    },
    /// A newer program wrote this.
    #[error("{path} is of version {found}, and this program knows up to {known}: start the newer program again")]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version of its format.
        found: u32,
        /// The newest version that is known here.
        known: u32,
    },
    /// Another hub has taken over since.
    #[error(
        "epoch {given} is behind epoch {found} of the journal: a later hub has taken over, this one must not go on"
    )]
    Fenced {
        /// The highest epoch that the journal holds.
        found: u64,
        /// The epoch that was given.
        given: u64,
    },
    /// The URL of a database cannot be used.
    #[error(
        "the URL of the journal's database cannot be used: {why}; it is like postgres://user@host:5432/database?schema=gleaner"
    )]
    Url {
        /// Why not.
        why: String,
    },
    /// The database failed an operation.
    #[error("cannot {doing} the journal in {place}: {why}")]
    Database {
        /// What was being done, as in "cannot ... the journal".
        doing: &'static str,
        /// The database, without its password.
        place: String,
        /// What it or the connection said.
        why: String,
    },
    /// The lease on the database could not be renewed.
    #[error(
        "the lease on the journal in {place} could not be renewed before its end ({why}): another hub may have taken over, \
         so this one must not go on; start it again once the database answers"
    )]
    LeaseLost {
        /// The database, without its password.
        place: String,
        /// What the last try said.
        why: String,
    },
    /// What the database gives is not what was written.
    #[error(
        "the journal in {place} is damaged at record {seq}: {what}. Nothing after this place may be used: go back to a \
         backup of the database"
    )]
    DatabaseDamaged {
        /// The database, without its password.
        place: String,
        /// The record, or the last one of the snapshot.
        seq: Seq,
        /// What is wrong there.
        what: &'static str,
    },
    /// The tables were made by a newer program.
    #[error(
        "the tables in {place} are of version {found}, and this program knows {known}: start the newer program again"
    )]
    NewerTables {
        /// The database, without its password.
        place: String,
        /// The version of the tables.
        found: i32,
        /// The version that is known here.
        known: i32,
    },
    /// A snapshot of a state that a crash could still undo, or that is not newer than the newest.
    #[error("a snapshot at record {seq} must be newer than the last one, at {newest}, and durable: {durable} is")]
    SnapshotOrder {
        /// The last record that the snapshot holds.
        seq: Seq,
        /// The newest snapshot's last record.
        newest: Seq,
        /// The last durable record.
        durable: Seq,
    },
    /// Two snapshots at once.
    #[error("a snapshot is being written already: wait for that one")]
    SnapshotBusy,
    /// The record is not durable yet.
    #[error("record {seq} is not durable after {waited:?}, only {durable} is: the disk is slow")]
    NotYet {
        /// The record that was waited for.
        seq: Seq,
        /// The last durable record.
        durable: Seq,
        /// How long it was waited for.
        waited: Duration,
    },
}

impl JournalError {
    /// What the system said about an operation on a file.
    pub(crate) fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        if is_no_room(&source) { Self::NoRoom { doing, path } } else { Self::Io { doing, path, source } }
    }

    /// Damage in a file.
    pub(crate) fn damaged(path: &Path, offset: u64, what: &'static str) -> Self {
        Self::Damaged { path: path.to_owned(), offset, what }
    }
}
