//! What a commit asks of what its task saw and has locked.

use super::Stamp;
use base::{Seq, Time, TreePath};

/// What the client knows of what its tasks saw.
pub trait Evidence {
    /// The state in which `path` was bound with number `seq`: of the file, link or directory itself. `None` if that is
    /// not known (any more), which counts as a conflict.
    fn stamp_of(&self, path: &TreePath, seq: Seq) -> Option<Stamp>;

    /// Whether the task's file replaces one that others made where it saw none, as the later of two. Otherwise that is a conflict.
    fn may_replace_new(&self) -> bool {
        true
    }

    /// Whether the task has a lock here on what is at `path`, or on there being nothing. Such a file is written in place, for who
    /// waits for the lock has it open; and one that others have made there meanwhile is never replaced.
    fn is_locked(&self, _path: &TreePath) -> bool {
        false
    }

    /// Whether what is written to the file of this device and inode may show at all its `names`, wherever they are. Otherwise a new file takes
    /// its place, and those names keep what they show.
    fn may_show_at_all(&self, _file: (u64, u64), _names: u32) -> bool {
        true
    }

    /// Where there is to be nothing but what the task leaves there: it has had these places to itself until now.
    fn kept_free(&self) -> &[TreePath] {
        &[]
    }

    /// When the view was taken that the task saw: what has not changed since then it was to see, so it says falsely that nothing was
    /// there. `None`: that is not known.
    fn seen_since(&self) -> Option<Time> {
        None
    }

    /// Since when the task has had a lock: what others had made by then it was to see, wherever that is, so it does not replace that as
    /// the later of two.
    fn locked_since(&self) -> Option<Time> {
        None
    }
}
