//! The messages between client, hub and worker, as protobuf.
//!
//! The structures are written as Rust and encoded by `prost`'s derive (decision 0001). Tags are never reused; fields are only ever added.
//! A connection's first stream carries [`Hello`] and [`Welcome`], then [`Control`]. Every other stream opens with one [`Open`]:
//!
//! | opens with | from, to | what follows |
//! |---|---|---|
//! | `Launch` | client to hub, hub to worker | [`TaskInput`] one way, [`TaskOutput`] the other |
//! | `Bind` | worker to hub, hub to client | one [`BindReply`] |
//! | `Objects` | worker to hub, hub to client | an [`ObjectReply`] for each digest, in any order |
//! | `Pieces` | worker to hub, hub to client | an [`ObjectReply`] for each piece, in order |
//! | `Ask` | client to hub | one [`Answer`] |
//! | `Coming` | client to hub | a `Give` for each of what it names |
//! | `Elsewhere` | worker to hub | one [`Elsewhere`] |
//! | `Offer` | client to hub | one [`Offer`] |
//! | `Host`, `Jobs`, `Drive`, `Collect` | host or client to hub | see [`work`] |
//!
//! `Give` may come before a `Launch`, on its stream: contents that it will need, sent while the client looks at the rest.

mod greeting;
mod running;
pub mod work;

pub use greeting::{
    Control, ControlKind, Elsewhere, Expected, Hello, Hubs, Lends, Moved, Offer, PathLearnt, Pong, Troubles, ViewHeld,
    Welcome,
};
pub use running::{
    Change, Exited, Failed, FailedKind, InputKind, LockRequest, Moment, OutputKind, Placed, Progress, Resting,
    ServiceAnswer, ServiceRequest, TaskInput, TaskOutput,
};

use bytes::Bytes;
use prost::{Message, Oneof};

/// The first message of every stream but a connection's first.
#[derive(Clone, PartialEq, Message)]
pub struct Open {
    /// Which kind of stream this is.
    #[prost(oneof = "OpenKind", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13")]
    pub kind: Option<OpenKind>,
}

/// Kinds of streams.
#[derive(Clone, PartialEq, Oneof)]
pub enum OpenKind {
    /// Run a task.
    #[prost(message, tag = "1")]
    Launch(Box<Launch>),
    /// Say what a path is.
    #[prost(message, tag = "2")]
    Bind(BindRequest),
    /// Send blocks, listings or recipes.
    #[prost(message, tag = "3")]
    Objects(ObjectsRequest),
    /// Send pieces of a lazily bound file.
    #[prost(message, tag = "4")]
    Pieces(PiecesRequest),
    /// A question of `gleaner`, as JSON.
    #[prost(bytes = "bytes", tag = "5")]
    Ask(Bytes),
    /// Contents that the launch to follow will need.
    #[prost(message, tag = "6")]
    Give(Object),
    /// Contents that come over this stream while tasks that need them start.
    #[prost(message, tag = "7")]
    Coming(Coming),
    /// This is a host that asks for workunits.
    #[prost(message, tag = "8")]
    Host(work::HostGreeting),
    /// Jobs of workunits are submitted and changed over this stream.
    #[prost(bool, tag = "9")]
    Jobs(bool),
    /// Tell what becomes of a job's workunits.
    #[prost(message, tag = "10")]
    Collect(work::Collect),
    /// Tell which of a job's launches have a place.
    #[prost(message, tag = "11")]
    Drive(work::Drive),
    /// Say what a task would get on another worker: [`Elsewhere`].
    #[prost(bool, tag = "12")]
    Elsewhere(bool),
    /// Say what a command that comes now would get: [`Offer`]. Carries the client's [`crate::owner::Secret::mark`], or nothing.
    #[prost(bytes = "bytes", tag = "13")]
    Offer(Bytes),
}

/// Contents that need not be asked for: they are on their way.
#[derive(Clone, PartialEq, Message)]
pub struct Coming {
    /// For launches that need them.
    #[prost(fixed64, tag = "1")]
    pub number: u64,
    /// Their names.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub digests: Vec<Bytes>,
}

