//! Connections between two endpoints of this machine: by UDP, through tunnels, and from one to the other.

use super::*;
use crate::connection::{Carrier, Way};
use crate::fetch::{FetchError, Fetcher};
use crate::listener::Listener;
use crate::message::{Answer, Control, ControlKind, ObjectReply, Open, OpenKind};
use crate::turn::Turn;
use bytes::Bytes;
use prost::Message;
use std::net::IpAddr;

/// Both ends of a connection, and what they belong to.
struct Pair {
    near: Connection,
    far: Connection,
    endpoint: Endpoint,
    address: SocketAddr,
    hub: Key,
}

async fn pair() -> Pair {
    let hub = Key::generate();
    let listener = Arc::new(Listener::bind((Ipv4Addr::LOCALHOST, 0).into(), &hub).expect("loopback is there"));
    let address = listener.address().expect("bound");
    let endpoint = Endpoint::new(&Key::generate(), Hold::Long).expect("made");
    let (near, far) = join(&endpoint, &listener, address, hub.node()).await;
    Pair { near, far, endpoint, address, hub }
}

async fn join(
    endpoint: &Endpoint,
    listener: &Arc<Listener>,
    address: SocketAddr,
    hub: NodeId,
) -> (Connection, Connection) {
    let (told, mut accepted) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn({
        let listener = listener.clone();
        async move {
            while let Some(attempt) = listener.accept().await {
                let told = told.clone();
                tokio::spawn(async move { attempt.finish().await.map(|connection| told.send(connection)) });
            }
        }
    });
    let near = endpoint.connect(address, hub, Known::default()).await.expect("connected");
    let far = accepted.recv().await.expect("accepted");
    assert_eq!((near.peer(), far.peer()), (hub, endpoint.key.node()));
    listener.guests().vouch_for(&far, 9).expect("few");
    (near, far)
}

/// Sends bytes there and back.
async fn echo(near: &Connection, far: &Connection, bytes: Bytes) {
    let far = far.clone();
    let answering = tokio::spawn(async move {
        let (mut sender, mut receiver) = far.accept_control().await.expect("a stream");
        let open: Open = receiver.next().await.expect("read").expect("a message");
        let Some(OpenKind::Ask(json)) = open.kind else { panic!("{open:?}") };
        sender.send(&Answer { json }).await.expect("sent");
        sender.finish();
        sender.stopped().await;
    });
    let answer: Answer = near.request(OpenKind::Ask(bytes.clone())).await.expect("answered");
    assert_eq!(answer.json, bytes);
    answering.await.expect("no panic");
}

#[tokio::test]
async fn messages_of_any_size_cross() {
    let Pair { near, far, .. } = pair().await;
    echo(&near, &far, Bytes::from(vec![7; 5 << 20])).await;
    assert_eq!((near.carrier(), far.carrier()), (Carrier::Udp, Carrier::Udp));
}

#[tokio::test]
async fn what_waits_goes_by_its_turn() {
    const LENGTH: usize = 1 << 20;
    let Pair { near, far, .. } = pair().await;
    let turns = [Turn::Last, Turn::Ranked(3), Turn::Contents, Turn::Ranked(0), Turn::First];
    let mut streams = Vec::new();
    // Nothing is sent before this test waits for something.
    for (number, turn) in turns.into_iter().enumerate() {
        let (mut sender, receiver) = near.open_control().await.expect("opened");
        sender.set_turn(turn);
        sender.send(&Answer { json: vec![number as u8; LENGTH].into() }).await.expect("sent");
        sender.finish();
        streams.push((sender, receiver));
    }
    let (told, mut ended) = tokio::sync::mpsc::unbounded_channel();
    for _ in turns {
        let (sender, mut receiver) = far.accept_control().await.expect("a stream");
        let told = told.clone();
        tokio::spawn(async move {
            let answer: Answer = receiver.next().await.expect("read").expect("a message");
            told.send(turns[usize::from(answer.json[0])]).expect("somebody listens");
            drop(sender);
        });
    }
    let mut order = Vec::new();
    for _ in turns {
        order.push(ended.recv().await.expect("another"));
    }
    assert_eq!(order, [Turn::First, Turn::Contents, Turn::Ranked(0), Turn::Ranked(3), Turn::Last]);
}

