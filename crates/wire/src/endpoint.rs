//! Opening connections: over UDP, and where none passes through a tunnel.
//!
//! UDP has a head start, and a tunnel is tried meanwhile; the first that answers is used. A connection that UDP carried goes on in a
//! tunnel, and back, without its streams noticing.

use crate::connection::{CONNECT_LIMIT, Connection, WireError};
use crate::flow::{FlowHandle, Path};
use crate::junction::Tunnels;
use crate::key::Key;
use crate::tls;
use crate::transport::{self, Hold};
use crate::tunnel::{self, NoTunnel};
use base::NodeId;
use quinn::crypto::rustls::QuicClientConfig;
use rustix::net::sockopt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpStream, UdpSocket};
use tokio_rustls::client::TlsStream;

/// Head start of UDP over a tunnel; three round trips where more are known.
const HEAD_START: Duration = Duration::from_millis(600);
/// QUIC's packets are at least this wide (RFC 9000, section 14), bytes of UDP payload; and the headers of UDP and IP.
const PACKET_BYTES_MIN: usize = 1200;
const HEADERS_FOUR: usize = 28;
const HEADERS_SIX: usize = 48;
/// A closing packet is sent within this time.
const CLOSE_TIME: Duration = Duration::from_millis(5);
/// How long an answer to a probe by UDP may take.
const PROBE_LIMIT: Duration = Duration::from_secs(1);
/// The same where somebody waits, if the round trip is short.
const PROBE_MIN: Duration = Duration::from_millis(300);

/// Opens connections.
#[derive(Clone, Debug)]
pub struct Endpoint {
    key: Key,
    hold: Hold,
    four: Family,
    /// A machine without IPv6 is fine.
    six: Option<Family>,
}

/// What reaches addresses of one kind.
#[derive(Clone, Debug)]
struct Family {
    endpoint: quinn::Endpoint,
    tunnels: Arc<Tunnels>,
}

impl Family {
    fn new(is_four: bool) -> Result<Self, WireError> {
        let tunnels = Arc::default();
        Ok(Self { endpoint: transport::endpoint(any(is_four), None, None, &tunnels)?, tunnels })
    }
}

/// What was learnt before of the way to a hub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Rate and round trip.
    pub path: Option<Path>,
    /// No UDP passed the last time: a tunnel is tried at once.
    pub is_udp_blocked: bool,
}

impl Endpoint {
    /// For connections from the machine that holds `key`. Must be called within a tokio runtime.
    pub fn new(key: &Key, hold: Hold) -> Result<Self, WireError> {
        Ok(Self { key: key.clone(), hold, four: Family::new(true)?, six: Family::new(false).ok() })
    }

    fn family(&self, address: SocketAddr) -> Result<&Family, WireError> {
        let no_six = || WireError::Connect { address, why: "this machine has no IPv6".into() };
        if address.is_ipv4() { Ok(&self.four) } else { self.six.as_ref().ok_or_else(no_six) }
    }

    /// Connects to the machine at `address`, which must hold the key named `expected`; within [`CONNECT_LIMIT`] by UDP, and as long
    /// again through a tunnel.
    pub async fn connect(&self, address: SocketAddr, expected: NodeId, known: Known) -> Result<Connection, WireError> {
        if self.is_detoured(address) {
            return self.connect_quic(address, expected, known.path).await;
        }
        let by_udp = self.connect_quic(address, expected, known.path);
        let through_tunnel = async {
            let round_trip = known.path.map_or(Duration::ZERO, |path| Duration::from_nanos(path.round_trip));
            if !known.is_udp_blocked {
                tokio::time::sleep(HEAD_START.max(round_trip * 3)).await;
            }
            let opened = tunnel::connect(&self.key, address, expected).await;
            // Where nobody listens by TCP either, and that is said of UDP too, nobody is there.
            let refused = matches!(opened, Err(NoTunnel::Refused)) && is_udp_refused(address).await;
            (opened, refused)
        };
        tokio::pin!(by_udp, through_tunnel);
        let stream = tokio::select! {
            biased;
            connected = &mut by_udp => return connected,
            (opened, refused) = &mut through_tunnel => match opened {
                Ok(stream) => stream,
                Err(_) if refused => {
                    return Err(WireError::Connect { address, why: "nobody listens there".into() });
                }
                Err(_) => return by_udp.await,
            },
        };
        self.carry(address, stream)?;
        self.connect_quic(address, expected, known.path).await
    }

