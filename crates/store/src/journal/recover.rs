//! Finding out, at a start or for an inspection, what a journal's folder holds.

use super::commit::Current;
use super::folder::{Catalog, Folder};
use super::format::{Decoded, Identity, SECTOR_BYTES, SegmentHeader, VERSION};
use super::read::{BatchReader, Records};
use super::shared::Files;
use super::snapshot::Snapshot;
use super::{JournalError, Options, Recovered, Seq};
use crate::disk::{Access, read_exact_at, write_all_at};
use std::path::PathBuf;

/// The records that a folder holds.
pub(crate) struct Survey {
    /// The segments that follow one another up to the last.
    pub segments: Vec<SegmentHeader>,
    /// The segment right before them, if there is one: its header is not whole.
    broken: Option<u64>,
    /// The last whole record; 0 if there is none.
    pub last: u64,
    /// The highest epoch.
    pub epoch: u64,
    /// The last segment, at the end of its batches.
    pub tail: Option<BatchReader>,
}

/// Looks for the end of the records. Damage that can be seen from there is an error.
pub(crate) fn survey(folder: &Folder, identity: &Identity, catalog: &Catalog) -> Result<Survey, JournalError> {
    let (before, run, after) = catalog.split();
    for segment in after {
        folder.check_unused(identity, segment)?;
    }
    let broken = before.last().zip(run.first()).map(|(before, first)| (before.index, first.index));
    let broken = broken.filter(|(before, first)| before + 1 == *first).map(|(before, _)| before);
    let segments: Vec<SegmentHeader> = run.iter().filter_map(|segment| segment.header).collect();
    let Some(header) = segments.last() else {
        return Ok(Survey { segments, broken, last: 0, epoch: 0, tail: None });
    };
    let path = folder.segment_path(header.index);
    let failed = |error| JournalError::io("read", &path, error);
    let file = folder.open(&path, Access::Read)?;
    let mut tail = BatchReader::new(file, identity.segment_key(header.index), header.bytes);
    let (mut last, mut epoch) = (header.first - 1, header.epoch);
    loop {
        let at = tail.at();
        let Some(batch) = tail.next_batch().map_err(failed)? else { break };
        if batch.first != last + 1 || batch.epoch < epoch {
            return Err(JournalError::damaged(&path, at, "a batch does not follow the one before"));
        }
        (last, epoch) = (last + u64::from(batch.count), batch.epoch);
    }
    if tail.goes_on_behind(last).map_err(failed)? {
        return Err(JournalError::damaged(&path, tail.at(), "a batch is not whole, though later ones are"));
    }
    Ok(Survey { segments, broken, last, epoch, tail: Some(tail) })
}

impl Survey {
    /// Checks that the records after `base` are there, and gives them.
    pub fn records(&self, folder: &Folder, identity: Identity, base: u64) -> Result<Records, JournalError> {
        let found = self.segments.first().map_or(0, |segment| segment.first);
        if let Some(segment) = self.segments.last().filter(|_| base > self.last) {
            let at = self.tail.as_ref().map_or(0, BatchReader::at);
            let what = "the records end before the newest snapshot does";
            return Err(JournalError::damaged(&folder.segment_path(segment.index), at, what));
        }
        if let Some(index) = self.broken.filter(|_| found > base + 1) {
            let what = "the header of a segment is not whole, though a later one goes on";
            return Err(JournalError::damaged(&folder.segment_path(index), 0, what));
        }
        if found > base + 1 || (found == 0 && base > 0) {
            return Err(JournalError::Missing {
                folder: folder.path.clone(),
                wanted: Seq(base + 1),
                found: Seq(found),
            });
        }
        Ok(Records::new(folder.clone(), identity, self.segments.clone(), base + 1, self.last))
    }
}

/// What a start has found.
pub(crate) struct Start {
    pub identity: Identity,
    pub files: Files,
    pub current: Option<Current>,
    /// Where the batches of the last segment that has any end in it.
    pub end: u64,
    pub epoch: u64,
    /// Bytes on disk.
    pub bytes: u64,
    pub segments: u64,
    pub recovered: Recovered,
}

/// Reads a folder for a start, and leaves it so that writing can go on.
pub(crate) fn start(folder: &Folder, options: &Options) -> Result<Start, JournalError> {
    let catalog = folder.catalog()?;
    for path in &catalog.unfinished {
        folder.remove(path)?;
    }
    let identity = catalog.identity.map_or_else(|| random_identity(folder), Ok)?;
    write_identity(folder, &identity)?;
    let mut damaged = Vec::new();
    let snapshot = newest_whole(folder, &identity, &catalog, &mut damaged)?;
    let base = snapshot.as_ref().map_or(0, |snapshot| snapshot.seq.0);
    let mut survey = survey(folder, &identity, &catalog)?;
    let found = survey.epoch.max(snapshot.as_ref().map_or(0, |snapshot| snapshot.epoch));
    if options.epoch < found {
        return Err(JournalError::Fenced { found, given: options.epoch });
    }
    let records = survey.records(folder, identity, base)?;
    let current = make_end_durable(folder, identity, &mut survey, options)?;
    let snapshots_damaged = put_aside(folder, &damaged)?;
    let (files, bytes) = files(folder, &catalog, &damaged, options)?;
    folder.sync_names()?;
    let end = survey.segments.last().map_or(0, |header| header.bytes);
    let end = survey.tail.filter(|tail| tail.at() > SECTOR_BYTES as u64).map_or(end, |tail| tail.at());
    let recovered = Recovered { snapshot, records, last: Seq(survey.last), snapshots_damaged };
    let segments = (files.strays.len() + files.used.len() + files.ahead.len()) as u64;
    Ok(Start { identity, files, current, end, epoch: options.epoch, bytes, segments, recovered })
}

