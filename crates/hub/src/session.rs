//! Connected clients and workers, as the hub sees them.

use crate::asking::Asking;
use crate::held::Held;
use crate::registry::trust;
use crate::unread::Unread;
use crate::views::{Copied, Told, Views};
use base::{Bound, Digest, NodeId, Seq, TaskId, Tenant, TreePath, Version, ViewId, ViewUpdate};
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use store::BlockStore;
use store::system::{Expected, SystemFiles, is_release};
use tokio::sync::oneshot;
use wire::fetch::{Asker, Askers, CLIENT_LIMIT};
use wire::message::Hello;
use wire::without::{Part, is_left_out};
use wire::{Connection, Count, FetchError, Fetcher, Trust, convert, lock, message};

/// How long a launch waits for the launch before it, when they come over different streams.
const GAP_LIMIT: Duration = Duration::from_secs(5);
/// The same while other messages of the client are on their way.
const GAP_LIMIT_BUSY: Duration = Duration::from_secs(60);
/// Most views of which it is known how far a worker was sent them; the table is emptied beyond.
const SENT_MAX: usize = 16_384;
/// Most files whose lazily read pieces are remembered; the table is emptied beyond.
const STAMPS_MAX: usize = 100_000;

/// Most objects of one launch that are asked for before a task does.
const WANTED_MAX: usize = 65_536;
/// Most objects that one stream says are on their way.
const COMING_MAX: usize = 4096;
/// How long a launch waits to be told what is on its way.
const ANNOUNCED_LIMIT: Duration = Duration::from_secs(1);
/// Numbers of such that are remembered.
const ANNOUNCED_MAX: usize = 256;
/// Most that is asked for at once of what was looked for here in vain, bytes.
const ASKED_BYTES_MAX: u64 = 1 << 20;

/// A client's name for its hub and workers: its node id and the number of its daemon's start. View numbers, versions and
/// binding numbers are unique within it.
pub type SessionKey = Bytes;

/// The session key of the daemon start `instance` at `node`.
pub fn session_key(node: NodeId, instance: u64) -> SessionKey {
    Bytes::from([&node.0.0[..], &instance.to_be_bytes()].concat())
}

/// Most hubs that a launch passes on its way to a worker.
pub const HUBS_MAX: usize = 8;
/// Bytes of a node id in a key.
const NODE_BYTES: usize = 32;
/// Bytes of the session key of a client at the hub that it is connected to.
const OWN_KEY_BYTES: usize = NODE_BYTES + 8;
/// By how much longer each further hub waits for an answer than the one above it, which then knows that a task missed one.
const LONGER_BELOW: Duration = Duration::from_millis(300);

/// Who a client is, and how it is asked.
pub struct Caller {
    /// Its node id; that of the hub above, if its launches come through one.
    node: NodeId,
    key: SessionKey,
    name: String,
    /// Its name at the hub above; empty if it is connected to this one.
    known_as: Bytes,
    /// Its release and instruction set.
    system: Bytes,
}

impl Caller {
    /// A client that has connected, and greeted with this.
    pub fn connected(node: NodeId, hello: Hello) -> Self {
        let key = session_key(node, hello.instance);
        Self { node, key, name: hello.name, known_as: Bytes::new(), system: hello.system }
    }

    /// A client that the hub `above`, which this hub `own` works for, knows as `known_as`. Its key here begins with that hub's
    /// name, so that no hub above can speak of another's clients, and tells which hubs its launches have passed.
    pub fn behind(above: NodeId, known_as: Bytes, own: NodeId) -> Result<Self, Detour> {
        let key = Bytes::from([&above.0.0[..], &known_as].concat());
        let passed =
            key.len().checked_sub(OWN_KEY_BYTES).filter(|bytes| bytes % NODE_BYTES == 0).ok_or(Detour::Unknown)?;
        if passed / NODE_BYTES >= HUBS_MAX {
            return Err(Detour::Long);
        }
        if key[..passed].chunks(NODE_BYTES).any(|hub| hub == own.0.0) {
            return Err(Detour::Loop);
        }
        Ok(Self { node: above, key, name: String::new(), known_as, system: Bytes::new() })
    }

    /// Its name here.
    pub fn key(&self) -> &SessionKey {
        &self.key
    }

    /// Names its machine, whichever start of its daemon this is.
    pub fn machine(&self) -> NodeId {
        match self.hubs() {
            0 => self.node,
            _ => NodeId(Digest::of(&self.key[..self.key.len() - 8])),
        }
    }

    /// Hubs between it and this one.
    fn hubs(&self) -> usize {
        (self.key.len() - OWN_KEY_BYTES) / NODE_BYTES
    }
}

