//! Letting machines in, and what is told over a connection's first stream.

use crate::above;
use crate::held::Held;
use crate::server::{Shared, blocking, now_seconds};
use crate::shared::Hubs;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use store::system::release;
use tokio::sync::watch;
use wire::flow::Path;
use wire::message::{Control, ControlKind, Hello, Lends, Moved, Pong, Welcome, digest_bytes};
use wire::{Connection, Receiver, Role, Sender, WireError, lock, now_nanos};

/// How long a new connection may take to greet.
const GREETING_LIMIT: Duration = Duration::from_secs(5);

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
}

impl Shared {
    /// Lets a machine in. `None`: it was told why not.
    pub(crate) async fn greet(self: &Arc<Self>, connection: Connection) -> Result<Option<Guest>, WireError> {
        let greeting = async {
            let (sender, mut receiver) = connection.accept_control().await?;
            let hello = receiver.next::<Hello>().await?.ok_or_else(|| WireError::Lost("no greeting".into()))?;
            Ok::<_, WireError>((sender, receiver, hello))
        };
        let greeting = tokio::time::timeout(GREETING_LIMIT, greeting).await;
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
        let launches = admitted.as_ref().is_ok_and(|(role, _)| role.launches());
        let held = launches.then(|| lock(&self.state).come_back(&connection, &hello)).flatten();
        if admitted.is_ok() && !hello.asks {
            connection.allow_streams();
        }
        if matches!(&admitted, Ok((Role::Worker, _))) {
            connection.give_way();
        }
        let mut hubs = self.hubs.clone();
        let welcome = Welcome {
            version: wire::VERSION,
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
        };
        sender.send(&welcome).await?;
        let Ok((role, tenant)) = admitted else {
            tracing::info!(node = %connection.peer(), name = hello.name, refusal = welcome.refusal, "refused");
            sender.finish();
            let _ = tokio::time::timeout(GREETING_LIMIT, sender.stopped()).await;
            return Ok(None);
        };
        tracing::info!(node = %connection.peer(), name = hello.name, role = role.name(), "joined");
        if let Some(path) = hello.down.and_then(Path::claimed) {
            connection.remember(path);
        }
        Ok(Some(Guest { connection, hello, role, tenant, held, control: (sender, receiver), hubs }))
    }

    /// Looks once more whether a machine may be here, of whose connection the state knows now: one that was revoked after it was let in,
    /// and before that, is sent away.
    pub(crate) fn look_again(self: &Arc<Self>, connection: &Connection) {
        let (shared, connection) = (self.clone(), connection.clone());
        tokio::task::spawn_blocking(move || {
            let role = lock(&shared.registry).role(connection.peer());
            if role.is_none() {
                connection.close(REVOKED);
            }
        });
    }

    fn admit(&self, connection: &Connection, hello: &Hello) -> Result<(Role, base::Tenant), String> {
        if hello.version != wire::VERSION {
            return Err(format!(
                "this hub speaks protocol {}, not {}: install the same version of gleaner on both",
                wire::VERSION,
                hello.version
            ));
        }
        let role = Role::from_number(hello.role).ok_or("an unknown role")?;
        if hello.behind.is_some() {
            above::check(&self.path(), connection.peer())?;
        }
        let mut registry = lock(&self.registry);
        let tenant = registry
            .admit(connection.peer(), role, &hello.name, &hello.secret, now_seconds())
            .map_err(|error| error.to_string())?;
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
