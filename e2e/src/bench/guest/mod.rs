//! `bench guest`: how little the owner of a lending machine notices its guests, who never rest.
//!
//! An owner's programs run in a control group of default weight at the top of the hierarchy, as a login session does. Guests run in one of
//! the [`ways`]: at equal priority in another session or in the owner's own, at nice 19, as [`boinc`] does it, or as the product does it (`ours`: a
//! worker of `gleaner up`, guests by `remrun`). *Alone* means that there are no guests; the worker is there and waits. Each block begins
//! its guests a second before it measures, and they are gone before the next one: neither is measured. Blocks alone and with guests are
//! interleaved by chance in [`rounds`]; the two blocks alone of each round give the A/A scatter, by the same estimator as the figure beside it.
//! Each part of `--only`:
//!
//! * [`work`]: `edit`, `compile`, `debug` (bursts as long as after a person's input, at 7, 13 and 24% of a CPU, after MUSBUS; time from when a
//!   burst was to begin until it is done), `build` (short processes and files, as many at a time as there are CPUs) and `reads` (16 MB from the page
//!   cache), a round each in turn, beside a guest that computes on each CPU. A block's value is the mean time of what was done in it.
//!   `owner_slowdown_mean` is the mean over all rounds of that with guests in parts of the mean of the two blocks alone, less 1, and
//!   `owner_slowdown_upper95` its upper 95% bound by Student's t. `work_harvest` is the CPU time that guests got, in parts of what was idle alone.
//! * [`probe`]: wakes every 10 ms and works for 1 ms. P99 of how late it wakes and of how long it works, over all blocks pooled, less the same alone:
//!   `probe_wake_p99_excess_ms`, `probe_burst_p99_excess_ms`; `probe_p99_excess_ms` is the larger of the two, and `probe_p99_excess_of_equal` that in
//!   parts of what guests of equal priority add.
//! * [`disk`]: 4 KB written and synced every 50 ms, beside a guest that writes a large file as fast as it may (`fsync_mean_ratio`,
//!   `fsync_p99_ratio`, `fsync_p99_excess_ms`, pooled over all blocks), and reads of 64 MB that are not in memory (`reads_cold_slowdown`).
//! * [`share`]: what a guest gets of a CPU that an owner's loop wants: both on one CPU (`guest_share_pinned`), and as many of both as there
//!   are CPUs, anywhere (`guest_share_unpinned`). CPU time of the guests in parts of theirs and the owner's.
//! * [`memory`]: how much longer a program takes that fills memory and goes over it again and again, if such a guest comes after it
//!   (`mem_host_first_delay`) or was there before (`mem_guest_first_delay`), on one CPU, and each where it likes (`…_unpinned`, the part
//!   `memory-unpinned`); CPU time of guests' work that was lost is apart (`mem_lost_cpu_s`).
//! * [`harvest`]: nobody else works, and there is a guest for each CPU: CPU time that they get in parts of what is idle without them.

mod boinc;
mod disk;
mod harvest;
mod load;
mod memory;
mod network;
mod ours;
mod probe;
mod report;
mod rounds;
mod share;
mod stats;
mod ways;
mod work;

pub use load::{SUBCOMMAND as LOAD_SUBCOMMAND, main as load};
pub use ways::Way;

use super::group::Group;
use super::tasks::dice::Dice;
use crate::error::{Context, Error, Result};
use crate::process::pause;
use crate::scratch::Scratch;
use ours::Ours;
use report::Report;
use rounds::CpuTimes;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use ways::{Guests, Host};

/// What is measured, and how it is shown.
#[derive(Clone, Debug)]
pub struct Options {
    /// Figures as JSON on standard output, instead of a table.
    pub json: bool,
    /// Only these parts; all if none.
    pub only: Vec<String>,
    /// The ways of having guests that are compared.
    pub ways: Vec<Way>,
    /// Rounds of `work`; the other parts have fewer, in proportion.
    pub pairs: usize,
    /// Seconds of a block; `work` and `harvest` take 0.4 of it.
    pub block_s: f64,
    /// What decides the order of blocks.
    pub seed: u64,
    /// MiB that the owner's program and the guest each go over in `memory`.
    pub memory_mib: u64,
    /// The guest's share of that.
    pub guest_memory_mib: u64,
    /// MiB that `memory` leaves of the machine's: the rest is held by a program that is the first to go when there is too little.
    pub memory_left_mib: Option<u64>,
    /// MiB of the file that a guest writes in `disk`.
    pub disk_mib: u64,
}

