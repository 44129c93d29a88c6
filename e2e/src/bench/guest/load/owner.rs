//! What an owner does that needs no files: bursts after a person's input, a probe, loops, and a program that wants memory.

use super::{Words, Work};
use crate::bench::tasks::dice::Dice;
use crate::error::Result;
use rustix::thread::ClockId;
use rustix::time::Timespec;
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

const NS_PER_MS: f64 = 1e6;
const NS_PER_S: f64 = 1e9;
/// How often the probe wakes.
const PROBE_NS: u64 = 10_000_000;

/// Nanoseconds on the monotonic clock.
pub fn now() -> u64 {
    nanoseconds(rustix::time::clock_gettime(rustix::time::ClockId::Monotonic))
}

fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sleeps until that time, or not at all if it is over.
pub fn sleep_until(at: u64) {
    let at = Timespec { tv_sec: (at / 1_000_000_000) as i64, tv_nsec: (at % 1_000_000_000) as i64 };
    while rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &at).is_err() {}
}

/// Steps of work in a millisecond, by the best of many tries: `{"steps_per_ms": N}`.
pub fn calibrate(_: &mut Words<'_>) -> Result<()> {
    let mut work = Work::new();
    work.steps(1 << 20);
    let try_once = |work: &mut Work| {
        let started = Instant::now();
        work.steps(1 << 20);
        f64::from(1 << 20) / (started.elapsed().as_secs_f64() * 1000.0)
    };
    let best = (0..40).map(|_| try_once(&mut work)).fold(0.0, f64::max);
    println!("{}", json!({ "steps_per_ms": best as u64 }));
    Ok(())
}

/// `SECONDS STEPS_PER_MS BURST_MS PERIOD_MS SEED`: bursts of fixed work, begun at fixed times whose distance varies by a quarter about
/// the period. `{"ms": [...]}`: from when each was to begin until it was done; a burst that begins late because the one before took long is
/// late for its person all the same.
pub fn bursts(words: &mut Words<'_>) -> Result<()> {
    let (seconds, per_ms): (f64, u64) = (words.next()?, words.next()?);
    let (burst_ms, period_ms, seed): (f64, f64, u64) = (words.next()?, words.next()?, words.next()?);
    let (mut work, mut dice) = (Work::new(), Dice(seed));
    let steps = (burst_ms * per_ms as f64) as u64;
    work.steps(steps);
    let (mut due, mut took) = (now(), Vec::new());
    let end = due + (seconds * NS_PER_S) as u64;
    while due < end {
        sleep_until(due);
        work.steps(steps);
        took.push((now() - due) as f64 / NS_PER_MS);
        due += (period_ms * NS_PER_MS * (0.75 + dice.below(500) as f64 / 1000.0)) as u64;
    }
    println!("{}", json!({ "ms": took }));
    Ok(())
}

/// `SECONDS STEPS_PER_MS`: wakes every 10 ms and does one millisecond of work. `{"wake_ms": [...], "burst_ms": [...]}`: how late, and how
/// long the work took.
pub fn probe(words: &mut Words<'_>) -> Result<()> {
    let (seconds, per_ms): (f64, u64) = (words.next()?, words.next()?);
    let mut work = Work::new();
    work.steps(per_ms);
    let (mut wakes, mut took) = (Vec::new(), Vec::new());
    let mut due = now() + PROBE_NS;
    let end = due + (seconds * NS_PER_S) as u64;
    while due < end {
        sleep_until(due);
        let woke = now();
        work.steps(per_ms);
        let done = now();
        wakes.push((woke - due) as f64 / NS_PER_MS);
        took.push((done - woke) as f64 / NS_PER_MS);
        // What was missed is left out: a probe that wakes later than its next turn has told that already.
        due += PROBE_NS * ((done - due) / PROBE_NS + 1);
    }
    println!("{}", json!({ "wake_ms": wakes, "burst_ms": took }));
    Ok(())
}

/// `SECONDS STEPS_PER_MS COUNT CPU PIDS…`: so many threads compute without rest, on that CPU if it is not negative. `{"owner_ns", "guest_ns"}`: CPU time
/// that they, and those processes, got meanwhile; the guests' is read inside, so that nothing of starting and ending counts.
pub fn loops(words: &mut Words<'_>) -> Result<()> {
    let (seconds, _): (f64, u64) = (words.next()?, words.next()?);
    let (count, cpu): (usize, i64) = (words.next()?, words.next()?);
    let pids: Vec<i32> = words.rest();
    super::stay_on(cpu)?;
    let (stop, owner_ns) = (AtomicBool::new(false), AtomicU64::new(0));
    let own = || nanoseconds(rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime));
    let guests = || pids.iter().map(|pid| cpu_ns(*pid).unwrap_or(0)).sum::<u64>();
    let compute = |until: &dyn Fn() -> bool| {
        let (mut work, before) = (Work::new(), own());
        while !until() {
            work.steps(1 << 14);
        }
        owner_ns.fetch_add(own() - before, Ordering::Relaxed);
    };
    let guest_ns = std::thread::scope(|scope| {
        for _ in 1..count {
            scope.spawn(|| compute(&|| stop.load(Ordering::Relaxed)));
        }
        let (before, end) = (guests(), now() + (seconds * NS_PER_S) as u64);
        compute(&|| now() >= end);
        let after = guests();
        stop.store(true, Ordering::Relaxed);
        after.saturating_sub(before)
    });
    println!("{}", json!({ "owner_ns": owner_ns.into_inner(), "guest_ns": guest_ns }));
    Ok(())
}

/// CPU time that a process's threads have got, in nanoseconds; none if it is gone.
pub fn cpu_ns(pid: i32) -> Option<u64> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let files = tasks.flatten().map(|task| task.path().join("schedstat"));
    let first = |text: String| text.split_whitespace().next()?.parse::<u64>().ok();
    Some(files.filter_map(|file| first(std::fs::read_to_string(file).ok()?)).sum())
}

/// `MIB PASSES CPU`: takes so much memory and writes to each cache line of it so often, on that CPU if it is not negative. `{"ms", "pass_ms"}`: all
/// of it, and a pass in the mean.
pub fn hungry(words: &mut Words<'_>) -> Result<()> {
    let (mib, passes, cpu): (usize, u64, i64) = (words.next()?, words.next()?, words.next()?);
    super::stay_on(cpu)?;
    let started = Instant::now();
    let mut memory = vec![1u64; mib << 17];
    let filled = started.elapsed().as_secs_f64();
    (0..passes).for_each(|_| pass(&mut memory));
    let all = started.elapsed().as_secs_f64();
    println!("{}", json!({ "ms": all * 1e3, "pass_ms": (all - filled) * 1e3 / passes.max(1) as f64 }));
    Ok(())
}

/// Writes to each cache line once.
pub fn pass(memory: &mut [u64]) {
    memory.iter_mut().step_by(8).for_each(|word| *word = word.wrapping_add(1));
    std::hint::black_box(&memory[0]);
}
