//! The links that commits have made: what such a link leads to is not what its user means by naming it. A link of the user's own is, also
//! where a commit has only moved it, or made it again as it was.

use base::{Digest, TreePath};
use rustix::fs::{AtFlags, CWD, FileType, Stat, Statx, StatxFlags, Timespec, Timestamps, UTIME_OMIT};
use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use wire::lock;

/// Links that are remembered. Beyond, any link may be one.
const LINKS_MAX: usize = 1 << 20;
/// A record of the file: what it is, and twenty bytes of it.
const RECORD_BYTES: usize = 21;
const MADE: u8 = 1;
const OWN: u8 = 2;

/// A link: inode, and when it came to be, in seconds and nanoseconds (where that is not known, when its target was written). Not the device,
/// whose number is another one after a start of the machine. Of a user's own: the digest of where it was and where it led.
type Record = [u8; RECORD_BYTES];

/// Those of one tree, also of earlier lives.
#[derive(Debug)]
pub(super) struct MadeLinks {
    root: PathBuf,
    file: PathBuf,
    known: Mutex<BTreeSet<Record>>,
}

/// Where links of the user's own led that a commit takes away or replaces.
pub(super) type Leaving = HashSet<TreePath>;

impl MadeLinks {
    /// Those beneath `root` that are kept in `file`, to which new ones are added.
    pub fn load(root: &Path, file: &Path) -> Self {
        let bytes = std::fs::read(file).unwrap_or_else(|error| {
            if error.kind() != std::io::ErrorKind::NotFound {
                tracing::warn!(%error, "{}: which links results have made is not known any more", file.display());
            }
            Vec::new()
        });
        let known = bytes.as_chunks::<RECORD_BYTES>().0.iter().copied().collect();
        Self { root: root.to_owned(), file: file.to_owned(), known: Mutex::new(known) }
    }

    /// Looks at what will be taken away or replaced at these paths.
    pub fn leave<'a>(&self, paths: impl Iterator<Item = &'a TreePath>) -> Leaving {
        let (mut leaving, mut own) = (Leaving::new(), Vec::new());
        for path in paths {
            if let Some(led) = self.link(path).filter(|link| !self.knows(link)).and_then(|_| self.leads_to(path)) {
                own.push(own_record(path, &led));
                leaving.insert(led);
            }
        }
        self.remember(own);
        leaving
    }

    /// Something was put at these paths, links among it, by a commit that took these away.
    pub fn note<'a>(&self, paths: impl Iterator<Item = &'a TreePath>, leaving: &Leaving) {
        let made = paths.filter_map(|path| {
            let link = self.link(path)?;
            // One that leads down goes nowhere else, wherever it is moved.
            let led = self.leads_to(path)?;
            let is_own = leaving.contains(&led) || self.knows(&own_record(path, &led));
            (!is_own).then_some(link)
        });
        self.remember(made.collect());
    }

    /// Whether the link at `path` may be one of these.
    pub fn has(&self, path: &TreePath) -> bool {
        let is_full = lock(&self.known).len() >= LINKS_MAX;
        is_full || self.link(path).is_none_or(|link| self.knows(&link))
    }

    fn knows(&self, record: &Record) -> bool {
        lock(&self.known).contains(record)
    }

    fn remember(&self, mut records: Vec<Record>) {
        let mut known = lock(&self.known);
        records.retain(|record| known.len() < LINKS_MAX && known.insert(*record));
        if records.is_empty() {
            return;
        }
        let file = File::options().append(true).create(true).mode(0o600).open(&self.file);
        if let Err(error) = file.and_then(|mut file| file.write_all(records.as_flattened())) {
            tracing::warn!(%error, "{}: the links that a result has made are not remembered", self.file.display());
        }
    }

    /// Where the link at `path` leads, if it says more than a place beneath it.
    fn leads_to(&self, path: &TreePath) -> Option<TreePath> {
        let target = target_unseen(&self.on_disk(path))?;
        let is_down = !target.starts_with(b"/") && !target.split(|byte| *byte == b'/').any(|part| part == b"..");
        // What leads above the root leads nowhere.
        let led = || path.parent().and_then(|folder| folder.resolve(&target)).unwrap_or_else(TreePath::root);
        (!is_down).then(led)
    }

    fn on_disk(&self, path: &TreePath) -> PathBuf {
        path.components().fold(self.root.clone(), |at, name| at.join(OsStr::from_bytes(name)))
    }

    /// What is at `path`, if it is a link.
    fn link(&self, path: &TreePath) -> Option<Record> {
        let wanted = StatxFlags::INO | StatxFlags::TYPE | StatxFlags::BTIME | StatxFlags::MTIME;
        let stat: Statx = rustix::fs::statx(CWD, self.on_disk(path), AtFlags::SYMLINK_NOFOLLOW, wanted).ok()?;
        if FileType::from_raw_mode(stat.stx_mode.into()) != FileType::Symlink {
            return None;
        }
        let has_birth = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
        let time = if has_birth { stat.stx_btime } else { stat.stx_mtime };
        let mut record = [MADE; RECORD_BYTES];
        record[1..9].copy_from_slice(&stat.stx_ino.to_le_bytes());
        record[9..17].copy_from_slice(&time.tv_sec.to_le_bytes());
        record[17..].copy_from_slice(&time.tv_nsec.to_le_bytes());
        Some(record)
    }
}