    async fn connect_quic(
        &self,
        address: SocketAddr,
        expected: NodeId,
        known: Option<Path>,
    ) -> Result<Connection, WireError> {
        let failed = |why: String| WireError::Connect { address, why };
        let tls = tls::client_config(&self.key, expected, tls::QUIC).map_err(|error| failed(error.to_string()))?;
        let crypto = QuicClientConfig::try_from(tls).map_err(|error| failed(error.to_string()))?;
        let mut config = quinn::ClientConfig::new(Arc::new(crypto));
        let flow = (!address.ip().is_loopback()).then(|| FlowHandle::new(known));
        config.transport_config(transport::settings(
            flow.as_ref(),
            self.hold,
            self.hold.streams(),
            transport::WINDOW_BYTES,
        ));
        let Family { endpoint, tunnels } = self.family(address)?;
        let connecting =
            endpoint.connect_with(config, address, "gleaner").map_err(|error| failed(error.to_string()))?;
        let quic = tokio::time::timeout(CONNECT_LIMIT, connecting)
            .await
            .map_err(|_| failed(format!("no answer within {} s", CONNECT_LIMIT.as_secs())))?
            .map_err(|error| failed(error.to_string()))?;
        Connection::new(quic, flow, tunnels.clone()).ok_or_else(|| failed("it showed no key".into()))
    }

    /// Has a tunnel carry all that goes to `address` from now on, instead of UDP or the tunnel that did: connections go on through
    /// it. An error tells that there is none, and whether that is because nobody is at that address any more, or because UDP passes
    /// after all. `round_trip`: how long an answer takes.
    pub async fn detour(&self, address: SocketAddr, expected: NodeId, round_trip: Duration) -> Result<(), NoDetour> {
        let opened = tunnel::connect(&self.key, address, expected).await;
        // The link as a whole was cut, perhaps, and both ways are back.
        let limit = PROBE_MIN.max(round_trip * 3);
        if opened.is_ok() && is_udp_answered(address, limit).await.unwrap_or(false) {
            return Err(NoDetour::NotNeeded);
        }
        match opened {
            Ok(stream) => self.carry(address, stream).map_err(|error| NoDetour::NoTunnel(error.to_string())),
            Err(NoTunnel::Refused) if is_udp_refused(address).await => Err(NoDetour::NobodyThere),
            Err(NoTunnel::Refused) => Err(NoDetour::NoTunnel("over TCP nobody listens there".into())),
            Err(NoTunnel::Other(error)) => Err(NoDetour::NoTunnel(error.to_string())),
        }
    }

    fn carry(&self, address: SocketAddr, stream: TlsStream<TcpStream>) -> Result<(), WireError> {
        let end = self.family(address)?.tunnels.open(address, address);
        tokio::spawn(async move {
            if let Err(error) = tunnel::carry(stream, end).await {
                tracing::info!(%address, %error, "a tunnel over TCP ended");
            }
        });
        Ok(())
    }

    /// Has UDP carry what goes to `address` again, if it passes. Returns whether it does.
    pub async fn end_detour(&self, address: SocketAddr) -> bool {
        let passes = is_udp_answered(address, PROBE_LIMIT).await.unwrap_or(false);
        if passes {
            self.forget_detour(address);
        }
        passes
    }

    /// Has UDP carry what goes to `address` again, whether it passes or not.
    pub fn forget_detour(&self, address: SocketAddr) {
        if let Ok(family) = self.family(address) {
            family.tunnels.close(address);
        }
    }

    /// Whether a tunnel carries what goes to `address`.
    pub fn is_detoured(&self, address: SocketAddr) -> bool {
        self.family(address).is_ok_and(|family| family.tunnels.real(address).is_some())
    }

