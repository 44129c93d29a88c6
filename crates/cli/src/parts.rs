//! The only place where `gleaner` calls hub, worker and client daemon. All that is above knows these functions alone.
//!
//! [`prepare_sandbox`] must come before any thread: the others start an async runtime of their own.

use crate::config::KnownHub;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// A part failed.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    /// This build does not have the part.
    #[error("this build has no {0}")]
    Unavailable(&'static str),
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
}

/// What a worker is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerConfig {
    /// The hub it works for; none in one process with the hub.
    pub hub: Option<KnownHub>,
    /// Its own folder: keys, mounts, blocks. Exists, mode 0700.
    pub state_dir: PathBuf,
    /// This machine's name.
    pub name: String,
    /// CPUs that it offers.
    pub cpus: u32,
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
}

/// A sandbox that was prepared while the process had a single thread.
#[derive(Debug)]
pub struct Sandbox(());

/// Prepares this process to run guests. Call it before any thread exists.
pub fn prepare_sandbox(_worker: &WorkerConfig) -> Result<Sandbox, PartError> {
    Err(PartError::Unavailable("worker"))
}

/// Runs a hub until it is told to end by SIGTERM or SIGINT.
pub fn run_hub(_hub: HubConfig, _ready: OnReady<HubReady>) -> Result<(), PartError> {
    Err(PartError::Unavailable("hub"))
}

/// Runs a hub and a worker of it in this process, until told to end by SIGTERM or SIGINT.
pub fn run_both(
    _hub: HubConfig,
    _worker: WorkerConfig,
    _sandbox: Sandbox,
    _ready: OnReady<HubReady>,
) -> Result<(), PartError> {
    Err(PartError::Unavailable("hub"))
}

/// Runs a worker until told to end by SIGTERM or SIGINT. It is ready once the hub has accepted it.
pub fn run_worker(_worker: WorkerConfig, _sandbox: Sandbox, _ready: OnReady<()>) -> Result<(), PartError> {
    Err(PartError::Unavailable("worker"))
}

/// Runs the client daemon until [`client::report::Question::Stop`] or SIGTERM. `ready`: where it writes
/// [`base::door::READY`] once it listens, or why it cannot.
pub fn run_client(_client: ClientConfig, _ready: Option<OwnedFd>) -> Result<(), PartError> {
    Err(PartError::Unavailable("client daemon"))
}

/// Redeems a token: makes this machine's key in `state_dir` if there is none, binds it at the hub, and tells which hub
/// that is. May start threads, so the process must not go on to prepare a sandbox.
pub fn redeem(_token: &str, _joiner: Joiner, _state_dir: &std::path::Path) -> Result<KnownHub, PartError> {
    Err(PartError::Unavailable("connection to a hub"))
}
