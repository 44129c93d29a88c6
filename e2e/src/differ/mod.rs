//! The differential harness by chance: programs drawn from a grammar run here and remotely, and all that can be seen is compared.
//!
//! A seed is a program ([`grammar`]), which is plain data ([`program`]). Its commands are scripts, or operations that a small program,
//! the [`actor`], executes. [`world`] runs it on both sides and compares; what differs is made smaller ([`shrink`]) and printed
//! with what runs it again. [`tally`] counts what ran elsewhere: if too little did, that is a failure as well.

pub mod actor;
pub mod grammar;
pub mod program;
mod queue;
pub mod shrink;
mod tally;
mod world;

use crate::client::Client;
use crate::error::{Context, Error, Result};
use crate::pool::{self, Pool};
use crate::report::{Report, Verdict};
use crate::scratch::copy_program;
use program::Program;
use queue::{Done, Extent};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tally::Tally;
use world::{Clients, Comparison};

/// Programs of the suite, from the same seeds each time.
pub const SUITE_PROGRAMS: usize = 2000;
/// The name of the suite's test.
const NAME: &str = "differ/programs by chance";
/// The actor's program, beside the suite's own.
const ACTOR: &str = "act";
/// Programs between two looks at where their commands ran: the daemon knows a thousand.
const ROUND: usize = 100;
/// The part of commands that must run elsewhere, of a hundred.
const ELSEWHERE_PERCENT_MIN: f64 = 60.0;
/// Programs that fail before it ends, each with its shrunk form.
const FAILURES_MAX: usize = 10;
/// Trials of one shrinking, and their time.
const SHRINK_TRIALS_MAX: usize = 400;
/// See [`SHRINK_TRIALS_MAX`].
const SHRINK_TIME_MAX: Duration = Duration::from_secs(60);
/// Lines of what differs that are shown.
const FOUND_LINES_MAX: usize = 16;

/// What is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The first program; those after it are the next numbers.
    pub seed: u64,
    /// How many.
    pub programs: usize,
    /// Instead of a number: as many as there is time for.
    pub time: Option<Duration>,
    /// One program alone, from this file.
    pub file: Option<PathBuf>,
    /// At the same time.
    pub jobs: usize,
    /// Make what fails smaller.
    pub shrink: bool,
    /// Print figures as JSON.
    pub json: bool,
    /// Leave the pool's folder.
    pub keep: bool,
}

impl Options {
    /// What the suite runs.
    pub fn suite() -> Self {
        Self {
            seed: 1,
            programs: SUITE_PROGRAMS,
            time: None,
            file: None,
            jobs: 4,
            shrink: true,
            json: false,
            keep: false,
        }
    }

    /// Seeds of today, so that each night tries others.
    pub fn seed_of_today() -> u64 {
        let days = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400);
        days * 10_000_000
    }
}

/// A program that failed.
struct Failure {
    seed: u64,
    program: Program,
    found: Vec<String>,
    /// It differed at the first run and not at the next.
    is_rare: bool,
}

/// As a test of the suite.
pub fn run_in_suite(options: &pool::Options, filter: &str, report: &Report) {
    if !NAME.contains(filter) {
        return;
    }
    let started = Instant::now();
    let verdict = Verdict::of(on_pool(&pool::Options { nobody: true, ..options.clone() }, &Options::suite()));
    report.add(NAME, verdict, started.elapsed());
}

/// As a command of its own; true if nothing differed.
pub fn run(options: &Options) -> Result<bool> {
    let mut of_pool = pool::Options::new(2, 2)?;
    (of_pool.nobody, of_pool.guests) = (true, false);
    let wrong = on_pool(&of_pool, options)?;
    wrong.iter().for_each(|text| println!("{text}\n"));
    Ok(wrong.is_empty())
}

/// Runs programs on a pool of their own; what is wrong, in words.
fn on_pool(of_pool: &pool::Options, options: &Options) -> Result<Vec<String>> {
    let pool = Pool::start(of_pool.clone())?;
    let mut wrong = drive(&pool, options)?;
    if !wrong.is_empty() {
        wrong.push(pool.logs(8));
    }
    wrong.extend(pool.stop(options.keep)?);
    Ok(wrong)
}

fn drive(pool: &Pool, options: &Options) -> Result<Vec<String>> {
    let actor = pool.scratch.path().join("bin").join(ACTOR);
    let built =
        std::env::current_exe().context(|| "cannot find the suite's own binary".to_owned())?.with_file_name(ACTOR);
    copy_program(&built, &actor)?;
    let nobody = pool.nobody.as_ref().ok_or_else(|| Error::Product("the pool has no ordinary user".into()))?;
    let clients = Clients { root: &pool.client, nobody, actor: &actor };
    let place = pool.place("");
    std::fs::create_dir_all(&place).at("create", &place)?;
    if let Some(file) = &options.file {
        return one(file, &place.join("0"), clients);
    }
    let started = Instant::now();
    let (tally, mut failures) = run_all(options, &place, clients)?;
    failures.sort_by_key(|failure| failure.seed);
    let seconds = started.elapsed().as_secs_f64();
    let mut wrong: Vec<String> =
        failures.into_iter().map(|failure| describe(failure, options.shrink, &place.join("0"), clients)).collect();
    if options.json {
        let mut figures = tally.json();
        figures["seconds"] = seconds.into();
        figures["failures"] = wrong.len().into();
        println!("{figures:#}");
    } else {
        tally.print();
        println!(
            "measured: programs by chance: {:.1} a second from seed {}",
            tally.programs as f64 / seconds,
            options.seed
        );
    }
    if tally.commands.percent() < ELSEWHERE_PERCENT_MIN {
        wrong.push(format!(
            "only {:.0}% of the commands ran elsewhere, not {ELSEWHERE_PERCENT_MIN}%",
            tally.commands.percent()
        ));
    }
    Ok(wrong)
}

