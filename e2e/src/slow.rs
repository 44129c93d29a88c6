//! Commands over a slow link: how many round trips they cost, how many bytes, and that loss and cuts change nothing but the time.
//!
//! The pool is warmed up over a fast link, and gets the slow one then; the client connects anew.

use crate::bench::samples::median;
use crate::error::{Context, Error, Result};
use crate::pool::{CLIENT, Options, Pool};
use crate::process::{Outcome, Run, pause, wait_for};
use crate::report::Report;
use crate::scenario::{self, Scenario, Work, folder, measured};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use testbed::{Link, Traffic};

/// Those that compare times, or count what goes over the link: on a busy machine some of it goes twice.
const MEASURED: [Scenario; 7] = [
    ("slow/a launch costs one round trip", one_round_trip),
    ("slow/of an edited file goes what was edited", edits),
    ("slow/a job is one flight, and its tasks are parameters", jobs),
    ("slow/tasks start before their input is there, which comes once", early),
    ("slow/results of a job come by the order of its tasks", order),
    ("slow/what is quicker here runs here", never_slower),
    ("slow/of a race one result is committed", race),
];
/// Those that do not.
const DISTURBED: [Scenario; 2] = [
    ("slow/5% loss changes nothing but the time", loss),
    ("slow/loss and a cut in mid-job change nothing but the time", disturbed),
];
const SAME_DISTRIBUTION: Scenario = ("slow/what the hub's distribution has is named, not sent", same_distribution);
/// Longest that one command may take.
const LIMIT: Duration = Duration::from_secs(300);
/// Bytes that `true` may cost, in all.
const TRUE_BYTES: u64 = 1_400;
/// Bytes that a further task of a job may cost, up and down, with headers and acknowledgements.
const TASK_BYTES: u64 = 1_400;
/// Bytes up of the first `gcc -c` of all, where the hub has the same compiler.
const NAMES_BYTES: u64 = 200_000;
/// Bytes up of the first command of a daemon that starts anew: what the paths are, and no contents.
const ANEW_BYTES: u64 = 40_000;
/// Round trips that a launch may cost, by the slope of time over delay: one, and what a busy machine adds. `bench slow-link` tells it
/// to the hundredth.
const ROUND_TRIPS: f64 = 1.3;
/// How explanations call the begin and the end of the command itself.
pub const STARTED: &str = "worker: program started";
/// See [`STARTED`].
pub const ENDED: &str = "worker: process ended";
/// Launches by which that is told.
const LAUNCHES: usize = 16;

/// The scenarios whose name contains `filter`, that may run beside others.
pub fn works<'a>(options: &Options, filter: &str, report: &'a Report) -> Vec<Work<'a>> {
    scenario::works(&DISTURBED, &far(options), filter, report)
}

/// Runs the others.
pub fn run(options: &Options, filter: &str, report: &Report) {
    let far = far(options);
    scenario::run(&MEASURED, &far, filter, report);
    // A hub apart from its workers has this machine's files; only the workers' roots are empty.
    let alike = Options { workers: 1, together: false, ..far };
    scenario::run(&[SAME_DISTRIBUTION], &alike, filter, report);
}

/// A pool in one process, over a link.
fn far(options: &Options) -> Options {
    let link = Link::preset("lan").expect("it is a preset");
    // Where a command runs is what some of them try.
    Options { workers: 0, together: true, link: Some(link), prefers_pool: false, ..options.clone() }
}

/// A C project of one file at the client, compiled by the far pool.
pub struct Project {
    place: PathBuf,
    edits: usize,
}

impl Project {
    /// Made in `place`, and compiled once, over a link that takes no time: what a compiler needs is at the far side then.
    pub fn new(pool: &Pool, place: PathBuf) -> Result<Self> {
        let mut project = Self::fresh(place);
        project.edit()?;
        project.compile(pool)?;
        Ok(project)
    }

    /// To be made in `place` by the first edit.
    pub fn fresh(place: PathBuf) -> Self {
        Self { place, edits: 0 }
    }

