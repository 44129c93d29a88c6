//! Limits of accounts, as the hub's owner sets them.

use super::batch;
use crate::error::{Context, Result};
use crate::pool::Pool;
use crate::process::{Ended, Run, wait_for};
use crate::scenario::{END_BOUND, folder};
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;

/// When something happened, in nanoseconds: what a task wrote into this file.
fn at(place: &Path, name: &str) -> u128 {
    std::fs::read_to_string(place.join(name)).ok().and_then(|text| text.trim().parse().ok()).unwrap_or_default()
}

/// The account of this id, as the hub's owner is told of it.
fn account(pool: &Pool, id: &str) -> Result<Value> {
    let told = pool.owner.json(&["accounts", "--json"])?;
    let is_it = |account: &&Value| account["nodes"][0]["id"].as_str() == Some(id);
    Ok(told["accounts"].as_array().into_iter().flatten().find(is_it).cloned().unwrap_or_default())
}

/// One task at a time, then none at all; who may change that; and that it outlives the hub.
pub fn hold(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let place = folder(pool, "limits")?;
    let id = pool.keys_of("client")?.pop().unwrap_or_default();
    let told = pool.owner.json(&["limit", &id, "--running", "1", "--weight", "2", "--json"])?;
    if told["running_max"] != 1 || told["weight"] != 2 || !told["tasks_max"].is_null() {
        wrong.push(format!("the limits are not told: {told}"));
    }
    let script = "date +%s%N > begun{}; sleep 0.5; date +%s%N > ended{}";
    let job = batch::submit(pool, &place, &["--", "sh", "-c", script, ":::", "1", "2"])?;
    let report = batch::job_once(pool, &job, batch::is_over)?;
    let [begun, ended] = ["begun", "ended"].map(|what| [1, 2].map(|task| at(&place, &format!("{what}{task}"))));
    if begun.contains(&0) || (ended[0] > begun[1] && ended[1] > begun[0]) {
        wrong.push(format!("two tasks run at once, or not at all: {begun:?} to {ended:?}, {}", report["job"]));
    }
    // What it used is known, and jobs of others are seen by the owner alone.
    let used = account(pool, &id)?;
    if used["used_ms"] == 0 || used["done"].as_u64() < Some(2) {
        wrong.push(format!("what it used is not counted: {used}"));
    }
    pool.owner.gleaner(&["limit", &id, "--tasks", "0", "--running", "none"])?.expect_ok("gleaner limit")?;
    let outcome = Run::new(pool.client.remrun(&["--no-local", "true"])).within(END_BOUND).run()?;
    if outcome.ok() || !outcome.said().contains("as it may have: 0") {
        wrong.push(format!("a command beyond the limit: {}, {}", outcome.ended, outcome.said()));
    }
    // A batch job waits, says why, and goes on when it may.
    let mut command = batch::command(pool, &place, &["submit", "--name", "late", "--wait", "--", "touch", "late"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().at("start gleaner in", &place)?;
    let waits = wait_for(END_BOUND, || {
        let jobs = pool.client.json(&["jobs", "--json"]).ok()?;
        jobs["jobs"][0]["problem"].as_str().filter(|why| why.contains("as it may have: 0")).map(str::to_owned)
    });
    let everyones = pool.owner.json(&["jobs", "--everyone", "--json"])?;
    let late = everyones["jobs"].as_array().into_iter().flatten().find(|job| job["name"] == "late");
    if waits.is_none() || late.is_none_or(|late| late["job"].as_str().is_none_or(str::is_empty)) {
        wrong.push(format!("the job that waits: {waits:?}, {everyones}"));
    }
    for refused in [&["limit", &id, "--tasks", "none"][..], &["jobs", "--everyone"]] {
        let refused = pool.client.gleaner(refused)?;
        if refused.ok() || !refused.said().contains("owner") {
            wrong.push(format!("who is not the hub's owner may do that: {}", refused.said()));
        }
    }
    pool.hub.kill();
    pool.restart_hub()?;
    let after = wait_for(END_BOUND, || account(pool, &id).ok().filter(Value::is_object)).unwrap_or_default();
    if after["tasks_max"] != 0 || after["weight"] != 2 || after["used_ms"] != used["used_ms"] {
        wrong.push(format!("after a start of the hub: {after}, and before: {used}"));
    }
    pool.owner.gleaner(&["limit", &id, "--tasks", "none"])?.expect_ok("gleaner limit")?;
    let ended = wait_for(END_BOUND, || child.try_wait().ok().flatten()).map(Ended::from);
    if ended != Some(Ended::Code(0)) || !place.join("late").exists() {
        let _ = child.kill();
        wrong.push(format!("once it may, the job ended with {ended:?}"));
    }
    let _ = child.wait();
    Ok(wrong)
}