/// A task, with what changed at the client since the launch before it.
#[derive(Clone, PartialEq, Message)]
pub struct Launch {
    /// The task's 128-bit number, big-endian, chosen by the client.
    #[prost(bytes = "bytes", tag = "1")]
    pub task: Bytes,
    /// Which try this is, from 1.
    #[prost(uint32, tag = "2")]
    pub attempt: u32,
    /// The client's node id; set by the hub.
    #[prost(bytes = "bytes", tag = "3")]
    pub client: Bytes,
    /// What to run.
    #[prost(message, optional, tag = "4")]
    pub command: Option<Command>,
    /// Standard input.
    #[prost(message, optional, tag = "5")]
    pub stdin: Option<Stdin>,
    /// Standard output: 0 null, 1 stream, 3 terminal.
    #[prost(uint32, tag = "6")]
    pub stdout: u32,
    /// Standard error: 0 null, 1 stream, 2 same as output, 3 terminal.
    #[prost(uint32, tag = "7")]
    pub stderr: u32,
    /// Terminal size: rows * 65536 + columns.
    #[prost(uint32, tag = "8")]
    pub window: u32,
    /// The step of the view.
    #[prost(message, optional, tag = "9")]
    pub view: Option<ViewUpdate>,
    /// Listings, recipes and blocks that the receiver may lack.
    #[prost(message, repeated, tag = "10")]
    pub objects: Vec<Object>,
    /// The client's clock at the launch, nanoseconds since 1970.
    #[prost(sint64, tag = "11")]
    pub launched: i64,
    /// Name of the user's tenant; empty: the client's own.
    #[prost(string, tag = "12")]
    pub tenant: String,
    /// The client's signature: its public key, and Ed25519 over the launch's statement ([`crate::signed`]); empty: it is of a version
    /// without.
    #[prost(bytes = "bytes", tag = "13")]
    pub signature: Bytes,
    /// Nanoseconds to add to a time of the client's clock to get the hub's, as the client measured it.
    #[prost(sint64, tag = "14")]
    pub client_to_hub: i64,
    /// Number of the tenant in the hub's block store; set by the hub.
    #[prost(uint32, tag = "15")]
    pub tenant_number: u32,
    /// Processes that outlive the command and hold its output are waited for: somebody reads that output to its end.
    #[prost(bool, tag = "16")]
    pub linger: bool,
    /// The view begins as a copy of another: of this.
    #[prost(message, optional, tag = "17")]
    pub copied: Option<Copied>,
    /// Names of objects that the receiver, a hub, will need: it asks at once for those that it lacks, so that they come once however
    /// many launches need them. Set by the hub above.
    #[prost(bytes = "bytes", repeated, tag = "18")]
    pub needs: Vec<Bytes>,
    /// Number of the [`Coming`] that names what the task needs and this message does not have, if there is one.
    #[prost(fixed64, optional, tag = "20")]
    pub coming: Option<u64>,
    /// Of a task of a job: its rank in that. See [`crate::Turn`].
    #[prost(uint32, optional, tag = "19")]
    pub rank: Option<u32>,
    /// The instance that it is of, which has a place already ([`work::Place`]). Nothing of its output goes to the client then: of [`TaskOutput`] it gets `Placed`,
    /// `Started` and, when the hub has the result, `End`; or `Failed`.
    #[prost(message, optional, tag = "21")]
    pub place: Option<work::Instance>,
    /// Proof that the client is the account of the worker's machine whose worker it is ([`crate::owner`]); empty: none is known.
    #[prost(bytes = "bytes", tag = "22")]
    pub owner_proof: Bytes,
    /// What the task is watched for; none: what it may not do is refused, and it goes on.
    #[prost(message, optional, tag = "23")]
    pub watch: Option<Watch>,
    /// Number that the command's process is to have; 0: any. Names made of process numbers must not collide.
    #[prost(uint32, tag = "24")]
    pub first_process: u32,
    /// Mounts of the client's, in order of their paths. The file system of its root is only named if it has flags.
    #[prost(message, repeated, tag = "30")]
    pub mounts: Vec<Mount>,
    /// Names of lazily bound files of the view ([`base::Content::Lazy`]) that the task will most likely read here and there: they are fetched
    /// as a whole, as long as that goes fast.
    #[prost(bytes = "bytes", repeated, tag = "31")]
    pub whole: Vec<Bytes>,
    /// What its worker may ask for it; none: the hub's own bounds.
    #[prost(message, optional, tag = "40")]
    pub budget: Option<Budget>,
    /// The least trusted class of worker that it was prepared for, as in [`Welcome::trust`]: it goes to no other. 0: the owner's own and
    /// the site's.
    #[prost(uint32, tag = "41")]
    pub trust: u32,
    /// How many launches of its client wait for a place while this one has got its own; set by the hub.
    #[prost(uint32, tag = "42")]
    pub waiting: u32,
    /// Seals for workers of which the client has had results, one after the other ([`crate::signed::Seals`]): which of them gets the launch
    /// is not known yet.
    #[prost(bytes = "bytes", tag = "43")]
    pub seals: Bytes,
}

