//! What a command would get that comes now, for clients that weigh where to run it; and which workers take none, and why.

use super::{Assignment, Placement, Worker};
use crate::registry::trust;
use base::NodeId;
use bytes::Bytes;
use tasks::Need;
use wire::Trust;
use wire::message::Offer;

/// Workers that are named as resting, at most.
const RESTING_MAX: usize = 8;

/// What is known of a worker beside what it lends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// Its name for people.
    pub name: String,
    /// The mark of the account whose tasks are no guests there; empty: of none.
    pub owner: Bytes,
    /// Why guests rest there; empty: they do not.
    pub rests: String,
    /// How far it is trusted.
    pub trust: Trust,
    /// It gets no tasks for a while: it said nothing of one that it had.
    pub says_nothing: bool,
}

impl Placement {
    /// Notes what is known of a worker that has joined.
    pub fn is_known(&mut self, node: NodeId, about: About) {
        let Some(worker) = self.workers.get_mut(&node) else { return };
        worker.about = about;
        if worker.about.trust == Trust::Waiting {
            // It has nothing, and lends nothing yet: only what it may lend is another.
            let _ = self.fit(node);
        }
    }

    /// Notes the names of a worker's tags.
    pub fn is_named(&mut self, node: NodeId, names: Vec<String>) {
        if let Some(worker) = self.workers.get_mut(&node) {
            worker.names = names;
        }
    }

    /// The names of a worker's tags.
    pub fn names_of(&self, node: NodeId) -> &[String] {
        self.workers.get(&node).map_or(&[], |worker| &worker.names)
    }

    /// Notes why guests rest at a worker, or that they do not.
    pub fn rests(&mut self, node: NodeId, why: &str) {
        if let Some(worker) = self.workers.get_mut(&node) {
            worker.about.rests = why.to_owned();
        }
    }

    /// Notes that a worker was silent, or may have tasks again.
    pub fn says_nothing(&mut self, node: NodeId, says_nothing: bool) {
        if let Some(worker) = self.workers.get_mut(&node) {
            worker.about.says_nothing = says_nothing;
        }
    }

    /// Why guests rest at a worker; empty: they do not.
    pub fn why_resting(&self, node: NodeId) -> &str {
        self.workers.get(&node).map_or("", |worker| &worker.about.rests)
    }

    /// What a command would get now of a client with this mark.
    pub fn offer(&self, mark: &[u8]) -> Offer {
        let is_own = |worker: &&Worker| !mark.is_empty() && worker.about.owner == mark;
        let may = |worker: &Worker| !worker.is_drained && worker.about.trust <= Trust::Site;
        let lends = || self.workers.iter().filter(|(_, worker)| may(worker) && worker.lent.cpus > 0);
        // No launch goes where it gets nothing while another gives something.
        let any_gives = lends().any(|(_, worker)| worker.lent.gives());
        let lends = lends().filter(|(_, worker)| !any_gives || worker.lent.gives() || is_own(worker));
        let (free, full): (Vec<_>, Vec<_>) =
            lends.partition(|(node, _)| self.load(**node).is_some_and(|(cpus, busy)| cpus > busy));
        // What they say that they lend may be anything.
        let cpus = free.iter().chain(&full).map(|(_, worker)| worker.lent.cpus).fold(0, u32::saturating_add);
        let is_free = !free.is_empty();
        let best = if is_free { free } else { full };
        let (own, others): (Vec<_>, Vec<_>) = best.into_iter().map(|(_, worker)| worker).partition(is_own);
        let best = others.iter().max_by_key(|worker| worker.lent.speed_permille());
        let (share, name) = best.map_or((0, ""), |worker| (worker.lent.speed_permille(), &worker.about.name));
        Offer {
            share,
            own: !own.is_empty(),
            waiting: self.waiting.try_into().unwrap_or(u32::MAX),
            // One that was silent is not worth waiting for.
            resting: self.resting(|worker| !worker.about.says_nothing),
            workers: self.workers.len().try_into().unwrap_or(u32::MAX),
            cpus,
            is_free,
            name: name.to_owned(),
            trust: self.least_trusted().number(),
        }
    }

    /// The class of the least trusted of the workers that launches go to unasked.
    pub fn least_trusted(&self) -> Trust {
        let is_of_site = |worker: &Worker| worker.about.trust == Trust::Site;
        if self.workers.values().any(is_of_site) { Trust::Site } else { Trust::Own }
    }

    /// A worker is trusted so far from now on; `is_drained`: it takes no tasks all the same.
    pub fn trusts(&mut self, node: NodeId, trust: Trust, is_drained: bool) -> Vec<Assignment> {
        let Some(worker) = self.workers.get_mut(&node) else { return Vec::new() };
        worker.about.trust = trust;
        let named = if trust == Trust::Waiting { 0 } else { self.tags.lent(&worker.names, node) };
        worker.lent.tags = worker.lent.tags & !trust::tags(Trust::Own) | trust::tags(trust) | named;
        worker.is_drained = is_drained || trust == Trust::Waiting;
        let lent = worker.lent;
        self.resize(node, lent)
    }

    /// Workers that could have a task with this need and take no tasks now, and why, as the end of a sentence.
    pub fn resting_for(&self, need: &Need) -> String {
        resting_in_words(&self.resting(|worker| worker.lends_in_time().has_all(need)))
    }

    /// Workers among `which` that take no tasks now, and why: some of them.
    pub(super) fn resting(&self, which: impl Fn(&Worker) -> bool) -> Vec<String> {
        let why = |worker: &Worker| match (worker.is_drained, worker.about.trust, worker.about.rests.as_str()) {
            (_, Trust::Waiting, _) => Some("waits for `gleaner approve`".to_owned()),
            (_, Trust::Volunteer, _) => Some("a volunteer, for commands that ask for such".to_owned()),
            _ if worker.about.says_nothing => Some("set aside: it said nothing of a task that it had".to_owned()),
            (true, _, _) => Some("drained".to_owned()),
            (false, _, "") => None,
            (false, _, rests) => Some(format!("rests: {rests}")),
        };
        let resting = self.workers.iter().filter(|(_, worker)| which(worker)).filter_map(|(node, worker)| {
            let why = why(worker)?;
            let name = Some(worker.about.name.clone()).filter(|name| !name.is_empty());
            Some(format!("{} ({why})", name.unwrap_or_else(|| node.short())))
        });
        resting.take(RESTING_MAX).collect()
    }
}

/// The end of a sentence that says that nobody takes tasks.
pub(super) fn resting_in_words(resting: &[String]) -> String {
    match resting {
        [] => String::new(),
        some => format!(": {}", some.join(", ")),
    }
}