    /// Changes a line of the file.
    pub fn edit(&mut self) -> Result<()> {
        self.edits += 1;
        let functions = (0..200).map(|at| {
            let number = if at == 77 { self.edits * 31 } else { at * at };
            format!("int function{at}(int x) {{\n    return x * {at} + {number} - (x >> {});\n}}\n\n", at % 13)
        });
        let text: String =
            std::iter::once("#include <stdio.h>\n#include <stdlib.h>\n\n".to_owned()).chain(functions).collect();
        let file = self.place.join("edited.c");
        std::fs::write(&file, text)
            .map_err(|source| Error::Io { what: format!("cannot write {}", file.display()), source })
    }

    /// Compiles it, and returns how long that took.
    pub fn compile(&self, pool: &Pool) -> Result<Duration> {
        timed(pool, &self.place, &["gcc", "-O1", "-c", "edited.c"])
    }
}

/// How long a command takes in `place`, and only there.
pub fn timed(pool: &Pool, place: &Path, arguments: &[&str]) -> Result<Duration> {
    let mut command = pool.client.remrun(&[&["--no-local"], arguments].concat());
    command.current_dir(place);
    let started = Instant::now();
    let outcome = Run::new(command).within(LIMIT).run()?.expect_ok(&arguments.join(" "))?;
    drop(outcome);
    Ok(started.elapsed())
}

/// What passes the client's link while something is done.
pub fn traffic_of<T>(pool: &Pool, what: impl FnOnce() -> Result<T>) -> Result<(T, Traffic)> {
    let before = pool.testbed().traffic(CLIENT);
    let result = what()?;
    // The last acknowledgements are on their way yet.
    pause(Duration::from_millis(300));
    Ok((result, pool.testbed().traffic(CLIENT).since(&before)))
}

/// How many round trips something costs: by how much longer it takes when the way gets longer. It is done `times` times in all, on
/// the short way and the long one in turns: the machine's speed drifts.
pub fn round_trips(pool: &Pool, link: Link, times: usize, mut what: impl FnMut() -> Result<Duration>) -> Result<f64> {
    const TURNS: usize = 2;
    let delays = [Duration::from_millis(20), Duration::from_millis(140)];
    let mut took = [Vec::new(), Vec::new()];
    for _ in 0..TURNS {
        for (delay, took) in delays.iter().zip(&mut took) {
            pool.testbed().set_link(CLIENT, link.with_round_trip(*delay));
            what()?;
            for _ in 0..times / TURNS / delays.len() {
                took.push(what()?.as_secs_f64());
            }
        }
    }
    let [short, long] = took.map(|took| median(took).unwrap_or_default());
    Ok((long - short) / (delays[1] - delays[0]).as_secs_f64())
}

/// What is measured, again if it is above the bound: other work on this machine only adds.
fn least(mut measure: impl FnMut() -> Result<f64>) -> Result<f64> {
    const TIMES: usize = 3;
    let mut least = measure()?;
    for _ in 1..TIMES {
        if least > ROUND_TRIPS {
            least = least.min(measure()?);
        }
    }
    Ok(least)
}

fn one_round_trip(pool: &mut Pool) -> Result<Vec<String>> {
    let cable = Link::preset("cable")?;
    let place = folder(pool, "slow")?;
    let mut project = Project::new(pool, place.clone())?;
    timed(pool, &place, &["true"])?;
    pool.relink(cable)?;
    let mut wrong = Vec::new();
    (0..3).try_for_each(|_| timed(pool, &place, &["true"]).map(drop))?;
    // A fresh connection compares clocks often.
    pause(Duration::from_secs(3));
    // The median: what else the connection says now and then is no part of it.
    let measure = |_| traffic_of(pool, || timed(pool, &place, &["true"]));
    let mut runs = (0..3).map(measure).collect::<Result<Vec<_>>>()?;
    let bytes = |passed: &Traffic| passed.bytes_up + passed.bytes_down;
    runs.sort_by_key(|(_, passed)| bytes(passed));
    let (took, passed) = runs[1];
    measured("true over cable", took);
    if bytes(&passed) > TRUE_BYTES {
        wrong.push(format!("`true` cost {} bytes up and {} down", passed.bytes_up, passed.bytes_down));
    }
    let of_true = least(|| round_trips(pool, cable, LAUNCHES, || timed(pool, &place, &["true"])))?;
    let of_compiling = least(|| {
        round_trips(pool, cable, LAUNCHES, || {
            project.edit()?;
            project.compile(pool)
        })
    })?;
    println!("measured: true {of_true:.2} round trips, an edited file compiled {of_compiling:.2}");
    for (what, count) in [("true", of_true), ("an edited file compiled", of_compiling)] {
        if count > ROUND_TRIPS {
            wrong.push(format!("{what}: {count:.2} round trips"));
        }
    }
    Ok(wrong)
}

