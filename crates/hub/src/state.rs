//! Who is connected and who was, and which launches wait for a place: what all connections change, under one lock.

use crate::held::{Departed, Held, PiecesKept};
use crate::placement::{Assignment, Placement, Ticket};
use crate::session::{ClientSession, SessionKey, WorkerSession, session_key};
use base::NodeId;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot;
use wire::Connection;
use wire::message::Hello;

/// Everything that changes.
#[derive(Default)]
pub(crate) struct State {
    pub clients: HashMap<SessionKey, Arc<ClientSession>>,
    pub departed: Departed,
    pub pieces: PiecesKept,
    pub workers: HashMap<NodeId, Arc<WorkerSession>>,
    pub placement: Placement,
    pub waiting: HashMap<Ticket, oneshot::Sender<(Arc<WorkerSession>, String)>>,
}

impl State {
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

    /// Takes out workers whose connection has ended, before the task that serves them has noticed.
    pub fn drop_dead(&mut self) {
        let dead = self.workers.iter().filter(|(_, worker)| worker.connection.is_closed());
        let dead: Vec<NodeId> = dead.map(|(node, _)| *node).collect();
        for node in dead {
            self.workers.remove(&node);
            self.placement.leave(node);
        }
        self.drop_stranded();
    }

    /// Tells launches that no worker could take any more.
    pub fn drop_stranded(&mut self) {
        for ticket in self.placement.stranded() {
            self.waiting.remove(&ticket);
        }
    }
}
