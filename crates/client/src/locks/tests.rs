//! Locks of tasks, of programs here, and on what is not there yet.

use super::*;
use crate::policy::Open;

fn request(path: &std::path::Path, is_exclusive: bool, range: Option<(i64, i64)>) -> LockRequest {
    use std::os::unix::ffi::OsStrExt;
    let (start, len) = range.unwrap_or_default();
    let path = path.as_os_str().as_bytes().to_vec();
    LockRequest {
        number: 1,
        path,
        is_exclusive,
        is_range: range.is_some(),
        start,
        len,
        is_made: false,
        may_wait: true,
        is_gone: false,
    }
}

/// Takes what nobody has any more. A program that another test starts holds all that is open here, with its locks, until it runs.
fn take_soon(locks: &mut Locks, new: &NewFiles, request: &LockRequest) {
    let begun = std::time::Instant::now();
    while let Err(refused) = locks.take(new, &Open, request) {
        assert!(refused.is_taken && begun.elapsed().as_secs() < 20, "{}", refused.why);
        std::thread::yield_now();
    }
}

#[test]
fn tasks_and_programs_here_see_each_others_locks() {
    let folder = tempfile::tempdir().unwrap();
    let (path, new) = (folder.path().join("f"), NewFiles::default());
    let file = std::fs::File::create(&path).unwrap();
    let exclusive = || rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
    for range in [None, Some((0, 10))] {
        let (mut one, mut other) = (Locks::default(), Locks::default());
        let [shared, whole] = [false, true].map(|exclusive| request(&path, exclusive, range));
        one.take(&new, &Open, &shared).unwrap();
        other.take(&new, &Open, &shared).unwrap();
        assert!(one.has(&shared) && !one.has(&whole));
        assert!(one.take(&new, &Open, &whole).is_err(), "the other one reads");
        drop(other);
        take_soon(&mut one, &new, &whole);
        one.take(&new, &Open, &shared).unwrap();
        assert!(Locks::default().take(&new, &Open, &shared).is_err());
        assert_eq!(exclusive().is_err(), range.is_none());
    }
    let begun = std::time::Instant::now();
    while let Err(error) = exclusive() {
        assert!(begun.elapsed().as_secs() < 20, "{error}");
        std::thread::yield_now();
    }
    let refused = Locks::default().take(&new, &Open, &request(&path, true, None)).unwrap_err();
    assert!(refused.turn.is_none() && refused.why.contains("another command"), "{}", refused.why);
    let mut apart = Locks::default();
    apart.take(&new, &Open, &request(&path, true, Some((0, 10)))).unwrap();
    Locks::default().take(&new, &Open, &request(&path, true, Some((10, 0)))).unwrap();
}

#[test]
fn a_file_that_was_replaced_is_locked_anew() {
    let folder = tempfile::tempdir().unwrap();
    let (path, new) = (folder.path().join("f"), NewFiles::default());
    let other = std::fs::File::create(&path).unwrap();
    rustix::fs::flock(&other, FlockOperation::LockExclusive).unwrap();
    let (mut held, wanted) = (Locks::default(), request(&path, true, None));
    assert!(held.take(&new, &Open, &wanted).unwrap_err().is_taken);
    std::fs::write(folder.path().join("g"), "").unwrap();
    std::fs::rename(folder.path().join("g"), &path).unwrap();
    drop(other);
    assert!(held.take(&new, &Open, &wanted).unwrap_err().is_taken, "it has the old file open");
    take_soon(&mut held, &new, &wanted);
    let file = std::fs::File::open(&path).unwrap();
    assert!(rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_err());
}