fn edits(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "slow")?;
    let mut project = Project::new(pool, place)?;
    pool.relink(Link::preset("cable")?)?;
    (0..3).try_for_each(|_| {
        project.edit()?;
        project.compile(pool).map(drop)
    })?;
    // A fresh connection compares clocks often, and feels for the widest packet.
    pause(Duration::from_secs(3));
    project.edit()?;
    let (took, passed) = traffic_of(pool, || project.compile(pool))?;
    measured("an edited file compiled over cable", took);
    println!("measured: {} bytes up, {} down", passed.bytes_up, passed.bytes_down);
    // The file has 15 KB, and its object file 30.
    let mut wrong = anew(pool, &project)?;
    if passed.bytes_up > 2_500 || passed.bytes_down > 20_000 {
        wrong.push(format!("{passed:?}"));
    }
    Ok(wrong)
}

/// What a daemon that starts anew sends for the first command; the median of some, for a busy machine sends some of it twice.
fn anew(pool: &Pool, project: &Project) -> Result<Vec<String>> {
    let once = |_| {
        pool.stop_client()?;
        Ok(traffic_of(pool, || project.compile(pool))?.1.bytes_up)
    };
    let mut runs = (0..3).map(once).collect::<Result<Vec<u64>>>()?;
    runs.sort_unstable();
    let bytes = runs[1];
    println!("measured: first gcc of a daemon started anew: {bytes} bytes up");
    Ok(if bytes < ANEW_BYTES { Vec::new() } else { vec![format!("started anew: {bytes} bytes up")] })
}

/// The first use of a compiler, by a client and a pool that know nothing.
fn same_distribution(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "slow")?;
    pool.relink(Link::preset("cable")?)?;
    let mut project = Project::fresh(place.clone());
    project.edit()?;
    let (took, passed) = traffic_of(pool, || project.compile(pool))?;
    measured("the first gcc of all, over cable from a hub with the same distribution", took);
    println!("measured: {} bytes up, {} down", passed.bytes_up, passed.bytes_down);
    let mut wrong = same_object(&place);
    if passed.bytes_up > NAMES_BYTES {
        wrong.push(format!("{passed:?}"));
    }
    Ok(wrong)
}

/// What is wrong with the object file in `place`: nothing, if the compiler here makes the same.
fn same_object(place: &Path) -> Vec<String> {
    let read = || std::fs::read(place.join("edited.o")).unwrap_or_default();
    let far = read();
    let here = Command::new("gcc").args(["-O1", "-c", "edited.c"]).current_dir(place).status();
    let is_same = here.is_ok_and(|status| status.success()) && !far.is_empty() && far == read();
    if is_same { Vec::new() } else { vec!["an object file differs".to_owned()] }
}

/// Runs a job of so many tasks at once: these words, and a task's number behind them.
fn run_job(pool: &Pool, place: &Path, words: &[&str], tasks: usize) -> Result<Outcome> {
    let mut command = Command::new(pool.client.gleaner.clone().unwrap_or_else(|| "gleaner".into()));
    command.args(["run", "--no-local", "-j64"]).args(words).arg(":::");
    command.args((1..=tasks).map(|number| number.to_string()));
    pool.client.dress(&mut command);
    command.current_dir(place);
    Run::new(command).within(LIMIT).run()?.expect_ok("the job")
}

/// What a job of many tasks costs beside what a job of few costs; and how long it takes.
fn jobs(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "slow")?;
    let cable = Link::preset("cable")?;
    std::fs::write(place.join("in"), "input\n").map_err(|error| Error::Product(error.to_string()))?;
    let job = |pool: &Pool, tasks| Ok(run_job(pool, &place, &["sh", "-c", "cat in"], tasks)?.elapsed);
    job(pool, 2)?;
    pool.relink(cable)?;
    job(pool, 2)?;
    let (_, few) = traffic_of(pool, || job(pool, 2))?;
    let (took, many) = traffic_of(pool, || job(pool, 22))?;
    let each = |few: u64, many: u64| many.saturating_sub(few) / 20;
    let (up, down) = (each(few.bytes_up, many.bytes_up), each(few.bytes_down, many.bytes_down));
    measured("a job of 22 tasks over cable", took);
    println!(
        "measured: a job of 2 tasks {} bytes up, {} down; each further task {up} up, {down} down",
        few.bytes_up, few.bytes_down
    );
    Ok(if up + down <= TASK_BYTES { Vec::new() } else { vec![format!("a task costs {up} bytes up, {down} down")] })
}

