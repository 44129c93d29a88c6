//! Machines that are shut out while they are connected.

use crate::error::Result;
use crate::pool::{Pool, workers_in};
use crate::process::{Ended, Run, wait_for};
use crate::scenario::{END_BOUND, GUEST_BOUND, background, descendants, guests};
use rustix::process::Signal;
use std::time::Duration;

/// The bound within which a revoked machine is cut off.
const CUT_OFF_BOUND: Duration = Duration::from_secs(1);

/// The worker that runs a guest with this word among its arguments.
fn worker_of(pool: &Pool, word: &str) -> Option<usize> {
    let line = |pid: i32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let has = |pid: i32| descendants(pid).into_iter().any(|pid| String::from_utf8_lossy(&line(pid)).contains(word));
    pool.workers.iter().position(|worker| has(worker.pid().as_raw_nonzero().get()))
}

/// A worker is shut out in the middle of a command.
pub fn worker(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let mut child = background(pool, "revoked", "sleep 3.07; echo done > done")?;
    let Some(index) = wait_for(END_BOUND, || worker_of(pool, "3.07")) else {
        let _ = child.kill();
        let _ = child.wait();
        return Ok(vec!["the guest never began".to_owned()]);
    };
    let name = pool.workers[index].name.clone();
    pool.owner.gleaner(&["revoke", &name])?.expect_ok("gleaner revoke")?;
    let gone = wait_for(CUT_OFF_BOUND, || {
        let status = pool.owner.json(&["status", "--json"]).ok()?;
        (!workers_in(&status).iter().any(|worker| worker["name"] == name.as_str())).then_some(())
    });
    if gone.is_none() {
        wrong.push(format!("{name} is in the pool {CUT_OFF_BOUND:?} after it was revoked"));
    }
    if wait_for(GUEST_BOUND, || (worker_of(pool, "3.07") != Some(index)).then_some(())).is_none() {
        wrong.push(format!("{name} still runs a task {GUEST_BOUND:?} after it was revoked"));
    }
    let ended = wait_for(END_BOUND, || child.try_wait().ok().flatten()).map(Ended::from);
    if ended != Some(Ended::Code(0)) || !pool.place("revoked/done").exists() {
        wrong.push(format!("the command that it had ended with {ended:?}, although there is another worker"));
    }
    // It is started again, and asks to be let in.
    pool.workers[index].kill();
    let address = pool.hub_address()?;
    pool.redirect_worker(index, &address)?;
    let refused = wait_for(END_BOUND, || pool.workers[index].check().err());
    match refused {
        Some(error) if error.to_string().contains("revoked") => {}
        other => wrong.push(format!("it does not say that it was revoked: {other:?}")),
    }
    for _ in 0..4 {
        let outcome = Run::new(pool.client.remrun(&["--no-local", "true"])).within(END_BOUND).run()?;
        if !outcome.ok() || pool.client.json(&["explain", "--json"])?["worker"] == name.as_str() {
            wrong.push(format!("a command afterwards: {}, {}", outcome.ended, outcome.said()));
        }
    }
    Ok(wrong)
}

