//! `gleaner forecast`: what will come of a series, and how good that was foretold so far.

mod drawing;
mod follow;
mod live;
mod pox;
pub(in crate::commands) mod trace;

use crate::answers::Render;
use crate::args::Forecast;
use crate::commands::inputs::{self, Input};
use crate::commands::progress::Progress;
use crate::error::{CliError, Result};
use crate::render::{self, Facts, Table};
use base::units::of;
use follow::Ahead;
use sched::series;
use serde::Serialize;

/// How far back values are compared with themselves.
const LAGS: usize = 10;

/// Forecasts a trace.
pub fn run(arguments: &Forecast) -> Result {
    let Some(path) = &arguments.trace else {
        return if arguments.live.is_some() { live::run(arguments) } else { live::show(arguments) };
    };
    if let Some(drawing) = &arguments.draw {
        let input = if trace::is_stdin(path) { Input::Stdin } else { Input::File(path) };
        inputs::keep([input], drawing)?;
    }
    let trace = trace::read(path, arguments.column.as_deref())?;
    let points = series::pox(&trace.values);
    // A drawing follows the series as well.
    let passes = arguments.horizon.len() * if arguments.draw.is_some() && !arguments.pox { 2 } else { 1 };
    let progress = Progress::new("forecasts", (trace.values.len() * passes) as u64);
    if let Some(drawing) = &arguments.draw {
        let name = trace.column.name.clone().unwrap_or_else(|| trace::name(path));
        let svg = match arguments.pox {
            true => pox::svg(&points),
            false => drawing::svg(&name, &trace.values, &arguments.horizon, &progress),
        };
        std::fs::write(drawing, svg).map_err(|error| CliError::file("writing", drawing, error))?;
    }
    let answer = follow(trace, &arguments.horizon, arguments.from, &progress);
    drop(progress);
    if arguments.json {
        return render::print_json(&answer);
    }
    render::print(&answer.render())?;
    if arguments.pox { render::print(&format!("\n{}", pox::text(&points))) } else { Ok(()) }
}

/// What is said of a trace.
#[derive(Clone, Debug, Serialize)]
struct Followed {
    /// Name of the column, if it has one; which it is, from 1; and of how many.
    column: Option<String>,
    column_number: usize,
    columns: usize,
    /// What these are apart by.
    separator: Option<&'static str>,
    decimal_commas: bool,
    values: usize,
    /// Rows without a number there; and the same by why.
    left_out: usize,
    left_out_rows: Vec<trace::LeftOut>,
    last: f64,
    /// At the first horizon.
    #[serde(flatten)]
    first: Ahead,
    /// At the others.
    further: Vec<Ahead>,
    /// At lags of 1, 2, and so on.
    autocorrelations: Vec<f64>,
    hurst: Option<f64>,
}

fn follow(trace: trace::Trace, horizons: &[usize], from: usize, progress: &Progress) -> Followed {
    let lags = LAGS.min(trace.values.len() - 1);
    let mut all = horizons.iter().map(|horizon| follow::follow(&trace.values, *horizon, from, progress));
    Followed {
        column_number: trace.column.number,
        columns: trace.column.of,
        separator: trace.column.separator,
        decimal_commas: trace.column.has_decimal_commas,
        values: trace.values.len(),
        left_out: trace.rows_left_out(),
        left_out_rows: trace.left_out,
        column: trace.column.name,
        last: trace.values[trace.values.len() - 1],
        first: all.next().unwrap_or_else(|| follow::follow(&trace.values, 1, from, progress)),
        further: all.collect(),
        autocorrelations: series::autocorrelations(&trace.values, lags).split_off(1),
        hurst: series::hurst(&series::pox(&trace.values)),
    }
}

impl Followed {
    /// Which column it is; nothing if there is but one without a name.
    fn column_told(&self) -> Option<String> {
        let separator = self.separator.unwrap_or("commas");
        match (&self.column, self.columns) {
            (name, 0..=1) => name.clone(),
            (Some(name), of) => Some(format!("{name} ({} of {of}, apart by {separator})", self.column_number)),
            (None, of) => Some(format!("{} of {of}, apart by {separator}", self.column_number)),
        }
    }
}

fn left_out_told(left_out: &trace::LeftOut) -> String {
    let trace::LeftOut { rows, first_line, first_cell, .. } = left_out;
    let cell = if first_cell.is_empty() { String::new() } else { format!(", `{first_cell}`") };
    format!("{} that {}: first line {first_line}{cell}", of(*rows as u64, "row"), left_out.said())
}

/// A number with as many digits as matter; with an exponent where there are no such digits near the point.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0.0".to_owned(),
        1e-9..1e15 => {
            let digits = (3 - value.abs().log10().floor() as i32).max(0) as usize;
            format!("{value:.digits$}")
        }
        _ => format!("{value:.3e}"),
    }
}

