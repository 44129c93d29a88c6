//! Jobs: many commands that see one state of the files, by `gleaner run` and by the library for C.

use crate::error::{Context, Error, Result};
use crate::pool::Pool;
use crate::process::{Ended, Outcome, Run, wait_for};
use crate::scenario::{END_BOUND, GUEST_BOUND, folder, guests};
use rustix::process::{Pid, Signal};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Tasks of the long job.
const TASKS: usize = 50;

/// `gleaner run` with these arguments, in `place`.
fn command(pool: &Pool, place: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(pool.client.gleaner.clone().unwrap_or_else(|| "gleaner".into()));
    command.arg("run").args(arguments);
    pool.client.dress(&mut command);
    command.current_dir(place);
    command
}

fn run(pool: &Pool, place: &Path, arguments: &[&str]) -> Result<Outcome> {
    Run::new(command(pool, place, arguments)).within(END_BOUND).run()
}

/// What is wrong with an end, unless it is this one.
fn differs(what: &str, outcome: &Outcome, ended: Ended, text: &str) -> Option<String> {
    let good = outcome.ended == ended && outcome.text() == text;
    (!good).then(|| format!("{what}: {}, {:?}, {}", outcome.ended, outcome.text(), outcome.said()))
}

/// Many tasks on few CPUs: what each says is apart and in order, what each makes is there, and one look at the files served
/// all of them.
pub fn many(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "many")?;
    let mut lines = "# a task a line\n\n".to_owned();
    for number in 1..=TASKS {
        // Of each five the first takes longest.
        let _ = writeln!(
            lines,
            "cat in > out{number}; echo {number} begins; sleep 0.0$((5 - {number} % 5)); echo {number} ends"
        );
    }
    std::fs::write(place.join("in"), "input\n").at("write", &place)?;
    std::fs::write(place.join("job"), &lines).at("write", &place)?;
    let outcome = run(pool, &place, &["--no-local", "-k", "-j4", "--job", "job"])?;
    let want: Vec<String> = (1..=TASKS).map(|number| format!("{number} begins\n{number} ends")).collect();
    let mut wrong: Vec<String> =
        differs("a long job", &outcome, Ended::Code(0), &want.join("\n")).into_iter().collect();
    if !outcome.stderr.is_empty() {
        wrong.push(format!("in a pipe it says nothing of its own, not {:?}", outcome.said()));
    }
    let made = |number: usize| std::fs::read_to_string(place.join(format!("out{number}"))).unwrap_or_default();
    wrong.extend(
        (1..=TASKS).filter(|number| made(*number) != "input\n").map(|number| format!("out{number} is not there")),
    );

    let explained = pool.client.json(&["explain", "--json"])?;
    if !explained["timeline"].to_string().contains(", 0 sent, with 0 objects") {
        wrong.push(format!("a later task of a job sends no files, not {}", explained["timeline"]));
    }
    let failing = ["--no-local", "-k", "-j2", "--retries", "1", "--json", "sh", "-c", "exit $0", ":::", "0", "3"];
    let outcome = run(pool, &place, &failing)?;
    let text = outcome.text();
    let good = outcome.ended == Ended::Code(1)
        && text.contains(r#""status":"exit 3","exit":3"#)
        && text.contains(r#""attempts":2"#);
    if !good || !text.contains(r#""failed":1"#) {
        wrong.push(format!("a task that fails twice: {}, {text:?}", outcome.ended));
    }
    Ok(wrong)
}

/// Tasks see the files as they were at the job's start: not what others of the job made, and nothing half-changed.
pub fn one_state(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "state")?;
    let mut wrong = Vec::new();
    let write = |name: &str, text: &str| std::fs::write(place.join(name), text).at("write", &place);
    write("in", "one")?;
    write("late", "one")?;
    write("job", "sh -c 'cat in; echo two > in; echo made > made'\nsh -c 'cat in; cat made || echo unmade'\ncat in\n")?;
    let outcome = run(pool, &place, &["--no-local", "-k", "-j1", "--job", "job"])?;
    wrong.extend(differs("tasks of one job", &outcome, Ended::Code(0), "oneoneunmade\none"));
    let outcome = run(pool, &place, &["--no-local", "-k", "-j1", "cat", ":::", "in", "made"])?;
    wrong.extend(differs("the next job", &outcome, Ended::Code(0), "two\nmade"));

    // While the first task runs, others change what the second has not used yet.
    let job = command(pool, &place, &["--no-local", "-k", "-j1", ":::", "touch up; sleep 1.37", "cat late"]);
    let runner = std::thread::spawn(move || Run::new(job).within(END_BOUND).run());
    wait_for(END_BOUND, || (guests(pool, "sleep\u{0}1.37") > 0).then_some(()));
    write("late", "two")?;
    let outcome = runner.join().map_err(|_| Error::Product("the runner panicked".to_owned()))??;
    let late = format!("{} changed after the job had started", place.join("late").display());
    if outcome.ended != Ended::Code(1) || !outcome.said().contains(&late) {
        wrong.push(format!("a late path is named: {}, {}", outcome.ended, outcome.said()));
    }
    Ok(wrong)
}

