//! The worker's connection to its hub: made, kept, and made again when lost; and the launches that come over it.

use crate::clients::Clients;
use crate::host::{Ear, Lending};
use crate::task;
use crate::troubles;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use wire::flow::Paths;
use wire::message::{Elsewhere, Hello, Lends, Open, OpenKind};
use wire::{Connection, DialError, Endpoint, Joined, Pauses, Role, Turn, Whereabouts};

/// From one question for a better place to the next.
const ASK_EVERY: Duration = Duration::from_secs(10);
/// From one look for trouble to the next.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Where a worker's hub is.
pub enum HubPlace {
    /// On another machine; connections are made from here.
    Elsewhere(Box<Endpoint>, Arc<Whereabouts>),
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
    /// Names that commands may ask for.
    pub tags: Vec<String>,
    /// The mark of the account whose tasks are no guests here; empty: of none.
    pub owner: Bytes,
    /// What of that is lent at the moment, for its owner comes first.
    pub lending: watch::Receiver<Lending>,
    /// Who wants to know what the hub says of other workers.
    pub ear: Ear,
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
    loop {
        let hello = Hello {
            role: Role::Worker.number().into(),
            name: membership.name.clone(),
            cpus: membership.cpus,
            memory_bytes: membership.memory_bytes,
            instance,
            platform: platform(),
            level: level(),
            tags: membership.tags.clone(),
            answers_signals: true,
            one_client: !clients.sandbox.privileged(),
            owner: membership.owner.clone(),
            ..Hello::default()
        };
        let joining = match &membership.hub {
            HubPlace::Elsewhere(endpoint, hub) => hub.dial(endpoint, |_| Paths::default(), hello).await,
            HubPlace::Here(door) => wire::join(door(), hello).await,
        };
        match joining {
            Ok(connection) => {
                pauses = Pauses::default();
                connection.connection.give_way();
                joined(&connection);
                let tells = tell(&membership, &clients, &connection);
                // A task of its own: this function may be run by the thread that waits for the runtime, and each launch would wake it.
                let mut serving = JoinSet::new();
                serving.spawn(serve_connection(connection.clone(), clients.clone()));
                tokio::select! {
                    _ = serving.join_next() => {}
                    () = tells => {}
                    () = ask_elsewhere(&membership, &connection) => {}
                }
                tracing::info!(why = connection.connection.closed().await, "the connection to the hub ended");
            }
            Err(refused @ DialError::Refused(_)) => return Err(refused),
            Err(error @ DialError::Replaced { .. }) => {
                tracing::warn!(%error, "should it be this one all the same, restart the worker");
            }
            Err(error) => tracing::info!(%error, "the hub cannot be reached; trying again"),
        }
        tokio::time::sleep(pauses.next_pause()).await;
    }
}

/// Tells the hub what is lent, and what there is trouble with, whenever that changes, until the connection ends.
async fn tell(membership: &Membership, clients: &Clients, joined: &Joined) {
    let mut lending = membership.lending.clone();
    let mut stream_waits = clients.stream_waits.subscribe();
    let mut told = (Lending::all(membership.cpus), None, 0);
    let mut looks = tokio::time::interval(LOOK_EVERY);
    loop {
        let now = lending.borrow_and_update().clone();
        let troubles = troubles::look(clients, joined);
        stream_waits.mark_unchanged();
        let cpus_again = clients.stream_waits.lent_again();
        let lends = Lends {
            cpus: now.cpus,
            largest: now.largest,
            memory_mib: (membership.memory_bytes >> 20).min(u32::MAX.into()) as u32,
            level: level(),
            tags: membership.tags.clone(),
            expected: now.expected,
            rests: now.rests.clone(),
            troubles,
            cpus_again,
        };
        // Whether somebody else is free is asked by [`ask_elsewhere`].
        let now = (Lending { asks: false, ..now }, troubles, cpus_again);
        if now != told && !joined.lends(lends).await {
            return;
        }
        told = now;
        tokio::select! {
            changed = lending.changed() => if changed.is_err() {
                // Nothing will change any more.
                return std::future::pending().await;
            },
            Ok(()) = stream_waits.changed() => {}
            _ = looks.tick() => {}
        }
    }
}

/// Asks the hub what tasks would get elsewhere, now and then while that may matter to guests.
async fn ask_elsewhere(membership: &Membership, joined: &Joined) {
    let mut lending = membership.lending.clone();
    loop {
        if lending.wait_for(|lending| lending.asks).await.is_err() {
            return std::future::pending().await;
        }
        match joined.connection.request::<Elsewhere>(OpenKind::Elsewhere(true)).await {
            Ok(Elsewhere { share }) => membership.ear.elsewhere(f64::from(share.min(1_000)) / 1e3),
            Err(error) => tracing::debug!(%error, "the hub does not say what other workers have"),
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

async fn serve_connection(joined: Joined, clients: Arc<Clients>) {
    clients.connected(&joined);
    while let Ok((sender, mut receiver)) = joined.connection.accept_control().await {
        let (clients, joined) = (clients.clone(), joined.clone());
        let present = clients.launches.arrive();
        tokio::spawn(async move {
            let _present = present;
            if let Ok(Some(Open { kind: Some(OpenKind::Launch(launch)) })) = receiver.next::<Open>().await {
                sender.set_turn(Turn::ranked(launch.rank));
                task::run(clients, joined, *launch, sender, receiver).await;
            }
        });
    }
}

/// Level of x86-64 of this machine's processors, by the definition of the psABI; 0: another architecture.
#[cfg(target_arch = "x86_64")]
fn level() -> u32 {
    use std::arch::is_x86_feature_detected as has;
    let second = has!("cmpxchg16b") && has!("popcnt") && has!("sse3") && has!("sse4.2") && has!("ssse3");
    let third =
        has!("avx2") && has!("bmi1") && has!("bmi2") && has!("f16c") && has!("fma") && has!("lzcnt") && has!("movbe");
    let fourth = has!("avx512f") && has!("avx512bw") && has!("avx512cd") && has!("avx512dq") && has!("avx512vl");
    1 + [second, third, fourth].into_iter().take_while(|has_all| *has_all).count() as u32
}

#[cfg(not(target_arch = "x86_64"))]
fn level() -> u32 {
    0
}

/// Instruction set and CPU model.
fn platform() -> String {
    let model = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = model.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name));
    format!("{} {}", std::env::consts::ARCH, model.unwrap_or("unknown CPU"))
}
