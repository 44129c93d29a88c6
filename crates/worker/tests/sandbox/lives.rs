//! Whose death ends whom, what bounds a task, other kinds of workers, and how long a launch takes.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base::ExitStatus;
use worker::sandbox::{self, Config, Error, Event};

use crate::world::{BASE, PATIENCE, World, eventually, folder_in_memory, world};

/// Processes, anywhere on this machine, of this client.
fn processes_of(base: u32) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let owned = |process: &i32| {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        if status.contains("\nState:\tZ") {
            return false;
        }
        let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next()?.parse().ok());
        uid.is_some_and(|uid: u32| (base..base + 65_536).contains(&uid))
    };
    numbers.filter(owned).collect()
}

#[test]
fn kill_leaves_nothing() {
    let world = world!();
    let base = BASE + 65_536;
    let mut order = world.shell("sleep 1000 & setsid sleep 1000 & (trap '' TERM; sleep 1000) & wait");
    order.id_base = base;
    let scratch: PathBuf = order.scratch.clone();
    let mut guest = world.started(order);
    eventually("all run", || processes_of(base).len() >= 5);
    guest.control().kill();
    assert!(matches!(world.event(&mut guest), Event::Killed));
    assert!(processes_of(base).is_empty());
    world.runtime.block_on(guest.gone()).expect("gone");
    std::fs::remove_dir_all(scratch).expect("nothing is mounted there");

    let mut order = world.shell("sleep 1000");
    order.id_base = base;
    drop(world.started(order));
    eventually("a dropped guest is gone", || processes_of(base).is_empty());
}

#[test]
fn guests_die_with_the_worker() {
    let base = BASE + 2 * 65_536;
    let (read, write) = rustix::pipe::pipe().expect("a pipe");
    // SAFETY: the child uses memory and threads of its own making only, as the C library allows after a fork.
    let worker = unsafe { libc::fork() };
    if worker == 0 {
        play_worker(base, write);
    }
    drop(write);
    let mut told = [0; 256];
    let count = rustix::io::read(&read, &mut told).expect("its word");
    if count == 0 {
        println!("SKIPPED: needs root");
        return;
    }
    let folder = PathBuf::from(String::from_utf8_lossy(&told[..count]).into_owned());
    assert!(!processes_of(base).is_empty());
    // SAFETY: this is our child.
    unsafe {
        libc::kill(worker, libc::SIGKILL);
        libc::waitpid(worker, std::ptr::null_mut(), 0);
    }
    eventually("all guests are gone", || processes_of(base).is_empty());
    // Another worker here may clear up after this one.
    let removed = std::fs::remove_dir_all(folder);
    let is_gone = removed.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
    assert!(removed.is_ok() || is_gone, "nothing is mounted there: {removed:?}");
}

/// Starts a guest, says in which folder, and waits to be killed.
fn play_worker(base: u32, tell: OwnedFd) -> ! {
    if let Some(world) = World::new() {
        let mut order = world.shell("sleep 1000 & sleep 1000");
        order.id_base = base;
        let guest = world.started(order);
        eventually("both run", || processes_of(base).len() >= 3);
        let _ = rustix::io::write(&tell, world.folder.path().as_os_str().as_encoded_bytes());
        world.runtime.block_on(tokio::time::sleep(Duration::from_secs(60)));
        drop(guest);
    }
    // SAFETY: a forked child must not return into the test harness.
    unsafe { libc::_exit(0) }
}

#[test]
fn worker_learns_of_the_zygotes_death() {
    let world = world!();
    let base = BASE + 3 * 65_536;
    let mut order = world.shell("sleep 1000");
    order.id_base = base;
    let mut guest = world.started(order);
    let [init] = processes_of(base)[..1] else { panic!("no process") };
    let status = std::fs::read_to_string(format!("/proc/{init}/status")).expect("its status");
    let parent = |status: &str| -> i32 {
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:\t"));
        line.expect("a parent").parse().expect("a number")
    };
    let zygote = parent(&status);
    assert_ne!(zygote, std::process::id() as i32);
    // SAFETY: this is the process that our sandbox forked.
    unsafe { libc::kill(zygote, libc::SIGKILL) };
    assert!(matches!(world.event(&mut guest), Event::Killed));
    let ended = async { tokio::time::timeout(PATIENCE, world.server.ended()).await };
    world.runtime.block_on(ended).expect("in time").expect("an end");
    assert!(matches!(world.spawn(world.shell("true")), Err(Error::ZygoteGone)));
    eventually("all guests are gone", || processes_of(base).is_empty());
}