/// Ctrl-C at a job: its guests are gone, and nothing of them is committed.
pub fn interrupted(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "interrupted")?;
    let mut wrong = Vec::new();
    let script = "echo > begun$0; sleep 31.7";
    let mut command = command(pool, &place, &["--no-local", "-j2", "sh", "-c", script, ":::", "1", "2", "3", "4"]);
    let mut child = command.stderr(Stdio::null()).spawn().context(|| "cannot start gleaner run".to_owned())?;
    if wait_for(END_BOUND, || (guests(pool, "sleep\u{0}31.7") == 2).then_some(())).is_none() {
        wrong.push("two tasks do not run at once".to_owned());
    }
    let _ = rustix::process::kill_process(Pid::from_child(&child), Signal::INT);
    let ended = wait_for(GUEST_BOUND, || child.try_wait().ok().flatten()).map(Ended::from);
    let _ = child.kill();
    let _ = child.wait();
    if ended != Some(Ended::Signal(2)) {
        wrong.push(format!("it ends by the signal, not {ended:?}"));
    }
    if wait_for(GUEST_BOUND, || (guests(pool, "31.7") == 0).then_some(())).is_none() {
        wrong.push("guests are left".to_owned());
    }
    if std::fs::read_dir(&place).at("read", &place)?.next().is_some() {
        wrong.push("something was committed".to_owned());
    }
    Ok(wrong)
}

/// The example of the library for C: a parallel map.
pub fn from_c(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "c")?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let program = pool.scratch.path().join("bin/parallel_map");
    let libraries = pool.scratch.path().join("bin");
    let mut compile = Command::new("cc");
    compile.args(["-Wall", "-Wextra", "-Werror", "-o"]).args([&program, &source.join("examples/parallel_map.c")]);
    let with = |option: &str, path: PathBuf| format!("{option}{}", path.display());
    compile.arg(with("-I", source.join("crates/libgleaner/include"))).arg(with("-L", libraries.clone()));
    compile.arg(with("-Wl,-rpath,", libraries)).args(["-lgleaner", "-lpthread"]);
    match Run::new(compile).within(END_BOUND).run() {
        Ok(compiled) => drop(compiled.expect_ok("cc")?),
        Err(error) => return Err(Error::Missing(format!("there is no C compiler here (cc): install gcc ({error})"))),
    }
    let mut command = Command::new(program);
    command.args(["sh", "-c", "echo $0 | tee made$0; ls made* 2>/dev/null | wc -l", "--", "1", "2", "3", "4", "5"]);
    pool.client.dress(&mut command);
    command.current_dir(&place);
    let outcome = Run::new(command).within(END_BOUND).run()?;
    // Each task sees what it made itself, and of the others nothing.
    let mut wrong: Vec<String> =
        differs("the map", &outcome, Ended::Code(0), "1\n1\n2\n1\n3\n1\n4\n1\n5\n1").into_iter().collect();
    let tasks = pool.client.json(&["tasks", "--json"])?;
    let remote = |task: &&serde_json::Value| task["place"] == "remote";
    let count = tasks["tasks"].as_array().map_or(0, |tasks| tasks.iter().filter(remote).count());
    if count != 5 || !(1..=5).all(|number| place.join(format!("made{number}")).exists()) {
        wrong.push(format!("five tasks run on the pool, and what they made is here, not {tasks}"));
    }
    Ok(wrong)
}
