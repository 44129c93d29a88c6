//! What a hub counts and measures, in one place: [`Figures`] is what `gleaner top` shows and what metrics are made of.
//!
//! Gathered under the state's lock, in a time that does not grow with hosts, jobs or tasks: whatever is told here is counted where it
//! happens. Lists are for other questions.

use crate::needs::Lent;
use crate::server::Shared;
use crate::state::State;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use store::journal;
use store::log::Log;
use wire::lock;
use wire::message::{FailedKind, Troubles};

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
    /// Launches that came to nothing since this process began, by kind.
    pub launches_failed: BTreeMap<String, u64>,
    /// Joins that were refused since this process began, by reason.
    pub joins_refused: BTreeMap<String, u64>,
    /// What workers have trouble with.
    pub troubles: TroubleFigures,
    /// The journal, if there is one.
    pub journal: Option<JournalFigures>,
    /// How long launches waited for their places.
    pub place_waits: Times,
    /// How long answers and orders waited for the disk until their leave: orders from the taking of their records, answers from the
    /// request.
    pub record_waits: Times,
}

/// What workers have trouble with, as far as they say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TroubleFigures {
    /// Workers that have.
    pub workers: u64,
    /// For how long the oldest request of a guest for a file has waited, at any of them, in seconds, in steps.
    pub oldest_request_s: u64,
    /// Tasks that were told to end some seconds ago and have not.
    pub unkillable: u64,
    /// How far the clock that is off most differs from the hub's, in milliseconds, in steps.
    pub clock_skew_ms: u64,
}

impl TroubleFigures {
    /// Of all. There are as many as have trouble, which are few.
    fn of<'a>(all: impl Iterator<Item = &'a Troubles>) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            workers: sum.workers + 1,
            oldest_request_s: sum.oldest_request_s.max(one.oldest_request_s.into()),
            unkillable: sum.unkillable + u64::from(one.unkillable),
            clock_skew_ms: sum.clock_skew_ms.max(one.clock_ahead_ms.unsigned_abs().into()),
        })
    }
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
            launches_failed: FailedKind::ALL
                .map(|kind| (kind.name().to_owned(), self.launches_failed[kind as usize]))
                .into(),
            troubles: TroubleFigures::of(self.troubles.values()),
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
            joins_refused: lock(&self.joins_refused).counts().clone(),
            // It has a lock of its own.
            journal: journal.map(|journal| JournalFigures::from(&*journal)),
            ..figures
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LIMIT, hello, serve_hub};
    use wire::Role;
    use wire::message::Lends;

    #[tokio::test(flavor = "multi_thread")]
    async fn what_workers_have_trouble_with_is_told_until_it_is_over() {
        let hub = serve_hub("hub");
        let (one, two) = (hub.join(7, hello(Role::Worker, 3)).await, hub.join(8, hello(Role::Worker, 2)).await);
        hub.lends(5).await;
        let told = async |workers: u64| {
            let waits = async {
                while hub.shared.figures().troubles.workers != workers {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                hub.shared.figures().troubles
            };
            tokio::time::timeout(LIMIT, waits).await.expect("told in time")
        };
        let lends = |cpus, troubles| Lends { cpus, largest: cpus, troubles, ..Lends::default() };
        let slow = Troubles { oldest_request_s: 8, unkillable: 1, clock_ahead_ms: -600 };
        assert!(one.lends(lends(3, Some(slow))).await);
        assert!(
            two.lends(lends(2, Some(Troubles { unkillable: 2, clock_ahead_ms: 400, ..Troubles::default() }))).await
        );
        let want = TroubleFigures { workers: 2, oldest_request_s: 8, unkillable: 3, clock_skew_ms: 600 };
        assert_eq!(told(2).await, want);
        assert!(two.lends(lends(2, None)).await);
        assert_eq!(told(1).await.unkillable, 1);
        one.connection.close("leaves");
        assert_eq!(told(0).await, TroubleFigures::default());
    }
}
