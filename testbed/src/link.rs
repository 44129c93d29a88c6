//! What a link is like.

use crate::Error;
use std::time::Duration;

/// One direction of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// From the end of sending to the beginning of receiving.
    pub delay: Duration,
    /// Bits a second, counted over whole IP packets; none is no limit.
    pub rate: Option<u64>,
    /// Bytes that may wait to be sent; what does not fit is dropped.
    pub queue_bytes: u64,
    /// Share of packets that are lost on the way, 0 to 1.
    pub loss: f64,
    /// Packets that are lost in a row, on average; at most 1: each for itself.
    pub loss_burst: f64,
    /// Up to this much is added to the delay, evenly; the order is kept.
    pub jitter: Duration,
}

/// Both directions of a host's link, as the host sees them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// From the host.
    pub up: Shape,
    /// To the host.
    pub down: Shape,
}

/// The names of the presets, with what they are like.
pub const PRESETS: [(&str, &str); 5] = [
    ("none", "no delay, no limit"),
    ("lan", "0.4 ms round trip, 1 Gbit/s both ways"),
    ("cable", "70 ms round trip, 4 Mbit/s up, 16 down"),
    ("coffee", "160 ms round trip, 1.4 Mbit/s up, 1.5 down"),
    ("far", "300 ms round trip, 10 Mbit/s both ways, 1% loss each way"),
];

impl Shape {
    /// No delay, no limit, no loss.
    pub const NONE: Self = Self {
        delay: Duration::ZERO,
        rate: None,
        queue_bytes: 1 << 20,
        loss: 0.0,
        loss_burst: 1.0,
        jitter: Duration::ZERO,
    };

    const fn new(delay_us: u64, kbit: u64, queue_kib: u64, loss: f64) -> Self {
        Self {
            delay: Duration::from_micros(delay_us),
            rate: Some(kbit * 1000),
            queue_bytes: queue_kib << 10,
            loss,
            ..Self::NONE
        }
    }

    fn check(&self) -> Result<(), Error> {
        let wrong = |why: &str| Err(Error::Wrong(why.to_owned()));
        match self {
            shape if !(0.0..1.0).contains(&shape.loss) => wrong("loss must be at least 0 and below 1 (100%)"),
            shape if shape.rate == Some(0) => wrong("a rate must be above 0: cut the link instead"),
            shape if shape.queue_bytes < 2000 => wrong("a queue must have room for a packet: at least 2 KB"),
            _ => Ok(()),
        }
    }
}

impl Link {
    /// No delay, no limit, no loss.
    pub const NONE: Self = Self { up: Shape::NONE, down: Shape::NONE };

    /// The preset of this name, one of [`PRESETS`].
    pub fn preset(name: &str) -> Result<Self, Error> {
        let (up, down) = match name {
            "none" => (Shape::NONE, Shape::NONE),
            "lan" => (Shape::new(200, 1_000_000, 512, 0.0), Shape::new(200, 1_000_000, 512, 0.0)),
            "cable" => (Shape::new(35_000, 4_000, 64, 0.0), Shape::new(35_000, 16_000, 256, 0.0)),
            "coffee" => (Shape::new(80_000, 1_400, 32, 0.0), Shape::new(80_000, 1_500, 32, 0.0)),
            "far" => (Shape::new(150_000, 10_000, 375, 0.01), Shape::new(150_000, 10_000, 375, 0.01)),
            _ => {
                let names = PRESETS.map(|(name, _)| name).join(", ");
                return Err(Error::Wrong(format!("no link is called {name}: there are {names}")));
            }
        };
        Ok(Self { up, down })
    }

    /// The same with another round trip, half of it each way.
    pub fn with_round_trip(mut self, round_trip: Duration) -> Self {
        self.up.delay = round_trip / 2;
        self.down.delay = round_trip - self.up.delay;
        self
    }

    /// The same with this loss, each way.
    pub fn with_loss(mut self, loss: f64) -> Self {
        self.up.loss = loss;
        self.down.loss = loss;
        self
    }

    /// An error that says what makes no sense, if anything does not.
    pub fn check(&self) -> Result<(), Error> {
        self.up.check().and_then(|()| self.down.check())
    }

    /// Both delays.
    pub fn round_trip(&self) -> Duration {
        self.up.delay + self.down.delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_what_they_say() {
        for (name, _) in PRESETS {
            Link::preset(name).unwrap().check().unwrap();
        }
        let cable = Link::preset("cable").unwrap();
        assert_eq!(
            (cable.round_trip().as_millis(), cable.up.rate, cable.down.rate),
            (70, Some(4_000_000), Some(16_000_000))
        );
        assert!(Link::preset("dsl").unwrap_err().to_string().contains("coffee"));
        assert!(cable.with_loss(1.0).check().is_err());
    }
}