impl Render for Followed {
    fn render(&self) -> String {
        let mut facts = Facts::default();
        if let Some(column) = self.column_told() {
            facts.fact("column", column);
        }
        if self.decimal_commas {
            facts.fact("numbers", "with decimal commas");
        }
        let left_out = if self.left_out > 0 {
            format!(", {} without one", of(self.left_out as u64, "line"))
        } else {
            String::new()
        };
        facts.list("left out", &self.left_out_rows.iter().map(left_out_told).collect::<Vec<_>>());
        facts.fact("values", format!("{}{left_out}", self.values)).fact("last", number(self.last));
        let correlation = self.autocorrelations.first().map(|one| format!("{one:.2} from one to the next"));
        let hurst = self.hurst.map(|hurst| format!("HURST {hurst:.2}"));
        let memory: Vec<String> = correlation.into_iter().chain(hurst).collect();
        facts.fact("memory", memory.join(", "));
        let mut text = facts.text().to_owned();
        for ahead in [&self.first].into_iter().chain(&self.further) {
            text.push('\n');
            text.push_str(&ahead.render());
        }
        text
    }
}

impl Render for Ahead {
    fn render(&self) -> String {
        let mut facts = Facts::default();
        let name = if self.horizon == 1 { "next".to_owned() } else { format!("next {}", self.horizon) };
        if let Some(next) = &self.next {
            let mean = if self.horizon == 1 { "" } else { " in the mean" };
            let interval = format!("{} to {} nine times in ten", number(next.low), number(next.high));
            facts.fact(&name, format!("{}{mean}, {interval}", number(next.value)));
        }
        if let (Some(coverage), Some(width)) = (self.coverage, self.width) {
            let told =
                format!("{:.1}% of {} within, {} wide in the mean", coverage * 100.0, self.scored, number(width));
            facts.fact("intervals", told);
        }
        let mut table = Table::new(&["FORECAST", "MAE", "MSE"]);
        for errors in self.weighed.iter().chain(&self.nws).chain(&self.forecasters) {
            table.row(vec![errors.name.clone(), number(errors.mae), number(errors.mse)]);
        }
        format!("{}{}", facts.text(), table.text("no forecast was scored yet"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Arguments, Command};
    use clap::Parser;

    #[test]
    fn a_saw_is_followed() {
        let values = (0..400).map(|at| f64::from(at % 4)).collect();
        let column = trace::Column { name: Some("load".into()), number: 1, of: 1, ..Default::default() };
        let why = trace::LeftOut { why: "have no number there", rows: 1, first_line: 7, first_cell: "full".into() };
        let followed =
            follow(trace::Trace { column, values, left_out: vec![why] }, &[1, 30], 100, &Progress::new("", 0));
        assert_eq!((followed.values, followed.first.scored, followed.first.nws.len()), (400, 300, 2));
        let text = followed.render();
        for part in [
            "column        load\n",
            "400, 1 line without one",
            "left out      1 row that has no number there: first line 7, `full`\n",
            "nine times in ten",
            "last value",
            "all, weighed",
            "next 30 ",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let weighed = followed.first.weighed.as_ref().expect("scored").mae;
        assert!(followed.first.forecasters[0].name.starts_with("AR(16)") && weighed < 0.3, "{text}");
    }

    #[test]
    fn a_drawing_replaces_no_trace() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("load.csv");
        std::fs::write(&path, "1\n2\n").expect("written");
        let file = path.to_str().expect("UTF-8");
        let line = ["gleaner", "forecast", "--trace", file, "--draw", file];
        let Command::Forecast(asked) = Arguments::try_parse_from(line).expect("sound").command else {
            panic!("another")
        };
        let error = run(&asked).expect_err("it is read");
        assert!(error.message.contains("is the file that --trace reads") && error.hint.is_some(), "{error}");
        assert_eq!(std::fs::read(&path).expect("there"), b"1\n2\n");
    }

    #[test]
    fn a_single_value_says_little() {
        let followed =
            follow(trace::Trace { values: vec![3.0], ..Default::default() }, &[1, 30], 0, &Progress::new("", 0));
        assert_eq!((followed.first.scored, followed.first.coverage, followed.hurst), (0, None, None));
        assert!(followed.render().ends_with("no forecast was scored yet\n"));
    }

    #[test]
    fn numbers_have_as_many_digits_as_matter() {
        assert_eq!(
            [0.0, 1.0, 0.001_234_56, 98.7654, 123_456.7].map(number),
            ["0.0", "1.000", "0.001235", "98.77", "123457"]
        );
        assert_eq!(
            [1e100, -2.5e15, 1.5e-9, 1.234_56e-300].map(number),
            ["1.000e100", "-2.500e15", "0.000000001500", "1.235e-300"]
        );
    }
}
