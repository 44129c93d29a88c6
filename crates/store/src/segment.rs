//! Segment files: their names, and reading back what they hold.

use crate::disk::{DiskFile, read_exact_at};
use crate::record::{HEADER_BYTES, Header, Kind};
use crate::shrink::{PIECE_BYTES, shrink_on};
use base::{BLOB_BYTES_MAX, Digest};
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How much of the last segment's end is compared with its hashes when a store opens, in bytes. A killed process tears
/// at most the last record; what a power failure tears before that is found when it is first read.
const TAIL_BYTES: u64 = BLOB_BYTES_MAX as u64 + 4096;

/// A segment file, open.
pub(crate) struct Segment {
    /// Number, in order of age.
    pub id: u32,
    pub path: PathBuf,
    pub file: Arc<dyn DiskFile>,
    /// Where the records end, in bytes.
    pub end: AtomicU64,
    /// Its file has no name any more.
    is_removed: AtomicBool,
}

impl Segment {
    pub fn new(id: u32, path: PathBuf, file: Box<dyn DiskFile>, end: u64) -> Arc<Self> {
        let is_removed = AtomicBool::new(false);
        Arc::new(Self { id, path, file: file.into(), end: AtomicU64::new(end), is_removed })
    }

    /// Its room is given back when nobody reads it any more.
    pub fn set_removed(&self) {
        self.is_removed.store(true, Ordering::Relaxed);
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        let (end, file) = (*self.end.get_mut(), self.file.clone());
        if *self.is_removed.get_mut() && end > PIECE_BYTES {
            // If there is no thread for that, all of it is freed at once.
            let _ = std::thread::Builder::new().name("shrink".into()).spawn(move || {
                if let Err(error) = shrink_on(&*file, end, PIECE_BYTES) {
                    tracing::debug!(%error, "an old segment is freed at once");
                }
            });
        }
    }
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

/// What a segment holds.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// The records up to the first that is torn, damaged or unreadable.
    pub found: Vec<Found>,
    /// Where the last of them ends.
    pub end: u64,
    /// Whether they end there because the disk failed: then there may be more, and it must not be cut off.
    pub is_unreadable: bool,
}

/// Reads the headers of a segment of `len` bytes from the front.
pub(crate) fn scan(file: &dyn DiskFile, len: u64) -> Scan {
    let mut scan = Scan::default();
    let mut window = Window { file, bytes: [0; 4096], start: 0, len: 0 };
    while scan.end + HEADER_BYTES as u64 <= len {
        let header = match window.header(scan.end) {
            Ok(Some(header)) => header,
            Ok(None) => break,
            Err(_) => {
                scan.is_unreadable = true;
                break;
            }
        };
        if scan.end + header.record_bytes() > len {
            break;
        }
        scan.found.push(Found { header, offset: scan.end + HEADER_BYTES as u64, verified: false });
        scan.end += header.record_bytes();
    }
    scan
}

/// A page of a segment, so that the headers of small records need no read each.
struct Window<'a> {
    file: &'a dyn DiskFile,
    bytes: [u8; 4096],
    start: u64,
    len: usize,
}

impl Window<'_> {
    fn header(&mut self, at: u64) -> io::Result<Option<Header>> {
        let end = at + HEADER_BYTES as u64;
        if at < self.start || end > self.start + self.len as u64 {
            self.start = at;
            self.len = self.file.read_at(&mut self.bytes, at)?;
            if self.len < HEADER_BYTES {
                let rest = &mut self.bytes[self.len..HEADER_BYTES];
                read_exact_at(self.file, rest, at + self.len as u64)?;
                self.len = HEADER_BYTES;
            }
        }
        let from = (at - self.start) as usize;
        let bytes = self.bytes[from..from + HEADER_BYTES].try_into().expect("the range has a header's length");
        Ok(Header::decode(bytes))
    }
}

/// Compares the records at the end of a segment with their digests, and cuts the scan off at the first bad one.
pub(crate) fn verify_tail(file: &dyn DiskFile, scan: &mut Scan) {
    let mut bytes = Vec::new();
    for at in 0..scan.found.len() {
        let Found { header, offset, .. } = scan.found[at];
        if header.kind == Kind::Alias || offset + u64::from(header.len) + TAIL_BYTES <= scan.end {
            continue;
        }
        bytes.resize(header.len as usize, 0);
        let read = read_exact_at(file, &mut bytes, offset);
        if read.is_err() || Digest::of(&bytes) != header.digest {
            scan.is_unreadable |= read.is_err();
            scan.found.truncate(at);
            scan.end = offset - HEADER_BYTES as u64;
            return;
        }
        scan.found[at].verified = true;
    }
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
