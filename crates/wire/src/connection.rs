//! Connections between known keys, and streams of messages on them: QUIC between processes, memory within one.
//!
//! Over QUIC a message is a frame ([`crate::frame`]). Every request has a time limit, every frame a largest size, every connection
//! an idle limit: nothing here waits for ever.

use crate::bulk;
use crate::flow::{FlowHandle, Path};
pub use crate::frame::FRAME_BYTES_MAX;
use crate::frame::{FrameReceiver, FrameSender, Frames, Unfinished};
use crate::gate::{Lost, Place, Source};
use crate::junction::Tunnels;
use crate::key::node_of;
use crate::local::{self, Inlet, Local, Outlet};
use crate::lock;
use crate::message::{Object, ObjectReply, Open, OpenKind, OutputKind, TaskOutput};
use crate::parts::decode;
use crate::transport;
use crate::turn::Turn;
use crate::versions;
use base::NodeId;
use bytes::Bytes;
use prost::Message;
use quinn::VarInt;
use rustls::pki_types::CertificateDer;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long connecting may take.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How long an answer to a request may take.
pub const REQUEST_LIMIT: Duration = Duration::from_secs(20);

/// Something went wrong between two machines.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WireError {
    /// The address cannot be used.
    #[error("cannot use the address {address}: {why}")]
    Address {
        /// The address.
        address: SocketAddr,
        /// Why not.
        why: String,
    },
    /// No connection came to be.
    #[error("cannot connect to {address}: {why}")]
    Connect {
        /// Where to.
        address: SocketAddr,
        /// Why not.
        why: String,
    },
    /// The connection or stream ended.
    #[error("the connection was lost: {0}")]
    Lost(String),
    /// The peer did not answer in time.
    #[error("no answer within {} s", .0.as_secs())]
    Late(Duration),
    /// The peer sent a message as its difference from one that is not here any more: it is to send it whole.
    #[error("a message came as its difference from one that is not known here")]
    Unlike,
    /// The peer sent what this version does not understand.
    #[error("the other side sent an invalid message: {0}")]
    Invalid(String),
}

/// A connection to a machine whose key is known.
#[derive(Clone, Debug)]
pub struct Connection {
    pub(crate) way: Way,
    /// The version of the protocol that both ends speak; 0 before the greeting.
    version: Arc<AtomicU32>,
}

#[derive(Clone, Debug)]
pub(crate) enum Way {
    Quic(Quic),
    Local(Local),
}

#[derive(Clone, Debug)]
pub(crate) struct Quic {
    pub(crate) quic: quinn::Connection,
    peer: NodeId,
    flow: Option<FlowHandle>,
    frames: Arc<Frames>,
    tunnels: Arc<Tunnels>,
    /// Of one that has come and is not let in yet: its place among those.
    place: Arc<Mutex<Option<Stranger>>>,
}

/// What a side that is not let in holds, and how it learns that another got that.
#[derive(Debug)]
struct Stranger {
    _place: Place<Source>,
    lost: Option<Lost>,
}

/// What carries a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// QUIC's own: UDP.
    Udp,
    /// TLS over TCP, since no UDP passes.
    Tcp,
    /// The memory of this process.
    Memory,
}

impl Carrier {
    /// Its name, as in `--json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Memory => "memory",
        }
    }
}

/// Names a launch that was sent.
#[derive(Clone, Copy, Debug)]
pub struct Mark(Option<u64>);

/// The sending half of a stream.
#[derive(Debug)]
pub struct Sender {
    half: SendHalf,
    /// The version that both ends spoke when the stream came to be.
    version: u32,
}

#[derive(Debug)]
enum SendHalf {
    Quic(FrameSender),
    Local(Outlet),
}

/// The receiving half of a stream.
#[derive(Debug)]
pub struct Receiver(ReceiveHalf);

#[derive(Debug)]
enum ReceiveHalf {
    Quic(FrameReceiver),
    Local(Inlet),
}

impl Connection {
    /// A connection whose handshake is done; `None` if the other side showed no key.
    pub(crate) fn new(quic: quinn::Connection, flow: Option<FlowHandle>, tunnels: Arc<Tunnels>) -> Option<Self> {
        let shown = quic.peer_identity()?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
        let peer = node_of(shown.first()?);
        let packs = flow.is_some() && quic.rtt() > transport::FAR;
        let frames = Arc::new(Frames { packs, ..Frames::default() });
        let place = Arc::default();
        Some(Self::over(Way::Quic(Quic { quic, peer, flow, frames, tunnels, place })))
    }

