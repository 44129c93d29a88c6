//! Tasks of jobs that are launches: when one has a place at a worker, its client launches it; its result stays here until it is taken.

use super::faults::{Faults, Trouble};
use super::hosts::told_instance;
use super::results::{Gathered, Outcome};
use crate::desk::Durable;
use crate::relay::{FromWorker, WIND_UP, alive, placed_at, prepare, room_for, send_launch, task_of};
use crate::server::Shared;
use crate::session::{ClientSession, WorkerSession};
use crate::state::State;
use crate::unread::Given;
use crate::workers::send_last;
use base::{NodeId, ViewId};
use bytes::Bytes;
use prost::Message;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::Pin;
use tasks::{Effect, Entry, Event, HostName, InstanceName, JobName, Refusal, Report, TaskName};
use tokio::sync::Notify;
use wire::message::work::{Drive, Instance, LaunchResult, Place as ToldPlace, PlaceBack};
use wire::message::{Failed, FailedKind, InputKind, Launch, OutputKind, TaskInput, TaskOutput};
use wire::quiet::SAY_EVERY;
use wire::{Receiver, Sender, lock, until};

/// How long a client may take to launch what has a place.
const LAUNCH_LIMIT: Duration = Duration::from_secs(60);

/// What is said of an instance that nobody has launched.
const NOT_LAUNCHED: tasks::Outcome = tasks::Outcome::Unsuccessful;

/// Who launches what.
#[derive(Default)]
pub(crate) struct Launches {
    drivers: HashMap<JobName, Driver>,
    places: HashMap<InstanceName, Place>,
    /// What keeps the contents of results until they are taken.
    pins: HashMap<TaskName, Vec<Pin>>,
    /// The statuses of runs that failed and are tried again: as many as a task has instances at most.
    statuses: HashMap<TaskName, Vec<u32>>,
    faults: Faults,
    streams: u64,
}

/// A client's stream that is told of places.
struct Driver {
    stream: u64,
    /// Not told yet: as many as there are processors at most.
    places: VecDeque<InstanceName>,
    has_more: Arc<Notify>,
}

/// An instance that a worker's processors are kept for.
#[derive(Clone)]
struct Place {
    job: JobName,
    host: HostName,
    index: u32,
    worker: NodeId,
    since: Instant,
    is_launched: bool,
    /// It is not wanted any more, though it has been launched.
    is_stopped: bool,
    /// Told so.
    stop: Arc<Notify>,
}

impl Launches {
    /// An instance is not wanted any more: what runs is ended.
    pub fn stop(&mut self, instance: InstanceName) {
        let Some(place) = self.places.get_mut(&instance) else { return };
        if place.is_launched {
            place.is_stopped = true;
            place.stop.notify_one();
        } else {
            self.places.remove(&instance);
        }
    }

    /// Whether somebody launches a job's tasks.
    pub fn has_driver(&self, job: JobName) -> bool {
        self.drivers.contains_key(&job)
    }

    /// Tasks were taken: their results need not be kept.
    pub fn let_go(&mut self, tasks: &[TaskName]) {
        for task in tasks {
            self.pins.remove(task);
            self.statuses.remove(task);
        }
    }

    /// The statuses of a task's runs that failed.
    pub fn statuses(&self, task: TaskName) -> Vec<u32> {
        self.statuses.get(&task).cloned().unwrap_or_default()
    }

    /// Of how many tasks results are kept.
    #[cfg(test)]
    pub fn kept(&self) -> usize {
        self.pins.len()
    }

    /// Places that nobody has launched at for too long at `now`.
    pub(super) fn idle(&self, now: Instant) -> Vec<InstanceName> {
        let is_idle = |place: &Place| !place.is_launched && now.duration_since(place.since) > LAUNCH_LIMIT;
        self.places.iter().filter(|(_, place)| is_idle(place)).map(|(instance, _)| *instance).collect()
    }
}

