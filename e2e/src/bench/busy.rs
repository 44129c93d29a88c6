//! `bench busy`: commands sent to busy machines beside the same commands run here under the same load, in turns.
//!
//! First the only machine is busy, with as many, twice and four times as many loops as processors, and with a build. Then three machines have a
//! bounded part of the processors each (control groups), and two of them are busy. The figures are the worst of all loads and commands.

use super::samples::{Figures, Samples};
use super::stop;
use crate::error::{Context, Error, Result};
use crate::pool::{Options as PoolOptions, Pool};
use crate::process::pause;
use crate::source;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What is measured, and how it is shown.
#[derive(Clone, Debug)]
pub struct Options {
    /// Figures as JSON on standard output, instead of a table.
    pub json: bool,
    /// Runs of the short commands on each side under each load.
    pub rounds: usize,
    /// Builds and jobs on each side under each load.
    pub long_rounds: usize,
    /// Leave out the demo.
    pub no_demo: bool,
    /// Only this part: `machine`, `machines` or `demo`.
    pub only: Option<String>,
    /// Only these of the loads on the only machine; empty: all.
    pub loads: Vec<String>,
    /// Say of the slowest command of each kind what it waited for (`gleaner explain`).
    pub explains: bool,
}

/// The parts of this benchmark.
pub const PARTS: [&str; 3] = ["machine", "machines", "demo"];

/// Sent commands may take so much longer at the median, and at the 95th percentile, without that counting, milliseconds.
const EXCUSED_MS: [f64; 2] = [30.0, 100.0];
/// Processor time of a job's task, seconds; 16 of them are a job of 20 s on two processors.
const TASK_S: f64 = 2.5;
/// How long a load is there before anything is measured.
const SETTLE: Duration = Duration::from_secs(3);
/// A part of this of one processor has each of three machines.
const MACHINE_PERCENT: u32 = 50;
/// So many of them become busy.
const BUSY_MACHINES: usize = 2;
/// In so long it is given that part again: a command does not begin with what the one before it has left.
const REFILL: Duration = Duration::from_millis(110);

const LOADS: [&str; 5] = ["none", "as_many", "twice", "four_times", "build"];

/// Measures and prints.
pub fn run(options: &Options) -> Result<()> {
    let say = |text: &str| eprintln!("bench: {text}");
    let mut figures = Figures::default();
    let cpus = std::thread::available_parallelism().map_or(2, usize::from);
    let is_wanted = |part: &str| options.only.as_ref().is_none_or(|only| only == part);
    if is_wanted("machine") {
        only_machine(options, cpus, &mut figures, &say)?;
    }
    if is_wanted("machines") {
        match three_machines(options, &mut figures, &say) {
            Ok(()) => {}
            Err(error) => figures.missing("no_local_ratio", &error.to_string()),
        }
    }
    if is_wanted("demo") && !options.no_demo {
        demo(cpus, &mut figures, &say)?;
    } else {
        figures.missing("demo_busy_ratio", "left out");
    }
    figures.print(options.json);
    Ok(())
}

/// One machine that is client, hub and worker, under each load.
fn only_machine(options: &Options, cpus: usize, figures: &mut Figures, say: &dyn Fn(&str)) -> Result<()> {
    let pool = Pool::start(PoolOptions { guests: false, prefers_pool: false, ..PoolOptions::together(cpus)? })?;
    let place = prepare(&pool)?;
    let (mut worst, mut hedged) = ([1.0f64; 2], [0.0; 2]);
    let is_wanted = |load: &&str| options.loads.is_empty() || options.loads.iter().any(|wanted| wanted == load);
    for load in LOADS.into_iter().filter(is_wanted) {
        say(&format!("the only machine, load: {load}"));
        let busy = Load::start(load, cpus, &pool, &place)?;
        let (mut samples, mut slowest) = (Samples::default(), Slowest::new(options));
        for sent in ["remrun", "remrun --no-local"] {
            pairs(&pool, &place, sent, options, (&mut samples, &mut slowest))?;
        }
        drop(busy);
        slowest.say(say);
        for command in ["true", "gcc", "make", "job"] {
            for sent in ["remrun", "remrun --no-local"] {
                cell(&samples, load, command, sent, figures, &mut worst);
            }
        }
    }
    let spent = pool.client.json(&["status", "--json"])?;
    for (at, name) in ["work_us", "hedge_us"].into_iter().enumerate() {
        hedged[at] = spent[name].as_f64().unwrap_or(0.0);
    }
    figures.add("busy_ratio_p50", Some(worst[0]));
    figures.add("busy_ratio_p95", Some(worst[1]));
    figures.add("hedge_extra_work", (hedged[0] > 0.0).then(|| hedged[1] / hedged[0]));
    stop(pool)
}

