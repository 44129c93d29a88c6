//! What an ordinary user commits to folders and files of others.

use super::*;
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
use std::os::unix::fs::{PermissionsExt, chown};

const USER: u32 = 1234;

/// A scene that `script` has made as root, with a state folder of the user's.
fn scene(script: &str) -> Option<Scene> {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: needs root, to be two users");
        return None;
    }
    let scene = Scene::new(script);
    let folder = scene.folder.path();
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).expect("opens");
    std::fs::create_dir(scene.state()).expect("makes");
    chown(scene.state(), Some(USER), Some(USER)).expect("gives");
    Some(scene)
}

/// Does `work` in a thread that is the user's.
fn as_user<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let alone = || {
        set_thread_groups(&[]).expect("leaves root's groups");
        set_thread_gid(Gid::from_raw(USER)).expect("becomes the user's");
        set_thread_uid(Uid::from_raw(USER)).expect("becomes the user's");
        work()
    };
    std::thread::scope(|scope| scope.spawn(alone).join().expect("ends"))
}

fn node(scene: &Scene, at: &str) -> (u32, u32, u32) {
    let meta = scene.at(at).metadata().expect("is there");
    (meta.uid(), meta.gid(), meta.mode() & 0o7777)
}

#[test]
fn group_folders_and_sticky_folders_of_others() {
    let made =
        "mkdir g; chgrp 1234 g; chmod 2775 g; mkdir t; chmod 1777 t; echo l > g/log; chmod 666 g/log; echo w > t/w;
        chmod 666 t/w; mkdir g/d; echo r > g/r; echo m > g/moved; echo o > t/mine; chown 1234:1234 t/mine";
    let Some(scene) = scene(made) else { return };
    let saw = scene.saw();
    as_user(|| {
        Task::new(&saw)
            .rename("/g/moved", "/g/there")
            .rename("/g/d", "/g/e")
            .remove("/g/r")
            .directory("/g", 0o2775)
            .write("/g/new", "new")
            .directory("/g/made", 0o2755)
            .directory("/g/made/within", 0o2755)
            .file("/g/log", "l\nl2\n", 0o666, FileChange::Appended { from: 2 })
            .file("/t/w", "in place", 0o666, FileChange::Written)
            .write("/t/mine", "mine")
            .write("/t/new", "new")
            .commit(&scene.committer(), 1)
            .expect("needs no more rights than a program does");
    });
    assert_eq!((scene.read("/g/log"), scene.read("/t/w")), ("l\nl2\n".into(), "in place".into()));
    assert_eq!(
        (scene.read("/t/mine"), scene.read("/t/new"), scene.read("/g/new")),
        ("mine".into(), "new".into(), "new".into())
    );
    assert_eq!((node(&scene, "/g"), node(&scene, "/t")), ((0, USER, 0o2775), (0, 0, 0o1777)));
    assert_eq!((node(&scene, "/g/log").0, node(&scene, "/t/w").0, node(&scene, "/g/there").0), (0, 0, 0));
    assert_eq!((node(&scene, "/g/e").0, scene.at("/g/r").exists()), (0, false));
    assert_eq!((node(&scene, "/g/made"), node(&scene, "/g/made/within")), ((USER, USER, 0o2755), (USER, USER, 0o2755)));
    scene.assert_clean();
}

#[test]
fn files_that_the_task_closes_are_written_in_place_all_the_same() {
    let made = format!("echo a > a; echo b > b; chown {USER}:0 a b; chmod 600 a b");
    let Some(scene) = scene(&made) else { return };
    let saw = scene.saw();
    as_user(|| {
        let task = Task::new(&saw).file("/a", "a\nb\n", 0o000, FileChange::Appended { from: 2 });
        task.file("/b", "other", 0o200, FileChange::Written).commit(&scene.committer(), 1).expect("commits");
    });
    assert_eq!((scene.read("/a"), scene.read("/b")), ("a\nb\n".into(), "other".into()));
    assert_eq!((node(&scene, "/a").2, node(&scene, "/b").2), (0o000, 0o200));
    scene.assert_clean();
}

#[test]
fn a_folder_that_the_task_closes_keeps_nothing_of_its_commit() {
    let Some(scene) = scene("mkdir m") else { return };
    let options = format!("uid={USER},gid={USER},mode=755");
    let Some(_mounted) = super::places::Mounted::tmpfs(scene.at("/m"), &options) else { return };
    for (id, mode) in [(1, 0o000), (2, 0o500), (3, 0o400)] {
        scene.shell("chmod 755 m");
        let saw = &scene.saw();
        as_user(|| {
            let task = Task::new(saw).directory("/m", mode).write(&format!("/m/f{id}"), "x");
            task.commit(&scene.committer(), id).expect("commits");
        });
        assert_eq!(node(&scene, "/m"), (USER, USER, mode));
        assert_eq!(names_of(&scene.at("/m")).len(), id as usize);
        scene.assert_clean();
    }
}

