//! What a connection's first stream carries: who is there, what the clocks say, what was learnt of the link.

use bytes::Bytes;
use prost::{Message, Oneof};

/// The first message of a connection, from the side that opened it.
#[derive(Clone, PartialEq, Message)]
pub struct Hello {
    /// Protocol version that the sender prefers.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// What it wants to be: a [`crate::Role`].
    #[prost(uint32, tag = "2")]
    pub role: u32,
    /// Name for people.
    #[prost(string, tag = "3")]
    pub name: String,
    /// The token's secret, when joining.
    #[prost(bytes = "bytes", tag = "4")]
    pub secret: Bytes,
    /// CPUs that a worker lends.
    #[prost(uint32, tag = "5")]
    pub cpus: u32,
    /// Memory that a worker lends, bytes.
    #[prost(uint64, tag = "6")]
    pub memory_bytes: u64,
    /// The sender's wall clock, nanoseconds since 1970.
    #[prost(sint64, tag = "7")]
    pub clock: i64,
    /// Random number of this start of the sender's program: tells a restart from a reconnection.
    #[prost(uint64, tag = "8")]
    pub instance: u64,
    /// Instruction set and level, such as `x86_64 v3`, and CPU model.
    #[prost(string, tag = "9")]
    pub platform: String,
    /// What was learnt of the way from the receiver to the sender over an earlier connection.
    #[prost(message, optional, tag = "10")]
    pub down: Option<PathLearnt>,
    /// The start of the sender's program before this one, which is no more: what ran for it may end. 0: none.
    #[prost(uint64, tag = "11")]
    pub replaces: u64,
    /// Digest of a client's release and instruction set, as in [`Welcome::system`].
    #[prost(bytes = "bytes", tag = "12")]
    pub system: Bytes,
    /// Of a hub that works for another: what its workers lend.
    #[prost(message, optional, tag = "13")]
    pub behind: Option<Lends>,
    /// A worker that takes no launches: its hosts ask for workunits ([`super::work`]).
    #[prost(bool, tag = "14")]
    pub asks: bool,
    /// Level of x86-64 of a worker's processors, 1 to 4; 0: of another architecture, or not known.
    #[prost(uint32, tag = "15")]
    pub level: u32,
    /// Names that a worker's owner has given it.
    #[prost(string, repeated, tag = "16")]
    pub tags: Vec<String>,
    /// A worker that says when a signal has reached a task ([`super::OutputKind::Signalled`]).
    #[prost(bool, tag = "17")]
    pub answers_signals: bool,
    /// Of a worker: [`crate::owner::Secret::mark`] of the account whose tasks are no guests there; empty: there is none.
    #[prost(bytes = "bytes", tag = "18")]
    pub owner: Bytes,
    /// Of a worker that joins: [`crate::owner::Secret::proof_of_joiner`]; empty: none.
    #[prost(bytes = "bytes", tag = "19")]
    pub joiner: Bytes,
    /// A worker without root: it has one range of user ids, so it takes one client at a time.
    #[prost(bool, tag = "26")]
    pub one_client: bool,
}

/// What the workers of a hub lend that works for another hub.
#[derive(Clone, PartialEq, Message)]
pub struct Lends {
    /// CPUs of all together.
    #[prost(uint32, tag = "1")]
    pub cpus: u32,
    /// CPUs of the largest: no task there can have more.
    #[prost(uint32, tag = "2")]
    pub largest: u32,
    /// Memory of the machine that has most, in MiB.
    #[prost(uint32, tag = "3")]
    pub memory_mib: u32,
    /// Level of x86-64 of the newest; 0: not known.
    #[prost(uint32, tag = "4")]
    pub level: u32,
    /// Tags that machines have.
    #[prost(string, repeated, tag = "5")]
    pub tags: Vec<String>,
    /// What a task will get of a processor there, if that is known.
    #[prost(message, optional, tag = "6")]
    pub expected: Option<Expected>,
    /// Why guests rest there, for a person; empty: they do not.
    #[prost(string, tag = "7")]
    pub rests: String,
    /// What it has trouble with, if anything.
    #[prost(message, optional, tag = "8")]
    pub troubles: Option<Troubles>,
    /// CPUs of tasks that only wait for their standard input or output: as long as they do, these are lent once more.
    #[prost(uint32, tag = "9")]
    pub cpus_again: u32,
}