/// A file that cannot be compressed, and has nothing in common with that of another seed.
fn write_noise(path: &Path, bytes: usize, seed: u8) -> Result<()> {
    let digest = |number: usize| *blake3::hash(&[&[seed], &number.to_le_bytes()[..]].concat()).as_bytes();
    let noise: Vec<u8> = (0..).flat_map(digest).take(bytes).collect();
    std::fs::write(path, noise).map_err(|error| Error::Product(error.to_string()))
}

/// Whether each of so many tasks said what `sha256sum large` says here.
fn all_say_hash(said: &str, tasks: usize, place: &Path) -> Result<bool> {
    let here = Command::new("sha256sum").arg("large").current_dir(place).output();
    let here = here.map_err(|error| Error::Product(error.to_string()))?.stdout;
    Ok(said.lines().count() == tasks && said.lines().all(|line| line.as_bytes() == here.trim_ascii_end()))
}

/// Tasks that read a file of which all has changed.
fn early(pool: &mut Pool) -> Result<Vec<String>> {
    const BYTES: usize = 600_000;
    const HASH: [&str; 3] = ["sh", "-c", "sha256sum large"];
    let place = folder(pool, "slow")?;
    let write = |seed: u8| write_noise(&place.join("large"), BYTES, seed);
    let job = |pool: &Pool| Ok::<_, Error>(run_job(pool, &place, &HASH, 2)?.text());
    write(1)?;
    job(pool)?;
    pool.relink(Link::preset("cable")?)?;
    // The link is learnt by the first that is sent over it.
    write(2)?;
    job(pool)?;
    write(3)?;
    let (said, passed) = traffic_of(pool, || job(pool))?;
    let explained = explained(pool)?;
    let [started, ended] = [STARTED, ENDED].map(|what| moment(&explained, what).unwrap_or_default());
    println!(
        "measured: {BYTES} changed bytes for two tasks: {} bytes up; started after {started:.2} s, ended after {ended:.2}",
        passed.bytes_up
    );
    let mut wrong = Vec::new();
    if !all_say_hash(&said, 2, &place)? {
        wrong.push(format!("the tasks said {said}"));
    }
    if passed.bytes_up > BYTES as u64 * 11 / 10 {
        wrong.push(format!("{passed:?}"));
    }
    if started == 0.0 || started > ended / 2.0 {
        wrong.push(format!("a task started after {started:.2} s of {ended:.2}: {}", explained["timeline"]));
    }
    Ok(wrong)
}

/// The first task of a job ends after the others, and its result waits for none but the one on its way.
fn order(pool: &mut Pool) -> Result<Vec<String>> {
    const TASKS: usize = 6;
    /// Results that may come between the end of the task and its result, on a busy machine.
    const BETWEEN_MAX: usize = 2;
    let place = folder(pool, "order")?;
    let line = "test $1 = 1 && sleep 1.5; head -c 200000 /dev/urandom >out.$1";
    let job = |pool: &Pool, tasks| run_job(pool, &place, &["sh", "-c", line, "sh"], tasks);
    job(pool, 2)?;
    pool.relink(Link::preset("coffee")?)?;
    job(pool, 2)?;
    job(pool, TASKS)?;
    let there = |number: usize| {
        let path = place.join(format!("out.{number}"));
        let meta = std::fs::metadata(&path).at("look at", &path)?;
        Ok([(meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec())])
    };
    let [made, came] = there(1)?;
    let others = (2..=TASKS).map(there).collect::<Result<Vec<_>>>()?;
    let between = others.iter().filter(|[_, other]| (made..came).contains(other)).count();
    println!("measured: {between} of {} results came before an earlier task's that was ready", others.len());
    Ok(if between <= BETWEEN_MAX { Vec::new() } else { vec![format!("{between} results were before an earlier one")] })
}

