//! What happens when something dies in the middle of a command: the command ends within a bound, in the right result or in a
//! clear error; nothing is half-committed; nothing stays.

use crate::error::{Context, Error, Result};
use crate::leftovers;
use crate::pool::{Options, Pool};
use crate::process::{Ended, Input, Outcome, Run, pause, wait_for};
use crate::report::{Report, Verdict};
use rustix::process::{Pid, Signal};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The bound within which a command must end after a part of the system was killed.
pub const END_BOUND: Duration = Duration::from_secs(30);
/// The bound within which a guest must be gone after its command was killed.
pub const GUEST_BOUND: Duration = Duration::from_secs(5);
/// Moments, in milliseconds after the start of the command, at which parts are killed: launch, run, commit.
const MOMENTS_MS: [u64; 6] = [3, 20, 90, 250, 600, 1050];
/// The command under test: it runs for a second, and writes at its beginning, all along, and at its end.
const COMMAND: &str = "echo begun > begun; i=0; while [ $i -lt 5 ]; do echo $i >> log; sleep 0.2; i=$((i+1)); done; \
                       echo all > done; echo finished";

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Worker,
    Hub,
    ClientDaemon,
    Remrun,
}

type Scenario = (&'static str, fn(&mut Pool) -> Result<Vec<String>>);

const SCENARIOS: [Scenario; 9] = [
    ("failure/worker killed, command ends right or clear", |pool| killed(pool, Victim::Worker)),
    ("failure/hub killed, command ends right or clear", |pool| killed(pool, Victim::Hub)),
    ("failure/client daemon killed, command ends right or clear", |pool| killed(pool, Victim::ClientDaemon)),
    ("failure/remrun killed, guest goes and nothing is committed by halves", |pool| killed(pool, Victim::Remrun)),
    ("failure/interrupt reaches the guest", interrupted),
    ("failure/worker stopped, command ends", worker_stopped),
    ("failure/no workers at all: runs here, or fails with --no-local", no_workers),
    ("failure/hub unreachable: runs here, or fails with --no-local", no_hub),
    ("failure/a guest that kills all it can see harms only itself", fratricide),
];

/// Runs the scenarios whose name contains `filter`, each on a pool of its own.
pub fn run(filter: &str, report: &Report) -> Result<()> {
    run_on(&Options::new(2, 2)?, filter, report)
}

/// The same with pools of this kind.
pub fn run_on(options: &Options, filter: &str, report: &Report) -> Result<()> {
    for (name, scenario) in SCENARIOS.iter().filter(|(name, _)| name.contains(filter)) {
        let started = Instant::now();
        let verdict = match one(options, *scenario) {
            Ok(wrong) if wrong.is_empty() => Verdict::Passed,
            Ok(wrong) => Verdict::Failed(wrong),
            Err(Error::Missing(why)) => Verdict::Skipped(why),
            Err(error) => Verdict::Failed(vec![error.to_string()]),
        };
        report.add(name, verdict, started.elapsed());
    }
    Ok(())
}

fn one(options: &Options, scenario: fn(&mut Pool) -> Result<Vec<String>>) -> Result<Vec<String>> {
    let mut pool = Pool::start(options.clone())?;
    let place = pool.place("");
    std::fs::create_dir_all(&place).at("create", &place)?;
    let mut wrong = scenario(&mut pool)?;
    if !wrong.is_empty() {
        wrong.push(pool.logs(8));
    }
    wrong.extend(pool.stop(false)?);
    Ok(wrong)
}

fn killed(pool: &mut Pool, victim: Victim) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (round, moment) in MOMENTS_MS.iter().enumerate() {
        for options in [&["--no-local"][..], &[][..]] {
            let local = options.is_empty();
            let place = pool.place(&format!("{victim:?}-{round}-{local}"));
            std::fs::create_dir_all(&place).at("create", &place)?;
            let say = |what: String| format!("{victim:?} killed after {moment} ms, local {local}: {what}");
            let outcome = with_kill(pool, victim, Duration::from_millis(*moment), &place, options)?;
            wrong.extend(judge(&outcome, victim, &place, local).into_iter().map(say));
            revive(pool, victim)?;
        }
        if wrong.len() > 6 {
            break;
        }
    }
    Ok(wrong)
}

