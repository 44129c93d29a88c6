//! The client's connection to its hub: made when first needed, made again when lost, and what the hub asks over it.

use crate::networks::Networks;
use crate::serve::{Server, blocking};
use base::NodeId;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use store::system::release;
use wire::message::{Hello, Open, digest_bytes};
use wire::{DialError, Endpoint, Joined, Key, Role};

/// After a failed attempt the hub is left alone for this long: commands run here at once instead of waiting each time.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(3);

/// How often what was learnt of the link is written down.
const LEARN_INTERVAL: Duration = Duration::from_secs(10);

/// A hub with a shorter round trip is near.
const NEAR: Duration = Duration::from_millis(3);

/// Which hub, and how to find it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubAddress {
    /// Its key.
    pub node: NodeId,
    /// Where it is; tried in order.
    pub addresses: Vec<SocketAddr>,
}

/// The connection to one hub.
pub struct Link {
    endpoint: Endpoint,
    hub: HubAddress,
    name: String,
    instance: u64,
    server: Arc<Server>,
    networks: Arc<Networks>,
    state: tokio::sync::Mutex<State>,
    /// The connection as last seen, for those who only look.
    seen: Mutex<Option<(Joined, u64)>>,
}

#[derive(Default)]
struct State {
    joined: Option<Joined>,
    failed: Option<(Instant, DialError)>,
    connects: u64,
}

impl Link {
    /// A link to `hub`, not connected yet. `instance` names this start of the daemon. Must be called within a tokio
    /// runtime.
    pub fn new(
        hub: HubAddress,
        key: &Key,
        name: String,
        instance: u64,
        server: Arc<Server>,
        networks: Networks,
    ) -> Result<Arc<Self>, wire::WireError> {
        let endpoint = Endpoint::new(key)?;
        let (state, seen) = Default::default();
        let networks = Arc::new(networks);
        Ok(Arc::new(Self { endpoint, hub, name, instance, server, networks, state, seen }))
    }

    /// The connection, and which one it is: a number that grows with each new one. The hub knows nothing of what was
    /// said over an earlier one.
    pub async fn connect(&self) -> Result<(Joined, u64), DialError> {
        let mut state = self.state.lock().await;
        if let Some(joined) = &state.joined {
            if !joined.connection.is_closed() {
                return Ok((joined.clone(), state.connects));
            }
            state.joined = None;
        }
        if let Some((at, error)) = &state.failed
            && at.elapsed() < PAUSE_AFTER_FAILURE
        {
            return Err(error.clone());
        }
        let hello = Hello {
            role: Role::Client.number().into(),
            name: self.name.clone(),
            instance: self.instance,
            system: release().as_ref().map(digest_bytes).unwrap_or_default(),
            ..Hello::default()
        };
        match self.dial(hello).await {
            Ok(joined) => {
                state.connects += 1;
                state.failed = None;
                state.joined = Some(joined.clone());
                self.server.views().snapshot().set_reach(Reach::of(&joined));
                *self.seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) =
                    Some((joined.clone(), state.connects));
                tokio::spawn(answer(joined.clone(), self.server.clone()));
                tokio::spawn(learn(joined.clone(), self.networks.clone()));
                Ok((joined, state.connects))
            }
            Err(error) => {
                tracing::info!(%error, "the hub cannot be reached");
                state.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn dial(&self, hello: Hello) -> Result<Joined, DialError> {
        let known = |address| self.networks.paths(address);
        wire::dial(&self.endpoint, &self.hub.addresses, self.hub.node, known, hello).await
    }

    /// The connection, if there is one now, and its number.
    pub fn current(&self) -> Option<(Joined, u64)> {
        let seen = self.seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        seen.clone().filter(|(joined, _)| !joined.connection.is_closed())
    }

    /// Which hub this is.
    pub fn hub(&self) -> &HubAddress {
        &self.hub
    }
}

/// How far the hub is, as far as sending goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// A millisecond or two away: bytes cost less than asking for them.
    pub near: bool,
    /// Bytes cost more than the work to save them.
    pub far: bool,
    /// It is far, and has the same distribution: that one's files need only be named.
    pub names_system: bool,
}

impl Reach {
    /// Of a hub that let us in.
    pub fn of(joined: &Joined) -> Self {
        let (connection, release) = (&joined.connection, release());
        let far = connection.is_far();
        let names_system = far && release.is_some_and(|release| joined.welcome.system == release.0[..]);
        Self { near: connection.round_trip() < NEAR, far, names_system }
    }
}

/// Remembers what is learnt of the ways to and from the hub, until the connection ends.
async fn learn(joined: Joined, networks: Arc<Networks>) {
    let Some(address) = joined.connection.address() else { return };
    let mut ended = false;
    while !ended {
        ended = tokio::time::timeout(LEARN_INTERVAL, joined.connection.closed()).await.is_ok();
        let (networks, paths) = (networks.clone(), joined.paths());
        if let Some(Err(error)) = blocking(move || networks.learnt(address, paths)).await {
            tracing::info!(%error, "what was learnt of the link cannot be kept");
        }
    }
}

/// Answers what the hub asks, until the connection ends.
async fn answer(joined: Joined, server: Arc<Server>) {
    while let Ok((sender, mut receiver)) = joined.connection.accept_control().await {
        let server = server.clone();
        tokio::spawn(async move {
            if let Ok(Some(Open { kind: Some(kind) })) = receiver.next::<Open>().await {
                server.answer(kind, sender).await;
            }
        });
    }
    tracing::info!(hub = %joined.connection.peer(), "the connection to the hub ended");
}
