//! Cuts files into blocks for the snapshot, as the store does.

use crate::recipes::{Cut, Cutter};
use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::sync::Arc;
use store::CutError;

/// Cuts with `store`.
pub struct FileCutter;

impl Cutter for FileCutter {
    fn cut(&self, file: &File, size: u64) -> io::Result<Cut> {
        let cut = store::chunk::cut::<Infallible>(file, size, &mut |_, _| Ok(()));
        match cut {
            Ok(cut) if cut.size < size => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(cut) => Ok(Cut { content: cut.content, recipe: cut.recipe.map(|recipe| Arc::new(recipe.recipe)) }),
            Err(CutError::Read(error)) => Err(error),
            Err(CutError::TooManyPieces) => Err(io::Error::other("it has too many pieces")),
            Err(CutError::Sink(never)) => match never {},
        }
    }
}
