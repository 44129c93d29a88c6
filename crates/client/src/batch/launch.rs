//! One launch of a batch job's task: it has a place already, and its result stays at the hub until it is collected.

use super::drive::{Way, time_limit};
use super::job::Job;
use super::locks::TaskLocks;
use super::log::{End, How, Own, shortened};
use super::reason;
use crate::allowance::Allowance;
use crate::call_off::CallOff;
use crate::link::Reach;
use crate::listening;
use crate::not_executed::contradiction;
use crate::plan::{NotPlanned, Plan, now_seconds};
use crate::record::TOLD_BYTES_MAX;
use crate::serve::{Running, Taint, blocking, blocking_io};
use crate::takeoff::{Checked, QuestionsEnd, message};
use crate::views::Seen;
use base::door::Options;
use base::path::{printable, told};
use base::{Command, NodeId, Output, Stdin, TaskId, Time};
use rustix::io::Errno;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::message::work::{Instance, Place, PlaceBack};
use wire::message::{Failed, FailedKind, InputKind, Launch, OutputKind, Placed, TaskInput, TaskOutput};
use wire::quiet::HUB_QUIET_MAX;
use wire::{Quiet, Receiver, Sender, convert, lock, now_nanos, until};

/// How often one place is tried: the hub may have lost the view.
const TRIES_MAX: u32 = 3;
/// How often a task begins again at one place for its locks.
const CONTENDED_MAX: u32 = 16;
/// Shortest limit of waits for what other commands have: the time limit is of runs.
const WAIT_LIMIT_MIN: Duration = Duration::from_secs(40);
/// How long a lock is waited for by a task that has others, or that would not wait itself.
const SHORT_WAIT: Duration = Duration::from_secs(40);
/// How long the hub may take to end a run that is called off.
const WIND_UP: Duration = Duration::from_secs(60);

/// How a launch came out.
enum Landing {
    /// The hub has its result.
    Landed,
    /// The hub lacks the view, or a file changed while it was read: it keeps the place for another launch.
    Again(String),
    /// The same, for a lock that others have, or files that they changed before the task had it.
    Contended(String),
    /// It failed, which the hub knows. Why.
    Failed(String),
    /// It was called off: it cannot be done elsewhere. Why.
    Unable(String),
    /// It took too long, and is not tried again. Why.
    TooLong(String),
    /// The worker could not execute the program, as no other could. Why, and what a shell exits with then.
    NotExecuted(String, u8),
}

/// Launches a task that has a place, and waits until the hub knows its end. Gives the place back if nothing is launched there, or if
/// that may be so.
pub(super) async fn launch(way: Arc<Way>, place: Place) -> Option<PlaceBack> {
    let job = &way.job;
    let back = |is_over| Some(PlaceBack { instance: place.instance, is_over, kept: None });
    let Some(index) = job.index_of(place.index).filter(|index| !job.has_ended(*index)) else { return back(true) };
    let landed = {
        let _underway = Underway::begin(job, index);
        fly(&way, &Place { index, ..place.clone() }).await
    };
    match landed {
        Ok(()) => {
            job.landed(index, place.instance.unwrap_or_default().number);
            None
        }
        Err(Grounded::Trouble(why)) => {
            tracing::info!(job = %job.id(), index, why, "a launch came to nothing");
            job.trouble(index, &why);
            // The hub may not have heard of it, and would keep the place for a minute.
            back(false)
        }
        Err(Grounded::Never { why, own }) => {
            // What it was not told comes first: the rest may follow from that.
            let number = place.instance.unwrap_or_default().number;
            let why = job.launched(index, number).and_then(|known| known.tainted).unwrap_or(why);
            let (job, end) = (job.clone(), End { own, ..End::of(index, How::Failed(shortened(&why))) });
            let written = blocking_io(move || job.ended(end)).await;
            if let Err(error) = &written {
                tracing::warn!(index, %error, "a task's end could not be written down");
            }
            back(written.is_ok())
        }
    }
}

/// A launch of a task is under way until this is dropped, also with a launch that is broken off.
struct Underway(Arc<Job>, u32);

impl Underway {
    fn begin(job: &Arc<Job>, index: u32) -> Self {
        job.is_underway(index);
        Self(job.clone(), index)
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.0.is_underway_no_more(self.1);
    }
}

/// Why there was no result.
enum Grounded {
    /// Another try may do better.
    Trouble(String),
    /// No other try would do better. What a shell would say of it, if it would say anything.
    Never { why: String, own: Option<Own> },
}

impl Grounded {
    fn never(why: impl Into<String>) -> Self {
        Self::Never { why: why.into(), own: None }
    }
}

/// The launch at this place waits here for what other commands have, until this is dropped: the hub keeps the place.
struct Waiting<'a>(&'a Way, Instance);

