//! Batch jobs: nobody waits for them, and whatever dies meanwhile, each of their tasks is done once.

use crate::error::{Context, Error, Result};
use crate::pool::Pool;
use crate::process::{Ended, Outcome, Run, pause, wait_for};
use crate::scenario::{END_BOUND, folder, guests};
use rustix::process::{Pid, Signal};
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Tasks of the job that is disturbed.
pub(super) const TASKS: usize = 20;
/// How long a job may take to its end after a part of the system was lost.
pub(super) const JOB_BOUND: Duration = Duration::from_secs(90);

/// `gleaner` with these arguments, in `place`.
pub(super) fn command(pool: &Pool, place: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(pool.client.gleaner.clone().unwrap_or_else(|| "gleaner".into()));
    command.args(arguments);
    pool.client.dress(&mut command);
    command.current_dir(place);
    command
}

fn gleaner(pool: &Pool, place: &Path, arguments: &[&str]) -> Result<Outcome> {
    Run::new(command(pool, place, arguments)).within(END_BOUND).run()
}

/// Submits, and gives the job's number.
pub(super) fn submit(pool: &Pool, place: &Path, arguments: &[&str]) -> Result<String> {
    let arguments = [&["submit"], arguments].concat();
    Ok(gleaner(pool, place, &arguments)?.expect_ok("gleaner submit")?.text().trim().to_owned())
}

pub(super) fn job(pool: &Pool, job: &str) -> Result<Value> {
    pool.client.json(&["jobs", job, "--json"])
}

/// The job once this is so of it, or as it is when that takes too long.
pub(super) fn job_once(pool: &Pool, id: &str, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
    let found = wait_for(JOB_BOUND, || job(pool, id).ok().filter(|report| is_so(&report["job"])));
    found.map_or_else(|| job(pool, id), Ok)
}

pub(super) fn is_over(job: &Value) -> bool {
    !job["ended_ms"].is_null()
}

pub(super) fn kill_daemon(pool: &Pool) {
    for pid in pool.client_daemons() {
        if let Some(pid) = Pid::from_raw(pid) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}

/// Writes the disturbed job's commands: each adds a line to a file of its own, which shows how often that was committed.
pub(super) fn commands(place: &Path) -> Result<()> {
    let mut lines = "# a task a line\n\n".to_owned();
    for number in 0..TASKS {
        let _ = writeln!(lines, "cat in > out{number}; echo run >> log{number}; echo said {number}; sleep 0.3");
    }
    std::fs::write(place.join("in"), "input\n").at("write", place)?;
    std::fs::write(place.join("commands"), lines).at("write", place)
}

/// What is wrong with the end of that job.
pub(super) fn judge(pool: &Pool, place: &Path, id: &str, report: &Value) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let job = &report["job"];
    if job["state"] != "done" || job["done"] != TASKS {
        wrong.push(format!("the job does not end well: {report}"));
    }
    let read = |name: String| std::fs::read_to_string(place.join(name)).unwrap_or_default();
    for number in 0..TASKS {
        let (out, log) = (read(format!("out{number}")), read(format!("log{number}")));
        if out != "input\n" || log != "run\n" {
            wrong.push(format!("task {number} is not committed once: {out:?}, {log:?}"));
        }
    }
    let said = gleaner(pool, place, &["jobs", "output", id])?.expect_ok("gleaner jobs output")?.text();
    let want: Vec<String> = (0..TASKS).map(|number| format!("said {number}")).collect();
    if said != want.join("\n") {
        wrong.push(format!("what the tasks said is {said:?}"));
    }
    let kept = pool.client.json(&["recover", "--json"])?;
    if kept["kept"].as_array().is_none_or(|kept| !kept.is_empty()) {
        wrong.push(format!("nothing had to be kept, not {kept}"));
    }
    Ok(wrong)
}