#[test]
fn groups_hold_limits() {
    let name = format!("gleaner-sandbox-{}", std::process::id());
    let Some(world) = World::with_cgroup(Some(name.clone())) else { return };
    let limits = world.server.limits();
    if !(limits.memory && limits.pids) {
        println!("SKIPPED: no control groups here: {limits:?}");
        return;
    }
    let mut order = world.shell("for i in 1 2 3 4 5 6 7 8; do sleep 1 & done; true");
    order.pids_max = Some(5);
    assert!(world.run(order).0.contains("fork"), "too many processes");
    let mut order = world.order(&["sh", "-c", "head -c 40000000 /dev/zero | tail -c 40000000 | wc -c; exit 3"]);
    order.memory_bytes_max = Some(16 << 20);
    // Tail holds all of it in memory.
    if world.server.levers().kills_at_bound() {
        // Perhaps before it is told that it has started.
        let mut guest = world.spawn(order).expect("a guest");
        let mut events = std::iter::repeat_with(|| world.event(&mut guest));
        let end = events.find(|event| matches!(event, Event::Killed | Event::Exited { .. } | Event::Failed(_)));
        assert!(matches!(end, Some(Event::Killed)), "it ends as a whole: {end:?}");
    } else {
        assert_ne!(world.run(order).0, "40000000\n");
    }
    assert_eq!(world.run(world.order(&["true"])).1, ExitStatus::Code(0), "the next task in the same group");
    let folders =
        ["cpu", "memory", "pids", "unified", ""].map(|kind| Path::new("/sys/fs/cgroup").join(kind).join(&name));
    drop(world);
    eventually("groups are removed", || folders.iter().all(|folder| !folder.exists()));
}

/// Without root: a user with subordinate ids. The test plays that user in a child process, whose view of the two files
/// that grant the ids is its own.
#[test]
fn works_without_root() {
    if !rustix::process::geteuid().is_root() || !Path::new("/usr/bin/newuidmap").exists() {
        println!("SKIPPED: needs root to become another user, and newuidmap (package uidmap)");
        return;
    }
    let (read, write) = rustix::pipe::pipe().expect("a pipe");
    // The machine's root is mounted here in the child's view alone; removed by the parent, to whom it is empty: nothing
    // that the child removes recursively may have it beneath.
    let lower = tempfile::Builder::new().prefix("gleaner-lower-").tempdir_in("/dev/shm").expect("a folder").keep();
    // SAFETY: the child uses memory and threads of its own making only, as the C library allows after a fork.
    let worker = unsafe { libc::fork() };
    if worker == 0 {
        let told =
            std::panic::catch_unwind(|| play_unprivileged_worker(&lower)).unwrap_or_else(|_| "it panicked".into());
        let _ = rustix::io::write(&write, told.as_bytes());
        // SAFETY: a forked child must not return into the test harness.
        unsafe { libc::_exit(0) }
    }
    drop(write);
    let mut told = String::new();
    File::from(read).read_to_string(&mut told).expect("what it says");
    // SAFETY: this is our child.
    unsafe { libc::waitpid(worker, std::ptr::null_mut(), 0) };
    std::fs::remove_dir(&lower).expect("an empty folder");
    if told.starts_with("SKIPPED") {
        return println!("{told}");
    }
    assert_eq!(told, format!("1200345\nclient\n0000000000000000\nnull\n{}:1001", 1 + worker::ids::WIDE_MIN));
}

