//! Workers at the hub: served from their greeting until they leave, and what they ask on behalf of tasks.

use crate::placement::About;
use crate::server::Shared;
use crate::session::{ClientSession, WorkerSession};
use crate::state::State;
use base::{NodeId, TreePath, ViewId};
use bytes::Bytes;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;
use wire::fetch::UNANSWERED;
use wire::message::{
    BindReply, BindRequest, Elsewhere, Hello, Lends, ObjectReply, ObjectsRequest, Open, OpenKind, PiecesRequest,
    digest_bytes,
};
use wire::{Connection, Receiver, Sender, Turn, convert, lock};

/// Most objects in one request.
const OBJECTS_MAX: usize = 1024;
/// Most pieces in one request.
const PIECES_MAX: u32 = 64;

/// Longest reason for rest that is kept of a worker, in bytes.
const REST_BYTES_MAX: usize = 200;

/// What a worker says of its rest, as it may be shown: it is not trusted with a terminal.
fn rests_in_words(said: &str) -> String {
    base::path::printable(&said.as_bytes()[..said.len().min(REST_BYTES_MAX)])
}

impl Shared {
    /// Serves a worker until it leaves. `changes`: what it lends from now on.
    pub(crate) async fn serve_worker(
        self: &Arc<Self>,
        connection: Connection,
        hello: Hello,
        mut changes: watch::Receiver<Option<Lends>>,
    ) {
        let session = WorkerSession::new(connection.clone(), &hello);
        {
            let mut state = lock(&self.state);
            let lent = state.placement.tags.lent_by(&hello);
            if let Some(old) = state.workers.insert(session.node, session.clone()) {
                old.connection.close("the worker has come back over another connection");
            }
            let is_drained = state.drained.contains(&session.node);
            let made = state.placement.join(session.node, lent, is_drained);
            let (name, owner) = (hello.name.clone(), hello.owner.clone());
            state.placement.is_known(session.node, About { name, owner, rests: String::new() });
            state.hand_out(made);
            state.tell_above();
        }
        self.look_again(&connection);
        loop {
            tokio::select! {
                asked = connection.accept_control() => match asked {
                    Ok((sender, receiver)) => drop(tokio::spawn(self.clone().answer_worker(session.node, sender, receiver))),
                    Err(_) => break,
                },
                Ok(()) = changes.changed() => {
                    let lends = changes.borrow_and_update().clone();
                    lends.into_iter().for_each(|lends| self.resize(&session, &lends));
                }
            }
        }
        tracing::info!(node = %session.node, name = session.name, "worker left");
        let mut state = lock(&self.state);
        if is_current(&state, &session) {
            state.workers.remove(&session.node);
            // The tasks that ran there learn it from their streams.
            let made = state.placement.leave(session.node);
            state.hand_out(made);
            state.drop_stranded();
        }
    }

    /// A worker lends more or less than before: its owner wants it for himself, or it is a hub whose workers come and leave.
    fn resize(&self, session: &Arc<WorkerSession>, lends: &Lends) {
        let mut state = lock(&self.state);
        if is_current(&state, session) {
            let lent = state.placement.tags.lent_behind(lends);
            state.placement.rests(session.node, &rests_in_words(&lends.rests));
            let made = state.placement.resize(session.node, lent);
            state.hand_out(made);
            state.drop_stranded();
        }
    }

    async fn answer_worker(self: Arc<Self>, node: NodeId, sender: Sender, mut receiver: Receiver) {
        match receiver.next::<Open>().await {
            Ok(Some(Open { kind: Some(OpenKind::Bind(request)) })) => self.bind(request, sender).await,
            Ok(Some(Open { kind: Some(OpenKind::Objects(request)) })) => self.objects(request, sender).await,
            Ok(Some(Open { kind: Some(OpenKind::Pieces(request)) })) => self.pieces(request, sender).await,
            Ok(Some(Open { kind: Some(OpenKind::Elsewhere(_)) })) => {
                let share = lock(&self.state).placement.elsewhere(node);
                send_last(sender, &Elsewhere { share }).await;
            }
            Ok(_) | Err(_) => {}
        }
    }

