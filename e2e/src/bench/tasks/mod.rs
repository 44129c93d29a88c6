//! `bench tasks`: what the hub's task table can do.
//!
//! * [`micro`]: each operation by itself: a [`script`] over a [`world`], event by event into a [`record`], timed by a [`clock`], and
//!   [`replay`]ed in fresh processes to tell the table's own time from the machine's.
//! * [`steps`]: a search for the events that take the most steps, at one host and at a million.
//! * [`admission`]: how often what is said of deadlines is wrong, in virtual time.
//! * [`others`]: jobs of thousands of `true`, here and by HyperQueue and Slurm.
//! * [`takeover`]: a hub is lost whose journal is in a database, and another one takes over.
//! * [`life`]: a hub with its journal, and thousands of emulated hosts over QUIC: whole lives of tasks, at a rate and as fast as they go.

mod admission;
mod clock;
mod crowd;
mod life;
mod micro;
mod others;
mod record;
mod replay;
mod script;
mod steps;
mod takeover;
mod world;

pub(super) use crate::dice::{self, Dice};
pub use replay::{REPLAY_SUBCOMMAND, replay};

use super::samples::Figures;
use crate::error::Result;
use std::time::Instant;

/// What is measured, and how it is shown.
#[derive(Clone, Debug)]
pub struct Options {
    /// Figures as JSON on standard output, instead of a table.
    pub json: bool,
    /// Only the part of this name.
    pub only: Option<String>,
    /// Only with so many hosts. With 0: of what is measured with hosts only the runs with slower syncs.
    pub hosts: Option<usize>,
    /// How often each run is repeated.
    pub rounds: usize,
}

/// A part of the benchmark.
type Part = (&'static str, fn(&Options, &mut Figures) -> Result<()>);

const PARTS: [Part; 9] = [
    ("micro", micro::run),
    ("steps", steps::run),
    ("admission", admission::run),
    ("life", life::run),
    ("chess", life::chess),
    ("chaos", life::chaos),
    ("restart", life::restart),
    ("takeover", takeover::run),
    ("others", others::run),
];

/// Measures and prints. A part that fails is missing, with the reason.
pub fn run(options: &Options) -> Result<()> {
    let mut figures = Figures::default();
    for (name, part) in PARTS.iter().filter(|(name, _)| options.only.as_ref().is_none_or(|only| only == name)) {
        let started = Instant::now();
        eprintln!("bench: {name}");
        if let Err(error) = part(options, &mut figures) {
            eprintln!("bench: {name}: {error}");
            figures.missing(name, &error.to_string());
        }
        figures.add(&format!("{name}_part_s"), Some(started.elapsed().as_secs_f64()));
    }
    figures.print(options.json);
    Ok(())
}

/// The names of the parts.
pub fn parts() -> Vec<&'static str> {
    PARTS.map(|(name, _)| name).to_vec()
}
