//! Why a task of a job is not running: what placement looks at ([`Table::waits`]), in words.

use super::TAKES_LAUNCHES;
use super::jobs::key;
use crate::state::State;
use tasks::{JobView, Misfit, Table, TaskName, Urgency, Waits};

/// Tasks of a job that are looked at for one with a number; hosts that are looked at.
const LOOKS_MAX: usize = 4096;

/// Why a task waits, or that it does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Why {
    /// It waits.
    pub waits: bool,
    /// For people.
    pub why: String,
}

impl State {
    /// Why a task of an account's job waits; without a number, or if the job has very many: one of those that do. `chosen` is what the
    /// client calls the job.
    pub(crate) fn why_waits(&self, account: u128, chosen: u128, index: Option<u32>) -> Option<Why> {
        let table = self.placement.desk.table();
        let own = table.account(account)?;
        let job = table.job_with(own, key(account, &chosen.to_be_bytes()).ok()?)?;
        let view = table.job(job)?;
        let named = index.and_then(|index| table.task_with(job, index, LOOKS_MAX));
        let Some(task) = named.or_else(|| table.ready_of(job)) else {
            return Some(Why { waits: false, why: without_ready(&view).to_owned() });
        };
        let waits = table.waits(task)?;
        Some(Why { waits: waits != Waits::Not, why: self.in_words(table, &view, task, &waits) })
    }

    fn in_words(&self, table: &Table, job: &JobView, task: TaskName, waits: &Waits) -> String {
        let gauges = table.gauges();
        let (need, is_driven) = (&job.spec.need, job.spec.need.tags & TAKES_LAUNCHES != 0);
        let hosts = if is_driven { "worker" } else { "host" };
        let asked = match need.memory_mib {
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
            Waits::FitsNowhere(misfits) => {
                format!("no {hosts} that is here can have it: {asked} asked, {}", listed(misfits))
            }
            Waits::AccountLimit(most) => format!("this account has {most} tasks out, which is all that it may have"),
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
                    count => format!("; {count} {hosts}s that failed several times in a row get nothing for a while"),
                };
                format!(
                    "its turn will come, as it is {what}: {asked} asked, {busy} of {lent} CPUs are busy, and {ready} tasks wait in all{alone}"
                )
            }
        }
    }
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
