//! The same operations in an overlay and in a plain copy of its lower directory; the overlay's delta, committed to another
//! copy, must give the same tree.

use super::tests::{Blocks, Snapshot, is_root, real, xattrs};
use super::*;
use base::{Action, ExitStatus, TaskId, Xattr};
use client::commit::{Committer, Report, Request, WriteDecision};
use rustix::fs::{AtFlags, CWD, FileType, Gid, RenameFlags, Timespec, Timestamps, Uid};
use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

mod random;

/// All times that setup gives are before this; all that come of running are after it.
const LONG_AGO_SECS: i64 = 1_000_000_000;

fn now() -> Time {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    Time::from_parts(now.as_secs() as i64, now.subsec_nanos().into())
}

/// Three copies of a tree, and an overlay on one of them.
struct Stand {
    folder: tempfile::TempDir,
    start: Time,
    privileged: bool,
}

impl Stand {
    /// With what `setup` makes in a folder.
    fn new(setup: impl FnOnce(&Path)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        for name in ["lower", "upper", "work", "merged", "state"] {
            std::fs::create_dir(at(name)).expect("makes a folder");
        }
        setup(&at("lower"));
        settle(&at("lower"));
        for copy in ["local", "client"] {
            let status = Command::new("cp").arg("-a").arg(at("lower")).arg(at(copy)).status().expect("runs cp");
            assert!(status.success());
        }
        Self { folder, start: now(), privileged: true }
    }

    /// The same with an overlay as users mount it, who are not root.
    fn unprivileged(setup: impl FnOnce(&Path)) -> Self {
        Self { privileged: false, ..Self::new(setup) }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn mount(&self) {
        let (lower, upper, work) = (self.at("lower"), self.at("upper"), self.at("work"));
        let mode = if self.privileged { "redirect_dir=on,index=on,xino=on,metacopy=on" } else { "userxattr" };
        let options = format!(
            "lowerdir={},upperdir={},workdir={},{mode},volatile",
            lower.display(),
            upper.display(),
            work.display()
        );
        // Above FUSE, as in a worker, reading what is below moves no time of the last access.
        let options = format!("{options},noatime");
        let status = Command::new("mount")
            .args(["-t", "overlay", "overlay", "-o", &options])
            .arg(self.at("merged"))
            .status()
            .expect("runs mount");
        assert!(status.success(), "the overlay can be mounted");
    }

    fn unmount(&self) {
        let unmount = || rustix::mount::unmount(self.at("merged"), rustix::mount::UnmountFlags::empty());
        let mut unmounted = unmount();
        // A process that another test is just starting holds copies of all our descriptors until it executes.
        for _ in 0..200 {
            if unmounted != Err(rustix::io::Errno::BUSY) {
                break;
            }
            let pause = rustix::time::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
            let _ = rustix::event::poll(&mut [], Some(&pause));
            unmounted = unmount();
        }
        unmounted.expect("unmounts");
    }

    /// Does `act` in the overlay and in the plain copy, commits the delta, and compares.
    fn check(&self, act: impl Fn(&Path)) -> (Collected, Report) {
        self.mount();
        let snapshot = Snapshot::take(&self.at("client"), &self.at("lower"));
        let before = ["local", "client"].map(|copy| files_in(&self.at(copy)));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| act(&self.at("merged"))));
        self.unmount();
        result.expect("the operations succeed in the overlay");
        act(&self.at("local"));
        let result = self.commit_and_compare(&snapshot);
        let after = ["local", "client"].map(|copy| files_in(&self.at(copy)));
        for (path, (file, bytes)) in after[0].iter().filter(|_| self.privileged) {
            let was = before[0].iter().find(|(_, (old, before))| old == file && before == bytes);
            if let Some((was, _)) = was {
                assert_eq!(after[1][path].0, before[1][was].0, "{was} is {path} now, and should be the same file");
            }
        }
        result
    }

    fn commit_and_compare(&self, snapshot: &Snapshot) -> (Collected, Report) {
        let blocks = Blocks::default();
        let index = Some(self.at("work/index"));
        let options = Options { privileged: self.privileged, index, ..Options::new(self.start, now(), self.start) };
        let mut cut = |file: &File, size| blocks.cut(file, size);
        let collected = collect(&self.at("upper"), snapshot, &options, &mut cut).expect("collects");
        let committer = Committer::open_at(&self.at("client"), &self.at("state")).expect("opens");
        let report = committer
            .commit(&Request {
                task: TaskId(7),
                status: ExitStatus::Code(0),
                delta: &collected.delta,
                evidence: snapshot,
                contents: &blocks,
                write: &|_| WriteDecision::Commit,
                durable: false,
                launch: self.start,
                now: now(),
            })
            .unwrap_or_else(|error| panic!("{error}\n{:#?}", collected.delta));
        let (want, got) = (describe(&self.at("local"), self.start), describe(&self.at("client"), self.start));
        let differences: Vec<String> = want
            .keys()
            .chain(got.keys())
            .filter(|path| want.get(*path) != got.get(*path))
            .map(|path| format!("{path}\n  local  {:?}\n  client {:?}", want.get(path), got.get(path)))
            .collect();
        assert!(differences.is_empty(), "{}\n{:#?}", differences.join("\n"), collected.delta);
        let stage: Vec<_> = std::fs::read_dir(self.at("state/stage")).expect("lists").collect();
        assert!(stage.is_empty(), "{stage:?}");
        (collected, report)
    }
}

