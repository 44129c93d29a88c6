//! `gleaner sim bursts`: what owners' bursts leave to a guest, in closed form and burst by burst.

use super::show;
use crate::answers::Render;
use crate::args::{self, OwnersBursts};
use crate::error::{CliError, Result};
use crate::render::Table;
use serde::Serialize;
use sim::bursts::{Bursts, explicit};
use sim::dice::Dice;

/// What owners use in the rows.
const USED: [f64; 8] = [0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 0.95];

#[derive(Clone, Debug, Serialize)]
struct Row {
    used: f64,
    guest: f64,
    guest_explicit: f64,
    owner_slowdown: f64,
    owner_slowdown_explicit: f64,
}

#[derive(Clone, Debug, Serialize)]
struct Answer {
    rows: Vec<Row>,
}

/// As the arguments have it; an error says which is out of bounds.
pub fn of(owners: &OwnersBursts) -> Result<Bursts> {
    let OwnersBursts { run_ms, burst_variation: variation, switch_us } = *owners;
    let bounds = [
        ("--run-ms", run_ms, 0.01, 1e5),
        ("--burst-variation", variation, 1.0, 1e4),
        ("--switch-us", switch_us, 0.0, 1e5),
    ];
    for (name, value, least, most) in bounds {
        if !(least..=most).contains(&value) {
            return Err(CliError::user(format!("{name} is from {least} to {most}, and not {value}")));
        }
    }
    Ok(Bursts { run_s: run_ms / 1e3, variation, switch_s: switch_us / 1e6 })
}

/// Compares both.
pub fn run(arguments: &args::Bursts) -> Result {
    let bursts = of(&arguments.owners)?;
    let seconds = arguments.seconds;
    if !(1.0..=1e7).contains(&seconds) {
        return Err(CliError::user(format!("--seconds is from 1 to 10000000, and not {seconds}")));
    }
    let row = |(used, part): (f64, u64)| {
        let (closed, found) =
            (bursts.shares(used), explicit(&bursts, used, seconds, &mut Dice::new(arguments.seed, part)));
        Row {
            used,
            guest: closed.guest,
            guest_explicit: found.guest,
            owner_slowdown: closed.slowdown,
            owner_slowdown_explicit: found.slowdown,
        }
    };
    let answer = Answer { rows: USED.into_iter().zip(0..).map(row).collect() };
    show(&answer, arguments.json, None)
}

impl Render for Answer {
    fn render(&self) -> String {
        let mut table = Table::new(&["OWNER USES", "GUEST GETS", "BURST BY BURST", "OWNER SLOWER", "BURST BY BURST"]);
        let part = |value: f64| format!("{:.2}%", value * 100.0);
        for row in &self.rows {
            let values = [row.used, row.guest, row.guest_explicit, row.owner_slowdown, row.owner_slowdown_explicit];
            table.row(values.map(part).to_vec());
        }
        table.text("")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_told() {
        let of = |run_ms, burst_variation, switch_us| of(&OwnersBursts { run_ms, burst_variation, switch_us });
        let error = of(0.0, 4.0, 100.0).expect_err("no run");
        assert_eq!(error.message, "--run-ms is from 0.01 to 100000, and not 0");
        assert!(of(20.0, 0.5, 100.0).is_err() && of(20.0, 4.0, f64::NAN).is_err());
        assert_eq!(of(20.0, 4.0, 100.0).expect("sound"), Bursts::default());
    }
}