fn random_identity(folder: &Folder) -> Result<Identity, JournalError> {
    let mut random = [0; 16];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| JournalError::io("find a random name for", &folder.path, errno.into()))?;
    Ok(Identity(random))
}

/// Writes the file that names the journal. Each start does, since an earlier one may have failed to sync its name; and
/// syncs the names before segments are made, so it is missing only if it was lost.
fn write_identity(folder: &Folder, identity: &Identity) -> Result<(), JournalError> {
    let unfinished = folder.unfinished_path("journal");
    let file = folder.open(&unfinished, Access::Create)?;
    write_all_at(&*file, &[&identity.encode()], 0)
        .and_then(|()| file.sync())
        .map_err(|error| JournalError::io("write", &unfinished, error))?;
    folder.rename(&unfinished, &folder.identity_path())
}

/// The newest snapshot that is whole; the newer ones that are not go to `damaged`.
fn newest_whole(
    folder: &Folder,
    identity: &Identity,
    catalog: &Catalog,
    damaged: &mut Vec<u64>,
) -> Result<Option<Snapshot>, JournalError> {
    for seq in catalog.snapshots.iter().rev() {
        match Snapshot::open_whole(folder, identity, *seq) {
            Ok(snapshot) => return Ok(Some(snapshot)),
            Err(error @ JournalError::Newer { .. }) => return Err(error),
            Err(error) => {
                tracing::error!(%error, "a snapshot of the journal cannot be used; the one before it is taken");
                damaged.push(*seq);
            }
        }
    }
    Ok(None)
}

/// Renames damaged snapshots, so that they neither count nor are lost.
fn put_aside(folder: &Folder, damaged: &[u64]) -> Result<Vec<PathBuf>, JournalError> {
    let aside = |seq: &u64| {
        let path = folder.damaged_path(*seq);
        folder.rename(&folder.snapshot_path(*seq), &path).map(|()| path)
    };
    damaged.iter().map(aside).collect()
}

/// Writes the last batch once more and syncs it. What was read may have come from the page cache: the process that
/// wrote it may have died before its sync, or of its sync's failure, after which the system takes the bytes for clean.
/// What is recovered is acted upon, so it must not be lost after that.
fn make_end_durable(
    folder: &Folder,
    identity: Identity,
    survey: &mut Survey,
    options: &Options,
) -> Result<Option<Current>, JournalError> {
    let (Some(header), Some(tail)) = (survey.segments.last(), &mut survey.tail) else {
        return Ok(None);
    };
    let path = folder.segment_path(header.index);
    let failed = |error| JournalError::io("sync the end of", &path, error);
    let file = folder.open(&path, Access::Write)?;
    let mut block = [0; SECTOR_BYTES];
    read_exact_at(&*file, &mut block, 0).map_err(failed)?;
    match SegmentHeader::decode(&block) {
        Decoded::Whole(again) if again == *header => {}
        Decoded::Newer(found) => return Err(JournalError::Newer { path, found, known: VERSION }),
        _ => return Err(JournalError::damaged(&path, 0, "the disk does not give the same bytes twice")),
    }
    let (at, bytes) = tail.last_bytes().map_err(failed)?;
    // Before the first batch it is the header that may not be durable.
    let written =
        if bytes.is_empty() { write_all_at(&*file, &[&block], 0) } else { write_all_at(&*file, &[&bytes], at) };
    written.and_then(|()| file.sync()).map_err(failed)?;
    let key = identity.segment_key(header.index);
    let current = Current { file, path, key, at: tail.at(), bytes: header.bytes };
    Ok((header.logic_version == options.logic_version).then_some(current))
}

/// Sorts the files; those segments made ahead that cannot be used are removed. With the count of bytes.
fn files(folder: &Folder, catalog: &Catalog, damaged: &[u64], options: &Options) -> Result<(Files, u64), JournalError> {
    let (before, run, after) = catalog.split();
    let mut next_index = run.last().map_or(1, |last| last.index + 1);
    let mut bytes = before.iter().chain(run).map(|segment| segment.bytes).sum();
    let mut files = Files {
        used: run.iter().filter_map(|segment| segment.header).collect(),
        ahead: Default::default(),
        next_index: 0,
        strays: before.iter().map(|segment| (segment.index, segment.bytes)).collect(),
        snapshots: Default::default(),
        is_wanted: false,
        is_making: false,
        is_stopping: false,
        failed: None,
    };
    for segment in after {
        if segment.index == next_index && segment.bytes == options.segment_bytes {
            // Named anew: the sync of the name may have failed, and would not be made up for by the next one.
            let (path, unfinished) = (folder.segment_path(next_index), folder.unfinished_path("ahead"));
            folder.rename(&path, &unfinished)?;
            folder.rename(&unfinished, &path)?;
            files.ahead.push_back(next_index);
            next_index += 1;
            bytes += segment.bytes;
        } else {
            folder.remove(&folder.segment_path(segment.index))?;
        }
    }
    files.next_index = next_index;
    for seq in catalog.snapshots.iter().filter(|seq| !damaged.contains(seq)) {
        let path = folder.snapshot_path(*seq);
        let len = folder.open(&path, Access::Read)?.len().map_err(|error| JournalError::io("read", &path, error))?;
        files.snapshots.push_back((*seq, len));
        bytes += len;
    }
    Ok((files, bytes))
}
