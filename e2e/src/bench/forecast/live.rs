//! Real loads on this machine: what sensors and forecasts say, and what a test process gets right afterwards.
//!
//! Loads are those of the Network Weather Service's authors: nothing; bursts; a loop at nice 19 ("conundrum"), beside the test process and
//! in a cgroup of its own; a loop of full priority ("kongo"); both. Their hosts had one processor: *pinned* all that we start is on one.
//! *Unpinned* there is a load for each processor, and all may move.
//!
//! What else runs on the machine is load as well, and is measured as such; but if it changes from one interval to the next, that is an
//! error of every sensor. *Alone*, it is outweighed and left out (see [`Options::alone`]).

use super::spinner::{Kind, Running, Spinner};
use super::{Options, at_most};
use crate::bench::group::{Group as Cgroup, Weight};
use crate::bench::samples::{Figures, median};
use crate::bench::tasks::Dice;
use crate::error::{Context, Result};
use crate::process::pause;
use rustix::time::{ClockId, clock_gettime};
use sched::forecast::Forecaster;
use sched::sense::load::{Group, Load, Reading, Used, WEIGHT};
use sched::sense::published::{self, Hybrid, PROBE_SECONDS, Vmstat};
use sched::sense::share::{self, Newcomer};
use std::time::Duration;
use worker::host::counters::Reader;

/// Loads, by what the paper calls the host that has it.
const LOADS: [&str; 7] = ["idle", "bursty", "bursty-slow", "conundrum", "conundrum-apart", "kongo", "both"];
/// Sensors, in the order of columns: the paper's three, ours for full priority, ours for guests.
const SENSORS: [&str; 5] = ["load average", "vmstat", "hybrid", "ours", "ours, guest"];
/// Ours.
const FULL: usize = 3;
/// See `FULL`.
const GUEST: usize = 4;
/// Mean length of bursts, and of pauses between them, in milliseconds.
const BURSTS: (u64, u64) = (40, 60);
/// The same of slow ones: what comes of ten seconds differs from one time to the next, whatever is known, so the greatest errors leave them
/// out; they are in the tables, and have figures of their own.
const SLOW: (u64, u64) = (400, 600);
/// What the paper has of measurements, in per cent, where a host has such a load: load average, vmstat, hybrid.
const PAPER: [(&str, &str); 3] = [
    ("conundrum", "34.1 32.7 4.4 (conundrum)"),
    ("conundrum-apart", "34.1 32.7 4.4 (conundrum)"),
    ("kongo", "12.8 12.9 41.3 (kongo)"),
];

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

/// A load, and the only processor that is used, if there is only one.
#[derive(Clone, Copy)]
struct Case {
    load: &'static str,
    cpu: Option<usize>,
}

