//! The study again: lingering is ahead of leaving, by as much as was published; and our own policy is ahead of theirs on owners to whom it
//! was not fitted.

use sim::cluster::{Manner, run};
use sim::parameters::Parameters;
use sim::statistics::Mean;
use sim::study::{LOADS, Measures, PUBLISHED, replicate};

/// Replicates in this test; `gleaner sim linger` makes more.
const REPLICATES: u64 = 40;

fn worlds(parameters: &Parameters, manner: Manner) -> Vec<Measures> {
    (1..=REPLICATES).map(|seed| replicate(parameters, manner, None, seed)).collect()
}

fn mean(worlds: &[Measures], part: fn(&Measures) -> f64) -> f64 {
    Mean::of(&worlds.iter().map(part).collect::<Vec<f64>>()).value
}

#[test]
fn the_published_table_is_come_by_again() {
    let parameters = LOADS[0].on(&Parameters::default());
    let mut throughputs = Vec::new();
    let manners = parameters.manners();
    for (((name, manner), published), within) in manners.iter().zip(PUBLISHED[0]).zip([0.05, 0.05, 0.08, 0.08]) {
        let worlds = worlds(&parameters, *manner);
        let average_s = mean(&worlds, |measures| measures.average_s);
        let throughput = mean(&worlds, |measures| measures.throughput);
        assert!((average_s / published.average_s - 1.0).abs() < within, "{name}: {average_s} s");
        assert!((throughput / published.throughput - 1.0).abs() < within, "{name}: {throughput}");
        let slowdown = mean(&worlds, |measures| measures.slowdown);
        assert!(slowdown < 0.01, "{name}: owners are slower by {slowdown}");
        throughputs.push(throughput);
    }
    assert!((1.5..1.75).contains(&(throughputs[1] / throughputs[3])), "{throughputs:?}");
}

/// Paired world by world: foresight less linger longer, with the interval of the mean.
fn ahead(parameters: &Parameters, part: fn(&Measures) -> f64) -> Mean {
    let manners = parameters.manners();
    let (theirs, ours) = (worlds(parameters, manners[0].1), worlds(parameters, manners[4].1));
    let differences: Vec<f64> = ours.iter().zip(&theirs).map(|(ours, theirs)| part(ours) - part(theirs)).collect();
    Mean::of(&differences)
}

#[test]
fn foresight_is_ahead_of_lingering_longer_on_other_owners_too() {
    let others: [&[(&str, f64)]; 4] = [
        &[],
        &[("away-median-s", 740.0), ("there-median-s", 1_272.0), ("machines", 48.0)],
        &[("idle-part", 0.25), ("job-s", 400.0)],
        &[("high-part", 0.5), ("high-s", 1_800.0), ("jobs", 100.0)],
    ];
    for changes in others {
        let mut parameters = LOADS[0].on(&Parameters::default());
        for (name, value) in changes {
            parameters.set(name, *value).expect("sound");
        }
        let average = ahead(&parameters, |measures| measures.average_s);
        assert!(average.value + average.within < 0.0, "{changes:?}: {average:?}");
        let p95 = ahead(&parameters, |measures| measures.p95_s);
        assert!(p95.value - p95.within <= 0.0, "{changes:?}: {p95:?}");
    }
}

#[test]
fn a_day_of_64_machines_is_simulated() {
    let parameters = Parameters::default();
    for (name, manner) in parameters.manners() {
        let mut setting = parameters.setting(manner, None);
        setting.steady_s = Some(86_400.0);
        let outcome = run(&setting, 1);
        assert_eq!(outcome.lasted_s, 86_400.0);
        assert!(outcome.given_s > 30.0 * 86_400.0, "{name}: {}", outcome.given_s);
    }
}
