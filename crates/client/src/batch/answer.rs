//! What `gleaner` asks of batch jobs, and how one is submitted.

use super::folder::{Draft, Spec};
use super::job::Job;
use super::{Batches, Found, Reserved, waiting};
use crate::caller::{Replies, Requests};
use crate::daemon::Daemon;
use crate::link::Condition;
use crate::report::{BatchChanged, BatchLine, BatchReport, Batches as Lines, Problem, ProblemKind, Refusal, Submitted};
use crate::serve::blocking_io;
use base::door::{Reply, Request};
use base::path::printable;
use base::{Batch, Priority};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use wire::now_millis;

/// How long a submitter is kept waiting for the hub's word, unless it shows that the hub cannot be reached.
const HUB_TIME_MAX: Duration = Duration::from_secs(20);
/// The same where another job comes first.
const AFTER_TIME_MAX: Duration = Duration::from_millis(300);
/// The same for who changes a job.
const CHANGE_TIME_MAX: Duration = Duration::from_secs(3);
/// Longest wait for a change of a job.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Jobs in a list, unless all are asked for.
const LINES_MAX: usize = 50;
/// Most tasks in one answer.
const TASKS_MAX: u32 = 1000;

fn problem(kind: ProblemKind, message: impl Into<String>, hint: &str) -> Problem {
    Problem { kind, message: message.into(), hint: Some(hint.into()).filter(|hint: &String| !hint.is_empty()) }
}

/// Takes a job from a caller, and answers it in any case. `obstacle`: why the daemon cannot work for this caller.
pub async fn submit(
    daemon: Arc<Daemon>,
    batch: Batch,
    obstacle: Option<String>,
    mut requests: Requests,
    mut replies: Replies,
) {
    let taken = match obstacle {
        None => take(&daemon, batch, &mut requests).await,
        Some(why) => match all_tasks(&mut requests, &mut |_| Ok(())).await {
            Ok(()) => Err(Some(problem(ProblemKind::Environment, format!("the job was not taken: {why}"), ""))),
            Err(gone) => Err(gone),
        },
    };
    let answer = match taken {
        Ok(submitted) => serde_json::to_vec(&submitted),
        Err(Some(error)) => serde_json::to_vec(&Refusal { error }),
        // The caller is gone.
        Err(None) => return,
    };
    let _ = replies.send(&Reply::Answer(answer.unwrap_or_default())).await;
}

/// The error is for the caller, if there is one still.
async fn take(daemon: &Arc<Daemon>, batch: Batch, requests: &mut Requests) -> Result<Submitted, Option<Problem>> {
    let id = batch.id;
    let batches = &daemon.batches;
    match batches.reserve(id) {
        Reserved::New => {}
        Reserved::Known => {
            all_tasks(requests, &mut |_| Ok(())).await?;
            let job = batches.find(&id.to_hex()).pop().map(Found::line).unwrap_or_default();
            return Ok(Submitted { job, existed: true, at_hub: false });
        }
        Reserved::Crowded(why) => {
            all_tasks(requests, &mut |_| Ok(())).await?;
            return Err(Some(problem(ProblemKind::User, why, "gleaner jobs")));
        }
    }
    let job = make(daemon, batch, requests).await;
    let unreached = job.as_ref().ok().map(|job| job.unreached());
    if let Ok(job) = &job {
        Batches::begin(daemon, job);
    }
    batches.give_back(id);
    let job = job?;
    // One that comes after another is not heard of at the hub before that is over.
    let patience = if !job.spec.batch.after.is_empty() { AFTER_TIME_MAX } else { HUB_TIME_MAX };
    let answer = tokio::select! {
        why = job.until_refused() => {
            Err(Some(problem(ProblemKind::User, format!("the job was not taken: {why}"), "")))
        }
        () = job.until_over() => Ok(Submitted { job: job.line(), existed: false, at_hub: false }),
        why = out_of_reach(condition(daemon), unreached) => {
            let line = job.line();
            Ok(Submitted { job: BatchLine { problem: line.problem.or(why), ..line }, existed: false, at_hub: false })
        }
        begun = tokio::time::timeout(patience, job.until_begun()) => {
            Ok(Submitted { job: job.line(), existed: false, at_hub: begun.is_ok() })
        }
    };
    batches.stop_waiting(id);
    answer
}

