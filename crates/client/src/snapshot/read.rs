//! The bytes of what was bound: pieces of files named by stamp, blocks, listings and recipes named by hash.

use super::content::await_writes;
use super::sources::BlockPlace;
use super::stamp::{stat_at, stat_open};
use super::{Snapshot, Stamp, open};
use crate::policy::Open;
use base::codec::Encode;
use base::{Digest, LAZY_PIECE_BYTES, Listing, TreePath};
use bytes::Bytes;
use rustix::fs::OFlags;
use std::fs::File;
use std::io;
use std::sync::Arc;

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
        let place = Place { path: &path, stamp: &stamp, offset, len };
        if let Some(file) = self.sources.held(stamp_digest) {
            return place.read(&file);
        }
        let file = Arc::new(open_to_read(&path)?);
        let bytes = place.read(&file)?;
        self.sources.hold(*stamp_digest, file);
        Ok(bytes)
    }

    /// The paths of the file whose contents the read policy keeps here, if it was bound as [`base::Content::Lazy`] with this digest.
    pub fn kept_back(&self, name: &Digest) -> Vec<TreePath> {
        self.sources.kept_back(name)
    }

    /// No task reads files any more: what was kept open or at hand for tasks is given up.
    pub fn let_go(&self) {
        self.sources.let_go();
    }

    /// Whether a block is of a file of the user, and not of the distribution.
    pub fn is_users(&self, digest: &Digest) -> bool {
        self.sources.blocks(digest).first().is_some_and(|place| !place.path.is_in_system_folder())
    }

    /// The names in a directory, by what its listing is called; `None` if they cannot be had.
    pub fn read_listing(&self, name: &Digest) -> Option<Listing> {
        Listing::from_bytes(&self.read_block(name).ok().flatten()?).ok()
    }

    /// The block, listing or recipe of this digest; `None` if it was never told of, or is long forgotten.
    ///
    /// # Errors
    /// [`ReadError::ChangedUnderneath`] if the files that had the bytes have changed since.
    pub fn read_block(&self, digest: &Digest) -> Result<Option<Bytes>, ReadError> {
        if let Some(blob) = self.sources.blob(digest) {
            return Ok(Some(blob));
        }
        let mut changed = None;
        for place in self.sources.blocks(digest) {
            match read_verified(&place, digest) {
                Ok(bytes) => return Ok(Some(bytes.into())),
                Err(error) => changed = changed.or(Some(error)),
            }
        }
        if let Some(path) = self.sources.origin(digest) {
            // Binding it anew puts its listing or recipe where it is looked up.
            if self.bind(&path, &Open).is_ok()
                && let Some(blob) = self.sources.blob(digest)
            {
                return Ok(Some(blob));
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

/// Part of a file that was bound in a known state.
struct Place<'a> {
    path: &'a TreePath,
    stamp: &'a Stamp,
    offset: u64,
    len: usize,
}

impl Place<'_> {
    /// Reads between two looks at the stamp.
    fn read(&self, file: &File) -> Result<Vec<u8>, ReadError> {
        self.look(file)?;
        await_writes(file);
        let bytes = read_exactly(file, self.offset, self.len).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.changed(),
            _ => self.failed(error),
        })?;
        self.look(file)?;
        Ok(bytes)
    }

    /// Whether the file still is what was bound. Losing its name changes a file's `ctime` and nothing else of it.
    fn look(&self, file: &File) -> Result<(), ReadError> {
        let stat = stat_open(file).map_err(|errno| self.failed(errno.into()))?;
        let seen = Stamp::of(&stat);
        let is_replaced = || stat_at(self.path.as_bytes()).map_or(true, |named| Stamp::of(&named).ino != seen.ino);
        let expected = if seen.ctime != self.stamp.ctime && is_replaced() {
            Stamp { ctime: seen.ctime, ..*self.stamp }
        } else {
            *self.stamp
        };
        if seen == expected { Ok(()) } else { Err(self.changed()) }
    }

    fn changed(&self) -> ReadError {
        ReadError::ChangedUnderneath { path: self.path.clone() }
    }

    fn failed(&self, source: io::Error) -> ReadError {
        ReadError::Io { path: self.path.clone(), source }
    }
}

fn read_exactly(file: &File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let at = offset + bytes.len() as u64;
        match rustix::io::pread(file, rustix::buffer::spare_capacity(&mut bytes), at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    // The allocator may have given more room than was asked for.
    bytes.truncate(len);
    Ok(bytes)
}

/// Reads what must have this digest: the hash itself says whether it changed.
fn read_verified(place: &BlockPlace, digest: &Digest) -> Result<Vec<u8>, ReadError> {
    let path = &place.path;
    let changed = || ReadError::ChangedUnderneath { path: path.clone() };
    let read = read_exactly(&open_to_read(path)?, place.offset, place.len as usize);
    let bytes = read.map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => changed(),
        _ => ReadError::Io { path: path.clone(), source: error },
    })?;
    if Digest::of(&bytes) == *digest { Ok(bytes) } else { Err(changed()) }
}
