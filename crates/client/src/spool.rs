//! Where a task's results wait between their arrival and the commit: in memory while they are small, then in a file
//! without a name. Every object's hash is checked on arrival.
//!
//! A large file that is announced before its blocks come ([`Spool::expect`]) gets a file without a name of its own, each block where it
//! belongs: such a one is put into place by a link, and not written a second time.

use crate::commit::{BYTES_MAX, Measure};
use base::{Content, Digest, Recipe, codec::Encode};
use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use store::room::Room;

/// Bytes kept in memory for one task; more go to the file.
const MEMORY_BYTES_MAX: usize = 8 << 20;
/// Smallest file that gets one of its own, and most such files of a task.
const WHOLE_BYTES_MIN: u64 = 4 << 20;
const WHOLES_MAX: usize = 64;
/// Bytes of objects that are taken before it is known what files are to come.
const UNANNOUNCED_BYTES_MAX: u64 = 256 << 20;
/// Most bytes that files can be said to have, with what is beside them: no commit takes more.
const ANNOUNCED_BYTES_MAX: u64 = BYTES_MAX + BYTES_MAX / 8;
/// What an object costs at least, in bytes: as much is kept of it beside its own.
const OBJECT_BYTES_MIN: u64 = 128;
/// After so many bytes it is asked again how much room there is on the disk, and this much of it is left to others, or a part of a small one.
const ROOM_STEP_BYTES: u64 = 4 << 20;
const LEFT_BYTES: u64 = 256 << 20;
const LEFT_PART: u64 = 8;
/// Bytes of a hole that are compared at once.
const COMPARED_BYTES: usize = 64 << 10;
/// What names, recipes and the like may add to a file's bytes: for each file, and for each sixteen bytes of it one.
pub(crate) const BESIDE_FILE_BYTES: u64 = 4 << 10;

/// The objects of one task's delta.
#[derive(Debug)]
pub struct Spool {
    folder: PathBuf,
    memory: HashMap<Digest, Vec<u8>>,
    memory_bytes: usize,
    file: Option<File>,
    file_bytes: u64,
    /// Bytes that may still be written before it is asked what room there is.
    room_bytes: u64,
    filed: HashMap<Digest, Filed>,
    /// Bytes of objects that are still taken: what comes beyond that is of no file that was announced.
    bytes_left: u64,
    /// Recipes of files that are to come, of which the blocks have not been looked for yet, and how long the files are to be.
    announced: HashMap<Digest, u64>,
    wholes: Vec<Whole>,
    /// Where in which of these a block belongs, and its length there.
    wanted: HashMap<Digest, Vec<(usize, u64, u64)>>,
}

/// Where an object is.
#[derive(Clone, Copy, Debug)]
struct Filed {
    /// In which of the large files; none: in the one for all.
    whole: Option<usize>,
    offset: u64,
    len: usize,
}

/// A large file, put together as its blocks come.
#[derive(Debug)]
struct Whole {
    recipe: Digest,
    file: File,
    /// Blocks that have not come.
    missing: usize,
    /// It has a name, or a block that is not what it should be.
    is_of_no_use: AtomicBool,
}

impl Spool {
    /// An empty spool, whose file will be made in `folder` if need be.
    pub fn new(folder: PathBuf) -> Self {
        let (memory, filed, announced, wholes, wanted) = Default::default();
        let bytes_left = UNANNOUNCED_BYTES_MAX;
        Self {
            folder,
            memory,
            memory_bytes: 0,
            file: None,
            file_bytes: 0,
            room_bytes: 0,
            filed,
            bytes_left,
            announced,
            wholes,
            wanted,
        }
    }

    /// Takes this many bytes more than the files that are announced have, as far as a commit takes so many.
    pub fn allow(&mut self, bytes: u64) {
        self.bytes_left = self.bytes_left.saturating_add(bytes).min(ANNOUNCED_BYTES_MAX);
    }