    async fn bind(&self, request: BindRequest, sender: Sender) {
        let bound = async {
            let client = self.client(&request.client).ok_or("its client is gone")?;
            let task = convert::task(&request.task).map_err(|error| error.to_string())?;
            let path = TreePath::parse(&request.path).ok_or("not a path")?;
            Ok(client.bind(ViewId(request.view), task, path).await)
        };
        let reply = match bound.await {
            Ok(Ok(reply)) => reply,
            Ok(Err(error)) => BindReply { error: error.to_string(), errno: error.errno(), ..BindReply::default() },
            Err(why) => {
                let why: String = why;
                BindReply { error: why, errno: UNANSWERED, ..BindReply::default() }
            }
        };
        send_last(sender, &reply).await;
    }

    async fn objects(&self, request: ObjectsRequest, sender: Sender) {
        fetch_objects(self.client(&request.client), request.digests, sender).await;
    }

    async fn pieces(&self, request: PiecesRequest, mut sender: Sender) {
        sender.set_turn(Turn::Contents);
        let found = async {
            let gone = ("its client is gone".to_owned(), UNANSWERED);
            let client = self.client(&request.client).ok_or(gone)?;
            let stamp = convert::digest(&request.stamp).map_err(|error| (error.to_string(), 0))?;
            let count = request.count.clamp(1, PIECES_MAX);
            client.pieces(stamp, request.first, count).await.map_err(|error| (error.to_string(), error.errno()))
        };
        let replies = match found.await {
            Ok(pieces) => pieces
                .into_iter()
                .map(|(digest, bytes)| ObjectReply { digest: digest_bytes(&digest), bytes, ..ObjectReply::default() })
                .collect(),
            Err((error, errno)) => vec![ObjectReply { digest: request.stamp, error, errno, ..ObjectReply::default() }],
        };
        for reply in replies {
            if sender.answer_object(reply).await.is_err() {
                return;
            }
        }
        sender.finish();
        sender.stopped().await;
    }
}

/// Whether it has not come back over another connection.
fn is_current(state: &State, session: &Arc<WorkerSession>) -> bool {
    state.workers.get(&session.node).is_some_and(|current| Arc::ptr_eq(current, session))
}

/// Sends a stream's only message, and waits until it has arrived.
pub(crate) async fn send_last<M: prost::Message>(mut sender: Sender, message: &M) {
    if sender.send(message).await.is_ok() {
        sender.finish();
        sender.stopped().await;
    }
}

/// Sends these objects of a client, as they are found.
pub(crate) async fn fetch_objects(client: Option<Arc<ClientSession>>, names: Vec<Bytes>, mut sender: Sender) {
    sender.set_turn(Turn::Contents);
    let mut fetching = JoinSet::new();
    for name in names.into_iter().take(OBJECTS_MAX) {
        let client = client.clone();
        fetching.spawn(async move {
            let found = match (&client, convert::digest(&name)) {
                (Some(client), Ok(digest)) => {
                    client.object(digest).await.map_err(|error| (error.to_string(), error.errno()))
                }
                (None, _) => Err(("its client is gone".into(), UNANSWERED)),
                (_, Err(error)) => Err((error.to_string(), 0)),
            };
            match found {
                Ok(bytes) => ObjectReply { digest: name, bytes, ..ObjectReply::default() },
                Err((error, errno)) => ObjectReply { digest: name, error, errno, ..ObjectReply::default() },
            }
        });
    }
    // In the order in which they arrive: none waits for another.
    while let Some(Ok(reply)) = fetching.join_next().await {
        if sender.answer_object(reply).await.is_err() {
            return;
        }
    }
    sender.finish();
    sender.stopped().await;
}
