//! Bytes as their difference from bytes that the other side has, by zstd: a line changed in a file of 20 KB is some 60 bytes.

use crate::connection::WireError;
use crate::message::{Object, digest_bytes};
use base::{BLOCK_BYTES_MAX, Digest};
use bytes::Bytes;
use std::collections::HashMap;
use zstd::zstd_safe::{self, CCtx, CParameter, DCtx};

/// zstd's level: the default, faster than any link that is packed for.
const LEVEL: i32 = 3;
/// The same where there is something to find the same bytes in: level 3 misses some, and needs a thousand bytes for ten that changed.
const LEVEL_LIKE: i32 = 9;
/// Reaches from a block's end to the beginning of what it is the difference from: 8 MiB.
const WINDOW_LOG: u32 = 23;
/// Blocks that one is the difference from, at most.
const LIKE_MAX: usize = 4;

/// Packs `bytes` against what the other side has; `None` if that does not make them shorter.
pub(crate) fn pack(bytes: &[u8], like: &[u8]) -> Option<Vec<u8>> {
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

/// Of an earlier version's blocks, those that block `at` of a new version most likely came from: what lay between the blocks that both
/// versions have, or beside them.
///
/// `places`: where each of `old` is.
pub fn ancestors<'a>(new: &[Digest], at: usize, old: &'a [Digest], places: &HashMap<Digest, usize>) -> &'a [Digest] {
    let place = |digest: &Digest| places.get(digest).copied();
    let before = new[..at].iter().enumerate().rev().find_map(|(number, digest)| Some((number, place(digest)?)));
    let after = new[at + 1..].iter().find_map(place);
    let (start, steps) = before.map_or((0, at), |(number, place)| (place + 1, at - number - 1));
    let end = after.filter(|end| *end >= start).unwrap_or(old.len());
    // As far into what was replaced as this block is, with one block's room for what moved.
    let first = (start + steps.saturating_sub(1)).min(end.saturating_sub(1));
    let (first, end) = if start < end { (first, end) } else { (start.saturating_sub(1), (start + 1).min(old.len())) };
    &old[first..end.min(first + LIKE_MAX)]
}

impl Object {
    /// An object as its difference from `like`, blocks that the other side has; whole, if that is no shorter.
    pub fn like(digest: Digest, bytes: Bytes, like: &[(Digest, Bytes)]) -> Self {
        let old: Vec<u8> = like.iter().flat_map(|(_, bytes)| bytes.iter().copied()).collect();
        match pack(&bytes, &old).filter(|_| !like.is_empty()) {
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
    fn ancestors_lie_between_what_both_have() {
        let names = |text: &str| text.bytes().map(|byte| Digest([byte; 32])).collect::<Vec<_>>();
        let of = |new: &str, at: usize, old: &str| {
            let old = names(old);
            let places = old.iter().enumerate().map(|(at, digest)| (*digest, at)).collect();
            let found = ancestors(&names(new), at, &old, &places).iter().map(|digest| digest.0[0]).collect();
            String::from_utf8(found).unwrap()
        };
        assert_eq!(of("abXde", 2, "abcde"), "c");
        assert_eq!(of("abXYde", 3, "abcde"), "c");
        assert_eq!(of("abXde", 2, "abde"), "bd", "an insertion: beside it");
        assert_eq!(of("X", 0, "abcdefgh"), "abcd");
        assert_eq!(of("Xb", 0, "ab"), "a");
        assert_eq!(of("abX", 2, "ab"), "b");
        assert_eq!(of("X", 0, ""), "");
        assert_eq!(of("UVWX", 3, "abcdef"), "cdef");
    }
}
