//! Connections between known keys, and streams of messages on them: QUIC between processes, memory within one.
//!
//! Over QUIC a message is a frame ([`crate::frame`]). Every request has a time limit, every frame a largest size, every connection
//! an idle limit: nothing here waits for ever.

use crate::bulk;
use crate::flow::{FlowHandle, Path};
pub use crate::frame::FRAME_BYTES_MAX;
use crate::frame::{FrameReceiver, FrameSender, Frames};
use crate::key::{Key, node_of};
use crate::local::{self, Inlet, Local, Outlet};
use crate::message::{Object, ObjectReply, Open, OpenKind};
use crate::tls;
use crate::transport;
pub use crate::transport::IDLE_LIMIT;
use base::NodeId;
use bytes::Bytes;
use prost::Message;
use quinn::VarInt;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::pki_types::CertificateDer;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
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

/// Accepts connections.
#[derive(Debug)]
pub struct Listener {
    endpoint: quinn::Endpoint,
    config: quinn::ServerConfig,
}

/// Opens connections.
#[derive(Clone, Debug)]
pub struct Endpoint {
    key: Key,
    four: quinn::Endpoint,
    six: Option<quinn::Endpoint>,
}

/// A connection to a machine whose key is known.
#[derive(Clone, Debug)]
pub struct Connection {
    way: Way,
}

#[derive(Clone, Debug)]
enum Way {
    Quic { quic: quinn::Connection, peer: NodeId, flow: Option<FlowHandle>, frames: Arc<Frames> },
    Local(Local),
}

/// Names a launch that was sent.
#[derive(Clone, Copy, Debug)]
pub struct Mark(Option<u64>);

/// The sending half of a stream.
#[derive(Debug)]
pub struct Sender(SendHalf);

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

impl Listener {
    /// Listens on `address` (UDP) as the machine that holds `key`. Must be called within a tokio runtime.
    pub fn bind(address: SocketAddr, key: &Key) -> Result<Self, WireError> {
        let failed = |error: String| WireError::Address { address, why: error };
        let tls = tls::server_config(key).map_err(|error| failed(error.to_string()))?;
        let crypto = QuicServerConfig::try_from(tls).map_err(|error| failed(error.to_string()))?;
        let config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
        Ok(Self { endpoint: transport::endpoint(address, Some(config.clone()))?, config })
    }

    /// The address that it listens on: with port 0 the kernel chose one.
    pub fn address(&self) -> Result<SocketAddr, WireError> {
        self.endpoint.local_addr().map_err(|error| WireError::Lost(error.to_string()))
    }

    /// The next attempt to connect; `None` once the listener is closed. Its handshake is done by [`Attempt::finish`], so
    /// that a slow one holds nobody up.
    pub async fn accept(&self) -> Option<Attempt> {
        let incoming = self.endpoint.accept().await?;
        let flow = (!incoming.remote_address().ip().is_loopback()).then(|| FlowHandle::new(None));
        let mut config = self.config.clone();
        config.transport_config(transport::settings(flow.as_ref()));
        Some(Attempt { incoming, config, flow })
    }

    /// Ends all connections and takes no more.
    pub async fn close(&self) {
        self.endpoint.close(VarInt::from_u32(0), b"shutting down");
        let _ = tokio::time::timeout(Duration::from_secs(1), self.endpoint.wait_idle()).await;
    }
}

/// A connection whose handshake is not done.
#[derive(Debug)]
pub struct Attempt {
    incoming: quinn::Incoming,
    config: quinn::ServerConfig,
    flow: Option<FlowHandle>,
}

impl Attempt {
    /// Does the handshake, within [`CONNECT_LIMIT`].
    pub async fn finish(self) -> Result<Connection, WireError> {
        let address = self.incoming.remote_address();
        let failed = |why: String| WireError::Connect { address, why };
        let connecting = self.incoming.accept_with(Arc::new(self.config));
        let connecting = connecting.map_err(|error| failed(error.to_string()))?;
        let quic = tokio::time::timeout(CONNECT_LIMIT, connecting)
            .await
            .map_err(|_| failed("the handshake took too long".into()))?
            .map_err(|error| failed(error.to_string()))?;
        Connection::new(quic, self.flow).ok_or_else(|| failed("it showed no key".into()))
    }
}

