//! Beside somebody else's flow: TCP with Cubic (RFC 9438), which fills whatever queue there is.

use super::{MTU, Nanos, SECOND, World, known, preset};
use crate::flow::machine::MS;
use std::collections::BTreeSet;
use std::time::Duration;
use testbed::pipe::Fate;
use testbed::{Link, Shape};

/// What a packet carries, and what it is with headers.
const SEGMENT: u64 = 1448;
const WIRE: usize = 1500;
/// RFC 9438, 4.1 and 4.6.
const C: f64 = 0.4;
const BETA: f64 = 0.7;

/// What happens to the other's packets.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    Starts,
    Stops,
    Arrives { number: u64 },
    AckArrives { number: u64, sent: Nanos },
}

/// A sender that always has something to send, while it lasts. What is lost counts for nothing: it would be sent again.
#[derive(Debug, Default)]
pub struct Cubic {
    is_on: bool,
    window: f64,
    threshold: f64,
    /// Of the last loss: the window before, and when.
    most: f64,
    epoch: Nanos,
    next: u64,
    under_way: BTreeSet<u64>,
    /// Losses of packets before this one are answered already.
    answered: u64,
    /// Of each packet.
    sent: Vec<Nanos>,
    round_trip: f64,
    /// When each packet arrived.
    arrived: Vec<Nanos>,
}

impl Cubic {
    fn new() -> Self {
        Self { window: 10.0, threshold: f64::MAX, round_trip: 0.1, ..Self::default() }
    }

    fn acked(&mut self, now: Nanos, number: u64, sent: Nanos) {
        self.under_way.remove(&number);
        let took = (now - sent) as f64 / SECOND as f64;
        self.round_trip += (took - self.round_trip) / 8.0;
        let lost: Vec<u64> = self.under_way.range(..number.saturating_sub(3)).copied().collect();
        lost.iter().for_each(|number| _ = self.under_way.remove(number));
        if lost.iter().any(|number| *number >= self.answered) {
            (self.most, self.epoch, self.answered) = (self.window, now, self.next);
            self.window = (self.window * BETA).max(2.0);
            self.threshold = self.window;
        } else if self.window < self.threshold {
            self.window += 1.0;
        } else {
            let since = (now - self.epoch) as f64 / SECOND as f64;
            let k = (self.most * (1.0 - BETA) / C).cbrt();
            let cubic = C * (since + self.round_trip - k).powi(3) + self.most;
            let reno = self.most * BETA + 3.0 * (1.0 - BETA) / (1.0 + BETA) * since / self.round_trip;
            let target = cubic.max(reno).clamp(self.window, 1.5 * self.window);
            self.window += (target - self.window) / self.window;
        }
    }

    /// Its bytes a second between these.
    fn rate(&self, from: Nanos, to: Nanos) -> f64 {
        let arrived = self.arrived.iter().filter(|at| (from..to).contains(*at)).count() as u64;
        (arrived * SEGMENT) as f64 * SECOND as f64 / (to - from) as f64
    }
}

impl World {
    fn rival_at(&mut self, at: Nanos, event: Event) {
        self.at(at, super::Event::Rival(event));
    }

    pub fn rival_happens(&mut self, event: Event) {
        let now = self.now;
        let rival = self.rival.as_mut().expect("its events");
        match event {
            Event::Starts => rival.is_on = true,
            Event::Stops => rival.is_on = false,
            Event::Arrives { number } => {
                rival.arrived.push(now);
                let sent = rival.sent[number as usize];
                if let Fate::Arrives(at) = self.down.offer(now, 60) {
                    self.rival_at(at, Event::AckArrives { number, sent });
                }
            }
            Event::AckArrives { number, sent } => rival.acked(now, number, sent),
        }
        self.rival_sends();
    }

    fn rival_sends(&mut self) {
        loop {
            let rival = self.rival.as_mut().expect("it sends");
            if !rival.is_on || rival.under_way.len() as f64 >= rival.window {
                return;
            }
            let number = rival.next;
            rival.next += 1;
            rival.under_way.insert(number);
            rival.sent.push(self.now);
            if let Fate::Arrives(at) = self.up.offer(self.now, WIRE) {
                self.rival_at(at, Event::Arrives { number });
            }
        }
    }

    fn run_until(&mut self, end: Nanos) {
        while self.events.peek().is_some_and(|next| next.0.0 <= end) {
            let next = self.events.pop().expect("it was looked at").0;
            self.happen(next.0, next.2);
        }
        self.now = end;
    }

    /// Our bytes a second between these.
    fn rate_of_ours(&self, from: Nanos, to: Nanos) -> f64 {
        let arrived = self.arrivals.iter().filter(|(at, _)| (from..to).contains(at)).count() as u64;
        (arrived * MTU) as f64 * SECOND as f64 / (to - from) as f64
    }
}