impl Case {
    fn name(&self) -> String {
        format!("{} {}", self.load, if self.cpu.is_some() { "pinned" } else { "unpinned" })
    }
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
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut cases: Vec<Case> = Vec::new();
    for cpu in [Some(cpus - 1), None] {
        cases.extend(LOADS.map(|load| Case { load, cpu }));
    }
    cases.retain(|case| options.load.as_ref().is_none_or(|name| case.name().contains(name)));
    Dice(options.seed).shuffle(&mut cases);
    let mut done: Vec<(Case, Errors)> = Vec::new();
    for case in cases {
        eprintln!("bench: {}", case.name());
        done.push((case, measure(case, times, cpus, options)?));
    }
    done.sort_by_key(|(case, _)| (case.cpu.is_none(), LOADS.iter().position(|load| *load == case.load)));
    let tables: [(&str, Part); 3] = [
        ("measurement error (table 1)", |errors| &errors.measured),
        ("true forecast error (table 2)", |errors| &errors.foretold),
        ("one step against the next measurement (table 3)", |errors| &errors.one_step),
    ];
    for (title, part) in tables {
        table(title, &done, part);
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

fn table(title: &str, done: &[(Case, Errors)], part: Part) {
    eprintln!("bench: {title}, per cent; the paper's: load average, vmstat, hybrid");
    let heads: Vec<String> = SENSORS.iter().map(|sensor| format!("{sensor:>13}")).collect();
    eprintln!("bench: {:<26}{}  {:>6} {:>6}", "load", heads.concat(), "full", "guest");
    for (case, errors) in done {
        let name = case.name();
        let cells: Vec<String> =
            part(errors).iter().map(|errors| format!("{:>13.1}", middle(errors).unwrap_or(f64::NAN) * 100.0)).collect();
        let [full, guest] = &errors.truth;
        let got = |all: &[f64]| middle(all).unwrap_or(f64::NAN) * 100.0;
        let paper =
            PAPER.iter().find(|(load, _)| *load == case.load && case.cpu.is_some() && title.contains("table 1"));
        let paper = paper.map(|(_, text)| format!("  paper: {text}")).unwrap_or_default();
        eprintln!("bench: {name:<26}{}  {:>6.1} {:>6.1}{paper}", cells.concat(), got(full), got(guest));
    }
}

fn middle(all: &[f64]) -> Option<f64> {
    median(all.iter().copied())
}

/// Where processes are.
struct Places {
    // Dropped in this order: inner ones first.
    apart: Cgroup,
    guests: Cgroup,
    same: Option<Cgroup>,
    outer: Option<Cgroup>,
}

impl Places {
    fn new(alone: bool) -> Result<Self> {
        let outer = alone.then(|| Cgroup::with(None, "outer", Weight::Most)).transpose()?;
        let within = outer.as_ref();
        Ok(Self {
            apart: Cgroup::with(within, "apart", Weight::Usual)?,
            guests: Cgroup::with(within, "guests", Weight::Idle)?,
            same: within.map(|outer| Cgroup::with(Some(outer), "same", Weight::Usual)).transpose()?,
            outer,
        })
    }

    /// The way to the test process of full priority, if it is not where this process is.
    fn path(&self) -> Option<Vec<Group>> {
        let group = |cgroup: &Cgroup| Group { name: cgroup.name.clone(), weight: WEIGHT };
        Some(vec![group(self.outer.as_ref()?), group(self.same.as_ref()?)])
    }
}

/// Starts a load.
fn start(case: Case, cpus: usize, places: &Places, seed: u64) -> Result<Vec<Running>> {
    let copies = if case.cpu.is_some() { 1 } else { cpus };
    let same = places.same.as_ref().map(Cgroup::procs);
    let plain = Spinner { cpu: case.cpu, cgroup: same, ..Spinner::default() };
    let nice = Spinner { nice: 19, ..plain.clone() };
    let nice_apart = Spinner { cgroup: Some(places.apart.procs()), ..nice.clone() };
    let all = match case.load {
        "bursty" => vec![Spinner { kind: Kind::Bursts(BURSTS.0, BURSTS.1), ..plain }],
        "bursty-slow" => vec![Spinner { kind: Kind::Bursts(SLOW.0, SLOW.1), ..plain }],
        "conundrum" => vec![nice],
        "conundrum-apart" => vec![nice_apart],
        "kongo" => vec![plain],
        "both" => vec![nice_apart, plain],
        _ => Vec::new(),
    };
    let mut running = Vec::new();
    for copy in 0..copies {
        for spinner in &all {
            running.push(Spinner { seed: seed + copy as u64, ..spinner.clone() }.start()?);
        }
    }
    Ok(running)
}

/// The sensors, and what they go by.
struct Sensors {
    reader: Reader,
    before: Reading,
    newcomer: Newcomer,
    cpu: Option<usize>,
    cpus: usize,
    vmstat: Vmstat,
    hybrid: Hybrid,
    /// Only what is in this cgroup counts.
    alone: Option<String>,
    cost_ns: Vec<f64>,
}

impl Sensors {
    fn new(cpu: Option<usize>, cpus: usize, places: &Places) -> Result<Self> {
        let mut reader = Reader::new(None);
        let path = places.path().or_else(|| reader.path(std::process::id())).unwrap_or_default();
        let alone = places.outer.as_ref().map(|outer| outer.name.clone());
        let newcomer = Newcomer { path, cpus: cpu.into_iter().map(|cpu| cpu as u32).collect() };
        let before = read(&mut reader)?;
        let (vmstat, hybrid) = (Vmstat::default(), Hybrid::default());
        Ok(Self { reader, before, newcomer, cpu, cpus, vmstat, hybrid, alone, cost_ns: Vec::new() })
    }

    /// Begins a new interval here.
    fn begin(&mut self) -> Result<()> {
        self.before = read(&mut self.reader)?;
        Ok(())
    }

    /// What each sensor says of an interval that begins at the last reading. The first is by load average, the second by vmstat.
    fn measure(&mut self, interval: Duration) -> Result<[f64; SENSORS.len()]> {
        pause(interval);
        let began = thread_ns();
        let after = read(&mut self.reader)?;
        let load = Load::between(&self.before, &after).unwrap_or_default();
        self.before = after;
        let load = match &self.alone {
            Some(name) => only(&load, name),
            None => load,
        };
        let full = share::full_priority(&load, &self.newcomer);
        let guest = share::guest(&load, &self.newcomer.cpus);
        self.cost_ns.push(thread_ns() - began);
        let (seen, cpus) = match self.cpu {
            Some(cpu) => (seen_alone(&load, cpu as u32), 1),
            None => (load, self.cpus),
        };
        let by_load = published::load_average(&seen, cpus);
        let by_vmstat = self.vmstat.observe(&seen, &self.newcomer.cpus);
        Ok([by_load, by_vmstat, self.hybrid.says(by_load, by_vmstat), full, guest])
    }
}

/// What a host had counted that has this processor alone: who runs or waits there, in the mean. Loads here do not change, so their mean over
/// a minute is the same.
fn seen_alone(load: &Load, cpu: u32) -> Load {
    let here = load.demands.iter().filter(|demand| demand.cpu == cpu);
    let running: f64 = here.map(|demand| demand.wanted).sum();
    Load { running, load_average: running, ..load.clone() }
}

/// What goes on in one cgroup, as if nothing else ran.
fn only(load: &Load, name: &str) -> Load {
    let within = load.demands.iter().filter(|demand| demand.path.first().is_some_and(|group| group.name == name));
    let demands: Vec<_> = within.cloned().collect();
    let cpus = load.cpus.iter().map(|cpu| {
        // Had nothing else run, none of them had waited but for one another.
        let here = demands.iter().filter(|demand| demand.cpu == cpu.number);
        let busy = here.map(|demand| demand.wanted).sum::<f64>().min(1.0);
        Used { number: cpu.number, idle: 1.0 - busy, taken: 0.0, user: busy, system: 0.0 }
    });
    let running = demands.iter().map(|demand| demand.wanted).sum();
    Load {
        seconds: load.seconds,
        cpus: cpus.collect(),
        demands: demands.clone(),
        unknown: 0.0,
        running,
        load_average: running,
    }
}

fn measure(case: Case, times: Times, cpus: usize, options: &Options) -> Result<Errors> {
    let places = Places::new(options.alone)?;
    let load = start(case, cpus, &places, options.seed)?;
    let same = places.same.as_ref().map(Cgroup::procs);
    let full =
        Spinner { cpu: case.cpu, cgroup: same, seconds: Some(times.interval.as_secs_f64()), ..Spinner::default() };
    let guest = Spinner { idle: true, cgroup: Some(places.guests.procs()), ..full.clone() };
    pause(Duration::from_secs(1));
    let mut sensors = Sensors::new(case.cpu, cpus, &places)?;
    let mut errors = Errors::default();
    let mut forecasters: [Forecaster; SENSORS.len()] = std::array::from_fn(|_| Forecaster::default());
    for _ in 0..times.rounds {
        let said = sensors.measure(times.interval)?;
        // The hybrid sensor's probe, once a minute.
        let probe = Spinner { seconds: Some(PROBE_SECONDS), ..full.clone() }.measure()?;
        sensors.hybrid.probed(probe, said[0], said[1]);
        sensors.begin()?;
        let mut now = said;
        for _ in 0..times.readings {
            now = sensors.measure(times.interval)?;
            for (at, forecaster) in forecasters.iter_mut().enumerate() {
                errors.one_step[at].extend(forecaster.next().map(|next| (next.value - now[at]).abs()));
                forecaster.observe(now[at]);
            }
        }
        let truth = [full.measure()?, guest.measure()?];
        for at in 0..SENSORS.len() {
            let truth = truth[usize::from(at == GUEST)];
            errors.measured[at].push((now[at] - truth).abs());
            errors.foretold[at].extend(forecasters[at].next().map(|next| (next.value - truth).abs()));
        }
        eprintln!("bench:   said {now:.3?}; then a test process got {:.3}, a guest {:.3}", truth[0], truth[1]);
        errors.truth.iter_mut().zip(truth).for_each(|(all, truth)| all.push(truth));
        sensors.begin()?;
    }
    drop(load);
    errors.cost_ns = sensors.cost_ns;
    Ok(errors)
}

fn read(reader: &mut Reader) -> Result<Reading> {
    reader.read().context(|| "cannot read the kernel's counters".to_owned())
}

fn thread_ns() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}
