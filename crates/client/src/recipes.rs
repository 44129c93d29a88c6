//! The recipe cache: which bytes a file in a known state has, so that no file is hashed twice. Kept on disk between
//! runs of the daemon; losing it costs time, never meaning.

use crate::small_file::{self, seal, unseal};
use crate::snapshot::Stamp;
use crate::snapshot::lru::Lru;
use base::binding::read_digest;
use base::codec::{Encode, Malformed, Reader, Writer};
use base::{Content, Digest, Piece, Recipe, Time, TreePath};
use bytes::Bytes;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use wire::lock;
use wire::without::{Part, is_left_out};

/// Cuts files into blocks.
pub trait Cutter: Send + Sync {
    /// Reads `size` bytes of `file` from its start and cuts them. A file that turns out shorter is an error of the kind
    /// [`io::ErrorKind::UnexpectedEof`]; what is beyond `size` is not read. Each block of a file that is
    /// small enough to be read as a whole goes to `sink` with its digest.
    fn cut(&self, file: &File, size: u64, sink: &mut dyn FnMut(Digest, Bytes)) -> io::Result<Cut>;
}

/// A file cut into blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// [`Content::Empty`], [`Content::Block`] or [`Content::Recipe`].
    pub content: Content,
    /// The recipe, of [`Content::Recipe`].
    pub recipe: Option<Arc<Recipe>>,
}

