//! The table: every record, and the one way in.

mod accounts;
mod admission;
mod cancel;
mod check;
mod control;
mod dispatch;
mod hosts;
mod instances;
mod lanes;
mod life;
mod older;
mod query;
mod records;
mod recover;
mod report;
mod servers;
mod snapshot;
mod speeds;
mod submit;
mod tick;

pub use accounts::{AccountView, Progress};
pub use older::written_by;
pub use query::{Gauges, HostLoad, HostView, InstanceState, InstanceView, JobView, TaskView, Totals, Waits};
pub use tick::DUE_MAX;

use crate::event::{Effect, Effects, Event, Refusal, Urgency};
use crate::kinds::{KINDS_MAX, Kinds};
use crate::names::{AccountName, HostName, JobName, TaskName};
use crate::shapes::NIL;
use crate::shapes::keys::Keys;
use crate::shapes::meter::{Counting, Work};
use crate::shapes::sets::Sets;
use crate::shapes::slab::{Column, Slab};
use crate::shapes::trie::Tries;
use crate::shapes::wheel::Wheel;
use records::{AWAY, Account, Group, HELD, Host, HostMore, Instance, Job, Lane, Ring, Tags, Task};

/// Nanoseconds in a millisecond.
const MS: u64 = 1_000_000;

/// How much the table can hold: set at the start, and never more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Accounts.
    pub accounts: usize,
    /// Hosts.
    pub hosts: usize,
    /// Jobs.
    pub jobs: usize,
    /// Deadlines of jobs that are in use; a job without deadlines counts as one.
    pub groups: usize,
    /// Tasks.
    pub tasks: usize,
    /// Instances that were sent and belong to tasks that are there.
    pub instances: usize,
    /// Nodes of queues by deadline: one serves up to 64 deadlines that are near each other, one alone needs three.
    pub nodes: usize,
}

impl Capacity {
    /// What is usual for so many hosts and tasks.
    pub fn of(hosts: usize, tasks: usize) -> Self {
        Self {
            accounts: (hosts / 4).clamp(64, 65_536),
            hosts,
            jobs: (tasks / 8).clamp(64, 65_536),
            groups: (tasks / 4).clamp(128, 131_072),
            tasks,
            instances: tasks + tasks / 4 + 16,
            nodes: (tasks / 16).clamp(256, 16_384),
        }
    }

    /// Lanes are in use by groups, and each account has a few at most.
    fn lanes(&self) -> usize {
        self.groups.min(self.accounts * lanes::LANES_MAX)
    }
}

/// The task table of a hub.
///
/// It is a pure state machine: [`Table::handle`] does all, and what it does follows from the events alone. Each event takes a
/// bounded number of steps ([`Table::work`]), however much is in the table.
#[derive(Debug)]
pub struct Table {
    accounts: Slab<Account>,
    hosts: Slab<Host>,
    host_more: Column<HostMore>,
    jobs: Slab<Job>,
    groups: Slab<Group>,
    lanes: Slab<Lane>,
    tasks: Slab<Task>,
    tags: Column<Tags>,
    instances: Slab<Instance>,
    account_keys: Keys,
    host_keys: Keys,
    job_keys: Keys,
    kinds: Kinds,
    tries: Tries,
    /// By urgency and kind of need.
    rings: Column<Ring>,
    /// The kinds of needs whose ring has lanes, by urgency.
    waiting: Sets<{ Urgency::ALL.len() }>,
    /// What the ring that was served last had been given, by urgency.
    given: [u64; Urgency::ALL.len()],
    /// The first of the hosts that wait for work, by how many processors they have free, and kind.
    parks: Column<u32>,
    /// The kinds of hosts that wait for work, by how many processors they have free.
    parked: Sets<{ hosts::PARKS }>,
    /// Hosts that may have more than one event could give them.
    hungry: u32,
    /// Hosts that are gone and had something.
    gone: u32,
    /// Cancelled jobs with tasks that are to be looked at.
    reaped: u32,
    /// Tasks whose instances are to be taken apart.
    cleaning: u32,
    instances_due: Wheel,
    groups_due: Wheel,
    hosts_due: Wheel,
    servers: servers::Servers,
    demands: admission::Demands,
    /// Processors times their speed in thousandths, of all hosts, by kind.
    supply: Column<u64>,
    /// The kinds of hosts of which there are some with processors.
    present: Sets<1>,
    supply_total: u64,
    /// Processors by their speed, and how fast all but the slowest of them are. Not saved: it follows from the hosts.
    speeds: speeds::Speeds,
    /// Instances that are set aside for tasks in the table.
    set_aside: u32,
    /// When hosts that wait are tried again, and how often that was done.
    try_again_ms: u64,
    tries_made: u32,
    totals: Totals,
    /// Not saved: it follows from the rest.
    gauges: Gauges,
    /// Heads of queues that this event may still look at.
    looks: u32,
    now: u64,
}