impl Shared {
    /// Serves a stream that is told which tasks of a job have places, until its client ends it.
    pub(crate) async fn serve_drive(
        self: Arc<Self>,
        client: Arc<ClientSession>,
        wanted: Drive,
        mut sender: Sender,
        mut receiver: Receiver,
    ) {
        let driving = lock(&self.state).begin_driving(client.account(), wanted.job);
        let (job, stream, has_more) = match driving {
            Ok(driving) => driving,
            Err(refusal) => {
                let refusal = refusal.to_string();
                return send_last(sender, &ToldPlace { refusal, ..ToldPlace::default() }).await;
            }
        };
        let tells = async {
            loop {
                let next = lock(&self.state).next_place(job, stream);
                match next {
                    NextPlace::One(place) => {
                        if sender.send(&*place).await.is_err() {
                            return;
                        }
                    }
                    NextPlace::Nothing => has_more.notified().await,
                    NextPlace::Replaced => return,
                }
            }
        };
        let hears = async {
            while let Ok(Some(back)) = receiver.next::<PlaceBack>().await {
                lock(&self.state).take_back(job, back);
            }
        };
        tokio::select! {
            () = tells => {}
            () = hears => {}
        }
        lock(&self.state).end_driving(job, stream);
    }

    /// Carries a launch through that has a place.
    pub(crate) async fn run_placed(
        self: Arc<Self>,
        client: Arc<ClientSession>,
        launch: Launch,
        given: Given,
        mut to_client: Sender,
        mut from_client: Receiver,
    ) {
        let taken = lock(&self.state).take_place(client.account(), launch.place);
        let said = match taken {
            Ok((instance, place, worker)) => {
                let _asker = client.asked_for(task_of(&launch));
                self.note_launch(&client, &worker, &launch);
                let carrying = Carrying { shared: &self, client: &client, worker: &worker, place: &place };
                let outcome = carrying.carry(launch, given, &mut to_client, &mut from_client).await;
                let said = lock(&self.state).place_ended(client.account(), instance, outcome);
                match said {
                    Ok(durable) => {
                        // An error: the hub ends, and the client will ask the next one.
                        alive(&mut to_client, durable).await.map(|()| OutputKind::End(true)).ok()
                    }
                    Err(failed) => Some(OutputKind::Failed(failed)),
                }
            }
            Err(failed) => Some(OutputKind::Failed(failed)),
        };
        if let Some(said) = said {
            send_last(to_client, &TaskOutput::from(said)).await;
        }
    }

    /// Results of a job are about to be told: their contents stay until they are taken, also those from before the hub's start.
    pub(super) fn keep_results<'a>(
        &self,
        job: JobName,
        client: &ClientSession,
        results: impl Iterator<Item = (u64, &'a Bytes)>,
    ) {
        let unpinned: Vec<(TaskName, &Bytes)> = {
            let state = lock(&self.state);
            if !state.placement.desk.is_driven(job) {
                return;
            }
            let pins = &state.work.launches.pins;
            let results = results.map(|(task, result)| (TaskName::from_u64(task), result));
            results.filter(|(task, result)| !result.is_empty() && !pins.contains_key(task)).collect()
        };
        for (task, result) in unpinned {
            let Ok(result) = LaunchResult::decode(result.clone()) else { continue };
            let pin = tokio::task::block_in_place(|| client.pin_result(&result));
            let mut state = lock(&self.state);
            // It may be no more: then nobody would let the pin go.
            if state.placement.desk.table().is_there(task) {
                state.work.launches.pins.entry(task).or_default().push(pin);
            }
        }
    }

    /// Places that nobody launches at are given to others.
    pub(crate) fn drop_idle_places(&self, now: Instant) {
        let mut state = lock(&self.state);
        for instance in state.work.launches.idle(now) {
            state.fail_place(instance, NOT_LAUNCHED);
        }
    }
}

enum NextPlace {
    One(Box<ToldPlace>),
    Nothing,
    /// Another stream of the client is told now.
    Replaced,
}

impl State {
    /// A task of a driven job may run at a worker.
    pub fn give_place(&mut self, effect: &Effect, worker: NodeId) {
        let Effect::Send { host, instance, index, .. } = *effect else { return };
        let Some(job) = self.placement.desk.table().task(instance.task).map(|task| task.job) else { return };
        let (since, stop) = (Instant::now(), Arc::default());
        let place = Place { job, host, index, worker, since, is_launched: false, is_stopped: false, stop };
        self.work.launches.places.insert(instance, place);
        match self.work.launches.drivers.get_mut(&job) {
            Some(driver) => {
                driver.places.push_back(instance);
                driver.has_more.notify_one();
            }
            None => self.fail_place(instance, NOT_LAUNCHED),
        }
    }