impl<'a> Waiting<'a> {
    fn begin(way: &'a Way, place: &Place) -> Self {
        let instance = place.instance.unwrap_or_default();
        lock(&way.waiting).push(instance);
        Self(way, instance)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        lock(&self.0.waiting).retain(|other| *other != self.1);
    }
}

/// Waits for what another command has, `until` then at most: that is no error of the task's, and takes from its time. `what`: for people.
async fn wait<T>(
    way: &Way,
    place: &Place,
    until: Instant,
    what: &str,
    work: impl Future<Output = T>,
) -> Result<T, Grounded> {
    let _waiting = Waiting::begin(way, place);
    let (batch, mut wanted) = (&way.job.spec.batch, way.job.wanted());
    tokio::select! {
        biased;
        done = work => Ok(done),
        () = tokio::time::sleep_until(until.into()) => {
            let why = reason::waited_too_long(batch, what);
            Err(if batch.retries.is_none() { Grounded::never(why) } else { Grounded::Trouble(why) })
        }
        _ = wanted.wait_for(|wanted| wanted.cancelled.is_some()) => Err(Grounded::Trouble("it was cancelled".into())),
    }
}

/// Launches until something came of it, or nothing will.
async fn fly(way: &Arc<Way>, place: &Place) -> Result<(), Grounded> {
    let waits_until = Instant::now() + time_limit(&way.job.spec.batch).max(WAIT_LIMIT_MIN);
    for _ in 0..CONTENDED_MAX {
        match fly_once(way, place, waits_until).await? {
            None => return Ok(()),
            // The hub keeps the place meanwhile.
            Some(why) => way.job.trouble(place.index, &why),
        }
    }
    Err(Grounded::Trouble(format!("others had its locks {CONTENDED_MAX} times")))
}

/// `Some`: why it has to begin again, with locks that it waits for.
async fn fly_once(way: &Arc<Way>, place: &Place, waits_until: Instant) -> Result<Option<String>, Grounded> {
    let task = way.job.tasks.get(place.index).map_err(|error| Grounded::Trouble(error.to_string()))?;
    let plan = plan(way, way.command(task.argv)).await?;
    let _alone = match &plan.alone_in {
        None => None,
        Some(tree) => {
            let what = format!("another command was in {tree}");
            Some(wait(way, place, waits_until, &what, way.daemon.tree(tree).lock_owned()).await?)
        }
    };
    let locks = TaskLocks::of(&way.job, place);
    let run = Run { way, place, plan: &plan, locks: &locks };
    if let Err(grounded) = run.wait_for_lock(waits_until).await {
        locks.let_go(false);
        return Err(grounded);
    }
    let mut trouble = String::new();
    for attempt in 1..=TRIES_MAX {
        match run.attempt(attempt).await {
            Ok(Landing::Landed) => return Ok(None),
            Ok(Landing::Contended(why)) => {
                locks.let_go(true);
                plan.forget_sent(&way.daemon, &way.joined);
                return Ok(Some(why));
            }
            Ok(Landing::Again(why)) => trouble = why,
            Ok(Landing::Failed(why)) => {
                locks.let_go(false);
                return Err(Grounded::Trouble(why));
            }
            Ok(Landing::Unable(why)) => {
                way.daemon.unable.note(&plan.unable, &why, true, now_seconds());
                return Err(Grounded::never(format!("it cannot run elsewhere: {why}")));
            }
            Ok(Landing::TooLong(why)) => return Err(Grounded::never(why)),
            Ok(Landing::NotExecuted(why, code)) => {
                let Some(contradiction) = contradiction(&plan.command, &why).await else {
                    return Err(Grounded::Never { why, own: Some(Own::Exit(code)) });
                };
                // The hub has given its place away.
                locks.let_go(false);
                return Err(Grounded::Trouble(contradiction));
            }
            // It may run, with its locks: the hub will tell what comes of it, and if it is away for long they are let go.
            Err(why) => {
                plan.forget_sent(&way.daemon, &way.joined);
                return Err(Grounded::Trouble(why));
            }
        }
        plan.forget_sent(&way.daemon, &way.joined);
    }
    locks.let_go(false);
    Err(Grounded::Trouble(trouble))
}

async fn plan(way: &Arc<Way>, command: Command) -> Result<Plan, Grounded> {
    let way = way.clone();
    let planned = blocking(move || {
        let fds = std::array::from_fn(|_| way.null.clone());
        let allow_write = &way.job.spec.batch.allow_write;
        let options = Options { allow_write: allow_write.to_vec(), ..Options::default() };
        let plan = Plan::new(&way.daemon, command, None, &options, way.sight.views(), &fds);
        let mut plan = plan.map_err(|why| match why {
            NotPlanned::NotFound(missing) => {
                Grounded::Never { why: missing.to_string(), own: Some(Own::Exit(missing.exit_code())) }
            }
            NotPlanned::Here(why) => Grounded::never(format!("it cannot run elsewhere: {why}")),
            NotPlanned::Better(_, choice) => Grounded::Trouble(choice.to_string()),
        })?;
        if plan.watch.network {
            // What may use the network is begun once, and a batch job's tasks are begun until they are done.
            return Err(Grounded::never("it wants the network, which tasks of batch jobs do not have: remrun runs it"));
        }
        (plan.stdin, plan.stdout, plan.stderr) = (Stdin::Null, Output::Stream, Output::Stream);
        Ok(plan)
    });
    planned.await.unwrap_or_else(|| Err(Grounded::Trouble("the client daemon failed".into())))
}

