//! The task's root: an overlay on the mirror, with `/proc`, `/sys` and `/dev` of its own, and nothing else.
//!
//! Where the client's tree lacks one of the three folders it is made in the upper layer; the delta ignores the three
//! paths and all beneath them, so that this never shows.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount};

use super::order::Failure;
use super::{mounts, sys};
use base::Mount;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Overlay options as root: all that keeps renames, hard links and inode numbers as they are on one file system. With
/// `metacopy` a file of which the task changes only attributes or names is not read.
const OPTIONS: [&str; 3] = [
    ",redirect_dir=on,index=on,xino=on,metacopy=on,volatile",
    ",redirect_dir=on,index=on,xino=on,metacopy=off,volatile",
    ",redirect_dir=on,xino=on,metacopy=off,volatile",
];
/// What resolvers a task with a network has, in the folder of mount templates.
pub const RESOLVERS: &str = "resolv.conf";
/// An empty folder of a template of `/dev`, which a task covers.
pub const EMPTY: &str = "shm";
/// At their end: nothing of the upper layer is flushed.
const VOLATILE: &str = ",volatile";
/// Without root.
const OPTIONS_UNPRIVILEGED: [&str; 2] = [",userxattr,volatile", ",userxattr"];

/// What a root is made of.
#[derive(Debug)]
pub struct Root<'a> {
    /// The lower layer.
    pub lower: &'a Path,
    /// Holds `upper`, `work` and `root`.
    pub scratch: &'a Path,
    /// The client's mounts.
    pub mounts: &'a [Mount],
    /// The template of `/dev`, and whether it has mounts beneath it.
    pub devices: &'a (PathBuf, bool),
    /// The template of `/sys`.
    pub system: Option<&'a Path>,
    /// What its resolver goes by, if it may use the network.
    pub resolvers: Option<&'a Path>,
    /// Where the guest's ids start.
    pub id_base: u32,
    /// Most bytes in `/dev/shm`; `None`: what the kernel gives.
    pub shared_bytes_max: Option<u64>,
    /// Whether the worker is root.
    pub privileged: bool,
}

/// Builds the root in this process's own mount namespace and moves into it. Afterwards nothing else can be seen.
pub fn enter(root: &Root<'_>) -> Result<(), Failure> {
    let step = |step: &'static str| move |errno: Errno| Failure::new(step, errno);
    rustix::process::chdir(root.scratch).map_err(step("scratch folder"))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let below = rustix::fs::open(root.lower, flags, Mode::empty()).map_err(step("overlay"))?;
    // Without privileges the only owner is the guest's user, and a mode could keep the worker itself out.
    if root.privileged {
        mounts::take_over(Path::new("upper"), &below).map_err(step("overlay"))?;
    }
    let upper = Some((PathBuf::from("upper"), PathBuf::from("work")));
    let filler = filler(root);
    // Every guest can read the options of its mounts: they have no path of the worker's.
    let layers = Layers { lower: mounts::held(&below), filler: filler.as_ref().map(mounts::held), upper };
    let plain = MountFlags::NOSUID | MountFlags::NODEV;
    mount_overlay(&layers, "root", plain, root.privileged).map_err(step("overlay"))?;
    rustix::process::chdir("root").map_err(step("overlay"))?;
    if !root.mounts.is_empty() {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let made = rustix::fs::open(".", flags, Mode::empty()).map_err(step("overlay"))?;
        mounts::add_all(made.as_fd(), root).map_err(step(super::STEP_MOUNTS))?;
        rustix::process::fchdir(&made).map_err(step("overlay"))?;
    }
    if let Some(resolvers) = root.resolvers {
        show_resolvers(resolvers).map_err(step(super::STEP_NETWORK))?;
    }

    make_folder("proc").map_err(step("/proc"))?;
    mount("proc", "proc", "proc", plain | MountFlags::NOEXEC, None).map_err(step("/proc"))?;
    if let Some(system) = root.system {
        make_folder("sys").map_err(step("/sys"))?;
        rustix::mount::mount_bind(system, "sys").map_err(step("/sys"))?;
    }
    make_folder("dev").map_err(step("/dev"))?;
    let (devices, nested) = root.devices;
    let bind = if *nested { rustix::mount::mount_bind_recursive } else { rustix::mount::mount_bind };
    bind(devices, Path::new("dev")).map_err(step("/dev"))?;
    let (id, size) = (root.id_base, root.shared_bytes_max.map_or(String::new(), |bytes| format!(",size={bytes}")));
    let options = text(format!("mode=1777,uid={id},gid={id}{size}"));
    mount("shm", "dev/shm", "tmpfs", plain, Some(&*options)).map_err(step("/dev/shm"))?;
    let options = text(format!("newinstance,ptmxmode=0666,mode=0620,gid={}", id + 5));
    let silent = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount("devpts", "dev/pts", "devpts", silent, Some(&*options)).map_err(step("/dev/pts"))?;

    if let Some(mount) = root.mounts.iter().find(|mount| mount.at.is_root()) {
        let flags = MountFlags::BIND | mounts::flags_of(mount);
        rustix::mount::mount_remount(".", flags, "").map_err(step(super::STEP_MOUNTS))?;
    }

    // The new root covers the old one, and the old one, then on top, is detached.
    rustix::process::pivot_root(".", ".").map_err(step("pivot_root"))?;
    rustix::mount::unmount(".", UnmountFlags::DETACH).map_err(step("pivot_root"))?;
    rustix::process::chdir("/").map_err(step("pivot_root"))
}

