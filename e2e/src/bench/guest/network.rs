//! An owner's download and upload over TCP beside what a guest reads and writes, over his link: 20 Mbit/s and 40 ms both ways, with a queue
//! that holds what is on its way once.
//!
//! The guest's traffic is under way first; the owner's begins two seconds later. What counts is what arrives of it from its first second on.
//! Links are testbed links: the machine is one of its hosts, the hub, the client and the owner's other end are elsewhere.

use super::report::{Report, Row, Target, Unit};
use super::stats::Mean;
use super::ways::Way;
use super::{Bench, progress};
use crate::bench::tasks::Dice;
use crate::error::{Context, Error, Result};
use crate::pool::{BRANCH, CLIENT, Options, Pool};
use crate::process::{pause, wait_for};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use testbed::{Link, Shape};

/// Bits a second.
const RATE: u64 = 20_000_000;
const ROUND_TRIP: Duration = Duration::from_millis(40);
/// Rounds of `work` for one of these.
const PAIRS: usize = 50;
/// What the guest reads or writes: more than passes in a block.
const BULK_BYTES: usize = 80 << 20;
/// Of these so many must have passed before it is taken to be under way.
const BEGUN_BYTES: u64 = 1 << 20;
/// How long that may take, and how long until nothing passes any more.
const LIMIT: Duration = Duration::from_secs(60);
/// How long the guest's traffic is alone.
const AHEAD: Duration = Duration::from_secs(2);
/// The owner's flow lasts no less than this, in seconds.
const FLOW_MIN: f64 = 5.0;
/// A link on which less passes in a look is at rest.
const REST_BYTES: u64 = 20_000;
const LOOK: Duration = Duration::from_millis(500);

/// Which way, as the owner's machine sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Down,
    Up,
}

/// What came of a block.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// The owner's bytes a second from the first to the second one, and from the first one on.
    second: f64,
    later: f64,
    /// The part of the link that the guest had before.
    before: f64,
}

/// Measures both directions.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    if !bench.options.ways.contains(&Way::Ours) {
        return Ok(());
    }
    let mut pool = Pool::start(Options { link: Some(Link::NONE), ..Options::new(0, 1)? })?;
    pool.add_far_worker()?;
    let product = (RATE as f64 / 8.0 * ROUND_TRIP.as_secs_f64()) as usize;
    let shape = Shape { rate: Some(RATE), queue_bytes: product as u64, ..Shape::NONE };
    pool.testbed().set_link(BRANCH, Link { up: shape, down: shape }.with_round_trip(ROUND_TRIP));
    let place = pool.place("network");
    std::fs::create_dir_all(&place).at("create", &place)?;
    let count = bench.rounds_per(PAIRS);
    let flow = Duration::from_secs_f64(bench.options.block_s.max(FLOW_MIN));
    for (direction, names) in [
        (Direction::Down, ["network_down_share", "network_down_second", "network_down_left"]),
        (Direction::Up, ["network_up_share", "network_up_second", "network_up_left"]),
    ] {
        let (mut alone, mut with) = (Vec::new(), Vec::new());
        for round in 0..count {
            progress(&format!("network, {direction:?}: round {} of {count}", round + 1));
            let mut pair = Vec::new();
            for has_guest in bench.shuffle(vec![false, false, true]) {
                let block = measure(&pool, &mut bench.dice, direction, flow, has_guest)?;
                if has_guest { with.push(block) } else { pair.push(block) }
            }
            alone.push(pair);
        }
        rows(report, names, &alone, &with);
    }
    crate::bench::stop(pool)
}

