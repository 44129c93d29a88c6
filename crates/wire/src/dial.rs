//! Joining a hub: connect, greet, and keep measuring how far its clock is from ours.

use crate::connection::{CONNECT_LIMIT, Carrier, Connection, Receiver, Sender, WireError};
use crate::endpoint::{Endpoint, Known};
use crate::flow::{Path, Paths};
use crate::lock;
use crate::message::{Control, ControlKind, Hello, Lends, Moved, Pong, Welcome};
use base::NodeId;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How often clocks are compared after the first two seconds.
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// How often within the first two seconds: the first estimate includes the handshake's delays.
const PING_INTERVAL_FIRST: Duration = Duration::from_millis(200);

/// Orders to the connection's first stream that wait; while so many do it is stuck, and one more would not help.
const ORDERS_MAX: usize = 16;

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
    /// What is to be said on the first stream.
    orders: mpsc::Sender<Order>,
}

#[derive(Debug)]
enum Order {
    Probe,
    Moved(Option<Path>),
    Lends(Lends),
}

const PAUSE_FIRST: Duration = Duration::from_millis(200);
const PAUSE_LAST: Duration = Duration::from_secs(5);

/// How long one waits before a lost hub is dialled again.
#[derive(Clone, Copy, Debug)]
pub struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(PAUSE_FIRST)
    }
}

impl Pauses {
    /// The next pause: longer than the one before. Many lose one hub at one moment: they do not all come back at one moment.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.0.mul_f64(0.5 + rand::random::<f64>());
        self.0 = (self.0 * 2).min(PAUSE_LAST);
        pause
    }
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
        let down = *lock(&self.down);
        Paths { up: self.connection.path(), down, is_udp_blocked: self.connection.carrier() == Carrier::Tcp }
    }

    /// Asks the hub for a sign of life, at once and whatever was asked before: the answer shows in [`Connection::heard`].
    pub fn probe(&self) {
        let _ = self.orders.try_send(Order::Probe);
    }

    /// Tells the hub what the workers of this one lend now. False if the connection has ended.
    pub async fn lends(&self, lends: Lends) -> bool {
        self.orders.send(Order::Lends(lends)).await.is_ok()
    }

    /// This machine has moved to another network, of which `known` was learnt before: both sides go by that.
    pub fn moved(&self, known: Paths) {
        self.connection.moved(known.up);
        *lock(&self.down) = None;
        let _ = self.orders.try_send(Order::Moved(known.down));
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
        let to = Known { path: known.up, is_udp_blocked: known.is_udp_blocked };
        match endpoint.connect(*address, hub, to).await {
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
    let (orders, ordered) = mpsc::channel(ORDERS_MAX);
    let measured = Measured { clock: clock.clone(), down: Arc::clone(&down), recent: Vec::new() };
    // Whoever asks for work has no use for the hub's clock, and there are thousands of them.
    let first = (!hello.asks).then(|| Instant::now() + PING_INTERVAL_FIRST);
    tokio::spawn(keep_time(sender, receiver, measured, ordered, first));
    Ok(Joined { connection, welcome, clock, down, orders })
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

/// What pings have shown.
struct Measured {
    clock: Arc<AtomicI64>,
    down: Arc<Mutex<Option<Path>>>,
    /// Round trip and offset of the last samples.
    recent: Vec<(i64, i64)>,
}

impl Measured {
    /// Of the last samples the one with the shortest round trip counts, for its error is the smallest.
    fn on_pong(&mut self, pong: &Pong) {
        const SAMPLES: usize = 8;
        let arrived = now_nanos();
        if let Some(path) = pong.down.and_then(Path::claimed) {
            *lock(&self.down) = Some(path);
        }
        self.recent.push((arrived - pong.asked, offset(pong.asked, pong.answered, arrived)));
        if self.recent.len() > SAMPLES {
            self.recent.remove(0);
        }
        if let Some((_, best)) = self.recent.iter().min() {
            self.clock.store(*best, Ordering::Relaxed);
        }
    }
}

/// Compares clocks for as long as the connection lives, from `next` on if that is wanted, and says what is ordered. Pings do not wait for the answers to others: what
/// is sent now arrives first when a link that was cut is mended.
async fn keep_time(
    mut sender: Sender,
    mut receiver: Receiver,
    mut measured: Measured,
    mut ordered: mpsc::Receiver<Order>,
    mut next: Option<Instant>,
) {
    let mut pings = 0u64;
    loop {
        let said = tokio::select! {
            () = tokio::time::sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                pings += 1;
                next = Some(Instant::now() + if pings < 10 { PING_INTERVAL_FIRST } else { PING_INTERVAL });
                ControlKind::Ping(now_nanos())
            }
            Some(order) = ordered.recv() => match order {
                Order::Probe => ControlKind::Ping(now_nanos()),
                Order::Moved(known) => ControlKind::Moved(Moved { down: known.map(Into::into) }),
                Order::Lends(lends) => ControlKind::Lends(lends),
            },
            answer = receiver.next::<Control>() => match answer {
                Ok(Some(Control { kind: Some(ControlKind::Pong(pong)) })) => {
                    measured.on_pong(&pong);
                    continue;
                }
                Ok(Some(_)) => continue,
                Ok(None) | Err(_) => return,
            },
        };
        if sender.send(&Control::from(said)).await.is_err() {
            return;
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
    fn pauses_grow_to_a_bound() {
        let mut pauses = Pauses::default();
        let taken: Vec<Duration> = (0..20).map(|_| pauses.next_pause()).collect();
        assert!(taken[0] < PAUSE_FIRST * 2 && taken[19] >= PAUSE_LAST / 2, "{taken:?}");
        assert!(taken.iter().all(|pause| *pause <= PAUSE_LAST * 3 / 2), "{taken:?}");
    }

    #[test]
    fn offset_is_taken_at_the_middle() {
        assert_eq!(offset(100, 1_110, 120), 1_000);
        assert_eq!(offset(1_000, 0, 1_000), -1_000);
    }
}
