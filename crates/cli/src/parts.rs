//! The only place where `gleaner` calls hub, worker and client daemon. All that is above knows these functions alone, but for what is
//! asked and answered: [`client::report`], [`hub::figures`] and [`worker::host::sensing::Report`].
//!
//! [`prepare_sandbox`] must come before any thread: the others start an async runtime of their own.

mod ending;
mod place;

use crate::config::KnownHub;
use crate::whereabouts::{advertised, find};
use base::TreePath;
use client::settings::{Choices, Prefer, Source};
use ending::{end_of_stdin, log_end, told_to_end};
use hub::desk::Room;
use hub::shared::addresses_for_others;
use place::{clear, cpu_numbers};
use std::future::Future;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::BlockStore;
use store::journal::Options;
use store::pg_journal::{Lease, Place};
use tokio::runtime::Runtime;
use wire::flow::Paths;
use wire::owner::Secret;
use wire::{Hold, Key, Reserved, Role, Token};
use worker::charge::Lent;
use worker::clients::Clients;
use worker::host::sensing::{self, Sensing};
use worker::net::{HubPlace, Membership};
use worker::sandbox::{self, SandboxServer};

/// A part failed.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    /// The part ended with an error: what, where, and what to do.
    #[error("{0}")]
    Failed(String),
}

/// What a hub is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubConfig {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Its own folder: keys, journal, blocks. Exists, mode 0700.
    pub state_dir: PathBuf,
    /// This machine's name.
    pub name: String,
    /// The hub that it works for, if any.
    pub above: Option<KnownHub>,
    /// Hosts and tasks that it has room for.
    pub hosts_max: u32,
    /// See `hosts_max`.
    pub tasks_max: u32,
    /// It is this machine's own pool, for the daemon that started it: nothing there outlives it.
    pub is_own_pool: bool,
    /// The database that keeps its journal; none: it is in `state_dir`.
    pub journal: Option<Place>,
    /// Where it has metrics for Prometheus, if anywhere.
    pub metrics: Option<SocketAddr>,
    /// Waits so long after each sync of the journal: for measuring.
    pub extra_sync_delay: Duration,
}

/// What a worker is started with.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerConfig {
    /// The hub it works for; none in one process with the hub.
    pub hub: Option<KnownHub>,
    /// Its own folder: keys, mounts, blocks. Exists, mode 0700.
    pub state_dir: PathBuf,
    /// This machine's name.
    pub name: String,
    /// CPUs that it offers.
    pub cpus: u32,
    /// Its tags.
    pub tags: Vec<String>,
    /// When guests rest.
    pub rest: sched::rest::Rules,
    /// Memory that guests leave free, in bytes, if that was said.
    pub memory_reserve: Option<u64>,
    /// Memory that guests have at most, in bytes, if that was said.
    pub memory_max: Option<u64>,
    /// What guests have beside, and one task or client of all that.
    pub lent: Lent,
    /// Guests may use the network.
    pub lends_network: bool,
    /// Launches count only if their clients have signed them.
    pub requires_signatures: bool,
    /// What this account's own tasks are on this machine.
    pub own_work: OwnWork,
}

/// Whether tasks that a machine's owner sends from it to itself are guests there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnWork {
    /// They have the priority of any process.
    #[default]
    Ordinary,
    /// They wait for all others and rest as any guest.
    Guest,
}

impl OwnWork {
    /// Its name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ordinary => "ordinary",
            Self::Guest => "guest",
        }
    }
}

impl std::str::FromStr for OwnWork {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Ordinary, Self::Guest].into_iter().find(|own_work| own_work.name() == text).ok_or(())
    }
}

