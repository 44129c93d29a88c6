//! Deltas that are kept, and committed later over what is there then.

use super::*;

/// What the tests' own write policy says: all is committed.
fn anything(_: &TreePath) -> WriteDecision {
    WriteDecision::Commit
}

impl Task<'_> {
    fn keep(&self, committer: &Committer, id: u128, write: WritePolicy<'_>) -> bool {
        let keep = Keep {
            task: TaskId(id),
            argv: &["sh".to_owned()],
            status: ExitStatus::Code(3),
            delta: &self.delta,
            contents: &self.bytes,
            write,
            why: "a conflict",
            at: Time(id as i64),
        };
        committer.keep(&keep).expect("keeps")
    }
}

fn commit_kept(committer: &Committer, id: u128, undo: u128, allowed: &[TreePath]) -> Result<Recommitted, CommitError> {
    committer.commit_kept(TaskId(id), TaskId(undo), allowed, false, THEN.plus(3_000_000_000))
}

#[test]
fn what_was_not_committed_is_kept() {
    let scene = Scene::new("echo a > x; ln -s / escape");
    let saw = scene.saw();
    let committer = scene.committer();
    let task =
        Task::new(&saw).remove("/gone").write("/x", "precious").write("/deep/er/file", "too").symlink("/s", "/etc");
    let mut task = task.link("/h", "/x");
    task.delta.changes[0].base = Base::Bound(Seq(1));
    for id in 0..KEPT_MAX as u128 + 3 {
        assert!(task.keep(&committer, id, &anything));
    }
    let kept = committer.kept();
    assert_eq!(kept.len(), KEPT_MAX);
    assert_eq!((kept[0].task, kept[0].changes, &*kept[0].why), (TaskId(34), 5, "a conflict"));
    assert_eq!((kept[0].argv.len(), &*kept[0].shown[0].line), (1, "removed    /gone"));
    let into = scene.folder.path().join("into");
    committer.recover_kept(TaskId(34), &into).expect("copies");
    assert_eq!(std::fs::read_to_string(into.join("x")).expect("reads"), "precious");
    assert_eq!(std::fs::read_to_string(into.join("deep/er/file")).expect("reads"), "too");
    assert_eq!(std::fs::read_link(into.join("s")).expect("reads"), Path::new("/etc"));
    assert!(std::fs::read_to_string(into.join("GLEANER-CHANGES")).expect("reads").contains("removed    /gone"));
    assert!(committer.recover_kept(TaskId(34), &into).is_err(), "only into an empty folder");
    committer.drop_kept(TaskId(34)).expect("drops");
    assert_eq!(committer.kept().len(), KEPT_MAX - 1);
    assert!(committer.recover_kept(TaskId(34), &scene.folder.path().join("into2")).is_err());
    assert!(commit_kept(&committer, 34, 100, &[]).is_err());
}

