//! Letting machines in, and what is told over a connection's first stream.

use crate::above;
use crate::held::Held;
use crate::server::{Shared, blocking, now_seconds};
use crate::shared::Hubs;
use base::NodeId;
use base::path::told;
use bytes::Bytes;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use store::system::release;
use tokio::sync::watch;
use wire::flow::Path;
use wire::listener::Vouched;
use wire::message::{Control, ControlKind, Hello, Lends, Moved, Pong, Welcome, digest_bytes};
use wire::{Connection, Receiver, Role, Sender, WireError, lock, now_nanos, versions};

/// How long a new connection may take to greet.
const GREETING_LIMIT: Duration = Duration::from_secs(5);

/// Longest name of a machine or a tag, of a processor, and of a secret or mark, in bytes; and most tags. What is longer is cut or left out.
const NAME_BYTES_MAX: usize = 64;
const PLATFORM_BYTES_MAX: usize = 200;
const MARK_BYTES_MAX: usize = 64;
const TAGS_MAX: usize = 64;
/// Connections of one key. Where hosts ask for workunits many may have one.
const CONNECTIONS_MAX: usize = 64;
const CONNECTIONS_OF_HOSTS_MAX: usize = 4096;

/// What a machine is told whose rights have ended.
pub(crate) const REVOKED: &str = "this key was revoked";

/// A machine that was let in.
pub(crate) struct Guest {
    pub connection: Connection,
    pub hello: Hello,
    pub role: Role,
    pub tenant: base::Tenant,
    pub held: Option<Arc<Held>>,
    /// Its first stream: what is told about the connection itself.
    pub control: (Sender, Receiver),
    /// Where the hubs are, as far as it was told.
    pub hubs: Hubs,
    /// It may be here, and send what is large.
    pub vouched: Vouched,
}

/// A greeting as it may be kept and shown: whoever sent it is not known yet.
fn bounded(mut hello: Hello) -> Hello {
    let short = |bytes: &Bytes| if bytes.len() > MARK_BYTES_MAX { Bytes::new() } else { bytes.clone() };
    hello.name = told(&hello.name, NAME_BYTES_MAX);
    hello.platform = told(&hello.platform, PLATFORM_BYTES_MAX);
    (hello.secret, hello.system, hello.owner) = (short(&hello.secret), short(&hello.system), short(&hello.owner));
    hello.joiner = short(&hello.joiner);
    hello.tags.truncate(TAGS_MAX);
    hello.tags.retain(|tag| tag.len() <= NAME_BYTES_MAX);
    if let Some(behind) = &mut hello.behind {
        behind.tags.truncate(TAGS_MAX);
        behind.tags.retain(|tag| tag.len() <= NAME_BYTES_MAX);
        behind.rests = told(&behind.rests, PLATFORM_BYTES_MAX);
    }
    hello
}

