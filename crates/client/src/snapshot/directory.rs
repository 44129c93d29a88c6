//! Directories: listings that prove what is absent.

use super::stamp::stat_open;
use super::{Snapshot, Stamp, Unshown, attr_of, now, open, places};
use crate::policy;
use base::{Binding, Listing, ListingEntry, NodeKind, TreePath, Xattr};
use rustix::fs::{Access, AtFlags, FileType, OFlags, RawDir, Statx, accessat};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Attributes of one file that are read; the kernel's own bound on their names together is 64 KiB.
const XATTRS_MAX: usize = 256;
/// Largest value of an attribute, in bytes.
const XATTR_BYTES_MAX: usize = 64 << 10;

impl Snapshot {
    /// Binds the directory that `stat` was of; `None`: it changed meanwhile.
    pub(super) fn directory(
        &self,
        path: &TreePath,
        stat: &Statx,
        access: policy::Access,
    ) -> Result<Option<Binding>, Errno> {
        let attr = attr_of(stat);
        let closed = || Binding::Directory { attr, listing: None, xattrs: self.xattrs_kept_back(path) };
        if access != policy::Access::Allow {
            return Ok(Some(closed()));
        }
        let directory = match open(path, OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(directory) => directory,
            Err(Errno::ACCESS | Errno::PERM) => return Ok(Some(closed())),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        let stamp = Stamp::of(stat);
        if Stamp::of(&stat_open(&directory)?) != stamp {
            return Ok(None);
        }
        let xattrs = self.xattrs(path, &directory);
        let place = self.places.of(&stamp, &directory);
        // Of a directory that may be listed and not searched the listing proves nothing: a task that opens it asks here for
        // each name, and is called off.
        let may_search =
            attr.mode & 0o111 == 0o111 || accessat(&directory, c".", Access::EXEC_OK, AtFlags::EACCESS).is_ok();
        let proves = may_search
            && place.lists_all
            && !places::is_hidden_folder(path)
            && !(place.may_fold_case && places::folds_case(&directory));
        if !proves {
            return Ok(Some(Binding::Directory { attr, listing: None, xattrs }));
        }
        // Every program has the folders of programs and libraries in its view.
        if let Some(listing) = self.sources.listing(path, &stamp) {
            return Ok(Some(Binding::Directory { attr, listing: Some(listing), xattrs }));
        }
        let racy = place.grain.is_racy(&stamp, now());
        let Some(listing) = list(&directory)? else {
            return Ok(Some(Binding::Directory { attr, listing: None, xattrs }));
        };
        if Stamp::of(&stat_open(&directory)?) != stamp {
            return Ok(None);
        }
        let listing = self.keep_listing(path, &listing);
        if !racy {
            self.sources.add_listing(path, stamp, listing);
        }
        Ok(Some(Binding::Directory { attr, listing: Some(listing), xattrs }))
    }
}

/// All names of a directory; `None` if they are too many to be sent as one.
fn list(directory: &OwnedFd) -> Result<Option<Listing>, Errno> {
    let mut buffer = vec![MaybeUninit::uninit(); 64 << 10];
    let mut names = RawDir::new(directory, &mut buffer);
    let mut entries = Vec::new();
    // As many bytes as the encoding has: a kind, an inode number, a length and the name.
    let mut bytes = 8;
    while let Some(entry) = names.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        bytes += 13 + name.len();
        if bytes > base::BLOB_BYTES_MAX || !base::path::is_plain_name(name) {
            return Ok(None);
        }
        let kind = match entry.file_type() {
            FileType::Unknown => kind_at(directory, name)?,
            known => known,
        };
        entries.push(ListingEntry { name: name.to_vec(), kind: node_kind(kind), ino: entry.ino() });
    }
    let listing = Listing::new(entries);
    // A directory that changes while it is read can name an entry twice.
    let unique = listing.entries.windows(2).all(|pair| pair[0].name != pair[1].name);
    if unique { Ok(Some(listing)) } else { Err(Errno::AGAIN) }
}

fn kind_at(directory: &OwnedFd, name: &[u8]) -> Result<FileType, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    match rustix::fs::statx(directory, name, flags, rustix::fs::StatxFlags::TYPE) {
        Ok(stat) => Ok(FileType::from_raw_mode(stat.stx_mode.into())),
        Err(Errno::NOENT) => Err(Errno::AGAIN),
        Err(errno) => Err(errno),
    }
}

/// What of a file of this kind is not shown.
pub(super) fn other_end(kind: FileType) -> Option<Unshown> {
    match kind {
        FileType::Fifo => Some(Unshown::Pipe),
        FileType::BlockDevice | FileType::CharacterDevice => Some(Unshown::Device),
        _ => None,
    }
}

fn node_kind(kind: FileType) -> NodeKind {
    match kind {
        FileType::Directory => NodeKind::Directory,
        FileType::RegularFile => NodeKind::File,
        FileType::Symlink => NodeKind::Symlink,
        FileType::Fifo => NodeKind::Fifo,
        FileType::Socket => NodeKind::Socket,
        FileType::BlockDevice | FileType::CharacterDevice | FileType::Unknown => NodeKind::Device,
    }
}

/// The names that `list` gives, each with a zero byte behind it; none if they cannot be read.
fn names_of_xattrs(list: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Vec<u8> {
    let mut names = [0u8; 4096];
    match list(&mut names) {
        Ok(len) => names[..len].to_vec(),
        Err(Errno::RANGE) => {
            let mut names = vec![0u8; 64 << 10];
            let len = list(&mut names).unwrap_or(0);
            names.truncate(len);
            names
        }
        Err(_) => Vec::new(),
    }
}

impl Snapshot {
    /// The attributes in the `user.` namespace of the open file at `path`, sorted by name. What cannot be read is left out.
    /// Notes what of it is not shown.
    pub(super) fn xattrs(&self, path: &TreePath, file: impl AsFd) -> Vec<Xattr> {
        let file = file.as_fd();
        let found = names_of_xattrs(|names| rustix::fs::flistxattr(file, names));
        self.not_shown.note(path, Unshown::of_names(path, &found));
        user_xattrs(&found, |name| {
            let mut value = vec![0u8; XATTR_BYTES_MAX];
            let len = rustix::fs::fgetxattr(file, name, &mut value[..]).ok()?;
            value.truncate(len);
            Some(Xattr { name: name.to_vec(), value })
        })
    }

    /// The same of what is not opened, since the policy or the user's own rights keep it here. Names need no right to read.
    pub(super) fn xattrs_kept_back(&self, path: &TreePath) -> Vec<Xattr> {
        let Ok(held) = open(path, OFlags::PATH) else { return Vec::new() };
        let place = format!("/proc/self/fd/{}", held.as_raw_fd());
        let found = names_of_xattrs(|names| rustix::fs::listxattr(place.as_str(), names));
        self.not_shown.note(path, Unshown::of_names(path, &found));
        user_xattrs(&found, |name| Some(Xattr::kept_back(name.to_vec())))
    }
}

/// The attributes of these names in the `user.` namespace, each as `read` has it, sorted by name.
fn user_xattrs(found: &[u8], read: impl Fn(&[u8]) -> Option<Xattr>) -> Vec<Xattr> {
    let mirrored = |name: &&[u8]| name.starts_with(b"user.") && !name.starts_with(b"user.overlay.");
    let names = found.split(|byte| *byte == 0).filter(mirrored);
    let mut xattrs: Vec<Xattr> = names.take(XATTRS_MAX).filter_map(read).collect();
    xattrs.sort_by(|a, b| a.name.cmp(&b.name));
    xattrs
}
