//! A tree of files as it can be observed, and how two of them differ.

use crate::error::{Context, Result};
use rustix::fs::{AtFlags, CWD, SeekFrom, Timespec, Timestamps};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// By how much a file may seem older than the run that made it.
const CLOCK_GRAIN: Duration = Duration::from_millis(20);
/// Times of the last access that are this near to a run may come of reading, which moves them here and nowhere else.
const ACCESS_WINDOW: Duration = Duration::from_secs(3600);
/// Bytes that are hashed together.
const HASHED_BLOCK: usize = 4096;
/// The time to which the times of a set-up are put, so that they agree between two runs: 2020-01-01.
const SETUP_SECONDS: i64 = 1_577_836_800;

/// All that is in a folder, by relative path; the folder itself is the empty path.
#[derive(Clone, Debug, Default)]
pub struct Tree(pub BTreeMap<PathBuf, Entry>);

/// What one name is.
#[derive(Clone, Debug)]
pub struct Entry {
    kind: Kind,
    mode: u32,
    uid: u32,
    gid: u32,
    mtime_ns: i128,
    atime_ns: i128,
    links: u64,
    inode: u64,
    xattrs: BTreeMap<OsString, Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    File { len: u64, hash: blake3::Hash, sparse: bool },
    Directory,
    Symlink(PathBuf),
    Fifo,
    Socket,
    Device(u64),
}

/// When a file was last written, seen from a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stamp {
    Kept,
    During,
    At(i128),
}

/// The time during which a command ran.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Before this moment, what is now there was set up.
    pub start: SystemTime,
    /// The moment at which all was done.
    pub end: SystemTime,
}

/// The present, by the clock that files' times are from: on a machine that stands still now and then it may be well behind the other.
pub fn now_of_files() -> SystemTime {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    UNIX_EPOCH + Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

impl Tree {
    /// Reads a folder and all below it.
    pub fn read(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        tree.add(root, Path::new(""))?;
        Ok(tree)
    }

    fn add(&mut self, root: &Path, relative: &Path) -> Result<()> {
        let path = if relative.as_os_str().is_empty() { root.to_path_buf() } else { root.join(relative) };
        let meta = std::fs::symlink_metadata(&path).at("look at", &path)?;
        self.0.insert(relative.to_path_buf(), Entry::read(&path, &meta)?);
        if meta.is_dir() {
            for name in names_unseen(&path).at("list", &path)? {
                self.add(root, &relative.join(name))?;
            }
        }
        Ok(())
    }

    /// The paths of what another user than `user` owns.
    pub fn paths_of_others(&self, user: u32) -> impl Iterator<Item = PathBuf> + '_ {
        self.0.iter().filter(move |(_, entry)| entry.uid != user).map(|(path, _)| path.clone())
    }

    /// All paths, relative to the folder.
    pub fn paths(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.0.keys().cloned()
    }

    /// The name under which a file with several names is known: the first of them in this tree.
    fn first_names(&self) -> BTreeMap<u64, &Path> {
        let mut names = BTreeMap::new();
        for (path, entry) in &self.0 {
            if entry.kind != Kind::Directory && entry.links > 1 {
                names.entry(entry.inode).or_insert(path.as_path());
            }
        }
        names
    }
}

impl Entry {
    fn read(path: &Path, meta: &Metadata) -> Result<Self> {
        let file_type = meta.file_type();
        let kind = if file_type.is_dir() {
            Kind::Directory
        } else if file_type.is_symlink() {
            Kind::Symlink(std::fs::read_link(path).at("read the link", path)?)
        } else if file_type.is_fifo() {
            Kind::Fifo
        } else if file_type.is_socket() {
            Kind::Socket
        } else if file_type.is_file() {
            let file = open_unseen(path).at("open", path)?;
            let hash = hash(&file, meta.len()).at("read", path)?;
            Kind::File { len: meta.len(), hash, sparse: has_hole(&file, meta.len()) }
        } else {
            Kind::Device(meta.rdev())
        };
        Ok(Self {
            kind,
            mode: meta.mode() & 0o7777,
            uid: meta.uid(),
            gid: meta.gid(),
            mtime_ns: i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec()),
            atime_ns: i128::from(meta.atime()) * 1_000_000_000 + i128::from(meta.atime_nsec()),
            links: meta.nlink(),
            inode: meta.ino(),
            xattrs: user_xattrs(path),
        })
    }

    /// The time of the last access, if it cannot be that of an access around the run: then a program has set it.
    fn set_access(&self, window: Window) -> Option<i128> {
        let around = since_epoch(window.start - ACCESS_WINDOW)..=since_epoch(window.end + ACCESS_WINDOW);
        (!around.contains(&self.atime_ns)).then_some(self.atime_ns)
    }

    fn stamp(&self, before: Option<&Entry>, window: Window) -> Stamp {
        let during = since_epoch(window.start - CLOCK_GRAIN)..=since_epoch(window.end + CLOCK_GRAIN);
        if before.is_some_and(|before| before.mtime_ns == self.mtime_ns) {
            Stamp::Kept
        } else if during.contains(&self.mtime_ns) {
            Stamp::During
        } else {
            Stamp::At(self.mtime_ns)
        }
    }
}

