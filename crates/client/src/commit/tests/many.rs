//! Deltas of very many changes, each of which is looked at a few times and not once for each other.

use super::*;
use std::time::{Duration, Instant};

/// As many as would take minutes one for each other.
const MANY: u64 = 60_000;
const TIME_MAX: Duration = Duration::from_secs(60);

fn change(at: String, number: u64, action: Action) -> Change {
    Change { path: path(&at), base: Base::Bound(Seq(number)), action }
}

fn directory() -> Action {
    Action::Directory { attr: attr(0o755, 0), xattrs: vec![], replaces: false }
}

#[test]
fn many_directories_that_others_removed_are_told_of_soon() {
    let scene = Scene::new("mkdir d; echo x > other");
    let saw = scene.saw();
    let mut task = Task::new(&saw);
    task.delta.changes = (0..MANY).map(|number| change(format!("/d/{number}"), number, directory())).collect();
    let began = Instant::now();
    let report = task.commit(&scene.committer(), 1).expect("commits");
    assert!(began.elapsed() < TIME_MAX, "{:?}", began.elapsed());
    assert_eq!(report.notes.len() as u64, MANY);
    let mut task = Task::new(&saw);
    let parents = [change("/gone".into(), 1, directory()), change("/gone/in".into(), 2, directory())];
    task.delta.changes = parents.to_vec();
    let result = task.commit(&scene.committer(), 2);
    let Err(CommitError::Conflict(found)) = result else { panic!("{result:?}") };
    assert_eq!(found, [Conflict { path: path("/gone"), why: ConflictKind::Gone }], "the one above is enough");
}

#[test]
fn many_files_without_a_folder_are_told_of_soon() {
    let scene = Scene::new("mkdir d");
    let saw = scene.saw();
    let mut task = Task::new(&saw);
    let pipe = || Action::Fifo { attr: attr(0o600, 0) };
    task.delta.changes = (0..MANY).map(|number| change(format!("/d/{number}/x"), number, pipe())).collect();
    let began = Instant::now();
    let result = task.commit(&scene.committer(), 1);
    assert!(began.elapsed() < TIME_MAX, "{:?}", began.elapsed());
    let Err(CommitError::Conflict(found)) = result else { panic!("{result:?}") };
    assert!(found.len() as u64 == MANY && found.iter().all(|conflict| conflict.why == ConflictKind::ParentGone));
}
