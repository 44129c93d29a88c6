//! Folders of an upper directory. A task makes as many as it likes, so only some are held open: the others are found again from the top.

use super::open_beneath;
use base::TreePath;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

/// Most folders of one upper directory that are held.
const HELD_MAX: usize = 512;
/// How folders are opened.
pub(crate) const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// One of them.
pub(crate) struct Folder {
    top: Rc<Top>,
    /// Where it is in the task's tree; `None`: it is the top.
    path: Option<TreePath>,
    held: Option<OwnedFd>,
}

struct Top {
    folder: OwnedFd,
    /// Where it is in the task's tree.
    at: TreePath,
    /// How many may still be held.
    left: Cell<usize>,
}

/// A folder that is open.
pub(crate) enum Opened<'a> {
    /// It is held.
    Held(BorrowedFd<'a>),
    /// It was opened again.
    Again(OwnedFd),
}

impl AsFd for Opened<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Held(held) => *held,
            Self::Again(again) => again.as_fd(),
        }
    }
}

impl Folder {
    /// The upper directory itself, and where it is in the task's tree.
    pub(crate) fn top(folder: OwnedFd, at: TreePath) -> Rc<Self> {
        let top = Rc::new(Top { folder, at, left: Cell::new(HELD_MAX) });
        Rc::new(Self { top, path: None, held: None })
    }

    /// The one at this path, in this one or further down, which was opened.
    pub(crate) fn beneath(&self, path: TreePath, opened: OwnedFd) -> Rc<Self> {
        let left = self.top.left.get();
        self.top.left.set(left.saturating_sub(1));
        Rc::new(Self { top: self.top.clone(), path: Some(path), held: Some(opened).filter(|_| left > 0) })
    }

    /// Opens it, if it is not held.
    pub(crate) fn open(&self) -> Result<Opened<'_>, Errno> {
        let relative = self.path.as_ref().and_then(|path| path.relative_to(&self.top.at));
        match (&self.held, relative) {
            (Some(held), _) => Ok(Opened::Held(held.as_fd())),
            (None, None) => Ok(Opened::Held(self.top.folder.as_fd())),
            (None, Some(relative)) => open_beneath(self.top.folder.as_fd(), relative, FLAGS).map(Opened::Again),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.held.is_some() {
            self.top.left.set(self.top.left.get() + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode};

    #[test]
    fn any_number_of_folders_takes_a_bounded_number_of_descriptors() {
        let place = tempfile::tempdir().expect("a folder");
        let at = TreePath::parse(b"/mnt").expect("a normal path");
        let top = Folder::top(rustix::fs::openat(CWD, place.path(), FLAGS, Mode::empty()).expect("opens"), at.clone());
        let make = |number: usize| {
            let name = number.to_string();
            std::fs::create_dir_all(place.path().join(&name).join("in")).expect("folders");
            let opened = rustix::fs::openat(top.open().expect("held"), &*name, FLAGS, Mode::empty());
            top.beneath(at.join(name.as_bytes()), opened.expect("opens"))
        };
        let all: Vec<Rc<Folder>> = (0..HELD_MAX * 3).map(make).collect();
        assert_eq!(all.iter().filter(|folder| folder.held.is_some()).count(), HELD_MAX);
        for folder in &all {
            let opened = folder.open().expect("opens");
            assert!(rustix::fs::statat(&opened, "in", rustix::fs::AtFlags::empty()).is_ok());
        }
        drop(all);
        assert!(make(0).held.is_some(), "there is room again");
    }
}
