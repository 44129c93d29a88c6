//! Which file systems of this machine clone files (`FICLONE`): tried once on each, with files that have no name.

use base::TreePath;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Mutex;
use wire::lock;

/// File systems that are kept in mind.
const DEVICES_MAX: usize = 64;

/// What is known, by device number.
#[derive(Debug, Default)]
pub struct Clones(Mutex<HashMap<u64, bool>>);

impl Clones {
    /// Whether the file system of a folder clones files; `false` if nobody can tell.
    pub fn of(&self, folder: &TreePath) -> bool {
        let Ok(found) = rustix::fs::stat(folder.as_bytes()) else { return false };
        if let Some(known) = lock(&self.0).get(&found.st_dev) {
            return *known;
        }
        let Some(tried) = clones(folder) else { return false };
        let mut known = lock(&self.0);
        if known.len() >= DEVICES_MAX {
            known.clear();
        }
        known.insert(found.st_dev, tried);
        tried
    }
}

/// `None`: it cannot be tried there.
fn clones(folder: &TreePath) -> Option<bool> {
    let nameless = || -> Option<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        rustix::fs::open(folder.as_bytes(), flags, Mode::RUSR | Mode::WUSR).ok()
    };
    match rustix::fs::ioctl_ficlone(nameless()?, nameless()?) {
        Ok(()) => Some(true),
        Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL | Errno::NOSYS | Errno::XDEV) => Some(false),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_in_memory_does_not_clone_and_leaves_no_file() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = TreePath::parse(folder.path().as_os_str().as_encoded_bytes()).unwrap();
        let clones = Clones::default();
        assert!(!clones.of(&path));
        assert_eq!(lock(&clones.0).len(), 1);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        assert!(!clones.of(&TreePath::parse(b"/nothing/of/this/name").unwrap()));
    }
}
