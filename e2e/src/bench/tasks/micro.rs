//! `micro`: what each operation takes, by the clock, in steps and in cache lines, at some sizes.

use super::Options;
use super::record::{Op, Record, unpack};
use super::replay::{self, Runs, Times, quantile};
use super::script::Size;
use crate::bench::samples::{Figures, median};
use crate::error::Result;

/// Hosts, and what figures of that size end in.
const SIZES: [(usize, &str); 4] = [(1, "1"), (10_000, "10k"), (65_536, "64k"), (1_000_000, "1m")];

/// Measures at all sizes, or at the one that is wanted.
pub fn run(options: &Options, figures: &mut Figures) -> Result<()> {
    for (hosts, label) in SIZES.iter().filter(|(hosts, _)| options.hosts.is_none_or(|wanted| wanted == *hosts)) {
        let size = Size::of(*hosts);
        eprintln!("bench: {hosts} hosts, {} tasks, {} runs", size.tasks, options.rounds);
        let runs = replay::runs(size, options.rounds)?;
        eprintln!("bench: {} events in each", runs.work.count());
        operations(&runs, label, figures);
        whole(&runs, label, figures);
        memory(&runs, label, figures);
    }
    Ok(())
}

/// The median over all runs of one of their figures.
fn over_runs(all: impl Iterator<Item = Times>, part: fn(&Times) -> f64) -> f64 {
    median(all.map(|times| part(&times))).unwrap_or_default()
}

fn operations(runs: &Runs, label: &str, figures: &mut Figures) {
    eprintln!(
        "bench: {:<18} {:>9} {:>7} {:>7} {:>7} {:>8} {:>8} {:>9}  steps   max  lines  p99  max",
        "ns", "events", "mean", "p50", "p99", "p99.99", "max", "max raw"
    );
    for (at, op) in Op::ALL.iter().enumerate() {
        let least = replay::times(&runs.least, replay::of(&runs.least, *op));
        let (steps, lines) = steps_and_lines(&replay::of(&runs.work, *op));
        if steps.is_empty() {
            continue;
        }
        let part = |part| over_runs(runs.each.iter().map(|run| run[at]), part);
        let raw = runs.each.iter().map(|run| run[at].max).fold(0.0, f64::max);
        let of_op = [
            ("mean_ns", part(|times| times.mean)),
            ("p50_ns", part(|times| times.p50)),
            ("p99_ns", part(|times| times.p99)),
            ("p9999_ns", part(|times| times.p9999)),
            ("max_ns", least.max),
            ("max_raw_ns", raw),
            ("steps_p50", f64::from(quantile(&steps, 0.5))),
            ("steps_max", f64::from(quantile(&steps, 1.0))),
            ("lines_p50", f64::from(quantile(&lines, 0.5))),
            ("lines_p99", f64::from(quantile(&lines, 0.99))),
            ("lines_max", f64::from(quantile(&lines, 1.0))),
        ];
        for (what, value) in of_op {
            figures.add(&format!("micro_{}_{label}_{what}", op.name()), Some(value));
        }
        let [mean, p50, p99, p9999, max, raw, steps, steps_max, lines, lines_p99, lines_max] =
            of_op.map(|(_, value)| value);
        eprintln!(
            "bench: {:<18} {:>9} {mean:>7.0} {p50:>7.0} {p99:>7.0} {p9999:>8.0} {max:>8.0} {raw:>9.0}  {steps:>5} {steps_max:>5}  \
             {lines:>5} {lines_p99:>4} {lines_max:>4}",
            op.name(),
            replay::of(&runs.work, *op).len(),
        );
    }
}

/// Sorted steps, and sorted lines.
fn steps_and_lines(values: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let (mut steps, mut lines): (Vec<u32>, Vec<u32>) = values.iter().map(|value| unpack(*value)).unzip();
    steps.sort_unstable();
    lines.sort_unstable();
    (steps, lines)
}

/// Figures over all events of a size. Those of 10,000 hosts have no suffix.
fn whole(runs: &Runs, label: &str, figures: &mut Figures) {
    let suffix = if label == "10k" { String::new() } else { format!("_{label}") };
    let mut add = |name: &str, value: f64| figures.add(&format!("{name}{suffix}"), Some(value));
    add("event_ns_p50", over_runs(runs.mixes.iter().copied(), |times| times.p50));
    add("event_ns_p99", over_runs(runs.mixes.iter().copied(), |times| times.p99));
    add("event_ns_mean", over_runs(runs.mixes.iter().copied(), |times| times.mean));
    let all = replay::times(&runs.least, runs.least.values.clone());
    let raw = runs.each.iter().flatten().map(|times| times.max).fold(0.0, f64::max);
    add("event_us_max", all.max / 1000.0);
    add("event_us_max_raw", raw / 1000.0);
    let (steps, lines) = steps_and_lines(&runs.work.values);
    add("micro_steps_max", f64::from(quantile(&steps, 1.0)));
    let (_, mix) = steps_and_lines(&replay::mix(&runs.work));
    add("lines_p50", f64::from(quantile(&mix, 0.5)));
    add("lines_p99", f64::from(quantile(&mix, 0.99)));
    add("lines_max", f64::from(quantile(&mix, 1.0)));
    add("lines_max_of_all", f64::from(quantile(&lines, 1.0)));
    add("timed_page_faults", runs.least.facts.faults);
    add("events_refused", runs.work.facts.refused);
    longest(&runs.least, &runs.work);
}

/// Says which events took longest.
fn longest(least: &Record, work: &Record) {
    let mut order: Vec<usize> = (0..least.values.len()).collect();
    let count = order.len().min(8);
    order.select_nth_unstable_by_key(count - 1, |at| std::cmp::Reverse(least.values[*at]));
    for at in &order[..count] {
        let (steps, lines) = unpack(work.values[*at]);
        let (op, ns) = (Op::ALL[usize::from(least.ops[*at])].name(), least.ns(least.values[*at]));
        eprintln!("bench: among the longest: event {at}, {op}: {ns:.0} ns, {steps} steps, {lines} lines");
    }
}

fn memory(runs: &Runs, label: &str, figures: &mut Figures) {
    let facts = runs.least.facts;
    for (name, bytes) in
        [("core_mb", facts.bytes), ("core_rss_mb", facts.resident), ("core_rss_end_mb", facts.resident_at_end)]
    {
        figures.add(&format!("{name}_{label}"), Some(bytes / 1e6));
    }
    figures.add(&format!("clock_overhead_ns_{label}"), Some(facts.overhead * facts.ns_per_tick));
}
