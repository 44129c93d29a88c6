//! Whole lives of tasks, through a hub with its journal and hosts over real QUIC ([`crate::swarm`], in a process of its own).
//!
//! A task's life is from when it was due to be submitted until the client knows that the hub knows that its result was collected: created,
//! sent, reported, decided, collected, deleted, each step durable before the next. Tasks are due by the clock, whether or not the
//! hub is ready (no coordinated omission).

use super::Options;
use crate::bench::launch::resident_mb;
use crate::bench::samples::{Figures, median};
use crate::error::{Context, Error, Result};
use crate::pool::{self, Pool};
use crate::process::wait_for;
use crate::swarm::{self, Outcome, Phase, Plan};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Hosts of the large runs.
const MANY: usize = 10_000;
/// Machines, each with a key of its own, that they are on.
const MACHINES: usize = 16;
/// Syncs that are made slower by so much, in microseconds, and what figures of that end in.
const SLOWER: [(u64, &str); 3] = [(100, "sync_0_1ms"), (2_000, "sync_2ms"), (10_000, "sync_10ms")];
/// Tasks a second at which latency is measured.
const RATE: f64 = 1_000.0;
/// The phase in which it is.
const STEADY: &str = "steady";

/// Measures with one host and with many, then with slower syncs. With `--hosts` there is one size alone; 0 is the slower syncs alone.
pub fn run(options: &Options, figures: &mut Figures) -> Result<()> {
    for hosts in options.hosts.map_or(vec![1, MANY], |hosts| vec![hosts]) {
        let label = match hosts {
            0 => continue,
            1 => "1_host".to_owned(),
            MANY => String::new(),
            _ => format!("{hosts}_hosts"),
        };
        at(hosts, &label, figures)?;
    }
    for (slower_us, label) in SLOWER.iter().filter(|_| matches!(options.hosts, None | Some(0))) {
        let pool = start(1_000, *slower_us)?;
        let plan = Plan { phases: vec![warm(), steady()], ..waiting(&pool, 1_000)? };
        let outcomes = swarm(&pool, &plan, |_| {})?;
        tell(&outcomes[1], label, figures);
        crate::bench::stop(pool)?;
    }
    Ok(())
}

fn at(hosts: usize, label: &str, figures: &mut Figures) -> Result<()> {
    let pool = start(hosts, 0)?;
    let name = |what: &str| if label.is_empty() { what.to_owned() } else { format!("{what}_{label}") };
    let flood = |name: &str, batch, window| Phase {
        name: name.into(),
        seconds: 10.0,
        batch,
        window,
        quorum: 1,
        ..Phase::default()
    };
    let phases = vec![warm(), steady(), flood("unbatched", 1, 8_192)];
    let plan = Plan { phases, ..waiting(&pool, hosts)? };
    let hub = pool.hub.pid().as_raw_nonzero().get();
    let mut outcomes = swarm(&pool, &plan, |connect_s| {
        figures.add(&name("connect_s"), Some(connect_s));
        figures.add(&if hosts == MANY { "hub_mb_10k".into() } else { name("hub_mb") }, resident_mb(hub));
    })?;
    figures.add(&name("hub_mb_after"), resident_mb(hub));
    let phases = vec![flood("batched", 1_024, 90_000)];
    let asking = Plan { phases, waits: false, want: 16, cpus: 16, ..waiting(&pool, hosts)? };
    outcomes.extend(swarm(&pool, &asking, |_| {})?);
    crate::bench::stop(pool)?;
    tell(&outcomes[1], label, figures);
    // Unbatched: each workunit in a message of its own, all the way. Else 16 reports, and 16 tasks, in one, and 1,024 submissions.
    for (at, what) in [(3, "workunits_per_s"), (2, "workunits_per_s_unbatched")] {
        figures.add(&name(what), Some(outcomes[at].per_s));
    }
    Ok(())
}

fn tell(outcome: &Outcome, label: &str, figures: &mut Figures) {
    let name = |what: &str| if label.is_empty() { what.to_owned() } else { format!("{what}_{label}") };
    let mut three = |what: &str, [p50, p999, max]: [f64; 3]| {
        for (part, value) in [("p50", p50), ("p999", p999), ("max", max)] {
            figures.add(&name(&format!("{what}_{part}")), Some(value));
        }
    };
    three("life_ms", outcome.life_ms);
    three("accepted_ms", outcome.accepted_ms);
    three("lag_ms", outcome.lag_ms);
    three("hiccup_ms", outcome.hiccup_ms);
    for (part, value) in ["p50", "p99", "max"].into_iter().zip(outcome.sync_ms) {
        figures.add(&name(&format!("sync_ms_{part}")), Some(value));
    }
}

