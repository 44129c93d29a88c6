//! Messages that are much like earlier ones: both sides keep the last of them, and a new one is sent as its difference from one
//! that the other side is known to have.
//!
//! The sender goes by what was confirmed, and by none that many others have followed. So the receiver, which keeps more than
//! that, has it as a rule; where it has not (much was lost and overtaken), it says so and the message is sent whole.

use crate::connection::WireError;
use crate::lock;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

/// Names a message of one direction of a connection; they count up from 1.
pub(crate) type Number = u64;

/// No message.
pub(crate) const NONE: Number = 0;
/// Messages that may follow one that is still referred to.
const FOLLOW_MAX: u64 = 32;
/// Messages that are kept.
const KEPT_MAX: usize = 64;
/// Larger ones are not kept, bytes.
const BYTES_MAX: usize = 256 << 10;

/// What was sent and received on one connection.
#[derive(Debug, Default)]
pub(crate) struct Likeness {
    sent: Mutex<Sent>,
    received: Mutex<VecDeque<(Number, Bytes)>>,
}

#[derive(Debug, Default)]
struct Sent {
    last: Number,
    /// Those that may be confirmed yet.
    unconfirmed: VecDeque<(Number, Bytes)>,
    confirmed: Option<(Number, Bytes)>,
}

impl Likeness {
    /// A number for a message that is about to be sent, and the one to send it by.
    pub fn sending(&self, encoded: &Bytes) -> (Number, Option<(Number, Bytes)>) {
        let mut sent = self.sent();
        sent.last += 1;
        let number = sent.last;
        if encoded.len() <= BYTES_MAX {
            sent.unconfirmed.push_back((number, encoded.clone()));
            if sent.unconfirmed.len() > KEPT_MAX {
                sent.unconfirmed.pop_front();
            }
        }
        let like = sent.confirmed.clone().filter(|(like, _)| number - like <= FOLLOW_MAX);
        (number, like)
    }

    /// The other side has shown that it has this message.
    pub fn confirm(&self, number: Number) {
        let mut sent = self.sent();
        let Some(at) = sent.unconfirmed.iter().position(|(known, _)| *known == number) else { return };
        let message = sent.unconfirmed.remove(at);
        if sent.confirmed.as_ref().is_none_or(|(known, _)| *known < number) {
            sent.confirmed = message;
        }
    }

    /// The other side has not what the messages after this are sent by.
    pub fn forget(&self) {
        self.sent().confirmed = None;
    }

    /// The message by which another was sent.
    pub fn like(&self, number: Number) -> Result<Bytes, WireError> {
        if number == NONE {
            return Ok(Bytes::new());
        }
        let received = self.received();
        let found = received.iter().find(|(known, _)| *known == number);
        found.map(|(_, bytes)| bytes.clone()).ok_or(WireError::Unlike)
    }

    /// Keeps a message that was received.
    pub fn keep(&self, number: Number, encoded: &Bytes) {
        if encoded.len() > BYTES_MAX {
            return;
        }
        let mut received = self.received();
        received.push_back((number, encoded.clone()));
        if received.len() > KEPT_MAX {
            received.pop_front();
        }
    }

    fn sent(&self) -> MutexGuard<'_, Sent> {
        lock(&self.sent)
    }

    fn received(&self) -> MutexGuard<'_, VecDeque<(Number, Bytes)>> {
        lock(&self.received)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_confirmed_and_recent_is_gone_by() {
        let likeness = Likeness::default();
        let message = |at: u64| Bytes::from(at.to_string());
        assert_eq!(likeness.sending(&message(1)), (1, None));
        assert_eq!(likeness.sending(&message(2)), (2, None));
        likeness.confirm(2);
        likeness.confirm(1);
        assert_eq!(likeness.sending(&message(3)), (3, Some((2, message(2)))));
        (4..=34).for_each(|at| drop(likeness.sending(&message(at))));
        assert_eq!(likeness.sending(&message(35)), (35, None), "too many have followed");
        likeness.confirm(35);
        assert_eq!(likeness.sending(&message(36)).1, Some((35, message(35))));
        likeness.forget();
        assert_eq!(likeness.sending(&message(37)).1, None);
    }

    #[test]
    fn what_is_received_is_kept_for_longer() {
        let likeness = Likeness::default();
        (1..=70).for_each(|at| likeness.keep(at, &Bytes::from(at.to_string())));
        assert_eq!(likeness.like(NONE).unwrap(), Bytes::new());
        assert_eq!(likeness.like(7).unwrap(), Bytes::from("7"));
        assert!(matches!(likeness.like(6), Err(WireError::Unlike)));
    }
}
