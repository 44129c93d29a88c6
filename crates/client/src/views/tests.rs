//! Views against fresh looks at the tree, and against what a hub makes of their steps.

use super::closure::disk;
use super::*;
use crate::policy::{Access, Denial, FileFacts, Open};
use crate::recipes::Recipes;
use crate::recipes::tests::FixedCutter;
use crate::snapshot::ReadError;
use base::codec::Encode;
use base::{EAGER_FILE_BYTES_MAX, Listing};
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use wire::lock;

pub(super) fn snapshot() -> Arc<Snapshot> {
    Arc::new(Snapshot::new(Arc::new(FixedCutter(64 << 10)), Arc::new(Recipes::new(16 << 20)), [7; 32]))
}

fn path(text: &str) -> TreePath {
    TreePath::parse(text.as_bytes()).unwrap()
}

pub(super) fn key(name: &str) -> ViewKey {
    ViewKey { program: path(name), variant: None }
}

pub(super) fn root_of(folder: &tempfile::TempDir) -> TreePath {
    use std::os::unix::ffi::OsStrExt;
    TreePath::parse(fs::canonicalize(folder.path()).unwrap().as_os_str().as_bytes()).unwrap()
}

const NOTHING: &dyn Fn(&Digest) -> bool = &|_| false;

/// A launch to a hub that knows the view up to `hub_knows`: over a connection of its own if it knows nothing, else over
/// the one that this thread used last.
pub(super) fn launch(hub_knows: Version) -> Launch<'static> {
    static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
    thread_local!(static CONNECTION: Cell<u64> = const { Cell::new(0) });
    if hub_knows == Version(0) {
        CONNECTION.set(CONNECTIONS.fetch_add(1, Ordering::Relaxed) + 1);
    }
    let connection = CONNECTION.get();
    let (include, travel_bytes) = (&[][..], TRAVEL_BYTES);
    let (gate, is_about, hub_has, names_system, ahead) = (&Open, &|_: &_| true, NOTHING, false, None);
    Launch { connection, gate, include, is_about, hub_has, names_system, travel_bytes, ahead }
}

/// What a hub makes of the steps it is told.
#[derive(Default)]
struct Hub {
    version: Version,
    paths: BTreeMap<TreePath, Bound>,
}

impl Hub {
    fn apply(&mut self, update: ViewUpdate) {
        if update.base == Version(0) {
            self.paths.clear();
        } else {
            assert_eq!(update.base, self.version, "a step from a version that the hub has not");
        }
        for path in update.drop {
            assert!(self.paths.remove(&path).is_some(), "{path} was not there to be dropped");
        }
        for bound in update.set {
            let seq = bound.seq;
            let before = self.paths.insert(bound.path.clone(), bound);
            // What was learned from a fault comes again with the next launch.
            assert!(before.is_none_or(|before| before.seq <= seq), "a binding that is older");
        }
        self.version = update.version;
    }

    /// Takes in the answer to a fault: the version stays.
    fn learn(&mut self, faulted: Faulted) {
        let bounds = faulted.update.set.into_iter().chain([faulted.bound]);
        self.paths.extend(bounds.map(|bound| (bound.path.clone(), bound)));
    }

    /// What the view says of a path; `None`: it has to be asked.
    fn says(&self, path: &TreePath, snapshot: &Snapshot) -> Option<Binding> {
        if let Some(bound) = self.paths.get(path) {
            return Some(bound.binding.clone());
        }
        match &self.paths.get(&path.parent()?)?.binding {
            Binding::Directory { listing: Some(digest), .. } => {
                let listing = Listing::from_bytes(&snapshot.read_block(digest).unwrap().unwrap()).unwrap();
                listing.get(path.name()).is_none().then_some(Binding::Absent)
            }
            Binding::Directory { listing: None, .. } => None,
            _ => Some(Binding::Absent),
        }
    }
}

