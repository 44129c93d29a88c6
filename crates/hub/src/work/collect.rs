//! A client's stream of what has ended: told until it is taken, whatever fails between. So are results that it is to compare.

use crate::desk::Durable;
use crate::server::Shared;
use crate::session::ClientSession;
use crate::state::State;
use crate::workers::send_last;
use bytes::Bytes;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use tasks::{BATCH_MAX, Event, Failure, INSTANCES_MAX, InstanceName, JobName, TaskName};
use tokio::sync::Notify;
use wire::message::work::{Candidate, Collect, Compare, Compared, Ended, Endings, Taken};
use wire::{Receiver, Sender, lock};

/// Tasks that are told and not yet taken, of one stream: usual, and most.
const AHEAD: usize = 256;
const AHEAD_MAX: usize = 4096;
/// Tasks whose results one stream compares at once.
const COMPARES_MAX: usize = 16;

/// What has ended and is to be told, by job.
#[derive(Default)]
pub(crate) struct Feeds(HashMap<JobName, Feed>);

#[derive(Default)]
struct Feed {
    /// Ended, and told to nobody. As many as the job has tasks at most.
    ended: VecDeque<TaskName>,
    /// To be compared, and told to nobody; bit n: the result of instance n.
    comparisons: VecDeque<(TaskName, u16)>,
    has_more: Arc<Notify>,
}

impl Feeds {
    /// A task of a job has ended.
    pub fn add(&mut self, job: JobName, task: TaskName) {
        let feed = self.0.entry(job).or_default();
        feed.ended.push_back(task);
        feed.has_more.notify_waiters();
    }

    /// Results of a task are to be compared.
    pub fn add_comparison(&mut self, job: JobName, task: TaskName, mask: u16) {
        let feed = self.0.entry(job).or_default();
        feed.comparisons.push_back((task, mask));
        feed.has_more.notify_waiters();
    }

    /// There is news of a job.
    pub fn wake(&mut self, job: JobName) {
        self.0.get(&job).into_iter().for_each(|feed| feed.has_more.notify_waiters());
    }

    /// A job is no more.
    pub fn forget(&mut self, job: JobName) {
        self.wake(job);
        self.0.remove(&job);
    }

    fn has_more(&mut self, job: JobName) -> Arc<Notify> {
        self.0.entry(job).or_default().has_more.clone()
    }

    /// So many that have ended, and so many comparisons, at most.
    fn take(&mut self, job: JobName, ended: usize, comparisons: usize) -> (Vec<TaskName>, Vec<(TaskName, u16)>) {
        let Some(feed) = self.0.get_mut(&job) else { return Default::default() };
        (first_of(&mut feed.ended, ended), first_of(&mut feed.comparisons, comparisons))
    }

    /// These were told to somebody who did not take them.
    fn give_back(&mut self, collector: Collector) {
        // It may have been forgotten meanwhile.
        let Some(feed) = self.0.get_mut(&collector.job) else { return };
        collector.told.into_iter().for_each(|task| feed.ended.push_front(task));
        collector.compares.into_iter().for_each(|comparison| feed.comparisons.push_front(comparison));
        feed.has_more.notify_waiters();
    }
}

fn first_of<T>(queue: &mut VecDeque<T>, count: usize) -> Vec<T> {
    queue.drain(..count.min(queue.len())).collect()
}

/// What a collector is told next.
enum News {
    Told(Endings),
    Nothing,
    Last,
}

impl Shared {
    /// Serves such a stream until the job has ended, or its client has.
    pub(crate) async fn serve_collect(
        self: Arc<Self>,
        client: Arc<ClientSession>,
        wanted: Collect,
        mut sender: Sender,
        mut receiver: Receiver,
    ) {
        let job = lock(&self.state).own_job(client.account(), wanted.job);
        let job = match job {
            Ok(job) => job,
            Err(refusal) => {
                let refusal = refusal.to_string();
                return send_last(sender, &Endings { refusal, ..Endings::default() }).await;
            }
        };
        let ahead = if wanted.ahead == 0 { AHEAD } else { (wanted.ahead as usize).min(AHEAD_MAX) };
        let (told, compares, settling) = (HashSet::new(), HashMap::new(), VecDeque::new());
        let mut collector = Collector { client, job, ahead, told, compares, taken: 0, settling };
        self.tell(&mut collector, &mut sender, &mut receiver).await;
        lock(&self.state).work.feeds.give_back(collector);
    }

    async fn tell(&self, collector: &mut Collector, sender: &mut Sender, receiver: &mut Receiver) {
        let has_more = lock(&self.state).work.feeds.has_more(collector.job);
        loop {
            // Before it is looked: what comes after that is not missed.
            let more = has_more.notified();
            tokio::pin!(more);
            more.as_mut().enable();
            let news = lock(&self.state).ended_of(collector);
            let endings = match news {
                News::Told(endings) => {
                    let compared = endings.compare.iter().flat_map(|compare| {
                        compare.candidates.iter().map(move |candidate| (compare.task, &candidate.result))
                    });
                    let ended = endings.ended.iter().map(|ended| (ended.task, &ended.result));
                    self.keep_results(collector.job, &collector.client, ended.chain(compared));
                    Some(endings)
                }
                News::Last => {
                    let _ =
                        sender.send(&Endings { is_last: true, settled: collector.taken, ..Endings::default() }).await;
                    return sender.finish();
                }
                News::Nothing => None,
            };
            if let Some(endings) = endings
                && sender.send(&endings).await.is_err()
            {
                return;
            }
            tokio::select! {
                () = more => {}
                settled = collector.settled() => {
                    let Some(settled) = settled else { return };
                    if sender.send(&Endings { settled, ..Endings::default() }).await.is_err() {
                        return;
                    }
                }
                taken = receiver.next::<Taken>() => match taken {
                    Ok(Some(taken)) => lock(&self.state).take_ended(collector, &taken),
                    Ok(None) | Err(_) => return,
                },
            }
        }
    }
}