/// Of a link of this rate and round trip, with a queue of so many products.
fn link(mbit: f64, round_trip_ms: u64, queue: f64) -> Link {
    let rate = mbit * 1e6;
    let product = rate / 8.0 * round_trip_ms as f64 / 1e3;
    let shape = Shape { rate: Some(rate as u64), queue_bytes: (product * queue) as u64, ..Shape::NONE };
    let down = Shape { rate: Some(100_000_000), ..Shape::NONE };
    Link { up: shape, down }.with_round_trip(Duration::from_millis(round_trip_ms))
}

const START: Nanos = 4 * SECOND;
const STOP: Nanos = 12 * SECOND;

/// Ours from the first second on, the other's from `START` to `STOP`, and ours alone until five seconds later.
fn beside(link: Link, is_ours_there: bool) -> World {
    let mut world = World::new(link, Some(known(&link)));
    world.flow.give_way();
    world.rival = Some(Cubic::new());
    world.rival_at(START, Event::Starts);
    world.rival_at(STOP, Event::Stops);
    world.to_send = if is_ours_there { u64::MAX / 2 } else { 0 };
    world.pump();
    world.run_until(STOP + 5 * SECOND);
    world
}

/// The other's rate beside ours over that without, in the second second, and from then on.
fn shares(link: Link) -> [f64; 2] {
    let rates = |world: &World| {
        let rate = |from, to| world.rival.as_ref().unwrap().rate(from, to);
        [rate(START + SECOND, START + 2 * SECOND), rate(START + 2 * SECOND, STOP)]
    };
    let (with, alone) = (rates(&beside(link, true)), rates(&beside(link, false)));
    [with[0] / alone[0], with[1] / alone[1]]
}

#[test]
fn somebody_elses_flow_has_his_rate_within_a_second() {
    // Of queues that are much shorter than what is on its way TCP has lost something before anybody can have made room.
    for (mbit, round_trip, queue) in
        [(20.0, 40, 0.5), (20.0, 40, 4.0), (100.0, 20, 1.0), (8.0, 30, 2.0), (50.0, 100, 1.0)]
    {
        let [second, later] = shares(link(mbit, round_trip, queue));
        let which = format!("{mbit} Mbit/s, {round_trip} ms, {queue} products");
        assert!(second > 0.95 && later > 0.95, "{which}: {second}, then {later}");
    }
}

#[test]
fn what_others_leave_is_used() {
    for (mbit, round_trip) in [(20.0, 40), (100.0, 20), (8.0, 30)] {
        let world = beside(link(mbit, round_trip, 1.0), true);
        let rate = |from, to| world.rate_of_ours(from, to) / known(&link(mbit, round_trip, 1.0)).rate as f64;
        let (before, after) = (rate(2 * SECOND, START), rate(STOP + 3 * SECOND, STOP + 5 * SECOND));
        assert!(before > 0.93 && after > 0.9, "{mbit} Mbit/s, {round_trip} ms: {before}, then {after}");
    }
}

/// Sends this much from now on, and returns how long it takes until all has been acknowledged.
fn time_of(world: &mut World, bytes: u64) -> Nanos {
    let (first, started) = (world.packets.len(), world.now);
    let (mut left, mut since) = (usize::MAX, started);
    world.to_send = bytes;
    world.pump();
    while world.to_send > 0 || left > 0 {
        world.run_until(world.now + MS);
        let now = world.packets[first..].iter().flatten().count();
        if now != left {
            (left, since) = (now, world.now);
        } else if world.now > since + 200 * MS {
            // The probe time-out.
            since = world.now;
            world.lose_before(world.packets.len());
            world.pump();
        }
        assert!(world.now < started + 10 * SECOND, "never");
    }
    world.now - started
}

#[test]
fn what_is_short_does_not_wait() {
    for (bytes, limit_ms) in [(5_000, 600), (20_000, 800), (60_000, 800)] {
        let mut world = beside(link(20.0, 40, 1.0), false);
        // Somebody else fills the link, and ours has noticed.
        world.rival_at(world.now, Event::Starts);
        world.to_send = 1 << 30;
        world.pump();
        world.run_until(world.now + 4 * SECOND);
        world.to_send = 0;
        world.run_until(world.now + 5 * SECOND);
        let took = time_of(&mut world, bytes);
        // A round trip takes 80 ms with the queue; who loses its last packet there waits for a fifth of a second.
        assert!(took < limit_ms * MS, "{bytes} took {} ms", took / MS);
    }
}

#[test]
fn a_path_that_has_become_longer_is_no_queue_for_ever() {
    let link = preset("cable");
    let mut world = World::new(link, Some(known(&link)));
    world.flow.give_way();
    world.to_send = u64::MAX / 2;
    world.pump();
    world.run_until(3 * SECOND);
    world.up.reshape(Shape { delay: Duration::from_millis(135), ..link.up });
    world.run_until(40 * SECOND);
    let share = world.rate_of_ours(30 * SECOND, 40 * SECOND) / known(&link).rate as f64;
    assert!(share > 0.9, "{share} of the link");
}