/// Opens what looking at must not move the time of the last access of.
fn open_unseen(path: &Path) -> std::io::Result<std::fs::File> {
    let unseen = std::fs::File::options().read(true).custom_flags(libc::O_NOATIME).open(path);
    unseen.or_else(|_| std::fs::File::open(path))
}

fn names_unseen(folder: &Path) -> std::io::Result<Vec<OsString>> {
    let entries = rustix::fs::Dir::new(open_unseen(folder)?)?.map(|entry| Ok(entry?.file_name().to_bytes().to_vec()));
    let names: Vec<Vec<u8>> = entries.collect::<std::io::Result<_>>()?;
    Ok(names.into_iter().filter(|name| name != b"." && name != b"..").map(OsString::from_vec).collect())
}

/// In nanoseconds.
fn since_epoch(time: SystemTime) -> i128 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i128)
}

/// A hash of the blocks of a file that are not all zeros, and of where they are: the same with holes and without, and soon
/// done where there are large ones.
fn hash(file: &std::fs::File, len: u64) -> std::io::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 256 * HASHED_BLOCK];
    let mut at = 0;
    while at < len {
        at = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            // What is read is aligned, whatever holes there are.
            Ok(data) => data - data % HASHED_BLOCK as u64,
            Err(rustix::io::Errno::NXIO) => break,
            Err(_) => at,
        };
        let count = read_at(file, &mut buffer, at)?;
        for (number, block) in buffer[..count].chunks(HASHED_BLOCK).enumerate() {
            if block.iter().any(|byte| *byte != 0) {
                hasher.update(&(at + (number * HASHED_BLOCK) as u64).to_le_bytes()).update(block);
            }
        }
        at += buffer.len() as u64;
    }
    Ok(hasher.finalize())
}

/// Fills the buffer, or reads to the end of the file.
fn read_at(file: &std::fs::File, buffer: &mut [u8], at: u64) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], at + filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

fn has_hole(file: &std::fs::File, len: u64) -> bool {
    rustix::fs::seek(file, SeekFrom::Hole(0)).is_ok_and(|hole| hole < len)
}

fn user_xattrs(path: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let mut names = vec![0u8; 65536];
    let Ok(len) = rustix::fs::llistxattr(path, &mut names[..]) else { return BTreeMap::new() };
    let mut found = BTreeMap::new();
    for name in names[..len].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user.")) {
        let mut value = vec![0u8; 65536];
        if let Ok(len) = rustix::fs::lgetxattr(path, name, &mut value[..]) {
            value.truncate(len);
            found.insert(OsString::from_vec(name.to_vec()), value);
        }
    }
    found
}

/// Puts every time that lies after `since` to one fixed moment, so that a set-up looks the same each time it is made.
pub fn settle_times(root: &Path, since: SystemTime) -> Result<()> {
    let meta = std::fs::symlink_metadata(root).at("look at", root)?;
    if meta.is_dir() {
        for entry in std::fs::read_dir(root).at("list", root)? {
            settle_times(&entry.at("list", root)?.path(), since)?;
        }
    }
    let modified = meta.modified().at("look at", root)?;
    if modified + CLOCK_GRAIN >= since && modified <= SystemTime::now() {
        let time = Timespec { tv_sec: SETUP_SECONDS, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, root, &times, AtFlags::SYMLINK_NOFOLLOW).at("set the times of", root)?;
    }
    Ok(())
}

/// One side of a comparison: a tree before and after a run, and when that was.
pub struct Side<'a> {
    /// The tree that the command found.
    pub before: &'a Tree,
    /// The tree that it left.
    pub after: &'a Tree,
    /// When it ran.
    pub window: Window,
}

impl Side<'_> {
    /// Whether what is at `path` now is a file that was not there before, or has the bytes that it or another file had.
    pub fn has_old_bytes(&self, path: &Path) -> bool {
        let hash = |entry: &Entry| match &entry.kind {
            Kind::File { hash, .. } => Some(*hash),
            _ => None,
        };
        let Some(now) = self.after.0.get(path).and_then(hash) else { return false };
        let was_file = self.before.0.get(path).is_some_and(|entry| hash(entry).is_some());
        !was_file || self.before.0.values().any(|entry| hash(entry) == Some(now))
    }
}

