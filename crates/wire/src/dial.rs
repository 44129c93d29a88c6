//! Joining a hub: connect, greet, and keep measuring how far its clock is from ours.

use crate::connection::{CONNECT_LIMIT, Connection, Endpoint, Receiver, Sender, WireError};
use crate::flow::{Path, Paths};
use crate::message::{Control, ControlKind, Hello, Welcome};
use base::NodeId;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often clocks are compared after the first two seconds.
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// How often within the first two seconds: the first estimate includes the handshake's delays.
const PING_INTERVAL_FIRST: Duration = Duration::from_millis(200);

/// A hub that let us in.
#[derive(Clone, Debug)]
pub struct Joined {
    /// The connection.
    pub connection: Connection,
    /// What the hub said of itself.
    pub welcome: Welcome,
    clock: Arc<AtomicI64>,
    /// What the hub says of the way from it.
    down: Arc<Mutex<Option<Path>>>,
}

/// Why a hub cannot be joined.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DialError {
    /// None of its addresses answers: the last one's error.
    #[error(transparent)]
    Unreachable(#[from] WireError),
    /// The hub says no.
    #[error("the hub refuses: {0}")]
    Refused(String),
    /// No address is known.
    #[error("no address of the hub is known")]
    NoAddress,
}

impl Joined {
    /// Nanoseconds to add to our clock to get the hub's.
    pub fn clock_offset_ns(&self) -> i64 {
        self.clock.load(Ordering::Relaxed)
    }

    /// What has been learnt of the ways to and from the hub.
    pub fn paths(&self) -> Paths {
        let down = *self.down.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        Paths { up: self.connection.path(), down }
    }
}

/// Connects to the hub `hub` at the first of `addresses` that answers, and greets it with `hello`, whose version and
/// clock are filled in. `known`: what was learnt before of the ways to and from an address.
pub async fn dial(
    endpoint: &Endpoint,
    addresses: &[SocketAddr],
    hub: NodeId,
    known: impl Fn(SocketAddr) -> Paths,
    hello: Hello,
) -> Result<Joined, DialError> {
    let mut failure = DialError::NoAddress;
    for address in addresses {
        let known = known(*address);
        let hello = Hello { down: known.down.map(Into::into), ..hello.clone() };
        match endpoint.connect(*address, hub, known.up).await {
            Ok(connection) => return join(connection, hello).await,
            Err(error) => failure = error.into(),
        }
    }
    Err(failure)
}

/// Greets the hub at the other end of `connection` with `hello`, whose version and clock are filled in.
pub async fn join(connection: Connection, mut hello: Hello) -> Result<Joined, DialError> {
    hello.version = crate::VERSION;
    hello.clock = now_nanos();
    let greeted = tokio::time::timeout(CONNECT_LIMIT, greet(&connection, &hello)).await;
    let (sender, receiver, welcome) = greeted.map_err(|_| WireError::Late(CONNECT_LIMIT))??;
    if !welcome.refusal.is_empty() {
        return Err(DialError::Refused(welcome.refusal));
    }
    let clock = Arc::new(AtomicI64::new(offset(hello.clock, welcome.clock, now_nanos())));
    let down = Arc::default();
    tokio::spawn(keep_time(sender, receiver, clock.clone(), Arc::clone(&down)));
    Ok(Joined { connection, welcome, clock, down })
}

async fn greet(connection: &Connection, hello: &Hello) -> Result<(Sender, Receiver, Welcome), WireError> {
    let (mut sender, mut receiver) = connection.open_control().await?;
    sender.send(hello).await?;
    let welcome = receiver.next().await?.ok_or_else(|| WireError::Lost("no answer to the greeting".into()))?;
    Ok((sender, receiver, welcome))
}

/// The other clock minus ours, if the answer was given halfway between question and arrival.
fn offset(asked: i64, answered: i64, arrived: i64) -> i64 {
    answered - (asked + (arrived - asked) / 2)
}

/// Compares clocks for as long as the connection lives. Of the samples since the last estimate the one with the shortest
/// round trip counts, for its error is the smallest.
async fn keep_time(mut sender: Sender, mut receiver: Receiver, clock: Arc<AtomicI64>, down: Arc<Mutex<Option<Path>>>) {
    const SAMPLES: usize = 8;
    let mut recent: Vec<(i64, i64)> = Vec::new();
    for number in 0u64.. {
        tokio::time::sleep(if number < 10 { PING_INTERVAL_FIRST } else { PING_INTERVAL }).await;
        if sender.send(&Control::from(ControlKind::Ping(now_nanos()))).await.is_err() {
            return;
        }
        let Ok(Some(Control { kind: Some(ControlKind::Pong(pong)) })) = receiver.next().await else { return };
        let arrived = now_nanos();
        if let Some(path) = pong.down.and_then(Path::claimed) {
            *down.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(path);
        }
        recent.push((arrived - pong.asked, offset(pong.asked, pong.answered, arrived)));
        if recent.len() > SAMPLES {
            recent.remove(0);
        }
        if let Some((_, best)) = recent.iter().min() {
            clock.store(*best, Ordering::Relaxed);
        }
    }
}

/// The wall clock, nanoseconds since 1970.
pub fn now_nanos() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_is_taken_at_the_middle() {
        assert_eq!(offset(100, 1_110, 120), 1_000);
        assert_eq!(offset(1_000, 0, 1_000), -1_000);
    }
}
