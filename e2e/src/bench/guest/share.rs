//! What guests get of CPUs that an owner's loops want.

use super::report::{Report, Row, Target, Unit};
use super::stats::Mean;
use super::ways::Way;
use super::{Bench, progress, words};
use crate::error::Result;
use std::collections::BTreeMap;

/// Rounds of `work` for one of these.
const PAIRS: usize = 10;

/// Measures both.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    for (name, limit, pinned) in [("guest_share_pinned", 0.005, true), ("guest_share_unpinned", 0.01, false)] {
        let mut shares: BTreeMap<Way, Vec<f64>> = BTreeMap::new();
        let count = bench.rounds_per(PAIRS);
        for round in 0..count {
            for way in bench.shuffle(bench.options.ways.clone()) {
                progress(&format!("share: round {} of {count}", round + 1));
                shares.entry(way).or_default().push(share(bench, way, pinned)?);
            }
        }
        let mean = |way: Way| Some(Mean::of(shares.get(&way)?)?.mean);
        report.add(Row::new(name, Unit::Percent).target(Target::AtMost(limit, 0.0)).values(mean));
    }
    Ok(())
}

/// The guests' part of the CPU time that they and the owner's loops get: one of each on one CPU, or as many as there are CPUs.
fn share(bench: &Bench, way: Way, pinned: bool) -> Result<f64> {
    let (count, cpu) = if pinned { (1, bench.cpus as i64 - 1) } else { (bench.cpus, -1) };
    let guests = bench.host.begin(way, &vec![words(&["spin"]); count])?;
    if let Ok(cpu) = usize::try_from(cpu) {
        guests.pin(cpu)?;
    }
    let pids = guests.pids().into_iter().map(|pid| pid.to_string());
    let rest: Vec<String> = [count.to_string(), cpu.to_string()].into_iter().chain(pids).collect();
    bench.warm_up(Some(way), "loops", &rest)?;
    // A guest gets its part in pieces of milliseconds, more than a second apart: a short block would tell of none.
    let said = bench.owner(&bench.timed("loops", bench.options.block_s, &rest))?;
    let ns = |name: &str| said[name].as_f64().unwrap_or(f64::NAN);
    Ok(ns("guest_ns") / (ns("guest_ns") + ns("owner_ns")))
}
