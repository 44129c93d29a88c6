//! The client daemon: one for each user, behind a Unix socket (the door), started by the first `remrun` that finds none.
//!
//! It holds the connection to the hub, the views and profiles, the recipe cache, and the committer. Each caller is served
//! by its own task: a command by `run`, a question of `gleaner` by `ask`.

use crate::ask;
use crate::batch::{self, Batches};
use crate::caller::{First, Replies, Requests, receive_first};
use crate::commit::Committer;
use crate::formats::Formats;
use crate::hedge::Hedges;
use crate::here::Here;
use crate::history::History;
use crate::jobs::Jobs;
use crate::link::{Caller, Link};
use crate::locks::NewFiles;
use crate::networks::Networks;
use crate::own_pool::OwnPool;
use crate::policy::Trust;
use crate::recipes::Recipes;
use crate::record::Records;
use crate::run;
use crate::serve::{Server, blocking};
use crate::shadow::Shadow;
use crate::snapshot::Snapshot;
use crate::unable::Unable;
use crate::views::Views;
use crate::world;
use base::TreePath;
use base::door::{self, Reply, Request};
use std::collections::HashMap;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::{UnixListener, UnixStream};
use wire::{Joined, Key, Whereabouts, lock};

/// How often caches are saved.
const SAVE_INTERVAL: Duration = Duration::from_secs(30);
/// In the folder of the door: which start of the daemon this is.
const INSTANCE: &str = "instance";
/// How long an earlier daemon may take to end, and how often it is looked whether it has.
const PREDECESSOR_TIME_MAX: Duration = Duration::from_secs(4);
const PREDECESSOR_PAUSE: Duration = Duration::from_millis(10);
/// Memory for recipes, bytes.
const RECIPE_BYTES_MAX: usize = 64 << 20;

/// How a client daemon is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Folder of the door: private to the user.
    pub runtime_dir: PathBuf,
    /// Folder for key, caches and deltas that were not committed: private to the user.
    pub state_dir: PathBuf,
    /// The user's home.
    pub home: Option<TreePath>,
    /// Name for people.
    pub name: String,
    /// Which hub; `None`: commands run on this machine alone.
    pub hub: Option<Arc<Whereabouts>>,
    /// Flush commits to disk.
    pub durable: bool,
    /// How long commands that run wait for a link that is down; those that have run for longer wait for as long as that.
    pub link_wait: Duration,
    /// Where commands run that could run here as well.
    pub prefer: Prefer,
    /// The workers are the user's own: all but secrets may go there.
    pub own_workers: bool,
}

impl Config {
    /// Whose the workers are.
    pub fn trust(&self) -> Trust {
        if self.own_workers { Trust::Own } else { Trust::Others }
    }
}

/// Where commands run that could run here as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefer {
    /// Where they are expected to end first.
    #[default]
    Auto,
    /// On the pool, whatever it costs.
    There,
}

/// All that callers share.
pub struct Daemon {
    /// How it is set up.
    pub config: Config,
    /// Answers the hub.
    pub server: Arc<Server>,
    /// Changes the user's files.
    pub committer: Arc<Committer>,
    /// What became of the last tasks.
    pub records: Arc<Records>,
    /// The jobs that are open.
    pub jobs: Jobs,
    /// The batch jobs.
    pub batches: Batches,
    /// What commands have cost.
    pub history: Arc<History>,
    /// What cannot be done elsewhere, as was learnt from tasks that were called off.
    pub unable: Arc<Unable>,
    /// What tasks have locked that is not here yet.
    pub(crate) new_files: Arc<NewFiles>,
    /// The formats of programs that only this machine runs.
    pub(crate) formats: Formats,
    /// What runs here by our word.
    pub here: Arc<Here>,
    /// What was done twice.
    pub hedges: Arc<Hedges>,
    link: Option<Arc<Link>>,
    recipes: Arc<Recipes>,
    stopping: tokio::sync::Notify,
    /// Held for the daemon's life.
    _lock: Option<std::fs::File>,
    trees: Arc<Trees>,
    /// This machine as a pool of its own, for races.
    pub(crate) own_pool: OwnPool,
}

