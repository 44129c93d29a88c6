//! A program of the owner's that wants memory, and a guest that does, one after the other.
//!
//! Alone, the program fills its memory and goes over it for three blocks' time. The other one comes a block's time later, or was there a block's
//! time before. Both are on one CPU, as on the machines of those who measured this first; or, as a part of its own, where they like, and then this tells
//! of the way to memory and the cache that processors share, which nobody's priority divides (`…_unpinned`).
//!
//! Before each block all that both will hold is touched once, and what the owner's program will hold once more if it comes later: a hypervisor may have
//! to find a page that nobody has touched for a while, and that takes longer than all that is measured. The program would get such pages beside a guest
//! more than alone.
//!
//! With `--memory-left-mib` a third program holds all but so much, and then it tells of memory that is not there: only of guests that were there
//! before, for none begins beside an owner who has it all. Without swap that ends plain guests or the one that holds: then the part says so.

use super::report::{Report, Row, Target, Unit};
use super::rounds::rounds;
use super::stats::Mean;
use super::ways::{Guests, Way};
use super::{Bench, said, words};
use crate::error::{Context, Error, Result};
use crate::process::pause;
use serde_json::Value;
use std::process::Child;
use std::time::{Duration, Instant};

/// Rounds of `work` for one of these.
const PAIRS: usize = 15;
/// MiB that must be left for others, unless it is asked that memory be short.
const RESERVE_MIB: u64 = 4096;
/// How often it is looked whether guests are still there.
const LOOK: Duration = Duration::from_millis(100);
/// Who is ended first when there is too little memory.
const FIRST_TO_GO: &[u8] = b"1000";

/// Measures both orders on one CPU.
pub fn pinned(bench: &mut Bench, report: &mut Report) -> Result<()> {
    run(bench, report, Some(bench.cpus - 1), ["mem_host_first_delay", "mem_guest_first_delay", "mem_lost_cpu_s"])
}

/// Measures both orders on all.
pub fn unpinned(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let names = ["mem_host_first_delay_unpinned", "mem_guest_first_delay_unpinned", "mem_lost_cpu_s_unpinned"];
    run(bench, report, None, names)
}

fn run(bench: &mut Bench, report: &mut Report, cpu: Option<usize>, names: [&'static str; 3]) -> Result<()> {
    let [host_first_delay, guest_first_delay, lost_cpu_s] = names;
    let holder = hold(bench)?;
    let once = bench.owner(&hungry(bench.options.memory_mib, 3, "-1"))?;
    let pass_ms = once["pass_ms"].as_f64().unwrap_or(1.0).max(1e-3);
    let passes = (bench.options.block_s * 3000.0 / pass_ms).ceil() as u64;
    let count = bench.rounds_per(PAIRS);
    let mut lost = std::collections::BTreeMap::new();
    let orders = [(true, host_first_delay, 0.008), (false, guest_first_delay, 0.081)];
    for (host_first, name, target) in orders.into_iter().filter(|(host_first, ..)| !host_first || holder.is_none()) {
        let all = rounds(bench, "memory", count, |bench, _, way| {
            let (ms, lost_s) = block(bench, way, passes, host_first, cpu)?;
            if let Some(way) = way {
                *lost.entry(way).or_insert(0.0) += lost_s;
            }
            Ok(ms)
        })?;
        let row = Row::new(name, Unit::Percent);
        let row = if cpu.is_some() { row.target(Target::AtMost(target, 0.0)) } else { row };
        report.add(row.scatter(all.alone_slowdowns().map(Mean::scatter)).values(|way| Some(all.slowdowns(way)?.mean)));
    }
    report.add(Row::new(lost_cpu_s, Unit::Seconds).values(|way| lost.get(&way).copied()));
    match holder.map(|mut guests| guests.look()) {
        Some(gone) if gone > 0.0 => {
            Err(Error::Product("memory ran out, and the program that held it was ended".into()))
        }
        _ => Ok(()),
    }
}

/// How long the owner's program took, in milliseconds, and how many seconds of guests' CPU time came to nothing.
fn block(bench: &Bench, way: Option<Way>, passes: u64, host_first: bool, cpu: Option<usize>) -> Result<(f64, f64)> {
    let arrives = Duration::from_secs_f64(bench.options.block_s);
    let cpu = cpu.map_or(-1, |cpu| cpu as i64).to_string();
    let load = [words(&["touch", &bench.options.guest_memory_mib.to_string(), &cpu])];
    let owners = hungry(bench.options.memory_mib, passes, &cpu);
    bench.owner(&hungry(bench.options.memory_mib + bench.options.guest_memory_mib, 0, &cpu))?;
    let (child, guests) = if host_first {
        let child = bench.start_owner(&owners)?;
        pause(arrives);
        (child, bench.guests(way, &load)?)
    } else {
        let guests = bench.guests(way, &load)?;
        pause(arrives);
        // Unless it is asked what happens when there is none.
        if bench.options.memory_left_mib.is_none() {
            bench.owner(&hungry(bench.options.memory_mib, 0, &cpu))?;
        }
        (bench.start_owner(&owners)?, guests)
    };
    let (said, lost_s) = finish(child, guests)?;
    Ok((said["ms"].as_f64().unwrap_or(f64::NAN), lost_s))
}

/// Waits for the owner's program, and looks after the guests meanwhile.
fn finish(mut child: Child, mut guests: Option<Guests>) -> Result<(Value, f64)> {
    let (mut lost_s, mut looked) = (0.0, Instant::now());
    while child.try_wait().context(|| "cannot wait for a program of the owner's".to_owned())?.is_none() {
        pause(Duration::from_millis(20));
        if looked.elapsed() >= LOOK {
            lost_s += guests.as_mut().map_or(0.0, Guests::look);
            looked = Instant::now();
        }
    }
    Ok((said(child)?, lost_s))
}

fn hungry(mib: u64, passes: u64, cpu: &str) -> Vec<String> {
    words(&["hungry", &mib.to_string(), &passes.to_string(), cpu])
}

/// Makes memory short, if asked for; else fails if there is too little of it for the others on this machine.
fn hold(bench: &Bench) -> Result<Option<Guests>> {
    let available = available_mib();
    let wanted = bench.options.memory_mib + bench.options.guest_memory_mib;
    let Some(left) = bench.options.memory_left_mib else {
        return match available >= wanted + RESERVE_MIB {
            true => Ok(None),
            false => Err(Error::Missing(format!(
                "{available} MiB are available: too little for {wanted} and {RESERVE_MIB} for others"
            ))),
        };
    };
    let holder = bench.host.begin(Way::Equal, &[words(&["hold", &available.saturating_sub(left).to_string()])])?;
    for pid in holder.pids() {
        let path = std::path::PathBuf::from(format!("/proc/{pid}/oom_score_adj"));
        std::fs::write(&path, FIRST_TO_GO).at("write", &path)?;
    }
    Ok(Some(holder))
}

/// What the kernel thinks can be had without harm.
fn available_mib() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).map_or(0, |kib| kib >> 10)
}
