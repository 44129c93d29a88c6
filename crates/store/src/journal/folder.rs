//! What is in a journal's folder: names, and what the headers say.

use super::JournalError;
use super::format::{Decoded, IDENTITY_FILE_BYTES, Identity, SECTOR_BYTES, SegmentHeader, VERSION};
use super::read::BatchReader;
use crate::disk::{Access, Disk, DiskFile, read_exact_at};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A folder on a disk.
#[derive(Clone)]
pub(crate) struct Folder {
    pub disk: Arc<dyn Disk>,
    pub path: PathBuf,
}

/// A file with a segment's name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentFile {
    /// From its name.
    pub index: u64,
    /// Its length.
    pub bytes: u64,
    /// `None` if it is not in use, or damaged.
    pub header: Option<SegmentHeader>,
}

/// All that was found.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    /// `None` if there is no such file.
    pub identity: Option<Identity>,
    /// By index.
    pub segments: Vec<SegmentFile>,
    /// The last records of the snapshots, ascending.
    pub snapshots: Vec<u64>,
    /// Files that were being made.
    pub unfinished: Vec<PathBuf>,
    /// Snapshots that were put aside since they were damaged.
    pub aside: Vec<PathBuf>,
}

/// The name of the file that names the journal.
const IDENTITY_NAME: &str = "journal";
/// What the names of unfinished files begin with.
const UNFINISHED: &str = "tmp-";
/// What the names of files that were put aside begin with.
const ASIDE: &str = "damaged-";

impl Folder {
    /// The path of the file that names the journal.
    pub fn identity_path(&self) -> PathBuf {
        self.path.join(IDENTITY_NAME)
    }

    /// The path of a segment.
    pub fn segment_path(&self, index: u64) -> PathBuf {
        self.path.join(format!("log-{index:012}"))
    }

    /// The path of a snapshot.
    pub fn snapshot_path(&self, seq: u64) -> PathBuf {
        self.path.join(format!("snapshot-{seq:020}"))
    }

    /// The path under which a damaged snapshot is left for people to look at.
    pub fn damaged_path(&self, seq: u64) -> PathBuf {
        self.path.join(format!("{ASIDE}snapshot-{seq:020}"))
    }

    /// The path of a file that is being made.
    pub fn unfinished_path(&self, what: &str) -> PathBuf {
        self.path.join(format!("{UNFINISHED}{what}"))
    }

    /// Opens a file.
    pub fn open(&self, path: &Path, access: Access) -> Result<Box<dyn DiskFile>, JournalError> {
        let doing = if access == Access::Create { "create" } else { "open" };
        self.disk.open(path, access).map_err(|error| JournalError::io(doing, path, error))
    }

    /// Removes a file.
    pub fn remove(&self, path: &Path) -> Result<(), JournalError> {
        self.disk.remove(path).map_err(|error| JournalError::io("remove", path, error))
    }