/// What may be asked for a task. Honest programs need far less; a worker that lies gets no more.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Budget {
    /// Paths that are told beside those of the launch.
    #[prost(uint64, tag = "1")]
    pub paths: u64,
    /// Bytes of contents.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
}

/// A mount of the client's.
#[derive(Clone, PartialEq, Message)]
pub struct Mount {
    /// Where.
    #[prost(bytes = "vec", tag = "1")]
    pub at: Vec<u8>,
    /// Nothing can be changed there.
    #[prost(bool, tag = "2")]
    pub read_only: bool,
    /// No program there can be executed.
    #[prost(bool, tag = "3")]
    pub no_exec: bool,
}

/// What a task may do that has to be done at its client. It is called off then ([`FailedKind::Unable`]).
#[derive(Clone, PartialEq, Message)]
pub struct Watch {
    /// Locks on files count.
    #[prost(bool, tag = "1")]
    pub locks: bool,
    /// Formats of programs that the client runs by interpreters.
    #[prost(message, repeated, tag = "2")]
    pub formats: Vec<Format>,
    /// Ports at the client's loopback address on which somebody listens by TCP. Port 0, on which nobody can: the client answers when it
    /// is asked about others ([`ServiceRequest`]). Who does not know this asks nothing, and loses nothing by it.
    #[prost(uint32, repeated, tag = "3")]
    pub ports: Vec<u32>,
    /// Files that are made to lock something count.
    #[prost(bool, tag = "4")]
    pub lock_files: bool,
    /// Descriptors above standard error that are open for the command at the client, sorted: from 3 to 63, and 16 at most.
    #[prost(uint32, repeated, tag = "5")]
    pub descriptors: Vec<u32>,
    /// The file system that the client has in the command's folder clones files.
    #[prost(bool, tag = "6")]
    pub clones: bool,
    /// The network is no reason: the task may connect to hosts of the internet.
    #[prost(bool, tag = "7")]
    pub network: bool,
    /// What standard output is at the client, if it is a file with a name.
    #[prost(message, optional, tag = "8")]
    pub stdout: Option<OutputFile>,
    /// What standard error is.
    #[prost(message, optional, tag = "9")]
    pub stderr: Option<OutputFile>,
}

/// A file of the client's into which output goes.
#[derive(Clone, PartialEq, Message)]
pub struct OutputFile {
    /// Its path.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// It is open for adding to its end.
    #[prost(bool, tag = "2")]
    pub appends: bool,
}

/// A format of programs, known by the end of a name or by bytes of the file.
#[derive(Clone, PartialEq, Message)]
pub struct Format {
    /// Its name for people.
    #[prost(bytes = "vec", tag = "1")]
    pub name: Vec<u8>,
    /// What is behind the last dot of its files' names; else it is known by bytes.
    #[prost(bytes = "vec", optional, tag = "2")]
    pub extension: Option<Vec<u8>>,
    /// Where the bytes are.
    #[prost(uint32, tag = "3")]
    pub offset: u32,
    /// The bytes.
    #[prost(bytes = "vec", tag = "4")]
    pub magic: Vec<u8>,
    /// The bits of each that count; empty: all.
    #[prost(bytes = "vec", tag = "5")]
    pub mask: Vec<u8>,
}

/// A view to be copied.
#[derive(Clone, PartialEq, Message)]
pub struct Copied {
    /// The step of that view that leads to the version that is copied.
    #[prost(message, optional, tag = "1")]
    pub step: Option<ViewUpdate>,
    /// Bindings with larger numbers are left out.
    #[prost(uint64, tag = "2")]
    pub seq_max: u64,
}

/// A command line with its surroundings: `base::Command`.
#[derive(Clone, PartialEq, Message)]
pub struct Command {
    /// Program and arguments.
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub argv: Vec<Vec<u8>>,
    /// Environment.
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub env: Vec<Vec<u8>>,
    /// Working directory.
    #[prost(bytes = "vec", tag = "3")]
    pub cwd: Vec<u8>,
    /// File mode creation mask.
    #[prost(uint32, tag = "4")]
    pub umask: u32,
    /// User id.
    #[prost(uint32, tag = "5")]
    pub uid: u32,
    /// Group id.
    #[prost(uint32, tag = "6")]
    pub gid: u32,
    /// Supplementary groups.
    #[prost(uint32, repeated, tag = "7")]
    pub groups: Vec<u32>,
    /// Resource limits: number, soft, hard, and so on.
    #[prost(uint64, repeated, tag = "8")]
    pub limits: Vec<u64>,
    /// Host name.
    #[prost(bytes = "vec", tag = "9")]
    pub hostname: Vec<u8>,
    /// CPUs asked for.
    #[prost(uint32, tag = "10")]
    pub cpus: u32,
    /// Signals that are ignored from the start: bit `n - 1` for signal `n`.
    #[prost(uint64, tag = "11")]
    pub ignored_signals: u64,
    /// Memory that the machine has at least, in MiB; 0: any.
    #[prost(uint32, tag = "12")]
    pub memory_mib: u32,
    /// Level of x86-64 that its program was built for; 0: not known.
    #[prost(uint32, tag = "13")]
    pub level: u32,
    /// Names that the machine's owner has given it.
    #[prost(string, repeated, tag = "14")]
    pub tags: Vec<String>,
    /// Signals that are blocked from the start: bit `n - 1` for signal `n`.
    #[prost(uint64, tag = "15")]
    pub blocked_signals: u64,
    /// Nice value, 0 to 19.
    #[prost(uint32, tag = "16")]
    pub nice: u32,
}