/// What a worker has trouble with. In steps, so that it is told seldom.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Troubles {
    /// For how long the oldest request of a guest for a file has waited, in seconds; 0: less than one.
    #[prost(uint32, tag = "1")]
    pub oldest_request_s: u32,
    /// Tasks that were told to end some seconds ago and have not.
    #[prost(uint32, tag = "2")]
    pub unkillable: u32,
    /// How far its clock is ahead of the hub's, in milliseconds; 0: about as the hub's.
    #[prost(sint32, tag = "3")]
    pub clock_ahead_ms: i32,
}

/// What a machine expects to give one more task in the next minutes beside what its owner wants: thousandths of a processor.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Expected {
    /// Their mean.
    #[prost(uint32, tag = "1")]
    pub mean: u32,
    /// Nine times in ten it is no less …
    #[prost(uint32, tag = "2")]
    pub low: u32,
    /// … and no more.
    #[prost(uint32, tag = "3")]
    pub high: u32,
    /// How far such forecasts were off so far, in the mean.
    #[prost(uint32, tag = "4")]
    pub error: u32,
    /// In how many of a thousand what came was between `low` and `high`.
    #[prost(uint32, tag = "5")]
    pub covered: u32,
}

/// What a task would get of a processor on the best of the other workers that have one free.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Elsewhere {
    /// Thousandths; 0: none is free.
    #[prost(uint32, tag = "1")]
    pub share: u32,
}

/// What a command of a client would get that comes now.
#[derive(Clone, PartialEq, Message)]
pub struct Offer {
    /// Of a processor, on the best worker where the client's tasks are guests, of those that have one free; thousandths. 0: there is none.
    #[prost(uint32, tag = "1")]
    pub share: u32,
    /// One of those workers is the client's own: its tasks have the priority of any process there.
    #[prost(bool, tag = "2")]
    pub own: bool,
    /// Commands that wait for a place.
    #[prost(uint32, tag = "3")]
    pub waiting: u32,
    /// Workers that take no tasks now, and why, for a person: `name (reason)`. At most eight.
    #[prost(string, repeated, tag = "4")]
    pub resting: Vec<String>,
    /// Workers that are at the hub.
    #[prost(uint32, tag = "5")]
    pub workers: u32,
    /// CPUs that are lent now.
    #[prost(uint32, tag = "6")]
    pub cpus: u32,
    /// A CPU is free. Where none is, `share` and `own` are of the workers that have tasks.
    #[prost(bool, tag = "7")]
    pub is_free: bool,
    /// Name of the worker whose `share` it is; empty: there is none.
    #[prost(string, tag = "8")]
    pub name: String,
    /// As [`Welcome::trust`] for clients.
    #[prost(uint32, tag = "9")]
    pub trust: u32,
}

/// What a sender has learnt of the way to a receiver: [`crate::flow::Path`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct PathLearnt {
    /// Bytes a second.
    #[prost(uint64, tag = "1")]
    pub rate: u64,
    /// Round trip without queueing, nanoseconds.
    #[prost(uint64, tag = "2")]
    pub round_trip: u64,
}

