//! Working for another hub: to that one this hub is a worker, which lends what its own workers lend; to those it is the hub of
//! the launches that come from there, as of any. So a block crosses the way between the two once, however many want it here.
//!
//! Hubs stand in a tree: each works for one at most. A hub refuses those that it works for itself, and knows them since each
//! tells its own way up when it lets another in; whoever's way up changes has the hubs below come again, to hear of it.

use crate::needs::Lent;
use crate::relay;
use crate::server::{HubError, Shared, blocking};
use crate::session::{Caller, ClientSession, Detour, HUBS_MAX};
use crate::unread::Given;
use crate::workers::send_last;
use base::{NodeId, Tenant};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;
use wire::flow::Paths;
use wire::message::{Failed, FailedKind, Hello, Launch, Open, OpenKind, OutputKind, TaskOutput};
use wire::{DialError, Endpoint, Hold, Joined, Pauses, Receiver, Role, Sender, Whereabouts, convert, lock};

/// Whether the hub `wants` may work for the one whose way up is `path`, itself first. The error is for a person there.
pub fn check(path: &[NodeId], wants: NodeId) -> Result<(), String> {
    match path.iter().position(|hub| *hub == wants) {
        Some(0) => Err("a hub cannot work for itself".into()),
        Some(_) => Err("that hub works for this one already: they would work for one another in a circle".into()),
        None if path.len() >= HUBS_MAX => {
            Err(format!("{} hubs stand behind one another already: join one nearer to the first", path.len()))
        }
        None => Ok(()),
    }
}

/// Keeps the connection to the hub above, and serves its launches, until it refuses this hub: an error if it does so at once.
pub async fn work_for(shared: Arc<Shared>, above: Arc<Whereabouts>) -> Result<(), HubError> {
    let endpoint = Endpoint::new(&shared.key, Hold::Short)?;
    let (instance, mut pauses, mut was_joined) = (rand::random(), Pauses::default(), false);
    let mut lent = lock(&shared.state).lent.subscribe();
    loop {
        let now = *lent.borrow_and_update();
        let hello = Hello {
            role: Role::Worker.number().into(),
            name: shared.name.clone(),
            cpus: now.cpus,
            behind: Some(lock(&shared.state).placement.tags.lends(now)),
            instance,
            platform: "hub".into(),
            ..Hello::default()
        };
        match above.dial(&endpoint, |_| Paths::default(), hello).await {
            Ok(joined) => {
                (pauses, was_joined) = (Pauses::default(), true);
                joined.connection.give_way();
                tracing::info!(hub = %above.hub(), name = joined.welcome.name, "works for another hub");
                shared.take_way_up(&joined.welcome.hubs);
                tokio::select! {
                    () = serve(&shared, &joined) => {}
                    () = tell(&shared, &joined, &mut lent) => {}
                }
                let why = joined.connection.closed().await;
                tracing::info!(why, "the connection to the hub above ended");
                lock(&shared.state).above_left();
            }
            Err(error @ DialError::Refused(_)) if was_joined => {
                tracing::error!(%error, "this hub works for the one above no more; it goes on alone");
                shared.take_way_up(&[]);
                return Ok(());
            }
            Err(error @ DialError::Refused(_)) => return Err(HubError::Above(error)),
            Err(error) => tracing::info!(%error, "the hub above cannot be reached; trying again"),
        }
        tokio::time::sleep(pauses.next_pause()).await;
    }
}

/// Takes launches until the connection ends.
async fn serve(shared: &Arc<Shared>, joined: &Joined) {
    while let Ok((sender, mut receiver)) = joined.connection.accept_control().await {
        let (shared, joined) = (shared.clone(), joined.clone());
        tokio::spawn(async move {
            if let Ok(Some(Open { kind: Some(OpenKind::Launch(launch)) })) = receiver.next::<Open>().await {
                run(shared, joined, *launch, sender, receiver).await;
            }
        });
    }
}