fn loss(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "slow")?;
    let mut project = Project::new(pool, place.clone())?;
    let cable = Link::preset("cable")?;
    pool.relink(cable.with_loss(0.05))?;
    for _ in 0..10 {
        project.edit()?;
        project.compile(pool)?;
        let wrong = same_object(&place);
        if !wrong.is_empty() {
            return Ok(wrong);
        }
    }
    Ok(Vec::new())
}

/// When something happened in a command, in seconds after it began, by its explanation.
pub fn moment(explained: &serde_json::Value, what: &str) -> Option<f64> {
    let moments = explained["timeline"].as_array()?;
    Some(moments.iter().find(|moment| moment["what"] == what)?["at_us"].as_f64()? / 1e6)
}

/// A job whose large input, and then its results, are on their way when the link is cut for two seconds, and loses packets before and
/// after.
fn disturbed(pool: &mut Pool) -> Result<Vec<String>> {
    const BYTES: usize = 600_000;
    const TASKS: usize = 4;
    const LINE: [&str; 4] = ["sh", "-c", "sha256sum large && tail -c 60000 large >out.$1", "sh"];
    let place = folder(pool, "disturbed")?;
    let large = place.join("large");
    let mut wrong = Vec::new();
    write_noise(&large, BYTES, 1)?;
    run_job(pool, &place, &LINE, TASKS)?;
    pool.relink(Link::preset("cable")?.with_loss(0.03))?;
    // The first one learns the link.
    for (seed, cut_after) in [(2, None), (3, Some(400)), (4, Some(1400))] {
        write_noise(&large, BYTES, seed)?;
        let job = || run_job(pool, &place, &LINE, TASKS);
        let (outcome, passed) = traffic_of(pool, || {
            std::thread::scope(|scope| {
                let running = scope.spawn(job);
                if let Some(after) = cut_after {
                    pause(Duration::from_millis(after));
                    pool.testbed().cut(CLIENT, true);
                    pause(Duration::from_secs(2));
                    pool.testbed().cut(CLIENT, false);
                }
                running.join().map_err(|_| Error::Product("the job's runner panicked".to_owned()))?
            })
        })?;
        let noise = std::fs::read(&large).at("read", &large)?;
        let said = outcome.text();
        if !all_say_hash(&said, TASKS, &place)? {
            wrong.push(format!("cut after {cut_after:?}: the tasks said {said}"));
        }
        let is_right = |task: usize| {
            std::fs::read(place.join(format!("out.{task}"))).is_ok_and(|out| out == noise[BYTES - 60_000..])
        };
        if !(1..=TASKS).all(is_right) {
            wrong.push(format!("cut after {cut_after:?}: a result differs"));
        }
        println!(
            "measured: {BYTES} changed bytes at 3% loss, the link cut after {cut_after:?} ms: {:.1} s, {} bytes up",
            outcome.elapsed.as_secs_f64(),
            passed.bytes_up
        );
        if cut_after.is_some() && passed.bytes_up > BYTES as u64 * 5 / 4 {
            wrong.push(format!("cut after {cut_after:?}: {passed:?}"));
        }
    }
    Ok(wrong)
}

/// What the last command's explanation says.
pub fn explained(pool: &Pool) -> Result<serde_json::Value> {
    let text = pool.client.gleaner(&["explain", "--json"])?.expect_ok("gleaner explain")?.text();
    serde_json::from_str(&text).map_err(|error| Error::Product(format!("gleaner explain: {error}: {text}")))
}

