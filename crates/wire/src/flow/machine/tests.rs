//! The machine on simulated links: the testbed's pipes, in virtual time.

use super::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;
use testbed::pipe::{Fate, Pipe};
use testbed::{Link, Shape};

mod beside;

const MTU: u64 = 1452;
const HEADERS: usize = 28;
/// As quinn's: an acknowledgement for each second packet, or after this time.
const ACK_DELAY: Nanos = 25 * MS;
const BURST: f64 = 10.0;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrives {
        number: usize,
    },
    AckDue {
        upto: usize,
    },
    AckArrives {
        numbers: Vec<usize>,
    },
    /// Of somebody else's, see [`beside`].
    Rival(beside::Event),
    Pace,
}

/// A sender with a flow, and a receiver that acknowledges.
struct World {
    now: Nanos,
    flow: Flow,
    up: Pipe,
    down: Pipe,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    count: u64,
    /// When each packet was sent, and its bytes; `None` once acknowledged or lost.
    packets: Vec<Option<(Nanos, u64)>>,
    /// All before this one are acknowledged or lost.
    settled: usize,
    arrivals: Vec<(Nanos, Nanos)>,
    unacked: Vec<usize>,
    /// Packets that may wait for their acknowledgement.
    unacked_max: usize,
    to_send: u64,
    tokens: f64,
    refilled: Nanos,
    smoothed: f64,
    /// Of the link, bits a second.
    rate: u64,
    /// Somebody else who sends over the same link.
    rival: Option<beside::Cubic>,
}

/// What came of sending some bytes.
#[derive(Debug)]
struct Sending {
    took: Nanos,
    /// How long packets waited beyond the way's delay, the mean of those after the first second.
    waited_ms: f64,
    lost: u64,
    /// The share of the link's time in which it sent, between the first second and the last packet.
    busy: f64,
}

impl World {
    fn new(link: Link, known: Option<Path>) -> Self {
        let smoothed = known.map_or(link.round_trip().as_nanos() as f64, |path| path.round_trip as f64);
        Self {
            now: SECOND,
            flow: Flow::new(MTU, known),
            up: Pipe::new(link.up, 5),
            down: Pipe::new(link.down, 6),
            events: BinaryHeap::new(),
            count: 0,
            packets: Vec::new(),
            settled: 0,
            arrivals: Vec::new(),
            unacked: Vec::new(),
            unacked_max: 1,
            to_send: 0,
            tokens: BURST,
            refilled: 0,
            smoothed,
            rate: link.up.rate.unwrap(),
            rival: None,
        }
    }

    fn at(&mut self, at: Nanos, event: Event) {
        self.count += 1;
        self.events.push(Reverse((at, self.count, event)));
    }

    /// Sends this much after a pause, until all of it is acknowledged; what is lost is sent again.
    fn send(&mut self, bytes: u64) -> Sending {
        self.now += 5 * SECOND;
        self.tokens = BURST;
        let (started, first) = (self.now, self.packets.len());
        let (arrivals, mut lost) = (self.arrivals.len(), 0);
        self.to_send = bytes;
        self.pump();
        while self.to_send > 0 || self.packets[first..].iter().any(Option::is_some) {
            let Some(Reverse((at, _, event))) = self.events.pop() else {
                // All that was left is lost: the probe time-out.
                self.now += 200 * MS;
                lost += self.lose_before(self.packets.len());
                self.pump();
                continue;
            };
            lost += self.happen(at, event);
        }
        let steady: Vec<_> = self.arrivals[arrivals..].iter().filter(|(at, _)| *at > started + SECOND).collect();
        let waited = steady.iter().map(|(_, waited)| *waited).sum::<Nanos>() as f64;
        let lasted = steady.last().map_or(0, |(at, _)| at - started - SECOND).max(1);
        Sending {
            took: self.now - started,
            waited_ms: waited / 1e6 / steady.len().max(1) as f64,
            lost,
            busy: steady.len() as f64 * self.sending_one() as f64 / lasted as f64,
        }
    }

    /// Returns the packets that are lost.
    fn happen(&mut self, at: Nanos, event: Event) -> u64 {
        let mut lost = 0;
        self.now = self.now.max(at);
        match event {
            Event::Arrives { number } => self.arrive(number),
            Event::AckDue { upto } => {
                if self.unacked.first().is_some_and(|first| *first <= upto) {
                    self.acknowledge();
                }
            }
            Event::AckArrives { numbers } => lost = self.acked(&numbers),
            Event::Rival(event) => self.rival_happens(event),
            Event::Pace => {}
        }
        self.pump();
        lost
    }

