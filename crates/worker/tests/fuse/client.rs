//! A client for tests: a real directory tree, bound by lstat and readdir, whose files are read in place.

use base::codec::Encode;
use base::{
    Attr, Binding, Bound, Content, Digest, Listing, ListingEntry, NodeKind, Piece, Recipe, Seq, TaskId, Time, TreePath,
    Version, ViewId, ViewUpdate, Xattr,
};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, FileExt};
use std::path::PathBuf;
use std::sync::{Condvar, Mutex};
use worker::fuse::{Done, Fetch, FileSource};

pub const VIEW: ViewId = ViewId(1);

pub struct Client {
    root: PathBuf,
    state: Mutex<State>,
    asked: Condvar,
    /// Answer reads from another thread, not at once.
    pub far: bool,
    /// Tell `user.` attributes.
    pub with_xattrs: bool,
}

#[derive(Default)]
struct State {
    seq: u64,
    version: u64,
    view: BTreeMap<TreePath, Bound>,
    sent: HashMap<TreePath, Seq>,
    blobs: HashMap<Digest, Vec<u8>>,
    binds: usize,
    /// Paths whose questions are not answered.
    silent: HashSet<TreePath>,
    held: Vec<(TreePath, Done<Vec<Bound>>)>,
}

impl Client {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let (state, asked) = (Mutex::default(), Condvar::new());
        Self { root: root.into(), state, asked, far: false, with_xattrs: false }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no test panics with the lock held")
    }

    /// How often a binding was asked.
    pub fn binds(&self) -> usize {
        self.state().binds
    }

    pub fn silence(&self, path: &str) {
        self.state().silent.insert(path_of(path));
    }

    /// Waits until `count` questions are held back.
    pub fn wait_held(&self, count: usize) {
        let mut state = self.state();
        while state.held.len() < count {
            state = self.asked.wait(state).expect("no test panics with the lock held");
        }
    }

    /// Answers what was held back.
    pub fn speak(&self) {
        let held = {
            let mut state = self.state();
            state.silent.clear();
            std::mem::take(&mut state.held)
        };
        for (path, done) in held {
            done(Ok(vec![self.answer(&path)]));
        }
    }

    /// Sweeps the view, as for a launch.
    pub fn launch(&self) -> ViewUpdate {
        let paths: Vec<TreePath> = self.state().view.keys().cloned().collect();
        let bounds: Vec<Bound> = paths.iter().map(|path| self.bound(path)).collect();
        let mut state = self.state();
        let base = Version(state.version);
        let news = |bound: &Bound| state.sent.get(&bound.path) != Some(&bound.seq);
        let set: Vec<Bound> = bounds.into_iter().filter(news).collect();
        if state.version == 0 || !set.is_empty() {
            state.version += 1;
        }
        let sent: Vec<_> = set.iter().map(|bound| (bound.path.clone(), bound.seq)).collect();
        state.sent.extend(sent);
        ViewUpdate { view: VIEW, base, version: Version(state.version), set, drop: Vec::new() }
    }

    /// Has the view hold these paths.
    pub fn use_paths(&self, paths: &[&str]) {
        for path in paths {
            self.bound(&path_of(path));
        }
    }

    pub fn blob_of(&self, digest: &Digest) -> Option<Vec<u8>> {
        self.state().blobs.get(digest).cloned()
    }

    fn answer(&self, path: &TreePath) -> Bound {
        let bound = self.bound(path);
        self.state().sent.insert(path.clone(), bound.seq);
        bound
    }

    fn bound(&self, path: &TreePath) -> Bound {
        let binding = self.binding(path);
        let mut state = self.state();
        if state.view.get(path).is_none_or(|held| held.binding != binding) {
            state.seq += 1;
            let bound = Bound { path: path.clone(), seq: Seq(state.seq), binding };
            state.view.insert(path.clone(), bound);
        }
        state.view[path].clone()
    }

    fn local(&self, path: &TreePath) -> PathBuf {
        self.root.join(OsStr::from_bytes(&path.as_bytes()[1..]))
    }

    fn binding(&self, path: &TreePath) -> Binding {
        let local = self.local(path);
        let stat = match rustix::fs::statat(CWD, &local, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT | Errno::NOTDIR) => return Binding::Absent,
            Err(_) => return Binding::Denied,
        };
        let attr = Attr {
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            nlink: stat.st_nlink as u32,
            size: stat.st_size as u64,
            blocks: stat.st_blocks as u64,
            dev: stat.st_dev,
            ino: stat.st_ino,
            mtime: Time::from_parts(stat.st_mtime, stat.st_mtime_nsec as i64),
            ctime: Time::from_parts(stat.st_ctime, stat.st_ctime_nsec as i64),
            accessed: base::Accessed(Some(Time::from_parts(stat.st_atime, stat.st_atime_nsec as i64))),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                Binding::Directory { attr, listing: self.listing(&local), xattrs: self.xattrs(&local) }
            }
            FileType::RegularFile => {
                Binding::File { attr, content: self.content(&local, &attr), xattrs: self.xattrs(&local) }
            }
            FileType::Symlink => {
                let Ok(target) = rustix::fs::readlinkat(CWD, &local, Vec::new()) else { return Binding::Absent };
                Binding::Symlink { attr, target: target.into_bytes() }
            }
            _ => Binding::Special { attr },
        }
    }

    fn xattrs(&self, local: &PathBuf) -> Vec<Xattr> {
        let mut names = vec![0; 4096];
        if !self.with_xattrs {
            return Vec::new();
        }
        let len = rustix::fs::llistxattr(local, &mut names).unwrap_or(0);
        let names = names[..len].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user."));
        let value = |name: &[u8]| {
            let mut value = vec![0; 4096];
            let len = rustix::fs::lgetxattr(local, name, &mut value).expect("the attribute was there");
            value.truncate(len);
            Xattr { name: name.to_vec(), value }
        };
        names.map(value).collect()
    }

    fn listing(&self, local: &PathBuf) -> Option<Digest> {
        let entries = std::fs::read_dir(local).ok()?.filter_map(Result::ok).map(|entry| {
            use std::os::unix::fs::FileTypeExt;
            let kind = entry.file_type().expect("readdir tells types");
            let kind = match () {
                () if kind.is_dir() => NodeKind::Directory,
                () if kind.is_file() => NodeKind::File,
                () if kind.is_symlink() => NodeKind::Symlink,
                () if kind.is_fifo() => NodeKind::Fifo,
                () if kind.is_socket() => NodeKind::Socket,
                () => NodeKind::Device,
            };
            ListingEntry { name: entry.file_name().as_bytes().to_vec(), kind, ino: entry.ino() }
        });
        let bytes = Listing::new(entries.collect()).to_bytes();
        let digest = Digest::of(&bytes);
        self.state().blobs.insert(digest, bytes);
        Some(digest)
    }

    fn content(&self, local: &PathBuf, attr: &Attr) -> Content {
        // Reading is no other state.
        let attr = &Attr { accessed: base::Accessed(None), ..*attr };
        let stamp = Digest::of(format!("{attr:?}").as_bytes());
        match attr.size {
            0 => Content::Empty,
            size if attr.blocks * 512 < size => match holes(local, size) {
                Some(recipe) => {
                    let bytes = recipe.to_bytes();
                    let digest = Digest::of(&bytes);
                    self.state().blobs.insert(digest, bytes);
                    Content::Recipe(digest)
                }
                None => Content::Lazy(stamp),
            },
            size if size < 4096 => match std::fs::read(local) {
                Ok(bytes) => Content::Block(Digest::of(&bytes)),
                Err(error) => Content::Unreadable(error.raw_os_error().unwrap_or(libc::EIO)),
            },
            _ => Content::Lazy(stamp),
        }
    }
}

