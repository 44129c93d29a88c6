//! File systems, policies, sizes.

use super::*;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use std::time::Instant;

/// A file system that is unmounted in the end.
pub(super) struct Mounted(PathBuf);

impl Mounted {
    /// A tmpfs of this size, or `None` where this process may not mount.
    pub(super) fn tmpfs(at: PathBuf, options: &str) -> Option<Self> {
        std::fs::create_dir_all(&at).expect("makes the mount point");
        let options = std::ffi::CString::new(options).expect("no NUL");
        match mount("tmpfs", &at, "tmpfs", MountFlags::empty(), Some(options.as_c_str())) {
            Ok(()) => Some(Self(at)),
            Err(error) => {
                println!("SKIPPED: cannot mount: {error}");
                None
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount(&self.0, UnmountFlags::DETACH).expect("unmounts");
    }
}

#[test]
fn a_refused_path_stops_everything() {
    let scene = Scene::new("echo a > x; mkdir scratch home");
    let saw = scene.saw();
    let task = Task::new(&saw)
        .directory("/home", 0o755)
        .write("/x", "b")
        .write("/home/.bashrc", "evil")
        .write("/scratch/s", "s");
    let before = scene.describe();
    let policy = |path: &TreePath| match path.as_bytes() {
        at if at.starts_with(b"/home") => WriteDecision::Refuse("is outside the write policy".to_owned()),
        at if at.starts_with(b"/scratch") => WriteDecision::Scratch("is a cache"),
        _ => WriteDecision::Commit,
    };
    let committer = scene.committer();
    let Err(CommitError::Refused(refusals)) = task.commit_if(&committer, 1, &policy) else { panic!("refuses") };
    assert_eq!(refusals.iter().map(|refusal| refusal.path.to_string()).collect::<Vec<_>>(), ["/home/.bashrc"]);
    assert_eq!(scene.describe(), before);
    let task =
        Task::new(&saw).directory("/home", 0o755).write("/x", "b").write("/scratch/s", "s").link("/l", "/scratch/s");
    let report = task.commit_if(&committer, 1, &policy).expect("a directory's new mtime is no reason to refuse");
    assert_eq!(report.scratch, [(path("/scratch/s"), "is a cache")]);
    assert_eq!(scene.read("/x"), "b");
    assert_eq!(scene.read("/l"), "s", "a second name of a dropped file is a file");
    assert!(!scene.at("/scratch/s").exists());
    assert_eq!(scene.at("/home").metadata().expect("is there").mtime(), 1_000_000_000, "kept");
    let only_home = |path: &TreePath| match path.as_bytes() {
        b"/home" => WriteDecision::Refuse("is outside the write policy".to_owned()),
        _ => WriteDecision::Commit,
    };
    let tasks = [
        Task::new(&saw).directory("/home", 0o755).write("/home/new", "n"),
        Task::new(&saw).directory("/home", 0o755).directory("/home/made", 0o755),
    ];
    for (number, task) in (2..).zip(tasks) {
        scene.shell("touch -d @1000000000 home");
        task.commit_if(&committer, number, &only_home).expect("what is in it may be made");
        assert_ne!(scene.at("/home").metadata().expect("is there").mtime(), 1_000_000_000, "an entry is new");
    }
}

#[test]
fn the_policy_is_asked_about_a_file_that_gets_another_name() {
    let scene =
        Scene::new("mkdir scratch home; echo s > scratch/s; echo t > scratch/t; echo b > home/.bashrc; echo x > x");
    let saw = scene.saw();
    let policy = |path: &TreePath| match path.as_bytes() {
        at if at.starts_with(b"/home") => WriteDecision::Refuse("is outside the write policy".to_owned()),
        at if at.starts_with(b"/scratch") => WriteDecision::Scratch("is a cache"),
        _ => WriteDecision::Commit,
    };
    let before = scene.describe();
    let committer = scene.committer();
    for task in [
        Task::new(&saw).link("/l", "/home/.bashrc"),
        Task::new(&saw).file("/home/.bashrc", "b\n", 0o644, FileChange::Attributes).link("/l", "/home/.bashrc"),
        Task::new(&saw).rename("/home/.bashrc", "/l"),
        Task::new(&saw).rename("/x", "/home/x"),
        Task::new(&saw).rename("/x", "/scratch/x"),
    ] {
        let result = task.commit_if(&committer, 1, &policy);
        assert!(matches!(result, Err(CommitError::Refused(_))), "{:?}: {result:?}", task.delta);
        assert_eq!(scene.describe(), before);
    }
    Task::new(&saw)
        .rename("/scratch/s", "/moved")
        .file("/scratch/t", "t\n", 0o600, FileChange::Attributes)
        .file("/moved", "s\n", 0o600, FileChange::Attributes)
        .link("/l", "/scratch/t")
        .link("/l2", "/moved")
        .commit_if(&committer, 1, &policy)
        .expect("what is in a place that is not committed is copied");
    assert_eq!((scene.read("/moved"), scene.read("/scratch/s")), ("s\n".to_owned(), "s\n".to_owned()));
    let node = |at: &str| scene.at(at).metadata().expect("is there");
    assert_eq!((node("/moved").mode() & 0o777, node("/scratch/s").mode() & 0o777), (0o600, 0o644));
    assert_eq!((node("/scratch/t").nlink(), node("/l").nlink(), scene.read("/l").as_str()), (1, 1, "t\n"));
    assert_eq!(node("/l2").ino(), node("/moved").ino());
    scene.assert_clean();
}

#[test]
fn holes_that_are_appended_stay_holes() {
    let scene = Scene::new("echo a > x");
    let saw = scene.saw();
    let mut task = Task::new(&saw).append("/x", "a\n", 1);
    let grown = 5 << 20;
    let Action::File { attr, content, change, .. } = &mut task.delta.changes[0].action else { panic!("a file") };
    (attr.size, *content, *change) = (grown, HOLE, FileChange::Appended { from: 2 });
    task.bytes.1 = grown;
    task.commit(&scene.committer(), 1).expect("commits");
    let meta = scene.at("/x").metadata().expect("is there");
    assert_eq!(meta.len(), grown);
    assert!(meta.blocks() <= 16, "{} blocks", meta.blocks());
    assert!(scene.read("/x").starts_with("a\n\0"));
}

#[test]
fn the_daemons_own_folder_is_out_of_reach() {
    let folder = tempfile::tempdir().expect("a folder");
    let committer = Committer::open_at(folder.path(), &folder.path().join("state")).expect("opens");
    let saw = Saw(HashMap::new(), Vec::new(), None, None, u32::MAX);
    for at in ["/state/redo/x", "/state/outcomes", "/.gleaner-x/y"] {
        let result = Task::new(&saw).write(at, "evil").commit(&committer, 1);
        assert!(matches!(result, Err(CommitError::Refused(_))), "{at}: {result:?}");
    }
    let second = Committer::open_at(folder.path(), &folder.path().join("state"));
    assert!(matches!(second, Err(CommitError::State(_))), "one committer at a time");
}

#[test]
fn set_id_bits_do_not_arrive() {
    let scene = Scene::new("mkdir sg; chmod 2755 sg; echo s > s; chmod 4755 s");
    let saw = scene.saw();
    Task::new(&saw)
        .directory("/sg", 0o2755)
        .directory("/d", 0o6755)
        .directory("/sg/d", 0o2755)
        .file("/f", "f", 0o6755, FileChange::Written)
        .file("/s", "s\n", 0o4755, FileChange::Attributes)
        .commit(&scene.committer(), 1)
        .expect("commits");
    let mode = |at: &str| scene.at(at).metadata().expect("is there").mode() & 0o7777;
    assert_eq!((mode("/f"), mode("/d")), (0o755, 0o755));
    assert_eq!((mode("/sg"), mode("/sg/d"), mode("/s")), (0o2755, 0o2755, 0o4755), "what is there already stays");
}

#[test]
fn wrong_contents_are_refused() {
    let scene = Scene::new("echo a > x");
    let saw = scene.saw();
    let mut task = Task::new(&saw).write("/x", "four");
    let Action::File { attr, .. } = &mut task.delta.changes[0].action else { panic!("a file") };
    attr.size = 5;
    let result = task.commit(&scene.committer(), 1);
    assert!(matches!(result, Err(CommitError::Content { .. })), "{result:?}");
    scene.assert_clean();
}

#[test]
fn a_full_disk_changes_nothing() {
    let scene = Scene::new("mkdir small");
    let Some(_mounted) = Mounted::tmpfs(scene.at("/small"), "size=1m") else { return };
    scene.shell("echo a > small/x; echo b > y");
    let saw = scene.saw();
    let before = scene.describe();
    let task = Task::new(&saw)
        .write("/y", "new")
        .write("/small/x", &"z".repeat(700_000))
        .write("/small/z", &"z".repeat(700_000));
    let result = task.commit(&scene.committer(), 1);
    assert!(matches!(&result, Err(CommitError::NoSpace(at)) if *at == path("/small/z")), "{result:?}");
    assert_eq!(scene.describe(), before);
    scene.assert_clean();
}

#[test]
fn across_mounts() {
    let scene = Scene::new("mkdir m; echo a > x; echo bound > bound; echo b > source; echo f > f; echo i > i");
    let Some(_mounted) = Mounted::tmpfs(scene.at("/m"), "size=50m") else { return };
    scene.shell("mkdir m/d; echo d > m/d/d; echo x > m/x; echo r > m/r; echo g > m/g; echo h > m/h");
    mount_bind(scene.at("/source"), scene.at("/bound")).expect("binds");
    let bound = Mounted(scene.at("/bound"));
    let saw = scene.saw();
    let task = Task::new(&saw)
        .rename("/f", "/m/f")
        .rename("/m/g", "/g")
        .rename("/m/h", "/h")
        .rename("/i", "/m/i")
        .remove("/m/r")
        .directory("/m/new", 0o755)
        .write("/m/new/n", "n")
        .write("/m/x", "x2")
        .write("/m/d/d", "d2")
        .write("/x", "a2")
        .write("/g", "g2")
        .append("/h", "h\nh2\n", 2)
        .file("/m/i", "i\n", 0o600, FileChange::Attributes)
        .write("/bound", "through the mount")
        .symlink("/m/l", "x");
    let report = task.commit(&scene.committer(), 1).expect("commits");
    assert_eq!(report.committed.len(), 13);
    assert_eq!((scene.read("/m/f"), scene.read("/g"), scene.read("/h")), ("f\n".into(), "g2".into(), "h\nh2\n".into()));
    assert_eq!(
        (scene.read("/m/i"), scene.at("/m/i").metadata().expect("is there").mode() & 0o777),
        ("i\n".into(), 0o600)
    );
    for gone in ["/f", "/i", "/m/g", "/m/h"] {
        assert!(!scene.at(gone).exists(), "{gone}");
    }
    assert_eq!(
        (scene.read("/m/x"), scene.read("/m/d/d"), scene.read("/m/new/n")),
        ("x2".into(), "d2".into(), "n".into())
    );
    assert_eq!(scene.read("/bound"), "through the mount");
    drop(bound);
    assert_eq!(scene.read("/source"), "through the mount");
    let hidden: Vec<String> = scene.describe().into_keys().filter(|name| name.contains(".gleaner")).collect();
    assert!(hidden.is_empty(), "{hidden:?}");
    scene.assert_clean();
}

#[test]
fn a_crash_leaves_no_folder_on_other_mounts() {
    for point in (0..60).step_by(3) {
        let scene = Scene::new("mkdir m; echo a > x");
        let Some(_mounted) = Mounted::tmpfs(scene.at("/m"), "size=5m") else { return };
        let saw = scene.saw();
        crash::arm(Some(point));
        let _ = Task::new(&saw).write("/m/a", "a").write("/x", "b").commit(&scene.committer(), 1);
        crash::arm(None);
        let committer = scene.committer();
        committer.recover().expect("recovers");
        let names: Vec<_> =
            std::fs::read_dir(scene.at("/m")).expect("lists").map(|entry| entry.expect("lists").file_name()).collect();
        let committed = committer.outcome(TaskId(1)).is_some();
        assert_eq!(names.len(), usize::from(committed), "died at {point}: {names:?}");
        assert_eq!(scene.read("/x"), if committed { "b" } else { "a\n" });
        scene.assert_clean();
    }
}

/// One is finished, or undone; of the other only the staging had begun: its files are in nobody's way when its result
/// comes again.
#[test]
fn two_commits_die_at_once_on_another_mount() {
    let mut finished = 0;
    for point in (6..40).step_by(2) {
        let scene = Scene::new("mkdir m; echo a > x");
        let Some(_mounted) = Mounted::tmpfs(scene.at("/m"), "size=5m") else { return };
        let saw = scene.saw();
        let ids = [1 << 100, 2 << 100];
        let second = Task::new(&saw).write("/m/b", "b").write("/m/c", "c");
        let dying = scene.committer();
        for (task, id, point) in [(&second, ids[1], 3), (&Task::new(&saw).write("/m/a", "a"), ids[0], point)] {
            crash::arm(Some(point));
            let _ = task.commit(&dying, id);
            crash::arm(None);
        }
        drop(dying);
        let committer = scene.committer();
        finished += committer.recover().expect("recovers").finished.len();
        scene.assert_clean();
        second.commit(&committer, ids[1]).unwrap_or_else(|error| panic!("point {point}: {error}"));
        assert_eq!(scene.read("/m/c"), "c");
        scene.assert_clean();
    }
    assert!(finished > 2, "{finished}");
}

#[test]
fn what_is_stuck_is_left_alone_and_stops_no_other() {
    let scene = Scene::new("mkdir m; echo a > x");
    let Some(mounted) = Mounted::tmpfs(scene.at("/m"), "size=5m") else { return };
    let saw = scene.saw();
    let ids = [1 << 100, 2 << 100];
    let tasks = [Task::new(&saw).write("/m/a", "a").write("/x", "b"), Task::new(&saw).write("/x", "c")];
    let dying = scene.committer();
    for (task, id, point) in [(&tasks[1], ids[1], 2), (&tasks[0], ids[0], 8)] {
        crash::arm(Some(point));
        let _ = task.commit(&dying, id);
        crash::arm(None);
    }
    drop((dying, mounted));
    let committer = scene.committer();
    let recovered = committer.recover().expect("recovers");
    let stuck: Vec<TaskId> = recovered.stuck.iter().map(|(task, _)| *task).collect();
    assert_eq!(stuck, [TaskId(ids[0])], "what was mounted is gone");
    assert!(matches!(tasks[0].commit(&committer, ids[0]), Err(CommitError::Stuck(_))));
    tasks[1].commit(&committer, ids[1]).expect("nothing is in its way");
    assert_eq!(scene.read("/x"), "c");
    let kept = |folder: &str| std::fs::read_dir(scene.state().join(folder)).expect("lists").count();
    assert!(kept("redo") > 0 && scene.state().join("folders").exists(), "it can still be finished");
    drop(committer);

    let starts = |scene: &Scene| {
        let committer = scene.committer();
        let recovered = committer.recover().expect("recovers");
        (committer, recovered.stuck.len(), recovered.set_aside.len())
    };
    assert_eq!(starts(&scene).1, 1, "tried again");
    let (committer, stuck, aside) = starts(&scene);
    assert_eq!((stuck, aside), (0, 1), "and given up");
    let found = committer.kept();
    assert_eq!(found.iter().map(|info| info.task).collect::<Vec<_>>(), [TaskId(ids[0])], "but kept");
    assert!(matches!(tasks[0].commit(&committer, ids[0]), Err(CommitError::Stuck(_))));
    drop(committer);
    let (committer, stuck, aside) = starts(&scene);
    assert_eq!((stuck, aside, committer.kept().len()), (0, 0, 1), "not a word more");
}

/// What there is of a commit that was given up can be had.
#[test]
fn a_commit_that_is_given_up_is_kept() {
    let died_at = |point| {
        let scene = Scene::new("mkdir d; echo a > d/x; echo b > y");
        let saw = scene.saw();
        let dying = scene.committer();
        crash::arm(Some(point));
        let _ = Task::new(&saw).remove("/d/x").write("/y", "new y").commit(&dying, 1);
        assert!(crash::is_dead(), "died in the middle");
        crash::arm(None);
        scene
    };
    // It is taken away, and nothing is in place.
    let mut scenes = (0..).map(died_at);
    let scene = scenes.find(|scene| !scene.at("/d/x").exists()).expect("one of them");
    assert_eq!(scene.read("/y"), "b\n");
    let set = |flag: &str| {
        let done = Command::new("chattr").args([flag, "d"]).current_dir(scene.root()).status();
        done.is_ok_and(|status| status.success())
    };
    if !set("+i") {
        println!("SKIPPED: no such attributes here");
        return;
    }
    scene.shell("rm y; mkdir y");
    let starts = || {
        let committer = scene.committer();
        let recovered = committer.recover().expect("recovers");
        (recovered.stuck.len(), recovered.set_aside.len())
    };
    assert_eq!([starts(), starts(), starts(), starts()], [(1, 0), (1, 0), (0, 1), (0, 0)]);
    let committer = scene.committer();
    committer.recover().expect("recovers");
    let kept = committer.kept();
    assert_eq!((kept.len(), kept[0].task), (1, TaskId(1)));
    assert!(kept[0].shown.iter().any(|change| change.path == path("/d/x")), "{kept:?}");
    let into = scene.folder.path().join("into");
    committer.recover_kept(TaskId(1), &into).expect("copies");
    let copied = |at: &str| std::fs::read_to_string(into.join(at)).expect("is there");
    assert_eq!((copied("d/x"), copied("y")), ("a\n".into(), "new y".into()));
    assert!(copied("GLEANER-CHANGES").contains("/d/x"));
    set("-i");
}

/// Of directories in the lower layers of an overlay most kernels refuse the renaming.
#[test]
fn directories_of_an_overlay_are_removed() {
    for point in [None].into_iter().chain((0..120).step_by(3).map(Some)) {
        let scene = Scene::new("mkdir o disk");
        let Some(_disk) = Mounted::tmpfs(scene.at("/disk"), "size=5m") else { return };
        scene.shell(
            "cd disk; mkdir -p lower/d/e/f upper work; echo a > lower/d/a; echo b > lower/d/e/b; ln -s x lower/d/l",
        );
        scene.shell("find disk/lower -depth -exec touch -h -d @1000000000 {} +; echo x > x; touch -d @1000000000 x");
        let at = |name: &str| scene.at(&format!("/disk/{name}")).display().to_string();
        let options =
            format!("lowerdir={},upperdir={},workdir={},redirect_dir=off", at("lower"), at("upper"), at("work"));
        let options = std::ffi::CString::new(options).expect("no NUL");
        if let Err(error) = mount("o", scene.at("/o"), "overlay", MountFlags::empty(), Some(options.as_c_str())) {
            println!("SKIPPED: no overlay here: {error}");
            return;
        }
        let _overlay = Mounted(scene.at("/o"));
        scene.shell("echo new > o/d/e/upper");
        let saw = scene.saw();
        let task = ["/o/d/e/upper", "/o/d/e/b", "/o/d/e/f", "/o/d/e", "/o/d/a", "/o/d/l", "/o/d"];
        let task = task.into_iter().fold(Task::new(&saw), Task::remove).directory("/o", 0o755).write("/x", "y");
        crash::arm(point);
        let result = task.commit(&scene.committer(), 1);
        let died = crash::is_dead();
        crash::arm(None);
        let committer = scene.committer();
        assert_eq!(committer.recover().expect("recovers").stuck, vec![], "died at {point:?}");
        let committed = committer.outcome(TaskId(1)).is_some();
        assert!(died || (committed && result.is_ok()), "{result:?}");
        assert_eq!((scene.at("/o/d").exists(), scene.read("/x") == "y"), (!committed, committed), "died at {point:?}");
        if !committed {
            assert_eq!((scene.read("/o/d/e/b"), scene.read("/o/d/e/upper")), ("b\n".into(), "new\n".into()));
            assert!(scene.at("/o/d/e/f").is_dir() && scene.at("/o/d/l").is_symlink(), "died at {point:?}");
        }
        scene.assert_clean();
    }
}

/// What is mounted in a folder must not go where the folder goes.
#[test]
fn what_is_mounted_is_neither_removed_nor_moved() {
    let scene = Scene::new("mkdir -p d/m e; echo a > d/a; echo s > source; echo b > bound; echo o > other");
    let Some(mounted) = Mounted::tmpfs(scene.at("/d/m"), "size=1m") else { return };
    mount_bind(scene.at("/source"), scene.at("/bound")).expect("binds");
    let bound = Mounted(scene.at("/bound"));
    let saw = scene.saw();
    let before = scene.describe();
    let committer = scene.committer();
    let tasks = [
        Task::new(&saw).remove("/d/m").remove("/d/a").remove("/d").write("/e/new", "new"),
        Task::new(&saw).rename("/d/m", "/e/m").write("/e/new", "new"),
        Task::new(&saw).remove("/bound").write("/e/new", "new"),
        Task::new(&saw).rename("/other", "/bound").remove("/bound"),
        Task::new(&saw).symlink("/bound", "elsewhere"),
    ];
    for (id, task) in tasks.iter().enumerate() {
        let result = task.commit(&committer, id as u128);
        let Err(CommitError::Conflict(found)) = &result else { panic!("{id}: {result:?}") };
        assert!(found.iter().any(|conflict| conflict.why == ConflictKind::MountPoint), "{id}: {found:?}");
        assert_eq!(scene.describe(), before);
        scene.assert_clean();
    }
    drop((mounted, bound));
    assert!(std::fs::read_dir(scene.state().join("stage")).expect("lists").next().is_none());
}

/// Without root this needs the directory opened for the commit; with root it is easy.
#[test]
fn a_directory_closed_to_its_owner() {
    let scene = Scene::new("mkdir -p d/e other; echo a > d/a; echo r > d/r; echo e > d/e/e; chmod 555 d/e d other");
    let saw = scene.saw();
    let task = Task::new(&saw).rename("/d/e", "/other/e").remove("/d/r").write("/d/a", "a2").write("/d/new", "n");
    task.commit(&scene.committer(), 1).expect("commits");
    let mode = |at: &str| scene.at(at).metadata().expect("is there").mode() & 0o7777;
    assert_eq!((mode("/d"), mode("/other"), mode("/other/e")), (0o555, 0o555, 0o555));
    assert_eq!(
        (scene.read("/d/a"), scene.read("/d/new"), scene.read("/other/e/e")),
        ("a2".into(), "n".into(), "e\n".into())
    );
    scene.assert_clean();
    scene.shell("chmod -R u+w .");
}

#[test]
fn ten_thousand_files() {
    let scene = Scene::new("mkdir d old; cd old; seq 1 5000 | xargs touch");
    let saw = scene.saw();
    let mut task = Task::new(&saw);
    for number in 1..=5000 {
        task = task.remove(&format!("/old/{number}"));
    }
    task = task.remove("/old").directory("/d", 0o755);
    for number in 0..10_000 {
        task = task.write(&format!("/d/{number}"), "some text");
    }
    let committer = scene.committer();
    let start = Instant::now();
    let report = task.commit(&committer, 1).expect("commits");
    println!("10,000 new files and 5,000 removals: {:?}", start.elapsed());
    assert_eq!(report.committed.len(), 10_000);
    assert_eq!(std::fs::read_dir(scene.at("/d")).expect("lists").count(), 10_000);
    assert!(!scene.at("/old").exists());
    scene.assert_soon_clean();
}

#[test]
fn a_sparse_file_of_five_gigabytes() {
    let scene = Scene::new("truncate -s 5G there; ln there other");
    let saw = scene.saw();
    let mut task = Task::new(&saw);
    task.bytes.1 = 5 << 30;
    for at in ["/new", "/there"] {
        let action =
            Action::File { attr: attr(0o644, 5 << 30), xattrs: vec![], content: HOLE, change: FileChange::Written };
        task = task.add(at, action);
    }
    let start = Instant::now();
    task.commit(&scene.committer(), 1).expect("commits");
    assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
    for at in ["/new", "/there"] {
        let meta = scene.at(at).metadata().expect("is there");
        assert_eq!((meta.len(), meta.blocks()), (5 << 30, 0));
    }
}

#[test]
fn one_small_file_is_quick() {
    let scene = Scene::new("mkdir d; echo a > d/x");
    let committer = scene.committer();
    let (count, start) = (200, Instant::now());
    for id in 0..count {
        let saw = scene.saw();
        let task = Task::new(&saw).write("/d/x", &id.to_string());
        task.commit(&committer, id).expect("commits");
    }
    println!("a commit of one file: {:?}", start.elapsed() / count as u32);
}

#[test]
fn a_report_tells_the_new_stamps() {
    let scene = Scene::new("echo a > x; echo log > log");
    let saw = scene.saw();
    let task = Task::new(&saw).write("/x", "b").append("/log", "log\nmore\n", 4).symlink("/l", "x");
    let report = task.commit(&scene.committer(), 1).expect("commits");
    let now = scene.saw();
    let want: Vec<_> = [("/x", Some("b")), ("/log", Some("log\nmore\n")), ("/l", None)]
        .map(|(at, text)| Committed {
            path: path(at),
            stamp: now.0[&path(at)].1,
            content: text.map(|text| Content::Block(Digest::of(text.as_bytes()))),
        })
        .into();
    assert_eq!(report.committed, want);
    assert_eq!(report.directories, [TreePath::root()]);
    let next = Task::new(&now).write("/x", "c").commit(&scene.committer(), 2);
    next.expect("the next task finds what it expects");
}

#[test]
fn mount_points_stay() {
    let scene = Scene::new("mkdir -p d/m e; echo f > d/f; echo g > g");
    let Some(_mounted) = Mounted::tmpfs(scene.at("/d/m"), "size=1m") else { return };
    scene.shell("echo in > d/m/in");
    let saw = scene.saw();
    let before = scene.describe();
    let committer = scene.committer();
    for task in [
        Task::new(&saw).remove("/d/m/in").remove("/d/m"),
        Task::new(&saw).remove("/d/m/in").remove("/d/m").remove("/d/f").remove("/d"),
        Task::new(&saw).rename("/d/m", "/n"),
        Task::new(&saw).rename("/d", "/n"),
        Task::new(&saw).rename("/d", "/e/n"),
    ] {
        let result = task.commit(&committer, 1);
        let Err(CommitError::Conflict(conflicts)) = result else { panic!("{:?}: {result:?}", task.delta) };
        assert!(conflicts.iter().any(|conflict| conflict.why == ConflictKind::MountPoint), "{conflicts:?}");
        assert_eq!(scene.describe(), before);
    }
    Task::new(&saw).remove("/d/m/in").remove("/d/f").write("/d/m/new", "new").commit(&committer, 2).expect("commits");
    assert_eq!(scene.read("/d/m/new"), "new");
    assert!(!scene.at("/d/m/in").exists() && !scene.at("/d/f").exists());
}