impl Shared {
    /// Lets a machine in. `None`: it was told why not.
    pub(crate) async fn greet(self: &Arc<Self>, connection: Connection) -> Result<Option<Guest>, WireError> {
        let greeting = async {
            let (sender, mut receiver) = connection.accept_control().await?;
            let hello = receiver.next::<Hello>().await?.ok_or_else(|| WireError::Lost("no greeting".into()))?;
            Ok::<_, WireError>((sender, receiver, bounded(hello)))
        };
        let greeting = tokio::select! {
            greeting = tokio::time::timeout(GREETING_LIMIT, greeting) => greeting,
            () = connection.place_lost() => return Err(WireError::Lost("it did not greet, and another needed its place".into())),
        };
        let (mut sender, receiver, hello) = greeting.map_err(|_| WireError::Late(GREETING_LIMIT))??;
        let admitted = {
            let (shared, connection, hello) = (self.clone(), connection.clone(), hello.clone());
            blocking(move || shared.admit(&connection, &hello)).await?
        };
        let admitted = match admitted {
            Ok((Role::Worker, _)) if !hello.asks => match self.twin_of(&connection, &hello).await {
                Some(why) => Err(why),
                None => admitted,
            },
            admitted => admitted,
        };
        let (admitted, vouched) = self.vouch(&connection, &hello, admitted);
        let launches = admitted.as_ref().is_ok_and(|(role, _)| role.launches());
        let held = launches.then(|| lock(&self.state).come_back(&connection, &hello)).flatten();
        if admitted.is_ok() && !hello.asks {
            connection.allow_streams();
        }
        if matches!(&admitted, Ok((Role::Worker, _))) {
            connection.give_way();
        }
        let mut hubs = self.hubs.clone();
        connection.speak(versions::agreed(hello.version));
        let welcome = Welcome {
            version: connection.version(),
            refusal: admitted.as_ref().err().cloned().unwrap_or_default(),
            clock: now_nanos(),
            name: self.name.clone(),
            instance: self.instance,
            system: Bytes::from_static(release()),
            store: self.store_name.clone(),
            resumed: held.is_some(),
            views: held.as_ref().map_or(Vec::new(), |held| held.told()),
            hubs: hello
                .behind
                .as_ref()
                .map_or(Vec::new(), |_| self.path().iter().map(|hub| digest_bytes(&hub.0)).collect()),
            epoch: self.epoch,
            addresses: hubs.now().iter().map(ToString::to_string).collect(),
            trust: self.class_for(&connection, admitted.as_ref().ok().map(|(role, _)| *role)),
            owner: if launches { self.proof_of_owner() } else { Bytes::new() },
        };
        if admitted.is_err() {
            lock(&self.joins_refused).add(&welcome.refusal);
        }
        sender.send(&welcome).await?;
        let (Ok((role, tenant)), Some(vouched)) = (admitted, vouched) else {
            self.note_refused_join(connection.peer(), &hello.name, &welcome.refusal);
            sender.finish();
            let _ = tokio::time::timeout(GREETING_LIMIT, sender.stopped()).await;
            return Ok(None);
        };
        tracing::info!(node = %connection.peer(), name = hello.name, role = role.name(), "joined");
        if let Some(path) = hello.down.and_then(Path::claimed) {
            connection.remember(path);
        }
        Ok(Some(Guest { connection, hello, role, tenant, held, control: (sender, receiver), hubs, vouched }))
    }

    /// Vouches for a machine that may be here, if it has not too many connections.
    fn vouch<Admitted>(
        &self,
        connection: &Connection,
        hello: &Hello,
        admitted: Result<Admitted, String>,
    ) -> (Result<Admitted, String>, Option<Vouched>) {
        let most = if hello.asks { CONNECTIONS_OF_HOSTS_MAX } else { CONNECTIONS_MAX };
        match admitted.map(|admitted| (admitted, self.guests.vouch_for(connection, most))) {
            Ok((admitted, Some(vouched))) => (Ok(admitted), Some(vouched)),
            Ok((_, None)) => (Err(format!("this key has {most} connections already, and may have no more")), None),
            Err(why) => (Err(why), None),
        }
    }

    fn note_refused_join(&self, node: NodeId, name: &str, why: &str) {
        if self.strangers_logged.has_room() {
            tracing::info!(%node, name, refusal = why, "refused");
            self.audit.refused((node, name), why, json!({}));
        }
    }

    /// Looks once more whether a machine may be here, of whose connection the state knows now: one that was revoked after it was let in,
    /// and before that, is sent away.
    pub(crate) fn look_again(self: &Arc<Self>, connection: &Connection) {
        let (shared, connection) = (self.clone(), connection.clone());
        tokio::task::spawn_blocking(move || {
            // In this order, as where these are changed: what is said later is found later, too.
            let registry = lock(&shared.registry);
            let (node, role) = (connection.peer(), registry.role(connection.peer()));
            match role {
                None => connection.close(REVOKED),
                Some(Role::Worker) => {
                    let mut state = lock(&shared.state);
                    let known = state.workers.get(&node).map(|worker| *lock(&worker.trust));
                    if known.is_some_and(|known| known != registry.trust(node)) {
                        state.trusts(node, registry.trust(node));
                    }
                }
                Some(_) => {}
            }
        });
    }