/// One who takes what has ended.
struct Collector {
    client: Arc<ClientSession>,
    job: JobName,
    ahead: usize,
    /// Told to him, and not taken.
    told: HashSet<TaskName>,
    /// He is to compare these.
    compares: HashMap<TaskName, u16>,
    /// How many he has taken, and how many that was when it is durable.
    taken: u64,
    settling: VecDeque<(u64, Durable)>,
}

impl Collector {
    /// Waits until more of what was taken is durable, and says how much is. `None`: it will not be. Safe to cancel.
    async fn settled(&mut self) -> Option<u64> {
        let Some((taken, durable)) = self.settling.front_mut() else { return std::future::pending().await };
        let mut settled = *taken;
        durable.await.ok()?;
        self.settling.pop_front();
        // Those that became so at the same moment.
        while let Some((taken, durable)) = self.settling.front_mut()
            && durable.try_recv().is_ok()
        {
            settled = *taken;
            self.settling.pop_front();
        }
        Some(settled)
    }
}

impl State {
    fn ended_of(&mut self, collector: &mut Collector) -> News {
        let Collector { job, ahead, ref mut told, ref mut compares, .. } = *collector;
        let (tasks, comparisons) = self.work.feeds.take(job, ahead - told.len(), COMPARES_MAX - compares.len());
        if tasks.is_empty() && comparisons.is_empty() {
            let view = self.placement.desk.table().job(job);
            let is_all = told.is_empty() && collector.settling.is_empty();
            let is_last = is_all && view.is_none_or(|view| view.has_ended);
            return if is_last { News::Last } else { News::Nothing };
        }
        let ended: Vec<Ended> = tasks.iter().filter_map(|task| self.ended(*task)).collect();
        told.extend(ended.iter().map(|ended| TaskName::from_u64(ended.task)));
        let mut compare = Vec::new();
        for (task, mask) in comparisons {
            // It may be no more.
            let Some(comparison) = self.comparison(task, mask) else { continue };
            compares.insert(task, mask);
            compare.push(comparison);
        }
        News::Told(Endings { ended, compare, ..Endings::default() })
    }

    /// Results that are to be compared.
    fn comparison(&self, task: TaskName, mask: u16) -> Option<Compare> {
        let desk = &self.placement.desk;
        let index = desk.table().task(task)?.index;
        let numbers = (0..INSTANCES_MAX).filter(|number| mask >> number & 1 == 1);
        let candidate = |number: u8| {
            let result = desk.ledger().result(InstanceName { task, number }).cloned();
            Candidate { number: number.into(), result: result.map_or(Bytes::new(), Bytes::from_owner) }
        };
        Some(Compare { task: task.to_u64(), index, candidates: numbers.map(candidate).collect() })
    }

    /// The client has compared a task's results. It may have been cancelled meanwhile.
    fn take_compared(&mut self, collector: &mut Collector, compared: &Compared) {
        let task = TaskName::from_u64(compared.task);
        // Nobody compares what he was not told of.
        if collector.compares.remove(&task).is_some() {
            self.act(Event::Compared { task, agree: compared.agree as u16 });
        }
    }

    fn ended(&self, task: TaskName) -> Option<Ended> {
        let desk = &self.placement.desk;
        let view = desk.table().task(task)?;
        let ended = Ended {
            task: task.to_u64(),
            index: view.index,
            statuses: self.work.launches.statuses(task),
            runs: view.made.into(),
            results: view.successes.into(),
            ..Ended::default()
        };
        Some(match view.result? {
            Ok(number) => {
                let result = desk.ledger().result(InstanceName { task, number }).cloned();
                Ended { number: number.into(), result: result.map_or(Bytes::new(), Bytes::from_owner), ..ended }
            }
            Err(failure) => {
                let result = desk.ledger().last_result(task).cloned();
                let result = result.map_or(Bytes::new(), Bytes::from_owner);
                Ended { failure: number_of(failure), result, ..ended }
            }
        })
    }

    fn take_ended(&mut self, collector: &mut Collector, taken: &Taken) {
        let names = taken.tasks.iter().map(|task| TaskName::from_u64(*task));
        // Nobody takes what he was not told.
        let names: Vec<TaskName> = names.filter(|task| collector.told.remove(task)).collect();
        for names in names.chunks(BATCH_MAX) {
            self.act(Event::Assimilated(names));
        }
        taken.compared.iter().for_each(|compared| self.take_compared(collector, compared));
        self.work.launches.let_go(&names);
        collector.taken += names.len() as u64;
        let durable = self.placement.desk.durable();
        collector.settling.push_back((collector.taken, durable));
    }
}

fn number_of(failure: Failure) -> u32 {
    match failure {
        Failure::Errors => 1,
        Failure::Instances => 2,
        Failure::NoConsensus => 3,
        Failure::Late => 4,
        Failure::Cancelled => 5,
    }
}
