//! Reading segments: batch by batch, and record by record over all of them.

use super::durable::Pin;
use super::folder::Folder;
use super::format::{
    BATCH_HEADER_BYTES, BatchHeader, Identity, Key, SECTOR_BYTES, SegmentHeader, batch_header, batch_is_whole,
    front_record, padded,
};
use super::{Entry, JournalError, Seq};
use crate::disk::{Access, DiskFile, read_exact_at};
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;

/// How much is read at once, in bytes.
const WINDOW_BYTES: usize = 1 << 20;

/// Reads the batches of one segment.
pub(crate) struct BatchReader {
    file: Box<dyn DiskFile>,
    key: Key,
    /// Where reading ends.
    end: u64,
    /// Where the next batch begins.
    at: u64,
    window: Vec<u8>,
    window_start: u64,
    /// Where the records that were not taken yet lie in the window.
    records: std::ops::Range<usize>,
    /// Where the last batch lies in the file.
    last: std::ops::Range<u64>,
}

impl BatchReader {
    /// Reads up to `end`.
    pub fn new(file: Box<dyn DiskFile>, key: Key, end: u64) -> Self {
        let at = SECTOR_BYTES as u64;
        Self { file, key, end, at, window: Vec::new(), window_start: 0, records: 0..0, last: at..at }
    }

    /// Where the batches that were read end.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The next batch; `None` if there is no whole one at this place.
    ///
    /// # Errors
    /// What the disk said.
    pub fn next_batch(&mut self) -> io::Result<Option<BatchHeader>> {
        self.records = 0..0;
        let Some((header, start)) = self.batch_at(self.at, 0)? else { return Ok(None) };
        let end = self.at + padded(header.len) as u64;
        self.last = self.at..end;
        self.at = end;
        self.records = start + BATCH_HEADER_BYTES..start + header.len;
        Ok(Some(header))
    }

    /// The next record of the last batch.
    pub fn next_record(&mut self) -> Option<&[u8]> {
        let record = front_record(&self.window[self.records.clone()])?;
        self.records.start += 4 + record.len();
        Some(record)
    }

    /// The last batch as it is stored, and where; read anew.
    ///
    /// # Errors
    /// What the disk said; also if it does not give the same again.
    pub fn last_bytes(&mut self) -> io::Result<(u64, Vec<u8>)> {
        let mut bytes = vec![0; (self.last.end - self.last.start) as usize];
        read_exact_at(&*self.file, &mut bytes, self.last.start)?;
        if !bytes.is_empty() && !batch_is_whole(&bytes, &self.key) {
            return Err(io::Error::other("it does not give the same bytes twice"));
        }
        Ok((self.last.start, bytes))
    }

    /// The header of the batch that was being written where reading stopped, if it has come so far: it follows record
    /// `last`, and is not whole.
    ///
    /// # Errors
    /// What the disk said.
    pub fn torn(&mut self, last: u64) -> io::Result<Option<BatchHeader>> {
        if self.at + SECTOR_BYTES as u64 > self.end {
            return Ok(None);
        }
        let start = self.fill(self.at, SECTOR_BYTES)?;
        // What an earlier use of the file left behind has lower numbers.
        Ok(batch_header(&self.window[start..]).filter(|header| header.first == last + 1))
    }

    /// Whether a whole batch with later records than `last` is behind the place where reading stopped. There is none
    /// unless something was damaged: a batch is written only after the one before it was synced.
    ///
    /// # Errors
    /// What the disk said.
    pub fn goes_on_behind(&mut self, last: u64) -> io::Result<bool> {
        let mut at = self.at + SECTOR_BYTES as u64;
        while at + SECTOR_BYTES as u64 <= self.end {
            if self.batch_at(at, last)?.is_some() {
                return Ok(true);
            }
            at += SECTOR_BYTES as u64;
        }
        Ok(false)
    }

    /// The header of the whole batch at this place, and where it begins in the window. Batches whose records are not
    /// later than `last` are passed over unread.
    fn batch_at(&mut self, at: u64, last: u64) -> io::Result<Option<(BatchHeader, usize)>> {
        if at + SECTOR_BYTES as u64 > self.end {
            return Ok(None);
        }
        let start = self.fill(at, SECTOR_BYTES)?;
        let header = batch_header(&self.window[start..]).filter(|header| header.first > last);
        let Some(header) = header else { return Ok(None) };
        let len = padded(header.len);
        if at + len as u64 > self.end {
            return Ok(None);
        }
        let start = self.fill(at, len)?;
        Ok(batch_is_whole(&self.window[start..start + len], &self.key).then_some((header, start)))
    }

    /// Sees to it that the window holds these bytes of the file, and says where in it.
    fn fill(&mut self, at: u64, len: usize) -> io::Result<usize> {
        let have = self.window_start..self.window_start + self.window.len() as u64;
        if at < have.start || at + len as u64 > have.end {
            let want = len.max(WINDOW_BYTES).min((self.end - at) as usize);
            self.window.resize(want, 0);
            self.window_start = at;
            if let Err(error) = read_exact_at(&*self.file, &mut self.window, at) {
                self.window.clear();
                return Err(error);
            }
        }
        Ok((at - self.window_start) as usize)
    }
}