/// Tells the hub above what is lent here, whenever that changes, until the connection ends.
async fn tell(shared: &Shared, joined: &Joined, lent: &mut watch::Receiver<Lent>) {
    while lent.changed().await.is_ok() {
        let now = *lent.borrow_and_update();
        let lends = lock(&shared.state).placement.tags.lends(now);
        if !joined.lends(lends).await {
            return;
        }
    }
}

/// Passes a launch on as if its client were connected here.
async fn run(shared: Arc<Shared>, joined: Joined, mut launch: Launch, to_hub: Sender, from_hub: Receiver) {
    match shared.client_behind(&joined, &launch).await {
        Ok(client) => {
            // From the client's clock to this one's, by way of that of the hub above.
            client.want(std::mem::take(&mut launch.needs));
            launch.client_to_hub = launch.client_to_hub.saturating_sub(joined.clock_offset_ns());
            relay::run(shared, client, launch, Given::default(), to_hub, from_hub).await;
        }
        Err(failed) => send_last(to_hub, &TaskOutput::from(OutputKind::Failed(failed))).await,
    }
}

impl From<Detour> for Failed {
    fn from(detour: Detour) -> Self {
        FailedKind::Refused.because(detour.to_string())
    }
}

impl Shared {
    /// This hub and those above it.
    pub(crate) fn path(&self) -> Vec<NodeId> {
        std::iter::once(self.key.node()).chain(lock(&self.state).above.iter().copied()).collect()
    }

    /// Takes in which hubs are above. Hubs that work for this one come again if these are others than before: to be refused, if
    /// they are among them.
    fn take_way_up(&self, hubs: &[Bytes]) {
        let hubs = hubs.iter().take(HUBS_MAX).filter_map(|hub| convert::digest(hub).ok().map(NodeId)).collect();
        let mut state = lock(&self.state);
        if std::mem::replace(&mut state.above, hubs) != state.above {
            let below = state.workers.values().filter(|worker| worker.is_hub);
            below.for_each(|hub| hub.connection.close("the hub works for another one now: come again"));
        }
    }

