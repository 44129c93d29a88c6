//! The mirror under the real kernel: what it shows, what it asks, what it forgets, and how waiting ends.

mod attributes;
mod client;
mod costs;
mod names;
mod waiting;

use base::delta::Base;
use base::{Binding, Bound, Seq, TaskId, Version, ViewUpdate};
use client::{Client, VIEW, path_of};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, SeekFrom};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use waiting::{asker, within};
use worker::fuse::{Counters, LaneGuard, Mirror, MountOptions, detach_left_over};

const ID_BASE: u32 = 300_000;

/// A client's tree and its mirror, in a mount namespace of the test's own.
struct World {
    folder: tempfile::TempDir,
    client: Arc<Client>,
    mirror: Arc<Mirror>,
    tasks: AtomicU64,
}

/// Gives this thread, and what it starts, a mount namespace of its own.
fn private() -> bool {
    let able = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !able {
        println!("SKIPPED: needs root and /dev/fuse");
        return false;
    }
    // SAFETY: a file system and mount namespace of its own for this thread changes nothing for others.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.expect("root may unshare");
    let flags = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    rustix::mount::mount_change("/", flags).expect("root may make mounts private");
    true
}

impl World {
    fn new() -> Option<Self> {
        Self::with(|_| {}, |_| {})
    }

    fn with(change_options: impl Fn(&mut MountOptions), change_client: impl Fn(&mut Client)) -> Option<Self> {
        if !private() {
            return None;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(folder.path().join("client")).expect("a folder for the client");
        let mut client = Client::new(folder.path().join("client"));
        change_client(&mut client);
        let client = Arc::new(client);
        let mut options = MountOptions::new(folder.path().join("mirror"), ID_BASE);
        change_options(&mut options);
        let mirror = Mirror::mount(options, client.clone()).expect("root may mount");
        Some(Self { folder, client, mirror, tasks: AtomicU64::new(0) })
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join("client").join(path)
    }

    fn launch(&self) -> LaneGuard {
        let update: ViewUpdate = self.client.launch();
        self.mirror.apply(&update).expect("the updates are in order");
        let task = TaskId(self.tasks.fetch_add(1, Ordering::Relaxed).into());
        self.mirror.take_lane(VIEW, update.version, task).expect("the version was just applied")
    }

    /// What the kernel asks while `what` is done.
    fn asked<T>(&self, what: impl FnOnce() -> T) -> (T, Counters) {
        let before = self.mirror.counters();
        let value = what();
        let after = self.mirror.counters();
        let asked = Counters {
            lookups: after.lookups - before.lookups,
            getattrs: after.getattrs - before.getattrs,
            readdirs: after.readdirs - before.readdirs,
            readlinks: after.readlinks - before.readlinks,
            reads: after.reads - before.reads,
            others: after.others - before.others,
            waiting: 0,
        };
        (value, asked)
    }
}

/// A time of the last access, in the future.
const ACCESSED_SECS: i64 = 4_000_000_000;

fn make_tree(root: &Path) {
    let file = |name: &str, bytes: &[u8]| fs::write(root.join(name), bytes).expect("the client can write");
    let long = "n".repeat(255);
    for dir in ["a", "a/b", "empty", "sticky", &long] {
        fs::create_dir(root.join(dir)).expect("the client can make folders");
    }
    file("a/one", b"one");
    file("a/none", b"");
    file("a/b/large", &(0..300_000u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>());
    file(&format!("{long}/{long}"), b"deep");
    fs::write(root.join(OsStr::from_bytes(b"not-\xff\xfe-utf8")), b"x").expect("any bytes are a name");
    symlink("one", root.join("a/link")).expect("links can be made");
    symlink("loop", root.join("loop")).expect("links can be made");
    symlink("/nowhere/at/all", root.join("dangling")).expect("links can be made");
    fs::hard_link(root.join("a/one"), root.join("a/uno")).expect("hard links can be made");
    file("a/twin1", b"same");
    file("a/twin2", b"same");
    for (name, mode) in [("a/one", 0o4751), ("sticky", 0o1777), ("a/none", 0o000)] {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).expect("modes can be set");
    }
    std::os::unix::fs::chown(root.join("a/twin1"), Some(1000), Some(70_000)).expect("root may chown");
    let old = fs::File::options().write(true).open(root.join("a/twin2")).expect("it is there");
    old.set_modified(std::time::UNIX_EPOCH - Duration::new(86_400, 5)).expect("times can be set");
    let sparse = fs::File::create(root.join("sparse")).expect("the client can write");
    sparse.set_len(8 << 20).expect("files can have holes");
    sparse.write_all_at(&[7; 9000], 3 << 20).expect("the client can write");
    for at in 0..700 {
        file(&format!("a/b/entry-{at:04}"), b"");
    }
    // In the future, so that comparing moves no time of the last access: the kernel would be told to forget what has another one.
    let set = ["-depth", "-exec", "touch", "-h", "-a", "-d", &format!("@{ACCESSED_SECS}.25"), "{}", "+"];
    let set = std::process::Command::new("find").arg(root).args(set).status();
    assert!(set.expect("runs find").success());
}

fn data_map(path: &Path, size: u64) -> Vec<(u64, u64)> {
    let file = rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).expect("it can be opened");
    let (mut map, mut at) = (Vec::new(), 0);
    while let Ok(data) = rustix::fs::seek(&file, SeekFrom::Data(at)) {
        at = rustix::fs::seek(&file, SeekFrom::Hole(data)).expect("a hole follows at the end");
        map.push((data, at));
        if at >= size {
            break;
        }
    }
    map
}

