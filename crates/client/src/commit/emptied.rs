//! Removing a tree, by held directories.

use super::stage::names_in;
use super::tree::{self, is_writable, os};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Removes `name` in `held` with all beneath, following no link; nothing there is fine.
pub(crate) fn remove_all(held: impl AsFd, name: &[u8]) -> io::Result<()> {
    match rustix::fs::unlinkat(&held, os(name), AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    // Without recursion, so that depth costs memory and not stack: directories are opened one by one and emptied.
    let mut open = vec![Emptied::open(held.as_fd(), name)?];
    while let Some(last) = open.last_mut() {
        match last.directories.pop() {
            Some(beneath) => {
                let next = Emptied::open(last.held.as_fd(), &beneath)?;
                open.push(next);
            }
            None => {
                let emptied = open.pop().expect("the loop has just seen it");
                let parent = open.last().map_or(held.as_fd(), |parent| parent.held.as_fd());
                rustix::fs::unlinkat(parent, os(&emptied.name), AtFlags::REMOVEDIR)?;
            }
        }
    }
    Ok(())
}

/// A directory that is being removed: its files are gone, these directories are left.
struct Emptied {
    held: OwnedFd,
    name: Vec<u8>,
    directories: Vec<Vec<u8>>,
}

impl Emptied {
    fn open(parent: std::os::fd::BorrowedFd<'_>, name: &[u8]) -> io::Result<Self> {
        let held = open_to_empty(parent, name)?;
        let mut directories = Vec::new();
        for name in names_in(&held)? {
            match rustix::fs::unlinkat(&held, os(&name), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::ISDIR | Errno::PERM) => directories.push(name),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Self { held, name: name.to_vec(), directories })
    }
}

/// Opens a directory that is to be emptied, and makes it writable if there is something in it.
fn open_to_empty(parent: std::os::fd::BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let held = match tree::open_beneath(parent, name, flags) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            rustix::fs::chmodat(parent, os(name), Mode::from_raw_mode(0o700), AtFlags::empty())?;
            tree::open_beneath(parent, name, flags)?
        }
        other => other?,
    };
    if !is_writable(&held) && !names_in(&held)?.is_empty() {
        rustix::fs::fchmod(&held, Mode::from_raw_mode(0o700))?;
    }
    Ok(held)
}
