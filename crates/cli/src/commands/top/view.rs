//! What `gleaner top` has to show: the last answer, and what the last minute was like. No clock here: times come with what happens.

use client::report::{BatchLine, Overview, WorkerStatus};
use hub::figures::Figures;
use serde::Deserialize;
use std::collections::VecDeque;

/// For how long rates are shown, in milliseconds, and how many of them at most.
const MINUTE_MS: u64 = 60_000;
const RATES_MAX: usize = 600;

/// A key that means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// That is all.
    End,
    /// The busiest workers come first.
    ByCpus,
    /// Workers come by name.
    ByName,
    /// Help is shown, or no more.
    Help,
}

/// How often something happened, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Tasks submitted.
    pub submitted: f64,
    /// Instances dispatched.
    pub dispatched: f64,
    /// Tasks that ended and were taken.
    pub ended: f64,
    /// Those of them that failed.
    pub failed: f64,
}

impl Rates {
    /// From one answer to a later one of the same hub, by its clock.
    pub fn between(before: &Figures, after: &Figures) -> Option<Self> {
        let passed_ms = after.uptime_ms.checked_sub(before.uptime_ms).filter(|passed| *passed > 0)?;
        let rate = |of: fn(&Figures) -> u64| {
            let happened = of(after).checked_sub(of(before))?;
            Some(happened as f64 * 1000.0 / passed_ms as f64)
        };
        Some(Self {
            submitted: rate(|figures| figures.totals.submitted)?,
            dispatched: rate(|figures| figures.totals.dispatched)?,
            ended: rate(|figures| figures.totals.done + figures.totals.failed)?,
            failed: rate(|figures| figures.totals.failed)?,
        })
    }
}

/// All that is shown.
#[derive(Debug, Default)]
pub struct View {
    /// From one question to the next, in milliseconds.
    pub interval_ms: u64,
    /// The last answer that had figures.
    pub overview: Overview,
    /// Its figures; none if there was no such answer yet.
    pub figures: Option<Figures>,
    /// When that was, in milliseconds.
    pub answered_ms: u64,
    /// What hindered since, if something did.
    pub problem: Option<String>,
    /// Workers come by name, not by how busy they are.
    pub by_name: bool,
    /// Help is shown.
    pub helps: bool,
    rates: VecDeque<(u64, Rates)>,
}

impl View {
    /// Nothing yet; it is asked once in so many milliseconds.
    pub fn with_interval(interval_ms: u64) -> Self {
        Self { interval_ms, ..Self::default() }
    }

    /// Takes an answer, which came at `now_ms`, or why there is none.
    pub fn take(&mut self, answer: Result<Overview, String>, now_ms: u64) {
        let overview = match answer {
            Ok(overview) => overview,
            Err(problem) => {
                self.problem = Some(problem);
                return;
            }
        };
        let Ok(figures) = Figures::deserialize(&overview.figures) else {
            let unknown = || "the hub tells no figures: it is of an earlier version".to_owned();
            let no_pool = overview.status.hub.is_none().then(|| "no pool: gleaner up, or gleaner use TOKEN".to_owned());
            self.problem = Some(overview.status.problem.clone().or(no_pool).unwrap_or_else(unknown));
            // What the daemon knows by itself is shown all the same.
            self.overview.jobs = overview.jobs;
            return;
        };
        let before = self.figures.as_ref().filter(|before| before.hub_id == figures.hub_id);
        match before.and_then(|before| Rates::between(before, &figures)) {
            Some(rates) => self.rates.push_back((now_ms, rates)),
            // Another hub, or the same anew.
            None if before.is_none_or(|before| before.uptime_ms > figures.uptime_ms) => self.rates.clear(),
            None => {}
        }
        let is_old = |at_ms: u64| at_ms + MINUTE_MS < now_ms;
        while self.rates.len() > RATES_MAX || self.rates.front().is_some_and(|(at_ms, _)| is_old(*at_ms)) {
            self.rates.pop_front();
        }
        (self.overview, self.figures, self.answered_ms, self.problem) = (overview, Some(figures), now_ms, None);
    }

    /// A key was pressed; false: that is all.
    pub fn press(&mut self, key: Key) -> bool {
        match key {
            Key::End => return false,
            Key::ByCpus => self.by_name = false,
            Key::ByName => self.by_name = true,
            Key::Help => self.helps = !self.helps,
        }
        true
    }

