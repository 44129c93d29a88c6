//! Looking at a journal without changing it, for those who run a hub.
//!
//! Nothing is locked, so the journal may be in use meanwhile, and a look may catch it in the middle of a change: a file
//! that is gone or used again, a batch that was written after the place where it belongs was read. So when something
//! looks wrong, it is looked at again, and believed only once it is the same twice.

use super::folder::{Catalog, Folder};
use super::format::Identity;
use super::recover::{Survey, survey};
use super::snapshot::Snapshot;
use super::{JournalError, Records, Recovered, Seq};
use crate::disk::{Access, Disk, RealDisk};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most looks at a journal where something looks wrong, and something else each time.
const LOOKS_MAX: usize = 8;

/// What a journal's folder holds.
#[derive(Debug, Default)]
pub struct Report {
    /// Whether there is a journal in the folder; if not, all else is empty.
    pub is_there: bool,
    /// Its random name, in hexadecimal.
    pub identity: String,
    /// The segments in use, oldest first.
    pub segments: Vec<SegmentReport>,
    /// Segment files that hold nothing that is needed: made ahead, or left over.
    pub segments_unused: u64,
    /// The snapshots, oldest first.
    pub snapshots: Vec<SnapshotReport>,
    /// Snapshots that were found damaged by a start or a running hub, under the names that they were given then.
    pub snapshots_aside: Vec<PathBuf>,
    /// Files that are being made, or were when their hub ended. A start removes them.
    pub unfinished: Vec<PathBuf>,
    /// The first record; `Seq(0)` if there is none.
    pub first: Seq,
    /// The last record; `Seq(0)` if there is none, or damage is in its way.
    pub last: Seq,
    /// A batch after that which is not whole: it was being written when the hub ended, or is at this moment. Nobody was
    /// told of its records, so it is no damage.
    pub torn: Option<TornEnd>,
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
        self.wrong().next().is_none()
    }

    /// All that is wrong.
    pub fn wrong(&self) -> impl Iterator<Item = &JournalError> {
        self.snapshots.iter().filter_map(|snapshot| snapshot.damage.as_ref()).chain(&self.damage)
    }
}

/// A batch that is not whole, behind the last one that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornEnd {
    /// The file.
    pub path: PathBuf,
    /// Where the batch begins in it.
    pub offset: u64,
    /// How many records it was to have.
    pub records: u32,
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
    /// Its last record; before the first if it has none, or damage is in the way.
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
    /// The epoch in which it was written; 0 if it is damaged.
    pub epoch: u64,
    /// Its length.
    pub bytes: u64,
    /// What is wrong with it.
    pub damage: Option<JournalError>,
}

/// Whether there is a journal in a folder, or what is left of one.
///
/// # Errors
/// [`JournalError::Io`] if the folder cannot be read.
pub fn is_there(folder: &Path) -> Result<bool, JournalError> {
    let names = match RealDisk.list(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        names => names.map_err(|error| JournalError::io("list", folder, error))?,
    };
    let is_of_it = |name: &str| name == "journal" || name.starts_with("log-") || name.starts_with("snapshot-");
    Ok(names.iter().any(|name| name.to_str().is_some_and(is_of_it)))
}

/// Reads all of a journal, and says what it holds and what is wrong, with file and offset. Changes nothing and takes no
/// lock, so a running hub neither hinders it nor is hindered: then the end is that of some moment of the reading, and what
/// looks wrong only because it changed meanwhile is not told.
///
/// # Errors
/// [`JournalError::Io`] if files cannot be read; [`JournalError::Newer`]. Damage is told in the report.
pub fn verify(folder: &Path) -> Result<Report, JournalError> {
    verify_on(Arc::new(RealDisk), folder)
}