#[test]
fn who_was_told_that_nothing_is_there_hears_of_what_is_made_there() {
    let folder = tempfile::tempdir().unwrap();
    let root = root_of(&folder);
    let file = root.join(b"d").join(b"a");
    let (views, mut hub) = (Views::new(snapshot(), None), Hub::default());
    let view = views.open(&key("/bin/x"), || vec![root.join(b"d")]);
    let make = || {
        fs::create_dir(folder.path().join("d")).unwrap();
        fs::write(folder.path().join("d/a"), "x").unwrap();
    };
    // What the listing names, and what its folder had, is asked for when it is gone.
    for removed in [&b"d/a"[..], b"d"] {
        make();
        hub.apply(views.sweep(&view, &launch(hub.version)).unwrap().update);
        remove(&folder.path().join(std::str::from_utf8(removed).unwrap()));
        let faulted = views.fault(&view, &file, &Open, crate::snapshot::now()).unwrap();
        assert_eq!(faulted.bound.binding, Binding::Absent);
        hub.learn(faulted);
        remove(&folder.path().join("d"));
        make();
        hub.apply(views.sweep(&view, &launch(hub.version)).unwrap().update);
        assert!(hub.says(&file, views.snapshot()).is_none_or(|said| said != Binding::Absent));
        remove(&folder.path().join("d"));
    }
}

#[derive(Clone, Debug)]
enum Edit {
    Write(usize, u8),
    Append(usize),
    Big(usize),
    MakeDirectory(usize),
    Link(usize, usize),
    Remove(usize),
    Rename(usize, usize),
    Mode(usize, u32),
}

/// The paths of a small tree: three names, three levels.
fn universe(root: &TreePath) -> Vec<TreePath> {
    let names: [&[u8]; 3] = [b"a", b"a-b", b"c"];
    let mut all = vec![];
    for first in names {
        let one = root.join(first);
        all.push(one.clone());
        for second in names {
            let two = one.join(second);
            all.push(two.clone());
            all.extend(names.map(|third| two.join(third)));
        }
    }
    all
}

fn remove(path: &std::path::Path) {
    let _ = fs::remove_file(path);
    let _ = fs::remove_dir_all(path);
}

fn apply(edit: &Edit, paths: &[TreePath]) {
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};
    let at = |number: &usize| disk(&paths[number % paths.len()]);
    // An edit that cannot be made in the tree as it is makes none.
    match edit {
        Edit::Write(number, byte) => drop(fs::write(at(number), vec![*byte; usize::from(*byte) * 600])),
        Edit::Append(number) => {
            if let Ok(mut file) = fs::OpenOptions::new().append(true).open(at(number)) {
                file.write_all(b"more").unwrap();
            }
        }
        Edit::Big(number) => {
            if let Ok(file) = fs::File::create(at(number)) {
                file.set_len(EAGER_FILE_BYTES_MAX + 5).unwrap();
            }
        }
        Edit::MakeDirectory(number) => drop(fs::create_dir_all(at(number))),
        Edit::Link(number, to) => {
            remove(at(number));
            drop(symlink(at(to), at(number)));
        }
        Edit::Remove(number) => remove(at(number)),
        Edit::Rename(number, to) => drop(fs::rename(at(number), at(to))),
        Edit::Mode(number, mode) => drop(fs::set_permissions(at(number), fs::Permissions::from_mode(*mode))),
    }
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let place = 0..39usize;
    let edit = prop_oneof![
        4 => (place.clone(), any::<u8>()).prop_map(|(at, byte)| Edit::Write(at, byte)),
        2 => place.clone().prop_map(Edit::Append),
        1 => place.clone().prop_map(Edit::Big),
        4 => place.clone().prop_map(Edit::MakeDirectory),
        1 => (place.clone(), place.clone()).prop_map(|(at, to)| Edit::Link(at, to)),
        3 => place.clone().prop_map(Edit::Remove),
        2 => (place.clone(), place.clone()).prop_map(|(at, to)| Edit::Rename(at, to)),
        1 => (place, 0o700..0o777u32).prop_map(|(at, mode)| Edit::Mode(at, mode)),
    ];
    proptest::collection::vec(edit, 0..6)
}

