//! What happens when something dies in the middle of a command: the command ends within a bound, in the right result or in a
//! clear error; nothing is half-committed; nothing stays.

use crate::error::{Context as _, Error, Result};
use crate::leftovers;
use crate::pool::{Options, Pool};
use crate::process::{Ended, Input, Outcome, Run, pause, wait_for};
use crate::report::Report;
use crate::scenario::{
    self, COMMAND, Committed, END_BOUND, GUEST_BOUND, Scenario, Work, background, busy_worker, committed, folder,
    guests, stop,
};
use rustix::process::{Pid, Signal};
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Moments, in milliseconds after the start of the command, at which parts are killed: launch, run, commit.
const MOMENTS_MS: [u64; 6] = [3, 20, 90, 250, 600, 1050];
/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Worker,
    Hub,
    ClientDaemon,
    Remrun,
}

const SCENARIOS: [Scenario; 16] = [
    ("failure/hub killed, command ends right or clear", |pool| killed(pool, Victim::Hub, false)),
    ("failure/hub killed, command ends right, here if need be", |pool| killed(pool, Victim::Hub, true)),
    ("failure/worker killed, command ends right or clear", |pool| killed(pool, Victim::Worker, false)),
    ("failure/worker killed, command ends right, here if need be", |pool| killed(pool, Victim::Worker, true)),
    ("failure/client daemon killed, command ends right or clear", |pool| killed_either_way(pool, Victim::ClientDaemon)),
    ("failure/remrun killed, guest goes and nothing is committed by halves", |pool| {
        killed_either_way(pool, Victim::Remrun)
    }),
    ("failure/interrupt reaches the guest", interrupted),
    ("failure/interrupt where nobody answers: the command ends, and begins nowhere again", interrupted_alone),
    ("failure/interrupt where the task's init hangs: the command ends, and begins nowhere again", interrupt_hung),
    ("failure/interrupt where nobody reads the output", interrupt_unread),
    ("failure/interrupt that the program catches is the program's", interrupt_caught),
    ("failure/worker told to end hands back what does not end by itself", told_to_end),
    ("failure/worker stopped, command ends", worker_stopped),
    ("failure/no workers at all: runs here, or fails with --no-local", no_workers),
    ("failure/hub unreachable: runs here, or fails with --no-local", no_hub),
    ("failure/a guest that kills all it can see harms only itself", fratricide),
];

/// What keeps all processors busy.
const ALONE: [Scenario; 1] = [("failure/interrupt reaches a guest that gets no processor", interrupt_starved)];

/// The scenarios whose name contains `filter`, on pools of this kind, that may run beside others.
pub fn works<'a>(options: &Options, filter: &str, report: &'a Report) -> Vec<Work<'a>> {
    scenario::works(&SCENARIOS, options, filter, report)
}

/// Runs the others.
pub fn run(options: &Options, filter: &str, report: &Report) {
    scenario::run(&ALONE, options, filter, report);
}

/// A part is killed at each moment of a command, which may run here if `local`.
fn killed(pool: &mut Pool, victim: Victim, local: bool) -> Result<Vec<String>> {
    let options: &[&str] = if local { &[] } else { &["--no-local"] };
    let (mut wrong, mut slowest) = (Vec::new(), Duration::ZERO);
    for (round, moment) in MOMENTS_MS.iter().enumerate() {
        let place = folder(pool, &format!("{victim:?}-{round}-{local}"))?;
        let say = |what: String| format!("{victim:?} killed after {moment} ms, local {local}: {what}");
        let outcome = with_kill(pool, victim, Duration::from_millis(*moment), &place, options)?;
        slowest = slowest.max(outcome.elapsed.saturating_sub(Duration::from_millis(*moment)));
        wrong.extend(judge(&outcome, victim, &place, local).into_iter().map(say));
        revive(pool, victim)?;
        if wrong.len() > 6 {
            break;
        }
    }
    scenario::measured(&format!("{victim:?} killed, local {local}: end of the command"), slowest);
    Ok(wrong)
}

