//! A series, foretold step by step at one horizon, beside what the Network Weather Service had chosen.

use crate::commands::progress::Progress;
use sched::forecast::selection::Selection;
use sched::forecast::{Forecaster, Score, Tally};
use serde::Serialize;
use std::collections::VecDeque;

/// How good a forecaster was.
#[derive(Clone, Debug, Serialize)]
pub struct Errors {
    pub name: String,
    /// Mean absolute error.
    pub mae: f64,
    /// Mean squared error.
    pub mse: f64,
}

/// What is to come.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Next {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// What is said of the mean of the next values.
#[derive(Clone, Debug, Serialize)]
pub struct Ahead {
    /// Of how many.
    pub horizon: usize,
    pub next: Option<Next>,
    /// Forecasts of which errors and coverage tell.
    pub scored: u64,
    /// How many had what came within their intervals.
    pub coverage: Option<f64>,
    /// Mean width of the intervals.
    pub width: Option<f64>,
    /// The forecast's errors.
    pub weighed: Option<Errors>,
    /// Those of the Network Weather Service's choices, by squared and by absolute errors.
    pub nws: Vec<Errors>,
    /// Those of each forecaster.
    pub forecasters: Vec<Errors>,
}

impl From<Score> for Errors {
    fn from(Score { name, mae, mse }: Score) -> Self {
        Self { name, mae, mse }
    }
}

/// Foretells a series. Errors count of what was foretold of the values from this one on.
pub fn follow(values: &[f64], horizon: usize, from: usize, progress: &Progress) -> Ahead {
    let mut forecaster = Forecaster::over(horizon);
    let mut nws = Nws::new(forecaster.each().len());
    for (step, value) in values.iter().enumerate() {
        if step == from {
            forecaster.count_anew();
            nws.told = Default::default();
        }
        if let Some(came) = forecaster.observe(*value) {
            nws.learn(came, step + 1 >= from + horizon);
        }
        nws.forecast(forecaster.each());
        progress.done();
    }
    if from >= values.len() {
        forecaster.count_anew();
    }
    let scored = forecaster.scored();
    let is_scored = scored > 0;
    let mut forecasters: Vec<Errors> =
        forecaster.scores().into_iter().map(Errors::from).filter(|_| is_scored).collect();
    forecasters.sort_by(|one, other| one.mae.total_cmp(&other.mae));
    let nws = ["NWS, by squared errors", "NWS, by absolute errors"].into_iter().zip(nws.told);
    Ahead {
        horizon: forecaster.horizon(),
        next: forecaster.next().map(|next| Next { value: next.value, low: next.low, high: next.high }),
        scored,
        coverage: is_scored.then(|| forecaster.coverage()),
        width: is_scored.then(|| forecaster.width()),
        weighed: is_scored.then(|| forecaster.own_score().into()),
        nws: nws.map(|(name, tally)| tally.score(name, scored).into()).filter(|_| is_scored).collect(),
        forecasters,
    }
}

/// The choices of the Network Weather Service, among the same forecasters.
struct Nws {
    selection: Selection,
    /// What all foretold, and what was chosen of it, until it has come.
    pending: VecDeque<(Vec<f64>, [f64; 2])>,
    told: [Tally; 2],
}

impl Nws {
    fn new(count: usize) -> Self {
        Self { selection: Selection::new(count), pending: VecDeque::new(), told: Default::default() }
    }

    fn learn(&mut self, came: f64, counts: bool) {
        let Some((each, chosen)) = self.pending.pop_front() else { return };
        if counts {
            self.told.iter_mut().zip(chosen).for_each(|(tally, chosen)| tally.add(chosen - came));
        }
        self.selection.learn(&each, came);
    }

    fn forecast(&mut self, each: &[f64]) {
        let chosen = [true, false].map(|by_squares| self.selection.forecast(each, by_squares));
        self.pending.push_back((each.to_vec(), chosen));
    }
}
