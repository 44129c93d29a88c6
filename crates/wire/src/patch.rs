//! Bytes as their difference from bytes that the other side has, by zstd: a line changed in a file of 20 KB is some 60 bytes.

use crate::connection::WireError;
use crate::message::{Object, digest_bytes};
use crate::without::{Part, is_left_out};
use base::{BLOCK_BYTES_MAX, Digest, Piece};
use bytes::Bytes;
use std::collections::HashMap;
use std::ops::Range;
use zstd::zstd_safe::{self, CCtx, CParameter, DCtx};

/// zstd's level: the default, faster than any link that is packed for.
const LEVEL: i32 = 3;
/// The same where there is something to find the same bytes in: level 3 misses some, and needs a thousand bytes for ten that changed.
const LEVEL_LIKE: i32 = 9;
/// Reaches from a block's end to the beginning of what it is the difference from: 8 MiB.
const WINDOW_LOG: u32 = 23;
/// Blocks that one is the difference from, at most.
const LIKE_MAX: usize = 4;
/// Blocks on either side among which one is looked for that both versions have.
const NEIGHBOURS_MAX: usize = 64;
/// Bytes by which a block may have moved since that one.
const ROOM: i64 = 2048;

/// Packs `bytes` against what the other side has; `None` if that does not make them shorter.
pub(crate) fn pack(bytes: &[u8], like: &[u8]) -> Option<Vec<u8>> {
    if like.is_empty() && is_left_out(Part::Compression) {
        return None;
    }
    let mut context = CCtx::create();
    let level = if like.is_empty() { LEVEL } else { LEVEL_LIKE };
    context.set_parameter(CParameter::CompressionLevel(level)).ok()?;
    context.set_parameter(CParameter::ContentSizeFlag(true)).ok()?;
    context.set_parameter(CParameter::WindowLog(WINDOW_LOG)).ok()?;
    context.ref_prefix(like).ok()?;
    let mut packed = Vec::with_capacity(zstd_safe::compress_bound(bytes.len()));
    context.compress2(&mut packed, bytes).ok()?;
    Some(packed).filter(|packed| packed.len() < bytes.len())
}

/// What was packed, if it is no longer than `bytes_max`.
pub(crate) fn unpack(bytes: &[u8], like: &[u8], bytes_max: usize) -> Result<Bytes, WireError> {
    let length = zstd_safe::get_frame_content_size(bytes).ok().flatten().unwrap_or(u64::MAX);
    if length > bytes_max as u64 {
        return Err(WireError::Invalid("packed bytes that say no length, or one too large".into()));
    }
    let invalid = |code| WireError::Invalid(format!("packed bytes: {}", zstd_safe::get_error_name(code)));
    let mut context = DCtx::create();
    context.ref_prefix(like).map_err(invalid)?;
    let mut whole = Vec::with_capacity(length as usize);
    context.decompress(&mut whole, bytes).map_err(invalid)?;
    Ok(whole.into())
}

/// A version of a file, by its blocks.
#[derive(Debug, Default)]
pub struct Version {
    /// Each block with where it starts and ends in the file, in bytes.
    blocks: Vec<(Digest, Range<u64>)>,
    places: HashMap<Digest, usize>,
}

impl Version {
    /// Of a file of these pieces.
    pub fn new(pieces: &[Piece]) -> Self {
        let mut end = 0;
        let mut version = Self::default();
        for piece in pieces {
            let start = end;
            end += piece.len;
            if let Some(digest) = piece.block {
                version.places.insert(digest, version.blocks.len());
                version.blocks.push((digest, start..end));
            }
        }
        version
    }

    /// Of a file that is one block.
    pub fn of_block(digest: Digest, len: u64) -> Self {
        Self::new(&[Piece { len, block: Some(digest) }])
    }

    /// Its blocks, in order.
    pub fn blocks(&self) -> impl ExactSizeIterator<Item = Digest> {
        self.blocks.iter().map(|(digest, _)| *digest)
    }

    /// Whether this is one of its blocks.
    pub fn has(&self, digest: &Digest) -> bool {
        self.places.contains_key(digest)
    }

    /// Those of its blocks from which block `at` of the version after it most likely came: what was there, going by the nearest block that
    /// both have.
    pub fn ancestors(&self, after: &Self, at: usize) -> Vec<Digest> {
        let Some((_, range)) = after.blocks.get(at) else { return Vec::new() };
        let here = |(digest, there): &(Digest, Range<u64>)| {
            Some(self.blocks[*self.places.get(digest)?].1.start as i64 - there.start as i64)
        };
        let (before, behind) = after.blocks.split_at(at);
        let nearest = (0..NEIGHBOURS_MAX).find_map(|steps| {
            let before = before.len().checked_sub(steps + 1).and_then(|number| here(&before[number]));
            before.or_else(|| here(behind.get(steps + 1)?))
        });
        let shift = nearest.unwrap_or(0);
        let moved = |at: u64, room: i64| at.saturating_add_signed(shift + room);
        let wanted = moved(range.start, -ROOM)..moved(range.end, ROOM);
        let first = self.blocks.partition_point(|(_, there)| there.end <= wanted.start);
        let overlapping = self.blocks[first..].iter().take_while(|(_, there)| there.start < wanted.end);
        overlapping.take(LIKE_MAX).map(|(digest, _)| *digest).collect()
    }
}

