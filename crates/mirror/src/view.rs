//! A view: what the paths that one program uses mean at its client, at one version.
//!
//! A view never says more than was checked: what it does not hold must be asked. So at its bounds it forgets, and stays
//! true.

use base::{Binding, Bound, Digest, Listing, Seq, TreePath, Version, ViewId, ViewUpdate};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Most paths that a view holds; further ones are not kept, and are asked each time.
pub const PATHS_MAX: usize = 1 << 20;
/// Most changes that a view remembers; what reaches further back gets the whole view.
pub const LOG_MAX: usize = 1 << 16;

/// What the paths of one view mean.
#[derive(Clone, Debug)]
pub struct View {
    id: ViewId,
    version: Version,
    paths: HashMap<TreePath, Arc<Bound>>,
    log: VecDeque<Record>,
    /// Position of the next record; the log holds those before it.
    position: u64,
    /// The oldest version from which [`View::update_since`] can tell the difference.
    floor: Version,
}

/// One path that changed.
#[derive(Clone, Debug)]
struct Record {
    /// The version that the change led to, or at which the path was learned.
    version: Version,
    learned: bool,
    path: TreePath,
}

/// An update does not start from the version that is held: ask for the whole view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a view update starts from version {} but version {} is held: send the whole view", base.0, held.0)]
pub struct Gap {
    /// The version that is held.
    pub held: Version,
    /// The version that the update starts from.
    pub base: Version,
}

/// What an update did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The view was replaced as a whole.
    pub full: bool,
    /// Paths that were added or changed.
    pub set: usize,
    /// Paths that were in the view and are no longer.
    pub dropped: usize,
}

/// A point in the life of one [`View`] object: what was changed or learned after it can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    version: Version,
    position: u64,
}

/// What is known of a path.
#[derive(Debug)]
pub(crate) enum Known {
    /// The view says it.
    Bound(Arc<Bound>),
    /// The listing with this digest, of the directory it would be in, does not have it.
    Unlisted(Digest),
    /// The listing with this digest is needed first.
    NeedsListing(Digest),
    /// It must be asked.
    Unknown,
}

impl View {
    /// An empty view at version 0, which only a whole view can follow.
    pub fn new(id: ViewId) -> Self {
        let start = Version(0);
        Self { id, version: start, paths: HashMap::new(), log: VecDeque::new(), position: 0, floor: start }
    }

    /// Which view this is.
    pub fn id(&self) -> ViewId {
        self.id
    }

    /// The version that is held.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Number of paths.
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Whether no path is held.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// What `path` is, if the view says it.
    pub fn get(&self, path: &TreePath) -> Option<&Arc<Bound>> {
        self.paths.get(path)
    }

