//! The questions of `gleaner`: answered from what the daemon knows, or passed on to the hub.

use crate::daemon::Daemon;
use crate::report::{
    Cancelled, Done, Kept, KeptDelta, Problem, ProblemKind, Question, Recovered, Refusal, Revoked, Status, Tasks,
    Token, WorkerStatus,
};
use crate::serve::blocking;
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use wire::message::{Answer, OpenKind};

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

fn problem(kind: ProblemKind, message: impl Into<String>) -> Problem {
    Problem { kind, message: message.into(), hint: None }
}

fn value(answer: impl Serialize) -> Result<Value, Problem> {
    serde_json::to_value(answer).map_err(|error| problem(ProblemKind::Internal, error.to_string()))
}

async fn answer_question(daemon: &Arc<Daemon>, question: Question) -> Result<Value, Problem> {
    match question {
        Question::Status => value(status(daemon).await),
        Question::Explain { task } => {
            let digits = task.unwrap_or_default();
            match daemon.records.find(&digits) {
                Some(report) => value(report),
                None if digits.is_empty() => Err(problem(ProblemKind::User, "no task has ended yet")),
                None => Err(unknown_task(&digits)),
            }
        }
        Question::Tasks => value(Tasks { tasks: daemon.records.list() }),
        Question::Cancel { task } => match daemon.records.cancel(&task) {
            Some(line) => value(Cancelled { task: line.task, argv: line.argv }),
            None => Err(unknown_task(&task)),
        },
        Question::Revoke { node } => {
            let answer = ask_hub(daemon, json!({"ask": "revoke", "node": node})).await?;
            let id = answer["revoked"].as_str().unwrap_or_default();
            value(Revoked { name: node, id: id.chars().take(8).collect() })
        }
        Question::Token { role, ttl_s } => {
            let answer = ask_hub(daemon, json!({"ask": "token", "role": role, "seconds": ttl_s})).await?;
            let token = answer["token"].as_str().unwrap_or_default().to_owned();
            value(Token { token, role, expires_in_s: answer["seconds"].as_u64().unwrap_or(ttl_s) })
        }
        Question::Kept => {
            let daemon = daemon.clone();
            let kept = blocking(move || kept(&daemon)).await.unwrap_or_default();
            value(Kept { kept })
        }
        Question::Recover { task, into } => recover(daemon, task, into).await,
        Question::Reload | Question::Stop => {
            daemon.stop();
            value(Done { note: None })
        }
    }
}

fn unknown_task(digits: &str) -> Problem {
    let hint = Some("gleaner tasks lists them".into());
    Problem { hint, ..problem(ProblemKind::User, format!("no task's number starts with `{digits}`")) }
}

async fn status(daemon: &Arc<Daemon>) -> Status {
    let Some(link) = daemon.link() else { return Status::default() };
    let address = link.hub().addresses.first().map(ToString::to_string).unwrap_or_default();
    let mut status = Status { hub: Some(address), ..Status::default() };
    let answer = match ask_hub(daemon, json!({"ask": "status"})).await {
        Ok(answer) => answer,
        Err(problem) => return Status { problem: Some(problem.message), ..status },
    };
    status.connected = true;
    status.round_trip_us = link.current().map(|(joined, _)| joined.connection.round_trip().as_micros() as u64);
    status.tasks_running = answer["tasks_running"].as_u64().unwrap_or(0);
    status.tasks_queued = answer["tasks_queued"].as_u64().unwrap_or(0);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let number = |value: &Value| value.as_u64().unwrap_or(0) as u32;
    for worker in answer["workers"].as_array().into_iter().flatten() {
        let (cpus, busy) = (number(&worker["cpus"]), number(&worker["busy"]));
        status.workers.push(WorkerStatus {
            name: text(&worker["name"]),
            id: text(&worker["id"]).chars().take(8).collect(),
            cpus,
            busy,
            state: if busy >= cpus { "full".into() } else { text(&worker["state"]) },
        });
    }
    status
}

async fn ask_hub(daemon: &Arc<Daemon>, question: Value) -> Result<Value, Problem> {
    let failed = |message: String| Problem {
        hint: Some("is the hub running, and reachable from here? gleaner status tells".into()),
        ..problem(ProblemKind::Environment, message)
    };
    let (joined, _) = daemon.connect().await.map_err(failed)?;
    let question = OpenKind::Ask(Bytes::from(question.to_string()));
    let answer: Answer = joined.connection.request(question).await.map_err(|error| failed(error.to_string()))?;
    let answer: Value = serde_json::from_slice(&answer.json).unwrap_or_default();
    match answer["error"].as_str() {
        Some(error) => Err(problem(ProblemKind::User, error)),
        None => Ok(answer),
    }
}

fn kept(daemon: &Daemon) -> Vec<KeptDelta> {
    let argv = |task: &str| daemon.records.find(task).map(|report| report.argv).unwrap_or_default();
    let entry = |info: crate::commit::KeptInfo| {
        let task = info.task.to_hex();
        KeptDelta {
            argv: argv(&task),
            task,
            reason: info.why,
            paths: Vec::new(),
            bytes: info.bytes,
            kept_ms: info.at.0 / 1_000_000,
        }
    };
    daemon.committer.kept().into_iter().map(entry).collect()
}

async fn recover(daemon: &Arc<Daemon>, task: Option<String>, into: Option<String>) -> Result<Value, Problem> {
    let daemon = daemon.clone();
    let digits = task.unwrap_or_default();
    let recovered = blocking(move || {
        let mut kept = daemon.committer.kept().into_iter();
        let info = kept.find(|info| info.task.to_hex().starts_with(&digits)).ok_or_else(|| unknown_task(&digits))?;
        let Some(into) = into else {
            let hint = Some("gleaner recover --into FOLDER writes its files there, to be compared by hand".into());
            let message = "a delta that was not committed cannot be committed unseen";
            return Err(Problem { hint, ..problem(ProblemKind::User, message) });
        };
        let failed = |error: crate::commit::CommitError| problem(ProblemKind::Environment, error.to_string());
        daemon.committer.recover_kept(info.task, &PathBuf::from(&into)).map_err(failed)?;
        Ok(Recovered { task: info.task.to_hex(), into: Some(into), paths: Vec::new() })
    });
    match recovered.await {
        Some(recovered) => recovered.and_then(value),
        None => Err(problem(ProblemKind::Internal, "the client daemon failed")),
    }
}
