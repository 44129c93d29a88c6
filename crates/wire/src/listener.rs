//! Accepting connections: by UDP, and through tunnels for those whose UDP does not pass.
//!
//! A tunnel is for machines that the listener's owner lets in ([`Connection`]s that were vouched for): who has no such connection
//! soon after its tunnel came to be, or none any more, loses it. Handshakes and tunnels are bounded in number and time.

use crate::connection::{CONNECT_LIMIT, Connection, WireError};
use crate::flow::FlowHandle;
use crate::frame::Unfinished;
use crate::gate::{Gate, Lost, Place, Source};
use crate::junction::Tunnels;
use crate::key::Key;
use crate::lock;
use crate::transport::{self, Hold, STREAMS_FEW, WINDOW_BYTES_FEW};
use crate::{tls, tunnel};
use base::NodeId;
use quinn::VarInt;
use quinn::crypto::rustls::QuicServerConfig;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Attempts to connect whose handshake is under way; further ones are refused, and come again after a pause. So that those under way
/// end before their other sides give up, also when ten thousand machines come back at one moment.
const ATTEMPTS_MAX: usize = 1024;
/// While there are fewer places left than one in so many, an attempt has to show first that it can be answered where it says it is.
const PLACES_OF_PROVEN: usize = 2;
/// Tunnels whose machine has not been let in; [`Gate`] says what happens to further ones.
const HANDSHAKES_MAX: usize = 256;
/// Tunnels of machines that were let in; beyond, the oldest of the machine with most makes room.
const TUNNELS_MAX: usize = 4096;
/// Tunnels of one such machine: it uses one, and those before it end soon.
const TUNNELS_OF_ONE_MAX: usize = 8;
/// How long a tunnel may be there before its machine is let in, and how often it is looked whether that is so.
const LET_IN_LIMIT: Duration = Duration::from_secs(15);
const LET_IN_LOOK: Duration = Duration::from_millis(500);
/// How often it is looked whether a tunnel's machine still has a connection that was vouched for.
const LOOK_INTERVAL: Duration = Duration::from_secs(15);
/// Ports that are tried until one is free for both UDP and TCP.
const PORTS_TRIED: usize = 16;
/// What is said of one whose place another got.
const PLACE_LOST: &str = "it was slow, and another one needed its place";
/// Pause after a connection could not be accepted, for want of descriptors as a rule.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections.
#[derive(Debug)]
pub struct Listener {
    endpoint: quinn::Endpoint,
    config: quinn::ServerConfig,
    tunnels: Arc<Tunnels>,
    unfinished: Arc<Unfinished>,
    guests: Guests,
    /// For attempts, and how many there are in all.
    places: (Gate<Source>, usize),
    accepting: Option<tokio::task::JoinHandle<()>>,
}

/// The machines that were let in, with how many connections each has.
#[derive(Clone, Debug, Default)]
pub struct Guests(Arc<Mutex<HashMap<NodeId, usize>>>);

impl Guests {
    /// The machine at the other end of `connection` was let in: it may send what is large. That counts as long as what is given back
    /// is kept. `None`: it has `most` connections already.
    pub fn vouch_for(&self, connection: &Connection, most: usize) -> Option<Vouched> {
        let node = connection.peer();
        let mut known = self.lock();
        if known.get(&node).is_some_and(|count| *count >= most) {
            return None;
        }
        *known.entry(node).or_default() += 1;
        drop(known);
        connection.let_in();
        Some(Vouched { guests: self.clone(), node })
    }

