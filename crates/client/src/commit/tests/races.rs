//! Two commits at once, of which neither is refused alone.

use super::*;
use std::cell::Cell;

/// Commits what `second` makes, where another task's commit of what `first` makes comes between the policy's answer and the turn. Says how
/// often the policy was to forget what it knew, and whether it was committed.
fn between(first: Option<&str>, second: impl Fn(Task<'_>) -> Task<'_>) -> (u32, Result<Report, CommitError>) {
    let scene = Scene::new("mkdir r; echo x > x");
    let (saw, committer) = (scene.saw(), scene.committer());
    let (is_other_done, forgot) = (Cell::new(false), Cell::new(0));
    let write = |_: &TreePath| {
        if let Some(first) = first.filter(|_| !is_other_done.replace(true)) {
            Task::new(&saw).write(first, "ref").commit(&committer, 2).expect("commits");
        }
        // As who has looked before does.
        match forgot.get() > 0 && scene.at("/r/HEAD").exists() {
            true => WriteDecision::Refuse("would make a repository".into()),
            false => WriteDecision::Commit,
        }
    };
    let task = second(Task::new(&saw));
    let request = Request {
        task: TaskId(1),
        status: ExitStatus::Code(0),
        delta: &task.delta,
        evidence: &saw,
        contents: &task.bytes,
        write: &write,
        durable: false,
        launch: THEN,
        now: THEN.plus(2_000_000_000),
    };
    let result = committer.commit_asking_again(&request, &|| forgot.set(forgot.get() + 1));
    scene.assert_clean();
    (forgot.get(), result)
}

fn parts(task: Task<'_>) -> Task<'_> {
    task.directory("/r/objects", 0o755).directory("/r/refs", 0o755)
}

#[test]
fn two_commits_make_no_repository_together() {
    let (forgot, result) = between(Some("/r/HEAD"), |task| parts(task).write("/r/config", "c"));
    assert!(matches!(result, Err(CommitError::Refused(_))), "{result:?}");
    assert_eq!(forgot, 1);
    let (forgot, result) = between(Some("/r/HEAD"), |task| task.symlink("/r/link", "x"));
    assert!(forgot == 1 && result.is_err(), "{result:?}");
}

/// Nobody waits for a second answer without need.
#[test]
fn what_hangs_on_nothing_is_asked_about_once() {
    for (first, result) in [
        (0, between(None, parts)),
        (0, between(Some("/r/HEAD"), |task| task.write("/r/a.o", "a").write("/x", "b"))),
        (1, between(Some("/r/other"), parts)),
    ] {
        assert_eq!((result.0, result.1.is_ok()), (first, true));
    }
}
