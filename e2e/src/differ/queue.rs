//! Runs programs several at a time: each job takes the next one as soon as it has done with the one before.

use super::grammar;
use super::program::Program;
use super::world::{self, Clients, Comparison};
use crate::error::{Error, Result};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, mpsc};
use std::time::Instant;

/// A program that was run.
pub struct Done {
    /// From which it was drawn.
    pub seed: u64,
    /// What it was.
    pub program: Program,
    /// What came of it.
    pub comparison: Comparison,
}

/// Which programs there are.
#[derive(Clone, Copy, Debug)]
pub enum Extent {
    /// So many that are of use.
    Programs(usize),
    /// As many as are begun before.
    Until(Instant),
}

/// The seeds that are left.
struct Seeds {
    next: u64,
    begun: usize,
    void: usize,
    extent: Extent,
    is_over: bool,
}

impl Seeds {
    fn take(&mut self) -> Option<u64> {
        let is_left = match self.extent {
            Extent::Programs(count) => self.begun < count,
            Extent::Until(end) => Instant::now() < end,
        };
        if self.is_over || !is_left {
            return None;
        }
        self.begun += 1;
        self.next += 1;
        Some(self.next - 1)
    }

    /// Another one comes in the place of one that came to nothing: at most as many as there are to be, on a machine on which all do.
    fn void(&mut self) {
        self.void += 1;
        if !matches!(self.extent, Extent::Programs(count) if self.void > count) {
            self.begun -= 1;
        }
    }
}

/// Runs programs from `seed` on, and hands over each as it ends until `each` says that it is enough (false).
pub fn run(
    seed: u64,
    extent: Extent,
    jobs: usize,
    place: &Path,
    clients: Clients<'_>,
    mut each: impl FnMut(Done) -> Result<bool>,
) -> Result<()> {
    let seeds = Mutex::new(Seeds { next: seed, begun: 0, void: 0, extent, is_over: false });
    std::thread::scope(|scope| {
        let (ended, ends) = mpsc::channel();
        for job in 0..jobs.max(1) {
            let (seeds, ended) = (&seeds, ended.clone());
            // The same few places again and again: their names are known to the workers, with other contents.
            let place = place.join(job.to_string());
            scope.spawn(move || {
                // A function, so that the lock is not held while the program runs.
                let next = || lock(seeds).take();
                while let Some(seed) = next() {
                    let program = grammar::draw(seed);
                    let comparison = world::compare(&program, &seed.to_string(), &place, clients);
                    if comparison.as_ref().is_ok_and(|comparison| comparison.is_void) {
                        lock(seeds).void();
                    }
                    let done = comparison.map(|comparison| Done { seed, program, comparison });
                    if ended.send(done).is_err() {
                        break;
                    }
                }
            });
        }
        drop(ended);
        let result = ends.iter().try_for_each(|done: Result<Done>| match done.and_then(&mut each) {
            Ok(true) => Ok(()),
            Ok(false) => Err(None),
            Err(error) => Err(Some(error)),
        });
        lock(&seeds).is_over = true;
        match result {
            Err(Some(error)) => Err::<(), Error>(error),
            Ok(()) | Err(None) => Ok(()),
        }
    })
}

fn lock(seeds: &Mutex<Seeds>) -> MutexGuard<'_, Seeds> {
    seeds.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_so_many_in_order_and_another_for_each_that_is_void() {
        let mut seeds = Seeds { next: 7, begun: 0, void: 0, extent: Extent::Programs(2), is_over: false };
        assert_eq!([seeds.take(), seeds.take(), seeds.take()], [Some(7), Some(8), None]);
        seeds.begun -= 1;
        assert_eq!([seeds.take(), seeds.take()], [Some(9), None]);
        seeds.extent = Extent::Until(Instant::now() + std::time::Duration::from_secs(60));
        assert_eq!(seeds.take(), Some(10));
        seeds.is_over = true;
        assert_eq!(seeds.take(), None);
    }
}