/// Waits until it shows that the hub cannot be reached: then nobody need wait for its word. `tries`: how often a job did not reach it, as the
/// caller has seen that. Why, unless the job says it.
async fn out_of_reach(link: Option<watch::Receiver<Condition>>, tries: Option<watch::Receiver<u64>>) -> Option<String> {
    let not_reached = async {
        match tries {
            // The sender is a member of the job, which the caller has.
            Some(mut tries) => drop(tries.changed().await),
            None => std::future::pending().await,
        }
    };
    let falls_silent = async {
        match link {
            Some(mut link) => drop(link.wait_for(|now| now.silent.is_some()).await),
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = not_reached => None,
        () = falls_silent => Some("nothing is heard of it".into()),
    }
}

fn condition(daemon: &Daemon) -> Option<watch::Receiver<Condition>> {
    daemon.link().map(|link| link.condition())
}

async fn until_told(job: &Job, time_max: Duration) -> bool {
    tokio::time::timeout(time_max, job.until_told()).await.is_ok()
}

/// All tasks that the caller sends.
async fn all_tasks(
    requests: &mut Requests,
    each: &mut impl FnMut(Vec<base::BatchTask>) -> Result<(), String>,
) -> Result<(), Option<Problem>> {
    let mut wrong = None;
    loop {
        match requests.next().await {
            // What comes behind a mistake is heard to its end: then there is somebody to be told.
            Some(Request::Tasks(tasks)) if wrong.is_none() => wrong = each(tasks).err(),
            Some(Request::Tasks(_)) => {}
            Some(Request::Submitted) => break,
            _ => return Err(None),
        }
    }
    wrong.map_or(Ok(()), |why| Err(Some(problem(ProblemKind::User, why, "gleaner submit --help"))))
}

/// Keeps a job, for good.
async fn make(daemon: &Arc<Daemon>, batch: Batch, requests: &mut Requests) -> Result<Arc<Job>, Option<Problem>> {
    let hub = daemon.config.hub.as_ref().map(|hub| hub.hub());
    let Some(hub) = hub else {
        all_tasks(requests, &mut |_| Ok(())).await?;
        let why = "no pool is configured, and batch jobs are kept by one";
        return Err(Some(problem(ProblemKind::Config, why, "gleaner up, or gleaner use TOKEN")));
    };
    let folder = daemon.batches.folder_of(batch.id);
    let failed = |error: io::Error| {
        let why = format!("keeping the job in {}: {error}", folder.display());
        Some(problem(ProblemKind::Environment, why, "is there room on the disk?"))
    };
    let mut draft = Draft::begin(&folder).map_err(failed)?;
    all_tasks(requests, &mut |tasks| draft.add(&tasks)).await?;
    if draft.count() == 0 {
        return Err(Some(problem(ProblemKind::User, "a job without tasks", "gleaner submit --help")));
    }
    let spec = Spec { batch, tasks: draft.count(), after: draft.after(), hub, submitted_ms: now_millis() };
    let place = folder.clone();
    let made = blocking_io(move || {
        draft.finish(&spec)?;
        Job::load(&place)
    });
    made.await.map_err(failed)
}

/// One job in a line.
pub fn one_line(daemon: &Daemon, digits: &str) -> Result<BatchLine, Problem> {
    Ok(find(daemon, digits)?.line())
}

/// The job that is meant.
fn find(daemon: &Daemon, digits: &str) -> Result<Found, Problem> {
    let mut found = daemon.batches.find(digits);
    match (found.len(), found.pop()) {
        (1, Some(found)) => Ok(found),
        (0, _) => Err(unknown(digits)),
        _ => {
            let why = format!("more than one job's number starts with `{digits}`");
            Err(problem(ProblemKind::User, why, "gleaner jobs --json shows all digits"))
        }
    }
}

fn unknown(digits: &str) -> Problem {
    let why = format!("no batch job's number starts with `{digits}`");
    problem(ProblemKind::User, why, "gleaner jobs lists them")
}

/// The same, if it is not over.
fn find_open(daemon: &Daemon, digits: &str) -> Result<Arc<Job>, Problem> {
    match find(daemon, digits)? {
        Found::Open(job) => Ok(job),
        Found::Over(id, line) => {
            Err(problem(ProblemKind::User, format!("job {id} is over: {}", line.state), "gleaner jobs"))
        }
    }
}

/// The list of jobs.
pub fn list(daemon: &Daemon, all: bool) -> Lines {
    let mut jobs = daemon.batches.lines();
    let older = if all { 0 } else { jobs.len().saturating_sub(LINES_MAX) };
    // One that is not over is shown however old it is.
    let shown = jobs.len() - older;
    let late = jobs.split_off(shown);
    let (open, old): (Vec<BatchLine>, Vec<BatchLine>) = late.into_iter().partition(|line| !line.is_over());
    jobs.extend(open);
    Lines { jobs, older: old.len() as u64 }
}

/// Waits until something about a job changes, for so long.
pub async fn changed(daemon: &Daemon, digits: &str, wait: Duration) -> Result<(), Problem> {
    if let Found::Open(job) = find(daemon, digits)?
        && !wait.is_zero()
    {
        let _ = tokio::time::timeout(wait.min(WAIT_MAX), job.changed()).await;
    }
    Ok(())
}

/// One job, and some of its tasks, with why they wait.
pub async fn one(daemon: &Arc<Daemon>, digits: &str, first: u32, count: u32) -> Result<BatchReport, Problem> {
    let mut report = as_known_here(daemon, digits, first, count).await?;
    if let Some(Found::Open(job)) = daemon.batches.find(&report.job.job).pop() {
        waiting::add_reasons(daemon, &job, &mut report).await;
    }
    Ok(report)
}

/// One job, and some of its tasks. The hub is not asked.
pub async fn as_known_here(daemon: &Arc<Daemon>, digits: &str, first: u32, count: u32) -> Result<BatchReport, Problem> {
    let found = find(daemon, digits)?;
    let daemon = daemon.clone();
    let read = blocking_io(move || {
        let (job, line) = match found {
            Found::Open(job) => (job.clone(), job.line()),
            Found::Over(id, line) => (daemon.batches.read(id)?, *line),
        };
        let cwd = printable(&job.spec.batch.surroundings.cwd);
        Ok(BatchReport { job: line, cwd, tasks: job.task_lines(first, count.min(TASKS_MAX)), first })
    });
    let failed = |error: io::Error| problem(ProblemKind::Environment, format!("reading the job's folder: {error}"), "");
    read.await.map_err(failed)
}

/// What is done to a job.
#[derive(Clone, Debug)]
pub enum Change {
    /// Its tasks wait, or go on.
    Hold(bool),
    /// It becomes more or less urgent.
    Priority(Priority),
    /// It is given up.
    Cancel,
}

/// Changes a job.
pub async fn change(daemon: &Arc<Daemon>, digits: &str, change: Change) -> Result<BatchChanged, Problem> {
    let job = find_open(daemon, digits)?;
    let unreached = job.unreached();
    let changed = {
        let job = job.clone();
        blocking_io(move || match change {
            Change::Hold(held) => job.hold(held),
            Change::Priority(priority) => job.set_priority(priority),
            Change::Cancel => job.cancel("cancelled by gleaner cancel"),
        })
    };
    let failed = |error: io::Error| problem(ProblemKind::Environment, format!("writing the job's log: {error}"), "");
    changed.await.map_err(failed)?;
    let at_hub = tokio::select! {
        told = until_told(&job, CHANGE_TIME_MAX) => told,
        // One that was never begun ends without the hub.
        () = job.until_over() => true,
        _ = out_of_reach(condition(daemon), Some(unreached)) => false,
    };
    let line = job.line();
    let why_not = (!at_hub).then(|| why_not_told(daemon, &line));
    Ok(BatchChanged { job: line, at_hub, why_not })
}

/// Why the hub does not know of a change.
fn why_not_told(daemon: &Daemon, job: &BatchLine) -> String {
    match daemon.link().and_then(|link| link.current()).is_some() {
        true => {
            let why = job.problem.as_deref().filter(|_| job.state != "cancelling");
            why.map_or_else(
                || format!("it is connected, and has not answered within {} s", CHANGE_TIME_MAX.as_secs()),
                str::to_owned,
            )
        }
        false => "it cannot be reached now".into(),
    }
}

/// The priority of this name.
pub fn priority(name: &str) -> Result<Priority, Problem> {
    let unknown = || problem(ProblemKind::User, format!("no priority is called `{name}`"), "urgent, normal or spare");
    Priority::of_name(name).ok_or_else(unknown)
}

/// The number at the hub of a job's task; `None`: the hub was not given it.
pub fn number_at_hub(daemon: &Daemon, digits: &str, index: u32) -> Option<u32> {
    match find(daemon, digits) {
        Ok(Found::Open(job)) => job.number_of(index),
        _ => None,
    }
}

/// Whether a job has tasks that the hub was not given yet, since they come after others.
pub fn has_more(daemon: &Daemon, digits: &str) -> bool {
    matches!(find(daemon, digits), Ok(Found::Open(job)) if job.is_ordered() && job.count_at_hub() < job.spec.tasks)
}

/// Whether there is a job whose number starts with these digits.
pub fn is_known(daemon: &Daemon, digits: &str) -> bool {
    !daemon.batches.find(digits).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_the_hub_learns_that_it_cannot_be_reached() {
        let (link, condition) = watch::channel(Condition::default());
        let (unreached, tries) = watch::channel(0);
        let waits = || out_of_reach(Some(condition.clone()), Some(tries.clone()));
        assert!(tokio::time::timeout(HUB_TIME_MAX, waits()).await.is_err(), "it may answer");
        link.send_modify(|condition| condition.ended = true);
        assert!(tokio::time::timeout(HUB_TIME_MAX, waits()).await.is_err(), "there may be another connection");
        let told = waits();
        unreached.send_modify(|times| *times += 1);
        assert_eq!(tokio::time::timeout(HUB_TIME_MAX, told).await, Ok(None), "the job says why");
        link.send_modify(|condition| condition.silent = Some(Instant::now()));
        let silent = out_of_reach(Some(condition.clone()), None);
        assert_eq!(tokio::time::timeout(HUB_TIME_MAX, silent).await, Ok(Some("nothing is heard of it".into())));
    }
}