    fn knows(&self, node: NodeId) -> bool {
        self.lock().contains_key(&node)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<NodeId, usize>> {
        lock(&self.0)
    }
}

/// See [`Guests::vouch_for`].
#[derive(Debug)]
pub struct Vouched {
    guests: Guests,
    node: NodeId,
}

impl Drop for Vouched {
    fn drop(&mut self) {
        let mut known = self.guests.lock();
        if let Entry::Occupied(mut count) = known.entry(self.node) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl Listener {
    /// Listens on `address` as the machine that holds `key`: by UDP, and by TCP at the same port. Must be called within a tokio
    /// runtime.
    pub fn bind(address: SocketAddr, key: &Key) -> Result<Self, WireError> {
        let failed = |error: String| WireError::Address { address, why: error };
        let tls = tls::server_config(key, tls::QUIC).map_err(|error| failed(error.to_string()))?;
        let crypto = QuicServerConfig::try_from(tls).map_err(|error| failed(error.to_string()))?;
        let config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
        let tls = tls::server_config(key, tls::TUNNEL).map_err(|error| failed(error.to_string()))?;
        let tunnels = Arc::default();
        let guests = Guests::default();
        let (endpoint, tcp) = bind_both(address, config.clone(), key, &tunnels)?;
        let accepting = tcp.map(|tcp| {
            tokio::spawn(accept_tunnels(tcp, TlsAcceptor::from(Arc::new(tls)), Arc::clone(&tunnels), guests.clone()))
        });
        let places = (Gate::new(ATTEMPTS_MAX), ATTEMPTS_MAX);
        Ok(Self { endpoint, config, tunnels, unfinished: Arc::default(), guests, places, accepting })
    }

    #[cfg(test)]
    pub(crate) fn with_places(mut self, places: usize) -> Self {
        self.places = (Gate::new(places), places);
        self
    }

    /// The address that it listens on: with port 0 the kernel chose one.
    pub fn address(&self) -> Result<SocketAddr, WireError> {
        self.endpoint.local_addr().map_err(|error| WireError::Lost(error.to_string()))
    }

    /// Where it is said who was let in.
    pub fn guests(&self) -> Guests {
        self.guests.clone()
    }

    /// The next attempt to connect; `None` once the listener is closed. Its handshake is done by [`Attempt::finish`], so
    /// that a slow one holds nobody up.
    pub async fn accept(&self) -> Option<Attempt> {
        let (incoming, place) = loop {
            let incoming = self.endpoint.accept().await?;
            match self.admit(incoming) {
                Some(admitted) => break admitted,
                None => continue,
            }
        };
        let address = incoming.remote_address();
        let from = self.tunnels.real(address).unwrap_or(address);
        let flow = (!from.ip().is_loopback()).then(|| FlowHandle::new(None));
        let mut config = self.config.clone();
        config.transport_config(transport::settings(flow.as_ref(), Hold::Long, STREAMS_FEW, WINDOW_BYTES_FEW));
        let (tunnels, unfinished) = (self.tunnels.clone(), self.unfinished.clone());
        Some(Attempt { incoming, config, flow, tunnels, unfinished, place })
    }

    /// Gives an attempt a place, if there is one for it; else it is told to come again.
    fn admit(&self, incoming: quinn::Incoming) -> Option<(quinn::Incoming, (Place<Source>, Lost))> {
        let (places, all) = &self.places;
        if places.free() < all / PLACES_OF_PROVEN && !incoming.remote_address_validated() {
            // Costs nothing here, and a round trip there. Who sends from addresses that are not his own gets no further.
            drop(incoming.retry());
            return None;
        }
        let address = incoming.remote_address();
        let from = Source::of(self.tunnels.real(address).unwrap_or(address));
        match places.enter(from, Instant::now()) {
            Some(place) => return Some((incoming, place)),
            None => incoming.refuse(),
        }
        None
    }

    /// Ends all connections and takes no more.
    pub async fn close(&self) {
        self.endpoint.close(VarInt::from_u32(0), b"shutting down");
        let _ = tokio::time::timeout(Duration::from_secs(1), self.endpoint.wait_idle()).await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.accepting.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// A connection whose handshake is not done.
#[derive(Debug)]
pub struct Attempt {
    incoming: quinn::Incoming,
    config: quinn::ServerConfig,
    flow: Option<FlowHandle>,
    tunnels: Arc<Tunnels>,
    unfinished: Arc<Unfinished>,
    place: (Place<Source>, Lost),
}

impl Attempt {
    /// Does the handshake, within [`CONNECT_LIMIT`]. The connection keeps its place among those who are not let in until it is
    /// ([`Guests::vouch_for`]), or has ended, or has been slow and another one needs it.
    pub async fn finish(self) -> Result<Connection, WireError> {
        let (place, mut lost) = self.place;
        let address = self.incoming.remote_address();
        let failed = |why: String| WireError::Connect { address, why };
        let connecting = self.incoming.accept_with(Arc::new(self.config));
        let connecting = connecting.map_err(|error| failed(error.to_string()))?;
        let connected = tokio::select! {
            connected = tokio::time::timeout(CONNECT_LIMIT, connecting) => connected,
            _ = &mut lost => return Err(failed(PLACE_LOST.into())),
        };
        let quic = connected
            .map_err(|_| failed("the handshake took too long".into()))?
            .map_err(|error| failed(error.to_string()))?;
        place.has_spoken(Instant::now());
        let connection =
            Connection::new(quic, self.flow, self.tunnels).ok_or_else(|| failed("it showed no key".into()))?;
        connection.take_greeting_only((place, lost), &self.unfinished);
        Ok(connection)
    }
}

/// Takes a port for UDP, and the same for TCP. Where another program has that, those whose UDP does not pass are not served.
fn bind_both(
    address: SocketAddr,
    config: quinn::ServerConfig,
    key: &Key,
    tunnels: &Arc<Tunnels>,
) -> Result<(quinn::Endpoint, Option<TcpListener>), WireError> {
    let mut tried = 0;
    loop {
        let endpoint = transport::endpoint(address, Some(config.clone()), Some(key), tunnels)?;
        let bound = endpoint.local_addr().and_then(listen);
        tried += 1;
        match bound {
            Ok(tcp) => return Ok((endpoint, Some(tcp))),
            Err(_) if address.port() == 0 && tried < PORTS_TRIED => {}
            Err(error) => {
                tracing::warn!(%address, %error, "cannot listen by TCP: who has no UDP will not reach this hub");
                return Ok((endpoint, None));
            }
        }
    }
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    // The standard library lets a port be taken again at once after a restart.
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

async fn accept_tunnels(listener: TcpListener, tls: TlsAcceptor, tunnels: Arc<Tunnels>, guests: Guests) {
    let doors = Arc::new(Doors { strangers: Gate::new(HANDSHAKES_MAX), known: Gate::new(TUNNELS_MAX) });
    loop {
        let Ok((tcp, from)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Some((place, mut lost)) = doors.strangers.enter(Source::of(from), Instant::now()) else { continue };
        let (tls, tunnels, guests, doors) = (tls.clone(), tunnels.clone(), guests.clone(), doors.clone());
        tokio::spawn(async move {
            let accepted = tokio::select! {
                accepted = tunnel::accept(tls, tcp) => accepted,
                _ = &mut lost => Err(std::io::Error::other(PLACE_LOST)),
            };
            match accepted {
                Ok((stream, node)) => {
                    place.has_spoken(Instant::now());
                    let carried = tunnel::carry(stream, tunnels.open_from(from));
                    let why = serve_tunnel(carried, node, (place, lost), &doors, &guests).await;
                    tracing::debug!(%from, %node, why, "a tunnel ended");
                }
                Err(error) => tracing::debug!(%from, %error, "a tunnel did not come to be"),
            }
        });
    }
}

/// Places for tunnels: of machines that were not let in, and of those that were.
struct Doors {
    strangers: Gate<Source>,
    known: Gate<NodeId>,
}

/// Serves a tunnel for as long as it may be there. Returns why it may no more.
async fn serve_tunnel(
    carried: impl Future<Output = std::io::Result<()>>,
    node: NodeId,
    (place, mut lost): (Place<Source>, Lost),
    doors: &Doors,
    guests: &Guests,
) -> &'static str {
    const BROKEN: &str = "it broke, or another took its place";
    const STRANGE: &str = "its machine has not been let in";
    tokio::pin!(carried);
    let begun = Instant::now();
    while !guests.knows(node) {
        if begun.elapsed() > LET_IN_LIMIT {
            return STRANGE;
        }
        tokio::select! {
            _ = &mut carried => return BROKEN,
            _ = &mut lost => return PLACE_LOST,
            () = tokio::time::sleep(LET_IN_LOOK) => {}
        }
    }
    drop(place);
    let Some((_place, mut lost)) = doors.known.enter_at_most(node, TUNNELS_OF_ONE_MAX, Instant::now()) else {
        return "there are too many";
    };
    loop {
        tokio::select! {
            _ = &mut carried => return BROKEN,
            _ = &mut lost => return PLACE_LOST,
            () = tokio::time::sleep(LOOK_INTERVAL) => if !guests.knows(node) { return STRANGE },
        }
    }
}
