//! Whether the paths of a table still are what a task has seen.

use super::{Entry, Table, stat_at};
use crate::snapshot::Stamp;
use crate::views::Seen;
use base::{Binding, Time, TreePath, Version};

/// Whether what is at a path has changed.
#[derive(Clone, Copy)]
enum Moved {
    No,
    Yes,
    /// Its stamp is the same and younger than a tick of the clock: a change within the tick would not show.
    Unsure,
}

impl Table {
    /// A path that may not be now what a task has seen, of those that `counts` has count. `is_same` looks whether what a clock cannot
    /// tell is bound anew to the same.
    pub fn moved(
        &self,
        seen: Seen,
        counts: impl Fn(&TreePath) -> bool,
        is_same: impl Fn(&TreePath, &Binding) -> bool,
    ) -> Option<&TreePath> {
        let is_seen = |path: &TreePath, entry: &Entry| {
            seen.version.is_some_and(|version| entry.version <= version.0 || self.is_new_since(path, entry, version))
        };
        let is_own = |stamp: Stamp| seen.own.contains(&Some((stamp.dev, stamp.ino)));
        let moved = |(path, entry): &(&TreePath, &Entry)| {
            let counts = counts(path) && !entry.stamp.is_some_and(is_own);
            counts
                && match entry.moved(path, seen.since, is_seen(path, entry)) {
                    Moved::No => false,
                    Moved::Yes => true,
                    Moved::Unsure => !is_same(path, &entry.binding),
                }
        };
        self.entries.iter().find(moved).map(|(path, _)| path)
    }

    /// Whether this is the first that was bound to the path since that version, which had nothing there: who has it has this.
    fn is_new_since(&self, path: &TreePath, entry: &Entry, version: Version) -> bool {
        let mut dropped = self.dropped.iter().rev().take_while(|(at, _)| *at > version.0);
        entry.is_first && self.floor <= version.0 && !dropped.any(|(_, dropped)| dropped == path)
    }
}

impl Entry {
    /// Whether what is at the path has changed since then. Unless it `is_seen`, this entry may have been told of something else since.
    fn moved(&self, path: &TreePath, since: Time, is_seen: bool) -> Moved {
        let is_certain = is_seen && self.tells_calls && !self.stale;
        match (stat_at(path.as_bytes()).map(|stat| Stamp::of(&stat)), &self.stamp) {
            (Ok(now), Some(stamp)) if now != *stamp => Moved::Yes,
            (Ok(now), Some(_)) if is_certain || now.ctime <= since => Moved::No,
            (Ok(_), Some(_)) if is_seen => Moved::Unsure,
            (Ok(_), None) if self.binding != Binding::Absent => Moved::No,
            (Err(_), None) => Moved::No,
            (Ok(_), _) | (Err(_), Some(_)) => Moved::Yes,
        }
    }
}