fn shown_id(id: u32) -> u32 {
    // The only one that has none of its own has the first place.
    ID_BASE + if id == 70_000 { worker::ids::WIDE_MIN } else { id }
}

/// Compares two trees in all that the mirror promises. Returns how many things there are.
fn compare(client: &Path, mirror: &Path) -> usize {
    let (want, got) = (fs::symlink_metadata(client).expect("there"), fs::symlink_metadata(mirror).expect("mirrored"));
    let shown = |meta: &fs::Metadata| {
        // Others are moved by comparing.
        let accessed = (meta.atime() == ACCESSED_SECS).then(|| meta.atime_nsec());
        let times = (meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec(), accessed);
        (meta.mode(), meta.nlink(), meta.len(), meta.blocks(), meta.ino(), times)
    };
    assert_eq!(shown(&got), shown(&want), "{}", client.display());
    assert_eq!((got.uid(), got.gid()), (shown_id(want.uid()), shown_id(want.gid())), "{}", client.display());
    if want.is_symlink() {
        assert_eq!(fs::read_link(mirror).expect("a link"), fs::read_link(client).expect("a link"));
    } else if want.is_file() {
        assert!(fs::read(mirror).expect("readable") == fs::read(client).expect("readable"), "{}", client.display());
        assert_eq!(data_map(mirror, want.len()), data_map(client, want.len()), "holes of {}", client.display());
    }
    if !want.is_dir() {
        return 1;
    }
    let list = |path: &Path| -> BTreeMap<_, _> {
        let entries = fs::read_dir(path).expect("listable").map(|entry| entry.expect("an entry"));
        entries.map(|entry| (entry.file_name(), entry.file_type().expect("told by readdir"))).collect()
    };
    let (want, got) = (list(client), list(mirror));
    assert_eq!(got, want, "names of {}", client.display());
    1 + want.keys().map(|name| compare(&client.join(name), &mirror.join(name))).sum::<usize>()
}

