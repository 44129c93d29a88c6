//! Connected clients and workers, as the hub sees them.

use base::{Bound, Digest, NodeId, Seq, TaskId, Tenant, TreePath, Version, ViewId, ViewUpdate};
use bytes::Bytes;
use mirror::{Cursor, View};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use store::BlockStore;
use tokio::sync::Notify;
use wire::{Connection, FetchError, Fetcher, convert, message};

/// How long a launch waits for the launch before it, when they come over different streams.
const GAP_LIMIT: Duration = Duration::from_secs(5);
/// Most views of one client that are held. Beyond, the one longest unused goes: its next launch is told that there is a gap,
/// and sends the whole view.
const VIEWS_MAX: usize = 192;
/// Most views of which it is known how far a worker was sent them; the table is emptied beyond.
const SENT_MAX: usize = 16_384;
/// Most files whose lazily read pieces are remembered; the table is emptied beyond.
const STAMPS_MAX: usize = 100_000;

/// A client's name for its hub and workers: its node id and the number of its daemon's start. View numbers, versions and
/// binding numbers are unique within it.
pub type SessionKey = Bytes;

/// The session key of the daemon start `instance` at `node`.
pub fn session_key(node: NodeId, instance: u64) -> SessionKey {
    Bytes::from([&node.0.0[..], &instance.to_be_bytes()].concat())
}

/// The views of one client.
#[derive(Default)]
struct Views {
    held: HashMap<ViewId, Held>,
    uses: u64,
}

struct Held {
    view: View,
    /// The view that it was copied from.
    origin: Option<ViewId>,
    used: u64,
}

/// A view that is to begin as a copy of another.
pub struct Copied {
    /// The step of that view that leads to the version that is copied.
    pub step: ViewUpdate,
    /// Bindings with larger numbers are left out.
    pub seq_max: Seq,
}

impl Views {
    fn get(&self, view: ViewId) -> Option<&View> {
        self.held.get(&view).map(|held| &held.view)
    }

    /// The view, made if need be.
    fn entry(&mut self, view: ViewId) -> &mut View {
        self.insert_with(view, None, || View::new(view))
    }

    fn insert_with(&mut self, view: ViewId, origin: Option<ViewId>, make: impl FnOnce() -> View) -> &mut View {
        self.uses += 1;
        if !self.held.contains_key(&view) && self.held.len() >= VIEWS_MAX {
            let oldest = self.held.iter().min_by_key(|(_, held)| held.used).map(|(view, _)| *view);
            oldest.map(|view| self.held.remove(&view));
        }
        let held = self.held.entry(view).or_insert_with(|| Held { view: make(), origin, used: 0 });
        held.used = self.uses;
        &mut held.view
    }

    /// Takes the step of the view that is to be copied, and copies it, unless that was done. False if the version to be
    /// copied is not here, yet or any more.
    fn copy(&mut self, copied: &Copied, to: ViewId) -> bool {
        let from = copied.step.view;
        let taken = self.entry(from).take(&copied.step).is_ok();
        if self.get(to).is_some_and(|view| view.version() != Version(0)) {
            return true;
        }
        if !taken {
            return false;
        }
        let copy = match self.get(from) {
            Some(source) if source.version() == copied.step.version => source.copy_as(to, copied.seq_max),
            _ => return false,
        };
        self.held.remove(&to);
        self.insert_with(to, Some(from), || copy);
        true
    }
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
    views: Mutex<Views>,
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

    /// Takes a launch's step of a view, which is `copied` first from another if it is new. Waits a little for the step before it, which may come over a slower stream.
    pub async fn advance(&self, copied: Option<&Copied>, update: &ViewUpdate) -> Result<(), Gap> {
        let arrived = async {
            loop {
                let advanced = self.advanced.notified();
                tokio::pin!(advanced);
                // Registered before the look, so that a step between the look and the wait is not missed.
                advanced.as_mut().enable();
                if self.take(copied, update) {
                    return;
                }
                advanced.await;
            }
        };
        let taken = tokio::time::timeout(GAP_LIMIT, arrived).await.map_err(|_| Gap);
        self.advanced.notify_waiters();
        taken
    }

    fn take(&self, copied: Option<&Copied>, update: &ViewUpdate) -> bool {
        let mut views = self.lock_views();
        copied.is_none_or(|copied| views.copy(copied, update.view)) && views.entry(update.view).take(update).is_ok()
    }