/// What the client daemon is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// Folder of the socket `door` and the locks. Exists, mode 0700, ours.
    pub runtime_dir: PathBuf,
    /// Its own folder: keys, journal, profiles, kept deltas. Exists, mode 0700.
    pub state_dir: PathBuf,
    /// The hub, if a pool is configured.
    pub hub: Option<KnownHub>,
    /// How long commands wait for a link that is down.
    pub link_wait: Duration,
    /// Run commands on the pool whatever it costs, rather than where they are expected to end first.
    pub prefers_there: bool,
    /// Whose the pool's workers are, by the user's own word.
    pub trust: Option<wire::Trust>,
    /// Results count only if their workers have signed them.
    pub requires_signatures: bool,
    /// Files and folders of this program's own, which stay here.
    pub closed: Vec<TreePath>,
}

impl ClientConfig {
    /// What may change while the daemon runs.
    pub fn choices(&self) -> Choices {
        Choices { link_wait: self.link_wait, prefer: if self.prefers_there { Prefer::There } else { Prefer::Auto } }
    }
}

/// What a hub says once it listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubReady {
    /// Addresses at which others reach it, `HOST:PORT`, the best first.
    pub addresses: Vec<String>,
    /// Its key.
    pub key: base::Digest,
    /// A token for a worker: a secret.
    pub worker_token: String,
    /// A token for this machine's own user as an admin client: a secret.
    pub client_token: String,
}

/// Has this process leave parts out, for measurement; the error names one that there is not.
pub fn leave_out(list: &str) -> Result<(), PartError> {
    wire::without::leave_out(list).map_err(failed)
}

/// Has this process speak as a program does whose newest protocol is this one, for tests.
pub fn be_like(version: &str) -> Result<(), PartError> {
    wire::versions::be_like(version).map_err(failed)
}

/// Called once, when a part is ready, on a thread that may block and that no async runtime drives (it may call
/// [`redeem`], which needs the hub to answer meanwhile). An error ends the part.
pub type OnReady<T> = Box<dyn FnOnce(T) -> Result<(), PartError> + Send>;

/// As what a token is redeemed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joiner {
    /// A worker.
    Worker,
    /// A client.
    Client,
    /// A hub that will work for that one.
    Hub,
}

/// What a redeemed token gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redeemed {
    /// The hub.
    pub hub: KnownHub,
    /// It has shown that it is of this account on this machine.
    pub is_own: bool,
}

/// Length of a segment of the hub's journal.
const JOURNAL_SEGMENT_BYTES: u64 = 16 << 20;
/// How long a stopping process waits for what still runs in it.
const WIND_UP: Duration = Duration::from_secs(2);

/// A sandbox that was prepared while the process had a single thread.
#[derive(Debug)]
pub struct Sandbox {
    server: SandboxServer,
    /// By which the owner's own tasks are recognised, if they are to have its priority.
    owner: Option<Secret>,
}

/// Prepares this process to run guests. Call it before any thread exists.
pub fn prepare_sandbox(worker: &WorkerConfig) -> Result<Sandbox, PartError> {
    // Guests have ids of their own, and must be able to pass the folders that are made for them, whatever the umask of who started
    // this. What is nobody else's business lies in folders that are closed to all others.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    // Else each task would be taken, and come to nothing.
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    device.map_err(|error| {
        failed(format!("/dev/fuse, by which a worker shows clients' files, cannot be opened: {error}"))
    })?;
    // Named after the key, so that two workers on one machine do not clean up after one another.
    let node = Key::load_or_create(&worker.state_dir.join("worker.key")).map_err(failed)?.node();
    let place = worker.state_dir.join("templates");
    let config = sandbox::Config { place, cgroup: Some(format!("gleaner-{}", node.short())) };
    // Before the process becomes another user to the kernel. A hub in it is known to its own account by this, whatever `own_work` is.
    let kept = Secret::keep();
    let owner = (worker.own_work == OwnWork::Ordinary).then_some(kept).and_then(|kept| {
        kept.inspect_err(|error| tracing::warn!(%error, "the owner's own tasks cannot be told from guests: they wait for all others")).ok()
    });
    let server = sandbox::prepare(&config).map_err(failed)?;
    Ok(Sandbox { server, owner })
}

