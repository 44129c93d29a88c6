//! The client daemon: one for each user, behind a Unix socket (the door), started by the first `remrun` that finds none.
//!
//! It holds the connection to the hub, the views and profiles, the recipe cache, and the committer. Each caller is served
//! by its own task: a command by `run`, a question of `gleaner` by `ask`.

use crate::ask;
use crate::batch::{self, Batches};
use crate::caller::{First, Replies, Requests, receive_first};
use crate::clones::Clones;
use crate::commit::Committer;
use crate::doorway::{self, Door, Held};
use crate::formats::Formats;
use crate::grants::Pins;
use crate::guard::Walks;
use crate::hedge::Hedges;
use crate::here::Here;
use crate::history::History;
use crate::jobs::Jobs;
use crate::link::{Caller, Link, NoHub};
use crate::locks::NewFiles;
use crate::own_pool::OwnPool;
use crate::policy::Trust;
use crate::process_numbers::ProcessNumbers;
use crate::recipes::Recipes;
use crate::record::Records;
use crate::run;
use crate::serve::{Server, blocking};
use crate::settings::{Choices, Look, Settings, Source};
use crate::shadow::Shadow;
use crate::small_file;
use crate::snapshot::Snapshot;
use crate::standing::{self, Callers, Standing};
use crate::unable::Unable;
use crate::views::Views;
use crate::world;
use base::TreePath;
use base::door::{Reply, Request};
use std::collections::HashMap;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use wire::{Joined, Key, Whereabouts, lock};

/// How often caches are saved.
const SAVE_INTERVAL: Duration = Duration::from_secs(30);
/// In the folder of the door: which start of the daemon this is.
const INSTANCE: &str = "instance";
/// How often it is looked whether callers still find the daemon.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
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
    /// What the user has chosen, …
    pub choices: Choices,
    /// … and where that is read again.
    pub settings: Option<Source>,
    /// Whose the hub's workers are, by the user's own word. Unsaid: the user's if the hub shows that it is of this account on this machine,
    /// else the site's.
    pub trust: Option<wire::Trust>,
    /// Results count only if their workers have signed them.
    pub requires_signatures: bool,
    /// Folders of this program: what is there is kept here.
    pub closed: Vec<TreePath>,
}

/// All that callers share.
pub struct Daemon {
    /// How it is set up.
    pub config: Config,
    /// What the user has chosen, as it is now.
    pub(crate) settings: Arc<Settings>,
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
    /// The file systems that clone files.
    pub(crate) clones: Arc<Clones>,
    /// What runs here by our word.
    pub here: Arc<Here>,
    /// What was done twice.
    pub hedges: Arc<Hedges>,
    /// What its commands' processes are called.
    pub process_numbers: Arc<ProcessNumbers>,
    link: Option<Arc<Link>>,
    recipes: Arc<Recipes>,
    stopping: tokio::sync::Notify,
    /// Held for the daemon's life.
    _locks: Vec<std::fs::File>,
    /// What it cannot change of itself.
    pub(crate) standing: Standing,
    callers: Callers,
    trees: Arc<Trees>,
    /// This machine as a pool of its own, for races.
    pub(crate) own_pool: OwnPool,
    /// The projects whose file the user trusts.
    pub(crate) pins: Arc<Pins>,
    /// Where in projects there are ways to what is guarded.
    pub(crate) walks: Arc<Walks>,
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
    // First: a daemon that has the state, and whose runtime folder was emptied, comes back to it meanwhile.
    let state = doorway::take_state(&config.state_dir).await?;
    if let Held::Elsewhere(door) = &state
        && door.parent() == Some(&config.runtime_dir)
    {
        ready();
        return Ok(());
    }
    let lock = doorway::take_lock(&config.runtime_dir).await?;
    let state_lock = match state {
        Held::Here(lock) => lock,
        Held::Elsewhere(door) => {
            doorway::point_to(&config.runtime_dir, &door)?;
            ready();
            return Ok(());
        }
    };
    let daemon = Daemon::new(config, vec![lock, state_lock])?;
    let (door, listener) = Door::open(&daemon.config.runtime_dir, &daemon.config.state_dir)?;
    if !ready() {
        return Ok(());
    }
    Batches::start(&daemon);
    crate::warm::begin(&daemon);
    daemon.serve(door, listener).await;
    daemon.save().await;
    Ok(())
}

