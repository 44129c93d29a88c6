//! The study again: lingering is ahead of leaving, by as much as was published.

use sim::statistics::Mean;
use sim::study::{LOADS, Load, Measures, POLICIES, PUBLISHED, replicate};

/// Replicates in this test; `gleaner sim linger` makes more.
const REPLICATES: u64 = 40;

fn means(load: &Load, part: fn(&Measures) -> f64) -> [f64; 4] {
    POLICIES.map(|(_, policy)| {
        let values: Vec<f64> = (0..REPLICATES).map(|seed| part(&replicate(64, load, policy, seed))).collect();
        Mean::of(&values).value
    })
}

#[test]
fn the_published_table_is_come_by_again() {
    let averages = means(&LOADS[0], |measures| measures.average_s);
    let throughputs = means(&LOADS[0], |measures| measures.throughput);
    println!("{averages:?} {throughputs:?}");
    for (at, within) in [(0, 0.05), (1, 0.05), (2, 0.08), (3, 0.08)] {
        let want = PUBLISHED[0][at];
        assert!((averages[at] / want.average_s - 1.0).abs() < within, "{}: {averages:?}", POLICIES[at].0);
        assert!((throughputs[at] / want.throughput - 1.0).abs() < within, "{}: {throughputs:?}", POLICIES[at].0);
    }
    assert!((1.5..1.75).contains(&(throughputs[1] / throughputs[3])), "{throughputs:?}");
}