    /// Rates of the last minute, the latest last.
    pub fn rates(&self) -> impl DoubleEndedIterator<Item = &Rates> + ExactSizeIterator {
        self.rates.iter().map(|(_, rates)| rates)
    }

    /// The workers in their order.
    pub fn workers(&self) -> Vec<&WorkerStatus> {
        let mut workers: Vec<&WorkerStatus> = self.overview.status.workers.iter().collect();
        workers.sort_by(|a, b| {
            let busier = if self.by_name { std::cmp::Ordering::Equal } else { b.busy.cmp(&a.busy) };
            busier.then_with(|| a.name.cmp(&b.name))
        });
        workers
    }

    /// The batch jobs: those that are not over first.
    pub fn jobs(&self) -> Vec<&BatchLine> {
        let mut jobs: Vec<&BatchLine> = self.overview.jobs.jobs.iter().collect();
        jobs.sort_by_key(|job| job.is_over());
        jobs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(figures: &Figures) -> Result<Overview, String> {
        let figures = serde_json::to_value(figures).expect("plain data");
        Ok(Overview { figures, ..Overview::default() })
    }

    fn figures(uptime_ms: u64, submitted: u64, failed: u64) -> Figures {
        let mut figures = Figures { hub_id: "a".into(), uptime_ms, ..Figures::default() };
        (figures.totals.submitted, figures.totals.failed) = (submitted, failed);
        figures
    }

    #[test]
    fn rates_are_by_the_hub_s_clock() {
        let mut view = View::default();
        view.take(answer(&figures(1_000, 10, 0)), 0);
        // The second answer was long on its way.
        view.take(answer(&figures(3_000, 30, 1)), 7_000);
        let want = Rates { submitted: 10.0, dispatched: 0.0, ended: 0.5, failed: 0.5 };
        assert_eq!(view.rates().collect::<Vec<_>>(), [&want]);
        // The same answer again, or a hub that was started anew.
        view.take(answer(&figures(3_000, 30, 1)), 8_000);
        assert_eq!(view.rates().len(), 1);
        view.take(answer(&figures(500, 30, 1)), 9_000);
        assert_eq!(view.rates().len(), 0);
        view.take(answer(&figures(1_500, 31, 1)), 10_000);
        assert_eq!(view.rates().len(), 1);
        for second in 0..200 {
            view.take(answer(&figures(2_500 + second * 1000, 31, 1)), 11_000 + second * 1000);
        }
        assert_eq!(view.rates().len(), 61, "those of the last minute");
        for tenth in 0..1000 {
            view.take(answer(&figures(202_500 + tenth * 100, 31, 1)), 211_000 + tenth * 100);
        }
        assert_eq!(view.rates().len(), RATES_MAX);
    }

    #[test]
    fn what_was_known_stays_while_there_is_no_answer() {
        let mut view = View::default();
        view.take(answer(&figures(1_000, 10, 0)), 5);
        view.take(Err("no daemon".into()), 1_000);
        assert_eq!((view.problem.as_deref(), view.answered_ms), (Some("no daemon"), 5));
        let mut lost = Overview::default();
        (lost.status.hub, lost.status.problem) = (Some("h:1".into()), Some("the hub is gone".into()));
        lost.jobs.older = 3;
        view.take(Ok(lost), 2_000);
        assert_eq!((view.problem.as_deref(), view.answered_ms), (Some("the hub is gone"), 5));
        assert_eq!(
            (view.figures.as_ref().map(|figures| figures.totals.submitted), view.overview.jobs.older),
            (Some(10), 3)
        );
        view.take(answer(&figures(4_000, 13, 0)), 3_000);
        assert_eq!((view.problem.as_deref(), view.rates().len()), (None, 1));
        let mut view = View::default();
        view.take(Ok(Overview::default()), 0);
        assert!(view.problem.is_some_and(|problem| problem.starts_with("no pool")));
    }

    #[test]
    fn workers_by_load_or_name() {
        let mut view = View::default();
        let worker = |name: &str, busy| WorkerStatus { name: name.into(), busy, cpus: 4, ..WorkerStatus::default() };
        view.overview.status.workers = vec![worker("b", 1), worker("a", 1), worker("c", 3)];
        let names = |view: &View| view.workers().iter().map(|worker| worker.name.clone()).collect::<String>();
        assert_eq!(names(&view), "cab");
        assert!(view.press(Key::ByName));
        assert_eq!(names(&view), "abc");
        assert!(!view.press(Key::End));
    }
}