pub(crate) fn verify_on(disk: Arc<dyn Disk>, path: &Path) -> Result<Report, JournalError> {
    let folder = Folder { disk, path: path.to_owned() };
    let wrong = |report: &Report| report.wrong().map(|error| format!("{error}\n")).collect();
    look(wrong, || {
        let mut report = Report::default();
        match fill(&folder, &mut report) {
            Err(error @ (JournalError::Damaged { .. } | JournalError::Missing { .. })) => report.damage = Some(error),
            outcome => outcome?,
        }
        Ok(report)
    })
}

/// Looks until nothing is wrong, or the same twice.
fn look<T>(wrong: impl Fn(&T) -> String, mut look: impl FnMut() -> Result<T, JournalError>) -> Result<T, JournalError> {
    let mut before = String::new();
    let mut looks = 1;
    loop {
        let seen = look();
        let now = seen.as_ref().map_or_else(ToString::to_string, &wrong);
        if now == before || now.is_empty() || looks == LOOKS_MAX {
            return seen;
        }
        (before, looks) = (now, looks + 1);
    }
}

fn fill(folder: &Folder, report: &mut Report) -> Result<(), JournalError> {
    let catalog = folder.catalog()?;
    let Some(identity) = catalog.identity else { return Ok(()) };
    report.is_there = true;
    report.identity = base::digest::hex(&identity.0);
    report.bytes = catalog.segments.iter().map(|segment| segment.bytes).sum();
    report.snapshots_aside.clone_from(&catalog.aside);
    report.unfinished.clone_from(&catalog.unfinished);
    fill_segments(folder, &catalog, report);
    fill_snapshots(folder, &identity, &catalog, report)?;
    let mut survey = survey(folder, &identity, &catalog)?;
    (report.last, report.epoch) = (Seq(survey.last), survey.epoch);
    if let Some(segment) = report.segments.last_mut() {
        segment.last = report.last;
        report.torn = torn(&mut survey, &segment.path)?;
    }
    let oldest = report.snapshots.iter().find(|snapshot| snapshot.damage.is_none());
    survey.records(folder, identity, oldest.map_or(0, |snapshot| snapshot.seq.0))?;
    // And those before it, as far as they are there.
    survey.records(folder, identity, report.first.0.max(1) - 1)?.try_for_each(|entry| entry.map(drop))
}

/// What the headers say.
fn fill_segments(folder: &Folder, catalog: &Catalog, report: &mut Report) {
    let (_, run, _) = catalog.split();
    let headers: Vec<_> = run.iter().filter_map(|segment| segment.header).collect();
    report.segments_unused = (catalog.segments.len() - headers.len()) as u64;
    report.first = headers.first().map_or(Seq(0), |header| Seq(header.first));
    for (at, header) in headers.iter().enumerate() {
        let next = headers.get(at + 1).map_or(header.first, |next| next.first);
        report.segments.push(SegmentReport {
            path: folder.segment_path(header.index),
            logic_version: header.logic_version,
            first: Seq(header.first),
            last: Seq(next - 1),
            epoch: header.epoch,
            bytes: header.bytes,
        });
    }
}

fn fill_snapshots(
    folder: &Folder,
    identity: &Identity,
    catalog: &Catalog,
    report: &mut Report,
) -> Result<(), JournalError> {
    for seq in &catalog.snapshots {
        let path = folder.snapshot_path(*seq);
        let file = folder.open(&path, Access::Read)?;
        let bytes = file.len().map_err(|error| JournalError::io("read", &path, error))?;
        report.bytes += bytes;
        let (logic_version, epoch, damage) = match Snapshot::open_whole(folder, identity, *seq) {
            Ok(whole) => (whole.logic_version, whole.epoch, None),
            Err(error) => (0, 0, Some(error)),
        };
        report.snapshots.push(SnapshotReport { path, seq: Seq(*seq), logic_version, epoch, bytes, damage });
    }
    Ok(())
}

fn torn(survey: &mut Survey, path: &Path) -> Result<Option<TornEnd>, JournalError> {
    let Some(tail) = &mut survey.tail else { return Ok(None) };
    let batch = tail.torn(survey.last).map_err(|error| JournalError::io("read", path, error))?;
    Ok(batch.map(|batch| TornEnd { path: path.to_owned(), offset: tail.at(), records: batch.count }))
}

