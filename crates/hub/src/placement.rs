//! Which task runs where: the hub's sessions on one side, the task table ([`tasks::Table`]) on the other.
//!
//! A launch is a job of one task with one instance, of the client's account, and of the most urgent kind. A worker is a host that
//! is sent tasks as they come; one with more processors than a host has places joins as several. A task that fits no worker
//! even when that worker is empty is refused at once.

use crate::desk::Desk;
use crate::needs::{Lack, Lent, Tags};
use crate::registry::trust;
use crate::work::GIVES;
use base::NodeId;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;
use store::journal::Histogram;
use tasks::{
    Effect, Event, HostName, HostSpec, InstanceName, JobName, JobSpec, Need, Outcome, Policy, Refusal, Report, Shape,
    TaskName, Urgency, Waits,
};
use wire::Trust;
use wire::message::Expected;

mod bounds;
mod choosing;
mod offer;

use bounds::in_few_kinds;
pub use offer::About;
use offer::resting_in_words;

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

/// What a launch asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Whose it is: launches of one account take turns with those of others.
    pub account: u128,
    /// What each of the workers must have that it may go to.
    pub need: Need,
    /// Workers that have the same near already are preferred among equals; 0: it does not matter.
    pub affinity: u32,
}

/// Why a task gets no place, now or ever.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Nobody has joined, all have left, or those that are here are drained or hubs without workers.
    #[error("no worker that takes tasks is at this hub{}", resting_in_words(.0))]
    NoWorker(Vec<String>),
    /// It asks for something that no worker has.
    #[error("{0}")]
    Lack(#[from] Lack),
    /// The table said no.
    #[error("{0}")]
    Table(Refusal),
    /// The account has as many waiting launches as it may.
    #[error("{0} commands of this account wait for a place at the hub already, and no more may; try again later")]
    Waiting(u32),
}

/// The workers, and what waits and runs.
#[derive(Debug)]
pub struct Placement {
    /// The table of all work, of which launches are a part.
    pub desk: Desk,
    /// The tags that workers have.
    pub tags: Tags,
    workers: BTreeMap<NodeId, Worker>,
    /// Which worker a host is (part of).
    nodes: HashMap<HostName, NodeId>,
    tickets: HashMap<Ticket, Launch>,
    launches: HashMap<TaskName, Ticket>,
    /// Launches have keys of their own in each start of the hub.
    start: u64,
    /// Launches that have no place yet.
    waiting: usize,
    /// The same of each account that has some.
    waiting_of: HashMap<u128, u32>,
    /// Those of them that wait for a worker that gives something.
    choosing: BTreeSet<Ticket>,
    /// Those for which there was no room when they would have settled for less.
    turned_away: Vec<Ticket>,
    /// How long launches waited for their places.
    waits: Histogram,
    /// Workers have left, or lend less, since [`Placement::stranded`] was asked.
    has_shrunk: bool,
    /// When the last one left, or the hub began without any, in nanoseconds of the hub's time.
    left_at: u64,
}

#[derive(Debug)]
struct Worker {
    about: About,
    lent: Lent,
    /// The most that a task could have here at any time since it joined: it may have that again when it takes tasks again.
    most: Lent,
    /// The names of its tags. Those that are new count when it is approved.
    names: Vec<String>,
    /// It takes no more tasks; what it has goes on.
    is_drained: bool,
    hosts: Vec<HostName>,
}

#[derive(Clone, Copy, Debug)]
struct Launch {
    job: JobName,
    task: TaskName,
    wanted: Wanted,
    /// When it was submitted, in nanoseconds of the hub's time.
    since: u64,
    /// Where it runs, once it does.
    at: Option<(HostName, InstanceName)>,
    /// Processor time that it takes, in milliseconds: estimated, until that is known.
    cost_ms: u32,
}

impl Worker {
    /// Whether it takes no tasks now: it is drained, or its guests rest.
    fn takes_none(&self) -> bool {
        self.is_drained || self.lent.largest == 0
    }

    /// What it lends, or no CPUs and what it will lend when it takes tasks again. One that waits for approval may be given any task then.
    fn lends_in_time(&self) -> Lent {
        let trust = if self.about.trust == Trust::Waiting { Trust::Own } else { self.about.trust };
        let tags = self.most.tags | trust::tags(trust);
        if self.takes_none() { Lent { cpus: 0, expected: self.lent.expected, tags, ..self.most } } else { self.lent }
    }
}

