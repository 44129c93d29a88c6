//! What a worker says that is not so: stops, ends, texts and deltas.

use super::worker::{IMPOSSIBLE, STOPPING};
use super::{Attacker, SILENCE_BOUND, at_liar, run_at_liar, serves};
use crate::error::{Context as _, Error, Result};
use crate::pool::Pool;
use crate::process::{Ended, Outcome, Run, Streams, wait_for};
use crate::scenario::folder;
use crate::terminal::Size;
use rustix::process::{Pid, Signal, WaitOptions};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;

/// Deltas that lie: see `Task::lie` of the program.
const LIES: [&str; 17] = [
    "short", "long", "outside", "absent", "upwards", "dot", "doubled", "missing", "hook", "action", "wrong", "recipe",
    "through", "moved", "linked", "set-id", "swapped",
];

/// `remrun` does not stop: nobody here has sent a signal or typed anything.
pub(super) fn stops(pool: &mut Pool) -> Result<Vec<String>> {
    let liar = Attacker::worker(pool, "stops", "own")?;
    let mut command = at_liar(pool, &liar, "stops", &["true"])?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn().context(|| "cannot start remrun".to_owned())?;
    let (pid, options) = (Pid::from_child(&child), WaitOptions::UNTRACED | WaitOptions::NOHANG);
    let changed = wait_for(SILENCE_BOUND, || rustix::process::waitpid(Some(pid), options).ok().flatten());
    let mut wrong = Vec::new();
    match changed {
        Some((_, status)) if status.exit_status() == Some(7) => {}
        other => {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
            let _ = child.wait();
            wrong.push(format!("after {} words of stops: {other:?}", STOPPING.len()));
        }
    }
    let explained = pool.client.gleaner(&["explain"])?.text();
    if !explained.contains("came from nobody here") {
        wrong.push(format!("`explain` does not tell: {explained}"));
    }
    wrong.extend(serves(pool)?);
    Ok(wrong)
}

/// A command ends as its worker says only if a command can end so, and once.
pub(super) fn ends(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let liar = Attacker::worker(pool, "ends", "own")?;
    for signal in IMPOSSIBLE {
        let outcome = run_at_liar(pool, &liar, "ends", &["true"])?;
        if outcome.ended != Ended::Code(125) || !outcome.said().contains("signal") {
            wrong.push(format!("by signal {signal}: {}, {}", outcome.ended, outcome.said()));
        }
    }
    let twice = Attacker::worker(pool, "ends-twice", "own")?;
    let outcome = run_at_liar(pool, &twice, "ends", &["true"])?;
    if outcome.ended != Ended::Code(125) || !outcome.said().contains("twice") {
        wrong.push(format!("twice: {}, {}", outcome.ended, outcome.said()));
    }
    wrong.extend(serves(pool)?);
    Ok(wrong)
}

/// What a terminal would take for more than text, among what was printed.
pub(super) fn taken(printed: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(printed);
    let is_bad = |letter: char| letter != '\n' && letter != '\t' && base::path::is_unseen(letter);
    let at = text.find(is_bad)?;
    let line = text[..at].lines().count().saturating_sub(1);
    Some(format!("{:?}", text.lines().nth(line).unwrap_or_default().chars().take(200).collect::<String>()))
}