/// The same, first where the command may not run here, then where it may.
fn killed_either_way(pool: &mut Pool, victim: Victim) -> Result<Vec<String>> {
    Ok([killed(pool, victim, false)?, killed(pool, victim, true)?].concat())
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

fn judge(outcome: &Outcome, victim: Victim, place: &Path, local: bool) -> Vec<String> {
    // What was shown can be said once more by another worker, but without a hub there is none, and here it is not begun again.
    let is_shown_alone = victim == Victim::Hub && !outcome.stdout.is_empty();
    if victim != Victim::Remrun {
        return scenario::judge(outcome, place, !local || victim == Victim::ClientDaemon || is_shown_alone);
    }
    let mut wrong = Vec::new();
    if let Committed::Half(what) = committed(place) {
        wrong.push(format!("half-committed: {what}"));
    }
    if !matches!(outcome.ended, Ended::Code(0) | Ended::Signal(9)) {
        wrong.push(format!("remrun: {}", outcome.ended));
    }
    wrong
}

fn interrupted(pool: &mut Pool) -> Result<Vec<String>> {
    let (mut wrong, mut slowest) = (Vec::new(), Duration::ZERO);
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
        slowest = slowest.max(started.elapsed());
    }
    scenario::measured("interrupted: the guest is gone", slowest);
    Ok(wrong)
}

/// The owner of the worker's machine has twice as much to do as it has processors.
fn interrupt_starved(pool: &mut Pool) -> Result<Vec<String>> {
    let (mut wrong, mut slowest) = (Vec::new(), Duration::ZERO);
    let mut owner = busy();
    for (signal, number) in [(Signal::TERM, 15), (Signal::KILL, 9)] {
        let word = format!("starved-{number}");
        let mut child = background(pool, &word, &format!("echo {word} > begun; while :; do :; done"))?;
        if wait_for(END_BOUND * 2, || (guests(pool, &word) > 0).then_some(())).is_none() {
            wrong.push("the guest never began".to_owned());
        }
        pause(Duration::from_millis(700));
        let since = Instant::now();
        let _ = rustix::process::kill_process(Pid::from_child(&child), signal);
        let ended = wait_for(END_BOUND, || child.try_wait().ok().flatten()).map(Ended::from);
        let is_gone = wait_for(END_BOUND, || (guests(pool, &word) == 0).then_some(())).is_some();
        slowest = slowest.max(since.elapsed());
        if ended != Some(Ended::Signal(number)) || !is_gone || since.elapsed() > GUEST_BOUND {
            wrong.push(format!("signal {number}: {ended:?}, gone {is_gone} after {:?}", since.elapsed()));
        }
    }
    owner.iter_mut().for_each(end);
    scenario::measured("interrupted without a processor: the guest is gone", slowest);
    Ok(wrong)
}

/// Twice as much work as this machine has processors.
fn busy() -> Vec<Child> {
    (0..2 * std::thread::available_parallelism().map_or(1, usize::from))
        .map_while(|_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().ok())
        .collect()
}

fn end(process: &mut Child) {
    let _ = process.kill();
    let _ = process.wait();
}

/// Parts are killed, or stopped as if their machine were gone; then the command is interrupted.
fn interrupted_alone(pool: &mut Pool) -> Result<Vec<String>> {
    let (mut wrong, mut slowest) = (Vec::new(), Duration::ZERO);
    let disturbed = [(Victim::Worker, Signal::KILL), (Victim::Worker, Signal::STOP), (Victim::Hub, Signal::STOP)];
    for (round, (victim, how)) in disturbed.into_iter().enumerate() {
        let (name, word) = (format!("alone-{round}"), format!("6{round}.25"));
        let mut child = background(pool, &name, &format!("echo half > begun; sleep {word}; echo all > done"))?;
        let place = folder(pool, &name)?;
        if wait_for(END_BOUND, || (guests(pool, &format!("sleep\0{word}")) > 0).then_some(())).is_none() {
            wrong.push("the guest never began".to_owned());
        }
        let pid = if victim == Victim::Hub { pool.hub.pid() } else { busy_worker(pool, &place).pid() };
        if how == Signal::STOP {
            stop(pid);
        } else {
            let _ = rustix::process::kill_process(pid, how);
        }
        let since = Instant::now();
        let _ = rustix::process::kill_process(Pid::from_child(&child), Signal::INT);
        let ended = wait_for(END_BOUND, || child.try_wait().ok().flatten()).map(Ended::from);
        slowest = slowest.max(since.elapsed());
        if ended != Some(Ended::Signal(2)) || since.elapsed() > GUEST_BOUND {
            let _ = child.kill();
            wrong.push(format!("{victim:?} {how:?}: ended with {ended:?} after {:?}", since.elapsed()));
            wrong.extend(pool.client.gleaner(&["explain"]).map(|outcome| outcome.text()));
        }
        let _ = rustix::process::kill_process(pid, if how == Signal::STOP { Signal::CONT } else { how });
        revive(pool, victim)?;
        let remains = wait_for(GUEST_BOUND, || (guests(pool, &format!("sleep\0{word}")) == 0).then_some(())).is_none();
        if remains || committed(&place) != Committed::Nothing {
            wrong.push(format!("{victim:?} {how:?}: a guest remains: {remains}; committed {:?}", committed(&place)));
        }
    }
    for (round, victim) in [Victim::Worker, Victim::Hub].into_iter().enumerate() {
        let (took, said) = frozen_after_answer(pool, round, victim)?;
        slowest = slowest.max(took);
        wrong.extend(said);
    }
    scenario::measured("interrupted, and nobody answers: end of the command", slowest);
    Ok(wrong)
}