/// Figures of one command under one load, and what they are to the worst of all.
fn cell(samples: &Samples, load: &str, command: &str, sent: &str, figures: &mut Figures, worst: &mut [f64; 2]) {
    let way = if sent.contains("no-local") { "no_local" } else { "auto" };
    let (here, there) = (format!("here {command}"), format!("{sent} {command}"));
    for (at, (q, label)) in [(0.5, "p50"), (0.95, "p95")].into_iter().enumerate() {
        let (Some(here), Some(there)) = (samples.quantile(&here, q), samples.quantile(&there, q)) else { continue };
        figures.add(&format!("{load}_{command}_{way}_{label}_ms"), Some(there));
        figures.add(&format!("{load}_{command}_{way}_{label}_ratio"), Some(there / here));
        if there - here > EXCUSED_MS[at] {
            worst[at] = worst[at].max(there / here);
        }
    }
}

/// The project in which all is done.
fn prepare(pool: &Pool) -> Result<PathBuf> {
    let place = pool.place("busy");
    std::fs::create_dir_all(&place).at("create", &place)?;
    std::fs::write(place.join("small.c"), "#include <stdio.h>\nint main(void){puts(\"x\");return 0;}\n")
        .at("write", &place)?;
    let input = place.join("input");
    std::fs::create_dir_all(&input).at("create", &input)?;
    let tree = source::generate(&input, 24)?;
    std::fs::rename(&tree, place.join("tree")).at("rename", &tree)?;
    let work = format!("import time\nt=time.process_time()\nwhile time.process_time()-t<{TASK_S}: pass\n");
    std::fs::write(place.join("work.py"), work).at("write", &place)?;
    // What is used for the first time is fetched once, whatever the load.
    pool.client
        .script(&place, "cd tree && ./configure > ../log 2>&1", "", Duration::from_secs(300))?
        .expect_ok("configure")?;
    for script in ["$R true", "$R gcc -O2 -c small.c", "$R python3 -c 1"] {
        timed(pool, &place, script, "remrun --no-local")?;
    }
    Ok(place)
}

/// Each command here and sent, in turns.
fn pairs(
    pool: &Pool,
    place: &Path,
    sent: &str,
    options: &Options,
    (samples, slowest): (&mut Samples, &mut Slowest),
) -> Result<()> {
    let short = [("true", "$R true"), ("gcc", "$R gcc -O2 -c small.c")];
    for _ in 0..options.rounds {
        for (name, script) in short {
            samples.add(&format!("here {name}"), timed(pool, place, script, "")?);
            let (label, took_ms) = (format!("{sent} {name}"), timed(pool, place, script, sent)?);
            samples.add(&label, took_ms);
            slowest.note(&label, took_ms, pool)?;
        }
    }
    let make = "cd tree && rm -f *.o program && make -s -j8 CC=\"$R gcc\"";
    let job = |sent: &str| match sent {
        "" => "for i in $(seq 16); do python3 work.py & done; wait".to_owned(),
        sent => format!("gleaner run -j 16 {} python3 work.py {{}} ::: $(seq 16)", sent.trim_start_matches("remrun")),
    };
    for _ in 0..options.long_rounds {
        samples.add("here make", timed(pool, place, make, "")?);
        samples.add(&format!("{sent} make"), timed(pool, place, make, sent)?);
        samples.add("here job", timed(pool, place, &job(""), "")?);
        samples.add(&format!("{sent} job"), timed(pool, place, &job(sent), sent)?);
    }
    Ok(())
}