/// Runs a hub until it is told to end by SIGTERM or SIGINT.
pub fn run_hub(hub: HubConfig, ready: OnReady<HubReady>) -> Result<(), PartError> {
    let store = open_store(&hub.state_dir)?;
    // By which clients of this account on this machine know that it is theirs; without it they are told of others' workers.
    let _ = Secret::keep();
    run(async move {
        let mut stop = std::pin::pin!(told_to_end()?);
        let Some(lease) = lease_unless(&mut stop, &hub).await? else { return Ok(()) };
        let running = start_hub(&hub, store, lease)?;
        announce(&running, ready);
        let above = work_above(&running, hub.above, &hub.state_dir).await?;
        tokio::select! {
            ended = running.run(stop) => log_end("hub", ended.map_err(failed)),
            ended = above => log_end("hub", ended),
        }
    })
}

/// Runs a hub and a worker of it in this process, until told to end by SIGTERM or SIGINT; `while_stdin`: or until standard input,
/// a pipe, ends.
pub fn run_both(
    hub: HubConfig,
    worker: WorkerConfig,
    sandbox: Sandbox,
    ready: OnReady<HubReady>,
    while_stdin: bool,
) -> Result<(), PartError> {
    let store = open_store(&hub.state_dir)?;
    run(async move {
        let mut stop = std::pin::pin!(told_to_end()?);
        let Some(lease) = lease_unless(&mut stop, &hub).await? else { return Ok(()) };
        let running = start_hub(&hub, store.clone(), lease)?;
        let key = Key::load_or_create(&worker.state_dir.join("worker.key")).map_err(failed)?;
        running.admit(key.node(), Role::Worker, &worker.name).map_err(failed)?;
        let door = HubPlace::Here(Box::new(running.door_for(key.node())));
        let (left, has_left) = tokio::sync::oneshot::channel();
        let working = work(worker, (key, door), sandbox, store, || (), stop);
        // The hub ends after its worker: it passes on what that hands back.
        let working = async {
            working.await?;
            let _ = left.send(());
            std::future::pending::<Result<(), PartError>>().await
        };
        let stop = async { drop(has_left.await) };
        announce(&running, ready);
        let above = work_above(&running, hub.above, &hub.state_dir).await?;
        let ended = tokio::select! {
            ended = running.run(stop) => ended.map_err(failed),
            ended = working => ended,
            gone = end_of_stdin(), if while_stdin => gone,
            ended = above => ended,
        };
        log_end("hub and worker", ended)
    })
}

/// Runs a worker until told to end by SIGTERM or SIGINT. It is ready once the hub has accepted it.
pub fn run_worker(worker: WorkerConfig, sandbox: Sandbox, ready: OnReady<()>) -> Result<(), PartError> {
    let store = open_store(&worker.state_dir)?;
    run(async move {
        let hub = worker.hub.as_ref().ok_or_else(|| failed("the worker was given no hub"))?;
        let hub = find(hub, &worker.state_dir).await?;
        let key = Key::load_or_create(&worker.state_dir.join("worker.key")).map_err(failed)?;
        let endpoint = wire::Endpoint::new(&key, Hold::Short).map_err(failed)?;
        let hub = HubPlace::Elsewhere(Box::new(endpoint.clone()), hub);
        let mut ready = Some(ready);
        let tell = move || {
            if let Some(ready) = ready.take() {
                tokio::task::spawn_blocking(move || report(ready(())));
            }
        };
        let ended = work(worker, (key, hub), sandbox, store, tell, told_to_end()?).await;
        endpoint.close().await;
        log_end("worker", ended)
    })
}

/// Why the client daemon ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEnd {
    /// It was told to.
    Told,
    /// When it began to listen its configuration was no longer the one that it was started with.
    Outdated,
}

