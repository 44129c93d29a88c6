//! What a worker shows of a client's files, where client and hub say anything, in any order: steps of views that lead back or nowhere,
//! answers that nobody asked for, listings of other folders, paths as deep as they can be.

use super::made;
use crate::{Draw, Target};
use base::codec::Encode;
use base::{Digest, Listing, ListingEntry, NodeKind, TaskId, TreePath, Version, ViewId, ViewUpdate};
use mirror::{LaneNumber, Lanes, Limits, Lookup, NodeId, ROOT};
use std::sync::Arc;

/// A mount of few views and lanes.
pub const LANES: Target = Target { name: "lanes", check, draw: |draw| draw.blob(250), heap: |_| HEAP };

/// Views of some paths, a few of which are a thousand folders deep.
const HEAP: usize = 64 << 20;
/// Most steps of one check.
const STEPS_MAX: usize = 80;
/// Folders of a deep path.
const DEPTH: usize = 1000;
/// Most nodes and lanes that are looked at.
const KNOWN_MAX: usize = 40;

/// What the one who asks knows.
struct Asker {
    lanes: Lanes,
    taken: Vec<(LaneNumber, TaskId)>,
    nodes: Vec<NodeId>,
}

fn check(bytes: &[u8]) -> bool {
    let mut draw = Draw::new(bytes);
    let limits = Limits { names: 20, lanes: 3, views: 2, listing_bytes: 2000 };
    let mut asker = Asker { lanes: Lanes::new(limits), taken: Vec::new(), nodes: vec![ROOT] };
    for _ in 0..STEPS_MAX {
        if draw.is_over() {
            break;
        }
        asker.step(&mut draw);
        asker.lanes.check_invariants();
    }
    while let Some((lane, task)) = asker.taken.pop() {
        asker.lanes.release(lane, task);
        asker.lanes.check_invariants();
    }
    let idle: Vec<LaneNumber> = asker.lanes.lanes().collect();
    assert!(idle.into_iter().all(|lane| asker.lanes.drop_lane(lane).is_some()), "a lane that nobody uses stays");
    asker.lanes.check_invariants();
    assert_eq!(asker.lanes.names(), 0, "names that no lane has");
    true
}

fn view(draw: &mut Draw<'_>) -> ViewId {
    ViewId(draw.below(3) as u64)
}

fn version(draw: &mut Draw<'_>) -> Version {
    Version(draw.below(5) as u64)
}

fn update(draw: &mut Draw<'_>) -> ViewUpdate {
    let mut set = draw.list(5, made::bound);
    if draw.byte().is_multiple_of(8) {
        let deep = (0..DEPTH).fold(TreePath::root(), |path, _| path.join(b"a"));
        set.iter_mut().take(1).for_each(|bound| bound.path = deep.clone());
    }
    ViewUpdate { view: view(draw), base: version(draw), version: version(draw), set, drop: draw.list(2, Draw::path) }
}

impl Asker {
    fn step(&mut self, draw: &mut Draw<'_>) {
        match draw.below(12) {
            // The base of a step is most likely where the view is.
            0 | 1 => {
                let mut update = update(draw);
                if draw.flag() {
                    update.base = self.lanes.version(update.view).unwrap_or_default();
                }
                // One that does not fit is told so.
                let _ = self.lanes.apply(&update);
            }
            2 => {
                let (view, bounds) = (view(draw), draw.list(3, made::bound));
                self.lanes.learn(view, bounds, version(draw));
            }
            3 | 4 => self.take(draw),
            5 => {
                if !self.taken.is_empty() {
                    let (lane, task) = self.taken.swap_remove(draw.below(self.taken.len()));
                    self.lanes.release(lane, task);
                }
            }
            6 => {
                // Under the name of any listing there may be any other one.
                let names = draw.list(3, |draw| draw.of(b"abc"));
                let entry = |name: u8| ListingEntry { name: vec![name], kind: NodeKind::File, ino: 7 };
                let mut listing = Listing::new(names.into_iter().map(entry).collect());
                listing.entries.dedup_by(|a, b| a.name == b.name);
                let len = listing.to_bytes().len();
                self.lanes.put_listing(Digest(draw.name()), Arc::new(listing), len);
            }
            7 => {
                for lane in self.lanes.idle_lanes_to_drop() {
                    self.lanes.drop_lane(lane);
                }
            }
            _ => self.look(draw),
        }
    }

    fn take(&mut self, draw: &mut Draw<'_>) {
        let view = view(draw);
        let wanted = if draw.flag() { version(draw) } else { self.lanes.version(view).unwrap_or_default() };
        let task = TaskId(self.taken.len() as u128 + 1);
        if let Ok(taken) = self.lanes.take(view, wanted, task) {
            self.taken.push((taken.lane, task));
            if let Lookup::Found(shown) = self.lanes.lookup(ROOT, taken.lane.0.to_string().as_bytes()) {
                self.nodes.push(shown.node);
            } else if let Lookup::FoundRoot(node) = self.lanes.lookup(ROOT, taken.lane.0.to_string().as_bytes()) {
                self.nodes.push(node);
            }
        }
    }

    /// Asks what a kernel asks, of any node that was ever told.
    fn look(&mut self, draw: &mut Draw<'_>) {
        let node = self.nodes[draw.below(self.nodes.len())];
        let names: [&[u8]; 6] = [b"a", b"b", b"c", b"link", b"..", b"\xff"];
        if let Lookup::Found(shown) = self.lanes.lookup(node, draw.of(&names))
            && self.nodes.len() < KNOWN_MAX
        {
            self.nodes.push(shown.node);
        }
        self.lanes.attributes(node);
        self.lanes.listing(node);
        self.lanes.xattrs(node);
        let target = self.lanes.readlink(node).map_or(0, <[u8]>::len);
        assert!(target < 100, "a link longer than any that was bound");
        self.lanes.source(node);
        let path = draw.path();
        for (lane, _) in &self.taken {
            self.lanes.base_of(*lane, &path);
            self.lanes.binding_of(*lane, &path);
            self.lanes.is_bound(*lane, &path);
        }
    }
}
