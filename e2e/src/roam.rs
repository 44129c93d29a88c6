//! Networks as they are: a client that moves to another one in mid-command, a link that is cut for longer than anybody would wait for
//! an answer, and one that lets no UDP pass. Commands that run end as if nothing had happened; new ones do not wait.

use crate::error::{Error, Result};
use crate::pool::{CLIENT, Options, Pool};
use crate::process::{Outcome, Run, pause, wait_for};
use crate::report::Report;
use crate::scenario::{self, Scenario, Work, folder};
use crate::slow::timed;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use testbed::Link;

const SCENARIOS: [Scenario; 3] = [
    ("roam/to another network in mid-command, nobody notices", moves),
    ("roam/a link cut for ten seconds: who runs waits, who comes does not", cut),
    ("roam/no UDP passes, in mid-command and from the start", no_udp),
];
/// Longest that one command may take.
const LIMIT: Duration = Duration::from_secs(60);
/// How long the link is cut: longer than a worker may be silent.
const CUT: Duration = Duration::from_secs(10);
/// A command that comes while the link is cut runs here within this time, whether that is known yet or not.
const HERE_BOUND: Duration = Duration::from_secs(4);
/// A command goes on so soon after the link is back.
const BACK_BOUND: Duration = Duration::from_secs(4);
/// The link that carries no UDP is gone around within this time.
const AROUND_BOUND: Duration = Duration::from_secs(8);
/// Speaks before and after what happens in the meantime, and leaves a file.
const TALKS: &str = "echo one; sleep 2; cat input; echo two; echo three > made";

/// The scenarios whose name contains `filter`.
pub fn works<'a>(options: &Options, filter: &str, report: &'a Report) -> Vec<Work<'a>> {
    let link = Link::preset("lan").expect("it is a preset");
    let far = Options { workers: 0, together: true, link: Some(link), ..options.clone() };
    scenario::works(&SCENARIOS, &far, filter, report)
}

/// A pool that knows `sh`, over cable.
fn over_cable(pool: &Pool, place: &Path) -> Result<()> {
    std::fs::write(place.join("input"), "read late\n")
        .map_err(|source| Error::Io { what: "cannot write a file".to_owned(), source })?;
    timed(pool, place, &["sh", "-c", "cat input"])?;
    pool.relink(Link::preset("cable")?)?;
    timed(pool, place, &["sh", "-c", "cat input"]).map(drop)
}

/// A command that runs meanwhile.
fn start(pool: &Pool, place: &Path, arguments: &[&str]) -> JoinHandle<Result<Outcome>> {
    let mut command = pool.client.remrun(arguments);
    command.current_dir(place);
    std::thread::spawn(move || Run::new(command).within(LIMIT).run())
}

fn end(runner: JoinHandle<Result<Outcome>>) -> Result<Outcome> {
    runner.join().map_err(|_| Error::Product("the runner panicked".to_owned()))?
}

/// What is wrong with the end of [`TALKS`].
fn wrong_with(outcome: &Outcome, place: &Path) -> Vec<String> {
    let made = std::fs::read(place.join("made")).unwrap_or_default();
    let right = outcome.ok() && outcome.stdout == b"one\nread late\ntwo\n" && made == b"three\n";
    if right { Vec::new() } else { vec![format!("{}: {:?}", outcome.ended, outcome.text())] }
}

/// What `gleaner explain` tells of the last command, as one text.
fn explained(pool: &Pool) -> Result<String> {
    Ok(pool.client.json(&["explain", "--json"])?.to_string())
}

fn moves(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "roam")?;
    over_cable(pool, &place)?;
    let runner = start(pool, &place, &["--no-local", "sh", "-c", TALKS]);
    pause(Duration::from_millis(800));
    let started = Instant::now();
    let testbed = pool.testbed.as_mut().ok_or_else(|| Error::Product("the pool has no link".to_owned()))?;
    testbed.readdress(CLIENT).map_err(|error| Error::Missing(error.to_string()))?;
    let outcome = end(runner)?;
    scenario::measured("moved to another network: end of a command of 2 s", started.elapsed());
    let mut wrong = wrong_with(&outcome, &place);
    if outcome.elapsed > Duration::from_secs(4) {
        wrong.push(format!("took {:?}", outcome.elapsed));
    }
    let told = explained(pool)?;
    if !told.contains("this machine's address is") {
        wrong.push(format!("explain does not tell of the move: {told}"));
    }
    Ok(wrong)
}

