//! The questions of `gleaner`: answered from what the daemon knows, or passed on to the hub.

use crate::batch::answer::{self as batch, Change};
use crate::batch::waiting::{self, Waits};
use crate::commit::{CommitError, KeptInfo, SHOWN_MAX};
use crate::daemon::Daemon;
use crate::report::{
    Approved, Cancelled, ClientStatus, Done, Drained, Kept, KeptDelta, Overview, Problem, ProblemKind, Question,
    Recovered, Refusal, Revoked, Status, TaskReport, Tasks, Token, WorkerStatus, short,
};
use crate::serve::blocking;
use crate::settle::look_anew;
use base::{TaskId, Time, TreePath};
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use wire::message::{Answer, OpenKind};
use wire::now_nanos;

/// The answer to a question, both as JSON.
pub async fn answer(daemon: &Arc<Daemon>, question: &[u8]) -> Vec<u8> {
    let answered = match serde_json::from_slice(question) {
        Ok(question) => answer_question(daemon, question).await,
        Err(error) => Err(problem(ProblemKind::Internal, format!("the question is not understood: {error}"))),
    };
    let text = match answered {
        Ok(value) => serde_json::to_vec(&value),
        Err(error) => serde_json::to_vec(&Refusal { error }),
    };
    text.unwrap_or_default()
}

/// Whether a question is that the daemon end.
pub fn ends_daemon(question: &[u8]) -> bool {
    matches!(serde_json::from_slice(question), Ok(Question::Reload | Question::Stop))
}

fn problem(kind: ProblemKind, message: impl Into<String>) -> Problem {
    Problem { kind, message: message.into(), hint: None }
}

fn value(answer: impl Serialize) -> Result<Value, Problem> {
    serde_json::to_value(answer).map_err(|error| problem(ProblemKind::Internal, error.to_string()))
}

async fn answer_question(daemon: &Arc<Daemon>, question: Question) -> Result<Value, Problem> {
    match question {
        Question::Status => value(status(daemon).await),
        Question::Overview => value(overview(daemon).await),
        Question::Explain { task } => explain(daemon, &task.unwrap_or_default()).await.and_then(value),
        Question::Tasks => value(Tasks { tasks: daemon.records.list() }),
        Question::Cancel { task } => cancel(daemon, &task).await.and_then(value),
        Question::Jobs { all } => {
            let mut list = batch::list(daemon, all);
            waiting::add_problems(daemon, &mut list.jobs).await;
            value(list)
        }
        Question::Job { job, first, count, wait_ms } => {
            batch::changed(daemon, &job, Duration::from_millis(wait_ms.into())).await?;
            batch::one(daemon, &job, first, count).await.and_then(value)
        }
        Question::Hold { job, held } => batch::change(daemon, &job, Change::Hold(held)).await.and_then(value),
        Question::Priority { job, priority } => {
            let priority = batch::priority(&priority)?;
            batch::change(daemon, &job, Change::Priority(priority)).await.and_then(value)
        }
        Question::Revoke { node } => {
            let answer = ask_hub(daemon, json!({"ask": "revoke", "node": node})).await?;
            let id = short(answer["revoked"].as_str().unwrap_or_default());
            value(Revoked { name: named(&answer, node), id })
        }
        Question::Approve { node, trust } => {
            let answer = ask_hub(daemon, json!({"ask": "approve", "node": node, "trust": trust})).await?;
            let id = short(answer["approved"].as_str().unwrap_or_default());
            value(Approved { name: named(&answer, node), id, trust })
        }
        // The hub's answer is ours.
        Question::Audit { count } => ask_hub(daemon, json!({"ask": "audit", "count": count})).await,
        Question::Drain { node, undo } => {
            let answer = ask_hub(daemon, json!({"ask": "drain", "node": node, "undo": undo})).await?;
            let id = short(answer["drained"].as_str().unwrap_or_default());
            let busy = answer["busy"].as_u64().unwrap_or_default() as u32;
            value(Drained { name: named(&answer, node), id, takes_tasks: undo, busy })
        }
        Question::Accounts { .. } | Question::Limit { .. } | Question::Everyone { .. } => {
            // The hub's answer to these is ours.
            ask_hub(daemon, value(question)?).await
        }
        Question::Token { role, ttl_s, trust } => {
            let asked = json!({"ask": "token", "role": role, "seconds": ttl_s, "trust": trust});
            let answer = ask_hub(daemon, asked).await?;
            let token = answer["token"].as_str().unwrap_or_default().to_owned();
            value(Token { token, role, expires_in_s: answer["seconds"].as_u64().unwrap_or(ttl_s) })
        }
        Question::Kept => {
            let daemon = daemon.clone();
            let kept = blocking(move || kept(&daemon)).await.unwrap_or_default();
            value(Kept { kept })
        }
        Question::Recover { task, into, allow_write } => recover(daemon, task, into, allow_write).await,
        // Whoever has sent the answer ends the daemon.
        Question::Reload | Question::Stop => value(Done { note: jobs_wait(daemon.batches.open()) }),
    }
}