#[test]
fn a_whole_tree_is_as_at_the_client() {
    for far in [false, true] {
        let Some(world) = World::with(|_| {}, |client| client.far = far) else { return };
        make_tree(&world.at(""));
        let first = world.launch();
        let count = compare(&world.at(""), &first.path());
        assert!(count > 700);
        let faults = first.faults();
        assert_eq!((faults.count as usize, faults.paths.len()), (count, count), "each thing is asked once");
        assert_eq!(world.client.binds(), count);
        let absent = fs::symlink_metadata(first.path().join("a/absent"));
        assert_eq!(absent.expect_err("it is not there").raw_os_error(), Some(libc::ENOENT));
        assert_eq!(world.client.binds(), count, "the listing proves absence");
        let loops = fs::metadata(first.path().join("loop")).expect_err("it leads to itself");
        assert_eq!(loops.raw_os_error(), Some(libc::ELOOP));
        let write = fs::write(first.path().join("a/new"), b"").expect_err("nothing can be written");
        assert_eq!(write.raw_os_error(), Some(libc::EROFS));
        let long = fs::symlink_metadata(first.path().join("x".repeat(256))).expect_err("the name is too long");
        assert_eq!(long.raw_os_error(), Some(libc::ENAMETOOLONG));
        assert_eq!(first.base_of(&path_of("/a/absent")), Some(Base::Absent));
        assert!(matches!(first.base_of(&path_of("/a/one")), Some(Base::Bound(_))));
        assert_eq!(first.binding_of(&path_of("/a/one")).expect("bound").path, path_of("/a/one"));
        drop(first);

        // The kernel may drop single pages at any time, to move memory about: then it asks for these once more. What the
        // mirror makes it forget is asked for at every launch.
        let is_kept = (0..5).any(|_| {
            let next = world.launch();
            let (again, asked) = world.asked(|| compare(&world.at(""), &next.path()));
            assert_eq!((again, asked.lookups, asked.getattrs), (count, 0, 0), "{asked:?}");
            assert_eq!(next.faults(), worker::fuse::Faults::default());
            asked.readdirs + asked.readlinks + asked.reads == 0
        });
        assert!(is_kept, "contents and listings are asked for at each launch");
        assert_eq!(world.mirror.lanes(), 1);
    }
}

#[test]
fn a_lane_advances_to_what_changed() {
    let Some(world) = World::new() else { return };
    make_tree(&world.at(""));
    fs::create_dir(world.at("gone")).expect("the client can make folders");
    fs::write(world.at("gone/x"), b"x").expect("the client can write");
    let first = world.launch();
    compare(&world.at(""), &first.path());
    for absent in ["a/new", "new/x", "a/none/x"] {
        fs::symlink_metadata(first.path().join(absent)).expect_err("it is not there");
    }
    drop(first);

    fs::write(world.at("a/new"), b"new").expect("the client can write");
    fs::create_dir(world.at("new")).expect("the client can make folders");
    fs::write(world.at("new/x"), b"x").expect("the client can write");
    fs::write(world.at("a/twin1"), b"else").expect("the client can write");
    fs::remove_file(world.at("a/none")).expect("it was there");
    fs::create_dir(world.at("a/none")).expect("a file becomes a folder");
    fs::write(world.at("a/none/x"), b"x").expect("the client can write");
    fs::remove_dir_all(world.at("gone")).expect("it was there");
    fs::write(world.at("gone"), b"a folder becomes a file").expect("the client can write");
    fs::remove_file(world.at("a/link")).expect("it was there");
    symlink("twin1", world.at("a/link")).expect("links can be made");
    fs::set_permissions(world.at("sticky"), fs::Permissions::from_mode(0o700)).expect("modes can be set");
    fs::remove_file(world.at("a/b/entry-0007")).expect("it was there");

    let second = world.launch();
    let (_, asked) = world.asked(|| compare(&world.at(""), &second.path()));
    assert_eq!(world.mirror.lanes(), 1, "the idle lane was advanced");
    assert_eq!(fs::read(second.path().join("gone")).expect("a file now"), b"a folder becomes a file");
    fs::symlink_metadata(second.path().join("gone/x")).expect_err("it is gone");
    fs::symlink_metadata(second.path().join("a/b/entry-0007")).expect_err("it is gone");
    assert!(asked.lookups < 30, "only what changed is asked: {asked:?}");
    println!("after 10 changes the kernel asks {asked:?}");
}

