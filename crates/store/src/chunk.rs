//! Cutting files into blocks and recipes, and reading the pieces of files that are bound without being hashed.
//!
//! Cut points depend on content (FastCDC, 2020 version), so that an insertion changes few blocks, and are the same for
//! the same bytes and holes wherever the file is. A hole is a piece without a block, where the file system reports one.
//!
//! Speed: 1,200 to 1,400 MB/s for cutting and hashing 512 MiB of noise in the page cache, in CPU time of one thread on
//! a busy 2-core virtual machine with AVX-512 (`cargo run --release -p store --example speed`). Two thirds of the time
//! go into finding cut points.

use base::codec::Encode;
use base::{BLOB_BYTES_MAX, BLOCK_BYTES_MAX, Content, Digest, LAZY_PIECE_BYTES, Piece, Recipe};
use fastcdc::v2020::{Normalization, cut as cut_point, select_masks};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Files up to this length, in bytes, are cut into blocks of about 64 KiB; longer ones into blocks of about 256 KiB.
pub const FINE_FILE_BYTES_MAX: u64 = 64 << 20;

/// Lengths of blocks, in bytes. All even, as the chunker demands.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    min: usize,
    avg: usize,
    max: usize,
}

const FINE: Sizes = Sizes { min: 16 << 10, avg: 64 << 10, max: 256 << 10 };
const COARSE: Sizes = Sizes { min: 64 << 10, avg: 256 << 10, max: BLOCK_BYTES_MAX };

impl Sizes {
    fn of_file(size: u64) -> Self {
        if size <= FINE_FILE_BYTES_MAX { FINE } else { COARSE }
    }

    /// Length of the block at the front of `window`, which has as much as the longest takes, or all that is left.
    fn cut_point(self, window: &[u8]) -> usize {
        let (mask_s, mask_l) = select_masks(self.avg, Normalization::Level1);
        cut_point(window, self.min, self.avg, self.max, mask_s, mask_l, mask_s << 1, mask_l << 1).1
    }
}

/// Length of the encoding of a recipe without pieces, and of a piece with and without a block, in bytes.
const RECIPE_BYTES: usize = 13;
const PIECE_BYTES: usize = 41;
const HOLE_BYTES: usize = 9;

/// What takes the blocks of a file as they are cut: their digests and bytes.
pub type Sink<'a, E> = dyn FnMut(Digest, &[u8]) -> Result<(), E> + 'a;

/// A file, cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Where the file's bytes are: empty, a block, or a recipe.
    pub content: Content,
    /// Length in bytes as found: less than was said if the file has become shorter meanwhile.
    pub size: u64,
    /// The recipe, where the content is one: the caller stores its encoding.
    pub recipe: Option<CutRecipe>,
}

/// A recipe with its encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutRecipe {
    /// The recipe.
    pub recipe: Recipe,
    /// Its encoding, whose digest is the content's.
    pub encoded: Vec<u8>,
}

/// Why a file could not be cut; `E` is the sink's error.
#[derive(Debug, thiserror::Error)]
pub enum CutError<E> {
    /// The file cannot be read.
    #[error("cannot read the file: {0}")]
    Read(#[source] io::Error),
    /// The file has so many pieces (holes, mostly) that its recipe would exceed [`BLOB_BYTES_MAX`].
    #[error("the file has too many pieces for one recipe: bind it without cutting it")]
    TooManyPieces,
    /// The sink refused a block.
    #[error("{0}")]
    Sink(E),
}

/// Cuts the first `size` bytes of a file, its length as its attributes have it, and gives each block to `sink`, equal
/// ones repeatedly. Moves the file's cursor. A file that changes while it is cut gives a recipe of no moment of it:
/// the caller compares its attributes before and after.
///
/// # Errors
/// See [`CutError`].
pub fn cut<E>(file: &File, size: u64, sink: &mut Sink<'_, E>) -> Result<Cut, CutError<E>> {
    Cutter::default().cut(file, size, sink)
}

/// Cuts bytes as the file that has them, without holes, would be cut, and gives `sink` the place of each block.
///
/// # Errors
/// [`CutError::TooManyPieces`].
pub fn cut_bytes(bytes: &[u8], sink: &mut dyn FnMut(Digest, Range<usize>)) -> Result<Cut, CutError<Infallible>> {
    let sizes = Sizes::of_file(bytes.len() as u64);
    let mut pieces = Pieces::default();
    let mut at = 0;
    while at < bytes.len() {
        let len = sizes.cut_point(&bytes[at..]);
        let digest = Digest::of(&bytes[at..at + len]);
        pieces.push(len as u64, Some(digest)).ok_or(CutError::TooManyPieces)?;
        sink(digest, at..at + len);
        at += len;
    }
    Ok(pieces.finish())
}

/// Whether the first `size` bytes of a file have no hole that the file system reports. Moves the file's cursor.
pub fn has_no_holes(file: &File, size: u64) -> bool {
    matches!(next_extent(file, 0, size), Ok(Extent::Data(end)) if end == size)
}

/// Cuts files one after the other, with one buffer of at most 4 MiB.
#[derive(Debug, Default)]
pub struct Cutter {
    buffer: Vec<u8>,
}

impl Cutter {
    /// See [`cut`].
    ///
    /// # Errors
    /// See [`CutError`].
    pub fn cut<E>(&mut self, file: &File, size: u64, sink: &mut Sink<'_, E>) -> Result<Cut, CutError<E>> {
        let sizes = Sizes::of_file(size);
        let mut pieces = Pieces::default();
        while pieces.size < size {
            match next_extent(file, pieces.size, size).map_err(CutError::Read)? {
                Extent::Data(end) => {
                    if !self.cut_data(file, end, sizes, &mut pieces, sink)? {
                        break;
                    }
                }
                Extent::Hole(end) => pieces.push(end - pieces.size, None).ok_or(CutError::TooManyPieces)?,
                Extent::Ended => break,
            }
        }
        Ok(pieces.finish())
    }

