//! What a file system says of a file beside its contents.

use crate::path::TreePath;
use crate::time::Time;
use std::hash::{Hash, Hasher};

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
    /// Time of the last access. In a delta: what a program set, or a new file has.
    pub accessed: Accessed,
}

/// Time of the last access; `None` where it is not known, or is to stay as it is. Any two are equal: reading alone moves it, and what
/// was only read has not changed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Accessed(pub Option<Time>);

impl PartialEq for Accessed {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Accessed {}

impl Hash for Accessed {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Attr {
    /// The time of the last access that is shown: that of the last change where none is known.
    pub fn shown_access(&self) -> Time {
        self.accessed.0.unwrap_or(self.mtime)
    }

    /// Whether both have the same time of the last access, which equal attributes need not have.
    pub fn is_accessed_as(&self, other: &Self) -> bool {
        self.accessed.0 == other.accessed.0
    }

    /// Whether both are equal, the time of the last access included.
    pub fn is_shown_as(&self, other: &Self) -> bool {
        self == other && self.is_accessed_as(other)
    }

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

/// Stands for a value that stays at the client: drawn by chance, so that no file has it.
const KEPT_BACK: [u8; 32] =
    *b"\x9c\x11gleaner\xe7\xd2\x05\x8b\xf0\x3d\xa9\x76\x1e\xc4\x62\xbb\x17\x88\x4a\xdf\x91\x2c\xe5\x70\xab\x36\xfd";

impl Xattr {
    /// An attribute whose name alone is shown. A task that asks for the value is called off, so no program sees what stands for it,
    /// and a commit leaves the value as it is.
    pub fn kept_back(name: Vec<u8>) -> Self {
        Self { name, value: KEPT_BACK.to_vec() }
    }

    /// Whether its value stayed at the client.
    pub fn is_kept_back(&self) -> bool {
        is_kept_back(&self.value)
    }
}

/// Whether this stands for a value that stayed at the client.
pub fn is_kept_back(value: &[u8]) -> bool {
    value == KEPT_BACK
}