/// Runs the command and kills the victim in mid-way.
fn with_kill(pool: &mut Pool, victim: Victim, after: Duration, place: &Path, options: &[&str]) -> Result<Outcome> {
    let mut arguments = options.to_vec();
    arguments.extend(["sh", "-c", COMMAND]);
    let mut command = pool.client.remrun(&arguments);
    command.current_dir(place);
    let runner = std::thread::spawn(move || Run::new(command).within(END_BOUND * 2).run());
    pause(after);
    match victim {
        Victim::Worker => busy_worker(pool, place).kill(),
        Victim::Hub => pool.hub.kill(),
        Victim::ClientDaemon => pool.client_daemons().into_iter().for_each(kill),
        Victim::Remrun => leftovers::processes(pool.scratch.path())
            .into_iter()
            .filter(|pid| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.ends_with("bin/remrun")))
            .for_each(kill),
    }
    runner.join().map_err(|_| Error::Product("the runner panicked".to_owned()))?
}

fn kill(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
}

/// The worker that has the guest among its descendants; the first one if the guest has not begun.
fn busy_worker<'a>(pool: &'a mut Pool, place: &Path) -> &'a mut crate::process::Daemon {
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
fn descendants(root: i32) -> Vec<i32> {
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

fn revive(pool: &mut Pool, victim: Victim) -> Result<()> {
    match victim {
        Victim::Worker => {
            for index in 0..pool.workers.len() {
                if pool.workers[index].check().is_err() {
                    pool.restart_worker(index)?;
                }
            }
        }
        Victim::Hub => pool.restart_hub()?,
        Victim::ClientDaemon | Victim::Remrun => {}
    }
    let workers = pool.workers.len();
    pool.wait_for_workers(workers)
}

/// The right result is all of it; a clear error is a message, a status other than 0, and none of it.
fn judge(outcome: &Outcome, victim: Victim, place: &Path, local: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    let read = |name: &str| std::fs::read_to_string(place.join(name)).unwrap_or_default();
    let (begun, log, done) = (read("begun"), read("log"), read("done"));
    let all = begun == "begun\n" && log == "0\n1\n2\n3\n4\n" && done == "all\n";
    let none = begun.is_empty() && log.is_empty() && done.is_empty();
    if outcome.elapsed > END_BOUND {
        wrong.push(format!("took {:.1} s, more than {END_BOUND:?}", outcome.elapsed.as_secs_f64()));
    }
    if !all && !none {
        wrong.push(format!("half-committed: begun {begun:?}, log {log:?}, done {done:?}"));
    }
    match outcome.ended {
        Ended::Code(0) if !all => wrong.push("status 0, but the files are not there".to_owned()),
        Ended::Code(0) if outcome.text() != "finished" => {
            wrong.push(format!("status 0, but the output is {:?}", outcome.text()));
        }
        Ended::Code(0) => {}
        Ended::Signal(9) if victim == Victim::Remrun => {}
        _ if victim == Victim::Remrun => wrong.push(format!("remrun: {}", outcome.ended)),
        _ if local && victim != Victim::ClientDaemon => {
            wrong.push(format!("{} although another worker or this machine could run it", outcome.ended));
        }
        _ if outcome.stderr.is_empty() => wrong.push(format!("{} without a word", outcome.ended)),
        _ if all => wrong.push(format!("{} although all was committed", outcome.ended)),
        _ => {}
    }
    wrong
}

fn background(pool: &Pool, name: &str, script: &str) -> Result<std::process::Child> {
    let place = pool.place(name);
    std::fs::create_dir_all(&place).at("create", &place)?;
    let mut command = pool.client.remrun(&["--no-local", "sh", "-c", script]);
    command.current_dir(&place).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    command.spawn().context(|| "cannot start remrun".to_owned())
}

/// Processes below the workers whose arguments contain this word.
fn guests(pool: &Pool, word: &str) -> usize {
    let below = pool.workers.iter().flat_map(|worker| descendants(worker.pid().as_raw_nonzero().get()));
    let line = |pid: i32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    below.filter(|pid| String::from_utf8_lossy(&line(*pid)).contains(word)).count()
}

fn interrupted(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (signal, number) in [(Signal::INT, 2), (Signal::TERM, 15), (Signal::KILL, 9)] {
        let word = format!("61.{number}");
        let mut child = background(pool, &format!("signal-{number}"), &format!("sleep {word}; sleep {word}"))?;
        if wait_for(END_BOUND, || (guests(pool, &word) > 0).then_some(())).is_none() {
            wrong.push("the guest never began".to_owned());
        }
        let started = Instant::now();
        let _ = rustix::process::kill_process(Pid::from_child(&child), signal);
        let status = wait_for(END_BOUND, || child.try_wait().ok().flatten());
        let ended = status.map(Ended::from);
        if ended != Some(Ended::Signal(number)) {
            let _ = child.kill();
            let _ = child.wait();
            wrong.push(format!("signal {number}: remrun ended with {ended:?}"));
        }
        if wait_for(GUEST_BOUND, || (guests(pool, &word) == 0).then_some(())).is_none() {
            wrong.push(format!("signal {number}: the guest still ran after {:?}", started.elapsed()));
        }
    }
    Ok(wrong)
}

fn worker_stopped(pool: &mut Pool) -> Result<Vec<String>> {
    let place = pool.place("stopped");
    std::fs::create_dir_all(&place).at("create", &place)?;
    let mut command = pool.client.remrun(&["sh", "-c", COMMAND]);
    command.current_dir(&place);
    let runner = std::thread::spawn(move || Run::new(command).within(END_BOUND * 3).run());
    pause(Duration::from_millis(400));
    let pid = busy_worker(pool, &place).pid();
    let _ = rustix::process::kill_process(pid, Signal::STOP);
    let outcome = runner.join().map_err(|_| Error::Product("the runner panicked".to_owned()))??;
    let _ = rustix::process::kill_process(pid, Signal::CONT);
    Ok(judge(&outcome, Victim::Worker, &place, true))
}

fn here_or_not(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for options in [&["--no-local"][..], &[][..]] {
        let place = pool.place(&format!("alone-{}", options.len()));
        std::fs::create_dir_all(&place).at("create", &place)?;
        let mut arguments = options.to_vec();
        arguments.extend(["sh", "-c", COMMAND]);
        let mut command = pool.client.remrun(&arguments);
        command.current_dir(&place);
        let outcome = Run::new(command).within(END_BOUND * 2).run()?;
        wrong.extend(judge(&outcome, Victim::Worker, &place, options.is_empty()));
        if !options.is_empty() && outcome.ok() {
            wrong.push("--no-local, and yet it ran".to_owned());
        }
    }
    Ok(wrong)
}

fn no_workers(pool: &mut Pool) -> Result<Vec<String>> {
    for worker in &mut pool.workers {
        worker.stop(END_BOUND);
    }
    here_or_not(pool)
}

fn no_hub(pool: &mut Pool) -> Result<Vec<String>> {
    pool.hub.kill();
    here_or_not(pool)
}

fn fratricide(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let mut other = background(pool, "other", "sleep 2")?;
    let mut killer =
        Run::new(pool.client.remrun(&["--no-local", "sh", "-c", "kill -9 -1; rm -rf /proc/1; echo alive"]));
    killer.input = Input::Null;
    killer.run()?;
    let status = wait_for(END_BOUND, || other.try_wait().ok().flatten()).map(Ended::from);
    if status != Some(Ended::Code(0)) {
        wrong.push(format!("another task ended with {status:?}"));
    }
    for daemon in pool.workers.iter_mut().chain(std::iter::once(&mut pool.hub)) {
        wrong.extend(daemon.check().err().map(|error| error.to_string()));
    }
    let mut after = Command::new(&pool.client.remrun);
    after.args(["--no-local", "true"]);
    pool.client.dress(&mut after);
    if !Run::new(after).run()?.ok() {
        wrong.push("afterwards `remrun true` fails".to_owned());
    }
    Ok(wrong)
}
