//! How fast slow hosts are: a task may come to one, and must be in time there, too.
//!
//! Processors are counted by speed, in eight classes to an octave, so a slow one is known without a look at the hosts.

use super::Table;
use super::records::Presence;

/// Classes of speed: the highest is that of a million thousandths.
const CLASSES: usize = 20 * EIGHTHS + EIGHTHS;
const EIGHTHS: usize = 8;
/// One processor in so many may be slower than [`Speeds::slow_permille`] says.
const SLOWER: u64 = 20;

/// Processors by speed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Speeds {
    cpus: [u64; CLASSES],
    slow_permille: u32,
    fast_permille: u32,
}

impl Default for Speeds {
    fn default() -> Self {
        Self { cpus: [0; CLASSES], slow_permille: 1_000, fast_permille: 1_000 }
    }
}

impl Speeds {
    /// The speed that all but one in twenty processors have at least, in thousandths, rounded down to its class.
    pub fn slow_permille(&self) -> u32 {
        self.slow_permille
    }

    /// The speed of the fastest, in thousandths, rounded down to its class.
    pub fn fast_permille(&self) -> u32 {
        self.fast_permille
    }

    /// So many processors of a speed come or go.
    pub fn change(&mut self, cpus: u16, speed_permille: u32, is_more: bool) {
        let in_it = &mut self.cpus[class_of(speed_permille)];
        *in_it = if is_more { *in_it + u64::from(cpus) } else { *in_it - u64::from(cpus) };
        let all: u64 = self.cpus.iter().sum();
        let mut slower = 0;
        let slow = self.cpus.iter().position(|cpus| {
            slower += cpus;
            slower > all / SLOWER
        });
        self.slow_permille = slow.map_or(1_000, least_of);
        self.fast_permille = self.cpus.iter().rposition(|cpus| *cpus > 0).map_or(1_000, least_of);
    }
}

/// Thousandths as powers of two and eighths of them, so that 1,000 is the least of its class. What is slower than 8 counts as 8.
fn class_of(speed_permille: u32) -> usize {
    let speed = (u64::from(speed_permille) * 1_024).div_ceil(1_000).max(EIGHTHS as u64);
    let log = speed.ilog2() as usize;
    (log * EIGHTHS + (speed >> (log - 3)) as usize % EIGHTHS).min(CLASSES - 1)
}

/// The least speed of a class, in thousandths.
fn least_of(class: usize) -> u32 {
    let speed = ((EIGHTHS + class % EIGHTHS) as u64) << (class / EIGHTHS) >> 3;
    (speed * 1_000 / 1_024).max(1) as u32
}

impl Table {
    /// [`Speeds`], from the hosts.
    pub(super) fn speeds_counted(&self) -> Speeds {
        let mut speeds = Speeds::default();
        let is_there = |presence| !matches!(presence, Presence::Free | Presence::Gone);
        for (at, host) in self.hosts.all().filter(|(_, host)| is_there(host.presence)) {
            speeds.change(self.kinds.shape(host.kind).cpus, self.host_more.peek(at).speed_permille, true);
        }
        speeds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_in_order_and_at_most_an_eighth_too_slow() {
        let mut before = 0;
        for speed in (1..3_000).chain((3_000..=1_000_000).step_by(997)) {
            let (class, least) = (class_of(speed), least_of(class_of(speed)));
            assert!(class >= before && class < CLASSES, "{speed}");
            assert!(least <= speed.max(8) && least * 9 / 8 + 2 >= speed, "{speed}: {least}");
            before = class;
        }
        assert_eq!([500, 1_000, 2_000].map(|speed| least_of(class_of(speed))), [500, 1_000, 2_000]);
    }

    #[test]
    fn one_in_twenty_may_be_slower() {
        let mut speeds = Speeds::default();
        speeds.change(95, 1_000, true);
        speeds.change(5, 100, true);
        assert_eq!((speeds.slow_permille(), speeds.fast_permille()), (1_000, 1_000));
        speeds.change(1, 500, true);
        assert_eq!(speeds.slow_permille(), 500);
        speeds.change(1, 500, false);
        assert_eq!(speeds.slow_permille(), 1_000);
    }
}