/// Trees in which commands run one after the other.
type Trees = Mutex<HashMap<TreePath, Arc<tokio::sync::Mutex<()>>>>;

/// A client daemon cannot start.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// A folder cannot be used.
    #[error("cannot use the folder {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Another daemon serves this user.
    #[error("a client daemon is running already: it holds {}", .0.display())]
    Running(PathBuf),
    /// The socket cannot be made.
    #[error("cannot listen on {}: {source}", path.display())]
    Listen {
        /// The socket.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The key cannot be used.
    #[error(transparent)]
    Key(#[from] wire::key::KeyError),
    /// The network cannot be used.
    #[error(transparent)]
    Wire(#[from] wire::WireError),
    /// What earlier commits left cannot be settled.
    #[error("the state folder's commits cannot be settled: {0}")]
    Commit(#[from] crate::commit::CommitError),
}

/// Runs the daemon until it is told to stop. `ready` is called once callers can connect; if it returns false, the daemon ends
/// without serving any. Must run in a tokio runtime.
pub async fn run(config: Config, ready: impl FnOnce() -> bool) -> Result<(), DaemonError> {
    private_folder(&config.runtime_dir)?;
    private_folder(&config.state_dir)?;
    let lock = take_lock(&config.runtime_dir).await?;
    let socket = config.runtime_dir.join(door::SOCKET_NAME);
    let daemon = Daemon::new(config, lock)?;
    let failed = |source| DaemonError::Listen { path: socket.clone(), source };
    match std::fs::remove_file(&socket) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let listener = UnixListener::bind(&socket).map_err(failed)?;
    std::fs::set_permissions(&socket, PermissionsExt::from_mode(0o600)).map_err(failed)?;
    if !ready() {
        return Ok(());
    }
    Batches::start(&daemon);
    daemon.serve(listener, &socket).await;
    daemon.save().await;
    Ok(())
}

/// Who this start of the daemon is, written down for the next one.
fn caller(config: &Config) -> Caller {
    let path = config.runtime_dir.join(INSTANCE);
    let before = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
    let caller = Caller { name: config.name.clone(), instance: rand::random(), replaces: before.unwrap_or(0) };
    if let Err(error) = std::fs::write(&path, caller.instance.to_string()) {
        tracing::info!(%error, "should this daemon be killed, its tasks will end late");
    }
    caller
}

fn private_folder(path: &Path) -> Result<(), DaemonError> {
    let folder = |source| DaemonError::Folder { path: path.to_owned(), source };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(folder)?;
    let found = std::fs::symlink_metadata(path).map_err(folder)?;
    let mine = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
    if !mine {
        return Err(folder(io::Error::new(io::ErrorKind::PermissionDenied, "it is not a folder of this user's")));
    }
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o700)).map_err(folder)
}

/// Waits for a daemon that was told to end, and writes down what it knows.
async fn take_lock(runtime_dir: &Path) -> Result<std::fs::File, DaemonError> {
    use rustix::fs::{FlockOperation, flock};
    let path = runtime_dir.join("daemon.lock");
    let opened = std::fs::File::options().create(true).truncate(false).write(true).open(&path);
    let file = opened.map_err(|source| DaemonError::Folder { path: path.clone(), source })?;
    let give_up = Instant::now() + PREDECESSOR_TIME_MAX;
    while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        if Instant::now() > give_up {
            return Err(DaemonError::Running(path));
        }
        tokio::time::sleep(PREDECESSOR_PAUSE).await;
    }
    Ok(file)
}

