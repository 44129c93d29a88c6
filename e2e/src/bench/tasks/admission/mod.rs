//! `admission`: how often the table is wrong when it says that a deadline can be met, and that it cannot.
//!
//! In virtual time, from a seed: no clock is asked, so the figures are the same on any machine. A [`plan`] is drawn of what happens
//! from outside, and goes by in a [`future`]. Batches of tasks with deadlines are submitted by accounts with and without reserved
//! shares, at loads from half to twice of what the hosts can compute.
//!
//! *False acceptance*: a batch was admitted, and some task of it was late.
//! *False refusal*: a batch was refused, and could have been admitted. That is tried, for some of the refused: the world is forked
//! just before by the table's own snapshot, and there it is admitted. It was refused falsely if all its tasks were in time, and
//! no batch that was admitted and in time in the first world is late in the second one. That is strict: one task more
//! changes which host gets which later task, so some others are early and some late by chance. So it is also told how often it was in
//! time and no more batches were late than before.
//! What is submitted later is answered by the table in the second world as well, which counts what was admitted.
//!
//! *How a refused batch is admitted*: while it is submitted, a host is there that can do no task of any job and is so fast that all
//! deadlines can be met; the job is held meanwhile, so that nothing else happens. Then the host leaves, and the job goes on. So
//! the table's own code admits it, and all that follows is as with any other batch. Its declared cost is at most a quarter of the
//! time until its deadline: what takes longer on a slow host than there is time is refused on any pool. What it really costs stays.
//!
//! *The estimate*: in a third world a refused batch is submitted with the deadline that the table named. Its error is that deadline
//! less the time at which the batch had been done: above zero it was too careful.

mod future;
mod plan;

use super::Options;
use crate::bench::samples::{Figures, Samples};
use crate::error::{Error, Result};
use future::{Answer, Fate, Future};
use plan::{AHEAD_MS_MAX, Plan, Setting};

/// Hosts, what figures of that size end in, how long batches come, and how many refusals are tried.
const SIZES: [Size; 2] = [
    Size { hosts: 100, label: "", until_ms: 360_000, forks: 200 },
    Size { hosts: 1_000, label: "_1k_hosts", until_ms: 180_000, forks: 40 },
];
/// What is offered, of what the hosts can compute.
const LOADS_PERCENT: [u64; 5] = [50, 80, 100, 120, 200];
/// Until then the hosts are idler than later on, and nothing is counted.
const WARM_MS: u64 = 60_000;
/// After the last batch was submitted all have ended within so long.
const DRAIN_MS: u64 = 4 * AHEAD_MS_MAX;
/// The history.
const SEED: u64 = 11;

#[derive(Clone, Copy, Debug)]
struct Size {
    hosts: usize,
    label: &'static str,
    until_ms: u64,
    forks: usize,
}

/// All sizes, settings and loads.
pub fn run(options: &Options, figures: &mut Figures) -> Result<()> {
    for size in SIZES.iter().filter(|size| options.hosts.is_none_or(|wanted| wanted == size.hosts)) {
        for (setting, of_setting) in Setting::ALL {
            for load_percent in LOADS_PERCENT {
                let plan = Plan::draw(setting, size.hosts, load_percent, size.until_ms, SEED);
                let found = Found::of(&plan, size)?;
                let ending = format!("{load_percent}_pct{of_setting}{}", size.label);
                eprintln!("bench: {ending}: {found:?}");
                found.add(&ending, figures);
            }
        }
    }
    Ok(())
}

/// What is known of a plan.
#[derive(Clone, Debug, Default)]
struct Found {
    /// Batches that were submitted, and of these the admitted ones, and of these those that were late.
    batches: usize,
    admitted: usize,
    late: usize,
    /// What the batches in time were, of all that hosts could compute meanwhile.
    used: f64,
    /// Refusals that were tried, those that were false, and those that were in time with no more others late than before.
    tried: usize,
    false_refusals: usize,
    net_false_refusals: usize,
    /// Batches that were refused with the deadline that the table had named, too; and those that were late then.
    refused_again: usize,
    late_again: usize,
    estimates: Samples,
}

impl Found {
    fn of(plan: &Plan, size: &Size) -> Result<Self> {
        let mut first = Future::new(plan)?;
        first.run(usize::MAX, size.until_ms + DRAIN_MS)?;
        let mut found = Self::default();
        let mut refused = Vec::new();
        let mut used_ms = 0;
        for (at, (batch, fate)) in plan.batches.iter().zip(&first.fates).enumerate() {
            if fate.is_met() && (WARM_MS..size.until_ms).contains(&fate.ended_ms) {
                used_ms += batch.work_ms();
            }
            if batch.at_ms < WARM_MS {
                continue;
            }
            found.batches += 1;
            match fate.answer {
                _ if fate.left > 0 => return Err(Error::Product(format!("batch {at} has not ended: {fate:?}"))),
                Answer::None => return Err(Error::Product(format!("batch {at} was not submitted"))),
                Answer::Refused(_) => refused.push(at),
                Answer::Admitted => {
                    found.admitted += 1;
                    found.late += usize::from(!fate.is_met());
                }
            }
        }
        found.used = used_ms as f64 / (plan.supply_per_s() * (size.until_ms - WARM_MS) / 1_000) as f64;
        found.try_refused(plan, &refused, size.forks, &first.fates)?;
        Ok(found)
    }

