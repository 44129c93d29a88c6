//! Processes that use processors: loads, and the test process that says what there was to get. Each is this program again, and sets itself up
//! before it begins.

use crate::bench::tasks::Dice;
use crate::error::{Context, Error, Result};
use crate::process::pause;
use rustix::process::{Pid, Signal};
use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// First argument with which the suite's binary is such a process.
pub const SPIN_SUBCOMMAND: &str = "spin";

/// How a process uses processors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// All the time.
    Loop,
    /// By turns: so many milliseconds it spins, then so many it sleeps, in the mean; how long each time is exponential.
    Bursts(u64, u64),
    /// The same, but ten bursts always last the same, and ten pauses: as much is used in one interval of a measurement as in the next. Else the
    /// load itself would differ by more than what is asked of a sensor.
    EvenBursts(u64, u64),
}

/// A process to start.
#[derive(Clone, Debug)]
pub struct Spinner {
    /// How it uses processors.
    pub kind: Kind,
    /// From 0 to 19.
    pub nice: i32,
    /// SCHED_IDLE.
    pub idle: bool,
    /// The only processor that it may use.
    pub cpu: Option<usize>,
    /// `cgroup.procs` of its cgroup.
    pub cgroup: Option<PathBuf>,
    /// It ends after so long, and says what it got.
    pub seconds: Option<f64>,
    /// For bursts.
    pub seed: u64,
}

impl Default for Spinner {
    fn default() -> Self {
        Self { kind: Kind::Loop, nice: 0, idle: false, cpu: None, cgroup: None, seconds: None, seed: 1 }
    }
}

/// One that runs; killed when it is dropped.
#[derive(Debug)]
pub struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Spinner {
    /// Starts it.
    pub fn start(&self) -> Result<Running> {
        let own = std::env::current_exe().context(|| "cannot find the suite's own binary".to_owned())?;
        let (on, off, is_even) = match self.kind {
            Kind::Loop => (0, 0, false),
            Kind::Bursts(on, off) => (on, off, false),
            Kind::EvenBursts(on, off) => (on, off, true),
        };
        let cpu = self.cpu.map_or("-".to_owned(), |cpu| cpu.to_string());
        let cgroup = self.cgroup.as_ref().map_or("-".to_owned(), |path| path.display().to_string());
        let seconds = self.seconds.unwrap_or(1e9);
        let mut command = Command::new(own);
        command.arg(SPIN_SUBCOMMAND).args([on, off, is_even.into(), self.seed].map(|number| number.to_string()));
        command.args([self.nice.to_string(), u8::from(self.idle).to_string(), cpu, cgroup, seconds.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.spawn().map(Running).context(|| "cannot start a load".to_owned())
    }

    /// Runs it to its end; the part of a processor that it got.
    pub fn measure(&self) -> Result<f64> {
        let mut running = self.start()?;
        let mut text = String::new();
        if let Some(mut out) = running.0.stdout.take() {
            out.read_to_string(&mut text).context(|| "cannot read what a test process got".to_owned())?;
        }
        text.trim().parse().map_err(|_| Error::Missing(format!("a test process said {text:?}")))
    }
}

/// Is such a process: `<on> <off> <even> <seed> <nice> <idle> <cpu> <cgroup> <seconds>`.
pub fn spin(arguments: &[String]) -> ExitCode {
    match try_spin(arguments) {
        Some(got) => {
            let _ = writeln!(std::io::stdout(), "{got}");
            ExitCode::SUCCESS
        }
        None => {
            eprintln!("bench: a load cannot be set up: {arguments:?}");
            ExitCode::FAILURE
        }
    }
}

fn try_spin(arguments: &[String]) -> Option<f64> {
    let [on, off, even, seed, nice, idle, cpu, cgroup, seconds] = arguments else { return None };
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).ok()?;
    if cgroup != "-" {
        fs::write(cgroup, "0").ok()?;
    }
    rustix::process::setpriority_process(None, nice.parse().ok()?).ok()?;
    if let Ok(cpu) = cpu.parse() {
        let mut allowed = rustix::thread::CpuSet::new();
        allowed.set(cpu);
        rustix::thread::sched_setaffinity(None::<Pid>, &allowed).ok()?;
    }
    if idle == "1" {
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: the structure lives through the call, which changes nothing but this process's own policy.
        (unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameters) } == 0).then_some(())?;
    }
    let (on, off): (f64, f64) = (on.parse().ok()?, off.parse().ok()?);
    let mut dice = Dice(seed.parse().ok()?);
    let end = Duration::from_secs_f64(seconds.parse().ok()?);
    let (began, used) = (Instant::now(), cpu_seconds());
    let (mut spins, mut sleeps) = (Lengths::new(even == "1"), Lengths::new(even == "1"));
    while began.elapsed() < end {
        let burst = if off > 0.0 { spins.next(&mut dice) * on / 1e3 } else { 0.01 };
        let burst_began = Instant::now();
        while burst_began.elapsed().as_secs_f64() < burst {
            std::hint::spin_loop();
        }
        if off > 0.0 {
            pause(Duration::from_secs_f64(sleeps.next(&mut dice) * off / 1e3));
        }
    }
    Some((cpu_seconds() - used) / began.elapsed().as_secs_f64())
}

/// How long bursts are, or pauses, in parts of their mean.
struct Lengths {
    is_even: bool,
    /// Of those that come next, if they are even.
    next: Vec<f64>,
}

impl Lengths {
    fn new(is_even: bool) -> Self {
        Self { is_even, next: Vec::new() }
    }

    fn next(&mut self, dice: &mut Dice) -> f64 {
        if self.is_even && self.next.is_empty() {
            // The middles of ten equally likely parts, in a new order.
            self.next.extend((0..10).map(|part| -(1.0 - (f64::from(part) + 0.5) / 10.0).ln()));
            let mean = self.next.iter().sum::<f64>() / self.next.len() as f64;
            self.next.iter_mut().for_each(|length| *length /= mean);
            dice.shuffle(&mut self.next);
        }
        self.next.pop().unwrap_or_else(|| dice.exponential(1.0))
    }
}

fn cpu_seconds() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}
