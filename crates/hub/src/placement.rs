//! Which task runs where: a plain state machine over the workers' free CPUs and a queue in order of arrival.
//!
//! No clock, no I/O. Every call returns the assignments that it made possible. A task that fits no worker even when that
//! worker is empty is refused at once.

use base::NodeId;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Most tasks that may wait; one more is refused.
pub const QUEUE_MAX: usize = 100_000;

/// One launch, as placement knows it. A task that is launched again has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A launch that got its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Which launch.
    pub ticket: Ticket,
    /// Where it runs.
    pub worker: NodeId,
    /// Why there, for a person.
    pub why: String,
}

/// Why a task gets no place, now or ever.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Nobody has joined, or all have left.
    #[error("no worker has joined this hub")]
    NoWorker,
    /// It asks for more than any worker has.
    #[error("{asked} CPUs asked, but the largest worker lends {largest}")]
    TooLarge {
        /// CPUs asked for.
        asked: u32,
        /// CPUs of the largest worker.
        largest: u32,
    },
    /// The queue is full.
    #[error("{QUEUE_MAX} tasks are waiting already; try again later")]
    QueueFull,
}

/// CPUs that a worker lends, or a hub that works for this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lent {
    /// In all.
    pub cpus: u32,
    /// Most that one task can have: behind a hub are several machines.
    pub largest: u32,
}

impl Lent {
    /// Of one machine.
    pub fn by_machine(cpus: u32) -> Self {
        Self { cpus: cpus.max(1), largest: cpus.max(1) }
    }

    /// Of this and another.
    pub fn and(self, other: Self) -> Self {
        Self { cpus: self.cpus.saturating_add(other.cpus), largest: self.largest.max(other.largest) }
    }
}

/// The workers, the queue, and what runs where.
#[derive(Debug, Default)]
pub struct Placement {
    hosts: BTreeMap<NodeId, Host>,
    queue: VecDeque<Waiting>,
    running: HashMap<Ticket, Running>,
}

#[derive(Debug)]
struct Host {
    lent: Lent,
    /// May exceed what is lent, where it has become less: what runs goes on.
    busy: u32,
}

impl Host {
    fn free(&self) -> u32 {
        self.lent.cpus.saturating_sub(self.busy)
    }
}

#[derive(Debug)]
struct Waiting {
    ticket: Ticket,
    cpus: u32,
    /// Workers that hold this program's view already: among equals they are preferred.
    warm: Vec<NodeId>,
}

#[derive(Debug)]
struct Running {
    worker: NodeId,
    cpus: u32,
}

impl Placement {
    /// A worker offers CPUs. If it was here already, it has started anew: what ran there is forgotten.
    pub fn join(&mut self, worker: NodeId, lent: Lent) -> Vec<Assignment> {
        self.leave(worker);
        self.hosts.insert(worker, Host { lent, busy: 0 });
        self.assign()
    }

    /// A worker offers more or fewer CPUs than before. What runs there goes on, also beyond the new number.
    pub fn resize(&mut self, worker: NodeId, lent: Lent) -> Vec<Assignment> {
        if let Some(host) = self.hosts.get_mut(&worker) {
            host.lent = lent;
        }
        self.assign()
    }

    /// What all workers lend together.
    pub fn lent(&self) -> Lent {
        self.hosts.values().fold(Lent::default(), |sum, host| sum.and(host.lent))
    }

    /// A worker is gone; returns the tasks that ran there, which are forgotten.
    pub fn leave(&mut self, worker: NodeId) -> Vec<Ticket> {
        self.hosts.remove(&worker);
        let lost: Vec<Ticket> =
            self.running.iter().filter(|(_, running)| running.worker == worker).map(|(ticket, _)| *ticket).collect();
        for ticket in &lost {
            self.running.remove(ticket);
        }
        lost
    }

    /// A task asks for `cpus` on one worker.
    pub fn submit(&mut self, ticket: Ticket, cpus: u32, warm: Vec<NodeId>) -> Result<Vec<Assignment>, Refused> {
        let largest = self.lent().largest;
        if largest == 0 {
            return Err(Refused::NoWorker);
        }
        if cpus > largest {
            return Err(Refused::TooLarge { asked: cpus, largest });
        }
        if self.queue.len() >= QUEUE_MAX {
            return Err(Refused::QueueFull);
        }
        self.queue.push_back(Waiting { ticket, cpus: cpus.max(1), warm });
        Ok(self.assign())
    }

    /// A task has ended, was cancelled or has failed, whether it ran or waited.
    pub fn finish(&mut self, ticket: Ticket) -> Vec<Assignment> {
        if let Some(running) = self.running.remove(&ticket) {
            if let Some(host) = self.hosts.get_mut(&running.worker) {
                host.busy -= running.cpus.min(host.busy);
            }
        } else {
            self.queue.retain(|waiting| waiting.ticket != ticket);
        }
        self.assign()
    }

    /// Tasks that wait which no worker could take even if it were empty: the hosts that could are gone.
    pub fn stranded(&mut self) -> Vec<Ticket> {
        let largest = self.lent().largest;
        let (kept, stranded) = self.queue.drain(..).partition(|waiting| waiting.cpus <= largest);
        self.queue = kept;
        stranded.into_iter().map(|waiting: Waiting| waiting.ticket).collect()
    }

    /// CPUs lent and CPUs busy, of a worker.
    pub fn load(&self, worker: NodeId) -> Option<(u32, u32)> {
        self.hosts.get(&worker).map(|host| (host.lent.cpus, host.busy))
    }

    /// How many tasks run and how many wait.
    pub fn counts(&self) -> (usize, usize) {
        (self.running.len(), self.queue.len())
    }

