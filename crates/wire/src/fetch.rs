//! Fetching from the side that knows more: a worker from its hub, a hub from a client. Many may want one thing at once;
//! it is asked for once.

use crate::awake;
use crate::connection::{Connection, WireError};
use crate::lock;
use crate::message::{BindReply, BindRequest, ObjectReply, ObjectsRequest, OpenKind, PiecesRequest, digest_bytes};
use base::{Digest, TaskId, TreePath, ViewId};
use bytes::Bytes;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::Future;
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// How long a hub waits for a client of which nothing is heard: the link may be cut and come back.
pub const CLIENT_LIMIT: Duration = Duration::from_secs(25);
/// The same of a worker and its hub: longer than the hub waits, which then knows that a task missed an answer.
pub const HUB_LIMIT: Duration = Duration::from_secs(28);
/// How long an answer may take at most: a slow link takes its time. Shorter than a guest's request may take.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(600);
/// So many bytes a second over a link are progress: what keeps it alive, and the words of its tasks, are less.
const PROGRESS_BYTES_PER_S: u64 = 1 << 10;
/// Most objects asked for in one request.
const BATCH: usize = 256;
/// Most requests for objects under way at once; more wait.
const BATCHES_UNDER_WAY: usize = 8;

/// `errno` of a refusal that says that whoever knows could not be asked (ENOLINK). A task sees EIO.
pub const UNANSWERED: i32 = 67;
const EIO: i32 = 5;

/// Why something could not be fetched.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FetchError {
    /// The connection failed.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The other side does not have it, and says why.
    #[error("{message}")]
    Refused {
        /// For a person.
        message: String,
        /// The `errno` that a task shall see.
        errno: i32,
    },
    /// The bytes do not have the hash under which they were asked for.
    #[error("the other side sent other bytes than {0} names")]
    Forged(Digest),
}

impl FetchError {
    /// As `errno`s are in messages.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Refused { errno, .. } => *errno,
            Self::Wire(_) | Self::Forged(_) => UNANSWERED,
        }
    }
}

/// Pieces with their names, or why they cannot be had.
type PiecesResult = Result<Vec<(Digest, Bytes)>, FetchError>;

/// Called with each object that arrived and has the right hash, before anyone who waits for it goes on.
pub type Keep = Arc<dyn Fn(Digest, &Bytes) + Send + Sync>;

/// Called where it may block, before an object is asked for: it may be on this machine.
pub type Look = Arc<dyn Fn(&Digest) -> Option<Bytes> + Send + Sync>;

/// The tasks of one client for which is asked: those that run where the asker is.
#[derive(Clone, Debug, Default)]
pub struct Askers(Arc<Mutex<HashMap<TaskId, usize>>>);

/// A task for which may be asked, until this is dropped.
#[derive(Debug)]
pub struct Asker {
    askers: Askers,
    task: TaskId,
}

impl Askers {
    /// `task` runs from now on. One that runs twice at a time counts twice.
    pub fn begin(&self, task: TaskId) -> Asker {
        *lock(&self.0).entry(task).or_default() += 1;
        Asker { askers: self.clone(), task }
    }

