//! `gleaner sim`: what policies would do, in virtual time.

mod bursts;
mod chart;
mod chunks;
mod linger;
mod owners;
mod parallel;
mod sweep;

use crate::answers::Render;
use crate::args::{Sim, SimCommand};
use crate::commands::progress::Progress;
use crate::error::{CliError, Result};
use crate::render::{self, Table};
use serde::Serialize;
use sim::parameters::PARAMETERS;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Simulates.
pub fn run(arguments: &Sim) -> Result {
    match &arguments.what {
        SimCommand::Linger(linger) => linger::run(linger),
        SimCommand::Parallel(parallel) => parallel::run(parallel),
        SimCommand::Bursts(bursts) => bursts::run(bursts),
        SimCommand::Chunks(chunks) => chunks::run(chunks),
        SimCommand::Parameters => {
            let mut table = Table::new(&["NAME", "DEFAULT", "FROM", "TO", "WHAT"]);
            for parameter in &PARAMETERS {
                let (least, most) = parameter.bounds;
                let numbers = [parameter.default, least, most].map(|value| value.to_string());
                let cells = [vec![parameter.name.to_owned()], numbers.to_vec(), vec![parameter.about.to_owned()]];
                table.row(cells.concat());
            }
            render::print(&table.text(""))
        }
    }
}

/// Prints an answer, and draws it if that was asked for.
fn show(answer: &(impl Render + Serialize), is_json: bool, drawing: Option<(&Path, String)>) -> Result {
    if let Some((path, drawing)) = drawing {
        std::fs::write(path, drawing).map_err(|error| CliError::file("writing", path, error))?;
    }
    if is_json { render::print_json(answer) } else { render::print(&answer.render()) }
}

/// Something for each number below `count`, made on all processors, in order. A terminal shows how far it is, and `what` it is of.
fn on_all_processors<T: Send>(what: &str, count: u64, make: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let progress = Progress::new(what, count);
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let work = || {
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return done;
            }
            done.push((number, make(number)));
            progress.done();
        }
    };
    let mut all: Vec<(u64, T)> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        // One that panicked ends all of this.
        running
            .into_iter()
            .flat_map(|thread| thread.join().unwrap_or_else(|why| std::panic::resume_unwind(why)))
            .collect()
    });
    // Sums must not depend on who was first.
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, made)| made).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Arguments, Command, Linger};
    use clap::Parser;

    /// The arguments of a line.
    pub fn linger(line: &str) -> Linger {
        let words = ["gleaner", "sim", "linger"].into_iter().chain(line.split_whitespace());
        match Arguments::try_parse_from(words).expect("sound").command {
            Command::Sim(Sim { what: SimCommand::Linger(linger) }) => linger,
            _ => panic!("another command"),
        }
    }

    #[test]
    fn lines_that_make_no_sense_are_refused() {
        for (line, says) in [
            ("--sweep jobs", "NAME=FROM..TO"),
            ("--set jobs=many", "`many` is no number"),
            ("--trace a.csv", "--interval"),
            ("--policy XX", "LL, LF, IE, PM, FL"),
            ("--machines 100001", "100001"),
        ] {
            let words = ["gleaner", "sim", "linger"].into_iter().chain(line.split_whitespace());
            let error = Arguments::try_parse_from(words).expect_err("no sense").to_string();
            assert!(error.contains(says), "{line}: {error}");
        }
    }

    #[test]
    fn a_drawing_replaces_no_measurements() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.csv");
        std::fs::write(&path, "1\n2\n").expect("written");
        let file = path.display();
        let error =
            linger::run(&linger(&format!("--trace {file} --interval 5 --draw {file}"))).expect_err("it is read");
        assert!(error.message.contains("is the file that --trace reads"), "{error}");
        assert_eq!(std::fs::read(&path).expect("there"), b"1\n2\n");
    }

    #[test]
    fn numbers_come_in_order() {
        assert_eq!(
            on_all_processors("numbers", 100, |number| number * 2),
            (0..100).map(|at| at * 2).collect::<Vec<u64>>()
        );
    }
}