/// A task that runs for longer than anybody may be silent, and says what stays at the hub meanwhile: then it reads what nobody has told of.
pub fn long(pool: &mut Pool) -> Result<Vec<String>> {
    const SECONDS: u64 = 32;
    let place = folder(pool, "long")?;
    std::fs::create_dir_all(place.join("late")).at("create", &place)?;
    std::fs::write(place.join("late/in"), "input\n").at("write", &place)?;
    let line =
        format!("for i in $(seq {SECONDS}); do echo $i; sleep 1; done; echo run >> log; cat late/$(echo i)n > out\n");
    std::fs::write(place.join("commands"), line).at("write", &place)?;
    let since = Instant::now();
    let id = submit(pool, &place, &["commands"])?;
    let report = job_once(pool, &id, is_over)?;
    let read = |name: &str| std::fs::read_to_string(place.join(name)).unwrap_or_default();
    let is_right = report["job"]["state"] == "done" && read("out") == "input\n" && read("log") == "run\n";
    let is_once = since.elapsed() < Duration::from_secs(2 * SECONDS - 8);
    Ok((!is_right || !is_once).then(|| format!("after {:?}: {report}", since.elapsed())).into_iter().collect())
}

/// The client daemon is killed twice while tasks run and are committed.
pub fn daemon_killed(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "daemon-killed")?;
    commands(&place)?;
    let id = submit(pool, &place, &["--quorum", "1", "--key", "one", "commands"])?;
    for done in [2, 8] {
        job_once(pool, &id, |job| job["done"].as_u64() >= Some(done))?;
        kill_daemon(pool);
        // Time for tasks to end while there is no daemon.
        pause(Duration::from_millis(400));
    }
    let report = job_once(pool, &id, is_over)?;
    let mut wrong = judge(pool, &place, &id, &report)?;
    let again = gleaner(pool, &place, &["submit", "--key", "one", "commands"])?.expect_ok("gleaner submit")?;
    if again.text().trim() != id || !again.said().contains("before") {
        wrong.push(format!("the same key is the same job: {:?}, {}", again.text(), again.said()));
    }
    Ok(wrong)
}

/// The hub is killed, and started again.
pub fn hub_killed(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "hub-killed")?;
    commands(&place)?;
    let id = submit(pool, &place, &["commands"])?;
    job_once(pool, &id, |job| job["done"].as_u64() >= Some(3))?;
    pool.hub.kill();
    pause(Duration::from_millis(300));
    pool.restart_hub()?;
    let report = job_once(pool, &id, is_over)?;
    judge(pool, &place, &id, &report)
}

/// A file is edited while a task runs that changes it, and no daemon does.
pub fn changed_meanwhile(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "changed")?;
    let mut wrong = Vec::new();
    let write = |name: &str, text: &str| std::fs::write(place.join(name), text).at("write", &place);
    write("edited", "1\n")?;
    write("left", "1\n")?;
    // Changed longer ago than clocks are apart.
    pause(Duration::from_millis(1500));
    let script = "x=$(cat {}); touch up{}; sleep 2.17; echo $((x + 1)) > {}; echo made > made{}";
    let id = submit(pool, &place, &["--", "sh", "-c", script, ":::", "edited", "left"])?;
    let both_run = wait_for(END_BOUND, || (guests(pool, "sleep\u{0}2.17") == 2).then_some(()));
    if both_run.is_none() {
        return Err(Error::Product("two tasks do not run at once".to_owned()));
    }
    kill_daemon(pool);
    write("edited", "41\n")?;
    pause(Duration::from_millis(2500));
    let report = job_once(pool, &id, is_over)?;
    let read = |name: &str| std::fs::read_to_string(place.join(name)).unwrap_or_else(|_| "nothing".to_owned());
    let status: Vec<&str> = [0, 1].iter().filter_map(|at| report["tasks"][at]["status"].as_str()).collect();
    if read("edited") != "41\n" || read("madeedited") != "nothing" || status.first() != Some(&"not committed") {
        wrong.push(format!("what was edited stays: {:?}, {}, {report}", read("edited"), read("madeedited")));
    }
    if read("left") != "2\n" || read("madeleft") != "made\n" || status.last() != Some(&"exit 0") {
        wrong.push(format!("what was left alone is changed: {:?}, {report}", read("left")));
    }
    let kept = pool.client.json(&["recover", "--json"])?;
    let task = report["tasks"][0]["commit"].as_str().unwrap_or_default().to_owned();
    if kept["kept"][0]["task"] != task.as_str() {
        wrong.push(format!("it is kept: {kept}"));
    }
    gleaner(pool, &place, &["recover", &task, "--commit"])?.expect_ok("gleaner recover")?;
    if read("edited") != "2\n" {
        wrong.push(format!("it is recovered, not {:?}", read("edited")));
    }
    Ok(wrong)
}

