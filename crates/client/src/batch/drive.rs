//! A job on its way: it is handed to the hub, its tasks are launched as they get places, and what comes of them is collected, until
//! all is done. Whatever breaks off is begun again: hub and log know how far it was.

use super::collect;
use super::job::{Job, Wanted};
use super::launch;
use crate::commit::Report;
use crate::daemon::Daemon;
use crate::link::Link;
use crate::profile;
use crate::serve::{blocking, blocking_io};
use crate::views::JobViews;
use crate::views::closure::level_of;
use base::{Batch, BatchId, Command, Time, TreePath};
use bytes::Bytes;
use rustix::fd::OwnedFd;
use std::convert::Infallible;
use std::fs::File;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::task::JoinSet;
use wire::message::OpenKind;
use wire::message::work::{
    Drive, Instance, JobAsk, JobAskKind, JobOpen, JobSubmit, JobTold, JobUrgency, Place, PlaceBack,
};
use wire::{Joined, Pauses, Receiver, Sender, lock, now_millis, now_nanos};

/// Tasks in one message.
const SUBMIT_MAX: u32 = 1024;
/// Most instances of a task that a hub makes.
pub(super) const INSTANCES_MAX: u32 = 16;
/// Errors that a task may have that are not its own: workers that go, links that break.
const ERRORS_MAX: u32 = 11;
/// How long a task takes, where nobody knows, in milliseconds.
const TAKES_MS: u64 = 1000;
/// How long one run may take if its owner sets no limit: an hour, and longer where that is little more than it takes.
const TIME_LIMIT_MS: u64 = 3_600_000;
const TIME_LIMIT_TIMES: u64 = 4;
/// Longest that any run may take: a week.
const RUN_MS_MAX: u64 = 7 * 24 * 3_600_000;
/// After a run's time limit the client daemon ends it. So much later the hub does, which counts from the moment that there is a place.
pub(super) const LIMIT_APART_MS: u64 = 60_000;
/// How long the hub may take for an answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);
/// Pauses between tries: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A way that held for as long was a good one: the next pause is short again.
const GOOD_TIME: Duration = Duration::from_secs(30);
/// How often a hub may refuse a job of which it has tasks.
const REFUSALS_MAX: u32 = 3;
/// How often it is looked whether the job that this one comes after has ended.
const AFTER_PAUSE: Duration = Duration::from_secs(1);
/// How often the hub is asked how many workers there are, where results must agree.
const LOOK_PAUSE: Duration = Duration::from_secs(5);
/// How often the hub is told of places whose launches wait here: it keeps one for a minute.
const KEEP_PAUSE: Duration = Duration::from_secs(15);
/// Launches under way at once; further places wait.
const LAUNCHES_MAX: usize = 1024;

/// What the launches of a job over one connection share.
pub(super) struct Way {
    pub daemon: Arc<Daemon>,
    pub job: Arc<Job>,
    pub sight: Arc<Sight>,
    pub joined: Joined,
    pub connection: u64,
    /// The job's number at the hub.
    pub number: u64,
    /// `/dev/null`, open.
    pub null: Arc<OwnedFd>,
    /// Places whose launches wait here for what other commands have.
    pub waiting: Mutex<Vec<Instance>>,
}

/// What a job's tasks see of the files.
pub(super) enum Sight {
    /// What they were when this daemon took the job up, or when it was released if it was held, a moment after this time.
    OfStart(OnceLock<(JobViews, Time)>),
    /// What they are when the task starts: with what those have made that it comes after.
    OfNow,
}

impl Sight {
    fn of(job: &Job) -> Self {
        if job.is_ordered() { Self::OfNow } else { Self::OfStart(OnceLock::new()) }
    }

    /// The job begins, if it has not: what is changed from now on is too late for it.
    fn begin(&self) -> Option<&(JobViews, Time)> {
        let Self::OfStart(start) = self else { return None };
        Some(start.get_or_init(|| {
            let since = Time(now_nanos());
            (JobViews::begin(), since)
        }))
    }

    /// What all tasks see alike, if they do.
    pub fn views(&self) -> Option<&JobViews> {
        self.begin().map(|(views, _)| views)
    }