/// A run of a task at its place.
#[derive(Clone, Copy)]
struct Run<'a> {
    way: &'a Arc<Way>,
    place: &'a Place,
    plan: &'a Plan,
    locks: &'a TaskLocks,
}

impl Run<'_> {
    /// Waits for the lock that an earlier run did not get.
    async fn wait_for_lock(&self, until: Instant) -> Result<(), Grounded> {
        let Self { way, place, plan, locks } = *self;
        let Some(wanted) = locks.wanted() else { return Ok(()) };
        let what = format!("it waited for a lock on {}, which another command has,", printable(&wanted.path));
        // Who would make a lock finds in the end that it is there. Who has others, for another run, may be waited for in turn.
        let is_short = wanted.is_made || locks.holds_any();
        let work = async {
            let wait = locks.wait(way, plan, &wanted);
            if is_short {
                tokio::time::timeout(SHORT_WAIT, wait).await.is_ok()
            } else {
                wait.await;
                true
            }
        };
        let had = wait(way, place, until, &what, work).await;
        let grounded = match had {
            Ok(had) if had || wanted.is_made => return Ok(()),
            Ok(_) => Grounded::Trouble(format!("{what} while it has others")),
            Err(grounded) => grounded,
        };
        locks.wants(wanted);
        Err(grounded)
    }

    /// One launch, to its end. The error: it is not known whether the hub has what was sent.
    async fn attempt(&self, attempt: u32) -> Result<Landing, String> {
        let Self { way, place, plan, locks } = *self;
        let Way { daemon, joined, connection, job, .. } = &**way;
        let (index, number) = (place.index, place.instance.unwrap_or_default().number);
        let task = TaskId(rand::random());
        let launched = Time(now_nanos());
        let since = if plan.view.epoch().is_some() { way.sight.since() } else { launched };
        let tainted: Taint = {
            let job = job.clone();
            Box::new(move |why| job.taint(index, number, why))
        };
        let running = Running {
            view: plan.view.clone(),
            gate: plan.gate.clone(),
            launched,
            connection: *connection,
            reach: Reach::of(joined),
            asked: Default::default(),
            trust: plan.trust,
            allowance: Allowance::of(plan.trust, plan.view.len()),
            tainted: Some(tainted),
            called_off: CallOff::default(),
            may_run_here_in: None,
        };
        let (place, budget) = (Some(place.instance.unwrap_or_default()), running.budget());
        let launch = Launch { attempt, launched: launched.0, place, budget, ..message(task, plan, Some(index)) };
        let link = daemon.link().ok_or("no hub is known")?;
        let (launch, signed) = link.signatures().sign(joined, launch);
        {
            let (job, view) = (job.clone(), (plan.view.clone(), plan.write.clone()));
            let noted = blocking_io(move || job.launch((index, number), signed.statement(), since, view)).await;
            noted.map_err(|error| format!("writing a job's log: {error}"))?;
            locks.note_held()?;
        }
        let running = daemon.server.begin(task, running);
        let _questions = QuestionsEnd { daemon: daemon.clone(), task };
        let checked = {
            let (daemon, plan, joined, connection) = (daemon.clone(), plan.clone(), joined.clone(), *connection);
            blocking(move || Checked::new(&plan, &daemon, &joined, connection)).await
        };
        let ready = checked.ok_or("the client daemon failed")?.ready?;
        let seen = Seen::new(since, Some(ready.version()));
        job.launched_at(index, number, ready.version());
        let (sender, receiver) = ready.take_off(daemon, joined, launch).await.map_err(|error| error.to_string())?;
        tokio::select! {
            biased;
            why = running.called_off.called() => Ok(Landing::Unable(why)),
            landing = self.follow(seen, sender, receiver) => landing,
        }
    }

    fn note_place(&self, placed: &Placed) {
        let worker = convert::digest(&placed.worker).map(NodeId);
        let number = self.place.instance.unwrap_or_default().number;
        worker.into_iter().for_each(|worker| self.way.job.placed(self.place.index, number, worker));
    }

    /// What comes of a launch. It ends at the latest a while after its time limit, or when the connection ends.
    async fn follow(&self, seen: Seen, mut sender: Sender, mut receiver: Receiver) -> Result<Landing, String> {
        let Self { way, place, plan, locks } = *self;
        let batch = &way.job.spec.batch;
        let limit = time_limit(batch);
        // From its start on; after that: until the hub says that it has ended.
        let (mut ends_by, mut is_too_long) = (None, false);
        let (mut contended, mut quiet) = (None, Quiet::new(HUB_QUIET_MAX));
        loop {
            let output = tokio::select! {
                output = receiver.next::<TaskOutput>() => output.map_err(|error| error.to_string())?,
                () = quiet.over(&way.joined.connection) => {
                    return Err(format!("the hub said nothing of it for {} s", HUB_QUIET_MAX.as_secs()));
                }
                () = until(ends_by) => {
                    if is_too_long || contended.is_some() {
                        return Err("the hub did not end what was called off".into());
                    }
                    way.job.ran_too_long(place.index);
                    if batch.retries.is_none() {
                        return Ok(Landing::TooLong(reason::too_long(batch, limit)));
                    }
                    sender.send(&TaskInput::from(InputKind::Cancel(true))).await.map_err(|error| error.to_string())?;
                    (ends_by, is_too_long) = (Some(Instant::now() + WIND_UP), true);
                    continue;
                }
            };
            quiet.heard();
            let Some(TaskOutput { kind }) = output else { return Err("the hub ended a launch's stream early".into()) };
            match kind {
                Some(OutputKind::Placed(placed)) => self.note_place(&placed),
                Some(OutputKind::Started(_)) => ends_by = Some(Instant::now() + limit),
                Some(OutputKind::Lock(request)) if contended.is_none() => {
                    let number = request.number;
                    let said = match locks.take(way, plan, seen, request).await {
                        Ok(()) => InputKind::Locked(number),
                        Err(why) => {
                            contended = Some(why);
                            ends_by = Some(Instant::now() + WIND_UP);
                            InputKind::Cancel(true)
                        }
                    };
                    sender.send(&TaskInput::from(said)).await.map_err(|error| error.to_string())?;
                }
                Some(OutputKind::Service(request)) => {
                    let said = InputKind::Service(listening::answer(request));
                    sender.send(&TaskInput::from(said)).await.map_err(|error| error.to_string())?;
                }
                Some(OutputKind::End(_)) => {
                    // Also of one that was to begin again for a lock: it ended by itself before it heard of that, and has not waited for the
                    // lock, as it might here.
                    drop(locks.wanted());
                    // The hub may have gone: it will tell of the end over the next connection.
                    let _ = sender.send(&TaskInput::from(InputKind::Settled(true))).await;
                    sender.finish();
                    return Ok(Landing::Landed);
                }
                Some(OutputKind::Failed(failed)) => {
                    return Ok(match contended {
                        Some(why) if failed.reason() == FailedKind::Changed => Landing::Contended(why),
                        Some(why) => Landing::Failed(why),
                        None if is_too_long => Landing::Failed(reason::too_long(batch, limit)),
                        None => on_failed(failed),
                    });
                }
                _ => {}
            }
        }
    }
}