/// A launch came from a hub on a way that leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Detour {
    /// The hub does not say whose it is.
    #[error("the hub above does not say whose launch this is")]
    Unknown,
    /// It was here before.
    #[error("the launch has passed this hub before: the hubs work for one another in a circle")]
    Loop,
    /// It has passed too many hubs.
    #[error("the launch has passed {HUBS_MAX} hubs: no more may stand behind one another")]
    Long,
}

/// A client: connected, or known to a hub above that has sent its launch.
pub struct ClientSession {
    /// Its node id; that of the hub above, if its launches come through one.
    pub node: NodeId,
    /// Its name for workers.
    pub key: SessionKey,
    /// Name for people.
    pub name: String,
    /// Its launches come through a hub that this one works for.
    pub is_behind: bool,
    /// Whose blocks it may read.
    pub tenant: Tenant,
    /// The connection to it, or to the hub above.
    pub connection: Connection,
    /// What it has told of its files.
    pub held: Arc<Held>,
    askers: Askers,
    fetcher: Fetcher,
    store: Arc<BlockStore>,
    /// The system's files that its views name.
    expected: Arc<Expected>,
    /// It names them only, for they are here most likely.
    names_system: bool,
    unanswered: AtomicU64,
    /// Room for what is held for it.
    pub(crate) unread: Unread,
    /// Launches that have no place.
    pub(crate) waiting: Count,
    /// Streams whose first message has not come in full.
    opening: AtomicUsize,
    /// Numbers of what was last said to be on its way.
    announced: Mutex<VecDeque<u64>>,
}

/// Contents that are on their way, and who is told when they are here.
pub struct Coming(HashMap<Digest, oneshot::Sender<Bytes>>);

impl ClientSession {
    /// A session over `connection`. `held`: what was told over earlier ones.
    pub fn new(
        connection: Connection,
        caller: Caller,
        tenant: Tenant,
        (store, system): (Arc<BlockStore>, Arc<SystemFiles>),
        held: Arc<Held>,
    ) -> Arc<Self> {
        let names_system = connection.is_far() && is_release(&caller.system) && !is_left_out(Part::OwnDistribution);
        let kept = store.clone();
        // The fetcher has compared name and bytes.
        let keep =
            Arc::new(move |digest: Digest, bytes: &Bytes| report(kept.put_checked(tenant, digest, bytes), digest));
        let expected = Expected::new(system, store.clone(), tenant);
        let look = {
            let (expected, store) = (expected.clone(), store.clone());
            Arc::new(move |digest: &Digest| {
                // It may have come since it was missed.
                let kept = || store.get(tenant, digest).ok().flatten();
                let here = || expected.look(digest);
                let found = (!is_left_out(Part::CacheSharing)).then(kept).flatten();
                found.or_else(|| (!is_left_out(Part::OwnDistribution)).then(here).flatten()).map(Bytes::from)
            })
        };
        let limit = CLIENT_LIMIT + LONGER_BELOW * caller.hubs() as u32;
        let is_behind = caller.hubs() > 0;
        let askers = Askers::default();
        let fetcher = Fetcher::new(connection.clone(), (caller.known_as, askers.clone()), limit, keep, look);
        Arc::new(Self {
            node: caller.node,
            key: caller.key,
            name: caller.name,
            is_behind,
            tenant,
            connection,
            askers,
            fetcher,
            held,
            store,
            expected,
            names_system,
            unanswered: AtomicU64::new(0),
            unread: Unread::default(),
            waiting: Count::default(),
            opening: AtomicUsize::new(0),
            announced: Mutex::default(),
        })
    }

    /// For whom its tasks are counted: clients of one user take turns together.
    pub fn account(&self) -> u128 {
        self.tenant.0.into()
    }

    /// A task of it is here, and the client may be asked for it, until what is returned is dropped.
    pub fn asked_for(&self, task: TaskId) -> Asker {
        self.askers.begin(task)
    }

    /// Where its contents are kept.
    pub fn store(&self) -> &Arc<BlockStore> {
        &self.store
    }

    /// A number for what tasks of a view have near once they have run somewhere. Never 0.
    pub fn affinity(&self, view: ViewId) -> u32 {
        let mut hasher = DefaultHasher::new();
        (&self.key, view).hash(&mut hasher);
        hasher.finish() as u32 | 1
    }

    /// Waits for a stream's first message.
    pub async fn opened<T>(&self, message: impl Future<Output = T>) -> T {
        self.opening.fetch_add(1, Ordering::Relaxed);
        let opened = message.await;
        self.opening.fetch_sub(1, Ordering::Relaxed);
        opened
    }

