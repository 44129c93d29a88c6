//! Parts of lists are counted before a message is decoded.
//!
//! An empty part of a list takes two bytes of a message and some hundreds of memory: 32 MiB, which are a thousand bytes when they are
//! packed, would take gigabytes. So who sends more than any message needs is refused while it costs nothing.
//!
//! Where a message has lists is not written down a second time: the decoder is asked, once for each kind of message and only when
//! a large one comes.

use crate::connection::WireError;
use crate::lock;
use bytes::Bytes;
use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};
use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

/// Most parts of all lists of a message that are at the same place. A delta has as many changes at most.
pub const PARTS_MAX: usize = 1 << 20;
/// In so many bytes there are no more.
const SMALL_BYTES: usize = 2 * PARTS_MAX;
/// The highest number of a field.
const TAG_MAX: u32 = 64;
/// Messages within messages.
const DEPTH_MAX: usize = 6;

/// Numbers of fields, from the outermost: where a list is.
type Path = Vec<u32>;

/// Decodes a message from another machine.
///
/// # Errors
/// [`WireError::Invalid`] if it is none of this kind, or has too many parts.
pub fn decode<M: Message + Default + 'static>(encoded: Bytes) -> Result<M, WireError> {
    if encoded.len() > SMALL_BYTES {
        for list in lists::<M>().iter() {
            let count = count(&encoded, list);
            if count > PARTS_MAX {
                return Err(WireError::Invalid(format!(
                    "a message with a list of {count} parts, more than {PARTS_MAX}"
                )));
            }
        }
    }
    M::decode(encoded).map_err(|error| WireError::Invalid(error.to_string()))
}

/// Parts of the lists at this place.
fn count(bytes: &[u8], list: &[u32]) -> usize {
    let Some((last, outer)) = list.split_last() else { return 0 };
    let mut messages = vec![bytes];
    for tag in outer {
        let mut inner = Vec::new();
        // What is to be there once may be there many times.
        let keep = |inner: &mut Vec<_>, part| {
            if inner.len() <= PARTS_MAX {
                inner.push(part)
            }
        };
        messages.iter().for_each(|message| each(message, *tag, |part| keep(&mut inner, part)));
        if inner.len() > PARTS_MAX {
            return inner.len();
        }
        messages = inner;
    }
    let mut count = 0;
    messages.iter().for_each(|message| each(message, *last, |_| count += 1));
    count
}

/// Calls `with` for each part of a field in a message, up to where that is none.
fn each<'a>(mut rest: &'a [u8], tag: u32, mut with: impl FnMut(&'a [u8])) {
    while let Ok((found, wire)) = decode_key(&mut rest) {
        let len = match wire {
            WireType::Varint => decode_varint(&mut rest).map(|_| 0),
            WireType::SixtyFourBit => Ok(8),
            WireType::ThirtyTwoBit => Ok(4),
            WireType::LengthDelimited => decode_varint(&mut rest),
            // What is in a group is looked at as if it were beside it.
            WireType::StartGroup | WireType::EndGroup => Ok(0),
        };
        let Some((part, behind)) = len.ok().and_then(|len| rest.split_at_checked(usize::try_from(len).ok()?)) else {
            return;
        };
        if found == tag && wire == WireType::LengthDelimited {
            with(part);
        }
        rest = behind;
    }
}

/// All lists of a kind of message, those within others behind them: so no more messages are gone through than may be.
fn lists<M: Message + Default + 'static>() -> Arc<[Path]> {
    static KNOWN: LazyLock<Mutex<HashMap<TypeId, Arc<[Path]>>>> = LazyLock::new(Mutex::default);
    let of = TypeId::of::<M>();
    if let Some(known) = lock(&KNOWN).get(&of) {
        return known.clone();
    }
    let found: Arc<[Path]> = find::<M>().into();
    lock(&KNOWN).insert(of, found.clone());
    found
}

fn find<M: Message + Default>() -> Vec<Path> {
    let (mut found, mut open) = (Vec::new(), vec![Path::new()]);
    while let Some(outer) = open.pop() {
        for tag in 1..=TAG_MAX {
            let path = [&outer[..], &[tag]].concat();
            if path.len() < DEPTH_MAX && is_message::<M>(&path) {
                open.push(path.clone());
            }
            if is_list::<M>(&path) {
                found.push(path);
            }
        }
    }
    found.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    found
}

/// Of what is a list three empty parts are three.
fn is_list<M: Message + Default>(path: &[u32]) -> bool {
    let three = nested(path, &[&[], &[], &[]]);
    M::decode(&three[..]).is_ok_and(|message| message.encode_to_vec() == three)
}

/// No field of a message has the wire type 7, but bytes and text may.
fn is_message<M: Message + Default>(path: &[u32]) -> bool {
    M::decode(&nested(path, &[&[]])[..]).is_ok() && M::decode(&nested(path, &[&[7]])[..]).is_err()
}

