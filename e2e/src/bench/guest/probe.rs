//! A probe that wakes every 10 ms, as what draws or plays sound does, beside guests that compute on each CPU.

use super::report::{Report, Row, Target, Unit};
use super::rounds::{Rounds, rounds};
use super::stats::quantile;
use super::ways::Way;
use super::{Bench, numbers};
use crate::error::Result;

/// Rounds, for how many of `work`.
const ROUNDS: usize = 60;
const PAIRS: usize = 150;
/// What it may take longer at P99, in milliseconds, and in parts of what guests of equal priority add.
const EXCESS_MS_MAX: f64 = 0.3;
const EXCESS_OF_EQUAL_MAX: f64 = 0.25;

/// Measures how much later it is.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let count = (bench.options.pairs * ROUNDS / PAIRS).max(1);
    let all = rounds(bench, "probe", count, |bench, _, way| {
        let guests = bench.guests(way, &bench.spinners())?;
        let said = bench.owner(&bench.timed("probe", bench.options.block_s, &[]))?;
        drop(guests);
        Ok([numbers(&said, "wake_ms"), numbers(&said, "burst_ms")])
    })?;
    let sides = [("probe_wake_p99_excess_ms", Excess::of(&all, 0)), ("probe_burst_p99_excess_ms", Excess::of(&all, 1))];
    let larger = |way| Some(sides[0].1.with(&all, way)?.max(sides[1].1.with(&all, way)?));
    let scatter = sides[0].1.scatter.max(sides[1].1.scatter);
    report.add(
        Row::new("probe_p99_excess_ms", Unit::Ms)
            .target(Target::AtMost(EXCESS_MS_MAX, 0.0))
            .scatter(Some(scatter))
            .values(larger),
    );
    for (name, excess) in &sides {
        report.add(Row::new(name, Unit::Ms).scatter(Some(excess.scatter)).values(|way| excess.with(&all, way)));
    }
    if let Some(equal) = larger(Way::Equal).filter(|equal| *equal > 0.0) {
        report.add(
            Row::new("probe_p99_excess_of_equal", Unit::Percent)
                .target(Target::AtMost(EXCESS_OF_EQUAL_MAX, 0.0))
                .scatter(Some(scatter / equal))
                .values(|way| Some(larger(way)? / equal)),
        );
    }
    report.add(
        Row::new("probe_wake_p99_ms", Unit::Ms).alone(Some(sides[0].1.alone)).values(|way| sides[0].1.p99(&all, way)),
    );
    report.add(
        Row::new("probe_burst_p99_ms", Unit::Ms).alone(Some(sides[1].1.alone)).values(|way| sides[1].1.p99(&all, way)),
    );
    Ok(())
}

/// One of the two times that a probe tells.
struct Excess {
    at: usize,
    /// P99 of all blocks alone.
    alone: f64,
    /// What P99 of the first and of the second blocks alone differ by.
    scatter: f64,
}

impl Excess {
    fn of(all: &Rounds<[Vec<f64>; 2]>, at: usize) -> Self {
        let p99 = |sides: &[usize]| {
            let blocks = all.alone.iter().flat_map(|round| sides.iter().map(|side| round[*side][at].as_slice()));
            quantile(&blocks.collect::<Vec<_>>().concat(), 0.99).unwrap_or(f64::NAN)
        };
        Self { at, alone: p99(&[0, 1]), scatter: (p99(&[0]) - p99(&[1])).abs() }
    }

    fn p99(&self, all: &Rounds<[Vec<f64>; 2]>, way: Way) -> Option<f64> {
        let blocks: Vec<&[f64]> = all.with.get(&way)?.iter().map(|block| block[self.at].as_slice()).collect();
        quantile(&blocks.concat(), 0.99)
    }

    fn with(&self, all: &Rounds<[Vec<f64>; 2]>, way: Way) -> Option<f64> {
        Some(self.p99(all, way)? - self.alone)
    }
}
