//! Scenarios: what is done to a whole pool of its own, step by step, and what helps to write them.

use crate::error::{Context, Error, Result};
use crate::pool::{Options, Pool};
use crate::process::{Daemon, Ended, Outcome, Run, wait_for};
use crate::report::{Report, Verdict};
use crate::several::several;
use rustix::process::{Pid, Signal};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// The bound within which a command must end after a part of the system was lost.
pub const END_BOUND: Duration = Duration::from_secs(30);
/// The bound within which a guest must be gone after its command was killed.
pub const GUEST_BOUND: Duration = Duration::from_secs(5);

/// A command to be disturbed: it runs for a second, and writes at its beginning, all along, and at its end.
pub const COMMAND: &str = "echo begun > begun; i=0; while [ $i -lt 5 ]; do echo $i >> log; sleep 0.2; i=$((i+1)); done; \
                           echo all > done; echo finished";

/// A name, and what is done; that returns what is wrong, in words.
pub type Scenario = (&'static str, fn(&mut Pool) -> Result<Vec<String>>);

/// The folder of what commands in the background write to standard error, in the pool's own.
const SAID: &str = "said";

/// Works at the same time, of those that may be: they wait more than they compute.
const BESIDE: usize = 6;

/// Something to be run, which reports what came of it.
pub type Work<'a> = Box<dyn Fn() + Send + Sync + 'a>;

/// Runs these, some beside each other. What keeps the machine busy, or measures it, is not for this.
pub fn beside(works: &[Work<'_>]) {
    several(BESIDE, works, |_, work| work());
}

/// Runs those of `scenarios` whose name contains `filter`, each on a pool of its own, one after the other.
pub fn run(scenarios: &[Scenario], options: &Options, filter: &str, report: &Report) {
    works(scenarios, options, filter, report).iter().for_each(|work| work());
}

/// Those of `scenarios` whose name contains `filter`, each to be run on a pool of its own.
pub fn works<'a>(scenarios: &[Scenario], options: &Options, filter: &str, report: &'a Report) -> Vec<Work<'a>> {
    let chosen = scenarios.iter().copied().filter(|(name, _)| name.contains(filter));
    let work = |(name, scenario): Scenario| -> Work<'a> {
        let options = options.clone();
        Box::new(move || {
            let started = Instant::now();
            report.add(name, Verdict::of(one(&options, scenario)), started.elapsed());
        })
    };
    chosen.map(work).collect()
}

fn one(options: &Options, scenario: fn(&mut Pool) -> Result<Vec<String>>) -> Result<Vec<String>> {
    let mut pool = Pool::start(options.clone())?;
    folder(&pool, "")?;
    let mut wrong = scenario(&mut pool)?;
    if !wrong.is_empty() {
        wrong.extend(said_in_background(&pool));
        wrong.push(pool.logs(8));
    }
    wrong.extend(pool.stop(false)?);
    Ok(wrong)
}

/// A folder for the trees of commands, made if need be.
pub fn folder(pool: &Pool, name: &str) -> Result<PathBuf> {
    let place = pool.place(name);
    std::fs::create_dir_all(&place).at("create", &place)?;
    Ok(place)
}

/// What of [`COMMAND`]'s files is in `place`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed {
    /// All of them, as they must be.
    All,
    /// Nothing.
    Nothing,
    /// Neither, which must never be: what is there.
    Half(String),
}

/// What of [`COMMAND`]'s files is in `place`.
pub fn committed(place: &Path) -> Committed {
    let read = |name: &str| std::fs::read_to_string(place.join(name)).unwrap_or_default();
    let (begun, log, done) = (read("begun"), read("log"), read("done"));
    if begun == "begun\n" && log == "0\n1\n2\n3\n4\n" && done == "all\n" {
        Committed::All
    } else if begun.is_empty() && log.is_empty() && done.is_empty() {
        Committed::Nothing
    } else {
        Committed::Half(format!("begun {begun:?}, log {log:?}, done {done:?}"))
    }
}

/// What is wrong with the end of [`COMMAND`] in `place`. The right end is all of it; if it `may_fail`, a clear error will do:
/// a message, a status other than 0, and none of it.
pub fn judge(outcome: &Outcome, place: &Path, may_fail: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    if outcome.elapsed > END_BOUND {
        wrong.push(format!("took {:.1} s, more than {END_BOUND:?}", outcome.elapsed.as_secs_f64()));
    }
    let committed = committed(place);
    if let Committed::Half(what) = &committed {
        wrong.push(format!("half-committed: {what}"));
    }
    match outcome.ended {
        Ended::Code(0) if committed != Committed::All => {
            wrong.push("status 0, but the files are not there".to_owned());
        }
        Ended::Code(0) if outcome.text() != "finished" => {
            wrong.push(format!("status 0, but the output is {:?}", outcome.text()));
        }
        Ended::Code(0) => {}
        _ if !may_fail => wrong.push(format!("{} although it could have been run: {}", outcome.ended, outcome.said())),
        _ if outcome.stderr.is_empty() => wrong.push(format!("{} without a word", outcome.ended)),
        _ if committed == Committed::All => wrong.push(format!("{} although all was committed", outcome.ended)),
        _ => {}
    }
    wrong
}