/// A message that has these parts at this place.
fn nested(path: &[u32], parts: &[&[u8]]) -> Vec<u8> {
    let Some((last, outer)) = path.split_last() else { return Vec::new() };
    let field = |tag: u32, part: &[u8], out: &mut Vec<u8>| {
        encode_key(tag, WireType::LengthDelimited, out);
        encode_varint(part.len() as u64, out);
        out.extend_from_slice(part);
    };
    let mut bytes = Vec::new();
    parts.iter().for_each(|part| field(*last, part, &mut bytes));
    for tag in outer.iter().rev() {
        let inner = std::mem::take(&mut bytes);
        field(*tag, &inner, &mut bytes);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{BindReply, Bound, Change, Exited, Hello, Object, Open, OutputKind, TaskOutput, Welcome};

    #[test]
    fn the_decoder_says_where_lists_are() {
        let of_launch: &[&[u32]] = &[
            &[1, 4, 1],
            &[1, 4, 2],
            &[1, 4, 14],
            &[1, 9, 4],
            &[1, 9, 4, 9],
            &[1, 9, 5],
            &[1, 10],
            &[1, 10, 3],
            &[1, 17, 1, 4],
            &[1, 18],
            &[1, 23, 2],
            &[1, 30],
            &[1, 31],
            &[3, 2],
            &[6, 3],
            &[7, 2],
            &[8, 11],
        ];
        let found = find::<Open>();
        assert!(of_launch.iter().all(|list| found.contains(&list.to_vec())), "{found:?}");
        assert!(
            found.iter().all(|path| path.len() < DEPTH_MAX),
            "messages within messages that are not looked at: {found:?}"
        );
        assert_eq!(find::<BindReply>(), [vec![1], vec![2], vec![1, 9], vec![2, 3]]);
        assert_eq!(find::<Hello>(), [vec![16], vec![13, 5]]);
        assert!(find::<Object>() == [vec![3]] && find::<Welcome>().len() == 3 && find::<Change>() == [vec![5]]);
    }

    /// Each list of a message, as long as a frame lets it be.
    fn floods<M: Message + Default + 'static>() {
        for list in find::<M>() {
            let empty: &[u8] = &[];
            let flood = nested(&list, &vec![empty; PARTS_MAX + 1]);
            assert!(flood.len() <= crate::frame::FRAME_BYTES_MAX, "it comes as a frame");
            let refused = decode::<M>(flood.into()).err().expect("too many parts");
            assert!(refused.to_string().contains("parts"), "{list:?}: {refused}");
        }
    }

    #[test]
    fn a_message_of_nothing_but_parts_is_refused_before_it_is_decoded() {
        floods::<Open>();
        floods::<TaskOutput>();
        floods::<BindReply>();
        floods::<Exited>();
        let empty: &[u8] = &[];
        let launches = nested(&[1], &vec![empty; PARTS_MAX + 1]);
        assert!(decode::<Open>(launches.into()).is_err(), "a launch of many launches");
    }

    #[test]
    fn parts_are_counted_in_groups_and_behind_other_fields_too() {
        let mut bytes = Vec::new();
        encode_key(40, WireType::StartGroup, &mut bytes);
        bytes.extend(nested(&[7], &[&[], &[1, 2]]));
        encode_key(40, WireType::EndGroup, &mut bytes);
        encode_key(5, WireType::Varint, &mut bytes);
        encode_varint(300, &mut bytes);
        encode_key(6, WireType::SixtyFourBit, &mut bytes);
        bytes.extend([9; 8]);
        bytes.extend(nested(&[7], &[&[]]));
        assert_eq!(count(&bytes, &[7]), 3);
        assert_eq!(count(&bytes[..bytes.len() - 1], &[7]), 2, "one that is cut short is none");
    }

    #[test]
    fn a_large_message_with_as_many_parts_as_a_task_has_is_decoded() {
        let change =
            Change { path: b"/home/u/project/objects/0123456789".to_vec(), action: 1, base: 7, ..Change::default() };
        let exited = Exited { changes: vec![change; 100_000], ..Exited::default() };
        let output = TaskOutput::from(OutputKind::Exited(Box::new(exited)));
        let encoded = output.encode_to_vec();
        assert!(encoded.len() > SMALL_BYTES);
        assert!(decode::<TaskOutput>(encoded.into()).expect("it is sound") == output);
        let reply =
            BindReply { bounds: vec![Bound { target: vec![0x0a; 64], ..Bound::default() }], ..BindReply::default() };
        assert!(decode::<BindReply>(reply.encode_to_vec().into()).expect("it is sound") == reply);
    }

    #[test]
    fn contents_that_look_like_parts_are_none() {
        let object = Object { bytes: Bytes::from([0x1a, 0].repeat(PARTS_MAX + 9)), ..Object::default() };
        let reply = BindReply { objects: vec![object], ..BindReply::default() };
        assert!(decode::<BindReply>(reply.encode_to_vec().into()).is_ok());
    }
}
