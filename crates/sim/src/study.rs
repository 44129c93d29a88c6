//! Linger-Longer's study of sequential jobs (Ryu, Hollingsworth: Linger longer, 1998, as its authors' slides have it): two loads on 64
//! machines under four policies, again.

use crate::cluster::{Manner, Outcome, Setting, Source, run};
use crate::parameters::Parameters;
use crate::statistics::deviation;
use sched::series::mean;

/// The part of all jobs that took longest, of which the study tells apart.
const SLOWEST: f64 = 0.05;

/// A load: jobs that are submitted at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Its name.
    pub name: &'static str,
    /// Jobs.
    pub jobs: usize,
    /// Processor time of each, in seconds.
    pub job_s: f64,
}

/// Twice as many jobs as machines, and a few long ones.
pub const LOADS: [Load; 2] =
    [Load { name: "W1", jobs: 128, job_s: 600.0 }, Load { name: "W2", jobs: 16, job_s: 1_800.0 }];

impl Load {
    /// It, on machines that are as these say otherwise.
    pub fn on(&self, parameters: &Parameters) -> Parameters {
        let mut with = *parameters;
        for (name, value) in [("jobs", self.jobs as f64), ("job-s", self.job_s)] {
            // Both are within their bounds.
            let _ = with.set(name, value);
        }
        with
    }
}

/// What is measured of one world, or was published of the study's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measures {
    /// From submission to end, in seconds: mean over all jobs. Those that were given up count as if they had ended then.
    pub average_s: f64,
    /// The same: nineteen of twenty jobs have ended by then.
    pub p95_s: f64,
    /// Deviation of the time from first being given a machine to the end, as a part of its mean.
    pub variation: f64,
    /// Until the last one has ended, in seconds.
    pub family_s: f64,
    /// Processor time that guests get each second, with as many jobs always.
    pub throughput: f64,
    /// That time of the slowest twentieth of jobs, in seconds: their mean.
    pub slowest_s: f64,
    /// What owners waited for because of guests beside them, as a part of all that they computed.
    pub slowdown: f64,
    /// How often a job moved.
    pub moves: f64,
    /// The part of jobs that were given up.
    pub given_up: f64,
}

/// What the slides say, by load and policy. They give no slowest jobs but for two.
pub const PUBLISHED: [[Measures; 4]; 2] = [
    [
        published(1_044.0, 0.137, 1_847.0, 52.2, 921.0),
        published(1_026.0, 0.205, 1_844.0, 55.5, 1_233.0),
        published(1_531.0, 0.277, 2_616.0, 34.6, 0.0),
        published(1_531.0, 0.225, 2_521.0, 34.6, 0.0),
    ],
    [
        published(1_859.0, 0.009, 1_896.0, 15.0, 0.0),
        published(1_861.0, 0.013, 1_925.0, 14.7, 0.0),
        published(1_860.0, 0.013, 1_925.0, 14.5, 0.0),
        published(1_862.0, 0.016, 1_956.0, 14.5, 0.0),
    ],
];

const fn published(average_s: f64, variation: f64, family_s: f64, throughput: f64, slowest_s: f64) -> Measures {
    Measures {
        average_s,
        variation,
        family_s,
        throughput,
        slowest_s,
        p95_s: 0.0,
        slowdown: 0.0,
        moves: 0.0,
        given_up: 0.0,
    }
}

/// Owners with lingering guests beside them were slower by less than this; the paper says by 0.5%.
pub const SLOWDOWN_PUBLISHED: f64 = 0.01;

/// One replicate: a world to its end, and one in which work goes on. The same seed makes the same machines, owners and jobs, whatever is
/// done with guests: so manners can be compared world by world.
pub fn replicate(parameters: &Parameters, manner: Manner, source: Option<&Source>, seed: u64) -> Measures {
    let setting = parameters.setting(manner, source);
    let outcome = run(&setting, seed);
    let steady = run(&Setting { steady_s: Some(parameters.get("steady-s")), ..setting.clone() }, seed);
    Measures { throughput: steady.given_s / steady.lasted_s, ..of(&outcome, &setting) }
}

fn of(outcome: &Outcome, setting: &Setting) -> Measures {
    let given_up = std::iter::repeat_n((0.0, setting.give_up_s), outcome.given_up);
    let times = outcome.ended.iter().map(|ended| (ended.begun_s, ended.ended_s)).chain(given_up);
    let (mut ends, mut took): (Vec<f64>, Vec<f64>) =
        times.map(|(begun_s, ended_s)| (ended_s, ended_s - begun_s)).unzip();
    took.sort_by(f64::total_cmp);
    ends.sort_by(f64::total_cmp);
    let slowest = (took.len() as f64 * SLOWEST).ceil() as usize;
    Measures {
        average_s: mean(&ends),
        p95_s: ends[ends.len() - 1 - (ends.len() as f64 * SLOWEST) as usize],
        variation: deviation(&took) / mean(&took),
        family_s: ends.last().copied().unwrap_or_default(),
        throughput: 0.0,
        slowest_s: mean(&took[took.len() - slowest..]),
        slowdown: if outcome.owners_s > 0.0 { outcome.delayed_s / outcome.owners_s } else { 0.0 },
        moves: outcome.moves as f64 / setting.jobs as f64,
        given_up: outcome.given_up as f64 / setting.jobs as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Ended;

    #[test]
    fn what_is_measured_is_told_of_all_jobs() {
        let ended = |begun_s, ended_s| Ended { begun_s, ended_s };
        let outcome = Outcome { ended: vec![ended(0.0, 10.0), ended(5.0, 25.0)], lasted_s: 25.0, ..Outcome::default() };
        let setting = Parameters::default().setting(Manner::Foresight, None);
        let measures = of(&outcome, &Setting { jobs: 2, ..setting });
        assert_eq!((measures.average_s, measures.family_s, measures.slowest_s), (17.5, 25.0, 20.0));
        assert!((measures.variation - 50.0f64.sqrt() / 15.0).abs() < 1e-12);
    }
}
