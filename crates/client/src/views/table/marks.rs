//! What the bindings of a view said, and until when: what results rest on is compared with that.

use super::{Entry, Table};
use base::{Binding, Listed, Mark, Seq, TreePath, Version};
use std::collections::{HashMap, VecDeque};

/// Bindings that are remembered after they are no more so.
const PAST_MAX: usize = 1 << 20;

/// Why a result is not one that rests on what its task was to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotBound {
    /// There is no such binding.
    #[error("it rests on a binding that was never made, or is long forgotten (number {})", .0.0)]
    Unknown(Seq),
    /// The binding was no more so when the task was launched.
    #[error("it rests on a binding that was no more so when it was launched (number {})", .0.0)]
    Past(Seq),
    /// Others have the same numbers.
    #[error("its worker was told something else of this machine's files")]
    Differs,
}

/// The marks of a view's bindings, by their numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    of: HashMap<u64, Marked>,
    /// Those that are no more so, in the order in which they ceased to be.
    past: VecDeque<u64>,
    /// What was found right last, for a launch with this version, where the view was at this one.
    right: Option<(Listed, Version, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Marked {
    mark: Mark,
    /// The version of the view from which on it is no more so.
    until: u64,
}

impl Marks {
    /// A binding is so until further notice.
    pub(super) fn begin(&mut self, path: &TreePath, seq: Seq, binding: &Binding) {
        self.of.insert(seq.0, Marked { mark: Mark::of_parts(path, seq, binding), until: u64::MAX });
    }

    /// A binding is no more so from this version on.
    pub(super) fn end(&mut self, seq: Seq, version: u64) {
        let Some(marked) = self.of.get_mut(&seq.0) else { return };
        marked.until = marked.until.min(version);
        self.past.push_back(seq.0);
        if self.past.len() > PAST_MAX
            && let Some(oldest) = self.past.pop_front()
        {
            self.of.remove(&oldest);
        }
    }

    /// Those that are so, for a copy of the view as it is now.
    pub(super) fn present(&self) -> Self {
        let present = self.of.iter().filter(|(_, marked)| marked.until == u64::MAX);
        Self { of: present.map(|(number, marked)| (*number, *marked)).collect(), ..Self::default() }
    }

    /// What the binding with this number says, if it was so for a task that was launched with this version of the view.
    fn find(&self, seq: Seq, launched: Version) -> Result<Mark, NotBound> {
        let marked = self.of.get(&seq.0).ok_or(NotBound::Unknown(seq))?;
        if marked.until > launched.0 { Ok(marked.mark) } else { Err(NotBound::Past(seq)) }
    }
}

impl Table {
    /// Whether these are bindings that a task was to be told which was launched with this version.
    ///
    /// # Errors
    /// Which one is not.
    pub fn check(&mut self, bindings: &Listed, launched: Version) -> Result<(), NotBound> {
        let is_right = |(listed, at, version): &(Listed, Version, u64)| {
            (*at, *version) == (launched, self.version) && listed == bindings
        };
        // Most commands change nothing that the next one of the kind uses.
        if self.marks.right.as_ref().is_some_and(is_right) {
            return Ok(());
        }
        let find = |number| self.marks.find(Seq(number), launched).map(|mark| mark.0);
        bindings.check(find, NotBound::Differs)?;
        self.marks.right = Some((bindings.clone(), launched, self.version));
        Ok(())
    }

    /// No result will come that rests on what is no more so.
    pub fn forget_past(&mut self) {
        for number in std::mem::take(&mut self.marks.past) {
            self.marks.of.remove(&number);
        }
        self.marks.of.shrink_to(self.entries.len() * 2);
    }

    /// All that is bound is no more so from this version on.
    pub(super) fn end_all(&mut self, version: u64) {
        self.entries.values().for_each(|Entry { seq, .. }| self.marks.end(*seq, version));
    }
}
