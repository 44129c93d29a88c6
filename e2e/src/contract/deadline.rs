//! Batch jobs that must be done by a time.

use super::batch::{command, is_over, job_once};
use crate::error::Result;
use crate::pool::{Pool, workers_in};
use crate::process::{Ended, Run};
use crate::scenario::{END_BOUND, folder};
use std::path::Path;
use std::time::{Duration, Instant};

/// How often another deadline may be named, because workers expect to give less than a moment before.
const NAMED_MAX: usize = 4;
/// Longest deadline that is waited for until it has passed, seconds.
const DEADLINE_MAX_S: u64 = 30;

/// What workers expect to give to guests, all taken together, of which deadlines are made: who has not told yet is taken to give all.
fn expected(pool: &Pool) -> Result<f64> {
    let status = pool.client.json(&["status", "--json"])?;
    let told = |worker: &serde_json::Value, name: &str| worker["expected"][name].as_f64().unwrap_or(1000.0);
    Ok(workers_in(&status).iter().map(|worker| told(worker, "mean") + told(worker, "low")).sum())
}

/// The deadline that the hub could meet, as it was told.
fn could_be_met(said: &str) -> Option<u64> {
    let (_, rest) = said.split_once("--deadline ")?;
    rest.split_once("s could be met")?.0.parse().ok()
}

/// What cannot be done in time is refused, with the time by which it could be; the rest is done, or given up at its deadline.
pub fn kept(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "deadline")?;
    let mut wrong = Vec::new();
    let submit = |arguments: &[&str]| {
        let arguments = [&["submit", "--wait"], arguments].concat();
        Run::new(command(pool, &place, &arguments)).within(END_BOUND).run()
    };
    let numbers: Vec<String> = (0..40).map(|number| number.to_string()).collect();
    let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
    let many = |deadline: &str| {
        let words = ["--takes", "30s", "--deadline", deadline, "--", "touch", "made{}", ":::"];
        submit(&[&words[..], &numbers].concat())
    };
    let mut before = expected(pool)?;
    let refused = many("40s")?;
    let could = could_be_met(&refused.said());
    let status = pool.client.json(&["status", "--json"])?;
    let cpus: u64 = workers_in(&status).iter().filter_map(|worker| worker["cpus"].as_u64()).sum();
    if refused.ended != Ended::Code(2)
        || place.join("made0").exists()
        || could.is_none_or(|seconds| seconds < 40 * 30 / cpus)
    {
        wrong.push(format!("what takes too long is refused: {} {}", refused.ended, refused.said()));
    }
    // It is taken with the deadline that was named, and takes no longer than it does. What is named holds for what workers expect to give at that
    // moment: one that has just come learns that meanwhile, and if they then expect to give less, a later one is named.
    let mut taken = many(&format!("{}s", could.unwrap_or(3_600)))?;
    let mut unexplained = false;
    for _ in 0..NAMED_MAX {
        let Some(later) = could_be_met(&taken.said()).filter(|_| taken.ended == Ended::Code(2)) else { break };
        let now = expected(pool)?;
        // Once it may have changed between two looks.
        if now >= before && std::mem::replace(&mut unexplained, true) {
            let (said, status) = (taken.said(), pool.client.json(&["status", "--json"])?);
            wrong.push(format!(
                "no later deadline while workers expect to give as much: {before}, then {now}: {said}; {status}"
            ));
        }
        before = now;
        taken = many(&format!("{later}s"))?;
    }
    if !taken.ok() || !place.join("made39").exists() {
        wrong.push(format!("the deadline that could be met can be: {} {}", taken.ended, taken.said()));
    }
    wrong.extend(missed(pool, &place)?);
    let never = submit(&["--takes", "2h", "--time-limit", "1h", "--", "true"])?;
    if never.ended == Ended::Code(0) || !never.said().contains("--time-limit") {
        wrong.push(format!("no time limit below what a task takes: {} {}", never.ended, never.said()));
    }
    Ok(wrong)
}

/// What has not ended at its deadline has failed.
fn missed(pool: &Pool, place: &Path) -> Result<Vec<String>> {
    // In so short a time the least that can be said of two tasks is too much where workers expect to give little: then what is named is the deadline.
    let (mut seconds, mut since) = (4, Instant::now());
    let late = |seconds: u64| {
        let deadline = format!("{seconds}s");
        let words = ["submit", "--wait", "--deadline", &deadline, "--", "sleep", ":::", "0.1", "163.7"];
        Run::new(command(pool, place, &words)).within(END_BOUND + Duration::from_secs(seconds)).run()
    };
    let mut missed = late(seconds)?;
    let mut wrong = Vec::new();
    for _ in 0..NAMED_MAX {
        let Some(later) = could_be_met(&missed.said()).filter(|_| missed.ended == Ended::Code(2)) else { break };
        (seconds, since) = (later, Instant::now());
        if seconds > DEADLINE_MAX_S {
            break;
        }
        missed = late(seconds)?;
    }
    if seconds > DEADLINE_MAX_S {
        println!(
            "measured: batch jobs with deadlines: workers expect to give too little for one of {DEADLINE_MAX_S} s"
        );
        return Ok(wrong);
    }
    let took = since.elapsed().as_secs_f64() - seconds as f64;
    if missed.ended != Ended::Code(1) || !missed.said().contains("1 done, 1 failed") || !(-0.5..16.0).contains(&took) {
        let after = format!("{took} s after {seconds} s");
        wrong.push(format!("what is not done in time has failed: {} {after}: {}", missed.ended, missed.said()));
    }
    let job = missed.text();
    let report = job_once(pool, job.trim(), is_over)?;
    if report["tasks"][1]["why"] != "it was not done by its deadline" {
        wrong.push(format!("it is told why: {report}"));
    }
    Ok(wrong)
}
