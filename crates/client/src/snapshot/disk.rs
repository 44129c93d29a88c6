//! Questions about the file system that only need an answer, not a binding: markers of projects, links followed.

use crate::commit::Committer;
use crate::policy::{Lookup, secret_places};
use base::TreePath;
use rustix::fs::{AtFlags, CWD, Dir, DirEntry, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Links that are followed on the way to one path, as in the kernel.
const LINKS_MAX: usize = 40;
/// Bytes of a small file that are read.
const TEXT_BYTES_MAX: u64 = 64 << 10;
/// Names of one directory.
const NAMES_MAX: usize = 20_000;
/// For how long it is relied on where links at the places of secrets lead.
const SECRETS_AGE_MAX: Duration = Duration::from_secs(1);

/// Of the last home that was asked about: where links at the places of its secrets lead, and when that was looked up.
static SECRETS: Mutex<Option<(TreePath, Instant, Vec<TreePath>)>> = Mutex::new(None);

/// Opens the file or folder at `path` for reading. Reading does not move the time of the last access, where this user may ask for
/// that. A pipe is not opened: whoever waits to write into it would take this for its reader.
pub(crate) fn open_unseen(path: &Path) -> rustix::io::Result<File> {
    let kind = FileType::from_raw_mode(rustix::fs::stat(path)?.st_mode);
    if !matches!(kind, FileType::RegularFile | FileType::Directory) {
        return Err(Errno::INVAL);
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    super::unseen(|more| rustix::fs::openat(CWD, path, flags | more, Mode::empty())).map(File::from)
}

/// The names in a folder, with what they are, looked at as by [`open_unseen`]; none if it cannot be listed.
pub(crate) fn entries_unseen(folder: &Path) -> impl Iterator<Item = (Vec<u8>, FileType)> {
    let names = open_unseen(folder).and_then(Dir::new);
    let entry = |entry: DirEntry| (entry.file_name().to_bytes().to_vec(), entry.file_type());
    names.into_iter().flatten().flatten().map(entry).filter(|(name, _)| name != b"." && name != b"..")
}

/// The client's file system, looked at for one command: what was seen once is not looked at again.
#[derive(Default)]
pub struct Disk<'a> {
    targets: RefCell<HashMap<TreePath, Option<Vec<u8>>>>,
    /// Who knows which links results have made; nobody: any may be one.
    committer: Option<&'a Committer>,
}

impl<'a> Disk<'a> {
    /// Which tells links that results have made from the user's own.
    pub fn of(committer: &'a Committer) -> Self {
        Self { committer: Some(committer), ..Self::default() }
    }
}

impl Lookup for Disk<'_> {
    fn may_be_of_result(&self, path: &TreePath) -> bool {
        self.committer.is_none_or(|committer| committer.has_made_link(path))
    }

    fn has_any(&self, directory: &TreePath, names: &[&str]) -> bool {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(directory) = rustix::fs::openat(CWD, directory.as_bytes(), flags, Mode::empty()) else { return false };
        let there =
            |name: &&str| rustix::fs::statx(&directory, *name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE).is_ok();
        names.iter().any(there)
    }

    fn physical(&self, path: &TreePath) -> Option<TreePath> {
        let mut targets = self.targets.borrow_mut();
        walk_by(path, &mut |_| {}, &mut |at| targets.entry(at.clone()).or_insert_with(|| target_of(at)).clone())
    }

    fn links_to(&self, path: &TreePath) -> Vec<TreePath> {
        let (mut targets, mut links) = (self.targets.borrow_mut(), Vec::new());
        walk_by(path, &mut |_| {}, &mut |at| {
            let target = targets.entry(at.clone()).or_insert_with(|| target_of(at)).clone();
            links.extend(target.is_some().then(|| at.clone()));
            target
        });
        links
    }

    fn text(&self, path: &TreePath) -> Option<Vec<u8>> {
        // A pipe must not hold us up.
        let file = open_unseen(Path::new(std::ffi::OsStr::from_bytes(path.as_bytes()))).ok()?;
        file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let mut text = Vec::new();
        file.take(TEXT_BYTES_MAX).read_to_end(&mut text).ok()?;
        Some(text)
    }

    fn names(&self, directory: &TreePath) -> Vec<Vec<u8>> {
        let entries = entries_unseen(Path::new(std::ffi::OsStr::from_bytes(directory.as_bytes())));
        entries.take(NAMES_MAX).map(|(name, _)| name).collect()
    }

    fn secrets(&self, home: &TreePath) -> Vec<TreePath> {
        let mut known = SECRETS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, at, secrets)) = &*known
            && of == home
            && at.elapsed() < SECRETS_AGE_MAX
        {
            return secrets.clone();
        }
        let (mut places, folders) = secret_places(home);
        for folder in folders {
            places.extend(self.names(&folder).iter().map(|name| folder.join(name)));
        }
        let led = |place: &TreePath| target_of(place).and_then(|_| walk(place, &mut |_| {}));
        let mut secrets: Vec<TreePath> = places.iter().filter_map(led).collect();
        secrets.sort();
        secrets.dedup();
        *known = Some((home.clone(), Instant::now(), secrets.clone()));
        secrets
    }

    fn may_be_closed(&self, path: &TreePath) -> bool {
        let Ok(stat) = rustix::fs::stat(path.as_bytes()) else { return false };
        FileType::from_raw_mode(stat.st_mode).is_dir() || stat.st_mode & 0o004 == 0
    }
}