impl Options {
    /// All that the targets want, which takes six hours; `quick`: a look at whether all works, in about two minutes.
    pub fn new(quick: bool) -> Self {
        let (pairs, block_s, memory_mib, guest_memory_mib) =
            if quick { (5, 1.0, 256, 256) } else { (150, 10.0, 1024, 1536) };
        let ways = if quick { vec![Way::Equal, Way::Ours] } else { Way::ALL.to_vec() };
        let (json, only, seed, memory_left_mib) = (false, Vec::new(), rand::random::<u32>().into(), None);
        Self { json, only, ways, pairs, block_s, seed, memory_mib, guest_memory_mib, memory_left_mib, disk_mib: 1024 }
    }

    fn settings(&self, bench: &Bench) -> Value {
        let ways: Vec<&str> = self.ways.iter().map(|way| way.name()).collect();
        json!({
            "seed": self.seed, "pairs": self.pairs, "block_s": self.block_s, "arrangements": ways, "cpus": bench.cpus,
            "memory_mib": self.memory_mib, "guest_memory_mib": self.guest_memory_mib, "memory_left_mib": self.memory_left_mib,
            "disk_mib": self.disk_mib, "steps_per_ms": bench.steps_per_ms, "others_cpu": bench.others_cpu,
        })
    }
}

/// How long it is looked what others do on this machine, and how much of its CPUs they may use before it is said.
const LOOK: Duration = Duration::from_secs(2);
const OTHERS_CPU_MAX: f64 = 0.03;

/// A part of the benchmark.
type Part = (&'static str, fn(&mut Bench, &mut Report) -> Result<()>);

const PARTS: [Part; 8] = [
    ("work", work::run),
    ("probe", probe::run),
    ("disk", disk::run),
    ("network", network::run),
    ("share", share::run),
    ("memory", memory::pinned),
    ("memory-unpinned", memory::unpinned),
    ("harvest", harvest::run),
];

/// The names of the parts.
pub fn parts() -> Vec<&'static str> {
    PARTS.map(|(name, _)| name).to_vec()
}

/// What all parts work with.
#[derive(Debug)]
struct Bench {
    options: Options,
    host: Host,
    scratch: Scratch,
    dice: Dice,
    /// Steps of work that an owner's program does in a millisecond, alone.
    steps_per_ms: u64,
    cpus: usize,
    /// The part of all CPUs' time that others used before anything was begun.
    others_cpu: f64,
}

/// Measures and prints. A part that fails is missing, with the reason.
pub fn run(options: &Options) -> Result<()> {
    let mut bench = Bench::start(options.clone())?;
    let mut report = Report::default();
    for (name, part) in PARTS {
        if !options.only.is_empty() && !options.only.iter().any(|only| only == name) {
            continue;
        }
        let started = Instant::now();
        if let Err(error) = part(&mut bench, &mut report) {
            eprintln!("bench: {name}: {error}");
            report.missing(name, &error.to_string());
        }
        progress(&format!("{name}: {:.0} s\n", started.elapsed().as_secs_f64()));
    }
    let settings = options.settings(&bench);
    if let Some(ours) = bench.host.ours.take() {
        ours.stop()?;
    }
    match options.json {
        true => println!("{}", report.to_json(&settings)),
        false => print!("{}", report.to_table(&settings)),
    }
    Ok(())
}

/// Says what is being measured, on a terminal.
fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[Kbench: {text}");
    }
}

