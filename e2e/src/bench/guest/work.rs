//! An owner's everyday work beside guests that compute on each CPU.

use super::report::{Report, Row, Target, Unit};
use super::rounds::{CpuTimes, Rounds, rounds};
use super::stats::{Mean, quantile};
use super::ways::Way;
use super::{Bench, numbers};
use crate::error::{Context, Result};
use std::path::Path;

/// The kinds of work, in turn; and of the bursts how long one takes and how far apart they are, in milliseconds: 7, 13 and 24% of a CPU.
const KINDS: [(&str, Option<(f64, f64)>); 5] = [
    ("edit", Some((7.0, 100.0))),
    ("compile", Some((130.0, 1000.0))),
    ("debug", Some((60.0, 250.0))),
    ("build", None),
    ("reads", None),
];
/// Size of the file that is read from the page cache.
const READ_BYTES: usize = 16 << 20;

/// What came of a block.
#[derive(Clone, Copy, Debug)]
struct Block {
    ms: f64,
    idle_s: f64,
    guests_s: f64,
}

/// Measures the slowdown of all kinds together and of each.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let file = bench.scratch.path().join("read");
    std::fs::write(&file, vec![1; READ_BYTES]).at("write", &file)?;
    let count = bench.options.pairs.max(KINDS.len());
    let all = rounds(bench, "work", count, |bench, round, way| {
        let (name, rest) = program(bench, round, &file);
        let guests = bench.guests(way, &bench.spinners())?;
        bench.warm_up(way, name, &rest)?;
        let guests_s = || guests.as_ref().map_or(0.0, super::Guests::cpu_s);
        let (times, before) = (CpuTimes::now(), guests_s());
        let said = bench.owner(&bench.timed(name, bench.short_s(), &rest))?;
        let (idle_s, guests_s) = (CpuTimes::now().idle_s - times.idle_s, guests_s() - before);
        Ok(Block { ms: Mean::of(&numbers(&said, "ms")).map_or(f64::NAN, |mean| mean.mean), idle_s, guests_s })
    })?;
    let ms = all.map(|block| block.ms);
    let alone = ms.alone_slowdowns();
    report.add(
        Row::new("owner_slowdown_mean", Unit::Percent)
            .scatter(alone.map(Mean::scatter))
            .values(|way| Some(ms.slowdowns(way)?.mean)),
    );
    report.add(
        Row::new("owner_slowdown_upper95", Unit::Percent)
            .target(Target::AtMost(0.01, 0.0))
            .scatter(alone.map(Mean::upper95))
            .values(|way| Some(ms.slowdowns(way)?.upper95())),
    );
    report.add(Row::new("owner_slowdown_p50", Unit::Percent).values(|way| median(&ms, way)));
    for (at, name) in ["edit_slowdown", "compile_slowdown", "debug_slowdown", "build_slowdown", "reads_slowdown"]
        .into_iter()
        .enumerate()
    {
        let kind = every(&ms, at);
        let row = Row::new(name, Unit::Percent).scatter(kind.alone_slowdowns().map(Mean::scatter));
        report.add(row.values(|way| Some(kind.slowdowns(way)?.mean)));
    }
    report.add(Row::new("work_harvest", Unit::Percent).values(|way| harvest(&all, way)));
    Ok(())
}

/// The program of this round, and what it takes beside time and steps: the same for all blocks.
fn program(bench: &Bench, round: usize, file: &Path) -> (&'static str, Vec<String>) {
    let seed = bench.options.seed.wrapping_add(round as u64);
    match KINDS[round % KINDS.len()] {
        (_, Some((burst, period))) => ("bursts", vec![burst.to_string(), period.to_string(), seed.to_string()]),
        ("build", None) => {
            let folder = bench.scratch.path().join("build");
            ("build", vec![folder.display().to_string(), bench.cpus.to_string()])
        }
        (_, None) => ("reads", vec![file.display().to_string(), "cached".to_owned()]),
    }
}

fn median(rounds: &Rounds<f64>, way: Way) -> Option<f64> {
    let pairs = rounds.with.get(&way)?.iter().zip(&rounds.alone);
    quantile(&pairs.map(|(with, [first, second])| with * 2.0 / (first + second) - 1.0).collect::<Vec<_>>(), 0.5)
}

/// The rounds of the kind at this place of [`KINDS`].
fn every(all: &Rounds<f64>, at: usize) -> Rounds<f64> {
    let of = |values: &Vec<f64>| values.iter().copied().skip(at).step_by(KINDS.len()).collect();
    let with = all.with.iter().map(|(way, values)| (*way, of(values))).collect();
    Rounds { alone: all.alone.iter().copied().skip(at).step_by(KINDS.len()).collect(), with }
}

fn harvest(all: &Rounds<Block>, way: Way) -> Option<f64> {
    let got: f64 = all.with.get(&way)?.iter().map(|block| block.guests_s).sum();
    let idle: f64 = all.alone.iter().map(|[first, second]| (first.idle_s + second.idle_s) / 2.0).sum();
    Some(got / idle)
}
