//! Accepting connections, and serving each role's streams.

use crate::above;
use crate::audit::{Audit, FewLines};
use crate::desk::{Desk, DeskError, Room};
use crate::greet::{Guest, answer_pings};
use crate::half_told::HalfTold;
use crate::held::Held;
use crate::metrics;
use crate::placement::{Refused, Ticket, Wanted};
use crate::registry::{Registry, RegistryError, TOKEN_SECONDS, trust};
use crate::relay;
use crate::session::{Caller, ClientSession, WorkerSession};
use crate::shared::{self, Hubs, KEY_FILE, NODES_FILE};
use crate::state::State;
use crate::unread::Given;
use crate::work::deliver::Deliverer;
use crate::workers::{fetch_objects, send_last};
use base::tally::Tally;
use base::{Needs, NodeId, ViewId};
use bytes::Bytes;
use serde_json::json;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use store::BlockStore;
use store::journal::{JournalError, Options};
use store::log::Place;
use store::pg_journal::Lease;
use store::system::SystemFiles;
use tokio::sync::{oneshot, watch};
use wire::listener::{Guests, Vouched};
use wire::message::{Answer, FailedKind, Hello, Open, OpenKind, OutputKind, TaskOutput};
use wire::whereabouts::ADDRESSES_MAX;
use wire::{Connection, DialError, Key, Listener, Role, Token, Trust, Whereabouts, WireError, lock};

/// What a hub needs to run.
pub struct Config {
    /// Where to listen (UDP); port 0 lets the kernel choose.
    pub listen: SocketAddr,
    /// Addresses to put into tokens, with the port that it listens on; empty: the one in `listen`.
    pub advertise: Vec<IpAddr>,
    /// Folder for the key and the list of nodes; made if missing, private to its owner.
    pub state_dir: PathBuf,
    /// Name for people.
    pub name: String,
    /// Where blocks are kept; shared with the worker when both run in one process.
    pub store: Arc<BlockStore>,
    /// How much it can hold.
    pub room: Room,
    /// Bounds of its journal; `None`: without one. Then nothing but launches should be sent there.
    pub journal: Option<Options>,
    /// The right to keep the journal in a database; then the key and the list of nodes are there as well. `None`: in `state_dir`.
    pub lease: Option<Lease>,
    /// Where its figures are for Prometheus (TCP); `None`: nowhere.
    pub metrics: Option<SocketAddr>,
}

/// Where a hub that listens at `listen` may be found, if these are its machine's addresses; with none: there.
pub fn addresses_of(listen: SocketAddr, advertise: &[IpAddr]) -> Vec<SocketAddr> {
    match advertise {
        [] => vec![listen],
        known => known.iter().map(|ip| SocketAddr::new(*ip, listen.port())).collect(),
    }
}

/// A hub that listens.
pub struct Hub {
    shared: Arc<Shared>,
    listener: Listener,
    address: SocketAddr,
    metrics: Option<tokio::net::TcpListener>,
    deliverer: Arc<Deliverer>,
}