impl Bench {
    fn start(options: Options) -> Result<Self> {
        let program = std::env::current_exe().context(|| "cannot find the suite's own binary".to_owned())?;
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let others_cpu = others_cpu();
        if others_cpu > OTHERS_CPU_MAX {
            eprintln!(
                "bench: others use {:.0}% of this machine's CPUs: the figures tell of them, too",
                others_cpu * 100.0
            );
        }
        let (owner, other, scratch) = (Group::new("owner")?, Group::new("other")?, Scratch::new()?);
        let place = scratch.folder("guests", 0o755)?;
        let ours = options.ways.contains(&Way::Ours).then(|| Ours::start(cpus)).transpose()?;
        let host = Host { owner, other, ours, program, place };
        let dice = Dice(options.seed);
        let mut bench = Self { options, host, scratch, dice, steps_per_ms: 0, cpus, others_cpu };
        let found = bench.owner(&["calibrate".to_owned()])?;
        bench.steps_per_ms = found["steps_per_ms"].as_u64().unwrap_or(0).max(1);
        Ok(bench)
    }

    /// Begins guests, if this block has any.
    fn guests(&self, way: Option<Way>, loads: &[Vec<String>]) -> Result<Option<Guests>> {
        way.map(|way| self.host.begin(way, loads)).transpose()
    }

    /// A guest that computes on each CPU.
    fn spinners(&self) -> Vec<Vec<String>> {
        vec![words(&["spin"]); self.cpus]
    }

    /// Starts one of the owner's programs.
    fn start_owner(&self, load: &[String]) -> Result<Child> {
        let mut command = Command::new(&self.host.program);
        command.arg(load::SUBCOMMAND).args(load).stdin(Stdio::null()).stdout(Stdio::piped());
        self.host.owner.holds(&mut command)?;
        // SAFETY: between fork and exec the closure makes one system call and allocates nothing.
        unsafe {
            command.pre_exec(|| Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?));
        }
        command.spawn().context(|| "cannot start a program of the owner's".to_owned())
    }

    /// Runs one of the owner's programs, and returns what it says of itself.
    fn owner(&self, load: &[String]) -> Result<Value> {
        said(self.start_owner(load)?)
    }

    /// One of the owner's programs that do something for so many seconds.
    fn timed(&self, name: &str, seconds: f64, rest: &[String]) -> Vec<String> {
        [&[name.to_owned(), seconds.to_string(), self.steps_per_ms.to_string()], rest].concat()
    }

    /// A polling arrangement knows only what the owner did before: it is given its time with this program, unmeasured.
    fn warm_up(&self, way: Option<Way>, name: &str, rest: &[String]) -> Result<()> {
        match way {
            Some(Way::Boinc) => self.owner(&self.timed(name, boinc::PERIOD.as_secs_f64(), rest)).map(drop),
            _ => Ok(()),
        }
    }

    /// Some of these in an order by chance.
    fn shuffle<T>(&mut self, mut some: Vec<T>) -> Vec<T> {
        self.dice.shuffle(&mut some);
        some
    }

    /// Seconds of a block of those that need no long one: what changes from one minute to the next comes between fewer of them.
    fn short_s(&self) -> f64 {
        self.options.block_s * 0.4
    }

    /// Rounds of a part that has one for so many of `work`'s.
    fn rounds_per(&self, pairs: usize) -> usize {
        (self.options.pairs / pairs).max(1)
    }
}

/// The part of all CPUs' time that is used now.
fn others_cpu() -> f64 {
    let before = CpuTimes::now();
    pause(LOOK);
    let after = CpuTimes::now();
    let (busy, idle) = (after.busy_s - before.busy_s, after.idle_s - before.idle_s);
    (busy / (busy + idle).max(f64::MIN_POSITIVE) * 1000.0).round() / 1000.0
}

/// What a program of the owner's says when it ends.
fn said(child: Child) -> Result<Value> {
    let output = child.wait_with_output().context(|| "cannot wait for a program of the owner's".to_owned())?;
    let wrong = || Error::Product(format!("a program of the owner's failed: {}", output.status));
    if !output.status.success() {
        return Err(wrong());
    }
    serde_json::from_slice(&output.stdout).map_err(|_| wrong())
}

/// The numbers in a list of what was said.
fn numbers(said: &Value, name: &str) -> Vec<f64> {
    said[name].as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
