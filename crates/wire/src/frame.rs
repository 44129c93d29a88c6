//! Messages in a stream of bytes: frames, packed where the link is slower than the packing.
//!
//! A frame is a 32-bit big-endian head and as many bytes as it says. The head's highest bit says that the bytes are packed
//! (zstd); the bit below that they are packed against an earlier frame of the connection, whose 64-bit number comes first: a
//! launch is much like the one before it. See [`crate::likeness`].

use crate::connection::WireError;
use crate::likeness::{self, Likeness, Number};
use crate::lock;
use crate::patch::{pack, unpack};
use crate::turn::Turn;
use crate::without::{Part, is_left_out};
use base::NodeId;
use bytes::{Buf, Bytes, BytesMut};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// Largest frame, in bytes: a launch with its environment, or a listing of 16 MiB.
pub const FRAME_BYTES_MAX: usize = 32 << 20;
/// The same of a side that has not been let in: a greeting. Nothing of it is packed.
pub(crate) const GREETING_BYTES_MAX: usize = 8 << 10;
/// Bytes that frames of one key hold that have not come in full: further ones end their connection.
const PARTS_BYTES_MAX: usize = 256 << 20;
/// Room that is made for a frame beyond what has come of it.
const ROOM_BYTES: usize = 1 << 20;
/// Flag of a frame's head: its bytes are packed.
pub(crate) const PACKED: u32 = 1 << 31;
/// Flag of a frame's head: it is like an earlier one.
pub(crate) const LIKE: u32 = 1 << 30;
/// Shorter messages would not get shorter.
const WORTH_PACKING: usize = 96;

/// What the frames of a connection's streams share.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// Whether the link is so slow that packing pays.
    pub packs: bool,
    pub likeness: Likeness,
    /// The other side is not known yet: only a greeting is taken from it.
    pub is_stranger: AtomicBool,
    /// Bytes of frames that have not come in full: of this connection, or of all of its key.
    pub unfinished: Mutex<Arc<AtomicUsize>>,
}

/// Bytes of frames that have not come in full, by key: however many connections a machine makes, it holds no more.
#[derive(Debug, Default)]
pub(crate) struct Unfinished(Mutex<HashMap<NodeId, Weak<AtomicUsize>>>);

impl Unfinished {
    /// The count of a key.
    pub fn of(&self, key: NodeId) -> Arc<AtomicUsize> {
        let mut all = lock(&self.0);
        if let Some(count) = all.get(&key).and_then(Weak::upgrade) {
            return count;
        }
        all.retain(|_, count| count.strong_count() > 0);
        let count = Arc::default();
        all.insert(key, Arc::downgrade(&count));
        count
    }
}

/// What a stream holds of a frame that has not come in full.
#[derive(Debug)]
struct Parts {
    bytes: usize,
    all: Arc<AtomicUsize>,
}

impl Parts {
    /// It holds so much now.
    fn set(&mut self, bytes: usize) -> Result<(), WireError> {
        let before = std::mem::replace(&mut self.bytes, bytes);
        let all = match bytes >= before {
            true => self.all.fetch_add(bytes - before, Ordering::Relaxed) + bytes - before,
            false => self.all.fetch_sub(before - bytes, Ordering::Relaxed) - (before - bytes),
        };
        match all > PARTS_BYTES_MAX && bytes > before {
            true => Err(WireError::Invalid(format!("its unfinished messages hold {all} bytes"))),
            false => Ok(()),
        }
    }
}

/// The sending half of a stream.
#[derive(Debug)]
pub(crate) struct FrameSender {
    stream: quinn::SendStream,
    frames: Arc<Frames>,
}

/// The receiving half of a stream.
#[derive(Debug)]
pub(crate) struct FrameReceiver {
    stream: quinn::RecvStream,
    incoming: Incoming,
    answers: Option<Number>,
}

/// What has come of a stream, from which frames are taken.
#[derive(Debug)]
pub(crate) struct Incoming {
    buffer: BytesMut,
    frames: Arc<Frames>,
    parts: Parts,
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // Less is never too much.
        let _ = self.parts.set(0);
    }
}

impl FrameSender {
    pub fn new(stream: quinn::SendStream, frames: Arc<Frames>) -> Self {
        Self { stream, frames }
    }

    /// Sends one encoded message that is in two parts.
    pub async fn send(&mut self, (head, bytes): (Vec<u8>, Bytes)) -> Result<(), WireError> {
        let length = head.len() + bytes.len();
        debug_assert!(length <= FRAME_BYTES_MAX, "a frame of {length} bytes");
        if self.frames.packs && length >= WORTH_PACKING {
            let whole = if head.is_empty() { bytes.clone() } else { [&head[..], &bytes].concat().into() };
            if let Some(packed) = pack(&whole, &[]) {
                return self.write(PACKED, &[], packed.into()).await;
            }
        }
        self.write(0, &head, bytes).await
    }

    /// Sends a message as it is, to a side that has not let this one in.
    pub async fn send_plain(&mut self, encoded: Bytes) -> Result<(), WireError> {
        self.write(0, &[], encoded).await
    }

    /// Sends a message that is much like others before and after it on this connection. The number is for
    /// [`FrameReceiver::answers`].
    pub async fn send_alike(&mut self, encoded: Bytes) -> Result<Option<Number>, WireError> {
        if !self.frames.packs {
            self.send((Vec::new(), encoded)).await?;
            return Ok(None);
        }
        let (number, like) = self.frames.likeness.sending(&encoded);
        let like = like.filter(|_| !is_left_out(Part::Delta));
        let (like_number, like) = like.unwrap_or((likeness::NONE, Bytes::new()));
        let numbers = [number.to_be_bytes(), like_number.to_be_bytes()].concat();
        let (flags, bytes) = match pack(&encoded, &like) {
            Some(packed) => (PACKED | LIKE, packed.into()),
            None => (LIKE, encoded),
        };
        self.write(flags, &numbers, bytes).await?;
        Ok(Some(number))
    }

