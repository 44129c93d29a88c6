//! How QUIC is set up: sockets, and the settings of a connection.

use crate::connection::WireError;
use crate::eager::EagerRuntime;
use crate::flow::FlowHandle;
use crate::junction::{Junction, Tunnels};
use crate::key::Key;
use quinn::congestion::CubicConfig;
use quinn::{AckFrequencyConfig, EndpointConfig, IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt};
use quinn::{Runtime, TokioRuntime};
use quinn_proto::HashedConnectionIdGenerator;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

/// How long the two sides of a connection hold it while nothing arrives; QUIC takes the shorter of what they say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// For long: a laptop that sleeps or changes networks goes on where it was. Whoever waits has to notice silence on his own.
    Long,
    /// For as long as a machine may say nothing and yet be taken for alive: what it had to do is given to another then. Three
    /// round trips with all that may wait in queues, if that is more.
    Short,
    /// Of a host that asks for workunits, or waits for them: there are thousands, who should say little, and one that is gone is to be
    /// noticed before what it had is missed.
    Asking,
}

impl Hold {
    /// A connection on which nothing arrives for this long is dead.
    pub const fn limit(self) -> Duration {
        match self {
            Self::Long => Duration::from_secs(600),
            Self::Short => Duration::from_secs(6),
            Self::Asking => Duration::from_secs(50),
        }
    }

    /// Streams that a hub may open to such a machine.
    pub(crate) const fn streams(self) -> u32 {
        match self {
            Self::Asking => STREAMS_FEW,
            Self::Long | Self::Short => STREAMS_MAX,
        }
    }

    /// How often an idle connection is kept alive. Routers that translate addresses forget after 30 seconds (RFC 4787 has two
    /// minutes, and is not heeded).
    const fn keep_alive(self) -> Duration {
        match self {
            Self::Long | Self::Asking => Duration::from_secs(15),
            Self::Short => Duration::from_millis(1500),
        }
    }
}

/// Largest packet that is tried, bytes of UDP payload: for jumbo frames, and within a machine. Quinn hands the kernel up to
/// ten packets at once, and what exceeds 64 KiB together is dropped without a word.
const PACKET_BYTES_MAX: u16 = 6400;
/// Room for packets that arrive faster than they are taken, bytes: with the kernel's default of 208 KiB a fast sender's
/// packets would be dropped on loopback.
const SOCKET_BUFFER_BYTES: usize = 8 << 20;
/// Widest packet of an ordinary network, bytes of UDP payload.
const USUAL_PACKET_BYTES: u16 = 1452;
/// Round trip that is assumed before one was measured.
const FIRST_ROUND_TRIP: Duration = Duration::from_millis(100);
/// The same within a machine.
const WITHIN_ROUND_TRIP: Duration = Duration::from_millis(20);
/// Round trips above this are of a slow link.
pub(crate) const FAR: Duration = Duration::from_millis(5);

/// Streams that the other end may have open at a time, once it is known who that is. QUIC's state takes some 80 bytes for each, whether
/// it is open or not.
pub(crate) const STREAMS_MAX: u32 = 4096;
/// The same before, and of machines that need few.
pub(crate) const STREAMS_FEW: u32 = 8;

/// Bytes of a connection that have come and are not taken yet, at most, once it is known whose it is: a second of 500 Mbit/s is on its way.
pub(crate) const WINDOW_BYTES: u32 = 64 << 20;
/// The same before: room for a greeting on each stream.
pub(crate) const WINDOW_BYTES_FEW: u32 = 64 << 10;

/// The settings of a connection on which the other end may open so many streams, and send so many bytes that are not taken. `flow` is its congestion control; none within a machine, where there is nothing to be gentle to.
pub(crate) fn settings(flow: Option<&FlowHandle>, hold: Hold, streams: u32, window: u32) -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    let idle = IdleTimeout::try_from(hold.limit()).expect("minutes fit a QUIC time-out");
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(PACKET_BYTES_MAX);
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(streams))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .stream_receive_window(VarInt::from_u32(8 << 20))
        .receive_window(VarInt::from_u32(window))
        // Nobody sends datagrams beside streams, and QUIC would keep them.
        .datagram_receive_buffer_size(None)
        .send_window(64 << 20)
        // Strictly by priority, also against what is on its way: see [`crate::Turn`].
        .send_fairness(true)
        .keep_alive_interval(Some(hold.keep_alive()))
        .max_idle_timeout(Some(idle));
    match flow {
        Some(flow) => {
            let known = flow.path().map(|path| Duration::from_nanos(path.round_trip));
            if known.is_some_and(|known| known > FAR) {
                // What goes up a slow link is told one by one: acknowledgements come down the faster way.
                let mut acknowledgements = AckFrequencyConfig::default();
                acknowledgements.ack_eliciting_threshold(VarInt::from_u32(0));
                config.ack_frequency_config(Some(acknowledgements));
                discovery.upper_bound(USUAL_PACKET_BYTES);
            }
            config.initial_rtt(known.unwrap_or(FIRST_ROUND_TRIP)).congestion_controller_factory(flow.factory());
        }
        None => {
            let mut cubic = CubicConfig::default();
            cubic.initial_window(1 << 20);
            // The widest packet passes, and need not be felt for.
            config
                .initial_mtu(PACKET_BYTES_MAX)
                .initial_rtt(WITHIN_ROUND_TRIP)
                .congestion_controller_factory(Arc::new(cubic));
        }
    }
    config.mtu_discovery_config(Some(discovery));
    Arc::new(config)
}

/// An endpoint at `address`, with the tunnels beside its socket. `key`: of one that others connect to, so that after a restart
/// it tells them at once that their connections are gone.
pub(crate) fn endpoint(
    address: SocketAddr,
    server: Option<quinn::ServerConfig>,
    key: Option<&Key>,
    tunnels: &Arc<Tunnels>,
) -> Result<quinn::Endpoint, WireError> {
    let failed = |error: std::io::Error| WireError::Address { address, why: error.to_string() };
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(65527).expect("the largest UDP payload is allowed");
    if let Some(key) = key {
        let number = key.secret_for("numbers of connections");
        let number = u64::from_le_bytes(*number.first_chunk().expect("it has 32 bytes"));
        let reset = key.secret_for("the end of connections that are forgotten");
        config.reset_key(Arc::new(ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &reset)));
        config.cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(number)));
    }
    let socket = Arc::new(socket(address, tunnels).map_err(failed)?);
    let runtime = Arc::new(EagerRuntime::default());
    quinn::Endpoint::new_with_abstract_socket(config, server, socket, runtime).map_err(failed)
}

/// A socket at `address` with the tunnels beside it.
pub(crate) fn socket(address: SocketAddr, tunnels: &Arc<Tunnels>) -> std::io::Result<Junction> {
    let socket = UdpSocket::bind(address)?;
    widen(&socket);
    Ok(Junction::new(TokioRuntime.wrap_udp_socket(socket)?, tunnels.clone()))
}

/// Makes a socket's buffers as large as is allowed: root may exceed the system's limit.
fn widen(socket: &UdpSocket) {
    use rustix::net::sockopt;
    let size = SOCKET_BUFFER_BYTES;
    if sockopt::set_socket_recv_buffer_size_force(socket, size).is_err() {
        let _ = sockopt::set_socket_recv_buffer_size(socket, size);
    }
    let _ = sockopt::set_socket_send_buffer_size(socket, size);
}
