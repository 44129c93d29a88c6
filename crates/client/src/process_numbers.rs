//! The numbers of commands' processes. Each task has a process namespace of its own, in which all numbers are free: but programs
//! make names of theirs (`t.$$`, core files, profiles), and these must not collide in the client's folders.

use std::sync::atomic::{AtomicU32, Ordering};

/// Numbers below are those of a machine's own first processes.
const FIRST: u32 = 1000;
/// Numbers that a task's further processes have before the next task's begin, where there are millions, and where there are not.
const STEP: u32 = 512;
const STEP_SMALL: u32 = 32;
/// What the kernel counts to if it does not say.
const COUNT_DEFAULT: u32 = 32_768;

/// Gives each command a number, and comes back to one as late as it can.
#[derive(Debug)]
pub struct ProcessNumbers {
    /// How many places there are, each of `step` numbers.
    places: u32,
    step: u32,
    next: AtomicU32,
}

impl ProcessNumbers {
    /// Within what this machine's kernel counts to, from anywhere on.
    pub fn of_machine() -> Self {
        let count = std::fs::read_to_string("/proc/sys/kernel/pid_max").ok();
        let count = count.and_then(|text| text.trim().parse().ok()).unwrap_or(COUNT_DEFAULT);
        Self::new(count, rand::random())
    }

    fn new(count: u32, start: u32) -> Self {
        let step = if count > 1 << 20 { STEP } else { STEP_SMALL };
        let places = (count.saturating_sub(FIRST) / step).max(1);
        Self { places, step, next: AtomicU32::new(start % places) }
    }

    /// The next command's.
    pub fn next(&self) -> u32 {
        FIRST + (self.next.fetch_add(1, Ordering::Relaxed) % self.places) * self.step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_differ_until_all_were_given() {
        for count in [32_768, 4_194_304] {
            let numbers = ProcessNumbers::new(count, u32::MAX - 1);
            let all: std::collections::BTreeSet<u32> = (0..numbers.places).map(|_| numbers.next()).collect();
            assert_eq!(all.len(), numbers.places as usize);
            assert!(numbers.places > 900 && all.iter().all(|number| (FIRST..count).contains(number)));
        }
        assert_eq!(ProcessNumbers::new(300, 7).next(), FIRST);
    }
}