    /// The view that this one was copied from.
    pub fn origin(&self, view: ViewId) -> Option<ViewId> {
        self.lock_views().held.get(&view)?.origin
    }

    /// What takes a worker that was sent a view up to `since` to where it is now, and where that is.
    pub fn update_from(&self, view: ViewId, since: Option<Cursor>) -> Option<(ViewUpdate, Cursor)> {
        let views = self.lock_views();
        let known = views.get(view)?;
        let update = match since {
            Some(since) => known.update_from(since),
            None => known.update_since(Version(0)),
        };
        Some((update, known.cursor()))
    }

    /// What a path is in a view: known, or asked of the client.
    pub async fn bind(&self, view: ViewId, task: TaskId, path: TreePath) -> Result<message::BindReply, FetchError> {
        let known = self.lock_views().get(view).and_then(|known| known.get(&path).cloned());
        if let Some(bound) = known {
            let bound = message::Bound::from(&*bound);
            return Ok(message::BindReply { bounds: vec![bound], ..message::BindReply::default() });
        }
        let reply = self.fetcher.bind(view, task, path).await?;
        for object in &reply.objects {
            self.keep(object);
        }
        let mut views = self.lock_views();
        let known = views.entry(view);
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
            Ok(Some(bytes)) => return Ok(Bytes::from(bytes)),
            Ok(None) => {}
            Err(error) => tracing::warn!(%digest, %error, "the block store failed; asking the client again"),
        }
        self.fetcher.object(digest).await
    }

    /// Pieces of a lazily bound file.
    pub async fn pieces(&self, stamp: Digest, first: u64, count: u32) -> Result<Vec<(Digest, Bytes)>, FetchError> {
        if let Some(known) = self.known_pieces(stamp, first, count) {
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

    fn lock_views(&self) -> MutexGuard<'_, Views> {
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
        if sent.len() >= SENT_MAX {
            sent.clear();
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use base::Binding;

    fn step(view: u64, base: u64, version: u64, seqs: &[u64]) -> ViewUpdate {
        let bound = |seq: &u64| Bound {
            path: TreePath::root().join(seq.to_string().as_bytes()),
            seq: Seq(*seq),
            binding: Binding::Absent,
        };
        let set = seqs.iter().map(bound).collect();
        ViewUpdate { view: ViewId(view), base: Version(base), version: Version(version), set, drop: Vec::new() }
    }

    #[test]
    fn a_job_s_view_is_a_copy_that_others_leave_alone() {
        let mut views = Views::default();
        let copied = Copied { step: step(1, 0, 4, &[1, 2, 3]), seq_max: Seq(2) };
        assert!(views.copy(&copied, ViewId(9)));
        let own = step(9, 4, 5, &[8]);
        views.entry(ViewId(9)).take(&own).expect("it follows");
        views.entry(ViewId(1)).take(&step(1, 4, 5, &[7])).expect("it follows");
        // The same launch once more, as after a lost answer: the copy stays as it is.
        assert!(views.copy(&Copied { step: step(1, 4, 4, &[]), seq_max: Seq(2) }, ViewId(9)));
        let paths = |view: u64| views.get(ViewId(view)).map(View::len);
        assert_eq!((paths(1), paths(9)), (Some(4), Some(3)), "2 of 3 copied, and one of its own");
        assert_eq!(views.held[&ViewId(9)].origin, Some(ViewId(1)));
    }

    #[test]
    fn what_cannot_be_copied_is_a_gap() {
        let mut views = Views::default();
        assert!(!views.copy(&Copied { step: step(1, 3, 4, &[]), seq_max: Seq(2) }, ViewId(9)), "not here yet");
        assert!(views.copy(&Copied { step: step(1, 0, 4, &[1]), seq_max: Seq(2) }, ViewId(8)));
        views.entry(ViewId(1)).take(&step(1, 4, 5, &[2])).expect("it follows");
        assert!(!views.copy(&Copied { step: step(1, 4, 4, &[]), seq_max: Seq(2) }, ViewId(9)), "not here any more");
    }

    #[test]
    fn views_are_bounded() {
        let mut views = Views::default();
        for view in 1..=VIEWS_MAX as u64 + 5 {
            views.entry(ViewId(view));
            views.entry(ViewId(1));
        }
        assert_eq!(views.held.len(), VIEWS_MAX);
        assert!(views.get(ViewId(1)).is_some() && views.get(ViewId(2)).is_none());
    }
}
