//! Who is connected and who was, and which launches wait for a place: what all connections change, under one lock.

use crate::budget::Budgets;
use crate::desk::Desk;
use crate::held::{Departed, Held, PiecesKept};
use crate::needs::Lent;
use crate::placement::{Assignment, Placement, Ticket};
use crate::session::{ClientSession, SessionKey, WorkerSession, session_key};
use crate::twins::Twins;
use crate::work::Work;
use base::NodeId;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};
use wire::message::{FailedKind, Hello, Troubles};
use wire::{Connection, Trust, lock};

/// Everything that changes.
pub(crate) struct State {
    pub clients: HashMap<SessionKey, Arc<ClientSession>>,
    pub departed: Departed,
    pub pieces: PiecesKept,
    pub budgets: Budgets,
    pub workers: HashMap<NodeId, Arc<WorkerSession>>,
    /// Workers that take no more tasks, whether they are here or not: as the list of nodes has them.
    pub drained: HashSet<NodeId>,
    /// Workers that said nothing of a task that they had, and when: they get no more for a while.
    aside: HashMap<NodeId, Instant>,
    pub placement: Placement,
    pub work: Work,
    pub waiting: HashMap<Ticket, oneshot::Sender<(Arc<WorkerSession>, String)>>,
    /// What all workers lend together, for the hub above.
    pub lent: watch::Sender<Lent>,
    /// Workers whose keys others have, too.
    pub twins: Twins,
    /// What workers have trouble with, those that have.
    pub troubles: HashMap<NodeId, Troubles>,
    /// Launches that came to nothing, by kind.
    pub launches_failed: [u64; FailedKind::ALL.len()],
    /// The hubs above this one, the nearest first, as far as is known.
    pub above: Vec<NodeId>,
    /// Clients whose launches come through the hub above: when the last one came.
    pub behind: HashMap<SessionKey, Instant>,
}

/// How long a worker gets no tasks that was silent.
const ASIDE: Duration = Duration::from_secs(300);
/// Most clients whose launches come through a hub above.
const BEHIND_MAX: usize = 64;
/// How long what such a client has told is kept without a launch of it.
const BEHIND_KEPT: Duration = Duration::from_secs(600);

impl State {
    /// Nobody is connected. `drained`: workers that take no more tasks.
    pub fn new(desk: Desk, drained: HashSet<NodeId>) -> Self {
        let mut state = Self {
            clients: HashMap::new(),
            departed: Departed::default(),
            pieces: PiecesKept::default(),
            budgets: Budgets::default(),
            workers: HashMap::new(),
            drained,
            aside: HashMap::new(),
            placement: Placement::new(desk),
            work: Work::default(),
            waiting: HashMap::new(),
            lent: watch::Sender::default(),
            twins: Twins::default(),
            troubles: HashMap::new(),
            launches_failed: Default::default(),
            above: Vec::new(),
            behind: HashMap::new(),
        };
        state.expect_hosts();
        state.count_kept();
        state
    }

    /// A client connects: what it told before, over connections that are dead or about to be. Its daemon's earlier start, which is
    /// no more, need not be waited for.
    pub fn come_back(&mut self, connection: &Connection, hello: &Hello) -> Option<Arc<Held>> {
        let replaced = session_key(connection.peer(), hello.replaces);
        if let Some(gone) = self.clients.get(&replaced).filter(|_| hello.replaces != 0) {
            gone.connection.close("the client's daemon has been started anew");
        }
        let key = session_key(connection.peer(), hello.instance);
        match self.clients.get(&key) {
            Some(current) => {
                current.connection.close("the client has come back over another connection");
                Some(current.held.clone())
            }
            None => self.departed.come_back(&key),
        }
    }

    /// What a machine tells whose client says nothing of before.
    pub fn nothing_held(&mut self, machine: NodeId) -> Arc<Held> {
        let budget = self.budgets.of(machine);
        for forgotten in self.departed.make_room(&budget) {
            self.workers.values().for_each(|worker| worker.forget(&forgotten));
        }
        Arc::new(Held::new(self.pieces.of(machine), budget))
    }

    pub fn client_left(&mut self, session: &Arc<ClientSession>) {
        // A client that came back before the old connection was known to be dead has a newer session under this key.
        if !self.clients.get(&session.key).is_some_and(|current| Arc::ptr_eq(current, session)) {
            return;
        }
        self.clients.remove(&session.key);
        for forgotten in self.departed.leave(session.key.clone(), session.held.clone(), Instant::now()) {
            self.workers.values().for_each(|worker| worker.forget(&forgotten));
        }
    }

    /// Tells the tasks that got a place. One that is no longer wanted gives its place up at once.
    pub fn hand_out(&mut self, mut made: Vec<Assignment>) {
        while let Some(assignment) = made.pop() {
            let worker = self.workers.get(&assignment.worker).cloned();
            let place = self.waiting.remove(&assignment.ticket).zip(worker);
            let taken = place.is_some_and(|(waiting, worker)| waiting.send((worker, assignment.why)).is_ok());
            if !taken {
                made.extend(self.placement.finish(assignment.ticket));
            }
        }
    }

    /// A worker takes no more tasks, or takes them again; also one that is not here.
    pub fn drain(&mut self, worker: NodeId, is_drained: bool) {
        let has_changed = match is_drained {
            true => self.drained.insert(worker),
            false => self.drained.remove(&worker) | self.aside.remove(&worker).is_some(),
        };
        if has_changed {
            self.drain_or_not(worker);
        }
    }

    /// A worker said nothing of a task that it had.
    pub fn set_aside(&mut self, worker: NodeId, now: Instant) {
        if self.aside.insert(worker, now).is_none() {
            self.drain_or_not(worker);
        }
    }