fn cut(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "roam")?;
    over_cable(pool, &place)?;
    let runner = start(pool, &place, &["--no-local", "sh", "-c", TALKS]);
    pause(Duration::from_millis(800));
    pool.testbed().cut(CLIENT, true);
    let started = Instant::now();
    let mut wrong = Vec::new();
    // The first finds out, the second is told.
    for (which, bound) in [("first", HERE_BOUND), ("second", Duration::from_secs(1))] {
        let here = end(start(pool, &place, &["sh", "-c", "echo here"]))?;
        scenario::measured(&format!("link cut: the {which} new command has run here"), here.elapsed);
        if here.stdout != b"here\n" || here.elapsed > bound {
            wrong.push(format!("a new command: {} after {:?}: {}", here.ended, here.elapsed, here.text()));
        }
    }
    if !explained(pool)?.contains("the link to the hub is down") {
        wrong.push(format!("explain does not say why it ran here: {}", explained(pool)?));
    }
    let waits = start(pool, &place, &["--no-local", "sh", "-c", "echo late"]);
    pause(CUT.saturating_sub(started.elapsed()));
    pool.testbed().cut(CLIENT, false);
    let mended = Instant::now();
    wrong.extend(wrong_with(&end(runner)?, &place));
    let waited = end(waits)?;
    scenario::measured("link mended: both commands have ended", mended.elapsed());
    if !waited.ok() || waited.stdout != b"late\n" || mended.elapsed() > BACK_BOUND {
        wrong.push(format!("{} {:?} after it was mended: {}", waited.ended, mended.elapsed(), waited.said()));
    }
    Ok(wrong)
}

fn carrier(pool: &Pool) -> Result<String> {
    Ok(pool.client.json(&["status", "--json"])?["carrier"].as_str().unwrap_or_default().to_owned())
}

fn no_udp(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "roam")?;
    over_cable(pool, &place)?;
    let of_true = || shortest_true(pool, &place);
    let by_udp = of_true()?;
    let mut wrong = Vec::new();
    if carrier(pool)? != "udp" {
        wrong.push(format!("the link goes over {:?}", carrier(pool)?));
    }
    let runner = start(pool, &place, &["--no-local", "sh", "-c", TALKS]);
    pause(Duration::from_millis(800));
    pool.testbed().block_udp(CLIENT, true);
    let started = Instant::now();
    wrong.extend(wrong_with(&end(runner)?, &place));
    scenario::measured("no UDP any more: end of a command of 2 s", started.elapsed());
    if started.elapsed() > AROUND_BOUND {
        wrong.push(format!("it took {:?} to go around", started.elapsed()));
    }
    let around = wait_for(AROUND_BOUND, || carrier(pool).is_ok_and(|carrier| carrier == "tcp").then_some(()));
    if around.is_none() {
        wrong.push(format!("the link goes over {:?}", carrier(pool)?));
    }
    // The daemon knows that of this network when it starts again.
    pool.stop_client()?;
    let first = timed(pool, &place, &["true"])?;
    let by_tcp = of_true()?;
    scenario::measured("no UDP from the start: the first command", first);
    println!("measured: true over cable: {by_udp:?} by UDP, {by_tcp:?} by TCP");
    if first > Duration::from_secs(4) || by_tcp > by_udp + Duration::from_millis(60) || carrier(pool)? != "tcp" {
        wrong.push(format!("over TCP the first took {first:?}, then {by_tcp:?}, over {:?}", carrier(pool)?));
    }
    Ok(wrong)
}

/// What `true` takes when nothing else of this machine is in its way.
fn shortest_true(pool: &Pool, place: &Path) -> Result<Duration> {
    let times = (0..8).map(|_| timed(pool, place, &["true"])).collect::<Result<Vec<_>>>()?;
    Ok(times.into_iter().min().unwrap_or_default())
}