    /// A result of the job has left this.
    pub fn left(&self, report: &Report) {
        if let Self::OfStart(start) = self {
            start.get().into_iter().for_each(|(views, _)| views.own(report));
        }
    }

    /// What a task sees that is launched now was so then, or is looked at later.
    pub fn since(&self) -> Time {
        self.begin().map_or_else(|| Time(now_nanos()), |(_, since)| *since)
    }
}

/// Why a job does not go on.
#[derive(Debug)]
pub(super) enum Broken {
    /// It may later.
    Later(String),
    /// The hub does not take it.
    Refused(String),
    /// The hub does not take it now, for want of a worker that may be back in a moment.
    Passing(String),
}

impl From<wire::WireError> for Broken {
    fn from(error: wire::WireError) -> Self {
        Self::Later(error.to_string())
    }
}

impl From<std::io::Error> for Broken {
    fn from(error: std::io::Error) -> Self {
        Self::Later(format!("a job's folder cannot be used: {error}"))
    }
}

/// Takes a job to its end.
pub(super) async fn run(daemon: Arc<Daemon>, job: Arc<Job>) {
    for other in job.spec.batch.after.clone() {
        wait_for_other(&daemon, &job, other).await;
    }
    let sight = Arc::new(Sight::of(&job));
    if job.wanted().borrow().is_held != Some(true) {
        sight.begin();
    }
    let (mut pauses, mut refusals) = (Pauses::between(PAUSE_MIN, PAUSE_MAX), 0);
    loop {
        let begun = tokio::time::Instant::now();
        match once(&daemon, &job, &sight).await {
            Ok(()) => break,
            Err(Broken::Refused(why)) => {
                tracing::warn!(job = %job.id(), why, "the hub refuses a job");
                if daemon.batches.is_refused(&job, &why).await {
                    return;
                }
                refusals += 1;
                job.set_problem(Some(why.clone()));
                // What the hub has of it is called off, unless that is refused as well.
                let is_nothing_there = job.count_at_hub() == 0 || refusals > REFUSALS_MAX;
                if job.cancel(&why).is_ok() && is_nothing_there && end(&job).await.is_ok() {
                    break;
                }
            }
            // Who has just submitted it is told at once.
            Err(Broken::Passing(why)) if daemon.batches.is_refused(&job, &why).await => return,
            Err(Broken::Later(why) | Broken::Passing(why)) => {
                tracing::info!(job = %job.id(), why, "a job waits");
                job.set_problem(Some(why));
                let job = job.clone();
                blocking(move || job.locks.give_up(&job)).await;
            }
        }
        if begun.elapsed() > GOOD_TIME {
            pauses.start_over();
        }
        tokio::select! {
            () = tokio::time::sleep(pauses.next_pause()) => {}
            () = job.woken.notified() => {}
        }
    }
    daemon.batches.is_over(&job).await;
}

/// Until the job that this one comes after has ended, however it has.
async fn wait_for_other(daemon: &Arc<Daemon>, job: &Arc<Job>, other: BatchId) {
    let mut wanted = job.wanted();
    while wanted.borrow_and_update().cancelled.is_none() {
        let problem = match daemon.batches.ended_well(other) {
            Some(true) => return job.set_problem(None),
            Some(false) => Err(format!("job {other}, after which it was to come, did not end well")),
            None => Ok(format!("it comes after job {other}")),
        };
        match problem {
            Ok(waits) => job.set_problem(Some(waits)),
            Err(why) if job.cancel(&why).is_ok() => return,
            Err(why) => job.set_problem(Some(why)),
        }
        tokio::select! {
            () = tokio::time::sleep(AFTER_PAUSE) => {}
            _ = wanted.changed() => {}
        }
    }
}