/// What a question comes to that is answered after half a second, where silence of 100 ms is an end.
async fn ask_slow_side(is_heard: bool) -> Result<Bytes, FetchError> {
    const LATE: Duration = Duration::from_millis(500);
    let Pair { near, far, .. } = pair().await;
    let fetcher =
        Fetcher::new(near, Default::default(), Duration::from_millis(100), Arc::new(|_, _| {}), Arc::new(|_| None));
    let answering = tokio::spawn(async move {
        let (mut sender, mut receiver) = far.accept_control().await.expect("a question");
        let Ok(Some(Open { kind: Some(OpenKind::Objects(request)) })) = receiver.next().await else {
            panic!("another")
        };
        let (mut others, _) = far.open_control().await.expect("opened");
        let asked = std::time::Instant::now();
        while asked.elapsed() < LATE {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if is_heard {
                others.send(&Answer::default()).await.expect("sent");
            }
        }
        let bytes = Bytes::from_static(b"late");
        // Nobody waits any more, perhaps.
        let _ = sender
            .answer_object(ObjectReply { digest: request.digests[0].clone(), bytes, error: String::new(), errno: 0 })
            .await;
        sender.finish();
        sender.stopped().await;
    });
    let found = fetcher.object(base::Digest::of(b"late")).await;
    answering.abort();
    found
}

#[tokio::test]
async fn an_answer_is_waited_for_as_long_as_the_other_side_is_heard() {
    assert_eq!(ask_slow_side(true).await.expect("it came"), &b"late"[..]);
    assert!(matches!(ask_slow_side(false).await, Err(FetchError::Wire(WireError::Late(_)))));
}

#[tokio::test]
async fn another_key_than_expected_is_refused() {
    let Pair { endpoint, address, .. } = pair().await;
    let stranger = Key::generate().node();
    let refused = endpoint.connect(address, stranger, Known::default()).await;
    assert!(matches!(refused, Err(WireError::Connect { .. })), "{refused:?}");
    assert!(endpoint.detour(address, stranger, Duration::ZERO).await.is_err());
}

#[tokio::test]
async fn where_nobody_is_that_is_said_soon() {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback is there");
    let address = socket.local_addr().expect("bound");
    let endpoint = Endpoint::new(&Key::generate(), Hold::Short).expect("made");
    let node = endpoint.key.node();
    let none = endpoint.detour(address, node, Duration::ZERO).await;
    assert_eq!(none, Err(NoDetour::NoTunnel("over TCP nobody listens there".into())));
    drop(socket);
    let started = std::time::Instant::now();
    assert!(endpoint.connect(address, node, Known::default()).await.is_err());
    assert!(started.elapsed() < HEAD_START + PROBE_LIMIT * 2, "{:?}", started.elapsed());
    assert_eq!(endpoint.detour(address, node, Duration::ZERO).await, Err(NoDetour::NobodyThere));
}

#[tokio::test]
async fn a_connection_goes_on_in_a_tunnel_and_back() {
    let Pair { near, far, endpoint, address, hub } = pair().await;
    echo(&near, &far, Bytes::from_static(b"by UDP")).await;
    assert_eq!(endpoint.detour(address, hub.node(), Duration::ZERO).await, Err(NoDetour::NotNeeded));
    for round in 1..3u8 {
        let stream = tunnel::connect(&endpoint.key, address, hub.node()).await.expect("a tunnel");
        endpoint.carry(address, stream).expect("IPv4 is there");
        echo(&near, &far, Bytes::from(vec![round; 3 << 20])).await;
        assert_eq!((near.carrier(), far.carrier()), (Carrier::Tcp, Carrier::Tcp));
    }
    assert_eq!(far.address().expect("it has one").ip(), IpAddr::V4(Ipv4Addr::LOCALHOST));
    assert!(endpoint.end_detour(address).await, "UDP passes");
    echo(&near, &far, Bytes::from_static(b"by UDP again")).await;
    assert_eq!((near.carrier(), far.carrier()), (Carrier::Udp, Carrier::Udp));
}

#[tokio::test]
async fn where_no_udp_passes_a_tunnel_is_found() {
    let hub = Key::generate();
    let listener = Arc::new(Listener::bind((Ipv4Addr::LOCALHOST, 0).into(), &hub).expect("loopback is there"));
    // A relay for TCP alone: at its address UDP is heard by nobody who answers.
    let relay = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback is there");
    let (at, hub_at) = (relay.local_addr().expect("bound"), listener.address().expect("bound"));
    let _deaf = std::net::UdpSocket::bind(at).expect("the same port for UDP");
    tokio::spawn(async move {
        while let Ok((mut near, _)) = relay.accept().await {
            let mut far = TcpStream::connect(hub_at).await.expect("it listens");
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut near, &mut far).await });
        }
    });
    let endpoint = Endpoint::new(&Key::generate(), Hold::Long).expect("made");
    let started = std::time::Instant::now();
    let (near, far) = join(&endpoint, &listener, at, hub.node()).await;
    assert!(started.elapsed() < HEAD_START * 3, "{:?}", started.elapsed());
    echo(&near, &far, Bytes::from(vec![7; 1 << 20])).await;
    assert_eq!((near.carrier(), far.carrier()), (Carrier::Tcp, Carrier::Tcp));
    assert!(!endpoint.end_detour(at).await, "UDP does not pass");
    echo(&near, &far, Bytes::from_static(b"as before")).await;
}