/// Another's folder waits in the folder itself until the commit is closed: it cannot be moved out of it.
#[test]
fn a_folder_that_the_task_closes_keeps_nothing_of_what_others_had_in_it() {
    let Some(scene) = scene("mkdir -p c/theirs; chown 1234:1234 c") else { return };
    let saw = scene.saw();
    as_user(|| {
        let task = Task::new(&saw).remove("/c/theirs").directory("/c", 0o000);
        task.commit(&scene.committer(), 1).expect("commits");
    });
    assert_eq!((node(&scene, "/c"), names_of(&scene.at("/c")).len()), ((USER, USER, 0o000), 0));
    scene.assert_clean();
}

/// One's own file in a folder that one may not write is written in place, and so is a file of another group than one's own.
#[test]
fn what_cannot_be_replaced_is_written_in_place() {
    let made = "mkdir d s; echo a > d/mine; chown 1234 d/mine; chgrp 5 s; chmod 2777 s; echo b > s/group; chown 1234:5 s/group;
        echo t > s/theirs";
    let Some(scene) = scene(made) else { return };
    let saw = scene.saw();
    let (old, ino) = (scene.at("/d").metadata().expect("is there").mtime(), |at: &str| {
        scene.at(at).metadata().expect("is there").ino()
    });
    let before = (ino("/d/mine"), ino("/s/group"));
    as_user(|| {
        // The task has replaced one, so its folder's time changed.
        let mut group = attr(0o2777, 0);
        (group.uid, group.gid) = (0, 5);
        let action = Action::Directory { attr: group, xattrs: vec![], replaces: false };
        let task = Task::new(&saw).add("/s", action).write("/d/mine", "changed");
        let mut task = task.write("/s/group", "changed").write("/s/theirs", "another file");
        task = task.directory("/s/new", 0o2755);
        for change in &mut task.delta.changes {
            let (Action::File { attr, .. } | Action::Directory { attr, .. }) = &mut change.action else { continue };
            attr.gid = if change.path == path("/d/mine") { 0 } else { 5 };
        }
        task.commit(&scene.committer(), 1).expect("commits");
    });
    assert_eq!(
        (scene.read("/d/mine"), scene.read("/s/group"), scene.read("/s/theirs")),
        ("changed".into(), "changed".into(), "another file".into())
    );
    assert_eq!(before.0, ino("/d/mine"));
    assert_eq!(
        (node(&scene, "/d/mine").1, node(&scene, "/s/group").1, node(&scene, "/s/theirs")),
        (0, 5, (USER, 5, 0o644))
    );
    assert_eq!(node(&scene, "/s/new"), (USER, 5, 0o2755), "the group comes with the folder");
    assert_eq!(scene.at("/d").metadata().expect("is there").mtime(), old);
    scene.assert_clean();
}

/// What this user may not do fails before or in the middle, and leaves all as it was.
#[test]
fn what_is_refused_here_leaves_nothing() {
    let made = "mkdir t d; chmod 1777 t; echo a > t/theirs; echo b > d/b; chmod 777 d; echo w > d/w; chmod 666 d/w";
    let Some(scene) = scene(made) else { return };
    let saw = scene.saw();
    let before = scene.describe();
    as_user(|| {
        let committer = scene.committer();
        let tasks = [
            Task::new(&saw).remove("/t/theirs").write("/d/new", "new").write("/d/w", "w2"),
            Task::new(&saw).write("/d/w", "w2").file("/d/b", "b\n", 0o600, FileChange::Attributes),
            Task::new(&saw).append("/d/w", "w\nw2\n", 2).append("/d/b", "b\nb2\n", 2),
        ];
        for (id, task) in tasks.iter().enumerate() {
            let result = task.commit(&committer, id as u128);
            assert!(matches!(result, Err(CommitError::Io { .. })), "{result:?}");
        }
    });
    let contents = |tree: &BTreeMap<String, String>| {
        tree.iter()
            .map(|(path, text)| (path.clone(), text.split_whitespace().last().map(str::to_owned)))
            .collect::<Vec<_>>()
    };
    assert_eq!(contents(&scene.describe()), contents(&before));
    scene.assert_clean();
}

