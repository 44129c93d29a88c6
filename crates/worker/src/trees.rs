//! Trees that guests have made: walked and removed without recursion, without long paths and with two descriptors at a time, however
//! deep they are. No link is followed.

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Names of one folder that are read before they are removed.
const NAMES_AT_ONCE: usize = 65_536;

/// Calls `see` with each entry beneath `folder`: the folder that holds it, its name, what it is. Others may change the tree meanwhile: what
/// vanishes is passed over, and the walk ends where a folder was moved away. Whether all of it was seen as far as can be told: no folder
/// has been moved or taken away meanwhile.
pub fn walk(folder: &Path, mut see: impl FnMut(BorrowedFd<'_>, &CStr, &Stat)) -> bool {
    let Ok(mut held) = open(rustix::fs::CWD, folder) else { return false };
    let mut is_whole = true;
    // Of each folder on the way down: what it is, and which of its folders are still to be walked.
    let mut levels = vec![(identity(&held), list(&held, &mut see))];
    while let Some((_, folders)) = levels.last_mut() {
        if let Some(name) = folders.pop() {
            let Ok(below) = open(&held, &*name) else {
                is_whole = false;
                continue;
            };
            levels.push((identity(&below), list(&below, &mut see)));
            held = below;
            continue;
        }
        levels.pop();
        let Some((own, _)) = levels.last() else { return is_whole };
        match open(&held, c"..") {
            Ok(above) if identity(&above) == *own => held = above,
            _ => return false,
        }
    }
    is_whole
}

/// Bytes on disk and number of all entries beneath `folder`, a file with several names once, and whether that is all, see [`walk`]. What
/// vanishes meanwhile is not counted.
pub fn weigh(folder: &Path) -> (u64, u64, bool) {
    let (mut bytes, mut files, mut linked) = (0, 0, HashSet::new());
    let is_whole = walk(folder, |_, _, found| {
        let is_folder = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        if found.st_nlink <= 1 || is_folder || linked.insert((found.st_dev, found.st_ino)) {
            bytes += found.st_blocks as u64 * 512;
            files += 1;
        }
    });
    (bytes, files, is_whole)
}

/// A task must not see by the time of the last access that its folders are looked into.
fn open(folder: impl AsFd, name: impl rustix::path::Arg + Copy) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(&folder, name, flags | OFlags::NOATIME, Mode::empty()) {
        // Without rights it is for owners alone.
        Err(Errno::PERM) => rustix::fs::openat(&folder, name, flags, Mode::empty()),
        other => other,
    }
}

fn identity(folder: &OwnedFd) -> Option<(u64, u64)> {
    rustix::fs::fstat(folder).ok().map(|found| (found.st_dev, found.st_ino))
}

