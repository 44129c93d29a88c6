//! The worker's connection to its hub: made, kept, and made again when lost; and the launches that come over it.

use crate::clients::Clients;
use crate::task;
use base::NodeId;
use std::net::SocketAddr;
use std::sync::Arc;
use wire::flow::Paths;
use wire::message::{Hello, Open, OpenKind};
use wire::{Connection, DialError, Endpoint, Joined, Pauses, Role, Turn};

/// Where a worker's hub is.
pub enum HubPlace {
    /// On the machine that holds this key, at the first of these addresses that answers; connections are made from here.
    Elsewhere(Box<Endpoint>, NodeId, Vec<SocketAddr>),
    /// In this process: makes a connection to it.
    Here(Box<dyn Fn() -> Connection + Send>),
}

/// Which hub, and what this worker says of itself.
pub struct Membership {
    /// The hub.
    pub hub: HubPlace,
    /// Name for people.
    pub name: String,
    /// CPUs lent.
    pub cpus: u32,
    /// Memory lent, bytes.
    pub memory_bytes: u64,
}

/// Keeps the connection to the hub and serves its launches, until the hub refuses this worker for good. `joined` is told
/// of each new connection.
pub async fn serve(
    membership: Membership,
    clients: Arc<Clients>,
    mut joined: impl FnMut(&Joined),
) -> Result<(), DialError> {
    let instance = rand::random();
    let mut pauses = Pauses::default();
    let mut newest = Newest::default();
    loop {
        let hello = Hello {
            role: Role::Worker.number().into(),
            name: membership.name.clone(),
            cpus: membership.cpus,
            memory_bytes: membership.memory_bytes,
            instance,
            platform: platform(),
            ..Hello::default()
        };
        let joining = match &membership.hub {
            HubPlace::Elsewhere(endpoint, hub, addresses) => {
                wire::dial(endpoint, addresses, *hub, |_| Paths::default(), hello).await
            }
            HubPlace::Here(door) => wire::join(door(), hello).await,
        };
        match joining {
            Ok(joined) if newest.is_replaced(joined.welcome.epoch) => {
                tracing::warn!(
                    epoch = joined.welcome.epoch,
                    newest = newest.0,
                    "the hub has been replaced by a later one, which is looked for; should it be this one all the same, \
                     restart the worker"
                );
                joined.connection.close("a later hub has replaced this one");
            }
            Ok(connection) => {
                pauses = Pauses::default();
                joined(&connection);
                serve_connection(connection, &clients).await;
            }
            Err(refused @ DialError::Refused(_)) => return Err(refused),
            Err(error) => tracing::info!(%error, "the hub cannot be reached; trying again"),
        }
        tokio::time::sleep(pauses.next_pause()).await;
    }
}

/// The highest epoch of the hub that was seen: hubs that replace one another have one key.
#[derive(Default)]
struct Newest(u64);

impl Newest {
    /// Whether a hub of this epoch has been replaced.
    fn is_replaced(&mut self, epoch: u64) -> bool {
        self.0 = self.0.max(epoch);
        epoch < self.0
    }
}

async fn serve_connection(joined: Joined, clients: &Arc<Clients>) {
    clients.connected(&joined);
    while let Ok((sender, mut receiver)) = joined.connection.accept_control().await {
        let (clients, joined) = (clients.clone(), joined.clone());
        tokio::spawn(async move {
            if let Ok(Some(Open { kind: Some(OpenKind::Launch(launch)) })) = receiver.next::<Open>().await {
                sender.set_turn(Turn::ranked(launch.rank));
                task::run(clients, joined, *launch, sender, receiver).await;
            }
        });
    }
    tracing::info!(why = joined.connection.closed().await, "the connection to the hub ended");
}

/// Instruction set and CPU model.
fn platform() -> String {
    let model = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = model.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name));
    format!("{} {}", std::env::consts::ARCH, model.unwrap_or("unknown CPU"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_that_was_replaced_is_known_by_its_epoch() {
        let mut newest = Newest::default();
        let seen = [0, 0, 3, 3, 2, 0, 4, 3].map(|epoch| newest.is_replaced(epoch));
        assert_eq!(seen, [false, false, false, false, true, true, false, true]);
    }
}
