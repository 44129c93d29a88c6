//! What the hub has of files that change: to a far one a new version goes as its difference from the last.
//!
//! The user's files keep no old versions. So blocks that were sent of them are kept here for a while, in memory, by their names; files of
//! the distribution, which do not change under one's hands, are not. What is forgotten here, or evicted at the hub, goes whole.

use crate::snapshot::lru::Lru;
use base::codec::Encode;
use base::{Binding, Bound, Content, Digest, Recipe, TreePath};
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use wire::lock;
use wire::message::Object;
use wire::patch::Version;

/// Bytes of blocks that are kept.
const BLOCKS_BYTES_MAX: usize = 64 << 20;
/// Files whose last version is remembered, by their blocks: as many as this in all.
const BLOCKS_MAX: usize = 262_144;
/// Blocks that are noted to be read: what is kept of blocks of 64 KiB.
const UNKEPT_MAX: usize = 1024;
/// Most that goes unasked of the changes of large files, bytes on the link.
const CHANGES_BYTES_MAX: usize = 4 << 20;
/// The same before they are packed.
const CHANGES_RAW_MAX: usize = 64 << 20;

/// The versions that the hub has.
pub struct Earlier {
    blocks: Mutex<Lru<Digest, Bytes>>,
    files: Mutex<Lru<TreePath, Arc<Last>>>,
    /// Blocks that the hub has and that are not kept.
    unkept: Mutex<Vec<Digest>>,
}

/// What the hub has of a file: the name of its content, and its blocks.
struct Last {
    name: Digest,
    version: Version,
}

/// Contents that go to the hub: packed when their turn comes, for that takes time.
#[derive(Debug)]
pub struct Outgoing {
    /// Their name.
    pub digest: Digest,
    bytes: Bytes,
    /// Blocks that the hub has, and that these are like.
    like: Vec<(Digest, Bytes)>,
    /// A change of a large file: nobody knows whether it will be read.
    is_guess: bool,
}

impl Outgoing {
    /// Bytes, not packed.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Packs them one by one. Of guesses only as much as may go unasked: the others will be asked for.
    pub fn pack_all(all: Vec<Self>) -> impl Iterator<Item = Object> {
        let mut room = CHANGES_BYTES_MAX;
        all.into_iter().filter_map(move |Self { digest, bytes, like, is_guess }| {
            if is_guess && room == 0 {
                return None;
            }
            let object = Object::like(digest, bytes, &like);
            if is_guess {
                room = room.saturating_sub(object.bytes.len());
            }
            Some(object)
        })
    }
}

/// What is known of the client's files and of the hub's.
pub struct Contents<'a> {
    /// The bytes under a name, as long as they are to be had.
    pub read: &'a dyn Fn(&Digest) -> Option<Bytes>,
    /// Whether the hub has them.
    pub hub_has: &'a dyn Fn(&Digest) -> bool,
    /// The hub is far: bytes cost more than the work to save them.
    pub far: bool,
}

impl Default for Earlier {
    fn default() -> Self {
        Self {
            blocks: Mutex::new(Lru::new(BLOCKS_BYTES_MAX)),
            files: Mutex::new(Lru::new(BLOCKS_MAX)),
            unkept: Mutex::default(),
        }
    }
}