/// What becomes of batch jobs when the daemon ends.
fn jobs_wait(open: usize) -> Option<String> {
    let what = match open {
        0 => return None,
        1 => "a batch job is not over: it goes".to_owned(),
        open => format!("{open} batch jobs are not over: they go"),
    };
    Some(format!("{what} on when the client daemon is started again, by the next gleaner or remrun"))
}

async fn explain(daemon: &Arc<Daemon>, digits: &str) -> Result<TaskReport, Problem> {
    if let Some(report) = daemon.records.find(digits) {
        // Without digits the last task is meant.
        let may_be_job = !digits.is_empty() && batch::is_known(daemon, digits);
        return if may_be_job { Err(ambiguous(digits)) } else { Ok(report) };
    }
    if digits.is_empty() {
        return Err(problem(ProblemKind::User, "there has been no task yet"));
    }
    let (job, index) = match digits.split_once('/') {
        Some((job, index)) => (job, Some(index.parse::<u32>().map_err(|_| unknown_task(digits))?)),
        None => (digits, None),
    };
    if !batch::is_known(daemon, job) {
        return Err(unknown_task(digits));
    }
    let (job, task) = match index {
        // A job that is over is not read for its line.
        None => (batch::one_line(daemon, job)?, None),
        Some(index) => {
            let found = batch::as_known_here(daemon, job, index, 1).await?;
            (found.job, found.tasks.into_iter().next())
        }
    };
    if index.is_some() && task.is_none() {
        let why = format!("the job has {} tasks, and none with this number", job.tasks);
        return Err(problem(ProblemKind::User, why));
    }
    let mut report = TaskReport {
        task: index.map_or(job.job.clone(), |index| format!("{}/{index}", job.job)),
        place: "nowhere".into(),
        status: job.state.clone(),
        started_ms: job.submitted_ms,
        ..TaskReport::default()
    };
    let mut waits = job.waiting > 0 && !job.is_over();
    let mut known = match (&job.problem, job.state.as_str()) {
        (None, "held") if waits => Waits::For(waiting::HELD.into()),
        (Some(problem), _) => Waits::For(problem.clone()),
        (None, _) => Waits::AtHub(None),
    };
    let number = index.and_then(|index| batch::number_at_hub(daemon, &job.job, index));
    if let Some(task) = task {
        waits = waits && task.status == "waiting";
        let at_hub = waits.then(|| waiting::waits(daemon, &job, &task)).flatten();
        known = at_hub.unwrap_or_else(|| Waits::For(task.why.unwrap_or_default()));
        (report.argv, report.status, report.worker) = (task.argv, task.status, task.worker);
        (report.exit, report.signal, report.signal_name) = (task.exit, task.signal, task.signal_name);
        if report.worker.is_some() {
            report.place = "remote".into();
        }
    }
    report.why = match known {
        Waits::AtHub(_) if waits => {
            let question = json!({"ask": "waits", "key": job.job, "index": number});
            let said = match ask_hub(daemon, question).await {
                Ok(answer) if answer["waits"] == false && index.is_none() && batch::has_more(daemon, &job.job) => {
                    "what the hub has of it runs, and the others come after tasks of it that have not ended".into()
                }
                Ok(answer) => answer["why"].as_str().unwrap_or_default().to_owned(),
                Err(problem) => format!("what the hub knows of it is not known: {}", problem.message),
            };
            known.in_words(Some(&said))
        }
        known => known.in_words(None),
    }
    .unwrap_or_default();
    report.job = Some(Box::new(job));
    Ok(report)
}

/// Ends a task, or a batch job.
async fn cancel(daemon: &Arc<Daemon>, digits: &str) -> Result<Cancelled, Problem> {
    let is_task = daemon.records.is_running(digits);
    match (is_task, batch::is_known(daemon, digits)) {
        (true, true) => Err(ambiguous(digits)),
        (false, true) => {
            let job = batch::change(daemon, digits, Change::Cancel).await?;
            Ok(Cancelled { job: Some(job), ..Cancelled::default() })
        }
        (_, false) => match daemon.records.cancel(digits) {
            Some(line) => Ok(Cancelled { task: line.task, argv: line.argv, job: None }),
            None => Err(Problem {
                hint: Some("gleaner tasks lists tasks, and gleaner jobs batch jobs".into()),
                ..problem(ProblemKind::User, format!("no task's and no job's number starts with `{digits}`"))
            }),
        },
    }
}

