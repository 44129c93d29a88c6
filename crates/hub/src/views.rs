//! The views of one client, as far as the hub was told: bounded, and copied for the client's jobs.

use crate::budget::{self, Budget, bytes_of};
use base::{Bound, Seq, TreePath, Version, ViewId, ViewUpdate};
use mirror::{Cursor, Gap, View};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Most views of one client that are held. Beyond, the one longest unused goes: its next launch is told that there is a gap,
/// and sends the whole view.
const VIEWS_MAX: usize = 192;

/// Changes that a view remembers.
const CHANGES_MAX: usize = mirror::LOG_MAX;
/// What a path takes that a view remembers as changed, beside its own bytes.
const CHANGE_BYTES: u64 = 64;

/// The views of one client.
#[derive(Default)]
pub struct Views {
    held: HashMap<ViewId, Slot>,
    uses: u64,
    /// Where their bytes are counted.
    budget: Arc<Budget>,
}

struct Slot {
    view: View,
    /// The view that it was copied from.
    origin: Option<ViewId>,
    used: u64,
    /// Which of the views that have had its number here.
    made: u64,
    /// Bytes of what its paths mean.
    paths: u64,
    /// Of what has changed, no less than that: the last so many changes, and as many before them.
    changes: [Changes; 2],
    /// What the budget was told.
    counted: u64,
}

/// Changes that a view remembers, and their bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Changes {
    count: usize,
    bytes: u64,
}

impl Slot {
    fn new(view: View, origin: Option<ViewId>, made: u64) -> Self {
        let paths = view.iter().map(|bound| bytes_of(bound)).sum();
        Self { view, origin, used: made, made, paths, changes: Default::default(), counted: 0 }
    }

    /// Takes a step, and counts what it brings.
    fn take(&mut self, update: &ViewUpdate) -> Result<(), Gap> {
        if update.base == Version(0) {
            let taken = self.view.take(update);
            self.paths = self.view.iter().map(|bound| bytes_of(bound)).sum();
            self.changes = Default::default();
            return taken.map(drop);
        }
        let paths: HashSet<&TreePath> = update.set.iter().map(|bound| &bound.path).chain(&update.drop).collect();
        let before = self.bytes_at(&paths);
        self.view.take(update)?;
        self.paths = (self.paths + self.bytes_at(&paths)).saturating_sub(before);
        // Each of them is remembered, also where one path comes again and again.
        let changed = update.set.iter().map(|bound| &bound.path).chain(&update.drop);
        changed.for_each(|path| self.changed(path));
        Ok(())
    }

    fn learn(&mut self, bound: Bound, asked: Version) {
        let path = bound.path.clone();
        let before = self.bytes_at(&HashSet::from([&path]));
        if self.view.learn(bound, asked) {
            self.paths = (self.paths + self.bytes_at(&HashSet::from([&path]))).saturating_sub(before);
            self.changed(&path);
        }
    }

    fn bytes_at(&self, paths: &HashSet<&TreePath>) -> u64 {
        paths.iter().filter_map(|path| self.view.get(path)).map(|bound| bytes_of(bound)).sum()
    }

    fn changed(&mut self, path: &TreePath) {
        if self.changes[0].count == CHANGES_MAX {
            self.changes = [Changes::default(), self.changes[0]];
        }
        self.changes[0].count += 1;
        self.changes[0].bytes += CHANGE_BYTES + path.as_bytes().len() as u64;
    }

    /// Tells the budget what it takes now.
    fn count(&mut self, budget: &Budget) {
        let now = self.paths + self.changes[0].bytes + self.changes[1].bytes;
        budget.changes(std::mem::replace(&mut self.counted, now), now);
    }
}

/// How far somebody was told of a view. Of one that was forgotten here and sent again it says nothing.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    made: u64,
    cursor: Cursor,
}

/// A view that is to begin as a copy of another.
pub struct Copied {
    /// The step of that view that leads to the version that is copied.
    pub step: ViewUpdate,
    /// Bindings with larger numbers are left out.
    pub seq_max: Seq,
}

impl Drop for Views {
    fn drop(&mut self) {
        self.held.values().for_each(|slot| self.budget.changes(slot.counted, 0));
    }
}

impl Views {
    /// None yet.
    pub fn new(budget: Arc<Budget>) -> Self {
        Self { held: HashMap::new(), uses: 0, budget }
    }

