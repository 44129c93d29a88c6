//! A worker that says nothing, or not what is waited for: each command ends within a bound, and none begins again that was told to end.

use super::{Attacker, SILENCE_BOUND, at_liar, run_at_liar, serves};
use crate::error::{Context as _, Error, Result};
use crate::pool::Pool;
use crate::process::{Ended, Run, pause, wait_for};
use crate::scenario::{self, COMMAND, Committed, GUEST_BOUND, committed, folder};
use crate::terminal::{self, Size};
use rustix::process::{Pid, Signal};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Manners in which it says nothing, and how often it gets a command then: one that does not start begins again, for it is late.
const MANNERS: [(&str, usize); 2] = [("silent", 4), ("silent-once-started", 1)];

/// The other worker does it.
pub(super) fn elsewhere(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (manner, most) in MANNERS {
        let liar = Attacker::worker(pool, manner, "own")?;
        pool.owner.gleaner(&["drain", "worker0"])?.expect_ok("gleaner drain")?;
        let place = folder(pool, manner)?;
        let mut command = pool.client.remrun(&["--no-local", "sh", "-c", COMMAND]);
        command.current_dir(&place);
        let runner = std::thread::spawn(move || Run::new(command).within(SILENCE_BOUND * 2).run());
        if !liar.has_launch() {
            wrong.push(format!("{manner}: it got no launch"));
        }
        pool.owner.gleaner(&["drain", "--undo", "worker0"])?.expect_ok("gleaner drain --undo")?;
        let outcome = runner.join().map_err(|_| Error::Product("the runner panicked".to_owned()))??;
        scenario::measured(&format!("worker {manner}: end of the command elsewhere"), outcome.elapsed);
        wrong.extend(scenario::judge(&outcome, &place, false).into_iter().map(|what| format!("{manner}: {what}")));
        if !(1..=most).contains(&liar.launches()) {
            wrong.push(format!("{manner}: it was launched there {} times", liar.launches()));
        }
        let status = pool.owner.gleaner(&["status"])?.text();
        if most == 1 && !status.contains("it was silent") {
            wrong.push(format!("{manner}: the owner is not told:\n{status}"));
        }
    }
    wrong.extend(serves(pool)?);
    Ok(wrong)
}

/// No other worker could do it.
pub(super) fn alone(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (manner, most) in MANNERS {
        let liar = Attacker::worker(pool, manner, "own")?;
        let outcome = run_at_liar(pool, &liar, manner, &["sh", "-c", COMMAND])?;
        scenario::measured(&format!("worker {manner}, alone: end of the command"), outcome.elapsed);
        let is_clear = outcome.ended == Ended::Code(125) && outcome.said().contains("said nothing");
        if !is_clear || outcome.elapsed > SILENCE_BOUND || !(1..=most).contains(&liar.launches()) {
            let (ended, launches) = (outcome.ended, liar.launches());
            wrong.push(format!(
                "{manner}: {ended} after {:?}, {launches} launches: {}",
                outcome.elapsed,
                outcome.said()
            ));
        }
        if committed(&pool.place(manner)) != Committed::Nothing {
            wrong.push(format!("{manner}: something was committed"));
        }
    }
    wrong.extend(serves(pool)?);
    Ok(wrong)
}

/// Ctrl-C, before the start and after it, at workers that say nothing, and at such as answer the signal and nothing else: sent, and typed at
/// a terminal, where it is the program's once that has started.
pub(super) fn interrupted(pool: &mut Pool) -> Result<Vec<String>> {
    let (mut wrong, mut slowest) = (Vec::new(), Duration::ZERO);
    let rounds = [
        ("silent", false),
        ("silent-once-started", false),
        ("never-starts", false),
        ("never-done", false),
        ("silent", true),
        ("never-starts", true),
        ("never-done", true),
    ];
    for (manner, is_typed) in rounds {
        let place = format!("{}-{manner}", if is_typed { "typed" } else { "sent" });
        let liar = Attacker::worker(pool, manner, "own")?;
        let before = liar.launches();
        let mut command = at_liar(pool, &liar, &place, &["sh", "-c", COMMAND])?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let size = Size { rows: 24, columns: 80 };
        let terminal = if is_typed { Some(terminal::attach(&mut command, size)?) } else { None };
        let mut child = command.spawn().context(|| "cannot start remrun".to_owned())?;
        if wait_for(SILENCE_BOUND, || (liar.launches() > before).then_some(())).is_none() {
            wrong.push(format!("{place}: it got no launch"));
        }
        pause(Duration::from_secs(1));
        let (launches, since) = (liar.launches(), Instant::now());
        match &terminal {
            Some(terminal) => drop(rustix::io::write(terminal, b"\x03")),
            None => drop(rustix::process::kill_process(Pid::from_child(&child), Signal::INT)),
        }
        let ended = wait_for(SILENCE_BOUND, || child.try_wait().ok().flatten()).map(Ended::from);
        slowest = slowest.max(since.elapsed());
        if ended != Some(Ended::Signal(2)) || since.elapsed() > GUEST_BOUND {
            wrong.push(format!("{place}: {ended:?} {:?} after Ctrl-C", since.elapsed()));
            wrong.extend(pool.client.gleaner(&["explain"]).map(|outcome| outcome.text()));
        }
        let _ = child.kill();
        let _ = child.wait();
        pause(Duration::from_secs(1));
        if liar.launches() != launches || committed(&pool.place(&place)) != Committed::Nothing {
            wrong.push(format!("{place}: {} launches, or something was committed", liar.launches()));
        }
    }
    scenario::measured("interrupted, and the worker lies: end of the command", slowest);
    wrong.extend(serves(pool)?);
    Ok(wrong)
}

/// It says how the command ended and that it lives, for ever, and never sends what changed.
pub(super) fn half_a_result(pool: &mut Pool) -> Result<Vec<String>> {
    let liar = Attacker::worker(pool, "never-done", "own")?;
    let outcome = run_at_liar(pool, &liar, "half", &["sh", "-c", COMMAND])?;
    scenario::measured("half a result: end of the command", outcome.elapsed);
    let mut wrong = Vec::new();
    if outcome.ended != Ended::Code(125) || outcome.elapsed > SILENCE_BOUND || liar.launches() != 1 {
        let launches = liar.launches();
        wrong.push(format!("{} after {:?}, {launches} launches: {}", outcome.ended, outcome.elapsed, outcome.said()));
    }
    if pool.place("half").join("made").exists() {
        wrong.push("the half of it was committed".to_owned());
    }
    wrong.extend(serves(pool)?);
    Ok(wrong)
}