    /// Takes a launch's step of a view, which is `copied` first from another if it is new. Waits a little for the step before it, which may come over a slower stream.
    pub async fn advance(&self, copied: Option<&Copied>, update: &ViewUpdate) -> Result<(), Gap> {
        let arrived = self.until(|| self.take(copied, update));
        let begun = Instant::now();
        tokio::pin!(arrived);
        let taken = loop {
            match tokio::time::timeout(GAP_LIMIT, &mut arrived).await {
                Ok(()) => break Ok(()),
                // The step before it may be part of a message that takes long.
                Err(_) if self.opening.load(Ordering::Relaxed) > 0 && begun.elapsed() < GAP_LIMIT_BUSY => {}
                Err(_) => break Err(Gap),
            }
        };
        self.held.advanced.notify_waiters();
        if let Some(copied) = copied {
            self.expect(&copied.step.set);
        }
        self.expect(&update.set);
        taken
    }

    /// Looks for the system's files among these on this machine's own disk. From a far client that has the same release such contents
    /// do not come unasked: what is not here after all is asked for at once, before a task misses it.
    fn expect(&self, bounds: &[Bound]) {
        let missing = self.expected.expect(bounds);
        if missing.is_empty() || !self.names_system {
            return;
        }
        let (expected, fetcher) = (self.expected.clone(), self.fetcher.clone());
        tokio::spawn(async move {
            let look = move || missing.into_iter().filter(|(name, _)| !expected.find(name)).collect::<Vec<_>>();
            let Ok(missing) = tokio::task::spawn_blocking(look).await else { return };
            let mut room = ASKED_BYTES_MAX;
            for (name, bytes) in missing {
                let Some(left) = room.checked_sub(bytes) else { continue };
                room = left;
                let fetcher = fetcher.clone();
                // Who needs it will see why it cannot be had.
                tokio::spawn(async move { fetcher.object(name).await.map(drop) });
            }
        });
    }

    fn take(&self, copied: Option<&Copied>, update: &ViewUpdate) -> bool {
        let mut views = self.lock_views();
        copied.is_none_or(|copied| views.copy(copied, update.view)) && views.take(update).is_ok()
    }

    /// The view that this one was copied from.
    pub fn origin(&self, view: ViewId) -> Option<ViewId> {
        self.lock_views().origin(view)
    }

    /// What takes a worker that was sent a view up to `since` to where it is now, and where that is.
    pub fn update_from(&self, view: ViewId, since: Option<Told>) -> Option<(ViewUpdate, Told)> {
        self.lock_views().update_from(view, since)
    }

    /// What a path is in a view: known, or asked of the client.
    pub async fn bind(&self, view: ViewId, task: TaskId, path: TreePath) -> Result<message::BindReply, FetchError> {
        let (known, asked) = match self.lock_views().get(view) {
            Some(known) => (known.get(&path).cloned(), known.version()),
            None => (None, Version(0)),
        };
        if let Some(bound) = known {
            let bound = message::Bound::from(&*bound);
            return Ok(message::BindReply { bounds: vec![bound], ..message::BindReply::default() });
        }
        let mut reply = self.answered(self.fetcher.bind(view, task, path).await)?;
        reply.objects = reply.objects.iter().filter_map(|object| self.keep(object)).collect();
        let parsed = |bound: &message::Bound| {
            let dropped = |error: &_| tracing::warn!(client = %self.node, %error, "a binding was dropped");
            Bound::try_from(bound.clone()).inspect_err(dropped).ok()
        };
        let bounds: Vec<Bound> = reply.bounds.iter().filter_map(parsed).collect();
        self.expect(&bounds);
        self.lock_views().learn(view, bounds.into_iter().filter(|bound| bound.seq > Seq(0)), asked);
        Ok(reply)
    }

    /// What a path is in a view, as far as the hub was told.
    pub fn binding(&self, view: ViewId, path: &TreePath) -> Option<Arc<Bound>> {
        self.lock_views().get(view)?.get(path).cloned()
    }

    /// An object of this client that is in the store.
    pub fn held(&self, digest: &Digest) -> Option<Bytes> {
        self.store.get(self.tenant, digest).ok().flatten().map(Bytes::from)
    }

    /// An object of this client: from the store, or asked of the client.
    pub async fn object(&self, digest: Digest) -> Result<Bytes, FetchError> {
        match self.store.get(self.tenant, &digest) {
            Ok(_) if is_left_out(Part::CacheSharing) => {}
            Ok(Some(bytes)) => return Ok(Bytes::from(bytes)),
            Ok(None) => {}
            Err(error) => tracing::warn!(%digest, %error, "the block store failed; asking the client again"),
        }
        self.answered(self.fetcher.object(digest).await)
    }

