//! The bytes of what was bound: pieces of files named by stamp, blocks, listings and recipes named by hash.

use super::content::await_writes;
use super::sources::BlockPlace;
use super::stamp::stat_open;
use super::{Snapshot, Stamp, open};
use crate::policy::Open;
use base::{Digest, LAZY_PIECE_BYTES, TreePath};
use rustix::fs::OFlags;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Why bytes that were bound cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file is no longer what it was when it was bound.
    #[error("{path} was changed while a command was using it: run the command again")]
    ChangedUnderneath {
        /// Which.
        path: TreePath,
    },
    /// The kernel refused.
    #[error("{path} cannot be read: {source}")]
    Io {
        /// Which.
        path: TreePath,
        /// What the kernel said.
        source: io::Error,
    },
    /// Nothing was bound under this stamp, or it is long forgotten.
    #[error("no file is known under the stamp {0:?}: run the command again")]
    UnknownStamp(Digest),
    /// There is no such piece.
    #[error("{path} has no piece {index}")]
    NoSuchPiece {
        /// Which.
        path: TreePath,
        /// The piece asked for.
        index: u64,
    },
}

impl Snapshot {
    /// Piece `index` of the file bound as [`base::Content::Lazy`] with this digest: [`LAZY_PIECE_BYTES`] bytes, the
    /// last piece fewer.
    ///
    /// # Errors
    /// [`ReadError::ChangedUnderneath`] if the file is no longer in the state that was bound, never torn bytes.
    pub fn read_piece(&self, stamp_digest: &Digest, index: u64) -> Result<Vec<u8>, ReadError> {
        let (path, stamp) = self.sources.lazy(stamp_digest).ok_or(ReadError::UnknownStamp(*stamp_digest))?;
        let offset = index.checked_mul(LAZY_PIECE_BYTES).filter(|offset| *offset < stamp.size);
        let Some(offset) = offset else { return Err(ReadError::NoSuchPiece { path, index }) };
        let len = LAZY_PIECE_BYTES.min(stamp.size - offset) as usize;
        read_bracketed(&path, &stamp, offset, len)
    }

    /// The block, listing or recipe of this digest; `None` if it was never told of, or is long forgotten.
    ///
    /// # Errors
    /// [`ReadError::ChangedUnderneath`] if the files that had the bytes have changed since.
    pub fn read_block(&self, digest: &Digest) -> Result<Option<Vec<u8>>, ReadError> {
        if let Some(blob) = self.sources.blob(digest) {
            return Ok(Some(blob.to_vec()));
        }
        let mut changed = None;
        for place in self.sources.blocks(digest) {
            match read_verified(&place, digest) {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(error) => changed = changed.or(Some(error)),
            }
        }
        if let Some(path) = self.sources.origin(digest) {
            // Binding it anew puts its listing or recipe where it is looked up.
            if self.bind(&path, &Open).is_ok()
                && let Some(blob) = self.sources.blob(digest)
            {
                return Ok(Some(blob.to_vec()));
            }
            changed = changed.or(Some(ReadError::ChangedUnderneath { path }));
        }
        changed.map_or(Ok(None), Err)
    }
}

fn open_to_read(path: &TreePath) -> Result<File, ReadError> {
    use rustix::io::Errno;
    open(path, OFlags::RDONLY).map(File::from).map_err(|errno| match errno {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP => ReadError::ChangedUnderneath { path: path.clone() },
        _ => ReadError::Io { path: path.clone(), source: errno.into() },
    })
}

/// Reads between two looks at the stamp.
fn read_bracketed(path: &TreePath, stamp: &Stamp, offset: u64, len: usize) -> Result<Vec<u8>, ReadError> {
    let file = open_to_read(path)?;
    let changed = || ReadError::ChangedUnderneath { path: path.clone() };
    let failed = |source| ReadError::Io { path: path.clone(), source };
    let look = || stat_open(&file).map(|stat| Stamp::of(&stat)).map_err(|errno| failed(errno.into()));
    if look()? != *stamp {
        return Err(changed());
    }
    await_writes(&file);
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, offset).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => changed(),
        _ => failed(error),
    })?;
    if look()? == *stamp { Ok(bytes) } else { Err(changed()) }
}

/// Reads what must have this digest: the hash itself says whether it changed.
fn read_verified(place: &BlockPlace, digest: &Digest) -> Result<Vec<u8>, ReadError> {
    let path = &place.path;
    let changed = || ReadError::ChangedUnderneath { path: path.clone() };
    let mut bytes = vec![0; place.len as usize];
    open_to_read(path)?.read_exact_at(&mut bytes, place.offset).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => changed(),
        _ => ReadError::Io { path: path.clone(), source: error },
    })?;
    if Digest::of(&bytes) == *digest { Ok(bytes) } else { Err(changed()) }
}