    /// What a welcome says of trust: to a worker its class, to a client that of the workers.
    fn class_for(&self, connection: &Connection, role: Option<Role>) -> u32 {
        match role {
            Some(Role::Worker) => lock(&self.registry).trust(connection.peer()).number(),
            Some(Role::Client | Role::Admin) => lock(&self.state).placement.least_trusted().number(),
            None => 0,
        }
    }

    /// What shows a client of the hub's own account on its machine that the hub is its account's.
    fn proof_of_owner(&self) -> Bytes {
        let proof = wire::owner::Secret::read().map(|secret| secret.proof_of_hub(self.key.node()));
        proof.map(|proof| Bytes::copy_from_slice(&proof.0)).unwrap_or_default()
    }

    fn admit(&self, connection: &Connection, hello: &Hello) -> Result<(Role, base::Tenant), String> {
        if !versions::is_spoken(hello.version) {
            return Err(format!(
                "this hub speaks protocol {} and the one before, not {}: install versions of gleaner that are at most one apart",
                versions::own(),
                hello.version
            ));
        }
        let role = Role::from_number(hello.role).ok_or("an unknown role")?;
        if hello.behind.is_some() {
            above::check(&self.path(), connection.peer())?;
        }
        let is_own = !hello.joiner.is_empty()
            && wire::owner::Secret::read()
                .is_some_and(|secret| secret.proof_of_joiner(connection.peer()).is(&hello.joiner));
        let mut registry = lock(&self.registry);
        let before = (registry.role(connection.peer()), registry.trust(connection.peer()));
        let tenant = registry
            .admit_joiner(connection.peer(), role, &hello.name, (&hello.secret, is_own), now_seconds())
            .map_err(|error| error.to_string())?;
        // Whoever was let in may show secrets again and again, of tokens or none. What it may do changes seldom.
        let has_changed = before != (registry.role(connection.peer()), registry.trust(connection.peer()));
        if has_changed || (!hello.secret.is_empty() && self.members_logged.has_room()) {
            let (node, trust) = (connection.peer(), registry.trust(connection.peer()));
            let facts =
                json!({"node": node.0.to_hex(), "name": hello.name, "role": role.name(), "trust": trust.name()});
            self.audit.note("joined", facts);
        }
        Ok((role, tenant))
    }
}

