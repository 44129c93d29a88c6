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
        let status = Command::new("mount")
            .args(["-t", "overlay", "overlay", "-o", &options])
            .arg(self.at("merged"))
            .status()
            .expect("runs mount");
        assert!(status.success(), "the overlay can be mounted");
    }

    fn unmount(&self) {
        rustix::mount::unmount(self.at("merged"), rustix::mount::UnmountFlags::empty()).expect("unmounts");
    }

    /// Does `act` in the overlay and in the plain copy, commits the delta, and compares.
    fn check(&self, act: impl Fn(&Path)) -> (Collected, Report) {
        self.mount();
        let snapshot = Snapshot::take(&self.at("client"), &self.at("lower"));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| act(&self.at("merged"))));
        self.unmount();
        result.expect("the operations succeed in the overlay");
        act(&self.at("local"));
        self.commit_and_compare(&snapshot)
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
            let text = format!("{mode:o} {uid}:{gid} {mtime} {link} {body} {attributes:?}");
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
    ln -s x link; echo hard > h1; ln h1 h2; chmod 640 g; mkdir -p g/x; echo q > g/q; echo in > g/x/in";

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
        "mv d d2; mv g/x empty; rm -r g; mkdir -p n/m; mv n n2",
        "echo w > h1",
        "echo w >> h2; rm x; mkdir x; echo in > x/in; mv seq d/a; ln seq2 l || :",
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
    for seed in 1..25 {
        random_case(seed, 30, 25, false);
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
            ": >> x; cp -p seq /tmp/.$$; cat /tmp/.$$ > seq; touch -r /tmp/.$$ seq; rm /tmp/.$$; chmod 640 g;
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

/// Numbers from a seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    fn pick<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.roll(of.len() as u64) as usize]
    }

    fn path(&mut self) -> PathBuf {
        let depth = 1 + self.roll(3);
        (0..depth).map(|_| self.pick(&["a", "b", "c"])).collect()
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = [0, 1, 10, 5000, 70_000][self.roll(5) as usize];
        let letter = b'a' + self.roll(26) as u8;
        vec![letter; len]
    }
}

/// One operation, with everything chosen.
#[derive(Clone, Debug)]
enum Op {
    Write(PathBuf, Vec<u8>),
    Append(PathBuf, Vec<u8>),
    Patch(PathBuf, u64, Vec<u8>),
    Truncate(PathBuf, u64),
    Touch(PathBuf, i64),
    Chmod(PathBuf, u32),
    Chown(PathBuf, u32, u32),
    Rename(PathBuf, PathBuf),
    Exchange(PathBuf, PathBuf),
    Link(PathBuf, PathBuf),
    Symlink(PathBuf, String),
    Unlink(PathBuf),
    RemoveDir(PathBuf),
    RemoveAll(PathBuf),
    MakeDir(PathBuf),
    Fifo(PathBuf),
    SetXattr(PathBuf, String, Vec<u8>),
    RemoveXattr(PathBuf, String),
    OpenOnly(PathBuf),
}

impl Op {
    fn choose(dice: &mut Dice) -> Self {
        let path = dice.path();
        match dice.roll(28) {
            0 | 1 => Self::Write(path, dice.bytes()),
            2 => Self::Append(path, dice.bytes()),
            3 => Self::Patch(path, dice.roll(6000), dice.bytes()),
            4 => Self::Truncate(path, dice.roll(8000)),
            5 => Self::Touch(path, 1_100_000_000 + dice.roll(1000) as i64),
            6 => Self::Chmod(path, [0o644, 0o700, 0o755, 0o1777, 0o600][dice.roll(5) as usize]),
            7 => Self::Chown(path, dice.roll(3) as u32, dice.roll(3) as u32),
            8..=13 => Self::Rename(path, dice.path()),
            14 => Self::Exchange(path, dice.path()),
            15 => Self::Link(path, dice.path()),
            16 => Self::Symlink(path, dice.pick(&["a", "../b", "/nowhere"]).to_owned()),
            17 => Self::Unlink(path),
            18 => Self::RemoveDir(path),
            19 | 20 => Self::RemoveAll(path),
            21..=24 => Self::MakeDir(path),
            25 => Self::Fifo(path),
            26 => Self::SetXattr(
                path,
                format!("user.{}", dice.pick(&["a", "b"])),
                dice.bytes()[..].iter().take(9).copied().collect(),
            ),
            _ if dice.roll(2) == 0 => Self::RemoveXattr(path, "user.a".to_owned()),
            _ => Self::OpenOnly(path),
        }
    }

