//! What a hub counts and measures, in one place: [`Figures`] is what `gleaner top` shows and what metrics are made of.
//!
//! Gathered under the state's lock, in a time that does not grow with hosts, jobs or tasks: whatever is told here is counted where it
//! happens. Lists are for other questions.

use crate::needs::Lent;
use crate::server::Shared;
use crate::state::State;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use store::journal;
use store::log::Log;
use wire::lock;

/// All of them. [`Totals`] and the counts of records go on from one start of the hub to the next, as far as its journal keeps them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// The hub's name.
    pub hub: String,
    /// All digits of its id.
    pub hub_id: String,
    /// The version of the program.
    pub version: String,
    /// For how long this process has been the hub, in milliseconds.
    pub uptime_ms: u64,
    /// Clients that are connected.
    pub clients: u64,
    /// Workers that are connected.
    pub workers: u64,
    /// Hosts that ask for workunits, or wait for them, and are connected.
    pub hosts_here: u64,
    /// Those that may come back.
    pub hosts_away: u64,
    /// CPUs that workers and hosts lend.
    pub cpus_lent: u64,
    /// CPUs of these that tasks have.
    pub cpus_busy: u64,
    /// What workers expect to give, if any says so.
    pub expected: Option<ExpectedFigures>,
    /// Launches of `remrun` that have a place.
    pub launches_running: u64,
    /// Launches that wait for one.
    pub launches_waiting: u64,
    /// Jobs that are known, a launch being one.
    pub jobs: u64,
    /// Tasks that are known: those that have ended are, until their results have been taken.
    pub tasks: u64,
    /// Room for tasks.
    pub tasks_max: u64,
    /// Tasks that want a place at a host; those that are held among them.
    pub tasks_waiting: u64,
    /// Tasks that have a place, or several.
    pub tasks_running: u64,
    /// Tasks of jobs that are held, or whose client is away.
    pub tasks_held: u64,
    /// Instances of tasks that are out.
    pub instances_out: u64,
    /// What has happened.
    pub totals: Totals,
    /// The journal, if there is one.
    pub journal: Option<JournalFigures>,
    /// How long launches waited for their places.
    pub place_waits: Times,
    /// How long answers and orders waited for the disk until their leave: orders from the taking of their records, answers from the
    /// request.
    pub record_waits: Times,
}

/// What workers expect to give in the next minutes beside what their owners want, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExpectedFigures {
    /// Of all their CPUs together, in the mean.
    pub cpus: u64,
    /// No less, nine times in ten with each worker, …
    pub cpus_low: u64,
    /// … and no more.
    pub cpus_high: u64,
    /// How far such forecasts were off so far, in the mean over CPUs: of one.
    pub error: u64,
    /// Those in whose interval it was.
    pub covered: u64,
}

impl ExpectedFigures {
    fn of(lent: &Lent) -> Option<Self> {
        let expected = lent.expected?;
        let of_all = |permille: u32| u64::from(permille) * u64::from(lent.cpus);
        Some(Self {
            cpus: of_all(expected.mean),
            cpus_low: of_all(expected.low),
            cpus_high: of_all(expected.high),
            error: expected.error.into(),
            covered: expected.covered.into(),
        })
    }
}

/// What has happened since the journal was begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Tasks that were submitted.
    pub submitted: u64,
    /// Instances that were dispatched.
    pub dispatched: u64,
    /// Tasks that ended with a result, which was taken.
    pub done: u64,
    /// Tasks that ended without.
    pub failed: u64,
    /// Instances that were lost with their hosts, or in time.
    pub lost: u64,
    /// Of these, in time.
    pub late: u64,
    /// Instances that tasks got more because a deadline was near.
    pub speculated: u64,
    /// Tasks that ended before their deadlines.
    pub deadlines_met: u64,
    /// Tasks that did not.
    pub deadlines_missed: u64,
    /// Submissions that were refused because their deadlines could not be met.
    pub too_late: u64,
    /// Events that were refused, these among them.
    pub refused: u64,
    /// Hosts that were sent back for a while.
    pub back_offs: u64,
}