/// Standard input: `base::Stdin`.
#[derive(Clone, PartialEq, Message)]
pub struct Stdin {
    /// 0 null, 1 stream, 2 file, 3 terminal.
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    /// Of a file: its path.
    #[prost(bytes = "vec", tag = "2")]
    pub path: Vec<u8>,
    /// Of a file: the offset.
    #[prost(uint64, tag = "3")]
    pub offset: u64,
}

/// A step of a view: `base::ViewUpdate`.
#[derive(Clone, PartialEq, Message)]
pub struct ViewUpdate {
    /// Which view.
    #[prost(uint64, tag = "1")]
    pub view: u64,
    /// From this version.
    #[prost(uint64, tag = "2")]
    pub base: u64,
    /// To this one.
    #[prost(uint64, tag = "3")]
    pub version: u64,
    /// Added or changed.
    #[prost(message, repeated, tag = "4")]
    pub set: Vec<Bound>,
    /// No longer in the view.
    #[prost(bytes = "vec", repeated, tag = "5")]
    pub drop: Vec<Vec<u8>>,
}

/// A path and what it is: `base::Bound`.
#[derive(Clone, PartialEq, Message)]
pub struct Bound {
    /// The path.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// Number of the binding.
    #[prost(uint64, tag = "2")]
    pub seq: u64,
    /// 0 absent, 1 denied, 2 directory, 3 file, 4 link, 5 special.
    #[prost(uint32, tag = "3")]
    pub kind: u32,
    /// Attributes, of a directory, file or link.
    #[prost(message, optional, tag = "4")]
    pub attr: Option<Attr>,
    /// Of a file: 0 empty, 1 block, 2 recipe, 3 lazy, 4 unreadable. Of a directory: 1 if the listing is known.
    #[prost(uint32, tag = "5")]
    pub content: u32,
    /// Digest of block, recipe, stamp or listing.
    #[prost(bytes = "vec", tag = "6")]
    pub digest: Vec<u8>,
    /// Of an unreadable file: `errno`.
    #[prost(int32, tag = "7")]
    pub errno: i32,
    /// Of a link: where it points.
    #[prost(bytes = "vec", tag = "8")]
    pub target: Vec<u8>,
    /// `user.` attributes: name, value, name, value.
    #[prost(bytes = "vec", repeated, tag = "9")]
    pub xattrs: Vec<Vec<u8>>,
}

/// Attributes: `base::Attr`.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Attr {
    /// `st_mode & 07777`.
    #[prost(uint32, tag = "1")]
    pub mode: u32,
    /// Owner.
    #[prost(uint32, tag = "2")]
    pub uid: u32,
    /// Group.
    #[prost(uint32, tag = "3")]
    pub gid: u32,
    /// Names.
    #[prost(uint32, tag = "4")]
    pub nlink: u32,
    /// Length in bytes.
    #[prost(uint64, tag = "5")]
    pub size: u64,
    /// Space in 512-byte units.
    #[prost(uint64, tag = "6")]
    pub blocks: u64,
    /// Device.
    #[prost(uint64, tag = "7")]
    pub dev: u64,
    /// Inode.
    #[prost(uint64, tag = "8")]
    pub ino: u64,
    /// Content changed, nanoseconds since 1970.
    #[prost(sint64, tag = "9")]
    pub mtime: i64,
    /// Content or attributes changed, nanoseconds since 1970.
    #[prost(sint64, tag = "10")]
    pub ctime: i64,
    /// Last access, nanoseconds since 1970. In a change: what is to be set, if anything.
    #[prost(sint64, optional, tag = "11")]
    pub atime: Option<i64>,
}

