//! The links that commits have made, also those that they gave another name: what such a link leads to is not what its user means by
//! naming it. A link of the user's own is.

use crate::small_file;
use base::TreePath;
use rustix::fs::{AtFlags, CWD, FileType, Stat, Statx, StatxFlags, Timespec, Timestamps, UTIME_OMIT};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use wire::lock;

/// Links that are remembered. Beyond, any link may be one.
const LINKS_MAX: usize = 65_536;
/// As much is read of what was remembered.
const BYTES_MAX: u64 = 16 << 20;

/// What tells a folder of version control, which is a project's.
const PROJECT_MARKS: [&str; 4] = [".git", ".hg", ".svn", ".jj"];
/// Folders in fewer others are no projects, but homes and the system's.
const PROJECT_DEPTH_MIN: usize = 3;

/// A link: inode, and when it came to be, in seconds and nanoseconds; where that is not known, when its target was written. Not the device,
/// whose number is another one after a start of the machine.
type Link = (u64, i64, u32);

/// Those of one tree, also of earlier lives.
#[derive(Debug)]
pub(super) struct MadeLinks {
    root: PathBuf,
    file: PathBuf,
    known: Mutex<Known>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Known {
    links: BTreeSet<Link>,
    /// Some were not remembered.
    are_more: bool,
}

impl MadeLinks {
    /// Those beneath `root` that are kept in `file`. Where that cannot be read any link may be one.
    pub fn load(root: &Path, file: &Path) -> Self {
        let known = match small_file::read(file, BYTES_MAX).map(|bytes| serde_json::from_slice(&bytes)) {
            Ok(Ok(known)) => known,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Known::default(),
            _ => Known { are_more: true, ..Known::default() },
        };
        Self { root: root.to_owned(), file: file.to_owned(), known: Mutex::new(known) }
    }

    /// A commit has put something at these paths, links among it. Those that lead to elsewhere in their project open nothing anyway.
    pub fn note<'a>(&self, paths: impl Iterator<Item = &'a TreePath>) {
        let links: Vec<Link> =
            paths.filter_map(|path| self.link(path).filter(|_| !self.stays_in_project(path))).collect();
        if links.is_empty() {
            return;
        }
        let mut known = lock(&self.known);
        let count = known.links.len();
        known.links.extend(links);
        if known.links.len() > LINKS_MAX {
            *known = Known { are_more: true, ..Known::default() };
        }
        let has_changed = known.links.len() != count;
        if has_changed
            && let Err(error) =
                serde_json::to_vec(&*known).map_err(Into::into).and_then(|bytes| small_file::write(&self.file, &bytes))
        {
            tracing::warn!(%error, "{}: the links that a result has made are not remembered", self.file.display());
        }
    }

    /// Whether the link at `path` may be one of these.
    pub fn has(&self, path: &TreePath) -> bool {
        let known = lock(&self.known);
        known.are_more || (!known.links.is_empty() && self.link(path).is_none_or(|link| known.links.contains(&link)))
    }

    /// Whether the link at `path` leads to a place within its project, by what it says. A home is no project, also if it is under version
    /// control.
    fn stays_in_project(&self, path: &TreePath) -> bool {
        let Some(target) = target_unseen(&self.on_disk(path)) else { return false };
        let Some(led) = path.parent().and_then(|folder| folder.resolve(&target)) else {
            return false;
        };
        let home = std::env::var_os("HOME").and_then(|home| TreePath::parse(home.as_bytes()));
        let is_project = |folder: &TreePath| {
            let has = |mark: &&str| rustix::fs::lstat(self.on_disk(folder).join(mark)).is_ok();
            folder.components().count() >= PROJECT_DEPTH_MIN && PROJECT_MARKS.iter().any(has)
        };
        let mut above = std::iter::successors(path.parent(), TreePath::parent);
        let project = above.find(is_project).filter(|root| home.is_none_or(|home| !home.is_within(root)));
        project.is_some_and(|root| led.is_within(&root))
    }