    /// Whether so many bytes more may go to the disk, on which others need room as well.
    fn take_room(&mut self, bytes: u64) -> io::Result<()> {
        if self.room_bytes < bytes {
            let room = Room::at(&self.folder)?;
            let left = room.bytes.saturating_sub(LEFT_BYTES.min(room.all_bytes / LEFT_PART));
            let left = if room.is_unbounded { u64::MAX } else { left };
            if left < bytes {
                let why = format!("a result finds no room in {}", self.folder.display());
                return Err(io::Error::new(io::ErrorKind::StorageFull, why));
            }
            self.room_bytes = ROOM_STEP_BYTES.min(left).max(bytes);
        }
        self.room_bytes -= bytes;
        Ok(())
    }

    /// Files of these contents and lengths are to come.
    pub fn expect(&mut self, files: impl Iterator<Item = (Content, u64)>) -> io::Result<()> {
        let mut large = HashMap::new();
        for (content, len) in files {
            self.allow(len.saturating_add(len / 16).saturating_add(BESIDE_FILE_BYTES));
            if let Content::Recipe(name) = content
                && len >= WHOLE_BYTES_MIN
                && large.len() < WHOLES_MAX
            {
                large.insert(name, len);
            }
        }
        for (name, len) in large {
            self.announced.insert(name, len);
            if self.has(&name) {
                self.begin_whole(name)?;
            }
        }
        Ok(())
    }

    /// Makes the file whose recipe has come, and puts into it what there is of it.
    fn begin_whole(&mut self, name: Digest) -> io::Result<()> {
        // One that is malformed is for the commit to refuse.
        let Some(len) = self.announced.remove(&name).filter(|_| self.wholes.len() < WHOLES_MAX) else { return Ok(()) };
        let Ok(recipe) = self.recipe(&Content::Recipe(name)) else { return Ok(()) };
        if recipe.size != len || data_bytes(&recipe) > room(&self.folder)? {
            return Ok(());
        }
        let file = tempfile_in(&self.folder)?;
        file.set_len(recipe.size)?;
        let number = self.wholes.len();
        let (mut at, mut blocks) = (0, HashSet::new());
        for piece in recipe.pieces {
            if let Some(block) = piece.block {
                self.wanted.entry(block).or_default().push((number, at, piece.len));
                blocks.insert(block);
            }
            at += piece.len;
        }
        self.wholes.push(Whole { recipe: name, file, missing: blocks.len(), is_of_no_use: AtomicBool::new(false) });
        for block in blocks {
            if self.has(&block) {
                let bytes = self.get(&block)?;
                self.put_into_wholes(block, &bytes, number)?;
            }
        }
        self.complete(number)
    }

    /// Writes a block where it belongs, in the large files from this number on. Returns where it is then.
    fn put_into_wholes(&mut self, digest: Digest, bytes: &[u8], first: usize) -> io::Result<Option<Filed>> {
        let (mut filed, mut done) = (None, HashSet::new());
        let count = self.wanted.get(&digest).map_or(0, |places| places.iter().filter(|(at, ..)| *at >= first).count());
        self.take_room((bytes.len() as u64).saturating_mul(count as u64))?;
        let places = self.wanted.get(&digest).into_iter().flatten().filter(|(number, ..)| *number >= first);
        for (number, offset, len) in places.copied() {
            let Some(whole) = self.wholes.get_mut(number) else { continue };
            if len != bytes.len() as u64 {
                whole.is_of_no_use.store(true, Ordering::Relaxed);
                continue;
            }
            whole.file.write_all_at(bytes, offset)?;
            if done.insert(number) {
                whole.missing = whole.missing.saturating_sub(1);
            }
            filed = Some(Filed { whole: Some(number), offset, len: bytes.len() });
        }
        done.into_iter().try_for_each(|number| self.complete(number))?;
        Ok(filed)
    }

    /// Ends the writing of a file that is complete: nobody may have it open for writing once it has a name.
    fn complete(&mut self, number: usize) -> io::Result<()> {
        let Some(whole) = self.wholes.get_mut(number).filter(|whole| whole.missing == 0) else { return Ok(()) };
        whole.file = File::open(format!("/proc/self/fd/{}", whole.file.as_raw_fd()))?;
        Ok(())
    }