/// How many rings there are.
const RINGS: usize = Urgency::ALL.len() * KINDS_MAX;

impl Table {
    /// An empty table. `now`: nanoseconds of the hub's time, which never goes back, and goes on when the hub is started again.
    /// `salt`: a secret random number, so that nobody can choose names that collide.
    pub fn new(capacity: Capacity, salt: u128, now: u64) -> Self {
        let now_ms = now / MS;
        let mut parks = Column::new(hosts::PARKS * KINDS_MAX);
        (0..(hosts::PARKS * KINDS_MAX) as u32).for_each(|at| parks[at] = NIL);
        Self {
            accounts: Slab::new(capacity.accounts),
            hosts: Slab::new(capacity.hosts),
            host_more: Column::empty(capacity.hosts),
            jobs: Slab::new(capacity.jobs),
            groups: Slab::new(capacity.groups),
            lanes: Slab::new(capacity.lanes()),
            tasks: Slab::new(capacity.tasks),
            tags: Column::empty(capacity.tasks),
            instances: Slab::new(capacity.instances),
            account_keys: Keys::new(capacity.accounts, salt),
            host_keys: Keys::new(capacity.hosts, salt),
            job_keys: Keys::new(capacity.jobs, salt),
            kinds: Kinds::new(),
            tries: Tries::new(capacity.nodes),
            rings: Column::new(RINGS),
            waiting: Sets::default(),
            given: [0; Urgency::ALL.len()],
            parks,
            parked: Sets::default(),
            hungry: NIL,
            gone: NIL,
            reaped: NIL,
            cleaning: NIL,
            instances_due: Wheel::new(now_ms),
            groups_due: Wheel::new(now_ms),
            hosts_due: Wheel::new(now_ms),
            servers: servers::Servers::default(),
            demands: admission::Demands::default(),
            supply: Column::new(KINDS_MAX),
            present: Sets::default(),
            supply_total: 0,
            speeds: speeds::Speeds::default(),
            set_aside: 0,
            try_again_ms: 0,
            tries_made: 0,
            totals: Totals::default(),
            gauges: Gauges::default(),
            looks: 0,
            now,
        }
    }

    /// Does one event at `now`, nanoseconds of the hub's time. A `now` before the last one counts as the last one.
    pub fn handle(&mut self, event: &Event<'_>, now: u64, effects: &mut Effects) {
        self.now = self.now.max(now);
        self.looks = dispatch::LOOKS_MAX;
        let now_ms = self.now_ms();
        for wheel in [&mut self.instances_due, &mut self.groups_due, &mut self.hosts_due] {
            wheel.follow(now_ms);
        }
        effects.clear();
        if let Err(refusal) = self.on_event(event, effects) {
            self.totals.refused += 1;
            effects.push(Effect::Refused(refusal));
        }
    }

    fn on_event(&mut self, event: &Event<'_>, effects: &mut Effects) -> Result<(), Refusal> {
        match *event {
            Event::Account(spec) => self.on_account(&spec, effects),
            Event::Join(spec) => self.on_join(&spec, effects),
            Event::Leave(host) => self.on_leave(host),
            Event::Resize(host, shape) => self.on_resize(host, &shape, effects),
            Event::Speed(host, permille) => self.on_speed(host, permille),
            Event::Drain(host, is_draining) => self.on_drain(host, is_draining, effects),
            Event::Warm(host, affinity) => self.on_warm(host, affinity),
            Event::Open(spec) => self.on_open(&spec, effects),
            Event::Submit { job, first, count, later, is_promised, deadline_ms } => {
                self.on_submit(job, first, count, (!is_promised).then_some(later), deadline_ms, effects)
            }
            Event::Close(job) => self.on_close(job, effects),
            Event::Request { host, want } => self.on_request(host, want, effects),
            Event::Report { host, reports, want } => self.on_report(host, reports, want, effects),
            Event::Compared { task, agree } => self.on_compared(task, agree, effects),
            Event::Assimilated(tasks) => self.on_assimilated(tasks, effects),
            Event::CancelTask(task) => self.on_cancel_task(task, effects),
            Event::CancelJob(job) => self.on_cancel_job(job, effects),
            Event::Hold(job, is_held) => self.on_hold(job, HELD, is_held, effects),
            Event::Away(job, is_away) => self.on_hold(job, AWAY, is_away, effects),
            Event::Urgency(job, urgency) => self.on_urgency(job, urgency),
            Event::Forget(job) => self.on_forget(job),
            Event::Tick => {
                self.on_tick(effects);
                Ok(())
            }
        }
    }

