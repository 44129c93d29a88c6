//! Who reads one file of a folder after the other reads the next ones, too: they go along with the answer to a question, more of
//! them the longer it goes on.

use super::closure::disk;
use crate::snapshot::lru::Lru;
use base::{Listing, NodeKind, TreePath};
use std::ops::Range;
use std::sync::Mutex;
use wire::lock;

/// Folders that are remembered.
const FOLDERS_MAX: usize = 256;
/// Names that may be left out between two that are asked for.
const SKIPPED_MAX: usize = 8;
/// Files that go along first, and at most.
const AHEAD_MIN: usize = 4;
const AHEAD_MAX: usize = 64;

/// Bytes of these, which are hashed for it.
const BYTES_MAX: u64 = 8 << 20;

/// How far each folder was read.
#[derive(Debug)]
pub(super) struct Strides(Mutex<Lru<TreePath, Stride>>);

#[derive(Clone, Debug, Default)]
struct Stride {
    /// The last name that was asked for or went along.
    last: Vec<u8>,
    ahead: usize,
    /// All of the folder was asked for or went along, and that was not told yet.
    ended: bool,
}

impl Default for Strides {
    fn default() -> Self {
        Self(Mutex::new(Lru::new(FOLDERS_MAX)))
    }
}

impl Strides {
    /// The files of `folder` to bring with `name`, which is asked for.
    pub fn next(&self, folder: &TreePath, listing: &Listing, name: &[u8]) -> Vec<TreePath> {
        let Ok(at) = listing.entries.binary_search_by(|entry| entry.name.as_slice().cmp(name)) else {
            return Vec::new();
        };
        let mut folders = lock(&self.0);
        let Some(stride) = folders.get(folder) else {
            folders.insert(folder.clone(), Stride { last: name.to_vec(), ..Stride::default() }, 1);
            return Vec::new();
        };
        let before = listing.entries.partition_point(|entry| entry.name <= stride.last);
        let range = stride.step(at, before, listing.entries.len());
        stride.ended = stride.ahead > 0 && range.end == listing.entries.len();
        if let Some(last) = range.clone().last() {
            stride.last.clone_from(&listing.entries[last].name);
        } else {
            stride.last = name.to_vec();
        }
        let files = listing.entries[range].iter().filter(|entry| entry.kind == NodeKind::File);
        let mut room = BYTES_MAX;
        let mut fits = |path: &TreePath| {
            // What is not there, or not small, is asked for by who wants it.
            let len = std::fs::symlink_metadata(disk(path)).map_or(u64::MAX, |data| data.len());
            let left = room.checked_sub(len);
            room = left.unwrap_or(room);
            left.is_some()
        };
        files.map(|entry| folder.join(&entry.name)).filter(|path| fits(path)).collect()
    }
}

impl Strides {
    /// Whether `folder` was read to its end; told once.
    pub fn ended(&self, folder: &TreePath) -> bool {
        lock(&self.0).get(folder).is_some_and(|stride| std::mem::take(&mut stride.ended))
    }
}

impl Stride {
    /// Which names go along with number `at`, where all before number `before` were asked for or went along.
    fn step(&mut self, at: usize, before: usize, count: usize) -> Range<usize> {
        let in_order = (before..=before + SKIPPED_MAX).contains(&at);
        self.ahead = if in_order { (self.ahead * 2).clamp(AHEAD_MIN, AHEAD_MAX) } else { 0 };
        at + 1..(at + 1 + self.ahead).min(count).max(at + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ListingEntry;

    /// A folder of so many files, with its listing.
    fn folder(count: usize) -> (tempfile::TempDir, TreePath, Listing) {
        let folder = tempfile::tempdir().unwrap();
        let entry = |at: usize| {
            std::fs::write(folder.path().join(format!("{at:03}")), [1; 100]).unwrap();
            ListingEntry { name: format!("{at:03}").into_bytes(), kind: NodeKind::File, ino: 1 }
        };
        let listing = Listing::new((0..count).map(entry).collect());
        let path = TreePath::parse(folder.path().to_str().unwrap().as_bytes()).unwrap();
        (folder, path, listing)
    }

    #[test]
    fn who_reads_in_order_asks_ever_less() {
        let (strides, (_files, folder, listing)) = (Strides::default(), folder(484));
        let (mut known, mut asked) = (std::collections::HashSet::new(), 0);
        for at in 0..484 {
            let name = format!("{at:03}").into_bytes();
            if known.contains(&folder.join(&name)) {
                continue;
            }
            asked += 1;
            known.extend(strides.next(&folder, &listing, &name));
        }
        assert_eq!(asked, 12, "the first two, then one for each 8, 16, 32, 64, 64 ..");
        assert!(strides.ended(&folder) && !strides.ended(&folder));
    }

    #[test]
    fn who_picks_asks_for_each() {
        let (strides, (_files, folder, listing)) = (Strides::default(), folder(400));
        for at in [300, 20, 200, 100, 350, 0] {
            let name = format!("{at:03}").into_bytes();
            assert_eq!(strides.next(&folder, &listing, &name), [], "{at}");
        }
        assert_eq!(strides.next(&folder, &listing, b"none"), []);
        assert_eq!(strides.next(&folder, &listing, b"399"), []);
    }

    #[test]
    fn large_files_are_left_to_those_who_want_them() {
        let (strides, (files, folder, listing)) = (Strides::default(), folder(10));
        std::fs::write(files.path().join("003"), vec![0; BYTES_MAX as usize + 1]).unwrap();
        strides.next(&folder, &listing, b"000");
        let next = strides.next(&folder, &listing, b"001");
        assert_eq!(next, [b"002", b"004", b"005"].map(|name| folder.join(name)));
    }
}
