//! What a large commit displaced.

use super::*;

fn removes_many(scene: &Scene) {
    let saw = scene.saw();
    let many = (0..2500).fold(Task::new(&saw).remove("/d"), |task, number| task.remove(&format!("/d/{number}")));
    many.commit(&scene.committer(), 1).expect("commits");
    assert!(!scene.at("/d").exists());
}

#[test]
fn many_files_that_go_are_gone_at_once_and_soon_from_the_state_folder() {
    let scene = Scene::new("mkdir d; cd d; seq 0 2499 | xargs touch");
    removes_many(&scene);
    scene.assert_soon_clean();
}

#[test]
fn what_has_a_name_elsewhere_is_gone_when_the_command_ends() {
    use std::os::unix::fs::MetadataExt;
    let scene = Scene::new("mkdir d; cd d; seq 0 2499 | xargs touch; ln 7 ../kept");
    removes_many(&scene);
    assert_eq!(std::fs::metadata(scene.at("/kept")).expect("there").nlink(), 1);
    scene.assert_clean();
}

#[test]
fn what_the_daemon_did_not_come_to_remove_the_next_start_removes() {
    let scene = Scene::new("mkdir d");
    drop(scene.committer());
    let left = scene.state().join("stage").join(format!("{}.0", base::TaskId(1).to_hex()));
    std::fs::create_dir(&left).expect("makes");
    std::fs::write(left.join("file"), b"x").expect("writes");
    scene.committer().recover().expect("recovers");
    scene.assert_clean();
}
