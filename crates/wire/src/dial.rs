//! Joining a hub: connect, greet, and keep measuring how far its clock is from ours.
//!
//! Of several addresses each has a short head start over the next one, so that a machine that is dead holds up nobody (RFC 8305).

use crate::connection::{CONNECT_LIMIT, Carrier, Connection, Receiver, Sender, WireError};
use crate::endpoint::{Endpoint, Known};
use crate::flow::{Path, Paths};
use crate::lock;
use crate::message::{Control, ControlKind, Hello, Lends, Moved, Pong, Welcome};
use crate::owner::Secret;
use crate::versions;
use crate::whereabouts::parsed;
use base::NodeId;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// Head start of an address over the next one.
const HEAD_START: Duration = Duration::from_millis(250);
/// An address that failed is tried again after this time, while another one has not answered: a hub may begin to listen.
const AGAIN: Duration = Duration::from_secs(1);

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
    /// Where the hub says that it and those that would replace it are.
    hubs: watch::Receiver<Vec<SocketAddr>>,
}

#[derive(Debug)]
enum Order {
    Probe,
    Moved(Option<Path>),
    Lends(Lends),
}

const PAUSE_FIRST: Duration = Duration::from_millis(200);
const PAUSE_LAST: Duration = Duration::from_secs(5);

/// How long one waits before a lost hub is dialled again, or what broke off with it is begun again.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    first: Duration,
    next: Duration,
    last: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Self::between(PAUSE_FIRST, PAUSE_LAST)
    }
}

impl Pauses {
    /// From about `first`, each twice as long as the one before, to about `last`.
    pub fn between(first: Duration, last: Duration) -> Self {
        Self { first, next: first, last }
    }

    /// The next pause: longer than the one before. Many lose one hub at one moment: they do not all come back at one moment.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.next.mul_f64(0.5 + rand::random::<f64>());
        self.next = (self.next * 2).min(self.last);
        pause
    }

    /// All is well again: the next pause is the first one.
    pub fn start_over(&mut self) {
        self.next = self.first;
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
    /// It is a hub that another one has replaced: it will find out.
    #[error("this hub (epoch {epoch}) has been replaced by a later one (epoch {newest}), which is looked for")]
    Replaced {
        /// Which it is.
        epoch: u64,
        /// The last that was seen.
        newest: u64,
    },
    /// No address is known.
    #[error("no address of the hub is known")]
    NoAddress,
    /// Whoever dialled wants it no more.
    #[error("the hub is not looked for any more")]
    GivenUp,
}

impl Joined {
    /// Nanoseconds to add to our clock to get the hub's.
    pub fn clock_offset_ns(&self) -> i64 {
        self.clock.load(Ordering::Relaxed)
    }

    /// Whether this is one connection.
    pub fn is_same(&self, other: &Joined) -> bool {
        Arc::ptr_eq(&self.clock, &other.clock)
    }

    /// Whether the hub has shown that it is of this account on this machine.
    pub fn is_of_own_account(&self) -> bool {
        let shown = &self.welcome.owner;
        let is_proof = |secret: Secret| secret.proof_of_hub(self.connection.peer()).is(shown);
        !shown.is_empty() && Secret::read().is_some_and(is_proof)
    }

    /// What has been learnt of the ways to and from the hub.
    pub fn paths(&self) -> Paths {
        let down = *lock(&self.down);
        Paths { up: self.connection.path(), down, is_udp_blocked: self.connection.carrier() == Carrier::Tcp }
    }

