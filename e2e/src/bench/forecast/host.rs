//! A host under a load, as the Network Weather Service's authors had theirs, and the sensors that look at it.

use super::Options;
use super::spinner::{Kind, Running, Spinner};
use crate::bench::group::{Group as Cgroup, Weight};
use crate::error::{Context, Result};
use crate::process::pause;
use rustix::time::{ClockId, clock_gettime};
use sched::sense::load::{Group, Load, Reading, Used, WEIGHT};
use sched::sense::published::{self, Hybrid, PROBE_SECONDS, Vmstat};
use sched::sense::share::{self, Newcomer};
use std::time::Duration;
use worker::host::counters::Reader;

/// Sensors, in the order of columns: the paper's three, ours for full priority, ours for guests.
pub const SENSORS: [&str; 5] = ["load average", "vmstat", "hybrid", "ours", "ours, guest"];
/// Ours for full priority, and for guests.
pub const FULL: usize = 3;
/// See `FULL`.
pub const GUEST: usize = 4;
/// A load is left to itself for so long before anything is measured.
const BEGINS: Duration = Duration::from_secs(1);
/// Mean length of bursts, and of pauses between them, in milliseconds. Even ones: left to chance, ten seconds of them differ by 5% from the next.
const BURSTS: (u64, u64) = (40, 60);
/// The same of slow ones: what comes of ten seconds differs from one time to the next, whatever is known, so the greatest errors leave them
/// out; they are in the tables, and have figures of their own.
const SLOW: (u64, u64) = (400, 600);

/// A load, and the only processor that is used, if there is only one.
#[derive(Clone, Copy)]
pub struct Case {
    /// What the paper calls the host that has it.
    pub load: &'static str,
    /// From 0.
    pub cpu: Option<usize>,
}

/// Processors of this machine.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl Case {
    /// As people are told.
    pub fn name(&self) -> String {
        format!("{} {}", self.load, if self.cpu.is_some() { "pinned" } else { "unpinned" })
    }
}

/// A host whose load runs; ended when it is dropped.
pub struct Host {
    sensors: Sensors,
    /// Test processes.
    full: Spinner,
    guest: Spinner,
    // Dropped in this order: cgroups last.
    _load: Vec<Running>,
    _places: Places,
}

impl Host {
    /// Starts its load.
    pub fn start(case: Case, options: &Options) -> Result<Self> {
        let places = Places::new(options.alone)?;
        let load = start(case, &places, options.seed)?;
        let full = Spinner { cpu: case.cpu, cgroup: places.same.as_ref().map(Cgroup::procs), ..Spinner::default() };
        let guest = Spinner { idle: true, cgroup: Some(places.guests.procs()), ..full.clone() };
        pause(BEGINS);
        let sensors = Sensors::new(case.cpu, &places)?;
        Ok(Self { sensors, full, guest, _load: load, _places: places })
    }

    /// What each sensor says of the next interval; before, the hybrid one has its probe, if that is due.
    pub fn measure(&mut self, interval: Duration, has_probe: bool) -> Result<[f64; SENSORS.len()]> {
        if has_probe {
            let [by_load, by_vmstat] = self.sensors.paper;
            let got = self.full(Duration::from_secs_f64(PROBE_SECONDS))?;
            self.sensors.hybrid.probed(got, by_load, by_vmstat);
        }
        self.sensors.measure(interval)
    }

    /// What a test process of full priority gets that spins for so long.
    pub fn full(&mut self, spins: Duration) -> Result<f64> {
        let test = self.full.clone();
        self.test(test, spins)
    }

    /// What a guest gets that spins for so long.
    pub fn guest(&mut self, spins: Duration) -> Result<f64> {
        let test = self.guest.clone();
        self.test(test, spins)
    }

    /// Sensors begin anew behind it.
    fn test(&mut self, test: Spinner, spins: Duration) -> Result<f64> {
        let got = Spinner { seconds: Some(spins.as_secs_f64()), ..test }.measure()?;
        self.sensors.begin()?;
        Ok(got)
    }

    /// What each reading has cost, in nanoseconds.
    pub fn cost_ns(self) -> Vec<f64> {
        self.sensors.cost_ns
    }
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
fn start(case: Case, places: &Places, seed: u64) -> Result<Vec<Running>> {
    let copies = if case.cpu.is_some() { 1 } else { cpus() };
    let same = places.same.as_ref().map(Cgroup::procs);
    let plain = Spinner { cpu: case.cpu, cgroup: same, ..Spinner::default() };
    let nice = Spinner { nice: 19, ..plain.clone() };
    let nice_apart = Spinner { cgroup: Some(places.apart.procs()), ..nice.clone() };
    let all = match case.load {
        "bursty" => vec![Spinner { kind: Kind::EvenBursts(BURSTS.0, BURSTS.1), ..plain }],
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
    vmstat: Vmstat,
    hybrid: Hybrid,
    /// What the first two of the paper's said last.
    paper: [f64; 2],
    /// Only what is in this cgroup counts.
    alone: Option<String>,
    cost_ns: Vec<f64>,
}

impl Sensors {
    fn new(cpu: Option<usize>, places: &Places) -> Result<Self> {
        let mut reader = Reader::new(None);
        let path = places.path().or_else(|| reader.path(std::process::id())).unwrap_or_default();
        let alone = places.outer.as_ref().map(|outer| outer.name.clone());
        let newcomer = Newcomer { path, cpus: cpu.into_iter().map(|cpu| cpu as u32).collect() };
        let before = read(&mut reader)?;
        let (vmstat, hybrid) = (Vmstat::default(), Hybrid::default());
        Ok(Self { reader, before, newcomer, cpu, vmstat, hybrid, paper: [0.0; 2], alone, cost_ns: Vec::new() })
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
            None => (load, cpus()),
        };
        let by_load = published::load_average(&seen, cpus);
        let by_vmstat = self.vmstat.observe(&seen, &self.newcomer.cpus);
        self.paper = [by_load, by_vmstat];
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

fn read(reader: &mut Reader) -> Result<Reading> {
    reader.read().context(|| "cannot read the kernel's counters".to_owned())
}

fn thread_ns() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}
