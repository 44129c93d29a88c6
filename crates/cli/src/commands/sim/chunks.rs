//! `gleaner sim chunks`: work that can be divided anywhere, on owners' machines.

use super::linger::{set_all, with_interval};
use super::{on_all_processors, owners, show};
use crate::answers::Render;
use crate::args::Chunks;
use crate::error::{CliError, Result};
use crate::render::Table;
use serde::Serialize;
use sim::chunks::{Outcome, Setting, Way, World};
use sim::cluster::Source;
use sim::parameters::Parameters;
use sim::statistics::Mean;

/// Measurements before the beginning: as many as a worker has of an hour.
const WATCHED: f64 = 360.0;
/// A worker measures so often, in seconds.
const EVERY_S: f64 = 10.0;
/// Of so many worlds the worst is told.
const WORST_OF: usize = 20;

#[derive(Clone, Debug, Serialize)]
struct Answer {
    machines: u32,
    work_s: f64,
    records: u64,
    speed_max: f64,
    every_s: f64,
    /// Files of measured owners.
    traces: usize,
    replicates: u32,
    seed: u64,
    tables: Vec<Costs>,
}

/// With chunks that cost so much.
#[derive(Clone, Debug, Serialize)]
struct Costs {
    overhead_s: f64,
    rows: Vec<Row>,
    /// The part of worlds in which all was done within the interval that was foretold at the beginning.
    held: f64,
}

#[derive(Clone, Debug, Serialize)]
struct Row {
    way: String,
    /// Until all is done, in seconds.
    finish_s: f64,
    /// The true mean is within so much, nineteen times in twenty.
    finish_within_s: f64,
    /// Over the oracle's: in the mean, and no more in nineteen worlds of twenty.
    of_oracle: f64,
    of_oracle_worst: f64,
    /// How long the first machine with nothing to do waited.
    waited_s: f64,
    chunks: f64,
    /// By how much ours is done later, as a part of this one: in the mean of worlds, and within how much of that the true mean is.
    ours_later: f64,
    ours_later_within: f64,
}

/// Simulates.
pub fn run(arguments: &Chunks) -> Result {
    show(&answer(arguments)?, arguments.json, None)
}

fn answer(arguments: &Chunks) -> Result<Answer> {
    let setting = setting(arguments)?;
    let ways: Vec<(String, Way)> = ways(&arguments.fixed);
    let worlds = on_all_processors("worlds", arguments.replicates.into(), |number| {
        let mut world = World::new(&setting, arguments.seed.wrapping_add(number));
        let mut all = |overhead_s: &f64| ways.iter().map(|(_, way)| world.run(*way, *overhead_s)).collect();
        arguments.overhead_s.iter().map(&mut all).collect::<Vec<Vec<Outcome>>>()
    });
    let table = |(at, overhead_s): (usize, &f64)| {
        let worlds: Vec<&[Outcome]> = worlds.iter().map(|world| &world[at][..]).collect();
        costs(*overhead_s, &ways, &worlds)
    };
    Ok(Answer {
        machines: arguments.machines,
        work_s: setting.work_s,
        records: setting.records,
        speed_max: setting.speed_max,
        every_s: setting.every_s,
        traces: arguments.measured.trace.len(),
        replicates: arguments.replicates,
        seed: arguments.seed,
        tables: arguments.overhead_s.iter().enumerate().map(table).collect(),
    })
}

/// The world that is asked for; an error says what is out of bounds.
fn setting(arguments: &Chunks) -> Result<Setting> {
    let mut parameters = Parameters::default();
    set_all(&mut parameters, &arguments.set)?;
    let source = owners::read(&arguments.measured)?;
    let every_s = arguments.every_s.unwrap_or_else(|| EVERY_S.max(arguments.measured.interval.unwrap_or_default()));
    let bounds = [
        ("--work-s", arguments.work_s, 1.0, 1e6),
        ("--speed-max", arguments.speed_max, 1.0, 1e3),
        ("--every-s", every_s, 2.0, 1e5),
    ];
    let overheads = arguments.overhead_s.iter().map(|overhead_s| ("--overhead-s", *overhead_s, 0.0, 1e5));
    for (name, value, least, most) in bounds.into_iter().chain(overheads) {
        if !(least..=most).contains(&value) {
            return Err(CliError::user(format!("{name} is from {least} to {most}, and not {value}")));
        }
    }
    Ok(Setting {
        machines: arguments.machines as usize,
        source: source.unwrap_or_else(|| Source::Drawn(parameters.owners())),
        records: arguments.records,
        work_s: arguments.work_s,
        speed_max: arguments.speed_max,
        every_s,
        watched_s: parameters.get("watched-s").max(WATCHED * every_s),
    })
}