/// Within this a worker whose connection broke, or whose hub began anew, is there again.
const BACK_WITHIN: Duration = Duration::from_secs(10);

/// What a launch is estimated to take, in milliseconds of processor time.
pub(crate) const COST_MS: u32 = 100;

impl Placement {
    /// Without workers.
    pub fn new(desk: Desk) -> Self {
        Self {
            tags: desk.tags(),
            left_at: desk.now(),
            desk,
            workers: BTreeMap::new(),
            nodes: HashMap::new(),
            tickets: HashMap::new(),
            launches: HashMap::new(),
            start: rand::random(),
            waiting: 0,
            waiting_of: HashMap::new(),
            choosing: BTreeSet::new(),
            turned_away: Vec::new(),
            waits: Histogram::default(),
            has_shrunk: false,
        }
    }

    /// Has the table do an event, and returns what was placed by it.
    fn handle(&mut self, event: Event<'_>) -> Vec<Assignment> {
        self.desk.act(event);
        self.placed()
    }

    /// What the last event has placed.
    pub fn placed(&mut self) -> Vec<Assignment> {
        let sent = self.desk.effects().iter().filter_map(|effect| match effect {
            Effect::Send { host, instance, .. } => {
                self.launches.contains_key(&instance.task).then_some((*host, *instance))
            }
            _ => None,
        });
        let sent: Vec<(HostName, InstanceName)> = sent.collect();
        sent.into_iter().filter_map(|(host, instance)| self.assign(host, instance)).collect()
    }

    fn assign(&mut self, host: HostName, instance: InstanceName) -> Option<Assignment> {
        let ticket = *self.launches.get(&instance.task)?;
        let worker = *self.nodes.get(&host)?;
        let launch = self.tickets.get_mut(&ticket)?;
        launch.at = Some((host, instance));
        let (launch, affinity) = (*launch, launch.wanted.affinity);
        self.waits_no_more(&launch);
        self.choosing.remove(&ticket);
        self.waits.add(Duration::from_nanos(self.desk.now().saturating_sub(launch.since)));
        let load = self.desk.table().load(host, affinity)?;
        let warm = if load.is_warm { ", knows the program's files" } else { "" };
        let lent = self.workers.get(&worker)?.lent;
        let expected = match lent.expected {
            Some(Expected { low, high, .. }) => {
                let worth = lent.share().worth() * 100.0;
                format!(", {worth:.0}% of one expected ({} to {}%)", low / 10, high / 10)
            }
            None => String::new(),
        };
        let why = format!(
            "{} of {} CPUs free{expected}{warm}",
            load.cpus_free + i32::from(launch.wanted.need.cpus),
            load.cpus
        );
        if affinity != 0 {
            let warmed = Event::Warm(host, affinity);
            self.desk.act(warmed);
        }
        Some(Assignment { ticket, worker, why })
    }

    /// [`Placement::come`], of a worker of the hub's owner.
    #[cfg(test)]
    pub fn join(&mut self, worker: NodeId, lent: Lent, is_drained: bool) -> Vec<Assignment> {
        self.come(worker, (lent, Vec::new()), is_drained, Trust::Own)
    }

    /// A worker offers CPUs, and has tags of these names. If it was here already, it has started anew: what ran there is forgotten.
    pub fn come(
        &mut self,
        worker: NodeId,
        (lent, names): (Lent, Vec<String>),
        is_drained: bool,
        trust: Trust,
    ) -> Vec<Assignment> {
        let mut made = self.leave(worker);
        let about = About { trust, ..About::default() };
        let joined = Worker { about, lent, most: lent, names, is_drained, hosts: Vec::new() };
        self.workers.insert(worker, joined);
        made.extend(self.fit(worker));
        made
    }

    /// A worker takes no more tasks, or takes them again. What runs there goes on.
    pub fn drain(&mut self, worker: NodeId, is_drained: bool) -> Vec<Assignment> {
        let Some(known) = self.workers.get_mut(&worker) else { return Vec::new() };
        known.is_drained = is_drained;
        self.has_shrunk = true;
        let mut made = self.fit(worker);
        made.extend(self.choose_again());
        made
    }