fn ambiguous(digits: &str) -> Problem {
    problem(ProblemKind::User, format!("both a task's and a job's number start with `{digits}`: more digits"))
}

fn unknown_task(digits: &str) -> Problem {
    let hint = Some("gleaner tasks lists them".into());
    Problem { hint, ..problem(ProblemKind::User, format!("no task's number starts with `{digits}`")) }
}

async fn status(daemon: &Arc<Daemon>) -> Status {
    let clock = daemon.link().and_then(|link| link.current()).map(|(joined, _)| joined.clock_offset_ns());
    Status { client: daemon.records.figures.told(clock), ..status_of_pool(daemon).await }
}

async fn status_of_pool(daemon: &Arc<Daemon>) -> Status {
    let settings_problem = daemon.settings.problem();
    let Some(link) = daemon.link() else { return Status { problem: settings_problem, ..Status::default() } };
    let address = link.hub().addresses().first().map(ToString::to_string).unwrap_or_default();
    let mut status = Status { hub: Some(address), problem: settings_problem, ..Status::default() };
    let said = |status: &mut Status| {
        let (class, why) = daemon.class();
        (status.trust, status.trust_why) = (class.name().to_owned(), why.to_owned());
    };
    said(&mut status);
    (status.work_us, status.hedge_us, status.hedges) = daemon.hedges.counts();
    let answer = match ask_hub(daemon, json!({"ask": "status"})).await {
        Ok(answer) => answer,
        Err(problem) => return Status { problem: Some(problem.message), ..status },
    };
    status.connected = true;
    // The hub has said of its workers what it says, now that there is a connection.
    said(&mut status);
    status.carrier = link.current().map(|(joined, _)| joined.connection.carrier().name().to_owned());
    status.round_trip_us = link.current().map(|(joined, _)| joined.connection.round_trip().as_micros() as u64);
    status.tasks_running = answer["tasks_running"].as_u64().unwrap_or(0);
    status.tasks_queued = answer["tasks_queued"].as_u64().unwrap_or(0);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let number = |value: &Value| value.as_u64().unwrap_or(0) as u32;
    for worker in answer["workers"].as_array().into_iter().flatten() {
        let (cpus, busy) = (number(&worker["cpus"]), number(&worker["busy"]));
        status.workers.push(WorkerStatus {
            name: text(&worker["name"]),
            id: short(&text(&worker["id"])),
            cpus,
            busy,
            memory_mib: number(&worker["memory_mib"]),
            level: number(&worker["level"]),
            tags: worker["tags"].as_array().into_iter().flatten().map(text).collect(),
            expected: serde_json::from_value(worker["expected"].clone()).unwrap_or_default(),
            why: worker["why"].as_str().map(str::to_owned),
            trust: text(&worker["trust"]),
            troubles: serde_json::from_value(worker["troubles"].clone()).unwrap_or_default(),
            state: if busy >= cpus && cpus > 0 { "full".into() } else { text(&worker["state"]) },
        });
    }
    for client in answer["clients"].as_array().into_iter().flatten() {
        status.clients.push(ClientStatus {
            name: text(&client["name"]),
            id: short(&text(&client["id"])),
            connected: client["connected"].as_bool() == Some(true),
        });
    }
    status
}

async fn overview(daemon: &Arc<Daemon>) -> Overview {
    let (status, figures) = tokio::join!(status(daemon), ask_hub(daemon, json!({"ask": "figures"})));
    Overview { status, figures: figures.unwrap_or_default(), jobs: batch::list(daemon, false) }
}

/// What the hub calls a node in its answer; an older one does not say.
fn named(answer: &Value, asked: String) -> String {
    answer["name"].as_str().filter(|name| !name.is_empty()).map_or(asked, str::to_owned)
}

/// What the hub answers to a question, as JSON.
pub(crate) async fn ask_hub(daemon: &Arc<Daemon>, question: Value) -> Result<Value, Problem> {
    let failed = |message: String| Problem {
        hint: Some("is the hub running, and reachable from here? gleaner status tells".into()),
        ..problem(ProblemKind::Environment, message)
    };
    let (joined, _) = daemon.connect(Duration::ZERO).await.map_err(|error| failed(error.to_string()))?;
    let question = OpenKind::Ask(Bytes::from(question.to_string()));
    let answer: Answer = joined.connection.request(question).await.map_err(|error| failed(error.to_string()))?;
    let answer: Value = serde_json::from_slice(&answer.json).unwrap_or_default();
    match answer["error"].as_str() {
        Some(error) => {
            let hint = answer["hint"].as_str().filter(|hint| !hint.is_empty()).map(str::to_owned);
            Err(Problem { hint, ..problem(ProblemKind::User, error) })
        }
        None => Ok(answer),
    }
}