/// The first tasks of a hub are not counted.
fn warm() -> Phase {
    Phase { name: "warm".into(), rate: 200.0, seconds: 2.0, batch: 64, window: 10_000, quorum: 1, ..Phase::default() }
}

fn steady() -> Phase {
    let window = 100_000;
    Phase { name: STEADY.into(), rate: RATE, seconds: 15.0, batch: 64, window, quorum: 1, ..Phase::default() }
}

/// 10,000 hosts, 9,000 tasks of 4 s every 10 s, and 5% of the hosts die in mid-task: RT-BOINC's chess, with deaths.
pub fn chess(options: &Options, figures: &mut Figures) -> Result<()> {
    let hosts = options.hosts.unwrap_or(MANY);
    if hosts == 0 {
        return Ok(());
    }
    let pool = start(hosts, 0)?;
    let phase = Phase {
        name: "chess".into(),
        seconds: 30.0,
        every_s: 10.0,
        burst: (hosts * 9 / 10) as u32,
        batch: 1_024,
        window: u32::MAX / 2,
        task_ms: 4_000,
        deadline_ms: 10_000,
        delay_bound_ms: 4_700,
        is_speculative: true,
        quorum: 1,
        ..Phase::default()
    };
    let plan = Plan { phases: vec![phase], dying_percent: 5.0, dead_ms: 12_000, ..waiting(&pool, hosts)? };
    let outcome = swarm(&pool, &plan, |_| {})?.remove(0);
    crate::bench::stop(pool)?;
    for (what, value) in [
        ("chess_moves", outcome.done as f64),
        ("chess_hosts_died", outcome.died as f64),
        ("chess_late", outcome.late as f64),
        ("chess_failed", outcome.failed as f64),
        ("chess_ms_p50", outcome.ended_ms[0]),
        ("chess_ms_max", outcome.ended_ms[2]),
    ] {
        figures.add(what, Some(value));
    }
    Ok(())
}

/// Tasks that a hub has when it is killed and started again.
const RESTART_TASKS: u32 = 1_000_000;

/// How long a hub takes that has a million tasks.
pub fn restart(_: &Options, figures: &mut Figures) -> Result<()> {
    let mut pool = start_with(pool::Options::new(0, 1)?, 64, RESTART_TASKS as usize + 1_000, 0)?;
    let phase = Phase {
        name: "fill".into(),
        seconds: 1_000.0,
        batch: 1_024,
        window: RESTART_TASKS,
        task_ms: 3_600_000,
        quorum: 1,
        only_submits: true,
        ..Phase::default()
    };
    let plan = Plan { phases: vec![phase], ..waiting(&pool, 1)? };
    let begun = Instant::now();
    swarm(&pool, &plan, |_| {})?;
    figures.add("fill_s", Some(begun.elapsed().as_secs_f64()));
    let mut samples = Vec::new();
    for _ in 0..3 {
        let begun = Instant::now();
        pool.restart_hub()?;
        samples.push(begun.elapsed().as_secs_f64());
    }
    figures.add("restart_s", median(samples));
    figures.add("restart_mb", resident_mb(pool.hub.pid().as_raw_nonzero().get()));
    crate::bench::stop(pool)
}

/// The hub is killed again and again under load.
pub fn chaos(options: &Options, figures: &mut Figures) -> Result<()> {
    // Ten minutes in all, unless it is to be short.
    let minutes = if options.rounds < 5 { 1.0 } else { 10.0 };
    for (hosts, every_s, label) in [(300, 3, "300"), (MANY, 30, "10k")] {
        if options.hosts.is_some_and(|wanted| wanted != hosts) {
            continue;
        }
        let mut pool = start(hosts, 0)?;
        let phase = Phase {
            name: "chaos".into(),
            rate: 300.0,
            seconds: minutes * 60.0,
            batch: 64,
            window: 20_000,
            task_ms: 200,
            delay_bound_ms: 60_000,
            quorum: 1,
            ..Phase::default()
        };
        let plan = Plan { phases: vec![phase], ..waiting(&pool, hosts)? };
        let mut running = Swarm::start(&pool, &plan)?;
        running.line()?;
        let begun = Instant::now();
        let mut kills = 0;
        while begun.elapsed().as_secs_f64() + (every_s as f64) < minutes * 60.0 {
            let ended = wait_for(Duration::from_secs(every_s), || pool.hub.check().err());
            ended.map_or(Ok(()), Err)?;
            pool.restart_hub()?;
            kills += 1;
        }
        let outcome = running.outcome()?;
        running.end()?;
        crate::bench::stop(pool)?;
        for (what, value) in [
            ("kills", f64::from(kills)),
            ("done", outcome.done as f64),
            ("lost", outcome.lost as f64),
            ("twice", outcome.twice as f64),
            ("failed", outcome.failed as f64),
            ("life_ms_max", outcome.life_ms[2]),
        ] {
            figures.add(&format!("chaos_{what}_{label}"), Some(value));
        }
    }
    Ok(())
}

