//! Test suites that nobody here wrote: coreutils, bash, sed and pjdfstest, run test by test.
//!
//! Each test runs once here and once as one command of `remrun --no-local`, at the same path, and what came of it is compared. A test
//! that fails on both sides is equal. One that cannot be done elsewhere is run again as a user would, and counted with the reason: a set
//! that is equal because all of it ran here shows nothing.

mod automake;
mod bash;
mod pjdfstest;
mod table;

use crate::client::Client;
use crate::error::{Context, Error, Result};
use crate::pool::{Options as PoolOptions, Pool};
use crate::process::{Ended, Outcome, Run, tail};
use crate::scratch::remove_all;
use crate::several::several;
use crate::source;
use serde::Serialize;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How often a test is run on both sides before a difference counts: some depend on the time of day and the load.
const TRIES_MAX: u32 = 3;
/// How long a test may take with `remrun`.
const REMOTE_LIMIT: Duration = Duration::from_secs(300);
/// How long the script that makes a test's folder may take.
const SETUP_LIMIT: Duration = Duration::from_secs(60);
/// How long a step of a build may take.
const BUILD_LIMIT: Duration = Duration::from_secs(1500);
/// Lines of a differing test's output that are shown.
const LINES_SHOWN: usize = 12;

/// All of them, the quickest first.
static SUITES: [(&str, Build); 4] = [
    ("sed", automake::sed),
    ("bash", bash::bash),
    ("pjdfstest", pjdfstest::pjdfstest),
    ("coreutils", automake::coreutils),
];

/// Builds a suite, unless that was done before.
type Build = fn() -> Result<Built>;

/// What is run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// One of the suites; all of them otherwise.
    pub only: Option<String>,
    /// Only tests whose name contains one of these, which commas separate.
    pub filter: String,
    /// Tests at a time.
    pub jobs: usize,
    /// How long a test may take here; one that takes longer is left out.
    pub limit: Duration,
    /// Not the tests, but each program of the suite that they start is a command of `remrun`.
    pub each: bool,
    /// `root` or `nobody`; both otherwise.
    pub user: Option<String>,
    /// Prints JSON.
    pub json: bool,
}

/// A suite that was built here.
#[derive(Debug)]
pub struct Built {
    /// The folder that it was built in, and that its files name.
    folder: PathBuf,
    /// Its tests.
    tests: Vec<String>,
    /// Script that makes a test's folder, in it, once for each side. `$TOP` is where the suite is.
    setup: &'static str,
    /// The same where each program is to be a command of `remrun`; none if that cannot be.
    setup_each: Option<String>,
    /// What came of a test.
    judge: fn(&Outcome) -> String,
}

/// Status of `remrun` where it fails itself.
const FAILED: i32 = 125;
/// The program in a suite's folder that runs the test named by its argument, in the working folder.
const RUN_TEST: &str = "run-test";

/// Where a remote run took place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Where {
    /// On a worker.
    Elsewhere,
    /// It began on a worker, was called off, and ran here.
    CalledOff,
    /// It was known beforehand to run here.
    Here,
    /// It took too long here, and was not run with `remrun`.
    LeftOut,
    /// Nothing says where.
    Unknown,
}

/// One test, of both sides.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The suite's name.
    pub suite: &'static str,
    /// The test's.
    pub test: String,
    /// Who ran it.
    pub user: &'static str,
    /// What came of it here.
    pub here: String,
    /// The same with `remrun`.
    pub there: String,
    /// Where the latter took place.
    pub place: Where,
    /// Why it ran here, if it did.
    pub why: String,
    /// How often both sides were run.
    pub tries: u32,
    /// How long both sides took, seconds.
    pub seconds: (f64, f64),
    /// What it said where it differs.
    pub said: String,
}

impl Row {
    /// Whether both sides came to the same.
    pub fn is_equal(&self) -> bool {
        self.here == self.there
    }
}

/// Runs the suites; true if all their tests are equal.
pub fn run(options: &Options) -> Result<bool> {
    let known: Vec<&str> = SUITES.iter().map(|(name, _)| *name).collect();
    if let Some(other) = options.only.as_deref().filter(|name| !known.contains(name)) {
        return Err(Error::Missing(format!("--only {other}: there are {}", known.join(", "))));
    }
    let chosen = SUITES.iter().filter(|(name, _)| options.only.as_deref().is_none_or(|only| only == *name));
    let mut rows = Vec::new();
    for (name, build) in chosen {
        let built = build()?;
        let pool = Pool::start(PoolOptions { nobody: true, guests: false, ..PoolOptions::new(2, 2)? })?;
        let found = on_pool(name, &built, &pool, options)?;
        if !options.json {
            print!("{}", table::table(&found));
        }
        rows.extend(found);
        let wrong = pool.stop(false)?;
        if !wrong.is_empty() {
            return Err(Error::Product(wrong.join("\n")));
        }
    }
    if options.json {
        println!("{}", table::json(&rows));
    }
    Ok(rows.iter().all(Row::is_equal))
}