/// What an owner does with jobs.
pub fn ways(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "ways")?;
    let mut wrong = Vec::new();
    let mut expect = |what: &str, good: bool, detail: String| {
        if !good {
            wrong.push(format!("{what}: {detail}"));
        }
    };
    let held = submit(pool, &place, &["--hold", "--name", "held", "--", "touch", "released"])?;
    pause(Duration::from_millis(700));
    let state = job(pool, &held)?["job"]["state"].to_string();
    expect("it is held", state == r#""held""# && !place.join("released").exists(), state);
    gleaner(pool, &place, &["priority", &held, "urgent"])?.expect_ok("gleaner priority")?;
    gleaner(pool, &place, &["release", &held])?.expect_ok("gleaner release")?;
    let report = job_once(pool, &held, is_over)?;
    expect("it is released", report["job"]["done"] == 1 && place.join("released").exists(), report.to_string());

    let long = submit(pool, &place, &["--", "sleep", ":::", "61.3", "61.4"])?;
    wait_for(END_BOUND, || (guests(pool, "61.") > 0).then_some(()));
    gleaner(pool, &place, &["cancel", &long])?.expect_ok("gleaner cancel")?;
    let report = job_once(pool, &long, is_over)?;
    let gone = wait_for(END_BOUND, || (guests(pool, "61.") == 0).then_some(())).is_some();
    expect("it is cancelled", report["job"]["state"] == "cancelled" && gone, report.to_string());

    let hook =
        "echo $GLEANER_INDEX $GLEANER_STATUS $(cat $GLEANER_STDOUT) >> told; test -e try || { touch try; exit 1; }";
    let lines = "{\"argv\": [\"sh\", \"-c\", \"echo a; exit 3\"], \"name\": \"three\"}\n";
    std::fs::write(place.join("lines"), lines).at("write", &place)?;
    let outcome = gleaner(pool, &place, &["submit", "--wait", "--assimilate", hook, "lines"])?;
    let told = std::fs::read_to_string(place.join("told")).unwrap_or_default();
    expect("--wait tells of a failure", outcome.ended == Ended::Code(1), outcome.said());
    expect("it is assimilated until that ends well", told == "0 3 a\n0 3 a\n", told.clone());

    let missing = gleaner(pool, &place, &["submit", "--wait", "--", "no-such-program-at-all"])?;
    let said = missing.said();
    expect(
        "a program that is missing fails its task",
        missing.ended == Ended::Code(1) && said.contains("not found"),
        said,
    );
    let first = submit(pool, &place, &["--", "sh", "-c", "sleep 0.5; touch first"])?;
    let then = gleaner(pool, &place, &["submit", "--wait", "--after", &first, "--", "sh", "-c", "cp first second"])?;
    expect("one comes after the other", then.ok() && place.join("second").exists(), then.said());
    Ok(wrong)
}

