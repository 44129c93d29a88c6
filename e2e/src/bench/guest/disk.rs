//! An owner's writes that must be on disk, and reads that are not in memory, beside a guest that writes a large file without rest.
//!
//! The product keeps what tasks write in memory while it is little (an eighth of the machine's). That would hide the disk, so one guest
//! first writes more than that: from then on what the worker's guests write goes to disk at once.

use super::ours::Ours;
use super::report::{Report, Row, Target, Unit};
use super::rounds::{Rounds, rounds};
use super::stats::{Mean, quantile};
use super::ways::Way;
use super::{Bench, numbers, words};
use crate::error::{Context, Error, Result};
use crate::process::wait_for;
use std::time::Duration;

/// Rounds of `work` for one of these.
const PAIRS: usize = 5;
/// Size of the file that is read.
const READ_BYTES: usize = 64 << 20;
/// How long a guest may take to outgrow memory.
const OUTGROW: Duration = Duration::from_secs(300);
/// `f_type` of a file system in memory.
const TMPFS: i64 = 0x0102_1994;

/// Measures both.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let place = bench.scratch.path().to_path_buf();
    let system = rustix::fs::statfs(&place).at("look at", &place)?;
    if system.f_type as i64 == TMPFS {
        return Err(Error::Missing(format!("{} is in memory: set TMPDIR to a folder on disk", place.display())));
    }
    if bench.options.ways.contains(&Way::Ours) {
        outgrow_memory(bench)?;
    }
    let (written, read) = (place.join("fsync"), place.join("cold"));
    std::fs::write(&read, vec![1; READ_BYTES]).at("write", &read)?;
    let count = bench.rounds_per(PAIRS);
    let seconds = bench.options.block_s;
    let fsync = bench.timed("fsync", seconds, &[written.display().to_string()]);
    let times = rounds(bench, "disk: fsync", count, |bench, _, way| beside_writer(bench, way, &fsync))?;
    fsync_rows(&times, report);
    let cold = bench.timed("reads", seconds, &[read.display().to_string(), "cold".to_owned()]);
    let times = rounds(bench, "disk: reads", count, |bench, _, way| beside_writer(bench, way, &cold))?;
    let means = times.map(|block| Mean::of(block).map_or(f64::NAN, |mean| mean.mean));
    report.add(
        Row::new("reads_cold_slowdown", Unit::Percent)
            .scatter(means.alone_slowdowns().map(Mean::scatter))
            .values(|way| Some(means.slowdowns(way)?.mean)),
    );
    Ok(())
}

/// The times that the owner's program tells, beside a guest that writes. What the guest wrote is gone, and the disk at rest, before the next block.
fn beside_writer(bench: &Bench, way: Option<Way>, load: &[String]) -> Result<Vec<f64>> {
    let guests = bench.guests(way, &[words(&["stream", "stream", &bench.options.disk_mib.to_string()])])?;
    let said = bench.owner(load);
    drop(guests);
    let _ = std::fs::remove_file(bench.host.place.join("stream"));
    bench.host.ours.iter().try_for_each(Ours::settle)?;
    let folder = std::fs::File::open(bench.scratch.path()).at("open", bench.scratch.path())?;
    rustix::fs::syncfs(&folder).context(|| "cannot sync the disk".to_owned())?;
    Ok(numbers(&said?, "ms"))
}

fn outgrow_memory(bench: &Bench) -> Result<()> {
    super::progress("disk: a guest that outgrows memory");
    let info = rustix::system::sysinfo();
    let mib = (info.totalram as u64 * u64::from(info.mem_unit)) >> 20;
    let mut guests = bench.host.begin(Way::Ours, &[words(&["stream", "stream", &(mib / 8 + 512).to_string()])])?;
    let first = guests.pids();
    let again = wait_for(OUTGROW, || {
        guests.look();
        let now = guests.pids();
        (!now.is_empty() && now != first).then_some(())
    });
    again.ok_or_else(|| Error::Product(format!(
            "a guest that writes more than {} MiB was not begun again on disk within {OUTGROW:?}: the machine is too busy for guests",
            mib / 8
        )))
}

fn fsync_rows(times: &Rounds<Vec<f64>>, report: &mut Report) {
    let pool = |side: usize| times.alone.iter().flat_map(|round| round[side].clone()).collect::<Vec<_>>();
    let (first, second) = (pool(0), pool(1));
    let alone = [first.clone(), second.clone()].concat();
    let with = |way: Way| Some(times.with.get(&way)?.concat());
    let mean = |values: &[f64]| Some(Mean::of(values)?.mean);
    let p99 = |values: &[f64]| quantile(values, 0.99);
    let ratio = |a: Option<f64>, b: Option<f64>| Some(a? / b?);
    let off = |ratio: Option<f64>| ratio.map(|ratio| (ratio - 1.0).abs());
    report.add(
        Row::new("fsync_mean_ratio", Unit::Times)
            .target(Target::AtMost(1.2, 1.0))
            .scatter(off(ratio(mean(&second), mean(&first))))
            .values(|way| ratio(mean(&with(way)?), mean(&alone))),
    );
    let ratios = Row::new("fsync_p99_ratio", Unit::Times).scatter(off(ratio(p99(&second), p99(&first))));
    report.add(ratios.values(|way| ratio(p99(&with(way)?), p99(&alone))));
    let apart = p99(&second).zip(p99(&first)).map(|(second, first)| (second - first).abs());
    // Twice what it is alone, or 2 ms more: whichever is more.
    let limit = p99(&alone).unwrap_or(0.0).max(2.0);
    let excess = Row::new("fsync_p99_excess_ms", Unit::Ms).target(Target::AtMost(limit, 0.0)).scatter(apart);
    report.add(excess.values(|way| Some(p99(&with(way)?)? - p99(&alone)?)));
    report.add(Row::new("fsync_p99_ms", Unit::Ms).alone(p99(&alone)).values(|way| p99(&with(way)?)));
    report.add(Row::new("fsync_mean_ms", Unit::Ms).alone(mean(&alone)).values(|way| mean(&with(way)?)));
}