    /// Renames a file.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<(), JournalError> {
        self.disk.rename(from, to).map_err(|error| JournalError::io("rename", from, error))
    }

    /// Makes the names durable.
    pub fn sync_names(&self) -> Result<(), JournalError> {
        self.disk.sync_names(&self.path).map_err(|error| JournalError::io("sync the names in", &self.path, error))
    }

    /// Reads what is in the folder.
    pub fn catalog(&self) -> Result<Catalog, JournalError> {
        let names = self.disk.list(&self.path).map_err(|error| JournalError::io("list", &self.path, error))?;
        let mut catalog = Catalog::default();
        let mut indexes = Vec::new();
        for name in names.iter().filter_map(|name| name.to_str()) {
            if name == IDENTITY_NAME {
                catalog.identity = Some(self.read_identity()?);
            } else if name.starts_with(UNFINISHED) {
                catalog.unfinished.push(self.path.join(name));
            } else if name.starts_with(ASIDE) {
                catalog.aside.push(self.path.join(name));
            } else if let Some(index) = number(name, "log-", 12) {
                indexes.push(index);
            } else if let Some(seq) = number(name, "snapshot-", 20) {
                catalog.snapshots.push(seq);
            }
        }
        catalog.aside.sort_unstable();
        catalog.snapshots.sort_unstable();
        indexes.sort_unstable();
        if let Some(identity) = &catalog.identity {
            let read = indexes.into_iter().map(|index| self.read_segment_file(identity, index));
            catalog.segments = read.collect::<Result<_, _>>()?;
        } else if !indexes.is_empty() || !catalog.snapshots.is_empty() {
            let what = "the file that names the journal is gone";
            return Err(JournalError::damaged(&self.identity_path(), 0, what));
        }
        Ok(catalog)
    }

    /// Reads the file that names the journal.
    pub fn read_identity(&self) -> Result<Identity, JournalError> {
        let path = self.identity_path();
        let file = self.open(&path, Access::Read)?;
        let mut bytes = [0; IDENTITY_FILE_BYTES];
        read_exact_at(&*file, &mut bytes, 0).map_err(|error| JournalError::io("read", &path, error))?;
        match Identity::decode(&bytes) {
            Decoded::Whole(identity) => Ok(identity),
            Decoded::Broken => Err(JournalError::damaged(&path, 0, "the name of the journal is not whole")),
            Decoded::Newer(found) => Err(JournalError::Newer { path, found, known: VERSION }),
        }
    }

    fn read_segment_file(&self, identity: &Identity, index: u64) -> Result<SegmentFile, JournalError> {
        let path = self.segment_path(index);
        let file = self.open(&path, Access::Read)?;
        let failed = |error| JournalError::io("read", &path, error);
        let bytes = file.len().map_err(failed)?;
        let mut block = [0; SECTOR_BYTES];
        let header = match read_exact_at(&*file, &mut block, 0) {
            Ok(()) => SegmentHeader::decode(&block),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Decoded::Broken,
            Err(error) => return Err(failed(error)),
        };
        let header = match header {
            Decoded::Whole(header) if header.index == index && header.identity == *identity => Some(header),
            Decoded::Whole(_) | Decoded::Broken => None,
            Decoded::Newer(found) => return Err(JournalError::Newer { path, found, known: VERSION }),
        };
        if header.is_some_and(|header| header.bytes != bytes) {
            return Err(JournalError::damaged(&path, bytes, "the file is not as long as its header says"));
        }
        Ok(SegmentFile { index, bytes, header })
    }

    /// A segment without a header must be unused: nothing is written to one before its header is durable. A disk that has lost the
    /// header may have lost the first batches with it, so others are looked for. What an earlier use of the file left behind is not
    /// whole under this segment's key.
    pub fn check_unused(&self, identity: &Identity, segment: &SegmentFile) -> Result<(), JournalError> {
        let path = self.segment_path(segment.index);
        let file = self.open(&path, Access::Read)?;
        let mut reader = BatchReader::new(file, identity.segment_key(segment.index), segment.bytes);
        let is_used = reader.next_batch().and_then(|batch| Ok(batch.is_some() || reader.goes_on_behind(0)?));
        match is_used.map_err(|error| JournalError::io("read", &path, error))? {
            false => Ok(()),
            true => Err(JournalError::damaged(&path, 0, "records follow a header that is not whole")),
        }
    }
}

impl Catalog {
    /// The segments in use whose indexes follow one another up to the last one in use, and those before and after them.
    pub fn split(&self) -> (&[SegmentFile], &[SegmentFile], &[SegmentFile]) {
        let end = self.segments.iter().rposition(|segment| segment.header.is_some()).map_or(0, |last| last + 1);
        let mut start = end;
        while start > 0 && self.segments[start - 1].header.is_some() {
            if start < end && self.segments[start - 1].index + 1 != self.segments[start].index {
                break;
            }
            start -= 1;
        }
        (&self.segments[..start], &self.segments[start..end], &self.segments[end..])
    }
}

/// The number in a name, exactly as it is written there, so that two names cannot stand for one.
fn number(name: &str, prefix: &str, digits: usize) -> Option<u64> {
    let text = name.strip_prefix(prefix)?;
    let number = text.parse::<u64>().ok()?;
    (format!("{number:0digits$}") == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_read_back_and_no_others_do() {
        assert_eq!(number("log-000000000007", "log-", 12), Some(7));
        assert_eq!(number("log-1000000000007", "log-", 12), Some(1_000_000_000_007));
        for name in ["log-7", "log-+00000000007", "log-0000000000007", "lag-000000000007", "log-"] {
            assert_eq!(number(name, "log-", 12), None, "{name}");
        }
    }
}
