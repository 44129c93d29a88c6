//! The means to spare an owner: which are in force by the doctor's word, and by the kernel's.

use super::{GROUPS, Guest, field, number, read};
use crate::bench::group::Group;
use crate::contract::guests::told;
use crate::error::{Context, Result};
use crate::pool::Pool;
use crate::process::{pause, shell};
use std::path::Path;
use std::process::Child;
use std::time::Duration;

/// What the doctor looks at and must find as it should be. Some of it is in force only at a worker that runs.
const SUBJECTS: [(&str, bool); 5] =
    [("cgroup v2", false), ("CPU priority", true), ("resting", true), ("owner's memory", true), ("owner's disk", true)];
/// SCHED_IDLE, as `/proc/PID/stat` has it.
const IDLE_POLICY: &str = "5";
/// For how long an owner's loops run beside a guest, and the part of the processors that it may have meanwhile.
const LOOPS: Duration = Duration::from_secs(5);
const GUESTS_PART_MAX: f64 = 0.1;
/// A guest that wants a processor for itself.
const BUSY: &str = "while (1) { $i++ }";

/// `gleaner doctor` at the worker's.
pub fn doctor(pool: &mut Pool) -> Result<Vec<String>> {
    let mut owner = pool.owner.clone();
    let state = pool.scratch.path().join("worker0/state");
    owner.env.retain(|(name, _)| name != "GLEANER_STATE_DIR");
    owner.env.push(("GLEANER_STATE_DIR".into(), state.into()));
    let outcome = owner.gleaner(&["doctor", "--json"])?;
    let told = told(&outcome);
    let mut wrong = Vec::new();
    if !outcome.ok() {
        wrong.push(format!("it fails: {}, {}", outcome.ended, outcome.said()));
    }
    for (subject, in_force) in SUBJECTS {
        let finding = told["findings"].as_array().into_iter().flatten().find(|finding| finding["subject"] == subject);
        let good = finding.is_some_and(|finding| {
            let found = finding["found"].as_str().unwrap_or_default();
            finding["verdict"] == "ok" && (!in_force || found.starts_with("in force"))
        });
        if !good {
            wrong.push(format!("{subject}: {}", finding.map_or("not looked at".to_owned(), ToString::to_string)));
        }
    }
    let resting = told["findings"].as_array().into_iter().flatten().find(|finding| finding["subject"] == "resting");
    if !resting
        .is_some_and(|resting| resting["found"].as_str().is_some_and(|found| found.contains("begun again elsewhere")))
    {
        wrong.push(format!("it says what becomes of a guest that must leave: {resting:?}"));
    }
    Ok(wrong)
}

/// What the kernel has of a guest.
pub fn of_a_guest(pool: &mut Pool) -> Result<Vec<String>> {
    let (_guest, seen) = Guest::start(pool, "first-to-go", BUSY)?;
    let process = Path::new("/proc").join(seen.process.to_string());
    let stat = read(&process, "stat");
    // A service manager takes a controller away that nothing of its own needs.
    let taken = std::fs::write(Path::new(GROUPS).join("cgroup.subtree_control"), "-cpu");
    let policy = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(38));
    let has = [
        ("its score for the want of memory", read(&process, "oom_score_adj"), "1000"),
        ("its policy", policy.unwrap_or_default().to_owned(), IDLE_POLICY),
        ("cpu.idle of guests' group", read(seen.all(), "cpu.idle"), "1"),
        ("the controller can be taken away", taken.is_ok().to_string(), "false"),
        ("the group above", seen.all().parent().unwrap_or(seen.all()).display().to_string(), GROUPS),
    ];
    let wrong = has.into_iter().filter(|(_, is, wanted)| is != wanted);
    Ok(wrong.map(|(what, is, wanted)| format!("{what}: {is}, not {wanted}")).collect())
}

/// Loops of the owner's on all processors, in a session's group, and a guest that wants one.
pub fn beside_loops(pool: &mut Pool) -> Result<Vec<String>> {
    let (_guest, seen) = Guest::start(pool, "beside-loops", BUSY)?;
    let used = |group: &Path| field(group, "cpu.stat", "usage_usec ");
    let alone = used(seen.all());
    pause(LOOPS / 5);
    if used(seen.all()) == alone {
        return Ok(vec!["it does not run when nobody else does".to_owned()]);
    }
    let group = Group::new("owner")?;
    let place = Path::new(GROUPS).join(&group.name[1..]);
    let mut loops = Vec::new();
    for _ in 0..std::thread::available_parallelism().map_or(1, |count| count.get()) {
        let mut command = shell("while :; do :; done");
        group.holds(&mut command)?;
        loops.push(command.spawn().context(|| "cannot start a shell".to_owned())?);
    }
    let before = [used(seen.all()), used(&place)];
    pause(LOOPS);
    let [guests, owners] = [used(seen.all()) - before[0], used(&place) - before[1]];
    loops.iter_mut().for_each(end);
    let part = guests as f64 / (guests + owners).max(1) as f64;
    match part < GUESTS_PART_MAX && number(seen.all(), "cpu.idle") == Some(1) {
        true => Ok(Vec::new()),
        false => Ok(vec![format!("the guest got {part:.3} of the processors beside the owner's loops")]),
    }
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}
