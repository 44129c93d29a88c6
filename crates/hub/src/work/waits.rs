//! Why a task of a job is not running: what placement looks at ([`Table::waits`]), in words.

use super::TAKES_LAUNCHES;
use super::jobs::key;
use crate::state::State;
use bytes::Bytes;
use prost::Message;
use tasks::{JobView, Misfit, Table, TaskName, Urgency, Waits};
use wire::message::work::JobOpen;

/// Tasks of a job that are looked at for one with a number; hosts that are looked at.
const LOOKS_MAX: usize = 4096;

/// Why a task waits, or that it does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Why {
    /// It waits.
    pub waits: bool,
    /// It waits for a worker that is not here, or takes no tasks now.
    pub lacks_worker: bool,
    /// For people.
    pub why: String,
}

impl Why {
    fn not(why: String) -> Self {
        Self { waits: false, lacks_worker: false, why }
    }
}

impl State {
    /// Why a task of an account's job waits; without a number: one of those that do. If the job has so many that the task is not found,
    /// another one, and the answer says so. `chosen` is what the client calls the job.
    pub(crate) fn why_waits(&self, account: u128, chosen: u128, index: Option<u32>) -> Option<Why> {
        let table = self.placement.desk.table();
        let own = table.account(account)?;
        let job = table.job_with(own, key(account, &chosen.to_be_bytes()).ok()?)?;
        let view = table.job(job)?;
        let named = index.and_then(|index| table.task_with(job, index, LOOKS_MAX));
        let is_not_named = index.filter(|_| named.is_none());
        if let Some(why) = is_not_named.and_then(|index| not_there(&view, index)) {
            return Some(Why::not(why));
        }
        let Some(task) = named.or_else(|| table.ready_of(job)) else {
            return Some(Why::not(without_ready(&view).to_owned()));
        };
        let waits = table.waits(task)?;
        let mut why = self.in_words(table, &view, task, &waits);
        if is_not_named.is_some() {
            why = format!("not known of this task, as its job has very many; of another one: {why}");
        }
        let lacks_worker =
            matches!(waits, Waits::NoHosts | Waits::FitsNowhere(_) | Waits::Resting | Waits::OtherAccounts);
        Some(Why { waits: waits != Waits::Not, lacks_worker, why })
    }

    /// What a job asks for in MiB: the table has it in whole steps.
    fn memory_asked(&self, job: &JobView) -> u32 {
        let open = self.placement.desk.ledger().job(job.name);
        let open = open.and_then(|blob| JobOpen::decode(Bytes::from_owner(blob.clone())).ok());
        // One that was opened before this was kept has none there.
        open.map(|open| open.memory_mib).filter(|mib| *mib > 0).unwrap_or(job.spec.need.memory_mib)
    }

    fn in_words(&self, table: &Table, job: &JobView, task: TaskName, waits: &Waits) -> String {
        let gauges = table.gauges();
        let (need, is_driven) = (&job.spec.need, job.spec.need.tags & TAKES_LAUNCHES != 0);
        let hosts = if is_driven { "worker" } else { "host" };
        let asked = match self.memory_asked(job) {
            0 => format!("{} CPUs", need.cpus),
            memory => format!("{} CPUs and {memory} MiB", need.cpus),
        };
        match waits {
            Waits::Not if table.instances(task).is_empty() => "it is over".to_owned(),
            Waits::Not => "it runs, or it is over and its result waits to be taken".to_owned(),
            Waits::Compared => "its results are being compared by a command".to_owned(),
            Waits::Held if !job.is_held => "its job is cancelled".to_owned(),
            Waits::Held => "its job is held: gleaner release lets it go on".to_owned(),
            Waits::Away => "its client daemon, which launches it, is not connected to the hub".to_owned(),
            Waits::NoHosts => format!("no {hosts} is here"),
            Waits::FitsNowhere(_) if is_driven && self.placement.workers() == 0 => "no worker is here".to_owned(),
            Waits::FitsNowhere(misfits) if misfits.is_empty() => format!("no {hosts} that is here takes tasks"),
            Waits::FitsNowhere(misfits) => {
                format!("no {hosts} that is here can have it: {asked} asked, {}", listed(misfits))
            }
            Waits::Resting if is_driven => {
                format!("no worker that could have it takes tasks now{}", self.placement.resting_for(need))
            }
            Waits::Resting => format!("no {hosts} that could have it takes tasks now"),
            Waits::AccountLimit(most) => format!("this account has {most} tasks out, which is all that it may have"),
            Waits::OtherAccounts => format!(
                "results must come from different accounts, and those of all {hosts}s that asked have had a copy of it: it waits for \
                 another account's"
            ),
            Waits::OthersOfAccount => {
                "other tasks of this account stand before it: with earlier deadlines, or submitted before".to_owned()
            }
            Waits::Turn(urgency) => {
                let what = match urgency {
                    Urgency::Interactive => "urgent",
                    Urgency::Reserved => "of a reserved share",
                    Urgency::Normal => "normal",
                    Urgency::Spare => "spare",
                };
                let (busy, lent, ready) = (gauges.cpus_busy, gauges.cpus, gauges.ready);
                let alone = match table.backing_off(LOOKS_MAX) {
                    0 => String::new(),
                    1 => format!("; a {hosts} that failed several times in a row gets nothing for a while"),
                    count => format!("; {count} {hosts}s that failed several times in a row get nothing for a while"),
                };
                format!(
                    "its turn will come, as it is {what}: {asked} asked, {busy} of {lent} CPUs are busy, and {ready} tasks wait in all{alone}"
                )
            }
        }
    }
}