    /// How long the link takes to send a packet.
    fn sending_one(&self) -> Nanos {
        (MTU + HEADERS as u64) * 8 * SECOND / self.rate
    }

    fn pump(&mut self) {
        loop {
            let window = self.flow.window();
            if self.to_send == 0 || self.flow.sent.in_flight + MTU > window {
                return;
            }
            let refill = 1.25 * window as f64 * (self.now - self.refilled) as f64 / self.smoothed / MTU as f64;
            (self.tokens, self.refilled) = ((self.tokens + refill).min(BURST), self.now);
            if self.tokens < 1.0 {
                let wait = (BURST - self.tokens) * MTU as f64 * self.smoothed / window as f64 * 0.8;
                let at = self.now + (wait as u64).max(1);
                return self.at(at, Event::Pace);
            }
            self.tokens -= 1.0;
            let bytes = self.to_send.min(MTU);
            self.to_send -= bytes;
            let number = self.packets.len();
            self.packets.push(Some((self.now, bytes)));
            self.flow.on_sent(self.now, bytes);
            if let Fate::Arrives(at) = self.up.offer(self.now, bytes as usize + HEADERS) {
                self.at(at, Event::Arrives { number });
            }
        }
    }

    fn arrive(&mut self, number: usize) {
        let shape_delay = self.now - self.packets[number].map_or(self.now, |(sent, _)| sent);
        self.arrivals.push((self.now, shape_delay));
        self.unacked.push(number);
        match self.unacked.len() {
            unacked if unacked <= self.unacked_max => self.at(self.now + ACK_DELAY, Event::AckDue { upto: number }),
            _ => self.acknowledge(),
        }
    }

    fn acknowledge(&mut self) {
        let numbers = std::mem::take(&mut self.unacked);
        if let Fate::Arrives(at) = self.down.offer(self.now, 60) {
            self.at(at, Event::AckArrives { numbers });
        }
    }

    fn acked(&mut self, numbers: &[usize]) -> u64 {
        for number in numbers {
            if let Some((sent, bytes)) = self.packets[*number].take() {
                let took = (self.now - sent) as f64;
                self.smoothed += (took - self.smoothed) / 8.0;
                let limited = self.to_send == 0;
                self.flow.on_acked(self.now, sent, bytes, limited);
            }
        }
        let newest = numbers.iter().max().copied().unwrap_or(0);
        self.lose_before(newest.saturating_sub(3))
    }

    fn lose_before(&mut self, number: usize) -> u64 {
        let mut lost = 0;
        for at in self.settled..number {
            if let Some((sent, bytes)) = self.packets[at].take() {
                lost += 1;
                self.to_send += bytes;
                self.flow.on_lost(sent, bytes, false);
            }
        }
        self.settled = self.settled.max(number);
        lost
    }
}

fn preset(name: &str) -> Link {
    Link::preset(name).unwrap()
}

fn ideal(link: &Link, bytes: u64) -> Nanos {
    let packets = bytes.div_ceil(MTU);
    let on_wire = bytes + packets * HEADERS as u64;
    link.round_trip().as_nanos() as u64 + on_wire * 8 * SECOND / link.up.rate.unwrap()
}

fn known(link: &Link) -> Path {
    let rate = link.up.rate.unwrap() / 8 * MTU / (MTU + HEADERS as u64);
    Path { rate, round_trip: link.round_trip().as_nanos() as u64 }
}

#[test]
fn a_trained_path_takes_a_flight_in_one_round_trip() {
    for name in ["cable", "coffee"] {
        let link = preset(name);
        for bytes in [3_000, 20_000, 60_000, 150_000] {
            let took = World::new(link, Some(known(&link))).send(bytes).took;
            // The last acknowledgement may be delayed.
            let beyond = took as f64 - ideal(&link, bytes) as f64 - ACK_DELAY as f64;
            let in_round_trips = beyond / link.round_trip().as_nanos() as f64;
            assert!(in_round_trips < 0.2, "{name} {bytes}: {in_round_trips} round trips too many");
        }
    }
}

