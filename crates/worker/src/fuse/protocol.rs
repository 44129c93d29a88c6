//! The kernel's FUSE protocol, version 7.31 and later, as far as a read-only file system needs it: parses requests, and
//! writes the bodies of answers. All integers are in the machine's own byte order.
//!
//! Own code rather than a crate: `fuser` shows node ids as inode numbers (a client's inode numbers must be shown), and
//! drops interrupts (a killed task must not wait for an answer).

use crate::ids::Table;
use base::{Attr, Time};
use mirror::{NodeId, NodeShape, Shown};

/// Length of a request's header in bytes.
const HEADER_BYTES: usize = 40;
/// The kernel keeps what it is told for this many seconds: for ever.
const FOR_EVER_SECS: u64 = 1 << 40;

/// Capabilities of the connection, as bits of INIT.
mod capability {
    pub(super) const ASYNC_READ: u32 = 1 << 0;
    pub(super) const PARALLEL_DIROPS: u32 = 1 << 18;
    pub(super) const NO_OPEN_SUPPORT: u32 = 1 << 17;
    pub(super) const MAX_PAGES: u32 = 1 << 22;
    pub(super) const CACHE_SYMLINKS: u32 = 1 << 23;
    pub(super) const NO_OPENDIR_SUPPORT: u32 = 1 << 24;
    pub(super) const EXPLICIT_INVAL_DATA: u32 = 1 << 25;
}

/// What is asked for at INIT, where the kernel offers it.
const WANTED: u32 = capability::ASYNC_READ
    | capability::PARALLEL_DIROPS
    | capability::NO_OPEN_SUPPORT
    | capability::MAX_PAGES
    | capability::CACHE_SYMLINKS
    | capability::NO_OPENDIR_SUPPORT
    | capability::EXPLICIT_INVAL_DATA;

/// Largest READ in bytes, and the read-ahead asked for.
pub(super) const READ_BYTES_MAX: u32 = 1 << 20;
/// Requests of the kernel's own (read-ahead, forgets) that may be under way at once.
const BACKGROUND_MAX: u16 = 512;

/// A request with its parameters.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request<'a> {
    Init {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
    },
    Lookup {
        name: &'a [u8],
    },
    Forget {
        count: u64,
    },
    BatchForget {
        nodes: Vec<(NodeId, u64)>,
    },
    GetAttr,
    ReadLink,
    Read {
        offset: u64,
        size: u32,
    },
    ReadDir {
        offset: u64,
        size: u32,
    },
    StatFs,
    GetXattr {
        name: &'a [u8],
        size: u32,
    },
    ListXattr {
        size: u32,
    },
    Lseek {
        offset: u64,
        whence: u32,
    },
    Interrupt {
        unique: u64,
    },
    Destroy,
    /// What would change the file system.
    Write,
    /// What is left to the kernel: opening, releasing, flushing, checking access.
    Other,
}

/// A request's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Names the request in its answer.
    pub(super) unique: u64,
    /// What it is about.
    pub(super) node: NodeId,
    /// The thread that made it, as our process numbers threads; 0 for the kernel itself.
    pub(super) pid: u32,
}

/// Parses a request; `None` if it is not one.
pub(super) fn parse(bytes: &[u8]) -> Option<(Header, Request<'_>)> {
    let (head, body) = bytes.split_at_checked(HEADER_BYTES)?;
    let header = Header { unique: u64_at(head, 8)?, node: NodeId(u64_at(head, 16)?), pid: u32_at(head, 32)? };
    Some((header, parse_body(u32_at(head, 4)?, body)?))
}