impl From<&tasks::Totals> for Totals {
    fn from(of_table: &tasks::Totals) -> Self {
        let tasks::Totals {
            hosts: _,
            submitted,
            sent,
            done,
            failed,
            lost,
            late,
            speculated,
            met,
            missed,
            too_late,
            refused,
            back_offs,
        } = *of_table;
        Self {
            submitted,
            dispatched: sent,
            done,
            failed,
            lost,
            late,
            speculated,
            deadlines_met: met,
            deadlines_missed: missed,
            too_late,
            refused,
            back_offs,
        }
    }
}

/// The journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JournalFigures {
    /// Bytes that it takes.
    pub bytes: u64,
    /// The bound on that.
    pub bytes_max: u64,
    /// Bytes that a start would read, behind the newest snapshot.
    pub bytes_after_snapshot: u64,
    /// Records that it took since it was begun.
    pub records: u64,
    /// Records that are durable.
    pub records_durable: u64,
    /// Bytes of records that are not.
    pub buffered_bytes: u64,
    /// The bound on that.
    pub buffered_bytes_max: u64,
    /// Which hub this is, of those that replaced one another.
    pub epoch: u64,
    /// How long it took to make batches durable: a sync each.
    pub syncs: Times,
}

impl From<&Log> for JournalFigures {
    fn from(journal: &Log) -> Self {
        let status = journal.status();
        Self {
            bytes: status.bytes,
            bytes_max: status.bytes_max,
            bytes_after_snapshot: status.bytes_after_snapshot,
            records: status.taken.0,
            records_durable: status.durable.0,
            buffered_bytes: status.buffered as u64,
            buffered_bytes_max: status.buffered_max as u64,
            epoch: status.epoch,
            syncs: status.syncs.into(),
        }
    }
}

/// How long something took, each time since this process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Times {
    /// How often that was.
    pub count: u64,
    /// All together, in microseconds.
    pub sum_us: u64,
    /// Half of them took no longer, in microseconds; exact to an eighth.
    pub p50_us: u64,
    /// All but one of a hundred took no longer; exact to an eighth.
    pub p99_us: u64,
    /// The longest.
    pub max_us: u64,
}

impl From<journal::Times> for Times {
    fn from(times: journal::Times) -> Self {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self {
            count: times.count,
            sum_us: micros(times.sum),
            p50_us: micros(times.p50),
            p99_us: micros(times.p99),
            max_us: micros(times.max),
        }
    }
}

impl State {
    fn figures(&self) -> Figures {
        let desk = &self.placement.desk;
        let table = desk.table();
        let ([_, _, jobs, tasks, _], gauges) = (table.counts(), table.gauges());
        let (launches_running, launches_waiting) = self.placement.counts();
        let (hosts, hosts_away) = self.work.hosts.counts();
        Figures {
            clients: self.clients.len() as u64,
            workers: self.placement.workers() as u64,
            hosts_here: (hosts - hosts_away) as u64,
            hosts_away: hosts_away as u64,
            cpus_lent: gauges.cpus,
            cpus_busy: gauges.cpus_busy,
            expected: ExpectedFigures::of(&self.lent.borrow()),
            launches_running: launches_running as u64,
            launches_waiting: launches_waiting as u64,
            jobs: jobs as u64,
            tasks: tasks as u64,
            tasks_max: table.capacity().tasks as u64,
            tasks_waiting: gauges.ready.into(),
            tasks_running: gauges.running.into(),
            tasks_held: gauges.held.into(),
            instances_out: gauges.out.into(),
            totals: table.totals().into(),
            place_waits: self.placement.waits().times().into(),
            record_waits: desk.waits().times().into(),
            ..Figures::default()
        }
    }
}

impl Shared {
    /// The figures, now.
    pub fn figures(&self) -> Figures {
        let (figures, journal) = {
            let state = lock(&self.state);
            (state.figures(), state.placement.desk.journal().cloned())
        };
        Figures {
            hub: self.name.clone(),
            hub_id: self.key.node().0.to_hex(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_ms: u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX),
            // It has a lock of its own.
            journal: journal.map(|journal| JournalFigures::from(&*journal)),
            ..figures
        }
    }
}