/// One way, until it breaks or all is done.
async fn once(daemon: &Arc<Daemon>, job: &Arc<Job>, sight: &Arc<Sight>) -> Result<(), Broken> {
    if daemon.config.hub.as_ref().is_none_or(|hub| hub.hub() != job.spec.hub) {
        return Err(Broken::Later(format!("it is at hub {}, and another one is used now: gleaner use", job.spec.hub)));
    }
    let wanted = job.wanted().borrow().clone();
    if let Some(why) = wanted.cancelled.filter(|_| !job.was_opened()) {
        // The hub has never heard of it.
        tracing::info!(job = %job.id(), why, "given up before it was begun");
        return end(job).await;
    }
    let connected = daemon.connect(Duration::ZERO).await.inspect_err(|error| job.is_out_of_reach(&error.to_string()));
    let (joined, connection) = connected.map_err(|error| Broken::Later(error.to_string()))?;
    // As long as somebody waits, silence is noticed.
    let _waiting = daemon.link().map(Link::waiting);
    let mut hub = Hub::open(&joined).await?;
    let level = {
        let job = job.clone();
        blocking_io(move || job.opens().map(|()| level_of_first(&job))).await?
    };
    let told = hub.ask(JobAskKind::Open(opening(job, level))).await?;
    job.set_workers(told.workers);
    let number = told.job;
    let is_forgotten_there = told.tasks == 0 && job.all_ended();
    if !job.is_collected() && !is_forgotten_there {
        job.set_problem(None);
        let (daemon, job, sight, joined) = (daemon.clone(), job.clone(), sight.clone(), joined.clone());
        let null = File::options().read(true).write(true).open("/dev/null");
        let null = null.map_err(|error| Broken::Later(format!("opening /dev/null: {error}")))?;
        let null = Arc::new(null.into());
        let way = Arc::new(Way { daemon, job, sight, joined, connection, number, null, waiting: Mutex::default() });
        tokio::select! {
            collected = collect::collect(&way) => collected?,
            Err(broken) = hand_over(&way, &mut hub, told.tasks) => {
                if matches!(broken, Broken::Refused(_) | Broken::Passing(_)) && way.job.count_at_hub() == 0 {
                    hub.forget(number).await?;
                }
                return Err(broken);
            }
            broken = drive(&way) => return Err(broken),
        }
    }
    end(job).await?;
    // Should this be lost, the job takes room at the hub until the next try.
    Hub::open(&joined).await?.forget(number).await
}

/// Nothing more will come.
async fn end(job: &Arc<Job>) -> Result<(), Broken> {
    if job.is_collected() {
        return Ok(());
    }
    let job = job.clone();
    Ok(blocking_io(move || job.collected()).await?)
}

/// A stream to the hub for what is wanted of jobs.
struct Hub {
    sender: Sender,
    receiver: Receiver,
}

impl Hub {
    async fn open(joined: &Joined) -> Result<Self, Broken> {
        let (sender, receiver) = joined.connection.open(OpenKind::Jobs(true)).await?;
        Ok(Self { sender, receiver })
    }

    /// Asks until it is granted or refused for good.
    async fn ask(&mut self, kind: JobAskKind) -> Result<JobTold, Broken> {
        loop {
            let told = self.ask_once(kind.clone()).await?;
            match told.refusal.is_empty() {
                true => return Ok(told),
                false => pause_or_refused(&told).await?,
            }
        }
    }

    /// Changes a job, unless it has ended, or is so already.
    async fn change(&mut self, kind: JobAskKind) -> Result<(), Broken> {
        loop {
            let told = self.ask_once(kind.clone()).await?;
            match (told.refusal.is_empty(), told.again_ms) {
                (true, _) => return Ok(()),
                (false, 0) => {
                    tracing::info!(job = told.job, why = told.refusal, "the hub does not change a job");
                    return Ok(());
                }
                (false, _) => pause_or_refused(&told).await?,
            }
        }
    }

    /// The hub has nothing more of a job that has no tasks there, or none that have not ended.
    async fn forget(&mut self, number: u64) -> Result<(), Broken> {
        for ask in [JobAskKind::Close(number), JobAskKind::Forget(number)] {
            self.change(ask).await?;
        }
        Ok(())
    }

    async fn ask_once(&mut self, kind: JobAskKind) -> Result<JobTold, Broken> {
        self.sender.send(&JobAsk { kind: Some(kind) }).await?;
        let late = |_| Broken::Later(format!("the hub gave no answer within {} s", ANSWER_TIME_MAX.as_secs()));
        let told = tokio::time::timeout(ANSWER_TIME_MAX, self.receiver.next::<JobTold>()).await.map_err(late)??;
        told.ok_or_else(|| Broken::Later("the hub ended the stream of a job".into()))
    }
}

