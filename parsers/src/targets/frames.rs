//! How messages come: frames of a stream, differences from what is here, datagrams in a tunnel.

use super::SMALL;
use crate::{Draw, Target};
use base::{BLOCK_BYTES_MAX, Digest};
use bytes::Bytes;
use wire::attacked;
use wire::message::Object;

/// Frames of a connection's stream.
pub const FRAMES: Target = Target { name: "frames", check: check_frames, draw: draw_frames, heap: heap_of_frames };
/// A block as its difference from another one.
pub const PATCH: Target = Target {
    name: "patch",
    check: check_patch,
    draw: draw_patch,
    heap: |bytes| SMALL + 2 * BLOCK_BYTES_MAX + 8 * bytes.len(),
};
/// Datagrams that come through TLS over TCP.
pub const DATAGRAMS: Target =
    Target { name: "datagrams", check: check_datagrams, draw: draw_datagrams, heap: |bytes| SMALL + 32 * bytes.len() };

/// What is let in before anybody is known holds no more than a greeting. After that a frame may unpack to 32 MiB, and frames that are
/// like others are kept, 64 of 256 KiB.
fn heap_of_frames(bytes: &[u8]) -> usize {
    match is_stranger(bytes) {
        true => SMALL + 8 * bytes.len(),
        false => SMALL + attacked::FRAME_BYTES_MAX + ((64 * 256) << 10) + 16 * bytes.len(),
    }
}

fn is_stranger(bytes: &[u8]) -> bool {
    bytes.first().is_none_or(|byte| byte & 1 == 1)
}

/// The first byte says who sends them, the second one how many bytes come at a time. However many, the messages are the same.
fn check_frames(bytes: &[u8]) -> bool {
    let [_, step, stream @ ..] = bytes else { return false };
    let stranger = is_stranger(bytes);
    let whole = attacked::frames(stream, stream.len().max(1), stranger);
    let parts = attacked::frames(stream, usize::from(*step).max(1), stranger);
    assert_eq!(whole, parts, "messages depend on how their bytes come");
    if stranger {
        let longest = whole.iter().flatten().map(|(len, _)| *len).max();
        assert!(longest.is_none_or(|len| len <= attacked::GREETING_BYTES_MAX), "a greeting of {longest:?} bytes");
    }
    whole.is_ok()
}

fn draw_frames(draw: &mut Draw<'_>) -> Vec<u8> {
    let stranger = draw.flag();
    let mut bytes = vec![u8::from(stranger), draw.byte()];
    let mut sender = attacked::Frames::default();
    for _ in 0..=draw.below(5) {
        let message = draw.blob(40).repeat(1 + draw.below(9));
        match draw.below(3) {
            1 if !stranger => sender.packed(&message, &mut bytes),
            2 if !stranger => sender.alike(&message, draw.flag(), &mut bytes),
            _ => sender.plain(&message, &mut bytes),
        }
    }
    bytes
}

/// Two bytes say how much of the rest is here already; what follows is the difference from that.
fn check_patch(bytes: &[u8]) -> bool {
    let Some((len, rest)) = bytes.split_at_checked(2) else { return false };
    let here = usize::from(u16::from_le_bytes([len[0], len[1]]));
    let Some((old, packed)) = rest.split_at_checked(here) else { return false };
    let old = Bytes::copy_from_slice(old);
    let name = Digest::of(&old);
    let object = Object {
        bytes: Bytes::copy_from_slice(packed),
        like: vec![wire::message::digest_bytes(&name)],
        ..Object::new(name, Bytes::new())
    };
    assert!(object.whole(|_| None).is_ok_and(|whole| whole.is_none()), "what it differs from is not here");
    let Ok(whole) = object.whole(|digest| (*digest == name).then(|| old.clone())) else { return false };
    assert!(whole.expect("it is here").len() <= BLOCK_BYTES_MAX);
    let many = Object { like: vec![wire::message::digest_bytes(&name); 5], ..object };
    assert!(many.whole(|_| Some(old.clone())).is_err(), "the difference from many blocks costs many blocks");
    true
}

fn draw_patch(draw: &mut Draw<'_>) -> Vec<u8> {
    let old = draw.blob(60).repeat(1 + draw.below(9));
    let mut new = [&old[..], b"more, so that packing pays, and more of the same, and more of the same"].concat();
    draw.damage(&mut new);
    new.extend_from_slice(&[7; 200]);
    let mut bytes = (old.len() as u16).to_le_bytes().to_vec();
    bytes.extend_from_slice(&old);
    attacked::Frames::difference(&new, &old, &mut bytes);
    bytes
}

fn check_datagrams(bytes: &[u8]) -> bool {
    let Some((step, stream)) = bytes.split_first() else { return false };
    let whole = attacked::datagrams(stream, stream.len().max(1));
    assert_eq!(whole, attacked::datagrams(stream, usize::from(*step).max(1)));
    let all: usize = whole.iter().map(|datagram| 2 + datagram.len()).sum();
    assert!(all <= stream.len());
    all == stream.len()
}

fn draw_datagrams(draw: &mut Draw<'_>) -> Vec<u8> {
    let step = draw.byte();
    let framed = |draw: &mut Draw<'_>| {
        let datagram = draw.blob(20);
        [&(datagram.len() as u16).to_be_bytes()[..], &datagram].concat()
    };
    [vec![step], draw.list(4, framed).concat()].concat()
}
