//! A worker of an ordinary user has one range of user ids for its guests: it takes one client at a time, and says so.

use crate::error::{Error, Result};
use crate::pool::{Pool, workers_in};
use crate::process::{Ended, Outcome, Run, wait_for};
use crate::scenario::{END_BOUND, background};
use serde_json::Value;

/// What the hub's owner is told of the worker `name`.
fn told(pool: &Pool, name: &str) -> Option<Value> {
    let status = pool.owner.json(&["status", "--json"]).ok()?;
    workers_in(&status).iter().find(|worker| worker["name"] == name).copied().cloned()
}

/// What a command of the second client prints.
fn other(pool: &Pool, options: &[&str]) -> Result<Outcome> {
    let client = pool.nobody.as_ref().ok_or_else(|| Error::Product("the pool has no second client".into()))?;
    Run::new(client.remrun(&[options, &["id", "-u"]].concat())).within(END_BOUND).run()
}

/// While one has a task there, another one runs here, or is told why not; then it is taken.
pub fn one_client(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let token = pool.token("worker")?;
    let index = pool.add_unprivileged_worker(&token)?;
    let name = pool.workers[index].name.clone();
    let state = || told(pool, &name).and_then(|worker| worker["state"].as_str().map(str::to_owned));
    if wait_for(END_BOUND, || state().filter(|state| state == "ready, one client at a time")).is_none() {
        wrong.push(format!("its state: {:?}\n{}", state(), pool.logs(5)));
        return Ok(wrong);
    }
    for worker in pool.workers.iter().filter(|worker| worker.name != name) {
        pool.owner.gleaner(&["drain", &worker.name])?.expect_ok("gleaner drain")?;
    }
    let mut child = background(pool, "first", "sleep 6; echo done > done")?;
    if wait_for(END_BOUND, || told(pool, &name).filter(|worker| worker["busy"] == 1)).is_none() {
        wrong.push("the first client's task does not begin there".to_owned());
    }
    let refused = other(pool, &["--no-local"])?;
    if refused.ok() || !refused.said().contains("takes one client at a time") {
        wrong.push(format!("the second one meanwhile: {}, {}", refused.ended, refused.said()));
    }
    let here = other(pool, &[])?;
    if !here.ok() || here.text() != "65534" {
        wrong.push(format!("the second one runs here: {}, {}", here.ended, here.said()));
    }
    let ended = wait_for(END_BOUND, || child.try_wait().ok().flatten()).map(Ended::from);
    if ended != Some(Ended::Code(0)) || !pool.place("first/done").exists() {
        wrong.push(format!("the first one's task: {ended:?}"));
    }
    let _ = child.kill();
    let _ = child.wait();
    let then = wait_for(END_BOUND, || other(pool, &["--no-local"]).ok().filter(Outcome::ok));
    if then.as_ref().is_none_or(|then| then.text() != "65534") {
        wrong.push(format!("the second one then: {:?}", then.map(|then| then.said())));
    }
    for worker in pool.workers.iter().filter(|worker| worker.name != name) {
        pool.owner.gleaner(&["drain", &worker.name, "--undo"])?.expect_ok("gleaner drain --undo")?;
    }
    Ok(wrong)
}