#[test]
fn running_tasks_keep_their_version() {
    let Some(world) = World::new() else { return };
    fs::write(world.at("f"), b"old").expect("the client can write");
    fs::write(world.at("g"), b"g").expect("the client can write");
    world.client.use_paths(&["/", "/f", "/g"]);
    let first = world.launch();
    let beside = world.launch();
    assert_eq!(first.path(), beside.path(), "one view at one version is one lane");
    let read = |lane: &LaneGuard, name| fs::read(lane.path().join(name)).expect("mirrored");
    assert_eq!(fs::read(first.path().join("g")).expect("mirrored"), b"g");
    fs::remove_file(world.at("f")).expect("it was there");
    fs::write(world.at("f"), b"newer").expect("the client can write");
    let second = world.launch();
    assert_ne!(first.path(), second.path());
    assert_eq!(read(&second, "f"), b"newer");
    assert_eq!(fs::symlink_metadata(first.path().join("f")).expect("mirrored").len(), 3);
    let (_, asked) = world.asked(|| read(&second, "g"));
    assert_eq!(asked.reads, 0, "pages are shared between lanes");
    assert_eq!(world.client.binds(), 0, "the views said it all");
}

fn overlay(world: &World, lane: &LaneGuard, name: &str) -> PathBuf {
    let folder = world.folder.path().join(name);
    fs::create_dir(&folder).expect("a folder for the overlay");
    rustix::mount::mount("tmpfs", &folder, "tmpfs", MountFlags::empty(), None).expect("root may mount");
    for part in ["upper", "work", "merged"] {
        fs::create_dir(folder.join(part)).expect("tmpfs has room");
    }
    let options = format!(
        "lowerdir={},upperdir={},workdir={},redirect_dir=on,index=on,xino=on,metacopy=on,volatile",
        lane.path().display(),
        folder.join("upper").display(),
        folder.join("work").display()
    );
    let options = CString::new(options).expect("no NUL in it");
    let merged = folder.join("merged");
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("overlay", &merged, "overlay", flags, options.as_c_str()).expect("root may mount");
    merged
}

fn end_overlay(merged: &Path) {
    rustix::mount::unmount(merged, UnmountFlags::empty()).expect("nothing uses it");
    let folder = merged.parent().expect("made above");
    rustix::mount::unmount(folder, UnmountFlags::empty()).expect("nothing uses it");
}

#[test]
fn an_overlay_on_a_lane() {
    let Some(world) = World::new() else { return };
    make_tree(&world.at(""));
    let lane = world.launch();
    let merged = overlay(&world, &lane, "task1");
    let at = |name: &str| merged.join(name);
    fs::write(at("a/twin1"), b"changed").expect("the overlay can be written");
    assert_eq!(fs::read(at("a/twin2")).expect("mirrored"), b"same", "equal files are two");
    fs::write(at("a/uno"), b"both").expect("the overlay can be written");
    assert_eq!(fs::read(at("a/one")).expect("mirrored"), b"both", "hard links are one");
    fs::write(at("a/b/created"), b"").expect("the overlay can be written");
    fs::remove_file(at("a/b/entry-0001")).expect("it was there");
    fs::rename(at("a/b"), at("moved")).expect("folders can be renamed");
    assert_eq!(fs::read_dir(at("moved")).expect("a folder").count(), 701);
    let sparse = fs::File::options().write(true).open(at("sparse")).expect("the overlay can be written");
    sparse.write_all_at(b"x", 0).expect("the overlay can be written");
    // Copying up goes by the MiB.
    assert!(fs::metadata(at("sparse")).expect("copied up").blocks() <= 2 << 11, "holes stay holes");
    drop(sparse);
    assert_eq!(lane.base_of(&path_of("/a/b/created")), Some(Base::Absent));
    end_overlay(&merged);
    drop(lane);
    // The next task finds all as at the client.
    let lane = world.launch();
    let merged = overlay(&world, &lane, "task2");
    assert_eq!(fs::read(merged.join("a/twin1")).expect("mirrored"), b"same");
    assert_eq!(fs::read_dir(merged.join("a/b")).expect("a folder").count(), 701);
    end_overlay(&merged);
}

#[test]
fn lanes_are_given_up_at_the_limit() {
    let limits = worker::fuse::Limits { names: 500, ..Default::default() };
    let Some(world) = World::with(move |options| options.limits = limits, |_| {}) else { return };
    make_tree(&world.at(""));
    let lane = world.launch();
    compare(&world.at(""), &lane.path());
    assert!(world.mirror.names() > 500);
    drop(lane);
    assert_eq!((world.mirror.lanes(), world.mirror.names()), (0, 0));
    let lane = world.launch();
    compare(&world.at(""), &lane.path());
}

