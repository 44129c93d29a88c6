//! What is known of a job's tasks: it follows from the job's log, and from what has happened since this daemon has it.

use super::super::log::{End, How};
use super::super::order::{Lost, Order};
use super::Launched;
use std::collections::{BTreeMap, BTreeSet, HashMap};

#[derive(Debug, Default)]
pub(super) struct State {
    pub ends: BTreeMap<u32, End>,
    /// Of a job in which some come after others.
    pub order: Option<Order>,
    /// Ends of tasks that will never run, which are not written down yet.
    pub lost: Vec<End>,
    /// Tasks after which what is to be run was.
    pub assimilated: BTreeSet<u32>,
    /// By task, with the numbers of the instances.
    pub launched: BTreeMap<u32, Vec<(u32, Launched)>>,
    /// Tasks with launches under way, and how many: these are said to run.
    pub underway: BTreeMap<u32, u32>,
    /// Tasks that the hub has.
    pub at_hub: u32,
    pub failed: u32,
    /// Tasks that said more than is kept.
    pub cut: u32,
    /// Of these, tasks that were never run.
    pub not_run: u32,
    pub opened: bool,
    pub collected: bool,
    /// What hinders it now.
    pub problem: Option<String>,
    /// What went wrong last with tasks that have not ended.
    pub troubles: HashMap<u32, String>,
    /// Of these, tasks whose results cannot be put into place now.
    pub stuck: BTreeMap<u32, String>,
    /// Tasks whose `--assimilate` is tried again, and why.
    pub not_assimilated: BTreeMap<u32, String>,
    /// How often tasks that have not ended took too long.
    pub too_long: HashMap<u32, u32>,
    /// How many workers can have its tasks, as the hub said last.
    pub workers: Option<u32>,
}

impl State {
    /// A task has ended: the first end counts.
    pub fn end(&mut self, end: End) {
        let index = end.index;
        self.troubles.remove(&index);
        self.too_long.remove(&index);
        self.stuck.remove(&index);
        self.launched.remove(&index);
        if self.ends.contains_key(&index) {
            return;
        }
        let is_good = end.how.is_good();
        self.failed += u32::from(!is_good);
        self.cut += u32::from(end.is_cut);
        self.not_run += u32::from(matches!(end.how, How::NotRun(_)));
        let lost = self.order.as_mut().map(|order| order.ended(index, is_good)).unwrap_or_default();
        let end = self.ends.entry(index).or_insert(end);
        self.lost.extend(lost.into_iter().map(|lost| End::of(lost.index, never_run(lost, end))));
    }

    /// An instance is launched, perhaps once more.
    pub fn launch(&mut self, index: u32, number: u32, launched: Launched) {
        let of_task = self.launched.entry(index).or_default();
        of_task.retain(|(other, _)| *other != number);
        of_task.push((number, launched));
    }

    /// How many tasks run that have not ended.
    pub fn running(&self) -> u32 {
        self.underway.keys().filter(|index| !self.ends.contains_key(index)).count() as u32
    }

    pub fn taint(&mut self, index: u32, number: u32, why: String) {
        let of_task = self.launched.get_mut(&index).into_iter().flatten();
        for (_, launched) in of_task.filter(|(other, _)| *other == number) {
            launched.tainted.get_or_insert_with(|| why.clone());
        }
    }
}

/// How a task ends that comes after one which did not end well, directly or not.
fn never_run(lost: Lost, first: &End) -> How {
    let what = match &first.how {
        How::Cancelled => return How::Cancelled,
        _ if lost.because != first.index => "was not run".to_owned(),
        How::Exit(_) | How::Signal(_) => format!("failed ({})", first.how.name()),
        How::NotCommitted(_) => "was not committed".to_owned(),
        How::Failed(_) | How::NotRun(_) => "failed".to_owned(),
    };
    How::NotRun(format!("task {}, after which it comes, {what}", lost.because))
}
