//! What the tasks of a lane rest on: the bindings by which the kernel was told all that it holds of the lane, and held since the lane was
//! idle last. That is more than a task has looked at, since a kernel does not ask twice, and never less.

use crate::answer::LaneNumber;
use crate::lane::Lane;
use crate::lanes::Lanes;
use crate::node::NodeId;
use base::{Binding, Bound, Content, Digest, Listed, Mark, Seq};
use std::sync::Arc;

/// Most bindings that are remembered of one lane beside those that the kernel holds.
const PAST_MAX: usize = 1 << 16;

/// A binding by which the kernel was told something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct By {
    pub(crate) seq: Seq,
    mark: Mark,
}

impl By {
    /// By `bound`.
    pub(crate) fn bound(bound: &Bound) -> Self {
        Self { seq: bound.seq, mark: Mark::of(bound) }
    }
}

/// What the tasks of a lane rest on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The bindings, by their numbers, with their marks.
    pub bindings: Listed,
    /// Names of the lazily bound files among them.
    pub lazy: Vec<Digest>,
}

impl Lanes {
    /// What tasks that use this lane rest on; `None` if that is not known any more.
    pub fn evidence(&mut self, lane: LaneNumber) -> Option<Arc<Evidence>> {
        let found = self.lanes.get_mut(&lane)?;
        if let Some(evidence) = &found.evidence {
            return Some(evidence.clone());
        }
        let mut all: Vec<(u64, Digest)> = Vec::with_capacity(found.names + found.dirs.len());
        let mut add = |by: By| all.push((by.seq.0, by.mark.0));
        found.past.as_ref()?.iter().copied().for_each(&mut add);
        for dir in found.dirs.values().filter_map(|id| self.nodes.dir(*id)) {
            dir.by.into_iter().for_each(&mut add);
            dir.told.values().filter_map(|told| told.by()).for_each(&mut add);
        }
        let lazy = lazy_of(found, &all);
        let evidence = Arc::new(Evidence { bindings: Listed::of(all), lazy });
        found.evidence = Some(evidence.clone());
        Some(evidence)
    }

    /// Notes by which binding of the directory the kernel is told of its attributes or names.
    pub(crate) fn rest_on(&mut self, node: NodeId, by: By) {
        let Some(dir) = self.nodes.dir_mut(node) else { return };
        // Not by its number alone: what was dropped may come again as something else.
        if dir.by == Some(by) {
            return;
        }
        let (number, before) = (dir.lane, dir.by.replace(by));
        self.held_before(number, before);
    }

    /// The kernel is told of a file by this binding.
    pub(crate) fn note_lazy(&mut self, number: LaneNumber, bound: &Bound) {
        if let Binding::File { content: Content::Lazy(name), .. } = bound.binding
            && let Some(lane) = self.lanes.get_mut(&number)
        {
            lane.lazy.insert(bound.seq, name);
        }
    }

    /// What the kernel holds of a lane is about to be something else than by these, which tasks that run may have seen.
    pub(crate) fn held_before(&mut self, number: LaneNumber, before: impl IntoIterator<Item = By>) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        lane.evidence = None;
        if lane.is_idle() {
            return;
        }
        if let Some(past) = &mut lane.past {
            past.extend(before);
            if past.len() > PAST_MAX {
                lane.past = None;
            }
        }
    }
}

/// The lazily bound files among `all`; forgets the others when they are many.
fn lazy_of(lane: &mut Lane, all: &[(u64, Digest)]) -> Vec<Digest> {
    if lane.lazy.is_empty() {
        return Vec::new();
    }
    let mut named: Vec<(Seq, Digest)> = all
        .iter()
        .filter_map(|(seq, _)| lane.lazy.get_key_value(&Seq(*seq)))
        .map(|(seq, name)| (*seq, *name))
        .collect();
    if lane.lazy.len() > named.len() * 2 {
        lane.lazy = named.iter().copied().collect();
    }
    named.sort_unstable_by_key(|(_, name)| *name);
    named.dedup_by_key(|(_, name)| *name);
    named.into_iter().map(|(_, name)| name).collect()
}