    /// Where the hub says that it and those that would replace it are, now and when that changes.
    pub fn hubs(&self) -> watch::Receiver<Vec<SocketAddr>> {
        self.hubs.clone()
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

/// Connects to the hub `hub` at the first of `addresses` that answers, each of which has a short head start over the next, and greets
/// it with `hello`, whose version and clock are filled in. `known`: what was learnt before of the ways to and from an address.
pub async fn dial(
    endpoint: &Endpoint,
    addresses: &[SocketAddr],
    hub: NodeId,
    known: impl Fn(SocketAddr) -> Paths,
    hello: Hello,
) -> Result<Joined, DialError> {
    dial_unless(endpoint, addresses, hub, known, hello, std::future::pending()).await
}

/// As [`dial`], until `gives_up` completes. A greeting that has begun is waited for all the same: the hub may have acted on it.
pub(crate) async fn dial_unless(
    endpoint: &Endpoint,
    addresses: &[SocketAddr],
    hub: NodeId,
    known: impl Fn(SocketAddr) -> Paths,
    hello: Hello,
    gives_up: impl Future<Output = ()>,
) -> Result<Joined, DialError> {
    let mut gives_up = std::pin::pin!(gives_up);
    let begun = Instant::now();
    let turn = |(at, address): (usize, &SocketAddr)| (begun + HEAD_START * at as u32, *address, true);
    // When an address is tried, and whether for the first time. Once each has been, and no more can come of it, there is no hub.
    let mut turns: Vec<(Instant, SocketAddr, bool)> = addresses.iter().enumerate().map(turn).collect();
    let (mut firsts, mut tried, mut failure) = (turns.len(), JoinSet::new(), DialError::NoAddress);
    let mut version = versions::own();
    loop {
        let next = turns.iter().enumerate().map(|(at, turn)| (turn.0, at)).min().filter(|_| firsts > 0);
        tokio::select! {
            biased;
            () = &mut gives_up, if next.is_some() || !tried.is_empty() => return Err(DialError::GivenUp),
            Some(ended) = tried.join_next() => {
                let (address, is_first, connected) = ended.map_err(|error| WireError::Lost(error.to_string()))?;
                firsts -= usize::from(is_first);
                let hello = Hello { down: known(address).down.map(Into::into), version, ..hello.clone() };
                failure = match connected {
                    Err(error) => DialError::from(error),
                    Ok(connection) => match join_as(connection, hello).await {
                        Err(Refusal::Older(older)) => {
                            // It is the hub, and it is older: it is greeted once more, in its own language.
                            version = older;
                            tried.spawn(connect(endpoint, address, hub, known(address)));
                            continue;
                        }
                        Err(Refusal::Other(error @ DialError::Unreachable(_))) => error,
                        Err(Refusal::Other(error)) => return Err(error),
                        Ok(joined) => return Ok(joined),
                    },
                };
                // The next one need not wait any more.
                let now = Instant::now();
                turns.iter_mut().filter(|turn| turn.2).take(1).for_each(|turn| turn.0 = now);
                turns.push((now + AGAIN, address, false));
            }
            () = sleep_until(next.map_or(begun, |(when, _)| when)), if next.is_some() => {
                let Some((_, at)) = next else { continue };
                let (_, address, is_first) = turns.remove(at);
                let connecting = connect(endpoint, address, hub, known(address));
                tried.spawn(async move { (address, is_first, connecting.await.2) });
            }
            else => return Err(failure),
        }
    }
}

/// Connects to a hub: where, that this is not the first time, and what came of it.
fn connect(
    endpoint: &Endpoint,
    address: SocketAddr,
    hub: NodeId,
    known: Paths,
) -> impl Future<Output = (SocketAddr, bool, Result<Connection, WireError>)> + Send + use<> {
    let endpoint = endpoint.clone();
    let to = Known { path: known.up, is_udp_blocked: known.is_udp_blocked };
    async move { (address, false, endpoint.connect(address, hub, to).await) }
}

/// Greets the hub at the other end of `connection` with `hello`, whose version and clock are filled in.
pub async fn join(connection: Connection, hello: Hello) -> Result<Joined, DialError> {
    let hello = Hello { version: versions::own(), ..hello };
    join_as(connection, hello).await.map_err(|refusal| match refusal {
        Refusal::Older(version) => DialError::Refused(format!("it speaks protocol {version}")),
        Refusal::Other(error) => error,
    })
}

/// Why a greeting came to nothing.
enum Refusal {
    /// The hub speaks this older version, as we do.
    Older(u32),
    Other(DialError),
}

impl From<WireError> for Refusal {
    fn from(error: WireError) -> Self {
        Self::Other(error.into())
    }
}

/// The same in the version that `hello` says.
async fn join_as(connection: Connection, mut hello: Hello) -> Result<Joined, Refusal> {
    hello.clock = now_nanos();
    let greeted = tokio::time::timeout(CONNECT_LIMIT, greet(&connection, &hello)).await;
    let (sender, receiver, welcome) = greeted.map_err(|_| WireError::Late(CONNECT_LIMIT))??;
    if !welcome.refusal.is_empty() {
        let older = welcome.version < hello.version && versions::is_spoken(welcome.version);
        return Err(match older {
            true => Refusal::Older(welcome.version),
            false => Refusal::Other(DialError::Refused(welcome.refusal)),
        });
    }
    // A hub may say anything, and one of version 1 says its own.
    connection.speak(welcome.version.min(hello.version));
    let clock = Arc::new(AtomicI64::new(offset(hello.clock, welcome.clock, now_nanos())));
    let down = Arc::default();
    let (orders, ordered) = mpsc::channel(ORDERS_MAX);
    let (told, hubs) = watch::channel(parsed(&welcome.addresses));
    let measured = Measured { clock: clock.clone(), down: Arc::clone(&down), recent: Vec::new(), hubs: told };
    // Whoever asks for work has no use for the hub's clock, and there are thousands of them.
    let first = (!hello.asks).then(|| Instant::now() + PING_INTERVAL_FIRST);
    tokio::spawn(keep_time(sender, receiver, measured, ordered, first));
    Ok(Joined { connection, welcome, clock, down, orders, hubs })
}

async fn greet(connection: &Connection, hello: &Hello) -> Result<(Sender, Receiver, Welcome), WireError> {
    let (mut sender, mut receiver) = connection.open_control().await?;
    sender.greet(hello).await?;
    let welcome = receiver.next().await?.ok_or_else(|| WireError::Lost("no answer to the greeting".into()))?;
    Ok((sender, receiver, welcome))
}

/// The other clock minus ours, if the answer was given halfway between question and arrival.
fn offset(asked: i64, answered: i64, arrived: i64) -> i64 {
    // What the other side says of its clock may be anything.
    answered.saturating_sub(asked.saturating_add(arrived.saturating_sub(asked) / 2))
}

/// What pings have shown, and what the hub says unasked.
struct Measured {
    clock: Arc<AtomicI64>,
    down: Arc<Mutex<Option<Path>>>,
    hubs: watch::Sender<Vec<SocketAddr>>,
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
        self.recent.push((arrived.saturating_sub(pong.asked), offset(pong.asked, pong.answered, arrived)));
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
                Ok(Some(Control { kind: Some(ControlKind::Hubs(hubs)) })) => {
                    measured.hubs.send_replace(parsed(&hubs.addresses));
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

/// The same in milliseconds.
pub fn now_millis() -> i64 {
    now_nanos() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Hold, Key, Listener, Whereabouts};
    use std::net::UdpSocket;

    /// A hub that greets all that come, and says once where others are.
    fn serve(listener: Listener, epoch: u64, later: SocketAddr) -> tokio::task::JoinHandle<()> {
        tokio::spawn(async move {
            while let Some(attempt) = listener.accept().await {
                tokio::spawn(async move {
                    let connection = attempt.finish().await.expect("connected");
                    let (mut sender, mut receiver) = connection.accept_control().await.expect("a stream");
                    let Ok(Some(_)) = receiver.next::<Hello>().await else { return };
                    // As hubs do: what they know from the first word on, and again when it changes.
                    let addresses = vec![later.to_string()];
                    let welcome = Welcome { epoch, addresses: addresses.clone(), ..Welcome::default() };
                    sender.send(&welcome).await.expect("sent");
                    let hubs = crate::message::Hubs { addresses };
                    sender.send(&Control::from(ControlKind::Hubs(hubs))).await.expect("sent");
                    connection.closed().await;
                });
            }
        })
    }

    /// A hub that speaks this version alone, as the first one did, and counts greetings.
    fn serve_first(listener: Listener, version: u32) -> (tokio::task::JoinHandle<()>, mpsc::UnboundedReceiver<u32>) {
        let (heard, hears) = mpsc::unbounded_channel();
        let serving = tokio::spawn(async move {
            while let Some(attempt) = listener.accept().await {
                let connection = attempt.finish().await.expect("connected");
                let (mut sender, mut receiver) = connection.accept_control().await.expect("a stream");
                let hello = receiver.next::<Hello>().await.expect("heard").expect("a greeting");
                heard.send(hello.version).expect("counted");
                let is_own = hello.version == version;
                let refusal = if is_own { String::new() } else { "install the same version".to_owned() };
                sender.send(&Welcome { version, refusal, ..Welcome::default() }).await.expect("sent");
                sender.finish();
                tokio::spawn(async move { connection.closed().await });
            }
        });
        (serving, hears)
    }

    #[tokio::test]
    async fn a_hub_of_the_version_before_is_greeted_in_that() {
        let endpoint = Endpoint::new(&Key::generate(), Hold::Long).expect("made");
        for (version, want) in [(crate::VERSION - 1, true), (crate::VERSION + 1, false)] {
            let key = Key::generate();
            let listener = Listener::bind(any(), &key).expect("bound");
            let address = listener.address().expect("bound");
            let (serving, mut hears) = serve_first(listener, version);
            let joined = dial(&endpoint, &[address], key.node(), |_| Paths::default(), Hello::default()).await;
            assert_eq!(hears.recv().await, Some(crate::VERSION), "the newest first");
            match joined {
                Ok(joined) => {
                    assert!(want && joined.welcome.version == version);
                    assert_eq!(hears.recv().await, Some(version));
                }
                Err(refused) => assert!(!want && matches!(refused, DialError::Refused(_)), "{refused:?}"),
            }
            serving.abort();
        }
    }

    fn any() -> SocketAddr {
        ([127, 0, 0, 1], 0).into()
    }

    /// An address where nothing is ever answered, by UDP or TCP.
    fn silent() -> (UdpSocket, SocketAddr) {
        let socket = UdpSocket::bind(any()).expect("loopback is there");
        let address = socket.local_addr().expect("bound");
        (socket, address)
    }

    #[tokio::test]
    async fn a_dead_machine_holds_up_nobody_and_who_was_told_of_is_found() {
        let (key, (_one, dead), (free, late)) = (Key::generate(), silent(), silent());
        let endpoint = Endpoint::new(&Key::generate(), Hold::Long).expect("made");
        let listener = Listener::bind(any(), &key).expect("bound");
        let address = listener.address().expect("bound");
        let first = serve(listener, 4, late);
        let hub = Arc::new(Whereabouts::new(key.node(), vec![dead, address]));
        let dial = || hub.dial(&endpoint, |_| Paths::default(), Hello::default());
        let begun = Instant::now();
        let joined = dial().await.expect("joined");
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        joined.hubs().wait_for(|hubs| hubs == &[late]).await.expect("told");
        first.abort();
        let _ = first.await;
        // Nobody listens where it was told yet.
        drop(free);
        tokio::spawn({
            let key = key.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(1500)).await;
                let listener = Listener::bind(late, &key).expect("bound");
                serve(listener, 5, late).await.expect("no panic");
            }
        });
        let begun = Instant::now();
        let second = dial().await.expect("joined");
        assert!(begun.elapsed() < CONNECT_LIMIT, "{:?}", begun.elapsed());
        assert_eq!((second.connection.address(), second.welcome.epoch), (Some(late), 5));
        // One wakes that has not heard of it.
        let listener = Listener::bind(any(), &key).expect("bound");
        let address = listener.address().expect("bound");
        let _third = serve(listener, 4, late);
        let never = std::future::pending();
        let stale = hub.dial_at(&endpoint, &[address], |_| Paths::default(), Hello::default(), never).await;
        assert!(matches!(stale, Err(DialError::Replaced { epoch: 4, newest: 5 })), "{stale:?}");
        assert_eq!(dial().await.expect("joined").connection.address(), Some(late));
    }

    #[tokio::test]
    async fn connecting_is_given_up_and_greeting_is_not() {
        let (key, (_one, dead)) = (Key::generate(), silent());
        let endpoint = Endpoint::new(&Key::generate(), Hold::Long).expect("made");
        let listener = Listener::bind(any(), &key).expect("bound");
        let address = listener.address().expect("bound");
        let (greeted, greets) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let connection = listener.accept().await.expect("an attempt").finish().await.expect("connected");
            let (mut sender, mut receiver) = connection.accept_control().await.expect("a stream");
            receiver.next::<Hello>().await.expect("heard").expect("a greeting");
            greeted.send(()).expect("waited for");
            tokio::time::sleep(Duration::from_millis(200)).await;
            sender.send(&Welcome::default()).await.expect("sent");
            connection.closed().await;
        });
        let hub = Arc::new(Whereabouts::new(key.node(), Vec::new()));
        let gives_up = async { greets.await.expect("greeted") };
        let joined = hub.dial_at(&endpoint, &[address], |_| Paths::default(), Hello::default(), gives_up).await;
        assert_eq!(joined.expect("joined").connection.address(), Some(address));
        let gives_up = tokio::time::sleep(Duration::from_millis(100));
        let given_up = hub.dial_at(&endpoint, &[dead], |_| Paths::default(), Hello::default(), gives_up).await;
        assert!(matches!(given_up, Err(DialError::GivenUp)), "{given_up:?}");
    }

    #[test]
    fn pauses_grow_to_a_bound() {
        let mut pauses = Pauses::default();
        let taken: Vec<Duration> = (0..20).map(|_| pauses.next_pause()).collect();
        assert!(taken[0] < PAUSE_FIRST * 2 && taken[19] >= PAUSE_LAST / 2, "{taken:?}");
        assert!(taken.iter().all(|pause| *pause <= PAUSE_LAST * 3 / 2), "{taken:?}");
        pauses.start_over();
        assert!(pauses.next_pause() < PAUSE_FIRST * 2);
    }

    #[test]
    fn offset_is_taken_at_the_middle() {
        assert_eq!(offset(100, 1_110, 120), 1_000);
        assert_eq!(offset(1_000, 0, 1_000), -1_000);
        for (asked, answered) in [(i64::MIN, i64::MIN), (i64::MIN, i64::MAX), (i64::MAX, i64::MIN), (0, i64::MIN)] {
            offset(asked, answered, 1_700_000_000_000_000_000);
        }
    }
}
