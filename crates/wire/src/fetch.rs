//! Fetching from the side that knows more: a worker from its hub, a hub from a client. Many may want one thing at once;
//! it is asked for once.

use crate::connection::{Connection, WireError};
use crate::message::{BindReply, BindRequest, ObjectReply, ObjectsRequest, OpenKind, PiecesRequest, digest_bytes};
use base::{Digest, TaskId, TreePath, ViewId};
use bytes::Bytes;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::Future;
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// How long a hub waits for a client's answer: the link may be cut and come back.
pub const CLIENT_LIMIT: Duration = Duration::from_secs(25);
/// How long a worker waits for a hub's answer: longer than the hub waits, which then knows that a task missed one; and shorter than a
/// guest's request may take.
pub const HUB_LIMIT: Duration = Duration::from_secs(28);
/// Most objects asked for in one request.
const BATCH: usize = 256;
/// Most requests for objects under way at once; more wait.
const BATCHES_UNDER_WAY: usize = 8;

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

/// Pieces with their names, or why they cannot be had.
type PiecesResult = Result<Vec<(Digest, Bytes)>, FetchError>;

/// Called with each object that arrived and has the right hash, before anyone who waits for it goes on.
pub type Keep = Arc<dyn Fn(Digest, &Bytes) + Send + Sync>;

/// Called where it may block, before an object is asked for: it may be on this machine.
pub type Look = Arc<dyn Fn(&Digest) -> Option<Bytes> + Send + Sync>;

/// Asks one machine for what belongs to one client.
#[derive(Clone)]
pub struct Fetcher {
    connection: Connection,
    client: Bytes,
    limit: Duration,
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
    /// is the client itself), and waits for each answer for at most `limit`.
    pub fn new(connection: Connection, client: Bytes, limit: Duration, keep: Keep, look: Look) -> Self {
        // Unbounded, but never longer than the number of tasks' reads that wait, each of which holds a place.
        let (wanted, queue) = mpsc::unbounded_channel();
        let asked = Asked { connection: connection.clone(), client: client.clone(), limit, keep: keep.clone() };
        tokio::spawn(serve_wanted(asked, queue));
        Self {
            connection,
            client,
            limit,
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
        let fetch = move || async move {
            if let Ok(Some(found)) = tokio::task::spawn_blocking(move || look(&digest)).await {
                return Ok(found);
            }
            let (answer, arrived) = oneshot::channel();
            let gone = || FetchError::Wire(WireError::Lost("the connection ended".into()));
            wanted.send(Want { digest, answer }).map_err(|_| gone())?;
            arrived.await.map_err(|_| gone())?
        };
        self.objects.get(digest, fetch).await.unwrap_or_else(|| Err(broken()))
    }

    /// `count` pieces from number `first` of the file with this stamp, with their names; fewer if it ends before.
    pub async fn pieces(&self, stamp: Digest, first: u64, count: u32) -> PiecesResult {
        let (connection, client, keep) = (self.connection.clone(), self.client.clone(), self.keep.clone());
        let asked = Asked { connection, client, limit: self.limit, keep };
        let fetch = move || fetch_pieces(asked, stamp, first, count);
        self.pieces.get((stamp, first, count), fetch).await.unwrap_or_else(|| Err(broken()))
    }

    /// What `path` is, in `view`, for `task`.
    pub async fn bind(&self, view: ViewId, task: TaskId, path: TreePath) -> Result<BindReply, FetchError> {
        let (connection, client, limit) = (self.connection.clone(), self.client.clone(), self.limit);
        let key = (view, path.clone());
        let fetch = move || async move {
            let path = path.as_bytes().to_vec();
            let task = crate::convert::task_bytes(task);
            let request = OpenKind::Bind(BindRequest { client, view: view.0, task, path });
            let reply: BindReply = connection.request_within(request, limit).await?;
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
    limit: Duration,
    keep: Keep,
}

async fn fetch_pieces(asked: Asked, stamp: Digest, first: u64, count: u32) -> PiecesResult {
    let Asked { connection, client, limit, keep } = asked;
    let receive = async {
        let request = PiecesRequest { client, stamp: digest_bytes(&stamp), first, count };
        let mut replies = connection.ask(OpenKind::Pieces(request)).await?;
        let mut pieces = Vec::new();
        while let Some(reply) = replies.next::<ObjectReply>().await? {
            pieces.push(checked(&connection, reply, &keep)?);
        }
        Ok(pieces)
    };
    tokio::time::timeout(limit, receive).await.map_err(|_| WireError::Late(limit))?
}

/// Checks an object's hash, unless a part of this process has done so, and keeps it.
fn checked(connection: &Connection, reply: ObjectReply, keep: &Keep) -> Result<(Digest, Bytes), FetchError> {
    let digest = Digest::from_slice(&reply.digest)
        .ok_or_else(|| WireError::Invalid("a digest that is not 32 bytes long".into()))?;
    if !reply.error.is_empty() {
        const EIO: i32 = 5;
        return Err(FetchError::Refused { message: reply.error, errno: EIO });
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
    let Asked { connection, client, limit, keep } = asked;
    let receive = async {
        let digests = wants.keys().map(digest_bytes).collect();
        let mut replies = connection.ask(OpenKind::Objects(ObjectsRequest { client, digests })).await?;
        while !wants.is_empty() {
            let next = tokio::time::timeout(limit, replies.next::<ObjectReply>());
            let Some(reply) = next.await.map_err(|_| WireError::Late(limit))?? else { break };
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
            let landing = Landing { flight: self.clone(), key };
            let work = start();
            tokio::spawn(async move {
                let value = work.await;
                for sender in landing.take() {
                    let _ = sender.send(value.clone());
                }
            });
        }
        receiver.await.ok()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Vec<oneshot::Sender<Value>>>> {
        self.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Takes the waiters off the list, also when the work panics.
struct Landing<Key: Eq + Hash + Clone + Send + 'static, Value: Clone + Send + 'static> {
    flight: SingleFlight<Key, Value>,
    key: Key,
}

impl<Key: Eq + Hash + Clone + Send + 'static, Value: Clone + Send + 'static> Landing<Key, Value> {
    fn take(&self) -> Vec<oneshot::Sender<Value>> {
        self.flight.lock().remove(&self.key).unwrap_or_default()
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
}