impl Endpoint {
    /// For connections from the machine that holds `key`. Must be called within a tokio runtime.
    pub fn new(key: &Key) -> Result<Self, WireError> {
        let four = transport::endpoint((Ipv4Addr::UNSPECIFIED, 0).into(), None)?;
        // A machine without IPv6 is fine.
        let six = transport::endpoint((Ipv6Addr::UNSPECIFIED, 0).into(), None).ok();
        Ok(Self { key: key.clone(), four, six })
    }

    /// Connects to the machine at `address`, which must hold the key named `expected`; within [`CONNECT_LIMIT`]. `known`: what
    /// was learnt of the way there before.
    pub async fn connect(
        &self,
        address: SocketAddr,
        expected: NodeId,
        known: Option<Path>,
    ) -> Result<Connection, WireError> {
        let failed = |why: String| WireError::Connect { address, why };
        let tls = tls::client_config(&self.key, expected).map_err(|error| failed(error.to_string()))?;
        let crypto = QuicClientConfig::try_from(tls).map_err(|error| failed(error.to_string()))?;
        let mut config = quinn::ClientConfig::new(Arc::new(crypto));
        let flow = (!address.ip().is_loopback()).then(|| FlowHandle::new(known));
        config.transport_config(transport::settings(flow.as_ref()));
        let endpoint = match address.ip() {
            IpAddr::V4(_) => &self.four,
            IpAddr::V6(_) => self.six.as_ref().ok_or_else(|| failed("this machine has no IPv6".into()))?,
        };
        let connecting =
            endpoint.connect_with(config, address, "gleaner").map_err(|error| failed(error.to_string()))?;
        let quic = tokio::time::timeout(CONNECT_LIMIT, connecting)
            .await
            .map_err(|_| failed(format!("no answer within {} s", CONNECT_LIMIT.as_secs())))?
            .map_err(|error| failed(error.to_string()))?;
        Connection::new(quic, flow).ok_or_else(|| failed("it showed no key".into()))
    }
}

impl Connection {
    fn new(quic: quinn::Connection, flow: Option<FlowHandle>) -> Option<Self> {
        let shown = quic.peer_identity()?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
        let peer = node_of(shown.first()?);
        let frames = Frames { packs: flow.is_some() && quic.rtt() > transport::FAR, ..Frames::default() };
        Some(Self { way: Way::Quic { quic, peer, flow, frames: Arc::new(frames) } })
    }

    /// A connection within this process, between parts of it that hold these keys: the end for `near`, and the end for `far`.
    pub fn within_process(near: NodeId, far: NodeId) -> (Self, Self) {
        let (near, far) = local::pair(near, far);
        (Self { way: Way::Local(near) }, Self { way: Way::Local(far) })
    }

    /// Whether the other end is in this process: then it has the same block store, too.
    pub fn is_within_process(&self) -> bool {
        matches!(self.way, Way::Local(_))
    }

    /// The machine at the other end.
    pub fn peer(&self) -> NodeId {
        match &self.way {
            Way::Quic { peer, .. } => *peer,
            Way::Local(local) => local.peer(),
        }
    }

