//! One job: what was submitted, what is known of its tasks, and what its owner wants of it. All that must outlive the daemon is in
//! its log before anybody is told.

mod handing;
mod launched;
mod lines;
mod state;

use super::folder::{self, Spec, Tasks};
use super::locks::JobLocks;
use super::log::{End, Entry, How, Log, shortened};
use super::order::Order;
use super::waiting::LastWord;
use crate::views::View;
use crate::write_rules::WriteRules;
use base::{BatchId, Digest, NodeId, Priority, TaskId, Time, Version};
pub use launched::Launched;
use state::State;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tokio::sync::{Notify, watch};
use wire::lock;
use wire::signed::Statement;

/// A job.
#[derive(Debug)]
pub struct Job {
    /// What was submitted.
    pub spec: Spec,
    /// Its tasks.
    pub tasks: Tasks,
    folder: PathBuf,
    log: Log,
    state: Mutex<State>,
    wanted: watch::Sender<Wanted>,
    /// How much of what is wanted the hub has been told, by [`Wanted::version`].
    told: watch::Sender<u64>,
    /// Whether the hub has all of it that is to be there now, or as much as it has room for.
    begun: watch::Sender<bool>,
    refused: watch::Sender<Option<String>>,
    /// How often the hub could not be reached.
    unreached: watch::Sender<u64>,
    /// What the hub said last of those of its tasks that wait there.
    pub(super) last_word: LastWord,
    /// Told when it is worth trying again at once.
    pub woken: Notify,
    /// Told when tasks begin or end.
    news: Notify,
    /// Told when there may be more to hand over, or nothing more will be.
    more: Notify,
    /// Tasks whose results are being put into place.
    taking: Mutex<BTreeSet<u32>>,
    /// Told when one of these is.
    taken: Notify,
    /// What its tasks have locked.
    pub(super) locks: JobLocks,
}

/// What its owner wants of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Grows with each change.
    pub version: u64,
    /// Whether its tasks wait; `None`: that was never changed.
    pub is_held: Option<bool>,
    /// How urgent it is.
    pub priority: Priority,
    /// Why it is given up.
    pub cancelled: Option<String>,
}

/// The right to put a task's result into place: one at a time has it, over all connections.
pub struct Turn {
    job: Arc<Job>,
    index: u32,
}

impl Drop for Turn {
    fn drop(&mut self) {
        lock(&self.job.taking).remove(&self.index);
        self.job.taken.notify_waiters();
    }
}

impl Job {
    /// The job in this folder, as its log tells it; `NotFound` if its submission was broken off.
    pub fn load(folder: &Path) -> io::Result<Arc<Self>> {
        let spec = folder::spec(folder)?;
        let tasks = Tasks::open(folder, spec.tasks)?;
        let (log, entries) = Log::open(&folder.join("log"))?;
        let mut wanted = Wanted {
            version: 1,
            is_held: spec.batch.is_held.then_some(true),
            priority: spec.batch.priority,
            cancelled: None,
        };
        let order = if spec.after > 0 { Some(Order::new(spec.tasks, &tasks.edges()?)) } else { None };
        let mut state = State { order, ..State::default() };
        for entry in entries {
            wanted.version += u64::from(matches!(entry, Entry::Held(_) | Entry::Priority(_) | Entry::Cancelled(_)));
            match entry {
                Entry::Opened => state.opened = true,
                Entry::Held(held) => wanted.is_held = Some(held),
                Entry::Priority(number) => wanted.priority = Priority::of_number(number).unwrap_or_default(),
                Entry::Cancelled(why) => wanted.cancelled = Some(why),
                Entry::Launched { index, number, since_ns, statement } => {
                    let statement = statement.and_then(|digits| Digest::from_hex(&digits)).map(Statement::from_digest);
                    state.launch(index, number, Launched { statement, ..Launched::earlier(Time(since_ns)) });
                }
                Entry::Tainted { index, number, why } => state.taint(index, number, why),
                Entry::Locked { index, number, path } => {
                    let why = format!("the client daemon ended while it had {path} locked: run it again");
                    state.taint(index, number, why);
                }
                Entry::Ended(end) => state.end(end),
                Entry::Assimilated(index) => drop(state.assimilated.insert(index)),
                Entry::Collected => state.collected = true,
                Entry::HandedOver(tasks) => state.order.iter_mut().for_each(|order| order.handed_over(&tasks)),
                Entry::Again(index) => state.again(index),
            }
        }
        let job = Self {
            spec,
            tasks,
            folder: folder.to_owned(),
            log,
            state: Mutex::new(state),
            wanted: watch::Sender::new(wanted),
            told: watch::Sender::new(0),
            begun: watch::Sender::new(false),
            refused: watch::Sender::new(None),
            unreached: watch::Sender::new(0),
            last_word: LastWord::default(),
            woken: Notify::new(),
            news: Notify::new(),
            more: Notify::new(),
            taking: Mutex::default(),
            taken: Notify::new(),
            locks: JobLocks::default(),
        };
        // What was broken off between an end and what follows from it.
        job.end_lost()?;
        Ok(Arc::new(job))
    }

