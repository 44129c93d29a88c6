//! What this user owns and may not read. Its owner changes it nevertheless, and so must a commit. A task elsewhere was shown neither its
//! content nor its attributes: what the task did not set is kept.

use super::rights;
use super::tree::{self, Node, Tree, magic, node_of, os};
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
            opened(&tree.hold(path)?, || tree.open_file(path, OFlags::RDONLY))
        }
        other => other,
    }
}

/// All `user.` attributes of what is held, sorted.
pub(super) fn all_xattrs(held: &OwnedFd) -> io::Result<Vec<Xattr>> {
    with_hidden(tree::xattrs_of(held)?, held)
}

/// These `user.` attributes and those of what is held that a task was not shown and has not set, sorted.
pub(super) fn with_hidden(mut xattrs: Vec<Xattr>, held: &OwnedFd) -> io::Result<Vec<Xattr>> {
    let node = node_of(held)?;
    if !(node.is_file() || node.is_directory()) || !is_closed(&node) || !hides_any(held)? {
        return Ok(xattrs);
    }
    let hidden = opened(held, || tree::xattrs_of(held))?;
    let unset = |hidden: &Xattr| xattrs.iter().all(|set| set.name != hidden.name);
    let kept: Vec<Xattr> = hidden.into_iter().filter(unset).collect();
    xattrs.extend(kept);
    xattrs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(xattrs)
}

fn is_closed(node: &Node) -> bool {
    node.mode & OWNER_READS == 0 && rights::owns(node)
}

/// Whether there are attributes whose values this user may not read.
fn hides_any(held: &OwnedFd) -> io::Result<bool> {
    let hides = |name: &Vec<u8>| {
        let read = rustix::fs::getxattr(magic(held).as_str(), os(name), &mut [0u8; 0][..]);
        matches!(read, Err(Errno::ACCESS))
    };
    Ok(tree::names_of_xattrs(held)?.iter().any(hides))
}

/// Does `look` while what is held is open to its owner. Its mode and times are then as before.
fn opened<T>(held: &OwnedFd, look: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let node = node_of(held)?;
    let chmod = |mode| rustix::fs::chmodat(CWD, magic(held), Mode::from_raw_mode(mode), AtFlags::empty());
    // Who is not in its group would take the set-group-id bit away.
    if !is_closed(&node) || (node.mode & 0o2000 != 0 && !rights::may_give_group(node.gid)) {
        return Err(Errno::ACCESS.into());
    }
    chmod(node.mode | OWNER_READS)?;
    let looked = look();
    chmod(node.mode)?;
    looked
}
