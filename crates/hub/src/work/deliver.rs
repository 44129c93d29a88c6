//! What has become durable leaves: on the thread that made it so, which spares a change between threads for each commit.

use crate::desk::Answer;
use crate::server::Shared;
use std::sync::{Arc, Mutex};
use store::journal::{JournalError, Seq};
use wire::lock;

/// Told by the journal; delivers to the hub once that serves.
#[derive(Default)]
pub(crate) struct Deliverer(Mutex<Told>);

#[derive(Default)]
struct Told {
    durable: Seq,
    dead: Option<Arc<JournalError>>,
    hub: Option<Arc<Shared>>,
}

impl Deliverer {
    /// Records are durable up to this one, or the journal has ended.
    pub fn told(&self, outcome: Result<Seq, Arc<JournalError>>) {
        let mut told = lock(&self.0);
        match outcome {
            Ok(seq) => told.durable = seq,
            Err(dead) => told.dead = Some(dead),
        }
        told.deliver();
    }

    /// Delivers to this hub, as long as what is given back is kept.
    pub fn begin(self: &Arc<Self>, hub: Arc<Shared>) -> Delivering {
        let mut told = lock(&self.0);
        told.hub = Some(hub);
        told.deliver();
        Delivering(self.clone())
    }
}

impl Told {
    fn deliver(&self) {
        let Some(hub) = &self.hub else { return };
        let mut state = lock(&hub.state);
        if let Some(dead) = &self.dead {
            return state.placement.desk.end(dead.clone());
        }
        let (effects, answers) = state.placement.desk.told(self.durable);
        state.route(effects);
        drop(state);
        answers.into_iter().for_each(Answer::release);
    }
}

/// Ends the delivering when it is dropped: before the journal is closed, or its thread would wait for who waits for it.
pub(crate) struct Delivering(Arc<Deliverer>);

impl Drop for Delivering {
    fn drop(&mut self) {
        let hub = lock(&self.0.0).hub.take();
        drop(hub);
    }
}
