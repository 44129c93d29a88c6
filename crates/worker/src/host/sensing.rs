//! What this machine has to spare, now and soon: every ten seconds counters are read, and of what they say forecasts are made, for a guest
//! and for a process of full priority. Everything is kept in memory, for a day.

use super::counters::Reader;
use rustix::time::{ClockId, clock_gettime};
use sched::forecast::{Forecast, Forecaster, Score};
use sched::sense::bound::Bound;
use sched::sense::load::{Group, Load, Reading};
use sched::sense::share::{self, Newcomer};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;
use wire::message::Expected;

/// From one reading to the next.
pub const EVERY: Duration = Duration::from_secs(10);
/// Steps of the longer forecast: five minutes.
pub const FAR_STEPS: usize = 30;
/// Forecasts of five minutes that must have come true or not before they are told to others; until then those of one step are.
const FAR_SCORED: u64 = 5;
/// What is told to others is in steps of so many thousandths: they need not hear of every breath.
const STEP: u32 = 25;
/// The same of the mean error.
const ERROR_STEP: u32 = 5;
/// Values that are kept: a day.
const HISTORY_MAX: usize = 8_640;

/// Reads, and foretells.
#[derive(Debug)]
pub struct Sensing {
    reader: Reader,
    before: Option<Reading>,
    every: Duration,
    /// One like this process, with the processors that it may use.
    newcomer: Newcomer,
    guest: Series,
    full: Series,
    /// Processor time of all readings and forecasts, and the time since the first one, in nanoseconds.
    cost_ns: u64,
    elapsed_ns: u64,
}

/// A series of measurements, and what is foretold of it.
#[derive(Debug)]
struct Series {
    values: VecDeque<f64>,
    near: Forecaster,
    far: Forecaster,
}

/// What there is to spare, as parts of one processor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// From one reading to the next, in seconds.
    pub every_s: f64,
    /// What a guest of idle class gets.
    pub guest: SeriesReport,
    /// What a new process of full priority gets.
    pub full_priority: SeriesReport,
    /// Processor time of readings and forecasts, as a part of one processor.
    pub cost: f64,
}

/// One of both.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SeriesReport {
    /// The last value; none before two readings.
    pub now: Option<f64>,
    /// The newest last.
    pub history: Vec<f64>,
    /// What comes: the next value, and the mean of the next five minutes.
    pub next: Vec<Ahead>,
}

/// What is foretold.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ahead {
    /// Of the mean of so many values.
    pub steps: usize,
    /// Nothing before the first value.
    pub value: Option<f64>,
    /// It lies between these nine times in ten.
    pub low: Option<f64>,
    /// See `low`.
    pub high: Option<f64>,
    /// Forecasts that were scored so far.
    pub scored: u64,
    /// Their mean absolute error.
    pub mae: Option<f64>,
    /// How many of them had what came within their interval.
    pub coverage: Option<f64>,
    /// The forecaster that was best so far, and its mean absolute error.
    pub best: Option<(String, f64)>,
}

impl Sensing {
    /// Of a worker whose guests are in the cgroup of this name, with a reading every so often: [`EVERY`], but for a look. A newcomer of full
    /// priority is like this process.
    pub fn new(guests: Option<&str>, every: Duration) -> Self {
        let mut reader = Reader::new(guests);
        let path: Vec<Group> = reader.path(std::process::id()).unwrap_or_default();
        Self {
            reader,
            before: None,
            every,
            newcomer: Newcomer { path, cpus: own_processors() },
            guest: Series::default(),
            full: Series::default(),
            cost_ns: 0,
            elapsed_ns: 0,
        }
    }

    /// Reads once. To be called at even times, from a thread that may wait for files. `aside`: the part of the time since the last reading in which
    /// guests stood aside, and got nothing. `bound`: what a container lets them have, if it does.
    pub fn step(&mut self, aside: f64, bound: Option<Bound>) -> std::io::Result<()> {
        let began = thread_ns();
        let reading = self.reader.read()?;
        if let Some(before) = &self.before {
            self.elapsed_ns += reading.at_ns.saturating_sub(before.at_ns);
            if let Some(load) = Load::between(before, &reading) {
                let (left, among_equals) = bound.map_or((1.0, 1.0), |bound| (bound.left(), bound.among_equals()));
                let guest = share::guest(&load, &self.newcomer.cpus) * (1.0 - aside.clamp(0.0, 1.0));
                self.guest.observe(guest.min(left));
                self.full.observe(share::full_priority(&load, &self.newcomer).min(among_equals));
            }
        }
        self.before = Some(reading);
        self.cost_ns += thread_ns().saturating_sub(began);
        Ok(())
    }

