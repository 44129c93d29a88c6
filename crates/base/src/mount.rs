//! Mounts of a client that a task is shown: where one file system ends and another begins is a part of what it sees.

use crate::codec::{Encode, Malformed, Reader, Writer};
use crate::path::TreePath;

/// Mounts that a task is shown at most.
pub const MOUNTS_MAX: usize = 16;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where it is.
    pub at: TreePath,
    /// Nothing can be changed there.
    pub read_only: bool,
    /// No program there can be executed.
    pub no_exec: bool,
}

impl Encode for Mount {
    fn encode(&self, out: &mut Writer) {
        out.bytes(self.at.as_bytes());
        out.bool(self.read_only);
        out.bool(self.no_exec);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let at = TreePath::parse(from.bytes()?).ok_or(Malformed("a mount point that is not in normal form"))?;
        Ok(Self { at, read_only: from.bool()?, no_exec: from.bool()? })
    }
}
