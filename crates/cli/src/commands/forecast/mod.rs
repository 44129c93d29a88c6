//! `gleaner forecast`: what will come of a series, and how good that was foretold so far.

pub(in crate::commands) mod trace;

use crate::answers::Render;
use crate::args::Forecast;
use crate::error::{CliError, Result};
use crate::render::{self, Facts, Table};
use sched::forecast::selection::Selection;
use sched::forecast::{Forecaster, Score, Tally};
use sched::series;
use serde::Serialize;

/// How far back values are compared with themselves.
const LAGS: usize = 10;

/// Forecasts a trace.
pub fn run(arguments: &Forecast) -> Result {
    let trace = trace::read(&arguments.trace, arguments.column.as_deref())?;
    if trace.values.is_empty() {
        let what = format!("{}: there is no number in it", arguments.trace.display());
        return Err(CliError::user(what).hint("gleaner forecast --help"));
    }
    let answer = follow(trace, arguments.from);
    if arguments.json { render::print_json(&answer) } else { render::print(&answer.render()) }
}

/// How good a forecaster was.
#[derive(Clone, Debug, Serialize)]
struct Errors {
    name: &'static str,
    /// Mean absolute error.
    mae: f64,
    /// Mean squared error.
    mse: f64,
}

/// A value to come.
#[derive(Clone, Copy, Debug, Serialize)]
struct Next {
    value: f64,
    low: f64,
    high: f64,
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
    next: Option<Next>,
    /// Forecasts of which errors and coverage tell.
    scored: u64,
    /// How many values lay within their intervals.
    coverage: Option<f64>,
    /// Mean width of the intervals.
    width: Option<f64>,
    /// The forecast's errors.
    weighed: Option<Errors>,
    /// Those of the Network Weather Service's choices, by squared and by absolute errors.
    nws: Vec<Errors>,
    /// Those of each forecaster.
    forecasters: Vec<Errors>,
    /// At lags of 1, 2, and so on.
    autocorrelations: Vec<f64>,
    hurst: Option<f64>,
}

impl From<Score> for Errors {
    fn from(Score { name, mae, mse }: Score) -> Self {
        Self { name, mae, mse }
    }
}

fn follow(trace: trace::Trace, from: usize) -> Followed {
    let (mut forecaster, mut selection, mut nws) = (Forecaster::default(), Selection::default(), [Tally::default(); 2]);
    for (step, value) in trace.values.iter().enumerate() {
        if step == from {
            forecaster.count_anew();
            nws = Default::default();
        }
        if forecaster.next().is_some() {
            for (tally, by_squares) in nws.iter_mut().zip([true, false]) {
                tally.add(selection.forecast(forecaster.each(), by_squares) - value);
            }
            selection.learn(forecaster.each(), *value);
        }
        forecaster.observe(*value);
    }
    if from >= trace.values.len() {
        forecaster.count_anew();
    }
    let scored = forecaster.scored();
    let is_scored = scored > 0;
    let mut forecasters: Vec<Errors> =
        forecaster.scores().map(Errors::from).into_iter().filter(|_| is_scored).collect();
    forecasters.sort_by(|one, other| one.mae.total_cmp(&other.mae));
    let nws = ["NWS, by squared errors", "NWS, by absolute errors"].into_iter().zip(nws);
    let lags = LAGS.min(trace.values.len() - 1);
    Followed {
        column: trace.column,
        values: trace.values.len(),
        left_out: trace.left_out,
        last: trace.values[trace.values.len() - 1],
        next: forecaster.next().map(|next| Next { value: next.value, low: next.low, high: next.high }),
        scored,
        coverage: is_scored.then(|| forecaster.coverage()),
        width: is_scored.then(|| forecaster.width()),
        weighed: is_scored.then(|| forecaster.own_score().into()),
        nws: nws.map(|(name, tally)| tally.score(name, scored).into()).filter(|_| is_scored).collect(),
        forecasters,
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
        if let Some(next) = &self.next {
            let interval = format!("{} to {} nine times in ten", number(next.low), number(next.high));
            facts.fact("next", format!("{}, {interval}", number(next.value)));
        }
        if let (Some(coverage), Some(width)) = (self.coverage, self.width) {
            let told =
                format!("{:.1}% of {} within, {} wide in the mean", coverage * 100.0, self.scored, number(width));
            facts.fact("intervals", told);
        }
        let correlation = self.autocorrelations.first().map(|one| format!("{one:.2} from one to the next"));
        let hurst = self.hurst.map(|hurst| format!("HURST {hurst:.2}"));
        let memory: Vec<String> = correlation.into_iter().chain(hurst).collect();
        facts.fact("memory", memory.join(", "));
        let mut table = Table::new(&["FORECAST", "MAE", "MSE"]);
        for errors in self.weighed.iter().chain(&self.nws).chain(&self.forecasters) {
            table.row(vec![errors.name.to_owned(), number(errors.mae), number(errors.mse)]);
        }
        format!("{}\n{}", facts.text(), table.text("no forecast was scored yet"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saw_is_followed() {
        let values = (0..400).map(|at| f64::from(at % 4)).collect();
        let followed = follow(trace::Trace { column: Some("load".into()), values, left_out: 1 }, 100);
        assert_eq!((followed.values, followed.scored, followed.nws.len()), (400, 300, 2));
        let text = followed.render();
        for part in
            ["column        load\n", "400, 1 lines without one", "nine times in ten", "last value", "all, weighed"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        let weighed = followed.weighed.expect("scored").mae;
        assert!(followed.forecasters[0].name.starts_with("AR(16)") && weighed < 0.3, "{text}");
    }

    #[test]
    fn a_single_value_says_little() {
        let followed = follow(trace::Trace { column: None, values: vec![3.0], left_out: 0 }, 0);
        assert_eq!((followed.scored, followed.coverage, followed.hurst), (0, None, None));
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