    /// The session of a client whose launch the hub above has sent.
    async fn client_behind(self: &Arc<Self>, joined: &Joined, launch: &Launch) -> Result<Arc<ClientSession>, Failed> {
        let (above, now) = (joined.connection.peer(), Instant::now());
        let caller = Caller::behind(above, launch.client.clone(), self.key.node())?;
        if let Some(known) = lock(&self.state).behind(caller.key(), &joined.connection, now) {
            return Ok(known);
        }
        let (shared, theirs) = (self.clone(), Tenant(launch.tenant_number));
        let tenant = blocking(move || lock(&shared.registry).tenant_above(above, theirs)).await;
        let tenant = tenant.map_err(|error| FailedKind::Trouble.because(error.to_string()))?;
        let tenant = tenant.map_err(|error| FailedKind::Trouble.because(error.to_string()))?;
        let mut state = lock(&self.state);
        // Another of its launches may have been quicker.
        if let Some(known) = state.behind(caller.key(), &joined.connection, now) {
            return Ok(known);
        }
        let held = state.nothing_held(caller.machine());
        let stores = (self.store.clone(), self.system.clone());
        let session = ClientSession::new(joined.connection.clone(), caller, tenant, stores, held);
        match state.add_behind(session.clone(), now) {
            true => Ok(session),
            false => Err(FailedKind::Trouble.because("too many clients have tasks at this hub")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LIMIT, hello, node, serve_hub};
    use base::{Digest, Version, ViewId, ViewUpdate};
    use wire::message::{Command, Object, ObjectReply, ObjectsRequest, Placed};

    /// An object that does not go with a launch to a hub.
    static LARGE: [u8; 100_000] = [7; 100_000];

    #[test]
    fn hubs_stand_in_a_tree_of_bounded_height() {
        let path: Vec<NodeId> = (1..4).map(node).collect();
        assert_eq!(check(&path, node(9)), Ok(()));
        check(&path, node(1)).expect_err("itself");
        check(&path, node(3)).expect_err("a circle");
        let path: Vec<NodeId> = (1..=HUBS_MAX).map(node).collect();
        check(&path, node(9)).expect_err("too high");
    }

    fn launch(cpus: u32) -> Launch {
        let (set, drop) = Default::default();
        let view = ViewUpdate { view: ViewId(1), base: Version(0), version: Version(1), set, drop };
        let command = Command { cpus, ..Command::default() };
        let objects = vec![Object::new(Digest::of(&LARGE), LARGE.to_vec())];
        Launch { view: Some((&view).into()), command: Some(command), objects, ..Launch::default() }
    }

    async fn next(from_hub: &mut Receiver) -> OutputKind {
        let output = tokio::time::timeout(LIMIT, from_hub.next::<TaskOutput>()).await.expect("in time");
        output.expect("no error").expect("not ended").kind.expect("of a kind")
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_launch_goes_to_a_worker_behind_a_hub_and_its_words_come_back() {
        let (top, branch) = (serve_hub("top"), serve_hub("branch"));
        let _working = branch.work_for(&top);
        let worker = branch.join(7, hello(Role::Worker, 2)).await;
        let _other = branch.join(8, hello(Role::Worker, 1)).await;
        top.lends(3).await;
        let client = top.join(9, hello(Role::Client, 0)).await;
        let open = |cpus| client.connection.open(OpenKind::Launch(Box::new(launch(cpus))));
        let (_to_hub, mut from_hub) = open(3).await.expect("opened");
        assert!(
            matches!(next(&mut from_hub).await, OutputKind::Failed(failed) if failed.reason() == FailedKind::NoWorker)
        );

        let (_to_hub, mut from_hub) = open(2).await.expect("opened");
        let (mut to_hub, mut received) = worker.connection.accept_control().await.expect("a launch");
        let Ok(Some(Open { kind: Some(OpenKind::Launch(got)) })) = received.next::<Open>().await else {
            panic!("no launch")
        };
        assert_eq!(got.client, Bytes::from([&top.node.0.0[..], &crate::session::session_key(node(9), 0)].concat()));
        let own = lock(&top.shared.registry).admit(node(9), Role::Client, "", &[], 1).expect("known");
        let behind = lock(&branch.shared.registry).tenant_above(top.node, own).expect("known");
        assert_eq!(got.tenant_number, behind.0);
        assert!(got.objects.is_empty(), "it is on its way to the branch");
        let request = ObjectsRequest {
            client: got.client.clone(),
            digests: vec![Digest::of(&LARGE).0.to_vec().into()],
            ..Default::default()
        };
        let reply: ObjectReply = worker.connection.request(OpenKind::Objects(request)).await.expect("answered");
        assert!(reply.bytes == LARGE[..], "{}", reply.error);
        let OutputKind::Placed(first) = next(&mut from_hub).await else { panic!("not placed") };
        let OutputKind::Placed(Placed { name, why, .. }) = next(&mut from_hub).await else { panic!("not placed") };
        assert_eq!((&first.name[..], &name[..]), ("branch", "branch/worker2"));
        assert!(why.starts_with(&first.why) && why.contains("; there "), "{why}");
        to_hub.send(&TaskOutput::from(OutputKind::Stdout(Bytes::from_static(b"word")))).await.expect("sent");
        assert_eq!(next(&mut from_hub).await, OutputKind::Stdout(Bytes::from_static(b"word")));

        // Its worker is lost: it may be tried again, and the hub above knows what is left.
        worker.connection.close("gone");
        let OutputKind::Failed(failed) = next(&mut from_hub).await else { panic!("not failed") };
        assert_eq!(failed.reason(), FailedKind::Trouble, "{}", failed.message);
        top.lends(1).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn hubs_that_work_for_one_another_come_to_an_end() {
        let (one, two) = (serve_hub("one"), serve_hub("two"));
        let (first, second) = (one.work_for(&two), two.work_for(&one));
        let ended = async {
            tokio::select! {
                ended = first => ended,
                ended = second => ended,
            }
        };
        let ended = tokio::time::timeout(LIMIT, ended).await.expect("a circle is noticed");
        if let Err(error) = ended.expect("no panic") {
            assert!(error.to_string().contains("circle"), "{error}");
        }
    }
}
