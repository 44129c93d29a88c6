//! The lock that keeps a second process out of a folder.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The lock on a folder. The system lets go of it however the process ends, once no child that was forked from it, and
/// has not executed another program, still holds the descriptor.
#[derive(Debug)]
pub(crate) struct FolderLock(File);

impl FolderLock {
    /// Takes the lock of a folder; `None` if someone else has it.
    ///
    /// # Errors
    /// What the system said.
    pub fn take(dir: &Path) -> io::Result<Option<Self>> {
        let path = dir.join("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Closing is not enough: a child between fork and exec has the same lock.
        if let Err(error) = rustix::fs::flock(&self.0, rustix::fs::FlockOperation::Unlock) {
            tracing::warn!(%error, "cannot unlock a folder");
        }
    }
}