/// The records of a journal in their order, read as they are asked for. Ends after the first error.
///
/// While those of an open journal are being read, pruning leaves their segments alone, and the folder stays locked even
/// if the journal is dropped; both until the end was reached or this is dropped.
pub struct Records {
    folder: Folder,
    identity: Identity,
    segments: VecDeque<SegmentHeader>,
    reader: Option<(BatchReader, PathBuf, SegmentHeader)>,
    batch: Option<BatchHeader>,
    /// The number of the next record.
    next: u64,
    /// The first record that the caller wants.
    from: u64,
    /// The last one. What comes after it may be in the middle of being written, and is not looked at.
    last: u64,
    epoch: u64,
    /// Keeps the segments from being pruned, if the journal is open.
    pin: Option<Pin>,
}

impl std::fmt::Debug for Records {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Records").field("next", &self.next).field("from", &self.from).finish_non_exhaustive()
    }
}

impl Records {
    /// The records from `from` to `last` in segments that follow one another.
    pub(crate) fn new(folder: Folder, identity: Identity, segments: Vec<SegmentHeader>, from: u64, last: u64) -> Self {
        // Segments that end before `from` are passed over.
        let begin = segments.iter().rposition(|segment| segment.first <= from).unwrap_or(0);
        let segments = VecDeque::from(segments).split_off(begin);
        let next = segments.front().map_or(from, |segment| segment.first);
        Self { folder, identity, segments, reader: None, batch: None, next, from, last, epoch: 0, pin: None }
    }

    /// The same, of an open journal.
    pub(crate) fn pinned(self, pin: Pin) -> Self {
        Self { pin: Some(pin), ..self }
    }

    fn advance(&mut self) -> Result<Option<Entry>, JournalError> {
        while self.next <= self.last {
            if let Some(entry) = self.take_record()? {
                if entry.seq.0 >= self.from {
                    return Ok(Some(entry));
                }
            } else if !self.take_batch()? {
                self.take_segment()?;
            }
        }
        Ok(None)
    }

    /// The next record of the batch.
    fn take_record(&mut self) -> Result<Option<Entry>, JournalError> {
        let (Some((reader, path, segment)), Some(batch)) = (&mut self.reader, &mut self.batch) else { return Ok(None) };
        if self.next == batch.first + u64::from(batch.count) {
            self.batch = None;
            return Ok(None);
        }
        let at = reader.last.start;
        let record = reader.next_record().ok_or_else(|| JournalError::damaged(path, at, "a batch lacks records"))?;
        let (seq, epoch, logic_version) = (Seq(self.next), batch.epoch, segment.logic_version);
        // What is passed over needs no copy.
        let record = if self.next < self.from { Vec::new() } else { record.to_vec() };
        self.next += 1;
        Ok(Some(Entry { seq, epoch, logic_version, record }))
    }

    /// Goes to the next batch of the segment; false if there is none.
    fn take_batch(&mut self) -> Result<bool, JournalError> {
        let Some((reader, path, _)) = &mut self.reader else { return Ok(false) };
        let at = reader.at();
        let batch = reader.next_batch().map_err(|error| JournalError::io("read", path, error))?;
        let Some(batch) = batch else { return Ok(false) };
        if batch.first != self.next || batch.epoch < self.epoch {
            return Err(JournalError::damaged(path, at, "a batch does not follow the one before"));
        }
        self.epoch = batch.epoch;
        self.batch = Some(batch);
        Ok(true)
    }

    /// Goes to the next segment. It must be there, and go on where the one before ended.
    fn take_segment(&mut self) -> Result<(), JournalError> {
        let segment = self.segments.front().copied();
        let Some(segment) = segment.filter(|segment| segment.first == self.next) else {
            let (path, at) = match (&self.reader, segment) {
                (Some((reader, path, _)), _) => (path.clone(), reader.at()),
                (None, Some(segment)) => (self.folder.segment_path(segment.index), 0),
                (None, None) => (self.folder.path.clone(), 0),
            };
            let what = match segment {
                Some(_) => "a batch is not whole, though a later segment goes on",
                None => "a batch is no longer whole",
            };
            return Err(JournalError::damaged(&path, at, what));
        };
        self.segments.pop_front();
        let path = self.folder.segment_path(segment.index);
        let file = self.folder.open(&path, Access::Read)?;
        let key = self.identity.segment_key(segment.index);
        self.reader = Some((BatchReader::new(file, key, segment.bytes), path, segment));
        Ok(())
    }
}

impl Iterator for Records {
    type Item = Result<Entry, JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.advance().transpose();
        if !matches!(item, Some(Ok(_))) {
            (self.reader, self.batch, self.pin) = (None, None, None);
            // An error is the end.
            self.next = self.last + 1;
        }
        item
    }
}
