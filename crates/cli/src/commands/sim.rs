//! `gleaner sim`: what policies would do, in virtual time.

use crate::answers::Render;
use crate::args::{Linger, Sim, SimCommand};
use crate::error::Result;
use crate::render::{self, Table};
use serde::Serialize;
use sim::statistics::Mean;
use sim::study::{LOADS, Load, Measures, POLICIES, PUBLISHED, replicate};
use std::sync::atomic::{AtomicU64, Ordering};

/// A measure, with its name.
type Measure = (&'static str, fn(&Measures) -> f64);

/// What is shown of a load.
const MEASURES: [Measure; 5] = [
    ("average job time, s", |measures| measures.average_s),
    ("variation of execution time, %", |measures| measures.variation * 100.0),
    ("family time, s", |measures| measures.family_s),
    ("throughput, CPU-s a second", |measures| measures.throughput),
    ("slowest 5%, execution time, s", |measures| measures.slowest_s),
];

/// Simulates.
pub fn run(arguments: &Sim) -> Result {
    let SimCommand::Linger(linger) = &arguments.what;
    let study = study(linger);
    if linger.json { render::print_json(&study) } else { render::print(&study.render()) }
}

#[derive(Clone, Debug, Serialize)]
struct Study {
    machines: u32,
    replicates: u32,
    figures: Vec<Figure>,
}

/// A measure of a load under a policy.
#[derive(Clone, Debug, Serialize)]
struct Figure {
    load: &'static str,
    policy: &'static str,
    measure: &'static str,
    mean: f64,
    /// The true mean is within so much, nineteen times in twenty.
    within: f64,
    /// And one world.
    one_within: f64,
    published: Option<f64>,
    /// Whether what was published lies where 95% of single worlds do.
    agrees: Option<bool>,
}

fn study(linger: &Linger) -> Study {
    let mut figures = Vec::new();
    for (load, published) in LOADS.iter().zip(&PUBLISHED) {
        for ((name, policy), published) in POLICIES.iter().zip(published) {
            let worlds = worlds(linger, load, *policy);
            for (measure, part) in MEASURES {
                let mean = Mean::of(&worlds.iter().map(part).collect::<Vec<f64>>());
                // They are of 64 machines.
                let published = Some(part(published)).filter(|value| *value > 0.0 && linger.machines == 64);
                figures.push(Figure {
                    load: load.name,
                    policy: name,
                    measure,
                    mean: mean.value,
                    within: mean.within,
                    one_within: mean.one_within,
                    published,
                    agrees: published.map(|published| (published - mean.value).abs() <= mean.one_within),
                });
            }
        }
    }
    Study { machines: linger.machines, replicates: linger.replicates, figures }
}

/// All replicates of a load, on all processors.
fn worlds(linger: &Linger, load: &Load, policy: sched::linger::Policy) -> Vec<Measures> {
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let work = || {
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= linger.replicates.into() {
                return done;
            }
            let seed = linger.seed.wrapping_add(number);
            done.push((number, replicate(linger.machines as usize, load, policy, seed)));
        }
    };
    let mut all: Vec<(u64, Measures)> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        // One that panicked ends all of this.
        running
            .into_iter()
            .flat_map(|thread| thread.join().unwrap_or_else(|why| std::panic::resume_unwind(why)))
            .collect()
    });
    // Sums must not depend on who was first.
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, measures)| measures).collect()
}

impl Render for Study {
    fn render(&self) -> String {
        let mut text = format!("{} machines, {} worlds for each figure\n\n", self.machines, self.replicates);
        let names = POLICIES.map(|(name, _)| name);
        for load in &LOADS {
            let mut table = Table::new(&[&[load.name][..], &names].concat());
            for (measure, _) in MEASURES {
                let of = |name| {
                    let is_it =
                        |figure: &&Figure| (figure.load, figure.policy, figure.measure) == (load.name, name, measure);
                    self.figures.iter().find(is_it)
                };
                let cells = names.map(|name| of(name).map(cell).unwrap_or_default());
                table.row([vec![measure.to_owned()], cells.to_vec()].concat());
                let told = names.map(|name| of(name).map(told).unwrap_or_default());
                if told.iter().any(|cell| !cell.is_empty()) {
                    table.row([vec!["  published".to_owned()], told.to_vec()].concat());
                }
            }
            text.push_str(&table.text(""));
            text.push('\n');
        }
        if self.figures.iter().any(|figure| figure.agrees == Some(false)) {
            text.push_str("*: not where 95% of single worlds are\n");
        }
        text
    }
}

fn digits(value: f64) -> usize {
    if value.abs() < 100.0 { 1 } else { 0 }
}

fn cell(figure: &Figure) -> String {
    let digits = digits(figure.mean);
    format!("{:.digits$} ± {:.1}", figure.mean, figure.within)
}

fn told(figure: &Figure) -> String {
    let Some(published) = figure.published else { return String::new() };
    let digits = digits(published);
    let star = if figure.agrees == Some(false) { "*" } else { "" };
    format!("{published:.digits$}{star}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_worlds_are_shown_beside_what_was_published() {
        let linger = Linger { machines: 64, replicates: 3, seed: 1, json: false };
        let shown = study(&linger).render();
        for part in ["64 machines, 3 worlds", "W1 ", "W2 ", "average job time, s", "  published", "1531", "0.9"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert_eq!(study(&linger).render(), shown, "the same seeds, the same figures");
        let few = study(&Linger { machines: 8, ..linger });
        assert!(few.figures.iter().all(|figure| figure.published.is_none()));
    }
}