    /// All that are held.
    pub fn iter(&self) -> impl Iterator<Item = &View> {
        self.held.values().map(|slot| &slot.view)
    }

    /// Bytes of all.
    pub fn bytes(&self) -> u64 {
        self.held.values().map(|slot| slot.counted).sum()
    }

    /// The view that this one was copied from.
    pub fn origin(&self, view: ViewId) -> Option<ViewId> {
        self.held.get(&view)?.origin
    }

    /// The view, if it is held.
    pub fn get(&self, view: ViewId) -> Option<&View> {
        self.held.get(&view).map(|held| &held.view)
    }

    /// What takes somebody who was told of a view so far to where it is now, and where that is.
    pub fn update_from(&self, view: ViewId, since: Option<Told>) -> Option<(ViewUpdate, Told)> {
        let slot = self.held.get(&view)?;
        let update = match since.filter(|since| since.made == slot.made) {
            Some(since) => slot.view.update_from(since.cursor),
            None => slot.view.update_since(Version(0)),
        };
        Some((update, Told { made: slot.made, cursor: slot.view.cursor() }))
    }

    /// Takes a step of a view, which is made if need be. A gap also if the client's views have too many bytes with it: others go, the one
    /// longest unused first, and at last this one, which is to be sent as a whole again.
    pub fn take(&mut self, update: &ViewUpdate) -> Result<(), Gap> {
        let budget = self.budget.clone();
        let slot = self.entry(update.view);
        let taken = slot.take(update);
        slot.count(&budget);
        let held = slot.view.version();
        self.make_room(update.view);
        taken.and_then(
            |()| if self.held.contains_key(&update.view) { Ok(()) } else { Err(Gap { held, base: update.base }) },
        )
    }

    /// Takes in answers to what was asked when a view was at this version.
    pub fn learn(&mut self, view: ViewId, bounds: impl Iterator<Item = Bound>, asked: Version) {
        let budget = self.budget.clone();
        let slot = self.entry(view);
        bounds.for_each(|bound| slot.learn(bound, asked));
        slot.count(&budget);
        self.make_room(view);
    }

    fn entry(&mut self, view: ViewId) -> &mut Slot {
        self.insert_with(view, None, || View::new(view))
    }

    fn insert_with(&mut self, view: ViewId, origin: Option<ViewId>, make: impl FnOnce() -> View) -> &mut Slot {
        self.uses += 1;
        if !self.held.contains_key(&view) && self.held.len() >= VIEWS_MAX {
            self.oldest_but(view).into_iter().for_each(|oldest| self.forget(oldest));
        }
        let uses = self.uses;
        let held = self.held.entry(view).or_insert_with(|| Slot::new(make(), origin, uses));
        held.used = uses;
        held
    }

    fn oldest_but(&self, view: ViewId) -> Option<ViewId> {
        let others = self.held.iter().filter(|(other, _)| **other != view);
        others.min_by_key(|(_, held)| held.used).map(|(view, _)| *view)
    }

    fn forget(&mut self, view: ViewId) {
        let gone = self.held.remove(&view);
        gone.into_iter().for_each(|slot| self.budget.changes(slot.counted, 0));
    }

    /// Until the client's views have no more bytes than they may: forgets the others, and this one last.
    fn make_room(&mut self, view: ViewId) {
        while self.budget.views() > budget::VIEWS_MAX && self.held.contains_key(&view) {
            self.forget(self.oldest_but(view).unwrap_or(view));
        }
    }

    /// Takes the step of the view that is to be copied, and copies it, unless that was done. False if the version to be
    /// copied is not here, yet or any more.
    pub fn copy(&mut self, copied: &Copied, to: ViewId) -> bool {
        let from = copied.step.view;
        let taken = self.take(&copied.step).is_ok();
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
        self.forget(to);
        let budget = self.budget.clone();
        self.insert_with(to, Some(from), || copy).count(&budget);
        self.make_room(to);
        self.held.contains_key(&to)
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
        views.take(&own).expect("it follows");
        views.take(&step(1, 4, 5, &[7])).expect("it follows");
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
        views.take(&step(1, 4, 5, &[2])).expect("it follows");
        assert!(!views.copy(&Copied { step: step(1, 4, 4, &[]), seq_max: Seq(2) }, ViewId(9)), "not here any more");
    }