/// Why a task that was not found is not among those of its job, if that is known.
fn not_there(job: &JobView, index: u32) -> Option<String> {
    if index >= job.tasks {
        return Some(format!("the hub has not been given this task yet, but {} tasks of its job", job.tasks));
    }
    // All that have not ended were looked at.
    (job.unfinished as usize <= LOOKS_MAX).then(|| "it is over, and its result was taken".to_owned())
}

/// Why a job has no task that is ready.
fn without_ready(job: &JobView) -> &'static str {
    match (job.unfinished, job.is_open) {
        (0, true) => "the hub has none of its tasks yet, or all that it has have ended",
        (0, false) => "all its tasks have ended",
        _ => "all its tasks run, or are over and their results wait to be taken",
    }
}

/// Each once. Hosts for other things are left out where there are some for this.
fn listed(misfits: &[Misfit]) -> String {
    let mut lines: Vec<String> = Vec::new();
    let is_other = |misfit: &Misfit| matches!(misfit, Misfit::Tags(_));
    let all_others = misfits.iter().all(is_other);
    for misfit in misfits.iter().filter(|misfit| all_others || !is_other(misfit)) {
        let line = match misfit {
            Misfit::Cpus(has, _) => format!("{has} CPUs there"),
            Misfit::Memory(has, _) => format!("{has} MiB there"),
            other => other.to_string(),
        };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desk::{Desk, Room};
    use tasks::{BATCH_MAX, Effect, Event, JobName, JobSpec, Need, Policy};

    const ACCOUNT: u128 = 7;
    const CHOSEN: u128 = 8;

    /// A job with so many tasks, and no host.
    fn with_tasks(count: u32) -> (State, JobName) {
        let room = Room { hosts: 8, tasks: 2 * LOOKS_MAX, bytes_max: 1 << 20 };
        let mut desk = Desk::in_memory(room, 5);
        let spec = JobSpec {
            key: key(ACCOUNT, &CHOSEN.to_be_bytes()).expect("16 bytes"),
            account: desk.account(ACCOUNT).expect("room"),
            urgency: Urgency::Normal,
            need: Need { cpus: 1, ..Need::default() },
            policy: Policy::default(),
            cost_ms: 1,
            affinity: 0,
            failures_max: u32::MAX,
            is_volatile: false,
        };
        let [Effect::Job(job, _), ..] = *desk.act(Event::Open(spec)) else { panic!("{:?}", desk.effects()) };
        for first in (0..count).step_by(BATCH_MAX) {
            let batch = (count - first).min(BATCH_MAX as u32) as u8;
            desk.act(Event::Submit { job, first, count: batch, later: 0, is_promised: false, deadline_ms: 0 });
        }
        assert_eq!(desk.table().job(job).expect("there").tasks, count);
        (State::new(desk, Default::default()), job)
    }

    #[test]
    fn a_task_that_is_not_there_is_not_taken_for_another() {
        let (mut state, job) = with_tasks(3);
        let why = |state: &State, index| state.why_waits(ACCOUNT, CHOSEN, Some(index)).expect("its job");
        assert!(why(&state, 1).waits && why(&state, 1).lacks_worker);
        let yet = why(&state, 3);
        assert!(!yet.waits && yet.why.contains("not been given") && yet.why.contains("3 tasks"), "{yet:?}");
        let first = state.placement.desk.table().tasks_of(job, 1)[0];
        state.act(Event::CancelTask(first));
        state.act(Event::Assimilated(&[first]));
        let over = why(&state, 0);
        assert!(!over.waits && over.why.contains("is over"), "{over:?}");
    }

    #[test]
    fn of_very_many_tasks_the_answer_is_for_another_and_says_so() {
        let (state, _) = with_tasks(LOOKS_MAX as u32 + 1);
        let of_last = state.why_waits(ACCOUNT, CHOSEN, Some(LOOKS_MAX as u32)).expect("its job");
        assert!(of_last.waits && of_last.why.contains("of another one: no host"), "{of_last:?}");
        let of_first = state.why_waits(ACCOUNT, CHOSEN, Some(0)).expect("its job");
        assert!(!of_first.why.contains("another one"), "{of_first:?}");
    }
}