    /// What a guest got last, or would have got, as a part of one processor.
    pub fn spare(&self) -> Option<f64> {
        self.guest.values.back().copied()
    }

    /// What a guest that comes now will get, for those who place tasks; nothing before the first forecast.
    pub fn expected(&self) -> Option<Expected> {
        let Series { near, far, .. } = &self.guest;
        let told = if far.scored() >= FAR_SCORED { far } else { near };
        let Forecast { value, low, high } = told.next()?;
        let permille = |part: f64| (part.clamp(0.0, 1.0) * 1e3).round() as u32;
        let rough = |part: f64| (permille(part) + STEP / 2) / STEP * STEP;
        Some(Expected {
            mean: rough(value),
            low: rough(low),
            high: rough(high),
            error: permille(told.own_score().mae) / ERROR_STEP * ERROR_STEP,
            covered: rough(told.coverage()),
        })
    }

    /// What is known. `history`: at most so many values.
    pub fn report(&self, history: usize) -> Report {
        Report {
            every_s: self.every.as_secs_f64(),
            guest: self.guest.report(history),
            full_priority: self.full.report(history),
            cost: self.cost_ns as f64 / self.elapsed_ns.max(1) as f64,
        }
    }
}

impl Default for Series {
    fn default() -> Self {
        Self { values: VecDeque::new(), near: Forecaster::over(1), far: Forecaster::over(FAR_STEPS) }
    }
}

impl Series {
    fn observe(&mut self, value: f64) {
        if self.values.len() == HISTORY_MAX {
            self.values.pop_front();
        }
        self.values.push_back(value);
        self.near.observe(value);
        self.far.observe(value);
    }

    fn report(&self, history: usize) -> SeriesReport {
        let from = self.values.len().saturating_sub(history);
        SeriesReport {
            now: self.values.back().copied(),
            history: self.values.range(from..).copied().collect(),
            next: vec![ahead(&self.near), ahead(&self.far)],
        }
    }
}

fn ahead(forecaster: &Forecaster) -> Ahead {
    let Forecast { value, low, high } = forecaster.next().unwrap_or(Forecast { value: 0.0, low: 0.0, high: 0.0 });
    let some = forecaster.next().is_some();
    let scored = forecaster.scored();
    let best = forecaster.scores().into_iter().min_by(|one, other| one.mae.total_cmp(&other.mae));
    Ahead {
        steps: forecaster.horizon(),
        value: some.then_some(value),
        // There is no less than nothing, and no more than a processor.
        low: some.then_some(low.clamp(0.0, 1.0)),
        high: some.then_some(high.clamp(0.0, 1.0)),
        scored,
        mae: (scored > 0).then(|| forecaster.own_score().mae),
        coverage: (scored > 0).then(|| forecaster.coverage()),
        best: best.filter(|_| scored > 0).map(|Score { name, mae, .. }| (name, mae)),
    }
}

/// The processors that this process may use: its guests have no others. None: not known.
fn own_processors() -> Vec<u32> {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else { return Vec::new() };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).map(|cpu| cpu as u32).collect()
}

fn thread_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_readings_make_a_value_and_a_forecast() {
        let mut sensing = Sensing::new(None, EVERY);
        assert!(sensing.report(5).guest.now.is_none() && sensing.report(5).guest.next[1].value.is_none());
        for _ in 0..3 {
            sensing.step(0.0, None).expect("counters");
            let began = std::time::Instant::now();
            while began.elapsed().as_millis() < 120 {
                std::hint::spin_loop();
            }
        }
        let report = sensing.report(1);
        assert!(
            sensing
                .expected()
                .is_some_and(|told| told.low <= told.mean && told.mean <= told.high && told.high <= 1_000)
        );
        for series in [&report.guest, &report.full_priority] {
            assert!(series.now.is_some_and(|now| (0.0..=1.0).contains(&now)), "{report:?}");
            assert_eq!((series.history.len(), series.next[0].steps, series.next[1].steps), (1, 1, FAR_STEPS));
        }
        assert!(report.cost > 0.0 && report.cost < 1.0, "{}", report.cost);
    }

    #[test]
    fn a_day_is_kept() {
        let mut series = Series { far: Forecaster::over(2), ..Series::default() };
        (0..HISTORY_MAX + 5).for_each(|at| series.observe((at % 7) as f64));
        assert_eq!((series.values.len(), series.report(3).history.len()), (HISTORY_MAX, 3));
    }
}
