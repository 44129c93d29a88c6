//! A commit that dies at any moment leaves, after recovery, the tree before or the tree after.

use super::*;

const TREE: &str = "mkdir -p d/e g; echo in > d/in; mkdir -p swap1/in swap2 closed; echo a > d/a; echo b > d/e/b; echo x > x; echo log > log;
    echo hard > h1; ln h1 h2; echo m > m; echo f1 > f1; echo f2 > f2; echo w > w; echo t > t; echo o > o; echo i > i; ln i j; mkdir -p far; echo y > y; ln y far/y; echo z > g/z; ln g/z far/z; echo q > g/q; echo 1 > swap1/one; echo 2 > swap2/two; ln -s x link; echo k > k";

/// A delta with every kind of change.
fn everything(saw: &Saw) -> Task<'_> {
    Task::new(saw)
        .last_write("/y", "last", FileChange::Written)
        .last_write("/g/z", "", FileChange::Attributes)
        .rename("/swap1", "/swap2")
        .rename("/swap2", "/swap1")
        .rename("/d/e", "/new/e")
        .rename("/f1", "/f2")
        .rename("/f2", "/f1")
        .rename("/w", "/new/w")
        .rename("/t", "/new/t")
        .rename("/o", "/new/o")
        .rename("/d/in", "/new/e/out")
        .rename("/i", "/i2")
        .remove("/swap1/one")
        .remove("/y")
        .remove("/g/z")
        .remove("/g/q")
        .remove("/g")
        .remove("/d/a")
        .remove("/d")
        .remove("/k")
        .directory("/new", 0o555)
        .directory("/swap2", 0o755)
        .directory("/k", 0o700)
        .write("/k/in", "k")
        .write("/d", "now a file")
        .write("/new/e/b", "changed in a moved directory")
        .write("/new/n", "n")
        .write("/new/w", "written")
        .write("/i2", "both names")
        .append("/new/t", "t\nt\n", 2)
        .file("/new/o", "o\n", 0o600, FileChange::Attributes)
        .write("/x", "x2")
        .write("/h1", "both")
        .append("/log", "log\nmore\n", 4)
        .file("/m", "m\n", 0o600, FileChange::Attributes)
        .symlink("/link", "elsewhere")
        .fifo("/pipe")
        .link("/x3", "/x")
        .link("/m2", "/m")
        .link("/f3", "/f2")
        .link("/w2", "/new/w")
}

fn outcome_of(scene: &Scene, before: &BTreeMap<String, String>, after: &BTreeMap<String, String>, when: &str) -> bool {
    let committer = scene.committer();
    let recovered = committer.recover().expect("recovers");
    assert_eq!(recovered.stuck, vec![], "{when}");
    let now = scene.describe();
    let committed = committer.outcome(TaskId(1)).is_some();
    let want = if committed { after } else { before };
    let wrong: Vec<_> = want.iter().filter(|(path, text)| now.get(*path) != Some(*text)).collect();
    let extra: Vec<_> = now.keys().filter(|path| !want.contains_key(*path)).collect();
    let found: Vec<_> = wrong.iter().map(|(path, _)| now.get(*path)).collect();
    assert!(
        wrong.is_empty() && extra.is_empty(),
        "{when}, committed {committed}: {wrong:?} {found:?}, extra {extra:?}"
    );
    scene.assert_clean();
    assert_eq!(committer.recover().expect("recovers again"), Recovered::default());
    committed
}

/// The trees before and after.
fn both() -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let scene = Scene::new(TREE);
    let before = scene.describe();
    let saw = scene.saw();
    everything(&saw).commit(&scene.committer(), 1).expect("commits");
    scene.assert_clean();
    (before, scene.describe())
}

#[test]
fn at_each_step() {
    die_at_each_step(Scene::committer);
}

/// Most commits are not the first of a daemon's life.
#[test]
fn at_each_step_of_a_later_commit() {
    die_at_each_step(|scene| {
        let committer = scene.committer();
        Task::new(&Saw(HashMap::new(), Vec::new(), None, None, u32::MAX))
            .fifo("/first")
            .commit(&committer, 9)
            .expect("commits");
        std::fs::remove_file(scene.at("/first")).expect("removes");
        committer
    });
}

fn die_at_each_step(committer: impl Fn(&Scene) -> Committer) {
    let (before, after) = both();
    let (mut committed, mut undone) = (0, 0);
    for point in 0.. {
        let scene = Scene::new(TREE);
        let committer = committer(&scene);
        let saw = scene.saw();
        crash::arm(Some(point));
        let result = everything(&saw).commit(&committer, 1);
        let died = crash::is_dead();
        crash::arm(None);
        drop(committer);
        if !died {
            result.expect("commits when nothing kills it");
            break;
        }
        match outcome_of(&scene, &before, &after, &format!("died at point {point}")) {
            true => committed += 1,
            false => undone += 1,
        }
    }
    assert!(committed > 10 && undone > 10, "{committed} finished, {undone} undone");
}