fn parse_body(opcode: u32, body: &[u8]) -> Option<Request<'_>> {
    Some(match opcode {
        1 => Request::Lookup { name: text(body)? },
        2 => Request::Forget { count: u64_at(body, 0)? },
        3 => Request::GetAttr,
        5 => Request::ReadLink,
        15 => Request::Read { offset: u64_at(body, 8)?, size: u32_at(body, 16)? },
        17 => Request::StatFs,
        22 => Request::GetXattr { size: u32_at(body, 0)?, name: text(body.get(8..)?)? },
        23 => Request::ListXattr { size: u32_at(body, 0)? },
        26 => Request::Init {
            major: u32_at(body, 0)?,
            minor: u32_at(body, 4)?,
            max_readahead: u32_at(body, 8)?,
            flags: u32_at(body, 12)?,
        },
        28 => Request::ReadDir { offset: u64_at(body, 8)?, size: u32_at(body, 16)? },
        36 => Request::Interrupt { unique: u64_at(body, 0)? },
        38 => Request::Destroy,
        42 => {
            let count = u32_at(body, 0)? as usize;
            let nodes = body.get(8..)?.chunks_exact(16).take(count);
            let each = |node: &[u8]| Some((NodeId(u64_at(node, 0)?), u64_at(node, 8)?));
            Request::BatchForget { nodes: nodes.map(each).collect::<Option<_>>()? }
        }
        46 => Request::Lseek { offset: u64_at(body, 8)?, whence: u32_at(body, 16)? },
        // SETATTR, SYMLINK, MKNOD, MKDIR, UNLINK, RMDIR, RENAME, LINK, WRITE, SETXATTR, REMOVEXATTR, CREATE, FALLOCATE,
        // RENAME2, COPY_FILE_RANGE, TMPFILE.
        4 | 6 | 8..=13 | 16 | 21 | 24 | 35 | 43 | 45 | 47 | 51 => Request::Write,
        _ => Request::Other,
    })
}

/// The answer to INIT.
pub(super) fn init_answer(max_readahead: u32, offered: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    for value in [7, 31, max_readahead.min(READ_BYTES_MAX), offered & WANTED] {
        put_u32(&mut out, value);
    }
    put_u16(&mut out, BACKGROUND_MAX);
    put_u16(&mut out, BACKGROUND_MAX / 4 * 3);
    // Nothing is written, so small requests do: the buffers of the threads need hold no more.
    put_u32(&mut out, 4096);
    put_u32(&mut out, 1);
    put_u16(&mut out, (READ_BYTES_MAX / 4096) as u16);
    out.resize(64, 0);
    out
}

/// The answer to a LOOKUP that found something.
pub(super) fn entry_answer(shown: &Shown, ids: &Table) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    for value in [shown.node.0, 0, FOR_EVER_SECS, FOR_EVER_SECS, 0] {
        put_u64(&mut out, value);
    }
    put_attr(&mut out, shown, ids);
    out
}

/// The answer to a LOOKUP that found a directory whose attributes the kernel must ask for.
pub(super) fn root_answer(node: NodeId, ids: &Table) -> Vec<u8> {
    let mut out = entry_answer(&Shown { node, ..root_shown() }, ids);
    out[24..32].fill(0);
    out
}

/// The answer to a LOOKUP that found nothing, for the kernel to keep.
pub(super) fn absent_answer() -> Vec<u8> {
    let mut out = vec![0; 128];
    out[16..24].copy_from_slice(&FOR_EVER_SECS.to_ne_bytes());
    out
}

/// The answer to GETATTR.
pub(super) fn attr_answer(shown: &Shown, ids: &Table) -> Vec<u8> {
    let mut out = Vec::with_capacity(104);
    put_u64(&mut out, FOR_EVER_SECS);
    put_u64(&mut out, 0);
    put_attr(&mut out, shown, ids);
    out
}

/// The attributes of the mount's root, which holds the lanes.
pub(super) fn root_shown() -> Shown {
    let attr = Attr { mode: 0o555, nlink: 2, ..Attr::default() };
    Shown { node: mirror::ROOT, ino: mirror::ROOT.0, shape: NodeShape::Directory, attr }
}

/// The answer to STATFS: nothing is free.
pub(super) fn statfs_answer() -> Vec<u8> {
    let mut out = vec![0; 40];
    for value in [4096, 255, 4096] {
        put_u32(&mut out, value);
    }
    out.resize(80, 0);
    out
}

/// The answer to a question for an extended attribute of `bytes`, for an asker with room for `size`: its length if that
/// is 0, else itself; `None` if it does not fit.
pub(super) fn xattr_answer(bytes: Vec<u8>, size: u32) -> Option<Vec<u8>> {
    if size != 0 {
        return (bytes.len() <= size as usize).then_some(bytes);
    }
    let mut out = Vec::with_capacity(8);
    put_u64(&mut out, bytes.len() as u64);
    Some(out)
}