    /// A worker offers more or fewer CPUs than before. What runs there goes on, also beyond the new number.
    pub fn resize(&mut self, worker: NodeId, lent: Lent) -> Vec<Assignment> {
        let Some(known) = self.workers.get_mut(&worker) else { return Vec::new() };
        known.lent = lent;
        known.most = known.most.and(lent);
        self.has_shrunk = true;
        let mut made = self.fit(worker);
        made.extend(self.choose_again());
        made
    }

    /// Makes a worker's hosts as many and as large as what it lends.
    fn fit(&mut self, worker: NodeId) -> Vec<Assignment> {
        let mut made = Vec::new();
        let Some(known) = self.workers.get(&worker) else { return made };
        if known.lent.largest == 0 && known.hosts.is_empty() {
            // A worker that redeems its token, or a hub without workers: what it will lend is not known yet, so nothing must be refused
            // because of it.
            return made;
        }
        // Jobs wait for one that takes no tasks now, as for one that is not here.
        let (mut shapes, hosts) = (known.lends_in_time().hosts(), known.hosts.clone());
        let speed_permille = known.lent.speed_permille();
        // One that is too many lends nothing: what it has goes on.
        let nothing = Shape { cpus: 0, largest: 0, ..shapes[0] };
        shapes.truncate(self.hosts_max(known));
        shapes.resize(shapes.len().max(hosts.len()), nothing);
        for (at, shape) in shapes.into_iter().enumerate() {
            if let Some(host) = hosts.get(at) {
                if self.desk.table().load(*host, 0).is_some_and(|load| load.speed_permille != speed_permille) {
                    self.desk.act(Event::Speed(*host, speed_permille));
                }
                made.extend(self.handle(Event::Resize(*host, shape)));
                continue;
            }
            // Each worker is an account of its own: of those whose results must agree none is the same.
            let whose = worker.0.first_u128_le();
            let Ok(account) = self.desk.account(whose) else {
                tracing::warn!(%worker, refused = ?self.desk.refusal(), "a worker has no room in the task table");
                break;
            };
            let key = whose ^ at as u128;
            let spec = HostSpec { key, account, shape, speed_permille, is_fresh: true, is_attached: true };
            self.desk.act(Event::Join(spec));
            let Some(Effect::Host(host)) = self.desk.effects().first().copied() else {
                tracing::warn!(%worker, refused = ?self.desk.refusal(), "a worker has no room in the task table");
                break;
            };
            self.nodes.insert(host, worker);
            if let Some(known) = self.workers.get_mut(&worker) {
                known.hosts.push(host);
            }
            made.extend(self.placed());
        }
        made
    }

    /// Which worker a host is, or is a part of.
    pub fn worker_of(&self, host: HostName) -> Option<NodeId> {
        self.nodes.get(&host).copied()
    }

    /// What a task of this worker's is expected to get of a processor on the best of the others that have room for any of them and all that each
    /// needs, in thousandths; 0: there is none.
    pub fn elsewhere(&self, node: NodeId) -> u32 {
        let needs = self.needs_on(node);
        let others = self.workers.iter().filter(|(other, worker)| **other != node && !worker.is_drained);
        let free = others.filter(|(other, worker)| {
            let Some((cpus, busy)) = self.load(**other) else { return false };
            let has_room = |need: &Need| cpus.saturating_sub(busy) >= need.cpus.max(1).into();
            cpus > busy && needs.iter().all(|need| has_room(need) && worker.lent.has_all(need))
        });
        free.map(|(_, worker)| worker.lent.speed_permille()).max().unwrap_or(0)
    }

    /// What the tasks need that a worker has.
    fn needs_on(&self, node: NodeId) -> Vec<Need> {
        let table = self.desk.table();
        let hosts = self.workers.get(&node).map(|worker| &worker.hosts[..]).unwrap_or_default();
        let running = hosts.iter().filter_map(|host| table.host(*host)).flat_map(|view| view.running);
        running.filter_map(|instance| Some(table.job(table.task(instance.task)?.job)?.spec.need)).collect()
    }

    /// How many workers can have a task with this need.
    pub fn workers_for(&self, need: &Need) -> u32 {
        self.lending(need).count() as u32
    }