    /// Serves the queue from its head, as far as the head fits: nothing overtakes, so nothing starves.
    fn assign(&mut self) -> Vec<Assignment> {
        let mut made = Vec::new();
        while let Some(head) = self.queue.front() {
            let Some((worker, why)) = self.best(head) else { break };
            let Some(head) = self.queue.pop_front() else { break };
            if let Some(host) = self.hosts.get_mut(&worker) {
                host.busy += head.cpus;
            }
            self.running.insert(head.ticket, Running { worker, cpus: head.cpus });
            made.push(Assignment { ticket: head.ticket, worker, why });
        }
        self.check_invariants();
        made
    }

    /// The worker with the most free CPUs; among equals one that holds the view, then the smallest name.
    fn best(&self, waiting: &Waiting) -> Option<(NodeId, String)> {
        let fits =
            self.hosts.iter().filter(|(_, host)| host.lent.largest >= waiting.cpus && host.free() >= waiting.cpus);
        let (worker, host) = fits
            .max_by_key(|(worker, host)| (host.free(), waiting.warm.contains(worker), std::cmp::Reverse(**worker)))?;
        let warm = if waiting.warm.contains(worker) { ", knows the program's files" } else { "" };
        Some((*worker, format!("{} of {} CPUs free{warm}", host.free(), host.lent.cpus)))
    }

    fn check_invariants(&self) {
        if cfg!(debug_assertions) {
            for (worker, host) in &self.hosts {
                let busy: u32 = self.running.values().filter(|at| at.worker == *worker).map(|at| at.cpus).sum();
                assert_eq!(busy, host.busy, "CPUs busy at {worker}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Digest;
    use proptest::prelude::*;

    fn node(number: u8) -> NodeId {
        NodeId(Digest([number; 32]))
    }

    #[test]
    fn spreads_over_workers_and_queues() {
        let mut placement = Placement::default();
        assert_eq!(placement.submit(Ticket(0), 1, vec![]), Err(Refused::NoWorker));
        placement.join(node(1), Lent::by_machine(1));
        placement.join(node(2), Lent::by_machine(1));
        let first = placement.submit(Ticket(1), 1, vec![node(2)]).expect("fits");
        assert_eq!(first[0].worker, node(2), "the one that knows the files");
        assert_eq!(placement.submit(Ticket(2), 1, vec![]).expect("fits")[0].worker, node(1));
        assert_eq!(placement.submit(Ticket(3), 1, vec![]), Ok(vec![]));
        assert_eq!(placement.finish(Ticket(1))[0].ticket, Ticket(3));
        assert_eq!(placement.submit(Ticket(4), 2, vec![]), Err(Refused::TooLarge { asked: 2, largest: 1 }));
    }

    #[test]
    fn a_lost_worker_gives_up_its_tasks() {
        let mut placement = Placement::default();
        placement.join(node(1), Lent::by_machine(2));
        placement.submit(Ticket(1), 2, vec![]).expect("fits");
        placement.submit(Ticket(2), 1, vec![]).expect("waits");
        assert_eq!(placement.leave(node(1)), vec![Ticket(1)]);
        assert_eq!(placement.stranded(), vec![Ticket(2)]);
        assert_eq!(placement.counts(), (0, 0));
    }

    #[test]
    fn a_hub_that_works_for_this_one_lends_what_its_workers_lend() {
        let mut placement = Placement::default();
        placement.join(node(1), Lent::default());
        assert_eq!(placement.submit(Ticket(1), 1, vec![]), Err(Refused::NoWorker), "nobody is behind it yet");
        assert_eq!(placement.resize(node(1), Lent { cpus: 4, largest: 2 }), vec![]);
        assert_eq!(placement.submit(Ticket(2), 3, vec![]), Err(Refused::TooLarge { asked: 3, largest: 2 }));
        for number in 3..6 {
            placement.submit(Ticket(number), 2, vec![]).expect("fits");
        }
        assert_eq!(placement.counts(), (2, 1));
        // A worker behind it is gone: what runs is not touched, and the next one waits until the CPUs are there.
        assert_eq!(placement.resize(node(1), Lent { cpus: 2, largest: 2 }), vec![]);
        assert_eq!(placement.load(node(1)), Some((2, 4)));
        assert_eq!(placement.finish(Ticket(3)), vec![]);
        assert_eq!(placement.finish(Ticket(4)).len(), 1);
        placement.resize(node(1), Lent::default());
        placement.submit(Ticket(9), 1, vec![]).expect_err("nobody is behind it");
        assert_eq!((placement.counts(), placement.lent()), ((1, 0), Lent::default()));
    }

    proptest! {
        #[test]
        fn every_task_is_placed_once(steps in proptest::collection::vec((0u8..5, 0u8..6, 1u32..4), 1..200)) {
            let mut placement = Placement::default();
            let mut placed = std::collections::HashSet::new();
            for (number, (kind, which, cpus)) in steps.into_iter().enumerate() {
                let made = match kind {
                    0 => placement.join(node(which), Lent::by_machine(cpus)),
                    4 => placement.resize(node(which), Lent { cpus: cpus * 2 - 2, largest: cpus - 1 }),
                    1 => { placement.leave(node(which)); vec![] }
                    2 => placement.submit(Ticket(number as u64), cpus, vec![]).unwrap_or_default(),
                    _ => {
                        let some = placed.iter().next().copied();
                        some.map_or(vec![], |ticket| placement.finish(ticket))
                    }
                };
                for assignment in made {
                    prop_assert!(placed.insert(assignment.ticket), "placed twice");
                }
            }
        }
    }
}
