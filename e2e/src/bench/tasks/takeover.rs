//! A hub whose journal is in a database is lost, with tasks waiting, and a standby takes over: how long nothing is taken.
//!
//! From the moment when the hub is killed, or stopped, until a client that looks for it all the time has joined the other one and been told that
//! a task is durable. The lease is the usual one of 6 s, of which 4 to 6 are left then.

use super::Options;
use super::life::{start_with, swarm, waiting};
use crate::bench::samples::{Figures, median};
use crate::error::Result;
use crate::pool::{self, Pool};
use crate::swarm::{Phase, Plan, Probe};
use rustix::process::Signal;
use std::time::Duration;

/// Tasks that wait.
const TASKS: u32 = 100_000;
/// How often it is measured at most: each time with a pool of its own.
const ROUNDS_MAX: usize = 3;
/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Measures both ways to lose a hub.
pub fn run(options: &Options, figures: &mut Figures) -> Result<()> {
    for (name, signal) in [("takeover", Signal::KILL), ("takeover_stopped", Signal::STOP)] {
        let rounds = (0..options.rounds.clamp(1, ROUNDS_MAX)).map(|_| once(signal));
        let samples = rounds.collect::<Result<Vec<f64>>>()?;
        figures.add(&format!("{name}_s_max"), samples.iter().copied().max_by(f64::total_cmp));
        figures.add(&format!("{name}_s"), median(samples));
    }
    Ok(())
}

fn once(signal: Signal) -> Result<f64> {
    let options = pool::Options { database: true, ..pool::Options::new(0, 1)? };
    let mut pool = start_with(options, 64, TASKS as usize + 1_000, 0)?;
    fill(&pool)?;
    let second = pool.start_standby(LIMIT)?;
    let probe = Probe::new(&pool.token("client")?, &[&pool.hub_address()?, &second])?;
    let (epoch, usual) = probe.submit(0, LIMIT)?;
    pool.hub.signal(signal);
    let (_, taken) = probe.submit(epoch, LIMIT)?;
    eprintln!("bench: {:.3} s before, {:.3} s after {signal:?}", usual.as_secs_f64(), taken.as_secs_f64());
    pool.hub.kill();
    drop(probe);
    crate::bench::stop(pool)?;
    Ok(taken.as_secs_f64())
}

fn fill(pool: &Pool) -> Result<()> {
    let phase = Phase {
        name: "fill".into(),
        seconds: 1_000.0,
        batch: 1_024,
        window: TASKS,
        task_ms: 3_600_000,
        quorum: 1,
        only_submits: true,
        ..Phase::default()
    };
    swarm(pool, &Plan { phases: vec![phase], ..waiting(pool, 1)? }, |_| {}).map(drop)
}