/// How long a script takes whose commands are prefixed so, milliseconds.
fn timed(pool: &Pool, place: &Path, script: &str, prefix: &str) -> Result<f64> {
    let started = Instant::now();
    pool.client.script(place, script, prefix, Duration::from_secs(1200))?.expect_ok(script)?;
    Ok(started.elapsed().as_secs_f64() * 1e3)
}

/// Of each kind of command, what the slowest one waited for.
struct Slowest {
    is_wanted: bool,
    known: BTreeMap<String, (f64, String)>,
    all: BTreeMap<String, Vec<String>>,
}

impl Slowest {
    fn new(options: &Options) -> Self {
        Self { is_wanted: options.explains, known: BTreeMap::new(), all: BTreeMap::new() }
    }

    /// The last command took so long.
    fn note(&mut self, label: &str, took_ms: f64, pool: &Pool) -> Result<()> {
        self.all.entry(label.to_owned()).or_default().push(format!("{took_ms:.1}"));
        if self.is_wanted && self.known.get(label).is_none_or(|(most_ms, _)| took_ms > *most_ms) {
            let explained = pool.client.gleaner(&["explain"])?.text();
            self.known.insert(label.to_owned(), (took_ms, explained));
        }
        Ok(())
    }

    fn say(&self, say: &dyn Fn(&str)) {
        for (label, (took_ms, explained)) in &self.known {
            let all = self.all.get(label).map(|all| all.join(" ")).unwrap_or_default();
            say(&format!("`{label}` took {all} ms; of the slowest, {took_ms:.1} ms:\n{explained}"));
        }
    }
}

/// Processes of the machine's owner, until this is dropped.
struct Load(Vec<Child>);

impl Load {
    fn start(load: &str, cpus: usize, pool: &Pool, place: &Path) -> Result<Self> {
        let loops = match load {
            "as_many" => cpus,
            "twice" => 2 * cpus,
            "four_times" => 4 * cpus,
            _ => 0,
        };
        let mut children = Self((0..loops).map(|_| spin("while :; do :; done")).collect::<Result<_>>()?);
        if load == "build" {
            let copy = place.join("load");
            if !copy.exists() {
                let script = "cp -a tree load";
                pool.client.script(place, script, "", Duration::from_secs(60))?.expect_ok(script)?;
            }
            let build =
                format!("cd '{}' && while :; do rm -f *.o program; make -s -j{cpus} CC=gcc; done", copy.display());
            children.0.push(spin(&build)?);
        }
        pause(SETTLE);
        Ok(children)
    }
}

fn spin(script: &str) -> Result<Child> {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    // SAFETY: between fork and exec the closure makes one system call and allocates nothing.
    unsafe {
        command.pre_exec(|| Ok(rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?));
    }
    command.spawn().context(|| "cannot start a load".to_owned())
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            if let Some(group) = rustix::process::Pid::from_raw(child.id() as i32) {
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            }
            let _ = child.wait();
        }
    }
}