fn rows(report: &mut Report, names: [&'static str; 3], alone: &[Vec<Block>], with: &[Block]) {
    let row = |name, of: fn(&Block) -> f64| {
        let beside = with.iter().zip(alone).map(|(with, pair)| of(with) * 2.0 / (of(&pair[0]) + of(&pair[1])));
        let apart = alone.iter().map(|pair| of(&pair[1]) / of(&pair[0]) - 1.0).collect::<Vec<_>>();
        let mean = Mean::of(&beside.collect::<Vec<_>>());
        let row = Row::new(name, Unit::Percent).target(Target::AtLeast(0.95, 1.0));
        let row = row.scatter(Mean::of(&apart).map(Mean::scatter));
        row.values(|way| mean.filter(|_| way == Way::Ours).map(|mean| mean.mean))
    };
    report.add(row(names[0], |block| block.later));
    report.add(row(names[1], |block| block.second));
    let before = Mean::of(&with.iter().map(|block| block.before).collect::<Vec<_>>());
    let left = Row::new(names[2], Unit::Percent);
    report.add(left.values(|way| before.filter(|_| way == Way::Ours).map(|mean| mean.mean)));
}

fn measure(pool: &Pool, dice: &mut Dice, direction: Direction, flow: Duration, has_guest: bool) -> Result<Block> {
    rest(pool, direction)?;
    let mut guest = has_guest.then(|| Guest::start(pool, dice, direction)).transpose()?;
    let before = guest.as_mut().map_or(Ok(0.0), |guest| guest.gets_under_way(pool, direction))?;
    let arrived = owners_flow(pool, direction, flow)?;
    let rate = |from: f64, to: f64| {
        let within = arrived.iter().filter(|(at, _)| (from..to).contains(at));
        within.map(|(_, bytes)| *bytes as f64).sum::<f64>() / (to - from)
    };
    Ok(Block { second: rate(1.0, 2.0), later: rate(1.0, flow.as_secs_f64()), before })
}

/// A task that reads or writes much; ended when it is dropped.
struct Guest(Child);

impl Guest {
    fn start(pool: &Pool, dice: &mut Dice, direction: Direction) -> Result<Self> {
        let place = pool.place("network");
        let name = format!("{:016x}", dice.next());
        let command = match direction {
            Direction::Down => {
                // Of which no worker has anything.
                let bytes: Vec<u8> = (0..BULK_BYTES / 8).flat_map(|_| dice.next().to_le_bytes()).collect();
                std::fs::write(place.join(&name), bytes).at("write", &place.join(&name))?;
                format!("sha256sum {name}")
            }
            Direction::Up => format!("head -c {BULK_BYTES} /dev/urandom > {name}"),
        };
        let mut command = pool.client.remrun(&["--no-local", "sh", "-c", &command]);
        command.current_dir(&place).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(command.spawn().context(|| "cannot start remrun".to_owned())?))
    }

    /// Waits until it has the link for itself for a while, and returns which part of it it uses then.
    fn gets_under_way(&mut self, pool: &Pool, direction: Direction) -> Result<f64> {
        let start = passed(pool, direction);
        let begun = wait_for(LIMIT, || (passed(pool, direction) - start > BEGUN_BYTES).then_some(()));
        begun.ok_or_else(|| Error::Product(format!("a guest's traffic did not begin within {LIMIT:?}")))?;
        pause(AHEAD / 2);
        let (from, then) = (passed(pool, direction), Instant::now());
        pause(AHEAD / 2);
        let bytes = passed(pool, direction) - from;
        Ok(bytes as f64 * 8.0 / then.elapsed().as_secs_f64() / RATE as f64)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Bytes that have passed the owner's link so far.
fn passed(pool: &Pool, direction: Direction) -> u64 {
    let traffic = pool.testbed().traffic(BRANCH);
    if direction == Direction::Down { traffic.bytes_down } else { traffic.bytes_up }
}

/// Waits until hardly anything passes.
fn rest(pool: &Pool, direction: Direction) -> Result<()> {
    let is_at_rest = || {
        let before = passed(pool, direction);
        pause(LOOK);
        (passed(pool, direction) - before < REST_BYTES).then_some(())
    };
    wait_for(LIMIT, is_at_rest).ok_or_else(|| Error::Product(format!("the link was not at rest within {LIMIT:?}")))
}

/// Sends as fast as TCP does for so long. What arrived, and when, in seconds from the start.
fn owners_flow(pool: &Pool, direction: Direction, time: Duration) -> Result<Vec<(f64, usize)>> {
    let (from, to) = match direction {
        Direction::Down => (CLIENT, BRANCH),
        Direction::Up => (BRANCH, CLIENT),
    };
    let (to, address) = (pool.testbed().host(to), pool.testbed().host(to).address());
    let (listens, port) = mpsc::channel();
    let failed = |error: std::io::Error| Error::Io { what: "the owner's flow".to_owned(), source: error };
    let receiver = to.spawn(move || receive(address, &listens, time))?;
    let port = port.recv_timeout(LIMIT).map_err(|_| Error::Product("no port for the owner's flow".to_owned()))?;
    let sender = pool.testbed().host(from).spawn(move || send(SocketAddr::from((address, port)), time))?;
    let panicked = |_| Error::Product("the owner's flow panicked".to_owned());
    sender.join().map_err(panicked)?.map_err(failed)?;
    receiver.join().map_err(panicked)?.map_err(failed)
}

fn send(to: SocketAddr, time: Duration) -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&to, LIMIT)?;
    stream.set_write_timeout(Some(LIMIT))?;
    let (start, bytes) = (Instant::now(), [0; 16 << 10]);
    while start.elapsed() < time {
        stream.write_all(&bytes)?;
    }
    Ok(())
}

fn receive(at: Ipv4Addr, listens: &mpsc::Sender<u16>, time: Duration) -> std::io::Result<Vec<(f64, usize)>> {
    let listener = TcpListener::bind((at, 0))?;
    listener.set_nonblocking(true)?;
    let _ = listens.send(listener.local_addr()?.port());
    let none = || std::io::Error::from(ErrorKind::TimedOut);
    let (mut stream, _) = wait_for(LIMIT, || listener.accept().ok()).ok_or_else(none)?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(LIMIT))?;
    let (start, mut bytes, mut arrived) = (Instant::now(), vec![0; 64 << 10], Vec::new());
    loop {
        match stream.read(&mut bytes)? {
            0 => return Ok(arrived),
            read if start.elapsed() < time => arrived.push((start.elapsed().as_secs_f64(), read)),
            _ => {}
        }
    }
}