/// The signal reaches the program, which catches it; then the part is stopped. How long after the signal the command ended, and what is wrong.
fn frozen_after_answer(pool: &mut Pool, round: usize, victim: Victim) -> Result<(Duration, Vec<String>)> {
    let (name, word) = (format!("answered-{round}"), format!("5{round}.75"));
    let script = format!("trap 'echo caught > caught' INT; echo half > begun; sleep {word}; sleep {word}");
    let mut child = background(pool, &name, &script)?;
    let place = folder(pool, &name)?;
    wait_for(END_BOUND, || (guests(pool, &format!("sleep\0{word}")) > 0).then_some(()));
    let pid = if victim == Victim::Hub { pool.hub.pid() } else { busy_worker(pool, &place).pid() };
    let since = Instant::now();
    let _ = rustix::process::kill_process(Pid::from_child(&child), Signal::INT);
    // Its answer is on its way within a moment.
    pause(Duration::from_millis(300));
    stop(pid);
    let ended = wait_for(END_BOUND, || child.try_wait().ok().flatten()).map(Ended::from);
    let took = since.elapsed();
    let mut wrong = Vec::new();
    if ended != Some(Ended::Signal(2)) || took > GUEST_BOUND {
        let _ = child.kill();
        wrong.push(format!("{victim:?} frozen after its answer: ended with {ended:?} after {took:?}"));
        wrong.extend(pool.client.gleaner(&["explain"]).map(|outcome| outcome.text()));
    }
    let _ = rustix::process::kill_process(pid, Signal::CONT);
    revive(pool, victim)?;
    let remains = wait_for(GUEST_BOUND, || (guests(pool, &format!("sleep\0{word}")) == 0).then_some(())).is_none();
    if remains || committed(&place) != Committed::Nothing || place.join("caught").exists() {
        wrong.push(format!("{victim:?} frozen after its answer: a guest remains: {remains}; {:?}", committed(&place)));
    }
    Ok((took, wrong))
}

/// The init of the task is stopped, also where the program catches the signal, or the machine is busy.
fn interrupt_hung(pool: &mut Pool) -> Result<Vec<String>> {
    let (mut wrong, mut slowest) = (Vec::new(), Duration::ZERO);
    let rounds = [
        (&[Signal::INT][..], "", false),
        (&[Signal::TERM, Signal::INT], "INT TERM", false),
        (&[Signal::INT], "INT", true),
    ];
    for (round, (signals, caught, is_busy)) in rounds.into_iter().enumerate() {
        let (name, word) = (format!("hung-{round}"), format!("4{round}.25"));
        let mut owner = if is_busy { busy() } else { Vec::new() };
        let trap = if caught.is_empty() { String::new() } else { format!("trap 'echo caught > caught' {caught}; ") };
        let script = format!("{trap}echo half > begun; while :; do sleep {word}; done");
        let mut child = background(pool, &name, &script)?;
        let place = folder(pool, &name)?;
        let Some(init) = wait_for(END_BOUND, || scenario::init_of(pool, &format!("sleep\0{word}"))) else {
            wrong.push(format!("{name}: the guest never began"));
            owner.iter_mut().chain([&mut child]).for_each(end);
            continue;
        };
        stop(init);
        let since = Instant::now();
        for signal in signals {
            let _ = rustix::process::kill_process(Pid::from_child(&child), *signal);
        }
        let ended = wait_for(END_BOUND, || child.try_wait().ok().flatten()).map(Ended::from);
        let took = since.elapsed();
        slowest = slowest.max(took);
        if !matches!(ended, Some(Ended::Signal(2 | 15))) || took > GUEST_BOUND {
            let _ = child.kill();
            wrong.push(format!("{name}: ended with {ended:?} after {took:?}"));
            wrong.extend(pool.client.gleaner(&["explain"]).map(|outcome| outcome.text()));
        }
        let is_gone =
            || rustix::process::test_kill_process(init).is_err() && guests(pool, &format!("sleep\0{word}")) == 0;
        let remains = wait_for(GUEST_BOUND, || is_gone().then_some(())).is_none();
        if remains || committed(&place) != Committed::Nothing || place.join("caught").exists() {
            wrong.push(format!("{name}: a guest remains: {remains}; committed {:?}", committed(&place)));
        }
        owner.iter_mut().for_each(end);
    }
    scenario::measured("interrupted, and the init hangs: end of the command", slowest);
    Ok(wrong)
}