    /// Sends a frame: `start` and `bytes` after its head.
    async fn write(&mut self, flags: u32, start: &[u8], bytes: Bytes) -> Result<(), WireError> {
        let length = (start.len() + bytes.len()) as u32;
        let start = [&(flags | length).to_be_bytes()[..], start].concat();
        // What is short goes as one, so that it is one packet.
        let mut chunks = match bytes.len() {
            0..=1200 => vec![[&start[..], &bytes].concat().into()],
            _ => vec![start.into(), bytes],
        };
        self.stream.write_all_chunks(&mut chunks).await.map_err(lost)
    }

    pub fn set_turn(&self, turn: Turn) {
        // A stream that has ended sends nothing.
        let _ = self.stream.set_priority(turn.priority(self.stream.id().index()));
    }

    pub fn finish(&mut self) {
        // It was finished before, or the stream has ended: nothing follows either way.
        let _ = self.stream.finish();
    }

    pub async fn stopped(&mut self) {
        let _ = self.stream.stopped().await;
    }
}

impl FrameReceiver {
    pub fn new(stream: quinn::RecvStream, frames: Arc<Frames>) -> Self {
        Self { stream, incoming: Incoming::new(frames), answers: None }
    }

    /// What comes shows that the other side has this message.
    pub fn answers(&mut self, number: Option<Number>) {
        self.answers = number;
    }

    /// The next message; `None` if the other side has finished. Safe to cancel.
    pub async fn next(&mut self) -> Result<Option<Bytes>, WireError> {
        loop {
            if let Some(frame) = self.incoming.take()? {
                let frames = &self.incoming.frames;
                self.answers.take().into_iter().for_each(|number| frames.likeness.confirm(number));
                return Ok(Some(frame));
            }
            match self.stream.read_chunk(256 << 10, true).await.map_err(lost)? {
                Some(chunk) => self.incoming.feed(&chunk.bytes)?,
                None if self.incoming.buffer.is_empty() => return Ok(None),
                None => return Err(WireError::Lost("the stream ended within a message".into())),
            }
        }
    }
}

impl Incoming {
    pub fn new(frames: Arc<Frames>) -> Self {
        let parts = Parts { bytes: 0, all: lock(&frames.unfinished).clone() };
        Self { buffer: BytesMut::new(), frames, parts }
    }

    /// More has come.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        self.buffer.extend_from_slice(bytes);
        self.parts.set(self.buffer.len())
    }

    /// The next whole message, if it has come.
    pub fn take(&mut self) -> Result<Option<Bytes>, WireError> {
        let Some(head) = self.buffer.first_chunk::<4>() else { return Ok(None) };
        let head = u32::from_be_bytes(*head);
        let length = (head & !(PACKED | LIKE)) as usize;
        let is_stranger = self.frames.is_stranger.load(Ordering::Acquire);
        if length > if is_stranger { GREETING_BYTES_MAX } else { FRAME_BYTES_MAX } {
            return Err(WireError::Invalid(format!("a frame of {length} bytes")));
        }
        if is_stranger && head & (PACKED | LIKE) != 0 {
            return Err(WireError::Invalid("a packed frame before it was let in".into()));
        }
        if self.buffer.len() < 4 + length {
            self.buffer.reserve((4 + length - self.buffer.len()).min(ROOM_BYTES));
            return Ok(None);
        }
        self.buffer.advance(4);
        let mut bytes = self.buffer.split_to(length).freeze();
        self.parts.set(self.buffer.len())?;
        if head & LIKE == 0 {
            return if head & PACKED == 0 { Ok(Some(bytes)) } else { unpack(&bytes, &[], FRAME_BYTES_MAX).map(Some) };
        }
        if bytes.len() < 16 {
            return Err(WireError::Invalid("a frame without its numbers".into()));
        }
        let (number, like) = (bytes.get_u64(), bytes.get_u64());
        let like = self.frames.likeness.like(like)?;
        let encoded = if head & PACKED == 0 { bytes } else { unpack(&bytes, &like, FRAME_BYTES_MAX)? };
        self.frames.likeness.keep(number, &encoded);
        Ok(Some(encoded))
    }
}

fn lost(error: impl std::fmt::Display) -> WireError {
    WireError::Lost(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_key_has_not_finished_is_bounded_however_many_connections_it_has() {
        let (unfinished, key) = (Unfinished::default(), NodeId(base::Digest([7; 32])));
        let connection = |key| {
            let frames = Arc::new(Frames::default());
            *lock(&frames.unfinished) = unfinished.of(key);
            frames
        };
        // The head of the largest frame, and almost all of it.
        let almost = [&(FRAME_BYTES_MAX as u32).to_be_bytes()[..], &vec![0; FRAME_BYTES_MAX - 1]].concat();
        let mut open: Vec<Incoming> = Vec::new();
        let refused = std::iter::repeat_with(|| Incoming::new(connection(key))).take(16).find_map(|mut incoming| {
            let fed = incoming.feed(&almost);
            open.push(incoming);
            fed.err()
        });
        assert!(matches!(refused, Some(WireError::Invalid(why)) if why.contains("unfinished")));
        assert_eq!(
            open.len(),
            PARTS_BYTES_MAX / FRAME_BYTES_MAX,
            "one more than there is room for, as they have heads"
        );
        Incoming::new(connection(NodeId(base::Digest([8; 32]))))
            .feed(&almost)
            .expect("another key has a bound of its own");
        drop(open);
        Incoming::new(connection(key)).feed(&almost).expect("there is room again");
    }
}
