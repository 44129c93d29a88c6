//! One direction of a link as arithmetic: a packet waits until those before it are sent, takes its time to be sent, and is on its
//! way for the delay.

use crate::link::Shape;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

/// A point in time, nanoseconds of any clock that does not go back.
pub type Nanos = u64;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives then.
    Arrives(Nanos),
    /// There was no room for it.
    Dropped,
    /// It was sent, and lost on the way.
    Lost,
}

/// One direction of a link.
#[derive(Debug)]
pub struct Pipe {
    shape: Shape,
    /// When all before is sent.
    free: Nanos,
    /// When the last one arrives: nothing overtakes.
    last: Nanos,
    losing: bool,
    random: StdRng,
}

impl Pipe {
    /// A free link.
    pub fn new(shape: Shape, seed: u64) -> Self {
        Self { shape, free: 0, last: 0, losing: false, random: StdRng::seed_from_u64(seed) }
    }

    /// From now on like this.
    pub fn reshape(&mut self, shape: Shape) {
        self.shape = shape;
    }

    /// What becomes of a packet of `bytes` that comes at `now`, which is never before the one before it.
    pub fn offer(&mut self, now: Nanos, bytes: usize) -> Fate {
        let start = self.free.max(now);
        if let Some(rate) = self.shape.rate {
            let waiting = bytes_in(start - now, rate);
            if waiting + bytes as u64 > self.shape.queue_bytes {
                return Fate::Dropped;
            }
            self.free = start + nanos_for(bytes as u64, rate);
        } else {
            self.free = start;
        }
        if self.loses() {
            return Fate::Lost;
        }
        let jitter = match self.shape.jitter.as_nanos() as u64 {
            0 => 0,
            most => self.random.random_range(0..=most),
        };
        self.last = self.last.max(self.free + self.shape.delay.as_nanos() as u64 + jitter);
        Fate::Arrives(self.last)
    }

    fn loses(&mut self) -> bool {
        let Shape { loss, loss_burst, .. } = self.shape;
        if loss <= 0.0 {
            return false;
        }
        // Two states (Gilbert 1960): the share of time in the losing one is `loss`, a stay there is `loss_burst` long.
        self.losing = match self.losing && loss_burst > 1.0 {
            true => !chance(&mut self.random, 1.0 / loss_burst),
            false if loss_burst > 1.0 => chance(&mut self.random, loss / (loss_burst * (1.0 - loss))),
            false => chance(&mut self.random, loss),
        };
        self.losing
    }
}

fn chance(random: &mut impl Rng, probability: f64) -> bool {
    random.random_bool(probability.min(1.0))
}

fn nanos_for(bytes: u64, rate: u64) -> Nanos {
    bytes * 8 * 1_000_000_000 / rate
}

fn bytes_in(nanos: Nanos, rate: u64) -> u64 {
    (u128::from(nanos) * u128::from(rate) / 8_000_000_000) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const MS: u64 = 1_000_000;

    fn pipe(change: impl FnOnce(&mut Shape)) -> Pipe {
        let mut shape =
            Shape { delay: Duration::from_millis(10), rate: Some(8_000_000), queue_bytes: 10_000, ..Shape::NONE };
        change(&mut shape);
        Pipe::new(shape, 7)
    }

    #[test]
    fn a_packet_waits_is_sent_and_travels() {
        let mut pipe = pipe(|_| {});
        // A thousand bytes take a millisecond.
        assert_eq!(pipe.offer(0, 1000), Fate::Arrives(11 * MS));
        assert_eq!(pipe.offer(0, 1000), Fate::Arrives(12 * MS));
        assert_eq!(pipe.offer(5 * MS, 1000), Fate::Arrives(16 * MS));
    }

    #[test]
    fn what_does_not_fit_the_queue_is_dropped() {
        let mut pipe = pipe(|_| {});
        let fates: Vec<Fate> = (0..15).map(|_| pipe.offer(0, 1000)).collect();
        assert_eq!(fates.iter().filter(|fate| **fate == Fate::Dropped).count(), 5);
        assert_eq!(pipe.offer(MS, 1000), Fate::Arrives(21 * MS), "room after one was sent");
    }

    #[test]
    fn loss_is_as_often_and_as_long_as_asked() {
        for burst in [1.0, 4.0] {
            let mut pipe = pipe(|shape| (shape.loss, shape.loss_burst, shape.rate) = (0.05, burst, None));
            let lost: Vec<bool> = (0..200_000).map(|at| pipe.offer(at, 100) == Fate::Lost).collect();
            let count = lost.iter().filter(|lost| **lost).count() as f64;
            let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
            assert!((count / 200_000.0 - 0.05).abs() < 0.005, "{count}");
            let expected = if burst > 1.0 { burst } else { 1.0 / 0.95 };
            assert!((count / bursts / expected - 1.0).abs() < 0.1, "{} in a row", count / bursts);
        }
    }

    #[test]
    fn jitter_keeps_the_order() {
        let mut pipe = pipe(|shape| (shape.jitter, shape.rate) = (Duration::from_millis(5), None));
        let arrivals: Vec<Nanos> = (0..1000)
            .map(|at| match pipe.offer(at * MS / 10, 100) {
                Fate::Arrives(then) => then - at * MS / 10,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(arrivals.iter().all(|delay| (10 * MS..=15 * MS).contains(delay)));
        assert!(arrivals.iter().max() > Some(&(14 * MS)));
    }
}
