//! The same run again and again, each time in a fresh process.
//!
//! The core is deterministic: event n of one run is event n of any other. So the least time that an event took over all runs is what
//! it takes; what it took more in one of them is the machine's: interrupts, neighbours, other pages.

use super::record::{Op, Record, What};
use super::script::{self, Size};
use crate::error::{Context, Error, Result};
use crate::scratch::Scratch;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// First argument with which the suite's binary does one run.
pub const REPLAY_SUBCOMMAND: &str = "tasks-replay";

/// Does one run in this process: `<hosts> <time|work> <file>`.
pub fn replay(arguments: &[String]) -> ExitCode {
    let [hosts, what, file] = arguments else { return ExitCode::FAILURE };
    let Ok(hosts) = hosts.parse() else { return ExitCode::FAILURE };
    let what = if what == "work" { What::Work } else { What::Time };
    match script::run(Size::of(hosts), what).write(Path::new(file)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Does one run in a process of its own.
fn fresh(size: Size, what: What, scratch: &Scratch) -> Result<Record> {
    let own = std::env::current_exe().context(|| "cannot find the suite's own binary".to_owned())?;
    let file = scratch.path().join("run");
    let what = if what == What::Work { "work" } else { "time" };
    let mut command = Command::new(own);
    command.args([REPLAY_SUBCOMMAND, &size.hosts.to_string(), what]).arg(&file).stdin(Stdio::null());
    let status = command.status().context(|| "cannot start a run".to_owned())?;
    match status.success() {
        true => Record::read(&file),
        false => Err(Error::Product(format!("a run with {} hosts failed: {status}", size.hosts))),
    }
}

/// What one kind of event took in one run, or over all, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// Mean.
    pub mean: f64,
    /// Quantiles.
    pub p50: f64,
    /// See `p50`.
    pub p99: f64,
    /// See `p50`.
    pub p9999: f64,
    /// The longest.
    pub max: f64,
}

/// All runs of one size.
#[derive(Debug)]
pub struct Runs {
    /// By kind of event: of each run.
    pub each: Vec<[Times; Op::ALL.len()]>,
    /// Of the mix of each run.
    pub mixes: Vec<Times>,
    /// The least time of each event over all runs, in nanoseconds, and the kinds of events.
    pub least: Record,
    /// Of another run: steps and lines.
    pub work: Record,
}

/// So many runs for times, and one for steps and lines.
pub fn runs(size: Size, count: usize) -> Result<Runs> {
    let scratch = Scratch::new()?;
    let work = fresh(size, What::Work, &scratch)?;
    let mut least: Option<Record> = None;
    let (mut each, mut mixes) = (Vec::new(), Vec::new());
    for number in 0..count {
        let run = fresh(size, What::Time, &scratch)?;
        if run.ops != work.ops || run.facts.digest != work.facts.digest {
            return Err(Error::Product(format!("run {number} with {} hosts was another one", size.hosts)));
        }
        each.push(Op::ALL.map(|op| times(&run, of(&run, op))));
        mixes.push(times(&run, mix(&run)));
        least = Some(match least {
            None => run,
            Some(mut least) => {
                least.values.iter_mut().zip(&run.values).for_each(|(least, ticks)| *least = (*least).min(*ticks));
                // Each run has measured its clock anew: what is taken off is the least as well.
                least.facts.overhead = least.facts.overhead.min(run.facts.overhead);
                least.facts.faults = least.facts.faults.max(run.facts.faults);
                least
            }
        });
    }
    let least = least.ok_or_else(|| Error::Missing("at least one run is needed".to_owned()))?;
    Ok(Runs { each, mixes, least, work })
}

/// The values of one kind of event.
pub fn of(record: &Record, op: Op) -> Vec<u32> {
    let pairs = record.ops.iter().zip(&record.values);
    pairs.filter(|(kind, _)| **kind == op as u8).map(|(_, value)| *value).collect()
}

/// The values of the mix.
pub fn mix(record: &Record) -> Vec<u32> {
    record.values[record.facts.mix_from as usize..record.facts.mix_to as usize].to_vec()
}

/// What is said of times.
pub fn times(record: &Record, mut values: Vec<u32>) -> Times {
    values.sort_unstable();
    let Some(last) = values.last() else { return Times::default() };
    let sum: f64 = values.iter().map(|ticks| record.ns(*ticks)).sum();
    Times {
        mean: sum / values.len() as f64,
        p50: record.ns(quantile(&values, 0.5)),
        p99: record.ns(quantile(&values, 0.99)),
        p9999: record.ns(quantile(&values, 0.9999)),
        max: record.ns(*last),
    }
}

/// A quantile of sorted values that are not empty, by the nearest rank.
pub fn quantile(sorted: &[u32], q: f64) -> u32 {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::tasks::record::unpack;

    #[test]
    fn a_small_run_is_the_same_each_time() {
        let size = Size { hosts: 20, tasks: 400 };
        let [a, b] = [What::Work, What::Work].map(|what| script::run(size, what));
        let count = a.count();
        assert_eq!((count, &a.ops[..count], &a.values[..count]), (b.count(), &b.ops[..count], &b.values[..count]));
        assert_eq!((a.facts.digest, a.facts.refused), (b.facts.digest, b.facts.refused));
        assert!(a.facts.refused < 20.0, "{} refused", a.facts.refused);
        assert!(Op::ALL.iter().all(|op| a.ops[..count].contains(&(*op as u8))), "each operation occurs");
        assert!(a.values[..count].iter().all(|value| unpack(*value).0 < 2_000));
    }
}