/// Runs a suite's tests as each user.
fn on_pool(name: &'static str, built: &Built, pool: &Pool, options: &Options) -> Result<Vec<Row>> {
    let top = pool.scratch.path().join("foreign").join(name);
    install(&built.folder, &top)?;
    let is_meant = |test: &&String| options.filter.split(',').any(|part| test.contains(part));
    let tests: Vec<&String> = built.tests.iter().filter(is_meant).collect();
    let mut rows = Vec::new();
    for (user, client) in [("root", Some(&pool.client)), ("nobody", pool.nobody.as_ref())] {
        let Some(client) = client.filter(|_| options.user.as_deref().is_none_or(|only| only == user)) else { continue };
        let side = Suite { name, built, top: &top, user, client, each: options.each, limit: options.limit };
        let found = Mutex::new(Vec::new());
        several(options.jobs, &tests, |slot, test| {
            // Short: a socket's path has at most 107 bytes.
            let row = side.row(test, &pool.place(&format!("{}{slot}", &user[..1])));
            row.iter().for_each(|row| eprint!("{}", table::line(row)));
            found.lock().unwrap_or_else(PoisonError::into_inner).push(row);
        });
        let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        rows.extend(found.into_iter().collect::<Result<Vec<Row>>>()?);
    }
    rows.sort_by(|a, b| (a.user, &a.test).cmp(&(b.user, &b.test)));
    Ok(rows)
}

/// Puts a copy of what was built where any user may read it, and has its script name that place.
fn install(folder: &Path, top: &Path) -> Result<()> {
    if let Some(parent) = top.parent() {
        std::fs::create_dir_all(parent).at("create", parent)?;
    }
    let mut copy = Command::new("cp");
    copy.arg("-a").arg("--no-preserve=ownership").arg(folder).arg(top);
    Run::new(copy).within(BUILD_LIMIT).run()?.expect_ok("cp")?;
    let script = top.join(RUN_TEST);
    let text = std::fs::read_to_string(&script).at("read", &script)?;
    let text = text.replace(&*folder.to_string_lossy(), &top.to_string_lossy());
    std::fs::write(&script, text).at("write", &script)
}

/// How one run of a test is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// Without `remrun`.
    Here,
    /// By `remrun --no-local`.
    Elsewhere,
    /// By `remrun`.
    Anywhere,
    /// Without, but each program of the suite that it starts is run by `remrun`. Without `-v`: tests compare what their programs say.
    Each,
}

/// A suite on a pool, as one user.
struct Suite<'a> {
    name: &'static str,
    built: &'a Built,
    top: &'a Path,
    user: &'static str,
    client: &'a Client,
    each: bool,
    limit: Duration,
}

impl Suite<'_> {
    /// A test on both sides; again while they differ.
    fn row(&self, test: &str, place: &Path) -> Result<Row> {
        let mut row = self.once(test, place)?;
        while !row.is_equal() && row.tries < TRIES_MAX {
            row = Row { tries: row.tries + 1, ..self.once(test, place)? };
        }
        Ok(row)
    }

    fn once(&self, test: &str, place: &Path) -> Result<Row> {
        let here = self.side(test, place, Side::Here)?;
        let came_here = (self.built.judge)(&here);
        let mut row = Row {
            suite: self.name,
            test: test.to_owned(),
            user: self.user,
            there: came_here.clone(),
            here: came_here,
            place: Where::LeftOut,
            why: String::new(),
            tries: 1,
            seconds: (here.elapsed.as_secs_f64(), 0.0),
            said: String::new(),
        };
        if here.ended == Ended::TimedOut {
            return Ok(row);
        }
        let there = match self.built.setup_each.is_some() && self.each {
            true => self.side(test, place, Side::Each)?,
            false => self.elsewhere(test, place, &mut row)?,
        };
        row.seconds.1 = there.elapsed.as_secs_f64();
        row.there = (self.built.judge)(&there);
        if !row.is_equal() {
            let shown = |outcome: Outcome| tail(&[outcome.stdout, outcome.stderr].concat(), LINES_SHOWN);
            row.said = format!("here:\n{}\nwith remrun:\n{}", shown(here), shown(there));
        }
        Ok(row)
    }

    /// A test with `remrun`, on a worker if it can be.
    fn elsewhere(&self, test: &str, place: &Path, row: &mut Row) -> Result<Outcome> {
        let there = self.side(test, place, Side::Elsewhere)?;
        let said = there.said();
        let own = reason(&said);
        if there.ended != Ended::Code(FAILED) || own.is_none() {
            row.place = placed(&said);
            return Ok(there);
        }
        row.place = if placed(&said) == Where::Elsewhere { Where::CalledOff } else { Where::Here };
        row.why = own.unwrap_or_default();
        self.side(test, place, Side::Anywhere)
    }

    /// A test in a fresh folder, which is then removed.
    fn side(&self, test: &str, place: &Path, side: Side) -> Result<Outcome> {
        let work = place.join("w");
        remove_all(&work)?;
        std::fs::create_dir_all(&work).at("create", &work)?;
        std::fs::set_permissions(&work, PermissionsExt::from_mode(0o755)).at("chmod", &work)?;
        if self.client.user != 0 {
            std::os::unix::fs::chown(&work, Some(self.client.user), Some(self.client.user)).at("chown", &work)?;
        }
        let each = self.built.setup_each.as_deref().filter(|_| side == Side::Each).unwrap_or_default();
        let setup = format!("TOP={}\n{}\n{each}", self.top.display(), self.built.setup);
        self.client.script(&work, &setup, "", SETUP_LIMIT)?.expect_ok(&format!("the folder for {test}"))?;
        let (mut command, limit) = match side {
            Side::Here => (Command::new("sh"), self.limit),
            Side::Each => (Command::new("sh"), REMOTE_LIMIT),
            Side::Elsewhere | Side::Anywhere => (Command::new(&self.client.remrun), REMOTE_LIMIT),
        };
        match side {
            Side::Elsewhere => drop(command.args(["-v", "--no-local", "sh"])),
            Side::Anywhere => drop(command.args(["-v", "sh"])),
            Side::Here | Side::Each => {}
        }
        command.arg(self.top.join(RUN_TEST)).arg(test).current_dir(&work);
        self.client.dress(&mut command);
        let outcome = Run::new(command).within(limit).run()?;
        remove_all(&work)?;
        Ok(outcome)
    }
}