    /// Cuts the data from where the pieces end up to `end`. False if the file ends before.
    fn cut_data<E>(
        &mut self,
        file: &File,
        end: u64,
        sizes: Sizes,
        pieces: &mut Pieces,
        sink: &mut Sink<'_, E>,
    ) -> Result<bool, CutError<E>> {
        let mut read_at = pieces.size;
        let capacity = usize::try_from(end - read_at).unwrap_or(usize::MAX).min(sizes.max * 4);
        if self.buffer.len() < capacity {
            self.buffer.resize(capacity, 0);
        }
        let buffer = &mut self.buffer[..capacity];
        let (mut head, mut tail, mut is_ended) = (0, 0, false);
        loop {
            // The chunker must see as much as the longest block takes, or all that is left.
            if tail - head < sizes.max && read_at < end && !is_ended {
                buffer.copy_within(head..tail, 0);
                (head, tail) = (0, tail - head);
                let want = (capacity - tail).min(usize::try_from(end - read_at).unwrap_or(usize::MAX));
                let count = read_full(file, &mut buffer[tail..tail + want], read_at).map_err(CutError::Read)?;
                tail += count;
                read_at += count as u64;
                is_ended = count < want;
            }
            if head == tail {
                return Ok(!is_ended);
            }
            let window = &buffer[head..tail];
            let len = sizes.cut_point(window);
            let digest = Digest::of(&window[..len]);
            pieces.push(len as u64, Some(digest)).ok_or(CutError::TooManyPieces)?;
            sink(digest, &window[..len]).map_err(CutError::Sink)?;
            head += len;
        }
    }
}

/// The pieces so far.
#[derive(Default)]
struct Pieces {
    size: u64,
    pieces: Vec<Piece>,
    encoded_bytes: usize,
}

impl Pieces {
    /// Adds a piece; `None` if the recipe would become too long.
    fn push(&mut self, len: u64, block: Option<Digest>) -> Option<()> {
        self.encoded_bytes += if block.is_some() { PIECE_BYTES } else { HOLE_BYTES };
        if RECIPE_BYTES + self.encoded_bytes > BLOB_BYTES_MAX {
            return None;
        }
        self.size += len;
        self.pieces.push(Piece { len, block });
        Some(())
    }

    fn finish(self) -> Cut {
        let size = self.size;
        let content = match self.pieces.as_slice() {
            [] => Content::Empty,
            [Piece { block: Some(digest), .. }] => Content::Block(*digest),
            _ => {
                let recipe = Recipe { size, pieces: self.pieces };
                let encoded = recipe.to_bytes();
                let content = Content::Recipe(Digest::of(&encoded));
                return Cut { content, size, recipe: Some(CutRecipe { recipe, encoded }) };
            }
        };
        Cut { content, size, recipe: None }
    }
}

/// What starts at an offset, and where that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Data(u64),
    Hole(u64),
    /// The file has become shorter.
    Ended,
}

/// What is at an offset before `end`. A file system that knows no holes has data throughout.
fn next_extent(file: &File, at: u64, end: u64) -> io::Result<Extent> {
    match seek(file, SeekFrom::Hole(at)) {
        Ok(hole) if hole > at => return Ok(Extent::Data(hole.min(end))),
        Ok(_) => {}
        Err(Errno::NXIO) => return Ok(Extent::Ended),
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY) => return Ok(Extent::Data(end)),
        Err(errno) => return Err(errno.into()),
    }
    match seek(file, SeekFrom::Data(at)) {
        Ok(data) if data > at => Ok(Extent::Hole(data.min(end))),
        // The hole was filled between the two questions.
        Ok(_) => Ok(Extent::Data(end)),
        // No data up to the end of the file, wherever that is now.
        Err(Errno::NXIO) => match file.metadata()?.len().min(end) {
            len if len > at => Ok(Extent::Hole(len)),
            _ => Ok(Extent::Ended),
        },
        Err(errno) => Err(errno.into()),
    }
}

/// Fills `buf` from `offset`, up to the end of the file; how many bytes there were.
///
/// # Errors
/// What the system says.
pub fn read_full(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buf.len() {
        match file.read_at(&mut buf[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// A piece of a file that is bound without being hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LazyPiece {
    /// Which piece: it starts at this many times [`LAZY_PIECE_BYTES`].
    pub index: u64,
    /// Digest of the bytes.
    pub digest: Digest,
    /// The bytes: [`LAZY_PIECE_BYTES`] of them, fewer in the last piece.
    pub bytes: Vec<u8>,
}

/// Reads pieces of a file of `size` bytes, one at a time; pieces beyond its end are left out. The caller compares the
/// file's attributes with its stamp before and after.
///
/// The items are errors where the disk fails, and `UnexpectedEof` where the file has become shorter than `size`.
pub fn hash_pieces(file: &File, pieces: Range<u64>, size: u64) -> impl Iterator<Item = io::Result<LazyPiece>> + '_ {
    let end = pieces.end.min(size.div_ceil(LAZY_PIECE_BYTES));
    (pieces.start..end).map(move |index| {
        let start = index * LAZY_PIECE_BYTES;
        let mut bytes = vec![0; (size - start).min(LAZY_PIECE_BYTES) as usize];
        if read_full(file, &mut bytes, start)? < bytes.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(LazyPiece { index, digest: Digest::of(&bytes), bytes })
    })
}
