//! Subvolumes of btrfs: file systems of their own to a program (another device, no links or renames across), and in no list of mounts.

use super::{Mount, Places, holder};
use base::TreePath;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io;
use rustix::ioctl::{Getter, Updater, ioctl, opcode};
use std::ffi::CStr;

/// Subvolumes that one tells of in an answer.
const ANSWER_MAX: usize = 255;
/// Answers that are asked for; what is beyond is not shown.
const ANSWERS_MAX: usize = 4;
/// How deep subvolumes are looked for in each other.
const DEPTH_MAX: usize = 8;
const BTRFS: u8 = 0x94;
const READ_ONLY: u64 = 1 << 1;

/// `struct btrfs_ioctl_get_subvol_rootref_args`
#[repr(C)]
struct References {
    least: u64,
    found: [Reference; ANSWER_MAX],
    count: u8,
    unused: [u8; 7],
}

/// A subvolume, and the folder that it is in.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Reference {
    tree: u64,
    folder: u64,
}

/// `struct btrfs_ioctl_ino_lookup_user_args`
#[repr(C)]
struct Name {
    reference: [u64; 2],
    name: [u8; 256],
    /// Of the folder, from that which is asked; empty or with a slash behind.
    path: [u8; 3824],
}

/// The subvolumes of these places that are not mounts themselves: those beneath, and the one that a place is in.
pub(super) fn of(mounts: &[Mount], places: &Places<'_>) -> Vec<base::Mount> {
    let mut found: Vec<base::Mount> = Vec::new();
    for place in places.trees {
        let Some(holder) = holder(mounts, place).filter(|holder| holder.kind == b"btrfs") else { continue };
        let shown = |(at, read_only)| base::Mount {
            at,
            read_only: read_only || holder.has("ro"),
            no_exec: holder.has("noexec"),
        };
        found.extend(around(place).filter(|(at, _)| at != &holder.at && at.is_within(&holder.at)).map(shown));
        let mut beneath = Vec::new();
        look(place, DEPTH_MAX, &mut beneath);
        found.extend(beneath.into_iter().map(shown));
    }
    found.retain(|subvolume| mounts.iter().all(|mount| mount.at != subvolume.at));
    found
}

/// The subvolume that a folder is in, and whether it is read-only.
fn around(place: &TreePath) -> Option<(TreePath, bool)> {
    let device = |path: &TreePath| rustix::fs::stat(path.as_bytes()).ok().map(|found| found.st_dev);
    let own = device(place)?;
    let mut top = place.clone();
    while let Some(parent) = top.parent().filter(|parent| device(parent) == Some(own)) {
        top = parent;
    }
    let read_only = is_read_only(&open(&top)?);
    Some((top, read_only))
}

/// The subvolumes beneath a folder.
fn look(folder: &TreePath, depth: usize, found: &mut Vec<(TreePath, bool)>) {
    let Some(opened) = open(folder) else { return };
    let mut least = 0;
    for _ in 0..ANSWERS_MAX {
        let Ok(references) = references(&opened, least) else { return };
        let few = &references.found[..usize::from(references.count)];
        for path in few.iter().filter_map(|reference| path_of(&opened, *reference)) {
            let path = [folder.as_bytes().strip_suffix(b"/").unwrap_or(folder.as_bytes()), b"/", &path].concat();
            let Some(path) = TreePath::parse(&path) else { continue };
            let Some(subvolume) = open(&path) else { continue };
            found.push((path.clone(), is_read_only(&subvolume)));
            if depth > 0 {
                look(&path, depth - 1, found);
            }
        }
        let Some(last) = few.last().filter(|_| few.len() == ANSWER_MAX) else { return };
        least = last.tree + 1;
    }
    tracing::debug!(%folder, "it has more subvolumes than are looked at");
}

fn open(folder: &TreePath) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::open(folder.as_bytes(), flags, Mode::empty()).ok()
}

/// The subvolumes in the one that a folder is in, from this number on.
fn references(folder: impl AsFd, least: u64) -> io::Result<Box<References>> {
    const GET: u32 = opcode::read_write::<References>(BTRFS, 61);
    let mut answer =
        Box::new(References { least, found: [Reference::default(); ANSWER_MAX], count: 0, unused: [0; 7] });
    // SAFETY: the kernel reads and writes a structure of this size and shape.
    match unsafe { ioctl(folder, Updater::<GET, References>::new(&mut answer)) } {
        // There are more.
        Ok(()) | Err(io::Errno::OVERFLOW) => Ok(answer),
        Err(errno) => Err(errno),
    }
}

/// Where a subvolume is, from a folder; `None` if it is not beneath, or not for this user.
fn path_of(folder: impl AsFd, reference: Reference) -> Option<Vec<u8>> {
    const LOOK_UP: u32 = opcode::read_write::<Name>(BTRFS, 62);
    let mut answer = Box::new(Name { reference: [reference.folder, reference.tree], name: [0; 256], path: [0; 3824] });
    // SAFETY: the kernel reads and writes a structure of this size and shape.
    unsafe { ioctl(folder, Updater::<LOOK_UP, Name>::new(&mut answer)) }.ok()?;
    let text = |bytes| CStr::from_bytes_until_nul(bytes).ok().map(CStr::to_bytes);
    Some([text(&answer.path)?, text(&answer.name)?].concat())
}

fn is_read_only(subvolume: impl AsFd) -> bool {
    const GET: u32 = opcode::read::<u64>(BTRFS, 25);
    // SAFETY: the kernel writes a number of this size.
    unsafe { ioctl(subvolume, Getter::<GET, u64>::new()) }.is_ok_and(|flags: u64| flags & READ_ONLY != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernels_sizes_and_numbers() {
        assert_eq!((size_of::<References>(), size_of::<Name>()), (4096, 4096));
        assert_eq!(opcode::read_write::<References>(BTRFS, 61), 0xd000_943d);
        assert_eq!(opcode::read::<u64>(BTRFS, 25), 0x8008_9419);
    }

    #[test]
    fn other_file_systems_have_none() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = TreePath::parse(folder.path().as_os_str().as_encoded_bytes()).unwrap();
        let mut found = Vec::new();
        look(&path, 1, &mut found);
        assert_eq!(found, []);
        let none = Places { trees: &[&path], folders: &[] };
        assert_eq!(of(&super::super::visible().unwrap(), &none), []);
    }
}
