//! Rounds of blocks: in each round two blocks alone and one with each way of having guests, in an order by chance. What changes about the
//! machine from one minute to the next strikes all blocks of a round alike, and what the two blocks alone differ by is what the machine does by
//! itself.

use super::stats::Mean;
use super::ways::Way;
use super::{Bench, progress};
use crate::error::Result;
use crate::process::pause;
use std::collections::BTreeMap;
use std::time::Duration;

/// Between blocks: what the one before left to be done is done.
const SETTLE: Duration = Duration::from_millis(300);

/// What came of the rounds of a part.
#[derive(Clone, Debug)]
pub struct Rounds<T> {
    /// For each round the two blocks alone, in the order in which they were measured.
    pub alone: Vec<[T; 2]>,
    /// For each way the block of each round.
    pub with: BTreeMap<Way, Vec<T>>,
}

/// Measures so many rounds. `measure` is given the number of the round and how guests are run in this block, if at all.
pub fn rounds<T>(
    bench: &mut Bench,
    name: &str,
    count: usize,
    mut measure: impl FnMut(&Bench, usize, Option<Way>) -> Result<T>,
) -> Result<Rounds<T>> {
    let ways = bench.options.ways.clone();
    let mut all = Rounds { alone: Vec::new(), with: BTreeMap::new() };
    for round in 0..count {
        progress(&format!("{name}: round {} of {count}", round + 1));
        let order = [None, None].into_iter().chain(ways.iter().copied().map(Some)).collect();
        let order = bench.shuffle(order);
        let mut alone = Vec::new();
        for way in order {
            pause(SETTLE);
            let value = measure(bench, round, way)?;
            match way {
                Some(way) => all.with.entry(way).or_default().push(value),
                None => alone.push(value),
            }
        }
        all.alone.extend(<[T; 2]>::try_from(alone).ok());
    }
    Ok(all)
}

impl<T> Rounds<T> {
    /// The same with something of each block.
    pub fn map<U>(&self, of: impl Fn(&T) -> U) -> Rounds<U> {
        let alone = self.alone.iter().map(|[first, second]| [of(first), of(second)]).collect();
        let with = self.with.iter().map(|(way, blocks)| (*way, blocks.iter().map(&of).collect())).collect();
        Rounds { alone, with }
    }
}

impl Rounds<f64> {
    /// For each round what a way took in parts of the mean of the two blocks alone, less 1.
    pub fn slowdowns(&self, way: Way) -> Option<Mean> {
        let blocks = self.with.get(&way)?.iter().zip(&self.alone);
        Mean::of(&blocks.map(|(with, [first, second])| with * 2.0 / (first + second) - 1.0).collect::<Vec<_>>())
    }

    /// The same of the second block alone in parts of the first.
    pub fn alone_slowdowns(&self) -> Option<Mean> {
        Mean::of(&self.alone.iter().map(|[first, second]| second / first - 1.0).collect::<Vec<_>>())
    }
}

/// Time that all CPUs together have spent, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct CpuTimes {
    /// Computing, for whomever.
    pub busy_s: f64,
    /// Doing nothing, or waiting for a disk.
    pub idle_s: f64,
}

impl CpuTimes {
    /// Since the machine started.
    pub fn now() -> Self {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        Self::parse(&text, rustix::param::clock_ticks_per_second() as f64)
    }

    fn parse(text: &str, ticks_per_s: f64) -> Self {
        let line = text.lines().next().unwrap_or_default();
        let ticks: Vec<f64> = line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
        // user, nice, system, idle, iowait, irq, softirq, steal; guests of a hypervisor are in user already.
        let of = |fields: &[usize]| fields.iter().filter_map(|at| ticks.get(*at)).sum::<f64>() / ticks_per_s;
        Self { busy_s: of(&[0, 1, 2, 5, 6]), idle_s: of(&[3, 4]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_compared_within_their_round() {
        let with = BTreeMap::from([(Way::Ours, vec![1.1, 22.0])]);
        let rounds = Rounds { alone: vec![[1.0, 1.0], [19.0, 21.0]], with };
        let ours = rounds.slowdowns(Way::Ours).unwrap();
        assert!((ours.mean - 0.1).abs() < 1e-9 && ours.half_width < 1e-9, "{ours:?}");
        assert!((rounds.alone_slowdowns().unwrap().mean - (21.0 / 19.0 - 1.0) / 2.0).abs() < 1e-9);
        assert_eq!(rounds.slowdowns(Way::Nice), None);
        assert_eq!(rounds.map(|value| value * 2.0).alone[0], [2.0, 2.0]);
    }

    #[test]
    fn times_of_cpus() {
        let times = CpuTimes::parse("cpu  100 200 300 400 500 600 700 800 0 0\ncpu0 1 2 3\n", 100.0);
        assert_eq!((times.busy_s, times.idle_s), (19.0, 9.0));
    }
}
