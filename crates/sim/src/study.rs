//! Linger-Longer's study of sequential jobs (Ryu, Hollingsworth: Linger longer, 1998, as its authors' slides have it): two loads on 64
//! machines under four policies, again.

use crate::cluster::{Outcome, Setting, run};
use crate::owners::Owners;
use crate::statistics::deviation;
use sched::linger::Policy;
use sched::series::mean;

/// The policies of the study, with their short names.
pub const POLICIES: [(&str, Policy); 4] = [
    ("LL", Policy::LingerLonger),
    ("LF", Policy::LingerForever),
    ("IE", Policy::ImmediateEviction),
    ("PM", Policy::PauseAndMigrate(60.0)),
];
/// How long a job of 8 MB is on its way over 10 Mbit/s, of which it gets 3, with what begins and ends that, in seconds.
pub const MOVE_S: f64 = 22.4;
/// What an idle machine uses by itself: the mean of [`Owners`]' samples.
pub const IDLE_USE: f64 = 0.036;
/// How long work goes on where throughput is measured, in seconds.
const STEADY_S: f64 = 3_600.0;
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

/// What is measured of one world, or was published of the study's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measures {
    /// From submission to end, in seconds: mean over all jobs.
    pub average_s: f64,
    /// Deviation of the time from first being given a machine to the end, as a part of its mean.
    pub variation: f64,
    /// Until the last one has ended, in seconds.
    pub family_s: f64,
    /// Processor time that guests get each second, with as many jobs always.
    pub throughput: f64,
    /// That time of the slowest twentieth of jobs, in seconds: their mean.
    pub slowest_s: f64,
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
    Measures { average_s, variation, family_s, throughput, slowest_s }
}

/// One replicate: a world to its end, and one in which work goes on.
pub fn replicate(machines: usize, load: &Load, policy: Policy, seed: u64) -> Measures {
    let setting = Setting {
        machines,
        owners: Owners::default(),
        policy,
        jobs: load.jobs,
        job_s: load.job_s,
        move_s: MOVE_S,
        idle_use: IDLE_USE,
        steady_s: None,
    };
    let outcome = run(&setting, seed);
    let steady = run(&Setting { steady_s: Some(STEADY_S), ..setting }, seed);
    Measures { throughput: steady.given_s / steady.lasted_s, ..of(&outcome) }
}

fn of(outcome: &Outcome) -> Measures {
    let ends: Vec<f64> = outcome.ended.iter().map(|ended| ended.ended_s).collect();
    let mut took: Vec<f64> = outcome.ended.iter().map(|ended| ended.ended_s - ended.begun_s).collect();
    took.sort_by(f64::total_cmp);
    let slowest = (took.len() as f64 * SLOWEST).ceil() as usize;
    Measures {
        average_s: mean(&ends),
        variation: deviation(&took) / mean(&took),
        family_s: outcome.lasted_s,
        throughput: 0.0,
        slowest_s: mean(&took[took.len() - slowest..]),
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
        let measures = of(&outcome);
        assert_eq!((measures.average_s, measures.family_s, measures.slowest_s), (17.5, 25.0, 20.0));
        assert!((measures.variation - 50.0f64.sqrt() / 15.0).abs() < 1e-12);
    }
}
