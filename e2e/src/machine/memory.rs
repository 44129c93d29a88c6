//! Memory: what guests may have of it, and what becomes of them when the owner wants more than is left.

use super::swap::Swap;
use super::{BOUND, Guest, Seen, ask, field, number, random_file, seconds_from_now};
use crate::bench::group::Group;
use crate::error::{Context, Result};
use crate::pool::Pool;
use crate::process::{Ended, pause, wait_for};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What a program begins with that takes memory piece by piece. Of bytes that cannot be compressed: else swap would be for nothing.
const PIECES: &str = "open R, '<', '/dev/urandom'; read R, $b, 1 << 20;";
const MIB: u64 = 1 << 20;
/// Memory that a greedy guest would have, in pieces of 8 MiB: more than the machine.
const GREEDY_PIECES: u64 = 400;
/// What it may have beyond its bound, in parts of that: beyond `memory.high` a kernel lets programs grow, but slower and slower.
const BEYOND: f64 = 0.2;
/// What a guest holds that has to leave, and the file that it has read.
const HELD_MIB: u64 = 160;
const READ_MIB: usize = 48;
/// When it ends at the earliest, in seconds from its beginning: by then it has had to leave.
const UNTIL_S: u64 = 240;
/// The status of a command that was done nowhere.
const NOT_DONE: i32 = 125;
/// How much an owner takes at once, and what he leaves of what is available: guests' memory is needed.
const OWNERS_PIECE_MIB: u64 = 16;
const OWNER_LEAVES_MIB: u64 = 64;

/// A guest wants more than the machine has: it gets what is lent, waits for more, and after a while is told that there is not as much.
pub fn bounded(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let killed = out_of_memory();
    let program =
        format!("{PIECES} while (1) {{ push @a, $b x 8 if @a < {GREEDY_PIECES}; select undef, undef, undef, 0.05 }}");
    let (mut guest, seen) = Guest::start(pool, "greedy", &program)?;
    let beyond = || field(seen.all(), "memory.events", "high ") > 0;
    if wait_for(BOUND, || beyond().then_some(())).is_none() {
        let told = ask(pool, seen.worker);
        return Ok(vec![format!(
            "it does not come to its bound: memory.high {}, {told}",
            super::read(seen.all(), "memory.high")
        )]);
    }
    let bound = number(seen.all(), "memory.high").unwrap_or(0);
    let began = Instant::now();
    let (mut most, mut swapped) = (0, 0);
    let mut told = ask(pool, seen.worker);
    while began.elapsed() < BOUND && told["evicted"] == 0 {
        most = most.max(number(seen.all(), "memory.current").unwrap_or(0));
        swapped = swapped.max(number(seen.all(), "memory.swap.current").unwrap_or(0));
        if told["rests"] != false {
            wrong.push(format!("it is frozen: {told}"));
            break;
        }
        pause(Duration::from_millis(200));
        told = ask(pool, seen.worker);
    }
    let waited_s = began.elapsed().as_secs();
    if most as f64 > bound as f64 * (1.0 + BEYOND) {
        wrong.push(format!("it has {} MiB, its bound was {}", most / MIB, bound / MIB));
    }
    if swapped > 0 {
        wrong.push(format!("{} KiB of it are in the owner's swap", swapped >> 10));
    }
    // All workers are on this machine: it is not done elsewhere either.
    let ended = guest.ended();
    if ended != Some(Ended::Code(NOT_DONE)) {
        wrong.push(format!("its client is told that it needs too much: {ended:?}, {told}"));
    }
    if out_of_memory() != killed {
        wrong.push("the kernel had to end a program for want of memory".to_owned());
    }
    println!(
        "measured: at a bound of {} MiB a guest that wants more has {} MiB, for {waited_s} s",
        bound / MIB,
        most / MIB
    );
    Ok(wrong)
}

/// The same where there is swap.
pub fn bounded_beside_swap(pool: &mut Pool) -> Result<Vec<String>> {
    let _swap = Swap::on()?;
    bounded(pool)
}

