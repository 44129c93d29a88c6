//! What this user owns and has no right to read, or to write to. Its owner changes it nevertheless, and so must a commit. A task elsewhere was shown neither its
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
            opened(&tree.hold(path)?, OWNER_READS, || tree.open_file(path, OFlags::RDONLY))
        }
        other => other,
    }
}

/// The `user.` attributes of `node`, which is held, if this user may not read them: who may not read one may read none.
pub(super) fn hidden_xattrs(held: &OwnedFd, node: &Node) -> io::Result<Vec<Xattr>> {
    match is_closed(node) && hides_any(held)? {
        true => opened(held, OWNER_READS, || tree::xattrs_of(held)),
        false => Ok(Vec::new()),
    }
}

/// All `user.` attributes of `node`, which is held, sorted.
pub(super) fn all_xattrs(held: &OwnedFd, node: &Node) -> io::Result<Vec<Xattr>> {
    Ok(with_hidden(tree::xattrs_of(held)?, hidden_xattrs(held, node)?))
}

/// These attributes and, of those that a task was not shown, the ones that it has not set, sorted.
pub(super) fn with_hidden(mut xattrs: Vec<Xattr>, mut hidden: Vec<Xattr>) -> Vec<Xattr> {
    hidden.retain(|hidden| xattrs.iter().all(|set| set.name != hidden.name));
    xattrs.append(&mut hidden);
    xattrs.sort_by(|a, b| a.name.cmp(&b.name));
    xattrs
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
