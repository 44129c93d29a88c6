//! What the hub has of this client's contents, by digest: it is not sent again. Kept on disk, for a daemon that starts anew.
//!
//! It is about one store, which the hub names in its greeting. What is wrong in it costs a question: the hub asks for what it lacks.

use crate::small_file;
use base::Digest;
use bytes::Bytes;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

/// Most objects that the hub is remembered to have; beyond, all are forgotten, and sent again when they are needed.
const OBJECTS_MAX: usize = 500_000;
/// Most that are written down.
const SAVED_MAX: usize = 50_000;
/// Begins the file. Then come the length of the store's name, the name, and the digests.
const MAGIC: &[u8] = b"gleaner hub-has 1\n";
/// Bytes of a digest.
const DIGEST_BYTES: usize = 32;
/// Largest file that is read.
const FILE_BYTES_MAX: u64 = (SAVED_MAX * DIGEST_BYTES + 1024) as u64;

/// What the hub has.
#[derive(Debug, Default)]
pub struct Shadow {
    file: Option<PathBuf>,
    store: Bytes,
    has: HashSet<Digest>,
    is_saved: bool,
}

/// What is to be written down.
#[derive(Debug)]
pub struct ToSave {
    file: PathBuf,
    bytes: Vec<u8>,
}

impl Shadow {
    /// What `file` has; nothing if it cannot be read.
    pub fn load(file: &Path) -> Self {
        let bytes = small_file::read(file, FILE_BYTES_MAX).unwrap_or_default();
        let (store, has) = parse(&bytes).unwrap_or_default();
        Self { file: Some(file.to_owned()), store, has, is_saved: true }
    }

    /// Whether the hub has it.
    pub fn has(&self, digest: &Digest) -> bool {
        self.has.contains(digest)
    }

    /// The hub has these.
    pub fn note(&mut self, digests: impl IntoIterator<Item = Digest>) {
        if self.has.len() > OBJECTS_MAX {
            self.has.clear();
        }
        let before = self.has.len();
        self.has.extend(digests);
        self.is_saved &= self.has.len() == before;
    }

    /// Nothing is known of what the hub has.
    pub fn clear(&mut self) {
        self.is_saved &= self.has.is_empty();
        self.has.clear();
    }

    /// The hub keeps what it is sent in the store of this name: what another one had counts for nothing.
    pub fn store_is(&mut self, name: &Bytes) {
        if self.store != *name || name.is_empty() {
            self.clear();
            self.store = name.clone();
        }
    }

    /// What is to be written down, if that is news.
    pub fn to_save(&mut self) -> Option<ToSave> {
        let file = self.file.clone().filter(|_| !std::mem::replace(&mut self.is_saved, true))?;
        let length = u8::try_from(self.store.len()).ok()?;
        let mut bytes = [MAGIC, &[length], &self.store].concat();
        self.has.iter().take(SAVED_MAX).for_each(|digest| bytes.extend(digest.0));
        Some(ToSave { file, bytes })
    }
}

impl ToSave {
    /// Writes it.
    pub fn write(&self) -> io::Result<()> {
        small_file::write(&self.file, &self.bytes)
    }
}

fn parse(bytes: &[u8]) -> Option<(Bytes, HashSet<Digest>)> {
    let (length, rest) = bytes.strip_prefix(MAGIC)?.split_first()?;
    let (store, digests) = rest.split_at_checked((*length).into())?;
    let digests = digests.chunks_exact(DIGEST_BYTES).filter_map(Digest::from_slice);
    Some((Bytes::copy_from_slice(store), digests.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_known_after_a_restart_and_to_one_store_only() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hub-has");
        let (one, other) = (Bytes::from_static(b"one"), Bytes::from_static(b"other"));
        let digest = Digest::of(b"sent");
        let mut shadow = Shadow::load(&file);
        shadow.store_is(&one);
        assert!(shadow.to_save().is_none(), "nothing is known");
        shadow.note([digest]);
        shadow.to_save().expect("news").write().unwrap();
        shadow.note([digest]);
        assert!(shadow.to_save().is_none(), "no news");
        let mut shadow = Shadow::load(&file);
        shadow.store_is(&one);
        assert!(shadow.has(&digest));
        shadow.store_is(&other);
        assert!(!shadow.has(&digest));
    }

    #[test]
    fn golden_bytes_and_torn_files() {
        let mut shadow = Shadow { file: Some("x".into()), ..Shadow::default() };
        shadow.store_is(&Bytes::from_static(b"ab"));
        shadow.note([Digest([7; 32])]);
        let bytes = shadow.to_save().expect("news").bytes;
        assert_eq!(bytes, [&b"gleaner hub-has 1\n\x02ab"[..], &[7; 32]].concat());
        for length in 0..bytes.len() {
            let known = parse(&bytes[..length]).unwrap_or_default().1;
            assert!(known.is_empty(), "{length} bytes");
        }
        assert_eq!(parse(&bytes).expect("whole").1.len(), 1);
    }
}
