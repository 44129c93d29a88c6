//! Whether the testbed does to real packets what it says: delay within 1 ms, rate within 2%. Needs root.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use testbed::{Link, Testbed};

const PORT: u16 = 7000;
/// A datagram of this many bytes is an IP packet of 1,500.
const FULL: usize = 1472;
const HEADERS: usize = 28;
/// How often is measured anew while the machine is busy.
const TRIES: usize = 8;
/// Packets of which the machine itself loses none.
const FEW: u64 = 20;

fn start(link: Link) -> Testbed {
    Testbed::start(&[("near", link), ("far", Link::NONE)], 1).expect("this test needs root and /dev/net/tun")
}

fn udp(address: Ipv4Addr, port: u16) -> UdpSocket {
    let socket = UdpSocket::bind((address, port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    socket
}

/// Does something at `far` with a socket that is there before this returns, and hears for a second.
fn at_far<T: Send + 'static>(testbed: &Testbed, what: impl FnOnce(UdpSocket) -> T + Send + 'static) -> JoinHandle<T> {
    let address = testbed.host("far").address();
    let (ready, is_ready) = mpsc::channel();
    let thread = testbed.host("far").spawn(move || {
        let socket = udp(address, PORT);
        ready.send(()).unwrap();
        what(socket)
    });
    is_ready.recv().unwrap();
    thread.unwrap()
}

/// Echoes for as long as the test runs.
fn echo(socket: UdpSocket) {
    socket.set_read_timeout(None).unwrap();
    let mut buffer = [0; 2000];
    while let Ok((length, from)) = socket.recv_from(&mut buffer) {
        let _ = socket.send_to(&buffer[..length], from);
    }
}

/// Round trips of `count` small datagrams, one after the other, sorted; those that were answered.
fn round_trips(testbed: &Testbed, count: usize) -> Vec<Duration> {
    let (near, far) = (testbed.host("near").address(), testbed.host("far").address());
    let pings = testbed.host("near").spawn(move || {
        let socket = udp(near, 0);
        let ping = |_| {
            let (started, mut buffer) = (Instant::now(), [0; 100]);
            socket.send_to(b"ping", (far, PORT)).unwrap();
            socket.recv_from(&mut buffer).ok().map(|_| started.elapsed())
        };
        let mut times: Vec<Duration> = (0..count).filter_map(ping).collect();
        times.sort();
        times
    });
    pings.unwrap().join().unwrap()
}

/// What is measured while no packet is later than `late_max`: a virtual machine is stopped for milliseconds when its host has other work.
/// Of [`TRIES`] the calmest, if none is calm.
fn in_calm<T>(testbed: &Testbed, late_max: Duration, mut measure: impl FnMut() -> T) -> T {
    let mut best: Option<(Duration, T)> = None;
    for _ in 0..TRIES {
        testbed.take_lateness();
        let measured = measure();
        let late = testbed.take_lateness();
        if best.as_ref().is_none_or(|(least, _)| late < *least) {
            best = Some((late, measured));
        }
        if late < late_max {
            break;
        }
    }
    best.unwrap().1
}

/// The least that is measured, of as many tries as it takes until it is right: other work on this machine only ever adds.
fn least<T: PartialOrd>(mut measure: impl FnMut() -> T, is_right: impl Fn(&T) -> bool) -> T {
    let mut least = measure();
    for _ in 1..TRIES {
        if is_right(&least) {
            break;
        }
        let next = measure();
        least = if next < least { next } else { least };
    }
    least
}

#[test]
fn delay_is_within_a_millisecond() {
    for name in ["lan", "cable", "coffee"] {
        let link = Link::preset(name).unwrap();
        let testbed = start(link);
        let _echo = at_far(&testbed, echo);
        // A datagram of 4 bytes is a packet of 32, which takes a moment to be sent.
        let sending: f64 = [link.up.rate, link.down.rate].iter().map(|rate| 256.0 / rate.unwrap() as f64).sum();
        let expected = link.round_trip() + Duration::from_secs_f64(sending);
        let quartile = |times: Vec<Duration>| times[times.len() / 4];
        let measure = || in_calm(&testbed, Duration::from_micros(500), || quartile(round_trips(&testbed, 5)));
        let measured = least(measure, |measured| measured.abs_diff(expected) < Duration::from_millis(1));
        assert!(measured.abs_diff(expected) < Duration::from_millis(1), "{name}: {measured:?}, not {expected:?}");
    }
}

/// Sends full packets for `seconds`, at `rate` bits a second.
fn flood(testbed: &Testbed, rate: u64, seconds: f64) -> JoinHandle<()> {
    let (near, far) = (testbed.host("near").address(), testbed.host("far").address());
    let flood = testbed.host("near").spawn(move || {
        let (socket, started, mut sent) = (udp(near, 0), Instant::now(), 0);
        while started.elapsed().as_secs_f64() < seconds {
            let due = (started.elapsed().as_secs_f64() * rate as f64 / 12_000.0) as usize;
            while sent < due {
                // What the device does not take is lost, as what the queue does not.
                let _ = socket.send_to(&[0; FULL], (far, PORT));
                sent += 1;
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
    });
    flood.unwrap()
}

#[test]
fn rate_is_within_two_percent() {
    for name in ["cable", "coffee"] {
        let link = Link::preset(name).unwrap();
        let rate = link.up.rate.unwrap();
        let testbed = start(link);
        let sink = at_far(&testbed, |socket| {
            let mut buffer = [0; 2000];
            let _ = socket.recv(&mut buffer).unwrap();
            let (first, mut last, mut bytes) = (Instant::now(), Instant::now(), 0);
            while let Ok(length) = socket.recv(&mut buffer) {
                last = Instant::now();
                bytes += length + HEADERS;
            }
            bytes as f64 * 8.0 / last.duration_since(first).as_secs_f64()
        });
        flood(&testbed, rate * 2, 2.5).join().unwrap();
        let measured = sink.join().unwrap();
        assert!((measured / rate as f64 - 1.0).abs() < 0.02, "{name}: {measured:.0} bit/s, not {rate}");
        assert!(testbed.traffic("near").dropped > 0, "half of it had no room");
    }
}

#[test]
fn a_full_queue_delays_by_its_length() {
    let link = Link::preset("cable").unwrap();
    let testbed = start(link);
    let _echo = at_far(&testbed, echo);
    // 64 KB at 4 Mbit/s are 131 ms; a full queue drops some of the pings, too.
    let measure = || {
        let flood = flood(&testbed, link.up.rate.unwrap() * 2, 1.5);
        std::thread::park_timeout(Duration::from_millis(400));
        let times = round_trips(&testbed, 4);
        flood.join().unwrap();
        times.last().expect("some got through").as_millis()
    };
    let is_right = |longest: &u128| (185..=205).contains(longest);
    let longest = least(|| in_calm(&testbed, Duration::from_millis(2), measure), is_right);
    assert!(is_right(&longest), "{longest} ms");
}

#[test]
fn loss_is_what_was_asked() {
    let link = Link::NONE.with_loss(0.1);
    let testbed = start(link);
    let (arrived, all_sent) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (counted, done) = (arrived.clone(), all_sent.clone());
    let far = at_far(&testbed, move |socket| {
        while !done.load(Ordering::Relaxed) {
            let has_come = socket.recv(&mut [0; 100]).is_ok();
            counted.fetch_add(has_come.into(), Ordering::Relaxed);
        }
    });
    let (near, to) = (testbed.host("near").address(), testbed.host("far").address());
    let socket = testbed.host("near").spawn(move || udp(near, 0)).unwrap().join().unwrap();
    let passed = || (testbed.traffic("near").lost, arrived.load(Ordering::Relaxed));
    for sent in (FEW..=4000).step_by(FEW as usize) {
        (0..FEW).for_each(|_| assert_eq!(socket.send_to(b"x", (to, PORT)).ok(), Some(1)));
        // A busy machine that does not read would itself lose what is sent meanwhile.
        let begun = Instant::now();
        while passed().0 + passed().1 < sent {
            assert!(begun.elapsed() < Duration::from_secs(20), "{:?} of {sent}", passed());
            std::thread::park_timeout(Duration::from_micros(100));
        }
    }
    all_sent.store(true, Ordering::Relaxed);
    far.join().unwrap();
    let (lost, arrived) = passed();
    assert!((3500..=3700).contains(&arrived), "{arrived} of 4000");
    assert_eq!(lost + arrived, 4000);
}

#[test]
fn every_protocol_passes_and_a_cut_lets_none() {
    let mut testbed = start(Link::preset("lan").unwrap());
    let far = testbed.host("far").address();
    let (listening, is_listening) = mpsc::channel();
    let server = testbed.host("far").spawn(move || {
        let listener = TcpListener::bind((far, PORT)).unwrap();
        listening.send(()).unwrap();
        let (mut stream, from) = listener.accept().unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        (text.len(), from.ip())
    });
    is_listening.recv().unwrap();
    testbed.block_udp("near", true);
    let moved = testbed.readdress("near").unwrap();
    let client = testbed.host("near").spawn(move || {
        let mut stream = TcpStream::connect((far, PORT)).unwrap();
        stream.write_all(&vec![b'x'; 1 << 20]).unwrap();
    });
    client.unwrap().join().unwrap();
    assert_eq!(server.unwrap().join().unwrap(), (1 << 20, moved.into()));
    let _echo = at_far(&testbed, echo);
    assert_eq!(round_trips(&testbed, 1), [], "UDP is blocked");
    testbed.block_udp("near", false);
    testbed.cut("near", true);
    assert_eq!(round_trips(&testbed, 1), [], "nothing passes a cut");
    testbed.cut("near", false);
    assert_eq!(round_trips(&testbed, 1).len(), 1);
}

#[test]
fn the_command_runs_at_the_near_end() {
    // Whoever is at the far end takes a while to start.
    let heard = "for at in {1..100}; do cat < /dev/tcp/$TESTBED_FAR/80 && break; sleep 0.1; done 2> /dev/null";
    let script = format!("test \"$(hostname -I | tr -d ' ')\" = \"$TESTBED_NEAR\" && {heard}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_testbed"));
    command.args(["--link", "lan", "--traffic", "--far", "python3 -c 'import socket,os; s=socket.create_server((os.environ[\"TESTBED_FAR\"],80)); s.accept()[0].send(b\"from afar\")'"]);
    let output = command.args(["--", "bash", "-c", &format!("{script}; exit 7")]).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(7), &b"from afar"[..]), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("bytes down"));
}