fn kept(daemon: &Daemon) -> Vec<KeptDelta> {
    let now = now_nanos();
    let entry = |info: KeptInfo| KeptDelta {
        task: info.task.to_hex(),
        argv: info.argv,
        reason: info.why,
        paths: info.shown.iter().map(|change| change.path.to_string()).collect(),
        changes: info.shown.into_iter().map(|change| change.line).collect(),
        changes_count: info.changes,
        bytes: info.bytes,
        kept_ms: info.at.0 / 1_000_000,
        age_s: (now.saturating_sub(info.at.0) / 1_000_000_000).max(0) as u64,
    };
    daemon.committer.kept().into_iter().map(entry).collect()
}

async fn recover(
    daemon: &Arc<Daemon>,
    task: Option<String>,
    into: Option<String>,
    allow_write: Vec<String>,
) -> Result<Value, Problem> {
    let daemon = daemon.clone();
    let digits = task.unwrap_or_default();
    let recovered = blocking(move || {
        let mut kept = daemon.committer.kept().into_iter();
        let info = kept.find(|info| info.task.to_hex().starts_with(&digits)).ok_or_else(|| not_kept(&digits))?;
        match into {
            Some(into) => write_out(&daemon, info, into),
            None => commit_over(&daemon, &info, &allow_write),
        }
    });
    match recovered.await {
        Some(recovered) => recovered.and_then(value),
        None => Err(problem(ProblemKind::Internal, "the client daemon failed")),
    }
}

fn not_kept(digits: &str) -> Problem {
    let hint = Some("gleaner recover lists what is kept".into());
    let message = match digits {
        "" => "nothing is kept: every task's changes were committed".to_owned(),
        digits => format!("nothing is kept of a task whose number starts with `{digits}`"),
    };
    Problem { hint, ..problem(ProblemKind::User, message) }
}

fn write_out(daemon: &Daemon, info: KeptInfo, into: String) -> Result<Recovered, Problem> {
    let failed = |error: CommitError| problem(ProblemKind::Environment, error.to_string());
    daemon.committer.recover_kept(info.task, &PathBuf::from(&into)).map_err(failed)?;
    Ok(Recovered {
        task: info.task.to_hex(),
        into: Some(into),
        paths: info.shown.iter().map(|change| change.path.to_string()).collect(),
        changes_count: info.changes,
        ..Recovered::default()
    })
}

/// Commits a kept delta: its owner decided that it wins over what is there now.
fn commit_over(daemon: &Daemon, info: &KeptInfo, allow_write: &[String]) -> Result<Recovered, Problem> {
    let allowed: Vec<TreePath> =
        allow_write.iter().filter_map(|path| TreePath::root().resolve(path.as_bytes())).collect();
    let (undo, now) = (TaskId(rand::random()), Time(now_nanos()));
    let done = daemon.committer.commit_kept(info.task, undo, &allowed, daemon.config.durable, now);
    let done = done.map_err(|error| not_recovered(info, &error))?;
    let views = daemon.server.views();
    look_anew(views, &done.report);
    let paths: Vec<&TreePath> =
        done.report.removed.iter().chain(done.report.committed.iter().map(|made| &made.path)).collect();
    Ok(Recovered {
        task: info.task.to_hex(),
        into: None,
        changes_count: paths.len() as u64,
        paths: paths.into_iter().take(SHOWN_MAX).map(TreePath::to_string).collect(),
        replaced: done.replaced.map(TaskId::to_hex),
        skipped: done.skipped.iter().take(SHOWN_MAX).map(TreePath::to_string).collect(),
    })
}

/// Why a kept delta was not committed; it is still kept.
fn not_recovered(info: &KeptInfo, error: &CommitError) -> Problem {
    let task = info.task.short();
    let hint = match error {
        CommitError::Refused(refusals) => {
            let path = refusals.first().map_or(String::new(), |refusal| refusal.path.to_string());
            format!("gleaner recover {task} --commit --allow-write {path}")
        }
        CommitError::Conflict(_) => "somebody changes this just now: try again".to_owned(),
        _ => format!("it is still kept: gleaner recover {task} --into FOLDER writes its files there"),
    };
    Problem { hint: Some(hint), ..problem(ProblemKind::Environment, error.to_string()) }
}
