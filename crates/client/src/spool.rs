//! Where a task's results wait between their arrival and the commit: in memory while they are small, then in a file
//! without a name. Every object's hash is checked on arrival.
//!
//! A large file that is announced before its blocks come ([`Spool::expect`]) gets a file without a name of its own, each block where it
//! belongs: such a one is put into place by a link, and not written a second time.

use crate::commit::Measure;
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
            filed,
            bytes_left,
            announced,
            wholes,
            wanted,
        }
    }

    /// Takes this many bytes more than the files that are announced have.
    pub fn allow(&mut self, bytes: u64) {
        self.bytes_left = self.bytes_left.saturating_add(bytes);
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
        let left = self.bytes_left.checked_sub(bytes.len() as u64);
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
            let mut there = vec![0; piece.len.min(from - at) as usize];
            match file.read_exact_at(&mut there, at) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
                other => other?,
            }
            let same = match piece.block {
                None => there.iter().all(|byte| *byte == 0),
                Some(digest) if there.len() as u64 == piece.len => Digest::of(&there) == digest,
                Some(digest) => match self.get(&digest) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => false,
                    bytes => bytes?.starts_with(&there),
                },
            };
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
mod tests {
    use super::*;
    use base::Piece;
    use std::io::Read;
    use std::os::fd::AsFd;

    #[test]
    fn large_results_go_to_a_file_and_come_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut spool = Spool::new(folder.path().to_owned());
        let blocks: Vec<Vec<u8>> = (0..12u8).map(|number| vec![number; 1 << 20]).collect();
        let mut pieces = Vec::new();
        for block in &blocks {
            spool.put(Digest::of(block), block).expect("kept");
            pieces.push(Piece { len: block.len() as u64, block: Some(Digest::of(block)) });
        }
        pieces.push(Piece { len: 5000, block: None });
        let recipe = Recipe { size: pieces.iter().map(|piece| piece.len).sum(), pieces };
        let name = Digest::of(&recipe.to_bytes());
        spool.put(name, &recipe.to_bytes()).expect("kept");
        let out = folder.path().join("out");
        spool.write_from(&Content::Recipe(name), 1 << 20, &File::create(&out).expect("made")).expect("written");
        let mut written = Vec::new();
        File::open(&out).expect("there").read_to_end(&mut written).expect("read");
        assert_eq!(written.len() as u64, recipe.size - (1 << 20));
        assert!(written.starts_with(&blocks[1]) && written.ends_with(&[0; 5000]));

        let whole = folder.path().join("whole");
        let content = Content::Recipe(name);
        spool.write_from(&content, 0, &File::create(&whole).expect("made")).expect("written");
        let whole = File::options().read(true).write(true).open(&whole).expect("there");
        let begins = |from| spool.begins_as(&content, from, &whole).expect("compared");
        assert!(begins(0) && begins(1) && begins((3 << 20) + 7) && begins(recipe.size) && begins(recipe.size - 1));
        whole.write_all_at(b"x", 3 << 20).expect("written");
        assert!(begins(3 << 20) && !begins((3 << 20) + 7));
        whole.set_len(5).expect("cut");
        assert!(begins(5) && !begins(6));
    }

    #[test]
    fn a_large_file_that_was_announced_is_linked_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let held = File::open(folder.path()).expect("there");
        let mut spool = Spool::new(folder.path().to_owned());
        let blocks: Vec<Vec<u8>> = [1u8, 2, 1, 3].map(|number| vec![number; 1 << 20]).to_vec();
        let piece = |block: &Vec<u8>| Piece { len: block.len() as u64, block: Some(Digest::of(block)) };
        let mut pieces: Vec<Piece> = blocks.iter().map(piece).collect();
        pieces.push(Piece { len: 5000, block: None });
        let recipe = Recipe { size: pieces.iter().map(|piece| piece.len).sum(), pieces };
        let name = Digest::of(&recipe.to_bytes());
        let content = Content::Recipe(name);
        spool.put(Digest::of(&blocks[1]), &blocks[1]).expect("kept: a block that comes first");
        spool.expect([(content, recipe.size)].into_iter()).expect("noted");
        spool.put(name, &recipe.to_bytes()).expect("kept");
        spool.put(Digest::of(&blocks[0]), &blocks[0]).expect("kept");
        let link = |spool: &Spool, name: &[u8]| spool.link_to(&content, held.as_fd(), name).expect("tried");
        assert!(!link(&spool, b"early"), "a block is missing");
        spool.put(Digest::of(&blocks[3]), &blocks[3]).expect("kept");
        assert!(link(&spool, b"whole") && !link(&spool, b"twice"), "two files are not one");
        let expected = [&blocks.concat()[..], &[0; 5000]].concat();
        assert!(std::fs::read(folder.path().join("whole")).expect("there") == expected);
        let rights = rustix::fs::fcntl_getfl(&spool.wholes[0].file).expect("open");
        assert!(!rights.intersects(rustix::fs::OFlags::RDWR), "nobody writes it any more");
        let copy = folder.path().join("copy");
        spool.write_from(&content, 0, &File::create(&copy).expect("made")).expect("written");
        assert!(std::fs::read(&copy).expect("there") == expected);
    }

    #[test]
    fn a_result_is_no_larger_than_it_was_said_to_be() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut spool = Spool::new(folder.path().to_owned());
        spool.bytes_left = 10;
        let block = vec![7u8; 1 << 20];
        let refused = spool.put(Digest::of(&block), &block).expect_err("more than is announced");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        spool.expect([(Content::Recipe(Digest([1; 32])), 2 << 20)].into_iter()).expect("noted");
        spool.put(Digest::of(&block), &block).expect("that is of the file");
        // A recipe that says less of a block than the block has.
        let piece = Piece { len: 5, block: Some(Digest::of(&block)) };
        let recipe = Recipe { size: 10, pieces: vec![piece; 2] };
        let name = Digest::of(&recipe.to_bytes());
        spool.put(name, &recipe.to_bytes()).expect("kept");
        assert_eq!(spool.measure(&Content::Recipe(name)).expect("measured"), Measure { len: 10, data: 10 });
        let out = File::create(folder.path().join("out")).expect("made");
        assert!(spool.write_from(&Content::Recipe(name), 0, &out).is_err());
        assert_eq!(out.metadata().expect("there").len(), 0, "nothing of it is written");
    }

    #[test]
    fn a_recipe_that_is_larger_than_its_file_gets_no_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut spool = Spool::new(folder.path().to_owned());
        let block = vec![7u8; 1 << 20];
        let piece = Piece { len: 1 << 20, block: Some(Digest::of(&block)) };
        let recipe = Recipe { size: 64 << 20, pieces: vec![piece; 64] };
        let name = Digest::of(&recipe.to_bytes());
        spool.expect([(Content::Recipe(name), 5 << 20)].into_iter()).expect("noted");
        spool.put(name, &recipe.to_bytes()).expect("kept");
        spool.put(Digest::of(&block), &block).expect("kept");
        assert!(spool.wholes.is_empty(), "5 MiB were announced");
    }

    #[test]
    fn forged_objects_are_refused() {
        let mut spool = Spool::new(std::env::temp_dir());
        let refused = spool.put(Digest::of(b"a"), b"b").expect_err("another hash");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        assert_eq!(spool.get(&Digest::of(b"a")).expect_err("not there").kind(), io::ErrorKind::NotFound);
    }
}