/// A hub that has room for so many hosts, and tasks for them.
fn start(hosts: usize, slower_us: u64) -> Result<Pool> {
    start_with(pool::Options::new(0, 1)?, hosts, 100_000, slower_us)
}

pub(super) fn start_with(mut options: pool::Options, hosts: usize, tasks: usize, slower_us: u64) -> Result<Pool> {
    eprintln!("bench: a hub for {hosts} hosts");
    options.hub_env = vec![
        ("GLEANER_HOSTS_MAX", (hosts * 2).max(64).to_string()),
        // All tasks are one account's, which may have half of the table.
        ("GLEANER_TASKS_MAX", (tasks * 2).to_string()),
        ("GLEANER_EXTRA_SYNC_US", slower_us.to_string()),
    ];
    Pool::start(options)
}

fn tokens(pool: &Pool) -> Result<Vec<String>> {
    (0..MACHINES).map(|_| pool.token("worker")).collect()
}

/// Hosts that are told of tasks as they come.
pub(super) fn waiting(pool: &Pool, hosts: usize) -> Result<Plan> {
    Ok(Plan {
        address: pool.hub_address()?,
        client_token: pool.token("client")?,
        host_tokens: tokens(pool)?,
        hosts,
        cpus: if hosts == 1 { 64 } else { 1 },
        waits: true,
        ..Plan::default()
    })
}

/// A swarm that runs.
struct Swarm {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Swarm {
    fn start(pool: &Pool, plan: &Plan) -> Result<Self> {
        let file = pool.scratch.path().join("plan.json");
        let json = serde_json::to_vec(plan).map_err(|error| Error::Product(error.to_string()))?;
        std::fs::write(&file, json).at("write", &file)?;
        Self::spawn(&file)
    }

    fn spawn(file: &Path) -> Result<Self> {
        let own = std::env::current_exe().context(|| "cannot find the suite's own binary".to_owned())?;
        let mut command = Command::new(own);
        command.arg(swarm::SUBCOMMAND).arg(file).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().context(|| "cannot start the hosts".to_owned())?;
        let said = child.stdout.take().ok_or_else(|| Error::Product("the hosts say nothing".into()))?;
        Ok(Self { child, said: BufReader::new(said) })
    }

    fn line(&mut self) -> Result<serde_json::Value> {
        let mut line = String::new();
        self.said.read_line(&mut line).context(|| "the hosts said nothing".to_owned())?;
        serde_json::from_str(&line).map_err(|_| Error::Product("the hosts ended early".into()))
    }

    fn outcome(&mut self) -> Result<Outcome> {
        let line = self.line()?;
        eprintln!("bench: {line}");
        serde_json::from_value(line).map_err(|error| Error::Product(error.to_string()))
    }

    fn end(mut self) -> Result<()> {
        self.child.wait().context(|| "cannot wait for the hosts".to_owned()).map(drop)
    }
}

impl Drop for Swarm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a swarm to its end. `connected` is told how long its hosts took to join.
pub(super) fn swarm(pool: &Pool, plan: &Plan, connected: impl FnOnce(f64)) -> Result<Vec<Outcome>> {
    let mut running = Swarm::start(pool, plan)?;
    let joined = running.line()?;
    eprintln!("bench: {joined}");
    connected(joined["connect_s"].as_f64().unwrap_or_default());
    let outcomes = plan.phases.iter().map(|phase| {
        let mut outcome = running.outcome()?;
        if phase.name == STEADY {
            outcome.sync_ms = sync_ms(pool)?;
        }
        Ok(outcome)
    });
    let outcomes = outcomes.collect();
    running.end()?;
    outcomes
}

/// How long the hub's syncs took so far: median, 99th percentile, longest.
fn sync_ms(pool: &Pool) -> Result<[f64; 3]> {
    let seen = pool.owner.json(&["top", "--once", "--json"])?;
    let syncs = &seen["figures"]["journal"]["syncs"];
    Ok(["p50_us", "p99_us", "max_us"].map(|part| syncs[part].as_f64().unwrap_or(f64::NAN) / 1e3))
}