/// Rounds of edits, each followed by a launch and first uses.
fn rounds() -> impl Strategy<Value = Vec<(Vec<Edit>, Vec<usize>)>> {
    proptest::collection::vec((edits(), proptest::collection::vec(0..39usize, 0..12)), 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// After each sweep, and after faults, what the hub makes of the view is what a fresh look at the tree finds.
    #[test]
    fn a_view_is_what_the_tree_is(rounds in rounds()) {
        let folder = tempfile::tempdir().unwrap();
        let root = root_of(&folder);
        let paths = universe(&root);
        let views = Views::new(snapshot(), None);
        let view = views.open(&key("/bin/x"), || vec![root.clone()]);
        let mut hub = Hub::default();
        for (number, (edits, faults)) in rounds.iter().enumerate() {
            edits.iter().for_each(|edit| apply(edit, &paths));
            let swept = views.sweep(&view, &launch(hub.version)).unwrap();
            hub.apply(swept.update);
            let fresh = snapshot();
            let look = |path: &TreePath| fresh.bind(path, &Open).unwrap().binding;
            for (path, bound) in &hub.paths {
                // The tree's own ancestors are in use by others.
                if path.is_within(&root) {
                    prop_assert_eq!(&bound.binding, &look(path), "{} in round {}", path, number);
                    if let Some(known) = views.known(path, bound.seq) {
                        prop_assert_eq!(known.stamp.map(unmounted), bound.binding.attr().map(of_attr));
                    }
                }
            }
            for fault in faults {
                let path = &paths[fault % paths.len()];
                match hub.says(path, views.snapshot()) {
                    Some(said) => prop_assert_eq!(said, look(path), "{} in round {}", path, number),
                    None => {
                        let faulted = views.fault(&view, path, &Open, crate::snapshot::now()).unwrap();
                        prop_assert_eq!(&faulted.bound.binding, &look(path), "{} in round {}", path, number);
                        prop_assert!(!faulted.late);
                        hub.learn(faulted);
                    }
                }
            }
        }
        // With this step it drops what it was told and no sweep looks at.
        hub.apply(views.sweep(&view, &launch(hub.version)).unwrap().update);
        let mut anew = Hub::default();
        anew.apply(views.sweep(&view, &launch(Version(0))).unwrap().update);
        let within = |hub: &Hub| {
            let paths = hub.paths.iter().filter(|(path, _)| path.is_within(&root));
            paths.map(|(_, bound)| bound.clone()).collect::<Vec<_>>()
        };
        prop_assert_eq!(within(&anew), within(&hub), "steps lead where the whole view is");
    }
}

#[test]
fn nothing_changed_nothing_sent() {
    let folder = tempfile::tempdir().unwrap();
    let file = root_of(&folder).join(b"f");
    fs::write(disk(&file), b"x").unwrap();
    let views = Views::new(snapshot(), None);
    let view = views.open(&key("/bin/x"), || vec![file.clone()]);
    let first = views.sweep(&view, &launch(Version(0))).unwrap();
    assert!(first.update.set.iter().any(|bound| bound.path == file));
    assert!(first.blobs.iter().any(|(_, bytes)| bytes[..] == *b"x"), "a small block travels along");
    let within = |update: &ViewUpdate| update.set.iter().filter(|b| b.path.is_within(&root_of(&folder))).count();
    let second = views.sweep(&view, &launch(first.update.version)).unwrap();
    assert_eq!((within(&second.update), second.update.drop.len()), (0, 0));
}

/// The stamp in attributes, which do not say on which mount they were seen.
fn of_attr(attr: &base::Attr) -> Stamp {
    Stamp { dev: attr.dev, ino: attr.ino, size: attr.size, mtime: attr.mtime, ctime: attr.ctime, mount: 0 }
}

fn unmounted(stamp: Stamp) -> Stamp {
    Stamp { mount: 0, ..stamp }
}

#[test]
fn late_bindings_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = root_of(&folder).join(b"f");
    let views = Views::new(snapshot(), None);
    let view = views.open(&key("/bin/x"), Vec::new);
    let swept = views.sweep(&view, &launch(Version(0))).unwrap();
    let launched = crate::snapshot::now();
    // Beyond the grain of any clock: what comes later is later.
    crate::snapshot::pause_nanos(25_000_000);
    fs::write(disk(&file), b"x").unwrap();
    let faulted = views.fault(&view, &file, &Open, launched).unwrap();
    assert!(faulted.late);
    assert_eq!(faulted.update.base, swept.update.version);
    let stamp = views.stamp_of(&file, faulted.bound.seq).unwrap();
    assert_eq!(Some(unmounted(stamp)), faulted.bound.binding.attr().map(of_attr));
    assert_eq!(views.stamp_of(&root_of(&folder), faulted.bound.seq), None, "a number is of one path");
}

