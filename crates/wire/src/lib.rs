//! What goes between machines: protobuf messages, and QUIC connections that both sides authenticate by raw public keys;
//! between parts of one process, the same messages in memory.
//!
//! * [`message`]: the messages; [`convert`]: to and from the plain types of `base`.
//! * [`key`]: a machine's key pair, its name (`NodeId`), and where it is kept.
//! * [`token`]: what a joiner is given: where the hub is, which key it has, and a secret that works once.
//! * [`dial`]: joining a hub, and how far its clock is from ours; [`whereabouts`]: where it may be found, also when another has taken over.
//! * [`flow`]: how much may be under way, and what is learnt of a link.
//! * [`fetch`]: asking for bindings and bytes, once however many want them.
//! * [`patch`]: what changed, as its difference from what both ends have.
//! * `parts`: what is counted before a message is decoded.
//! * [`quiet`]: how long the other side may say nothing of a task that it has.
//! * `gate`: places for those who have not been let in.
//! * `turn`: what goes first where several streams have something to send.
//! * [`connection`]: connections, framed streams, requests with a time limit; [`endpoint`] makes them, [`listener`] takes them;
//!   `reserved`: where one will listen later.
//! * [`awake`]: silence, where one's own process may have been stopped.
//! * `junction` and `tunnel`: the same through TLS over TCP, where no UDP passes.
//! * [`owner`]: how a worker recognises tasks of its own account on its own machine.
//! * [`signed`]: launches that their clients have signed, and results that their workers have.
//! * [`without`]: what is left out, to measure what it is worth.

#[doc(hidden)]
pub mod attacked;
pub mod awake;
mod bulk;
pub mod connection;
pub mod convert;
mod count;
pub mod dial;
mod eager;
pub mod endpoint;
pub mod fetch;
pub mod flow;
mod frame;
mod gate;
mod junction;
pub mod key;
mod likeness;
pub mod listener;
mod local;
pub mod message;
pub mod owner;
mod parts;
pub mod patch;
pub mod quiet;
mod reserved;
pub mod signed;
mod tls;
pub mod token;
mod transport;
mod trust;
mod tunnel;
mod turn;
mod until;
pub mod versions;
pub mod whereabouts;
pub mod without;

pub use connection::{Carrier, Connection, Mark, Receiver, Sender, WireError};
pub use convert::Invalid;
pub use count::{Count, Counted};
pub use dial::{DialError, Joined, Pauses, dial, join, now_millis, now_nanos};
pub use endpoint::Endpoint;
pub use fetch::{FetchError, Fetcher, Keep, Look};
pub use key::Key;
pub use listener::Listener;
pub use parts::decode;
pub use quiet::Quiet;
pub use reserved::Reserved;
pub use token::{Role, Token};
pub use transport::Hold;
pub use trust::Trust;
pub use turn::Turn;
pub use until::until;
pub use whereabouts::Whereabouts;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also where a holder has panicked: what is behind our locks changes by single steps, so that it is whole at any time.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Version of the protocol between machines. Every program speaks this one and the one before.
pub const VERSION: u32 = versions::NEWEST;