#[test]
fn an_unknown_path_is_learnt_by_one_upload() {
    for name in ["cable", "coffee", "far"] {
        let link = Link { up: Shape { loss: 0.0, ..preset(name).up }, ..preset(name) };
        let mut world = World::new(link, None);
        let sending = world.send(3 << 20);
        let (path, truth) = (world.flow.path().unwrap(), known(&link));
        // The first flight learns, the second goes by it.
        let beyond = (sending.took - ideal(&link, 3 << 20)) as f64 / truth.round_trip as f64;
        assert!(beyond < 2.0, "{name}: {beyond} round trips too many");
        assert!((path.rate as f64 / truth.rate as f64 - 1.0).abs() < 0.1, "{name}: {path:?}, in truth {truth:?}");
        assert!(world.flow.is_trained());
        let again = world.send(60_000).took as f64;
        let beyond = (again - ideal(&link, 60_000) as f64 - ACK_DELAY as f64) / truth.round_trip as f64;
        assert!(beyond < 0.25, "{name}: {beyond} round trips too many afterwards");
    }
}

#[test]
fn hardly_anything_waits() {
    for name in ["cable", "coffee"] {
        let link = preset(name);
        let mut world = World::new(link, None);
        world.unacked_max = 0;
        world.send(1 << 20);
        let sending = world.send(4 << 20);
        let one = (MTU + 28) as f64 * 8e3 / link.up.rate.unwrap() as f64;
        let way = link.up.delay.as_secs_f64() * 1e3 + one;
        let queued = sending.waited_ms - way;
        // On coffee's uplink a packet takes 8.6 ms.
        assert!(queued < STANDING_MAX as f64 / 1e6 + one, "{name}: {queued} ms in the queue");
        let times = sending.took as f64 / ideal(&link, 4 << 20) as f64;
        assert!(times < 1.06, "{name}: {times} times the ideal");
    }
}

#[test]
fn an_upload_fills_the_link_however_it_is_acknowledged() {
    for (name, unacked_max) in [("cable", 0), ("cable", 1), ("coffee", 0), ("coffee", 1)] {
        let link = preset(name);
        let mut world = World::new(link, None);
        world.unacked_max = 0;
        // Short packets tell the round trip without a long one's own time.
        world.send(100);
        world.unacked_max = unacked_max;
        world.send(1 << 20);
        let sending = world.send(4 << 20);
        assert!(sending.busy > 0.97, "{name}, {unacked_max} unacknowledged: busy for {} of the time", sending.busy);
        let one = world.sending_one() as f64 / 1e6;
        let queued = sending.waited_ms - link.up.delay.as_secs_f64() * 1e3 - one;
        let most = STANDING_MAX as f64 / 1e6 + one;
        assert!(queued < most, "{name}, {unacked_max} unacknowledged: {queued} ms in the queue");
    }
}

#[test]
fn little_loss_does_not_slow_it_down() {
    for loss in [0.01, 0.05] {
        let link = preset("far").with_loss(loss);
        let mut world = World::new(link, None);
        world.send(2 << 20);
        let times = world.send(8 << 20).took as f64 / (ideal(&link, 8 << 20) as f64 / (1.0 - loss));
        assert!(times < 1.3, "{loss}: {times} times the ideal");
    }
}

#[test]
fn a_link_that_changes_is_followed() {
    let link = preset("cable");
    let mut world = World::new(link, Some(known(&link)));
    world.send(1 << 20);
    let slower = Shape { rate: Some(1_000_000), ..link.up };
    world.up.reshape(slower);
    let sending = world.send(1 << 20);
    let times = sending.took as f64 / ideal(&Link { up: slower, ..link }, 1 << 20) as f64;
    assert!(times < 1.2 && sending.waited_ms < 120.0, "slower: {times} times the ideal, {} ms", sending.waited_ms);
    let faster = Shape { rate: Some(16_000_000), ..link.up };
    world.up.reshape(faster);
    let times = world.send(8 << 20).took as f64 / ideal(&Link { up: faster, ..link }, 8 << 20) as f64;
    assert!(times < 1.4, "faster: {times} times the ideal");
    let longer = Shape { delay: Duration::from_millis(165), rate: Some(16_000_000), ..link.up };
    world.up.reshape(longer);
    world.send(4 << 20);
    let times = world.send(8 << 20).took as f64 / ideal(&Link { up: longer, ..link }, 8 << 20) as f64;
    assert!(times < 1.4, "longer: {times} times the ideal");
}

#[test]
fn what_was_remembered_wrongly_does_no_harm() {
    let link = preset("coffee");
    let wrong = Path { rate: known(&link).rate * 10, round_trip: known(&link).round_trip / 2 };
    let mut world = World::new(link, Some(wrong));
    let sending = world.send(1 << 20);
    let times = sending.took as f64 / ideal(&link, 1 << 20) as f64;
    assert!(times < 1.5, "{times} times the ideal, {} lost", sending.lost);
}

