//! Which program a command is: the key under which its profile (the paths that it uses) is kept.

use base::TreePath;

/// The key of a view: a program, and what it interprets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ViewKey {
    /// The program's file, links followed.
    pub program: TreePath,
    /// The path of the script, or what else tells its uses apart (`-m module`, the name under which a program of many
    /// names was called).
    pub variant: Option<Vec<u8>>,
}
