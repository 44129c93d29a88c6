//! Workers at the hub: served from their greeting until they leave, and what they ask on behalf of tasks.

use crate::asking::Denied;
use crate::needs::{named_by, sound};
use crate::placement::About;
use crate::registry::trust;
use crate::server::Shared;
use crate::session::{ClientSession, WorkerSession};
use crate::state::State;
use crate::unread::Unread;
use base::path::told;
use base::{BLOCK_BYTES_MAX, LAZY_PIECE_BYTES, TaskId, TreePath, ViewId};
use bytes::Bytes;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use wire::fetch::UNANSWERED;
use wire::message::{
    BindReply, BindRequest, Elsewhere, Hello, Lends, ObjectReply, ObjectsRequest, Open, OpenKind, PiecesRequest,
    digest_bytes,
};
use wire::{Connection, Receiver, Sender, Trust, Turn, convert, lock};

/// Most objects in one request.
const OBJECTS_MAX: usize = 1024;
/// An object has so many bytes at most, and an answer about a path brings so many, about.
const OBJECT_BYTES: u64 = BLOCK_BYTES_MAX as u64;
const BIND_BYTES: u64 = 256 << 10;
/// Most pieces in one request.
const PIECES_MAX: u32 = 64;

/// From one change of what a worker lends to the next that counts: each goes into the journal.
const RESIZE_PAUSE: Duration = Duration::from_millis(50);

/// Longest reason for rest that is kept of a worker, in bytes.
const REST_BYTES_MAX: usize = 200;

impl Shared {
    /// Serves a worker until it leaves. `changes`: what it lends from now on.
    pub(crate) async fn serve_worker(
        self: &Arc<Self>,
        connection: Connection,
        hello: Hello,
        mut changes: watch::Receiver<Option<Lends>>,
    ) {
        let session = WorkerSession::new(connection.clone(), &hello);
        let trust = lock(&self.registry).trust(session.node);
        *lock(&session.trust) = trust;
        {
            let mut state = lock(&self.state);
            let (approved, names) = ((trust != Trust::Waiting).then_some(session.node), named_by(&hello));
            approved.into_iter().for_each(|node| state.make_room_for_tags(&names, node));
            let mut lent = state.placement.tags.lent_by(&hello, approved);
            lent.tags |= trust::tags(trust);
            if let Some(old) = state.workers.insert(session.node, session.clone()) {
                old.connection.close("the worker has come back over another connection");
            }
            let is_drained = trust == Trust::Waiting || state.gets_nothing(session.node);
            let made = state.placement.come(session.node, (lent, names), is_drained, trust);
            let (name, owner) = (hello.name.clone(), hello.owner.clone());
            let says_nothing = state.is_aside(session.node);
            let about = About { name, owner, trust, says_nothing, ..About::default() };
            state.placement.is_known(session.node, about);
            state.hand_out(made);
            state.tell_above();
        }
        self.look_again(&connection);
        // Until when the next change waits, whether one does, and what was lent at the last one.
        let (mut pause, mut waits, mut lent) = (None, false, u32::MAX);
        loop {
            tokio::select! {
                asked = connection.accept_control() => {
                    let Ok((sender, receiver)) = asked else { break };
                    tokio::spawn(self.clone().answer_worker(session.clone(), sender, receiver));
                    continue;
                }
                () = sleep_until(pause.unwrap_or_else(Instant::now)), if pause.is_some() => {
                    pause = None;
                    if !waits {
                        continue;
                    }
                }
                Ok(()) = changes.changed() => {
                    // A worker that takes no more tasks has sent back those that it had: they are not to come again.
                    let takes_none = changes.borrow().as_ref().is_some_and(|lends| lends.cpus == 0);
                    waits = pause.is_some() && !(takes_none && lent > 0);
                    if waits {
                        continue;
                    }
                }
            }
            (pause, waits) = (Some(Instant::now() + RESIZE_PAUSE), false);
            if let Some(lends) = changes.borrow_and_update().clone() {
                lent = lends.cpus;
                self.resize(&session, &lends);
            }
        }
        tracing::info!(node = %session.node, name = session.name, "worker left");
        let mut state = lock(&self.state);
        if is_current(&state, &session) {
            state.workers.remove(&session.node);
            state.troubles.remove(&session.node);
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
            let (trust, names) = (*lock(&session.trust), sound(&lends.tags));
            let approved = (trust != Trust::Waiting).then_some(session.node);
            approved.into_iter().for_each(|node| state.make_room_for_tags(&names, node));
            let lent = state.placement.tags.lent_behind(lends, approved);
            let mut lent = if session.is_hub { lent } else { lent.of_one() };
            lent.tags |= trust::tags(trust);
            state.placement.is_named(session.node, names);
            state.placement.rests(session.node, &told(&lends.rests, REST_BYTES_MAX));
            match lends.troubles {
                Some(troubles) => drop(state.troubles.insert(session.node, troubles)),
                None => drop(state.troubles.remove(&session.node)),
            }
            let made = state.placement.resize(session.node, lent);
            state.hand_out(made);
            state.drop_stranded();
        }
    }