/// There is more output than all pipes and windows between the program and its reader hold.
fn interrupt_unread(pool: &mut Pool) -> Result<Vec<String>> {
    let (place, mut wrong) = (folder(pool, "unread")?, Vec::new());
    let mut command = pool.client.remrun(&["--no-local", "sh", "-c", "echo half > begun; exec yes unread-62"]);
    command.current_dir(&place).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().context(|| "cannot start remrun".to_owned())?;
    if wait_for(END_BOUND, || (guests(pool, "yes\0unread-62") > 0).then_some(())).is_none() {
        wrong.push("the guest never began".to_owned());
    }
    pause(Duration::from_secs(2));
    let since = Instant::now();
    let _ = rustix::process::kill_process(Pid::from_child(&child), Signal::TERM);
    let ended = wait_for(END_BOUND, || child.try_wait().ok().flatten()).map(Ended::from);
    let took = since.elapsed();
    let remains = wait_for(GUEST_BOUND, || (guests(pool, "yes\0unread-62") == 0).then_some(())).is_none();
    if ended != Some(Ended::Signal(15)) || took > GUEST_BOUND || remains {
        let _ = child.kill();
        wrong.push(format!("ended with {ended:?} after {took:?}, a guest remains: {remains}"));
        wrong.extend(pool.client.gleaner(&["explain"]).map(|outcome| outcome.text()));
    }
    let mut said = String::new();
    let _ = child.stdout.take().map(|mut stdout| stdout.read_to_string(&mut said));
    if said.is_empty() || !said.lines().all(|line| "unread-62".starts_with(line)) || !place.join("begun").exists() {
        wrong.push(format!("{} bytes were delivered, or what it wrote was not committed", said.len()));
    }
    scenario::measured("interrupted, and nobody reads the output: end of the command", took);
    wrong.extend(caught_unread(pool)?);
    Ok(wrong)
}

/// A program that catches the signal goes on, and is heard to its end once somebody reads.
fn caught_unread(pool: &mut Pool) -> Result<Option<String>> {
    const LINES: usize = 6_000_000;
    let place = folder(pool, "caught-unread")?;
    let script = format!("trap 'echo caught > caught' TERM; (trap '' TERM; exec seq {LINES}); echo all > done");
    let mut command = pool.client.remrun(&["--no-local", "sh", "-c", &script]);
    command.current_dir(&place).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().context(|| "cannot start remrun".to_owned())?;
    wait_for(END_BOUND, || (guests(pool, &format!("seq\0{LINES}")) > 0).then_some(()));
    for _ in 0..2 {
        pause(Duration::from_secs(2));
        let _ = rustix::process::kill_process(Pid::from_child(&child), Signal::TERM);
    }
    pause(GUEST_BOUND);
    let mut said = String::new();
    let _ = child.stdout.take().map(|mut stdout| stdout.read_to_string(&mut said));
    let ended = wait_for(END_BOUND, || child.try_wait().ok().flatten()).map(Ended::from);
    let is_whole = said.lines().count() == LINES && said.ends_with(&format!("\n{LINES}\n"));
    let is_right =
        ended == Some(Ended::Code(0)) && is_whole && ["caught", "done"].iter().all(|name| place.join(name).exists());
    Ok((!is_right).then(|| format!("caught, and nobody reads: {ended:?}, {} lines", said.lines().count())))
}