    fn begin_driving(&mut self, account: u128, job: u64) -> Result<(JobName, u64, Arc<Notify>), Refusal> {
        let name = self.own_job(account, job)?;
        if !self.placement.desk.is_driven(name) {
            return Err(Refusal::Invalid("the tasks of this job are not launches"));
        }
        let launches = &mut self.work.launches;
        launches.streams += 1;
        let (stream, has_more) = (launches.streams, Arc::<Notify>::default());
        let mut driver = Driver { stream, places: VecDeque::new(), has_more: has_more.clone() };
        if let Some(earlier) = launches.drivers.remove(&name) {
            earlier.has_more.notify_one();
            driver.places = earlier.places;
        }
        launches.drivers.insert(name, driver);
        self.act(Event::Away(name, false));
        Ok((name, stream, has_more))
    }

    fn end_driving(&mut self, job: JobName, stream: u64) {
        if self.work.launches.drivers.get(&job).is_none_or(|driver| driver.stream != stream) {
            return;
        }
        self.work.launches.drivers.remove(&job);
        self.act(Event::Away(job, true));
        let is_idle = |place: &Place| place.job == job && !place.is_launched;
        let idle = self.work.launches.places.iter().filter(|(_, place)| is_idle(place)).map(|(instance, _)| *instance);
        let idle: Vec<InstanceName> = idle.collect();
        idle.iter().for_each(|instance| self.fail_place(*instance, NOT_LAUNCHED));
    }

    /// The client launches nothing at a place, or needs no more of what it launched there.
    fn take_back(&mut self, job: JobName, back: PlaceBack) {
        if let Some(kept) = back.kept.and_then(instance_name) {
            self.keep_place(job, kept);
        }
        let Some(instance) = back.instance.and_then(instance_name) else { return };
        let is_of_job = self.placement.desk.table().task(instance.task).is_some_and(|task| task.job == job);
        let places = &mut self.work.launches.places;
        let is_launched = places.get(&instance).map(|place| place.is_launched);
        if !is_of_job {
            return;
        }
        if back.is_over {
            if is_launched == Some(false) {
                places.remove(&instance);
            }
            // What runs is stopped by it, and what has failed at its place gets no other one.
            self.act(Event::CancelTask(instance.task));
        } else if is_launched == Some(false) {
            self.fail_place(instance, NOT_LAUNCHED);
        }
    }

    /// The client waits with a launch: its place is not idle. How long a task may have one the table bounds.
    fn keep_place(&mut self, job: JobName, instance: InstanceName) {
        let place = self.work.launches.places.get_mut(&instance).filter(|place| place.job == job);
        place.into_iter().for_each(|place| place.since = Instant::now());
    }

    /// Nothing comes of a place.
    fn fail_place(&mut self, instance: InstanceName, why: tasks::Outcome) {
        let Some(place) = self.work.launches.places.remove(&instance) else { return };
        let report = Report { instance, outcome: why, cost_ms: 0 };
        self.act(Event::Report { host: place.host, reports: &[report], want: 0 });
    }

    /// Whether a failure of an account's launch counts against its worker: if others have failed there, too, or only this one has tasks.
    fn counts_against(&mut self, worker: NodeId, account: u128) -> bool {
        let here = self.clients.values().map(|client| client.account());
        let accounts: HashSet<u128> = here.chain(self.work.kept.accounts()).collect();
        // Who has nothing to do here cannot say either.
        let busy = accounts.iter().filter(|account| self.placement.desk.account_view(**account).tasks > 0);
        let count = busy.count();
        self.work.launches.faults.failed(worker, account, count)
    }

    fn next_place(&mut self, job: JobName, stream: u64) -> NextPlace {
        let launches = &mut self.work.launches;
        let Some(driver) = launches.drivers.get_mut(&job).filter(|driver| driver.stream == stream) else {
            return NextPlace::Replaced;
        };
        while let Some(name) = driver.places.pop_front() {
            // It may have been stopped before it was told.
            let Some(Place { index, .. }) = launches.places.get(&name) else { continue };
            let instance = Some(told_instance(name));
            return NextPlace::One(Box::new(ToldPlace { instance, index: *index, refusal: String::new() }));
        }
        NextPlace::Nothing
    }

