//! What this machine has to spare, sensed by its worker or for a while, and foretold.

use super::number;
use crate::answers::Render;
use crate::args::Forecast;
use crate::commands::guests::told_by_worker;
use crate::error::{CliError, Result};
use crate::parts;
use crate::render::{self, Facts, Table};
use std::time::Duration;
use worker::host::sensing::{Ahead, Report, SeriesReport};

/// Values of the past that are told as JSON.
const HISTORY: usize = 360;

/// Senses, and tells.
pub fn run(arguments: &Forecast) -> Result {
    let time = Duration::from_secs(arguments.live.unwrap_or_default());
    let every = Duration::from_secs(arguments.every);
    let report = parts::sense(time, every, HISTORY).map_err(|error| CliError::environment(error.to_string()))?;
    if report.guest.now.is_none() {
        let verb = if time.as_secs() == 1 { "is" } else { "are" };
        let what = format!("{} s {verb} too short for two readings", time.as_secs());
        return Err(CliError::user(what).hint("gleaner forecast --live 60 --every 2"));
    }
    if arguments.json { render::print_json(&report) } else { render::print(&report.render()) }
}

/// Tells what the worker of this machine has sensed since its start.
pub fn show(arguments: &Forecast) -> Result {
    let told = told_by_worker(arguments.state.as_ref(), &serde_json::json!({"ask": "forecast"}))?;
    if arguments.json {
        return render::print_json(&told);
    }
    let report = serde_json::from_value::<Report>(told).map_err(|error| {
        CliError::environment(format!("the worker's answer is not understood: {error}"))
            .hint("is it of another version? restart it")
    })?;
    render::print(&report.render())
}

fn part(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{:.1}%", value * 100.0))
}

fn rows(table: &mut Table, name: &str, series: &SeriesReport) {
    for ahead in &series.next {
        let Ahead { steps, value, low, high, scored, mae, coverage, best } = ahead;
        let what = if *steps == 1 { "next".to_owned() } else { format!("next {steps}") };
        let best = best.as_ref().map_or_else(|| "-".to_owned(), |(name, _)| name.clone());
        let interval = format!("{} to {}", part(*low), part(*high));
        let errors = [scored.to_string(), part(*mae), part(*coverage), best];
        table.row([vec![name.to_owned(), part(series.now), what, part(*value), interval], errors.to_vec()].concat());
    }
}

impl Render for Report {
    fn render(&self) -> String {
        let mut facts = Facts::default();
        facts.fact("readings", format!("every {} s", number(self.every_s)));
        facts.fact("cost", format!("{:.3}% of a processor", self.cost * 100.0));
        let mut table =
            Table::new(&["FOR", "NOW", "AHEAD", "FORECAST", "NINE IN TEN", "SCORED", "ERROR", "WITHIN", "BEST SO FAR"]);
        rows(&mut table, "a guest", &self.guest);
        rows(&mut table, "full priority", &self.full_priority);
        format!("{}{}", facts.text(), table.text("nothing was sensed yet"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_series_are_told_at_both_horizons() {
        let ahead = |steps| Ahead {
            steps,
            value: Some(0.5),
            low: Some(0.25),
            high: Some(1.0),
            scored: 7,
            mae: Some(0.01),
            coverage: Some(0.9),
            best: Some(("last value".to_owned(), 0.02)),
        };
        let series = SeriesReport { now: Some(0.75), history: vec![0.75], next: vec![ahead(1), ahead(30)] };
        let report = Report { every_s: 10.0, guest: series.clone(), full_priority: series, cost: 0.0004 };
        let text = report.render();
        for part in ["0.040% of a processor", "a guest", "full priority", "next 30", "25.0% to 100.0%", "last value"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let nothing = SeriesReport { now: None, history: Vec::new(), next: vec![Ahead { value: None, ..ahead(1) }] };
        assert!(Report { guest: nothing, ..report }.render().contains(" -  "));
    }
}