/// What takes no time stays here once that is known, what takes time goes, and what must go goes.
fn never_slower(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "slow")?;
    let run = |pool: &Pool, words: &[&str]| {
        let mut command = pool.client.remrun(words);
        command.current_dir(&place);
        Run::new(command).within(LIMIT).run()?.expect_ok(&words.join(" "))
    };
    run(pool, &["true"])?;
    let near = explained(pool)?;
    pool.relink(Link::preset("cable")?)?;
    (0..3).try_for_each(|_| run(pool, &["true"]).map(drop))?;
    // It may be tried first; and a machine that is busy with others may seem slow.
    let stays = |pool: &Pool| {
        Ok::<_, Error>(explained(pool)?["why"].as_str().is_some_and(|why| why.starts_with("quicker here: ")))
    };
    for _ in 0..5 {
        run(pool, &["true"])?;
        if stays(pool)? {
            break;
        }
    }
    let (outcome, passed) = traffic_of(pool, || run(pool, &["true"]))?;
    let here = explained(pool)?;
    measured("true over cable, where it is better here", outcome.elapsed);
    run(pool, &["--no-local", "true"])?;
    let forced = explained(pool)?;
    (0..4).try_for_each(|_| run(pool, &["sleep", "1"]).map(drop))?;
    run(pool, &["sleep", "1"])?;
    let long = explained(pool)?;
    let place_of = |report: &serde_json::Value| report["place"].as_str().unwrap_or_default().to_owned();
    let mut wrong = Vec::new();
    let mut expect = |what: &str, right: bool, report: &serde_json::Value| {
        if !right {
            wrong.push(format!("{what}: {report}"));
        }
    };
    expect("to a near hub it goes", place_of(&near) == "remote", &near);
    let why = here["why"].as_str().unwrap_or_default();
    expect("it stays here", place_of(&here) == "local" && why.starts_with("quicker here: "), &here);
    // It has 70, and on a busy machine some more.
    let round_trip = why.split_once("(round trip ").and_then(|(_, rest)| rest.split(' ').next()?.parse::<f64>().ok());
    let is_told = round_trip.is_some_and(|told| (70.0..140.0).contains(&told));
    expect("and that is explained", why.contains("about") && is_told, &here);
    expect("nothing was launched", passed.bytes_up < TRUE_BYTES / 2, &format!("{passed:?}").into());
    expect("--no-local", place_of(&forced) == "remote", &forced);
    expect("what takes time goes", place_of(&long) == "remote" && long["expected_here_us"].is_u64(), &long);
    Ok(wrong)
}

/// Each of the two sides of a race wins once, and what the other one did is nowhere.
fn race(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "slow")?;
    let cable = Link::preset("cable")?;
    pool.relink(cable)?;
    let run = |pool: &Pool, script: &str| {
        let mut command = pool.client.remrun(&["--race", "sh", "-c", script]);
        command.current_dir(&place);
        Run::new(command).within(LIMIT).run()?.expect_ok(script)
    };
    let script = "sleep 1.27; echo one >> log; echo said";
    let mut wrong = Vec::new();
    // The first one starts the sandbox of this machine.
    let mut texts = vec![run(pool, script)?.text()];
    let mut winners = Vec::new();
    for round_trip in [Duration::from_millis(70), Duration::from_secs(4)] {
        pool.testbed().set_link(CLIENT, cable.with_round_trip(round_trip));
        texts.push(run(pool, script)?.text());
        let report = explained(pool)?;
        winners.push(report["place"].as_str().unwrap_or_default().to_owned());
        if !report["why"].as_str().is_some_and(|why| why.starts_with("--race: it ended")) {
            wrong.push(format!("not explained: {report}"));
        }
    }
    pool.testbed().set_link(CLIENT, cable);
    let log = std::fs::read_to_string(place.join("log")).unwrap_or_default();
    println!("measured: of two races one was won {}", winners.join(", the other "));
    if texts != ["said"; 3] || log != "one\none\none\n" {
        wrong.push(format!("the output is {texts:?}, the log {log:?}"));
    }
    if winners.last().is_none_or(|last| last != "local") {
        wrong.push(format!("4 s away, and yet it was first: {winners:?}"));
    }
    let wanted = place.to_string_lossy().into_owned();
    let left = || (runs_in(&wanted, "1.27") == 0).then_some(());
    if wait_for(crate::scenario::GUEST_BOUND, left).is_none() {
        wrong.push("the run that lost goes on".to_owned());
    }
    let prefix = format!("{} --race", pool.client.remrun.display());
    let piped = pool.client.script(&place, "echo typed | $R cat", &prefix, LIMIT)?.expect_ok("cat")?;
    let report = explained(pool)?;
    if piped.text() != "typed" || !report.to_string().contains("no race: its standard input can be read once only") {
        wrong.push(format!("of a pipe: {:?}, {report}", piped.text()));
    }
    Ok(wrong)
}

/// How many processes, of whatever pool, work in `place` and have this word among their arguments.
fn runs_in(place: &str, word: &str) -> usize {
    let is_one = |pid: &i32| {
        let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        cwd.to_string_lossy().contains(place) && line.split(|byte| *byte == 0).any(|part| part == word.as_bytes())
    };
    crate::scenario::descendants(1).iter().filter(|pid| is_one(pid)).count()
}
