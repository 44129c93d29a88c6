//! Segment files: their names, and reading back what they hold.

use crate::disk::{DiskFile, read_exact_at};
use crate::record::{HEADER_BYTES, Header, Kind};
use base::{BLOB_BYTES_MAX, Digest};
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

/// How much of the last segment's end is compared with its hashes when a store opens, in bytes. A killed process tears
/// at most the last record; what a power failure tears before that is found when it is first read.
const TAIL_BYTES: u64 = BLOB_BYTES_MAX as u64 + 4096;

/// A segment file, open.
pub(crate) struct Segment {
    /// Number, in order of age.
    pub id: u32,
    pub path: PathBuf,
    pub file: Box<dyn DiskFile>,
    /// Where the records end, in bytes.
    pub end: AtomicU64,
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment").field("path", &self.path).field("end", &self.end).finish_non_exhaustive()
    }
}

/// The path of a segment.
pub(crate) fn segment_path(dir: &Path, id: u32) -> PathBuf {
    dir.join(format!("seg-{id:08}"))
}

/// The number of the segment with this file name.
pub(crate) fn segment_id(name: &OsStr) -> Option<u32> {
    let digits = name.to_str()?.strip_prefix("seg-")?;
    let id = digits.parse().ok()?;
    // Exactly as it is written, so that two names cannot stand for one segment.
    (format!("{id:08}") == digits).then_some(id)
}

/// A record that was found in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub header: Header,
    /// Where its bytes start.
    pub offset: u64,
    /// Whether its bytes were compared with its digest.
    pub verified: bool,
}

/// Reads the headers of a segment of `len` bytes from the front, up to the first that is torn, damaged or unreadable.
/// Returns the records and where the last of them ends.
pub(crate) fn scan(file: &dyn DiskFile, len: u64) -> (Vec<Found>, u64) {
    let mut found = Vec::new();
    let mut window = Window { file, bytes: [0; 4096], start: 0, len: 0 };
    let mut at = 0;
    while at + HEADER_BYTES as u64 <= len {
        let Some(header) = window.header(at) else { break };
        if at + header.record_bytes() > len {
            break;
        }
        found.push(Found { header, offset: at + HEADER_BYTES as u64, verified: false });
        at += header.record_bytes();
    }
    (found, at)
}

/// A page of a segment, so that the headers of small records need no read each.
struct Window<'a> {
    file: &'a dyn DiskFile,
    bytes: [u8; 4096],
    start: u64,
    len: usize,
}

impl Window<'_> {
    fn header(&mut self, at: u64) -> Option<Header> {
        if at < self.start || at + HEADER_BYTES as u64 > self.start + self.len as u64 {
            self.len = self.file.read_at(&mut self.bytes, at).ok()?;
            self.start = at;
            if self.len < HEADER_BYTES {
                let end = at + HEADER_BYTES as u64;
                read_exact_at(
                    self.file,
                    &mut self.bytes[self.len..HEADER_BYTES],
                    end - (HEADER_BYTES - self.len) as u64,
                )
                .ok()?;
                self.len = HEADER_BYTES;
            }
        }
        let from = (at - self.start) as usize;
        Header::decode(self.bytes[from..from + HEADER_BYTES].try_into().expect("the range has a header's length"))
    }
}

/// Compares the records at the end of a segment with their digests, and cuts the list off at the first bad one. Returns
/// where the good records end.
pub(crate) fn verify_tail(file: &dyn DiskFile, found: &mut Vec<Found>, end: u64) -> u64 {
    let mut bytes = Vec::new();
    for at in 0..found.len() {
        let Found { header, offset, .. } = found[at];
        if header.kind == Kind::Alias || offset + u64::from(header.len) + TAIL_BYTES <= end {
            continue;
        }
        bytes.resize(header.len as usize, 0);
        let read = read_exact_at(file, &mut bytes, offset);
        if read.is_err() || Digest::of(&bytes) != header.digest {
            found.truncate(at);
            return offset - HEADER_BYTES as u64;
        }
        found[at].verified = true;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_segments_read_back_and_no_others_do() {
        for id in [0, 7, 12_345_678, u32::MAX] {
            assert_eq!(segment_id(segment_path(Path::new("/x"), id).file_name().unwrap()), Some(id));
        }
        for name in ["seg-1", "seg-+0000001", "seg-000000001", "lock", "seg-", "seg-0000000a"] {
            assert_eq!(segment_id(OsStr::new(name)), None, "{name}");
        }
    }
}