/// Waits if a refused question may be asked again.
async fn pause_or_refused(told: &JobTold) -> Result<(), Broken> {
    tokio::time::sleep(pause_of(told)?).await;
    Ok(())
}

/// When a refused question may be asked again.
fn pause_of(told: &JobTold) -> Result<Duration, Broken> {
    if told.again_ms == 0 {
        let earliest = match told.earliest_in_ms {
            0 => String::new(),
            ms => format!("; --deadline {}s could be met", u64::from(ms).div_ceil(1000)),
        };
        let why = format!("the hub refuses it: {}{earliest}", told.refusal);
        return Err(if told.is_passing { Broken::Passing(why) } else { Broken::Refused(why) });
    }
    Ok(Duration::from_millis(told.again_ms.into()).min(PAUSE_MAX))
}

/// Level of x86-64 that the program of the first task was built for: the others' are mostly the same. 0: it does not say.
fn level_of_first(job: &Job) -> u8 {
    let Command { env, cwd, .. } = &job.spec.batch.surroundings;
    let first = job.tasks.get(0).ok().zip(TreePath::parse(cwd));
    let program = first.and_then(|(task, cwd)| profile::identify(&task.argv, env, &cwd).ok());
    program.map_or(0, |program| level_of(&program.real))
}

/// How long one run of a task may take.
pub(super) fn time_limit(batch: &Batch) -> Duration {
    let takes_ms = batch.takes_ms.unwrap_or(TAKES_MS);
    let usual_ms = TIME_LIMIT_MS.max(takes_ms.saturating_mul(TIME_LIMIT_TIMES));
    Duration::from_millis(batch.time_limit_ms.unwrap_or(usual_ms).clamp(1, RUN_MS_MAX))
}

fn opening(job: &Job, level: u8) -> JobOpen {
    let batch = &job.spec.batch;
    let needs = &batch.surroundings.needs;
    let quorum = batch.quorum.clamp(1, INSTANCES_MAX);
    let errors_max = batch.retries.unwrap_or(ERRORS_MAX);
    let takes_ms = batch.takes_ms.unwrap_or(TAKES_MS);
    let delay_bound_ms = time_limit(batch).as_millis() as u64 + LIMIT_APART_MS;
    JobOpen {
        key: Bytes::copy_from_slice(&batch.id.0.to_be_bytes()),
        name: batch.name.clone(),
        urgency: batch.priority.number().into(),
        cpus: needs.cpus,
        memory_mib: needs.memory_mib,
        level: level.into(),
        tag_names: needs.tags.clone(),
        quorum,
        instances_max: (quorum + errors_max + 4).min(INSTANCES_MAX),
        errors_max,
        is_speculative: batch.deadline_ms.is_some(),
        drops_late: batch.deadline_ms.is_some(),
        delay_bound_ms: delay_bound_ms as u32,
        cost_ms: takes_ms.saturating_mul(needs.cpus.into()).clamp(1, u32::MAX.into()) as u32,
        // Who counts is the client, which knows of each end.
        failures_max: u32::MAX,
        is_driven: true,
        retries_failures: batch.retries.is_some(),
        is_compared: batch.validate.is_some(),
        ..JobOpen::default()
    }
}