fn play_unprivileged_worker(lower: &Path) -> String {
    const DAEMON: u32 = 1;
    let folder = folder_in_memory();
    let ids = folder.path().join("ids");
    std::fs::write(&ids, "daemon:200000:65536\n").expect("a file");
    // SAFETY: descriptors are not unshared.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.expect("a mount namespace");
    let private = rustix::mount::MountPropagationFlags::REC | rustix::mount::MountPropagationFlags::PRIVATE;
    rustix::mount::mount_change("/", private).expect("private mounts");
    for file in ["/etc/subuid", "/etc/subgid"] {
        if rustix::mount::mount_bind(&ids, file).is_err() {
            return format!("SKIPPED: there is no {file}");
        }
    }
    std::os::unix::fs::chown(folder.path(), Some(DAEMON), Some(DAEMON)).expect("its folder");
    // Without what is mounted beneath: a layer with mounts that the user may not undo is refused.
    rustix::mount::mount_bind("/", lower).expect("a lower layer");
    let (user, group) = (rustix::fs::Uid::from_raw(DAEMON), rustix::fs::Gid::from_raw(DAEMON));
    rustix::thread::set_thread_groups(&[]).expect("no groups");
    rustix::thread::set_thread_res_gid(group, group, group).expect("another group");
    rustix::thread::set_thread_res_uid(user, user, user).expect("another user");
    // A program that the user had started would be.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable).expect("dumpable");
    let config = Config { place: folder.path().join("place"), cgroup: None };
    let server = match sandbox::prepare(&config) {
        Err(error @ Error::NoUserNamespaces(_)) => return format!("SKIPPED: {error}"),
        other => other.expect("a sandbox"),
    };
    assert!(!server.privileged());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let world = World { server, runtime, folder };
    let mut order = world
        .shell("id -u; hostname; grep CapEff /proc/self/status | cut -f2; echo x > /dev/null && echo null; touch made");
    order.id_base = world.server.id_base();
    order.command.uid = 1_200_345;
    order.ids = super::world::places(&order);
    order.lower = lower.into();
    // The machine's own folder belongs to an id that the user does not have, so it could not be copied up.
    let tmp = order.scratch.join("upper/tmp");
    std::fs::create_dir(&tmp).expect("a folder");
    std::fs::set_permissions(&tmp, std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("its mode");
    let made = order.scratch.join("upper/tmp/made");
    let (mut text, _) = world.run(order);
    // In the worker's own namespace the file is the guest's; outside it is of a subordinate id.
    let found = std::fs::metadata(made).expect("what it made");
    text.push_str(&format!("{}:{}", found.uid(), found.gid()));
    text
}

/// Not a check but a measurement: `cargo test --release -p worker --test sandbox -- --nocapture launches`.
#[test]
fn launches_are_quick() {
    let name = format!("gleaner-launch-{}", std::process::id());
    let launches = if cfg!(debug_assertions) { 24 } else { 200 };
    for cgroup in [None, Some(name)] {
        let grouped = cgroup.is_some();
        let Some(world) = World::with_cgroup(cgroup) else { return };
        let (mut all, mut gone) = (Vec::new(), Vec::new());
        for _ in 0..launches {
            let order = world.order(&["/bin/true"]);
            let start = Instant::now();
            let mut guest = world.spawn(order).expect("a guest");
            while !matches!(world.event(&mut guest), Event::Exited { .. }) {}
            all.push(start.elapsed().as_micros());
            world.runtime.block_on(guest.gone()).expect("gone");
            gone.push(start.elapsed().as_micros());
        }
        all.sort_unstable();
        gone.sort_unstable();
        let start = Instant::now();
        for _ in 0..launches / 8 {
            let orders: Vec<_> = (0..8).map(|_| world.order(&["/bin/true"])).collect();
            world.runtime.block_on(async {
                let mut guests = Vec::new();
                for order in orders {
                    guests.push(world.server.spawn(order).await.expect("a guest"));
                }
                for guest in &mut guests {
                    while !matches!(guest.event().await.expect("an event"), Event::Exited { .. }) {}
                    guest.gone().await.expect("gone");
                }
            });
        }
        println!(
            "8 at once: {:.0} launches/s; {:?}",
            launches as f64 / start.elapsed().as_secs_f64(),
            world.server.limits()
        );
        println!(
            "{launches} launches, groups {grouped}: to exit p50 {} us, p99 {} us; to gone p50 {} us",
            all[launches / 2],
            all[launches * 99 / 100],
            gone[launches / 2]
        );
    }
}