/// Covers the client's list of resolvers, wherever links lead to it: these are asked from elsewhere.
fn show_resolvers(resolvers: &Path) -> Result<(), Errno> {
    let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(CWD, "etc/resolv.conf", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), within) {
        Ok(file) => rustix::mount::mount_bind(resolvers, format!("/proc/self/fd/{}", file.as_raw_fd()).as_str()),
        // Its client has none, and knows hosts in another way.
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
        Err(error) => Err(error),
    }
}

/// An empty folder of a file system of its own, to be the lowest layer of overlays. The kernel tells the layers' file systems apart by the
/// highest bits of inode numbers: the second of two has the very highest, and programs that keep such a number with a sign take it for a
/// negative one. Of three it has the one below.
pub fn filler(root: &Root<'_>) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(root.devices.0.join(EMPTY), flags, Mode::empty()).ok()?;
    // Of two lower layers without one the kernel cannot find the files again that were copied up.
    sys::has_file_system_id(&folder).then_some(folder)
}

/// What an overlay is made of.
#[derive(Debug)]
pub struct Layers {
    /// The lower layers, escaped.
    pub lower: Vec<u8>,
    /// One below these: [`filler`].
    pub filler: Option<Vec<u8>>,
    /// The upper layer and its work folder; `None`: it is read-only.
    pub upper: Option<(PathBuf, PathBuf)>,
}

/// Mounts an overlay. Whatever its lower layer holds: no set-user-id programs and no devices work in a guest, as `flags` say.
pub fn mount_overlay(layers: &Layers, at: &str, flags: MountFlags, privileged: bool) -> Result<(), Errno> {
    let mut last = Errno::INVAL;
    let all: &[&str] = match (&layers.upper, privileged) {
        (Some(_), true) => &OPTIONS,
        (Some(_), false) => &OPTIONS_UNPRIVILEGED,
        (None, true) => &[",xino=on"],
        (None, false) => &[",userxattr"],
    };
    // What is in memory is not written to a disk anyway, and what an overlay makes to be reminded of that has to be taken away again.
    let in_memory = layers.upper.as_ref().is_some_and(|(upper, _)| is_in_memory(upper));
    let fillers = [layers.filler.as_ref(), None];
    for (filler, options) in fillers.into_iter().flat_map(|filler| all.iter().map(move |options| (filler, options))) {
        let options = if in_memory { options.strip_suffix(VOLATILE).unwrap_or(options) } else { options };
        let mut data = [b"lowerdir=", &layers.lower[..]].concat();
        filler.into_iter().for_each(|filler| data.extend([b":", &filler[..]].concat()));
        if let Some((upper, work)) = &layers.upper {
            data.extend([b",upperdir=", &escape(upper.as_os_str())[..]].concat());
            data.extend([b",workdir=", &escape(work.as_os_str())[..]].concat());
        }
        data.extend(options.as_bytes());
        let data = CString::new(data).map_err(|_| Errno::INVAL)?;
        match mount("gleaner", at, "overlay", flags, Some(&*data)) {
            Ok(()) => return Ok(()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn is_in_memory(folder: &Path) -> bool {
    rustix::fs::statfs(folder).is_ok_and(|found| found.f_type == libc::TMPFS_MAGIC)
}

/// The overlay's options are separated by commas, its layers by colons.
pub fn escape(path: &OsStr) -> Vec<u8> {
    let mut escaped = Vec::new();
    for byte in path.as_bytes() {
        if matches!(byte, b'\\' | b':' | b',') {
            escaped.push(b'\\');
        }
        escaped.push(*byte);
    }
    escaped
}

/// Sees to it that `name` in the new root is a folder, and no link to elsewhere: the tree is the client's.
fn make_folder(name: &str) -> Result<(), Errno> {
    match rustix::fs::statat(CWD, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Directory => Ok(()),
        Ok(_) => Err(Errno::NOTDIR),
        Err(Errno::NOENT) => rustix::fs::mkdirat(CWD, name, Mode::from_raw_mode(0o755)),
        Err(error) => Err(error),
    }
}

fn text(text: String) -> CString {
    CString::new(text).expect("built from numbers and words without a NUL")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_escaped() {
        assert_eq!(escape(OsStr::new("/a:b,c\\d")), b"/a\\:b\\,c\\\\d");
    }
}
