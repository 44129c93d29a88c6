//! A lens on a real directory, for tests: what the mirror would tell if the client's tree were that directory.

use super::*;
use base::{Accessed, Attr, Digest, Seq, Xattr};
use client::commit::{Contents, Evidence, Measure, Stamp};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use std::collections::HashMap;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Mutex;

/// Whether `test` can run: overlays and devices need root.
pub(super) fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("SKIPPED: {test}: not root");
    }
    root
}

/// The bindings and stamps of a tree at one moment.
pub(super) struct Snapshot {
    pub lower: PathBuf,
    bindings: HashMap<TreePath, (Seq, Binding, Stamp)>,
}

impl Snapshot {
    /// Of the tree at `client`, which the task sees as `lower`.
    pub(super) fn take(client: &Path, lower: &Path) -> Self {
        let mut bindings = HashMap::new();
        let mut open = vec![TreePath::root()];
        while let Some(path) = open.pop() {
            let (binding, stamp) = look(&real(client, &path));
            if let Binding::Directory { .. } = binding {
                for entry in std::fs::read_dir(real(client, &path)).expect("lists") {
                    open.push(path.join(entry.expect("lists").file_name().as_encoded_bytes()));
                }
            }
            bindings.insert(path, (Seq(bindings.len() as u64 + 1), binding, stamp));
        }
        Self { lower: lower.to_owned(), bindings }
    }
}

pub(super) fn real(root: &Path, path: &TreePath) -> PathBuf {
    root.join(std::ffi::OsStr::from_bytes(&path.as_bytes()[1..]))
}

pub(super) fn xattrs(path: &Path) -> Vec<Xattr> {
    let mut names = vec![0u8; 1 << 16];
    let count = rustix::fs::llistxattr(path, &mut names[..]).expect("lists attributes");
    let mut found: Vec<Xattr> = names[..count]
        .split(|byte| *byte == 0)
        .filter(|name| name.starts_with(b"user."))
        .map(|name| {
            let mut value = vec![0u8; 1 << 16];
            let len = rustix::fs::lgetxattr(path, name, &mut value[..]).expect("reads an attribute");
            Xattr { name: name.to_vec(), value: value[..len].to_vec() }
        })
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn look(path: &Path) -> (Binding, Stamp) {
    let meta = std::fs::symlink_metadata(path).expect("is there");
    let mtime = Time::from_parts(meta.mtime(), meta.mtime_nsec());
    let ctime = Time::from_parts(meta.ctime(), meta.ctime_nsec());
    let attr = Attr {
        mode: meta.mode() & 0o7777,
        uid: meta.uid(),
        gid: meta.gid(),
        nlink: meta.nlink() as u32,
        size: meta.size(),
        blocks: meta.blocks(),
        dev: meta.dev(),
        ino: meta.ino(),
        mtime,
        ctime,
        accessed: Accessed(Some(Time::from_parts(meta.atime(), meta.atime_nsec()))),
    };
    // With the mount that it is on, by its number that is never used again.
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID | StatxFlags::from_bits_retain(0x4000);
    let stamp = Stamp::of(&rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, wanted).expect("is there"));
    let kind = meta.file_type();
    let binding = if kind.is_dir() {
        Binding::Directory { attr, listing: None, xattrs: xattrs(path) }
    } else if kind.is_symlink() {
        let target = std::fs::read_link(path).expect("reads").into_os_string().into_encoded_bytes();
        Binding::Symlink { attr, target }
    } else if kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device() {
        Binding::Special { attr }
    } else {
        // Looking must not move the time of the last access.
        let file = std::fs::File::options().read(true).custom_flags(libc::O_NOATIME).open(path).expect("opens");
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut &file, &mut bytes).expect("reads");
        let content = content_of(&bytes);
        Binding::File { attr, content, xattrs: xattrs(path) }
    };
    (binding, stamp)
}

pub(super) fn content_of(bytes: &[u8]) -> Content {
    if bytes.is_empty() { Content::Empty } else { Content::Block(Digest::of(bytes)) }
}

impl Lens for Snapshot {
    fn base_of(&self, path: &TreePath) -> Option<Base> {
        Some(self.bindings.get(path).map_or(Base::Absent, |(seq, ..)| Base::Bound(*seq)))
    }

    fn binding_of(&self, path: &TreePath) -> Option<Binding> {
        Some(self.bindings.get(path).map_or(Binding::Absent, |(_, binding, _)| binding.clone()))
    }

    fn lower(&self) -> &Path {
        &self.lower
    }
}

impl Evidence for Snapshot {
    fn stamp_of(&self, path: &TreePath, seq: Seq) -> Option<Stamp> {
        self.bindings.get(path).filter(|(known, ..)| *known == seq).map(|(.., stamp)| *stamp)
    }
}

/// Contents in memory, by digest. Blocks may be of any length here.
#[derive(Default)]
pub(super) struct Blocks(pub Mutex<HashMap<Digest, Vec<u8>>>);

impl Blocks {
    pub(super) fn cut(&self, file: &File, size: u64) -> io::Result<Content> {
        let mut bytes = vec![0; size as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let content = content_of(&bytes);
        if let Content::Block(digest) = content {
            self.0.lock().expect("no test panics with it").insert(digest, bytes);
        }
        Ok(content)
    }

    fn get(&self, content: &Content) -> Vec<u8> {
        match content {
            Content::Block(digest) => self.0.lock().expect("no test panics with it")[digest].clone(),
            _ => Vec::new(),
        }
    }
}

impl Contents for Blocks {
    fn measure(&self, content: &Content) -> io::Result<Measure> {
        let len = self.get(content).len() as u64;
        Ok(Measure { len, data: len })
    }

    fn write_to(&self, content: &Content, file: &File) -> io::Result<()> {
        file.write_all_at(&self.get(content), 0)
    }

    fn append_to(&self, content: &Content, from: u64, file: &File) -> io::Result<()> {
        let end = file.metadata()?.len();
        file.write_all_at(&self.get(content)[from as usize..], end)
    }

    fn begins_as(&self, content: &Content, from: u64, file: &File) -> io::Result<bool> {
        let mut begins = vec![0; from as usize];
        file.read_exact_at(&mut begins, 0)?;
        Ok(self.get(content).starts_with(&begins))
    }
}