/// What changed just before the launch was seen, however coarse the clock is; what changed since was not, also if another launch has been told.
#[test]
fn a_lock_goes_by_what_was_seen() {
    let folder = tempfile::tempdir().unwrap();
    let (file, late) = (root_of(&folder).join(b"f"), root_of(&folder).join(b"late"));
    let views = Views::new(snapshot(), None);
    fs::write(disk(&file), b"x").unwrap();
    fs::write(disk(&late), b"x").unwrap();
    // Beyond the grain of any clock: what comes later is later.
    crate::snapshot::pause_nanos(25_000_000);
    let view = views.open(&key("/bin/x"), || vec![file.clone()]);
    let version = Some(views.sweep(&view, &launch(Version(0))).unwrap().update.version);
    // As if all that had been within the grain.
    let seen = Seen::new(Time(0), version);
    let moved = |seen| views.moved(&view, seen, (&root_of(&folder), Counted::Nothing), &Open);
    assert_eq!(moved(seen), None);
    assert!(moved(Seen { version: None, ..seen }).is_some(), "then the clock decides");
    views.committed(std::slice::from_ref(&file));
    assert_eq!(moved(seen), None, "bound once more it is the same");
    views.fault(&view, &late, &Open, Time(0)).unwrap();
    assert_eq!(moved(seen), None, "it was bound for the task");
    fs::write(disk(&file), b"y").unwrap();
    assert_eq!(moved(seen), Some(file.clone()));
    let number = rustix::fs::stat(file.as_bytes()).map(|stat| (stat.st_dev, stat.st_ino)).unwrap();
    assert_eq!(moved(Seen { own: [None, Some(number)], ..seen }), None, "its own output went there");
    crate::snapshot::pause_nanos(25_000_000);
    let later = Some(views.sweep(&view, &launch(Version(0))).unwrap().update.version);
    assert_eq!(moved(seen), Some(file.clone()), "another launch has been told");
    assert_eq!(moved(Seen { version: later, ..seen }), None);
    fs::write(disk(&late), b"y").unwrap();
    crate::snapshot::pause_nanos(25_000_000);
    views.sweep(&view, &launch(Version(0))).unwrap();
    assert_eq!(moved(Seen { version: later, ..seen }), Some(late));
}

