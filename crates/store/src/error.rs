//! What can go wrong in the block store.

use base::Digest;
use std::io;
use std::path::PathBuf;

/// Why the store refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has the store open.
    #[error("the block store {dir} is in use by another process: stop that one, or choose another folder")]
    Locked {
        /// The store's folder.
        dir: PathBuf,
    },
    /// The operating system failed an operation.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// What was being done, as in "cannot ... the path".
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file system of the store has no room, and dropping the oldest blocks did not make enough.
    #[error("no room on the disk of the block store {dir}: free some space there, or move the store")]
    DiskFull {
        /// The store's folder.
        dir: PathBuf,
    },
    /// The store has reached its bound, and all that could make room is pinned by running work.
    #[error(
        "the block store {dir} is full: blocks in use leave no room below its bound of {bytes_max} bytes: raise it"
    )]
    Full {
        /// The store's folder.
        dir: PathBuf,
        /// The store's bound.
        bytes_max: u64,
    },
    /// A block larger than the store takes.
    #[error("a block of {len} bytes is larger than the block store takes ({max} bytes)")]
    TooLarge {
        /// The length that was offered, in bytes.
        len: u64,
        /// The largest length, in bytes.
        max: u64,
    },
    /// The bytes are not what their name says: whoever sent them is broken or lying.
    #[error("a block came under the name {named} but has the hash {found}: its sender is faulty")]
    WrongDigest {
        /// The name under which the bytes came.
        named: Digest,
        /// Their true name.
        found: Digest,
    },
    /// A recipe says that a block is longer than it is: whoever made the recipe is broken or lying.
    #[error("a recipe wants {want} bytes of the block {digest}, which has {len}: its maker is faulty")]
    ShortBlock {
        /// The block.
        digest: Digest,
        /// The length that the recipe relies on, in bytes.
        want: u64,
        /// The true length, in bytes.
        len: u64,
    },
}

impl StoreError {
    /// An [`StoreError::Io`].
    pub(crate) fn io(doing: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io { doing, path: path.into(), source }
    }
}

/// Whether an error means that the file system, or the user's quota on it, has no room.
pub(crate) fn is_no_room(error: &io::Error) -> bool {
    let codes = [rustix::io::Errno::NOSPC, rustix::io::Errno::DQUOT];
    error.raw_os_error().is_some_and(|code| codes.iter().any(|errno| errno.raw_os_error() == code))
}
