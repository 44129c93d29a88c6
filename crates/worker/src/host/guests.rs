//! The tasks that run here now: what is known of each, and the way to have it end because the owner needs its place.

use crate::cpus::Share;
use base::TaskId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use wire::lock;
use wire::message::Failed;

/// All tasks that run.
#[derive(Debug, Default)]
pub struct Guests(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// Why none of them runs; empty: they may.
    rests: String,
    next: u64,
    present: BTreeMap<u64, Present>,
}

#[derive(Debug)]
struct Present {
    known: Known,
    /// Says why it must go.
    evict: Option<oneshot::Sender<Failed>>,
}

/// One task that runs.
#[derive(Clone, Debug)]
pub struct Known {
    /// By which it is evicted.
    pub number: u64,
    /// Its name at the hub.
    pub task: TaskId,
    /// What it runs, for a person.
    pub program: String,
    /// Its control group; empty: it has none of its own.
    pub group: String,
    /// Folder of what it writes.
    pub scratch: std::path::PathBuf,
    /// The processors that it is to use.
    pub cpus: Arc<Share>,
    /// When it came.
    pub since: Instant,
    /// What its control group had used before it came: groups are used again.
    pub used_before: Duration,
    /// It was told to end.
    pub is_leaving: bool,
}

/// A task's stay, until this is dropped.
#[derive(Debug)]
pub struct Stay {
    guests: Arc<Guests>,
    number: u64,
}

impl Guests {
    /// A task has begun. The second part is told if it must go, and why.
    pub fn arrive(self: &Arc<Self>, known: Known) -> (Stay, oneshot::Receiver<Failed>) {
        let (evict, told) = oneshot::channel();
        let mut table = lock(&self.0);
        let number = table.next;
        table.next += 1;
        let known = Known { number, ..known };
        table.present.insert(number, Present { known, evict: Some(evict) });
        (Stay { guests: self.clone(), number }, told)
    }

    /// Says why none of them runs now, or that they may.
    pub fn rest(&self, why: &str) {
        let mut table = lock(&self.0);
        if table.rests != why {
            table.rests = why.to_owned();
        }
    }

    /// Why none of them runs now; empty: they may.
    pub fn why_resting(&self) -> String {
        lock(&self.0).rests.clone()
    }

    /// All that are here, the longest first.
    pub fn list(&self) -> Vec<Known> {
        lock(&self.0).present.values().map(|present| present.known.clone()).collect()
    }

    /// Whether some were told to end and are still here.
    pub fn are_leaving(&self) -> bool {
        lock(&self.0).present.values().any(|present| present.known.is_leaving)
    }

    /// How many are here.
    pub fn count(&self) -> usize {
        lock(&self.0).present.len()
    }

    /// Has one end, to be done elsewhere; `why` is what its client is told. False: it is gone, or on its way.
    pub fn evict(&self, number: u64, why: Failed) -> bool {
        let mut table = lock(&self.0);
        let Some(present) = table.present.get_mut(&number) else { return false };
        present.known.is_leaving = true;
        present.evict.take().is_some_and(|evict| evict.send(why).is_ok())
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        lock(&self.guests.0).present.remove(&self.number);
    }
}
