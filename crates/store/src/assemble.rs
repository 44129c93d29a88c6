//! Reading a file back out of its blocks, at any offset.

use crate::block_store::BlockStore;
use crate::error::StoreError;
use base::{Digest, Piece, Recipe, Tenant};
use std::collections::HashSet;

/// A recipe with the offset of each piece, made once and asked often.
#[derive(Clone, Debug)]
pub struct RecipeIndex {
    pieces: Vec<Piece>,
    /// Where each piece starts in the file.
    starts: Vec<u64>,
    size: u64,
}

/// What a stretch of a file is made of: part of a piece, or all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Which piece of the recipe.
    pub piece: usize,
    /// The block; `None` in a hole.
    pub block: Option<Digest>,
    /// Where the stretch starts in the file, in bytes.
    pub offset: u64,
    /// Where it starts in the block, in bytes.
    pub offset_in_block: u64,
    /// Its length in bytes, never 0.
    pub len: u64,
}

/// What became of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// This many bytes were read: all that were asked for, or all up to the end of the file.
    Filled(usize),
    /// These blocks are not here, each named once, in the order of the file. The buffer holds nothing of use.
    Missing(Vec<Digest>),
}

impl RecipeIndex {
    /// Works out where each piece starts.
    pub fn new(recipe: Recipe) -> Self {
        let mut size = 0u64;
        let starts = recipe
            .pieces
            .iter()
            .map(|piece| {
                let start = size;
                // A recipe that was decoded adds up; one that was made here is made of files.
                size = size.saturating_add(piece.len);
                start
            })
            .collect();
        Self { pieces: recipe.pieces, starts, size }
    }

    /// Length of the file in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// What it takes of memory, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.pieces.len() * (size_of::<Piece>() + size_of::<u64>())
    }

    /// The pieces, in the order of the file.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// What `len` bytes of the file from `offset` are made of, up to the end of the file.
    pub fn pieces_in(&self, offset: u64, len: u64) -> impl Iterator<Item = Span> + '_ {
        let end = offset.saturating_add(len).min(self.size);
        let first = self.starts.partition_point(|start| *start <= offset).saturating_sub(1);
        let within = (first..self.pieces.len()).take_while(move |piece| self.starts[*piece] < end && offset < end);
        within.map(move |piece| {
            let start = self.starts[piece];
            let Piece { len, block } = self.pieces[piece];
            let from = start.max(offset);
            let to = start.saturating_add(len).min(end);
            Span { piece, block, offset: from, offset_in_block: from - start, len: to - from }
        })
    }

    /// Where the next byte of data at or after `offset` is, as `SEEK_DATA` has it; `None` if none follows.
    pub fn seek_data(&self, offset: u64) -> Option<u64> {
        self.pieces_in(offset, u64::MAX).find(|span| span.block.is_some()).map(|span| span.offset)
    }

    /// Where the next hole at or after `offset` starts, as `SEEK_HOLE` has it: the end of the file counts as one;
    /// `None` beyond it.
    pub fn seek_hole(&self, offset: u64) -> Option<u64> {
        let hole = self.pieces_in(offset, u64::MAX).find(|span| span.block.is_none());
        (offset < self.size).then(|| hole.map_or(self.size, |span| span.offset))
    }
}

/// Fills `buf` with a file's bytes from `offset`, out of the blocks that the tenant has shown.
///
/// # Errors
/// [`StoreError::ShortBlock`] if a block is shorter than the recipe says; [`StoreError::Io`] if the disk fails.
pub fn read_content(
    store: &BlockStore,
    tenant: Tenant,
    recipe: &RecipeIndex,
    offset: u64,
    buf: &mut [u8],
) -> Result<ReadOutcome, StoreError> {
    let mut missing = Vec::new();
    let mut seen = HashSet::new();
    let mut filled = 0;
    for span in recipe.pieces_in(offset, buf.len() as u64) {
        let part = &mut buf[filled..filled + span.len as usize];
        filled += span.len as usize;
        let Some(digest) = span.block else {
            part.fill(0);
            continue;
        };
        // Once a block is missing, nothing is read any more: only what else is missing is of interest.
        let is_here = match missing.is_empty() {
            true => match store.read_at(tenant, &digest, span.offset_in_block, part)? {
                Some(count) if count < part.len() => {
                    let want = span.offset_in_block + span.len;
                    let len = store.len(tenant, &digest).unwrap_or(span.offset_in_block + count as u64);
                    return Err(StoreError::ShortBlock { digest, want, len });
                }
                found => found.is_some(),
            },
            false => store.contains(tenant, &digest),
        };
        if !is_here && seen.insert(digest) {
            missing.push(digest);
        }
    }
    if missing.is_empty() { Ok(ReadOutcome::Filled(filled)) } else { Ok(ReadOutcome::Missing(missing)) }
}