/// A hub cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The network refuses.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The address for metrics cannot be used.
    #[error("metrics at {address}: {source}; choose another address, or leave `metrics` out")]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The block store cannot be used.
    #[error(transparent)]
    Store(#[from] store::StoreError),
    /// The list of nodes cannot be used.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The hub that this one is to work for refuses it.
    #[error(
        "this hub is to work for another, but {0}; join anew (`gleaner hub --join TOKEN`), or remove `above` from node.toml"
    )]
    Above(DialError),
    /// The journal cannot be used.
    #[error(transparent)]
    Desk(#[from] DeskError),
    /// The journal has ended.
    #[error("the hub stops: {0}")]
    Journal(Arc<JournalError>),
    /// What hubs of one journal share cannot be used.
    #[error(transparent)]
    Shared(#[from] shared::SharedError),
    /// The key cannot be used.
    #[error(transparent)]
    Key(#[from] wire::key::KeyError),
    /// The state folder cannot be made.
    #[error("cannot make the folder {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

/// What all connections of a hub share.
pub struct Shared {
    pub(crate) name: String,
    pub(crate) key: Key,
    pub(crate) instance: u64,
    /// Where it may be found.
    advertise: Vec<SocketAddr>,
    /// Where the hubs of its journal are, if others may take over.
    pub(crate) hubs: Hubs,
    pub(crate) store: Arc<BlockStore>,
    pub(crate) system: Arc<SystemFiles>,
    pub(crate) registry: Mutex<Registry>,
    pub(crate) audit: Audit,
    /// Why joins were refused.
    pub(crate) joins_refused: Mutex<Tally>,
    /// Names the store, for clients that come back.
    pub(crate) store_name: Bytes,
    pub(crate) guests: Guests,
    /// Lines in logs about those who were not let in.
    pub(crate) strangers_logged: FewLines,
    /// The same of those who were.
    pub(crate) members_logged: FewLines,
    pub(crate) state: Mutex<State>,
    tickets: AtomicU64,
    pub(crate) half_told: HalfTold,
    pub(crate) epoch: u64,
    /// When this process became the hub.
    pub(crate) since: Instant,
}

impl Hub {
    /// Starts to listen. Must be called within a tokio runtime.
    pub fn start(config: Config) -> Result<Self, HubError> {
        let folder = |source| HubError::Folder { path: config.state_dir.clone(), source };
        std::fs::create_dir_all(&config.state_dir).map_err(folder)?;
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&config.state_dir, private).map_err(folder)?;
        if let Some(lease) = &config.lease {
            shared::fetch(lease, &config.state_dir)?;
        }
        let key = Key::load_or_create(&config.state_dir.join(KEY_FILE))?;
        let mut registry = Registry::open(&config.state_dir.join(NODES_FILE))?;
        if let Some(lease) = &config.lease {
            shared::offer(lease, &config.state_dir)?;
            registry.share(lease.files());
        }
        let listener = Listener::bind(config.listen, &key)?;
        let address = listener.address()?;
        let advertise = addresses_of(address, &config.advertise);
        let hubs = Hubs(
            config.lease.as_ref().map(|lease| lease.hubs(shared::addresses_for_others(address, &config.advertise))),
        );
        let deliverer = Arc::<Deliverer>::default();
        let metrics = config.metrics.map(listen_for_metrics).transpose()?;
        let desk = match config.journal {
            Some(options) => {
                let deliverer = deliverer.clone();
                let told = Box::new(move |durable| deliverer.told(durable));
                let place = match config.lease {
                    Some(lease) => Place::Postgres(lease),
                    None => Place::Disk(config.state_dir.join("journal")),
                };
                Desk::open(place, config.room, options, told)?
            }
            None => Desk::in_memory(config.room, rand::random()),
        };
        let (epoch, drained) = (desk.epoch(), registry.drained());
        let mut state = State::new(desk, drained);
        state.end_jobs_without_members(|account| registry.has_member(account));
        let shared = Shared {
            name: config.name,
            key,
            instance: rand::random(),
            advertise,
            hubs,
            system: Arc::default(),
            registry: Mutex::new(registry),
            audit: Audit::open(config.state_dir.join("audit.log")),
            joins_refused: Mutex::default(),
            store_name: Bytes::from(config.store.identity()?.to_vec()),
            guests: listener.guests(),
            strangers_logged: FewLines::default(),
            members_logged: FewLines::default(),
            state: Mutex::new(state),
            tickets: AtomicU64::new(1),
            half_told: HalfTold::default(),
            epoch,
            since: Instant::now(),
            store: config.store,
        };
        Ok(Self { shared: Arc::new(shared), listener, address, metrics, deliverer })
    }

    /// Where others reach it, the best first.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.shared.advertise
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where its metrics are, if anywhere.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Its key's name.
    pub fn node(&self) -> NodeId {
        self.shared.key.node()
    }

    /// A new token for `role`, good for [`TOKEN_SECONDS`]. A worker that redeems it is trusted as the owner's own: whoever starts a hub
    /// and types this is its owner.
    pub fn token(&self, role: Role) -> Result<Token, HubError> {
        Ok(self.shared.token(role, Some(Trust::Own), TOKEN_SECONDS)?)
    }

    /// Lets a machine in without a token: this process's own worker, and its owner's client.
    pub fn admit(&self, node: NodeId, role: Role, name: &str) -> Result<(), HubError> {
        Ok(lock(&self.shared.registry).add(node, role.name(), name, now_seconds())?)
    }

    /// A way in for the worker `node` in this process, which must have this hub's block store: a connection for each call.
    pub fn door_for(&self, node: NodeId) -> impl Fn() -> Connection + Send + use<> {
        let shared = self.shared.clone();
        move || {
            let (theirs, ours) = Connection::within_process(node, shared.key.node());
            let shared = shared.clone();
            tokio::spawn(async move {
                if let Err(error) = shared.serve(ours).await {
                    tracing::debug!(%error, "the connection of this process's worker ended");
                }
            });
            theirs
        }
    }

    /// Works for another hub: lends it what this hub's workers lend. Ends with an error if that hub refuses this one from the
    /// start, else when it does so later.
    pub fn work_for(&self, above: Arc<Whereabouts>) -> impl Future<Output = Result<(), HubError>> + Send + use<> {
        above::work_for(self.shared.clone(), above)
    }

    /// Serves until `stop` completes, and passes on what is about to end; then every connection is told. Ends with an error if the journal does.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), HubError> {
        let accepting = async {
            while let Some(attempt) = self.listener.accept().await {
                let shared = self.shared.clone();
                // In a box before it goes there: what its task begins with has room in it to the end.
                let finishing = Box::pin(attempt.finish());
                tokio::spawn(async move {
                    let served = async { shared.serve(finishing.await?).await };
                    if let Err(error) = served.await {
                        tracing::debug!(%error, "a connection ended");
                    }
                });
            }
        };
        let delivering = self.deliverer.begin(self.shared.clone());
        let metrics = async {
            if let Some(listener) = self.metrics {
                let shared = self.shared.clone();
                metrics::serve(listener, move || shared.figures()).await;
            }
            std::future::pending().await
        };
        let stopping = async {
            stop.await;
            self.shared.half_told.end().await;
        };
        let ended = tokio::select! {
            () = stopping => Ok(()),
            () = metrics => Ok(()),
            () = accepting => Ok(()),
            dead = self.shared.tick() => Err(HubError::Journal(dead)),
        };
        drop(delivering);
        self.listener.close().await;
        let shared = self.shared;
        // Takes as long as the disk; nobody is served any more.
        let _ = blocking(move || lock(&shared.state).placement.desk.close()).await;
        ended
    }
}

impl Shared {
    pub(crate) fn token(&self, role: Role, trust: Option<Trust>, seconds: u64) -> Result<Token, RegistryError> {
        let secret: [u8; 16] = rand::random();
        lock(&self.registry).invite(&secret, role, trust, seconds, now_seconds())?;
        self.audit.note("token", json!({"role": role.name(), "trust": trust.map(Trust::name), "seconds": seconds}));
        let mut addresses = self.advertise.clone();
        addresses.extend(self.hubs.clone().now().iter().filter(|other| !self.advertise.contains(other)));
        addresses.truncate(ADDRESSES_MAX);
        Ok(Token { hub: self.key.node(), addresses, secret, role })
    }

    pub(crate) async fn serve(self: &Arc<Self>, connection: Connection) -> Result<(), WireError> {
        if let Some(guest) = Box::pin(self.greet(connection)).await? {
            self.serve_guest(guest).await;
        }
        Ok(())
    }

    /// Serves a machine as what it is. In boxes of their own: there may be ten thousand machines that ask, and what the others need
    /// is not to be kept for them.
    fn serve_guest<'a>(self: &'a Arc<Self>, guest: Guest) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        let Guest { connection, hello, role, tenant, held, control, hubs, vouched } = guest;
        if role == Role::Worker && hello.asks {
            return kept_with(vouched, self.serve_asking(connection, control, hubs));
        }
        let (lends, changes) = watch::channel(None);
        tokio::spawn(answer_pings(connection.clone(), control, lends, hubs));
        match role {
            Role::Worker => kept_with(vouched, self.serve_worker(connection, hello, changes)),
            Role::Client | Role::Admin => kept_with(vouched, self.serve_client(connection, hello, tenant, held)),
        }
    }

    async fn serve_client(
        self: &Arc<Self>,
        connection: Connection,
        hello: Hello,
        tenant: base::Tenant,
        held: Option<Arc<Held>>,
    ) {
        let stores = (self.store.clone(), self.system.clone());
        let new = || lock(&self.state).nothing_held(connection.peer());
        let held = held.unwrap_or_else(new);
        let caller = Caller::connected(connection.peer(), hello);
        let session = ClientSession::new(connection.clone(), caller, tenant, stores, held);
        lock(&self.state).clients.insert(session.key.clone(), session.clone());
        self.look_again(&connection);
        while let Ok((sender, mut receiver)) = connection.accept_control().await {
            let (shared, session) = (self.clone(), session.clone());
            tokio::spawn(async move {
                let mut given = Given::default();
                let mut opened = session.opened(receiver.next::<Open>()).await;
                while let Ok(Some(Open { kind: Some(OpenKind::Give(object)) })) = opened {
                    session.keep(&object);
                    given.take(object, &session.unread);
                    opened = receiver.next::<Open>().await;
                }
                match opened {
                    Ok(Some(Open { kind: Some(OpenKind::Coming(announced)) })) => {
                        let mut coming = session.coming(&announced);
                        while let Ok(Some(Open { kind: Some(OpenKind::Give(object)) })) = receiver.next::<Open>().await
                        {
                            session.arrived(&mut coming, &object);
                        }
                    }
                    Ok(Some(Open { kind: Some(OpenKind::Launch(launch)) })) if launch.place.is_some() => {
                        shared.run_placed(session, *launch, given, sender, receiver).await;
                    }
                    Ok(Some(Open { kind: Some(OpenKind::Launch(launch)) })) => {
                        relay::run(shared, session, *launch, given, sender, receiver).await;
                    }
                    Ok(Some(Open { kind: Some(OpenKind::Ask(question)) })) => {
                        let answer = blocking(move || shared.answer(&session, &question).to_string()).await;
                        send_last(sender, &Answer { json: Bytes::from(answer.unwrap_or_default()) }).await;
                    }
                    Ok(Some(Open { kind: Some(OpenKind::Offer(mark)) })) => {
                        let offer = lock(&shared.state).placement.offer(&mark);
                        send_last(sender, &offer).await;
                    }
                    Ok(Some(Open { kind: Some(OpenKind::Jobs(_)) })) => {
                        shared.serve_jobs(session, sender, receiver).await;
                    }
                    Ok(Some(Open { kind: Some(OpenKind::Drive(wanted)) })) => {
                        shared.serve_drive(session, wanted, sender, receiver).await;
                    }
                    Ok(Some(Open { kind: Some(OpenKind::Collect(wanted)) })) => {
                        shared.serve_collect(session, wanted, sender, receiver).await;
                    }
                    Ok(Some(Open { kind: Some(OpenKind::Objects(request)) })) => {
                        fetch_objects(Some(session), None, request.digests, sender).await;
                    }
                    Err(WireError::Unlike) => {
                        let unlike = FailedKind::ViewGap.because(WireError::Unlike.to_string());
                        send_last(sender, &TaskOutput::from(OutputKind::Failed(unlike))).await;
                    }
                    Ok(_) | Err(_) => {}
                }
            });
        }
        tracing::info!(node = %session.node, name = session.name, "client left");
        lock(&self.state).client_left(&session);
    }

    /// A ticket for a launch.
    pub fn ticket(&self) -> Ticket {
        Ticket(self.tickets.fetch_add(1, Ordering::Relaxed))
    }

    /// Asks for a place for a launch. The receiver gets it, or an error if the workers that could take it leave.
    pub fn place(
        &self,
        ticket: Ticket,
        client: &ClientSession,
        view: ViewId,
        (needs, class): (&Needs, u32),
    ) -> Result<oneshot::Receiver<(Arc<WorkerSession>, String)>, Refused> {
        let mut state = lock(&self.state);
        state.drop_dead();
        state.placement.desk.is_crowded().map_err(Refused::Table)?;
        let mut need = state.placement.tags.need(needs)?;
        need.tags |= trust::needed(class);
        let wanted = Wanted { account: client.account(), need, affinity: client.affinity(view) };
        let (sender, receiver) = oneshot::channel();
        state.waiting.insert(ticket, sender);
        match state.placement.submit(ticket, wanted) {
            Ok(made) => {
                state.hand_out(made);
                Ok(receiver)
            }
            Err(refused) => {
                state.waiting.remove(&ticket);
                Err(refused)
            }
        }
    }

    /// Whether a launch that was refused so may have a place in a moment.
    pub(crate) fn is_passing(&self, refused: &Refused) -> bool {
        lock(&self.state).placement.is_passing(refused)
    }

    /// A launch has ended, and taken so much processor time, in milliseconds.
    pub fn exited(&self, ticket: Ticket, cost_ms: u32) {
        lock(&self.state).placement.cost(ticket, cost_ms);
        self.finished(ticket);
    }

    /// A launch needs its place no more. May be called more than once.
    pub fn finished(&self, ticket: Ticket) {
        let mut state = lock(&self.state);
        state.waiting.remove(&ticket);
        let made = state.placement.finish(ticket);
        state.hand_out(made);
    }

    pub(crate) fn client(&self, key: &[u8]) -> Option<Arc<ClientSession>> {
        lock(&self.state).clients.get(key).cloned()
    }
}

/// Serves, and keeps meanwhile what says that the machine was let in.
fn kept_with<'a>(
    vouched: Vouched,
    serving: impl Future<Output = ()> + Send + 'a,
) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
    Box::pin(async move {
        serving.await;
        drop(vouched);
    })
}

fn listen_for_metrics(address: SocketAddr) -> Result<tokio::net::TcpListener, HubError> {
    let listen = || {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        tokio::net::TcpListener::from_std(listener)
    };
    listen().map_err(|source| HubError::Metrics { address, source })
}

/// Does what may write the list of nodes where it may block: while the disk is busy the hub goes on.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, WireError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| WireError::Lost(error.to_string()))
}

pub(crate) fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