/// The recipe of a file with holes, with blocks of no meaning.
fn holes(local: &PathBuf, size: u64) -> Option<Recipe> {
    let file = rustix::fs::open(local, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < size {
        let data = rustix::fs::seek(&file, SeekFrom::Data(at)).unwrap_or(size).min(size);
        if data > at {
            pieces.push(Piece { len: data - at, block: None });
        }
        let hole = if data < size { rustix::fs::seek(&file, SeekFrom::Hole(data)).ok()?.min(size) } else { size };
        let mut from = data;
        while from < hole {
            let len = (hole - from).min(base::BLOCK_BYTES_MAX as u64);
            pieces.push(Piece { len, block: Some(Digest::of(&from.to_le_bytes())) });
            from += len;
        }
        at = hole;
    }
    Some(Recipe { size, pieces })
}

impl Fetch for Client {
    fn bind(&self, view: ViewId, _task: TaskId, path: &TreePath, done: Done<Vec<Bound>>) {
        assert_eq!(view, VIEW);
        {
            let mut state = self.state();
            state.binds += 1;
            if state.silent.contains(path) {
                state.held.push((path.clone(), done));
                self.asked.notify_all();
                return;
            }
        }
        let bound = self.answer(path);
        if self.far { drop(std::thread::spawn(move || done(Ok(vec![bound])))) } else { done(Ok(vec![bound])) }
    }

    fn blob(&self, digest: Digest, done: Done<Vec<u8>>) {
        done(self.blob_of(&digest).ok_or(Errno::NOENT));
    }

    fn read_now(&self, file: &FileSource, offset: u64, len: usize, out: &mut Vec<u8>) -> bool {
        if self.far {
            return false;
        }
        let from = out.len();
        out.resize(from + len, 0);
        let local = std::fs::File::open(self.local(&file.path));
        let read = local.and_then(|local| local.read_exact_at(&mut out[from..], offset)).is_ok();
        out.truncate(if read { from + len } else { from });
        read
    }

    fn read(&self, file: &FileSource, offset: u64, len: usize, done: Done<Vec<u8>>) {
        let local = self.local(&file.path);
        drop(std::thread::spawn(move || {
            let mut bytes = vec![0; len];
            let read = std::fs::File::open(local).and_then(|local| local.read_exact_at(&mut bytes, offset));
            done(read.map(|()| bytes).map_err(|_| Errno::IO));
        }));
    }
}

pub fn path_of(path: &str) -> TreePath {
    TreePath::parse(path.as_bytes()).expect("a normal path")
}