    fn lending(&self, need: &Need) -> impl Iterator<Item = &Worker> {
        self.workers.values().filter(|worker| !worker.takes_none() && worker.lent.has_all(need))
    }

    /// What all workers lend together, and those that take no tasks now will lend again.
    pub fn lent_in_time(&self) -> Lent {
        self.workers.values().fold(Lent::default(), |sum, worker| sum.and(worker.lends_in_time()))
    }

    /// What all workers lend together.
    pub fn lent(&self) -> Lent {
        let lending = self.workers.values().filter(|worker| !worker.is_drained);
        lending.fold(Lent::default(), |sum, worker| sum.and(worker.lent))
    }

    /// A worker is gone; the tasks that ran there are forgotten: who waits for them learns it from their streams.
    pub fn leave(&mut self, worker: NodeId) -> Vec<Assignment> {
        let Some(known) = self.workers.remove(&worker) else { return Vec::new() };
        let mut made = Vec::new();
        self.has_shrunk = true;
        self.left_at = self.desk.now();
        for host in known.hosts {
            self.desk.act(Event::Drain(host, true));
            let running = self.desk.table().host(host).map(|view| view.running).unwrap_or_default();
            for instance in running {
                if let Some(ticket) = self.launches.get(&instance.task).copied() {
                    made.extend(self.finish(ticket));
                }
            }
            self.nodes.remove(&host);
            self.desk.act(Event::Leave(host));
        }
        made.extend(self.choose_again());
        made
    }

    /// A task asks for a place.
    pub fn submit(&mut self, ticket: Ticket, wanted: Wanted) -> Result<Vec<Assignment>, Refused> {
        let lent = self.lent();
        if lent.largest == 0 {
            return Err(Refused::NoWorker(self.resting(|_| true)));
        }
        if let Some(lack) = lent.lacks(&wanted.need) {
            return Err(lack.into());
        }
        // A job would wait for a worker that takes none now; who waits for a launch may have it elsewhere.
        if self.lending(&wanted.need).next().is_none() {
            return Err(Refused::Table(Refusal::FitsNowhere));
        }
        self.may_wait(wanted.account)?;
        let choosy = self.choosy(&wanted.need);
        self.enter(ticket, wanted, choosy, self.desk.now())
    }

    /// Enters a launch, which waits since then, into the table; `choosy`: what it needs where it goes to some workers only.
    fn enter(
        &mut self,
        ticket: Ticket,
        wanted: Wanted,
        choosy: Option<Need>,
        since: u64,
    ) -> Result<Vec<Assignment>, Refused> {
        let account = self.desk.account(wanted.account).map_err(Refused::Table)?;
        let spec = JobSpec {
            key: u128::from(self.start) << 64 | u128::from(ticket.0),
            account,
            urgency: Urgency::Interactive,
            need: in_few_kinds(choosy.unwrap_or(wanted.need)),
            // Its client decides how long it may take, and tries again itself.
            policy: Policy {
                instances_max: 1,
                errors_max: 0,
                delay_bound_ms: tasks::DELAY_MAX_MS,
                ..Policy::default()
            },
            cost_ms: COST_MS,
            affinity: wanted.affinity,
            failures_max: u32::MAX,
            is_volatile: true,
        };
        self.desk.act(Event::Open(spec));
        let Some(Effect::Job(job, _)) = self.desk.effects().first().copied() else {
            return Err(Refused::Table(self.desk.refusal().unwrap_or(Refusal::Unknown)));
        };
        self.desk.act(Event::Submit { job, first: 0, count: 1, later: 0, is_promised: false, deadline_ms: 0 });
        let Some(Effect::Submitted(task)) = self.desk.effects().first().copied() else {
            let refusal = self.desk.refusal().unwrap_or(Refusal::Unknown);
            self.end(job);
            return Err(Refused::Table(refusal));
        };
        self.tickets.insert(ticket, Launch { job, task, wanted, since, at: None, cost_ms: COST_MS });
        if choosy.is_some() {
            self.choosing.insert(ticket);
        }
        self.launches.insert(task, ticket);
        self.begins_to_wait(wanted.account);
        let made = self.placed();
        if self.choosing.contains(&ticket) {
            // Who looks after the time is to look sooner.
            self.desk.sooner().notify_one();
        }
        Ok(made)
    }