    fn take_place(
        &mut self,
        account: u128,
        told: Option<Instance>,
    ) -> Result<(InstanceName, Place, Arc<WorkerSession>), Failed> {
        let refused = || FailedKind::Refused.because("this launch has no place any more");
        let instance = told.and_then(instance_name).ok_or_else(refused)?;
        let job = self.work.launches.places.get(&instance).ok_or_else(refused)?.job;
        self.own_job(account, job.to_u64()).map_err(|_| refused())?;
        let place = self.work.launches.places.get_mut(&instance).filter(|place| !place.is_launched);
        let place = place.ok_or_else(refused)?;
        place.is_launched = true;
        let place = place.clone();
        let worker = self.workers.get(&place.worker).filter(|worker| !worker.connection.is_closed()).cloned();
        let Some(worker) = worker else {
            self.fail_place(instance, NOT_LAUNCHED);
            return Err(FailedKind::Trouble.because("the worker that had a place has left"));
        };
        Ok((instance, place, worker))
    }

    /// What came of a launch at a place goes into the ledger; or the place waits for another try.
    fn place_ended(
        &mut self,
        account: u128,
        instance: InstanceName,
        outcome: Result<Outcome, Trouble>,
    ) -> Result<Durable, Failed> {
        let gone = || FailedKind::Cancelled.because("the task is not wanted any more");
        let place = self.work.launches.places.get_mut(&instance).ok_or_else(gone)?;
        let made = match outcome {
            Ok(made) => made,
            Err(Trouble { failed, .. }) if matches!(failed.reason(), FailedKind::ViewGap | FailedKind::Changed) => {
                if place.is_stopped {
                    self.work.launches.places.remove(&instance);
                    return Err(gone());
                }
                (place.is_launched, place.since) = (false, Instant::now());
                return Err(failed);
            }
            Err(trouble) => {
                // A worker that fails everything is left alone for a while; commands that fail everywhere are not its fault.
                let worker = place.worker;
                let counts = trouble.is_workers && self.counts_against(worker, account);
                self.fail_place(instance, if counts { tasks::Outcome::Failed } else { tasks::Outcome::Unsuccessful });
                return Err(trouble.failed);
            }
        };
        let (host, task, worker) = (place.host, instance.task, place.worker);
        self.work.launches.faults.worked(worker);
        let Some(place) = self.work.launches.places.get(&instance) else { return Err(gone()) };
        let has_failed = made.status != 0 && self.placement.desk.retries_failures(place.job);
        let outcome = if has_failed { tasks::Outcome::Unsuccessful } else { tasks::Outcome::Done(made.digest.0) };
        let report = Report { instance, outcome, cost_ms: made.cost_ms };
        self.work.launches.places.remove(&instance);
        let result = made.result.encode_to_vec();
        // Of a task that is decided or gone nobody takes this result, and lets the pin go.
        if self.placement.desk.table().task(task).is_some_and(|task| task.result.is_none()) {
            self.work.launches.pins.entry(task).or_default().push(made.pin);
            if has_failed {
                self.work.launches.statuses.entry(task).or_default().push(made.status);
            }
        }
        self.act(Entry { event: Event::Report { host, reports: &[report], want: 0 }, blobs: &[&result] });
        Ok(self.placement.desk.durable())
    }
}

/// The name that the wire has for an instance; nothing if it is none.
fn instance_name(told: Instance) -> Option<InstanceName> {
    Some(InstanceName { task: TaskName::from_u64(told.task), number: u8::try_from(told.number).ok()? })
}

/// A launch on its way.
struct Carrying<'a> {
    shared: &'a Shared,
    client: &'a Arc<ClientSession>,
    worker: &'a Arc<WorkerSession>,
    place: &'a Place,
}