/// What names each regular file, whatever its path (inode number and time of birth), and the digest of its bytes.
fn files_in(root: &Path) -> BTreeMap<String, ((u64, Option<SystemTime>), base::Digest)> {
    let mut found = BTreeMap::new();
    let mut open = vec![TreePath::root()];
    while let Some(at) = open.pop() {
        for entry in std::fs::read_dir(real(root, &at)).expect("lists") {
            let entry = entry.expect("lists");
            let (path, meta) = (at.join(entry.file_name().as_encoded_bytes()), entry.metadata().expect("is there"));
            if meta.is_dir() {
                open.push(path);
            } else if meta.is_file() {
                let bytes = std::fs::read(entry.path()).expect("reads");
                found.insert(path.to_string(), ((meta.ino(), meta.created().ok()), base::Digest::of(&bytes)));
            }
        }
    }
    found
}

/// Gives all files an old time, deepest first.
fn settle(root: &Path) {
    let status = Command::new("find")
        .arg(root)
        .args(["-depth", "-exec", "touch", "-h", "-d", &format!("@{LONG_AGO_SECS}"), "{}", "+"])
        .status()
        .expect("runs find");
    assert!(status.success());
}

/// All that a user can see of each path. Times of the run are all alike.
fn describe(root: &Path, start: Time) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut names: BTreeMap<u64, String> = BTreeMap::new();
    let mut open = vec![TreePath::root()];
    while let Some(path) = open.pop() {
        let real = real(root, &path);
        let mut children: Vec<_> =
            std::fs::read_dir(&real).expect("lists").map(|entry| entry.expect("lists")).collect();
        children.sort_by_key(|entry| entry.file_name());
        for entry in children {
            let path = path.join(entry.file_name().as_encoded_bytes());
            let meta = entry.metadata().expect("is there");
            let mtime = Time::from_parts(meta.mtime(), meta.mtime_nsec());
            let accessed = Time::from_parts(meta.atime(), meta.atime_nsec());
            let mtime = if mtime.plus(20_000_000) >= start { "run".to_owned() } else { mtime.0.to_string() };
            let kind = FileType::from_raw_mode(meta.mode());
            if kind == FileType::Socket {
                continue;
            }
            let body = match kind {
                FileType::Directory => {
                    open.push(path.clone());
                    String::new()
                }
                FileType::Symlink => format!("-> {:?}", std::fs::read_link(entry.path()).expect("reads")),
                FileType::RegularFile => {
                    let bytes = std::fs::read(entry.path()).expect("reads");
                    format!("{} bytes {:?}", bytes.len(), base::Digest::of(&bytes))
                }
                _ => String::new(),
            };
            let link = match kind {
                FileType::Directory => String::new(),
                _ => {
                    let first = names.entry(meta.ino()).or_insert_with(|| path.to_string()).clone();
                    format!("nlink {} first {first}", meta.nlink())
                }
            };
            let attributes: Vec<Xattr> = if kind == FileType::Symlink { vec![] } else { xattrs(&entry.path()) };
            let (mode, uid, gid) = (meta.mode(), meta.uid(), meta.gid());
            // Reading moves it as well, and a link cannot be read in any other way.
            let is_moved = accessed.since(start).abs() < 3_600_000_000_000 || kind == FileType::Symlink;
            let atime = if is_moved { "run".to_owned() } else { accessed.0.to_string() };
            let text = format!("{mode:o} {uid}:{gid} {mtime} {atime} {link} {body} {attributes:?}");
            found.insert(path.to_string(), text);
        }
    }
    found
}