/// Runs the programs, and counts where their commands ran; which failed, in the order in which they ended.
fn run_all(options: &Options, place: &Path, clients: Clients<'_>) -> Result<(Tally, Vec<Failure>)> {
    let started = Instant::now();
    let extent = match options.time {
        Some(time) => Extent::Until(started + time),
        None => Extent::Programs(options.programs),
    };
    let of = [clients.root, clients.nobody];
    let (mut tally, mut failures, mut round) = (Tally::default(), Vec::new(), Vec::new());
    queue::run(options.seed, extent, options.jobs, place, clients, |done| {
        let Done { seed, program, comparison } = done;
        tally.void += usize::from(comparison.is_void);
        tally.programs += usize::from(!comparison.is_void);
        tally.called_off_late += comparison.called_off_late;
        round.push((seed.to_string(), program.clone()));
        if !comparison.found.is_empty() {
            // A long run may be ended before it has made them smaller, and what is rare is not seen again.
            let lines = comparison.found.iter().flat_map(|text| text.lines()).take(FOUND_LINES_MAX);
            eprintln!("seed {seed} differs: {}", lines.collect::<Vec<_>>().join("\n  "));
            failures.push(Failure { seed, program, found: comparison.found, is_rare: false });
        }
        if round.len() >= ROUND {
            tally.add(&std::mem::take(&mut round), of)?;
            progress(&tally, failures.len(), started.elapsed());
        }
        Ok(failures.len() < FAILURES_MAX)
    })?;
    tally.add(&round, of)?;
    if std::io::stderr().is_terminal() {
        eprintln!();
    }
    Ok((tally, failures))
}

/// One program from a file.
fn one(file: &Path, place: &Path, clients: Clients<'_>) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(file).at("read", file)?;
    let program = Program::parse(&text).map_err(|why| Error::Product(format!("{}: {why}", file.display())))?;
    let comparison = world::compare(&program, "file", place, clients)?;
    let mut tally = Tally::default();
    (tally.programs, tally.called_off_late) = (1, comparison.called_off_late);
    tally.add(&[("file".into(), program)], [clients.root, clients.nobody])?;
    tally.print();
    Ok(comparison.found)
}

/// Makes a failure smaller, and says how it is run again.
fn describe(mut failure: Failure, shrinks: bool, place: &Path, clients: Clients<'_>) -> String {
    let compare = |program: &Program, name: &str| world::compare(program, name, place, clients);
    match compare(&failure.program, "again") {
        Ok(again) if again.found.is_empty() => failure.is_rare = true,
        _ if !shrinks => {}
        _ => {
            let fails = |candidate: &Program| compare(candidate, "shrunk").is_ok_and(|shrunk| shrunk.fails());
            failure.program = shrink::shrink(&failure.program, SHRINK_TRIALS_MAX, SHRINK_TIME_MAX, fails);
            if let Ok(Comparison { found, .. }) = compare(&failure.program, "shrunk")
                && !found.is_empty()
            {
                failure.found = found;
            }
        }
    }
    let explained = match (failure.is_rare, failure.program.word("user")) {
        (true, _) => String::new(),
        (false, user) => explain(if user == Some("nobody") { clients.nobody } else { clients.root }),
    };
    let seed = failure.seed;
    let rare = if failure.is_rare { " (not the second time: not shrunk)" } else { "" };
    let found: Vec<&str> = failure.found.iter().flat_map(|text| text.lines()).take(FOUND_LINES_MAX).collect();
    format!(
        "seed {seed} differs{rare}:\n{}\nIts program; again: `e2e differ --seed {seed} --programs 1`, or in a file: `e2e differ --program FILE`\n{}{explained}",
        found.join("\n"),
        failure.program.print()
    )
}

/// How the last command of a client went.
fn explain(client: &Client) -> String {
    let outcome = client.gleaner(&["explain"]);
    outcome.map_or_else(|error| format!("{error}\n"), |outcome| String::from_utf8_lossy(&outcome.stdout).into_owned())
}

fn progress(tally: &Tally, failures: usize, elapsed: Duration) {
    let rate = tally.programs as f64 / elapsed.as_secs_f64().max(0.001);
    if std::io::stderr().is_terminal() {
        eprint!("\r{} programs, {failures} differ, {rate:.0} a second ", tally.programs);
    }
}