fn own_record(path: &TreePath, led: &TreePath) -> Record {
    let digest = Digest::of(&[path.as_bytes(), led.as_bytes()].join(&0));
    let mut record = [OWN; RECORD_BYTES];
    record[1..].copy_from_slice(&digest.0[..RECORD_BYTES - 1]);
    record
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
        let (root, file) = (folder.path().join("root"), folder.path().join("links"));
        std::fs::create_dir(&root).expect("a folder");
        let links = MadeLinks::load(&root, &file);
        let has = |links: &MadeLinks, name: &str| links.has(&path(name));
        for (name, target) in [("own", "/srv"), ("made", "/srv"), ("up", "../x"), ("down", "sub/x")] {
            symlink(target, root.join(name)).expect("a link");
            assert!(!has(&links, &format!("/{name}")), "{name}");
        }
        std::fs::write(root.join("file"), "").expect("a file");
        let paths = ["/made", "/up", "/down", "/file", "/absent"].map(path);
        links.note(paths.iter(), &Leaving::new());
        for links in [&links, &MadeLinks::load(&root, &file)] {
            assert!(has(links, "/made") && has(links, "/up") && !has(links, "/own") && !has(links, "/down"));
        }
        std::fs::rename(root.join("made"), root.join("moved")).expect("moved");
        assert!(has(&links, "/moved"), "by another name, too");
    }

    #[test]
    fn a_link_of_the_user_s_that_is_moved_or_made_again_stays_the_user_s() {
        let folder = tempfile::tempdir().expect("a folder");
        let links = MadeLinks::load(folder.path(), &folder.path().join("links"));
        let on_disk = |name: &str| folder.path().join(name);
        symlink("/srv/data", on_disk("data")).expect("a link");
        let (dat, data) = (path("/dat"), path("/data"));
        // Moved.
        let leaving = links.leave([&data].into_iter());
        std::fs::rename(on_disk("data"), on_disk("dat")).expect("moved");
        links.note([&dat].into_iter(), &leaving);
        assert!(!links.has(&dat));
        // Taken away by one commit, and made again as it was by another; and then otherwise.
        links.leave([&dat].into_iter());
        std::fs::remove_file(on_disk("dat")).expect("removed");
        for (target, is_made) in [("/srv/data", false), ("/home/u/.config", true)] {
            let _ = std::fs::remove_file(on_disk("dat"));
            symlink(target, on_disk("dat")).expect("a link");
            links.note([&dat].into_iter(), &Leaving::new());
            assert_eq!(links.has(&dat), is_made, "{target}");
        }
        // What a result has made stays so by whatever it is moved.
        let leaving = links.leave([&dat].into_iter());
        std::fs::rename(on_disk("dat"), on_disk("data")).expect("moved");
        links.note([&data].into_iter(), &leaving);
        assert!(leaving.is_empty() && links.has(&data));
    }
}
