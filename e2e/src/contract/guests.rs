//! An owner's word on the guests of his machine.

use crate::error::{Error, Result};
use crate::pool::{Pool, workers_in};
use crate::process::{Ended, Outcome, Run, pause, wait_for};
use crate::scenario::{END_BOUND, background};
use serde_json::Value;
use std::time::Duration;

/// A guest stops within this time of the word, in milliseconds.
const PAUSE_MS_MAX: f64 = 100.0;

/// What `gleaner` says to the owner of worker `index`.
pub fn owner(pool: &Pool, index: usize, words: &[&str]) -> Result<Outcome> {
    let state = pool.scratch.path().join(format!("worker{index}/state"));
    let state = state.to_string_lossy().into_owned();
    pool.owner.gleaner(&[words, &["--json", "--state", &state]].concat())
}

/// What a command with `--json` has printed.
pub fn told(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.text()).unwrap_or(Value::Null)
}

/// The worker that has this guest, and the processor time that it has had, in seconds.
fn found(pool: &Pool, program: &str) -> Option<(usize, f64)> {
    (0..pool.workers.len()).find_map(|index| {
        let told = told(&owner(pool, index, &["guests"]).ok()?);
        let guest = told["guests"].as_array()?.iter().find(|guest| guest["program"] == program)?.clone();
        Some((index, guest["cpu_s"].as_f64()?))
    })
}

/// A guest rests at once when its host's owner says so, and goes on when he says that; or it leaves, and is done elsewhere.
pub fn rest_and_leave(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    // While the other one takes no tasks it has nowhere to go.
    let other = pool.workers[1].name.clone();
    pool.owner.gleaner(&["drain", &other])?.expect_ok("gleaner drain")?;
    // It has little of a processor, so that it does not stand aside beside what else this machine does.
    let work = "i=0; while [ $i -lt 150 ]; do sleep 0.03; i=$((i+1)); done; echo done > done";
    let mut child = background(pool, "guests", work)?;
    let Some((host, _)) = wait_for(END_BOUND, || found(pool, "sh").filter(|(_, cpu_s)| *cpu_s > 0.05)) else {
        let _ = child.kill();
        let _ = child.wait();
        return Ok(vec!["the guest never began".to_owned()]);
    };
    let paused = owner(pool, host, &["pause", "1h"])?;
    let took_ms = told(&paused)["took_ms"].as_f64().unwrap_or(f64::INFINITY);
    if !paused.ok() || took_ms > PAUSE_MS_MAX {
        wrong.push(format!("it rests within {PAUSE_MS_MAX} ms: {took_ms} ms, {}", paused.said()));
    }
    let before = found(pool, "sh");
    pause(Duration::from_millis(500));
    // What waited for the processor when it was frozen stops as soon as it gets it.
    let meanwhile_s = found(pool, "sh").zip(before).map(|(now, before)| now.1 - before.1);
    if meanwhile_s.is_none_or(|meanwhile_s| meanwhile_s > 0.005) {
        wrong.push(format!("it does nothing meanwhile: {meanwhile_s:?} s"));
    }
    let name = pool.workers[host].name.clone();
    let state = |pool: &Pool| {
        let status = pool.owner.json(&["status", "--json"]).ok()?;
        workers_in(&status).iter().find(|worker| worker["name"] == name.as_str()).map(|worker| worker["state"].clone())
    };
    if wait_for(END_BOUND, || state(pool).filter(|state| state == "resting")).is_none() {
        wrong.push(format!("the pool knows that it rests: {:?}", state(pool)));
    }
    let asked = pool.client.remrun(&["--no-local", "-v", "true"]);
    let waiter = std::thread::spawn(move || Run::new(asked).within(END_BOUND).run());
    pause(Duration::from_millis(1500));
    owner(pool, host, &["resume"])?.expect_ok("gleaner resume")?;
    let waited = waiter.join().map_err(|_| Error::Product("the runner panicked".to_owned()))??;
    let said = waited.said();
    let why = "waits until a worker takes tasks again";
    if !waited.ok() || !said.contains(&format!("{why}, 10 minutes")) || !said.contains(&format!(" ({why}: ")) {
        wrong.push(format!("-v says why it waited, and for how long: {}, {said}", waited.ended));
    }
    let goes_on =
        || found(pool, "sh").is_none_or(|now| before.is_some_and(|before| now.1 > before.1 + 0.01)).then_some(());
    if wait_for(END_BOUND, goes_on).is_none() {
        wrong.push("it does not go on".to_owned());
    }
    pool.owner.gleaner(&["drain", "--undo", &other])?.expect_ok("gleaner drain --undo")?;
    let evicted = owner(pool, host, &["pause", "--evict"])?;
    let there = wait_for(END_BOUND, || found(pool, "sh").filter(|(there, _)| *there != host));
    if !evicted.ok() || there.is_none() {
        wrong.push(format!("it is done elsewhere: {there:?}, {}", evicted.said()));
    }
    wrong.extend(others_run_elsewhere(pool, &name)?);
    wrong.extend(is_explained(pool)?);
    let ended = wait_for(END_BOUND, || child.try_wait().ok().flatten()).map(Ended::from);
    if ended != Some(Ended::Code(0)) || !pool.place("guests/done").exists() {
        wrong.push(format!("its client noticed: {ended:?}"));
    }
    wrong.extend(word_outlives_worker(pool, host)?);
    let again = told(&owner(pool, host, &["resume"])?);
    if again["rests"] != false {
        wrong.push(format!("all is as before: {again}"));
    }
    wrong.extend(says_what_it_gives(pool)?);
    Ok(wrong)
}

