//! Files of several names, and names that move.

use super::*;

#[test]
fn what_was_written_by_names_that_go_shows_at_the_others() {
    let scene = Scene::new(
        "mkdir d e g; echo a > d/a; ln d/a e/a; echo b > b; ln b g/b; ln b e/b; echo c > c; ln c e/c; echo o > o; ln -s t s; ln -P s e/s",
    );
    let saw = scene.saw();
    let inodes = ["/e/a", "/e/b", "/e/c", "/s"].map(|at| scene.at(at).symlink_metadata().expect("is there").ino());
    Task::new(&saw)
        .last_write("/d/a", "from afar", FileChange::Written)
        .last_write("/g/b", "twice", FileChange::Written)
        .last_write("/c", "", FileChange::Attributes)
        .rename("/o", "/b")
        .rename("/s", "/s2")
        .remove("/d/a")
        .remove("/d")
        .remove("/g/b")
        .remove("/g")
        .remove("/b")
        .remove("/c")
        .write("/c", "another")
        .file("/s2", "", 0o777, FileChange::Attributes)
        .commit(&scene.committer(), 1)
        .expect("commits");
    let texts = ["/e/a", "/e/b", "/e/c", "/b", "/c"].map(|at| scene.read(at));
    assert_eq!(texts, ["from afar", "twice", "c\n", "o\n", "another"].map(str::to_owned));
    let now = ["/e/a", "/e/b", "/e/c", "/s2"].map(|at| scene.at(at).symlink_metadata().expect("is there"));
    assert_eq!(now.each_ref().map(MetadataExt::ino), inodes);
    assert_eq!((now[0].nlink(), now[2].mode() & 0o777, now[3].nlink()), (1, 0o640, 2));
    assert_eq!(now[3].mtime(), THEN.plus(1_000_000_000).secs());
    scene.assert_clean();
}

#[test]
fn hard_linked_files_are_written_in_place() {
    let scene = Scene::new("echo a > h1; ln h1 h2; echo b > r1; ln r1 r2");
    let saw = scene.saw();
    let ino = scene.at("/h1").metadata().expect("is there").ino();
    Task::new(&saw)
        .remove("/r1")
        .write("/h1", "both")
        .write("/r1", "alone")
        .commit(&scene.committer(), 1)
        .expect("commits");
    assert_eq!((scene.read("/h2"), scene.at("/h1").metadata().expect("is there").ino()), ("both".to_owned(), ino));
    assert_eq!((scene.read("/r1"), scene.read("/r2")), ("alone".to_owned(), "b\n".to_owned()));
}

#[test]
fn a_renamed_file_is_the_same_file_and_is_not_read() {
    let scene =
        Scene::new("mkdir d e; echo a > d/a; ln d/a other; echo n > n; truncate -s 5G d/large; chmod 0 d/large");
    let saw = scene.saw();
    let node = |at: &str| scene.at(at).metadata().expect("is there");
    let (ino, large) = (node("/d/a").ino(), node("/d/large").ino());
    let report = Task::new(&saw)
        .rename("/d/a", "/e/a2")
        .rename("/d/large", "/large")
        .remove("/n")
        .file("/large", "", 0o400, FileChange::Attributes)
        .append("/e/a2", "a\nb\n", 2)
        .link("/n", "/e/a2")
        .commit(&scene.committer(), 1)
        .expect("commits");
    assert_eq!((node("/e/a2").ino(), node("/other").ino(), node("/n").ino(), node("/n").nlink()), (ino, ino, ino, 3));
    assert_eq!(scene.read("/other"), "a\nb\n");
    assert_eq!((node("/large").ino(), node("/large").len(), node("/large").mode() & 0o7777), (large, 5 << 30, 0o400));
    let made = report.committed.iter().filter(|made| made.path == path("/large"));
    assert!(made.clone().count() > 0 && made.clone().all(|made| made.content.is_none()), "{report:?}");
    scene.assert_clean();
}

/// Of a file whose other names are where the write policy lets nothing through: these keep what they show.
#[test]
fn what_is_written_does_not_show_at_names_elsewhere() {
    let wrote = |task: fn(Task<'_>) -> Task<'_>| {
        let scene = Scene::new("echo store > store; ln store file; ln store gone; echo own > a; ln a b");
        let mut saw = scene.saw();
        saw.4 = 2;
        let before = scene.at("/store").metadata().expect("is there").ino();
        let result = task(Task::new(&saw)).commit(&scene.committer(), 1);
        scene.assert_clean();
        let store = scene.at("/store").metadata().expect("is there");
        assert_eq!((scene.read("/store").as_str(), store.ino()), ("store\n", before), "{result:?}");
        (scene, result)
    };
    let (scene, result) = wrote(|task| task.write("/file", "evil"));
    assert!(result.is_ok() && scene.read("/file") == "evil" && scene.read("/gone") == "store\n", "{result:?}");
    let (scene, result) = wrote(|task| task.last_write("/gone", "evil", FileChange::Written).remove("/gone"));
    assert!(result.is_ok() && !scene.at("/gone").exists(), "{result:?}");
    let (scene, result) = wrote(|task| task.append("/file", "store\nevil", 6));
    assert!(result.is_err() && scene.read("/file") == "store\n", "{result:?}");
    let (scene, result) = wrote(|task| task.write("/a", "new"));
    assert!(result.is_ok() && scene.read("/b") == "new", "all of its names may show it: {result:?}");
}