/// It goes on for longer than a dead worker would be waited for.
fn interrupt_caught(pool: &mut Pool) -> Result<Vec<String>> {
    let script = "trap 'echo caught > caught' INT; for i in 1 2 3 4 5 6 7 8; do sleep 0.875; done; echo all > done";
    let mut child = background(pool, "caught", script)?;
    let place = folder(pool, "caught")?;
    wait_for(END_BOUND, || (guests(pool, "sleep\x000.875") > 0).then_some(()));
    let _ = rustix::process::kill_process(Pid::from_child(&child), Signal::INT);
    let ended = wait_for(END_BOUND, || child.try_wait().ok().flatten()).map(Ended::from);
    let read = |name: &str| std::fs::read_to_string(place.join(name)).unwrap_or_default();
    let is_right = ended == Some(Ended::Code(0)) && read("caught") == "caught\n" && read("done") == "all\n";
    Ok(if is_right { Vec::new() } else { vec![format!("ended with {ended:?}, done {:?}", read("done"))] })
}

/// What is about to end does, the rest is done elsewhere at once.
fn told_to_end(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (seconds, longest) in [("0.75", 3.0), ("3.25", 8.0)] {
        let place = folder(pool, &format!("bye-{seconds}"))?;
        let script = format!("echo begun > begun; sleep {seconds}; echo finished");
        let mut command = pool.client.remrun(&["--no-local", "sh", "-c", &script]);
        command.current_dir(&place);
        let runner = std::thread::spawn(move || Run::new(command).within(END_BOUND).run());
        wait_for(END_BOUND, || (guests(pool, &format!("sleep\0{seconds}")) > 0).then_some(()));
        let worker = busy_worker(pool, &place);
        let ended = worker.stop(END_BOUND);
        let outcome = runner.join().map_err(|_| Error::Product("the runner panicked".to_owned()))??;
        let took_s = outcome.elapsed.as_secs_f64();
        if outcome.text() != "finished" || !place.join("begun").exists() || took_s > longest {
            wrong.push(format!("sleep {seconds}: {} after {took_s:.1} s, {}", outcome.ended, outcome.said()));
            wrong.extend(pool.client.gleaner(&["explain"]).map(|outcome| outcome.text()));
        }
        println!("measured: worker told to end, sleep {seconds}: {took_s:.1} s, the worker {ended:?}");
        revive(pool, Victim::Worker)?;
    }
    Ok(wrong)
}

fn worker_stopped(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "stopped")?;
    let mut command = pool.client.remrun(&["sh", "-c", COMMAND]);
    command.current_dir(&place);
    let runner = std::thread::spawn(move || Run::new(command).within(END_BOUND * 3).run());
    pause(Duration::from_millis(400));
    let pid = busy_worker(pool, &place).pid();
    stop(pid);
    let outcome = runner.join().map_err(|_| Error::Product("the runner panicked".to_owned()))??;
    let _ = rustix::process::kill_process(pid, Signal::CONT);
    scenario::measured("worker stopped: end of the command", outcome.elapsed);
    Ok(judge(&outcome, Victim::Worker, &place, true))
}

fn here_or_not(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for options in [&["--no-local"][..], &[][..]] {
        let place = folder(pool, &format!("alone-{}", options.len()))?;
        let mut arguments = options.to_vec();
        arguments.extend(["sh", "-c", COMMAND]);
        let mut command = pool.client.remrun(&arguments);
        command.current_dir(&place);
        let outcome = Run::new(command).within(END_BOUND * 2).run()?;
        scenario::measured(&format!("nobody to run it {options:?}: end of the command"), outcome.elapsed);
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
    let mut wrong = here_or_not(pool)?;
    wrong.extend(is_waited_for(pool, Victim::Worker)?);
    Ok(wrong)
}

fn no_hub(pool: &mut Pool) -> Result<Vec<String>> {
    pool.hub.kill();
    let mut wrong = here_or_not(pool)?;
    wrong.extend(is_waited_for(pool, Victim::Hub)?);
    Ok(wrong)
}

/// What is not there comes back while a command that may not run here has begun.
fn is_waited_for(pool: &mut Pool, victim: Victim) -> Result<Vec<String>> {
    let mut command = pool.client.remrun(&["--no-local", "true"]);
    command.current_dir(folder(pool, "")?);
    let runner = std::thread::spawn(move || Run::new(command).within(END_BOUND * 2).run());
    pause(Duration::from_secs(1));
    revive(pool, victim)?;
    let outcome = runner.join().map_err(|_| Error::Product("the runner panicked".to_owned()))??;
    Ok(if outcome.ok() {
        Vec::new()
    } else {
        vec![format!("{victim:?} comes back within seconds: {}", outcome.said())]
    })
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