/// What differs, in words, one line each; paths in `ignore_mtime` may have any time.
pub fn differences(local: &Side<'_>, remote: &Side<'_>, ignore_mtime: &[PathBuf]) -> Vec<String> {
    let mut found = Vec::new();
    let (local_names, remote_names) = (local.after.first_names(), remote.after.first_names());
    for (path, here) in &local.after.0 {
        let name = if path.as_os_str().is_empty() { "the folder itself".to_owned() } else { show(path) };
        let Some(there) = remote.after.0.get(path) else {
            found.push(format!("{name}: there locally, absent remotely"));
            continue;
        };
        if let Some(difference) = kinds(&here.kind, &there.kind) {
            found.push(format!("{name}: {difference}"));
        }
        let mut differ = |what: &str, local: String, remote: String| {
            if local != remote {
                found.push(format!("{name}: {what} locally {local}, remotely {remote}"));
            }
        };
        if !matches!(here.kind, Kind::Symlink(_)) {
            differ("mode", format!("{:04o}", here.mode), format!("{:04o}", there.mode));
        }
        differ("owner", format!("{}:{}", here.uid, here.gid), format!("{}:{}", there.uid, there.gid));
        differ("extended attributes", format!("{:?}", here.xattrs), format!("{:?}", there.xattrs));
        if here.kind != Kind::Directory {
            differ("number of names", here.links.to_string(), there.links.to_string());
            let first =
                |names: &BTreeMap<u64, &Path>, inode| names.get(&inode).map_or(String::new(), |path| show(path));
            differ("same file as", first(&local_names, here.inode), first(&remote_names, there.inode));
        }
        if !ignore_mtime.contains(path) {
            let is_pipe = here.kind == Kind::Fifo;
            let here = here.stamp(local.before.0.get(path), local.window);
            let there = there.stamp(remote.before.0.get(path), remote.window);
            // Known: what is written into a pipe elsewhere does not change its time.
            if !(is_pipe && here == Stamp::During) {
                differ("time of change", format!("{here:?}"), format!("{there:?}"));
            }
        }
        // Not a link's: to know where it leads is to read it.
        let is_link = matches!(here.kind, Kind::Symlink(_));
        let is_old = |set: &i128| is_link || local.before.0.values().any(|entry| entry.atime_ns == *set);
        if let Some(set) = here.set_access(local.window).filter(|set| !is_old(set)) {
            let shown = |entry: &Entry, window| match entry.set_access(window) {
                Some(set) => format!("set to {set}"),
                None => format!("{} ms after the run began", (entry.atime_ns - since_epoch(window.start)) / 1_000_000),
            };
            differ("time of last access", format!("set to {set}"), shown(there, remote.window));
        }
    }
    for path in remote.after.0.keys().filter(|path| !local.after.0.contains_key(*path)) {
        found.push(format!("{}: absent locally, there remotely", show(path)));
    }
    found
}

fn kinds(here: &Kind, there: &Kind) -> Option<String> {
    match (here, there) {
        (Kind::File { len, hash, sparse }, Kind::File { len: other_len, hash: other, sparse: other_sparse }) => {
            if len != other_len {
                Some(format!("length locally {len}, remotely {other_len}"))
            } else if hash != other {
                Some(format!("bytes differ, of {len}"))
            } else if sparse != other_sparse {
                Some(format!("sparse locally {sparse}, remotely {other_sparse}"))
            } else {
                None
            }
        }
        _ if here == there => None,
        _ => Some(format!("locally {here:?}, remotely {there:?}")),
    }
}

fn show(path: &Path) -> String {
    format!("{path:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_hashed_alike_as_data_and_as_holes() {
        let scratch = crate::scratch::Scratch::new().unwrap();
        let hash_of = |name: &str, write: &dyn Fn(&std::fs::File)| {
            let path = scratch.path().join(name);
            let options = std::fs::File::options().read(true).write(true).create(true).clone();
            let file = options.open(&path).unwrap();
            write(&file);
            hash(&file, file.metadata().unwrap().len()).unwrap()
        };
        let end = |file: &std::fs::File| file.write_all_at(b"end", 5 << 20).unwrap();
        let holes = hash_of("holes", &end);
        let zeros = hash_of("zeros", &|file| {
            file.write_all_at(&vec![0; 5 << 20], 0).unwrap();
            end(file);
        });
        let other = hash_of("other", &|file| {
            end(file);
            file.write_all_at(b"x", 3 << 20).unwrap();
        });
        assert_eq!(holes, zeros);
        assert_ne!(holes, other);
        assert_ne!(holes, hash_of("moved", &|file| file.write_all_at(b"end", (5 << 20) - 4096).unwrap()));
    }
}
