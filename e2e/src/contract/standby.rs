//! Two hubs on one journal, in a database: when the one that serves is lost the other one takes over, at another address, and the
//! machines of the pool find it by themselves.

use super::batch::{JOB_BOUND, TASKS, commands, is_over, job, job_once, judge, submit};
use crate::error::{Error, Result};
use crate::pool::{Pool, workers_in};
use crate::process::{Ended, Run, pause, wait_for};
use crate::scenario::{END_BOUND, folder, measured};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// Results that may be between worker and client when the hub is lost: as many as there are CPUs.
const IN_FLIGHT_MAX: usize = 4;
/// How long it may take until all know of the standby.
const TOLD_BOUND: Duration = Duration::from_secs(20);
/// How long after the loss of the hub a further task may be done, told by the other one: the lease of 6 s, with what a task takes.
const TAKEOVER_BOUND: Duration = Duration::from_secs(11);
/// The same where the hub says nothing and is there: its machines wait for it.
const STOPPED_BOUND: Duration = Duration::from_secs(15);

/// Submits the job, starts the standby, and waits until some tasks are done.
fn begin(pool: &mut Pool, place: &Path) -> Result<String> {
    commands(place)?;
    pool.start_standby(TOLD_BOUND)?;
    let id = submit(pool, place, &["commands"])?;
    job_once(pool, &id, |job| job["done"].as_u64() >= Some(3))?;
    Ok(id)
}

fn done(pool: &Pool, id: &str) -> Result<u64> {
    let report = job(pool, id)?;
    report["job"]["done"].as_u64().ok_or_else(|| Error::Product(format!("a job without a count: {report}")))
}

/// Waits until a task is done that was not placed before the loss. `bound` is for the first one that is told, which may have been.
fn goes_on(pool: &Pool, id: &str, bound: Duration, what: &str) -> Result<Vec<String>> {
    let (begun, mut holds, mut told) = (Instant::now(), None, None);
    let before = done(pool, id)?;
    // As many as are placed at a time may have ended before, and only be told now.
    let wanted = before + IN_FLIGHT_MAX as u64 + 1;
    if wanted > TASKS as u64 {
        return Err(Error::Product(format!("{what}: too few of {TASKS} tasks are left to see it go on")));
    }
    let further = wait_for(JOB_BOUND, || {
        if holds.is_none() && pool.standby_holds() {
            holds = Some(begun.elapsed());
        }
        holds?;
        let now = done(pool, id).ok().filter(|now| *now > before)?;
        told.get_or_insert(begun.elapsed());
        (now >= wanted).then_some(())
    });
    let (elapsed, told) = (begun.elapsed(), told.unwrap_or_default());
    if further.is_none() {
        return Err(Error::Product(format!(
            "{what}: no task that was placed there is done within {JOB_BOUND:?}\n{}",
            pool.logs(30)
        )));
    }
    measured(&format!("{what}: the other hub serves"), holds.unwrap_or_default());
    measured(&format!("{what}: the next task is told"), told);
    measured(&format!("{what}: a task that was placed there is done"), elapsed);
    Ok(if told > bound { vec![format!("{what}: it took {told:?}")] } else { Vec::new() })
}

/// How the reason begins of a task whose result is gone.
const GONE: &str = "what it made could not be put into place";

/// What is wrong with the job's end after a takeover. Blocks are not shared between hubs: of what was told to have ended and not taken yet
/// the result may be gone with the first one (decision 27). Such a task has failed, says so, and nothing of it is committed.
fn judge_after(pool: &Pool, place: &Path, id: &str, report: &Value) -> Result<Vec<String>> {
    let tasks = report["tasks"].as_array().cloned().unwrap_or_default();
    let is_gone = |task: &Value| task["why"].as_str().is_some_and(|why| why.starts_with(GONE));
    let gone: Vec<bool> = tasks.iter().map(is_gone).collect();
    let count = gone.iter().filter(|gone| **gone).count();
    if count == 0 {
        return judge(pool, place, id, report);
    }
    println!("known: {count} results of {TASKS} were gone with the hub");
    let mut wrong = Vec::new();
    let job = &report["job"];
    if tasks.len() != TASKS || count > IN_FLIGHT_MAX || job["done"] != TASKS - count || job["failed"] != count {
        wrong.push(format!("the job does not end well: {report}"));
    }
    for (number, gone) in gone.iter().enumerate() {
        let log = std::fs::read_to_string(place.join(format!("log{number}"))).unwrap_or_default();
        if log != if *gone { "" } else { "run\n" } {
            wrong.push(format!("task {number}, gone: {gone}, has committed {log:?}"));
        }
    }
    Ok(wrong)
}