    #[test]
    fn who_was_told_of_a_view_before_it_was_forgotten_is_told_all_of_it_again() {
        let mut views = Views::default();
        views.take(&step(1, 0, 1, &[1])).expect("a whole view");
        let (_, told) = views.update_from(ViewId(1), None).expect("there");
        views.take(&step(1, 1, 2, &[2])).expect("it follows");
        let (update, _) = views.update_from(ViewId(1), Some(told)).expect("there");
        assert_eq!((update.base, update.set.len()), (Version(1), 1));
        views.forget(ViewId(1));
        assert!(views.update_from(ViewId(1), Some(told)).is_none());
        views.take(&step(1, 0, 3, &[1, 2, 3])).expect("a whole view");
        views.take(&step(1, 3, 4, &[4])).expect("it follows");
        let (update, _) = views.update_from(ViewId(1), Some(told)).expect("there");
        assert_eq!((update.base, update.set.len()), (Version(0), 4));
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

    /// Bytes of a long path.
    const LONG: u64 = 60_000;

    /// A step that brings so many long paths, and drops so many.
    fn large(view: u64, (base, version): (u64, u64), set: u64, drop: u64) -> ViewUpdate {
        let path = |number: u64| {
            let text = format!("/{number:0249}{}", format!("/{}", "x".repeat(249)).repeat(LONG as usize / 250 - 1));
            TreePath::parse(text.as_bytes()).expect("a path")
        };
        let bound = |number| Bound { path: path(number), seq: Seq(version), binding: Binding::Absent };
        let (set, drop) = ((0..set).map(bound).collect(), (0..drop).map(path).collect());
        ViewUpdate { view: ViewId(view), base: Version(base), version: Version(version), set, drop }
    }

    #[test]
    fn views_are_counted_as_they_grow_and_shrink() {
        let budget = Arc::<Budget>::default();
        let mut views = Views::new(budget.clone());
        views.take(&large(1, (0, 1), 10, 0)).expect("a whole view");
        let ten = budget.views();
        assert!((600_000..620_000).contains(&ten), "{ten}");
        let mut again = large(1, (1, 2), 1, 0);
        again.set = vec![again.set[0].clone(); 50];
        views.take(&again).expect("it follows");
        let remembered = budget.views() - ten;
        assert!((3_000_000..3_010_000).contains(&remembered), "each change is remembered, and no path counted twice");
        views.take(&large(1, (2, 3), 0, 10)).expect("it follows");
        assert_eq!(budget.views(), remembered + 10 * (LONG + CHANGE_BYTES), "what was dropped is remembered, too");
        views.take(&large(1, (0, 4), 10, 0)).expect("a whole view");
        assert_eq!(budget.views(), ten, "and with a whole view forgotten");
        let copied = Copied { step: large(1, (4, 4), 0, 0), seq_max: Seq(9) };
        assert!(views.copy(&copied, ViewId(2)));
        assert_eq!(budget.views(), 2 * ten, "the copy keeps what the other one may drop");
        views.learn(ViewId(2), large(2, (0, 5), 11, 0).set.into_iter().skip(10), Version(4));
        assert!(budget.views() > 2 * ten + 60_000);
        drop(views);
        assert_eq!(budget.views(), 0);
    }

    #[test]
    fn views_beyond_their_bytes_go_the_longest_unused_first() {
        let budget = Arc::<Budget>::default();
        let mut views = Views::new(budget.clone());
        for view in 1..=3 {
            views.take(&large(view, (0, 1), 2, 0)).expect("room");
        }
        views.take(&large(1, (1, 1), 0, 0)).expect("used again");
        // As of another start of its daemon.
        budget.changes(0, budget::VIEWS_MAX - budget.views());
        views.take(&large(1, (1, 2), 1, 0)).expect("it has room, for another one went");
        let held = |views: &Views| (1..=3).filter(|view| views.get(ViewId(*view)).is_some()).collect::<Vec<u64>>();
        assert_eq!(held(&views), [1, 3]);
        budget.changes(0, budget::VIEWS_MAX);
        assert!(views.take(&large(1, (2, 3), 1, 0)).is_err(), "it has none however many go");
        assert_eq!(held(&views), [] as [u64; 0]);
        assert_eq!(budget.views(), 2 * budget::VIEWS_MAX - 3 * 2 * (LONG + 300));
    }
}