    /// Tries some of the refused batches in worlds of their own.
    fn try_refused(&mut self, plan: &Plan, refused: &[usize], most: usize, fates: &[Fate]) -> Result<()> {
        let mut again = Future::new(plan)?;
        let step = refused.len().div_ceil(most).max(1);
        for at in refused.iter().step_by(step).copied() {
            let batch = plan.batches[at];
            again.run(at, batch.at_ms)?;
            if again.next_batch() != at {
                return Err(Error::Product(format!("batch {at} does not come when it should: {again:?}")));
            }
            self.tried += 1;
            let mut admitted = again.fork()?;
            if admitted.submit_next(batch.deadline_ms, true)? != Answer::Admitted {
                return Err(Error::Product(format!("batch {at} was not admitted where all should be")));
            }
            let until_ms = batch.at_ms + AHEAD_MS_MAX;
            admitted.run(usize::MAX, until_ms)?;
            self.compare(plan, at, until_ms, fates, &admitted.fates);

            let Answer::Refused(earliest_ms) = fates[at].answer else { continue };
            let mut later = again.fork()?;
            if later.submit_next(earliest_ms, false)? != Answer::Admitted {
                self.refused_again += 1;
                continue;
            }
            later.run_to_end(at as u32, earliest_ms + DRAIN_MS)?;
            let ended_ms = later.fates[at].ended_ms;
            self.late_again += usize::from(ended_ms > earliest_ms);
            self.estimates.add("error", earliest_ms as f64 - ended_ms as f64);
        }
        Ok(())
    }

    /// Whether a batch that was refused in one world and admitted in another one was refused falsely.
    fn compare(&mut self, plan: &Plan, own: usize, until_ms: u64, before: &[Fate], after: &[Fate]) {
        let is_counted = |at: &usize| *at != own && plan.batches[*at].deadline_ms <= until_ms;
        let in_both = |at: &usize| before[*at].answer == Answer::Admitted && after[*at].answer == Answer::Admitted;
        let (mut later, mut earlier) = (0, 0);
        for at in (0..before.len()).filter(is_counted).filter(in_both) {
            match (before[at].is_met(), after[at].is_met()) {
                (true, false) => later += 1,
                (false, true) => earlier += 1,
                _ => {}
            }
        }
        let is_met = after[own].is_met();
        self.false_refusals += usize::from(is_met && later == 0);
        self.net_false_refusals += usize::from(is_met && later <= earlier);
    }

    fn add(&self, ending: &str, figures: &mut Figures) {
        let percent = |part: usize, whole: usize| (whole > 0).then(|| part as f64 * 100.0 / whole as f64);
        let refused = self.batches - self.admitted;
        let estimated = self.tried - self.refused_again;
        let all = [
            ("refused", percent(refused, self.batches)),
            ("used", Some(self.used * 100.0)),
            ("false_accept", percent(self.late, self.admitted)),
            ("false_refuse", percent(self.false_refusals, self.tried)),
            ("false_refuse_net", percent(self.net_false_refusals, self.tried)),
            ("estimate_refused", percent(self.refused_again, self.tried)),
            ("estimate_late", percent(self.late_again, estimated)),
            ("estimate_error_ms_p50", self.estimates.quantile("error", 0.5)),
            ("estimate_error_ms_p5", self.estimates.quantile("error", 0.05)),
            ("estimate_error_ms_p95", self.estimates.quantile("error", 0.95)),
        ];
        for (name, value) in all {
            match value {
                Some(_) => figures.add(&format!("admission_{name}_{ending}"), value),
                None => figures.missing(&format!("admission_{name}_{ending}"), "nothing was refused"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Worlds that are forked go on as the first one would, and what was refused is admitted where it is to be.
    #[test]
    fn the_same_seed_gives_the_same_figures() {
        let size = Size { hosts: 12, label: "", until_ms: 100_000, forks: 6 };
        let plan = Plan::draw(Setting::HostsGo, size.hosts, 150, size.until_ms, 3);
        let [one, other] = [(); 2].map(|()| format!("{:?}", Found::of(&plan, &size).expect("it runs")));
        assert_eq!(one, other);
        let found = Found::of(&plan, &size).expect("it runs");
        assert!(found.tried > 0 && found.admitted > 0, "{found:?}");
    }

    #[test]
    fn a_fork_goes_on_as_its_world() {
        let plan = Plan::draw(Setting::HostsGo, 12, 150, 60_000, 3);
        let mut first = Future::new(&plan).expect("it begins");
        first.run(usize::MAX, 30_000).expect("it runs");
        let mut fork = first.fork().expect("it is forked");
        for future in [&mut first, &mut fork] {
            future.run(usize::MAX, 60_000 + DRAIN_MS).expect("it runs");
        }
        let [one, other] = [first, fork].map(|future| format!("{:?}", future.fates));
        assert_eq!(one, other);
    }
}