#[test]
fn one_of_several_has_made_what_all_make() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let (at, new) = (|name: &str| folder.path().join(name), NewFiles::default());
    let paths = |names: &[&str]| -> Vec<TreePath> {
        names.iter().map(|name| TreePath::parse(at(name).as_os_str().as_bytes()).unwrap()).collect()
    };
    let mut one = Locks::default();
    one.take_made(&new, paths(&["a", "b"]).iter()).unwrap();
    one.take_made(&new, paths(&["b"]).iter()).unwrap();
    assert_eq!(one.locked().paths.len(), 2);
    let refused = Locks::default().take_made(&new, paths(&["c", "b"]).iter()).unwrap_err();
    assert!(refused.turn.is_some(), "it is still being made");
    Locks::default().take_made(&new, paths(&["c"]).iter()).expect("who did not get all has nothing");
    std::fs::create_dir(at("a")).unwrap();
    drop(one);
    let refused = Locks::default().take_made(&new, paths(&["a"]).iter()).unwrap_err();
    assert!(refused.turn.is_none() && refused.why.contains("another command made"), "{}", refused.why);
}

#[test]
fn files_that_only_a_task_has_are_locked_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let (path, new) = (folder.path().join("f"), NewFiles::default());
    let wanted = request(&path, true, None);
    let mut one = Locks::default();
    one.take(&new, &Open, &wanted).unwrap();
    one.take(&new, &Open, &wanted).unwrap();
    let refused = Locks::default().take(&new, &Open, &wanted).unwrap_err();
    assert!(refused.turn.is_some_and(|turn| turn.try_lock().is_err()));
    assert_eq!(one.overtaken(), None);
    std::fs::write(&path, "").unwrap();
    assert!(one.overtaken().is_some());
    drop(one);
    Locks::default().take(&new, &Open, &wanted).unwrap();
}

#[test]
fn who_begins_again_has_what_it_asked_for_before_as_far_as_it_is_free() {
    let folder = tempfile::tempdir().unwrap();
    let (path, new) = (|name: &str| folder.path().join(name), NewFiles::default());
    for name in ["a", "b", "c"] {
        std::fs::write(path(name), "").unwrap();
    }
    let wanted = |name: &str| request(&path(name), true, None);
    let made = LockRequest { is_made: true, ..wanted("made") };
    let mut asked = Asked::default();
    for request in [wanted("a"), wanted("b"), LockRequest { number: 78, ..wanted("a") }, made.clone(), wanted("c")] {
        asked.note(&request);
    }
    assert_eq!(asked.0.len(), 4, "one of them twice");
    let (mut other, mut held) = (Locks::default(), Locks::default());
    other.take(&new, &Open, &wanted("b")).unwrap();
    held.take(&new, &Open, &wanted("c")).unwrap();
    asked.take_free(&mut held, &new, &Open);
    let has = |held: &Locks| [wanted("a"), wanted("b"), made.clone(), wanted("c")].map(|request| held.has(&request));
    assert_eq!(has(&held), [true, false, true, true]);
}

/// Keeps all beneath one folder here.
#[derive(Debug)]
struct Closed(TreePath);

impl Gate for Closed {
    fn access(&self, path: &TreePath, _facts: &FileFacts) -> Access {
        if path.is_within(&self.0) { Access::Deny(crate::policy::Denial::Secret) } else { Access::Allow }
    }

    fn is_about(&self, _path: &TreePath) -> bool {
        true
    }

    fn fingerprint(&self) -> u64 {
        0
    }
}

#[test]
fn a_link_locks_nothing_that_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    std::fs::create_dir_all(root.join("closed/in")).unwrap();
    std::fs::write(root.join("closed/in/f"), "x").unwrap();
    std::fs::write(root.join("plain"), "x").unwrap();
    std::os::unix::fs::symlink("closed/in/f", root.join("file")).unwrap();
    std::os::unix::fs::symlink("closed", root.join("folder")).unwrap();
    std::os::unix::fs::symlink("plain", root.join("other")).unwrap();
    let gate = Closed(TreePath::parse(root.join("closed").as_os_str().as_encoded_bytes()).unwrap());
    let new = NewFiles::default();
    let take = |at: &str| Locks::default().take(&new, &gate, &request(&root.join(at), true, None));
    for at in ["closed/in/f", "file", "folder/in/f"] {
        let refused = take(at).expect_err("it is closed");
        assert!(refused.why.contains("read policy"), "{at}: {}", refused.why);
    }
    assert!(take("plain").is_ok() && take("other").is_ok());
}
