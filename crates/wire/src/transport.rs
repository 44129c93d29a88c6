//! How QUIC is set up: sockets, and the settings of a connection.

use crate::connection::WireError;
use crate::flow::FlowHandle;
use quinn::congestion::CubicConfig;
use quinn::{AckFrequencyConfig, EndpointConfig, IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

/// A connection on which nothing arrives for this long is dead.
pub const IDLE_LIMIT: Duration = Duration::from_secs(6);
/// How often an idle connection is kept alive.
const KEEP_ALIVE: Duration = Duration::from_millis(1500);
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

/// The settings of a connection. `flow` is its congestion control; none within a machine, where there is nothing to be gentle to.
pub(crate) fn settings(flow: Option<&FlowHandle>) -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    let idle = IdleTimeout::try_from(IDLE_LIMIT).expect("six seconds fit a QUIC time-out");
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(PACKET_BYTES_MAX);
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(4096))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .stream_receive_window(VarInt::from_u32(8 << 20))
        .receive_window(VarInt::from_u32(256 << 20))
        .send_window(64 << 20)
        .send_fairness(false)
        .keep_alive_interval(Some(KEEP_ALIVE))
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

pub(crate) fn endpoint(address: SocketAddr, server: Option<quinn::ServerConfig>) -> Result<quinn::Endpoint, WireError> {
    let failed = |error: std::io::Error| WireError::Address { address, why: error.to_string() };
    let socket = UdpSocket::bind(address).map_err(failed)?;
    widen(&socket);
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(65527).expect("the largest UDP payload is allowed");
    quinn::Endpoint::new(config, server, socket, Arc::new(quinn::TokioRuntime)).map_err(failed)
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