impl Earlier {
    /// What goes with `set` to the hub: `blobs`, each as its difference from an earlier version where there is one; and
    /// the new blocks of large files of which the hub has an earlier version.
    pub fn outgoing<'a>(
        &self,
        set: impl Iterator<Item = &'a Bound> + Clone,
        blobs: Vec<(Digest, Bytes)>,
        contents: &Contents<'_>,
    ) -> Vec<Outgoing> {
        let files: HashMap<Digest, _> =
            users_files(set.clone()).map(|(path, _, content, name)| (name, (path, content))).collect();
        let mut outgoing: Vec<Outgoing> = blobs
            .into_iter()
            .map(|(digest, bytes)| match files.get(&digest) {
                Some((path, content)) => self.known(path, content, (digest, bytes), contents.far),
                None => Outgoing { digest, bytes, like: Vec::new(), is_guess: false },
            })
            .collect();
        let mut room = CHANGES_RAW_MAX;
        for (path, size, content, name) in users_files(set) {
            let version = match content {
                Content::Recipe(_) => {
                    let recipe = (contents.read)(&name).and_then(|bytes| Recipe::from_bytes(&bytes).ok());
                    Version::new(&recipe.unwrap_or_default().pieces)
                }
                _ => Version::of_block(name, size),
            };
            if contents.far {
                outgoing.extend(self.changes(path, &version, contents, &mut room));
            }
            self.note_unkept(&version, contents);
            let weight = version.blocks().len() + 1;
            lock(&self.files).insert(path.clone(), Arc::new(Last { name, version }), weight);
        }
        outgoing
    }

    /// Keeps a block of a file, which the hub was sent.
    pub fn keep(&self, digest: Digest, bytes: &Bytes) {
        // Part of a larger buffer would hold all of it.
        lock(&self.blocks).insert(digest, Bytes::copy_from_slice(bytes), bytes.len());
    }

    /// Whether [`Self::fill`] has something to read.
    pub fn lacks(&self) -> bool {
        !lock(&self.unkept).is_empty()
    }

    /// Keeps what the hub has from before this daemon started, as long as files still have it. Reads files.
    pub fn fill(&self, read: &dyn Fn(&Digest) -> Option<Bytes>) {
        // Not within the loop's head: that would hold the lock throughout.
        let unkept = std::mem::take(&mut *lock(&self.unkept));
        for digest in unkept {
            if let Some(bytes) = read(&digest) {
                self.keep(digest, &bytes);
            }
        }
    }

    fn note_unkept(&self, version: &Version, contents: &Contents<'_>) {
        let lacking: Vec<Digest> = {
            let kept = lock(&self.blocks);
            version.blocks().filter(|digest| kept.peek(digest).is_none()).collect()
        };
        let lacking = lacking.into_iter().filter(|digest| (contents.hub_has)(digest));
        let mut unkept = lock(&self.unkept);
        let room = UNKEPT_MAX.saturating_sub(unkept.len());
        unkept.extend(lacking.take(room));
    }

    /// The new blocks of a file of many, if the hub has an earlier version of it.
    fn changes(&self, path: &TreePath, version: &Version, contents: &Contents<'_>, room: &mut usize) -> Vec<Outgoing> {
        let mut outgoing = Vec::new();
        let Some(last) = self.last(path).filter(|_| version.blocks().len() > 1) else { return outgoing };
        let mut sent = HashSet::new();
        for (at, digest) in version.blocks().enumerate() {
            if last.version.has(&digest) || (contents.hub_has)(&digest) || !sent.insert(digest) {
                continue;
            }
            let Some(bytes) = (contents.read)(&digest) else { continue };
            let Some(left) = room.checked_sub(bytes.len()) else { break };
            *room = left;
            let like = self.have(&last.version.ancestors(version, at));
            self.keep(digest, &bytes);
            outgoing.push(Outgoing { digest, bytes, like, is_guess: true });
        }
        outgoing
    }

    /// A block that is a whole file, or a recipe.
    fn known(&self, path: &TreePath, content: &Content, (digest, bytes): (Digest, Bytes), far: bool) -> Outgoing {
        let last = self.last(path).filter(|last| far && last.name != digest);
        let like = last.map(|last| match content {
            Content::Recipe(_) => self.have(&[last.name]),
            _ => self.have(&last.version.ancestors(&Version::of_block(digest, bytes.len() as u64), 0)),
        });
        self.keep(digest, &bytes);
        Outgoing { digest, bytes, like: like.unwrap_or_default(), is_guess: false }
    }

    fn last(&self, path: &TreePath) -> Option<Arc<Last>> {
        lock(&self.files).get(path).cloned()
    }

    /// Those of these blocks that are kept.
    fn have(&self, names: &[Digest]) -> Vec<(Digest, Bytes)> {
        let mut blocks = lock(&self.blocks);
        names.iter().filter_map(|name| Some((*name, blocks.get(name)?.clone()))).collect()
    }
}

