//! The views of one client, as far as the hub was told: bounded, and copied for the client's jobs.

use base::{Seq, Version, ViewId, ViewUpdate};
use mirror::View;
use std::collections::HashMap;

/// Most views of one client that are held. Beyond, the one longest unused goes: its next launch is told that there is a gap,
/// and sends the whole view.
const VIEWS_MAX: usize = 192;

/// The views of one client.
#[derive(Default)]
pub struct Views {
    held: HashMap<ViewId, Slot>,
    uses: u64,
}

struct Slot {
    view: View,
    /// The view that it was copied from.
    origin: Option<ViewId>,
    used: u64,
}

/// A view that is to begin as a copy of another.
pub struct Copied {
    /// The step of that view that leads to the version that is copied.
    pub step: ViewUpdate,
    /// Bindings with larger numbers are left out.
    pub seq_max: Seq,
}

impl Views {
    /// All that are held.
    pub fn iter(&self) -> impl Iterator<Item = &View> {
        self.held.values().map(|slot| &slot.view)
    }

    /// The view that this one was copied from.
    pub fn origin(&self, view: ViewId) -> Option<ViewId> {
        self.held.get(&view)?.origin
    }

    /// The view, if it is held.
    pub fn get(&self, view: ViewId) -> Option<&View> {
        self.held.get(&view).map(|held| &held.view)
    }

    /// The view, made if need be.
    pub fn entry(&mut self, view: ViewId) -> &mut View {
        self.insert_with(view, None, || View::new(view))
    }

    fn insert_with(&mut self, view: ViewId, origin: Option<ViewId>, make: impl FnOnce() -> View) -> &mut View {
        self.uses += 1;
        if !self.held.contains_key(&view) && self.held.len() >= VIEWS_MAX {
            let oldest = self.held.iter().min_by_key(|(_, held)| held.used).map(|(view, _)| *view);
            oldest.map(|view| self.held.remove(&view));
        }
        let held = self.held.entry(view).or_insert_with(|| Slot { view: make(), origin, used: 0 });
        held.used = self.uses;
        &mut held.view
    }

    /// Takes the step of the view that is to be copied, and copies it, unless that was done. False if the version to be
    /// copied is not here, yet or any more.
    pub fn copy(&mut self, copied: &Copied, to: ViewId) -> bool {
        let from = copied.step.view;
        let taken = self.entry(from).take(&copied.step).is_ok();
        if self.get(to).is_some_and(|view| view.version() != Version(0)) {
            return true;
        }
        if !taken {
            return false;
        }
        let copy = match self.get(from) {
            Some(source) if source.version() == copied.step.version => source.copy_as(to, copied.seq_max),
            _ => return false,
        };
        self.held.remove(&to);
        self.insert_with(to, Some(from), || copy);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Binding, Bound, TreePath};

    fn step(view: u64, base: u64, version: u64, seqs: &[u64]) -> ViewUpdate {
        let bound = |seq: &u64| Bound {
            path: TreePath::root().join(seq.to_string().as_bytes()),
            seq: Seq(*seq),
            binding: Binding::Absent,
        };
        let set = seqs.iter().map(bound).collect();
        ViewUpdate { view: ViewId(view), base: Version(base), version: Version(version), set, drop: Vec::new() }
    }

    #[test]
    fn a_job_s_view_is_a_copy_that_others_leave_alone() {
        let mut views = Views::default();
        let copied = Copied { step: step(1, 0, 4, &[1, 2, 3]), seq_max: Seq(2) };
        assert!(views.copy(&copied, ViewId(9)));
        let own = step(9, 4, 5, &[8]);
        views.entry(ViewId(9)).take(&own).expect("it follows");
        views.entry(ViewId(1)).take(&step(1, 4, 5, &[7])).expect("it follows");
        // The same launch once more, as after a lost answer: the copy stays as it is.
        assert!(views.copy(&Copied { step: step(1, 4, 4, &[]), seq_max: Seq(2) }, ViewId(9)));
        let paths = |view: u64| views.get(ViewId(view)).map(View::len);
        assert_eq!((paths(1), paths(9)), (Some(4), Some(3)), "2 of 3 copied, and one of its own");
        assert_eq!(views.origin(ViewId(9)), Some(ViewId(1)));
    }

    #[test]
    fn what_cannot_be_copied_is_a_gap() {
        let mut views = Views::default();
        assert!(!views.copy(&Copied { step: step(1, 3, 4, &[]), seq_max: Seq(2) }, ViewId(9)), "not here yet");
        assert!(views.copy(&Copied { step: step(1, 0, 4, &[1]), seq_max: Seq(2) }, ViewId(8)));
        views.entry(ViewId(1)).take(&step(1, 4, 5, &[2])).expect("it follows");
        assert!(!views.copy(&Copied { step: step(1, 4, 4, &[]), seq_max: Seq(2) }, ViewId(9)), "not here any more");
    }

    #[test]
    fn views_are_bounded() {
        let mut views = Views::default();
        for view in 1..=VIEWS_MAX as u64 + 5 {
            views.entry(ViewId(view));
            views.entry(ViewId(1));
        }
        assert_eq!(views.held.len(), VIEWS_MAX);
        assert!(views.get(ViewId(1)).is_some() && views.get(ViewId(2)).is_none());
    }
}
