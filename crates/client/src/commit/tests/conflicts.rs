//! What others do while a task runs.

use super::*;
use std::os::fd::AsRawFd;

/// Commits `task` after `others` did something; returns the result and the tree.
fn after(
    setup: &str,
    others: &str,
    task: impl FnOnce(Task<'_>) -> Task<'_>,
) -> (Scene, Result<Report, CommitError>, BTreeMap<String, String>) {
    let scene = Scene::new(setup);
    let saw = scene.saw();
    scene.shell(others);
    let before = scene.describe();
    let result = task(Task::new(&saw)).commit(&scene.committer(), 1);
    scene.assert_clean();
    (scene, result, before)
}

fn conflicts(setup: &str, others: &str, task: impl FnOnce(Task<'_>) -> Task<'_>, at: &str, why: ConflictKind) {
    let (scene, result, before) = after(setup, others, task);
    let Err(CommitError::Conflict(found)) = result else { panic!("{others}: {result:?}") };
    assert!(found.contains(&Conflict { path: path(at), why }), "{others}: {found:?}");
    assert_eq!(scene.describe(), before, "{others}: nothing may be committed");
}

fn fine(setup: &str, others: &str, task: impl FnOnce(Task<'_>) -> Task<'_>) -> (Scene, Report) {
    let (scene, result, _) = after(setup, others, task);
    let report = result.unwrap_or_else(|error| panic!("{others}: {error}"));
    (scene, report)
}

fn note(report: &Report, at: &str, kind: NoteKind) -> bool {
    report.notes.contains(&Note { path: path(at), kind })
}

#[test]
fn what_others_made_is_not_replaced_by_what_was_locked() {
    let scene = Scene::new("mkdir d");
    let mut saw = scene.saw();
    saw.1.push(path("/d/locked"));
    scene.shell("echo 1 > d/locked; echo 1 > d/other");
    let result = Task::new(&saw).write("/d/locked", "task").write("/d/other", "task").commit(&scene.committer(), 1);
    let Err(CommitError::Conflict(found)) = result else { panic!("{result:?}") };
    assert_eq!(found, [Conflict { path: path("/d/locked"), why: ConflictKind::Made }]);
    assert_eq!((scene.read("/d/locked"), scene.read("/d/other")), ("1\n".into(), "1\n".into()));
    scene.assert_clean();
}

#[test]
fn what_both_changed_is_a_conflict() {
    use ConflictKind::*;
    conflicts("echo a > x", "echo b > x", |task| task.write("/x", "c\n"), "/x", Changed);
    conflicts("echo a > x", "rm x", |task| task.write("/x", "c\n"), "/x", Gone);
    conflicts("echo a > x", "echo b > x", |task| task.remove("/x"), "/x", Changed);
    conflicts("echo a > x", "echo b >> x", |task| task.file("/x", "a\n", 0o755, FileChange::Attributes), "/x", Changed);
    conflicts("echo a > x", "echo b > y; mv y x", |task| task.append("/x", "a\nc\n", 2), "/x", Changed);
    conflicts("ln -s a x", "ln -sfn b x", |task| task.symlink("/x", "c"), "/x", Changed);
    conflicts("mkdir d", "rmdir d", |task| task.write("/d/x", "c"), "/d/x", ParentGone);
    conflicts("mkdir d", "rmdir d; ln -s /tmp d", |task| task.write("/d/x", "c"), "/d/x", ParentGone);
    conflicts("mkdir d", "rmdir d", |task| task.directory("/d", 0o755).write("/d/x", "c"), "/d", Gone);
    conflicts("echo a > x", "rm x; mkdir x", |task| task.write("/x", "c"), "/x", DirectoryInTheWay);
    conflicts(":", "mkdir x", |task| task.write("/x", "c"), "/x", DirectoryInTheWay);
    conflicts("mkdir d", "rmdir d", |task| task.rename("/d", "/e"), "/d", Gone);
    conflicts("mkdir d", "mkdir e", |task| task.rename("/d", "/e"), "/e", DirectoryInTheWay);
    conflicts("echo a > x", "echo b > x", |task| task.rename("/x", "/y"), "/x", Changed);
    conflicts("echo a > x", "cp x z; mv z x", |task| task.rename("/x", "/y"), "/x", Changed);
    conflicts("echo a > x", "rm x", |task| task.rename("/x", "/y"), "/x", Gone);
    conflicts("echo a > x", "mv x z; mkdir x", |task| task.rename("/x", "/y"), "/x", Changed);
    conflicts("echo a > x", "mkdir y", |task| task.rename("/x", "/y"), "/y", DirectoryInTheWay);
    conflicts("echo a > x; echo b > y", "echo c > y", |task| task.rename("/x", "/y").remove("/y"), "/y", Changed);
    conflicts("echo a > x; mkdir d", "rmdir d", |task| task.rename("/x", "/d/y"), "/d/y", ParentGone);
    conflicts("echo a > x", "rm x", |task| task.link("/y", "/x"), "/x", Gone);
    conflicts("mkdir -p d/e; echo a > d/e/a", "echo n > d/e/new", remove_tree, "/d/e/new", InRemovedDirectory);
    conflicts("mkdir -p d/e; echo a > d/e/a", "echo b > d/e/a", remove_tree, "/d/e/a", InRemovedDirectory);
}

fn remove_tree(task: Task<'_>) -> Task<'_> {
    task.remove("/d/e/a").remove("/d/e").remove("/d")
}

#[test]
fn what_does_not_conflict() {
    use NoteKind::*;
    let (scene, report) = fine("echo a > x", "echo c > x", |task| task.write("/x", "c\n"));
    assert!(note(&report, "/x", Identical), "{report:?}");
    assert_eq!(scene.read("/x"), "c\n");

    let (scene, report) = fine(":", "echo theirs > x", |task| task.write("/x", "ours\n"));
    assert!(note(&report, "/x", LastWins), "{report:?}");
    assert_eq!(scene.read("/x"), "ours\n");

    let (scene, report) = fine(":", "echo theirs > x", |task| task.append("/x", "ours\n", 0));
    assert!(note(&report, "/x", AppendedAtEnd), "{report:?}");
    assert_eq!(scene.read("/x"), "theirs\nours\n");

    let (scene, _) = fine(":", ":", |task| task.append("/x", "ours\n", 0));
    assert_eq!(scene.read("/x"), "ours\n");

    let (scene, report) = fine("echo a > x", "echo b >> x", |task| task.append("/x", "a\nc\n", 2));
    assert!(note(&report, "/x", AppendedAtEnd), "{report:?}");
    assert_eq!(scene.read("/x"), "a\nb\nc\n");
    assert_eq!(report.committed[0].content, None, "the bytes there are nobody's alone");

    let (_, report) = fine("echo a > x", "rm x", |task| task.remove("/x"));
    assert!(note(&report, "/x", AlreadyGone), "{report:?}");

    let (scene, _) = fine("mkdir d", "echo t > d/theirs", |task| task.directory("/d", 0o755).write("/d/ours", "o"));
    assert_eq!((scene.read("/d/ours"), scene.read("/d/theirs")), ("o".to_owned(), "t\n".to_owned()));

    let (scene, _) = fine(":", "mkdir d; echo t > d/t", |task| task.directory("/d", 0o755).write("/d/o", "o"));
    assert!(scene.at("/d/t").exists() && scene.at("/d/o").exists());

    let (scene, _) = fine("mkdir d", "echo t > d/theirs", |task| task.rename("/d", "/e"));
    assert_eq!(scene.read("/e/theirs"), "t\n");

    let (scene, _) = fine("mkdir -p d/e; echo a > d/e/a", "rm -r d/e", remove_tree);
    assert!(!scene.at("/d").exists());

    let (scene, _) = fine("echo a > x", "chmod 600 x", |task| task.file("/x", "a\n", 0o755, FileChange::Attributes));
    assert_eq!(scene.at("/x").metadata().expect("is there").mode() & 0o7777, 0o755);

    let (scene, report) = fine("echo a > x", "echo theirs > y", |task| task.rename("/x", "/y"));
    assert!(note(&report, "/y", LastWins), "{report:?}");
    assert_eq!(scene.read("/y"), "a\n");
    assert!(!scene.at("/x").exists());

    let (scene, _) = fine("echo a > x; ln x z", "chmod 600 z", |task| task.rename("/x", "/y"));
    let (y, z) = (scene.at("/y").metadata().expect("is there"), scene.at("/z").metadata().expect("is there"));
    assert_eq!((y.ino(), y.mode() & 0o7777), (z.ino(), 0o600), "the same file still");

    fine("mkdir d", "rmdir d", |task| task.directory("/d", 0o755));
    fine("ln -s a x", "ln -sfn c x", |task| task.symlink("/x", "c"));
}

#[test]
fn what_the_task_saw_must_be_known() {
    let scene = Scene::new("echo a > x");
    let mut saw = scene.saw();
    let base = saw.base(&path("/x"));
    saw.0.clear();
    let mut task = Task::new(&saw).write("/x", "b");
    task.delta.changes[0].base = base;
    let result = task.commit(&scene.committer(), 1);
    let why = ConflictKind::NoEvidence;
    assert!(matches!(&result, Err(CommitError::Conflict(found)) if found[0].why == why), "{result:?}");
}

/// Whoever says nothing of what is at the target of a rename has not seen it, or hides it.
#[test]
fn a_rename_replaces_nothing_that_the_task_was_to_see() {
    let renamed = |seen_since, locked_since, others: &str| {
        let scene = Scene::new("echo a > x; echo mine > y");
        let mut saw = scene.saw();
        (saw.2, saw.3) = (locked_since, seen_since);
        scene.shell(others);
        let result = Task::new(&saw).rename("/x", "/y").commit(&scene.committer(), 1);
        scene.assert_clean();
        (result.map(drop), std::fs::read_to_string(scene.at("/y")).unwrap_or_default())
    };
    let later = Time(wire::now_nanos()).plus(3_600_000_000_000);
    let before = Time(wire::now_nanos()).plus(-3_600_000_000_000);
    for (seen_since, locked_since, others, why) in [
        (Some(later), None, ":", Some(ConflictKind::NoEvidence)),
        (None, Some(later), ":", Some(ConflictKind::Changed)),
        (Some(before), None, "echo theirs > y", None),
    ] {
        let (result, text) = renamed(seen_since, locked_since, others);
        let Some(why) = why else {
            assert!(result.is_ok() && text == "a\n", "what was made since is replaced: {result:?}");
            continue;
        };
        let Err(CommitError::Conflict(found)) = result else { panic!("{result:?}") };
        assert_eq!(found, [Conflict { path: path("/y"), why }]);
        assert_eq!(text, "mine\n");
    }
}

#[test]
fn an_edit_in_the_middle_of_a_commit_is_never_lost() {
    let mut edits = 0;
    for point in 0..200 {
        let scene = Scene::new("echo a > x; echo b > y; mkdir d; echo q > d/q");
        let saw = scene.saw();
        let task = Task::new(&saw).remove("/d/q").remove("/d").write("/a", "a").write("/x", "task").write("/y", "task");
        let root = scene.root();
        crash::meddle(point, move || {
            // As editors save.
            std::fs::write(root.join("new"), "mine").expect("writes");
            std::fs::rename(root.join("new"), root.join("x")).expect("renames");
        });
        let result = task.commit(&scene.committer(), 1);
        if crash::unmeddle() {
            assert!(point > 10, "the meddler should have had its turn");
            result.expect("nobody disturbed it");
            break;
        }
        edits += 1;
        assert_eq!(scene.read("/x"), "mine", "at point {point}: {result:?}");
        let whole = match &result {
            Ok(_) => !scene.at("/d").exists() && scene.read("/y") == "task" && scene.at("/a").exists(),
            Err(CommitError::Conflict(_)) => {
                scene.read("/d/q") == "q\n" && scene.read("/y") == "b\n" && !scene.at("/a").exists()
            }
            Err(other) => panic!("{other}"),
        };
        assert!(whole, "at point {point}: {result:?}");
        scene.assert_clean();
    }
    assert!(edits > 10, "{edits} points were tried");
}

#[test]
fn an_edit_of_a_file_that_is_being_renamed_is_never_lost() {
    let mut edits = 0;
    for point in 0..200 {
        let scene = Scene::new("echo a > x; echo b > y");
        let saw = scene.saw();
        let task = Task::new(&saw).rename("/x", "/z").write("/y", "task").write("/a", "a");
        let root = scene.root();
        crash::meddle(point, move || {
            std::fs::write(root.join("new"), "mine").expect("writes");
            std::fs::rename(root.join("new"), root.join("x")).expect("renames");
        });
        let result = task.commit(&scene.committer(), 1);
        if crash::unmeddle() {
            result.expect("nobody disturbed it");
            break;
        }
        edits += 1;
        assert_eq!(scene.read("/x"), "mine", "at point {point}: {result:?}");
        let whole = match &result {
            Ok(_) => scene.read("/z") == "a\n" && scene.read("/y") == "task",
            Err(CommitError::Conflict(_)) => !scene.at("/z").exists() && scene.read("/y") == "b\n",
            // The name in the middle of the commit was free, and is taken: the old file cannot go back there.
            Err(CommitError::HalfUndone { .. }) => scene.read("/y") == "b\n",
            Err(other) => panic!("{other}"),
        };
        assert!(whole, "at point {point}: {result:?}");
    }
    assert!(edits > 10, "{edits} points were tried");
}

#[test]
fn a_parent_that_becomes_a_link_leads_nowhere() {
    for point in 0..200 {
        let scene = Scene::new("mkdir d; echo a > d/x; mkdir ../outside");
        let saw = scene.saw();
        let task = Task::new(&saw).write("/d/new", "n").write("/d/x", "task");
        let root = scene.root();
        crash::meddle(point, move || {
            std::fs::rename(root.join("d"), root.join("elsewhere")).expect("renames");
            std::os::unix::fs::symlink("../outside", root.join("d")).expect("links");
        });
        let result = task.commit(&scene.committer(), 1);
        if crash::unmeddle() {
            assert!(point > 5, "the meddler should have had its turn");
            break;
        }
        let outside: Vec<_> = std::fs::read_dir(scene.folder.path().join("outside")).expect("lists").collect();
        assert!(outside.is_empty(), "at point {point}: {result:?} {outside:?}");
    }
}

#[test]
fn something_new_in_a_directory_that_is_going_is_never_lost() {
    for point in 0..200 {
        let scene = Scene::new("mkdir -p d/e; echo a > d/e/a");
        let saw = scene.saw();
        let task = remove_tree(Task::new(&saw));
        let root = scene.root();
        crash::meddle(point, move || {
            // Fails when the directory is gone already.
            let _ = std::fs::write(root.join("d/e/new"), "mine");
        });
        let result = task.commit(&scene.committer(), 1);
        if crash::unmeddle() {
            break;
        }
        match result {
            Ok(_) => assert!(!scene.at("/d").exists(), "at point {point}"),
            Err(_) => assert_eq!((scene.read("/d/e/new"), scene.read("/d/e/a")), ("mine".to_owned(), "a\n".to_owned())),
        }
    }
}

#[test]
fn commits_of_two_tasks_follow_each_other() {
    let scene = Scene::new("echo a > x; echo log > log");
    let saw = scene.saw();
    let committer = scene.committer();
    let results: Vec<Result<Report, CommitError>> = std::thread::scope(|scope| {
        let tasks: Vec<_> = (0..8u128)
            .map(|id| {
                let (saw, committer) = (&saw, &committer);
                scope.spawn(move || {
                    let task = Task::new(saw).append("/log", &format!("log\n{id}\n"), 4).write(&format!("/{id}"), "n");
                    task.commit(committer, id + 1)
                })
            })
            .collect();
        tasks.into_iter().map(|task| task.join().expect("does not panic")).collect()
    });
    results.into_iter().for_each(|result| drop(result.expect("commits")));
    let log = scene.read("/log");
    let mut lines: Vec<&str> = log.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0", "1", "2", "3", "4", "5", "6", "7", "log"]);
    let two = |id| Task::new(&saw).write("/x", &format!("{id}")).commit(&committer, id);
    two(20).expect("the first commits");
    assert!(matches!(two(21), Err(CommitError::Conflict(_))), "the second read what was there before");
    assert!(matches!(two(20), Err(CommitError::AlreadyCommitted(ExitStatus::Code(20)))));
    assert_eq!(committer.outcome(TaskId(20)), Some(ExitStatus::Code(20)));
    assert_eq!(committer.outcome(TaskId(21)), None);
}

#[test]
fn a_lease_on_a_file_is_waited_for() {
    for kind in [libc::F_RDLCK, libc::F_WRLCK] {
        let scene = Scene::new("echo log > log");
        let (saw, committer) = (scene.saw(), scene.committer());
        let task = Task::new(&saw).append("/log", "log\nmore\n", 4);
        let leased = File::options().read(true).open(scene.at("/log")).expect("it is there");
        // Handles the signal that a lease's holder gets, too.
        assert!(!crate::snapshot::is_open_to_write(&leased));
        // SAFETY: takes numbers only, on an open descriptor.
        let lease = |kind: i32| unsafe { libc::fcntl(leased.as_raw_fd(), libc::F_SETLEASE, kind) };
        assert_eq!(lease(kind), 0, "{}", io::Error::last_os_error());
        std::thread::scope(|scope| {
            let done = scope.spawn(|| task.commit(&committer, 1));
            std::thread::park_timeout(std::time::Duration::from_millis(100));
            assert!(!done.is_finished(), "its holder still has it");
            assert_eq!(lease(libc::F_UNLCK), 0);
            done.join().expect("does not panic").expect("commits");
        });
        assert_eq!(scene.read("/log"), "log\nmore\n");
    }
}

#[test]
fn a_result_that_comes_twice_at_once_is_committed_once() {
    let scene = Scene::new("echo a > x");
    let (saw, committer) = (scene.saw(), scene.committer());
    let results: Vec<Result<Report, CommitError>> = std::thread::scope(|scope| {
        let again = || Task::new(&saw).write("/new", "n").write("/x", "b").commit(&committer, 7);
        let tries: Vec<_> = (0..8).map(|_| scope.spawn(again)).collect();
        tries.into_iter().map(|one| one.join().expect("does not panic")).collect()
    });
    let (done, late): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    assert_eq!((done.len(), scene.read("/x")), (1, "b".to_owned()));
    let is_known = |error: &CommitError| matches!(error, CommitError::AlreadyCommitted(ExitStatus::Code(7)));
    assert!(late.iter().all(|one| one.as_ref().is_err_and(is_known)), "{late:?}");
    scene.assert_clean();
}

/// What a daemon that is no more let the task see is not known, but of a file that was added to its content tells.
#[test]
fn what_was_added_is_added_if_the_beginning_is_what_was_seen() {
    let scene = Scene::new("echo a > log; echo b > other");
    let saw = scene.saw();
    let later = saw.0.iter().map(|(path, (seq, stamp))| (path.clone(), (Seq(seq.0 + 100), *stamp))).collect();
    let unknown = Saw(later, Vec::new(), None, None, u32::MAX);
    scene.shell("echo others >> log; echo x > other; echo more >> other");
    let committer = scene.committer();
    let mut task = Task::new(&saw).append("/log", "a\nmine\n", 2);
    task.saw = &unknown;
    task.commit(&committer, 1).expect("adds it at the end");
    assert_eq!(scene.read("/log"), "a\nothers\nmine\n");
    let mut task = Task::new(&saw).append("/other", "b\nmine\n", 2);
    task.saw = &unknown;
    let result = task.commit(&committer, 2);
    assert!(
        matches!(&result, Err(CommitError::Conflict(found)) if found[0].why == ConflictKind::NoEvidence),
        "{result:?}"
    );
}

#[test]
fn what_was_there_before_the_task_is_not_said_to_be_new() {
    let scene = Scene::new("echo old > old; ln -s a link; mkdir d; echo f > d/f");
    let mut saw = scene.saw();
    // As a worker that says of everything that the task saw nothing.
    for at in ["/old", "/link", "/d/f"] {
        saw.0.remove(&path(at));
    }
    std::thread::park_timeout(std::time::Duration::from_millis(50));
    saw.3 = Some(Time(wire::now_nanos()));
    let before = scene.describe();
    let (committer, mut id) = (scene.committer(), 0);
    let attacks: [fn(Task<'_>) -> Task<'_>; 6] = [
        |task| task.write("/old", "evil"),
        |task| task.append("/old", "evil", 0),
        |task| task.symlink("/link", "evil"),
        |task| task.fifo("/old"),
        |task| task.directory("/d/f", 0o755),
        |task| task.directory("/d", 0o755).symlink("/d/f", "evil"),
    ];
    for attack in attacks {
        id += 1;
        let result = attack(Task::new(&saw)).commit(&committer, id);
        assert!(matches!(result, Err(CommitError::Conflict(_))), "{id}: {result:?}");
        assert_eq!(scene.describe(), before, "{id}");
    }
    // What others made since is replaced, as by two programs here.
    std::thread::park_timeout(std::time::Duration::from_millis(50));
    scene.shell("echo theirs > new");
    let report = Task::new(&saw).write("/new", "ours").write("/old", "old\n").commit(&committer, 99).expect("commits");
    assert!(note(&report, "/new", NoteKind::LastWins) && note(&report, "/old", NoteKind::Identical), "{report:?}");
}

#[test]
fn a_file_is_as_large_as_it_is_said_to_be() {
    let scene = Scene::new("echo a > x");
    let saw = scene.saw();
    let mut task = Task::new(&saw).write("/x", "much more than was announced");
    if let Some(attr) = task.delta.changes[0].action.attr_mut() {
        attr.size = 10;
    }
    let result = task.commit(&scene.committer(), 1);
    assert!(
        matches!(&result, Err(CommitError::Content { why, .. }) if why.contains("10 were announced")),
        "{result:?}"
    );
    assert!(!scene.state().join("kept").exists());
    scene.assert_clean();
}

#[test]
fn what_was_placed_is_taken_back_from_a_folder_that_was_moved() {
    // Somebody swaps the folder, and has another file changed, so that the commit fails after its first steps.
    let mut seen = 0;
    for after in 0..60 {
        let scene = Scene::new("mkdir d other; echo a > other/z; echo keep > d/keep");
        let saw = scene.saw();
        let root = scene.root();
        crash::meddle(after, move || {
            shell(&root, "mv d elsewhere; mkdir d; echo theirs > d/theirs; echo changed > other/z");
        });
        let task = Task::new(&saw).write("/d/a", "evil").write("/d/b", "evil").write("/other/z", "b\n");
        let result = task.commit(&scene.committer(), 1);
        if crash::unmeddle() {
            break;
        }
        let folder = if scene.at("/elsewhere").exists() { "elsewhere" } else { "d" };
        let left: Vec<String> = ["a", "b"].iter().map(|name| format!("/{folder}/{name}")).collect();
        match result {
            Err(CommitError::Conflict(_)) => {
                seen += 1;
                let stays = left.iter().filter(|path| scene.at(path).exists()).collect::<Vec<_>>();
                assert!(stays.is_empty(), "{after}: nothing is committed, and there is {stays:?}");
                assert!(!scene.at("/d/a").exists() && !scene.at("/d/b").exists(), "{after}");
            }
            Err(error) => panic!("{after}: {error}"),
            Ok(_) => {}
        }
    }
    assert!(seen > 0, "the folder was never swapped in the middle");
}