/// A command of the user says which results agree, or are good.
pub fn compared(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "compared")?;
    let mut wrong = Vec::new();
    let read = |name: &str| std::fs::read_to_string(place.join(name)).unwrap_or_else(|_| "nothing".to_owned());
    // Equal they never are.
    let noise = "head -c 8 /dev/urandom | od >noise{}; echo said | tee out{}";
    let same = "echo compared >&2; test -s \"$1/files$PWD/noise$GLEANER_INDEX\" && cmp -s \"$1/stdout\" \"$2/stdout\"";
    let quorum = ["submit", "--wait", "--quorum", "2", "--validate", same, "--", "sh", "-c", noise, ":::", "0", "1"];
    // A worker that has just come may have told the hub already, and not yet what it takes: no such job is taken then.
    let mut outcome = gleaner(pool, &place, &quorum)?;
    let is_early = |outcome: &Outcome| outcome.said().contains("no host that has joined");
    let since = Instant::now();
    while is_early(&outcome) && since.elapsed() < END_BOUND {
        pause(Duration::from_millis(100));
        outcome = gleaner(pool, &place, &quorum)?;
    }
    if !outcome.ok() || read("out0") != "said\n" || read("out1") != "said\n" || read("noise1").len() < 8 {
        wrong.push(format!("two workers agree by the command: {}, {:?}", outcome.said(), read("out0")));
    }
    let good =
        ["submit", "--wait", "--validate", "grep -q said \"$1/stdout\"", "--", "sh", "-c", "echo said; touch good"];
    let outcome = gleaner(pool, &place, &good)?;
    if !outcome.ok() || !read("good").is_empty() {
        wrong.push(format!("one result is good: {}", outcome.said()));
    }
    let bad = ["submit", "--wait", "--validate", "exit 1", "--", "sh", "-c", "echo run >>bad"];
    let outcome = gleaner(pool, &place, &bad)?;
    if outcome.ended != Ended::Code(1) || read("bad") != "nothing" {
        wrong.push(format!("no result is good: {} {}, {:?}", outcome.ended, outcome.said(), read("bad")));
    }
    // The hub is killed while the results are looked at.
    let slow = "sleep 1.43; cmp -s \"$1/stdout\" \"$2/stdout\"";
    let job = ["--quorum", "2", "--validate", slow, "--", "sh", "-c", "echo said; head -c 8 /dev/urandom >last"];
    let id = submit(pool, &place, &job)?;
    if wait_for(END_BOUND, || (guests(pool, "sleep\u{0}1.43") > 0).then_some(())).is_none() {
        wrong.push("no worker compares".into());
    }
    pool.hub.kill();
    pool.restart_hub()?;
    let report = job_once(pool, &id, is_over)?;
    if report["job"]["state"] != "done" || !place.join("last").exists() {
        wrong.push(format!("it goes on with the next hub: {report}"));
    }
    Ok(wrong)
}

/// Results of two workers that must agree, and commands that fail before they end well.
pub fn again_and_twice(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "twice")?;
    let mut wrong = Vec::new();
    let outcome = gleaner(
        pool,
        &place,
        &["submit", "--wait", "--quorum", "2", "--", "sh", "-c", "echo agreed | tee both{}", ":::", "1", "2"],
    )?;
    let read = |name: &str| std::fs::read_to_string(place.join(name)).unwrap_or_else(|_| "nothing".to_owned());
    if !outcome.ok() || read("both1") != "agreed\n" || read("both2") != "agreed\n" {
        wrong.push(format!("two workers agree: {}, {:?}", outcome.said(), read("both1")));
    }
    // Many failures, none of which is the workers' fault: they go on being given commands.
    let fails: Vec<String> = (0..12).map(|number| number.to_string()).collect();
    let fails: Vec<&str> = fails.iter().map(String::as_str).collect();
    let script = ["submit", "--wait", "--retries", "1", "--", "sh", "-c", "echo tried; exit 7", ":::"];
    let outcome = gleaner(pool, &place, &[&script[..], &fails].concat())?;
    if outcome.ended != Ended::Code(1) || !outcome.said().contains("12 failed") {
        wrong.push(format!("all fail: {} {}", outcome.ended, outcome.said()));
    }
    let outcome = gleaner(pool, &place, &["submit", "--wait", "--time-limit", "1s", "--", "sleep", "62.5"])?;
    if outcome.ended != Ended::Code(1) {
        wrong.push(format!("what takes too long has failed: {} {}", outcome.ended, outcome.said()));
    }
    let mut after = pool.client.remrun(&["--no-local", "true"]);
    after.current_dir(&place);
    let after = Run::new(after).within(END_BOUND).run()?;
    if !after.ok() {
        wrong.push(format!("the workers take other commands: {}", after.said()));
    }
    Ok(wrong)
}
