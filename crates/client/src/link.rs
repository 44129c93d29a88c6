//! The client's connection to its hub: made when first needed, made again when lost, and what the hub asks over it.
//!
//! A connection outlives silence, sleep and changes of network ([`crate::watch`] looks after it). While it is silent, new
//! commands are told so at once.

use crate::networks::{Networks, own_address};
use crate::offers::{self, Offers};
use crate::pulse::Pulse;
use crate::serve::{Server, blocking};
use crate::signatures::Signatures;
use crate::watch;
use bytes::Bytes;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use store::system::{is_release, release};
use tokio::sync::Notify;
use wire::message::{Hello, Open};
use wire::without::{Part, is_left_out};
use wire::{Carrier, DialError, Endpoint, Hold, Joined, Key, Pauses, Role, Whereabouts, lock};

/// After a failed attempt the hub is left alone for about this long: commands run here at once instead of waiting each time. Less
/// after the first ones: it may be starting again, or another one taking over.
const PAUSE_FIRST: Duration = Duration::from_millis(300);
const PAUSE_LAST: Duration = Duration::from_secs(3);

/// How often what was learnt of the link is written down.
const LEARN_INTERVAL: Duration = Duration::from_secs(10);

/// A hub with a shorter round trip is near.
const NEAR: Duration = Duration::from_millis(3);

/// Who connects.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Name for people.
    pub name: String,
    /// Names this start of the daemon.
    pub instance: u64,
    /// The start before it, if that ended without saying so; else 0.
    pub replaces: u64,
}

/// The connection to one hub.
pub struct Link {
    pub(crate) endpoint: Endpoint,
    signatures: Arc<Signatures>,
    hub: Arc<Whereabouts>,
    caller: Caller,
    server: Arc<Server>,
    pub(crate) networks: Arc<Networks>,
    state: tokio::sync::Mutex<State>,
    /// The connection as last seen, for those who only look.
    seen: Mutex<Option<(Joined, u64)>>,
    pub(crate) pulse: Mutex<Pulse>,
    pub(crate) condition: tokio::sync::watch::Sender<Condition>,
    /// Commands that run over it, and others who wait for it.
    waiting: AtomicUsize,
    /// Told when somebody begins to wait.
    pub(crate) woken: Notify,
    /// This machine's address towards the hub.
    own: Mutex<Option<IpAddr>>,
    /// What the hub offers.
    pub(crate) offers: Arc<Offers>,
    /// The class of the least trusted worker, as the hub said last: [`wire::message::Welcome::trust`].
    pub(crate) class: AtomicU32,
    /// The hub has shown that it is of this account on this machine.
    is_own: AtomicBool,
}

/// How the link is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Nothing is heard of the hub, since then.
    pub silent: Option<Instant>,
    /// The connection has ended, and there is no other yet.
    pub ended: bool,
    /// What became of the link last, in words: it moved, or goes over something else.
    pub news: Option<String>,
}

/// Why there is no connection to be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LinkError {
    /// None can be made.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// There is one, and nothing is heard over it.
    #[error("the link to the hub is down: nothing heard for {} s", .0.as_secs())]
    Silent(Duration),
}

/// Why a command has no hub.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NoHub {
    /// Nobody has said which.
    #[error("no pool is configured (gleaner up, or gleaner use TOKEN)")]
    NoPool,
    /// It cannot be reached.
    #[error(transparent)]
    Link(#[from] LinkError),
}

impl NoHub {
    /// It may be there in a moment: it starts anew, or another takes its place.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Link(LinkError::Dial(DialError::Unreachable(_) | DialError::Replaced { .. })))
    }
}

struct State {
    joined: Option<Joined>,
    /// Why, and until when it is not tried again.
    failed: Option<(Instant, DialError)>,
    /// For how long it is not after the next failures.
    pauses: Pauses,
    /// Which connection this is, as far as what the hub knows of us goes.
    connects: u64,
}

