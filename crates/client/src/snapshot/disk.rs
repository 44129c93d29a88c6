//! Questions about the file system that only need an answer, not a binding: markers of projects, links followed.

use crate::policy::Lookup;
use base::TreePath;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ffi::CString;

/// Links that are followed on the way to one path, as in the kernel.
const LINKS_MAX: usize = 40;

/// The client's file system, looked at for one command: what was seen once is not looked at again.
#[derive(Debug, Default)]
pub struct Disk {
    targets: RefCell<HashMap<TreePath, Option<Vec<u8>>>>,
}

impl Lookup for Disk {
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
}

fn target_of(path: &TreePath) -> Option<Vec<u8>> {
    rustix::fs::readlinkat(CWD, path.as_bytes(), Vec::new()).ok().map(CString::into_bytes)
}

/// Goes to `path` as the kernel does, and shows each directory, link and file on the way, itself included. Returns
/// where it ends, links followed, even if nothing is there; `None` if links lead in circles.
pub(crate) fn walk(path: &TreePath, visit: &mut dyn FnMut(&TreePath)) -> Option<TreePath> {
    walk_by(path, visit, &mut target_of)
}

/// The same where `target_of` knows links.
fn walk_by(
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
