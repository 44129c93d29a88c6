//! Batch jobs that do not end well, or do not go on: each says why, and a held one is in nobody's way.

use super::batch::{command, is_over, job, job_once, submit};
use crate::error::{Context, Error, Result};
use crate::pool::Pool;
use crate::process::{Ended, Outcome, Run, wait_for};
use crate::scenario::{END_BOUND, folder};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;
use std::time::Instant;

/// More tasks than the hub's table has room for.
const MANY: u32 = 70_000;
/// What is kept of each stream of a task.
const KEPT_BYTES: usize = 64 << 20;
/// How long a run with a time limit of a second and no retries may take: less than two such runs and their launches.
const ONE_RUN_S: u64 = 25;

fn gleaner(pool: &Pool, place: &Path, arguments: &[&str]) -> Result<Outcome> {
    Run::new(command(pool, place, arguments)).within(END_BOUND).run()
}

/// A job of more tasks than the hub has room for, held: others' commands run, and what its owner does with it is done at once.
pub fn held(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "held")?;
    let mut wrong = Vec::new();
    let mut lines = String::new();
    for number in 0..MANY {
        let _ = writeln!(lines, "true {number}");
    }
    std::fs::write(place.join("many"), lines).at("write", &place)?;
    let id = submit(pool, &place, &["--hold", "many"])?;
    let begun = Instant::now();
    let mut local = pool.client.remrun(&["--no-local", "true"]);
    local.current_dir(&place);
    let ran = Run::new(local).within(END_BOUND).run()?;
    if !ran.ok() {
        wrong.push(format!("beside a held job a command does not run: {} {}", ran.ended, ran.said()));
    }
    for change in [&["release", &id][..], &["hold", &id], &["release", &id]] {
        let done = gleaner(pool, &place, change)?.expect_ok("gleaner")?;
        if done.text().contains("as soon as") {
            wrong.push(format!("the hub is not told at once: {change:?}: {}", done.text()));
        }
    }
    let begins = job_once(pool, &id, |job| job["done"].as_u64() > Some(0))?;
    if begins["job"]["done"].as_u64() == Some(0) {
        wrong.push(format!("it does not begin: {}", begins["job"]));
    }
    gleaner(pool, &place, &["cancel", &id])?.expect_ok("gleaner cancel")?;
    let over = job_once(pool, &id, is_over)?;
    if over["job"]["state"] != "cancelled" || begun.elapsed() > 2 * END_BOUND {
        wrong.push(format!("it is cancelled, after {} s: {}", begun.elapsed().as_secs(), over["job"]));
    }
    Ok(wrong)
}

/// The first task of a job that is waited for, and how `submit` ended.
fn first_of(pool: &Pool, place: &Path, arguments: &[&str]) -> Result<(Value, Outcome)> {
    let outcome = gleaner(pool, place, &[&["submit", "--wait"], arguments].concat())?;
    let id = outcome.text().lines().next().unwrap_or_default().trim().to_owned();
    let task = job(pool, &id)?["tasks"][0].take();
    if task.is_null() {
        return Err(Error::Product(format!("no task of job {id}: {}", outcome.said())));
    }
    Ok((task, outcome))
}

/// Tasks that fail, take too long, never run, or whose results differ.
pub fn told(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "reasons")?;
    let mut wrong = Vec::new();
    let mut expect = |what: &str, task: &Value, want: Value, why: &str| {
        let fits = ["status", "exit", "signal", "signal_name"].iter().all(|name| task[name] == want[name]);
        if !fits || !task["why"].as_str().unwrap_or_default().contains(why) {
            wrong.push(format!("{what}: {task}"));
        }
    };
    let hook = format!("echo $GLEANER_STATUS >> {}/told", place.display());
    let retried = ["--retries", "1", "--assimilate", &hook, "--", "sh", "-c", "echo said; exit 7"];
    let (task, outcome) = first_of(pool, &place, &retried)?;
    expect("retries", &task, json!({"status": "failed", "exit": 7}), "exit 7, twice (1 retry)");
    let (task, _) = first_of(pool, &place, &["--retries", "0", "--assimilate", &hook, "--", "sh", "-c", "kill -9 $$"])?;
    let killed = json!({"status": "failed", "signal": 9, "signal_name": "SIGKILL"});
    expect("a signal", &task, killed, "signal 9, once (0 retries)");
    let begun = Instant::now();
    let (task, _) = first_of(pool, &place, &["--time-limit", "1s", "--", "sleep", "62.6"])?;
    let took_s = begun.elapsed().as_secs();
    expect("a time limit", &task, json!({"status": "failed"}), "longer than --time-limit 1 s");
    let (task, _) = first_of(pool, &place, &["--time-limit", "1s", "--retries", "1", "--", "sleep", "62.7"])?;
    expect("a time limit and a retry", &task, json!({"status": "failed"}), "--time-limit 1 s, twice (1 retry)");
    let never = submit(pool, &place, &["--hold", "--", "true"])?;
    gleaner(pool, &place, &["cancel", &never])?.expect_ok("gleaner cancel")?;
    let task = job_once(pool, &never, is_over)?["tasks"][0].take();
    expect("cancelled", &task, json!({"status": "cancelled"}), "gleaner cancel");
    let told = std::fs::read_to_string(place.join("told")).unwrap_or_default();
    if told != "7\n137\n" || outcome.ended != Ended::Code(1) || !outcome.said().contains("exit 7, twice") {
        wrong.push(format!("what is told: {told:?}, {} {}", outcome.ended, outcome.said()));
    }
    if took_s > ONE_RUN_S {
        wrong.push(format!("without --retries it runs once, not for {took_s} s"));
    }
    Ok(wrong)
}

