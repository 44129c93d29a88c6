//! Connected clients and workers, as the hub sees them.

use base::{Bound, Digest, NodeId, Seq, TaskId, Tenant, TreePath, Version, ViewId, ViewUpdate};
use bytes::Bytes;
use mirror::{Cursor, View};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use store::BlockStore;
use tokio::sync::Notify;
use wire::without::{Part, is_left_out};
use wire::{Connection, FetchError, Fetcher, convert, message};

/// How long a launch waits for the launch before it, when they come over different streams.
const GAP_LIMIT: Duration = Duration::from_secs(5);
/// Most files whose lazily read pieces are remembered; the table is emptied beyond.
const STAMPS_MAX: usize = 100_000;

/// A client's name for its hub and workers: its node id and the number of its daemon's start. View numbers, versions and
/// binding numbers are unique within it.
pub type SessionKey = Bytes;

/// The session key of the daemon start `instance` at `node`.
pub fn session_key(node: NodeId, instance: u64) -> SessionKey {
    Bytes::from([&node.0.0[..], &instance.to_be_bytes()].concat())
}

/// A connected client.
pub struct ClientSession {
    /// Its node id.
    pub node: NodeId,
    /// Its name for workers.
    pub key: SessionKey,
    /// Name for people.
    pub name: String,
    /// Whose blocks it may read.
    pub tenant: Tenant,
    /// Its connection.
    pub connection: Connection,
    fetcher: Fetcher,
    store: Arc<BlockStore>,
    views: Mutex<HashMap<ViewId, View>>,
    advanced: Notify,
    pieces: Mutex<HashMap<(Digest, u64), Digest>>,
}

impl ClientSession {
    /// A session over `connection`.
    pub fn new(
        connection: Connection,
        name: String,
        instance: u64,
        tenant: Tenant,
        store: Arc<BlockStore>,
    ) -> Arc<Self> {
        let node = connection.peer();
        let kept = store.clone();
        // The fetcher has compared name and bytes.
        let keep =
            Arc::new(move |digest: Digest, bytes: &Bytes| report(kept.put_checked(tenant, digest, bytes), digest));
        let fetcher = Fetcher::new(connection.clone(), Bytes::new(), keep);
        Arc::new(Self {
            node,
            key: session_key(node, instance),
            name,
            tenant,
            connection,
            fetcher,
            store,
            views: Mutex::default(),
            advanced: Notify::new(),
            pieces: Mutex::default(),
        })
    }

    /// Takes a launch's step of a view. Waits a little for the step before it, which may come over a slower stream.
    pub async fn advance(&self, update: &ViewUpdate) -> Result<(), Gap> {
        let arrived = async {
            loop {
                let advanced = self.advanced.notified();
                tokio::pin!(advanced);
                // Registered before the look, so that a step between the look and the wait is not missed.
                advanced.as_mut().enable();
                if self.take(update) {
                    return;
                }
                advanced.await;
            }
        };
        let taken = tokio::time::timeout(GAP_LIMIT, arrived).await.map_err(|_| Gap);
        self.advanced.notify_waiters();
        taken
    }

    fn take(&self, update: &ViewUpdate) -> bool {
        let mut views = self.lock_views();
        views.entry(update.view).or_insert_with(|| View::new(update.view)).take(update).is_ok()
    }

    /// What takes a worker that was sent a view up to `since` to where it is now, and where that is.
    pub fn update_from(&self, view: ViewId, since: Option<Cursor>) -> Option<(ViewUpdate, Cursor)> {
        let views = self.lock_views();
        let known = views.get(&view)?;
        let update = match since {
            Some(since) => known.update_from(since),
            None => known.update_since(Version(0)),
        };
        Some((update, known.cursor()))
    }