/// Recovery itself may die, too.
#[test]
fn at_each_step_of_recovery() {
    let (before, after) = both();
    for (first, start) in [(70, 0), (90, 1), (110, 0), (125, 1)] {
        for second in (start..).step_by(2) {
            let scene = Scene::new(TREE);
            let saw = scene.saw();
            crash::arm(Some(first));
            let _ = everything(&saw).commit(&scene.committer(), 1);
            crash::arm(Some(second));
            let result = scene.committer().recover();
            let died = crash::is_dead();
            crash::arm(None);
            outcome_of(&scene, &before, &after, &format!("died at {first}, then at {second} ({result:?})"));
            if !died {
                break;
            }
        }
    }
}

/// A conflict found late is undone; that may die, too.
#[test]
fn while_undoing() {
    let mut tried = 0;
    for point in 0.. {
        let scene = Scene::new(TREE);
        let saw = scene.saw();
        let before = scene.describe();
        let root = scene.root();
        // After the record is written: the last file of the plan is changed.
        crash::meddle(55, move || std::fs::write(root.join("link2"), "mine").expect("writes"));
        crash::arm(Some(point));
        let task = everything(&saw).symlink("/link2", "x");
        let result = task.commit(&scene.committer(), 1);
        let died = crash::is_dead();
        crash::arm(None);
        crash::unmeddle();
        if !died {
            break;
        }
        drop(result);
        let committer = scene.committer();
        let recovered = committer.recover().expect("recovers");
        assert_eq!(recovered.stuck, vec![], "point {point}");
        let now = scene.describe();
        if committer.outcome(TaskId(1)).is_none() {
            for (path, text) in &before {
                assert_eq!(now.get(path), Some(text), "point {point}: {path}");
            }
        }
        scene.assert_clean();
        tried += 1;
    }
    assert!(tried > 60, "{tried}");
}

/// Not a test of its own: the process that is killed.
#[test]
fn child_that_is_killed() {
    let Ok(folder) = std::env::var("GLEANER_TEST_COMMIT_IN") else { return };
    let folder = PathBuf::from(folder);
    let scene = Scene { folder: tempfile::Builder::new().tempdir_in(&folder).expect("a folder") };
    let root = folder.join("tree");
    let committer = Committer::open_at(&root, &folder.join("state")).expect("opens");
    let as_if = Scene { folder: scene.folder };
    let saw = {
        let real = Scene { folder: tempfile::tempdir_in(as_if.folder.path()).expect("a folder") };
        std::os::unix::fs::symlink(&root, real.root()).expect("links");
        real.saw()
    };
    // Ready: the parent's clock starts.
    std::fs::write(folder.join("ready"), "").expect("writes");
    everything(&saw).commit(&committer, 1).expect("commits");
    std::fs::write(folder.join("done"), "").expect("writes");
}

#[test]
fn by_sigkill_at_any_time() {
    let (before, after) = both();
    let program = std::env::current_exe().expect("has a path");
    let (mut committed, mut undone) = (0, 0);
    for round in 0..40u64 {
        let scene = Scene::new(TREE);
        let mut child = Command::new(&program)
            .args(["--exact", "commit::tests::crashes::child_that_is_killed"])
            .env("GLEANER_TEST_COMMIT_IN", scene.folder.path())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("starts");
        let started = std::time::Instant::now();
        while !scene.folder.path().join("ready").exists() {
            assert!(started.elapsed().as_secs() < 20, "the child never got ready");
            std::thread::yield_now();
        }
        let ready = std::time::Instant::now();
        // The commit takes a few milliseconds, or many on a busy machine: another time in each round.
        while ready.elapsed().as_micros() < u128::from(round * round * 20) {
            std::hint::spin_loop();
        }
        child.kill().expect("kills");
        child.wait().expect("is gone");
        match outcome_of(&scene, &before, &after, &format!("killed in round {round}")) {
            true => committed += 1,
            false => undone += 1,
        }
    }
    println!("{committed} committed, {undone} not");
}

#[test]
fn a_record_without_its_staged_files_is_undone() {
    let mut tried = 0;
    for point in 40..120 {
        let scene = Scene::new(TREE);
        let before = scene.describe();
        let saw = scene.saw();
        crash::arm(Some(point));
        let _ = everything(&saw).commit(&scene.committer(), 1);
        crash::arm(None);
        let files = |folder: &str| {
            let entries = std::fs::read_dir(scene.state().join(folder)).expect("lists");
            entries.map(|entry| entry.expect("lists").path()).collect::<Vec<_>>()
        };
        let recorded = files("redo").iter().any(|path| path.extension().is_some_and(|extension| extension == "redo"));
        // As after a power failure: a new file is gone that had not been moved into place.
        let staged = |path: &PathBuf| {
            path.is_file()
                && std::fs::read_to_string(path).is_ok_and(|text| ["x2", "n", "now a file"].contains(&&*text))
        };
        let Some(lost) = files("stage").into_iter().find(staged).filter(|_| recorded) else { continue };
        std::fs::remove_file(lost).expect("removes");
        let committer = scene.committer();
        assert_eq!(committer.recover().expect("recovers").undone, [TaskId(1)]);
        assert_eq!(scene.describe(), before, "point {point}");
        tried += 1;
    }
    assert!(tried > 5, "{tried}");
}
