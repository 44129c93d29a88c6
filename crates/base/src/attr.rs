//! What a file system says of a file beside its contents.

use crate::path::TreePath;
use crate::time::Time;

/// Attributes of a directory, file or link, as the client's file system shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Attr {
    /// Permission bits with set-id and sticky bits: `st_mode & 07777`.
    pub mode: u32,
    /// Owner at the client.
    pub uid: u32,
    /// Group at the client.
    pub gid: u32,
    /// Names that the file has.
    pub nlink: u32,
    /// Length in bytes.
    pub size: u64,
    /// Space taken, in units of 512 bytes: shows whether a file has holes.
    pub blocks: u64,
    /// Device number, which with `ino` names the file at the client.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Time of the last change of content.
    pub mtime: Time,
    /// Time of the last change of content or attributes.
    pub ctime: Time,
}

impl Attr {
    /// Whether a regular file with these attributes at `path` is most likely the distribution's: other machines may have it.
    pub fn is_of_system(&self, path: &TreePath) -> bool {
        const WRITABLE_BY_OTHERS: u32 = 0o022;
        let is_owned = self.uid == 0 && self.mode & WRITABLE_BY_OTHERS == 0;
        is_owned && self.size > 0 && path.is_in_system_folder()
    }
}

/// One extended attribute in the `user.` namespace; no other is mirrored or committed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Xattr {
    /// Full name, with `user.`.
    pub name: Vec<u8>,
    /// Value, of at most 64 KiB.
    pub value: Vec<u8>,
}
