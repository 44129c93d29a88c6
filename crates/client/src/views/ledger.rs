//! The ledger of bindings: hands out their numbers, and remembers for the committer what each was.

use crate::snapshot::{Observed, Stamp};
use base::{Binding, Content, Seq, TreePath};
use std::collections::VecDeque;
use std::sync::Mutex;
use wire::lock;

/// Bindings that are remembered beside those in use.
const REMEMBERED_MAX: usize = 262_144;

/// What was bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The state that was seen; `None`: nothing was there, or the task was not let see it.
    pub stamp: Option<Stamp>,
    /// What the file held, of a regular file.
    pub content: Option<Content>,
}

impl Known {
    pub(super) fn of(stamp: Option<Stamp>, binding: &Binding) -> Self {
        let content = match binding {
            Binding::File { content, .. } => Some(*content),
            _ => None,
        };
        // What a task was not let see it cannot have changed: without evidence its changes there are conflicts.
        let stamp = stamp.filter(|_| *binding != Binding::Denied);
        Self { stamp, content }
    }
}

/// The last bindings in the order of their numbers.
#[derive(Debug, Default)]
pub(super) struct Ledger(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Number of the binding before the first in `last`.
    before: u64,
    last: VecDeque<(TreePath, Known)>,
}

impl Ledger {
    /// Enters a binding and gives its number.
    pub fn enter(&self, path: &TreePath, observed: &Observed) -> Seq {
        let mut state = lock(&self.0);
        if state.last.len() >= REMEMBERED_MAX {
            state.last.pop_front();
            state.before += 1;
        }
        state.last.push_back((path.clone(), Known::of(observed.stamp, &observed.binding)));
        Seq(state.before + state.last.len() as u64)
    }

    /// The last number that was given.
    pub fn last(&self) -> Seq {
        let state = lock(&self.0);
        Seq(state.before + state.last.len() as u64)
    }

    /// What the binding of `path` with this number was.
    pub fn get(&self, path: &TreePath, seq: Seq) -> Option<Known> {
        let state = lock(&self.0);
        let at = seq.0.checked_sub(state.before + 1)?;
        let (known_path, known) = state.last.get(usize::try_from(at).ok()?)?;
        (known_path == path).then_some(*known)
    }
}
