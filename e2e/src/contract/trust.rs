//! Machines that join wait for approval, and get what their class allows.

use crate::error::Result;
use crate::pool::{Pool, workers_in};
use crate::process::{Run, wait_for};
use crate::scenario::END_BOUND;

/// A variable that looks secret.
const SECRET: &str = "GLEANER_TEST_API_TOKEN";

/// What `status` says of the worker `name`, under `what`.
fn said(pool: &Pool, name: &str, what: &str) -> Option<String> {
    let status = pool.owner.json(&["status", "--json"]).ok()?;
    let workers = workers_in(&status);
    let worker = workers.iter().find(|worker| worker["name"] == name)?;
    worker[what].as_str().map(str::to_owned)
}

/// Runs a command that prints the variable; where it ran, and what it printed.
fn print_secret(pool: &Pool) -> Result<(String, String)> {
    let mut command = pool.client.remrun(&["--no-local", "sh", "-c", &format!("echo ${{{SECRET}-none}}; sleep 0.2")]);
    command.env(SECRET, "s3cr3t");
    let outcome = Run::new(command).within(END_BOUND).run()?.expect_ok("printing a variable")?;
    let report = pool.client.json(&["explain", "--json"])?;
    Ok((report["worker"].as_str().unwrap_or_default().to_owned(), outcome.text().trim().to_owned()))
}

/// A worker joins by a token that has it wait.
pub fn approved(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let token = pool.owner.gleaner(&["token", "--role", "worker", "--wait"])?.expect_ok("gleaner token")?;
    let index = pool.add_worker(token.text().trim())?;
    let name = pool.workers[index].name.clone();
    if wait_for(END_BOUND, || (said(pool, &name, "state")? == "waiting for approval").then_some(())).is_none() {
        wrong.push(format!("its state: {:?}", said(pool, &name, "state")));
    }
    for _ in 0..6 {
        let (worker, printed) = print_secret(pool)?;
        if worker == name || printed != "s3cr3t" {
            wrong.push(format!("before it is approved: {printed:?} on {worker}"));
        }
    }
    pool.owner.gleaner(&["approve", &name, "--trust", "site"])?.expect_ok("gleaner approve")?;
    if said(pool, &name, "trust").as_deref() != Some("site") || said(pool, &name, "state").as_deref() != Some("ready") {
        wrong.push(format!("approved, it is {:?}, {:?}", said(pool, &name, "trust"), said(pool, &name, "state")));
    }
    // The others get nothing, so that it does.
    for other in pool.workers.iter().filter(|worker| worker.name != name) {
        pool.owner.gleaner(&["drain", &other.name])?.expect_ok("gleaner drain")?;
    }
    let on_site = wait_for(END_BOUND, || print_secret(pool).ok().filter(|(worker, _)| *worker == name));
    match on_site {
        Some((_, printed)) if printed == "none" => {}
        other => wrong.push(format!("a variable that looks secret, on a machine of the site: {other:?}")),
    }
    let log = pool.owner.json(&["audit", "--json"])?["entries"].to_string();
    let lacks: Vec<_> = ["token", "joined", "approved", "launch"]
        .into_iter()
        .filter(|what| !log.contains(&format!("\"what\":\"{what}\"")))
        .collect();
    if !lacks.is_empty() || log.contains("s3cr3t") {
        wrong.push(format!("the audit log lacks {lacks:?}: {log}"));
    }
    if pool.client.gleaner(&["audit"])?.ok() {
        wrong.push("somebody who is not the owner reads the audit log".to_owned());
    }
    for worker in &pool.workers {
        pool.owner.gleaner(&["drain", &worker.name, "--undo"])?.expect_ok("gleaner drain --undo")?;
    }
    pool.owner.gleaner(&["revoke", &name])?.expect_ok("gleaner revoke")?;
    Ok(wrong)
}