/// Answers what a machine says over its first stream, and tells it where the hubs are when that changes, until the connection ends.
pub(crate) async fn answer_pings(
    connection: Connection,
    (mut sender, mut receiver): (Sender, Receiver),
    changes: watch::Sender<Option<Lends>>,
    mut hubs: Hubs,
) {
    loop {
        let control = tokio::select! {
            control = receiver.next::<Control>() => control,
            told = hubs.changed() => {
                if sender.send(&told).await.is_err() {
                    return;
                }
                continue;
            }
        };
        let Ok(Some(control)) = control else { return };
        match control.kind {
            Some(ControlKind::Ping(asked)) => {
                let down = connection.path().map(Into::into);
                let pong = ControlKind::Pong(Pong { asked, answered: now_nanos(), down });
                if sender.send(&Control::from(pong)).await.is_err() {
                    return;
                }
            }
            // What was learnt of the network before is over by itself: QUIC has seen the other address.
            Some(ControlKind::Moved(Moved { down: Some(known) })) => {
                Path::claimed(known).into_iter().for_each(|path| connection.remember(path));
            }
            Some(ControlKind::Lends(lends)) => drop(changes.send(Some(lends))),
            Some(ControlKind::Moved(_) | ControlKind::Pong(_) | ControlKind::Hubs(_)) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{hello, serve_hub};

    #[test]
    fn what_a_stranger_says_of_itself_is_cut_and_escaped() {
        let long = Hello {
            name: format!("a\x1b[31m{}", "\u{fc}".repeat(5000)),
            platform: "x".repeat(5000),
            secret: vec![1; 5000].into(),
            tags: vec!["t".into(); 5000],
            ..Hello::default()
        };
        let kept = bounded(long);
        assert!(kept.name.starts_with("a\\u{1b}[31m") && kept.name.len() < 100, "{}", kept.name);
        assert_eq!((kept.platform.len(), kept.secret.len(), kept.tags.len()), (PLATFORM_BYTES_MAX, 0, TAGS_MAX));
        assert_eq!(bounded(hello(Role::Worker, 3)), hello(Role::Worker, 3));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_joiner_may_be_one_version_older() {
        let hub = serve_hub("hub");
        for (number, version, is_welcome) in
            [(1, wire::VERSION, true), (2, wire::VERSION - 1, true), (3, wire::VERSION + 1, false), (4, 0, false)]
        {
            let key = crate::testing::node(number);
            lock(&hub.shared.registry).add(key, "client", "machine", 1).expect("let in");
            let (theirs, ours) = Connection::within_process(key, hub.node);
            // Within a process what was said last is lost with the one who said it.
            let (shared, _held) = (hub.shared.clone(), ours.clone());
            tokio::spawn(async move { shared.serve(ours).await });
            let (mut sender, mut receiver) = theirs.open_control().await.expect("a stream");
            sender.greet(&Hello { version, ..hello(Role::Client, 0) }).await.expect("sent");
            let welcome: Welcome = receiver.next().await.expect("heard").expect("a welcome");
            assert_eq!(welcome.refusal.is_empty(), is_welcome, "{version}: {}", welcome.refusal);
            assert_eq!(welcome.version, if is_welcome { version } else { wire::VERSION });
        }
        let told = hub.shared.figures();
        assert_eq!(told.joins_refused.values().sum::<u64>(), 2, "{:?}", told.joins_refused);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_shows_secrets_again_and_again_does_not_fill_the_audit_log() {
        let hub = serve_hub("hub");
        let key = crate::testing::node(1);
        lock(&hub.shared.registry).add(key, "client", "machine", 1).expect("let in");
        let (begun, hello) = (
            std::time::Instant::now(),
            Hello { version: wire::VERSION, secret: vec![5; 16].into(), ..hello(Role::Client, 0) },
        );
        for _ in 0..1_000 {
            hub.shared.admit(&connection_of(key, &hub), &hello).expect("it is known");
        }
        let most = 10 * (begun.elapsed().as_secs() as usize + 2);
        hub.shared.audit.note("marked", json!({}));
        let lines = async {
            loop {
                let lines = hub.shared.audit.last(1_000);
                if lines.iter().any(|line| line["what"] == "marked") {
                    return lines.iter().filter(|line| line["what"] == "joined").count();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let joined = tokio::time::timeout(crate::testing::LIMIT, lines).await.expect("written");
        assert!(joined > 0 && joined <= most, "{joined} lines, and {most} at most");
    }

    /// A connection of this key, as the hub has it.
    fn connection_of(key: NodeId, hub: &crate::testing::Served) -> Connection {
        Connection::within_process(key, hub.node).1
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_key_has_a_bounded_number_of_connections() {
        let hub = serve_hub("hub");
        let key = wire::Key::generate();
        lock(&hub.shared.registry).add(key.node(), "client", "machine", 1).expect("let in");
        let endpoint = wire::Endpoint::new(&key, wire::Hold::Short).expect("made");
        let join = |instance: u64| {
            let hello = Hello { instance, ..hello(Role::Client, 0) };
            let paths = |_| wire::flow::Paths::default();
            let (endpoint, address, node) = (endpoint.clone(), hub.address, hub.node);
            async move { wire::dial(&endpoint, &[address], node, paths, hello).await }
        };
        let mut joined = Vec::new();
        for instance in 0..CONNECTIONS_MAX as u64 {
            joined.push(join(instance).await.expect("joined"));
        }
        let refused = join(999).await;
        assert!(matches!(&refused, Err(wire::DialError::Refused(why)) if why.contains("connections")), "{refused:?}");
        joined.pop().expect("one").connection.close("done");
        while join(999).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