/// Prints how long the slowest of what has a bound took: the figures of SPECIFICATION.md, "Failure".
pub fn measured(what: &str, slowest: Duration) {
    println!("measured: {what}: {:.1} s at most", slowest.as_secs_f64());
}

/// The worker that has the guest among its descendants; the first one if the guest has not begun.
pub fn busy_worker<'a>(pool: &'a mut Pool, place: &Path) -> &'a mut Daemon {
    let wanted = place.to_string_lossy().into_owned();
    let children: Vec<Vec<i32>> =
        pool.workers.iter().map(|worker| descendants(worker.pid().as_raw_nonzero().get())).collect();
    let has_guest = |pids: &Vec<i32>| {
        pids.iter().any(|pid| {
            let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
            cwd.to_string_lossy().contains(&wanted)
        })
    };
    let index = children.iter().position(has_guest).unwrap_or(0);
    &mut pool.workers[index]
}

/// All processes below one.
pub fn descendants(root: i32) -> Vec<i32> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse::<i32>().ok());
        parents.extend(parent.map(|parent| (pid, parent)));
    }
    let mut found = vec![root];
    let mut at = 0;
    while at < found.len() {
        let parent = found[at];
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found.split_off(1)
}

/// Starts `sh -c SCRIPT` remotely in a folder of its own, and does not wait for it. A scenario that fails reports the standard error.
pub fn background(pool: &Pool, name: &str, script: &str) -> Result<Child> {
    let place = folder(pool, name)?;
    let said = pool.scratch.path().join(SAID);
    std::fs::create_dir_all(&said).at("create", &said)?;
    let said = said.join(name.replace('/', "-"));
    let stderr = File::create(&said).at("create", &said)?;
    let mut command = pool.client.remrun(&["--no-local", "sh", "-c", script]);
    command.current_dir(&place).stdout(Stdio::null()).stderr(stderr);
    command.spawn().context(|| "cannot start remrun".to_owned())
}

/// What the commands in the background wrote to standard error, each under its name.
fn said_in_background(pool: &Pool) -> Vec<String> {
    let entries = std::fs::read_dir(pool.scratch.path().join(SAID)).into_iter().flatten().flatten();
    let texts = entries.map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap_or_default()));
    let said = texts.filter(|(_, text)| !text.is_empty());
    said.map(|(name, text)| format!("--- remrun of {}\n{}", name.display(), String::from_utf8_lossy(&text))).collect()
}

/// Stops a process, and returns once it does nothing any more: the signal takes hold of a thread only where that gets a processor, and
/// until then the others go on.
pub fn stop(pid: Pid) {
    let _ = rustix::process::kill_process(pid, Signal::STOP);
    let threads = format!("/proc/{}/task", pid.as_raw_nonzero());
    let is_stopped = |stat: String| matches!(stat.rsplit(") ").next(), Some(rest) if rest.starts_with(['T', 't']));
    wait_for(END_BOUND, || {
        let mut entries = std::fs::read_dir(&threads).into_iter().flatten().flatten();
        entries.all(|thread| std::fs::read_to_string(thread.path().join("stat")).is_ok_and(is_stopped)).then_some(())
    });
}

/// Runs `sh -c SCRIPT` remotely in `place`, and `edit` here once the script has come to `sleep SECONDS`.
pub fn edited_meanwhile(pool: &Pool, place: &Path, script: &str, seconds: &str, edit: &str) -> Result<Outcome> {
    let mut command = pool.client.remrun(&["--no-local", "sh", "-c", script]);
    command.current_dir(place);
    let runner = std::thread::spawn(move || Run::new(command).within(END_BOUND).run());
    // Words are apart by a NUL in the arguments of the process itself, by a space in the shell's script.
    wait_for(END_BOUND, || (guests(pool, &format!("sleep\0{seconds}")) > 0).then_some(()));
    pool.client.script(place, edit, "", END_BOUND)?.expect_ok("the edit")?;
    runner.join().map_err(|_| Error::Product("the runner panicked".to_owned()))?
}

/// The init of the task that has a process whose arguments contain this word.
pub fn init_of(pool: &Pool, word: &str) -> Option<Pid> {
    let field = |pid: i32, name: &str| -> Option<i32> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next_back()?.parse().ok()
    };
    let mut pid = *below(pool, word).first()?;
    // An init is the first process of a namespace of its own.
    while field(pid, "NSpid:")? != 1 {
        pid = field(pid, "PPid:")?;
    }
    Pid::from_raw(pid)
}

/// How many processes below the workers there are whose arguments contain this word.
pub fn guests(pool: &Pool, word: &str) -> usize {
    below(pool, word).len()
}

fn below(pool: &Pool, word: &str) -> Vec<i32> {
    let below =
        pool.workers.iter().chain([&pool.hub]).flat_map(|worker| descendants(worker.pid().as_raw_nonzero().get()));
    let line = |pid: i32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    below.filter(|pid| String::from_utf8_lossy(&line(*pid)).contains(word)).collect()
}