    async fn answer_worker(self: Arc<Self>, worker: Arc<WorkerSession>, sender: Sender, mut receiver: Receiver) {
        match receiver.next::<Open>().await {
            Ok(Some(Open { kind: Some(OpenKind::Bind(request)) })) => self.bind(&worker, request, sender).await,
            Ok(Some(Open { kind: Some(OpenKind::Objects(request)) })) => self.objects(&worker, request, sender).await,
            Ok(Some(Open { kind: Some(OpenKind::Pieces(request)) })) => self.pieces(&worker, request, sender).await,
            Ok(Some(Open { kind: Some(OpenKind::Elsewhere(_)) })) => {
                let share = lock(&self.state).placement.elsewhere(worker.node);
                send_last(sender, &Elsewhere { share }).await;
            }
            Ok(_) | Err(_) => {}
        }
    }

    async fn bind(&self, worker: &WorkerSession, request: BindRequest, sender: Sender) {
        let (view, refused) = (ViewId(request.view), |error: String| (error, UNANSWERED));
        let bound = async {
            let client = self.client(&request.client).ok_or_else(|| refused("its client is gone".into()))?;
            let named = convert::task(&request.task).map_err(|error| refused(error.to_string()))?;
            let path = TreePath::parse(&request.path).ok_or_else(|| refused("not a path".into()))?;
            let task = worker.asking.path(&request.client, named, view, &path);
            let task = task.map_err(|why| self.denied(worker, why))?;
            client.bind(view, task, path).await.map_err(|error| (error.to_string(), error.errno()))
        };
        let _room = worker.unread.room(BIND_BYTES).await;
        let reply = bound.await.unwrap_or_else(|(error, errno)| BindReply { error, errno, ..BindReply::default() });
        send_last(sender, &reply).await;
    }

    async fn objects(&self, worker: &Arc<WorkerSession>, request: ObjectsRequest, sender: Sender) {
        let named = convert::task(&request.task).ok();
        let task = worker.asking.contents(&request.client, named);
        let task = task.inspect_err(|why| drop(self.denied(worker, *why)));
        let for_task = Some((worker.clone(), task));
        fetch_objects(self.client(&request.client), for_task, request.digests, sender).await;
    }

    /// What a worker is answered that may not ask; noted now and then.
    fn denied(&self, worker: &WorkerSession, why: Denied) -> (String, i32) {
        if let Some(count) = worker.asking.refuse() {
            self.audit.refused((worker.node, &worker.name), &why.to_string(), json!({"count": count}));
        }
        denied(why)
    }

