//! Where a task's results wait between their arrival and the commit: in memory while they are small, then in a file
//! without a name. Every object's hash is checked on arrival.

use base::{Content, Digest, Recipe, codec::Encode};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Bytes kept in memory for one task; more go to the file.
const MEMORY_BYTES_MAX: usize = 8 << 20;

/// The objects of one task's delta.
#[derive(Debug)]
pub struct Spool {
    folder: PathBuf,
    memory: HashMap<Digest, Vec<u8>>,
    memory_bytes: usize,
    file: Option<File>,
    file_bytes: u64,
    filed: HashMap<Digest, (u64, usize)>,
}

impl Spool {
    /// An empty spool, whose file will be made in `folder` if need be.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, memory: HashMap::new(), memory_bytes: 0, file: None, file_bytes: 0, filed: HashMap::new() }
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
        self.filed.insert(digest, (self.file_bytes, bytes.len()));
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
        let missing = || io::Error::new(io::ErrorKind::NotFound, format!("the result lacks the object {digest}"));
        let (offset, len) = *self.filed.get(digest).ok_or_else(missing)?;
        let mut bytes = vec![0; len];
        self.file.as_ref().ok_or_else(missing)?.read_exact_at(&mut bytes, offset)?;
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
                        Some(block) => out.write_all(self.get(&block)?.get(skip as usize..).unwrap_or_default())?,
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
    fn forged_objects_are_refused() {
        let mut spool = Spool::new(std::env::temp_dir());
        let refused = spool.put(Digest::of(b"a"), b"b").expect_err("another hash");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        assert_eq!(spool.get(&Digest::of(b"a")).expect_err("not there").kind(), io::ErrorKind::NotFound);
    }
}