#[test]
fn the_policy_decides_and_may_change() {
    struct Closed(TreePath, u64);
    impl Gate for Closed {
        fn access(&self, path: &TreePath, facts: &FileFacts) -> Access {
            match path.is_within(&self.0) {
                true => Access::Deny(Denial::Secret),
                false if self.0.is_within(path) && facts.directory => Access::Pass,
                false => Access::Allow,
            }
        }
        fn is_about(&self, _path: &TreePath) -> bool {
            false
        }
        fn fingerprint(&self) -> u64 {
            self.1
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let secret = root_of(&folder).join(b"secret");
    fs::write(disk(&secret), b"x").unwrap();
    let views = Views::new(snapshot(), None);
    let view = views.open(&key("/bin/x"), || vec![secret.clone()]);
    let says = |gate: &dyn Gate| {
        let swept = views.sweep(&view, &Launch { gate, ..launch(Version(0)) }).unwrap();
        let of = |path: &TreePath| swept.update.set.iter().find(|bound| bound.path == *path).unwrap().binding.clone();
        (of(&secret), of(&root_of(&folder)))
    };
    let is_kept_back =
        |binding: &Binding| matches!(binding, Binding::File { content: Content::Lazy(_), attr, .. } if attr.size == 1);
    let (file, parent) = says(&Closed(secret.clone(), 1));
    assert!(is_kept_back(&file), "its attributes, and a name under which nothing can be had");
    let Binding::File { content: Content::Lazy(name), .. } = file else { unreachable!() };
    assert_eq!(views.snapshot().kept_back(&name), vec![secret.clone()]);
    assert!(matches!(views.snapshot().read_piece(&name, 0), Err(ReadError::UnknownStamp(_))));
    assert!(matches!(parent, Binding::Directory { listing: None, .. }), "no listing of a folder passed through");
    let (file, parent) = says(&Open);
    assert!(matches!(file, Binding::File { .. }));
    assert!(matches!(parent, Binding::Directory { listing: Some(_), .. }));
    assert!(is_kept_back(&says(&Closed(secret.clone(), 1)).0));
    let beneath = views.fault(&view, &secret.join(b"beneath"), &Closed(secret.clone(), 1), Time(0)).unwrap();
    assert_eq!(beneath.bound.binding, Binding::Absent, "nothing is beneath a file");
    // A command of another policy shares the view while it runs, and binds what is new under its own.
    let later = root_of(&folder).join(b"later");
    fs::write(disk(&later), b"x").unwrap();
    says(&Open);
    let bound = views.fault(&view, &later, &Closed(later.clone(), 1), Time(0)).unwrap().bound;
    assert!(is_kept_back(&bound.binding));
    let set = views.sweep(&view, &launch(Version(0))).unwrap().update.set;
    let now = &set.iter().find(|bound| bound.path == later).unwrap().binding;
    assert!(!is_kept_back(now), "the next command of a policy that lets it be read reads it");
}

#[test]
fn a_commit_is_seen_whatever_the_stamp_says() {
    let folder = tempfile::tempdir().unwrap();
    let file = root_of(&folder).join(b"f");
    fs::write(disk(&file), b"x").unwrap();
    let views = Views::new(snapshot(), None);
    let view = views.open(&key("/bin/x"), || vec![file.clone()]);
    let first = views.sweep(&view, &launch(Version(0))).unwrap();
    fs::write(disk(&file), b"y").unwrap();
    views.committed(std::slice::from_ref(&file));
    let faulted = views.fault(&view, &file, &Open, crate::snapshot::now()).unwrap();
    let Binding::File { content, .. } = faulted.bound.binding else { panic!("not a file") };
    assert_eq!(content, Content::Block(Digest::of(b"y")));
    assert!(faulted.update.version > first.update.version);
}

#[test]
fn paths_survive_a_restart() {
    let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = root_of(&folder).join(b"f");
    fs::write(disk(&file), b"x").unwrap();
    let state = Some(state.path().join("views"));
    let views = Views::new(snapshot(), state.clone());
    let view = views.open(&key("/bin/x"), Vec::new);
    views.sweep(&view, &launch(Version(0))).unwrap();
    views.fault(&view, &file, &Open, Time(0)).unwrap();
    views.save().unwrap();
    let views = Views::new(snapshot(), state);
    let view = views.open(&key("/bin/x"), || panic!("it is known"));
    let swept = views.sweep(&view, &launch(Version(0))).unwrap();
    assert!(swept.update.set.iter().any(|bound| bound.path == file));
}

#[test]
fn a_view_that_grows_too_large_is_learned_anew() {
    let folder = tempfile::tempdir().unwrap();
    let root = root_of(&folder);
    let paths: Vec<TreePath> = (0..PATHS_MAX).map(|number| root.join(format!("f{number}").as_bytes())).collect();
    let views = Views::new(snapshot(), None);
    let view = views.open(&key("/bin/x"), || paths[..10].to_vec());
    let first = views.sweep(&view, &launch(Version(0))).unwrap();
    lock(&view.table).add_all(paths, &views.look_in(&None, &Open));
    assert!(view.is_empty());
    let second = views.sweep(&view, &launch(first.update.version)).unwrap();
    assert_eq!(second.update.base, Version(0));
}

#[test]
fn views_are_bounded_and_the_oldest_goes() {
    let views = Views::new(snapshot(), None);
    let first = views.open(&key("/bin/first"), Vec::new);
    for number in 0..VIEWS_MAX {
        views.open(&key(&format!("/bin/p{number}")), Vec::new);
    }
    let again = views.open(&key("/bin/first"), Vec::new);
    assert_ne!(first.id(), again.id());
    assert_eq!(lock(&views.views).len(), VIEWS_MAX);
    views.sweep(&first, &launch(Version(0))).expect("who holds a view can go on using it");
}

#[test]
fn launches_that_arrive_together_share_sweeps() {
    let folder = tempfile::tempdir().unwrap();
    let root = root_of(&folder);
    let paths: Vec<TreePath> = (0..500).map(|number| root.join(format!("f{number}").as_bytes())).collect();
    paths.iter().for_each(|path| fs::write(disk(path), b"x").unwrap());
    let views = Views::new(snapshot(), None);
    let view = views.open(&key("/bin/x"), || paths.clone());
    views.sweep(&view, &launch(Version(0))).unwrap();
    let table = lock(&view.table);
    let before = table.sweeps();
    let arrived = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                arrived.fetch_add(1, Ordering::Relaxed);
                views.sweep(&view, &launch(Version(0))).unwrap();
            });
        }
        // A busy machine may run them one by one: the first waits for the table until all are there.
        while arrived.load(Ordering::Relaxed) < 64 {
            std::thread::yield_now();
        }
        drop(table);
    });
    let sweeps = lock(&view.table).sweeps() - before;
    println!("64 launches took {sweeps} sweeps");
    assert!((1..=32).contains(&sweeps), "{sweeps}");
}