impl Daemon {
    fn new(config: Config, lock: std::fs::File) -> Result<Arc<Self>, DaemonError> {
        let key = Key::load_or_create(&config.state_dir.join("client.key"))?;
        let committer = Arc::new(Committer::open(&config.state_dir.join("commit"))?);
        let recovered = committer.recover()?;
        for (task, why) in recovered.stuck {
            tracing::warn!(%task, why, "a commit that stopped in the middle can be neither finished nor undone yet");
        }
        for (task, why) in recovered.set_aside {
            let what = "a commit that stopped in the middle can be neither finished nor undone: it is kept for gleaner recover";
            tracing::error!(%task, why, "{what}");
        }
        private_folder(&config.state_dir.join("spool"))?;
        let recipes = Arc::new(Recipes::load(&config.state_dir, RECIPE_BYTES_MAX));
        let snapshot = Arc::new(Snapshot::new(Arc::new(crate::cutter::FileCutter), recipes.clone()));
        let views = Arc::new(Views::new(snapshot, Some(config.state_dir.join("profiles"))));
        let server = Server::new(views, Shadow::load(&config.state_dir.join("hub-has")));
        let link = match &config.hub {
            Some(hub) => {
                let networks = Networks::load(&config.state_dir.join("networks.json"));
                let caller = caller(&config);
                let replaces = caller.replaces != 0;
                let link = Link::new(hub.clone(), &key, caller, server.clone(), networks)?;
                if replaces {
                    // What ran for the daemon before this one is to end.
                    let link = link.clone();
                    tokio::spawn(async move { drop(link.connect(Duration::ZERO).await) });
                }
                Some(link)
            }
            None => None,
        };
        let records = Arc::new(Records::open(&config.state_dir));
        let history = Arc::new(History::load(&config.state_dir.join("history.json")));
        Ok(Arc::new(Self {
            server,
            committer,
            records,
            jobs: Jobs::default(),
            batches: Batches::load(&config.state_dir.join("batch")),
            here: Here::new(history.clone()),
            hedges: Arc::default(),
            history,
            new_files: Arc::default(),
            formats: Formats::default(),
            unable: Arc::new(Unable::load(&config.state_dir.join("unable.json"))),
            link,
            recipes,
            stopping: tokio::sync::Notify::new(),
            _lock: Some(lock),
            trees: Arc::default(),
            own_pool: OwnPool::default(),
            config,
        }))
    }

    /// The same daemon towards another pool, with its state in another folder: commits, records and what commands cost are shared.
    pub(crate) fn beside(&self, hub: Arc<Whereabouts>, state_dir: PathBuf) -> Result<Arc<Self>, DaemonError> {
        private_folder(&state_dir.join("spool"))?;
        let key = Key::load_or_create(&state_dir.join("client.key"))?;
        let snapshot = Arc::new(Snapshot::new(Arc::new(crate::cutter::FileCutter), self.recipes.clone()));
        let views = Arc::new(Views::new(snapshot, Some(state_dir.join("profiles"))));
        let server = Server::new(views, Shadow::load(&state_dir.join("hub-has")));
        let networks = Networks::load(&state_dir.join("networks.json"));
        let caller = Caller { name: self.config.name.clone(), instance: rand::random(), replaces: 0 };
        let link = Link::new(hub.clone(), &key, caller, server.clone(), networks)?;
        Ok(Arc::new(Self {
            server,
            committer: self.committer.clone(),
            records: self.records.clone(),
            jobs: Jobs::default(),
            batches: Batches::default(),
            here: self.here.clone(),
            hedges: self.hedges.clone(),
            history: self.history.clone(),
            new_files: self.new_files.clone(),
            formats: Formats::default(),
            unable: self.unable.clone(),
            link: Some(link),
            recipes: self.recipes.clone(),
            stopping: tokio::sync::Notify::new(),
            _lock: None,
            trees: self.trees.clone(),
            own_pool: OwnPool::default(),
            config: Config { state_dir, hub: Some(hub), ..self.config.clone() },
        }))
    }