/// The files among these that are the user's, with their sizes and contents, and the names of these.
fn users_files<'a>(
    set: impl Iterator<Item = &'a Bound>,
) -> impl Iterator<Item = (&'a TreePath, u64, &'a Content, Digest)> {
    set.filter_map(|Bound { path, binding, .. }| match binding {
        Binding::File { attr, content: content @ (Content::Block(name) | Content::Recipe(name)), .. } => {
            (!attr.is_of_system(path)).then_some((path, attr.size, content, *name))
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Attr, Piece, Seq};

    /// Files as the client has them at a moment, and what the hub has.
    #[derive(Default)]
    struct World {
        earlier: Earlier,
        bytes: HashMap<Digest, Bytes>,
        hub: HashMap<Digest, Bytes>,
    }

    impl World {
        /// What goes to the hub with a file of these blocks, whose own content and recipe travel; in bytes.
        fn send(&mut self, path: &str, blocks: &[&[u8]]) -> usize {
            let bytes = blocks.iter().map(|block| Bytes::copy_from_slice(block)).collect::<Vec<_>>();
            let mut blobs: Vec<_> = bytes.iter().map(|bytes| (Digest::of(bytes), bytes.clone())).collect();
            self.bytes.extend(blobs.iter().cloned());
            let content = if let [(digest, _)] = blobs[..] {
                Content::Block(digest)
            } else {
                let piece = |(digest, bytes): &(Digest, Bytes)| Piece { len: bytes.len() as u64, block: Some(*digest) };
                let pieces: Vec<Piece> = blobs.iter().map(piece).collect();
                let recipe = Recipe { size: pieces.iter().map(|piece| piece.len).sum(), pieces }.to_bytes();
                blobs = vec![(Digest::of(&recipe), recipe.into())];
                self.bytes.extend(blobs.iter().cloned());
                Content::Recipe(blobs[0].0)
            };
            blobs.retain(|(digest, _)| !self.hub.contains_key(digest));
            let attr = Attr { size: 1, ..Attr::default() };
            let path = TreePath::parse(path.as_bytes()).unwrap();
            let set = [Bound { path, seq: Seq(1), binding: Binding::File { attr, content, xattrs: Vec::new() } }];
            let (read, has) =
                (|name: &Digest| self.bytes.get(name).cloned(), |name: &Digest| self.hub.contains_key(name));
            let contents = Contents { read: &read, hub_has: &has, far: true };
            let mut sent = 0;
            for object in Outgoing::pack_all(self.earlier.outgoing(set.iter(), blobs, &contents)) {
                let bytes =
                    object.whole(|name| self.hub.get(name).cloned()).unwrap().expect("the hub has what it is like");
                let name = Digest::of(&bytes);
                assert_eq!(object.digest, name.0[..]);
                sent += object.bytes.len();
                self.hub.insert(name, bytes);
            }
            sent
        }
    }

    fn text(seed: u64, lines: u64) -> Vec<u8> {
        (0..lines)
            .flat_map(|line| format!("{:x}\n", (seed * 7919 + line).wrapping_mul(0x9e37_79b9)).into_bytes())
            .collect()
    }

    #[test]
    fn a_changed_file_goes_as_its_change_also_when_others_went_in_between() {
        let mut world = World::default();
        let (a, b) = (text(1, 2_000), text(2, 2_000));
        assert!(world.send("/w/a.c", &[&a]) > 10_000);
        assert!(world.send("/w/b.c", &[&b]) > 10_000);
        let changed = [&a[..9_000], b"int changed;\n", &a[9_000..]].concat();
        assert!(world.send("/w/a.c", &[&changed]) < 100);
        assert!(world.send("/w/b.c", &[&[&b[..], b"more\n"].concat()]) < 100);
    }

    #[test]
    fn of_a_large_file_its_new_blocks_go_once_the_hub_has_the_old_ones() {
        let mut world = World::default();
        let blocks: Vec<Vec<u8>> = (0..20).map(|seed| text(seed, 8_000)).collect();
        let slices = |blocks: &[Vec<u8>]| blocks.iter().map(|block| block.to_vec()).collect::<Vec<_>>();
        let first: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
        assert!(world.send("/w/scene", &first) < 2_000, "the recipe: nobody knows which blocks will be read");
        for block in &blocks {
            // They are read, and come because they were asked for.
            world.hub.insert(Digest::of(block), block.clone().into());
            world.earlier.keep(Digest::of(block), &block.clone().into());
        }
        let mut second = slices(&blocks);
        second[3].splice(40_000..40_010, *b"another piece");
        second.insert(9, text(99, 500));
        let second: Vec<&[u8]> = second.iter().map(Vec::as_slice).collect();
        let sent = world.send("/w/scene", &second);
        assert!(sent < 6_000, "{sent} bytes");
        assert_eq!(world.send("/w/scene", &second), 0);
        assert!(second.iter().all(|block| world.hub.contains_key(&Digest::of(block))));
    }

    #[test]
    fn what_the_hub_had_before_this_start_is_read_for_the_next_change() {
        let mut world = World::default();
        let file = text(1, 2_000);
        world.hub.insert(Digest::of(&file), file.clone().into());
        assert_eq!(world.send("/w/a.c", &[&file]), 0, "it has it");
        let bytes = world.bytes.clone();
        world.earlier.fill(&|name| bytes.get(name).cloned());
        assert!(world.send("/w/a.c", &[&[&file[..], b"more\n"].concat()]) < 100);
    }
}