    /// Gives the file of this content, if it is complete and has none yet, a name in `folder`, and tells whether it could.
    pub fn link_to(&self, content: &Content, folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<bool> {
        let Content::Recipe(recipe) = content else { return Ok(false) };
        let is_it = |whole: &&Whole| whole.recipe == *recipe && whole.missing == 0;
        let Some(whole) = self.wholes.iter().find(is_it) else { return Ok(false) };
        if whole.is_of_no_use.swap(true, Ordering::Relaxed) {
            return Ok(false);
        }
        let from = format!("/proc/self/fd/{}", whole.file.as_raw_fd());
        match rustix::fs::linkat(CWD, &from, folder, OsStr::from_bytes(name), AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => Ok(true),
            // It is on another mount.
            Err(Errno::XDEV | Errno::PERM | Errno::NOENT | Errno::OPNOTSUPP) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes an object in; `InvalidData` if its bytes do not have that hash.
    pub fn put(&mut self, digest: Digest, bytes: &[u8]) -> io::Result<()> {
        if Digest::of(bytes) != digest {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a result does not have the hash {digest}"),
            ));
        }
        if self.has(&digest) {
            return Ok(());
        }
        let left = self.bytes_left.checked_sub(OBJECT_BYTES_MIN.max(bytes.len() as u64));
        let more = || io::Error::new(io::ErrorKind::InvalidData, "a result is larger than its files were said to be");
        self.bytes_left = left.ok_or_else(more)?;
        if let Some(filed) = self.put_into_wholes(digest, bytes, 0)? {
            self.filed.insert(digest, filed);
            return Ok(());
        }
        self.put_aside(digest, bytes)?;
        self.begin_whole(digest)
    }

    fn put_aside(&mut self, digest: Digest, bytes: &[u8]) -> io::Result<()> {
        if self.memory_bytes + bytes.len() <= MEMORY_BYTES_MAX {
            self.memory_bytes += bytes.len();
            self.memory.insert(digest, bytes.to_vec());
            return Ok(());
        }
        self.take_room(bytes.len() as u64)?;
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(tempfile_in(&self.folder)?),
        };
        file.write_all_at(bytes, self.file_bytes)?;
        self.filed.insert(digest, Filed { whole: None, offset: self.file_bytes, len: bytes.len() });
        self.file_bytes += bytes.len() as u64;
        Ok(())
    }

    /// Whether an object has come.
    pub fn has(&self, digest: &Digest) -> bool {
        self.memory.contains_key(digest) || self.filed.contains_key(digest)
    }

