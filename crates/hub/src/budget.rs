//! Memory that the words of one key take at the hub, in bytes: over all its connections, and all starts of its daemon that are
//! remembered.
//!
//! Numbers of views and streams have bounds of their own; these are for what is large.

use base::{Binding, Bound, NodeId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// Most bytes of the views of one key. Views longest unused go beyond that.
pub const VIEWS_MAX: u64 = 1 << 30;
/// Most bytes of launches of one key that are not at their workers. Further ones are to come again.
const LAUNCHES_MAX: u64 = 256 << 20;
/// What a path in a view takes beside its own bytes: its binding, and its place.
const PATH_BYTES: u64 = 300;
/// Budgets that are kept before it is looked for those that nobody has.
const KEPT_MIN: usize = 64;

/// What one key has.
#[derive(Debug, Default)]
pub struct Budget {
    views: AtomicU64,
    launches: AtomicU64,
}

impl Budget {
    /// A view has so many bytes now, and had so many.
    pub fn changes(&self, before: u64, now: u64) {
        self.views.fetch_add(now, Relaxed);
        self.views.fetch_sub(before, Relaxed);
    }

    /// Bytes of its views.
    pub fn views(&self) -> u64 {
        self.views.load(Relaxed)
    }

    /// Room for a launch of so many bytes. `None`: there is none now.
    pub fn launch(self: &Arc<Self>, bytes: u64) -> Option<LaunchRoom> {
        let before = self.launches.fetch_add(bytes, Relaxed);
        let room = LaunchRoom { budget: self.clone(), bytes };
        // One alone always has room: a message is smaller than that.
        (before == 0 || before.saturating_add(bytes) <= LAUNCHES_MAX).then_some(room)
    }
}

/// Held for a launch that is not at its worker.
#[derive(Debug)]
pub struct LaunchRoom {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Drop for LaunchRoom {
    fn drop(&mut self) {
        self.budget.launches.fetch_sub(self.bytes, Relaxed);
    }
}

/// Those of all keys that have something here.
#[derive(Debug, Default)]
pub struct Budgets(HashMap<NodeId, Weak<Budget>>);

impl Budgets {
    /// The one of a machine.
    pub fn of(&mut self, node: NodeId) -> Arc<Budget> {
        if let Some(known) = self.0.get(&node).and_then(Weak::upgrade) {
            return known;
        }
        if self.0.len() >= KEPT_MIN && self.0.len() == self.0.capacity() {
            self.0.retain(|_, budget| budget.strong_count() > 0);
        }
        let new = Arc::default();
        self.0.insert(node, Arc::downgrade(&new));
        new
    }
}

/// What a path of a view takes.
pub fn bytes_of(bound: &Bound) -> u64 {
    let own = match &bound.binding {
        Binding::Directory { xattrs, .. } | Binding::File { xattrs, .. } => {
            xattrs.iter().map(|xattr| size_of_val(xattr) + xattr.name.len() + xattr.value.len()).sum()
        }
        Binding::Symlink { target, .. } => target.len(),
        Binding::Absent | Binding::Denied | Binding::Special { .. } => 0,
    };
    PATH_BYTES + (bound.path.as_bytes().len() + own) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Digest;

    #[test]
    fn launches_that_wait_are_bounded_in_bytes() {
        let budget = Arc::<Budget>::default();
        let first = budget.launch(200 << 20).expect("room");
        assert!(budget.launch(57 << 20).is_none());
        let second = budget.launch(56 << 20).expect("just enough, and what was refused has nothing");
        assert!(budget.launch(1).is_none());
        drop(first);
        let third = budget.launch(200 << 20).expect("room again");
        drop((second, third));
        assert_eq!(budget.launches.load(Relaxed), 0);
        assert!(budget.launch(300 << 20).is_some(), "alone");
    }

    #[test]
    fn a_key_has_one_budget_as_long_as_something_is_here() {
        let (mut all, node) = (Budgets::default(), |number| NodeId(Digest::of(&u64::to_le_bytes(number))));
        let one = all.of(node(1));
        assert!(Arc::ptr_eq(&one, &all.of(node(1))));
        (2..10_000).for_each(|number| drop(all.of(node(number))));
        assert!(all.0.len() <= 1024, "{}", all.0.len());
        assert!(Arc::ptr_eq(&one, &all.of(node(1))), "kept");
    }
}