/// A launch is made at the hub that serves now, and all workers are there.
fn serves(pool: &Pool, place: &Path) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let mut command = pool.client.remrun(&["--no-local", "cat", "in"]);
    command.current_dir(place);
    let outcome = Run::new(command).within(END_BOUND).run()?;
    if outcome.ended != Ended::Code(0) || outcome.text() != "input" {
        wrong.push(format!("remrun at the other hub: {}, {:?}, {}", outcome.ended, outcome.text(), outcome.said()));
    }
    let status = pool.client.json(&["status", "--json"])?;
    if workers_in(&status).len() != pool.workers.len() {
        wrong.push(format!("not all workers are at the other hub: {status}"));
    }
    Ok(wrong)
}

/// The hub is killed. The other one has its journal and its key, and is elsewhere.
pub fn killed(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "hub-lost")?;
    let id = begin(pool, &place)?;
    pool.hub.kill();
    let mut wrong = goes_on(pool, &id, TAKEOVER_BOUND, "standby, hub killed")?;
    let report = job_once(pool, &id, is_over)?;
    wrong.extend(judge_after(pool, &place, &id, &report)?);
    wrong.extend(serves(pool, &place)?);
    // The settings name the first hub alone, and the first hub is gone: what was told is known to a new daemon too.
    pool.stop_client()?;
    wrong.extend(serves(pool, &place)?);
    Ok(wrong)
}

/// The hub's process is stopped, and goes on when another hub has taken over.
pub fn stopped(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "hub-stopped")?;
    let id = begin(pool, &place)?;
    pool.hub.signal(Signal::STOP);
    let mut wrong = goes_on(pool, &id, STOPPED_BOUND, "standby, hub stopped")?;
    let database = |pool: &Pool, text: &str| pool.database.as_ref().map_or(Ok(()), |database| database.sql(text));
    database(pool, "CREATE TABLE known AS SELECT first FROM gleaner.batches WHERE epoch = 1")
        .map_err(|error| Error::Missing(error.to_string()))?;
    pool.hub.signal(Signal::CONT);
    let begun = Instant::now();
    let ended = pool.hub.ended(Duration::from_secs(10));
    measured("standby: the hub that woke ends", begun.elapsed());
    let log = std::fs::read_to_string(&pool.hub.log).unwrap_or_default();
    if !matches!(ended, Some(Ended::Code(1..))) || !log.contains("the hub stops: ") {
        wrong.push(format!("the hub that woke: {ended:?}\n{log}"));
    }
    let report = job_once(pool, &id, is_over)?;
    wrong.extend(judge_after(pool, &place, &id, &report)?);
    wrong.extend(serves(pool, &place)?);
    let late = "DO $$ BEGIN IF EXISTS (SELECT first FROM gleaner.batches WHERE epoch = 1 EXCEPT SELECT first FROM known) \
                THEN RAISE EXCEPTION 'late'; END IF; END $$";
    if let Err(error) = database(pool, late) {
        wrong.push(format!("the hub that woke committed something: {error}"));
    }
    Ok(wrong)
}

/// The database is killed and comes back within the lease.
pub fn database_killed(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "database-killed")?;
    commands(&place)?;
    let id = submit(pool, &place, &["commands"])?;
    job_once(pool, &id, |job| job["done"].as_u64() >= Some(3))?;
    for _ in 0..2 {
        let crashed = pool.database.as_ref().map(|database| database.crash());
        crashed.transpose().map_err(|error| Error::Missing(error.to_string()))?;
        pause(Duration::from_millis(500));
    }
    let report = job_once(pool, &id, is_over)?;
    let mut wrong = judge(pool, &place, &id, &report)?;
    pool.hub.check()?;
    wrong.extend(serves(pool, &place)?);
    Ok(wrong)
}