    /// Has these objects here soon, unless they are.
    pub fn want(self: &Arc<Self>, names: Vec<Bytes>) {
        let names = names.iter().filter_map(|name| Digest::from_slice(name)).take(WANTED_MAX);
        for name in names.filter(|name| !self.store.contains(self.tenant, name)) {
            let session = self.clone();
            // Who needs it will see why it cannot be had.
            tokio::spawn(async move { session.object(name).await.map(drop) });
        }
    }

    /// These come unasked: until then who wants them waits, and does not ask.
    pub fn coming(&self, announced: &message::Coming) -> Coming {
        let names = announced.digests.iter().filter_map(|name| Digest::from_slice(name)).take(COMING_MAX);
        let expect = |name| {
            let (arrives, coming) = oneshot::channel();
            self.fetcher.expect(name, coming);
            (name, arrives)
        };
        let coming = names.filter(|name| !self.store.contains(self.tenant, name)).map(expect).collect();
        let mut known = lock(&self.announced);
        known.push_back(announced.number);
        if known.len() > ANNOUNCED_MAX {
            known.pop_front();
        }
        drop(known);
        self.held.advanced.notify_waiters();
        Coming(coming)
    }

    /// Waits until what the launch needs has been announced, which goes over another stream. Should that take long, what is on its way
    /// is asked for once more, which costs bytes.
    pub async fn knows_what_comes(&self, number: u64) {
        let known = self.until(|| lock(&self.announced).contains(&number));
        let _ = tokio::time::timeout(ANNOUNCED_LIMIT, known).await;
    }

    /// Waits for what a step of a view, or word of what is on its way, brings about.
    async fn until(&self, is_so: impl Fn() -> bool) {
        loop {
            let advanced = self.held.advanced.notified();
            tokio::pin!(advanced);
            // Registered before the look, so that a step between the look and the wait is not missed.
            advanced.as_mut().enable();
            if is_so() {
                return;
            }
            advanced.await;
        }
    }

    /// One of them is here. Blocks on the disk.
    pub fn arrived(&self, coming: &mut Coming, object: &message::Object) {
        let Some(whole) = self.keep(object) else { return };
        let waiting = Digest::from_slice(&whole.digest).and_then(|name| coming.0.remove(&name));
        if let Some(waiting) = waiting {
            // Nobody waits any more, perhaps.
            let _ = waiting.send(whole.bytes);
        }
    }

    /// Counts a question that the link left without an answer: a task may have seen a failed read.
    fn answered<T>(&self, answer: Result<T, FetchError>) -> Result<T, FetchError> {
        if let Err(FetchError::Wire(_)) = &answer {
            self.unanswered.fetch_add(1, Ordering::Relaxed);
        }
        answer
    }

    /// Questions that the link left without an answer so far. A task during which there was one is not to be trusted.
    pub fn unanswered(&self) -> u64 {
        self.unanswered.load(Ordering::Relaxed)
    }

    /// Pieces of a lazily bound file.
    pub async fn pieces(&self, stamp: Digest, first: u64, count: u32) -> Result<Vec<(Digest, Bytes)>, FetchError> {
        if let Some(known) = self.known_pieces(stamp, first, count).filter(|_| !is_left_out(Part::CacheSharing)) {
            return Ok(known);
        }
        let named = self.answered(self.fetcher.pieces(stamp, first, count).await)?;
        let mut table = lock(&self.held.pieces);
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
            let table = lock(&self.held.pieces);
            (first..first.saturating_add(count.into()))
                .map(|at| table.get(&(stamp, at)).copied())
                .collect::<Option<_>>()?
        };
        let read = |digest: Digest| {
            self.store.get(self.tenant, &digest).ok().flatten().map(|bytes| (digest, Bytes::from(bytes)))
        };
        digests.into_iter().map(read).collect()
    }

    /// Keeps an object that came unasked, if its name is right, and returns it whole; `None` if it cannot be made out: who needs it
    /// will ask.
    pub fn keep(&self, object: &message::Object) -> Option<message::Object> {
        let made_out = convert::digest(&object.digest).map_err(|error| error.to_string());
        let made_out = made_out.and_then(|digest| {
            let bytes = object.whole(|digest| self.held(digest)).map_err(|error| error.to_string())?;
            let bytes = bytes.ok_or_else(|| format!("what {digest} differs from is not here"))?;
            match self.store.put_named(self.tenant, digest, &bytes) {
                Err(error @ store::StoreError::WrongDigest { .. }) => return Err(error.to_string()),
                kept => report(kept, digest),
            }
            Ok(message::Object::new(digest, bytes))
        });
        made_out.inspect_err(|error| tracing::warn!(client = %self.node, error, "an object was dropped")).ok()
    }

    fn lock_views(&self) -> MutexGuard<'_, Views> {
        lock(&self.held.views)
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