/// A task that conflicts with what `others` did, kept, committed all the same, and undone again.
fn recovered(setup: &str, others: &str, task: impl FnOnce(Task<'_>) -> Task<'_>) -> (Scene, Recommitted) {
    let scene = Scene::new(setup);
    let saw = scene.saw();
    scene.shell(others);
    scene.shell("find . -depth -exec touch -h -d @1200000000 {} +");
    let before = scene.describe();
    let committer = scene.committer();
    let task = task(Task::new(&saw));
    let refused = task.commit(&committer, 1);
    assert!(matches!(refused, Err(CommitError::Conflict(_))), "{others}: {refused:?}");
    assert!(task.keep(&committer, 1, &anything));
    let done = commit_kept(&committer, 1, 2, &[]).unwrap_or_else(|error| panic!("{others}: {error}"));
    assert_eq!(committer.outcome(TaskId(1)), Some(ExitStatus::Code(3)), "{others}");
    let kept: Vec<TaskId> = committer.kept().iter().map(|info| info.task).collect();
    assert_eq!(kept, done.replaced.into_iter().collect::<Vec<_>>(), "{others}: what was replaced is kept instead");
    let after = scene.describe();
    if done.replaced.is_some() {
        let undone = commit_kept(&committer, 2, 3, &[]).unwrap_or_else(|error| panic!("{others}, undone: {error}"));
        assert_eq!(bytes_of(&scene.describe()), bytes_of(&before), "{others}: undone");
        if undone.replaced.is_some() {
            commit_kept(&committer, 3, 4, &[]).unwrap_or_else(|error| panic!("{others}, done again: {error}"));
            assert_eq!(bytes_of(&scene.describe()), bytes_of(&after), "{others}: done again");
        }
    }
    scene.assert_clean();
    (scene, done)
}

/// A described tree without times, which directories do not get back.
fn bytes_of(described: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let without_time = |text: &String| {
        let words: Vec<&str> = text.splitn(4, ' ').collect();
        format!("{} {} {}", words[0], words[1], words[3])
    };
    described.iter().map(|(path, text)| (path.clone(), without_time(text))).collect()
}

#[test]
fn the_kept_result_wins_over_edits() {
    let (scene, done) = recovered("echo a > x; echo b > y", "echo mine > x", |task| {
        task.write("/x", "task").write("/y", "task").write("/new", "n")
    });
    assert_eq!((scene.read("/x"), scene.read("/y"), scene.read("/new")), ("task".into(), "task".into(), "n".into()));
    assert_eq!((done.replaced, done.skipped.len()), (Some(TaskId(2)), 0));

    let (scene, _) = recovered("echo a > x; chmod 640 x", "echo mine > x; chmod 600 x", |task| {
        task.file("/x", "a\n", 0o755, FileChange::Attributes)
    });
    assert_eq!(scene.read("/x"), "mine\n");
    assert_eq!(scene.at("/x").metadata().expect("is there").mode() & 0o777, 0o755);

    let (scene, _) = recovered("ln -s a x", "ln -sfn b x", |task| task.symlink("/x", "c"));
    assert_eq!(std::fs::read_link(scene.at("/x")).expect("reads"), Path::new("c"));

    let (scene, _) = recovered("echo a > x", "echo b > x", |task| task.remove("/x"));
    assert_eq!(scene.read("/x"), "b\n", "undone: that replaced nothing, so that there is no way back");
}

#[test]
fn what_others_appended_stays() {
    let (scene, _) = recovered("echo a > log; echo a > x", "echo theirs >> log; echo mine > x", |task| {
        task.append("/log", "a\nours\n", 2).write("/x", "task")
    });
    assert_eq!((scene.read("/log"), scene.read("/x")), ("a\ntheirs\nours\n".into(), "task".into()));
    let (scene, _) = recovered("echo a > log", "echo other > l; mv l log", |task| task.append("/log", "a\nours\n", 2));
    assert_eq!(scene.read("/log"), "a\nours\n", "it does not begin as it did");
}

#[test]
fn what_is_in_the_way_goes_and_what_is_missing_is_made() {
    let (scene, _) = recovered("echo a > x", "rm x; mkdir x; echo b > x/b", |task| task.write("/x", "task"));
    assert_eq!(scene.read("/x"), "task");
    let (scene, done) = recovered("mkdir -p d/e; echo a > d/e/a", "rm -r d", |task| task.write("/d/e/a", "task"));
    assert_eq!((scene.read("/d/e/a"), done.replaced), ("task".into(), None));
    let elsewhere = tempfile::tempdir().unwrap();
    let links = format!("rm -r d; ln -s {} d", elsewhere.path().display());
    let (scene, _) = recovered("mkdir d; echo a > d/x", &links, |task| task.write("/d/x", "task"));
    assert_eq!(scene.read("/d/x"), "task");
    assert!(!elsewhere.path().join("x").exists());
    let (scene, _) = recovered("mkdir -p d/e; echo a > d/e/a", "echo n > d/e/n; mkdir d/f; echo m > d/f/m", |task| {
        task.remove("/d/e/a").remove("/d/e").remove("/d").write("/d", "a file")
    });
    assert_eq!(scene.read("/d"), "a file");
    let (scene, _) = recovered("mkdir d; echo a > d/a", "echo b > d/a; mkfifo d/p; ln -s x d/s", |task| {
        task.remove("/d/a").remove("/d").directory("/d", 0o750).write("/d/new", "n")
    });
    assert_eq!((scene.read("/d/new"), scene.at("/d/a").exists()), ("n".into(), false));
}

#[test]
fn renames_are_done_as_far_as_they_can_be() {
    let (scene, _) = recovered("echo a > x", "echo b > x", |task| task.rename("/x", "/y"));
    assert_eq!((scene.read("/y"), scene.at("/x").exists()), ("b\n".into(), false));
    let (scene, _) = recovered("echo a > x; echo b > y", "echo c > x; echo d > y", |task| {
        task.rename("/x", "/y").rename("/y", "/x").write("/x", "task")
    });
    assert_eq!((scene.read("/y"), scene.read("/x")), ("c\n".into(), "task".into()));
    let (scene, _) = recovered("mkdir d; echo a > d/a; echo b > d/b", "mkdir e; echo t > e/t; echo m > d/a", |task| {
        task.rename("/d", "/e").remove("/d/b").write("/e/a", "task")
    });
    assert_eq!((scene.read("/e/a"), scene.at("/e/t").exists(), scene.at("/d").exists()), ("task".into(), false, false));
    let (scene, _) = recovered("echo a > x; mkdir d", "rmdir d", |task| task.rename("/x", "/d/y"));
    assert_eq!(scene.read("/d/y"), "a\n");
    let (scene, done) = recovered("echo a > x; echo k > k", "rm x; echo m > k", |task| {
        task.rename("/x", "/y").write("/k", "task").file("/y", "a\n", 0o700, FileChange::Attributes).link("/z", "/y")
    });
    assert_eq!(scene.read("/k"), "task");
    assert_eq!(done.skipped, [path("/y"), path("/z")], "it is gone, and was not in the delta");
}

#[test]
fn the_write_policy_still_counts() {
    let scene = Scene::new("echo a > x; echo a > rc; mkdir cache");
    let saw = scene.saw();
    let committer = scene.committer();
    let policy = |at: &TreePath| match at.as_bytes() {
        b"/rc" => WriteDecision::Refuse("is outside the write policy".into()),
        b"/cache/c" => WriteDecision::Scratch("is a cache"),
        _ => WriteDecision::Commit,
    };
    let task = Task::new(&saw).write("/x", "task").write("/rc", "task").write("/cache/c", "task");
    assert!(matches!(task.commit_if(&committer, 1, &policy), Err(CommitError::Refused(_))));
    assert!(task.keep(&committer, 1, &policy));
    let Err(CommitError::Refused(found)) = commit_kept(&committer, 1, 2, &[]) else { panic!("it must be refused") };
    assert_eq!((found.len(), &found[0].path), (1, &path("/rc")));
    assert_eq!((scene.read("/x"), committer.kept().len()), ("a\n".into(), 1));
    let done = commit_kept(&committer, 1, 2, &[path("/rc")]).expect("commits");
    assert_eq!((scene.read("/x"), scene.read("/rc")), ("task".into(), "task".into()));
    let dropped: Vec<&TreePath> = done.report.scratch.iter().map(|(path, _)| path).collect();
    assert_eq!((dropped, scene.at("/cache/c").exists()), (vec![&path("/cache/c")], false));
}

#[test]
fn a_socket_in_the_way_is_not_lost() {
    let scene = Scene::new("echo a > x");
    let saw = scene.saw();
    let committer = scene.committer();
    std::fs::remove_file(scene.at("/x")).expect("removes");
    let _socket = std::os::unix::net::UnixListener::bind(scene.at("/x")).expect("binds");
    assert!(Task::new(&saw).write("/x", "task").keep(&committer, 1, &anything));
    let refused = commit_kept(&committer, 1, 2, &[]).expect_err("a socket cannot be kept");
    assert!(refused.to_string().contains("/x") && refused.to_string().contains("socket"), "{refused}");
    assert_eq!(committer.kept().len(), 1, "still kept, and nothing else");
    scene.assert_clean();
}

#[test]
fn a_crash_in_the_middle_loses_nothing() {
    for point in 0..200 {
        let scene = Scene::new("echo a > x; echo b > y; mkdir d; echo q > d/q");
        let saw = scene.saw();
        scene.shell("echo mine > x; echo new > d/new");
        let task = Task::new(&saw).remove("/d/q").remove("/d").write("/x", "task").write("/y", "task");
        let committer = scene.committer();
        assert!(task.keep(&committer, 1, &anything));
        crash::arm(Some(point));
        let result = commit_kept(&committer, 1, 2, &[]);
        let died = crash::is_dead();
        crash::arm(None);
        if !died {
            result.expect("nothing disturbed it");
            assert!(point > 10, "{point} points were tried");
            break;
        }
        drop(committer);
        let committer = scene.committer();
        committer.recover().expect("recovers");
        let whole = match committer.outcome(TaskId(1)).is_some() {
            true => scene.read("/x") == "task" && scene.read("/y") == "task" && !scene.at("/d").exists(),
            false => scene.read("/x") == "mine\n" && scene.read("/y") == "b\n" && scene.read("/d/new") == "new\n",
        };
        assert!(whole, "died at {point}: {result:?}");
        commit_kept(&committer, 1, 3, &[]).unwrap_or_else(|error| panic!("died at {point}, again: {error}"));
        assert_eq!((scene.read("/x"), scene.at("/d").exists()), ("task".into(), false), "died at {point}");
        let replaced = committer.kept().iter().any(|info| {
            let into = scene.folder.path().join(format!("into-{}", info.task));
            committer.recover_kept(info.task, &into).expect("copies");
            std::fs::read_to_string(into.join("x")).is_ok_and(|text| text == "mine\n")
                && std::fs::read_to_string(into.join("d/new")).is_ok_and(|text| text == "new\n")
        });
        assert!(replaced, "died at {point}: what was there is kept");
        scene.assert_clean();
    }
}
