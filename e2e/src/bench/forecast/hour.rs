//! Five minutes ahead on this machine, about an hour in all: what is foretold of the next five minutes, against what sensors say of them (table 5), and
//! against what a test process then gets in five minutes (table 6). One window for each load shows that it works; claims go by [`super::model`].
//!
//! Loads are those of [`super::live`], on one processor. Each has five minutes of readings, five more that were foretold, and the test.

use super::host::{Case, FULL, GUEST, Host, SENSORS, cpus};
use super::tables::{Row, tell};
use super::{Options, at_most};
use crate::bench::samples::Figures;
use crate::error::Result;
use sched::forecast::Forecaster;
use std::time::Duration;

/// Loads whose next five minutes can be foretold, and bursts.
const LOADS: [&str; 4] = ["idle", "bursty", "conundrum-apart", "kongo"];
/// Readings in five minutes, and in a minute: from one probe of the hybrid sensor to the next.
const FAR: usize = 30;
const MINUTE: usize = 6;

/// Something of each sensor.
type All = [f64; SENSORS.len()];

/// Runs all loads.
pub fn run(options: &Options, figures: &mut Figures) -> Result<()> {
    let interval = if options.quick { Duration::from_millis(200) } else { Duration::from_secs(10) };
    let mut rows = [Vec::new(), Vec::new()];
    for load in LOADS {
        let case = Case { load, cpu: Some(cpus() - 1) };
        if options.load.as_ref().is_some_and(|name| !case.name().contains(name)) {
            continue;
        }
        eprintln!("bench: {}", case.name());
        let measured = measure(case, interval, options)?;
        rows.iter_mut().zip(measured).for_each(|(rows, row)| rows.push(row));
    }
    tell("five minutes ahead against the measurements in them", 5, &rows[0]);
    tell("five minutes ahead against a test process", 6, &rows[1]);
    let steady = rows[1].iter().filter(|row| row.case.load != "bursty");
    let worst = steady.filter_map(|row| row.errors[FULL]).reduce(f64::max);
    at_most(figures, "five_minute_live_error_max", worst, 0.05);
    Ok(())
}

/// Errors against measurements, and against a test process.
fn measure(case: Case, interval: Duration, options: &Options) -> Result<[Row; 2]> {
    let mut host = Host::start(case, options)?;
    let mut forecasters: [Forecaster; SENSORS.len()] = std::array::from_fn(|_| Forecaster::over(FAR));
    let (_, first) = five_minutes(&mut host, &mut forecasters, interval)?;
    let (said, second) = five_minutes(&mut host, &mut forecasters, interval)?;
    let got = host.full(interval * FAR as u32)?;
    eprintln!(
        "bench:   foretold {first:.3?}, sensors said {said:.3?}; foretold {second:.3?}, a test process got {got:.3}"
    );
    let measured = std::array::from_fn(|at| Some((first[at] - said[at]).abs()));
    // A guest gets something else.
    let tested = std::array::from_fn(|at| (at != GUEST).then_some((second[at] - got).abs()));
    Ok([Row { case, errors: measured, got: [None; 2] }, Row { case, errors: tested, got: [Some(got), None] }])
}

/// What sensors say in the mean of five minutes, and what is foretold of the next ones.
fn five_minutes(
    host: &mut Host,
    forecasters: &mut [Forecaster; SENSORS.len()],
    interval: Duration,
) -> Result<(All, All)> {
    let mut sums = [0.0; SENSORS.len()];
    for reading in 0..FAR {
        let now = host.measure(interval, reading % MINUTE == 1)?;
        for ((forecaster, sum), now) in forecasters.iter_mut().zip(&mut sums).zip(now) {
            forecaster.observe(now);
            *sum += now;
        }
    }
    let next = forecasters.each_ref().map(|forecaster| forecaster.next().map_or(f64::NAN, |next| next.value));
    Ok((sums.map(|sum| sum / FAR as f64), next))
}