/// Who serves the user's files to a pool, with what is known of them in a folder; their states are named by what only the key's holder knows.
fn server_of(key: &Key, recipes: &Arc<Recipes>, state_dir: &Path) -> Arc<Server> {
    let secret = key.secret_for("names of the states of files");
    let snapshot = Arc::new(Snapshot::new(Arc::new(crate::cutter::FileCutter), recipes.clone(), secret));
    let views = Arc::new(Views::new(snapshot, Some(state_dir.join("profiles"))));
    Server::new(views, Shadow::load(&state_dir.join("hub-has")))
}

/// The class of the workers: the user's word, or else what follows from the hub being `is_own`, bounded by what the hub says of them.
fn class_of(word: Option<wire::Trust>, is_own: bool, of_hub: wire::Trust) -> (wire::Trust, &'static str) {
    let (class, why) = match (word, is_own) {
        (Some(class), _) => (class, "as you said"),
        (None, true) => (wire::Trust::Own, "the hub is of this account on this machine"),
        (None, false) => (wire::Trust::Site, "you have not said that they are yours: gleaner use --trust own"),
    };
    if of_hub > class { (of_hub, "as the hub says of one of them") } else { (class, why) }
}

/// Who this start of the daemon is, written down for the next one.
fn caller(config: &Config) -> Caller {
    let path = config.runtime_dir.join(INSTANCE);
    let before = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
    let caller = Caller { name: config.name.clone(), instance: rand::random(), replaces: before.unwrap_or(0) };
    // Whoever knows it is taken for this daemon.
    if let Err(error) = small_file::write(&path, caller.instance.to_string().as_bytes()) {
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

/// A caller that is served.
struct Served(Arc<Daemon>);

impl Served {
    fn new(daemon: &Arc<Daemon>) -> Self {
        daemon.callers.enter();
        Self(daemon.clone())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if self.0.callers.leave() && self.0.batches.open() == 0 {
            self.0.stop();
        }
    }
}

impl Daemon {
    /// Whose the workers are that commands may go to: never closer than the user has said, whatever the hub says of them.
    pub(crate) fn trust(&self) -> Trust {
        Trust::from(self.class().0)
    }

    /// The same as a class, and why it is this one, for people.
    pub(crate) fn class(&self) -> (wire::Trust, &'static str) {
        let is_own = self.link().is_some_and(|link| link.is_own());
        class_of(self.config.trust, is_own, self.link().map_or(wire::Trust::Own, |link| link.class()))
    }

    fn new(config: Config, locks: Vec<std::fs::File>) -> Result<Arc<Self>, DaemonError> {
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
        let server = server_of(&key, &recipes, &config.state_dir);
        let link = match &config.hub {
            Some(hub) => {
                let caller = caller(&config);
                let replaces = caller.replaces != 0;
                let signs = (&key, config.requires_signatures);
                let link = Link::new(hub.clone(), signs, &config.state_dir, caller, server.clone())?;
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
            settings: Arc::new(Settings::new(config.choices, config.settings.clone())),
            server,
            committer,
            records,
            jobs: Jobs::default(),
            batches: Batches::load(&config.state_dir.join("batch")),
            here: Here::new(history.clone()),
            hedges: Arc::default(),
            process_numbers: Arc::new(ProcessNumbers::of_machine()),
            history,
            new_files: Arc::default(),
            formats: Formats::default(),
            clones: Arc::default(),
            unable: Arc::new(Unable::load(&config.state_dir.join("unable.json"))),
            link,
            recipes,
            stopping: tokio::sync::Notify::new(),
            _locks: locks,
            standing: Standing::of_process(),
            callers: Callers::default(),
            trees: Arc::default(),
            own_pool: OwnPool::default(),
            pins: Arc::new(Pins::new(&config.state_dir)),
            walks: Arc::default(),
            config,
        }))
    }

    /// The same daemon towards another pool, with its state in another folder: commits, records and what commands cost are shared.
    pub(crate) fn beside(&self, hub: Arc<Whereabouts>, state_dir: PathBuf) -> Result<Arc<Self>, DaemonError> {
        private_folder(&state_dir.join("spool"))?;
        let key = Key::load_or_create(&state_dir.join("client.key"))?;
        let server = server_of(&key, &self.recipes, &state_dir);
        let caller = Caller { name: self.config.name.clone(), instance: rand::random(), replaces: 0 };
        let signs = (&key, self.config.requires_signatures);
        let link = Link::new(hub.clone(), signs, &state_dir, caller, server.clone())?;
        Ok(Arc::new(Self {
            settings: self.settings.clone(),
            server,
            committer: self.committer.clone(),
            records: self.records.clone(),
            jobs: Jobs::default(),
            batches: Batches::default(),
            here: self.here.clone(),
            hedges: self.hedges.clone(),
            process_numbers: self.process_numbers.clone(),
            history: self.history.clone(),
            new_files: self.new_files.clone(),
            formats: Formats::default(),
            clones: self.clones.clone(),
            unable: self.unable.clone(),
            link: Some(link),
            recipes: self.recipes.clone(),
            stopping: tokio::sync::Notify::new(),
            _locks: Vec::new(),
            standing: Standing::of_process(),
            callers: Callers::default(),
            trees: self.trees.clone(),
            own_pool: OwnPool::default(),
            pins: self.pins.clone(),
            walks: self.walks.clone(),
            // This machine itself.
            config: Config { state_dir, hub: Some(hub), trust: Some(wire::Trust::Own), ..self.config.clone() },
        }))
    }

    async fn serve(self: &Arc<Self>, mut door: Door, mut listener: UnixListener) {
        let mut save = tokio::time::interval(SAVE_INTERVAL);
        let mut look = tokio::time::interval(LOOK_INTERVAL);
        // Of the runtime folder, should it have been made anew.
        let mut lock = None;
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    if let Ok((stream, _)) = accepted {
                        let daemon = self.clone();
                        tokio::spawn(async move { daemon.serve_caller(stream).await });
                    }
                }
                _ = save.tick() => self.save().await,
                _ = look.tick() => {
                    if !door.is_there() {
                        match self.come_back() {
                            Some(again) => (door, listener, lock) = (again.0, again.1, Some(again.2)),
                            None => drop(self.make_way()),
                        }
                    }
                }
                () = self.stopping.notified() => break,
            }
        }
        // Who comes now starts the next daemon, which waits for the end of this one.
        door.close();
        self.own_pool.stop().await;
        if let Some(link) = &self.link {
            link.close().await;
            let _ = std::fs::remove_file(self.config.runtime_dir.join(INSTANCE));
        }
        drop(lock);
    }

    /// Opens the door again in a runtime folder that somebody has emptied; `None` if that cannot be, or another daemon has.
    fn come_back(&self) -> Option<(Door, UnixListener, std::fs::File)> {
        let runtime_dir = &self.config.runtime_dir;
        private_folder(runtime_dir).ok()?;
        let lock = doorway::take_lock_again(runtime_dir)?;
        let opened = Door::open(runtime_dir, &self.config.state_dir);
        let (door, listener) =
            opened.inspect_err(|error| tracing::warn!(%error, "callers do not find this daemon")).ok()?;
        tracing::info!("the runtime folder was emptied; the door is open again");
        Some((door, listener, lock))
    }

    /// Ends once nobody is served, for another daemon to start. Whether that is now: who finds it so starts that one.
    pub(crate) fn make_way(&self) -> bool {
        let is_free = self.callers.make_way() && self.batches.open() == 0;
        if is_free {
            self.stop();
        }
        is_free
    }

    /// Takes over what was changed in the settings; returns what is wrong with them, if that is new. If only another daemon can take them
    /// over, this one ends as soon as it serves nobody, and a caller who finds it so comes again to the next one.
    async fn look_at_settings(&self) -> Option<String> {
        match self.settings.look() {
            Look::Settled => None,
            Look::Wrong(why) => Some(why),
            Look::Outdated => {
                if self.callers.make_way() {
                    self.stop();
                    // Until the end of this process: who came earlier would find the door still open.
                    std::future::pending::<()>().await;
                }
                None
            }
        }
    }

    /// Serves a command, unless this daemon was started under limits that would bind it and not its caller. Then the caller is to
    /// start another one, or to run it itself if this one has others to serve.
    async fn serve_command(self: Arc<Self>, first: First, process: Option<i32>) {
        let First { request, descriptors, requests, mut replies } = first;
        let Request::Run { command, options, window, world, .. } = request else { return };
        if let Some(wrong) = self.look_at_settings().await {
            let _ = replies.send(&Reply::Note(wrong)).await;
        }
        if process.is_some_and(|process| self.standing.is_nicer_than(process)) && self.make_way() {
            return;
        }
        if !standing::may_serve(&self, (&command, process), options.no_local, &mut replies).await {
            return;
        }
        let _served = Served::new(&self);
        match world::obstacle(world, process, command.uid).await {
            None => run::run(self, *command, options, window, descriptors, requests, replies).await,
            Some(why) => world::send_back(&self, &command, &options, why, &mut replies).await,
        }
    }

    async fn serve_caller(self: Arc<Self>, stream: UnixStream) {
        let own = rustix::process::geteuid().as_raw();
        let Some(peer) = stream.peer_cred().ok().filter(|peer| peer.uid() == own) else { return };
        let first = match receive_first(stream).await {
            Ok(first) => first,
            Err(error) => {
                tracing::warn!(%error, "a caller was not understood");
                // It may be of another version, and starts a daemon of its own when this one has ended.
                if error.kind() == io::ErrorKind::InvalidData {
                    self.make_way();
                }
                return;
            }
        };
        if matches!(first.request, Request::Run { .. }) {
            return self.serve_command(first, peer.pid()).await;
        }
        let First { request, mut requests, mut replies, .. } = first;
        match request {
            Request::Job { .. } => {
                let _served = Served::new(&self);
                self.hold_job(&mut requests, &mut replies).await;
            }
            Request::Outcome(task) => {
                let outcome = self.committer.outcome(task);
                let _ = replies.send(&Reply::Outcome(outcome)).await;
            }
            Request::Ask(question) => {
                let ends = ask::ends_daemon(&question);
                if !ends {
                    self.look_at_settings().await;
                }
                let answer = ask::answer(&self, &question).await;
                let _ = replies.send(&Reply::Answer(answer)).await;
                if ends {
                    self.stop();
                }
            }
            Request::Submit { batch, world, .. } => {
                let why = world::obstacle(world, peer.pid(), own).await;
                batch::answer::submit(self, *batch, why, requests, replies).await;
            }
            Request::Run { .. }
            | Request::Tasks(_)
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
    pub async fn connect(&self, patience: Duration) -> Result<(Joined, u64), NoHub> {
        Ok(self.link.as_ref().ok_or(NoHub::NoPool)?.connect(patience).await?)
    }

    /// The turn of commands that must be alone in a tree.
    pub fn tree(&self, root: &TreePath) -> Arc<tokio::sync::Mutex<()>> {
        let mut trees = lock(&self.trees);
        trees.retain(|_, turn| Arc::strong_count(turn) > 1);
        trees.entry(root.clone()).or_default().clone()
    }

    /// Whether no command is served.
    pub(crate) fn is_idle(&self) -> bool {
        self.callers.is_idle()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_s_own_word_is_the_bound_whatever_the_hub_says() {
        use wire::Trust::{Own, Site, Volunteer};
        let class = |word, is_own, of_hub| class_of(word, is_own, of_hub).0;
        assert_eq!(class(Some(Site), false, Own), Site, "a hub that calls a stranger's machine the user's own");
        assert_eq!(class(Some(Site), true, Own), Site);
        assert_eq!(class(Some(Volunteer), true, Own), Volunteer);
        assert_eq!(class(Some(Own), false, Own), Own);
        assert_eq!(class(Some(Own), false, Site), Site, "what the hub says itself is believed where it asks for less");
        assert_eq!(class(None, false, Own), Site, "nobody has said that they are the user's");
        assert_eq!(class(None, true, Own), Own);
        assert_eq!(class(None, true, Site), Site);
    }
}
