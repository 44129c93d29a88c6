//! A hub that works for another: what its workers read crosses the link between the two once, and its tasks are run elsewhere
//! when it dies.

use crate::error::{Context, Error, Result};
use crate::pool::{BRANCH, Options, Pool};
use crate::process::{Run, pause, wait_for};
use crate::report::Report;
use crate::scenario::{self, COMMAND, END_BOUND, Scenario, Work, folder};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use testbed::Link;

const SCENARIOS: [Scenario; 1] = [("hubs/a branch reads once, and is not needed", branch)];
/// Workers of the branch.
const WORKERS: usize = 2;
/// Bytes of the file that all tasks read.
const INPUT: usize = 2_000_000;
/// Bytes that may cross the link beside them: launches, names, acknowledgements.
const BESIDE: u64 = 300_000;

/// The scenarios whose name contains `filter`.
pub fn works<'a>(options: &Options, filter: &str, report: &'a Report) -> Vec<Work<'a>> {
    let link = Link::preset("lan").expect("it is a preset");
    scenario::works(&SCENARIOS, &Options { workers: 1, link: Some(link), ..options.clone() }, filter, report)
}

fn branch(pool: &mut Pool) -> Result<Vec<String>> {
    pool.add_branch(WORKERS)?;
    let place = folder(pool, "hubs")?;
    let mut wrong = reads_once(pool, &place)?;
    wrong.extend(batch(pool, &place)?);
    wrong.extend(killed(pool, &place)?);
    Ok(wrong)
}

fn reads_once(pool: &mut Pool, place: &Path) -> Result<Vec<String>> {
    let write =
        |bytes: Vec<u8>| std::fs::write(place.join("in"), bytes).context(|| "cannot write the input".to_owned());
    write(vec![1; 100])?;
    job(pool, place)?;
    pool.testbed().set_link(BRANCH, Link::preset("cable")?);
    // No two blocks of it are alike.
    let mut state = 1u64;
    let bytes = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    });
    write(bytes.take(INPUT).collect())?;
    let before = pool.testbed().traffic(BRANCH);
    job(pool, place)?;
    // The last acknowledgements are on their way yet.
    pause(Duration::from_millis(300));
    let passed = pool.testbed().traffic(BRANCH).since(&before);
    println!("measured: {INPUT} bytes read by tasks of a branch: {} bytes to it", passed.bytes_down);
    let mut wrong = Vec::new();
    if !(INPUT as u64..INPUT as u64 + BESIDE).contains(&passed.bytes_down) {
        wrong.push(format!("{INPUT} bytes did not cross the link once: {passed:?}"));
    }
    let tasks = pool.client.json(&["tasks", "--json"])?;
    let tasks = tasks["tasks"].as_array().map_or(&[][..], Vec::as_slice);
    let used: BTreeSet<&str> = tasks.iter().filter_map(|task| task["worker"].as_str()).collect();
    for worker in (0..WORKERS).map(|number| format!("branch/branch-worker{number}")) {
        if !used.contains(worker.as_str()) {
            wrong.push(format!("{worker} had no task: {used:?}"));
        }
    }
    Ok(wrong)
}

/// More tasks of a batch job than the pool's own worker takes: those of the branch count as well.
fn batch(pool: &Pool, place: &Path) -> Result<Vec<String>> {
    let lines: String = (0..8).map(|number| format!("sleep 0.5; echo {number} > batch{number}\n")).collect();
    std::fs::write(place.join("commands"), lines).context(|| "cannot write the commands".to_owned())?;
    let mut command = Command::new(pool.client.gleaner.clone().unwrap_or_else(|| "gleaner".into()));
    command.args(["submit", "--wait", "commands"]);
    pool.client.dress(&mut command);
    command.current_dir(place);
    let outcome = Run::new(command).within(END_BOUND * 2).run()?;
    let is_there = |number: &i32| {
        std::fs::read_to_string(place.join(format!("batch{number}"))).unwrap_or_default() == format!("{number}\n")
    };
    let missing: Vec<i32> = (0..8).filter(|number| !is_there(number)).collect();
    let jobs = pool.client.json(&["tasks", "--json"])?;
    Ok((!outcome.ok() || !missing.is_empty())
        .then(|| {
            format!("a batch job over a branch: {} {}, missing {missing:?}: {jobs}", outcome.ended, outcome.said())
        })
        .into_iter()
        .collect())
}

/// As many tasks as fill the pool, all of which read the input.
fn job(pool: &Pool, place: &Path) -> Result<()> {
    let mut command = Command::new(pool.client.gleaner.clone().unwrap_or_else(|| "gleaner".into()));
    command.args(["run", "--no-local", "-j8", "sh", "-c", "cksum in; sleep 1", ":::"]);
    command.args((0..8).map(|number| number.to_string()));
    pool.client.dress(&mut command);
    command.current_dir(place);
    Run::new(command).within(END_BOUND).run()?.expect_ok("the job").map(drop)
}

/// The branch's hub dies while a task runs behind it: the task is run by the pool's own worker, which took none when it was launched.
fn killed(pool: &mut Pool, place: &Path) -> Result<Vec<String>> {
    pool.owner.gleaner(&["drain", "worker0"])?.expect_ok("gleaner drain")?;
    let mut command = pool.client.remrun(&["--no-local", "sh", "-c", COMMAND]);
    command.current_dir(place);
    let runner = std::thread::spawn(move || Run::new(command).within(END_BOUND * 2).run());
    let worker = wait_for(END_BOUND, || runs_at(pool).ok().flatten().filter(|name| name.starts_with("branch/")));
    pool.owner.gleaner(&["drain", "worker0", "--undo"])?.expect_ok("gleaner drain --undo")?;
    pool.branch.iter_mut().for_each(|branch| branch.hub.kill());
    let outcome = runner.join().map_err(|_| Error::Product("the runner panicked".to_owned()))??;
    scenario::measured("a branch's hub killed: end of the command", outcome.elapsed);
    let mut wrong = scenario::judge(&outcome, place, false);
    if worker.is_none() {
        wrong.push("it did not run at a worker of the branch".to_owned());
    }
    let told = pool.client.json(&["explain", "--json"])?;
    if told["worker"] != "worker0" || !told.to_string().contains("attempt 1 came to nothing") {
        wrong.push(format!("it was not lost at the branch and run at the pool's own worker: {told}"));
    }
    Ok(wrong)
}

/// Where the client's command runs, once that is known.
fn runs_at(pool: &Pool) -> Result<Option<String>> {
    let tasks = pool.client.json(&["tasks", "--json"])?;
    let running = tasks["tasks"].as_array().into_iter().flatten().find(|task| task["status"] == "running");
    Ok(running.and_then(|task| task["worker"].as_str()).map(str::to_owned))
}
