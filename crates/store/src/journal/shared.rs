//! What the callers of a journal and its two threads share.
//!
//! Locks: the intake's for snapshots, then `files`, then the rest of the intake or `pins`. That of the files is held also while
//! names are changed and synced, so that indexes are given out in order and none is left out.

use super::folder::Folder;
use super::format::{Identity, SegmentHeader};
use super::{JournalError, Options};
use crate::folder_lock::FolderLock;
use crate::intake::Intake;
use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex};

/// Shared by all handles and threads of an open journal.
pub(crate) struct Shared {
    pub folder: Folder,
    pub identity: Identity,
    pub options: Options,
    pub intake: Intake,
    pub files: Mutex<Files>,
    /// Told when a segment is wanted or made.
    pub files_changed: Condvar,
    /// Segments, those ahead included.
    pub segments: AtomicU64,
    /// For each that reads records: the one before the first that it wants.
    pub pins: Mutex<Vec<u64>>,
    /// Held, so that no other process opens the journal.
    pub _lock: FolderLock,
}

/// The files of the journal.
#[derive(Debug)]
pub(crate) struct Files {
    /// Segments in use, oldest first; the last one is written.
    pub used: VecDeque<SegmentHeader>,
    /// Indexes of segments made ahead, which follow the last one in use.
    pub ahead: VecDeque<u64>,
    /// The index of the segment that is made next.
    pub next_index: u64,
    /// Segments before those in use that a crash brought back, with their lengths.
    pub strays: Vec<(u64, u64)>,
    /// The last records of the snapshots, ascending, and their lengths.
    pub snapshots: VecDeque<(u64, u64)>,
    /// A segment is to be made.
    pub is_wanted: bool,
    /// One is being made.
    pub is_making: bool,
    pub is_stopping: bool,
    /// Why the last one could not be made.
    pub failed: Option<Arc<JournalError>>,
}