/// Runs the client daemon until [`client::report::Question::Stop`] or SIGTERM. `ready`: where it writes
/// [`base::door::READY`] once it listens. `is_current`: whether the configuration still is what it was when
/// the daemon listens; who changes it later will find the daemon, and tell it. `settings`: where what may change at any time is read again.
pub fn run_client(
    client: ClientConfig,
    settings: Source,
    ready: Option<OwnedFd>,
    is_current: impl FnOnce() -> bool,
) -> Result<ClientEnd, PartError> {
    // What takes time runs on threads of its own; one for the rest spares launches the changes between threads.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    run_in(runtime, async move {
        let choices = client.choices();
        let hub = match &client.hub {
            Some(hub) => Some(find(hub, &client.state_dir).await?),
            None => None,
        };
        let home = std::env::var_os("HOME").and_then(|home| TreePath::parse(&home.into_vec()));
        let config = client::daemon::Config {
            runtime_dir: client.runtime_dir,
            state_dir: client.state_dir,
            home,
            name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            hub,
            durable: false,
            choices,
            settings: Some(settings),
            trust: client.trust,
            requires_signatures: client.requires_signatures,
            closed: client.closed,
        };
        let mut end = ClientEnd::Told;
        let listens = || {
            if !is_current() {
                end = ClientEnd::Outdated;
                return false;
            }
            if let Some(ready) = ready {
                let _ = rustix::io::write(&ready, base::door::READY);
            }
            true
        };
        tokio::select! {
            () = told_to_end()? => {}
            ended = client::daemon::run(config, listens) => ended.map_err(failed)?,
        }
        Ok(end)
    })
}

/// Redeems a token: makes this machine's key in `state_dir` if there is none, binds it at the hub, and tells which hub
/// that is. The machine is known there as `name`. May start threads, so the process must not go on to prepare a sandbox.
pub fn redeem(token: &str, joiner: Joiner, state_dir: &Path, name: &str) -> Result<Redeemed, PartError> {
    let token = Token::parse(token).map_err(failed)?;
    let (file, role) = match joiner {
        Joiner::Worker => ("worker.key", Role::Worker),
        Joiner::Client => ("client.key", Role::Client),
        Joiner::Hub => ("hub.key", Role::Worker),
    };
    if !(token.role == role || joiner == Joiner::Client && token.role.launches()) {
        return Err(failed(format!("this token makes a {}, not a {}", token.role.name(), role.name())));
    }
    let key = Key::load_or_create(&state_dir.join(file)).map_err(failed)?;
    if token.hub == key.node() {
        return Err(failed("this token is of the very hub that is to work for another"));
    }
    run(async move {
        let endpoint = wire::Endpoint::new(&key, Hold::Short).map_err(failed)?;
        let hello = wire::message::Hello {
            role: role.number().into(),
            name: name.to_owned(),
            secret: token.secret.to_vec().into(),
            behind: (joiner == Joiner::Hub).then(Default::default),
            // It is let in, and takes no tasks yet.
            asks: role == Role::Worker,
            joiner: joiner_proof(role, key.node()).into(),
            ..Default::default()
        };
        let joined =
            wire::dial(&endpoint, &token.addresses, token.hub, |_| Paths::default(), hello).await.map_err(failed)?;
        if joined.welcome.trust == wire::Trust::Waiting.number() {
            let how = "gleaner approve NAME --trust own|site|volunteer";
            crate::render::say(&format!("known as {name}; it gets tasks once the hub's owner has said: {how}"));
        }
        let is_own = joined.is_of_own_account();
        joined.connection.close("joined");
        let hub = KnownHub { addresses: token.addresses.iter().map(ToString::to_string).collect(), key: token.hub.0 };
        Ok(Redeemed { hub, is_own })
    })
}