impl Carrying<'_> {
    /// Sends the launch to its worker.
    async fn send(
        &self,
        launch: Launch,
        given: Given,
        to_client: &mut Sender,
    ) -> Result<(Sender, FromWorker<'_>), Failed> {
        // Its place waits for another try.
        let again = |failed: Failed| FailedKind::Changed.because(failed.message);
        let room = room_for(self.client, &launch).map_err(again)?;
        // What is done before there is room for what comes of it would be done for nothing.
        alive(to_client, self.client.room_for_result()).await?;
        let (launch, view): (Launch, ViewId) = alive(to_client, prepare(self.client, launch)).await?;
        let mut told = placed_at(self.worker, "a task of a job".into(), self.place.since.elapsed());
        if self.worker.is_hub {
            // Whose result it will be the hub behind says.
            told.worker.clear();
        }
        // Who is gone is told nothing, and the task runs all the same.
        let _ = to_client.send(&TaskOutput::from(OutputKind::Placed(told))).await;
        let sending = send_launch(self.shared, self.client, self.worker, launch, view, given);
        let sent = alive(to_client, sending).await;
        drop(room);
        sent
    }

    /// What a failure comes from. Where the client did not answer the worker's questions it is none of the worker's.
    fn trouble(&self, from_worker: &FromWorker<'_>, failed: Failed) -> Trouble {
        if from_worker.is_left_alone() { Trouble::elsewhere(failed) } else { failed.into() }
    }

    async fn carry(
        &self,
        launch: Launch,
        given: Given,
        to_client: &mut Sender,
        from_client: &mut Receiver,
    ) -> Result<Outcome, Trouble> {
        let (mut to_worker, mut from_worker) = self.send(launch, given, to_client).await?;
        let mut gathered = Gathered::new(self.client);
        let (mut is_client_there, mut ends_by) = (true, None);
        // What the client is asked, locks for the most part, and whether it has not given one: the task begins again at this place.
        let (mut asked, mut is_contended) = (0_u64, false);
        // By a clock of its own: most of what the worker says is not passed on.
        let mut say_alive = tokio::time::interval_at(tokio::time::Instant::now() + SAY_EVERY, SAY_EVERY);
        loop {
            tokio::select! {
                output = from_worker.next() => match output.map_err(|failed| self.trouble(&from_worker, failed))?.1.kind {
                    Some(placed @ OutputKind::Placed(_)) if self.worker.is_hub => {
                        let _ = to_client.send(&TaskOutput::from(placed)).await;
                    }
                    Some(started @ OutputKind::Started(_)) => {
                        let _ = to_client.send(&TaskOutput::from(started)).await;
                    }
                    Some(wanted @ (OutputKind::Lock(_) | OutputKind::Service(_))) => {
                        let told = is_client_there && to_client.send(&TaskOutput::from(wanted)).await.is_ok();
                        if !told {
                            return Err(FailedKind::Evicted.because("its client was away when it was asked for a lock or a service").into());
                        }
                        asked += 1;
                    }
                    Some(OutputKind::Failed(_) | OutputKind::End(_)) if is_contended => {
                        return Err(FailedKind::Changed.because("it waits for a lock, and then begins again").into());
                    }
                    Some(OutputKind::Failed(failed)) => return Err(self.trouble(&from_worker, failed)),
                    Some(OutputKind::End(_)) => {
                        let _ = to_worker.send(&TaskInput::from(InputKind::Settled(true))).await;
                        to_worker.finish();
                        return tokio::task::block_in_place(|| gathered.outcome(&self.worker.name));
                    }
                    Some(kind) => gathered.take(kind)?,
                    None => {}
                },
                input = from_client.next::<TaskInput>(), if is_client_there => match input {
                    Ok(Some(TaskInput { kind: Some(InputKind::Cancel(_)) })) => {
                        is_contended = asked > 0;
                        self.place.stop.notify_one();
                    }
                    Ok(Some(TaskInput { kind: Some(answer @ (InputKind::Locked(_) | InputKind::Service(_))) })) => {
                        asked = asked.saturating_sub(1);
                        let _ = to_worker.send(&TaskInput::from(answer)).await;
                    }
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) if asked > 0 => {
                        return Err(FailedKind::Evicted.because("its client went away before it had answered for a lock or a service").into());
                    }
                    Ok(None) | Err(_) => is_client_there = false,
                },
                () = self.place.stop.notified() => {
                    let _ = to_worker.send(&TaskInput::from(InputKind::Cancel(true))).await;
                    ends_by = Some(tokio::time::Instant::now() + WIND_UP);
                }
                () = until(ends_by) => return Err(FailedKind::Trouble.because("the worker did not end the task in time").into()),
                _ = say_alive.tick(), if is_client_there => {
                    let _ = to_client.say_alive().await;
                }
            }
        }
    }
}