#[test]
fn only_its_own_mount_is_unmounted() {
    let Some(world) = World::new() else { return };
    fs::write(world.at("f"), b"f").expect("the client can write");
    let top = world.folder.path().join("mirror");
    let lane = world.launch();
    assert!(lane.path().join("f").exists());
    drop(lane);
    rustix::mount::unmount(&top, UnmountFlags::DETACH).expect("root may");
    rustix::mount::mount("tmpfs", &top, "tmpfs", MountFlags::empty(), None).expect("root may");
    fs::write(top.join("other"), b"").expect("tmpfs has room");
    let World { folder, mirror, .. } = world;
    drop(mirror);
    assert!(top.join("other").exists(), "what was mounted there later stays");
    rustix::mount::unmount(&top, UnmountFlags::empty()).expect("root may");
    drop(folder);
}

#[test]
fn dropping_ends_all_who_wait() {
    let Some(world) = World::new() else { return };
    fs::write(world.at("slow"), b"slow").expect("the client can write");
    world.client.silence("/slow");
    let lane = world.launch();
    let mut child = asker(&lane.path().join("slow"));
    assert!(within(Duration::from_secs(5), || world.mirror.counters().waiting == 1));
    let top = world.folder.path().join("mirror");
    let started = Instant::now();
    drop(lane);
    let World { folder, mirror, .. } = world;
    drop(mirror);
    assert!(!child.wait().expect("ours").success());
    assert!(started.elapsed() < Duration::from_secs(5));
    assert!(!top.exists(), "unmounted and removed");
    drop(folder);
}

/// Not a test: the process that the next one kills.
#[test]
fn helper_that_mounts_and_waits() {
    let Some(folder) = std::env::var_os("GLEANER_TEST_MOUNT") else { return };
    let options = MountOptions::new(Path::new(&folder).join("mirror"), 0);
    let client = Arc::new(Client::new(&folder));
    let mirror = Mirror::mount(options, client.clone()).expect("root may mount");
    let update = client.launch();
    mirror.apply(&update).expect("a whole view");
    let lane = mirror.take_lane(VIEW, update.version, TaskId(1)).expect("the version was just applied");
    if let Ok(text) = fs::read_to_string(lane.path().join("f")) {
        println!("read {text}");
    }
    drop(lane);
    // Only now: who is killed while it waits for its own answer stays for ever.
    println!("mounted");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the other end lives");
    drop(mirror);
}