/// Where it took place, from what `remrun -v` said.
fn placed(said: &str) -> Where {
    // A program may leave its last line open.
    let has = |words: &str| said.contains(words);
    match (has("remrun: runs here: "), has("remrun: ran on ")) {
        (true, true) => Where::CalledOff,
        (true, false) => Where::Here,
        (false, true) => Where::Elsewhere,
        (false, false) => Where::Unknown,
    }
}

/// The first line of what `remrun` said that is not about where it ran.
fn reason(said: &str) -> Option<String> {
    let mut own = said.lines().filter_map(|line| line.strip_prefix("remrun: "));
    let why = own.find(|line| !line.starts_with("ran on ") && !line.starts_with("not placed in "))?;
    Some(why.trim_end_matches(", and --no-local forbids to run it here").to_owned())
}

/// What the exit status of a test says, in the manner of automake.
fn by_status(outcome: &Outcome) -> String {
    match outcome.ended {
        Ended::Code(0) => "PASS".into(),
        Ended::Code(77) => "SKIP".into(),
        Ended::Code(99) => "ERROR".into(),
        Ended::Code(FAILED) => "REMRUN FAILED".into(),
        Ended::TimedOut => "TIMEOUT".into(),
        _ => "FAIL".into(),
    }
}

/// Where suites are built, once.
fn shelf(name: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"));
    target.canonicalize().unwrap_or(target).join("foreign").join(name)
}

/// Puts a package's source at `folder`, in the place of what was begun before.
fn unpack(package: &str, folder: &Path) -> Result<()> {
    let shelf = shelf(package);
    remove_all(&shelf)?;
    std::fs::create_dir_all(&shelf).at("create", &shelf)?;
    let unpacked = source::fetch(package, &shelf)?;
    std::fs::rename(&unpacked, folder).at("rename", &unpacked)
}

/// The tests in a list, a line each.
fn listed(list: &Path) -> Result<Vec<String>> {
    Ok(std::fs::read_to_string(list).at("read", list)?.lines().map(str::to_owned).collect())
}

/// Runs a step of a build in a folder.
fn build(folder: &Path, script: &str) -> Result<()> {
    let mut command = crate::process::shell(script);
    command.current_dir(folder);
    // What the caller's make or shell says to its own children is not meant for this one.
    for name in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL", "CC", "CFLAGS", "LDFLAGS"] {
        command.env_remove(name);
    }
    Run::new(command)
        .within(BUILD_LIMIT)
        .run()?
        .expect_ok(&format!("`{}`", script.lines().next().unwrap_or_default()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_it_ran() {
        let ran = "x\nremrun: ran on worker1 in 20.0 ms: 1 round trips\n";
        assert_eq!(placed(ran), Where::Elsewhere);
        assert_eq!(placed(&format!("{ran}remrun: runs here: it mounts\n")), Where::CalledOff);
        assert_eq!(placed("remrun: not placed in 1 ms\nremrun: runs here: a\n"), Where::Here);
        assert_eq!(placed("a"), Where::Unknown);
        let forbidden = "remrun: not placed in 1 ms\nremrun: it mounts, and --no-local forbids to run it here\n";
        assert_eq!(reason(forbidden), Some("it mounts".into()));
        assert_eq!(
            reason("x\nremrun: ran on a\nremrun: it mounts\n  nothing was committed\n"),
            Some("it mounts".into())
        );
    }
}