    fn over(way: Way) -> Self {
        Self { way, version: Arc::default() }
    }

    /// The greeting has found the version that both ends speak.
    pub fn speak(&self, version: u32) {
        self.version.store(version, Ordering::Release);
    }

    /// The version of the protocol that both ends speak; 0 before the greeting.
    pub fn version(&self) -> u32 {
        self.version.load(Ordering::Acquire)
    }

    /// Takes nothing but a greeting from the other side, which holds `place`, until it is let in.
    pub(crate) fn take_greeting_only(&self, (place, lost): (Place<Source>, Lost), unfinished: &Unfinished) {
        if let Way::Quic(quic) = &self.way {
            *lock(&quic.frames.unfinished) = unfinished.of(quic.peer);
            quic.frames.is_stranger.store(true, Ordering::Release);
            *lock(&quic.place) = Some(Stranger { _place: place, lost: Some(lost) });
        }
    }

    /// Returns if another one got its place while it was not let in, for it was slow. To be called once.
    pub async fn place_lost(&self) {
        let lost = match &self.way {
            Way::Quic(quic) => lock(&quic.place).as_mut().and_then(|stranger| stranger.lost.take()),
            Way::Local(_) => None,
        };
        // An error: it was let in, or has ended.
        let is_lost = match lost {
            Some(lost) => lost.await.is_ok(),
            None => false,
        };
        if !is_lost {
            std::future::pending().await
        }
    }

    /// The other side is known from now on, and may send what is large.
    pub(crate) fn let_in(&self) {
        if let Way::Quic(quic) = &self.way
            && lock(&quic.place).take().is_some()
        {
            quic.frames.is_stranger.store(false, Ordering::Release);
            quic.quic.set_receive_window(VarInt::from_u32(transport::WINDOW_BYTES));
        }
    }

    /// A connection within this process, between parts of it that hold these keys: the end for `near`, and the end for `far`.
    pub fn within_process(near: NodeId, far: NodeId) -> (Self, Self) {
        let (near, far) = local::pair(near, far);
        (Self::over(Way::Local(near)), Self::over(Way::Local(far)))
    }

    /// Whether the other end is in this process: then it has the same block store, too.
    pub fn is_within_process(&self) -> bool {
        matches!(self.way, Way::Local(_))
    }

    /// The machine at the other end.
    pub fn peer(&self) -> NodeId {
        match &self.way {
            Way::Quic(quic) => quic.peer,
            Way::Local(local) => local.peer(),
        }
    }

