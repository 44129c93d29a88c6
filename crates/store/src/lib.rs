//! The block store on disk, the cutting of files into recipes, and the reading of files back out of blocks.
//!
//! A [`BlockStore`] is a cache: every block in it is named by its hash and can be had again from whoever showed it. So
//! nothing is ever synced to the disk, a torn or damaged record is forgotten instead of repaired, and what is oldest
//! and unused goes when room is needed. What must not go is held by a [`Pin`].
//!
//! A [`journal::Journal`] is the opposite: what it told durable cannot be had from anyone else, and is never lost.
//!
//! Deliberately not here: compression (the record format leaves room for it), and any network.

pub mod assemble;
pub mod chunk;
pub mod journal;
pub mod log;
pub mod pg_journal;
pub mod room;
pub mod system;
pub mod upkeep;

mod block_store;
mod disk;
mod error;
mod evict;
mod folder_lock;
mod index;
mod intake;
mod options;
mod pins;
mod private_file;
mod recent;
mod record;
mod segment;
pub mod shrink;
#[cfg(test)]
mod tests;

pub use assemble::{ReadOutcome, RecipeIndex, Span, read_content};
pub use block_store::{BlockStore, Mark, Stretch};
pub use chunk::{Cut, CutError, CutRecipe, Cutter, LazyPiece, Sink};
pub use error::StoreError;
pub use options::{Options, Stats};
pub use pins::Pin;
pub use private_file::write_private;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock whose data stays whole even where a holder panicked: no holder leaves it half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
