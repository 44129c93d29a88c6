//! The innermost parsers of this crate without a network, for who attacks them with bytes of their own (`parsers`).

use crate::frame::{self, Incoming, LIKE, PACKED};
use crate::likeness::NONE;
use crate::patch::pack;
use crate::tunnel::take_frame;
use base::Digest;
use bytes::BytesMut;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub use crate::frame::FRAME_BYTES_MAX;
/// Most bytes of a message of a side that has not been let in.
pub const GREETING_BYTES_MAX: usize = frame::GREETING_BYTES_MAX;

/// The messages in the bytes of a stream of which `step` come at a time: of each length and digest. Or why the connection ends.
pub fn frames(stream: &[u8], step: usize, is_stranger: bool) -> Result<Vec<(usize, Digest)>, String> {
    let shared = frame::Frames { is_stranger: AtomicBool::new(is_stranger), ..frame::Frames::default() };
    let mut incoming = Incoming::new(Arc::new(shared));
    let mut taken = Vec::new();
    for part in stream.chunks(step) {
        incoming.feed(part).map_err(|error| error.to_string())?;
        while let Some(message) = incoming.take().map_err(|error| error.to_string())? {
            taken.push((message.len(), Digest::of(&message)));
        }
    }
    Ok(taken)
}

/// The datagrams in the bytes of a tunnel of which `step` come at a time.
pub fn datagrams(stream: &[u8], step: usize) -> Vec<Vec<u8>> {
    let mut incoming = BytesMut::new();
    let mut taken = Vec::new();
    for part in stream.chunks(step) {
        incoming.extend_from_slice(part);
        taken.extend(std::iter::from_fn(|| take_frame(&mut incoming)).map(|datagram| datagram.to_vec()));
    }
    taken
}

/// Writes the frames of one connection.
#[derive(Debug, Default)]
pub struct Frames {
    number: u64,
    last: Vec<u8>,
}

impl Frames {
    /// A message as it is.
    pub fn plain(&mut self, message: &[u8], out: &mut Vec<u8>) {
        write(0, &[message], out);
    }

    /// A message packed, if that makes it shorter.
    pub fn packed(&mut self, message: &[u8], out: &mut Vec<u8>) {
        match pack(message, &[]) {
            Some(packed) => write(PACKED, &[&packed], out),
            None => write(0, &[message], out),
        }
    }

    /// A message that is like others, as its difference from the last one that was sent so, if there is one and it `may` be.
    pub fn alike(&mut self, message: &[u8], may: bool, out: &mut Vec<u8>) {
        let (like, before) = if may { (self.number, &self.last[..]) } else { (NONE, &[][..]) };
        let numbers = [(self.number + 1).to_be_bytes(), like.to_be_bytes()].concat();
        match pack(message, before) {
            Some(packed) => write(PACKED | LIKE, &[&numbers, &packed], out),
            None => write(LIKE, &[&numbers, message], out),
        }
        self.number += 1;
        self.last = message.to_vec();
    }

    /// Appends a block as its difference from another one; nothing if that is no shorter.
    pub fn difference(new: &[u8], old: &[u8], out: &mut Vec<u8>) {
        out.extend(pack(new, old).unwrap_or_default());
    }
}

fn write(flags: u32, parts: &[&[u8]], out: &mut Vec<u8>) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.extend_from_slice(&(flags | length as u32).to_be_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}