/// A worker is to take no more tasks, while it has one.
pub fn drained(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let mut child = background(pool, "drained", "sleep 2.07; echo done > done")?;
    let index = wait_for(END_BOUND, || worker_of(pool, "2.07"));
    let name = pool.workers[index.unwrap_or_default()].name.clone();
    let said = pool.owner.json(&["drain", &name, "--json"])?;
    if index.is_none() || said["busy"].as_u64() == Some(0) || said["takes_tasks"] != false {
        wrong.push(format!("while it has a task: {said}"));
    }
    let state = |pool: &Pool| {
        let status = pool.owner.json(&["status", "--json"])?;
        let state = workers_in(&status)
            .iter()
            .find(|worker| worker["name"] == name.as_str())
            .map(|worker| worker["state"].clone());
        Ok::<_, crate::error::Error>(state.unwrap_or_default())
    };
    // It comes back drained, too.
    for is_again in [false, true] {
        for _ in 0..4 {
            let outcome = Run::new(pool.client.remrun(&["--no-local", "true"])).within(END_BOUND).run()?;
            if !outcome.ok() || pool.client.json(&["explain", "--json"])?["worker"] == name.as_str() {
                wrong.push(format!("a command meanwhile (again: {is_again}): {}, {}", outcome.ended, outcome.said()));
            }
        }
        if state(pool)? != "drained" {
            wrong.push(format!("its state: {}", state(pool)?));
        }
        if !is_again {
            let ended = wait_for(END_BOUND, || child.try_wait().ok().flatten()).map(Ended::from);
            if ended != Some(Ended::Code(0)) || !pool.place("drained/done").exists() {
                wrong.push(format!("the command that it had ended with {ended:?}"));
            }
            let address = pool.hub_address()?;
            pool.workers[index.unwrap_or_default()].kill();
            // What is found afterwards is to be of the new one.
            if wait_for(END_BOUND, || state(pool).ok()?.is_null().then_some(())).is_none() {
                wrong.push(format!("it was killed, and its state is {} after {END_BOUND:?}", state(pool)?));
            }
            pool.redirect_worker(index.unwrap_or_default(), &address)?;
            wait_for(END_BOUND, || (state(pool).ok()? == "drained").then_some(()));
        }
    }
    pool.owner.gleaner(&["drain", &name, "--undo"])?.expect_ok("gleaner drain --undo")?;
    if state(pool)? != "ready" {
        wrong.push(format!("its state after all: {}", state(pool)?));
    }
    let refused = pool.client.gleaner(&["drain", &name])?;
    if refused.ok() || !refused.said().contains("owner") {
        wrong.push(format!("who is not the hub's owner may drain: {}", refused.said()));
    }
    Ok(wrong)
}

/// A client is shut out while a command of its runs.
pub fn client(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let mut child = background(pool, "revoked", "sleep 3.08; echo done > done")?;
    if wait_for(END_BOUND, || (guests(pool, "3.08") > 0).then_some(())).is_none() {
        wrong.push("the guest never began".to_owned());
    }
    let key = pool.keys_of("client")?.pop().unwrap_or_default();
    pool.owner.gleaner(&["revoke", &key[..key.len().min(8)]])?.expect_ok("gleaner revoke")?;
    if wait_for(GUEST_BOUND, || (guests(pool, "3.08") == 0).then_some(())).is_none() {
        wrong.push(format!("its guest still runs {GUEST_BOUND:?} after it was revoked"));
    }
    let ended = wait_for(END_BOUND, || child.try_wait().ok().flatten()).map(Ended::from);
    if ended == Some(Ended::Code(0)) || ended.is_none() || pool.place("revoked/done").exists() {
        let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::KILL);
        wrong.push(format!("its command ended with {ended:?}"));
    }
    let _ = child.wait();
    let outcome = Run::new(pool.client.remrun(&["--no-local", "true"])).within(END_BOUND).run()?;
    if outcome.ok() || !outcome.said().contains("revoked") {
        wrong.push(format!("a command afterwards: {}, {}", outcome.ended, outcome.said()));
    }
    let outcome = Run::new(pool.client.remrun(&["echo", "here"])).within(END_BOUND).run()?;
    if outcome.text() != "here" {
        wrong.push(format!("a command that may run here: {}, {}", outcome.ended, outcome.said()));
    }
    let status = pool.client.json(&["status", "--json"])?;
    if !status["problem"].as_str().is_some_and(|problem| problem.contains("revoked")) {
        wrong.push(format!("status does not tell: {status}"));
    }
    if !Run::new(pool.owner.remrun(&["--no-local", "true"])).within(END_BOUND).run()?.ok() {
        wrong.push("another client is not served any more".to_owned());
    }
    Ok(wrong)
}