/// By which a hub of this account on this machine knows that the worker is its owner's.
fn joiner_proof(role: Role, node: base::NodeId) -> Vec<u8> {
    let secret = (role == Role::Worker).then(Secret::keep).and_then(Result::ok);
    secret.map(|secret| secret.proof_of_joiner(node).0.to_vec()).unwrap_or_default()
}

/// Senses what this machine has to spare, for so long, with a reading every so often.
pub fn sense(time: Duration, every: Duration, history: usize) -> Result<sensing::Report, PartError> {
    run(async {
        let mut sensing = Sensing::new(None, every);
        let mut times = tokio::time::interval(every);
        let count = time.as_nanos() / every.as_nanos().max(1);
        for _ in 0..=count {
            times.tick().await;
            sensing.step(0.0, None).map_err(failed)?;
        }
        Ok(sensing.report(history))
    })
}

fn failed(error: impl std::fmt::Display) -> PartError {
    PartError::Failed(error.to_string())
}

fn report(result: Result<(), PartError>) {
    if let Err(error) = result {
        tracing::error!(%error, "telling that it is ready failed");
    }
}

/// Runs `work` in an async runtime of its own.
fn run<T>(work: impl Future<Output = Result<T, PartError>>) -> Result<T, PartError> {
    run_in(Runtime::new(), work)
}

fn run_in<T>(
    runtime: std::io::Result<Runtime>,
    work: impl Future<Output = Result<T, PartError>>,
) -> Result<T, PartError> {
    let runtime = runtime.map_err(|error| failed(format!("no async runtime: {error}")))?;
    let result = runtime.block_on(work);
    runtime.shutdown_timeout(WIND_UP);
    result
}

fn open_store(state_dir: &Path) -> Result<Arc<BlockStore>, PartError> {
    let options = store::Options::default();
    BlockStore::open(&state_dir.join("blocks"), options).map(Arc::new).map_err(failed)
}

/// The lease of a hub's journal, if it has one; nothing if the hub is told to end before.
async fn lease_unless(stop: impl Future<Output = ()>, hub: &HubConfig) -> Result<Option<Option<Lease>>, PartError> {
    tokio::select! {
        lease = lease_of_journal(hub) => lease.map(Some),
        () = stop => Ok(None),
    }
}

/// The right to write the hub's journal, if a database keeps it; waits as a standby while another hub has it.
async fn lease_of_journal(hub: &HubConfig) -> Result<Option<Lease>, PartError> {
    match &hub.journal {
        Some(place) if !hub.is_own_pool => {
            let says = |why: &str| tracing::info!("{why}");
            // Another program that had it by then would be noticed when this hub is needed.
            let _kept = Reserved::at(hub.listen).inspect_err(|error| {
                tracing::warn!(address = %hub.listen, %error, "the address must be free when this hub takes over");
            });
            let addresses = addresses_for_others(hub.listen, &advertised(hub.listen));
            let lease = Lease::wait(place, &hub.name, &addresses, says).await.map_err(failed)?;
            tracing::info!(%place, epoch = lease.epoch(), "this hub holds the journal");
            Ok(Some(lease))
        }
        _ => Ok(None),
    }
}

fn start_hub(hub: &HubConfig, store: Arc<BlockStore>, lease: Option<Lease>) -> Result<hub::Hub, PartError> {
    let options = Options {
        segment_bytes: JOURNAL_SEGMENT_BYTES,
        buffer_bytes_max: JOURNAL_SEGMENT_BYTES as usize / 2,
        extra_fsync_delay: hub.extra_sync_delay,
        ..Options::default()
    };
    let config = hub::Config {
        listen: hub.listen,
        advertise: advertised(hub.listen),
        state_dir: hub.state_dir.clone(),
        name: hub.name.clone(),
        store,
        room: Room { hosts: hub.hosts_max as usize, tasks: hub.tasks_max as usize, ..Room::default() },
        journal: (!hub.is_own_pool).then_some(options),
        lease,
        metrics: hub.metrics.filter(|_| !hub.is_own_pool),
    };
    hub::Hub::start(config).map_err(failed)
}

