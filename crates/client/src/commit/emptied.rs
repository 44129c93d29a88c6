//! Removing a tree, by held directories.

use super::stage::names_in;
use super::tree::{self, is_writable, os};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Descriptors that are held of one tree: what is further up in a deeper one is opened again on the way back.
const HELD_MAX: usize = 64;

/// Removes `name` in `held` with all beneath, following no link; nothing there is fine.
pub(crate) fn remove_all(held: impl AsFd, name: &[u8]) -> io::Result<()> {
    match rustix::fs::unlinkat(&held, os(name), AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    // Without recursion, so that depth costs memory, and neither stack nor descriptors: directories are opened one by one and emptied.
    let mut open = vec![Emptied::open(held.as_fd(), name)?];
    while let Some(last) = open.last_mut() {
        match last.directories.pop() {
            Some(beneath) => {
                let next = Emptied::open(last.held()?, &beneath)?;
                open.push(next);
                if let Some(far) = open.len().checked_sub(HELD_MAX + 1) {
                    open[far].held = None;
                }
            }
            None => {
                let emptied = open.pop().expect("the loop has just seen it");
                let parent = match open.last_mut() {
                    Some(parent) => {
                        parent.come_back(&emptied)?;
                        parent.held()?
                    }
                    None => held.as_fd(),
                };
                rustix::fs::unlinkat(parent, os(&emptied.name), AtFlags::REMOVEDIR)?;
            }
        }
    }
    Ok(())
}

/// A directory that is being removed: its files are gone, these directories are left.
struct Emptied {
    /// `None`: it was let go of.
    held: Option<OwnedFd>,
    identity: (u64, u64),
    name: Vec<u8>,
    directories: Vec<Vec<u8>>,
}

impl Emptied {
    fn open(parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<Self> {
        let held = open_to_empty(parent, name)?;
        let mut directories = Vec::new();
        for name in names_in(&held)? {
            match rustix::fs::unlinkat(&held, os(&name), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::ISDIR | Errno::PERM) => directories.push(name),
                Err(error) => return Err(error.into()),
            }
        }
        let identity = identity(&held)?;
        Ok(Self { held: Some(held), identity, name: name.to_vec(), directories })
    }

    fn held(&self) -> io::Result<BorrowedFd<'_>> {
        self.held.as_ref().map(AsFd::as_fd).ok_or_else(|| io::Error::other("a directory was let go of too early"))
    }

    /// Holds it again, from one that was in it.
    fn come_back(&mut self, beneath: &Self) -> io::Result<()> {
        if self.held.is_some() {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let above = rustix::fs::openat(beneath.held()?, c"..", flags, Mode::empty())?;
        if identity(&above)? != self.identity {
            return Err(io::Error::other("a directory was moved while it was removed"));
        }
        self.held = Some(above);
        Ok(())
    }
}

fn identity(held: &OwnedFd) -> io::Result<(u64, u64)> {
    let found = rustix::fs::fstat(held)?;
    Ok((found.st_dev, found.st_ino))
}

/// Opens a directory that is to be emptied, and makes it writable if there is something in it.
fn open_to_empty(parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Resource, Rlimit};
    use std::fs::File;

    /// Far more than the process has descriptors. The kernel takes longer for each the deeper it is: 25,000 would be a minute.
    const LEVELS: usize = 6_000;
    const DESCRIPTORS: u64 = 256;
    const STACK_BYTES: usize = 256 << 10;
    /// Set in the process that has so few.
    const AGAIN: &str = "GLEANER_TEST_FEW_DESCRIPTORS";

    #[test]
    fn a_tree_of_any_depth_is_removed() {
        if std::env::var_os(AGAIN).is_none() {
            let (own, thread) = (std::env::current_exe().unwrap(), std::thread::current());
            let arguments = [thread.name().unwrap(), "--exact", "--nocapture"];
            let again = std::process::Command::new(own).args(arguments).env(AGAIN, "1").output().unwrap();
            let said = String::from_utf8_lossy(&again.stdout);
            assert!(again.status.success() && said.contains("1 passed"), "{again:?}");
            return;
        }
        let few = Rlimit { current: Some(DESCRIPTORS), maximum: Some(DESCRIPTORS) };
        rustix::process::setrlimit(Resource::Nofile, few).unwrap();
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let top = File::open(folder.path()).unwrap();
        let mut held = OwnedFd::from(top.try_clone().unwrap());
        for level in 0..LEVELS {
            rustix::fs::mkdirat(&held, "d", Mode::RWXU).unwrap();
            // Some have more than one.
            if level % 1000 == 0 {
                rustix::fs::mkdirat(&held, "e", Mode::RWXU).unwrap();
            }
            held = rustix::fs::openat(&held, "d", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
        drop(rustix::fs::openat(&held, "f", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap());
        // With so little of a stack a call within a call for each level would not come to its end.
        std::thread::scope(|scope| {
            let small = std::thread::Builder::new().stack_size(STACK_BYTES);
            let removing = small.spawn_scoped(scope, || remove_all(&top, b"d")).unwrap();
            removing.join().unwrap().unwrap();
        });
        remove_all(&top, b"e").unwrap();
        remove_all(&top, b"none").unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