impl Cut {
    /// The blocks of a file of `size` bytes: digest, offset in the file and length.
    pub fn blocks(&self, size: u64) -> Vec<(Digest, u64, u32)> {
        match (&self.content, &self.recipe) {
            (Content::Block(digest), _) => u32::try_from(size).map_or(Vec::new(), |len| vec![(*digest, 0, len)]),
            (Content::Recipe(_), Some(recipe)) => {
                let mut offset = 0;
                let place = |piece: &Piece| {
                    let at = offset;
                    offset += piece.len;
                    Some((piece.block?, at, u32::try_from(piece.len).ok()?))
                };
                recipe.pieces.iter().filter_map(place).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// What it weighs to remember a file, in bytes, beside its path and pieces.
const ENTRY_BYTES: usize = 200;
/// Largest cache file that is read, in bytes.
const SAVED_BYTES_MAX: u64 = 512 << 20;
const FILE_NAME: &str = "recipes";
/// Files of the first version were not looked at for what they hold.
const MAGIC: &[u8] = b"gleaner recipes 2\n";

/// Contents of files by path and stamp.
#[derive(Debug)]
pub struct Recipes {
    known: Mutex<State>,
}

#[derive(Debug)]
struct State {
    files: Lru<TreePath, Known>,
    /// Whether there is anything that is not on disk.
    unsaved: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    stamp: Stamp,
    cut: Cut,
    /// The stamp tells the same state whichever mount shows it.
    lasting: bool,
}

impl Recipes {
    /// An empty cache of at most `bytes_max` bytes of memory, roughly.
    pub fn new(bytes_max: usize) -> Self {
        Self { known: Mutex::new(State { files: Lru::new(bytes_max), unsaved: false }) }
    }

    /// The cache as saved in `folder`; empty if there is none, or if it is not readable as such, which is warned of.
    pub fn load(folder: &Path, bytes_max: usize) -> Self {
        let recipes = Self::new(bytes_max);
        let path = folder.join(FILE_NAME);
        let files = match small_file::read(&path, SAVED_BYTES_MAX) {
            Ok(bytes) => parse_saved(&bytes).map_err(|error| error.to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error.to_string()),
        };
        match files {
            Ok(files) => {
                let mut state = lock(&recipes.known);
                for (path, known) in files {
                    state.insert(path, known);
                }
                state.unsaved = false;
            }
            Err(why) => {
                tracing::warn!(path = %path.display(), why, "the recipe cache is dropped: files are hashed again");
                let _ = std::fs::remove_file(&path);
            }
        }
        recipes
    }

    /// What the file at `path` holds in the state `stamp`.
    pub fn get(&self, path: &TreePath, stamp: &Stamp) -> Option<Cut> {
        if is_left_out(Part::RecipeCache) {
            return None;
        }
        let mut state = lock(&self.known);
        let known = state.files.get(path)?;
        let seen = if known.lasting { Stamp { mount: stamp.mount, ..known.stamp } } else { known.stamp };
        (seen == *stamp).then(|| known.cut.clone())
    }

    /// Remembers what the file at `path` holds in the state `stamp`. The caller knows that the stamp would differ if
    /// the file had been changed since it was hashed (see [`crate::snapshot::Snapshot::prime`]). `lasting`: it tells the
    /// same state whichever mount shows it, also after the next start of the daemon.
    pub fn put(&self, path: TreePath, stamp: Stamp, cut: Cut, lasting: bool) {
        if matches!(cut.content, Content::Empty | Content::Block(_) | Content::Recipe(_)) {
            lock(&self.known).insert(path, Known { stamp, cut, lasting });
        }
    }

    /// How many files are known.
    pub fn len(&self) -> usize {
        lock(&self.known).files.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the cache to `folder`, if anything is new since it was last written.
    pub fn save(&self, folder: &Path) -> io::Result<()> {
        let bytes = {
            let mut state = lock(&self.known);
            if !std::mem::take(&mut state.unsaved) {
                return Ok(());
            }
            saved_form(&state.files)
        };
        let written = small_file::write(&folder.join(FILE_NAME), &bytes);
        if written.is_err() {
            lock(&self.known).unsaved = true;
        }
        written
    }
}

impl State {
    fn insert(&mut self, path: TreePath, known: Known) {
        if self.files.peek(&path) == Some(&known) {
            return;
        }
        let pieces = known.cut.recipe.as_ref().map_or(0, |recipe| recipe.pieces.len());
        let weight = ENTRY_BYTES + path.as_bytes().len() + pieces * size_of::<Piece>();
        self.files.insert(path, known, weight);
        self.unsaved = true;
    }
}

fn saved_form(files: &Lru<TreePath, Known>) -> Vec<u8> {
    let mut out = Writer::default();
    // Numbers of mounts mean nothing at the next start.
    let lasting = || files.oldest_first().filter(|(_, known)| known.lasting);
    out.u32(lasting().count() as u32);
    for (path, Known { stamp, cut, .. }) in lasting() {
        out.bytes(path.as_bytes());
        write_stamp(&mut out, stamp);
        match &cut.content {
            Content::Block(digest) => {
                out.u8(1);
                out.raw(&digest.0);
            }
            Content::Recipe(digest) => {
                out.u8(2);
                out.raw(&digest.0);
            }
            // Nothing else is put.
            _ => out.u8(0),
        }
        out.option(cut.recipe.as_deref(), |out, recipe| recipe.encode(out));
    }
    seal(MAGIC, &out.0)
}

fn parse_saved(bytes: &[u8]) -> Result<Vec<(TreePath, Known)>, Malformed> {
    let mut from = Reader::new(unseal(MAGIC, bytes)?);
    let files = from.list(|from| {
        let path = TreePath::parse(from.bytes()?).ok_or(Malformed("a path that is not in normal form"))?;
        let stamp = read_stamp(from)?;
        let content = match from.u8()? {
            0 => Content::Empty,
            1 => Content::Block(read_digest(from)?),
            2 => Content::Recipe(read_digest(from)?),
            _ => return Err(Malformed("content of an unknown kind")),
        };
        let recipe = from.option(Recipe::decode)?.map(Arc::new);
        Ok((path, Known { stamp, cut: Cut { content, recipe }, lasting: true }))
    })?;
    // An earlier version kept files of images, too.
    let lasting = files.into_iter().filter(|(_, known)| known.stamp.has_real_times()).collect();
    if from.is_empty() { Ok(lasting) } else { Err(Malformed("bytes left over")) }
}

fn write_stamp(out: &mut Writer, stamp: &Stamp) {
    out.u64(stamp.dev);
    out.u64(stamp.ino);
    out.u64(stamp.size);
    out.i64(stamp.mtime.0);
    out.i64(stamp.ctime.0);
}

fn read_stamp(from: &mut Reader<'_>) -> Result<Stamp, Malformed> {
    let (dev, ino, size) = (from.u64()?, from.u64()?, from.u64()?);
    Ok(Stamp { dev, ino, size, mtime: Time(from.i64()?), ctime: Time(from.i64()?), mount: 0 })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    /// Cuts files into blocks of a fixed length.
    pub struct FixedCutter(pub usize);

    impl Cutter for FixedCutter {
        fn cut(&self, file: &File, size: u64, sink: &mut dyn FnMut(Digest, Bytes)) -> io::Result<Cut> {
            let mut bytes = vec![0; size as usize];
            file.read_exact_at(&mut bytes, 0)?;
            bytes.chunks(self.0).for_each(|block| sink(Digest::of(block), Bytes::copy_from_slice(block)));
            if bytes.is_empty() {
                return Ok(Cut { content: Content::Empty, recipe: None });
            }
            if bytes.len() <= self.0 {
                return Ok(Cut { content: Content::Block(Digest::of(&bytes)), recipe: None });
            }
            let piece = |block: &[u8]| Piece { len: block.len() as u64, block: Some(Digest::of(block)) };
            let recipe = Recipe { size, pieces: bytes.chunks(self.0).map(piece).collect() };
            Ok(Cut { content: Content::Recipe(Digest::of(&recipe.to_bytes())), recipe: Some(Arc::new(recipe)) })
        }
    }

    fn stamp(number: u64) -> Stamp {
        Stamp { dev: 1, ino: number, size: 3, mtime: Time(4), ctime: Time(5), mount: 6 }
    }

    fn path(text: &str) -> TreePath {
        TreePath::parse(text.as_bytes()).unwrap()
    }

    fn sample() -> Recipes {
        let recipes = Recipes::new(1 << 20);
        recipes.put(path("/a"), stamp(1), Cut { content: Content::Block(Digest([7; 32])), recipe: None }, true);
        let recipe = Recipe { size: 3, pieces: vec![Piece { len: 3, block: None }] };
        let cut = Cut { content: Content::Recipe(Digest([8; 32])), recipe: Some(Arc::new(recipe)) };
        recipes.put(path("/b"), stamp(2), cut, true);
        recipes
    }

    #[test]
    fn a_changed_stamp_is_not_found() {
        let recipes = sample();
        assert!(recipes.get(&path("/a"), &stamp(1)).is_some());
        assert!(recipes.get(&path("/a"), &stamp(2)).is_none());
    }

    #[test]
    fn what_is_not_hashed_is_not_kept() {
        let recipes = sample();
        recipes.put(path("/c"), stamp(1), Cut { content: Content::Lazy(Digest([1; 32])), recipe: None }, true);
        recipes.put(path("/d"), stamp(1), Cut { content: Content::Unreadable(13), recipe: None }, true);
        assert_eq!(recipes.len(), 2);
    }

    #[test]
    fn an_image_mounted_in_the_place_of_another_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let cut = || Cut { content: Content::Block(Digest([7; 32])), recipe: None };
        let recipes = sample();
        recipes.put(path("/image"), stamp(3), cut(), false);
        let elsewhere = |number| Stamp { mount: 9, ..stamp(number) };
        assert!(recipes.get(&path("/image"), &stamp(3)).is_some());
        assert!(recipes.get(&path("/image"), &elsewhere(3)).is_none());
        assert!(recipes.get(&path("/a"), &elsewhere(1)).is_some(), "a disk that was mounted again");
        recipes.save(folder.path()).unwrap();
        let again = Recipes::load(folder.path(), 1 << 20);
        assert!(again.get(&path("/image"), &stamp(3)).is_none() && again.get(&path("/a"), &stamp(1)).is_some());
    }

    #[test]
    fn saved_and_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let recipes = sample();
        recipes.save(&state).unwrap();
        let again = Recipes::load(&state, 1 << 20);
        assert_eq!(again.get(&path("/b"), &stamp(2)), recipes.get(&path("/b"), &stamp(2)));
        assert_eq!(again.len(), 2);
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn golden_bytes() {
        let recipes = Recipes::new(1 << 20);
        recipes.put(path("/a"), stamp(1), Cut { content: Content::Empty, recipe: None }, true);
        let bytes = saved_form(&lock(&recipes.known).files);
        let body = "01000000020000002f610100000000000000010000000000000003000000000000000400000000000000\
                    05000000000000000000";
        assert_eq!(base::digest::hex(unseal(MAGIC, &bytes).unwrap()), body);
    }

    #[test]
    fn a_damaged_file_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let recipes = sample();
        recipes.save(folder.path()).unwrap();
        let file = folder.path().join(FILE_NAME);
        let whole = std::fs::read(&file).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x20;
            assert!(parse_saved(&bytes).is_err());
            assert!(parse_saved(&whole[..at]).is_err());
        }
        std::fs::write(&file, &whole[1..]).unwrap();
        assert!(Recipes::load(folder.path(), 1 << 20).is_empty());
        assert!(!file.exists());
    }

    #[test]
    fn bounded() {
        let recipes = Recipes::new(10 * (ENTRY_BYTES + 8));
        for number in 0..100 {
            let cut = Cut { content: Content::Empty, recipe: None };
            recipes.put(path(&format!("/f{number:05}")), stamp(number), cut, true);
        }
        assert!(recipes.len() <= 11, "{}", recipes.len());
    }
}