    /// Where the other end is now; `None` within a process.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.way {
            Way::Quic { quic, .. } => Some(quic.remote_address()),
            Way::Local(_) => None,
        }
    }

    /// Round trip as measured by the transport.
    pub fn round_trip(&self) -> Duration {
        match &self.way {
            Way::Quic { quic, .. } => quic.rtt(),
            Way::Local(_) => Duration::ZERO,
        }
    }

    /// Whether the link was found to be so slow, when it was made, that bytes cost more than the work to save them.
    pub fn is_far(&self) -> bool {
        matches!(&self.way, Way::Quic { frames, .. } if frames.packs)
    }

    /// What has been learnt of the way to the other end; `None` within a machine, and before much was sent.
    pub fn path(&self) -> Option<Path> {
        self.flow().filter(|flow| flow.is_trained())?.path()
    }

    /// Goes by what was learnt of the way to the other end over an earlier connection.
    pub fn remember(&self, path: Path) {
        self.flow().into_iter().for_each(|flow| flow.remember(path));
    }

    fn flow(&self) -> Option<&FlowHandle> {
        match &self.way {
            Way::Quic { flow, .. } => flow.as_ref(),
            Way::Local(_) => None,
        }
    }

    /// Sends the next launch whole: the other side does not have what it would differ from.
    pub fn forget_launches(&self) {
        if let Way::Quic { frames, .. } = &self.way {
            frames.likeness.forget();
        }
    }

    /// Bytes sent and received so far over a link, with all headers but IP's and UDP's.
    pub fn bytes(&self) -> (u64, u64) {
        match &self.way {
            Way::Quic { quic, .. } => {
                let stats = quic.stats();
                (stats.udp_tx.bytes, stats.udp_rx.bytes)
            }
            Way::Local(_) => (0, 0),
        }
    }

    /// Opens the connection's first stream.
    pub async fn open_control(&self) -> Result<(Sender, Receiver), WireError> {
        Ok(match &self.way {
            Way::Quic { quic, frames, .. } => quic_streams(quic.open_bi().await.map_err(lost)?, frames),
            Way::Local(local) => local_streams(local.open().await?),
        })
    }

    /// Opens a stream that starts with `first`.
    pub async fn open(&self, first: impl Into<Open>) -> Result<(Sender, Receiver), WireError> {
        let (mut sender, receiver) = self.open_control().await?;
        sender.send(&first.into()).await?;
        Ok((sender, receiver))
    }

    /// Takes the connection's first stream, or the next.
    pub async fn accept_control(&self) -> Result<(Sender, Receiver), WireError> {
        Ok(match &self.way {
            Way::Quic { quic, frames, .. } => quic_streams(quic.accept_bi().await.map_err(lost)?, frames),
            Way::Local(local) => local_streams(local.accept().await?),
        })
    }

    /// Sends one request, and gives the stream of its answers.
    pub async fn ask(&self, request: OpenKind) -> Result<Receiver, WireError> {
        let (mut sender, receiver) = self.open(request).await?;
        sender.finish();
        Ok(receiver)
    }

    /// Sends one request and waits for its one answer, for at most [`REQUEST_LIMIT`].
    pub async fn request<Answer: Message + Default>(&self, request: OpenKind) -> Result<Answer, WireError> {
        let answer = async {
            let mut receiver = self.ask(request).await?;
            receiver.next::<Answer>().await?.ok_or_else(|| WireError::Lost("the answer is missing".into()))
        };
        tokio::time::timeout(REQUEST_LIMIT, answer).await.map_err(|_| WireError::Late(REQUEST_LIMIT))?
    }

    /// Ends the connection, telling the other side why.
    pub fn close(&self, why: &str) {
        match &self.way {
            Way::Quic { quic, .. } => quic.close(VarInt::from_u32(1), why.as_bytes()),
            Way::Local(local) => local.close(why),
        }
    }

    /// Waits until the connection has ended, and says why.
    pub async fn closed(&self) -> String {
        match &self.way {
            Way::Quic { quic, .. } => quic.closed().await.to_string(),
            Way::Local(local) => local.closed().await,
        }
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        match &self.way {
            Way::Quic { quic, .. } => quic.close_reason().is_some(),
            Way::Local(local) => local.is_closed(),
        }
    }
}

fn quic_streams((send, receive): (quinn::SendStream, quinn::RecvStream), frames: &Arc<Frames>) -> (Sender, Receiver) {
    let (send, receive) = (FrameSender::new(send, frames.clone()), FrameReceiver::new(receive, frames.clone()));
    (Sender(SendHalf::Quic(send)), Receiver(ReceiveHalf::Quic(receive)))
}

fn local_streams((outlet, inlet): (Outlet, Inlet)) -> (Sender, Receiver) {
    (Sender(SendHalf::Local(outlet)), Receiver(ReceiveHalf::Local(inlet)))
}

impl Sender {
    /// Sends one message.
    pub async fn send<M: Message>(&mut self, message: &M) -> Result<(), WireError> {
        self.send_encoded(message.encode_to_vec().into()).await
    }

    /// Sends a launch: it is much like others before and after it on this connection. The mark is for
    /// [`Receiver::answers`].
    pub async fn send_launch(&mut self, launch: Open) -> Result<Mark, WireError> {
        let encoded = Bytes::from(launch.encode_to_vec());
        match &mut self.0 {
            SendHalf::Quic(stream) => stream.send_alike(encoded).await.map(Mark),
            SendHalf::Local(outlet) => outlet.send(encoded).await.map(|()| Mark(None)),
        }
    }