/// The answer to [`Hello`].
#[derive(Clone, PartialEq, Message)]
pub struct Welcome {
    /// Protocol version that both will speak.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// Why the connection is refused; empty if it is not.
    #[prost(string, tag = "2")]
    pub refusal: String,
    /// The hub's wall clock, nanoseconds since 1970.
    #[prost(sint64, tag = "3")]
    pub clock: i64,
    /// Name of the hub for people.
    #[prost(string, tag = "4")]
    pub name: String,
    /// Random number of this start of the hub.
    #[prost(uint64, tag = "5")]
    pub instance: u64,
    /// Names the hub's block store: what was sent to it once is still there, as a rule, whatever became of the connection.
    #[prost(bytes = "bytes", tag = "6")]
    pub store: Bytes,
    /// What the hub holds of this start of the client from an earlier connection.
    #[prost(message, repeated, tag = "7")]
    pub views: Vec<ViewHeld>,
    /// There was an earlier connection of this start of the client, and what was said over it is known.
    #[prost(bool, tag = "8")]
    pub resumed: bool,
    /// Digest of the hub's release and instruction set (`store::system::release`): a client with the same need only name the
    /// distribution's files. Empty if it has none.
    #[prost(bytes = "bytes", tag = "9")]
    pub system: Bytes,
    /// The hub's node id, and those of the hubs above it, for a hub that will work for it.
    #[prost(bytes = "bytes", repeated, tag = "10")]
    pub hubs: Vec<Bytes>,
    /// Which hub this is, of those that replaced one another on one journal: one with a lower number must not be worked for.
    #[prost(uint64, tag = "11")]
    pub epoch: u64,
    /// Where this hub and those that would replace it may be found, `IP:PORT` each. Empty: nothing is known of others.
    #[prost(string, repeated, tag = "12")]
    pub addresses: Vec<String>,
    /// To a worker: how far it is trusted. To a client: the class of the least trusted worker that commands go to unasked. 1: the owner's
    /// own, 2: of the site, 3: a volunteer's, 4: nobody has said yet, and it gets no tasks; 0: the hub knows no classes.
    #[prost(uint32, tag = "13")]
    pub trust: u32,
    /// To a client: shows one of the same account on the same machine that the hub is that account's (`owner::Secret::proof_of_hub`). Empty
    /// if the hub has no such secret.
    #[prost(bytes = "bytes", tag = "14")]
    pub owner: Bytes,
}

/// How far a view is known.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct ViewHeld {
    /// Which view.
    #[prost(uint64, tag = "1")]
    pub view: u64,
    /// At which version.
    #[prost(uint64, tag = "2")]
    pub version: u64,
}

/// What the first stream carries after the greeting.
#[derive(Clone, PartialEq, Message)]
pub struct Control {
    /// Which kind.
    #[prost(oneof = "ControlKind", tags = "1, 2, 3, 4, 5")]
    pub kind: Option<ControlKind>,
}

/// Kinds of [`Control`].
#[derive(Clone, PartialEq, Oneof)]
pub enum ControlKind {
    /// Asks for the peer's clock; carries the asker's.
    #[prost(sint64, tag = "1")]
    Ping(i64),
    /// Answers a ping.
    #[prost(message, tag = "2")]
    Pong(Pong),
    /// The sender has moved to another network.
    #[prost(message, tag = "3")]
    Moved(Moved),
    /// Workers of the sender, a hub, have come or gone.
    #[prost(message, tag = "4")]
    Lends(Lends),
    /// From the hub: what [`Welcome::addresses`] said is another list now.
    #[prost(message, tag = "5")]
    Hubs(Hubs),
}

/// Where the hubs are that replace one another.
#[derive(Clone, PartialEq, Message)]
pub struct Hubs {
    /// As [`Welcome::addresses`].
    #[prost(string, repeated, tag = "1")]
    pub addresses: Vec<String>,
}

/// A change of network.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Moved {
    /// What was learnt before of the way from the receiver to the sender there.
    #[prost(message, optional, tag = "1")]
    pub down: Option<PathLearnt>,
}

/// The clocks of a ping and its answer, nanoseconds since 1970.
#[derive(Clone, PartialEq, Message)]
pub struct Pong {
    /// As in the ping.
    #[prost(sint64, tag = "1")]
    pub asked: i64,
    /// The answering side's clock.
    #[prost(sint64, tag = "2")]
    pub answered: i64,
    /// What the answering side has learnt of the way to the asking one.
    #[prost(message, optional, tag = "3")]
    pub down: Option<PathLearnt>,
}

impl From<ControlKind> for Control {
    fn from(kind: ControlKind) -> Self {
        Self { kind: Some(kind) }
    }
}
