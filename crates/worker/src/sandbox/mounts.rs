//! The client's mounts in a task's root. Each is an overlay of its own on its part of the mirror, so that the kernel itself
//! tells one file system from the next: other device numbers, EXDEV between them, EBUSY for a mount point, EROFS and
//! EACCES by the mount's flags.
//!
//! The tree is the client's: no path in it is followed through a link.

use super::rootfs::{Layers, Root, escape, filler, mount_overlay};
use base::Mount;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where the layers of the mount with this index are, in a task's folder.
pub fn folder(scratch: &Path, index: usize) -> PathBuf {
    scratch.join(format!("mount-{index}"))
}

/// Adds all mounts of a root that was just made, held as `made`. The working directory is another afterwards.
pub fn add_all(made: BorrowedFd<'_>, root: &Root<'_>) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let lower = rustix::fs::open(root.lower, flags, Mode::empty())?;
    for (index, mount) in root.mounts.iter().enumerate().filter(|(_, mount)| !mount.at.is_root()) {
        let node = open(lower.as_fd(), mount, OFlags::PATH | OFlags::NOFOLLOW)?;
        let found = rustix::fs::fstat(&node)?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => add_folder(made, lower.as_fd(), index, mount, root)?,
            FileType::RegularFile => add_file(made, mount)?,
            // The client says that a link, or nothing of a file system's, is a mount.
            _ => return Err(Errno::LOOP),
        }
    }
    Ok(())
}

/// The flags of a mount in a task's root: no set-user-id programs and no devices work in a guest.
pub fn flags_of(mount: &Mount) -> MountFlags {
    let flag = |is_set, flag| if is_set { flag } else { MountFlags::empty() };
    let flags = flag(mount.read_only, MountFlags::RDONLY) | flag(mount.no_exec, MountFlags::NOEXEC);
    flags | MountFlags::NOSUID | MountFlags::NODEV
}

fn open(root: BorrowedFd<'_>, mount: &Mount, flags: OFlags) -> Result<OwnedFd, Errno> {
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let relative = OsStr::from_bytes(&mount.at.as_bytes()[1..]);
    rustix::fs::openat2(root, relative, flags | OFlags::CLOEXEC, Mode::empty(), within)
}

/// A name for a folder that is held, without a path of the worker's.
pub fn held(folder: &OwnedFd) -> Vec<u8> {
    format!("/proc/self/fd/{}", folder.as_raw_fd()).into_bytes()
}

fn add_folder(
    made: BorrowedFd<'_>,
    lower: BorrowedFd<'_>,
    index: usize,
    mount: &Mount,
    root: &Root<'_>,
) -> Result<(), Errno> {
    let folder = folder(root.scratch, index);
    let (upper, work) = (folder.join("upper"), folder.join("work"));
    for path in [&folder, &upper, &work] {
        rustix::fs::mkdir(path, Mode::RWXU)?;
    }
    let below = open(lower, mount, OFlags::RDONLY | OFlags::DIRECTORY)?;
    take_over(&upper, &below)?;
    let below = held(&below);
    let filler = filler(root);
    let filler = filler.as_ref().map(held);
    let layers = match mount.read_only {
        false => Layers { lower: below, filler, upper: Some((upper, work)) },
        // Without an upper layer there must be two others.
        true => Layers { lower: [below, b":".to_vec(), escape(work.as_os_str())].concat(), filler: None, upper: None },
    };
    rustix::process::fchdir(open(made, mount, OFlags::PATH | OFlags::DIRECTORY)?)?;
    mount_overlay(&layers, ".", flags_of(mount), root.privileged)
}

/// Gives a new upper layer the attributes of the folder that it will cover: an overlay's root has those of its upper layer.
pub fn take_over(upper: &Path, below: &OwnedFd) -> Result<(), Errno> {
    let found = rustix::fs::fstat(below)?;
    let held = rustix::fs::open(upper, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    // Most have none. Room for the longest there can be takes longer to make than the mount.
    let mut names = vec![0u8; rustix::fs::flistxattr_query(below).unwrap_or(0)];
    let count = rustix::fs::flistxattr(below, &mut names[..]).unwrap_or(0);
    let is_own = |name: &&[u8]| name.starts_with(b"user.") && !name.starts_with(b"user.overlay.");
    for name in names[..count].split(|byte| *byte == 0).filter(is_own) {
        let name = OsStr::from_bytes(name);
        let mut value = vec![0u8; rustix::fs::fgetxattr_query(below, name)?];
        let len = rustix::fs::fgetxattr(below, name, &mut value[..])?;
        rustix::fs::fsetxattr(&held, name, &value[..len], XattrFlags::empty())?;
    }
    let (uid, gid) = (rustix::fs::Uid::from_raw(found.st_uid), rustix::fs::Gid::from_raw(found.st_gid));
    rustix::fs::fchown(&held, Some(uid), Some(gid))?;
    rustix::fs::fchmod(&held, Mode::from_raw_mode(found.st_mode & 0o7777))?;
    let times = Timestamps {
        last_access: Timespec { tv_sec: found.st_atime, tv_nsec: found.st_atime_nsec as _ },
        last_modification: Timespec { tv_sec: found.st_mtime, tv_nsec: found.st_mtime_nsec as _ },
    };
    rustix::fs::futimens(&held, &times)
}

/// A single file that is a mount stays a file of the overlay that it is in, which nobody can rename or remove.
fn add_file(made: BorrowedFd<'_>, mount: &Mount) -> Result<(), Errno> {
    let file = open(made, mount, OFlags::PATH | OFlags::NOFOLLOW)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::mount::mount_bind(path.as_str(), path.as_str())?;
    // The name leads to the new mount only now.
    let file = open(made, mount, OFlags::PATH | OFlags::NOFOLLOW)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::mount::mount_remount(path.as_str(), MountFlags::BIND | flags_of(mount), "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_layer_has_what_its_folder_has() {
        let scratch = tempfile::tempdir().expect("a folder");
        let (upper, lower) = (scratch.path().join("upper"), scratch.path().join("lower"));
        let set = |name: &str, value: &[u8]| rustix::fs::setxattr(&lower, name, value, XattrFlags::empty());
        [&upper, &lower].into_iter().for_each(|folder| std::fs::create_dir(folder).expect("made"));
        set("user.one", b"value").expect("set");
        set("user.empty", b"").expect("set");
        set("user.overlay.x", b"its own").expect("set");
        rustix::fs::chmod(&lower, Mode::from_raw_mode(0o1751)).expect("set");
        let below = std::fs::File::open(&lower).expect("opened").into();
        take_over(&upper, &below).expect("taken over");
        let value = |name: &str| {
            let mut bytes = [0; 64];
            rustix::fs::getxattr(&upper, name, &mut bytes[..]).map(|len| bytes[..len].to_vec())
        };
        assert_eq!(value("user.one"), Ok(b"value".to_vec()));
        assert_eq!(value("user.empty"), Ok(Vec::new()));
        assert!(value("user.overlay.x").is_err());
        assert_eq!(rustix::fs::stat(&upper).expect("is there").st_mode & 0o7777, 0o1751);
    }
}
