//! What is known of the file systems under the client's tree: which listings prove that a name is absent, and how
//! finely times are told apart. Also the folders that are not mirrored at all.

use super::stamp::{Grain, Stamp};
use base::TreePath;
use rustix::fs::StatFs;
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Mutex;

/// What is known of one file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// A name that is not in a directory's listing is absent: names are bytes, compared as such, and none is hidden.
    pub lists_all: bool,
    /// How finely it tells times apart.
    pub grain: Grain,
    /// What it is called, for people.
    pub name: &'static str,
    /// Directories here can ignore case one by one, which has to be asked of each.
    pub may_fold_case: bool,
    /// Its times are the kernel's own: no two of its files with the same name and number have ever had the same, whatever
    /// is mounted in its place. Not so of images.
    pub lasting: bool,
}

impl Place {
    fn unknown(name: &'static str, grain: Grain) -> Self {
        Self { lists_all: false, grain, name, may_fold_case: false, lasting: false }
    }

    /// Whether this stamp tells the same state whichever mount shows it.
    pub fn is_lasting(&self, stamp: &Stamp) -> bool {
        self.lasting && stamp.has_real_times()
    }
}

/// Local file systems whose listings are complete, with their magic number and whether their stamps are multigrain from
/// Linux 6.13 on. Every other file system is asked name by name.
const KNOWN: [(u64, &str, bool, bool); 12] = [
    (0xEF53, "ext4", true, true),
    (0x5846_5342, "xfs", true, false),
    (0x9123_683E, "btrfs", true, false),
    (0x0102_1994, "tmpfs", true, true),
    (0xF2F5_2010, "f2fs", false, true),
    (0x8584_58F6, "ramfs", false, false),
    (0x794C_7630, "overlayfs", false, false),
    (0x7371_7368, "squashfs", false, false),
    (0xE0F5_E1E2, "erofs", false, false),
    (0x2FC1_2FC1, "zfs", false, true),
    (0xCA45_1A4E, "bcachefs", false, true),
    (0x6969, "nfs", false, false),
];

const NFS: u64 = 0x6969;
const MSDOS: u64 = 0x4d44;
const EXFAT: u64 = 0x2011_BAB0;

/// Those whose times are not the kernel's own, but may come from an image.
const OF_IMAGES: [&str; 3] = ["overlayfs", "squashfs", "erofs"];

/// What is known of each mount of each device, asked once.
#[derive(Debug)]
pub(crate) struct Places {
    multigrain_kernel: bool,
    by_mount: Mutex<HashMap<(u64, u64), Place>>,
}

/// Mounts remembered; beyond, all are asked anew.
const MOUNTS_MAX: usize = 1024;

impl Places {
    /// For the kernel this runs on.
    pub fn new() -> Self {
        let release = rustix::system::uname();
        let multigrain_kernel = kernel_version(release.release().to_bytes()) >= (6, 13);
        Self { multigrain_kernel, by_mount: Mutex::default() }
    }

    /// What is known of the file system on which `file` is open, which has this stamp.
    pub fn of(&self, stamp: &Stamp, file: impl AsFd) -> Place {
        let mount = (stamp.dev, stamp.mount);
        let mut by_mount = wire::lock(&self.by_mount);
        if let Some(place) = by_mount.get(&mount) {
            return *place;
        }
        let place = match rustix::fs::fstatfs(file) {
            Ok(stat) => self.classify(&stat),
            // Asked again next time: nothing is remembered of a failure.
            Err(_) => return Place::unknown("unknown", Grain::SECONDS),
        };
        if by_mount.len() >= MOUNTS_MAX {
            by_mount.clear();
        }
        by_mount.insert(mount, place);
        place
    }

    fn classify(&self, stat: &StatFs) -> Place {
        // The type of the field differs between architectures; magic numbers have 32 bits.
        let magic = stat.f_type as u64 & 0xFFFF_FFFF;
        for (known, name, multigrain, may_fold_case) in KNOWN {
            if known == magic {
                let grain = match (known, multigrain && self.multigrain_kernel) {
                    (NFS, _) => Grain::SECONDS,
                    (_, true) => Grain::FINE,
                    (_, false) => Grain::TICK,
                };
                return Place { lists_all: true, grain, name, may_fold_case, lasting: !OF_IMAGES.contains(&name) };
            }
        }
        let grain = if matches!(magic, MSDOS | EXFAT) { Grain::SECONDS } else { Grain::TICK };
        let name = match magic {
            MSDOS | EXFAT => "fat",
            0x6573_5546 => "fuse",
            0x0187 => "autofs",
            0x0102_1997 => "9p",
            _ => "unknown",
        };
        Place::unknown(name, grain)
    }
}

/// Whether the directory is one that ignores case.
pub(crate) fn folds_case(directory: impl AsFd) -> bool {
    const CASEFOLD: u32 = 0x4000_0000;
    rustix::fs::ioctl_getflags(directory).is_ok_and(|flags| flags.bits() & CASEFOLD != 0)
}

/// Whether `path` is in a folder of names that its directory does not list (snapshots on ZFS).
pub(crate) fn is_hidden_folder(path: &TreePath) -> bool {
    path.components().any(|name| name == b".zfs")
}

/// How a path relates to the folders that every worker has of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mirrored {
    /// It is mirrored.
    Yes,
    /// It is such a folder: bound as an empty directory.
    Empty,
    /// It is beneath one: bound as absent.
    Not,
}

/// Whether `path` is `/proc`, `/sys`, `/dev`, or beneath.
pub(crate) fn mirrored(path: &TreePath) -> Mirrored {
    let mut components = path.components();
    match (components.next(), components.next()) {
        (Some(b"proc" | b"sys" | b"dev"), None) => Mirrored::Empty,
        (Some(b"proc" | b"sys" | b"dev"), Some(_)) => Mirrored::Not,
        _ => Mirrored::Yes,
    }
}

fn kernel_version(release: &[u8]) -> (u32, u32) {
    let text = String::from_utf8_lossy(release);
    let mut numbers = text.split(|letter: char| !letter.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_versions() {
        assert_eq!(kernel_version(b"6.18.44-fc-v669"), (6, 18));
        assert_eq!(kernel_version(b"5.4"), (5, 4));
        assert_eq!(kernel_version(b"strange"), (0, 0));
    }

    #[test]
    fn folders_of_the_worker() {
        let of = |text: &str| mirrored(&TreePath::parse(text.as_bytes()).unwrap());
        assert_eq!(of("/proc"), Mirrored::Empty);
        assert_eq!(of("/dev/null"), Mirrored::Not);
        assert_eq!(of("/"), Mirrored::Yes);
        assert_eq!(of("/home/dev"), Mirrored::Yes);
    }

    #[test]
    fn the_temporary_folder_is_on_a_known_file_system() {
        let places = Places::new();
        let folder = tempfile::tempdir().unwrap();
        let file = std::fs::File::open(folder.path()).unwrap();
        let stamp = Stamp::of(&crate::snapshot::stamp::stat_open(&file).unwrap());
        let place = places.of(&stamp, &file);
        if place.name == "unknown" {
            println!("SKIPPED: the temporary folder is on a file system of an unknown kind");
            return;
        }
        assert_eq!(places.of(&stamp, &file), place);
    }
}