#[tokio::test]
async fn a_changed_port_or_network_is_not_noticed() {
    let Pair { near, far, endpoint, .. } = pair().await;
    let before = far.address();
    for round in 0..3u8 {
        endpoint.rebind().expect("rebound");
        echo(&near, &far, Bytes::from(vec![round; 100_000])).await;
    }
    assert_ne!(far.address(), before);
}

#[tokio::test]
async fn who_was_forgotten_is_told_so() {
    let hub = Key::generate();
    let bind = || Arc::new(Listener::bind((Ipv4Addr::LOCALHOST, 0).into(), &hub).expect("loopback is there"));
    // Two starts of one hub, and between client and hub a relay that leads to the one, then to the other.
    let (first, second) = (bind(), bind());
    let targets = [&first, &second].map(|listener| listener.address().expect("bound"));
    let is_second = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let front = UdpSocket::bind(any(true)).await.expect("bound");
    let at = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), front.local_addr().expect("bound").port());
    let which = is_second.clone();
    tokio::spawn(async move {
        let (mut buffer, mut client) = (vec![0; 65536], None);
        loop {
            let (length, from) = front.recv_from(&mut buffer).await.expect("it is open");
            let target = targets[usize::from(which.load(std::sync::atomic::Ordering::SeqCst))];
            let to = if targets.contains(&from) { client } else { Some(target) };
            client = if targets.contains(&from) { client } else { Some(from) };
            if let Some(to) = to {
                front.send_to(&buffer[..length], to).await.expect("sent");
            }
        }
    });
    let endpoint = Endpoint::new(&Key::generate(), Hold::Long).expect("made");
    let (near, far) = join(&endpoint, &first, at, hub.node()).await;
    echo(&near, &far, Bytes::from_static(b"known")).await;
    is_second.store(true, std::sync::atomic::Ordering::SeqCst);
    let asking = near.clone();
    tokio::spawn(async move { asking.request::<Answer>(OpenKind::Ask(Bytes::from(vec![1; 200]))).await });
    let why = tokio::time::timeout(Duration::from_secs(5), near.closed()).await.expect("it is told");
    assert!(why.contains("reset"), "{why}");
}

#[test]
fn golden_bytes() {
    let control = Control::from(ControlKind::Ping(-1));
    assert_eq!(control.encode_to_vec(), [0x08, 0x01]);
}

#[tokio::test]
async fn of_many_that_come_at_once_some_are_told_to_come_again() {
    let hub = Key::generate();
    let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into(), &hub).expect("loopback is there").with_places(8);
    let address = listener.address().expect("bound");
    let endpoint = Endpoint::new(&Key::generate(), Hold::Long).expect("made");
    let (held, mut attempts) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(attempt) = listener.accept().await {
            held.send(attempt).expect("somebody takes it");
        }
    });
    let mut trying = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (endpoint, node) = (endpoint.clone(), hub.node());
        trying.spawn(async move { endpoint.connect(address, node, Known::default()).await });
    }
    // Half of the eight places are kept for other addresses. Some attempts have been asked to show theirs, and have.
    let mut under_way = Vec::new();
    while under_way.len() < 4 {
        under_way.push(attempts.recv().await.expect("another"));
    }
    for _ in 0..16 {
        let refused = trying.join_next().await.expect("one of those").expect("no panic");
        assert!(matches!(&refused, Err(WireError::Connect { why, .. }) if why.contains("refused")), "{refused:?}");
    }
    assert!(attempts.try_recv().is_err(), "there are no further places");
    for attempt in under_way {
        tokio::spawn(attempt.finish());
    }
    while let Some(connected) = trying.join_next().await {
        connected.expect("no panic").expect("connected");
    }
    // Their places are free again.
    let last = tokio::spawn(async move { endpoint.connect(address, hub.node(), Known::default()).await });
    tokio::spawn(attempts.recv().await.expect("another").finish());
    last.await.expect("no panic").expect("connected");
}