    /// Goes on with fresh sockets, as after a change of network: all connections say so to the other side at once, which
    /// knows them by their numbers and not by their addresses.
    pub fn rebind(&self) -> Result<(), WireError> {
        for (family, is_four) in [(Some(&self.four), true), (self.six.as_ref(), false)] {
            let Some(Family { endpoint, tunnels }) = family else { continue };
            let address = any(is_four);
            let rebound =
                transport::socket(address, tunnels).and_then(|socket| endpoint.rebind_abstract(Arc::new(socket)));
            rebound.map_err(|error| WireError::Address { address, why: error.to_string() })?;
        }
        Ok(())
    }

    /// Closes all connections, and lets that be sent. Should it be lost, the other sides notice later.
    pub async fn close(&self) {
        for Family { endpoint, .. } in [Some(&self.four), self.six.as_ref()].into_iter().flatten() {
            endpoint.close(quinn::VarInt::from_u32(0), b"ending");
        }
        tokio::time::sleep(CLOSE_TIME).await;
    }
}

/// Why nothing is carried by a tunnel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoDetour {
    /// The machine is there, and says that no program listens at that port.
    #[error("nobody listens there any more")]
    NobodyThere,
    /// UDP passes.
    #[error("UDP passes")]
    NotNeeded,
    /// No tunnel came to be.
    #[error("{0}")]
    NoTunnel(String),
}

fn any(is_four: bool) -> SocketAddr {
    match is_four {
        true => (Ipv4Addr::UNSPECIFIED, 0).into(),
        false => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// A packet of a version of QUIC that nobody speaks: whoever speaks QUIC answers it with those that he does (RFC 9000, section 6).
fn strange_packet() -> Vec<u8> {
    let mut packet = vec![0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8];
    packet.extend(rand::random::<[u8; 8]>());
    packet.push(8);
    packet.extend(rand::random::<[u8; 8]>());
    // Shorter ones are not answered.
    packet.resize(PACKET_BYTES_MIN, 0);
    packet
}

async fn is_udp_answered(address: SocketAddr, limit: Duration) -> io::Result<bool> {
    let socket = UdpSocket::bind(any(address.is_ipv4())).await?;
    // What passes in fragments only does not pass: QUIC does not fragment.
    forbid_fragments(&socket, address)?;
    socket.connect(address).await?;
    socket.send(&strange_packet()).await?;
    let answered = tokio::time::timeout(limit, socket.recv(&mut [0; 1500])).await;
    match answered {
        Ok(received) => received.map(|length| length > 0),
        Err(_) => Ok(false),
    }
}

fn forbid_fragments(socket: impl AsFd, address: SocketAddr) -> io::Result<()> {
    match address.is_ipv4() {
        true => sockopt::set_ip_mtu_discover(socket, sockopt::Ipv4PathMtuDiscovery::DO)?,
        false => sockopt::set_ipv6_mtu_discover(socket, sockopt::Ipv6PathMtuDiscovery::DO)?,
    }
    Ok(())
}

/// Whether QUIC's packets are too wide for the way to `address`, as far as this machine's kernel knows: what is small passes, so that this does not
/// show as silence.
pub fn is_too_narrow(address: SocketAddr) -> bool {
    let width = || {
        let socket = std::net::UdpSocket::bind(any(address.is_ipv4()))?;
        forbid_fragments(&socket, address)?;
        socket.connect(address)?;
        let width = if address.is_ipv4() { sockopt::ip_mtu(&socket)? } else { sockopt::ipv6_mtu(&socket)? };
        Ok::<_, io::Error>(width as usize)
    };
    // Who cannot be asked lets all pass.
    width().is_ok_and(|width| width < PACKET_BYTES_MIN + if address.is_ipv4() { HEADERS_FOUR } else { HEADERS_SIX })
}

async fn is_udp_refused(address: SocketAddr) -> bool {
    is_udp_answered(address, PROBE_LIMIT).await.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests;