    /// Does it beneath `root`. Whether it worked is part of what must agree.
    fn run(&self, root: &Path) -> bool {
        let at = |path: &PathBuf| root.join(path);
        let is_file = |path: &PathBuf| at(path).symlink_metadata().is_ok_and(|meta| meta.is_file());
        let is_link = |path: &PathBuf| at(path).symlink_metadata().is_ok_and(|meta| meta.is_symlink());
        let absent = |path: &PathBuf| at(path).symlink_metadata().is_err();
        let open = |path: &PathBuf| File::options().read(true).write(true).open(at(path));
        // An overlay gives a file whose attributes changed a new mtime when it is then opened for writing.
        let open_only = |path: &PathBuf| {
            let before = at(path).symlink_metadata().ok().and_then(|meta| meta.modified().ok());
            is_file(path) && open(path).is_ok_and(|file| before.is_some_and(|time| file.set_modified(time).is_ok()))
        };
        use std::os::unix::fs::FileExt;
        match self {
            Self::Write(path, bytes) => (is_file(path) || absent(path)) && std::fs::write(at(path), bytes).is_ok(),
            Self::Append(path, bytes) | Self::Patch(path, _, bytes) if bytes.is_empty() => open_only(path),
            Self::Append(path, bytes) => {
                let file = || File::options().append(true).open(at(path));
                is_file(path) && file().is_ok_and(|mut file| io::Write::write_all(&mut file, bytes).is_ok())
            }
            Self::Patch(path, offset, bytes) => {
                is_file(path) && open(path).is_ok_and(|file| file.write_all_at(bytes, *offset).is_ok())
            }
            Self::Truncate(path, len) => is_file(path) && open(path).is_ok_and(|file| file.set_len(*len).is_ok()),
            Self::Touch(path, secs) => {
                let time = Timespec { tv_sec: *secs, tv_nsec: 0 };
                let times = Timestamps { last_access: time, last_modification: time };
                rustix::fs::utimensat(CWD, at(path), &times, AtFlags::SYMLINK_NOFOLLOW).is_ok()
            }
            Self::Chmod(path, mode) => {
                let permissions = std::fs::Permissions::from_mode(*mode);
                !is_link(path) && std::fs::set_permissions(at(path), permissions).is_ok()
            }
            Self::Chown(path, uid, gid) => {
                let (uid, gid) = (Some(Uid::from_raw(*uid)), Some(Gid::from_raw(*gid)));
                rustix::fs::chownat(CWD, at(path), uid, gid, AtFlags::SYMLINK_NOFOLLOW).is_ok()
            }
            Self::Rename(from, to) => {
                let done = std::fs::rename(at(from), at(to)).is_ok();
                // An overlay's rename that fails can change the mtimes of directories all the same.
                let tried = [from, to].into_iter().filter_map(|path| path.parent());
                let directory = |path: &&Path| root.join(path).symlink_metadata().is_ok_and(|meta| meta.is_dir());
                tried.filter(|_| !done).filter(directory).for_each(|path| {
                    Self::Touch(path.to_owned(), 1_200_000_000).run(root);
                });
                done
            }
            Self::Exchange(from, to) => {
                let swap = || rustix::fs::renameat_with(CWD, at(from), CWD, at(to), RenameFlags::EXCHANGE);
                swap().is_ok()
            }
            Self::Link(from, to) => std::fs::hard_link(at(from), at(to)).is_ok(),
            Self::Symlink(path, target) => std::os::unix::fs::symlink(target, at(path)).is_ok(),
            Self::Unlink(path) => std::fs::remove_file(at(path)).is_ok(),
            Self::RemoveDir(path) => std::fs::remove_dir(at(path)).is_ok(),
            Self::RemoveAll(path) => std::fs::remove_dir_all(at(path)).is_ok(),
            Self::MakeDir(path) => std::fs::create_dir(at(path)).is_ok(),
            Self::Fifo(path) => rustix::fs::mkfifoat(CWD, at(path), rustix::fs::Mode::from_raw_mode(0o640)).is_ok(),
            Self::SetXattr(path, name, value) => {
                let set = || rustix::fs::setxattr(at(path), name.as_str(), value, rustix::fs::XattrFlags::empty());
                (is_file(path) || at(path).is_dir() && !is_link(path)) && set().is_ok()
            }
            Self::RemoveXattr(path, name) => !is_link(path) && rustix::fs::removexattr(at(path), name.as_str()).is_ok(),
            Self::OpenOnly(path) => open_only(path),
        }
    }
}

/// Random operations from `seed`: `before` of them make the tree, `during` are the task's.
fn random_case(seed: u64, before: usize, during: usize, privileged: bool) {
    let mut dice = Dice(seed);
    let mut setup: Vec<Op> = (0..before).map(|_| Op::choose(&mut dice)).collect();
    let ops: Vec<Op> = (0..during).map(|_| Op::choose(&mut dice)).collect();
    // Without privilege directories of the lower layer cannot be renamed, and programs copy them instead.
    let moves = |op: &Op| matches!(op, Op::Rename(..) | Op::Exchange(..) | Op::Link(..));
    let ops: Vec<Op> = ops.into_iter().filter(|op| privileged || !moves(op)).collect();
    setup.retain(|op| privileged || !matches!(op, Op::Link(..)));
    let new = if privileged { Stand::new } else { Stand::unprivileged };
    let stand = new(|root: &Path| {
        for name in ["a", "b", "a/a", "a/b", "b/c"] {
            std::fs::create_dir(root.join(name)).expect("makes");
        }
        for op in &setup {
            // A symbolic link or pipe of several names loses those that change: a limit that `delta` states.
            let file = |path: &PathBuf| root.join(path).symlink_metadata().is_ok_and(|meta| meta.is_file());
            if !matches!(op, Op::Link(from, _) if !file(from)) {
                op.run(root);
            }
        }
    });
    println!("seed {seed}");
    for op in &ops {
        println!("  {}", format!("{op:?}").chars().take(80).collect::<String>());
    }
    stand.check(|root| {
        let worked: Vec<bool> = ops.iter().map(|op| op.run(root)).collect();
        let log = root.parent().expect("a folder").join("worked");
        match std::fs::read_to_string(&log) {
            Ok(first) => assert_eq!(first, format!("{worked:?}"), "{ops:#?}"),
            Err(_) => std::fs::write(&log, format!("{worked:?}")).expect("writes"),
        }
    });
}

#[test]
fn random_operations() {
    if !is_root("random operations") {
        return;
    }
    let count: u64 = std::env::var("GLEANER_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let first: u64 = std::env::var("GLEANER_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    for seed in first..first + count {
        random_case(seed, 30, 25, true);
    }
}