fn shell(root: &Path, script: &str) {
    let output = Command::new("sh").args(["-e", "-c", script]).current_dir(root).output().expect("runs sh");
    assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs each of `scripts` on its own, in trees made by `setup`.
fn scripts(setup: &str, scripts: &[&str]) {
    for script in scripts {
        println!("{script}");
        Stand::new(|root| shell(root, setup)).check(|root| shell(root, script));
    }
}

const TREE: &str = "mkdir -p d/e/f g empty; echo a > d/a; echo b > d/e/b; echo c > d/e/f/c; echo x > x; seq 1000 > seq;
    ln -s x link; echo hard > h1; ln h1 h2; chmod 640 g; mkdir -p g/x; echo q > g/q; echo in > g/x/in;
    echo far > far1; ln far1 g/far2; echo far > far4; ln far4 d/far5; ln -s nowhere s1; ln -P s1 s2; ln -s d s3; mkfifo p1 q1; ln p1 d/p1";

#[test]
fn files() {
    if !is_root("files") {
        return;
    }
    scripts(
        TREE,
        &[
            "echo new > new; : > nothing; printf '' >> x",
            "echo more >> x; seq 5 >> seq",
            "echo x > x; cp seq t; cat t > seq; rm t",
            "truncate -s 10 seq; truncate -s 100000 x",
            "chmod 755 x; chown 12:34 d/a; touch -d @1234567890.5 seq; chmod 4755 d/e/b; chmod 644 d/e/b",
            "rm x; rm d/e/f/c; rmdir d/e/f",
            "mv x y; mv seq d/a; mv d/e/b b",
            "rm x; echo x > x; chmod 600 x",
            "sed -i s/5/6/ seq; cp -p seq copy; ln -sf d link; ln -s nowhere l2",
            "rm x; mkdir x; echo in > x/in; rm -r d; echo now a file > d; rm -r g; ln -s d g",
            "ln x y; ln seq g/seq2; echo both >> x; ln -s x sl; ln -P sl sl2",
            "mkfifo p; mkfifo -m 600 g/p; rm link; mkfifo link",
            "echo w > h1; chmod 700 h1",
            "echo w >> h2",
            "rm h1; echo alone > h1",
            "rm h2; ln -f x h1",
            "ln h1 h3; echo all > h3",
            "touch seq; touch d g/x",
            "mv h1 h3",
            "mv h1 d/h; echo w >> h2",
            "echo w >> h1; mv h1 d/h; ln d/h d/h4; chmod 600 d/h4",
            "ln h1 d/h; rm h1; ln d/h h1; rm h2",
            "rm h1; mv h2 h1; echo w > h1",
            "echo w >> h1; rm h1",
            "chown 12:34 x; cp -p x y; rm x; cp y x; chown 5:6 x; rm g/q; echo q > g/q; echo more >> g/q; chown 7:8 g/q",
            "echo w >> far1; rm far1; chmod 600 far4; rm far4; echo other > far4",
            "echo w >> far1; mv x far1; echo v > far4; rm far4; mkdir far4; echo in > far4/in",
            "echo w >> far1; mv g/far2 far3; rm far1 far3",
            "rm far1 far4; echo w >> d/far5; rm -r d g",
            "echo w >> g/far2; rm -r g",
            "mv s1 l3; mv link d/link; chown -h 3:4 s2 d/link; touch -h -d @1234567890 s3",
            "mv x link; ln -P s1 g/l3; rm s2; mv s3 s2; mv p1 p2; ln p2 g/p3; chmod 600 p2; chown 5:6 q1; mv q1 d/a",
            "ln -sfn x s1; rm q1; mkfifo q1; mv d/e e; mv p1 e/p; rm s2",
            "chmod 600 h1; rm h1; echo other > h1",
            "mv x t; mv seq x; mv t seq; echo more >> seq",
            "mv x y; chmod 600 y; mv y d/y; touch -d @1234567890 d/y",
            "echo w >> x; mv x d/x; mv d/x d/a; echo new > x",
            "mv d/a t; echo w >> t; mv t g/a; mv d/e/b a; rm -r d",
            "mv d d2; mv d2/a d2/b; mv d2/e/b top; ln d2/e/f/c c; mv d2/e e; chmod 600 e/f/c",
            "ln x y; rm x; mv y z; ln z d/z; echo w >> z; rm z",
            "mv x d/a; mv seq x; ln x seq; truncate -s 10 seq",
            "mv x y; mkdir x; mv y x/y; ln -s x/y y",
            "mv x h1; mv h2 x; ln -f seq h2",
            "truncate -s 300000 hole; printf end >> hole; dd if=/dev/zero of=seq bs=1 seek=99999 count=1 2>/dev/null",
        ],
    );
}

#[test]
fn directories() {
    if !is_root("directories") {
        return;
    }
    scripts(
        TREE,
        &[
            "mkdir -p n/m/o; echo n > n/m/o/n; chmod 555 n/m; mkdir -m 1777 t; mkdir -m 700 s",
            "rm -r d; mkdir d; echo other > d/other",
            "rm -r d; mkdir -p d/e/f; echo again > d/a",
            "mv d d2; echo more > d2/more; rm d2/a",
            "mv d/e e; mv g e/g; echo x >> e/g/q; rm -r d",
            "mv d t; mv g d; mv t g",
            "mv d/e/f f; mv d f/d; rm f/d/e/b",
            "mv d t; mkdir d; mv t d/inner; touch d/inner/e/new",
            "mv empty e2; rmdir e2; mv g/x empty; mv d g/x",
            "rm -r g; mv d g; echo q2 > g/q",
            "mv d/e d2; rm -r d; mv d2 d; mkdir d/e; mv d/f d/e/f",
            "mv -T g/x empty; chmod 711 empty; chown 5:6 d",
            "mv d d2; mv d2/e d2/e2; mv d2 d3; mv d3/e2 e; mv e/f d3/e",
            "rm -r d/e; mkdir d/e; rmdir d/e; echo file > d/e; rm d/e; mkdir d/e; echo b > d/e/b",
            "mkdir n; rmdir n; touch t; rm t; mkdir d/n; mv d/n n; rmdir n",
            "rm -r d g empty x seq link h1 h2",
            "mv x empty/x; mv empty x; mv x/x empty",
            "find . -depth -type d -empty -exec rmdir {} +; find . -type f -exec chmod 604 {} +",
            "mkdir sg; chmod 2775 sg; mkdir sg/in; chmod g-s sg sg/in",
            "mkdir -m 000 closed; mkdir half; echo h > half/h; chmod 000 half; chmod 000 x; chmod 0 d",
        ],
    );
}

#[test]
fn without_privilege() {
    if !is_root("without privilege") {
        return;
    }
    for script in [
        "echo new > new; echo more >> seq; rm x; ln -sf d link; chmod 600 g/q; mkfifo p; touch d",
        "rm -r d; mkdir d; echo other > d/other; rm -r g; ln -s d g",
        "rm d/far5 d/p1; mv d d2; mv g/x empty; rm -r g; mkdir -p n/m; mv n n2",
        "rm h1; rm far1 x; mkdir x; echo in > x/in; mv seq d/a; ln seq2 l || :",
    ] {
        println!("{script}");
        Stand::unprivileged(|root| shell(root, TREE)).check(|root| shell(root, script));
    }
    let stand = Stand::unprivileged(|root| shell(root, TREE));
    stand.check(|root| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(root.join("x"), "user.own", b"1", flags).expect("sets");
        rustix::fs::setxattr(root.join("d"), "user.own", b"2", flags).expect("sets");
    });
    for (script, at) in
        [("echo w >> g/far2", "/g/far2"), ("mv far1 far3", "/far3"), ("mv s1 s4", "/s4"), ("mv d d2", "/d2/far5")]
    {
        let stand = Stand::unprivileged(|root| shell(root, TREE));
        stand.mount();
        shell(&stand.at("merged"), script);
        stand.unmount();
        let (snapshot, blocks) = (Snapshot::take(&stand.at("client"), &stand.at("lower")), Blocks::default());
        let options = Options { privileged: false, ..Options::new(stand.start, now(), stand.start) };
        let refused = collect(&stand.at("upper"), &snapshot, &options, &mut |file, size| blocks.cut(file, size));
        assert!(matches!(&refused, Err(DeltaError::SecondName { path }) if path.to_string() == at), "{refused:?}");
    }
    for seed in 1..25 {
        random::random_case(seed, 30, 25, false);
    }
}