/// A block, listing or recipe with its name. The receiver checks the hash.
#[derive(Clone, PartialEq, Message)]
pub struct Object {
    /// BLAKE3 of the bytes.
    #[prost(bytes = "bytes", tag = "1")]
    pub digest: Bytes,
    /// The bytes, or their difference: [`crate::patch`].
    #[prost(bytes = "bytes", tag = "2")]
    pub bytes: Bytes,
    /// Names of the blocks, one after the other, from which `bytes` tell the difference; none: `bytes` are the object's own.
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub like: Vec<Bytes>,
}

/// Asks what a path is.
#[derive(Clone, PartialEq, Message)]
pub struct BindRequest {
    /// Whose: set by the worker for the hub.
    #[prost(bytes = "bytes", tag = "1")]
    pub client: Bytes,
    /// In which view.
    #[prost(uint64, tag = "2")]
    pub view: u64,
    /// For which task.
    #[prost(bytes = "bytes", tag = "3")]
    pub task: Bytes,
    /// The path.
    #[prost(bytes = "vec", tag = "4")]
    pub path: Vec<u8>,
}

/// Answers a [`BindRequest`].
#[derive(Clone, PartialEq, Message)]
pub struct BindReply {
    /// The path asked for, and what else is worth knowing with it. Empty: see `error`.
    #[prost(message, repeated, tag = "1")]
    pub bounds: Vec<Bound>,
    /// Listings, recipes and small blocks that these name.
    #[prost(message, repeated, tag = "2")]
    pub objects: Vec<Object>,
    /// Why it cannot be told.
    #[prost(string, tag = "3")]
    pub error: String,
    /// `errno` that the task shall see, if `error` is set; [`crate::fetch::UNANSWERED`]: EIO, and nobody could be asked.
    #[prost(int32, tag = "4")]
    pub errno: i32,
}

/// Asks for objects by name.
#[derive(Clone, PartialEq, Message)]
pub struct ObjectsRequest {
    /// Whose.
    #[prost(bytes = "bytes", tag = "1")]
    pub client: Bytes,
    /// Which; at most 1024.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub digests: Vec<Bytes>,
    /// A task of the client that runs where they are wanted, as in [`BindRequest::task`].
    #[prost(bytes = "bytes", tag = "3")]
    pub task: Bytes,
}

/// Asks for pieces of a lazily bound file.
#[derive(Clone, PartialEq, Message)]
pub struct PiecesRequest {
    /// Whose.
    #[prost(bytes = "bytes", tag = "1")]
    pub client: Bytes,
    /// Its stamp.
    #[prost(bytes = "bytes", tag = "2")]
    pub stamp: Bytes,
    /// First piece.
    #[prost(uint64, tag = "3")]
    pub first: u64,
    /// How many; at most 64.
    #[prost(uint32, tag = "4")]
    pub count: u32,
    /// A task of the client that runs where they are wanted, as in [`BindRequest::task`].
    #[prost(bytes = "bytes", tag = "5")]
    pub task: Bytes,
}

/// An object, or why it cannot be had.
#[derive(Clone, PartialEq, Message)]
pub struct ObjectReply {
    /// BLAKE3 of the bytes.
    #[prost(bytes = "bytes", tag = "1")]
    pub digest: Bytes,
    /// The bytes.
    #[prost(bytes = "bytes", tag = "2")]
    pub bytes: Bytes,
    /// Why it cannot be had; empty if it is here.
    #[prost(string, tag = "3")]
    pub error: String,
    /// As in [`BindReply::errno`]; 0: EIO.
    #[prost(int32, tag = "4")]
    pub errno: i32,
}

/// The answer to `Ask`, as JSON.
#[derive(Clone, PartialEq, Message)]
pub struct Answer {
    /// JSON.
    #[prost(bytes = "bytes", tag = "1")]
    pub json: Bytes,
}

impl From<OpenKind> for Open {
    fn from(kind: OpenKind) -> Self {
        Self { kind: Some(kind) }
    }
}

impl Object {
    /// `bytes` under the name `digest`.
    pub fn new(digest: base::Digest, bytes: impl Into<Bytes>) -> Self {
        Self { digest: digest_bytes(&digest), bytes: bytes.into(), like: Vec::new() }
    }
}

/// Whether who sends this signal wants a program to end: SIGHUP, SIGINT, SIGQUIT, SIGTERM.
pub fn is_ending(signal: u32) -> bool {
    [1, 2, 3, 15].contains(&signal)
}

/// The 32 bytes of a digest.
pub fn digest_bytes(digest: &base::Digest) -> Bytes {
    Bytes::copy_from_slice(&digest.0)
}
