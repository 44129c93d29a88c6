//! Real loads on this machine: what sensors and forecasts say, and what a test process gets right afterwards.
//!
//! Loads are those of the Network Weather Service's authors: nothing; bursts; a loop at nice 19 ("conundrum"), beside the test process and
//! in a cgroup of its own; a loop of full priority ("kongo"); both. Their hosts had one processor: *pinned* all that we start is on one.
//! *Unpinned* there is a load for each processor, and all may move.
//!
//! What else runs on the machine is load as well, and is measured as such; but if it changes from one interval to the next, that is an
//! error of every sensor. *Alone*, it is outweighed and left out (see [`Options::alone`]).

use super::host::{Case, FULL, GUEST, Host, SENSORS, cpus};
use super::tables::{self, Row};
use super::{Options, at_most};
use crate::bench::samples::{Figures, median};
use crate::bench::tasks::Dice;
use crate::error::Result;
use sched::forecast::Forecaster;
use std::time::Duration;

/// Loads, by what the paper calls the host that has it.
const LOADS: [&str; 7] = ["idle", "bursty", "bursty-slow", "conundrum", "conundrum-apart", "kongo", "both"];

/// Errors of one kind, by sensor.
type Part = fn(&Errors) -> &[Vec<f64>; SENSORS.len()];

/// How long things take.
#[derive(Clone, Copy)]
struct Times {
    /// From one reading to the next, and how long test processes spin.
    interval: Duration,
    /// Readings between tests.
    readings: usize,
    /// Tests of each load.
    rounds: usize,
}

/// Errors of one case, by sensor.
#[derive(Default)]
struct Errors {
    /// Of the last measurement, against the test process.
    measured: [Vec<f64>; SENSORS.len()],
    /// Of the forecast, against the test process.
    foretold: [Vec<f64>; SENSORS.len()],
    /// Of the forecast, against the next measurement.
    one_step: [Vec<f64>; SENSORS.len()],
    /// What test processes got: of full priority, and a guest.
    truth: [Vec<f64>; 2],
    /// Of readings, in nanoseconds.
    cost_ns: Vec<f64>,
}

/// Runs all loads.
pub fn run(options: &Options, figures: &mut Figures) -> Result<()> {
    let times = match options.quick {
        true => Times { interval: Duration::from_millis(1_500), readings: 2, rounds: options.rounds.unwrap_or(1) },
        false => Times { interval: Duration::from_secs(10), readings: 3, rounds: options.rounds.unwrap_or(3) },
    };
    let mut cases: Vec<Case> = Vec::new();
    for cpu in [Some(cpus() - 1), None] {
        cases.extend(LOADS.map(|load| Case { load, cpu }));
    }
    cases.retain(|case| options.load.as_ref().is_none_or(|name| case.name().contains(name)));
    Dice(options.seed).shuffle(&mut cases);
    let mut done: Vec<(Case, Errors)> = Vec::new();
    for case in cases {
        eprintln!("bench: {}", case.name());
        done.push((case, measure(case, times, options)?));
    }
    done.sort_by_key(|(case, _)| (case.cpu.is_none(), LOADS.iter().position(|load| *load == case.load)));
    let parts: [(&str, Part); 3] = [
        ("measurement error", |errors| &errors.measured),
        ("true forecast error", |errors| &errors.foretold),
        ("one step against the next measurement", |errors| &errors.one_step),
    ];
    for (number, (title, part)) in (1..).zip(parts) {
        let row = |(case, errors): &(Case, Errors)| Row {
            case: *case,
            errors: part(errors).each_ref().map(|errors| middle(errors)),
            got: errors.truth.each_ref().map(|got| middle(got)),
        };
        tables::tell(title, number, &done.iter().map(row).collect::<Vec<_>>());
    }
    tell(&done, figures);
    Ok(())
}

fn tell(done: &[(Case, Errors)], figures: &mut Figures) {
    for (case, errors) in done {
        let name =
            format!("{}_{}", case.load.replace('-', "_"), if case.cpu.is_some() { "pinned" } else { "unpinned" });
        for (sensor, what) in [(FULL, "full"), (GUEST, "guest")] {
            figures.add(&format!("measurement_error_{name}_{what}"), middle(&errors.measured[sensor]));
            figures.add(&format!("true_forecast_error_{name}_{what}"), middle(&errors.foretold[sensor]));
        }
    }
    let worst = |part: Part, bursty: bool, pinned: Option<bool>| {
        let counts = |case: &Case| {
            case.load != "bursty-slow"
                && (bursty || case.load != "bursty")
                && pinned.is_none_or(|pinned| pinned == case.cpu.is_some())
        };
        let cases = done.iter().filter(|(case, _)| counts(case));
        let each = cases.flat_map(|(_, errors)| [FULL, GUEST].map(|sensor| middle(&part(errors)[sensor])));
        each.flatten().reduce(f64::max)
    };
    for (suffix, pinned) in [("", None), ("_pinned", Some(true)), ("_unpinned", Some(false))] {
        let measured = worst(|errors| &errors.measured, true, pinned);
        at_most(figures, &format!("measurement_error_max{suffix}"), measured, 0.05);
        let foretold = worst(|errors| &errors.foretold, false, pinned);
        at_most(figures, &format!("one_step_error_max{suffix}"), foretold, 0.03);
    }
    figures.add("one_step_sensor_error_max", worst(|errors| &errors.one_step, false, None));
    let cost = middle(&done.iter().flat_map(|(_, errors)| errors.cost_ns.clone()).collect::<Vec<f64>>());
    // A reading every ten seconds.
    at_most(figures, "sensor_cost_percent", cost.map(|ns| ns / 10e9 * 100.0), 0.1);
}

fn middle(all: &[f64]) -> Option<f64> {
    median(all.iter().copied())
}

fn measure(case: Case, times: Times, options: &Options) -> Result<Errors> {
    let mut host = Host::start(case, options)?;
    let mut errors = Errors::default();
    let mut forecasters: [Forecaster; SENSORS.len()] = std::array::from_fn(|_| Forecaster::default());
    for _ in 0..times.rounds {
        // What the hybrid sensor's probe, once a minute, is compared with.
        let mut now = host.measure(times.interval, false)?;
        for reading in 0..times.readings {
            now = host.measure(times.interval, reading == 0)?;
            for (at, forecaster) in forecasters.iter_mut().enumerate() {
                errors.one_step[at].extend(forecaster.next().map(|next| (next.value - now[at]).abs()));
                forecaster.observe(now[at]);
            }
        }
        let truth = [host.full(times.interval)?, host.guest(times.interval)?];
        for at in 0..SENSORS.len() {
            let truth = truth[usize::from(at == GUEST)];
            errors.measured[at].push((now[at] - truth).abs());
            errors.foretold[at].extend(forecasters[at].next().map(|next| (next.value - truth).abs()));
        }
        eprintln!("bench:   said {now:.3?}; then a test process got {:.3}, a guest {:.3}", truth[0], truth[1]);
        errors.truth.iter_mut().zip(truth).for_each(|(all, truth)| all.push(truth));
    }
    errors.cost_ns = host.cost_ns();
    Ok(errors)
}