#[test]
fn nothing_is_reported_for_what_only_looks_changed() {
    if !is_root("nothing is reported") {
        return;
    }
    let stand = Stand::new(|root| shell(root, TREE));
    let (collected, report) = stand.check(|root| {
        shell(
            root,
            ": >> x; cp -p seq /tmp/.$$; cat /tmp/.$$ > seq; touch -m -r /tmp/.$$ seq; rm /tmp/.$$; chmod 640 g;
            cat d/e/f/c > /dev/null; exec 3<> d/a; exec 3>&-",
        );
    });
    assert_eq!(collected, Collected::default());
    assert_eq!(report, Report::default());
}

#[test]
fn only_what_changed_of_a_file_is_said() {
    use base::delta::FileChange;
    if !is_root("only what changed") {
        return;
    }
    let stand = Stand::new(|root| shell(root, TREE));
    let (collected, _) = stand.check(|root| shell(root, "echo more >> seq; chmod 600 x; echo other > d/a"));
    let how: Vec<(String, FileChange)> = collected
        .delta
        .changes
        .iter()
        .filter_map(|change| match &change.action {
            Action::File { change: how, .. } => Some((change.path.to_string(), *how)),
            _ => None,
        })
        .collect();
    let want = [
        ("/seq".to_owned(), FileChange::Appended { from: 3893 }),
        ("/x".to_owned(), FileChange::Attributes),
        ("/d/a".to_owned(), FileChange::Written),
    ];
    assert_eq!(how, want);
}