    async fn serve(self: &Arc<Self>, listener: UnixListener, socket: &Path) {
        let mut save = tokio::time::interval(SAVE_INTERVAL);
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    if let Ok((stream, _)) = accepted {
                        let daemon = self.clone();
                        tokio::spawn(async move { daemon.serve_caller(stream).await });
                    }
                }
                _ = save.tick() => self.save().await,
                () = self.stopping.notified() => break,
            }
        }
        self.own_pool.stop().await;
        if let Some(link) = &self.link {
            link.close().await;
            let _ = std::fs::remove_file(self.config.runtime_dir.join(INSTANCE));
        }
        let _ = std::fs::remove_file(socket);
    }

    async fn serve_caller(self: Arc<Self>, stream: UnixStream) {
        let own = rustix::process::geteuid().as_raw();
        let Some(peer) = stream.peer_cred().ok().filter(|peer| peer.uid() == own) else { return };
        let first = match receive_first(stream).await {
            Ok(first) => first,
            Err(error) => {
                tracing::warn!(%error, "a caller was not understood");
                return;
            }
        };
        let First { request, descriptors, mut requests, mut replies } = first;
        match request {
            Request::Run { command, options, window, world, .. } => {
                match world::obstacle(world, peer.pid(), command.uid).await {
                    None => run::run(self, *command, options, window, descriptors, requests, replies).await,
                    Some(why) => world::send_back(&self, &command, &options, why, &mut replies).await,
                }
            }
            Request::Job { .. } => self.hold_job(&mut requests, &mut replies).await,
            Request::Outcome(task) => {
                let outcome = self.committer.outcome(task);
                let _ = replies.send(&Reply::Outcome(outcome)).await;
            }
            Request::Ask(question) => {
                let answer = ask::answer(&self, &question).await;
                let _ = replies.send(&Reply::Answer(answer)).await;
            }
            Request::Submit { batch, world, .. } => {
                let why = world::obstacle(world, peer.pid(), own).await;
                batch::answer::submit(self, *batch, why, requests, replies).await;
            }
            Request::Tasks(_)
            | Request::Submitted
            | Request::Signal(_)
            | Request::Resize(_)
            | Request::Foreground(_) => {}
        }
    }

    /// Opens a job, and keeps it open until the caller goes.
    async fn hold_job(&self, requests: &mut Requests, replies: &mut Replies) {
        match self.jobs.open() {
            Ok(job) => {
                if replies.send(&Reply::Job(job.id())).await.is_ok() {
                    while requests.next().await.is_some() {}
                }
            }
            Err(message) => {
                let _ = replies.send(&Reply::Failed { message, code: run::CODE_FAILED }).await;
            }
        }
    }

    /// The connection to the hub, and its number. The error says why there is none, or that nothing was heard over it within
    /// `patience`.
    pub async fn connect(&self, patience: Duration) -> Result<(Joined, u64), String> {
        match &self.link {
            None => Err("no pool is configured (gleaner up, or gleaner use TOKEN)".into()),
            Some(link) => link.connect(patience).await.map_err(|error| error.to_string()),
        }
    }

    /// The turn of commands that must be alone in a tree.
    pub fn tree(&self, root: &TreePath) -> Arc<tokio::sync::Mutex<()>> {
        let mut trees = lock(&self.trees);
        trees.retain(|_, turn| Arc::strong_count(turn) > 1);
        trees.entry(root.clone()).or_default().clone()
    }

    /// The link to the hub, if one is configured.
    pub fn link(&self) -> Option<&Arc<Link>> {
        self.link.as_ref()
    }

    /// Where results wait for their commit.
    pub fn spool_folder(&self) -> PathBuf {
        self.config.state_dir.join("spool")
    }

    /// Ends the daemon.
    pub fn stop(&self) {
        self.stopping.notify_one();
    }

    async fn save(self: &Arc<Self>) {
        let daemon = self.clone();
        let saved = blocking(move || {
            daemon.recipes.save(&daemon.config.state_dir)?;
            daemon.server.save_shadow()?;
            daemon.history.save()?;
            daemon.unable.save()?;
            daemon.server.views().save()
        });
        if let Some(Err(error)) = saved.await {
            tracing::warn!(%error, "caches could not be saved");
        }
    }
}
