//! What spares an owner, tried on a machine of its own: `cargo xtask machine` boots one whose kernel has all that a plain Debian's has (control
//! groups of version 2 with all controllers, compressed swap, links made by the kernel), and has this run in it.
//!
//! Emulated, everything is many times slower and later than anywhere else. So nothing here is timed: it is seen that it happens, in
//! the right order, within bounds that are only there so that each wait has an end.

mod clock;
mod link;
mod memory;
mod priority;
mod rest;
mod services;
mod swap;

use crate::error::{Context, Error, Result};
use crate::pool::{Options, Pool};
use crate::process::{Ended, wait_for};
use crate::report::Report;
use crate::scenario::{self, Scenario, descendants, folder};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use worker::host::control;

/// Longest wait for anything.
const BOUND: Duration = Duration::from_secs(300);
/// By which the kernel was told that this is such a machine.
const MARK: &str = "gleaner.machine";
/// Where its control groups are.
const GROUPS: &str = "/sys/fs/cgroup";

const SCENARIOS: [Scenario; 9] = [
    ("machine/the doctor finds every means in force", priority::doctor),
    ("machine/a guest is in an idle group, and the first to go", priority::of_a_guest),
    ("machine/an owner's loops leave a guest next to nothing", priority::beside_loops),
    ("machine/guests freeze and thaw, and are done elsewhere", rest::pause),
    ("machine/the clock is set an hour on, and back", clock::set),
    ("machine/guests get no more memory than is lent", memory::bounded),
    ("machine/memory gets short: cache goes, guests freeze, guests leave", memory::short),
    ("machine/compressed swap: guests get no more memory than is lent, and no swap", memory::bounded_beside_swap),
    ("machine/compressed swap: memory gets short: cache goes, guests freeze, guests leave", memory::short_beside_swap),
];

/// On hosts joined by a link of the kernel's.
const LINKED: [Scenario; 1] = [("machine/a link of 20 Mbit/s and 40 ms, made by the kernel", link::commands)];

/// Runs the checks whose name contains `filter`.
///
/// # Errors
/// Anywhere but inside such a machine: they swap, and use memory up.
pub fn run(filter: &str, report: &Report) -> Result<()> {
    let told = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    if !told.split_whitespace().any(|word| word == MARK) {
        return Err(Error::Missing("this is for a machine of its own: run `cargo xtask machine`".to_owned()));
    }
    if std::fs::read_to_string("/proc/1/comm").is_ok_and(|name| name.trim() == "systemd") {
        return services::run(filter, report);
    }
    let options = Options::new(2, 2)?;
    scenario::run(&SCENARIOS, &options, filter, report);
    if LINKED.iter().any(|(name, _)| name.contains(filter)) {
        let link = link::Hosts::make()?;
        scenario::run(&LINKED, &Options { apart: Some(link.apart()), ..options }, filter, report);
    }
    Ok(())
}

/// A Perl program that runs as a guest, until this is dropped.
struct Guest {
    child: Child,
    name: &'static str,
}

/// A guest as its host sees it.
struct Seen {
    worker: usize,
    process: i32,
    /// Its control group.
    group: PathBuf,
}

impl Guest {
    /// Starts it, and waits until it runs.
    fn start(pool: &Pool, name: &'static str, program: &str) -> Result<(Self, Seen)> {
        let place = folder(pool, name)?;
        let program = format!("# {name}\n{program}");
        let mut command = pool.client.remrun(&["--no-local", "perl", "-e", &program]);
        command.current_dir(&place).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().context(|| "cannot start remrun".to_owned())?;
        let guest = Self { child, name };
        let seen = wait_for(BOUND, || guest.seen(pool));
        let seen = seen.ok_or_else(|| Error::Product(format!("the guest {name} never began\n{}", pool.logs(8))))?;
        Ok((guest, seen))
    }

    fn seen(&self, pool: &Pool) -> Option<Seen> {
        let worker = worker_of_guest(pool)?;
        let begin = format!("# {}\n", self.name);
        let line = |pid: i32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let all = descendants(pool.workers[worker].pid().as_raw_nonzero().get());
        let process = all.into_iter().find(|pid| String::from_utf8_lossy(&line(*pid)).contains(&begin))?;
        let groups = std::fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?;
        let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
        Some(Seen { worker, process, group: Path::new(GROUPS).join(group) })
    }

    fn ended(&mut self) -> Option<Ended> {
        wait_for(BOUND, || self.child.try_wait().ok().flatten()).map(Ended::from)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Seen {
    /// The group of all guests of its worker.
    fn all(&self) -> &Path {
        self.group.parent().unwrap_or(&self.group)
    }
}

/// The worker that has a guest, which is the only one.
fn worker_of_guest(pool: &Pool) -> Option<usize> {
    (0..pool.workers.len())
        .find(|worker| ask(pool, *worker)["guests"].as_array().is_some_and(|guests| !guests.is_empty()))
}

/// What the worker tells its owner.
fn ask(pool: &Pool, worker: usize) -> Value {
    let folder = pool.scratch.path().join(format!("worker{worker}/state/worker"));
    control::ask(&folder, &json!({"ask": "guests"})).unwrap_or(Value::Null)
}

/// What stands in a file of a group.
fn read(group: &Path, file: &str) -> String {
    std::fs::read_to_string(group.join(file)).unwrap_or_default().trim().to_owned()
}

/// A number in one.
fn number(group: &Path, file: &str) -> Option<u64> {
    read(group, file).parse().ok()
}

/// The value of a name in one of many lines.
fn field(group: &Path, file: &str, name: &str) -> u64 {
    let text = read(group, file);
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim_start_matches(':').split_whitespace().next()?.parse().ok());
    value.unwrap_or(0)
}

/// Seconds since 1970, to tell a guest when to end: one that is done again is to end then, too.
fn seconds_from_now(seconds: u64) -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |now| now.as_secs()) + seconds
}

/// Runs one of the system's own programs.
fn tool(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output().context(|| format!("cannot run {program}"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(Error::Product(format!("{program} {}: {said}", arguments.join(" "))))
        }
    }
}

/// A file that cannot be compressed.
fn random_file(path: &Path, bytes: usize) -> Result<()> {
    let mut content = vec![0; bytes];
    rand::fill(&mut content[..]);
    std::fs::write(path, content).at("write", path)
}
