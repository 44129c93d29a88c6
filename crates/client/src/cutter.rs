//! Cuts files into blocks for the snapshot, as the store does.

use crate::recipes::{Cut, Cutter};
use base::{Digest, EAGER_FILE_BYTES_MAX};
use bytes::Bytes;
use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::sync::Arc;
use store::CutError;
use store::chunk::{cut, cut_bytes, has_no_holes};

/// Cuts with `store`.
pub struct FileCutter;

impl Cutter for FileCutter {
    fn cut(&self, file: &File, size: u64, sink: &mut dyn FnMut(Digest, Bytes)) -> io::Result<Cut> {
        let cut = if size <= EAGER_FILE_BYTES_MAX && has_no_holes(file, size) {
            let bytes = read_whole(file, size)?;
            cut_bytes(&bytes, &mut |digest, place| sink(digest, bytes.slice(place)))
        } else {
            cut::<Infallible>(file, size, &mut |_, _| Ok(()))
        };
        match cut {
            Ok(cut) if cut.size < size => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(cut) => Ok(Cut { content: cut.content, recipe: cut.recipe.map(|recipe| Arc::new(recipe.recipe)) }),
            Err(CutError::Read(error)) => Err(error),
            Err(CutError::TooManyPieces) => Err(io::Error::other("it has too many pieces")),
            Err(CutError::Sink(never)) => match never {},
        }
    }
}

/// The first `size` bytes of a file; fewer if it is shorter.
fn read_whole(mut file: &File, size: u64) -> io::Result<Bytes> {
    let mut bytes = Vec::with_capacity(size as usize);
    file.rewind()?;
    file.take(size).read_to_end(&mut bytes)?;
    Ok(bytes.into())
}