/// The records of a journal from `from` on, or from the first that is there, up to the one that is the last now. Changes
/// nothing and takes no lock. If the journal is in use, and a segment is pruned before it was read, the iterator ends
/// with [`JournalError::Io`] or [`JournalError::Damaged`]: ask again from the record after the last that it gave, and if
/// the same is said again, it is so.
///
/// # Errors
/// As [`Journal::open`](super::Journal::open), but for the lock; and the iterator's, where it comes upon damage.
pub fn dump(folder: &Path, from: Seq) -> Result<Records, JournalError> {
    dump_on(Arc::new(RealDisk), folder, from)
}

pub(crate) fn dump_on(disk: Arc<dyn Disk>, path: &Path, from: Seq) -> Result<Records, JournalError> {
    let folder = Folder { disk, path: path.to_owned() };
    look(
        |_| String::new(),
        || {
            let catalog = folder.catalog()?;
            let Some(identity) = catalog.identity else {
                return Err(JournalError::Missing { folder: folder.path.clone(), wanted: from, found: Seq(0) });
            };
            let survey = survey(&folder, &identity, &catalog)?;
            let first = survey.segments.first().map_or(1, |segment| segment.first);
            survey.records(&folder, identity, from.0.max(first).min(survey.last + 1) - 1)
        },
    )
}

/// A snapshot of a journal, whatever is wrong with its records. It has been read once when this returns.
///
/// # Errors
/// [`JournalError::Damaged`], [`JournalError::Newer`]; [`JournalError::Io`], also if it was removed meanwhile.
pub fn snapshot(folder: &Path, seq: Seq) -> Result<Snapshot, JournalError> {
    let folder = Folder { disk: Arc::new(RealDisk), path: folder.to_owned() };
    Snapshot::open_whole(&folder, &folder.read_identity()?, seq.0)
}

/// A snapshot of a journal and the records after it, or all records if none is named; to be read as in [`dump`], and with its errors.
/// The snapshot has been read once when this returns.
///
/// # Errors
/// As [`dump`].
pub fn contents(folder: &Path, snapshot: Option<Seq>) -> Result<Recovered, JournalError> {
    let folder = Folder { disk: Arc::new(RealDisk), path: folder.to_owned() };
    look(
        |_| String::new(),
        || {
            let catalog = folder.catalog()?;
            let base = snapshot.unwrap_or_default();
            let Some(identity) = catalog.identity else {
                let (folder, wanted) = (folder.path.clone(), Seq(base.0 + 1));
                return Err(JournalError::Missing { folder, wanted, found: Seq(0) });
            };
            let snapshot = snapshot.map(|seq| Snapshot::open_whole(&folder, &identity, seq.0)).transpose()?;
            let survey = survey(&folder, &identity, &catalog)?;
            let records = survey.records(&folder, identity, base.0)?;
            Ok(Recovered { snapshot, records, last: Seq(survey.last), snapshots_damaged: Vec::new() })
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_wrong_is_believed_once_it_is_the_same_twice() {
        let damaged = |at| JournalError::damaged("log".as_ref(), at, "it is gone");
        let looks = |at: &[u64]| {
            let mut left = at.iter();
            let seen = look(|()| String::new(), || left.next().map_or(Ok(()), |at| Err(damaged(*at))));
            (seen.is_ok(), at.len() - left.len())
        };
        assert_eq!(looks(&[]), (true, 0));
        assert_eq!(looks(&[5]), (true, 1));
        assert_eq!(looks(&[5, 5, 7]), (false, 2));
        assert_eq!(looks(&[5, 6, 5, 5]), (false, 4));
        assert_eq!(looks(&[1, 2, 3, 4, 5, 6, 7, 8, 9]), (false, LOOKS_MAX));
    }
}
