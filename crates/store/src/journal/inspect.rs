//! Looking at a journal without changing it, for those who run a hub.

use super::folder::Folder;
use super::recover::survey;
use super::snapshot::Snapshot;
use super::{JournalError, Records, Seq};
use crate::disk::{Disk, RealDisk};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a journal's folder holds.
#[derive(Debug, Default)]
pub struct Report {
    /// The segments in use, oldest first.
    pub segments: Vec<SegmentReport>,
    /// Segment files that hold nothing that is needed: made ahead, or left over.
    pub segments_unused: u64,
    /// The snapshots, oldest first.
    pub snapshots: Vec<SnapshotReport>,
    /// The first record; `Seq(0)` if there is none.
    pub first: Seq,
    /// The last record.
    pub last: Seq,
    /// The highest epoch of a record.
    pub epoch: u64,
    /// Length of all segments and snapshots in bytes.
    pub bytes: u64,
    /// What is wrong with the records: of more than one place the first.
    pub damage: Option<JournalError>,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.damage.is_none() && self.snapshots.iter().all(|snapshot| snapshot.damage.is_none())
    }
}

/// A segment in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentReport {
    /// Its file.
    pub path: PathBuf,
    /// The version of the core that wrote its records.
    pub logic_version: u32,
    /// Its first record.
    pub first: Seq,
    /// Its last record; before the first if it has none.
    pub last: Seq,
    /// The epoch in which it was begun.
    pub epoch: u64,
    /// Its length.
    pub bytes: u64,
}

/// A snapshot.
#[derive(Debug)]
pub struct SnapshotReport {
    /// Its file.
    pub path: PathBuf,
    /// The last record that it holds.
    pub seq: Seq,
    /// The version of the core that wrote it; 0 if it is damaged.
    pub logic_version: u32,
    /// What is wrong with it.
    pub damage: Option<JournalError>,
}

/// Reads all of a journal, and says what it holds and what is wrong. Changes nothing and takes no lock: of a journal
/// that is in use, the end may be moving, and a segment that is pruned meanwhile looks damaged.
///
/// # Errors
/// [`JournalError::Io`] if files cannot be read; damage is told in the report.
pub fn verify(folder: &Path) -> Result<Report, JournalError> {
    verify_on(Arc::new(RealDisk), folder)
}

pub(crate) fn verify_on(disk: Arc<dyn Disk>, path: &Path) -> Result<Report, JournalError> {
    let folder = Folder { disk, path: path.to_owned() };
    let mut report = Report::default();
    let outcome = fill(&folder, &mut report);
    match outcome {
        Err(error @ (JournalError::Damaged { .. } | JournalError::Missing { .. })) => report.damage = Some(error),
        outcome => outcome?,
    }
    Ok(report)
}

fn fill(folder: &Folder, report: &mut Report) -> Result<(), JournalError> {
    let catalog = folder.catalog()?;
    let Some(identity) = catalog.identity else { return Ok(()) };
    report.bytes = catalog.segments.iter().map(|segment| segment.bytes).sum();
    let mut oldest = None;
    for seq in &catalog.snapshots {
        let path = folder.snapshot_path(*seq);
        let file = folder.open(&path, crate::disk::Access::Read)?;
        report.bytes += file.len().map_err(|error| JournalError::io("read", &path, error))?;
        let snapshot = SnapshotReport { path, seq: Seq(*seq), logic_version: 0, damage: None };
        report.snapshots.push(match Snapshot::open_whole(folder, &identity, *seq) {
            Ok(whole) => {
                oldest.get_or_insert(*seq);
                SnapshotReport { logic_version: whole.logic_version, ..snapshot }
            }
            Err(error) => SnapshotReport { damage: Some(error), ..snapshot },
        });
    }
    let survey = survey(folder, &identity, &catalog)?;
    report.segments_unused = (catalog.segments.len() - survey.stretches.len()) as u64;
    (report.last, report.epoch) = (Seq(survey.last), survey.epoch);
    report.first = survey.stretches.first().map_or(Seq(0), |stretch| Seq(stretch.header.first));
    for (at, stretch) in survey.stretches.iter().enumerate() {
        let header = stretch.header;
        let end = survey.stretches.get(at + 1).map_or(survey.last, |next| next.header.first - 1);
        report.segments.push(SegmentReport {
            path: folder.segment_path(header.index),
            logic_version: header.logic_version,
            first: Seq(header.first),
            last: Seq(end),
            epoch: header.epoch,
            bytes: header.bytes,
        });
    }
    survey.records(folder, identity, oldest.unwrap_or(0))?;
    // And those before it, as far as they are there.
    survey.records(folder, identity, report.first.0.max(1) - 1)?.try_for_each(|entry| entry.map(drop))
}

/// The records of a journal from `from` on, or from the first that is there. Changes nothing and takes no lock.
///
/// # Errors
/// As [`Journal::open`](super::Journal::open), but for the lock; and the iterator's, where it comes upon damage.
pub fn dump(folder: &Path, from: Seq) -> Result<Records, JournalError> {
    dump_on(Arc::new(RealDisk), folder, from)
}

pub(crate) fn dump_on(disk: Arc<dyn Disk>, path: &Path, from: Seq) -> Result<Records, JournalError> {
    let folder = Folder { disk, path: path.to_owned() };
    let catalog = folder.catalog()?;
    let Some(identity) = catalog.identity else {
        return Err(JournalError::Missing { folder: folder.path, wanted: from, found: Seq(0) });
    };
    let survey = survey(&folder, &identity, &catalog)?;
    let first = survey.stretches.first().map_or(1, |stretch| stretch.header.first);
    survey.records(&folder, identity, from.0.max(first).min(survey.last + 1) - 1)
}
