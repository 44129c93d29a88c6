//! Messages that are mostly one long field: it is sent as it lies in memory, after the encoding of the rest.

use crate::message::{Object, ObjectReply};
use bytes::Bytes;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

/// Tag of [`Object::bytes`] and of [`ObjectReply::bytes`].
const BYTES: u32 = 2;
/// Tag of `Give` among the kinds of [`crate::message::Open`].
const GIVE: u32 = 6;

/// What goes before the bytes of an [`ObjectReply`].
pub(crate) fn reply_head(reply: ObjectReply) -> (Vec<u8>, Bytes) {
    let ObjectReply { digest, bytes, error, errno } = reply;
    let mut head = ObjectReply { digest, bytes: Bytes::new(), error, errno }.encode_to_vec();
    field(BYTES, bytes.len(), &mut head);
    (head, bytes)
}

/// What goes before the bytes of an [`Object`] that a stream opens with giving.
pub(crate) fn give_head(object: Object) -> (Vec<u8>, Bytes) {
    let Object { digest, bytes, like } = object;
    let rest = Object { digest, bytes: Bytes::new(), like };
    let field_len = key_len(BYTES) + encoded_len_varint(bytes.len() as u64) + bytes.len();
    let mut head = Vec::new();
    field(GIVE, rest.encoded_len() + field_len, &mut head);
    head.extend(rest.encode_to_vec());
    field(BYTES, bytes.len(), &mut head);
    (head, bytes)
}

fn field(tag: u32, len: usize, out: &mut Vec<u8>) {
    encode_key(tag, WireType::LengthDelimited, out);
    encode_varint(len as u64, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Open, OpenKind};

    #[test]
    fn heads_and_bytes_are_the_messages() {
        for len in [0, 1, 127, 128, 70_000] {
            let (digest, bytes) = (Bytes::from_static(&[7; 32]), Bytes::from(vec![1; len]));
            let whole = |(head, bytes): (Vec<u8>, Bytes)| [&head[..], &bytes].concat();
            let reply = ObjectReply { digest: digest.clone(), bytes: bytes.clone(), error: "none".into(), errno: 9 };
            assert_eq!(ObjectReply::decode(&whole(reply_head(reply.clone()))[..]), Ok(reply));
            let object = Object { digest, bytes, like: vec![Bytes::from_static(&[8; 32])] };
            let given = Open::decode(&whole(give_head(object.clone()))[..]);
            assert_eq!(given, Ok(OpenKind::Give(object).into()));
        }
    }
}