/// Whatever it says, nothing that is printed does anything to a terminal, and no line of it is taken for another's.
pub(super) fn escapes(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let liar = Attacker::worker(pool, "escapes", "own")?;
    let place = folder(pool, "escapes")?;
    let mut check = |what: &str, outcome: &Outcome, is_raw: bool| {
        let all = [outcome.stdout.as_slice(), outcome.stderr.as_slice()].concat();
        // A terminal ends its lines with a carriage return as well.
        let all = if is_raw { String::from_utf8_lossy(&all).replace('\r', "").into_bytes() } else { all };
        wrong.extend(taken(&all).map(|line| format!("{what}: {line}")));
        if String::from_utf8_lossy(&all).lines().any(|line| line.starts_with("remrun: all is well")) {
            wrong.push(format!("{what}: a forged line"));
        }
        // What goes on says the same again and again.
        let goes_on = what.ends_with("top --json");
        let longest = all.split(|byte| *byte == b'\n').map(<[u8]>::len).max().filter(|_| goes_on);
        let bytes = longest.unwrap_or(all.len());
        if bytes > 64 << 10 {
            wrong.push(format!("{what}: {bytes} bytes"));
        }
    };
    for round in 0..2 {
        let run = Run::new(at_liar(pool, &liar, "escapes", &["--verbose", "true"])?).within(SILENCE_BOUND * 2);
        check(&format!("remrun {round}"), &run.run()?, false);
        let run = Run::new(at_liar(pool, &liar, "escapes", &["--verbose", "true"])?).within(SILENCE_BOUND * 2);
        let size = Size { rows: 24, columns: 100 };
        check(&format!("remrun {round} on a terminal"), &Run { streams: Streams::Terminal(size), ..run }.run()?, true);
        check("explain", &pool.client.gleaner(&["explain"])?, false);
        check("explain --json", &pool.client.gleaner(&["explain", "--json"])?, false);
    }
    let job = pool.client.script(
        &place,
        "gleaner run --tag escapes --no-local true ::: 1 2 3; gleaner run --json --tag escapes --no-local true ::: 1",
        "",
        SILENCE_BOUND * 2,
    )?;
    check("run", &job, false);
    for words in
        [&["status"][..], &["tasks"], &["tasks", "--json"], &["status", "--json"], &["doctor"], &["doctor", "--json"]]
    {
        check(&words.join(" "), &pool.client.gleaner(words)?, false);
    }
    for words in [&["status"][..], &["audit"], &["audit", "--json"], &["jobs"], &["accounts"], &["top", "--json"]] {
        check(&format!("the owner's {}", words.join(" ")), &pool.owner.gleaner(words)?, false);
    }
    for log in std::fs::read_dir(pool.scratch.path().join("log")).into_iter().flatten().flatten() {
        let is_own = log.file_name().to_string_lossy().starts_with("hostile");
        let said = std::fs::read(log.path()).unwrap_or_default();
        if !is_own && let Some(line) = taken(&said) {
            wrong.push(format!("the log {}: {line}", log.file_name().display()));
        }
    }
    wrong.extend(serves(pool)?);
    Ok(wrong)
}

/// All that is below a folder, with what files hold.
fn tree(folder: &Path) -> Result<String> {
    let mut listing = std::process::Command::new("find");
    listing.current_dir(folder).args([
        ".",
        "-printf",
        "%p %y %m %s %T@ %l\\n",
        "-type",
        "f",
        "-exec",
        "cat",
        "{}",
        ";",
    ]);
    let listed = listing.output().context(|| "cannot run find".to_owned())?;
    match listed.status.success() {
        true => Ok(String::from_utf8_lossy(&listed.stdout).into_owned()),
        false => Err(Error::Product(String::from_utf8_lossy(&listed.stderr).into_owned())),
    }
}

/// Of a delta that is not what it says to be, or that no such command could make, nothing is committed.
pub(super) fn deltas(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let liar = Attacker::worker(pool, "lies", "own")?;
    let place = folder(pool, "lies")?;
    let script = "git init -q . 2>&1; echo here > there; mkdir -p .git/hooks";
    pool.client.script(&place, script, "", SILENCE_BOUND)?.expect_ok("a project")?;
    let outside = pool.scratch.path().join("client/home/.profile");
    std::fs::write(&outside, "mine\n").context(|| "cannot write a file of the home".to_owned())?;
    let outside_name = outside.to_string_lossy().into_owned();
    let above = pool.place("upwards");
    // What it will say of another task is true of this one, whose project is beneath a dot-file of the home.
    let other = pool.scratch.path().join("client/home/.other");
    let script = "mkdir -p ~/.other && cd ~/.other && git init -q . 2>&1";
    pool.client.script(&place, script, "", SILENCE_BOUND)?.expect_ok("another project")?;
    let mut kept = at_liar(pool, &liar, "lies", &["true", "kept"])?;
    kept.current_dir(&other);
    Run::new(kept).within(SILENCE_BOUND * 2).run()?.expect_ok("a task whose result is kept")?;
    for lie in LIES {
        let before = (tree(&place)?, tree(outside.parent().unwrap_or(&place))?);
        let outcome = run_at_liar(pool, &liar, "lies", &["true", lie, &outside_name])?;
        let after = (tree(&place)?, tree(outside.parent().unwrap_or(&place))?);
        if outcome.ended != Ended::Code(125) || outcome.stderr.is_empty() || outcome.elapsed > SILENCE_BOUND {
            wrong.push(format!("{lie}: {} after {:?}: {}", outcome.ended, outcome.elapsed, outcome.said()));
        }
        if before != after || above.exists() || other.join("made").exists() {
            wrong.push(format!("{lie}: the files have changed: {before:?} is {after:?}"));
        }
    }
    wrong.extend(serves(pool)?);
    Ok(wrong)
}
