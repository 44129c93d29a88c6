//! What this user owns and has no right to read, or to write to. Its owner changes it nevertheless, and so must a commit. A task
//! elsewhere was shown neither its content nor the values of its attributes: what the task did not set or remove is kept.

use super::rights;
use super::tree::{self, Node, Tree, magic, node_of, os};
use super::validate::committed_xattrs;
use base::{TreePath, Xattr};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;

const OWNER_READS: u32 = 0o400;

/// Opens the file at `path` for reading, also a closed one of this user's.
pub(super) fn open_file(tree: &Tree, path: &TreePath) -> io::Result<OwnedFd> {
    match tree.open_file(path, OFlags::RDONLY) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let held = tree.hold(path)?;
            tree.unseen(&held, || opened(&held, OWNER_READS, || tree.open_file(path, OFlags::RDONLY)))
        }
        other => other,
    }
}

/// All `user.` attributes of `node`, which is held, sorted.
pub(super) fn all_xattrs(tree: &Tree, held: &OwnedFd, node: &Node) -> io::Result<Vec<Xattr>> {
    match is_closed(node) && hides_any(held)? {
        true => tree.unseen(held, || opened(held, OWNER_READS, || tree::xattrs_of(held))),
        false => tree::xattrs_of(held),
    }
}

/// The attributes that a task leaves, sorted: those whose values it was not shown are as they are in `present`.
pub(super) fn with_kept_back(left: &[Xattr], present: &[Xattr]) -> Vec<Xattr> {
    let mut all = committed_xattrs(left);
    let is_kept = |own: &&Xattr| left.iter().any(|left| left.name == own.name && left.is_kept_back());
    all.extend(present.iter().filter(is_kept).cloned());
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Whether `node` is a file or directory that this user owns and has no right to read.
pub(super) fn is_closed(node: &Node) -> bool {
    (node.is_file() || node.is_directory()) && node.mode & OWNER_READS == 0 && rights::owns(node)
}

/// Whether there are attributes whose values this user may not read.
fn hides_any(held: &OwnedFd) -> io::Result<bool> {
    let hides = |name: &Vec<u8>| {
        let read = rustix::fs::getxattr(magic(held).as_str(), os(name), &mut [0u8; 0][..]);
        matches!(read, Err(Errno::ACCESS))
    };
    Ok(tree::names_of_xattrs(held)?.iter().any(hides))
}

/// Does `work` while what is held, which is this user's, has these bits of its mode as well. Its mode is then as before.
pub(super) fn opened<T>(held: &OwnedFd, bits: u32, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let node = node_of(held)?;
    let chmod = |mode| rustix::fs::chmodat(CWD, magic(held), Mode::from_raw_mode(mode), AtFlags::empty());
    // Who is not in its group would take the set-group-id bit away.
    if !rights::owns(&node) || (node.mode & 0o2000 != 0 && !rights::may_give_group(node.gid)) {
        return Err(Errno::ACCESS.into());
    }
    chmod(node.mode | bits)?;
    let done = work();
    chmod(node.mode)?;
    done
}