/// Adds a directory entry; returns false if `size` bytes have no room for it. `next` is the offset of what follows.
pub(super) fn put_entry(out: &mut Vec<u8>, size: u32, ino: u64, next: u64, kind: u32, name: &[u8]) -> bool {
    let padded = (24 + name.len()).next_multiple_of(8);
    if out.len() + padded > size as usize {
        return false;
    }
    let end = out.len() + padded;
    // A number of 0 would hide the entry.
    put_u64(out, ino.max(1));
    put_u64(out, next);
    put_u32(out, name.len() as u32);
    put_u32(out, kind);
    out.extend_from_slice(name);
    out.resize(end, 0);
    true
}

/// The header of an answer with `len` bytes of body; `error` is 0 or a negative error number.
pub(super) fn answer_header(unique: u64, error: i32, len: usize) -> [u8; 16] {
    let mut out = [0; 16];
    out[..4].copy_from_slice(&(16 + len as u32).to_ne_bytes());
    out[4..8].copy_from_slice(&error.to_ne_bytes());
    out[8..].copy_from_slice(&unique.to_ne_bytes());
    out
}

/// The notification that the kernel must forget attributes and pages of `node`.
pub(super) fn invalidate_inode(node: NodeId) -> Vec<u8> {
    let mut out = answer_header(0, 2, 24).to_vec();
    for value in [node.0, 0, 0] {
        put_u64(&mut out, value);
    }
    out
}

/// The notification that the kernel must forget `name` in `parent`.
pub(super) fn invalidate_entry(parent: NodeId, name: &[u8]) -> Vec<u8> {
    let mut out = answer_header(0, 3, 16 + name.len() + 1).to_vec();
    put_u64(&mut out, parent.0);
    put_u64(&mut out, name.len() as u64);
    out.extend_from_slice(name);
    out.push(0);
    out
}

fn put_attr(out: &mut Vec<u8>, shown: &Shown, ids: &Table) {
    let attr = &shown.attr;
    let kind = match shown.shape {
        NodeShape::Directory => libc::S_IFDIR,
        NodeShape::File => libc::S_IFREG,
        NodeShape::Symlink => libc::S_IFLNK,
        NodeShape::Special => libc::S_IFSOCK,
    };
    let secs = |time: Time| time.secs() as u64;
    let size = attr.size.min(i64::MAX as u64);
    let atime = attr.shown_access();
    for value in [shown.ino, size, attr.blocks, secs(atime), secs(attr.mtime), secs(attr.ctime)] {
        put_u64(out, value);
    }
    for value in [atime.nanos(), attr.mtime.nanos(), attr.ctime.nanos(), kind | (attr.mode & 0o7777), attr.nlink.max(1)]
    {
        put_u32(out, value);
    }
    let [uid, gid] = ids.show(attr.uid, attr.gid);
    for value in [uid, gid, 0, 4096, 0] {
        put_u32(out, value);
    }
}

fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_ne_bytes());
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_ne_bytes());
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_ne_bytes());
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The bytes before the first NUL.
fn text(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    bytes.get(..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_the_lengths_of_the_kernel() {
        let ids = &Table::new(100_000);
        let shown = root_shown();
        assert_eq!(entry_answer(&shown, ids).len(), 128);
        assert_eq!(absent_answer().len(), 128);
        assert_eq!(attr_answer(&shown, ids).len(), 104);
        assert_eq!(statfs_answer().len(), 80);
        assert_eq!(init_answer(0, !0).len(), 64);
    }

    #[test]
    fn entries_are_padded_and_bounded() {
        let mut out = Vec::new();
        assert!(put_entry(&mut out, 64, 5, 1, 8, b"abc"));
        assert_eq!(out.len(), 32);
        assert!(put_entry(&mut out, 64, 5, 2, 8, b"abcdefgh"));
        assert!(!put_entry(&mut out, 64, 5, 3, 8, b""));
    }

    #[test]
    fn requests_cut_short_are_refused() {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[4] = 1;
        assert_eq!(parse(&bytes), None, "a LOOKUP without a name");
        bytes.extend(b"x\0");
        let (header, request) = parse(&bytes).expect("a whole LOOKUP");
        assert_eq!((header.unique, request), (0, Request::Lookup { name: b"x" }));
        assert_eq!(parse(&bytes[..20]), None);
    }
}
