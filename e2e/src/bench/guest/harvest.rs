//! What guests get of a machine on which nobody else works.

use super::Bench;
use super::load::cpu_ns;
use super::report::{Report, Row, Target, Unit};
use super::rounds::{CpuTimes, rounds};
use super::stats::Mean;
use super::ways::Way;
use crate::error::Result;
use crate::process::pause;
use std::time::Duration;

/// Rounds of `work` for one of these.
const PAIRS: usize = 10;

/// Measures it: with guests their CPU time, alone the time that is idle.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let count = bench.rounds_per(PAIRS);
    waiting_worker(bench, report);
    let all = rounds(bench, "harvest", count, |bench, _, way| {
        let guests = bench.guests(way, &bench.spinners())?;
        let now = || guests.as_ref().map_or_else(|| CpuTimes::now().idle_s, super::Guests::cpu_s);
        let before = now();
        pause(Duration::from_secs_f64(bench.short_s()));
        Ok(now() - before)
    })?;
    report.add(
        Row::new("harvest", Unit::Percent)
            .target(Target::AtLeast(0.95, 1.0))
            .scatter(all.alone_slowdowns().map(Mean::scatter))
            .values(|way| Some(1.0 + all.slowdowns(way)?.mean)),
    );
    Ok(())
}

/// What hub and worker take of a CPU while there are no guests: part of what *alone* means everywhere else.
fn waiting_worker(bench: &Bench, report: &mut Report) {
    let Some(ours) = &bench.host.ours else { return };
    let before = cpu_ns(ours.pid());
    pause(Duration::from_secs_f64(bench.options.block_s));
    let used =
        cpu_ns(ours.pid()).zip(before).map(|(after, before)| (after - before) as f64 / 1e9 / bench.options.block_s);
    report.add(Row::new("worker_idle_cpu", Unit::Percent).values(|way| used.filter(|_| way == Way::Ours)));
}