/// The owner wants memory that a guest has: in this order its cache goes, it is frozen, it ends.
pub fn short(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let killed = out_of_memory();
    let place = crate::scenario::folder(pool, "holds")?;
    random_file(&place.join("read"), READ_MIB << 20)?;
    let until = seconds_from_now(UNTIL_S);
    let program = format!(
        "open I, '<', 'read'; 1 while sysread I, $x, 1 << 20; {PIECES} $a = $b x {HELD_MIB}; \
         while (time < {until}) {{ select undef, undef, undef, 0.2 }} open F, '>', 'done'; print F 'done'"
    );
    let (mut guest, seen) = Guest::start(pool, "holds", &program)?;
    let cache = || ask(pool, seen.worker)["memory"]["cache_bytes"].as_u64().unwrap_or(0);
    let holds = || number(&seen.group, "memory.current").unwrap_or(0) > HELD_MIB * MIB;
    if wait_for(BOUND, || holds().then_some(())).is_none() || cache() < READ_MIB as u64 * MIB / 2 {
        return Ok(vec![format!("it does not hold memory and cache: {}", ask(pool, seen.worker))]);
    }
    let group = Group::new("owner")?;
    let mut owner = hungry(&group)?;
    let events = watch(pool, &seen, &mut owner, cache());
    let ended = wait_for(BOUND, || owner.try_wait().ok().flatten()).map(Ended::from);
    if ended.is_none() {
        let _ = owner.kill();
        let _ = owner.wait();
    }
    if ended != Some(Ended::Code(0)) || out_of_memory() != killed {
        wrong.push(format!("the owner's program: {ended:?}; ended for want of memory: {}", out_of_memory() - killed));
    }
    if events != ["cache is dropped", "guests are frozen", "a guest leaves"] {
        wrong.push(format!("what happened: {}", events.join(", ")));
    }
    // All workers are on this machine: as long as it is short, the guest finds room nowhere.
    match (guest.ended(), place.join("done").exists()) {
        (Some(Ended::Code(0)), true) => println!("measured: the guest was done again when there was room again"),
        (Some(Ended::Code(NOT_DONE)), false) => println!("measured: the guest's client was told that there is no room"),
        (ended, is_done) => wrong.push(format!("its client noticed: {ended:?}, its file is there: {is_done}")),
    }
    Ok(wrong)
}

/// The same where there is swap.
pub fn short_beside_swap(pool: &mut Pool) -> Result<Vec<String>> {
    let _swap = Swap::on()?;
    short(pool)
}

/// A program of the owner's that takes almost all that is available, guests' cache included, and then some time.
fn hungry(group: &Group) -> Result<Child> {
    let available = field(Path::new("/proc"), "meminfo", "MemAvailable") >> 10;
    let pieces = available.saturating_sub(OWNER_LEAVES_MIB) / OWNERS_PIECE_MIB;
    let program = format!(
        "{PIECES} while (@a < {pieces}) {{ push @a, $b x {OWNERS_PIECE_MIB}; select undef, undef, undef, 0.1 }} sleep 3"
    );
    let mut command = Command::new("perl");
    command.args(["-e", &program]).stdin(Stdio::null());
    group.holds(&mut command)?;
    command.spawn().context(|| "cannot start perl".to_owned())
}

/// What the worker does until the owner's program has ended, in order.
fn watch(pool: &Pool, seen: &Seen, owner: &mut Child, cache: u64) -> Vec<&'static str> {
    let mut events = Vec::new();
    let began = Instant::now();
    while began.elapsed() < BOUND && matches!(owner.try_wait(), Ok(None)) {
        let told = ask(pool, seen.worker);
        let is_there = told["guests"].as_array().is_some_and(|guests| !guests.is_empty());
        let left = told["memory"]["cache_bytes"].as_u64().unwrap_or(cache);
        let now = [
            ("cache is dropped", is_there && left < cache / 2),
            ("guests are frozen", told["rests"] == true),
            ("a guest leaves", told["evicted"].as_u64().unwrap_or(0) > 0),
        ];
        for (event, happened) in now {
            if happened && !events.contains(&event) {
                events.push(event);
            }
        }
        pause(Duration::from_millis(20));
    }
    events
}

/// How many programs the kernel has ended for want of memory.
fn out_of_memory() -> u64 {
    field(Path::new("/proc"), "vmstat", "oom_kill ")
}