    /// What a path is in a view: known, or asked of the client.
    pub async fn bind(&self, view: ViewId, task: TaskId, path: TreePath) -> Result<message::BindReply, FetchError> {
        let known = self.lock_views().get(&view).and_then(|known| known.get(&path).cloned());
        if let Some(bound) = known {
            let bound = message::Bound::from(&*bound);
            return Ok(message::BindReply { bounds: vec![bound], ..message::BindReply::default() });
        }
        let reply = self.fetcher.bind(view, task, path).await?;
        for object in &reply.objects {
            self.keep(object);
        }
        let mut views = self.lock_views();
        let known = views.entry(view).or_insert_with(|| View::new(view));
        for bound in &reply.bounds {
            match Bound::try_from(bound.clone()) {
                Ok(bound) if bound.seq > Seq(0) => {
                    known.learn(bound);
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(client = %self.node, %error, "a binding was dropped"),
            }
        }
        Ok(reply)
    }

    /// An object of this client: from the store, or asked of the client.
    pub async fn object(&self, digest: Digest) -> Result<Bytes, FetchError> {
        match self.store.get(self.tenant, &digest) {
            Ok(_) if is_left_out(Part::CacheSharing) => {}
            Ok(Some(bytes)) => return Ok(Bytes::from(bytes)),
            Ok(None) => {}
            Err(error) => tracing::warn!(%digest, %error, "the block store failed; asking the client again"),
        }
        self.fetcher.object(digest).await
    }

    /// Pieces of a lazily bound file.
    pub async fn pieces(&self, stamp: Digest, first: u64, count: u32) -> Result<Vec<(Digest, Bytes)>, FetchError> {
        if let Some(known) = self.known_pieces(stamp, first, count).filter(|_| !is_left_out(Part::CacheSharing)) {
            return Ok(known);
        }
        let named = self.fetcher.pieces(stamp, first, count).await?;
        let mut table = lock(&self.pieces);
        if table.len() > STAMPS_MAX {
            table.clear();
        }
        for (number, (digest, _)) in (first..).zip(&named) {
            table.insert((stamp, number), *digest);
        }
        Ok(named)
    }

    fn known_pieces(&self, stamp: Digest, first: u64, count: u32) -> Option<Vec<(Digest, Bytes)>> {
        let digests: Vec<Digest> = {
            let table = lock(&self.pieces);
            (first..first + u64::from(count)).map(|at| table.get(&(stamp, at)).copied()).collect::<Option<_>>()?
        };
        let read = |digest: Digest| {
            self.store.get(self.tenant, &digest).ok().flatten().map(|bytes| (digest, Bytes::from(bytes)))
        };
        digests.into_iter().map(read).collect()
    }

    /// Keeps an object that came unasked, if its name is right.
    pub fn keep(&self, object: &message::Object) {
        match convert::digest(&object.digest) {
            Ok(digest) => report(self.store.put_named(self.tenant, digest, &object.bytes), digest),
            Err(error) => tracing::warn!(client = %self.node, %error, "an object was dropped"),
        }
    }

    fn lock_views(&self) -> MutexGuard<'_, HashMap<ViewId, View>> {
        lock(&self.views)
    }
}

/// The hub does not have the version that a view update starts from.
#[derive(Clone, Copy, Debug)]
pub struct Gap;

/// A store that fails is a cache that misses.
fn report(kept: Result<(), store::StoreError>, digest: Digest) {
    if let Err(error) = kept {
        tracing::warn!(%digest, %error, "an object was not kept");
    }
}

/// A connected worker.
pub struct WorkerSession {
    /// Its node id.
    pub node: NodeId,
    /// Name for people.
    pub name: String,
    /// CPUs that it lends.
    pub cpus: u32,
    /// Instruction set and CPU model.
    pub platform: String,
    /// Its connection.
    pub connection: Connection,
    /// How far it was sent each client's views.
    sent: Mutex<HashMap<(SessionKey, ViewId), Cursor>>,
}

impl WorkerSession {
    /// A session over `connection`.
    pub fn new(connection: Connection, name: String, cpus: u32, platform: String) -> Arc<Self> {
        let node = connection.peer();
        Arc::new(Self { node, name, cpus: cpus.max(1), platform, connection, sent: Mutex::default() })
    }

    /// The update that this worker needs before it runs a task in `view`; noted as sent.
    pub fn update_for(&self, client: &ClientSession, view: ViewId) -> Option<ViewUpdate> {
        let mut sent = lock(&self.sent);
        let at = (client.key.clone(), view);
        let (update, cursor) = client.update_from(view, sent.get(&at).copied())?;
        sent.insert(at, cursor);
        Some(update)
    }

    /// Whether it was sent this view.
    pub fn knows(&self, client: &SessionKey, view: ViewId) -> bool {
        lock(&self.sent).contains_key(&(client.clone(), view))
    }

    /// Forgets what it was sent of this client: the next launch sends the whole view.
    pub fn forget(&self, client: &SessionKey) {
        lock(&self.sent).retain(|(key, _), _| key != client);
    }
}

/// Locks; a panic of another holder has not broken what is inside, which changes by single steps.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