    async fn pieces(&self, worker: &WorkerSession, request: PiecesRequest, mut sender: Sender) {
        sender.set_turn(Turn::Contents);
        let _room = worker.unread.room(u64::from(request.count.clamp(1, PIECES_MAX)) * LAZY_PIECE_BYTES).await;
        let found = async {
            let gone = ("its client is gone".to_owned(), UNANSWERED);
            let client = self.client(&request.client).ok_or(gone)?;
            let task = worker.asking.contents(&request.client, convert::task(&request.task).ok());
            let task = task.map_err(|why| self.denied(worker, why))?;
            let stamp = convert::digest(&request.stamp).map_err(|error| (error.to_string(), 0))?;
            let count = request.count.clamp(1, PIECES_MAX);
            let pieces = client.pieces(stamp, request.first, count).await;
            let pieces = pieces.map_err(|error| (error.to_string(), error.errno()))?;
            let bytes = pieces.iter().map(|(_, bytes)| bytes.len() as u64).sum();
            worker.asking.bytes(&request.client, task, bytes).map_err(denied)?;
            Ok::<_, (String, i32)>(pieces)
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

fn denied(why: Denied) -> (String, i32) {
    (why.to_string(), why.errno())
}

/// Sends these objects of a client, as they are found; to a worker for one of its tasks, within that one's budget.
pub(crate) async fn fetch_objects(
    client: Option<Arc<ClientSession>>,
    for_task: Option<(Arc<WorkerSession>, Result<TaskId, Denied>)>,
    names: Vec<Bytes>,
    mut sender: Sender,
) {
    sender.set_turn(Turn::Contents);
    let unread = match (&for_task, &client) {
        (Some((worker, _)), _) => worker.unread.clone(),
        (None, Some(client)) => client.unread.clone(),
        (None, None) => Unread::default(),
    };
    let mut names = names.into_iter().take(OBJECTS_MAX);
    let mut next = names.next();
    let mut fetching = JoinSet::new();
    // In the order in which they arrive: none waits for another.
    loop {
        tokio::select! {
            room = unread.room(OBJECT_BYTES), if next.is_some() => {
                let Some(name) = std::mem::replace(&mut next, names.next()) else { break };
                let (client, for_task) = (client.clone(), for_task.clone());
                fetching.spawn(async move { (fetch_object(client, for_task, name).await, room) });
            }
            Some(Ok((reply, _room))) = fetching.join_next() => {
                if sender.answer_object(reply).await.is_err() {
                    return;
                }
            }
            else => break,
        }
    }
    sender.finish();
    sender.stopped().await;
}

async fn fetch_object(
    client: Option<Arc<ClientSession>>,
    for_task: Option<(Arc<WorkerSession>, Result<TaskId, Denied>)>,
    name: Bytes,
) -> ObjectReply {
    let found = async {
        let client = client.ok_or_else(|| ("its client is gone".to_owned(), UNANSWERED))?;
        let task = for_task.map(|(worker, task)| task.map(|task| (worker, task))).transpose().map_err(denied)?;
        let digest = convert::digest(&name).map_err(|error| (error.to_string(), 0))?;
        let bytes = client.object(digest).await.map_err(|error| (error.to_string(), error.errno()))?;
        if let Some((worker, task)) = task {
            worker.asking.bytes(&client.key, task, bytes.len() as u64).map_err(denied)?;
        }
        Ok::<_, (String, i32)>(bytes)
    };
    match found.await {
        Ok(bytes) => ObjectReply { digest: name, bytes, ..ObjectReply::default() },
        Err((error, errno)) => ObjectReply { digest: name, error, errno, ..ObjectReply::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LIMIT, Served, hello, node, serve_hub};
    use base::{Digest, Version, ViewUpdate};
    use serde_json::Value;
    use std::time::Instant;
    use wire::message::{Answer, FailedKind, Launch, Object, OutputKind, TaskOutput};
    use wire::quiet::WORKER_QUIET_MAX;
    use wire::{Joined, Role};

    /// A launch of `task` in view `view`; told where it is placed or why it is not.
    async fn launch(client: &Joined, launch: Launch) -> (OutputKind, Sender, Receiver) {
        let (sender, mut receiver) = client.connection.open(OpenKind::Launch(Box::new(launch))).await.expect("sent");
        let said = tokio::time::timeout(LIMIT, receiver.next::<TaskOutput>()).await.expect("in time");
        (said.expect("read").expect("said").kind.expect("of a kind"), sender, receiver)
    }

    fn of_task(task: u128, view: u64) -> Launch {
        let (set, drop) = Default::default();
        let update = ViewUpdate { view: ViewId(view), base: Version(0), version: Version(1), set, drop };
        Launch { task: convert::task_bytes(TaskId(task)), view: Some((&update).into()), ..Launch::default() }
    }

    async fn bind(worker: &Joined, client: &Bytes, task: u128, view: u64) -> BindReply {
        let task = convert::task_bytes(TaskId(task));
        let request = BindRequest { client: client.clone(), view, task, path: b"/home/u/secret".to_vec() };
        worker.connection.request(OpenKind::Bind(request)).await.expect("answered")
    }

    async fn object(worker: &Joined, client: &Bytes, digest: Digest) -> ObjectReply {
        let digests = vec![digest_bytes(&digest)];
        let request = ObjectsRequest { client: client.clone(), digests, task: convert::task_bytes(TaskId(1)) };
        worker.connection.request(OpenKind::Objects(request)).await.expect("answered")
    }

    /// Answers what the hub asks of a client: every path is said not to be known.
    fn answer_all(client: &Joined) {
        let connection = client.connection.clone();
        tokio::spawn(async move {
            while let Ok((sender, mut receiver)) = connection.accept_control().await {
                let _ = receiver.next::<Open>().await;
                let told = BindReply { error: "the client was asked".into(), errno: 13, ..BindReply::default() };
                send_last(sender, &told).await;
            }
        });
    }

    async fn asked(hub: &Served, question: Value) -> Value {
        let admin = hub.join(99, hello(Role::Admin, 0)).await;
        let asked = admin.connection.request(OpenKind::Ask(Bytes::from(question.to_string())));
        let answer: Answer = tokio::time::timeout(LIMIT, asked).await.expect("in time").expect("answered");
        serde_json::from_slice(&answer.json).expect("JSON")
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_hostile_worker_learns_nothing_of_tasks_that_run_elsewhere() {
        let hub = serve_hub("hub");
        let honest = hub.join(7, hello(Role::Worker, 4)).await;
        hub.lends(4).await;
        let client = hub.join(1, Hello { instance: 5, ..hello(Role::Client, 0) }).await;
        answer_all(&client);
        let (said, _to, _from) = launch(&client, of_task(1, 30)).await;
        assert!(matches!(&said, OutputKind::Placed(placed) if placed.worker[..] == node(7).0.0), "{said:?}");
        let (_to_hub, mut told) = honest.connection.accept_control().await.expect("a launch");
        let Ok(Some(Open { kind: Some(OpenKind::Launch(got)) })) = told.next().await else { panic!("another") };
        let digest = Digest::of(b"contents");
        let stored = lock(&hub.shared.state).clients[&got.client].keep(&Object::new(digest, &b"contents"[..]));
        assert!(stored.is_some());
        let told = bind(&honest, &got.client, 1, 30).await;
        assert_eq!(told.error, "the client was asked", "whose task runs there may ask");
        assert_eq!(object(&honest, &got.client, digest).await.bytes, &b"contents"[..]);
        // It knows all numbers, as from a launch that it had before.
        let hostile = hub.join(8, hello(Role::Worker, 4)).await;
        for (task, view) in [(1, 30), (2, 30), (1, 31)] {
            let refused = bind(&hostile, &got.client, task, view).await;
            assert!(refused.error.contains("no task of this client"), "{refused:?}");
        }
        let refused = object(&hostile, &got.client, digest).await;
        assert!(refused.error.contains("no task of this client") && refused.bytes.is_empty(), "{refused:?}");
        let pieces =
            PiecesRequest { client: got.client.clone(), stamp: digest_bytes(&digest), count: 1, ..Default::default() };
        let refused: ObjectReply = hostile.connection.request(OpenKind::Pieces(pieces)).await.expect("answered");
        assert!(refused.error.contains("no task of this client"), "{refused:?}");
        // And a view of the same client that none of its tasks has.
        let other = bind(&honest, &got.client, 1, 31).await;
        assert!(other.error.contains("no task of this client"), "{other:?}");
        // What was refused is noted, and how often; so is, at its end, what was told.
        drop((honest, hostile));
        let all_noted = async {
            let is_there = |what: &str, name: &str, least: u64| {
                let all = hub.shared.audit.last(99);
                all.iter().any(|line| line["what"] == what && line[name].as_u64().is_some_and(|count| count >= least))
            };
            while !is_there("refused", "count", 4) || !is_there("asked", "paths", 1) {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LIMIT, all_noted).await.expect("it is all in the log");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_worker_gets_tasks_when_it_is_approved_and_only_those_for_its_class() {
        let hub = serve_hub("hub");
        lock(&hub.shared.registry)
            .invite(&[9; 16], Role::Worker, None, 60, crate::server::now_seconds())
            .expect("kept");
        let (theirs, ours) = Connection::within_process(node(7), hub.node);
        let shared = hub.shared.clone();
        tokio::spawn(async move { shared.serve(ours).await });
        let greeting = Hello { secret: vec![9; 16].into(), ..hello(Role::Worker, 4) };
        let worker = wire::join(theirs, greeting).await.expect("let in");
        assert_eq!(worker.welcome.trust, Trust::Waiting.number());
        let client = hub.join(1, hello(Role::Client, 0)).await;
        let none = |said: &OutputKind| matches!(said, OutputKind::Failed(_));
        assert!(none(&launch(&client, of_task(1, 30)).await.0), "it waits");
        let by = |trust: &str| json!({"ask": "approve", "node": node(7).0.to_hex(), "trust": trust});
        assert_eq!(asked(&hub, by("volunteer")).await["trust"], "volunteer");
        assert!(none(&launch(&client, of_task(2, 30)).await.0), "nobody asked for volunteers");
        let asks = Launch { trust: Trust::Volunteer.number(), ..of_task(3, 30) };
        assert!(matches!(launch(&client, asks).await.0, OutputKind::Placed(_)));
        asked(&hub, by("site")).await;
        assert!(matches!(launch(&client, of_task(4, 30)).await.0, OutputKind::Placed(_)));
        let own = || Launch { trust: Trust::Own.number(), ..of_task(5, 30) };
        assert!(none(&launch(&client, own()).await.0), "what is for own machines goes nowhere else");
        asked(&hub, by("own")).await;
        assert!(matches!(launch(&client, own()).await.0, OutputKind::Placed(_)));
        let all_noted = async {
            let all = ["joined", "approved", "launch"];
            while !all.iter().all(|what| hub.shared.audit.last(99).iter().any(|line| line["what"] == *what)) {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LIMIT, all_noted).await.expect("it is all in the log");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn launches_that_wait_have_so_many_bytes_and_are_to_come_again_beyond() {
        let hub = serve_hub("hub");
        let _worker = hub.join(7, hello(Role::Worker, 1)).await;
        hub.lends(1).await;
        let client = hub.join(1, hello(Role::Client, 0)).await;
        let (first, _to, _from) = launch(&client, of_task(1, 30)).await;
        assert!(matches!(first, OutputKind::Placed(_)), "{first:?}");
        let budget = lock(&hub.shared.state).clients.values().next().expect("it").held.budget.clone();
        // As if others waited. The first one is told its place before it is there.
        let others = async {
            loop {
                if let Some(others) = budget.launch(256 << 20) {
                    return others;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let others = tokio::time::timeout(LIMIT, others).await.expect("it is at its worker");
        let OutputKind::Failed(failed) = launch(&client, of_task(2, 30)).await.0 else { panic!("it has room") };
        assert!(failed.reason() == FailedKind::NoWorker && failed.is_passing, "{failed:?}");
        drop(others);
        let open = OpenKind::Launch(Box::new(of_task(3, 30)));
        let (_to, mut from) = client.connection.open(open).await.expect("sent");
        let said = tokio::time::timeout(Duration::from_millis(300), from.next::<TaskOutput>()).await;
        assert!(said.is_err(), "it waits: {said:?}");
        assert!(budget.launch(256 << 20).is_none(), "what waits is counted");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_worker_that_says_nothing_of_a_task_loses_it_and_gets_no_more() {
        let hub = serve_hub("hub");
        let worker = hub.join(7, hello(Role::Worker, 4)).await;
        hub.lends(4).await;
        let client = hub.join(1, hello(Role::Client, 0)).await;
        let (said, _to, mut from) = launch(&client, of_task(1, 30)).await;
        assert!(matches!(said, OutputKind::Placed(_)), "{said:?}");
        let (mut to_hub, _told) = worker.connection.accept_control().await.expect("a launch");
        let begun = Instant::now();
        let mut signs = 0;
        let failed = loop {
            let said = tokio::time::timeout(LIMIT, from.next::<TaskOutput>()).await.expect("in time");
            match said.expect("read").expect("said").kind {
                Some(OutputKind::Alive(_)) => signs += 1,
                Some(OutputKind::Failed(failed)) => break failed,
                other => panic!("{other:?}"),
            }
            if signs == 1 {
                // That it lives counts, and is for the hub alone.
                to_hub.send(&TaskOutput::from(OutputKind::Alive(true))).await.expect("sent");
            }
        };
        let took = begun.elapsed();
        assert!(failed.reason() == FailedKind::Trouble && failed.message.contains("said nothing"), "{failed:?}");
        assert!(
            took >= WORKER_QUIET_MAX && took < WORKER_QUIET_MAX * 2 && (3..=4).contains(&signs),
            "{took:?}, {signs}"
        );
        let refused = launch(&client, of_task(2, 30)).await.0;
        let OutputKind::Failed(refused) = refused else { panic!("{refused:?}") };
        assert!(refused.message.contains("set aside: it said nothing"), "{}", refused.message);
        drop(worker);
        let _again = hub.join(7, hello(Role::Worker, 4)).await;
        assert!(matches!(launch(&client, of_task(3, 30)).await.0, OutputKind::Failed(_)), "also when it comes back");
        lock(&hub.shared.state).end_aside(Instant::now() + Duration::from_secs(299));
        assert!(matches!(launch(&client, of_task(4, 30)).await.0, OutputKind::Failed(_)), "not yet");
        lock(&hub.shared.state).end_aside(Instant::now() + Duration::from_secs(301));
        assert!(matches!(launch(&client, of_task(5, 30)).await.0, OutputKind::Placed(_)));
        lock(&hub.shared.state).set_aside(node(7), Instant::now());
        let undone = asked(&hub, json!({"ask": "drain", "node": node(7).0.to_hex(), "undo": true})).await;
        assert_eq!(undone["error"], Value::Null);
        assert!(matches!(launch(&client, of_task(6, 30)).await.0, OutputKind::Placed(_)), "its owner says so");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_older_worker_says_nothing_and_keeps_its_task_and_an_older_client_is_told_nothing() {
        let hub = serve_hub("hub");
        let worker = hub.greet_in(7, wire::VERSION - 1, hello(Role::Worker, 4)).await;
        hub.lends(4).await;
        let client = hub.greet_in(1, wire::VERSION - 1, hello(Role::Client, 0)).await;
        let open = OpenKind::Launch(Box::new(of_task(1, 30)));
        let (_to, mut from) = client.connection.open(open).await.expect("sent");
        let placed = from.next::<TaskOutput>().await.expect("read").and_then(|said| said.kind);
        assert!(matches!(placed, Some(OutputKind::Placed(_))), "{placed:?}");
        let (mut to_hub, _told) = worker.connection.accept_control().await.expect("a launch");
        let said = tokio::time::timeout(WORKER_QUIET_MAX + Duration::from_secs(3), from.next::<TaskOutput>()).await;
        assert!(said.is_err(), "{said:?}");
        to_hub.send(&TaskOutput::from(OutputKind::Started(1))).await.expect("sent");
        let said = tokio::time::timeout(LIMIT, from.next::<TaskOutput>()).await.expect("in time").expect("read");
        assert_eq!(said, Some(OutputKind::Started(1).into()));
        assert!(!lock(&hub.shared.state).is_aside(node(7)));
    }
}