    /// Sends a message that is already encoded.
    pub async fn send_encoded(&mut self, encoded: Bytes) -> Result<(), WireError> {
        match &mut self.0 {
            SendHalf::Quic(stream) => stream.send((Vec::new(), encoded)).await,
            SendHalf::Local(outlet) => outlet.send(encoded).await,
        }
    }

    /// Sends the answer to one of the objects or pieces that were asked for.
    pub async fn answer_object(&mut self, reply: ObjectReply) -> Result<(), WireError> {
        match &mut self.0 {
            SendHalf::Quic(stream) => stream.send(bulk::reply_head(reply)).await,
            SendHalf::Local(_) => self.send(&reply).await,
        }
    }

    /// Gives an object that the launch to follow on this stream will need.
    pub async fn give(&mut self, object: Object) -> Result<(), WireError> {
        match &mut self.0 {
            SendHalf::Quic(stream) => stream.send(bulk::give_head(object)).await,
            SendHalf::Local(_) => self.send(&Open::from(OpenKind::Give(object))).await,
        }
    }

    /// Says that nothing more follows.
    pub fn finish(&mut self) {
        match &mut self.0 {
            SendHalf::Quic(stream) => stream.finish(),
            SendHalf::Local(outlet) => outlet.finish(),
        }
    }

    /// After [`Sender::finish`]: waits until the other side has all, or stops reading, or the connection ends.
    pub async fn stopped(&mut self) {
        match &mut self.0 {
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
    pub async fn next<M: Message + Default>(&mut self) -> Result<Option<M>, WireError> {
        match self.next_encoded().await? {
            Some(encoded) => M::decode(encoded).map(Some).map_err(|error| WireError::Invalid(error.to_string())),
            None => Ok(None),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Answer, Control, ControlKind};

    async fn pair(expected: Option<NodeId>) -> (Result<Connection, WireError>, Option<Connection>) {
        let hub = Key::generate();
        let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into(), &hub).expect("loopback is there");
        let address = listener.address().expect("bound");
        let accepting = tokio::spawn(async move {
            let connection = listener.accept().await?.finish().await.ok();
            Some((connection?, listener))
        });
        let key = Key::generate();
        let connected = Endpoint::new(&key).expect("made").connect(address, expected.unwrap_or(hub.node()), None).await;
        if connected.is_err() {
            return (connected, None);
        }
        let (accepted, listener) = accepting.await.expect("no panic").expect("accepted");
        assert_eq!(accepted.peer(), key.node());
        assert_eq!(connected.as_ref().expect("checked").peer(), hub.node());
        tokio::spawn(async move {
            accepted_until_closed(listener).await;
        });
        (connected, Some(accepted))
    }

    async fn accepted_until_closed(listener: Listener) {
        while listener.accept().await.is_some() {}
    }

    #[tokio::test]
    async fn messages_of_any_size_cross() {
        let (near, far) = pair(None).await;
        let (near, far) = (near.expect("connected"), far.expect("accepted"));
        let answering = tokio::spawn(async move {
            let (mut sender, mut receiver) = far.accept_control().await.expect("a stream");
            let open: Open = receiver.next().await.expect("read").expect("a message");
            let Some(OpenKind::Ask(json)) = open.kind else { panic!("{open:?}") };
            sender.send(&Answer { json: json.clone() }).await.expect("sent");
            sender.finish();
            sender.stopped().await;
        });
        let large = Bytes::from(vec![7; 5 << 20]);
        let answer: Answer = near.request(OpenKind::Ask(large.clone())).await.expect("answered");
        assert_eq!(answer.json, large);
        answering.await.expect("no panic");
    }

    #[tokio::test]
    async fn another_key_than_expected_is_refused() {
        let stranger = Key::generate().node();
        let (near, _) = pair(Some(stranger)).await;
        assert!(matches!(near, Err(WireError::Connect { .. })), "{near:?}");
    }

    #[tokio::test]
    async fn nobody_there_is_an_error_within_the_limit() {
        let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback is there");
        let address = socket.local_addr().expect("bound");
        let key = Key::generate();
        let started = std::time::Instant::now();
        let failed = Endpoint::new(&key).expect("made").connect(address, key.node(), None).await;
        assert!(failed.is_err());
        assert!(started.elapsed() < CONNECT_LIMIT + Duration::from_secs(2));
    }

    #[test]
    fn golden_bytes() {
        let control = Control::from(ControlKind::Ping(-1));
        assert_eq!(control.encode_to_vec(), [0x08, 0x01]);
    }
}
