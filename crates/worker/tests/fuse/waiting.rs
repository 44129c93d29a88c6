//! Who waits for an answer from elsewhere: is freed, dies, or stops waiting.

use super::*;

/// A process that asks for `path`.
pub(crate) fn asker(path: &Path) -> std::process::Child {
    Command::new("stat").arg(path).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("stat is there")
}

pub(crate) fn within(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    while started.elapsed() < limit {
        if done() {
            return true;
        }
        let pause = rustix::fs::Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
        let _ = rustix::thread::nanosleep(&pause);
    }
    false
}

#[test]
fn cancelling_frees_who_waits() {
    let Some(world) = World::new() else { return };
    fs::write(world.at("f"), b"f").expect("the client can write");
    fs::write(world.at("slow"), b"slow").expect("the client can write");
    world.client.silence("/slow");
    let lane = world.launch();
    let mut first = asker(&lane.path().join("slow"));
    world.client.wait_held(1);
    let mut second = asker(&lane.path().join("slow"));
    assert!(within(Duration::from_secs(5), || world.mirror.counters().waiting == 1), "the kernel itself lets one ask");
    assert_eq!(fs::read(lane.path().join("f")).expect("others are not blocked"), b"f");
    let started = Instant::now();
    lane.cancel();
    assert!(!first.wait().expect("it ran").success());
    lane.cancel();
    let mut out = String::new();
    world.client.speak();
    let status = second.wait().expect("it ran");
    std::io::Read::read_to_string(&mut second.stderr.take().expect("piped"), &mut out).expect("readable");
    assert!(status.success() || out.contains("Input/output error"), "{out}");
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_killed_process_dies_though_its_lookup_waits() {
    let Some(world) = World::new() else { return };
    fs::write(world.at("slow"), b"slow").expect("the client can write");
    world.client.silence("/slow");
    let lane = world.launch();
    // At once, and after a signal that does not kill, for which alone the kernel sends word.
    for first in [None, Some(rustix::process::Signal::WINCH)] {
        let mut child = asker(&lane.path().join("slow"));
        assert!(within(Duration::from_secs(5), || world.mirror.counters().waiting == 1));
        let pid = rustix::process::Pid::from_child(&child);
        if let Some(signal) = first {
            rustix::process::kill_process(pid, signal).expect("it lives");
            assert!(!within(Duration::from_millis(100), || world.mirror.counters().waiting == 0), "it goes on waiting");
        }
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it lives");
        assert!(within(Duration::from_secs(5), || child.try_wait().expect("ours").is_some()), "it died");
        assert_eq!(child.wait().expect("ours").signal(), Some(libc::SIGTERM));
    }
}

#[test]
fn waiting_ends_by_itself() {
    let Some(world) = World::with(|options| options.wait_max = Duration::from_millis(200), |_| {}) else { return };
    fs::write(world.at("slow"), b"slow").expect("the client can write");
    world.client.silence("/slow");
    let lane = world.launch();
    let started = Instant::now();
    let error = fs::symlink_metadata(lane.path().join("slow")).expect_err("nobody answers");
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    assert!((190..2000).contains(&started.elapsed().as_millis()), "{:?}", started.elapsed());
    // The answer comes late, and is good for the next who asks.
    world.client.speak();
    let (_, asked) = world.asked(|| fs::symlink_metadata(lane.path().join("slow")).expect("known now"));
    assert_eq!((asked.lookups, world.client.binds()), (1, 2), "the root, and the file");
}

#[test]
fn one_question_for_all_who_wait() {
    let Some(world) = World::new() else { return };
    fs::create_dir(world.at("d")).expect("the client can make folders");
    fs::write(world.at("d/slow"), b"slow").expect("the client can write");
    world.client.use_paths(&["/", "/d"]);
    world.client.silence("/d/slow");
    let old = world.launch();
    let mut askers = vec![asker(&old.path().join("d/slow"))];
    world.client.wait_held(1);
    // Another lane of the same view: the kernel asks for it by itself.
    fs::write(world.at("x"), b"").expect("the client can write");
    let new = world.launch();
    assert_ne!(old.path(), new.path());
    askers.push(asker(&new.path().join("d/slow")));
    assert!(within(Duration::from_secs(5), || world.mirror.counters().waiting == 2));
    world.client.speak();
    for mut child in askers {
        assert!(child.wait().expect("ours").success());
    }
    assert_eq!(world.client.binds(), 1);
    assert_eq!((old.faults().count, new.faults().count), (1, 1));
}
