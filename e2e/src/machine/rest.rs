//! Guests freeze when their host's owner says so, go on, and leave.

use super::{BOUND, Guest, field, number, seconds_from_now, worker_of_guest};
use crate::contract::guests::{owner, told};
use crate::error::Result;
use crate::pool::Pool;
use crate::process::{Ended, pause as wait, wait_for};
use std::path::Path;
use std::time::Duration;

/// How long the guest has to do, in seconds; it may be disturbed meanwhile.
const WORK_S: u64 = 60;
/// How long it is watched while it is frozen.
const FROZEN: Duration = Duration::from_secs(2);

/// One guest, paused, resumed and evicted.
pub fn pause(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let until = seconds_from_now(WORK_S);
    let program = format!("while (time < {until}) {{ $i++ }} open F, '>', 'done'; print F 'done'");
    let (mut guest, seen) = Guest::start(pool, "paused", &program)?;
    let group = seen.all();
    let used = || field(group, "cpu.stat", "usage_usec ");
    let is_frozen = |frozen: u64| field(group, "cgroup.events", "frozen ") == frozen;
    owner(pool, seen.worker, &["pause", "1h"])?.expect_ok("gleaner pause")?;
    if wait_for(BOUND, || is_frozen(1).then_some(())).is_none() || number(group, "cgroup.freeze") != Some(1) {
        wrong.push("it does not freeze".to_owned());
    }
    let before = used();
    wait(FROZEN);
    if used() != before {
        wrong.push(format!("frozen, it has run for {} us", used() - before));
    }
    let resumed = owner(pool, seen.worker, &["resume"])?;
    if wait_for(BOUND, || (is_frozen(0) && used() > before).then_some(())).is_none() {
        wrong.push(format!("it does not go on: {}", resumed.said()));
    }
    if number(group, "memory.high").is_none_or(|bytes| bytes >= memory_total()) {
        wrong.push(format!("its memory has no bound: memory.high is {}", super::read(group, "memory.high")));
    }
    let evicted = owner(pool, seen.worker, &["pause", "--evict"])?;
    let there = wait_for(BOUND, || worker_of_guest(pool).filter(|there| *there != seen.worker));
    if !evicted.ok() || there.is_none() {
        wrong.push(format!("it is not done elsewhere: {}", evicted.said()));
    }
    let ended = guest.ended();
    if ended != Some(Ended::Code(0)) || !pool.place("paused/done").exists() {
        wrong.push(format!("its client noticed: {ended:?}"));
    }
    let again = told(&owner(pool, seen.worker, &["resume"])?);
    if again["rests"] != false || again["evicted"] != 1 {
        wrong.push(format!("all is as before: {again}"));
    }
    Ok(wrong)
}

fn memory_total() -> u64 {
    field(Path::new("/proc"), "meminfo", "MemTotal") << 10
}