/// Has a hub work for another, if there is one; the work ends if that hub refuses it from the start.
async fn work_above(
    hub: &hub::Hub,
    above: Option<KnownHub>,
    state_dir: &Path,
) -> Result<impl Future<Output = Result<(), PartError>> + use<>, PartError> {
    let work = match above {
        Some(above) => Some(hub.work_for(find(&above, state_dir).await?)),
        None => None,
    };
    Ok(async move {
        if let Some(work) = work {
            work.await.map_err(failed)?;
        }
        // Its own clients and workers have it all the same.
        std::future::pending().await
    })
}

/// Tells, on a thread that may block, how a hub is joined.
fn announce(hub: &hub::Hub, ready: OnReady<HubReady>) {
    let told = || {
        let worker = hub.token(Role::Worker)?;
        let addresses = hub.addresses().iter().map(ToString::to_string).collect();
        let (worker_token, client_token) = (worker.to_string(), hub.token(Role::Admin)?.to_string());
        Ok::<_, hub::HubError>(HubReady { addresses, key: hub.node().0, worker_token, client_token })
    };
    match told() {
        Ok(told) => drop(tokio::task::spawn_blocking(move || report(ready(told)))),
        Err(error) => tracing::error!(%error, "no tokens could be made"),
    }
}

/// Works for a hub until it refuses this worker, or `stop`. `joined` is called at each connection.
async fn work(
    worker: WorkerConfig,
    (key, hub): (Key, HubPlace),
    sandbox: Sandbox,
    store: Arc<BlockStore>,
    mut joined: impl FnMut(),
    stop: impl Future<Output = ()>,
) -> Result<(), PartError> {
    let folder = worker.state_dir.join("run");
    clear(&folder)?;
    let signers = worker.state_dir.join("signers");
    let settings = worker::host::Settings {
        folder: worker.state_dir,
        cpus: worker.cpus,
        rules: worker.rest,
        memory_reserve: worker.memory_reserve,
        memory_max: worker.memory_max,
    };
    let memory_bytes = settings.marks(worker::scratch::memory_bytes()).most;
    let bounds = worker.lent.bounds(&folder, memory_bytes);
    let owner = (sandbox.owner, worker.lends_network);
    let signatures = worker::signatures::Signatures::new(key, Some(&signers), worker.requires_signatures);
    let clients = Clients::new(sandbox.server, store, cpu_numbers(worker.cpus), folder, bounds, owner, signatures);
    let clients = clients.map_err(|error| failed(format!("looking after tasks: {error}")))?;
    let levers = clients.sandbox.levers().clone();
    let (guests, cpus, backlog) = (clients.guests.clone(), clients.cpus.clone(), clients.backlog.clone());
    let host = worker::host::Host::start(settings, levers, guests, cpus, backlog);
    let host = host.map_err(|error| failed(format!("looking after this machine's owner: {error}")))?;
    let membership = Membership {
        hub,
        name: worker.name,
        cpus: worker.cpus,
        memory_bytes,
        tags: worker.tags,
        owner: clients.owner_mark(),
        lending: host.lending.clone(),
        ear: host.ear(),
    };
    let ear = host.ear();
    let leaving = async {
        tokio::select! {
            () = stop => {}
            never = worker::sleep::make_way(&clients, &ear) => match never {},
        }
        worker::good_bye::good_bye(&clients, &ear, "its worker was told to end").await;
    };
    tokio::select! {
        () = leaving => Ok(()),
        ended = worker::net::serve(membership, clients.clone(), |_| joined()) => ended.map_err(failed),
        ended = clients.sandbox.ended() => {
            ended.map_err(failed)?;
            Err(failed("the process that starts guests has died: start the worker again"))
        }
    }
}