/// Hands over what the hub lacks of a job, and tells it what is wanted, now and later. Ends only if that breaks.
async fn hand_over(way: &Way, hub: &mut Hub, mut at_hub: u32) -> Result<Infallible, Broken> {
    let job = &way.job;
    let mut wanted = job.wanted();
    let mut told = Wanted { version: 0, is_held: None, priority: job.spec.batch.priority, cancelled: None };
    let mut is_closed = false;
    job.at_hub(at_hub);
    loop {
        let now = wanted.borrow_and_update().clone();
        if now.is_held != Some(true) {
            way.sight.begin();
        }
        tell(hub, way.number, &told, &now).await?;
        told = now;
        job.is_told(told.version);
        let to_hand_over = match told.cancelled {
            Some(_) => at_hub,
            None => {
                let job = job.clone();
                blocking_io(move || job.hand_over(at_hub)).await?
            }
        };
        if at_hub < to_hand_over {
            let pause;
            (at_hub, pause) = submit(way, hub, at_hub, to_hand_over).await?;
            if !pause.is_zero() {
                job.is_begun();
                // What is wanted meanwhile is told at once.
                let _ = tokio::time::timeout(pause, wanted.changed()).await;
            }
            continue;
        }
        job.is_begun();
        if !is_closed && told.cancelled.is_none() && job.is_handed_over(at_hub) {
            hub.change(JobAskKind::Close(way.number)).await?;
            is_closed = true;
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_PAUSE), if job.spec.batch.quorum > 1 => look_for_workers(way, hub).await?,
            changed = wanted.changed() => {
                // The sender is a member of the job: it is always there.
                if changed.is_err() {
                    return Err(Broken::Later("a job was dropped".into()));
                }
            }
            () = job.more() => {}
            why = way.joined.connection.closed() => return Err(Broken::Later(why)),
        }
    }
}

/// Asks the hub how many workers there are whose results could agree.
async fn look_for_workers(way: &Way, hub: &mut Hub) -> Result<(), Broken> {
    let told = hub.ask_once(JobAskKind::Open(opening(&way.job, 0))).await?;
    if told.refusal.is_empty() {
        way.job.set_workers(told.workers);
    }
    Ok(())
}

/// Tells the hub what is wanted otherwise than before.
async fn tell(hub: &mut Hub, number: u64, told: &Wanted, now: &Wanted) -> Result<(), Broken> {
    let mut asks = Vec::new();
    match now.is_held {
        held if held == told.is_held => {}
        Some(true) => asks.push(JobAskKind::Hold(number)),
        Some(false) => asks.push(JobAskKind::Release(number)),
        None => {}
    }
    // What it was told over another connection is not known here.
    let may_differ = told.version == 0 && now.version > 1;
    if now.priority != told.priority || may_differ {
        asks.push(JobAskKind::Urgency(JobUrgency { job: number, urgency: now.priority.number().into() }));
    }
    if now.cancelled.is_some() && told.cancelled.is_none() {
        asks.push(JobAskKind::Cancel(number));
    }
    for ask in asks {
        hub.change(ask).await?;
    }
    Ok(())
}

/// Submits the next tasks, of so many, by number only: what they are is known here. Gives how many the hub has then, and when it is to be
/// given more.
async fn submit(way: &Way, hub: &mut Hub, first: u32, all: u32) -> Result<(u32, Duration), Broken> {
    let count = (all - first).min(SUBMIT_MAX);
    let deadline_in_ms = deadline_in_ms(&way.job, now_millis());
    let later = all.max(way.job.spec.tasks) - (first + count);
    let submit = JobSubmit { job: way.number, first, count, later, deadline_in_ms, inputs: Vec::new() };
    let mut told = hub.ask_once(JobAskKind::Submit(submit)).await?;
    if told.earliest_in_ms > 0 {
        told.earliest_in_ms = told.earliest_in_ms.saturating_add(takes_to_hub_ms(&way.job, now_millis()));
    }
    // Also if more of them are refused: what is there is to be called off.
    way.job.at_hub(told.tasks.max(first));
    let mut pause = Duration::ZERO;
    if !told.refusal.is_empty() {
        pause = pause_of(&told)?;
        let why = &told.refusal;
        way.job.set_problem(Some(format!("the hub takes its further tasks as there is room for them: {why}")));
    } else if told.tasks == all {
        way.job.set_problem(None);
    }
    if told.tasks < first {
        return Err(Broken::Later("the hub lost tasks of a job".into()));
    }
    Ok((told.tasks, pause))
}

/// How long after the moment from which its deadline counts a job that is submitted again may come to the hub: as long as this one took, and a
/// second.
fn takes_to_hub_ms(job: &Job, now_ms: i64) -> u32 {
    (now_ms - job.spec.submitted_ms).saturating_add(1_000).clamp(1_000, 60_000) as u32
}