/// What a host's owner said holds for the next worker there.
fn word_outlives_worker(pool: &mut Pool, host: usize) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let rests = told(&owner(pool, host, &["guests"])?);
    pool.restart_worker(host)?;
    let answered = || owner(pool, host, &["guests"]).ok().filter(Outcome::ok);
    let rests_still = wait_for(END_BOUND, answered).map_or(Value::Null, |answer| told(&answer));
    if rests["evicted"] != 1 || [&rests, &rests_still].iter().any(|told| told["reasons"][0] != "paused by its owner") {
        wrong.push(format!("its owner's word outlives the worker: {rests}, then {rests_still}"));
    }
    Ok(wrong)
}

/// What is launched now does not run at the worker of this name.
fn others_run_elsewhere(pool: &Pool, name: &str) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for _ in 0..3 {
        let outcome = Run::new(pool.client.remrun(&["--no-local", "true"])).within(END_BOUND).run()?;
        if !outcome.ok() || pool.client.json(&["explain", "--json"])?["worker"] == name {
            wrong.push(format!("others run elsewhere: {}, {}", outcome.ended, outcome.said()));
        }
    }
    Ok(wrong)
}

/// While its host is only paused, a guest that has another place goes there at once, and one that has none is done here.
pub fn leave_when_paused(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (name, options) in [("there", &["--no-local"][..]), ("here", &[][..])] {
        let place = crate::scenario::folder(pool, name)?;
        let work = "echo $$ > begun; sleep 6.5; echo done > done";
        let mut command = pool.client.remrun(&[options, &["sh", "-c", work]].concat());
        command.current_dir(&place);
        let runner = std::thread::spawn(move || Run::new(command).within(END_BOUND).run());
        let Some((host, _)) = wait_for(END_BOUND, || found(pool, "sh")) else { return Ok(vec!["no guest".into()]) };
        if options.is_empty() {
            pool.owner.gleaner(&["drain", &pool.workers[1 - host].name.clone()])?.expect_ok("gleaner drain")?;
        }
        pause(Duration::from_millis(400));
        owner(pool, host, &["pause", "1h"])?.expect_ok("gleaner pause")?;
        let outcome = runner.join().map_err(|_| Error::Product("the runner panicked".to_owned()))??;
        let took_s = outcome.elapsed.as_secs_f64();
        if !outcome.ok() || !place.join("done").exists() || took_s > 12.0 {
            wrong.push(format!("{name}: {} after {took_s:.1} s, {}", outcome.ended, outcome.said()));
        }
        owner(pool, host, &["resume"])?.expect_ok("gleaner resume")?;
    }
    Ok(wrong)
}

/// While it runs, its client can learn why it runs elsewhere now, and what another move would cost.
fn is_explained(pool: &Pool) -> Result<Vec<String>> {
    let tasks = pool.client.json(&["tasks", "--json"])?;
    let running = tasks["tasks"].as_array().into_iter().flatten().find(|task| task["status"] == "running");
    let Some(task) = running.and_then(|task| task["task"].as_str()) else {
        return Ok(vec![format!("it ended too soon to be explained: {tasks}")]);
    };
    let explained = pool.client.json(&["explain", task, "--json"])?;
    let is_told = explained["timeline"].to_string().contains("the machine's owner wants it for himself");
    Ok(if is_told && explained["again_us"].is_u64() { Vec::new() } else { vec![format!("why it moved: {explained}")] })
}

/// The pool knows what each machine expects to give, and tells why a task went where it went.
fn says_what_it_gives(pool: &Pool) -> Result<Vec<String>> {
    let all_said = || {
        let status = pool.owner.json(&["status", "--json"]).ok()?;
        workers_in(&status).iter().all(|worker| worker["expected"]["mean"].is_u64()).then_some(())
    };
    if wait_for(END_BOUND, all_said).is_none() {
        return Ok(vec![format!("no word of what machines give: {}", pool.owner.json(&["status", "--json"])?)]);
    }
    Run::new(pool.client.remrun(&["--no-local", "true"])).within(END_BOUND).run()?.expect_ok("remrun")?;
    let explained = pool.client.json(&["explain", "--json"])?.to_string();
    Ok(if explained.contains("of one expected") {
        Vec::new()
    } else {
        vec![format!("it is not explained: {explained}")]
    })
}
