//! Files with several names. A worker takes two names for one file only if all that it is told of them is equal, their contents'
//! names included; and a file that a task wrote may be cut in another way than it would be here.

use super::lru::Lru;
use super::{NamingSecret, Stamp};
use crate::recipes::Cut;
use base::Digest;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use wire::lock;

/// Files that are known at the same time.
const FILES_MAX: usize = 16_384;

/// How files of several names were cut last.
#[derive(Debug)]
pub(super) struct Linked {
    cuts: Mutex<Lru<(u64, u64), (Stamp, Cut)>>,
    look: AtomicU64,
}

impl Linked {
    /// None yet.
    pub fn new() -> Self {
        Self { cuts: Mutex::new(Lru::new(FILES_MAX)), look: AtomicU64::new(rand::random()) }
    }

    /// How the file, which has so many `names`, is cut in this state, under whichever of them.
    pub fn cut(&self, stamp: &Stamp, names: u32) -> Option<Cut> {
        if names < 2 {
            return None;
        }
        let mut cuts = lock(&self.cuts);
        let (seen, cut) = cuts.get(&(stamp.dev, stamp.ino))?;
        (*seen == *stamp).then(|| cut.clone())
    }

    /// How the file is cut in this state: like this, unless it was cut under another of its `names`.
    pub fn agree(&self, stamp: &Stamp, names: u32, cut: Cut) -> Cut {
        if names < 2 {
            return cut;
        }
        if let Some(cut) = self.cut(stamp, names) {
            return cut;
        }
        lock(&self.cuts).insert((stamp.dev, stamp.ino), (*stamp, cut.clone()), 1);
        cut
    }

    /// A launch begins to look at files: what somebody has open for writing may hold something else now.
    pub fn begin_look(&self) {
        self.look.fetch_add(1, Ordering::Relaxed);
    }

    /// A name for what a file in this state holds that somebody has open for writing: another one at each look.
    pub fn passing_name(&self, stamp: &Stamp, secret: &NamingSecret) -> Digest {
        let look = self.look.load(Ordering::Relaxed).to_le_bytes();
        Digest::of(&[&look[..], &stamp.name(secret, false).0].concat())
    }
}