fn on_failed(failed: Failed) -> Landing {
    let failed = Failed { message: told(&failed.message, TOLD_BYTES_MAX), ..failed };
    match failed.reason() {
        FailedKind::ViewGap | FailedKind::Changed => Landing::Again(failed.message),
        FailedKind::Exec => {
            let is_missing = failed.errno == Errno::NOENT.raw_os_error();
            Landing::NotExecuted(failed.message, if is_missing { 127 } else { 126 })
        }
        FailedKind::Unable => Landing::Unable(failed.message),
        _ => Landing::Failed(failed.message),
    }
}

impl Way {
    /// The command of a task with these words.
    pub(super) fn command(&self, argv: Vec<Vec<u8>>) -> Command {
        Command { argv, ..self.job.spec.batch.surroundings.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::folder::Draft;
    use super::super::folder::tests::{spec_of, task};
    use super::*;

    #[tokio::test]
    async fn a_launch_that_is_broken_off_is_not_under_way() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("job");
        let mut draft = Draft::begin(&folder).unwrap();
        draft.add(&[task("a")]).unwrap();
        draft.finish(&spec_of(1)).unwrap();
        let job = Job::load(&folder).unwrap();
        let mut launches = tokio::task::JoinSet::new();
        launches.spawn({
            let job = job.clone();
            async move {
                let _underway = Underway::begin(&job, 0);
                std::future::pending::<()>().await;
            }
        });
        tokio::task::yield_now().await;
        let told = || (job.line().running, job.line().waiting, job.task_lines(0, 1)[0].status.clone());
        assert_eq!(told(), (1, 0, "running".into()));
        launches.shutdown().await;
        assert_eq!(told(), (0, 1, "waiting".into()));
    }
}