/// Three machines with a bounded part of the processors each: what `--no-local` takes while two of them are busy, by what it takes while none is.
fn three_machines(options: &Options, figures: &mut Figures, say: &dyn Fn(&str)) -> Result<()> {
    let groups = Groups::make(3)?;
    let machines = groups.0.iter().map(|group| group.display().to_string()).collect();
    let pool = Pool::start(PoolOptions { prefers_pool: false, groups: machines, ..PoolOptions::new(3, 1)? })?;
    let place = prepare(&pool)?;
    let (mut calm, mut busy) = (Samples::default(), Samples::default());
    let measure = |samples: &mut Samples| -> Result<()> {
        let mut slowest = Slowest::new(options);
        for _ in 0..options.rounds {
            for (name, script) in [("true", "$R true"), ("gcc", "$R gcc -O2 -c small.c")] {
                pause(REFILL);
                let took_ms = timed(&pool, &place, script, "remrun --no-local")?;
                samples.add(name, took_ms);
                slowest.note(name, took_ms, &pool)?;
            }
        }
        slowest.say(say);
        for _ in 0..options.long_rounds {
            samples.add("task", timed(&pool, &place, "$R python3 work.py", "remrun --no-local")?);
        }
        Ok(())
    };
    say("three machines, none busy");
    measure(&mut calm)?;
    say("three machines, two busy");
    let mut loops = Load(Vec::new());
    for group in &groups.0[..BUSY_MACHINES] {
        for _ in 0..2 {
            let child = spin("while :; do :; done")?;
            std::fs::write(group.join("cgroup.procs"), child.id().to_string()).at("join", group)?;
            loops.0.push(child);
        }
    }
    pause(SETTLE);
    measure(&mut busy)?;
    drop(loops);
    let mut worst = 1.0f64;
    for name in ["true", "gcc", "task"] {
        let ratio = busy.median(name).zip(calm.median(name)).map(|(busy, calm)| busy / calm);
        figures.add(&format!("no_local_{name}_ratio"), ratio);
        for (state, samples) in [("calm", &calm), ("busy", &busy)] {
            figures.add(&format!("no_local_{name}_{state}_p50_ms"), samples.median(name));
            figures.add(&format!("no_local_{name}_{state}_p95_ms"), samples.quantile(name, 0.95));
        }
        worst = worst.max(ratio.unwrap_or(1.0));
    }
    figures.add("no_local_ratio", Some(worst));
    stop(pool)
}

/// Control groups that stand for machines, until this is dropped.
struct Groups(Vec<PathBuf>);

impl Groups {
    fn make(count: usize) -> Result<Self> {
        let root = Path::new("/sys/fs/cgroup/cpu");
        if !root.join("cpu.shares").exists() {
            return Err(Error::Missing(
                "machines are parts of this one by control groups of version 1, which are not here".into(),
            ));
        }
        let mut groups = Self(Vec::new());
        for number in 0..count {
            let group = root.join(format!("bench-machine{number}-{}", std::process::id()));
            std::fs::create_dir(&group).at("create", &group)?;
            groups.0.push(group.clone());
            let quota = group.join("cpu.cfs_quota_us");
            std::fs::write(&quota, (u64::from(MACHINE_PERCENT) * 1_000).to_string()).at("write", &quota)?;
            // Machines do not take processors from one another, nor from the client: the loops of these have what the others leave.
            if number < BUSY_MACHINES {
                let idle = group.join("cpu.idle");
                std::fs::write(&idle, "1").at("write", &idle)?;
            }
        }
        Ok(groups)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for group in &self.0 {
            for _ in 0..100 {
                if std::fs::remove_dir(group).is_ok() {
                    break;
                }
                pause(Duration::from_millis(50));
            }
        }
    }
}

/// The demo with four loops on two processors, by the demo on a calm machine.
fn demo(cpus: usize, figures: &mut Figures, say: &dyn Fn(&str)) -> Result<()> {
    let suite = std::env::current_exe().context(|| "cannot find the suite's own binary".to_owned())?;
    let time = || -> Result<Duration> {
        let started = Instant::now();
        let status = Command::new(&suite).arg("demo").stdout(Stdio::null()).stderr(Stdio::null()).status();
        let status = status.context(|| "cannot run the demo".to_owned())?;
        if status.success() { Ok(started.elapsed()) } else { Err(Error::Product("the demo failed".into())) }
    };
    say("the demo, calm");
    let calm = time()?;
    say("the demo beside loops");
    let loops = Load((0..2 * cpus).map(|_| spin("while :; do :; done")).collect::<Result<_>>()?);
    let busy = time();
    drop(loops);
    match busy {
        Ok(busy) => figures.add("demo_busy_ratio", Some(busy.as_secs_f64() / calm.as_secs_f64())),
        Err(error) => figures.missing("demo_busy_ratio", &error.to_string()),
    }
    Ok(())
}