fn cpu_us() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000 + time.tv_nsec / 1000
}

/// Prints what a sweep of 1,000 warm paths costs, and how the two ways to ask for a stamp compare.
#[test]
fn cost_of_a_warm_sweep() {
    use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
    let folder = tempfile::tempdir().unwrap();
    let mut directory = root_of(&folder);
    for name in ["usr", "lib", "gcc", "x86_64", "include"] {
        directory = directory.join(name.as_bytes());
    }
    fs::create_dir_all(disk(&directory)).unwrap();
    let paths: Vec<TreePath> = (0..1000).map(|number| directory.join(format!("file{number}.h").as_bytes())).collect();
    paths.iter().for_each(|path| fs::write(disk(path), b"x").unwrap());
    crate::snapshot::pause_nanos(25_000_000);
    let views = Views::new(snapshot(), None);
    let view = views.open(&key("/bin/x"), || paths.clone());
    let mut version = views.sweep(&view, &launch(Version(0))).unwrap().update.version;
    let mut costs: Vec<i64> = (0..21)
        .map(|_| {
            let start = cpu_us();
            version = views.sweep(&view, &launch(version)).unwrap().update.version;
            cpu_us() - start
        })
        .collect();
    costs.sort_unstable();
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_FORCE_SYNC;
    let held = rustix::fs::openat(CWD, disk(&directory), OFlags::PATH, Mode::empty()).unwrap();
    let start = cpu_us();
    for path in &paths {
        rustix::fs::statx(CWD, path.as_bytes(), flags, StatxFlags::BASIC_STATS).unwrap();
    }
    let absolute = cpu_us() - start;
    let start = cpu_us();
    for path in &paths {
        rustix::fs::statx(&held, path.name(), flags, StatxFlags::BASIC_STATS).unwrap();
    }
    let relative = cpu_us() - start;
    println!("sweep of {} warm paths: {} us CPU (median of 21)", view.len(), costs[10]);
    println!("1000 statx: absolute {absolute} us, relative to a held directory {relative} us");
    assert!(costs[10] < 50_000, "a sweep of 1,000 paths took {} us", costs[10]);
}