    /// All bindings, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Bound>> {
        self.paths.values()
    }

    /// Takes the step `update`. A base of 0 replaces the view: paths that are not in `set` are gone. Of two bindings of
    /// one path the one with the larger number stays.
    pub fn apply(&mut self, update: &ViewUpdate) -> Result<Applied, Gap> {
        if update.base == Version(0) {
            return Ok(self.replace(update));
        }
        if update.base != self.version || update.version < update.base {
            return Err(Gap { held: self.version, base: update.base });
        }
        // A step that leads nowhere can still carry what was learned meanwhile.
        let learned = update.version == update.base;
        self.version = update.version;
        let set = update.set.iter().filter(|bound| self.set(bound, learned)).count();
        let mut dropped = 0;
        for path in &update.drop {
            dropped += usize::from(self.paths.remove(path).is_some());
            // Also of what is not held: an answer that says what it was may be on its way here, or to a holder of this view.
            self.record(path.clone(), learned);
        }
        Ok(Applied { full: false, set, dropped })
    }

    /// As [`View::apply`], but a step that leads nowhere and starts from a version before the one held is fine: it was
    /// overtaken on its way by a later one, and what it carries was learned, not changed. What has changed since is left out.
    pub fn take(&mut self, update: &ViewUpdate) -> Result<Applied, Gap> {
        let overtaken = update.base == update.version && update.base != Version(0) && update.base < self.version;
        if !overtaken {
            return self.apply(update);
        }
        let set = update.set.iter().filter(|bound| self.learn((*bound).clone(), update.base)).count();
        Ok(Applied { full: false, set, dropped: 0 })
    }

    /// Takes in the answer to a fault that was asked when this view was at version `asked`; the version stays. Returns whether it
    /// was news. An answer that was overtaken by a step which changed or dropped its path is left out: it may say what was before,
    /// and nobody would drop it again.
    pub fn learn(&mut self, bound: Bound, asked: Version) -> bool {
        let later = self.log.iter().rev().take_while(|record| record.version > asked);
        let is_overtaken =
            asked < self.floor || later.into_iter().any(|record| !record.learned && record.path == bound.path);
        !is_overtaken && self.set(&bound, true)
    }

    /// The step that takes a holder of version `since` here: only what changed, or the whole view if the log does not
    /// reach back. What was learned at `since` itself is told again, since the holder may lack it: [`View::update_from`]
    /// is exact.
    pub fn update_since(&self, since: Version) -> ViewUpdate {
        if since == Version(0) || since < self.floor || since > self.version {
            return self.whole();
        }
        let later =
            self.log.iter().filter(|record| record.version > since || record.learned && record.version >= since);
        self.step(since, later)
    }

    /// Where this view is now, for [`View::update_from`] later.
    pub fn cursor(&self) -> Cursor {
        Cursor { version: self.version, position: self.position }
    }

    /// The step from `cursor`, taken from this same object earlier, to here.
    pub fn update_from(&self, cursor: Cursor) -> ViewUpdate {
        match self.records_from(cursor.position) {
            Some(records) if cursor.version != Version(0) => self.step(cursor.version, records),
            _ => self.whole(),
        }
    }

    /// The position of the next change.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The paths that changed from `position` on, perhaps repeated; `None` if the log does not reach back.
    pub(crate) fn changed_from(&self, position: u64) -> Option<impl Iterator<Item = &TreePath>> {
        Some(self.records_from(position)?.map(|record| &record.path))
    }

    /// Another view that begins with the same bindings, but those with numbers above `seq_max`, at the same version.
    pub fn copy_as(&self, id: ViewId, seq_max: Seq) -> Self {
        let known = self.paths.iter().filter(|(_, bound)| bound.seq <= seq_max);
        let paths = known.map(|(path, bound)| (path.clone(), bound.clone())).collect();
        Self { id, version: self.version, paths, log: VecDeque::new(), position: 0, floor: self.version }
    }

    /// The same bindings without the log.
    pub(crate) fn snapshot(&self) -> Self {
        let (log, paths) = (VecDeque::new(), self.paths.clone());
        Self { id: self.id, version: self.version, paths, log, position: self.position, floor: self.version }
    }

    /// What is known of `path`, where `listing` finds listings that are at hand.
    pub(crate) fn known(&self, path: &TreePath, listing: impl FnOnce(&Digest) -> Option<Arc<Listing>>) -> Known {
        if let Some(bound) = self.paths.get(path) {
            return Known::Bound(bound.clone());
        }
        let parent = path.parent().and_then(|parent| self.paths.get(&parent));
        let Some(Binding::Directory { listing: Some(digest), .. }) = parent.map(|parent| &parent.binding) else {
            return Known::Unknown;
        };
        match listing(digest) {
            None => Known::NeedsListing(*digest),
            Some(listing) if listing.get(path.name()).is_some() => Known::Unknown,
            Some(_) => Known::Unlisted(*digest),
        }
    }

    fn set(&mut self, bound: &Bound, learned: bool) -> bool {
        match self.paths.get(&bound.path) {
            Some(held) if held.seq >= bound.seq => return false,
            None if self.paths.len() >= PATHS_MAX => return false,
            _ => {}
        }
        self.paths.insert(bound.path.clone(), Arc::new(bound.clone()));
        self.record(bound.path.clone(), learned);
        true
    }

    fn replace(&mut self, update: &ViewUpdate) -> Applied {
        let mut before = std::mem::take(&mut self.paths);
        let held = before.len();
        let mut kept = 0;
        for bound in update.set.iter().take(PATHS_MAX) {
            let newest = match before.remove(&bound.path) {
                Some(old) if old.seq >= bound.seq => {
                    kept += 1;
                    old
                }
                _ => Arc::new(bound.clone()),
            };
            self.paths.insert(bound.path.clone(), newest);
        }
        self.log.clear();
        self.position += 1;
        self.version = update.version;
        self.floor = update.version;
        Applied { full: true, set: self.paths.len() - kept, dropped: held - kept }
    }

    fn record(&mut self, path: TreePath, learned: bool) {
        if self.log.len() >= LOG_MAX {
            let oldest = self.log.pop_front().expect("a full log has a first record");
            self.floor = self.floor.max(Version(oldest.version.0 + u64::from(oldest.learned)));
        }
        self.log.push_back(Record { version: self.version, learned, path });
        self.position += 1;
    }

    fn records_from(&self, position: u64) -> Option<impl Iterator<Item = &Record>> {
        let back = usize::try_from(self.position.checked_sub(position)?).ok()?;
        Some(self.log.range(self.log.len().checked_sub(back)?..))
    }

    fn whole(&self) -> ViewUpdate {
        let mut set: Vec<Bound> = self.paths.values().map(|bound| Bound::clone(bound)).collect();
        set.sort_by(|a, b| a.path.cmp(&b.path));
        ViewUpdate { view: self.id, base: Version(0), version: self.version, set, drop: Vec::new() }
    }

    fn step<'a>(&self, base: Version, records: impl Iterator<Item = &'a Record>) -> ViewUpdate {
        let mut update = ViewUpdate { view: self.id, base, version: self.version, set: Vec::new(), drop: Vec::new() };
        let mut seen = HashSet::new();
        for record in records.filter(|record| seen.insert(&record.path)) {
            match self.paths.get(&record.path) {
                Some(bound) => update.set.push(Bound::clone(bound)),
                None => update.drop.push(record.path.clone()),
            }
        }
        update
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: ViewId = ViewId(1);

    fn bound(name: u8, seq: u64) -> Bound {
        Bound { path: TreePath::root().join(&[b'a' + name]), seq: Seq(seq), binding: Binding::Denied }
    }

    fn step(base: u64, version: u64, set: Vec<Bound>, drop: Vec<TreePath>) -> ViewUpdate {
        ViewUpdate { view: ID, base: Version(base), version: Version(version), set, drop }
    }

    #[test]
    fn a_gap_is_refused_and_nothing_is_changed() {
        let mut view = View::new(ID);
        view.apply(&step(0, 1, vec![bound(0, 1)], vec![])).expect("a whole view always fits");
        let gap = view.apply(&step(2, 3, vec![bound(1, 2)], vec![]));
        assert_eq!(gap, Err(Gap { held: Version(1), base: Version(2) }));
        assert_eq!((view.len(), view.version()), (1, Version(1)));
    }

    #[test]
    fn the_larger_number_stays() {
        let mut view = View::new(ID);
        view.apply(&step(0, 1, vec![bound(0, 5)], vec![])).expect("a whole view always fits");
        assert!(!view.learn(bound(0, 4), Version(1)));
        assert!(view.learn(bound(0, 7), Version(1)));
        view.apply(&step(1, 2, vec![bound(0, 6)], vec![])).expect("it follows");
        assert_eq!(view.get(&bound(0, 0).path).map(|bound| bound.seq), Some(Seq(7)));
        let applied =
            view.apply(&step(0, 9, vec![bound(0, 6), bound(1, 8)], vec![])).expect("a whole view always fits");
        assert_eq!(applied, Applied { full: true, set: 1, dropped: 0 });
        assert_eq!(view.get(&bound(0, 0).path).map(|bound| bound.seq), Some(Seq(7)));
    }

    #[test]
    fn an_answer_that_a_step_overtook_says_nothing_of_what_that_changed() {
        let mut view = View::new(ID);
        view.apply(&step(0, 1, vec![bound(0, 1)], vec![])).expect("a whole view always fits");
        let cursor = view.cursor();
        // The second name is not held yet: its answer is on its way.
        let gone = [0, 1].map(|name| bound(name, 0).path);
        view.apply(&step(1, 2, vec![], gone.to_vec())).expect("it follows");
        assert!(!view.learn(bound(1, 2), Version(1)) && view.learn(bound(2, 3), Version(1)));
        assert_eq!(view.update_from(cursor).drop, gone, "who has learned it drops it");
        assert!(view.learn(bound(1, 4), Version(2)), "it was asked after that");
        view.apply(&step(2, 3, vec![], vec![bound(3, 0).path])).expect("it follows");
        let late = view.take(&step(2, 2, vec![bound(3, 5), bound(4, 6)], vec![])).expect("it was overtaken");
        assert_eq!((late.set, view.get(&bound(3, 0).path)), (1, None));
    }

    #[test]
    fn the_log_is_bounded_and_says_so() {
        let mut view = View::new(ID);
        view.apply(&step(0, 1, vec![], vec![])).expect("a whole view always fits");
        let cursor = view.cursor();
        for seq in 0..LOG_MAX as u64 {
            view.learn(bound(0, seq + 1), Version(1));
        }
        assert_eq!(view.update_from(cursor).set.len(), 1);
        view.learn(bound(0, LOG_MAX as u64 + 1), Version(1));
        assert_eq!(view.update_from(cursor).base, Version(0), "the log does not reach back");
        assert_eq!(view.update_since(Version(1)).base, Version(0));
    }

    #[test]
    fn a_copy_goes_its_own_way() {
        let mut view = View::new(ID);
        view.apply(&step(0, 3, vec![bound(0, 1), bound(1, 2)], vec![])).expect("a whole view always fits");
        view.learn(bound(2, 5), Version(3));
        let mut copy = view.copy_as(ViewId(2), Seq(4));
        view.apply(&step(3, 4, vec![bound(0, 6)], vec![])).expect("it follows");
        assert_eq!((copy.id(), copy.version(), copy.len()), (ViewId(2), Version(3), 2));
        assert_eq!(copy.get(&bound(0, 0).path).map(|bound| bound.seq), Some(Seq(1)));
        let own = ViewUpdate { view: ViewId(2), ..step(3, 4, vec![bound(3, 7)], vec![]) };
        copy.take(&own).expect("it follows");
        assert_eq!(copy.update_since(Version(3)).set, [bound(3, 7)]);
    }

    #[derive(Clone, Debug)]
    enum Op {
        Step { set: Vec<u8>, drop: Vec<u8>, whole: bool },
        Learn(u8),
        Send { exact: bool },
    }

    fn any_op() -> impl Strategy<Value = Op> {
        let names = || proptest::collection::vec(0..6u8, 0..3);
        prop_oneof![
            (names(), names(), prop::bool::weighted(0.1)).prop_map(|(set, drop, whole)| Op::Step { set, drop, whole }),
            (0..6u8).prop_map(Op::Learn),
            any::<bool>().prop_map(|exact| Op::Send { exact }),
        ]
    }

    proptest! {
        /// A worker that gets what a hub's view says changed has what the hub has, whatever it learned by itself.
        #[test]
        fn a_worker_follows_a_hub(ops in proptest::collection::vec(any_op(), 1..60)) {
            let (mut hub, mut worker) = (View::new(ID), View::new(ID));
            let mut cursor = hub.cursor();
            let (mut seq, mut version) = (0, 0);
            for op in ops {
                match op {
                    Op::Step { set, drop, whole } => {
                        let base = if whole { 0 } else { version };
                        version += 1;
                        let set = set.iter().map(|name| { seq += 1; bound(*name, seq) }).collect();
                        let drop = drop.iter().map(|name| bound(*name, 0).path).collect();
                        hub.apply(&step(base, version, set, drop)).expect("it follows");
                    }
                    Op::Learn(name) => {
                        seq += 1;
                        let now = hub.version();
                        hub.learn(bound(name, seq), now);
                        // The worker that asked learns it too.
                        if worker.version() == hub.version() && seq % 2 == 0 {
                            worker.learn(bound(name, seq), now);
                        }
                    }
                    Op::Send { exact } => {
                        let update = if exact { hub.update_from(cursor) } else { hub.update_since(worker.version()) };
                        worker.apply(&update).expect("it starts from what the worker has");
                        cursor = hub.cursor();
                        prop_assert_eq!(worker.version(), hub.version());
                        prop_assert_eq!(&worker.paths, &hub.paths);
                    }
                }
            }
        }
    }
}