/// A task that says more than is kept: its state and status, `submit --wait` and `jobs output` say that it was cut.
pub fn cut(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "cut")?;
    let mut wrong = Vec::new();
    let talk = format!("head -c {} /dev/zero; echo err >&2", KEPT_BYTES + 1);
    let (task, outcome) = first_of(pool, &place, &["--", "sh", "-c", &talk])?;
    if task["status"] != "exit 0, output cut" || task["exit"] != 0 || task["is_cut"] != true {
        wrong.push(format!("the status of the task: {task}"));
    }
    if outcome.ended != Ended::Code(1) || !outcome.said().contains("output was cut") {
        wrong.push(format!("submit --wait: {}, {}", outcome.ended, outcome.said()));
    }
    let id = outcome.text().lines().next().unwrap_or_default().trim().to_owned();
    let state = job(pool, &id)?["job"]["state"].clone();
    if state != "cut" {
        wrong.push(format!("the state of the job: {state}"));
    }
    let printed = gleaner(pool, &place, &["jobs", "output", &id])?;
    let said = String::from_utf8_lossy(&printed.stderr).into_owned();
    if printed.ended != Ended::Code(1) || printed.stdout.len() != KEPT_BYTES || !said.contains("not all that it said") {
        wrong.push(format!("jobs output: {}, {} bytes, {said}", printed.ended, printed.stdout.len()));
    }
    let (whole, outcome) = first_of(pool, &place, &["--", "sh", "-c", "echo all"])?;
    let id = outcome.text().lines().next().unwrap_or_default().trim().to_owned();
    let printed = gleaner(pool, &place, &["jobs", "output", &id])?;
    if whole["status"] != "exit 0" || !outcome.ok() || !printed.ok() || printed.text() != "all" {
        wrong.push(format!("what is not cut: {whole}, {}, {}", outcome.ended, printed.said()));
    }
    Ok(wrong)
}

/// Results that must agree: of more workers than there are, and such as never do.
pub fn quorum(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "quorum")?;
    let mut wrong = Vec::new();
    let outcome = gleaner(pool, &place, &["submit", "--quorum", "5", "--", "true"])?;
    let id = outcome.text().trim().to_owned();
    let lacks = "--quorum 5 needs 5 workers";
    let report = job_once(pool, &id, |job| job["problem"].as_str().is_some_and(|why| why.contains(lacks)))?;
    if !outcome.ok() || !outcome.said().contains(lacks) || report["job"]["problem"].is_null() {
        wrong.push(format!("it is told that it cannot be met: {}, {}", outcome.said(), report["job"]));
    }
    let list = gleaner(pool, &place, &["jobs"])?;
    if !list.text().contains(lacks) {
        wrong.push(format!("so does the list of jobs: {}", list.text()));
    }
    let waits = wait_for(END_BOUND, || {
        let task = job(pool, &id).ok()?["tasks"][0].take();
        let why =
            task["why"].as_str().filter(|why| why.contains("of the 5 results that must agree")).map(str::to_owned);
        why.filter(|_| task["status"] == "waiting")
    });
    if waits.is_none() {
        wrong.push(format!("its task says how many results it has: {}", job(pool, &id)?["tasks"]));
    }
    let differs = submit(pool, &place, &["--quorum", "2", "--", "sh", "-c", "head -c 8 /dev/urandom | od; exit 3"])?;
    let said = wait_for(END_BOUND, || {
        let why = job(pool, &differs).ok()?["tasks"][0]["why"].as_str().map(str::to_owned)?;
        why.contains("do not agree").then_some(why)
    });
    if said.is_none() {
        wrong.push(format!("results that differ are told: {}", job(pool, &differs)?));
    }
    for id in [id, differs] {
        gleaner(pool, &place, &["cancel", &id])?.expect_ok("gleaner cancel")?;
        let state = job_once(pool, &id, is_over)?["job"]["state"].clone();
        if state != "cancelled" {
            wrong.push(format!("it is cancelled: {state}"));
        }
    }
    Ok(wrong)
}