/// All of them, with their names: the last two are ours and the oracle.
fn ways(fixed: &[u32]) -> Vec<(String, Way)> {
    let chunks = |of_each: &u32| (format!("self-scheduling, {of_each} chunks a machine"), Way::Fixed(*of_each));
    let named = |(name, way): (&str, Way)| (name.to_owned(), way);
    let falling = [
        ("guided self-scheduling", Way::Guided),
        ("factoring", Way::Factoring),
        ("one chunk by forecast", Way::Once),
        ("by forecast (ours)", Way::Forecast),
        ("oracle", Way::Oracle),
    ];
    let equal = named(("equal parts", Way::Fixed(1)));
    [equal].into_iter().chain(fixed.iter().map(chunks)).chain(falling.map(named)).collect()
}

fn costs(overhead_s: f64, ways: &[(String, Way)], worlds: &[&[Outcome]]) -> Costs {
    let (ours, oracle) = (ways.len() - 2, ways.len() - 1);
    let mean = |part: &dyn Fn(&[Outcome]) -> f64| {
        Mean::of(&worlds.iter().map(|outcomes| part(outcomes)).collect::<Vec<f64>>())
    };
    let row = |(at, (name, _)): (usize, &(String, Way))| {
        let finish = mean(&|outcomes| outcomes[at].finish_s);
        let later = mean(&|outcomes| outcomes[ours].finish_s / outcomes[at].finish_s - 1.0);
        let of_oracle = |outcomes: &[Outcome]| outcomes[at].finish_s / outcomes[oracle].finish_s;
        let mut sorted: Vec<f64> = worlds.iter().map(|outcomes| of_oracle(outcomes)).collect();
        sorted.sort_by(f64::total_cmp);
        Row {
            way: name.clone(),
            finish_s: finish.value,
            finish_within_s: finish.within,
            of_oracle: mean(&of_oracle).value,
            of_oracle_worst: sorted[sorted.len() - 1 - sorted.len() / WORST_OF],
            waited_s: mean(&|outcomes| outcomes[at].waited_s).value,
            chunks: mean(&|outcomes| outcomes[at].chunks as f64).value,
            ours_later: later.value,
            ours_later_within: later.within,
        }
    };
    let held = mean(&|outcomes| {
        let Outcome { finish_s, foretold, .. } = outcomes[ours];
        let held = |foretold: sched::chunks::Finish| (foretold.soonest_s..=foretold.latest_s).contains(&finish_s);
        f64::from(foretold.is_some_and(held))
    });
    Costs { overhead_s, rows: ways.iter().enumerate().map(row).collect(), held: held.value }
}

impl Render for Answer {
    fn render(&self) -> String {
        let Self { machines, work_s, traces, replicates, every_s, .. } = self;
        let owners = if *traces > 0 { format!("owners of {traces} traces, ") } else { String::new() };
        let mut text = format!(
            "{machines} machines, {work_s} s of work for each, {owners}measured every {every_s} s, {replicates} worlds\n"
        );
        for Costs { overhead_s, rows, held } in &self.tables {
            text.push_str(&format!("\na chunk costs {overhead_s} s\n"));
            let mut table = Table::new(&[
                "DIVIDED",
                "DONE AFTER, S",
                "OVER ORACLE",
                "WORST OF 20",
                "FIRST WAITED, S",
                "CHUNKS",
                "OURS LATER, %",
            ]);
            for row in rows {
                table.row(vec![
                    row.way.clone(),
                    with_interval(row.finish_s, row.finish_within_s),
                    format!("{:.3}", row.of_oracle),
                    format!("{:.3}", row.of_oracle_worst),
                    format!("{:.1}", row.waited_s),
                    format!("{:.0}", row.chunks),
                    format!("{:+.1} ± {:.1}", row.ours_later * 100.0, row.ours_later_within * 100.0),
                ]);
            }
            text.push_str(&table.text(""));
            text.push_str(&format!("ours ended within the interval foretold at the beginning: {:.0}%\n", held * 100.0));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Arguments, Command, Sim, SimCommand};
    use clap::Parser;

    fn chunks(line: &str) -> Chunks {
        let words = ["gleaner", "sim", "chunks"].into_iter().chain(line.split_whitespace());
        match Arguments::try_parse_from(words).expect("sound").command {
            Command::Sim(Sim { what: SimCommand::Chunks(chunks) }) => chunks,
            _ => panic!("another command"),
        }
    }

    #[test]
    fn ways_are_shown_beside_one_another() {
        let line = "--machines 3 --replicates 2 --work-s 60 --records 1000 --overhead-s 0.1,5 --fixed 4";
        let answer = answer(&chunks(line)).expect("sound");
        assert_eq!((answer.tables.len(), answer.tables[0].rows.len()), (2, 7));
        let text = answer.render();
        for part in
            ["3 machines", "a chunk costs 5 s", "4 chunks a machine", "by forecast (ours)", "oracle", "+0.0 ± 0.0"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn bounds_are_told() {
        let error = |line: &str| answer(&chunks(line)).expect_err("out of bounds").message;
        assert_eq!(error("--work-s 0"), "--work-s is from 1 to 1000000, and not 0");
        assert_eq!(error("--overhead-s 1,-2"), "--overhead-s is from 0 to 100000, and not -2");
        assert_eq!(error("--set speed=2"), "there is no parameter `speed`");
    }
}
