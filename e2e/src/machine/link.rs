//! Two hosts joined by a link of the kernel's own making: a pair of devices with a rate (tbf) and a delay (netem).

use super::{BOUND, random_file, tool};
use crate::error::{Context, Error, Result};
use crate::pool::{Apart, Pool};
use crate::process::{Run, pause};
use crate::scenario::folder;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use testbed::Entrance;

const HOSTS: [&str; 2] = ["gleaner-client", "gleaner-site"];
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 78, 0, 1), Ipv4Addr::new(10, 78, 0, 2)];
/// What a large command sends.
const LARGE_BYTES: usize = 8 << 20;
/// How long another flow is measured alone.
const ALONE: Duration = Duration::from_secs(8);
const FLOW_PORT: u16 = 4500;
/// How soon its end is noticed.
const LOOK: Duration = Duration::from_secs(1);

/// The hosts, until this is dropped.
#[derive(Debug)]
pub struct Hosts {
    entrances: [Entrance; 2],
}

impl Hosts {
    /// Makes and joins them.
    pub fn make() -> Result<Self> {
        let [client, site] = HOSTS;
        for name in HOSTS {
            tool("ip", &["netns", "add", name])?;
            tool("ip", &["-n", name, "link", "set", "lo", "up"])?;
        }
        tool("ip", &["link", "add", "far", "netns", client, "type", "veth", "peer", "name", "far", "netns", site])?;
        for (name, address) in HOSTS.into_iter().zip(ADDRESSES) {
            tool("ip", &["-n", name, "address", "add", &format!("{address}/24"), "dev", "far"])?;
            tool("ip", &["-n", name, "link", "set", "far", "up"])?;
            // 40 ms both ways together.
            tool("tc", &words(&format!("-n {name} qdisc add dev far root handle 1: netem delay 20ms limit 10000")))?;
            let rate =
                format!("-n {name} qdisc add dev far parent 1: handle 2: tbf rate 20mbit burst 64kb latency 200ms");
            tool("tc", &words(&rate))?;
        }
        let entrance = |name: &str| {
            let path = std::path::Path::new("/run/netns").join(name);
            File::open(&path).at("open", &path).map(|file| Entrance::of(file.into()))
        };
        Ok(Self { entrances: [entrance(client)?, entrance(site)?] })
    }

    /// For the options of a pool.
    pub fn apart(&self) -> Apart {
        let [client, site] = self.entrances.clone();
        Apart { client, site, address: ADDRESSES[1].to_string() }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in HOSTS {
            let _ = tool("ip", &["netns", "del", name]);
        }
    }
}

/// A small command, and a large one beside another program's flow.
pub fn commands(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let place = folder(pool, "link")?;
    random_file(&place.join("large"), LARGE_BYTES)?;
    let mut small = pool.client.remrun(&["--no-local", "sh", "-c", "echo far > made; echo seen"]);
    small.current_dir(&place);
    let outcome = Run::new(small).within(BOUND).run()?;
    if outcome.text() != "seen" || std::fs::read_to_string(place.join("made")).ok().as_deref() != Some("far\n") {
        wrong.push(format!("a small command: {}, {:?}, {}", outcome.ended, outcome.text(), outcome.said()));
    }
    let flow = Flow::start(pool)?;
    pause(ALONE);
    let (alone, began) = (flow.received.swap(0, Ordering::Relaxed), Instant::now());
    let mut large = pool.client.remrun(&["--no-local", "sh", "-c", "cat large | wc -c"]);
    large.current_dir(&place);
    let outcome = Run::new(large).within(BOUND).run()?;
    let took = began.elapsed();
    let beside = flow.received.load(Ordering::Relaxed);
    drop(flow);
    if outcome.text() != LARGE_BYTES.to_string() {
        wrong.push(format!("a large command: {}, {:?}, {}", outcome.ended, outcome.text(), outcome.said()));
    }
    let mbit = |bytes: u64, time: Duration| bytes as f64 * 8e-6 / time.as_secs_f64();
    println!(
        "measured: a TCP flow over the link: {:.1} Mbit/s alone, {:.1} Mbit/s beside a command that sends {:.1} Mbit/s",
        mbit(alone, ALONE),
        mbit(beside, took),
        mbit(LARGE_BYTES as u64, took)
    );
    let sent = Command::new("tc").args(["-n", HOSTS[0], "-s", "qdisc", "show", "dev", "far"]).output();
    let sent = sent.map_or(String::new(), |output| String::from_utf8_lossy(&output.stdout).into_owned());
    if !["netem", "tbf"].iter().all(|kind| sent.contains(kind)) || !sent.contains("rate 20Mbit") {
        wrong.push(format!("the link is as it was made: {sent}"));
    }
    Ok(wrong)
}

/// Another program that sends over the link as fast as it may, until this is dropped.
struct Flow {
    received: Arc<AtomicU64>,
    has_ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Flow {
    fn start(pool: &Pool) -> Result<Self> {
        let nowhere = || Error::Missing("the pool is not apart from its client".to_owned());
        let site = pool.owner.host.as_ref().ok_or_else(nowhere)?;
        let client = pool.client.host.as_ref().ok_or_else(nowhere)?;
        let address = SocketAddr::from((ADDRESSES[1], FLOW_PORT));
        let listener = on(site, || TcpListener::bind(address))?;
        let mut sender = on(client, || TcpStream::connect_timeout(&address, BOUND))?;
        let (mut receiver, _) = listener.accept().context(|| "the other flow was not accepted".to_owned())?;
        for stream in [&sender, &receiver] {
            let set = stream.set_read_timeout(Some(LOOK)).and_then(|()| stream.set_write_timeout(Some(LOOK)));
            set.context(|| "cannot bound the other flow's waits".to_owned())?;
        }
        let (received, has_ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let bytes = vec![0; 64 << 10];
        let mut buffer = bytes.clone();
        let count = received.clone();
        let receive = until(&has_ended, move || {
            let read = receiver.read(&mut buffer)?;
            count.fetch_add(read as u64, Ordering::Relaxed);
            Ok(())
        });
        let send = until(&has_ended, move || sender.write(&bytes).map(drop));
        Ok(Self { received, has_ended, threads: vec![receive, send] })
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// Has a thread do something again and again, each time for a bounded time, until it fails or is told to end.
fn until(has_ended: &Arc<AtomicBool>, mut step: impl FnMut() -> io::Result<()> + Send + 'static) -> JoinHandle<()> {
    let has_ended = has_ended.clone();
    std::thread::spawn(move || {
        while !has_ended.load(Ordering::Relaxed) {
            match step() {
                Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return,
                _ => {}
            }
        }
    })
}

/// Makes a socket on a host, by a thread that goes there.
fn on<T: Send>(host: &Entrance, make: impl FnOnce() -> io::Result<T> + Send) -> Result<T> {
    let made = std::thread::scope(|scope| scope.spawn(|| host.enter().and_then(|()| make())).join());
    let made = made.map_err(|_| Error::Product("making a socket panicked".to_owned()))?;
    made.context(|| "the other flow has no socket".to_owned())
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}
