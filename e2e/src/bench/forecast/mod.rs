//! `bench forecast`: what this machine has to spare, measured and foretold, against what a process then got.
//!
//! * [`live`]: real loads, made by [`spinner`], on one processor as on the hosts of the Network Weather Service's authors, and on all: each
//!   sensor's word beside what a test process got right afterwards.
//! * [`model`]: five minutes ahead, over hundreds of windows in virtual time: loads whose best possible forecast is known.
//! * [`hour`]: the same five minutes ahead, once for each of four loads.
//! * [`traces`]: loads of real hosts, from files.

mod host;
mod hour;
mod live;
mod model;
pub(in crate::bench) mod spinner;
mod tables;
mod traces;

pub use spinner::{SPIN_SUBCOMMAND, spin};

use super::samples::Figures;
use crate::error::Result;
use std::path::PathBuf;

/// What is measured, and how it is shown.
#[derive(Clone, Debug)]
pub struct Options {
    /// Figures as JSON on standard output, instead of a table.
    pub json: bool,
    /// A minute or two: short intervals, one round.
    pub quick: bool,
    /// Real loads and test processes are in a cgroup that outweighs all else that runs on the machine, and what sensors read is only what goes
    /// on in there: for machines that others use meanwhile.
    pub alone: bool,
    /// Only the part of this name.
    pub only: Option<String>,
    /// Only the live loads whose names contain this.
    pub load: Option<String>,
    /// How often each load is measured.
    pub rounds: Option<usize>,
    /// For the order of loads, and for those of the model.
    pub seed: u64,
    /// Where traces are.
    pub traces: PathBuf,
}

/// A part of the benchmark.
type Part = (&'static str, fn(&Options, &mut Figures) -> Result<()>);

const PARTS: [Part; 4] = [("traces", traces::run), ("model", model::run), ("live", live::run), ("hour", hour::run)];

/// The names of the parts.
pub fn parts() -> Vec<&'static str> {
    PARTS.map(|(name, _)| name).to_vec()
}

/// Measures and prints. A part that fails is missing, with the reason.
pub fn run(options: &Options) -> Result<()> {
    let mut figures = Figures::default();
    eprintln!("bench: seed {}", options.seed);
    figures.add("seed", Some(options.seed as f64));
    for (name, part) in PARTS.iter().filter(|(name, _)| options.only.as_ref().is_none_or(|only| only == name)) {
        eprintln!("bench: {name}");
        if let Err(error) = part(options, &mut figures) {
            eprintln!("bench: {name}: {error}");
            figures.missing(name, &error.to_string());
        }
    }
    figures.print(options.json);
    Ok(())
}

/// A figure and what it should be at most; told to people at once.
fn at_most(figures: &mut Figures, name: &str, value: Option<f64>, target: f64) {
    let verdict = match value {
        Some(value) if value <= target => "as promised",
        Some(_) => "MISSED",
        None => "not measured",
    };
    eprintln!("bench: {name:<28} {:>8.4}, at most {target}: {verdict}", value.unwrap_or(f64::NAN));
    figures.add(name, value);
}