#[test]
fn odd_names_and_attributes() {
    if !is_root("odd names") {
        return;
    }
    let long = "n".repeat(255);
    let act = |root: &Path| {
        let odd = |name: &[u8]| root.join(std::ffi::OsStr::from_bytes(name));
        std::fs::write(odd(b"\xff\xfe\n"), "odd").expect("writes");
        std::fs::write(odd(b" \x1b[1m"), "odd").expect("writes");
        std::fs::create_dir(root.join(&long)).expect("makes");
        std::fs::write(root.join(&long).join(&long), "long").expect("writes");
        for (path, name, value) in [("x", "user.a", "1"), ("d", "user.b", "2"), ("d/a", "user.c", "3")] {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(root.join(path), name, value.as_bytes(), flags).expect("sets");
        }
        rustix::fs::removexattr(root.join("seq"), "user.old").expect("removes");
    };
    let stand = Stand::new(|root| {
        shell(root, TREE);
        rustix::fs::setxattr(root.join("seq"), "user.old", b"v", rustix::fs::XattrFlags::empty()).expect("sets");
    });
    stand.check(act);
}

#[test]
fn sockets_and_devices_are_skipped_and_said() {
    if !is_root("sockets") {
        return;
    }
    let stand = Stand::new(|root| shell(root, TREE));
    let (collected, _) = stand.check(|root| {
        let socket = std::os::unix::net::UnixListener::bind(root.join("socket")).expect("binds");
        drop(socket);
    });
    assert_eq!(collected.skipped.len(), 1);
    assert_eq!(collected.skipped[0].why, SkipReason::Socket);
}

#[test]
fn deep_trees_have_an_end() {
    if !is_root("deep trees") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let snapshot = Snapshot::take(folder.path(), folder.path());
    let upper = tempfile::tempdir().expect("a folder");
    let deep = |depth: usize| {
        let script =
            "import os,sys\nos.chdir(sys.argv[1])\nfor i in range(int(sys.argv[2])):\n os.mkdir('d')\n os.chdir('d')";
        let status = Command::new("python3").args(["-c", script]).arg(upper.path()).arg(depth.to_string()).status();
        status.is_ok_and(|status| status.success())
    };
    if !deep(DEPTH_MAX + 10) {
        println!("SKIPPED: deep trees: no python3");
        return;
    }
    let options = Options::new(Time(0), now(), Time(0));
    let result = collect(upper.path(), &snapshot, &options, &mut |_, _| Ok(Content::Empty));
    assert!(matches!(result, Err(DeltaError::TooDeep { .. })), "{result:?}");
    let options = Options { entries_max: 100, ..options };
    let result = collect(upper.path(), &snapshot, &options, &mut |_, _| Ok(Content::Empty));
    assert!(matches!(result, Err(DeltaError::TooMany { max: 100 })), "{result:?}");
    let status = Command::new("rm").arg("-rf").arg(upper.path().join("d")).status().expect("runs rm");
    assert!(status.success());
}
