//! What the hub was told of a client's files, kept for a while after its connection ended: a client that comes back over another
//! one says only what changed since.

use crate::budget::Budget;
use crate::budget::VIEWS_MAX;
use crate::session::SessionKey;
use crate::views::Views;
use base::{Digest, NodeId};
use mirror::View;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use wire::lock;
use wire::message::ViewHeld;

/// How long it is kept for a client that is gone.
const KEPT: Duration = Duration::from_secs(3600);
/// Clients that are gone of which something is kept; the one that left first is forgotten beyond.
const CLIENTS_MAX: usize = 32;
/// Paths that are kept of all of them, and bytes of what these mean.
const PATHS_MAX: usize = 500_000;
const BYTES_MAX: u64 = 1 << 30;
/// Views of which a client that comes back is told; it sends others whole.
const VIEWS_TOLD: usize = 1024;

/// Machines of which the names of pieces are kept.
const MACHINES_MAX: usize = 64;

/// The names of pieces of a client's files, by stamp and number. A stamp says the same at each start of its daemon.
pub type Pieces = Mutex<HashMap<(Digest, u64), Digest>>;

/// The names of pieces, of each machine.
#[derive(Default)]
pub struct PiecesKept(HashMap<NodeId, Arc<Pieces>>);

impl PiecesKept {
    /// Those of one machine.
    pub fn of(&mut self, node: NodeId) -> Arc<Pieces> {
        if let Some(known) = self.0.get(&node) {
            return known.clone();
        }
        if self.0.len() >= MACHINES_MAX {
            let unused = self.0.iter().find(|(_, pieces)| Arc::strong_count(pieces) == 1).map(|(node, _)| *node);
            match unused {
                Some(unused) => drop(self.0.remove(&unused)),
                // All are in use: one more has its own for as long as it is here.
                None => return Arc::default(),
            }
        }
        self.0.entry(node).or_default().clone()
    }
}

/// What one start of a client's daemon has told.
pub struct Held {
    /// Its views.
    pub views: Mutex<Views>,
    /// Told of each step of a view, and of what is on its way.
    pub advanced: Notify,
    /// The names of pieces of its files.
    pub pieces: Arc<Pieces>,
    /// What its machine's words take.
    pub budget: Arc<Budget>,
}

impl Held {
    /// Nothing told yet, but what is known of pieces.
    pub fn new(pieces: Arc<Pieces>, budget: Arc<Budget>) -> Self {
        Self { views: Mutex::new(Views::new(budget.clone())), advanced: Notify::new(), pieces, budget }
    }

    /// How far each view is known.
    pub fn told(&self) -> Vec<ViewHeld> {
        let views = lock(&self.views);
        views.iter().take(VIEWS_TOLD).map(|view| ViewHeld { view: view.id().0, version: view.version().0 }).collect()
    }

    fn paths(&self) -> usize {
        lock(&self.views).iter().map(View::len).sum()
    }
}

/// What clients have told that are gone, the one that left first at the front.
#[derive(Default)]
pub struct Departed(Vec<(SessionKey, Arc<Held>, Instant)>);

impl Departed {
    /// A client left at `now`. Returns the keys of those that are forgotten for that.
    pub fn leave(&mut self, key: SessionKey, held: Arc<Held>, now: Instant) -> Vec<SessionKey> {
        self.0.retain(|(other, ..)| *other != key);
        self.0.push((key, held, now));
        let mut forgotten = Vec::new();
        while self.0.first().is_some_and(|(_, _, left)| self.is_too_much() || now.duration_since(*left) > KEPT) {
            forgotten.push(self.0.remove(0).0);
        }
        forgotten
    }

    fn is_too_much(&self) -> bool {
        let sum = |bytes: u64, held: &Held| bytes.saturating_add(lock(&held.views).bytes());
        self.0.len() > CLIENTS_MAX
            || self.0.iter().map(|(_, held, _)| held.paths()).sum::<usize>() > PATHS_MAX
            || self.0.iter().fold(0, |bytes, (_, held, _)| sum(bytes, held)) > BYTES_MAX
    }