    /// An object's bytes; `NotFound` if it never came.
    pub fn get(&self, digest: &Digest) -> io::Result<Vec<u8>> {
        if let Some(bytes) = self.memory.get(digest) {
            return Ok(bytes.clone());
        }
        let missing = || missing(digest);
        let Filed { whole, offset, len } = *self.filed.get(digest).ok_or_else(missing)?;
        let file = match whole {
            Some(number) => self.wholes.get(number).map(|whole| &whole.file),
            None => self.file.as_ref(),
        };
        let mut bytes = vec![0; len];
        file.ok_or_else(missing)?.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    /// The names of all objects.
    pub fn digests(&self) -> impl Iterator<Item = Digest> {
        self.memory.keys().chain(self.filed.keys()).copied()
    }

    /// The blocks of a file's content, in order.
    pub fn recipe(&self, content: &Content) -> io::Result<Recipe> {
        match content {
            Content::Recipe(digest) => Recipe::from_bytes(&self.get(digest)?)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string())),
            other => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{other:?} is not a recipe"))),
        }
    }

    /// How long a file of this content is, and how much of that is no hole, by what is said of it here.
    pub fn measure(&self, content: &Content) -> io::Result<Measure> {
        Ok(match content {
            Content::Empty => Measure::default(),
            Content::Block(digest) => {
                let len = self.len_of(digest).ok_or_else(|| missing(digest))?;
                Measure { len, data: len }
            }
            other => {
                let recipe = self.recipe(other)?;
                Measure { len: recipe.size, data: data_bytes(&recipe) }
            }
        })
    }

    fn len_of(&self, digest: &Digest) -> Option<u64> {
        let in_memory = self.memory.get(digest).map(|bytes| bytes.len() as u64);
        in_memory.or_else(|| self.filed.get(digest).map(|filed| filed.len as u64))
    }

    /// Whether the first `from` bytes of a file's content are those of `file`. Only of the last piece are the bytes needed.
    pub fn begins_as(&self, content: &Content, from: u64, file: &File) -> io::Result<bool> {
        let pieces = match content {
            Content::Empty => return Ok(from == 0),
            Content::Block(digest) => vec![base::Piece { len: u64::MAX, block: Some(*digest) }],
            other => self.recipe(other)?.pieces,
        };
        let mut at = 0;
        for piece in pieces {
            if at >= from {
                break;
            }
            let len = piece.len.min(from - at);
            let Some(digest) = piece.block else {
                if !is_hole(file, at, len)? {
                    return Ok(false);
                }
                at = at.saturating_add(piece.len);
                continue;
            };
            if len > base::BLOCK_BYTES_MAX as u64 {
                return Ok(false);
            }
            let mut there = vec![0; len as usize];
            if !read_at(file, &mut there, at)? {
                return Ok(false);
            }
            let begins = || match self.get(&digest) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                bytes => bytes.map(|bytes| bytes.starts_with(&there)),
            };
            let same = if len == piece.len { Digest::of(&there) == digest } else { begins()? };
            if !same {
                return Ok(false);
            }
            at = at.saturating_add(piece.len);
        }
        Ok(true)
    }

    /// Writes a file's bytes from its byte `from` on at `out`'s position; holes stay holes.
    pub fn write_from(&self, content: &Content, from: u64, out: &File) -> io::Result<()> {
        let mut out = out;
        match content {
            Content::Empty => Ok(()),
            Content::Block(digest) => {
                let bytes = self.get(digest)?;
                out.write_all(bytes.get(from as usize..).unwrap_or_default())
            }
            Content::Recipe(_) => {
                let mut at = 0;
                let mut ends_in_hole = false;
                for piece in self.recipe(content)?.pieces {
                    let skip = from.saturating_sub(at).min(piece.len);
                    at += piece.len;
                    ends_in_hole = piece.block.is_none();
                    match piece.block {
                        _ if skip == piece.len => {}
                        Some(block) => {
                            let bytes = self.get(&block)?;
                            if bytes.len() as u64 != piece.len {
                                return Err(other_length(&block, bytes.len() as u64, piece.len));
                            }
                            out.write_all(bytes.get(skip as usize..).unwrap_or_default())?;
                        }
                        None => {
                            out.seek(SeekFrom::Current((piece.len - skip) as i64))?;
                        }
                    }
                }
                if ends_in_hole {
                    let end = out.stream_position()?;
                    out.set_len(end)?;
                }
                Ok(())
            }
            Content::Lazy(_) | Content::Unreadable(_) => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, "a result without its bytes"))
            }
        }
    }
}

/// Reads all of these bytes; false if the file ends before.
fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<bool> {
    match file.read_exact_at(bytes, at) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        other => other.map(|()| true),
    }
}

/// Whether `len` bytes of the file from `at` on are there, and zeros. A recipe may say of any length that it is a hole.
fn is_hole(file: &File, at: u64, len: u64) -> io::Result<bool> {
    let end = at.saturating_add(len);
    if file.metadata()?.len() < end {
        return Ok(false);
    }
    let (mut at, mut there) = (at, vec![0; COMPARED_BYTES.min(len as usize)]);
    while at < end {
        let len = (end - at).min(there.len() as u64) as usize;
        if !read_at(file, &mut there[..len], at)? || there[..len].iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at += len as u64;
    }
    Ok(true)
}

fn missing(digest: &Digest) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("the result lacks the object {digest}"))
}

fn other_length(block: &Digest, len: u64, said: u64) -> io::Error {
    let text = format!("the block {block} has {len} bytes where its recipe says {said}");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// The bytes of a file that are not in holes.
fn data_bytes(recipe: &Recipe) -> u64 {
    let lens = recipe.pieces.iter().filter(|piece| piece.block.is_some()).map(|piece| piece.len);
    lens.fold(0, u64::saturating_add)
}

/// How many bytes results may take of the disk that `folder` is on.
pub(crate) fn room(folder: &std::path::Path) -> io::Result<u64> {
    Ok(Room::at(folder)?.for_results())
}

/// A file that has no name, in `folder`.
fn tempfile_in(folder: &std::path::Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, open};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(open(folder, flags, Mode::RUSR | Mode::WUSR)?.into())
}

#[cfg(test)]
mod tests;