    /// One of them, if any runs: whoever answers knows which run, and takes another one if this has just ended.
    fn one(&self) -> Bytes {
        lock(&self.0).keys().next().map(|task| crate::convert::task_bytes(*task)).unwrap_or_default()
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        if let Entry::Occupied(mut count) = lock(&self.askers.0).entry(self.task) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// Asks one machine for what belongs to one client.
#[derive(Clone)]
pub struct Fetcher {
    connection: Connection,
    client: Bytes,
    askers: Askers,
    patience: Patience,
    objects: SingleFlight<Digest, Result<Bytes, FetchError>>,
    pieces: SingleFlight<(Digest, u64, u32), PiecesResult>,
    bindings: SingleFlight<(ViewId, TreePath), Result<BindReply, FetchError>>,
    wanted: mpsc::UnboundedSender<Want>,
    keep: Keep,
    look: Look,
}

struct Want {
    digest: Digest,
    answer: oneshot::Sender<Result<Bytes, FetchError>>,
}

impl Fetcher {
    /// Asks at the other end of `connection` for what belongs to `client` (as the hub names it; empty when the other end
    /// is the client itself), and waits for each answer until nothing was heard for `limit`; of a client, until its link made no progress.
    pub fn new(
        connection: Connection,
        (client, askers): (Bytes, Askers),
        limit: Duration,
        keep: Keep,
        look: Look,
    ) -> Self {
        // Unbounded, but never longer than the number of tasks' reads that wait, each of which holds a place.
        let (wanted, queue) = mpsc::unbounded_channel();
        let patience = Patience { limit, is_client: client.is_empty() };
        let asked = Asked {
            connection: connection.clone(),
            client: client.clone(),
            askers: askers.clone(),
            patience,
            keep: keep.clone(),
        };
        tokio::spawn(serve_wanted(asked, queue));
        Self {
            connection,
            client,
            askers,
            patience,
            objects: SingleFlight::default(),
            pieces: SingleFlight::default(),
            bindings: SingleFlight::default(),
            wanted,
            keep,
            look,
        }
    }

    /// The object of this name.
    pub async fn object(&self, digest: Digest) -> Result<Bytes, FetchError> {
        let (wanted, look) = (self.wanted.clone(), self.look.clone());
        let fetch = move || fetch_object(digest, wanted, look);
        self.objects.get(digest, fetch).await.unwrap_or_else(|| Err(broken()))
    }

    /// The object of this name comes unasked: who wants it waits for that, and asks only if it fails.
    pub fn expect(&self, digest: Digest, coming: oneshot::Receiver<Bytes>) {
        let (wanted, look) = (self.wanted.clone(), self.look.clone());
        let coming = async { coming.await.ok().map(Ok) };
        self.objects.expect(digest, coming, move || fetch_object(digest, wanted, look));
    }

    /// `count` pieces from number `first` of the file with this stamp, with their names; fewer if it ends before.
    pub async fn pieces(&self, stamp: Digest, first: u64, count: u32) -> PiecesResult {
        let (connection, client, keep) = (self.connection.clone(), self.client.clone(), self.keep.clone());
        let asked = Asked { connection, client, askers: self.askers.clone(), patience: self.patience, keep };
        let fetch = move || fetch_pieces(asked, stamp, first, count);
        self.pieces.get((stamp, first, count), fetch).await.unwrap_or_else(|| Err(broken()))
    }

    /// What `path` is, in `view`, for `task`.
    pub async fn bind(&self, view: ViewId, task: TaskId, path: TreePath) -> Result<BindReply, FetchError> {
        let (connection, client, patience) = (self.connection.clone(), self.client.clone(), self.patience);
        let key = (view, path.clone());
        let fetch = move || async move {
            let path = path.as_bytes().to_vec();
            let task = crate::convert::task_bytes(task);
            let request = OpenKind::Bind(BindRequest { client, view: view.0, task, path });
            let reply: BindReply = patience.wait(&connection, connection.ask_one(request)).await??;
            match reply.error.is_empty() {
                true => Ok(reply),
                false => Err(FetchError::Refused { message: reply.error, errno: reply.errno }),
            }
        };
        self.bindings.get(key, fetch).await.unwrap_or_else(|| Err(broken()))
    }

    /// The connection that it asks over.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }
}

fn broken() -> FetchError {
    FetchError::Wire(WireError::Lost("the request was given up".into()))
}

/// Whom to ask for what belongs to whom.
#[derive(Clone)]
struct Asked {
    connection: Connection,
    client: Bytes,
    askers: Askers,
    patience: Patience,
    keep: Keep,
}

/// Whom is waited for, and until when nothing was heard of it.
#[derive(Clone, Copy)]
struct Patience {
    limit: Duration,
    /// The client itself: nobody stands behind it for whom it waits, so it answers, or its link is at work.
    is_client: bool,
}

impl Patience {
    /// Waits for an answer, for [`ANSWER_LIMIT`] at most.
    async fn wait<T>(self, connection: &Connection, answer: impl Future<Output = T>) -> Result<T, WireError> {
        let (begun, limit) = (Instant::now(), self.limit);
        tokio::pin!(answer);
        loop {
            let (before, asked) = (Signs::of(connection), awake::now());
            let waited = tokio::time::timeout(limit, &mut answer).await;
            let goes_on = || {
                connection.is_within_process()
                    || awake::was_away(asked, limit)
                    || self.is_worth(before, Signs::of(connection))
            };
            match waited {
                Ok(answer) => return Ok(answer),
                Err(_) if begun.elapsed() < ANSWER_LIMIT && goes_on() => {}
                Err(_) => return Err(WireError::Late(limit)),
            }
        }
    }

    /// Whether an answer may come yet, after this time without one.
    fn is_worth(self, before: Signs, after: Signs) -> bool {
        let progress = after.bytes.saturating_sub(before.bytes) * 1000 / PROGRESS_BYTES_PER_S;
        after.heard > before.heard && (!self.is_client || u128::from(progress) >= self.limit.as_millis())
    }
}

/// What shows that a connection is alive.
#[derive(Clone, Copy)]
struct Signs {
    heard: u64,
    /// Bytes, either way.
    bytes: u64,
}

impl Signs {
    fn of(connection: &Connection) -> Self {
        let (sent, received) = connection.bytes();
        Self { heard: connection.heard(), bytes: sent.saturating_add(received) }
    }
}

async fn fetch_object(digest: Digest, wanted: mpsc::UnboundedSender<Want>, look: Look) -> Result<Bytes, FetchError> {
    if let Ok(Some(found)) = tokio::task::spawn_blocking(move || look(&digest)).await {
        return Ok(found);
    }
    let (answer, arrived) = oneshot::channel();
    let gone = || FetchError::Wire(WireError::Lost("the connection ended".into()));
    wanted.send(Want { digest, answer }).map_err(|_| gone())?;
    arrived.await.map_err(|_| gone())?
}

async fn fetch_pieces(asked: Asked, stamp: Digest, first: u64, count: u32) -> PiecesResult {
    let Asked { connection, client, askers, patience, keep } = asked;
    let request = PiecesRequest { client, stamp: digest_bytes(&stamp), first, count, task: askers.one() };
    let mut replies = patience.wait(&connection, connection.ask(OpenKind::Pieces(request))).await??;
    let mut pieces = Vec::new();
    while let Some(reply) = patience.wait(&connection, replies.next::<ObjectReply>()).await?? {
        pieces.push(checked(&connection, reply, &keep)?);
    }
    Ok(pieces)
}

/// Checks an object's hash, unless a part of this process has done so, and keeps it.
fn checked(connection: &Connection, reply: ObjectReply, keep: &Keep) -> Result<(Digest, Bytes), FetchError> {
    let digest = Digest::from_slice(&reply.digest)
        .ok_or_else(|| WireError::Invalid("a digest that is not 32 bytes long".into()))?;
    if !reply.error.is_empty() {
        let errno = if reply.errno == 0 { EIO } else { reply.errno };
        return Err(FetchError::Refused { message: reply.error, errno });
    }
    if !connection.is_within_process() && Digest::of(&reply.bytes) != digest {
        return Err(FetchError::Forged(digest));
    }
    keep(digest, &reply.bytes);
    Ok((digest, reply.bytes))
}

async fn serve_wanted(asked: Asked, mut queue: mpsc::UnboundedReceiver<Want>) {
    let places = Arc::new(tokio::sync::Semaphore::new(BATCHES_UNDER_WAY));
    let mut batch = Vec::new();
    while queue.recv_many(&mut batch, BATCH).await > 0 {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let wants: HashMap<Digest, _> = batch.drain(..).map(|want| (want.digest, want.answer)).collect();
        let asked = asked.clone();
        tokio::spawn(async move {
            fetch_batch(asked, wants).await;
            drop(place);
        });
    }
}

async fn fetch_batch(asked: Asked, mut wants: HashMap<Digest, oneshot::Sender<Result<Bytes, FetchError>>>) {
    let Asked { connection, client, askers, patience, keep } = asked;
    let receive = async {
        let digests = wants.keys().map(digest_bytes).collect();
        let request = OpenKind::Objects(ObjectsRequest { client, digests, task: askers.one() });
        let mut replies = patience.wait(&connection, connection.ask(request)).await??;
        while !wants.is_empty() {
            let next = patience.wait(&connection, replies.next::<ObjectReply>());
            let Some(reply) = next.await?? else { break };
            let Some(name) = Digest::from_slice(&reply.digest) else { continue };
            if let Some(answer) = wants.remove(&name) {
                let _ = answer.send(checked(&connection, reply, &keep).map(|(_, bytes)| bytes));
            }
        }
        Ok::<(), WireError>(())
    };
    let failure = match receive.await {
        Ok(()) => WireError::Lost("an object is missing in the answer".into()),
        Err(error) => error,
    };
    for (_, answer) in wants {
        let _ = answer.send(Err(failure.clone().into()));
    }
}

/// Of many calls for one key at a time, one does the work, and all get its result. The work goes on if the caller that
/// started it goes away.
pub struct SingleFlight<Key, Value> {
    waiting: Arc<Mutex<HashMap<Key, Vec<oneshot::Sender<Value>>>>>,
}

impl<Key, Value> Default for SingleFlight<Key, Value> {
    fn default() -> Self {
        Self { waiting: Arc::default() }
    }
}

impl<Key, Value> Clone for SingleFlight<Key, Value> {
    fn clone(&self) -> Self {
        Self { waiting: self.waiting.clone() }
    }
}

impl<Key, Value> SingleFlight<Key, Value>
where
    Key: Eq + Hash + Clone + Send + 'static,
    Value: Clone + Send + 'static,
{
    /// The value for `key`, from a call under way or from `start`. `None` only if the work panicked.
    pub async fn get<Work>(&self, key: Key, start: impl FnOnce() -> Work) -> Option<Value>
    where
        Work: Future<Output = Value> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let first = {
            let mut waiting = self.lock();
            match waiting.entry(key.clone()) {
                Entry::Occupied(mut entry) => {
                    entry.get_mut().push(sender);
                    false
                }
                Entry::Vacant(entry) => {
                    entry.insert(vec![sender]);
                    true
                }
            }
        };
        if first {
            let landing = Landing::of(self, key);
            let work = start();
            tokio::spawn(async move { landing.land(work.await) });
        }
        receiver.await.ok()
    }

    /// Has all who want `key` wait for what is coming; should that come to nothing, `otherwise` does the work if somebody waits.
    /// Nothing is done if the work is under way.
    pub fn expect<Work>(
        &self,
        key: Key,
        coming: impl Future<Output = Option<Value>> + Send + 'static,
        otherwise: impl FnOnce() -> Work + Send + 'static,
    ) where
        Work: Future<Output = Value> + Send + 'static,
    {
        match self.lock().entry(key.clone()) {
            Entry::Occupied(_) => return,
            Entry::Vacant(entry) => entry.insert(Vec::new()),
        };
        let mut landing = Landing::of(self, key);
        tokio::spawn(async move {
            match coming.await {
                Some(value) => landing.land(value),
                None if landing.is_unwanted() => {}
                None => landing.land(otherwise().await),
            }
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Vec<oneshot::Sender<Value>>>> {
        lock(&self.waiting)
    }
}

/// Takes the waiters off the list once, also when the work panics: the next flight's are not its own.
struct Landing<Key: Eq + Hash + Clone + Send + 'static, Value: Clone + Send + 'static> {
    flight: SingleFlight<Key, Value>,
    /// None once it has landed.
    key: Option<Key>,
}

impl<Key: Eq + Hash + Clone + Send + 'static, Value: Clone + Send + 'static> Landing<Key, Value> {
    fn of(flight: &SingleFlight<Key, Value>, key: Key) -> Self {
        Self { flight: flight.clone(), key: Some(key) }
    }

    fn land(mut self, value: Value) {
        for sender in self.take() {
            let _ = sender.send(value.clone());
        }
    }

    /// Whether nobody waits. Then it is over, and whoever comes begins anew.
    fn is_unwanted(&mut self) -> bool {
        let Some(key) = &self.key else { return true };
        let mut waiting = self.flight.lock();
        if waiting.get(key).is_some_and(|senders| senders.iter().any(|sender| !sender.is_closed())) {
            return false;
        }
        waiting.remove(key);
        drop(waiting);
        self.key = None;
        true
    }

    fn take(&mut self) -> Vec<oneshot::Sender<Value>> {
        self.key.take().and_then(|key| self.flight.lock().remove(&key)).unwrap_or_default()
    }
}

impl<Key: Eq + Hash + Clone + Send + 'static, Value: Clone + Send + 'static> Drop for Landing<Key, Value> {
    fn drop(&mut self) {
        self.take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_client_that_is_heard_and_does_not_answer_is_not_waited_for() {
        let limit = Duration::from_secs(25);
        let (client, hub) = (Patience { limit, is_client: true }, Patience { limit, is_client: false });
        let signs = |heard, bytes| Signs { heard, bytes };
        let (before, idle) = (signs(100, 1 << 20), signs(130, (1 << 20) + 3000));
        assert!(!client.is_worth(before, idle), "it keeps its connection alive, and no more");
        assert!(hub.is_worth(before, idle), "it may wait for its client");
        let busy = signs(130, (1 << 20) + PROGRESS_BYTES_PER_S * 25);
        assert!(client.is_worth(before, busy), "the answer comes behind something else");
        for silent in [signs(100, 1 << 20), signs(100, 1 << 30)] {
            assert!(!client.is_worth(before, silent) && !hub.is_worth(before, silent), "nothing is heard");
        }
    }

    #[tokio::test]
    async fn one_flight_serves_all_who_wait() {
        let flight: SingleFlight<u8, u32> = SingleFlight::default();
        let started = Arc::new(AtomicU32::new(0));
        let calls = (0..10).map(|_| {
            let (flight, started) = (flight.clone(), started.clone());
            tokio::spawn(async move {
                flight
                    .get(7, || async move {
                        tokio::task::yield_now().await;
                        started.fetch_add(1, Ordering::SeqCst) + 40
                    })
                    .await
            })
        });
        let calls: Vec<_> = calls.collect();
        for call in calls {
            assert_eq!(call.await.expect("no panic"), Some(40));
        }
        assert_eq!(started.load(Ordering::SeqCst), 1);
        assert_eq!(flight.get(7, || async { 1 }).await, Some(1), "the next call flies again");
    }

    #[tokio::test]
    async fn who_wants_what_is_coming_waits_for_it_and_asks_only_if_it_does_not_come() {
        let flight: SingleFlight<u8, u32> = SingleFlight::default();
        let asked = Arc::new(AtomicU32::new(0));
        let expect = |key: u8| {
            let (sender, coming) = oneshot::channel();
            let asked = asked.clone();
            flight.expect(key, async { coming.await.ok() }, move || async move {
                asked.fetch_add(1, Ordering::SeqCst) + 90
            });
            sender
        };
        let wanted = |key: u8| {
            let flight = flight.clone();
            tokio::spawn(async move { flight.get(key, || async { 7 }).await })
        };
        let (comes, fails, unwanted) = (expect(1), expect(2), expect(3));
        let (one, two) = (wanted(1), wanted(2));
        tokio::task::yield_now().await;
        comes.send(40).expect("somebody waits");
        drop(fails);
        drop(unwanted);
        assert_eq!((one.await.expect("no panic"), two.await.expect("no panic")), (Some(40), Some(90)));
        tokio::task::yield_now().await;
        assert_eq!(asked.load(Ordering::SeqCst), 1, "nobody wants the third");
        assert_eq!(flight.get(3, || async { 5 }).await, Some(5), "whoever comes later begins anew");
    }

    #[tokio::test]
    async fn a_flight_that_has_landed_leaves_the_next_one_alone() {
        let flight: SingleFlight<u8, u32> = SingleFlight::default();
        let mut landing = Landing::of(&flight, 7);
        flight.lock().insert(7, Vec::new());
        assert!(landing.take().is_empty());
        let (sender, next) = oneshot::channel();
        flight.lock().insert(7, vec![sender]);
        drop(landing);
        flight.lock().remove(&7).expect("still there").pop().expect("it waits").send(1).expect("it waits");
        assert_eq!(next.await, Ok(1));
    }
}
