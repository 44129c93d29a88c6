//! Batch jobs in which tasks come after others: each sees what those have made, and runs only if they ended well.

use super::batch::{command, is_over, job_once, kill_daemon, submit};
use crate::error::{Context, Result};
use crate::pool::Pool;
use crate::process::{Ended, Run, pause, wait_for};
use crate::scenario::{END_BOUND, folder, guests};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Tasks that add to one number, each to what the one before it left.
const STEPS: usize = 6;

/// A line of a job's file.
fn line(name: &str, script: &str, after: &[&str]) -> Value {
    json!({"argv": ["sh", "-c", script], "name": name, "after": after})
}

fn write(place: &Path, lines: &[Value]) -> Result<()> {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(place.join("job"), text).at("write", place)
}

fn read(place: &Path, name: &str) -> String {
    std::fs::read_to_string(place.join(name)).unwrap_or_else(|_| "nothing".to_owned())
}

/// A diamond, and beside it a chain that changes one file again and again.
fn diamond_and_chain(pause_s: f32) -> Vec<Value> {
    let mut lines = vec![
        line("start", &format!("sleep {pause_s}; echo start > a; echo 'echo made with $1' > tool; chmod +x tool"), &[]),
        line("left", &format!("sleep {pause_s}; cat a > b; ./tool left >> b"), &["start"]),
        line("right", &format!("sleep {pause_s}; cat a > c; ./tool right >> c"), &["start"]),
        line("end", "cat b c > d; echo said", &["left", "right"]),
    ];
    for step in 0..STEPS {
        let script =
            format!("x=$(cat count); sleep {pause_s}; echo $((x + 1)) > count; echo {step} >> steps; touch s{step}");
        // One after the other, by name.
        let before = format!("step {}", step.saturating_sub(1));
        let after: &[&str] = if step == 0 { &[] } else { &[&before] };
        lines.push(line(&format!("step {step}"), &script, after));
    }
    lines
}

/// What is wrong with the end of that job.
fn judge(pool: &Pool, place: &Path, report: &Value) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    if report["job"]["state"] != "done" {
        wrong.push(format!("the job does not end well: {report}"));
    }
    let want = "start\nmade with left\nstart\nmade with right\n";
    if read(place, "d") != want {
        let errors = report["tasks"][3]["stderr"].as_str().and_then(|path| std::fs::read_to_string(path).ok());
        wrong.push(format!(
            "the diamond's end is made of what its sides made: {:?}, and it said {errors:?}: {}",
            read(place, "d"),
            report["tasks"][3]
        ));
    }
    let steps: String = (0..STEPS).map(|step| format!("{step}\n")).collect();
    if read(place, "count") != format!("{STEPS}\n") || read(place, "steps") != steps {
        wrong.push(format!("each step sees the one before it: {:?}, {:?}", read(place, "count"), read(place, "steps")));
    }
    let kept = pool.client.json(&["recover", "--json"])?;
    if kept["kept"].as_array().is_none_or(|kept| !kept.is_empty()) {
        wrong.push(format!("nothing had to be kept, not {kept}"));
    }
    Ok(wrong)
}

/// Tasks see what those have made that they come after; those after a failed one are not run.
pub fn in_order(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "in-order")?;
    std::fs::write(place.join("count"), "0\n").at("write", &place)?;
    write(&place, &diamond_and_chain(0.0))?;
    let id = submit(pool, &place, &["job"])?;
    let report = job_once(pool, &id, is_over)?;
    let mut wrong = judge(pool, &place, &report)?;

    let lines = [
        line("good", "sleep 3.19", &[]),
        line("bad", "echo no > made; exit 3", &[]),
        line("next", "touch next", &["bad"]),
        line("last", "touch last", &["next", "good"]),
        line("other", "cat made > other", &["good"]),
    ];
    write(&place, &lines)?;
    let id = submit(pool, &place, &["--max-failures", "1", "job"])?;
    wait_for(END_BOUND, || (guests(pool, "sleep\u{0}3.19") > 0).then_some(()));
    let report = job_once(pool, &id, |job| job["failed"] == 3)?;
    let waits = &report["tasks"][4];
    if waits["status"] != "waiting" || waits["after"] != json!([0]) || waits["waits_for"] != json!([0]) {
        wrong.push(format!("it is told what a task waits for: {report}"));
    }
    let explained = pool.client.json(&["explain", &format!("{id}/4"), "--json"])?;
    if explained["why"] != "it comes after task 0, which has not ended" {
        wrong.push(format!("it is explained: {explained}"));
    }
    let report = job_once(pool, &id, is_over)?;
    let of = |index: usize, what: &str| report["tasks"][index][what].as_str().unwrap_or_default().to_owned();
    let not_run = (of(2, "status"), of(2, "why"), of(3, "why"));
    let want =
        ("not run", "task 1, after which it comes, failed (exit 3)", "task 2, after which it comes, was not run");
    if (not_run.0.as_str(), not_run.1.as_str(), not_run.2.as_str()) != want || report["job"]["state"] != "failed" {
        wrong.push(format!("what comes after a failure is not run: {report}"));
    }
    let made = ["next", "last", "other"].map(|name| read(&place, name));
    if made != ["nothing", "nothing", "no\n"] || of(4, "status") != "exit 0" {
        wrong.push(format!("only the others are: {made:?}, {report}"));
    }

    write(&place, &[line("one", "true", &["two"]), line("two", "true", &[])])?;
    let refused = Run::new(command(pool, &place, &["submit", "job"])).within(END_BOUND).run()?;
    if refused.ok() || !refused.said().contains("job:1: `after` has the name `two`, which no earlier line has") {
        wrong.push(format!("a task comes after earlier ones: {}, {}", refused.ended, refused.said()));
    }
    let twice = ["submit", "--wait", "--quorum", "2", "job"];
    write(&place, &[line("one", "echo one > agreed", &[]), line("two", "cat agreed; rm agreed", &["one"])])?;
    let agreed = Run::new(command(pool, &place, &twice)).within(END_BOUND).run()?;
    if agreed.ended != Ended::Code(0) || place.join("agreed").exists() {
        wrong.push(format!("two workers agree in order: {}, {}", agreed.ended, agreed.said()));
    }
    Ok(wrong)
}

/// The client daemon is killed while tasks run which replace what those have made that they come after.
pub fn daemon_killed(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "ordered-killed")?;
    std::fs::write(place.join("count"), "0\n").at("write", &place)?;
    write(&place, &diamond_and_chain(0.4))?;
    let id = submit(pool, &place, &["job"])?;
    for done in [1, 4, 7] {
        job_once(pool, &id, |job| job["done"].as_u64() >= Some(done))?;
        // Some have just begun then.
        pause(Duration::from_millis(150));
        kill_daemon(pool);
        // Time for tasks to end while there is no daemon.
        pause(Duration::from_millis(500));
    }
    let report = job_once(pool, &id, is_over)?;
    judge(pool, &place, &report)
}
