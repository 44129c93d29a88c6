//! `gleaner forecast`: what will come of a series, and how good that was foretold so far.

mod follow;
mod live;
mod pox;
pub(in crate::commands) mod trace;

use crate::answers::Render;
use crate::args::Forecast;
use crate::error::{CliError, Result};
use crate::render::{self, Facts, Table};
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
    let trace = trace::read(path, arguments.column.as_deref())?;
    if trace.values.is_empty() {
        let what = format!("{}: there is no number in it", path.display());
        return Err(CliError::user(what).hint("gleaner forecast --help"));
    }
    let points = series::pox(&trace.values);
    if let Some(path) = &arguments.draw {
        std::fs::write(path, pox::svg(&points)).map_err(|error| CliError::file("writing", path, error))?;
    }
    let answer = follow(trace, &arguments.horizon, arguments.from);
    if arguments.json {
        return render::print_json(&answer);
    }
    render::print(&answer.render())?;
    if arguments.pox { render::print(&format!("\n{}", pox::text(&points))) } else { Ok(()) }
}

/// What is said of a trace.
#[derive(Clone, Debug, Serialize)]
struct Followed {
    /// Name of the column.
    column: Option<String>,
    values: usize,
    /// Lines without a number there.
    left_out: usize,
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

fn follow(trace: trace::Trace, horizons: &[usize], from: usize) -> Followed {
    let lags = LAGS.min(trace.values.len() - 1);
    let mut all = horizons.iter().map(|horizon| follow::follow(&trace.values, *horizon, from));
    Followed {
        column: trace.column,
        values: trace.values.len(),
        left_out: trace.left_out,
        last: trace.values[trace.values.len() - 1],
        first: all.next().unwrap_or_else(|| follow::follow(&trace.values, 1, from)),
        further: all.collect(),
        autocorrelations: series::autocorrelations(&trace.values, lags).split_off(1),
        hurst: series::hurst(&series::pox(&trace.values)),
    }
}

/// A number with as many digits as matter.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 1,
        size => (3 - size.log10().floor() as i32).clamp(0, 12) as usize,
    };
    format!("{value:.digits$}")
}

impl Render for Followed {
    fn render(&self) -> String {
        let mut facts = Facts::default();
        if let Some(column) = &self.column {
            facts.fact("column", column);
        }
        let left_out = if self.left_out > 0 { format!(", {} lines without one", self.left_out) } else { String::new() };
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

    #[test]
    fn a_saw_is_followed() {
        let values = (0..400).map(|at| f64::from(at % 4)).collect();
        let followed = follow(trace::Trace { column: Some("load".into()), values, left_out: 1 }, &[1, 30], 100);
        assert_eq!((followed.values, followed.first.scored, followed.first.nws.len()), (400, 300, 2));
        let text = followed.render();
        for part in [
            "column        load\n",
            "400, 1 lines without one",
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
    fn a_single_value_says_little() {
        let followed = follow(trace::Trace { column: None, values: vec![3.0], left_out: 0 }, &[1, 30], 0);
        assert_eq!((followed.first.scored, followed.first.coverage, followed.hurst), (0, None, None));
        assert!(followed.render().ends_with("no forecast was scored yet\n"));
    }

    #[test]
    fn numbers_have_as_many_digits_as_matter() {
        assert_eq!(
            [0.0, 1.0, 0.001_234_56, 98.7654, 123_456.7].map(number),
            ["0.0", "1.000", "0.001235", "98.77", "123457"]
        );
    }
}