#[test]
fn a_program_brings_its_libraries() {
    let views = Views::new(snapshot(), None);
    let view = views.open(&key("/bin/sh"), Vec::new);
    views.sweep(&view, &launch(Version(0))).unwrap();
    let faulted = views.fault(&view, &path("/bin/sh"), &Open, crate::snapshot::now()).unwrap();
    let libraries = |set: &[Bound]| set.iter().any(|bound| bound.path.name().starts_with(b"libc.so"));
    // Where `/bin/sh` is a link, it is the program that it leads to that is asked for next.
    let program = crate::snapshot::disk::walk(&path("/bin/sh"), &mut |_| {}).unwrap();
    let program = views.fault(&view, &program, &Open, crate::snapshot::now()).unwrap();
    assert!(libraries(&faulted.update.set) || libraries(&program.update.set));
    let readme = views.fault(&view, &path("/etc/passwd"), &Open, crate::snapshot::now()).unwrap();
    assert!(readme.update.set.len() < 4, "what is not executed brings nothing");
}

#[test]
fn what_a_command_names_comes_with_its_launch() {
    let folder = tempfile::tempdir().unwrap();
    let root = root_of(&folder);
    for (name, text) in [("main.c", "#include \"near.h\"\n"), ("near.h", "#include \"next.h\"\n"), ("next.h", "\n")] {
        std::fs::write(disk(&root.join(name.as_bytes())), text).unwrap();
    }
    let views = Views::new(snapshot(), None);
    let view = views.open(&key("/usr/bin/cc"), Vec::new);
    let include = [root.join(b"main.c")];
    let update = views.sweep(&view, &Launch { include: &include, ..launch(Version(0)) }).unwrap().update;
    for name in [&b"main.c"[..], b"near.h", b"next.h"] {
        assert!(update.set.iter().any(|bound| bound.path == root.join(name)), "{}", String::from_utf8_lossy(name));
    }
}

#[test]
fn what_is_not_shown_is_in_a_view_only_for_who_is_about_it() {
    let folder = tempfile::tempdir().unwrap();
    let link = root_of(&folder).join(b"link");
    std::os::unix::fs::symlink("/dev/shm/x", disk(&link)).unwrap();
    let views = Views::new(snapshot(), None);
    let view = views.open(&key("/bin/x"), || vec![link.clone()]);
    let mut hub = Hub::default();
    let mut has = |is_about: bool| {
        hub.apply(views.sweep(&view, &Launch { is_about: &|_| is_about, ..launch(hub.version) }).unwrap().update);
        assert_eq!(hub.paths.contains_key(&link), view.has(&link));
        view.has(&link)
    };
    assert_eq!([has(true), has(false), has(true)], [true, false, false], "who uses it asks for it then");
}

#[test]
fn a_hub_that_kept_a_view_is_told_what_changed_since() {
    let folder = tempfile::tempdir().unwrap();
    let file = root_of(&folder).join(b"file");
    fs::write(disk(&file), "one").unwrap();
    let views = Views::new(snapshot(), None);
    let view = views.open(&key("/bin/p"), || vec![file.clone()]);
    let sweep = |knows| views.sweep(&view, &launch(knows)).unwrap().update;
    let whole = sweep(Version(0));
    let connection = launch(whole.version).connection;
    let held = |version: Version| ViewHeld { view: view.id().0, version: version.0 };
    fs::write(disk(&file), "another").unwrap();
    let lost = sweep(whole.version);
    assert_eq!(lost.base, whole.version);
    // The launch that took this along never arrived.
    views.resumed(connection, &[held(whole.version)]);
    let again = sweep(whole.version);
    assert_eq!((again.base, again.version), (whole.version, lost.version));
    assert!(again.set.iter().any(|bound| bound.path == file));
    views.resumed(connection, &[held(again.version)]);
    let nothing = sweep(again.version);
    assert_eq!((nothing.base, nothing.set.len()), (again.version, 0));
    views.resumed(connection, &[]);
    assert_eq!(sweep(again.version).base, Version(0), "it was forgotten");
}