    fn now_ms(&self) -> u64 {
        self.now / MS
    }

    fn account_at(&self, name: AccountName) -> Result<u32, Refusal> {
        self.accounts.find(name.at, name.generation).ok_or(Refusal::Unknown)
    }

    fn host_at(&self, name: HostName) -> Result<u32, Refusal> {
        self.hosts.find(name.at, name.generation).ok_or(Refusal::Unknown)
    }

    fn job_at(&self, name: JobName) -> Result<u32, Refusal> {
        self.jobs.find(name.at, name.generation).ok_or(Refusal::Unknown)
    }

    fn task_at(&self, name: TaskName) -> Result<u32, Refusal> {
        self.tasks.find(name.at, name.generation).ok_or(Refusal::Unknown)
    }

    /// Has the processor get the records of some tasks and of what hangs on them, side by side: one after the other they would be waited
    /// for, with more in the table than a cache holds.
    fn fetch(&self, tasks: impl Iterator<Item = TaskName> + Clone) {
        tasks.clone().for_each(|name| self.fetch_task(name.at));
        for task in tasks.clone().filter_map(|name| self.tasks.column.get(name.at)) {
            self.instances.column.prefetch(task.newest);
            self.groups.column.prefetch(task.group);
            self.tasks.column.prefetch(task.siblings.prev);
            self.tasks.column.prefetch(task.siblings.next);
        }
        for task in tasks.filter_map(|name| self.tasks.column.get(name.at)) {
            if let Some(newest) = self.instances.column.get(task.newest) {
                self.instances.column.prefetch(newest.timer.prev);
                self.instances.column.prefetch(newest.timer.next);
                self.host_more.prefetch(newest.host);
            }
        }
    }

    /// The same for one task alone.
    fn fetch_task(&self, at: u32) {
        self.tasks.column.prefetch(at);
        self.tags.prefetch(at);
    }

    /// What was done since the last call, as far as it is counted ([`Table::count`]).
    pub fn work(&mut self) -> Work {
        let mut work = Work::default();
        for meter in self.meters() {
            work += meter.take();
        }
        for wheel in self.wheels() {
            work += wheel.work();
        }
        work
    }

    /// What [`Table::work`] tells from now on; at first it tells nothing.
    pub fn count(&mut self, counting: Counting) {
        self.meters().iter().for_each(|meter| meter.set(counting));
        self.wheels().iter().for_each(|wheel| wheel.count(counting));
    }

    fn wheels(&self) -> [&Wheel; 3] {
        [&self.instances_due, &self.groups_due, &self.hosts_due]
    }

    fn meters(&self) -> [&crate::shapes::meter::Meter; 21] {
        [
            &self.accounts.column.meter,
            &self.hosts.column.meter,
            &self.host_more.meter,
            &self.jobs.column.meter,
            &self.groups.column.meter,
            &self.lanes.column.meter,
            &self.tasks.column.meter,
            &self.tags.meter,
            &self.instances.column.meter,
            &self.account_keys.meter,
            &self.host_keys.meter,
            &self.job_keys.meter,
            &self.tries.nodes.column.meter,
            &self.rings.meter,
            &self.parks.meter,
            &self.supply.meter,
            &self.kinds.meter,
            &self.waiting.meter,
            &self.parked.meter,
            &self.present.meter,
            &self.demands.meter,
        ]
    }

    /// Bytes of memory that it holds: the same from its start to its end.
    pub fn bytes(&self) -> usize {
        let slabs = [
            self.accounts.column.bytes(),
            self.hosts.column.bytes(),
            self.host_more.bytes(),
            self.jobs.column.bytes(),
            self.groups.column.bytes(),
            self.lanes.column.bytes(),
            self.tasks.column.bytes(),
            self.tags.bytes(),
            self.instances.column.bytes(),
            self.tries.nodes.column.bytes(),
            self.rings.bytes(),
            self.parks.bytes(),
            self.supply.bytes(),
            self.kinds.bytes(),
        ];
        let keys = [&self.account_keys, &self.host_keys, &self.job_keys].map(Keys::bytes);
        let wheels = self.wheels().map(Wheel::bytes);
        slabs.iter().chain(&keys).chain(&wheels).sum::<usize>() + size_of::<Self>()
    }
}