    /// Workers that were silent long ago get tasks again.
    pub fn end_aside(&mut self, now: Instant) {
        let is_over = |at: &Instant| now.duration_since(*at) >= ASIDE;
        let over: Vec<NodeId> = self.aside.iter().filter(|(_, at)| is_over(at)).map(|(node, _)| *node).collect();
        for worker in over {
            self.aside.remove(&worker);
            self.drain_or_not(worker);
        }
    }

    /// Whether a worker gets no tasks for it was silent.
    pub fn is_aside(&self, worker: NodeId) -> bool {
        self.aside.contains_key(&worker)
    }

    /// Whether a worker gets no tasks, whatever it lends and however far it is trusted.
    pub fn gets_nothing(&self, worker: NodeId) -> bool {
        self.drained.contains(&worker) || self.is_aside(worker)
    }

    /// A machine is revoked: should it join anew, nothing is held against it.
    pub fn forget_word_on(&mut self, worker: NodeId) {
        self.drained.remove(&worker);
        self.aside.remove(&worker);
    }

    fn drain_or_not(&mut self, worker: NodeId) {
        let waits = self.workers.get(&worker).is_some_and(|known| *lock(&known.trust) == Trust::Waiting);
        let made = self.placement.drain(worker, self.gets_nothing(worker) || waits);
        self.placement.says_nothing(worker, self.is_aside(worker));
        self.hand_out(made);
        self.drop_stranded();
    }

    /// A worker is trusted so far from now on; also one that is not here.
    pub fn trusts(&mut self, worker: NodeId, trust: Trust) {
        if let Some(session) = self.workers.get(&worker) {
            *lock(&session.trust) = trust;
            let names = self.placement.names_of(worker).to_vec();
            self.make_room_for_tags(&names, worker);
            let made = self.placement.trusts(worker, trust, self.gets_nothing(worker));
            self.hand_out(made);
            self.drop_stranded();
        }
    }

    /// Where there is no place for one of these names of a worker, those make way that no worker has and no job asks for.
    pub fn make_room_for_tags(&mut self, names: &[String], worker: NodeId) {
        if self.placement.tags.lacks_room_for(names, worker) {
            let used = self.placement.tags_in_use() | self.work.kept.tags();
            self.placement.tags.forget_unused(used);
        }
    }

    /// Takes out workers whose connection has ended, before the task that serves them has noticed.
    pub fn drop_dead(&mut self) {
        let dead = self.workers.iter().filter(|(_, worker)| worker.connection.is_closed());
        let dead: Vec<NodeId> = dead.map(|(node, _)| *node).collect();
        for node in dead {
            self.workers.remove(&node);
            let made = self.placement.leave(node);
            self.hand_out(made);
        }
        self.drop_stranded();
    }

    /// Workers have come or gone: tells launches that no worker could take any more, and the hub above.
    pub fn drop_stranded(&mut self) {
        for ticket in self.placement.stranded() {
            self.waiting.remove(&ticket);
        }
        self.tell_above();
    }

    /// Tells the hub above, if there is one, what the workers lend now.
    pub fn tell_above(&self) {
        let now = self.placement.lent();
        self.lent.send_if_modified(|told| std::mem::replace(told, now) != now);
    }

    /// A hub above has sent a launch of this client at `now`. Returns its session over the same connection, if it has one.
    pub fn behind(&mut self, key: &SessionKey, over: &Connection, now: Instant) -> Option<Arc<ClientSession>> {
        let known = self
            .clients
            .get(key)
            .filter(|known| !known.connection.is_closed() && known.connection.peer() == over.peer());
        let known = known.cloned()?;
        self.behind.insert(key.clone(), now);
        Some(known)
    }

    /// A session of a client of the hub above begins. False if there are too many that have tasks here.
    pub fn add_behind(&mut self, session: Arc<ClientSession>, now: Instant) -> bool {
        self.forget_idle_behind(now);
        if self.behind.len() >= BEHIND_MAX {
            return false;
        }
        // It may have had one over an earlier connection: workers are sent everything anew.
        self.workers.values().for_each(|worker| worker.forget(&session.key));
        self.behind.insert(session.key.clone(), now);
        self.clients.insert(session.key.clone(), session);
        true
    }

    /// The connection to the hub above has ended: so have its clients' sessions.
    pub fn above_left(&mut self) {
        let gone = |client: &ClientSession| client.is_behind && client.connection.is_closed();
        let gone = self.clients.values().filter(|client| gone(client)).map(|client| client.key.clone());
        gone.collect::<Vec<_>>().iter().for_each(|key| self.forget_behind(key));
    }

    /// Forgets clients without tasks here: those without a launch for long, and the longest idle one if there are too many.
    fn forget_idle_behind(&mut self, now: Instant) {
        let is_idle = |key: &SessionKey| self.clients.get(key).is_none_or(|client| Arc::strong_count(client) == 1);
        let mut idle: Vec<(Instant, SessionKey)> =
            self.behind.iter().filter(|(key, _)| is_idle(key)).map(|(key, used)| (*used, key.clone())).collect();
        idle.sort();
        let too_many = (self.behind.len() + 1).saturating_sub(BEHIND_MAX);
        for (at, (used, key)) in idle.into_iter().enumerate() {
            if at < too_many || now.duration_since(used) > BEHIND_KEPT {
                self.forget_behind(&key);
            }
        }
    }

    fn forget_behind(&mut self, key: &SessionKey) {
        self.behind.remove(key);
        self.clients.remove(key);
        self.workers.values().for_each(|worker| worker.forget(key));
    }
}