    /// Its name.
    pub fn id(&self) -> BatchId {
        self.spec.batch.id
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The number under which a task's changes are committed: the same whenever that is tried.
    pub fn commit_task(&self, index: u32) -> TaskId {
        let name = [b"gleaner batch task\0".as_slice(), &self.id().0.to_be_bytes(), &index.to_be_bytes()].concat();
        TaskId(Digest::of(&name).first_u128_be())
    }

    /// What its owner wants, now and when that changes.
    pub fn wanted(&self) -> watch::Receiver<Wanted> {
        self.wanted.subscribe()
    }

    /// The hub knows what is wanted, up to this version.
    pub fn is_told(&self, version: u64) {
        self.told.send_if_modified(|told| version > std::mem::replace(told, version.max(*told)));
    }

    /// Waits until the hub knows what is wanted now.
    pub async fn until_told(&self) {
        let version = self.wanted.borrow().version;
        // The sender is a member: it lives as long as this.
        let _ = self.told.subscribe().wait_for(|told| *told >= version).await;
    }

    /// The hub has what it is to have now.
    pub fn is_begun(&self) {
        self.begun.send_replace(true);
    }

    /// Waits until the hub has what it is to have, for the first time.
    pub async fn until_begun(&self) {
        // The sender is a member: it lives as long as this.
        let _ = self.begun.subscribe().wait_for(|begun| *begun).await;
    }

    /// Holds it, or releases it.
    pub fn hold(&self, held: bool) -> io::Result<()> {
        self.change(&Entry::Held(held), |wanted| wanted.is_held = Some(held))
    }

    /// Gives it another priority.
    pub fn set_priority(&self, priority: Priority) -> io::Result<()> {
        self.change(&Entry::Priority(priority.number()), |wanted| wanted.priority = priority)
    }

    /// Gives it up: the first reason counts.
    pub fn cancel(&self, why: &str) -> io::Result<()> {
        if self.wanted.borrow().cancelled.is_some() {
            return Ok(());
        }
        let why = shortened(why);
        self.change(&Entry::Cancelled(why.clone()), |wanted| wanted.cancelled = Some(why))
    }

    fn change(&self, entry: &Entry, change: impl FnOnce(&mut Wanted)) -> io::Result<()> {
        self.log.keep(entry)?;
        self.wanted.send_modify(|wanted| {
            wanted.version += 1;
            change(wanted);
        });
        self.woken.notify_one();
        Ok(())
    }

    /// An instance is about to be launched.
    pub fn launch(
        &self,
        (index, number): (u32, u32),
        statement: Statement,
        since: Time,
        view: (Arc<View>, WriteRules),
    ) -> io::Result<()> {
        if self.has_ended(index) {
            return Ok(());
        }
        let named = Some(statement.digest().to_hex());
        self.log.add(&Entry::Launched { index, number, since_ns: since.0, statement: named })?;
        let held = Some(view.0.hold());
        let launched = Launched { view: Some(view), held, statement: Some(statement), ..Launched::earlier(since) };
        lock(&self.state).launch(index, number, launched);
        Ok(())
    }

    /// An instance is at this worker.
    pub fn placed(&self, index: u32, number: u32, worker: NodeId) {
        self.note(index, number, |launched| launched.worker = Some(worker));
    }

    /// An instance is about to be launched with this version of its view.
    pub fn launched_at(&self, index: u32, number: u32, version: Version) {
        self.note(index, number, |launched| launched.version = Some(version));
    }

    fn note(&self, index: u32, number: u32, note: impl Fn(&mut Launched)) {
        let mut state = lock(&self.state);
        let of_task = state.launched.get_mut(&index).into_iter().flatten();
        of_task.filter(|(other, _)| *other == number).for_each(|(_, launched)| note(launched));
    }

    /// An instance could not be told something. Nobody else is told so before this returns.
    pub fn taint(&self, index: u32, number: u32, why: &str) {
        self.trouble(index, why);
        self.distrust(index, number, why);
    }

    /// The hub has what came of an instance.
    pub fn landed(&self, index: u32, number: u32) {
        self.note(index, number, |launched| launched.is_over = true);
    }

    /// A run of a task took too long.
    pub fn ran_too_long(&self, index: u32) {
        *lock(&self.state).too_long.entry(index).or_default() += 1;
    }

    /// How often runs of a task took too long.
    pub fn count_too_long(&self, index: u32) -> u32 {
        lock(&self.state).too_long.get(&index).copied().unwrap_or_default()
    }

    /// So many workers can have its tasks.
    pub fn set_workers(&self, workers: u32) {
        lock(&self.state).workers = Some(workers);
        self.news.notify_waiters();
    }

    /// What is known of an instance.
    pub fn launched(&self, index: u32, number: u32) -> Option<Launched> {
        let state = lock(&self.state);
        let mut of_task = state.launched.get(&index)?.iter();
        of_task.find(|(other, _)| *other == number).map(|(_, launched)| launched.clone())
    }

    /// Waits until nobody else puts this task's result into place.
    pub async fn turn(self: &Arc<Self>, index: u32) -> Turn {
        loop {
            let taken = self.taken.notified();
            tokio::pin!(taken);
            // Before it is looked: what comes after that is not missed.
            taken.as_mut().enable();
            if lock(&self.taking).insert(index) {
                return Turn { job: self.clone(), index };
            }
            taken.await;
        }
    }

    /// A launch of a task is under way.
    pub fn is_underway(&self, index: u32) {
        *lock(&self.state).underway.entry(index).or_default() += 1;
        self.news.notify_waiters();
    }

    /// A launch of a task is over, or was broken off.
    pub fn is_underway_no_more(&self, index: u32) {
        let mut state = lock(&self.state);
        if let Some(launches) = state.underway.get_mut(&index) {
            *launches -= 1;
            if *launches == 0 {
                state.underway.remove(&index);
            }
        }
        drop(state);
        self.news.notify_waiters();
    }

    /// Waits until a task begins or ends, or the job is over.
    pub async fn changed(&self) {
        self.news.notified().await;
    }

    /// Waits until it is over.
    pub async fn until_over(&self) {
        loop {
            let changed = self.news.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.is_collected() {
                return;
            }
            changed.await;
        }
    }

    /// It is over.
    pub fn is_over(&self) {
        self.news.notify_waiters();
    }

    /// Something went wrong with a task, which may be tried again.
    pub fn trouble(&self, index: u32, why: &str) {
        lock(&self.state).troubles.insert(index, shortened(why));
    }

    /// A task's result cannot be put into place now; that is tried again.
    pub fn stuck(&self, index: u32, why: &str) {
        self.trouble(index, why);
        lock(&self.state).stuck.insert(index, shortened(why));
        self.news.notify_waiters();
    }

    /// What was to be run after a task did not end well, and is tried again; or it did.
    pub fn not_assimilated(&self, index: u32, why: Option<&str>) {
        let mut state = lock(&self.state);
        match why {
            Some(why) => drop(state.not_assimilated.insert(index, shortened(why))),
            None => drop(state.not_assimilated.remove(&index)),
        }
        drop(state);
        self.news.notify_waiters();
    }

    /// What went wrong with a task last.
    pub fn last_trouble(&self, index: u32) -> Option<String> {
        lock(&self.state).troubles.get(&index).cloned()
    }

    /// What hinders the whole job, or nothing does.
    pub fn set_problem(&self, problem: Option<String>) {
        lock(&self.state).problem = problem;
    }

    /// The hub has so many of its tasks.
    pub fn at_hub(&self, tasks: u32) {
        lock(&self.state).at_hub = tasks;
    }

    /// Writes a task's end down, for good, unless that was done before. Tells whether too many have failed.
    pub fn ended(&self, end: End) -> io::Result<()> {
        if self.has_ended(end.index) {
            return Ok(());
        }
        self.log.keep(&Entry::Ended(end.clone()))?;
        self.locks.let_go(end.index);
        let failed = {
            let mut state = lock(&self.state);
            state.end(end);
            // Those that were not run are no failures of their own.
            state.failed - state.not_run
        };
        // Should what follows fail, who hands tasks over does it.
        self.more.notify_one();
        self.end_lost()?;
        self.news.notify_waiters();
        match self.spec.batch.failures_max {
            Some(most) if failed > most => {
                self.cancel(&format!("{failed} tasks failed, more than --max-failures {most}"))
            }
            _ => Ok(()),
        }
    }

    /// Writes down which tasks will never run.
    fn end_lost(&self) -> io::Result<()> {
        let lost = {
            let mut state = lock(&self.state);
            let lost = std::mem::take(&mut state.lost);
            lost.into_iter().filter(|end| !state.ends.contains_key(&end.index)).collect::<Vec<End>>()
        };
        if lost.is_empty() {
            return Ok(());
        }
        let add = |last: io::Result<u64>, end: &End| last.and_then(|_| self.log.add(&Entry::Ended(end.clone())));
        let written = lost.iter().fold(Ok(0), add).and_then(|last| self.log.flush(last));
        let mut state = lock(&self.state);
        if written.is_err() {
            state.lost.extend(lost);
            return written;
        }
        lost.into_iter().for_each(|end| state.end(end));
        self.more.notify_one();
        Ok(())
    }

    /// What was to be run after a task was.
    pub fn assimilated(&self, index: u32) -> io::Result<()> {
        self.log.keep(&Entry::Assimilated(index))?;
        lock(&self.state).assimilated.insert(index);
        Ok(())
    }

    /// A task's end, if it has ended.
    pub fn end(&self, index: u32) -> Option<End> {
        lock(&self.state).ends.get(&index).cloned()
    }

    /// Whether a task has ended.
    pub fn has_ended(&self, index: u32) -> bool {
        lock(&self.state).ends.contains_key(&index)
    }

    /// Whether all is done for a task, and the hub may forget it.
    pub fn is_done(&self, index: u32) -> bool {
        let state = lock(&self.state);
        let Some(end) = state.ends.get(&index) else { return false };
        let is_assimilated = self.spec.batch.assimilate.is_none() || matches!(end.how, How::NotRun(_));
        is_assimilated || state.assimilated.contains(&index)
    }

    /// Whether the hub may have heard of it.
    pub fn was_opened(&self) -> bool {
        lock(&self.state).opened
    }

    /// The hub is about to hear of it.
    pub fn opens(&self) -> io::Result<()> {
        if !self.was_opened() {
            self.log.keep(&Entry::Opened)?;
            lock(&self.state).opened = true;
        }
        Ok(())
    }

    /// Whether all of its tasks have ended, and all is done for them.
    pub fn all_ended(&self) -> bool {
        let state = lock(&self.state);
        let done = match self.spec.batch.assimilate {
            Some(_) => state.assimilated.len() + state.not_run as usize,
            None => state.ends.len(),
        };
        done >= self.spec.tasks as usize
    }

    /// The hub takes nothing of it, for this reason.
    pub fn refuse(&self, why: String) {
        self.refused.send_replace(Some(why));
    }

    /// Waits until the hub has refused it, and tells why.
    pub async fn until_refused(&self) -> String {
        let mut refused = self.refused.subscribe();
        // The sender is a member: it lives as long as this.
        let why = refused.wait_for(Option::is_some).await.map(|why| why.clone());
        why.ok().flatten().unwrap_or_default()
    }

    /// The hub could not be reached, for this reason.
    pub fn is_out_of_reach(&self, why: &str) {
        self.set_problem(Some(why.to_owned()));
        self.unreached.send_modify(|times| *times += 1);
    }

    /// How often the hub could not be reached, now and when that changes.
    pub fn unreached(&self) -> watch::Receiver<u64> {
        self.unreached.subscribe()
    }

    /// How many of its tasks the hub has.
    pub fn count_at_hub(&self) -> u32 {
        lock(&self.state).at_hub
    }

    /// Whether nothing more will come from the hub.
    pub fn is_collected(&self) -> bool {
        lock(&self.state).collected
    }

    /// Nothing more will come from the hub. Tasks that have no end then were never handed over, or were given up.
    pub fn collected(&self) -> io::Result<()> {
        let missing: Vec<u32> = {
            let state = lock(&self.state);
            (0..self.spec.tasks).filter(|index| !state.ends.contains_key(index)).collect()
        };
        let mut last = 0;
        for index in missing {
            let end = End::of(index, How::Cancelled);
            last = self.log.add(&Entry::Ended(end.clone()))?;
            lock(&self.state).end(end);
        }
        self.log.flush(last.max(self.log.add(&Entry::Collected)?))?;
        self.locks.let_go_all();
        let mut state = lock(&self.state);
        (state.collected, state.problem) = (true, None);
        state.lost.clear();
        Ok(())
    }

    /// Where a task's standard output (1) or error (2) is.
    pub fn output(&self, index: u32, stream: u8) -> PathBuf {
        folder::output(&self.folder, index, stream)
    }
}

#[cfg(test)]
mod tests;