/// Where the link at `path` leads, as it is written; `None` if it is none.
pub(crate) fn target_of(path: &TreePath) -> Option<Vec<u8>> {
    rustix::fs::readlinkat(CWD, path.as_bytes(), Vec::new()).ok().map(CString::into_bytes)
}

/// Goes to `path` as the kernel does, and shows each directory, link and file on the way, itself included. Returns
/// where it ends, links followed, even if nothing is there; `None` if links lead in circles.
pub(crate) fn walk(path: &TreePath, visit: &mut dyn FnMut(&TreePath)) -> Option<TreePath> {
    walk_by(path, visit, &mut target_of)
}

/// The same where `target_of` knows links.
pub(crate) fn walk_by(
    path: &TreePath,
    visit: &mut dyn FnMut(&TreePath),
    target_of: &mut dyn FnMut(&TreePath) -> Option<Vec<u8>>,
) -> Option<TreePath> {
    let mut at = TreePath::root();
    visit(&at);
    let mut rest: VecDeque<Vec<u8>> = path.components().map(<[u8]>::to_vec).collect();
    let mut links = 0;
    while let Some(name) = rest.pop_front() {
        if name == b".." {
            at = at.parent().unwrap_or(at);
            continue;
        }
        if !base::path::is_plain_name(&name) {
            return None;
        }
        let next = at.join(&name);
        visit(&next);
        let Some(target) = target_of(&next) else {
            at = next;
            continue;
        };
        links += 1;
        if links > LINKS_MAX {
            return None;
        }
        if target.starts_with(b"/") {
            at = TreePath::root();
        }
        let parts = target.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
        for part in parts.rev() {
            rest.push_front(part.to_vec());
        }
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_followed_and_shown() {
        let folder = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(folder.path()).unwrap();
        let root = TreePath::parse(root.as_os_str().as_bytes()).unwrap();
        std::fs::create_dir_all(folder.path().join("real/deep")).unwrap();
        std::fs::write(folder.path().join("real/file"), b"").unwrap();
        symlink("real/./deep", folder.path().join("link")).unwrap();
        symlink("link/../file", folder.path().join("second")).unwrap();
        symlink("circle", folder.path().join("circle")).unwrap();
        let mut seen = Vec::new();
        let end = walk(&root.join(b"second"), &mut |path| seen.push(path.clone()));
        assert_eq!(end, Some(root.resolve(b"real/file").unwrap()));
        for name in ["second", "link", "real", "real/deep", "real/file"] {
            assert!(seen.contains(&root.resolve(name.as_bytes()).unwrap()), "{name}");
        }
        let disk = Disk::default();
        assert_eq!(disk.physical(&root.resolve(b"link/none").unwrap()), root.resolve(b"real/deep/none"));
        assert_eq!(disk.physical(&root.join(b"circle")), None);
        assert!(disk.has_any(&root, &["nothing", "real"]));
        assert!(!disk.has_any(&root, &["nothing"]));
    }
}
