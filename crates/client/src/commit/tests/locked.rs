//! What a task has locked, by a lock on it or by making it.

use super::*;

/// Who waits for a lock has the file open already: in another one it would never see what the task wrote.
#[test]
fn locked_files_are_written_in_place() {
    let scene = Scene::new("echo a > locked; echo b > other");
    let mut saw = scene.saw();
    saw.1.push(path("/locked"));
    let waiting = ["/locked", "/other"].map(|at| File::open(scene.at(at)).expect("opens"));
    let task = Task::new(&saw).write("/locked", "new").write("/other", "new");
    task.commit(&scene.committer(), 1).expect("commits");
    let [locked, other] = waiting.map(|file| io::read_to_string(file).expect("reads"));
    assert_eq!((locked.as_str(), other.as_str()), ("new", "b\n"));
    assert_eq!(scene.read("/other"), "new");
    scene.assert_clean();
}

/// Who makes a folder, link or file as a lock has it alone, also against somebody who made the very same.
#[test]
fn what_only_one_can_have_made_is_no_others() {
    let scene = Scene::new("echo a > a");
    let mut saw = scene.saw();
    let nothing = scene.saw();
    scene.shell("mkdir folder; ln -s a link; ln a hard; echo a > file; mkfifo pipe; echo b > moved");
    let names = ["/folder", "/link", "/hard", "/file", "/pipe", "/moved"];
    saw.1.extend(names.map(path));
    let before = scene.describe();
    let tasks = |saw| {
        let new = || Task::new(saw);
        [
            new().directory("/folder", 0o755),
            new().symlink("/link", "a"),
            new().link("/hard", "/a"),
            new().write("/file", "a\n"),
            new().fifo("/pipe"),
            new().rename("/a", "/moved"),
        ]
    };
    for (id, (task, name)) in tasks(&saw).into_iter().zip(names).enumerate() {
        let result = task.commit(&scene.committer(), id as u128);
        let Err(CommitError::Conflict(found)) = &result else { panic!("{name}: {result:?}") };
        assert_eq!((&found[0].path, found[0].why), (&path(name), ConflictKind::Made), "{name}");
        assert_eq!(scene.describe(), before, "{name}");
    }
    for (id, (task, name)) in tasks(&nothing).into_iter().zip(names).enumerate() {
        task.commit(&scene.committer(), 10 + id as u128).unwrap_or_else(|error| panic!("{name}, unlocked: {error}"));
    }
    scene.assert_clean();
}

/// Somebody here who has made the same lock in the last moment reads what the commit would write.
#[test]
fn what_was_done_under_a_lock_that_others_have_now_is_not_committed() {
    let scene = Scene::new("echo 1 > count");
    let mut saw = scene.saw();
    (saw.1, saw.2) = (vec![path("/lock")], Some(THEN));
    scene.shell("mkdir lock");
    let task = Task::new(&saw).write("/count", "2");
    let error = task.commit(&scene.committer(), 1).expect_err("another has the lock");
    assert!(matches!(&error, CommitError::Conflict(found) if found[0].why == ConflictKind::Made), "{error}");
    assert_eq!(scene.read("/count"), "1\n");
    scene.shell("rmdir lock");
    task.commit(&scene.committer(), 2).expect("nobody has it");
    scene.assert_clean();
}

/// Under a lock each of two tasks counts from what the other has made: from nothing both have counted to 1.
#[test]
fn what_was_there_at_the_lock_was_to_be_seen() {
    let scene = Scene::new("");
    let (mut saw, nothing) = (scene.saw(), scene.saw());
    scene.shell("printf 1 > count");
    let made = Time(wire::now_nanos());
    let commit = |saw: &Saw, number| Task::new(saw).write("/count", "1").commit(&scene.committer(), number);
    saw.2 = Some(made.plus(-1_000_000_000));
    commit(&saw, 1).expect("made after the lock was had: the same");
    saw.2 = Some(made.plus(1_000_000_000));
    let error = commit(&saw, 2).expect_err("it was not seen");
    assert!(matches!(&error, CommitError::Conflict(conflicts) if conflicts[0].why == ConflictKind::Changed), "{error}");
    commit(&nothing, 3).expect("of a task without a lock");
    scene.assert_clean();
}