/// Somebody waits for the hub; until this is dropped, silence is noticed.
pub struct Waiting(Arc<Link>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Link {
    /// A link to `hub`, not connected yet, that keeps what it learns in a folder. Must be called within a tokio runtime.
    pub fn new(
        hub: Arc<Whereabouts>,
        (key, requires_signatures): (&Key, bool),
        state_dir: &Path,
        caller: Caller,
        server: Arc<Server>,
    ) -> Result<Arc<Self>, wire::WireError> {
        let networks = Networks::load(&state_dir.join("networks.json"));
        let link = Arc::new(Self {
            endpoint: Endpoint::new(key, Hold::Long)?,
            signatures: Signatures::new(key.clone(), Some(&state_dir.join("signers")), requires_signatures),
            hub,
            caller,
            server,
            networks: Arc::new(networks),
            state: State { joined: None, failed: None, pauses: Pauses::between(PAUSE_FIRST, PAUSE_LAST), connects: 0 }
                .into(),
            seen: Default::default(),
            pulse: Mutex::new(Pulse::new(Instant::now(), 0)),
            condition: tokio::sync::watch::Sender::default(),
            waiting: AtomicUsize::new(0),
            woken: Notify::new(),
            own: Mutex::default(),
            offers: Arc::default(),
            class: AtomicU32::new(0),
            is_own: AtomicBool::new(false),
        });
        tokio::spawn(watch::routes(Arc::downgrade(&link)));
        Ok(link)
    }

    /// By which its launches are signed, and the results of workers known.
    pub(crate) fn signatures(&self) -> &Arc<Signatures> {
        &self.signatures
    }

    /// The connection, and a number that grows whenever the hub has forgotten what it was told. If nothing is heard over it, that
    /// is an error after `patience`.
    pub async fn connect(self: &Arc<Self>, patience: Duration) -> Result<(Joined, u64), LinkError> {
        let _waiting = self.waiting();
        let mut condition = self.condition.subscribe();
        let heard = async { condition.wait_for(|now| now.silent.is_none()).await.is_ok() };
        if self.current_or_silent().is_some() && !tokio::time::timeout(patience, heard).await.unwrap_or(false) {
            let silent = self.condition.borrow().silent;
            if let Some(since) = silent.filter(|_| self.current_or_silent().is_some()) {
                return Err(LinkError::Silent(since.elapsed()));
            }
        }
        let mut state = self.state.lock().await;
        if let Some(joined) = &state.joined {
            if !joined.connection.is_closed() {
                return Ok((joined.clone(), state.connects));
            }
            state.joined = None;
        }
        if let Some((until, error)) = &state.failed
            && Instant::now() < *until
        {
            return Err(error.clone().into());
        }
        match self.dial().await {
            Ok(joined) => Ok(self.joined(&mut state, joined)),
            Err(error) => {
                tracing::info!(%error, "the hub cannot be reached");
                state.failed = Some((Instant::now() + state.pauses.next_pause(), error.clone()));
                Err(error.into())
            }
        }
    }

    fn joined(self: &Arc<Self>, state: &mut State, joined: Joined) -> (Joined, u64) {
        self.server.store_is(&joined.welcome.store);
        match joined.welcome.resumed && state.connects > 0 {
            true => self.server.views().resumed(state.connects, &joined.welcome.views),
            false => state.connects += 1,
        }
        self.class.store(joined.welcome.trust, Ordering::Relaxed);
        self.is_own.store(joined.is_of_own_account(), Ordering::Relaxed);
        state.failed = None;
        state.pauses.start_over();
        state.joined = Some(joined.clone());
        self.server.views().snapshot().set_reach(Reach::of(&joined));
        *lock(&self.own) = joined.connection.address().and_then(own_address);
        *lock(&self.pulse) = Pulse::new(Instant::now(), joined.connection.heard());
        *lock(&self.seen) = Some((joined.clone(), state.connects));
        // After that: who waits for a connection looks for it then.
        self.condition.send_replace(Condition::default());
        tokio::spawn(answer(joined.clone(), self.server.clone()));
        tokio::spawn(learn(joined.clone(), self.networks.clone()));
        tokio::spawn(offers::ask(Arc::downgrade(self), joined.clone()));
        tokio::spawn(watch::connection(self.clone(), joined.clone()));
        if joined.connection.carrier() == Carrier::Tcp {
            tokio::spawn(watch::way_back(Arc::downgrade(self), joined.clone()));
        }
        (joined, state.connects)
    }

    async fn dial(&self) -> Result<Joined, DialError> {
        let known = |address| self.networks.paths(address);
        self.hub.dial(&self.endpoint, known, self.hello()).await
    }

    /// While nothing is heard over `silent`: looks for the hub that has taken over at the other addresses, and goes on there. The same hub
    /// would end the old connection for the new one.
    pub(crate) async fn look_elsewhere(self: &Arc<Self>, silent: &Joined) {
        // No other takes over from a hub that tells none.
        let Some(here) = silent.connection.address().filter(|_| !silent.hubs().borrow().is_empty()) else { return };
        let mut others = self.hub.addresses();
        others.retain(|address| !is_one_hub(here, *address));
        // Who holds this connects already.
        let Ok(mut state) = self.state.try_lock() else { return };
        let is_current = state.joined.as_ref().is_some_and(|now| now.is_same(silent));
        if others.is_empty() || !is_current || silent.connection.is_closed() {
            return;
        }
        let known = |address| self.networks.paths(address);
        let mut condition = self.condition.subscribe();
        // Whoever wants to use the connection does not wait for this.
        let is_heard = async { drop(condition.wait_for(|now| now.silent.is_none()).await) };
        match self.hub.dial_at(&self.endpoint, &others, known, self.hello(), is_heard).await {
            Ok(found) => {
                silent.connection.close("nothing was heard of the hub there, and it answers elsewhere");
                tracing::info!(address = ?found.connection.address(), "the hub was found elsewhere");
                self.joined(&mut state, found);
            }
            Err(error) => tracing::debug!(%error, "the hub is not elsewhere"),
        }
    }

    fn hello(&self) -> Hello {
        Hello {
            role: Role::Client.number().into(),
            name: self.caller.name.clone(),
            instance: self.caller.instance,
            replaces: self.caller.replaces,
            system: Bytes::from_static(release()),
            ..Hello::default()
        }
    }

    /// The connection, if there is one now over which the hub is heard, and its number.
    pub fn current(&self) -> Option<(Joined, u64)> {
        self.current_or_silent().filter(|_| self.condition.borrow().silent.is_none())
    }

    /// The connection, once there is one over which the hub is heard.
    pub(crate) async fn connected(&self) -> Joined {
        let mut condition = self.condition.subscribe();
        loop {
            if let Some((joined, _)) = self.current() {
                return joined;
            }
            // The sender is ours.
            let _ = condition.changed().await;
        }
    }

    /// The same if nothing is heard over it, too.
    pub fn current_or_silent(&self) -> Option<(Joined, u64)> {
        lock(&self.seen).clone().filter(|(joined, _)| !joined.connection.is_closed())
    }

    /// Somebody waits for the hub from now on.
    pub fn waiting(self: &Arc<Self>) -> Waiting {
        if self.waiting.fetch_add(1, Ordering::Relaxed) == 0 {
            self.woken.notify_one();
        }
        Waiting(self.clone())
    }

    /// Something is sent over `joined` that the hub will answer.
    pub fn asked(&self, joined: &Joined) {
        let now = Instant::now();
        let mut pulse = lock(&self.pulse);
        pulse.hear(now, joined.connection.heard());
        pulse.ask(now);
        drop(pulse);
        self.woken.notify_one();
    }

    /// Whether this machine's address is another one than when that was last asked.
    pub(crate) fn is_elsewhere(&self, own: IpAddr) -> bool {
        lock(&self.own).replace(own) != Some(own)
    }

    /// Whether anybody waits.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// How the link is, now and when that changes.
    pub fn condition(&self) -> tokio::sync::watch::Receiver<Condition> {
        self.condition.subscribe()
    }

    /// The class of the least trusted worker that commands may get to, as the hub says.
    pub fn class(&self) -> wire::Trust {
        wire::Trust::from_number(self.class.load(Ordering::Relaxed))
    }

    /// Whether the hub has shown that it is of this account on this machine.
    pub fn is_own(&self) -> bool {
        self.is_own.load(Ordering::Relaxed)
    }

    /// Which hub this is.
    pub fn hub(&self) -> &Whereabouts {
        &self.hub
    }

    /// Ends the connection, and lets the hub know.
    pub async fn close(&self) {
        self.endpoint.close().await;
    }
}

/// Whether these are known to be addresses of one hub: one machine's, with one port.
fn is_one_hub(one: SocketAddr, other: SocketAddr) -> bool {
    let is_here = |address: SocketAddr| address.ip().is_loopback() || own_address(address) == Some(address.ip());
    one == other || one.port() == other.port() && is_here(one) && is_here(other)
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
        let far = joined.connection.is_far();
        let names_system = far && is_release(&joined.welcome.system) && !is_left_out(Part::OwnDistribution);
        Self { near: joined.connection.round_trip() < NEAR, far, names_system }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_with_one_port_are_one_hub_s() {
        let address = |text: &str| -> SocketAddr { text.parse().expect("an address") };
        let is_one = |one: &str, other: &str| is_one_hub(address(one), address(other));
        assert!(is_one("127.0.0.1:7", "127.0.0.2:7") && is_one("192.0.2.1:7", "192.0.2.1:7"));
        assert!(!is_one("127.0.0.1:7", "127.0.0.1:8"), "two hubs on one machine have two ports");
        assert!(!is_one("127.0.0.1:7", "192.0.2.1:7") && !is_one("192.0.2.1:7", "127.0.0.1:7"));
    }
}
