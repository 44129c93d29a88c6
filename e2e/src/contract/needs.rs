//! What commands ask of a worker: tags and memory. Each worker of a pool has its name as a tag.

use super::batch::{command, is_over, job_once, submit};
use crate::error::Result;
use crate::pool::Pool;
use crate::process::{Ended, Run, pause};
use crate::scenario::{END_BOUND, folder};
use std::time::Duration;

/// They go where that is, are refused where nobody has it, and a batch job still asks for it after its hub was killed.
pub fn met(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "needs")?;
    let mut wrong = Vec::new();
    let remrun = |arguments: &[&str]| {
        let mut asks = pool.client.remrun(arguments);
        asks.current_dir(&place);
        Run::new(asks).within(END_BOUND).run()
    };
    for (number, worker) in ["worker1", "worker0", "worker1", "worker0"].into_iter().enumerate() {
        let file = format!("made{number}");
        let outcome = remrun(&["-v", "--tag", worker, "--memory", "1G", "touch", &file])?;
        if !outcome.ok() || !outcome.said().contains(worker) || !place.join(&file).exists() {
            wrong.push(format!("it runs on {worker}: {} {}", outcome.ended, outcome.said()));
        }
    }
    let none = [
        (vec!["--tag", "none"], "no worker has the tag `none`"),
        (vec!["--tag", "worker0", "--tag", "worker1"], "no host that has joined can do it"),
        (vec!["--no-local", "--memory", "900T"], "of memory asked, but no worker lends more than"),
    ];
    for (asked, why) in none {
        let outcome = remrun(&[&asked[..], &["touch", "nowhere"]].concat())?;
        if outcome.ended != Ended::Code(125) || !outcome.said().contains(why) || place.join("nowhere").exists() {
            wrong.push(format!("{asked:?} is refused, and does not run here: {} {}", outcome.ended, outcome.said()));
        }
    }
    let refused = Run::new(command(pool, &place, &["submit", "--tag", "none", "--", "touch", "nowhere"]));
    let refused = refused.within(END_BOUND).run()?;
    if refused.ended != Ended::Code(2) || !refused.said().contains("no worker has the tag `none`") {
        wrong.push(format!("a job is refused that no worker can have: {} {}", refused.ended, refused.said()));
    }
    let numbers = ["--", "touch", ":::", "0", "1", "2", "3"];
    let job = submit(pool, &place, &[&["--hold", "--tag", "worker1"], &numbers[..]].concat())?;
    pool.hub.kill();
    pool.workers[1].kill();
    pause(Duration::from_millis(300));
    pool.restart_hub()?;
    pool.wait_for_workers(1)?;
    Run::new(command(pool, &place, &["release", &job])).within(END_BOUND).run()?.expect_ok("gleaner release")?;
    // The worker that it needs is the last to come back.
    pause(Duration::from_secs(1));
    pool.restart_worker(1)?;
    let report = job_once(pool, &job, is_over)?;
    let tasks = report["tasks"].as_array().cloned().unwrap_or_default();
    if tasks.len() != 4 || tasks.iter().any(|task| task["status"] != "exit 0" || task["worker"] != "worker1") {
        wrong.push(format!("a job's tasks go to the tagged worker, also with the next hub: {report}"));
    }
    Ok(wrong)
}