/// By when the tasks are to be done, from now; 0: whenever.
fn deadline_in_ms(job: &Job, now_ms: i64) -> u32 {
    let deadline = job.spec.batch.deadline_ms;
    let left = |ms: u64| job.spec.submitted_ms.saturating_add_unsigned(ms) - now_ms;
    deadline.map_or(0, |ms| left(ms).clamp(1, u32::MAX.into()) as u32)
}

/// Launches what gets a place, until that breaks.
async fn drive(way: &Arc<Way>) -> Broken {
    let mut launches = JoinSet::new();
    loop {
        match places(way, &mut launches).await {
            Ok(()) => {}
            Err(broken) => return broken,
        }
        if way.joined.connection.is_closed() {
            return Broken::Later("the connection to the hub ended".into());
        }
        // It has ended, as the collector will hear; otherwise it is opened once more.
        tokio::time::sleep(PAUSE_MIN * 4).await;
    }
}

async fn places(way: &Arc<Way>, launches: &mut JoinSet<Option<PlaceBack>>) -> Result<(), Broken> {
    let (mut sender, mut receiver) = way.joined.connection.open(OpenKind::Drive(Drive { job: way.number })).await?;
    let mut keeps = tokio::time::interval(KEEP_PAUSE);
    loop {
        let has_room = launches.len() < LAUNCHES_MAX;
        let place = tokio::select! {
            place = receiver.next::<Place>(), if has_room => place?,
            Some(landed) = launches.join_next() => {
                if let Ok(Some(back)) = landed {
                    sender.send(&back).await?;
                }
                continue;
            }
            _ = keeps.tick() => {
                let waiting = lock(&way.waiting).clone();
                for kept in waiting {
                    sender.send(&PlaceBack { kept: Some(kept), ..PlaceBack::default() }).await?;
                }
                continue;
            }
        };
        match place {
            None => return Ok(()),
            Some(place) if !place.refusal.is_empty() => {
                return match way.job.all_ended() {
                    true => Ok(()),
                    false => Err(Broken::Later(format!("the hub launches nothing of it: {}", place.refusal))),
                };
            }
            Some(place) => drop(launches.spawn(launch::launch(way.clone(), place))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::folder::Draft;
    use super::super::folder::tests::{spec_of, task};
    use super::*;

    fn job(folder: &std::path::Path, tasks: u32, change: impl FnOnce(&mut base::Batch)) -> Arc<Job> {
        let mut draft = Draft::begin(folder).unwrap();
        let all: Vec<base::BatchTask> = (0..tasks).map(|number| task(&number.to_string())).collect();
        draft.add(&all).unwrap();
        let mut spec = spec_of(tasks);
        change(&mut spec.batch);
        draft.finish(&spec).unwrap();
        Job::load(folder).unwrap()
    }

    #[test]
    fn a_job_is_opened_as_it_was_submitted() {
        let above = tempfile::tempdir().unwrap();
        let plain = opening(&job(&above.path().join("plain"), 1, |_| {}), 0);
        assert_eq!((plain.quorum, plain.errors_max, plain.instances_max, plain.retries_failures), (1, 11, 16, false));
        assert!(plain.is_driven && !plain.drops_late && plain.key.len() == 16);
        assert_eq!(plain.delay_bound_ms, 3_660_000);
        let job = job(&above.path().join("other"), 1, |batch| {
            (batch.quorum, batch.retries, batch.deadline_ms) = (2, Some(3), Some(60_000));
            batch.time_limit_ms = Some(5_000);
            batch.surroundings.needs = base::Needs { cpus: 1, memory_mib: 300, level: 0, tags: vec!["gpu".into()] };
        });
        let open = opening(&job, 3);
        assert_eq!((open.quorum, open.errors_max, open.instances_max, open.retries_failures), (2, 3, 9, true));
        assert_eq!((open.memory_mib, open.level, open.tag_names.join(" ").as_str()), (300, 3, "gpu"));
        assert!(open.drops_late && open.is_speculative);
        assert_eq!((open.delay_bound_ms, time_limit(&job.spec.batch)), (65_000, Duration::from_secs(5)));
        assert_eq!(
            (deadline_in_ms(&job, 9), deadline_in_ms(&job, 50_009), deadline_in_ms(&job, 99_999)),
            (60_000, 10_000, 1)
        );
    }
}