    /// A machine's daemon has started anew, and what was told before takes much of what it may have: that goes. Returns the keys of what
    /// is forgotten.
    pub fn make_room(&mut self, budget: &Arc<Budget>) -> Vec<SessionKey> {
        if budget.views() <= VIEWS_MAX / 2 {
            return Vec::new();
        }
        let is_its_own = |(_, held, _): &mut (SessionKey, Arc<Held>, Instant)| Arc::ptr_eq(&held.budget, budget);
        self.0.extract_if(.., is_its_own).map(|(key, ..)| key).collect()
    }

    /// The client is back: what it told before.
    pub fn come_back(&mut self, key: &SessionKey) -> Option<Arc<Held>> {
        let at = self.0.iter().position(|(known, ..)| known == key)?;
        Some(self.0.remove(at).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Binding, Bound, Seq, TreePath, Version, ViewId, ViewUpdate};
    use bytes::Bytes;

    fn key(number: usize) -> SessionKey {
        Bytes::from(number.to_string())
    }

    fn held(paths: usize) -> Arc<Held> {
        let held = Held::new(Arc::default(), Arc::default());
        let bound = |at: usize| {
            let path = TreePath::root().join(at.to_string().as_bytes());
            Bound { path, seq: Seq(1), binding: Binding::Absent }
        };
        let set = (0..paths).map(bound).collect();
        let update = ViewUpdate { view: ViewId(3), base: Version(0), version: Version(7), set, drop: Vec::new() };
        lock(&held.views).take(&update).expect("a whole view");
        Arc::new(held)
    }

    #[test]
    fn who_comes_back_in_time_is_known() {
        let (mut departed, now) = (Departed::default(), Instant::now());
        departed.leave(key(1), held(2), now);
        departed.leave(key(2), held(1), now + KEPT / 2);
        let back = departed.come_back(&key(1)).expect("known");
        assert_eq!(back.told(), [ViewHeld { view: 3, version: 7 }]);
        assert!(departed.come_back(&key(1)).is_none());
        assert_eq!(departed.leave(key(3), held(1), now + KEPT * 2), [key(2)]);
    }

    #[test]
    fn pieces_are_known_at_the_next_start_too() {
        let (mut kept, node) = (PiecesKept::default(), |number| NodeId(Digest([number; 32])));
        lock(&kept.of(node(1))).insert((Digest([1; 32]), 0), Digest([2; 32]));
        assert_eq!(lock(&kept.of(node(1))).len(), 1);
        let in_use: Vec<_> = (2..=MACHINES_MAX as u8 + 2).map(|number| kept.of(node(number))).collect();
        assert_eq!((kept.0.len(), in_use.len()), (MACHINES_MAX, MACHINES_MAX + 1));
        assert!(lock(&kept.of(node(1))).is_empty(), "it made room");
    }

    #[test]
    fn what_was_told_before_goes_where_a_machine_has_much() {
        let (mut departed, now, budget) = (Departed::default(), Instant::now(), Arc::<Budget>::default());
        departed.leave(key(1), Arc::new(Held::new(Arc::default(), budget.clone())), now);
        departed.leave(key(2), held(1), now);
        assert!(departed.make_room(&budget).is_empty());
        budget.changes(0, VIEWS_MAX / 2 + 1);
        assert_eq!(departed.make_room(&budget), [key(1)]);
        assert!(departed.come_back(&key(2)).is_some(), "another machine's");
    }

    #[test]
    fn clients_and_paths_are_bounded() {
        let (mut departed, now) = (Departed::default(), Instant::now());
        let forgotten: Vec<_> = (0..CLIENTS_MAX + 2).flat_map(|at| departed.leave(key(at), held(0), now)).collect();
        assert_eq!(forgotten, [key(0), key(1)]);
        let forgotten = departed.leave(key(100), held(PATHS_MAX + 1), now);
        assert_eq!(forgotten.len(), CLIENTS_MAX + 1, "it is too large even alone");
    }
}