    /// Where the other end is now; `None` within a process.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.way {
            Way::Quic(Quic { quic, tunnels, .. }) => {
                let address = quic.remote_address();
                Some(tunnels.real(address).unwrap_or(address))
            }
            Way::Local(_) => None,
        }
    }

    /// What carries it now.
    pub fn carrier(&self) -> Carrier {
        match &self.way {
            Way::Quic(Quic { quic, tunnels, .. }) => match tunnels.real(quic.remote_address()) {
                Some(_) => Carrier::Tcp,
                None => Carrier::Udp,
            },
            Way::Local(_) => Carrier::Memory,
        }
    }

    /// How much has been heard of the other end: a number that grows with each packet. Whoever waits for a sign of life looks
    /// whether it has grown.
    pub fn heard(&self) -> u64 {
        match &self.way {
            Way::Quic(Quic { quic, .. }) => quic.stats().udp_rx.datagrams,
            Way::Local(_) => 0,
        }
    }

    /// Round trip as measured by the transport.
    pub fn round_trip(&self) -> Duration {
        match &self.way {
            Way::Quic(Quic { quic, .. }) => quic.rtt(),
            Way::Local(_) => Duration::ZERO,
        }
    }

    /// Whether the link was found to be so slow, when it was made, that bytes cost more than the work to save them.
    pub fn is_far(&self) -> bool {
        matches!(&self.way, Way::Quic(quic) if quic.frames.packs)
    }

    /// What has been learnt of the way to the other end; `None` within a machine, and before much was sent.
    pub fn path(&self) -> Option<Path> {
        self.flow().filter(|flow| flow.is_trained())?.path()
    }

    /// Goes by what was learnt of the way to the other end over an earlier connection.
    pub fn remember(&self, path: Path) {
        self.flow().into_iter().for_each(|flow| flow.remember(path));
    }

    /// What this end sends takes what others' traffic leaves, from now on: the other end, or this one, is a machine that somebody else uses.
    pub fn give_way(&self) {
        self.flow().into_iter().for_each(FlowHandle::give_way);
    }

    /// This end has moved to another network, of which this was learnt before. The other end does the same by itself.
    pub fn moved(&self, known: Option<Path>) {
        self.flow().into_iter().for_each(|flow| flow.restart(known));
    }

    fn flow(&self) -> Option<&FlowHandle> {
        match &self.way {
            Way::Quic(Quic { flow, .. }) => flow.as_ref(),
            Way::Local(_) => None,
        }
    }

    /// Sends the next launch whole: the other side does not have what it would differ from.
    pub fn forget_launches(&self) {
        if let Way::Quic(Quic { frames, .. }) = &self.way {
            frames.likeness.forget();
        }
    }

    /// The other end is known, and may have many streams open at a time.
    pub fn allow_streams(&self) {
        if let Way::Quic(Quic { quic, .. }) = &self.way {
            quic.set_max_concurrent_bi_streams(VarInt::from_u32(transport::STREAMS_MAX));
        }
    }

    /// Bytes sent and received so far over a link, with all headers but IP's and UDP's.
    pub fn bytes(&self) -> (u64, u64) {
        match &self.way {
            Way::Quic(Quic { quic, .. }) => {
                let stats = quic.stats();
                (stats.udp_tx.bytes, stats.udp_rx.bytes)
            }
            Way::Local(_) => (0, 0),
        }
    }

    /// Opens the connection's first stream.
    pub async fn open_control(&self) -> Result<(Sender, Receiver), WireError> {
        Ok(self.streams(match &self.way {
            Way::Quic(Quic { quic, frames, .. }) => quic_halves(quic.open_bi().await.map_err(lost)?, frames),
            Way::Local(local) => local_halves(local.open().await?),
        }))
    }

    /// Opens a stream that starts with `first`.
    pub async fn open(&self, first: impl Into<Open>) -> Result<(Sender, Receiver), WireError> {
        let (mut sender, receiver) = self.open_control().await?;
        sender.send(&first.into()).await?;
        Ok((sender, receiver))
    }

    /// Takes the connection's first stream, or the next.
    pub async fn accept_control(&self) -> Result<(Sender, Receiver), WireError> {
        Ok(self.streams(match &self.way {
            Way::Quic(Quic { quic, frames, .. }) => quic_halves(quic.accept_bi().await.map_err(lost)?, frames),
            Way::Local(local) => local_halves(local.accept().await?),
        }))
    }

    fn streams(&self, (half, receiver): (SendHalf, ReceiveHalf)) -> (Sender, Receiver) {
        (Sender { half, version: self.version() }, Receiver(receiver))
    }

    /// Sends one request, and gives the stream of its answers.
    pub async fn ask(&self, request: OpenKind) -> Result<Receiver, WireError> {
        let (mut sender, receiver) = self.open(request).await?;
        sender.finish();
        Ok(receiver)
    }

    /// Sends one request and waits for its one answer, for at most [`REQUEST_LIMIT`].
    pub async fn request<Answer: Message + Default + 'static>(&self, request: OpenKind) -> Result<Answer, WireError> {
        let answer = tokio::time::timeout(REQUEST_LIMIT, self.ask_one(request));
        answer.await.map_err(|_| WireError::Late(REQUEST_LIMIT))?
    }

    /// The same without a limit, for callers that have their own.
    pub async fn ask_one<Answer: Message + Default + 'static>(&self, request: OpenKind) -> Result<Answer, WireError> {
        let mut receiver = self.ask(request).await?;
        receiver.next::<Answer>().await?.ok_or_else(|| WireError::Lost("the answer is missing".into()))
    }

    /// Ends the connection, telling the other side why.
    pub fn close(&self, why: &str) {
        match &self.way {
            Way::Quic(Quic { quic, .. }) => quic.close(VarInt::from_u32(1), why.as_bytes()),
            Way::Local(local) => local.close(why),
        }
    }

    /// Waits until the connection has ended, and says why.
    pub async fn closed(&self) -> String {
        match &self.way {
            Way::Quic(Quic { quic, .. }) => quic.closed().await.to_string(),
            Way::Local(local) => local.closed().await,
        }
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        match &self.way {
            Way::Quic(Quic { quic, .. }) => quic.close_reason().is_some(),
            Way::Local(local) => local.is_closed(),
        }
    }
}

fn quic_halves(
    (send, receive): (quinn::SendStream, quinn::RecvStream),
    frames: &Arc<Frames>,
) -> (SendHalf, ReceiveHalf) {
    let (send, receive) = (FrameSender::new(send, frames.clone()), FrameReceiver::new(receive, frames.clone()));
    (SendHalf::Quic(send), ReceiveHalf::Quic(receive))
}