    fn on_disk(&self, path: &TreePath) -> PathBuf {
        path.components().fold(self.root.clone(), |at, name| at.join(OsStr::from_bytes(name)))
    }

    /// What is at `path`, if it is a link.
    fn link(&self, path: &TreePath) -> Option<Link> {
        let wanted = StatxFlags::INO | StatxFlags::TYPE | StatxFlags::BTIME | StatxFlags::MTIME;
        let stat: Statx = rustix::fs::statx(CWD, self.on_disk(path), AtFlags::SYMLINK_NOFOLLOW, wanted).ok()?;
        if FileType::from_raw_mode(stat.stx_mode.into()) != FileType::Symlink {
            return None;
        }
        let has_birth = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
        let time = if has_birth { stat.stx_btime } else { stat.stx_mtime };
        Some((stat.stx_ino, time.tv_sec, time.tv_nsec))
    }
}

/// What a link says. Its time of the last access is part of what was committed, and stays.
fn target_unseen(link: &Path) -> Option<Vec<u8>> {
    let before = rustix::fs::lstat(link).ok()?;
    let target = rustix::fs::readlink(link, Vec::new()).ok()?;
    let last_access = Timespec { tv_sec: before.st_atime, tv_nsec: before.st_atime_nsec as _ };
    let last_modification = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let times = Timestamps { last_access, last_modification };
    let has_moved = |now: Stat| (now.st_atime, now.st_atime_nsec) != (before.st_atime, before.st_atime_nsec);
    if rustix::fs::lstat(link).is_ok_and(has_moved) {
        let _ = rustix::fs::utimensat(CWD, link, &times, AtFlags::SYMLINK_NOFOLLOW);
    }
    Some(target.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn path(text: &str) -> TreePath {
        TreePath::parse(text.as_bytes()).expect("a path")
    }

    #[test]
    fn links_of_results_are_told_from_the_user_s_also_later_and_elsewhere() {
        let folder = tempfile::tempdir().expect("a folder");
        let (root, file) = (folder.path().join("root"), folder.path().join("state/links"));
        std::fs::create_dir(&root).expect("a folder");
        let links = MadeLinks::load(&root, &file);
        let has = |links: &MadeLinks, name: &str| links.has(&path(name));
        ["own", "made"].iter().for_each(|name| symlink("/srv", root.join(name)).expect("a link"));
        assert!(!has(&links, "/own") && !has(&links, "/made"));
        std::fs::write(root.join("file"), "").expect("a file");
        links.note(["/made", "/file", "/absent"].map(path).iter());
        for links in [&links, &MadeLinks::load(&root, &file)] {
            assert!(has(links, "/made") && !has(links, "/own"));
        }
        std::fs::rename(root.join("made"), root.join("moved")).expect("moved");
        assert!(has(&links, "/moved"), "by another name, too");
        std::fs::write(&file, "torn").expect("written");
        assert!(has(&MadeLinks::load(&root, &file), "/own"), "nobody knows");
    }

    #[test]
    fn links_within_a_project_are_not_remembered() {
        let folder = tempfile::tempdir().expect("a folder");
        let links = MadeLinks::load(folder.path(), &folder.path().join("links"));
        std::fs::create_dir_all(folder.path().join("home/u/p/.git")).expect("folders");
        std::fs::create_dir_all(folder.path().join("home/u/p/bin")).expect("folders");
        std::fs::create_dir_all(folder.path().join("home/u/.git")).expect("folders");
        for (at, target, is_remembered) in [
            ("/home/u/p/bin/a", "../lib/a", false),
            ("/home/u/p/b", "/home/u/p/lib", false),
            ("/home/u/p/bin/c", "../../.config", true),
            ("/home/u/p/d", "/home/u/.config", true),
            // A home, if it is under version control.
            ("/home/u/e", ".config", true),
        ] {
            symlink(target, links.on_disk(&path(at))).expect("a link");
            links.note([path(at)].iter());
            assert_eq!(links.has(&path(at)), is_remembered, "{at} -> {target}");
        }
    }
}