    /// Whether what was refused so may have a place in a moment: no worker is there, or not one that was there a moment ago.
    pub fn is_passing(&self, refused: &Refused) -> bool {
        match refused {
            Refused::NoWorker(_) | Refused::Waiting(_) => true,
            Refused::Lack(_) | Refused::Table(Refusal::FitsNowhere) => self.may_be_back(),
            Refused::Table(_) => false,
        }
    }

    /// Whether a worker that left, or was at the hub that was here before, may be on its way back.
    fn may_be_back(&self) -> bool {
        self.desk.now().saturating_sub(self.left_at) < BACK_WITHIN.as_nanos() as u64
    }

    /// What a task has cost is known: its account is charged that when it is finished.
    pub fn cost(&mut self, ticket: Ticket, cost_ms: u32) {
        if let Some(launch) = self.tickets.get_mut(&ticket) {
            launch.cost_ms = cost_ms;
        }
    }

    /// A task has ended, was cancelled or has failed, whether it ran or waited.
    pub fn finish(&mut self, ticket: Ticket) -> Vec<Assignment> {
        let Some(launch) = self.tickets.remove(&ticket) else { return Vec::new() };
        self.launches.remove(&launch.task);
        self.choosing.remove(&ticket);
        let mut made = match launch.at {
            Some((host, instance)) => {
                let report = Report { instance, outcome: Outcome::Done([0; 32]), cost_ms: launch.cost_ms };
                self.handle(Event::Report { host, reports: &[report], want: 0 })
            }
            None => {
                self.waits_no_more(&launch);
                self.handle(Event::CancelTask(launch.task))
            }
        };
        made.extend(self.handle(Event::Assimilated(&[launch.task])));
        self.end(launch.job);
        made
    }

    fn end(&mut self, job: JobName) {
        self.desk.act(Event::Close(job));
        self.desk.act(Event::Forget(job));
        let refusal = self.desk.refusal();
        debug_assert!(
            refusal.is_none() || self.desk.dead().is_some(),
            "a launch's job ends with its task: {refusal:?}"
        );
    }

    /// Launches that wait which no worker could take even if it were empty: those that could are gone, or take no tasks now.
    pub fn stranded(&mut self) -> Vec<Ticket> {
        if !std::mem::take(&mut self.has_shrunk) {
            return std::mem::take(&mut self.turned_away);
        }
        let is_stranded = |launch: &Launch| {
            self.lending(&launch.wanted.need).next().is_none()
                || matches!(self.desk.table().waits(launch.task), Some(Waits::NoHosts | Waits::FitsNowhere(_)) | None)
        };
        let waiting = self.tickets.iter().filter(|(_, launch)| launch.at.is_none());
        let stranded: Vec<Ticket> =
            waiting.filter(|(_, launch)| is_stranded(launch)).map(|(ticket, _)| *ticket).collect();
        stranded.iter().for_each(|ticket| drop(self.finish(*ticket)));
        stranded.into_iter().chain(std::mem::take(&mut self.turned_away)).collect()
    }

    /// Time has passed: what the table does then.
    pub fn tick(&mut self) -> Vec<Assignment> {
        self.handle(Event::Tick)
    }

    /// CPUs lent and CPUs busy, of a worker. Those are not whose tasks only wait for their streams.
    pub fn load(&self, worker: NodeId) -> Option<(u32, u32)> {
        let known = self.workers.get(&worker)?;
        let busy =
            |host: &HostName| self.desk.table().load(*host, 0).map_or(0, |load| i32::from(load.cpus) - load.cpus_free);
        let busy = known.hosts.iter().map(busy).sum::<i32>().max(0) as u32;
        Some((known.lent.cpus, busy.saturating_sub(known.lent.cpus_again)))
    }

    /// What a worker lends.
    pub fn lent_by(&self, worker: NodeId) -> Option<Lent> {
        self.workers.get(&worker).map(|known| known.lent)
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// How long launches waited for their places.
    pub fn waits(&self) -> &Histogram {
        &self.waits
    }

    /// How many tasks run and how many wait.
    pub fn counts(&self) -> (usize, usize) {
        (self.tickets.len() - self.waiting, self.waiting)
    }
}

#[cfg(test)]
mod tests;
