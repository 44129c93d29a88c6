//! Guests that take more than a task may on their worker: nobody is told of a full disk, or of a fork or an allocation that failed. They are
//! called off with the reason, and run where they were sent from.

use crate::error::Result;
use crate::pool::Pool;
use crate::process::{Outcome, Run};
use crate::scenario::folder;
use rustix::fs::{Mode, OFlags};
use std::path::Path;
use std::time::Duration;

/// What workers lend: a task may have half of it.
const SETTINGS: &str = "memory_max = '400M'\n";
const GUESTS: &str = "[guests]\ndisk_max = '128M'\nfiles_max = 4000\nprocesses_max = 200\ntask_max = '50%'\n";
/// Of a tree that a worker finds at its start.
const LEVELS: usize = 10_000;
/// Longest time until a guest was called off and has run here.
const LIMIT: Duration = Duration::from_secs(60);

/// Name, script, what that prints, and how the reason begins for which it is called off.
const CASES: [(&str, &str, &str, &str); 5] = [
    ("disk", "head -c 100000000 /dev/zero > f; sleep 1; wc -c < f", "100000000", "it writes more than a task may"),
    (
        "unnamed",
        "exec 3> f; rm f; head -c 100000000 /dev/zero >&3; sleep 1; stat -Lc %s /dev/fd/3",
        "100000000",
        "it writes more than a task may",
    ),
    (
        "files",
        "mkdir d; i=0; while [ $i -lt 3000 ]; do : > d/$i; i=$((i+1)); done; sleep 1; ls d | wc -l",
        "3000",
        "it makes more files than a task may",
    ),
    (
        "processes",
        "i=0; while [ $i -lt 150 ]; do sleep 6 & i=$((i+1)); done; wait; echo all",
        "all",
        "it has more processes than a task may",
    ),
    (
        "memory",
        "head -c 300000000 /dev/zero | tail -c 300000000 | { sleep 1; wc -c; }",
        "300000000",
        "it needs more memory than a task may",
    ),
];

fn run(pool: &Pool, name: &str, options: &[&str], script: &str) -> Result<Outcome> {
    let place = folder(pool, name)?;
    let mut command = pool.client.remrun(&[options, &["sh", "-c", script]].concat());
    command.current_dir(&place);
    Run::new(command).within(LIMIT).run()
}

/// A tree of so many levels, as a guest may have left it behind when its worker was killed.
fn make_deep(folder: &Path) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut held = rustix::fs::open(folder, flags, Mode::empty())?;
    for _ in 0..LEVELS {
        rustix::fs::mkdirat(&held, "d", Mode::RWXU)?;
        held = rustix::fs::openat(&held, "d", flags, Mode::empty())?;
    }
    Ok(())
}

/// Each is called off, and what it does is done here as if it had never been elsewhere.
pub fn hold(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for index in 0..pool.workers.len() {
        // While it lives, what is there is its own.
        pool.workers[index].kill();
        let left = pool.scratch.path().join(format!("worker{index}/state/worker/run/tasks"));
        if let Err(error) = make_deep(&left) {
            wrong.push(format!("a deep tree in {}: {error}", left.display()));
        }
        pool.set_worker(index, SETTINGS, GUESTS)?;
    }
    pool.wait_for_workers(pool.workers.len())?;
    for (name, script, printed, why) in CASES {
        let outcome = run(pool, name, &[], script)?;
        let report = pool.client.json(&["explain", "--json"])?.to_string();
        if !outcome.ok() || outcome.text().trim() != printed || !outcome.said().is_empty() {
            wrong.push(format!("{name}: {}, {:?}, {}", outcome.ended, outcome.text(), outcome.said()));
        }
        if !report.contains(why) {
            wrong.push(format!("{name}: explain does not say why it ran here: {report}"));
        }
        // As another command, of which it is not known.
        let outcome = run(pool, &format!("{name}-there"), &["--no-local"], &format!("{script}; :"))?;
        let left = std::fs::read_dir(pool.place(&format!("{name}-there"))).map_or(0, Iterator::count);
        if outcome.ok() || !outcome.said().contains(why) || left > 0 {
            wrong.push(format!("{name} with --no-local: {}, {}, {left} left", outcome.ended, outcome.said()));
        }
    }
    // The workers are as before.
    let outcome = run(pool, "after", &["--no-local"], "seq 1 500 | while read n; do echo $n > f$n; done; ls | wc -l")?;
    if !outcome.ok() || outcome.text().trim() != "500" {
        wrong.push(format!("afterwards: {}, {:?}, {}", outcome.ended, outcome.text(), outcome.said()));
    }
    Ok(wrong)
}