#[test]
fn what_was_remembered_of_quite_another_link_counts_for_nothing() {
    let link = preset("cable");
    for round_trip in [MS / 5, 20 * MS] {
        let wrong = Path { rate: 200_000_000, round_trip };
        let mut world = World::new(link, Some(wrong));
        // The handshake.
        world.send(1_200);
        let sending = world.send(4 << 20);
        let times = sending.took as f64 / ideal(&link, 4 << 20) as f64;
        let lost = sending.lost as f64 * MTU as f64 / (4 << 20) as f64;
        assert!(lost < 0.1 && times < 1.2, "{round_trip} ns: {lost} lost, {times} times the ideal");
        assert!(world.flow.path().is_some_and(|path| path.rate < 2 * known(&link).rate), "{:?}", world.flow.path());
    }
}

#[test]
fn a_way_that_grows_longer_while_little_is_sent_is_noticed() {
    let link = preset("cable").with_round_trip(Duration::from_millis(20));
    let mut world = World::new(link, None);
    world.send(1 << 20);
    let longer = link.with_round_trip(Duration::from_millis(140));
    (world.up, world.down) = (Pipe::new(longer.up, 1), Pipe::new(longer.down, 2));
    for _ in 0..6 {
        world.send(2_000);
    }
    let took = world.send(60_000).took;
    let beyond = (took as f64 - ideal(&longer, 60_000) as f64 - ACK_DELAY as f64) / 140e6;
    assert!(beyond < 0.25, "{beyond} round trips too many");
}

#[test]
fn little_that_is_sent_never_makes_the_window_small() {
    let link = preset("cable");
    let mut world = World::new(link, None);
    for _ in 0..20 {
        world.send(3_000);
    }
    world.down = Pipe::new(Shape { delay: Duration::from_millis(120), ..link.down }, 3);
    for _ in 0..20 {
        world.send(3_000);
    }
    assert!(world.flow.window() >= PACKETS_FIRST * MTU);
}

#[test]
fn a_queue_too_short_to_be_seen_is_not_filled_for_long() {
    // A gigabit's queue of 4 ms: it overflows before anything waits for 10.
    let link = preset("lan");
    let mut world = World::new(link, None);
    world.send(20 << 20);
    let sending = world.send(40 << 20);
    let lost = sending.lost as f64 * MTU as f64 / (40 << 20) as f64;
    let times = sending.took as f64 / ideal(&link, 40 << 20) as f64;
    assert!(lost < 0.02, "{lost} of it lost");
    assert!(times < 1.5, "{times} times the ideal");
}

#[test]
fn who_moves_goes_by_what_is_known_of_the_new_network() {
    let (cable, coffee) = (preset("cable"), preset("coffee"));
    let mut world = World::new(cable, Some(known(&cable)));
    world.send(500_000);
    // To a slower one that is known: the first flight fills it, and no more.
    let mut moved = World::new(coffee, None);
    moved.flow = world.flow.on_another_path(Some(known(&coffee)));
    assert_eq!(moved.flow.path(), Some(known(&coffee)));
    let sent = moved.send(100_000);
    assert!(sent.took < ideal(&coffee, 100_000) + SECOND / 5, "{sent:?}");
    // To one that is not: as at first.
    let anew = world.flow.on_another_path(None);
    assert_eq!((anew.path(), anew.window(), anew.is_trained()), (None, PACKETS_FIRST * MTU, false));
}

#[test]
fn acknowledgements_may_seem_to_come_before_what_they_acknowledge() {
    let known = Some(Path { rate: 40_000_000_000_000, round_trip: 20 * MS });
    for behind in [false, true] {
        let mut flow = Flow::new(MTU, known);
        if behind {
            flow.give_way();
        }
        // Each is told at a moment of its own within 40 ms, as by a reader that was kept from the processor.
        let mut early = 7_u64;
        for number in 1..20_000 {
            early = early.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let sent = number * MS;
            flow.on_sent(sent, MTU);
            flow.on_acked((sent + 30 * MS).saturating_sub((early >> 33) % (40 * MS)), sent, MTU, number % 3 == 0);
            assert!((PACKETS_MIN * MTU / 2..=WINDOW_MAX).contains(&flow.window()), "{}", flow.window());
        }
    }
}