/// A file that may only grow is appended to, and refuses all else before anything is changed.
#[test]
fn files_that_may_only_grow() {
    let Some(scene) = scene("echo a > log; echo i > fixed; echo x > x") else { return };
    if Command::new("chattr")
        .args(["+a", "log"])
        .current_dir(scene.root())
        .status()
        .is_ok_and(|status| !status.success())
    {
        println!("SKIPPED: no such attributes here");
        return;
    }
    scene.shell("chattr +i fixed");
    let saw = scene.saw();
    let committer = scene.committer();
    Task::new(&saw).append("/log", "a\nb\n", 2).write("/x", "y").commit(&committer, 1).expect("appends");
    assert_eq!(scene.read("/log"), "a\nb\n");
    let saw = scene.saw();
    for (id, task) in [
        Task::new(&saw).write("/x", "z").write("/log", "other"),
        Task::new(&saw).remove("/log").write("/x", "z"),
        Task::new(&saw).rename("/fixed", "/f").write("/x", "z"),
        Task::new(&saw).write("/x", "z").append("/fixed", "i\nb\n", 2),
        Task::new(&saw).write("/x", "z").file("/fixed", "i\n", 0o600, FileChange::Attributes),
    ]
    .iter()
    .enumerate()
    {
        let result = task.commit(&committer, id as u128 + 2);
        assert!(
            matches!(&result, Err(CommitError::Io { source, .. }) if source.raw_os_error() == Some(1)),
            "{result:?}"
        );
    }
    assert_eq!(scene.read("/x"), "y");
    scene.assert_clean();
    scene.shell("chattr -a log; chattr -i fixed");
}

/// The task was not shown the values of what this user owns and may not read. It knew the names, and has taken one away.
#[test]
fn attributes_that_the_owner_may_not_read_stay() {
    let made = format!(
        "echo a > a; echo b > b; echo c > c; mkdir d; chown {USER}:{USER} a b c d; ln b other
        for i in a b c d; do setfattr -n user.kept -v '' $i; setfattr -n user.set -v old $i; setfattr -n user.gone -v x $i; chmod 0 $i; done"
    );
    let Some(scene) = scene(&made) else { return };
    if attributes(&scene, "/a").is_empty() {
        println!("SKIPPED: the temporary folder takes no user attributes");
        return;
    }
    let saw = scene.saw();
    as_user(|| {
        let set = base::Xattr { name: b"user.set".to_vec(), value: b"new".to_vec() };
        let task = Task::new(&saw).file("/a", "written", 0o355, FileChange::Written);
        let task = task.file("/b", "by one name", 0o711, FileChange::Written);
        let mut task = task.file("/c", "c\n", 0o644, FileChange::Attributes).directory("/d", 0o755);
        for change in &mut task.delta.changes {
            let (Action::File { xattrs, .. } | Action::Directory { xattrs, .. }) = &mut change.action else { continue };
            xattrs.extend([base::Xattr::kept_back(b"user.kept".to_vec()), set.clone()]);
        }
        task.commit(&scene.committer(), 1).expect("commits");
    });
    for at in ["/a", "/b", "/other", "/c", "/d"] {
        assert_eq!(
            attributes(&scene, at),
            [("user.kept".into(), "".into()), ("user.set".into(), "new".into())],
            "{at}"
        );
    }
    assert_eq!(
        (scene.read("/a"), scene.read("/b"), scene.read("/other")),
        ("written".into(), "by one name".into(), "by one name".into())
    );
    assert_eq!((node(&scene, "/a").2, node(&scene, "/other").2, node(&scene, "/d").2), (0o355, 0o711, 0o755));
    scene.assert_clean();
}

/// The `user.` attributes of what is there, with their values.
fn attributes(scene: &Scene, at: &str) -> Vec<(String, String)> {
    let tree = super::super::tree::Tree::open(&scene.root()).expect("opens");
    let found = tree.hold(&path(at)).and_then(|held| super::super::tree::xattrs_of(&held)).expect("are read");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    found.iter().map(|xattr| (text(&xattr.name), text(&xattr.value))).collect()
}

/// Its folder is looked for where it is before the commit, not beneath what has the folder's name there.
#[test]
fn a_file_in_a_folder_that_changes_places_with_a_closed_one() {
    let made = format!(
        "mkdir -p w/a/in w/b/in; cd w; echo a > a/in/f; echo b > b/in/f; echo o > a/in/other; chown -R {USER}:{USER} .; chmod 0 b"
    );
    let Some(scene) = scene(&made) else { return };
    let saw = scene.saw();
    as_user(|| {
        let task = Task::new(&saw).rename("/w/a", "/w/b").rename("/w/b", "/w/a").remove("/w/a/in/other");
        let task = task.file("/w/b/in/f", "new", 0o644, FileChange::Written).write("/w/b/in/made", "made");
        task.commit(&scene.committer(), 1).expect("commits");
    });
    assert_eq!((scene.read("/w/b/in/f"), scene.read("/w/b/in/made")), ("new".into(), "made".into()));
    assert_eq!((scene.read("/w/a/in/f"), node(&scene, "/w/a").2), ("b\n".into(), 0));
    assert!(!scene.at("/w/b/in/other").exists());
}