fn local_halves((outlet, inlet): (Outlet, Inlet)) -> (SendHalf, ReceiveHalf) {
    (SendHalf::Local(outlet), ReceiveHalf::Local(inlet))
}

impl Sender {
    /// When what is sent here goes, beside what is sent on other streams.
    pub fn set_turn(&self, turn: Turn) {
        match &self.half {
            SendHalf::Quic(stream) => stream.set_turn(turn),
            // Nothing waits there.
            SendHalf::Local(_) => {}
        }
    }

    /// Sends one message.
    pub async fn send<M: Message>(&mut self, message: &M) -> Result<(), WireError> {
        self.send_encoded(message.encode_to_vec().into()).await
    }

    /// Says that this machine lives and has the task of this stream, if that is a word of the version that both ends speak.
    pub async fn say_alive(&mut self) -> Result<(), WireError> {
        match versions::has_alive(self.version) {
            true => self.send(&TaskOutput::from(OutputKind::Alive(true))).await,
            false => Ok(()),
        }
    }

    /// Sends a greeting: who has not been let in sends nothing packed.
    pub async fn greet<M: Message>(&mut self, message: &M) -> Result<(), WireError> {
        let encoded = message.encode_to_vec().into();
        match &mut self.half {
            SendHalf::Quic(stream) => stream.send_plain(encoded).await,
            SendHalf::Local(outlet) => outlet.send(encoded).await,
        }
    }

    /// Sends a launch: it is much like others before and after it on this connection. The mark is for
    /// [`Receiver::answers`].
    pub async fn send_launch(&mut self, launch: Open) -> Result<Mark, WireError> {
        let encoded = Bytes::from(launch.encode_to_vec());
        match &mut self.half {
            SendHalf::Quic(stream) => stream.send_alike(encoded).await.map(Mark),
            SendHalf::Local(outlet) => outlet.send(encoded).await.map(|()| Mark(None)),
        }
    }

    /// Sends a message that is already encoded.
    pub async fn send_encoded(&mut self, encoded: Bytes) -> Result<(), WireError> {
        match &mut self.half {
            SendHalf::Quic(stream) => stream.send((Vec::new(), encoded)).await,
            SendHalf::Local(outlet) => outlet.send(encoded).await,
        }
    }

    /// Sends the answer to one of the objects or pieces that were asked for.
    pub async fn answer_object(&mut self, reply: ObjectReply) -> Result<(), WireError> {
        match &mut self.half {
            SendHalf::Quic(stream) => stream.send(bulk::reply_head(reply)).await,
            SendHalf::Local(_) => self.send(&reply).await,
        }
    }

    /// Gives an object that the launch to follow on this stream will need.
    pub async fn give(&mut self, object: Object) -> Result<(), WireError> {
        match &mut self.half {
            SendHalf::Quic(stream) => stream.send(bulk::give_head(object)).await,
            SendHalf::Local(_) => self.send(&Open::from(OpenKind::Give(object))).await,
        }
    }

    /// Says that nothing more follows.
    pub fn finish(&mut self) {
        match &mut self.half {
            SendHalf::Quic(stream) => stream.finish(),
            SendHalf::Local(outlet) => outlet.finish(),
        }
    }

    /// After [`Sender::finish`]: waits until the other side has all, or stops reading, or the connection ends.
    pub async fn stopped(&mut self) {
        match &mut self.half {
            SendHalf::Quic(stream) => stream.stopped().await,
            // What was sent is at the other side.
            SendHalf::Local(_) => {}
        }
    }
}

impl Receiver {
    /// What comes answers this launch: others can be sent by their difference from it then.
    pub fn answers(&mut self, launch: Mark) {
        match &mut self.0 {
            ReceiveHalf::Quic(frames) => frames.answers(launch.0),
            ReceiveHalf::Local(_) => {}
        }
    }

    /// The next message; `None` if the other side has finished.
    pub async fn next<M: Message + Default + 'static>(&mut self) -> Result<Option<M>, WireError> {
        self.next_encoded().await?.map(decode).transpose()
    }

    /// The next message as it is encoded; `None` if the other side has finished. Safe to cancel.
    pub async fn next_encoded(&mut self) -> Result<Option<Bytes>, WireError> {
        match &mut self.0 {
            ReceiveHalf::Quic(frames) => frames.next().await,
            ReceiveHalf::Local(inlet) => inlet.next().await,
        }
    }
}

fn lost(error: impl std::fmt::Display) -> WireError {
    WireError::Lost(error.to_string())
}
