//! Guests that take what they can get: each is called off with its reason, with control groups and without. A program of its own: what runs
//! beside bombs has a hard time.

#[path = "../sandbox/world.rs"]
#[allow(dead_code, unused_macros, unused_imports)]
mod world;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sched::charge::{Amounts, Bounds};
use wire::message::{Failed, FailedKind};
use worker::charge::{Charges, Task};
use worker::sandbox::{Event, Order};

use world::{BASE, PATIENCE, World, eventually};

const MIB: u64 = 1 << 20;

/// One bomb at a time.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A Python that a guest can run.
fn python() -> Option<String> {
    let found = ["/usr/bin/python3", "/usr/local/bin/python3"].iter().find(|path| Path::new(path).exists());
    if found.is_none() {
        println!("SKIPPED: no python3 for everyone here");
    }
    found.map(|path| (*path).to_owned())
}

/// What one task may have in these tests.
fn bounds() -> Bounds {
    let all = Amounts { disk: 128 * MIB, files: 4_000, memory: 256 * MIB, processes: 200 };
    Bounds::of(all, 50, 75)
}

/// What many processes are called off for: each has some memory, and which of the two is seen first is chance.
const PROCESSES: &[&str] = &["it has more processes than a task may", "it needs more memory than a task may"];

/// Attacks, and how the reason begins for which they end.
const ATTACKS: [(&str, &[&str]); 9] = [
    ("while :; do sleep 60 & done", PROCESSES),
    ("bomb() { bomb | bomb & }; bomb; sleep 60", PROCESSES),
    ("head -c 300000000 /dev/zero | tail -c 300000000 | sleep 60", &["it needs more memory than a task may"]),
    ("head -c 300000000 /dev/zero > /dev/shm/x; sleep 60", &["it needs more memory than a task may"]),
    ("head -c 100000000 /dev/zero > f; sleep 60", &["it writes more than a task may"]),
    ("exec 3> f; rm f; head -c 100000000 /dev/zero >&3; sleep 60", &["it writes more than a task may"]),
    (
        "exec 3> f; rm f; exec 3<&-; truncate -s 1T g; fallocate -l 100000000 h; sleep 60",
        &["it writes more than a task may"],
    ),
    ("mkdir d; i=0; while :; do : > d/$i; i=$((i+1)); done", &["it makes more files than a task may"]),
    ("while :; do mkdir d; cd d; done", &["it makes more files than a task may"]),
];

/// Runs an attack until it is called off: why.
fn called_off(world: &World, order: Order, script: &str) -> Option<Failed> {
    let charges = Charges::start(bounds()).expect("a thread");
    let folder = order.scratch.clone();
    let mut guest = world.spawn(order).expect("a guest");
    let task = Task {
        client: BASE,
        folder,
        is_on_disk: true,
        is_guest: true,
        group: guest.group().to_owned(),
        levers: world.server.levers().clone(),
        control: Some(guest.control()),
        asked_memory: 0,
    };
    let mut charge = charges.begin(task);
    let ended = world.runtime.block_on(async {
        let events = async {
            loop {
                match guest.event().await.expect("an event") {
                    Event::Exited { .. } | Event::Killed => return,
                    Event::OthersRemain => guest.control().end_others(),
                    Event::Failed(failure) => panic!("{script}: {failure}"),
                    _ => {}
                }
            }
        };
        tokio::select! {
            why = charge.passed() => Some(why),
            () = events => None,
            () = tokio::time::sleep(PATIENCE) => panic!("never: {script}"),
        }
    });
    guest.control().kill();
    world.runtime.block_on(guest.gone()).expect("gone");
    // What the kernel refused shows at the end.
    ended.or_else(|| charge.refused())
}

fn order(world: &World, script: &str) -> Order {
    let mut order = world.shell(script);
    order.memory_bytes_max = world.server.levers().kills_at_bound().then(|| bounds().task.memory);
    order.pids_max = Some(bounds().all.processes as u32);
    order
}

fn attack(world: &World) {
    // As a worker does, before the first task.
    world.server.levers().wait_for_memory();
    let counts = world.server.levers().counts();
    for (script, want) in ATTACKS {
        // Where the kernel's bound is for each user, a bomb that comes to it may be over before it is seen: this one stays.
        let stays = "i=0; while [ $i -lt 150 ]; do sleep 60 & i=$((i + 1)); done; wait";
        let script = if script.contains("bomb") && !counts { stays } else { script };
        let order = order(world, script);
        let scratch = order.scratch.clone();
        let why = called_off(world, order, script).unwrap_or_else(|| panic!("{script} was let do it"));
        assert!(want.iter().any(|want| why.message.starts_with(want)), "{script}: {}", why.message);
        assert_eq!(why.reason(), FailedKind::Unable, "{script}");
        eventually("it can be removed", || worker::trees::remove(&scratch).is_ok() || !scratch.exists());
    }
    // Who keeps to its bounds is let do it.
    let script = "seq 1 1000 | while read n; do echo $n > f$n; done; ls f* | wc -l";
    assert!(called_off(world, order(world, script), script).is_none());
}

#[test]
fn who_takes_more_than_it_may_is_called_off_by_its_groups() {
    let _turn = turn();
    let name = format!("gleaner-bounds-{}", std::process::id());
    let Some(world) = World::with_cgroup(Some(name)) else { return };
    if !world.server.levers().counts() {
        return println!("SKIPPED: no control groups here: {:?}", world.server.limits());
    }
    attack(&world);
}

#[test]
fn who_takes_more_than_it_may_is_called_off_without_groups() {
    let _turn = turn();
    let Some(world) = World::new() else { return };
    assert!(!world.server.levers().counts());
    attack(&world);
}

/// As root a guest can become as many users as it likes, so no count of processes by user holds it.
#[test]
fn a_root_guest_that_becomes_many_users_is_called_off_without_groups() {
    let _turn = turn();
    let Some(world) = World::new() else { return };
    let Some(python) = python() else { return };
    let script = "import os, time
for uid in range(1, 60000):
    if os.fork() == 0:
        os.setuid(uid)
        if os.fork() == 0: pass
        time.sleep(60)
";
    let mut order = world.order(&[&python, "-I", "-S", "-c", script]);
    (order.command.uid, order.command.gid) = (0, 0);
    order.pids_max = Some(bounds().all.processes as u32);
    let why = called_off(&world, order, "many users").expect("it is called off");
    assert!(PROCESSES.iter().any(|want| why.message.starts_with(want)), "{}", why.message);
}

#[test]
fn a_tree_of_any_depth_is_removed() {
    let _turn = turn();
    let Some(world) = World::new() else { return };
    let Some(python) = python() else { return };
    let script = "import os
for _ in range(10000): os.mkdir('d'); os.chdir('d')
open('f', 'w')
print('made')
";
    let order = world.order(&[&python, "-I", "-S", "-c", script]);
    let scratch = order.scratch.clone();
    assert_eq!(world.run(order).0, "made\n");
    assert!(scratch.exists());
    worker::trees::remove(&scratch).expect("it is removed");
    assert!(!scratch.exists());
}
