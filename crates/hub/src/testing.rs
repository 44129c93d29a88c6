//! Hubs within a test's process.

use crate::above::work_for;
use crate::desk::Room;
use crate::server::{Config, Hub, HubError, Shared};
use base::{Digest, NodeId};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use store::journal::Options;
use wire::message::{Hello, Welcome};
use wire::{Connection, Joined, Receiver, Role, Sender, lock};

/// How long a test waits for anything.
pub const LIMIT: Duration = Duration::from_secs(20);

/// A machine.
pub fn node(number: usize) -> NodeId {
    NodeId(Digest([number as u8; 32]))
}

/// What it says to a hub.
pub fn hello(role: Role, cpus: u32) -> Hello {
    Hello { role: role.number().into(), name: format!("{}{cpus}", role.name()), cpus, ..Hello::default() }
}

/// A hub that serves.
pub struct Served {
    pub node: NodeId,
    pub address: SocketAddr,
    pub metrics: SocketAddr,
    pub shared: Arc<Shared>,
    running: tokio::task::JoinHandle<Result<(), HubError>>,
    stop: tokio::sync::oneshot::Sender<()>,
    _folder: Option<tempfile::TempDir>,
}

/// A machine that was let in by a greeting of its own.
pub struct Greeted {
    pub connection: Connection,
    _control: (Sender, Receiver),
}

/// A hub of this name, without a journal.
pub fn serve_hub(name: &str) -> Served {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let served = serve(folder.path(), name, None, store::Options::default());
    Served { _folder: Some(folder), ..served }
}

/// A hub in this folder, with a small journal.
pub fn serve_journalled(folder: &Path) -> Served {
    serve_storing(folder, store::Options::default())
}

/// The same with a store of these bounds.
pub fn serve_storing(folder: &Path, stores: store::Options) -> Served {
    let options = Options { segment_bytes: 1 << 20, buffer_bytes_max: 1 << 19, ..Options::default() };
    serve(folder, "hub", Some(options), stores)
}

fn serve(folder: &Path, name: &str, journal: Option<Options>, stores: store::Options) -> Served {
    let store = store::BlockStore::open(&folder.join("blocks"), stores).expect("opened");
    let config = Config {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        advertise: Vec::new(),
        state_dir: folder.join("hub"),
        name: name.into(),
        store: Arc::new(store),
        room: Room { hosts: 64, tasks: 1024, bytes_max: 1 << 20 },
        journal,
        lease: None,
        metrics: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
    };
    let hub = Hub::start(config).expect("started");
    let (node, address, shared) = (hub.node(), hub.address(), hub.shared().clone());
    let metrics = hub.metrics_address().expect("they are wanted");
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let running = tokio::spawn(hub.run(async move { drop(stopped.await) }));
    Served { node, address, metrics, shared, running, stop, _folder: None }
}

impl Served {
    /// Ends it at once, as a kill would: what it had in memory is gone.
    pub async fn kill(self) {
        self.running.abort();
        let _ = self.running.await;
        let shared = self.shared;
        // What serves its connections ends by and by.
        while Arc::strong_count(&shared) > 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Has it end in good order.
    pub async fn end(self) {
        let _ = self.stop.send(());
        self.running.await.expect("no panic").expect("no error");
    }

    /// Has it work for another.
    pub fn work_for(&self, above: &Served) -> tokio::task::JoinHandle<Result<(), HubError>> {
        lock(&above.shared.registry).add(self.node, "worker", "behind", 1).expect("let in");
        let (shared, node, address) = (self.shared.clone(), above.node, above.address);
        let above = Arc::new(wire::Whereabouts::new(node, vec![address]));
        tokio::spawn(work_for(shared, above))
    }

    /// Waits until so many CPUs are lent here.
    pub async fn lends(&self, cpus: u32) {
        let mut lent = lock(&self.shared.state).lent.subscribe();
        let seen = tokio::time::timeout(LIMIT, lent.wait_for(|lent| lent.cpus == cpus)).await;
        assert!(seen.is_ok(), "{:?}", lock(&self.shared.state).lent.borrow());
    }

    /// A connection of a machine of this role.
    pub async fn join(&self, number: usize, hello: Hello) -> Joined {
        wire::join(self.connect(number, &hello), hello).await.expect("joined")
    }

    /// The same of one that speaks this version of the protocol.
    pub async fn greet_in(&self, number: usize, version: u32, hello: Hello) -> Greeted {
        let connection = self.connect(number, &hello);
        let (mut sender, mut receiver) = connection.open_control().await.expect("a stream");
        sender.greet(&Hello { version, ..hello }).await.expect("sent");
        let welcome: Welcome = receiver.next().await.expect("heard").expect("a welcome");
        assert_eq!((&welcome.refusal[..], welcome.version), ("", version));
        Greeted { connection, _control: (sender, receiver) }
    }

    fn connect(&self, number: usize, hello: &Hello) -> Connection {
        let role = Role::from_number(hello.role).expect("a role");
        lock(&self.shared.registry).add(node(number), role.name(), "machine", 1).expect("let in");
        let (theirs, ours) = Connection::within_process(node(number), self.node);
        let shared = self.shared.clone();
        tokio::spawn(async move { shared.serve(ours).await });
        theirs
    }
}