/// Shows all entries of one folder; the names of those that are folders.
fn list(held: &OwnedFd, see: &mut impl FnMut(BorrowedFd<'_>, &CStr, &Stat)) -> Vec<CString> {
    let mut folders = Vec::new();
    let Ok(entries) = Dir::read_from(held) else { return folders };
    for entry in entries.flatten().filter(|entry| !is_dots(entry.file_name())) {
        let name = entry.file_name();
        let Ok(found) = rustix::fs::statat(held, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        see(held.as_fd(), name, &found);
        if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
            folders.push(name.to_owned());
        }
    }
    folders
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

/// Removes `folder` and all beneath it, which nobody uses any more. Folders are moved up into `folder` before they are emptied, so that
/// none is ever deep.
pub fn remove(folder: &Path) -> Result<(), Errno> {
    let top = open(rustix::fs::CWD, folder)?;
    let mut moved = Moved::default();
    empty(&top, &top, &mut moved)?;
    while let Some(name) = moved.waiting.pop() {
        let below = open(&top, &*name)?;
        empty(&below, &top, &mut moved)?;
        rustix::fs::unlinkat(&top, &*name, AtFlags::REMOVEDIR)?;
    }
    rustix::fs::rmdir(folder)
}

/// Folders that wait to be emptied, by their names at the top.
#[derive(Default)]
struct Moved {
    waiting: Vec<CString>,
    /// All that ever waited.
    known: HashSet<CString>,
    count: u64,
}

/// Removes all in `held` but for its folders, which go to `top`.
fn empty(held: &OwnedFd, top: &OwnedFd, moved: &mut Moved) -> Result<(), Errno> {
    let is_top = identity(held) == identity(top);
    loop {
        let entries = Dir::read_from(held)?.flatten().map(|entry| entry.file_name().to_owned());
        let is_waiting = |name: &CString| is_top && moved.known.contains(name);
        let names: Vec<CString> =
            entries.filter(|name| !is_dots(name) && !is_waiting(name)).take(NAMES_AT_ONCE).collect();
        if names.is_empty() {
            return Ok(());
        }
        for name in names {
            match rustix::fs::unlinkat(held, &*name, AtFlags::empty()) {
                Err(Errno::ISDIR | Errno::PERM) => moved.take(held, &name, top)?,
                other => other?,
            }
        }
    }
}

impl Moved {
    fn take(&mut self, held: &OwnedFd, name: &CStr, top: &OwnedFd) -> Result<(), Errno> {
        // Most folders of a task are empty, or become so at once.
        if rustix::fs::unlinkat(held, name, AtFlags::REMOVEDIR).is_ok() {
            return Ok(());
        }
        loop {
            self.count += 1;
            let free = CString::new(format!("moved-{}", self.count)).map_err(|_| Errno::INVAL)?;
            match rustix::fs::renameat_with(held, name, top, &*free, RenameFlags::NOREPLACE) {
                Ok(()) => {
                    self.known.insert(free.clone());
                    self.waiting.push(free);
                    return Ok(());
                }
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More levels than a thread's stack, a process's descriptors or a path have room for.
    const LEVELS: u64 = 100_000;

    fn deep(folder: &Path, name: &CStr) {
        let mut held = open(rustix::fs::CWD, folder).expect("the folder");
        for _ in 0..LEVELS {
            rustix::fs::mkdirat(&held, name, Mode::RWXU).expect("a folder");
            held = open(&held, name).expect("the folder");
        }
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::openat(&held, c"f", flags, Mode::RUSR).expect("a file");
    }

    #[test]
    fn trees_of_any_depth_are_walked_and_removed() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
        let tree = folder.path().join("tree");
        std::fs::create_dir(&tree).expect("a folder");
        deep(&tree, c"d");
        let mut count = 0;
        walk(&tree, |_, _, _| count += 1);
        assert_eq!(count, LEVELS + 1);
        remove(&tree).expect("removed");
        assert!(!tree.exists());
    }

    #[test]
    fn nobody_sees_that_a_tree_was_weighed() {
        let folder = tempfile::tempdir_in("/tmp").expect("a folder on a disk");
        let inner = folder.path().join("inner");
        std::fs::create_dir(&inner).expect("a folder");
        let time = |tv_sec| rustix::fs::Timespec { tv_sec, tv_nsec: 7 };
        // An access before the last change is noted even where others are not.
        let times = rustix::fs::Timestamps { last_access: time(946_684_800), last_modification: time(1_600_000_000) };
        rustix::fs::utimensat(rustix::fs::CWD, &inner, &times, AtFlags::empty()).expect("set");
        assert_eq!(weigh(folder.path()).1, 1);
        assert_eq!(rustix::fs::stat(&inner).expect("is there").st_atime, 946_684_800);
    }

    #[test]
    fn trees_weigh_what_is_in_them_once() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("d")).expect("a folder");
        std::fs::write(folder.path().join("d/f"), vec![1; 100_000]).expect("a file");
        let (bytes, files, is_whole) = weigh(folder.path());
        assert!(is_whole && (100_000..200_000).contains(&bytes) && files == 2, "{bytes} {files}");
        std::fs::hard_link(folder.path().join("d/f"), folder.path().join("g")).expect("a link");
        assert_eq!(weigh(folder.path()), (bytes, files, true));
    }

    #[test]
    fn a_walk_says_that_a_folder_was_moved_meanwhile() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(place("a/b/c")).expect("folders");
        std::fs::create_dir(place("other")).expect("a folder");
        for (name, from, to) in [(c"c", "a/b", "other/b"), (c"a", "a", "other/a")] {
            let is_whole = walk(folder.path(), |_, seen, _| {
                // It may come once more, where it is then.
                if seen == name {
                    let _ = std::fs::rename(place(from), place(to));
                }
            });
            assert!(!is_whole, "{from} was moved to {to}");
        }
        assert!(walk(folder.path(), |_, _, _| ()));
    }

    #[test]
    fn names_and_links_do_not_lead_astray() {
        let folder = tempfile::tempdir().expect("a folder");
        let (tree, other) = (folder.path().join("tree"), folder.path().join("other"));
        for name in ["moved-1/moved-1/x", "moved-2", "a/b/c"] {
            std::fs::create_dir_all(tree.join(name)).expect("folders");
        }
        std::fs::create_dir(&other).expect("a folder");
        std::fs::write(other.join("kept"), "kept").expect("a file");
        std::os::unix::fs::symlink(&other, tree.join("a/link")).expect("a link");
        std::fs::write(tree.join("a").join("n".repeat(255)), "").expect("a file");
        remove(&tree).expect("removed");
        assert!(!tree.exists() && other.join("kept").exists());
    }
}