/// A connected worker, or a hub that works for this one.
pub struct WorkerSession {
    /// Its node id.
    pub node: NodeId,
    /// Name for people.
    pub name: String,
    /// It is a hub.
    pub is_hub: bool,
    /// Instruction set and CPU model.
    pub platform: String,
    /// Names this start of its program; 0: it did not say.
    pub instance: u64,
    /// It says when a signal has reached a task.
    pub answers_signals: bool,
    /// It takes one client at a time.
    pub one_client: bool,
    /// Its connection.
    pub connection: Connection,
    /// What it may ask.
    pub asking: Asking,
    /// Room for what is held for it.
    pub(crate) unread: Unread,
    /// How far it is trusted.
    pub trust: Mutex<Trust>,
    /// How far it was sent each client's views.
    sent: Mutex<HashMap<(SessionKey, ViewId), Told>>,
}

impl WorkerSession {
    /// A session over `connection`.
    pub fn new(connection: Connection, hello: &Hello) -> Arc<Self> {
        let (node, is_hub) = (connection.peer(), hello.behind.is_some());
        let (name, platform) = (hello.name.clone(), hello.platform.clone());
        let (answers_signals, one_client, instance) = (hello.answers_signals, hello.one_client, hello.instance);
        let (asking, sent, trust) = (Asking::default(), Mutex::default(), Mutex::new(Trust::Waiting));
        Arc::new(Self {
            node,
            name,
            is_hub,
            platform,
            instance,
            answers_signals,
            one_client,
            connection,
            asking,
            unread: Unread::default(),
            trust,
            sent,
        })
    }

    /// Whether a launch may go there that was prepared for workers of this class.
    pub fn may_run(&self, class: u32) -> bool {
        trust::needed(class) & !trust::tags(*lock(&self.trust)) == 0
    }

    /// The update that this worker needs before it runs a task in `view`; noted as sent.
    pub fn update_for(&self, client: &ClientSession, view: ViewId) -> Option<ViewUpdate> {
        let mut sent = lock(&self.sent);
        let at = (client.key.clone(), view);
        let (update, told) = client.update_from(view, sent.get(&at).copied())?;
        if sent.len() >= SENT_MAX {
            sent.clear();
        }
        sent.insert(at, told);
        Some(update)
    }

    /// Forgets what it was sent of this client: the next launch sends the whole view.
    pub fn forget(&self, client: &SessionKey) {
        lock(&self.sent).retain(|(key, _), _| key != client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u8) -> NodeId {
        NodeId(Digest([number; 32]))
    }

    #[test]
    fn a_client_behind_hubs_has_a_name_that_tells_them() {
        let own = session_key(node(1), 77);
        let once = Caller::behind(node(2), own.clone(), node(3)).expect("a way");
        assert_eq!((once.hubs(), &once.known_as), (1, &own));
        assert_ne!(once.key, Caller::behind(node(4), own.clone(), node(3)).expect("a way").key, "of another hub");
        let later = Caller::behind(node(2), session_key(node(1), 78), node(3)).expect("a way");
        assert_ne!(once.key, later.key);
        assert_eq!(once.machine(), later.machine(), "another start at the same machine");
        let twice = Caller::behind(node(3), once.key.clone(), node(5)).expect("a way");
        assert_eq!(twice.hubs(), 2);
    }

    #[test]
    fn a_launch_that_goes_in_circles_is_refused() {
        let client = session_key(node(1), 77);
        let refused = |above, known_as: &Bytes, own| Caller::behind(above, known_as.clone(), own).err();
        assert_eq!(refused(node(2), &client, node(2)), Some(Detour::Loop), "a hub that works for itself");
        let once = Caller::behind(node(2), client.clone(), node(3)).expect("a way").key;
        assert_eq!(refused(node(3), &once, node(2)), Some(Detour::Loop));
        assert_eq!(refused(node(3), &Bytes::from_static(b"?"), node(2)), Some(Detour::Unknown));
        let on = |key: Bytes, at: u8| Caller::behind(node(at), key, node(at + 1)).map(|caller| caller.key);
        let most = (2..1 + HUBS_MAX as u8).try_fold(client.clone(), on).expect("as many as may be");
        assert_eq!(on(most, 100), Err(Detour::Long));
    }
}