#[test]
fn loopback_is_wide_enough() {
    assert!(!is_too_narrow("127.0.0.1:9".parse().expect("an address")));
    assert!(!is_too_narrow("[2001:db8::1]:9".parse().expect("an address")), "where no way is known nothing is said");
}

/// A connection of a machine that has not been let in, and the hub's end of it.
async fn strangers() -> (Connection, Connection, Arc<Listener>) {
    let hub = Key::generate();
    let listener = Arc::new(Listener::bind((Ipv4Addr::LOCALHOST, 0).into(), &hub).expect("loopback is there"));
    let address = listener.address().expect("bound");
    let endpoint = Endpoint::new(&Key::generate(), Hold::Long).expect("made");
    let accepting = async { listener.accept().await.expect("an attempt").finish().await.expect("accepted") };
    let (near, far) = tokio::join!(endpoint.connect(address, hub.node(), Known::default()), accepting);
    (near.expect("connected"), far, listener)
}

#[tokio::test]
async fn a_stranger_is_heard_for_one_short_greeting_that_is_not_packed() {
    use crate::frame::GREETING_BYTES_MAX;
    use crate::message::Hello;
    let (near, far, listener) = strangers().await;
    let said = |name: String| Hello { name, ..Hello::default() };
    let (mut sender, _back) = near.open_control().await.expect("opened");
    sender.send(&said("x".repeat(GREETING_BYTES_MAX))).await.expect("sent");
    let (_, mut receiver) = far.accept_control().await.expect("a stream");
    let refused = receiver.next::<Hello>().await;
    assert!(matches!(&refused, Err(WireError::Invalid(_))), "{refused:?}");
    // 32 MB of one letter are a kilobyte.
    let Way::Quic(quic) = &near.way else { panic!("it is no link") };
    let mut stream = quic.quic.open_bi().await.expect("opened").0;
    let packed = crate::patch::pack(&said("x".repeat(32_000_000)).encode_to_vec(), &[]).expect("shorter");
    assert!(packed.len() < GREETING_BYTES_MAX, "{} bytes", packed.len());
    stream.write_all(&(packed.len() as u32 | 1 << 31).to_be_bytes()).await.expect("sent");
    stream.write_all(&packed).await.expect("sent");
    let (_, mut receiver) = far.accept_control().await.expect("a stream");
    let refused = receiver.next::<Hello>().await;
    assert!(matches!(&refused, Err(WireError::Invalid(_))), "{refused:?}");
    let (mut sender, _back) = near.open_control().await.expect("opened");
    sender.greet(&said("a machine".into())).await.expect("sent");
    let (_, mut receiver) = far.accept_control().await.expect("a stream");
    assert_eq!(receiver.next::<Hello>().await.expect("read").expect("a greeting").name, "a machine");
    let _vouched = listener.guests().vouch_for(&far, 1).expect("the first");
    assert!(listener.guests().vouch_for(&far, 1).is_none(), "one is all it may have");
    echo(&near, &far, Bytes::from(vec![7; 5 << 20])).await;
}

#[tokio::test]
async fn a_stranger_fills_no_more_than_the_window_of_a_greeting() {
    let (near, far, _listener) = strangers().await;
    let Way::Quic(quic) = &near.way else { panic!("it is no link") };
    let sent = async {
        let mut sent = 0;
        for _ in 0..8 {
            let mut stream = quic.quic.open_bi().await.expect("opened").0;
            let half = [0; 32 << 10];
            while let Ok(Ok(written)) = tokio::time::timeout(Duration::from_millis(200), stream.write(&half)).await {
                sent += written;
            }
            std::mem::forget(stream);
        }
        sent
    };
    let sent = sent.await;
    assert!(!far.is_closed() && sent <= transport::WINDOW_BYTES_FEW as usize, "{sent} bytes");
}

#[tokio::test]
async fn silent_tcp_connections_and_strangers_tunnels_make_room() {
    let hub = Key::generate();
    let listener = Arc::new(Listener::bind((Ipv4Addr::LOCALHOST, 0).into(), &hub).expect("loopback is there"));
    let address = listener.address().expect("bound");
    let mut silent = Vec::new();
    for _ in 0..600 {
        silent.push(TcpStream::connect(address).await.expect("the kernel takes it"));
    }
    let key = Key::generate();
    let tunnel = async {
        loop {
            match tunnel::connect(&key, address, hub.node()).await {
                Ok(stream) => return stream,
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(3), tunnel).await.expect("a place while they wait");
}
