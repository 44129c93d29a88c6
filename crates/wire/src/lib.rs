//! What goes between machines: protobuf messages, and QUIC connections that both sides authenticate by raw public keys;
//! between parts of one process, the same messages in memory.
//!
//! * [`message`]: the messages; [`convert`]: to and from the plain types of `base`.
//! * [`key`]: a machine's key pair, its name (`NodeId`), and where it is kept.
//! * [`token`]: what a joiner is given: where the hub is, which key it has, and a secret that works once.
//! * [`dial`]: joining a hub, and how far its clock is from ours.
//! * [`flow`]: how much may be under way, and what is learnt of a link.
//! * [`fetch`]: asking for bindings and bytes, once however many want them.
//! * [`connection`]: endpoints, connections, framed streams, requests with a time limit.
//! * [`without`]: what is left out, to measure what it is worth.

mod bulk;
pub mod connection;
pub mod convert;
pub mod dial;
pub mod fetch;
pub mod flow;
mod frame;
pub mod key;
mod likeness;
mod local;
pub mod message;
mod tls;
pub mod token;
mod transport;
pub mod without;

pub use connection::{Connection, Endpoint, Listener, Mark, Receiver, Sender, WireError};
pub use convert::Invalid;
pub use dial::{DialError, Joined, dial, join, now_nanos};
pub use fetch::{FetchError, Fetcher};
pub use key::Key;
pub use token::{Role, Token};

/// Version of the protocol between machines. A hub speaks this one and the one before.
pub const VERSION: u32 = 1;