impl Object {
    /// An object as its difference from `like`, blocks that the other side has; whole, if that is no shorter.
    pub fn like(digest: Digest, bytes: Bytes, like: &[(Digest, Bytes)]) -> Self {
        let old: Vec<u8> = like.iter().flat_map(|(_, bytes)| bytes.iter().copied()).collect();
        match pack(&bytes, &old).filter(|_| !like.is_empty() && !is_left_out(Part::Delta)) {
            Some(packed) => Self {
                digest: digest_bytes(&digest),
                bytes: packed.into(),
                like: like.iter().map(|(digest, _)| digest_bytes(digest)).collect(),
            },
            None => Self::new(digest, bytes),
        }
    }

    /// The object's bytes, not yet compared with its name; `has`: the blocks that are here. `None`: what it differs from is not.
    pub fn whole(&self, has: impl Fn(&Digest) -> Option<Bytes>) -> Result<Option<Bytes>, WireError> {
        if self.like.is_empty() {
            return Ok(Some(self.bytes.clone()));
        }
        if self.like.len() > LIKE_MAX {
            return Err(WireError::Invalid(format!("an object like {} others", self.like.len())));
        }
        let mut old = Vec::new();
        for name in &self.like {
            let name = Digest::from_slice(name).ok_or_else(|| WireError::Invalid("a digest that is none".into()))?;
            let Some(bytes) = has(&name) else { return Ok(None) };
            old.extend_from_slice(&bytes);
        }
        unpack(&self.bytes, &old, BLOCK_BYTES_MAX).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(len: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let next = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        (0..len).map(next).collect()
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        let text = Bytes::from(b"PATH=/usr/bin:/bin HOME=/home/u LANG=C.UTF-8 ".repeat(20));
        for like in [&b""[..], &text[..500]] {
            let packed = pack(&text, like).unwrap();
            assert!(packed.len() < 100);
            assert_eq!(unpack(&packed, like, 1 << 20).unwrap(), text);
        }
        let changed = [&text[..400], b"TERM=xterm", &text[400..]].concat();
        let patch = pack(&changed, &text).unwrap();
        assert!(patch.len() < 45, "{} bytes", patch.len());
        assert_eq!(unpack(&patch, &text, 1 << 20).unwrap(), changed);
    }

    #[test]
    fn what_cannot_be_unpacked_is_an_error() {
        let random = noise(200);
        assert_eq!(pack(&random, &[]), None);
        assert!(unpack(&random, &[], 1 << 20).is_err());
        let mut packed = pack(&[7; 1000], &[]).unwrap();
        assert!(unpack(&packed, &[], 999).is_err(), "longer than allowed");
        packed.truncate(packed.len() - 1);
        assert!(unpack(&packed, &[], 1 << 20).is_err());
    }

    #[test]
    fn a_changed_block_is_little_more_than_its_change() {
        let old = noise(BLOCK_BYTES_MAX);
        let (left, right) = old.split_at(old.len() / 2);
        let mut new = old[..old.len() - 20].to_vec();
        new.splice(700_000..700_010, *b"a new ending");
        let like = [left, right].map(|half| (Digest::of(half), Bytes::copy_from_slice(half)));
        let object = Object::like(Digest::of(&new), new.clone().into(), &like);
        assert!(object.bytes.len() < 150, "{} bytes", object.bytes.len());
        let has = |name: &Digest| like.iter().find(|(digest, _)| digest == name).map(|(_, bytes)| bytes.clone());
        assert_eq!(object.whole(has).unwrap().unwrap(), new);
        assert!(object.whole(|_| None).unwrap().is_none());
        let whole = Object::like(Digest::of(&new), new.clone().into(), &[]);
        assert_eq!((whole.like.len(), whole.bytes.len()), (0, new.len()));
    }

    #[test]
    fn ancestors_are_what_was_there() {
        // A letter is a block of as many KB as its place in the alphabet.
        let version = |text: &str| {
            let piece = |letter: u8| {
                let len = u64::from(letter.to_ascii_lowercase() - b'a' + 1) << 10;
                Piece { len, block: Some(Digest([letter; 32])) }
            };
            Version::new(&text.bytes().map(piece).collect::<Vec<_>>())
        };
        let of = |new: &str, at: usize, old: &str| {
            let found = version(old).ancestors(&version(new), at).iter().map(|digest| digest.0[0]).collect();
            String::from_utf8(found).unwrap()
        };
        assert_eq!(of("yZx", 1, "yzx"), "yzx", "what may have moved a little across its ends");
        assert_eq!(of("kyZx", 2, "yzx"), "yzx", "an insertion before it");
        assert_eq!(of("KYZX", 3, "kyzx"), "zx", "nothing is the same");
        assert_eq!(of("yZ", 1, "y"), "y", "more at the end");
        assert_eq!(of("Z", 0, "ccccccc"), "cccc", "no more than what is bounded");
        assert_eq!(of("X", 0, ""), "");
    }
}
