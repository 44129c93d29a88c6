//! What `gleaner` answers, for programs; and a machine that has no pool.

use crate::client::Client;
use crate::error::Result;
use crate::pool::Pool;
use crate::process::{Ended, Run};
use crate::scenario::{END_BOUND, folder};
use serde_json::Value;

/// Members of each answer, as they are documented.
const STATUS: &[&str] =
    &["hub", "connected", "round_trip_us", "problem", "workers", "clients", "tasks_running", "tasks_queued"];
const FIGURES: &[&str] = &[
    "commands",
    "here",
    "failed",
    "begun_again",
    "commits_pending",
    "commit_oldest_ms",
    "commits",
    "hub_clock_ahead_us",
];
const CLIENT: &[&str] = &["name", "id", "connected"];
const WORKER: &[&str] = &["name", "id", "cpus", "busy", "state"];
const TASK: &[&str] = &["task", "argv", "place", "worker", "status", "started_ms", "elapsed_us"];
const EXPLAIN: &[&str] = &[
    "task",
    "argv",
    "place",
    "worker",
    "why",
    "status",
    "started_ms",
    "timeline",
    "round_trips",
    "bytes_up",
    "bytes_down",
    "faults",
    "faulted_paths",
    "late",
    "paths_in_view",
    "committed",
    "scratch",
    "conflicts",
];

/// The members that `value` lacks.
fn lacks(what: &str, value: &Value, members: &[&str]) -> Option<String> {
    let missing: Vec<&&str> = members.iter().filter(|member| value.get(**member).is_none()).collect();
    (!missing.is_empty()).then(|| format!("{what} lacks {missing:?}: {value}"))
}

/// Answers about a pool, and about none.
pub fn all(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = in_a_pool(pool)?;
    wrong.extend(alone(pool)?);
    Ok(wrong)
}

fn in_a_pool(pool: &Pool) -> Result<Vec<String>> {
    let (client, place) = (&pool.client, folder(pool, "answers")?);
    let mut command = client.remrun(&["--no-local", "sh", "-c", "echo x > made; exit 3"]);
    command.current_dir(&place);
    Run::new(command).within(END_BOUND).run()?;
    let mut wrong = Vec::new();
    let status = client.json(&["status", "--json"])?;
    wrong.extend(lacks("status", &status, STATUS));
    let figures = &status["client"];
    wrong.extend(lacks("what a client counts", figures, FIGURES));
    if figures["commands"].as_u64() == Some(0) || figures["commits"]["count"].as_u64() == Some(0) {
        wrong.push(format!("a command that was committed is not counted: {figures}"));
    }
    wrong.extend(lacks("a worker in status", &status["workers"][0], WORKER));
    let owned = pool.owner.json(&["status", "--json"])?;
    wrong.extend(lacks("a client in the owner's status", &owned["clients"][0], CLIENT));
    if status["clients"] != serde_json::json!([]) {
        wrong.push(format!("only the hub's owner is told of other clients, not {}", status["clients"]));
    }
    let explained = client.json(&["explain", "--json"])?;
    wrong.extend(lacks("explain", &explained, EXPLAIN));
    let made = place.join("made").display().to_string();
    let told = (&explained["status"], &explained["place"], &explained["committed"], &explained["argv"][0]);
    if told != (&"exit 3".into(), &"remote".into(), &serde_json::json!([made]), &"sh".into()) {
        wrong.push(format!("explain tells {explained}"));
    }
    let task = explained["task"].as_str().unwrap_or_default();
    let again = client.json(&["explain", &task[..task.len().min(8)], "--json"])?;
    if again != explained {
        wrong.push("explain by the first digits is another answer".to_owned());
    }
    let tasks = client.json(&["tasks", "--json"])?;
    wrong.extend(lacks("a task in tasks", &tasks["tasks"][0], TASK));
    if tasks["tasks"][0]["task"] != task {
        wrong.push(format!("the newest task is not the first: {tasks}"));
    }
    let token = pool.owner.json(&["token", "--json"])?;
    wrong.extend(lacks("token", &token, &["token", "role", "expires_in_s"]));
    wrong.extend(lacks("config", &client.json(&["config", "--json"])?, &["settings"]));
    wrong.extend(lacks("recover", &client.json(&["recover", "--json"])?, &["kept"]));
    if client.gleaner(&["doctor", "--json"])?.stdout.first() != Some(&b'{') {
        wrong.push("doctor --json is no object".to_owned());
    }
    Ok(wrong)
}

/// A user who has no pool: everything runs on this machine, and says so.
fn alone(pool: &Pool) -> Result<Vec<String>> {
    let folder = pool.scratch.folder("alone", 0o755)?;
    for inner in ["home", "run", "config", "state"] {
        pool.scratch.folder(&format!("alone/{inner}"), 0o700)?;
    }
    let client = Client::new(&pool.scratch.path().join("bin"), &folder, pool.scratch.path(), 0);
    let mut wrong = Vec::new();
    let mut expect = |what: &str, good: bool, detail: String| {
        if !good {
            wrong.push(format!("without a pool, {what}: {detail}"));
        }
    };
    for (arguments, ended, text) in [
        (&["run", "sh", "-c", "echo here; exit 4"][..], Ended::Code(4), "here"),
        (&["run", "--no-local", "echo", "here"], Ended::Code(125), ""),
        (&["run", "sh", "-c", "kill -9 $$"], Ended::Signal(9), ""),
        (&["run", "no-such-program"], Ended::Code(127), ""),
    ] {
        let outcome = client.gleaner(arguments)?;
        let good = outcome.ended == ended && outcome.text() == text;
        expect(&arguments.join(" "), good, format!("{}, {:?}, {}", outcome.ended, outcome.text(), outcome.said()));
    }
    let refused = client.gleaner(&["run", "--no-local", "true"])?.said();
    expect("--no-local says what is missing", refused.contains("no pool is configured"), refused.clone());
    let status = client.json(&["status", "--json"])?;
    expect("status", status["hub"].is_null() && status["connected"] == false, status.to_string());
    let counted = |what: &str| status["client"][what].as_object().is_some_and(|reasons| !reasons.is_empty());
    expect("reasons are counted", counted("here") && counted("failed"), status.to_string());
    let explained = client.json(&["explain", "--json"])?;
    let why = |explained: &Value| explained["why"].as_str().is_some_and(|why| why.contains("no pool"));
    expect("explain", explained["place"] == "nowhere" && why(&explained), explained.to_string());
    client.gleaner(&["run", "true"])?.expect_ok("gleaner run true")?;
    let explained = client.json(&["explain", "--json"])?;
    expect("explain", explained["place"] == "local" && why(&explained), explained.to_string());
    expect("tasks", client.json(&["tasks", "--json"])?["tasks"].is_array(), String::new());
    client.gleaner(&["stop"])?.expect_ok("gleaner stop")?;
    Ok(wrong)
}
