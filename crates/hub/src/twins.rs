//! Two machines with one key: a worker's folder was copied. Each would throw the other out, for ever. The one that is here and is heard stays; the
//! other is refused, and told why.

use crate::server::Shared;
use crate::session::WorkerSession;
use base::NodeId;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use wire::message::{Hello, OpenKind};
use wire::{Connection, lock};

/// How long it may take, beside some round trips, until something is heard of a worker that is there. One that was killed and starts again waits
/// for this.
const HEARD_LIMIT: Duration = Duration::from_secs(1);
const ROUND_TRIPS: u32 = 4;
/// For how long it is told that another one came.
const TOLD_FOR: Duration = Duration::from_secs(600);
/// Most workers of which that is told.
const TWINS_MAX: usize = 256;

/// Workers that others with the same key wanted to be.
#[derive(Debug, Default)]
pub(crate) struct Twins(HashMap<NodeId, Instant>);

impl Twins {
    fn note(&mut self, node: NodeId, now: Instant) {
        self.0.retain(|_, last| now.duration_since(*last) < TOLD_FOR);
        if self.0.len() < TWINS_MAX {
            self.0.insert(node, now);
        }
    }

    /// Whether another one came lately.
    pub fn has(&self, node: NodeId, now: Instant) -> bool {
        self.0.get(&node).is_some_and(|last| now.duration_since(*last) < TOLD_FOR)
    }
}

impl Shared {
    /// Why a worker that greets is refused: another one with its key is here. The same one over another connection is let in, and so is one
    /// whose earlier start is not heard any more.
    pub(crate) async fn twin_of(&self, connection: &Connection, hello: &Hello) -> Option<String> {
        let present = lock(&self.state).workers.get(&connection.peer()).cloned();
        let present = present.filter(|present| is_another(present.instance, hello.instance))?;
        if !is_heard(&present).await {
            return None;
        }
        let at = |connection: &Connection| connection.address().map_or("here".into(), |address| address.to_string());
        let (here, there) = (at(&present.connection), at(connection));
        let (node, name) = (present.node, &present.name);
        tracing::warn!(%node, name, %here, %there, "the key of a worker is used twice: its state folder was copied");
        lock(&self.state).twins.note(node, Instant::now());
        Some(format!(
            "the worker {name} with this very key is connected from {here}: was its state folder copied? remove `worker/worker.key` in \
             the copy's state folder and join anew (gleaner join TOKEN)"
        ))
    }
}

/// Whether these are numbers of two starts. 0: it has none.
fn is_another(present: u64, comes: u64) -> bool {
    present != 0 && comes != 0 && present != comes
}

async fn is_heard(worker: &WorkerSession) -> bool {
    let connection = &worker.connection;
    if connection.is_closed() || connection.is_within_process() {
        return !connection.is_closed();
    }
    let before = connection.heard();
    // Whatever is said is acknowledged. It asks for nothing.
    let Ok(_asked) = connection.open(OpenKind::Elsewhere(true)).await else { return false };
    connection.heard() > before
        || !wire::awake::is_silent(connection, HEARD_LIMIT + connection.round_trip() * ROUND_TRIPS).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_back_is_no_twin() {
        assert!(is_another(1, 2));
        assert!(!is_another(1, 1) && !is_another(0, 2) && !is_another(1, 0));
    }

    #[test]
    fn it_is_told_for_a_while() {
        let (mut twins, now) = (Twins::default(), Instant::now());
        let node = NodeId(base::Digest([1; 32]));
        twins.note(node, now);
        assert!(twins.has(node, now + TOLD_FOR / 2) && !twins.has(node, now + TOLD_FOR));
        assert!(!twins.has(NodeId(base::Digest([2; 32])), now));
    }
}