#[test]
fn a_killed_worker_leaves_what_a_restart_can_detach() {
    if !private() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut child = Command::new(std::env::current_exe().expect("it runs"))
        .args(["--exact", "helper_that_mounts_and_waits", "--nocapture"])
        .env("GLEANER_TEST_MOUNT", folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it can be started");
    let out = std::io::BufReader::new(child.stdout.take().expect("piped"));
    let mut lines = std::io::BufRead::lines(out);
    assert!(lines.any(|line| line.expect("text").contains("mounted")));
    child.kill().expect("it lives");
    child.wait().expect("ours");
    let dead = fs::read_dir(folder.path().join("mirror")).expect_err("nobody answers");
    assert_eq!(dead.raw_os_error(), Some(libc::ENOTCONN));
    assert_eq!(detach_left_over(folder.path()).expect("root may"), 1);
    assert_eq!(fs::read_dir(folder.path().join("mirror")).expect("a plain folder").count(), 0);
}

#[test]
fn a_compiler_runs_on_the_mirror_of_this_machine() {
    if !Path::new("/usr/bin/gcc").exists() || !private() {
        println!("SKIPPED: needs gcc, root and /dev/fuse");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let client = Arc::new(Client::new("/"));
    let mirror = Mirror::mount(MountOptions::new(folder.path().join("mirror"), 0), client.clone()).expect("root may");
    let world = World { folder, client, mirror, tasks: AtomicU64::new(0) };
    let source = world.folder.path().join("hello.c");
    fs::write(&source, "#include <stdio.h>\n#include <math.h>\nint main(void) { return printf(\"%f\", sin(1)); }\n")
        .expect("tmp can be written");
    let compile = |root: Option<&Path>, output: &Path| {
        let mut command = Command::new("/usr/bin/gcc");
        command.args(["-O2", "-c"]).arg(&source).arg("-o").arg(output).current_dir("/");
        if let Some(root) = root.map(Path::to_owned) {
            let enter = move || Ok(rustix::process::chroot(&root)?);
            // SAFETY: chroot is safe to call between fork and exec.
            unsafe { std::os::unix::process::CommandExt::pre_exec(&mut command, enter) };
        }
        let started = Instant::now();
        assert!(command.status().expect("gcc runs").success());
        started.elapsed()
    };
    let object = world.folder.path().join("hello.o");
    let native = compile(None, &object);
    let want = fs::read(&object).expect("made");
    fs::remove_file(&object).expect("made");
    for run in 0..3 {
        let lane = world.launch();
        let merged = overlay(&world, &lane, &format!("task{run}"));
        let (took, asked) = world.asked(|| compile(Some(&merged), &object));
        let made = merged.join(object.strip_prefix("/").expect("absolute"));
        assert!(fs::read(made).expect("made in the overlay") == want, "the same bytes");
        let faults = lane.faults();
        println!("gcc native {native:?}, mirrored {took:?} with {} faults and {asked:?}", faults.count);
        end_overlay(&merged);
        // Only names that are new each time (of temporary files) are looked up again.
        assert!(run == 0 || asked.lookups <= 12 && faults.count <= 4, "{asked:?} {:?}", faults.paths);
    }
}

/// Many tasks at once, with changes at the client between launches: no answer is lost, none waits for ever, and in the
/// end all is as at the client.
#[test]
fn many_tasks_at_once() {
    let Some(world) = World::with(|_| {}, |client| client.far = true) else { return };
    for dir in 0..4 {
        fs::create_dir(world.at(&format!("d{dir}"))).expect("the client can make folders");
    }
    let change = |seed: usize| {
        let path = world.at(&format!("d{}/f{}", seed % 4, seed / 4 % 5));
        match seed % 3 {
            0 => drop(fs::remove_file(path)),
            _ => fs::write(path, vec![b'x'; seed % 50]).expect("the client can write"),
        }
    };
    let launching = std::sync::Mutex::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (world, launching, change) = (&world, &launching, &change);
            scope.spawn(move || {
                for round in 0..40 {
                    let lane = {
                        let mut seed = launching.lock().expect("no task panics");
                        *seed += 7;
                        change(*seed);
                        world.launch()
                    };
                    for at in 0..20 {
                        // Files can go while they are read: only the waiting is of interest.
                        let path = lane.path().join(format!("d{}/f{}", at % 4, (at + thread + round) % 6));
                        let _ = fs::read(path);
                        let _ = fs::read_dir(lane.path().join(format!("d{}", at % 4))).map(Iterator::count);
                    }
                }
            });
        }
    });
    assert_eq!(world.mirror.counters().waiting, 0);
    // Times are of a later version than the one that was bound when a file changed while a task ran.
    for seed in 0..40 {
        change(seed);
    }
    let lane = world.launch();
    compare(&world.at(""), &lane.path());
    println!("{} lanes, {} names, {:?}", world.mirror.lanes(), world.mirror.names(), world.mirror.counters());
}

/// Without privilege: a user namespace in which only one id is mapped.
#[test]
fn it_mounts_in_a_user_namespace() {
    if !private() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("f"), b"f").expect("tmp can be written");
    let child = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount"])
        .arg(std::env::current_exe().expect("it runs"))
        .args(["--exact", "helper_that_mounts_and_waits", "--nocapture"])
        .env("GLEANER_TEST_MOUNT", folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("unshare is there");
    let text = String::from_utf8_lossy(&child.stdout).into_owned() + &String::from_utf8_lossy(&child.stderr);
    if text.contains("unshare failed") {
        println!("SKIPPED: no user namespaces: {text}");
        return;
    }
    assert!(child.status.success() && text.contains("read f"), "{text}");
}
