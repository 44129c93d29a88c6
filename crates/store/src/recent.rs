//! Blocks that were just read and compared with their names. Who reads a file asks for a block part by part: without this each part would cost
//! reading and hashing the whole.

use base::Digest;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Blocks at most: as many readers go on side by side.
const BLOCKS_MAX: usize = 8;
/// Bytes of all together at most.
const BYTES_MAX: usize = 4 << 20;

/// A few blocks, the newest last.
#[derive(Debug, Default)]
pub struct Recent(Mutex<VecDeque<(Digest, Arc<Vec<u8>>)>>);

impl Recent {
    /// A block, if it is one of them.
    pub fn find(&self, digest: &Digest) -> Option<Arc<Vec<u8>>> {
        let blocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.iter().find(|(name, _)| name == digest).map(|(_, bytes)| bytes.clone())
    }

    /// A block that was compared with its name.
    pub fn note(&self, digest: Digest, bytes: Arc<Vec<u8>>) {
        let mut blocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.retain(|(name, _)| *name != digest);
        blocks.push_back((digest, bytes));
        while blocks.len() > BLOCKS_MAX || blocks.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() > BYTES_MAX {
            blocks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_stay() {
        let recent = Recent::default();
        let digest = |number: u8| Digest([number; 32]);
        (0..10).for_each(|number| recent.note(digest(number), Arc::new(vec![number; 10])));
        assert_eq!(recent.find(&digest(9)).as_deref(), Some(&vec![9; 10]));
        assert_eq!((recent.find(&digest(1)), recent.find(&digest(2)).is_some()), (None, true));
        recent.note(digest(20), Arc::new(vec![0; BYTES_MAX]));
        assert!(recent.find(&digest(9)).is_none() && recent.find(&digest(20)).is_some());
        recent.note(digest(21), Arc::new(vec![0; BYTES_MAX + 1]));
        assert!(recent.find(&digest(21)).is_none(), "it is too large");
    }
}
