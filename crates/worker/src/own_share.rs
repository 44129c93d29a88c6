//! What part of the processors its owner's own tasks get.
//!
//! As processes of the owner's they would all run at once, each with its part; as tasks they take turns at the places that the machine
//! lends. So those that run stand for those that wait: the kernel gives each as much as that many processes would get beside what else runs.

use wire::{Count, Counted};

/// A task stands for so many at most.
const STANDS_FOR_MAX: f64 = 8.0;
/// Each step of a nice value changes the part of the processors by this (`sched_prio_to_weight` in the kernel).
const PART_OF_STEP: f64 = 1.25;

/// The owner's own tasks that run now.
#[derive(Clone, Debug, Default)]
pub struct Running(Count);

impl Running {
    /// One more runs, until the first of these is dropped. The second is the nice value of its session among the machine's sessions, where
    /// `waiting` others wait for a place.
    pub fn begin(&self, waiting: u32) -> (Counted, i8) {
        let one = self.0.one();
        (one, nice(self.0.now() as u32, waiting))
    }
}

fn nice(running: u32, waiting: u32) -> i8 {
    let stands_for = (f64::from(running) + f64::from(waiting)) / f64::from(running.max(1));
    -(stands_for.clamp(1.0, STANDS_FOR_MAX).log(PART_OF_STEP).round() as i8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_stands_for_who_waits() {
        assert_eq!([nice(1, 0), nice(2, 0), nice(2, 2), nice(2, 14), nice(1, 5000)], [0, 0, -3, -9, -9]);
        let running = Running::default();
        let (first, alone) = running.begin(0);
        let (_second, beside) = running.begin(2);
        assert_eq!((alone, beside), (0, -3));
        drop(first);
        assert_eq!(running.begin(2).1, -3);
    }
}
